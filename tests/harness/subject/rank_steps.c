/* See rank_steps.h: who holds what when, and what counts for it. */
#include "tests/harness/subject/rank_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"

enum { MAX_PAIRS = 1 << 27 }; /* bytes of a mask */
enum {
    FORWARD = 1 << ATTN_T_O | 1 << ATTN_T_LSE,
    OF_KEYS = 1 << ATTN_T_DK | 1 << ATTN_T_DV,
    INPUTS = 1 << ATTN_T_Q | 1 << ATTN_T_K | 1 << ATTN_T_V
};

/* ---- the schedule ---------------------------------------------------------------------------- */

static struct attn_work work_of(const struct attn_rank_steps *x, int rank)
{
    return attn_work_of(&x->setup->problem, &x->spec.options, x->setup->given.pass, rank);
}

struct attn_rank_held attn_rank_held(const struct attn_rank_steps *x, int rank, int step)
{
    const struct attn_work w = work_of(x, rank);
    const int ends = step == x->steps, backward = x->setup->given.pass == ATTN_BACKWARD;
    struct attn_rank_held held = {.rank = rank, .step = step, .block = rank};
    if (x->is_ring && !ends)
        held.block = attn_rank_block(x, rank, step);
    for (int is_keys = 0; is_keys < 2; is_keys++)
        held.box[is_keys] = attn_layout_box(ends ? &w.home : &w.work, w.whole, is_keys,
                                            is_keys ? held.block : rank);
    if (!x->is_ring && step == 0)
        held.slots = INPUTS | (backward ? 1u << ATTN_T_DO : 0);
    else if (backward)
        held.slots = FORWARD | OF_KEYS | (ends || !x->is_ring ? 1u << ATTN_T_DQ : 0);
    else
        held.slots = FORWARD;
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

int64_t attn_rank_token(const struct attn_box *box, int64_t row)
{
    for (int64_t s = 0; s < attn_box_stretches(box); s++) {
        const struct attn_stretch x = attn_box_stretch(box, s);
        if (row >= x.row && row < x.row + x.tokens.n)
            return x.tokens.first + (row - x.row) * x.tokens.step;
    }
    return -1;
}

static const struct attn_box *box_of(const struct attn_rank_held *held, int slot)
{
    return &held->box[((1 << ATTN_T_K | 1 << ATTN_T_V | OF_KEYS) >> slot) & 1];
}

void attn_rank_place(const struct attn_rank_held *held, int slot, const int64_t at[4],
                     int64_t whole[4])
{
    const struct attn_box *box = box_of(held, slot);
    whole[0] = at[0];
    whole[1] = box->heads.first + at[1];
    whole[2] = attn_rank_token(box, at[2]);
    whole[3] = at[3];
}

enum attn_status attn_rank_piece_open(const struct attn_rank_steps *x,
                                      const struct attn_rank_held *held, int is_wide,
                                      struct attn_setup *piece, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    *piece = (struct attn_setup){.given = x->setup->given, .problem = x->setup->problem};
    for (int slot = 0; slot < ATTN_SLOTS && status == ATTN_OK; slot++) {
        const struct attn_tensor *t = &x->setup->tensor[slot];
        const struct attn_box *box = box_of(held, slot);
        const int64_t extent[4] = {t->extent[0], box->heads.n, box->tokens, t->extent[3]};
        if ((held->slots >> slot & 1u) != 0 && t->map != NULL)
            status = attn_tensor_alloc(&piece->tensor[slot], t->name, is_wide ? ATTN_F64 : t->dtype,
                                       extent, "bhic", 0, 0, 0, err);
    }
    if (status != ATTN_OK)
        attn_rank_piece_close(piece);
    return status;
}

void attn_rank_piece_copy(const struct attn_rank_held *held, struct attn_setup *piece,
                          struct attn_setup *whole, int to_whole)
{
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        struct attn_tensor *t = &piece->tensor[slot], *all = &whole->tensor[slot];
        int64_t w[4];
        for (int64_t at[4] = ATTN_START; t->map != NULL && attn_each(at, t->extent);) {
            attn_rank_place(held, slot, at, w);
            if (to_whole)
                attn_tensor_set(all, w[0], w[1], w[2], w[3],
                                attn_tensor_get(t, at[0], at[1], at[2], at[3]));
            else
                attn_tensor_set(t, at[0], at[1], at[2], at[3],
                                attn_tensor_get(all, w[0], w[1], w[2], w[3]));
        }
        if (t->map != NULL && to_whole)
            all->stored = t->stored;
    }
}

void attn_rank_piece_close(struct attn_setup *piece)
{
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        if (piece->tensor[slot].map != NULL)
            attn_tensor_free(&piece->tensor[slot]);
    memset(piece, 0, sizeof *piece);
}

/* ---- what counts ----------------------------------------------------------------------------- */

/* Forward, the ranks whose keys the rank has met; backward, those whose queries the block has. */
static void mark_ranks(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                       enum attn_pass pass, unsigned char met[ATTN_MAX_RANKS])
{
    memset(met, 0, ATTN_MAX_RANKS);
    for (int step = 0; step <= held->step; step++)
        for (int r = 0; r < x->ranks; r++)
            if (pass == ATTN_FORWARD ? r == attn_rank_block(x, held->rank, step)
                                     : held->block == attn_rank_block(x, r, step))
                met[r] = 1;
}

/* O and LSE are of the keys that the rank has met.  Gradients of keys are sums over the rows of
 * queries that have met them, each row whole: its P is that of all keys. */
static void mark_pairs(struct attn_rank_steps *x, const struct attn_rank_held *held,
                       enum attn_pass pass)
{
    const struct attn_problem *p = &x->setup->problem;
    const struct attn_tokens *heads = &held->box[0].heads;
    const int cuts = x->is_ring && held->step < x->steps;
    const int64_t n[4] = {p->batch, p->heads, p->n_query, p->n_key};
    unsigned char met[ATTN_MAX_RANKS], *counts = x->counts;
    const unsigned char *sees = x->sees;
    if (cuts)
        mark_ranks(x, held, pass, met);
    for (int64_t at[4] = ATTN_START; attn_each(at, n);) {
        int rank = pass == ATTN_FORWARD ? x->key_rank[at[3]] : x->query_rank[at[2]];
        int is_here = at[1] >= heads->first && at[1] < heads->first + heads->n;
        *counts++ = *sees++ && is_here && (!cuts || met[rank]);
    }
}

static enum attn_status find_pairs(void *arg, const char *name, const char *part,
                                   struct attn_mask_tensor *tensor, struct attn_error *err)
{
    const struct attn_rank_steps *x = arg;
    const struct attn_problem *p = &x->setup->problem;
    (void)name, (void)part, (void)err;
    *tensor =
        (struct attn_mask_tensor){x->counts, 1, 4, {p->batch, p->heads, p->n_query, p->n_key}};
    return ATTN_OK;
}

enum attn_status attn_rank_case(struct attn_rank_steps *x, const struct attn_rank_held *held,
                                enum attn_pass pass, struct attn_setup *part,
                                struct attn_sample *sample, struct attn_error *err)
{
    struct attn_case c = x->setup->given;
    const struct attn_mask_source source = {find_pairs, x};
    const int has_rows = pass == ATTN_FORWARD || (held->slots >> ATTN_T_DQ & 1u) != 0;
    struct attn_problem counted;
    struct attn_mask *mask;
    mark_pairs(x, held, pass);
    for (int is_keys = 0; is_keys < 2; is_keys++)
        for (int64_t n = 0; n < held->box[is_keys].tokens; n++)
            x->token[is_keys][n] = attn_rank_token(&held->box[is_keys], n);
    *sample = (struct attn_sample){has_rows ? held->box[0].tokens : 0,
                                   pass == ATTN_BACKWARD ? held->box[1].tokens : 0, x->token[0],
                                   x->token[1]};
    *part = *x->setup;
    part->kept = NULL;
    part->subsets = NULL;                /* which keys have weight is known of the whole alone */
    part->given.fill = ATTN_FILL_NORMAL; /* its probes have one exact answer in the whole alone */
    attn_case_set_mask(&c, "dense(counts)");
    enum attn_status status = attn_case_open(&c, &source, &counted, &mask, err);
    part->problem.mask = mask;
    return status;
}

void attn_rank_precision(const struct attn_rank_steps *x, const struct attn_claims *claims,
                         struct attn_precision *precision)
{
    const struct attn_problem *p = &x->setup->problem;
    const struct attn_work w = work_of(x, 0);
    int64_t partials =
        attn_layout_partials(&w.work) - 1 + (attn_layout_copies(&w.work, p) ? x->ranks - 1 : 0);
    struct attn_claims one = *claims;
    one.ranks = 0; /* the scheme says how many there are */
    attn_claims_precision(&one, p, precision);
    precision->rescales += partials; /* where numerators are summed */
    precision->merges += partials;
    precision->sums += partials;
    attn_precision_complete(p, precision);
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum attn_status check(const char *text, const struct attn_rank_steps *x,
                              struct attn_error *err)
{
    const struct attn_impl *impl = x->spec.impl;
    const struct attn_problem *p = &x->setup->problem;
    double pairs = (double)p->batch * (double)p->heads * (double)p->n_query * (double)p->n_key;
    if (impl != attn_impl_find("ring") && impl != attn_impl_find("ulysses"))
        return attn_fail(err, ATTN_EINVAL,
                         "--scheme %.200s: the steps of ring and ulysses are known, such as "
                         "ring:ranks=4,order=zigzag and ulysses:ranks=2",
                         text);
    if (x->spec.options.value[ATTN_OPTION_SIZES] == ATTN_SIZES_PAD)
        return attn_fail(err, ATTN_EINVAL,
                         "--scheme %.200s: shards have no pads here; sizes=uneven and sizes=strict "
                         "would work",
                         text);
    if ((attn_problem_needs(p) & ~impl->caps) != 0)
        return attn_fail(err, ATTN_ENOTSUP, "%s takes no bias tensor", impl->name);
    if (pairs > MAX_PAIRS)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%.0f pairs are too many to be judged at every step: "
                         "up to %d would work",
                         pairs, MAX_PAIRS);
    return impl->accepts(p, &x->spec.options, err);
}

static void fill(struct attn_rank_steps *x)
{
    const struct attn_problem *p = &x->setup->problem;
    const struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    const struct attn_work w = work_of(x, 0);
    attn_mask_bytes(p->mask, &shape, 1, x->sees);
    for (int r = 0; r < x->ranks; r++) {
        const struct attn_work own = work_of(x, r);
        for (int step = 0; step < x->steps && x->is_ring; step++)
            x->block[r * x->steps + step] = attn_work_stop(&own, step).key;
        for (int is_keys = 0; is_keys < 2; is_keys++) {
            const struct attn_box box = attn_layout_box(&w.work, p, is_keys, r);
            for (int64_t n = 0; n < box.tokens; n++)
                (is_keys ? x->key_rank : x->query_rank)[attn_rank_token(&box, n)] = r;
        }
    }
}

/* A textbook of ranks has the steps of the engine's scheme on equal runs of tokens, for what it
 * takes. */
static enum attn_status parse(const char *text, const struct attn_problem *p,
                              struct attn_spec *spec, struct attn_error *err)
{
    char engine[64];
    enum attn_status status = attn_spec_parse_priced(text, spec, err);
    const struct attn_impl *impl = spec->impl;
    size_t name = status == ATTN_OK ? strcspn(impl->name, "-") : 0;
    if (status != ATTN_OK || impl->ranks == NULL || strcmp(impl->name + name, "-textbook") != 0)
        return status;
    snprintf(engine, sizeof engine, "%.*s:ranks=%d,sizes=strict", (int)name, impl->name,
             attn_parallel_ranks(&spec->options));
    if ((attn_problem_needs(p) & ~impl->caps) != 0)
        return attn_fail(err, ATTN_ENOTSUP, "%s lacks what this case needs; %.*s would work",
                         impl->name, (int)name, impl->name);
    status = impl->accepts(p, &spec->options, err);
    return status == ATTN_OK ? attn_spec_parse_priced(engine, spec, err) : status;
}

enum attn_status attn_rank_steps_open(const char *text, const struct attn_claims *claims,
                                      const struct attn_setup *setup, struct attn_rank_steps *x,
                                      struct attn_error *err)
{
    const struct attn_problem *p = &setup->problem;
    const size_t queries = (size_t)p->n_query + 1, keys = (size_t)p->n_key + 1;
    *x = (struct attn_rank_steps){.setup = setup};
    enum attn_status status = parse(text, p, &x->spec, err);
    if (claims->lse == ATTN_PLUGIN_LSE_ABSENT || claims->layout >= ATTN_PLUGIN_THD)
        return attn_fail(err, ATTN_EINVAL,
                         "--scheme %.200s: ranks have an LSE, by which they merge, and no packed "
                         "batches: \"lse\": \"absent\" and \"layout\": \"thd\" are not for them",
                         text);
    if (status == ATTN_OK)
        status = check(text, x, err);
    if (status != ATTN_OK)
        return status;
    const size_t pairs = (size_t)(p->batch * p->heads * p->n_query * p->n_key) + 1;
    const struct attn_work w = work_of(x, 0);
    x->is_ring = w.scheme->ring != NULL;
    x->ranks = attn_parallel_ranks(&x->spec.options);
    x->steps = x->is_ring ? w.stops : 2;
    x->sees = malloc(pairs);
    x->counts = malloc(pairs);
    x->block = malloc((size_t)(x->ranks * x->steps) * sizeof *x->block);
    x->query_rank = malloc(queries * sizeof *x->query_rank);
    x->key_rank = malloc(keys * sizeof *x->key_rank);
    x->token[0] = malloc(queries * sizeof *x->token[0]);
    x->token[1] = malloc(keys * sizeof *x->token[1]);
    if (x->sees != NULL && x->counts != NULL && x->block != NULL && x->query_rank != NULL &&
        x->key_rank != NULL && x->token[0] != NULL && x->token[1] != NULL) {
        fill(x);
        return ATTN_OK;
    }
    attn_rank_steps_close(x);
    return attn_fail(err, ATTN_ENOMEM, "no memory for the steps of %.200s", text);
}

void attn_rank_steps_close(struct attn_rank_steps *x)
{
    free(x->sees);
    free(x->counts);
    free(x->block);
    free(x->query_rank);
    free(x->key_rank);
    free(x->token[0]);
    free(x->token[1]);
    memset(x, 0, sizeof *x);
}
