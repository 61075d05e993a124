/* See rank_steps.h: who holds what when, and what it should be. */
#include "tests/harness/external/rank_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"

/* ---- the schedule ---------------------------------------------------------------------------- */

enum { MAX_PAIRS = 1 << 27 }; /* bytes of a mask */

static struct attn_work work_of(const struct attn_rank_steps *x, int rank)
{
    return attn_work_of(&x->setup->problem, &x->spec.options, x->pass, rank);
}

static int is_ring(const struct attn_rank_steps *x)
{
    return x->query_rank != NULL;
}

int attn_rank_block(const struct attn_rank_steps *x, int rank, int step)
{
    const struct attn_work w = work_of(x, rank);
    return attn_work_stop(&w, step).key;
}

static unsigned bit(enum attn_slot slot)
{
    return 1u << slot;
}

static const unsigned forward = 1u << ATTN_T_O | 1u << ATTN_T_LSE;
static const unsigned of_keys = 1u << ATTN_T_DK | 1u << ATTN_T_DV;

struct attn_rank_held attn_rank_held(const struct attn_rank_steps *x, int rank, int step)
{
    const struct attn_work w = work_of(x, rank);
    const struct attn_problem *p = &x->setup->problem;
    const int ends = step == x->steps, backward = x->pass == ATTN_BACKWARD;
    const struct attn_layout *layout = ends ? &w.home : &w.work;
    struct attn_rank_held held = {.rank = rank, .step = step, .block = rank};
    if (is_ring(x) && !ends)
        held.block = attn_work_stop(&w, step).key;
    held.queries = attn_layout_box(layout, p, 0, rank);
    held.keys = attn_layout_box(layout, p, 1, held.block);
    if (!is_ring(x) && step == 0)
        held.slots = bit(ATTN_T_Q) | bit(ATTN_T_K) | bit(ATTN_T_V) |
                     (backward ? bit(ATTN_T_DO) : 0);
    else
        held.slots = forward | (backward ? of_keys : 0) |
                     (backward && (ends || !is_ring(x)) ? bit(ATTN_T_DQ) : 0);
    return held;
}

struct attn_rank_held attn_rank_given(const struct attn_rank_steps *x, int rank)
{
    struct attn_rank_held held = attn_rank_held(x, rank, x->steps);
    held.slots = bit(ATTN_T_Q) | bit(ATTN_T_K) | bit(ATTN_T_V);
    if (x->pass == ATTN_BACKWARD)
        held.slots |= bit(ATTN_T_DO) | bit(ATTN_T_DLSE);
    return held;
}

const char *attn_rank_folder(const struct attn_rank_steps *x, const char *name, int rank, int step,
                             char text[240])
{
    int n = snprintf(text, 240, "%.200s/rank-%d", name, rank);
    if (step != x->steps)
        snprintf(text + n, 240 - (size_t)n, "/step-%d", step);
    return text;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int is_of_keys(int slot)
{
    return slot == ATTN_T_K || slot == ATTN_T_V || slot == ATTN_T_DK || slot == ATTN_T_DV;
}

const struct attn_box *attn_rank_box(const struct attn_rank_held *held, int slot)
{
    return is_of_keys(slot) ? &held->keys : &held->queries;
}

int64_t attn_rank_token(const struct attn_box *box, int64_t row)
{
    for (int64_t s = 0; s < attn_box_stretches(box); s++) {
        const struct attn_stretch x = attn_box_stretch(box, s);
        if (row >= x.row && row < x.row + x.tokens.n)
            return x.tokens.first + (row - x.row) * x.tokens.step;
    }
    return -1;
}

void attn_rank_place(const struct attn_rank_held *held, int slot, const int64_t at[4],
                     int64_t whole[4])
{
    const struct attn_box *box = attn_rank_box(held, slot);
    whole[0] = box->batches.first + at[0];
    whole[1] = box->heads.first + at[1];
    whole[2] = attn_rank_token(box, at[2]);
    whole[3] = at[3];
}

enum attn_status attn_rank_piece_open(const struct attn_rank_steps *x,
                                      const struct attn_rank_held *held, struct attn_setup *piece,
                                      struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    *piece = (struct attn_setup){.given = x->setup->given, .problem = x->setup->problem};
    for (int slot = 0; slot < ATTN_SLOTS && status == ATTN_OK; slot++) {
        const struct attn_tensor *t = &x->setup->tensor[slot];
        const struct attn_box *box = attn_rank_box(held, slot);
        const int64_t extent[4] = {box->batches.n, box->heads.n, box->tokens, t->extent[3]};
        if ((held->slots >> slot & 1u) != 0 && t->map != NULL)
            status = attn_tensor_alloc(&piece->tensor[slot], t->name, t->dtype, extent, "bhic", 0,
                                       0, 0, err);
    }
    if (status != ATTN_OK)
        attn_rank_piece_close(piece);
    return status;
}

void attn_rank_piece_close(struct attn_setup *piece)
{
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        if (piece->tensor[slot].map != NULL)
            attn_tensor_free(&piece->tensor[slot]);
    memset(piece, 0, sizeof *piece);
}

/* ---- what it should be ----------------------------------------------------------------------- */

/* Ranks whose keys (is_keys) or queries have met the other side of what is held. */
static void mark_ranks(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                       int is_keys, unsigned char met[ATTN_MAX_RANKS])
{
    memset(met, 0, ATTN_MAX_RANKS);
    for (int r = 0; r < x->ranks; r++)
        for (int s = 0; s <= held->step && s < x->steps; s++)
            if (is_keys ? r == held->rank : attn_rank_block(x, r, s) == held->block)
                met[is_keys ? attn_rank_block(x, r, s) : r] = 1;
}

/* The pairs that count: for O and LSE those of the keys that the rank has met; for gradients the
 * rows whose queries have met the keys, and of copied kv heads only those of the rank's heads. */
static void mark_pairs(struct attn_rank_steps *x, const struct attn_rank_held *held,
                       enum attn_pass pass)
{
    const struct attn_problem *p = &x->setup->problem;
    const struct attn_tokens *heads = &held->queries.heads;
    const int is_keys = pass == ATTN_FORWARD, cuts = is_ring(x) && held->step < x->steps;
    const int64_t n[4] = {p->batch, p->heads, p->n_query, p->n_key};
    unsigned char met[ATTN_MAX_RANKS];
    const unsigned char *sees = x->sees;
    unsigned char *counts = x->counts;
    if (cuts)
        mark_ranks(x, held, is_keys, met);
    for (int64_t at[4] = ATTN_START; attn_each(at, n);) {
        int is_met = !cuts || met[is_keys ? x->key_rank[at[3]] : x->query_rank[at[2]]];
        int is_here = at[1] >= heads->first && at[1] < heads->first + heads->n;
        *counts++ = *sees++ && is_met && is_here;
    }
}

static enum attn_status find_pairs(void *arg, const char *name, const char *part,
                                   struct attn_mask_tensor *tensor, struct attn_error *err)
{
    const struct attn_rank_steps *x = arg;
    const struct attn_problem *p = &x->setup->problem;
    (void)name, (void)part, (void)err;
    *tensor = (struct attn_mask_tensor){
        x->counts, 1, 4, {p->batch, p->heads, p->n_query, p->n_key}};
    return ATTN_OK;
}

/* Of all heads of a truth those of the box, one batch behind the other. */
static void keep_heads(struct attn_truth_tensor *t, const struct attn_tokens *heads)
{
    int64_t each = t->extent[2] * t->extent[3], to = 0;
    for (int64_t b = 0; b < t->extent[0]; b++)
        for (int64_t h = heads->first; h < heads->first + heads->n; h++)
            for (int64_t n = 0; n < each; n++, to++) {
                int64_t from = (b * t->extent[1] + h) * each + n;
                t->want[to] = t->want[from];
                t->bound[to] = t->bound[from];
                t->gauge[to] = t->gauge[from];
                t->right[to] = t->right[from];
            }
    t->extent[1] = heads->n;
    t->sample = NULL;
}

static void list_tokens(const struct attn_box *box, int64_t *token)
{
    for (int64_t n = 0; n < box->tokens; n++)
        token[n] = attn_rank_token(box, n);
}

/* The whole problem, with the mask of what counts; rows and keys are those that are held. */
enum attn_status attn_rank_truth(struct attn_rank_steps *x, const struct attn_rank_held *held,
                                 enum attn_pass pass, const struct attn_precision *precision,
                                 const struct attn_setup *piece, struct attn_truth *truth,
                                 struct attn_error *err)
{
    struct attn_problem p = x->setup->problem;
    struct attn_mask_shape shape = {p.batch, p.heads, p.n_query, p.n_key};
    struct attn_mask_source source = {find_pairs, x};
    struct attn_mask *mask = NULL;
    struct attn_inputs in = attn_setup_inputs(x->setup, pass);
    int64_t *row = malloc(((size_t)held->queries.tokens + 1) * sizeof *row);
    int64_t *key = malloc(((size_t)held->keys.tokens + 1) * sizeof *key);
    const int takes_rows = pass == ATTN_FORWARD || (held->slots & bit(ATTN_T_DQ)) != 0;
    enum attn_status status = row != NULL && key != NULL
                                  ? ATTN_OK
                                  : attn_fail(err, ATTN_ENOMEM, "no memory for a rank's tokens");
    mark_pairs(x, held, pass);
    if (status == ATTN_OK)
        status = attn_mask_parse("dense(counts)", &shape, &source, &mask, err);
    if (status == ATTN_OK) {
        list_tokens(&held->queries, row);
        list_tokens(&held->keys, key);
        const struct attn_sample sample = {takes_rows ? held->queries.tokens : 0,
                                           pass == ATTN_BACKWARD ? held->keys.tokens : 0, row, key};
        p.mask = mask;
        in.kept = NULL;
        for (int o = 0; o < ATTN_OUTPUTS && piece != NULL; o++)
            if (piece->tensor[ATTN_T_O + o].map != NULL)
                in.stored[o] = piece->tensor[ATTN_T_O + o].stored;
        status = attn_truth_compute(&p, &in, precision, &sample, truth, err);
    }
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        if (truth->tensor[o].want != NULL)
            keep_heads(&truth->tensor[o], &attn_rank_box(held, ATTN_T_O + o)->heads);
    attn_mask_free(mask);
    free(row);
    free(key);
    return status;
}

void attn_rank_precision(const struct attn_rank_steps *x, const struct attn_claims *claims,
                         struct attn_precision *precision)
{
    const struct attn_work w = work_of(x, 0);
    int64_t partials = attn_layout_partials(&w.work) - 1 +
                       (attn_layout_copies(&w.work, &x->setup->problem) ? x->ranks - 1 : 0);
    attn_claims_precision(claims, &x->setup->problem, precision);
    precision->rescales += partials; /* merged by numerators, or by LSE */
    precision->merges += partials;
    precision->sums += partials;
    attn_precision_complete(&x->setup->problem, precision);
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum attn_status check_scheme(const char *text, const struct attn_spec *spec,
                                     struct attn_error *err)
{
    const struct attn_scheme *scheme = spec->impl->scheme;
    int is_known = strcmp(spec->impl->name, "ring") == 0 || strcmp(spec->impl->name, "ulysses") == 0;
    if (scheme == NULL || !is_known)
        return attn_fail(err, ATTN_EINVAL,
                         "--scheme %.200s: the steps of ring and ulysses are known (ring:ranks=4, "
                         "order= and inner= too, ulysses:ranks=4); their results hold for any other",
                         text);
    if (spec->options.value[ATTN_OPTION_SIZES] == ATTN_SIZES_PAD)
        return attn_fail(err, ATTN_EINVAL,
                         "--scheme %.200s: shards are written without pads; sizes=uneven or "
                         "sizes=strict would work",
                         text);
    return ATTN_OK;
}

static void list_owners(const struct attn_rank_steps *x, int is_keys, int *owner)
{
    const struct attn_work w = work_of(x, 0);
    for (int r = 0; r < x->ranks; r++) {
        const struct attn_box box = attn_layout_box(&w.work, &x->setup->problem, is_keys, r);
        for (int64_t n = 0; n < box.tokens; n++)
            owner[attn_rank_token(&box, n)] = r;
    }
}

static enum attn_status check_case(const struct attn_rank_steps *x, struct attn_error *err)
{
    const struct attn_problem *p = &x->setup->problem;
    const struct attn_impl *impl = x->spec.impl;
    double pairs = (double)p->batch * (double)p->heads * (double)p->n_query * (double)p->n_key;
    if ((attn_problem_needs(p) & ~impl->caps) != 0)
        return attn_fail(err, ATTN_ENOTSUP, "%s does not take a bias tensor", impl->name);
    if (pairs > MAX_PAIRS)
        return attn_fail(err, ATTN_ENOTSUP, "%.0f pairs are too many to be judged step by step: %d",
                         pairs, MAX_PAIRS);
    return impl->accepts(p, &x->spec.options, err);
}

enum attn_status attn_rank_steps_open(const char *text, const struct attn_setup *setup,
                                      struct attn_rank_steps *x, struct attn_error *err)
{
    const struct attn_problem *p = &setup->problem;
    struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    size_t pairs = (size_t)(p->batch * p->heads * p->n_query * p->n_key);
    *x = (struct attn_rank_steps){.setup = setup, .pass = setup->given.pass};
    enum attn_status status = attn_spec_parse_priced(text, &x->spec, err);
    if (status == ATTN_OK)
        status = check_scheme(text, &x->spec, err);
    if (status == ATTN_OK)
        status = check_case(x, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_work w = work_of(x, 0);
    x->ranks = attn_parallel_ranks(&x->spec.options);
    x->steps = w.passes_on ? w.stops : 2;
    x->sees = malloc(pairs + 1);
    x->counts = malloc(pairs + 1);
    if (w.passes_on) {
        x->query_rank = malloc(((size_t)p->n_query + 1) * sizeof *x->query_rank);
        x->key_rank = malloc(((size_t)p->n_key + 1) * sizeof *x->key_rank);
    }
    if (x->sees == NULL || x->counts == NULL ||
        (w.passes_on && (x->query_rank == NULL || x->key_rank == NULL))) {
        attn_rank_steps_close(x);
        return attn_fail(err, ATTN_ENOMEM, "no memory for the steps of %.200s", text);
    }
    attn_mask_bytes(p->mask, &shape, 1, x->sees);
    if (w.passes_on) {
        list_owners(x, 0, x->query_rank);
        list_owners(x, 1, x->key_rank);
    }
    return ATTN_OK;
}

void attn_rank_steps_close(struct attn_rank_steps *x)
{
    free(x->sees);
    free(x->counts);
    free(x->query_rank);
    free(x->key_rank);
    memset(x, 0, sizeof *x);
}
