/* Judging results that no process has the whole of.  See point_ranks.h.
 *
 * A row of O needs all keys and values of its head, but those of no other, and they are a function
 * of the case: the first process makes one head after the other (backward, all heads of a kv head),
 * and has rows of results from the ranks: those of the sample, or all of a small problem. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/ranks/point_ranks.h"
#include "ref/problem.h"

/* Rows of one output, on the first process: [batch, heads, n, width].  place: of a token among the
 * n; -1: it is not asked for. */
struct rows {
    int64_t n, heads, bytes;
    const int64_t *place;
    char *data;
};

/* Between the rows that a rank has, one behind the other as its shard has them, and `shard` or all
 * rows; either may be NULL.  How many. */
static int64_t carry(const struct attn_rank_part *part, int slot, const struct attn_tensor *shard,
                     const struct rows *rows, char *packed)
{
    int64_t extent[4] = {0, 0, 0, 1}, n = 0;
    part->part.extent(&part->part, slot, extent);
    for (int64_t at[4] = ATTN_START; attn_each(at, extent);) {
        int64_t whole[4] = {at[0], at[1], at[2], 0}, e = rows->bytes;
        part->part.whole(&part->part, slot, whole);
        if (whole[0] < 0 || rows->place[whole[2]] < 0)
            continue;
        int64_t to = (whole[0] * rows->heads + whole[1]) * rows->n + rows->place[whole[2]];
        if (shard != NULL)
            memcpy(packed + n * e,
                   (char *)shard->data +
                       e / shard->extent[3] * attn_offset(shard->stride, at[0], at[1], at[2]),
                   (size_t)e);
        else if (packed != NULL)
            memcpy(rows->data + to * e, packed + n * e, (size_t)e);
        n++;
    }
    return n;
}

/* Rows of an output from all ranks. */
static enum attn_status fetch(struct attn_point_work *work, int slot, const struct rows *rows,
                              struct attn_error *err)
{
    const struct attn_runner *runner = work->spec.options.runner;
    enum attn_status status = ATTN_OK;
    for (int r = 0; r < work->point.ranks && status == ATTN_OK; r++) {
        struct attn_rank_part part = attn_rank_part_of(&work->spec, &work->setup.problem, r);
        int64_t bytes = carry(&part, slot, NULL, rows, NULL) * rows->bytes;
        char *packed = malloc((size_t)bytes + 1);
        if (packed == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for rows of results");
        if (r == runner->rank)
            carry(&part, slot, &work->setup.tensor[slot], rows, packed);
        status = runner->share(runner->state, r, packed, bytes, err);
        if (runner->rank == 0)
            carry(&part, slot, NULL, rows, packed);
        free(packed);
    }
    return status;
}

/* ---- a head ---------------------------------------------------------------------------------- */

/* Heads [head, head + heads) of a batch, and their kv head. */
struct head_part {
    struct attn_setup_part part;
    int64_t batch, head, heads, kv_head;
};

static int is_of_keys(int slot)
{
    return slot == ATTN_T_K || slot == ATTN_T_V || slot == ATTN_T_DK || slot == ATTN_T_DV;
}

static void extent_of(const struct attn_setup_part *part, int slot, int64_t extent[4])
{
    extent[0] = 1;
    extent[1] = is_of_keys(slot) ? 1 : ((const struct head_part *)part)->heads;
}

static void whole_of(const struct attn_setup_part *part, int slot, int64_t at[4])
{
    const struct head_part *x = (const struct head_part *)part;
    at[0] = x->batch;
    at[1] += is_of_keys(slot) ? x->kv_head : x->head;
}

static enum attn_status judge_head(const struct attn_point_work *work, const struct head_part *x,
                                   const struct attn_precision *precision,
                                   const struct attn_sample *sample, const struct rows *rows,
                                   struct attn_result *r, struct attn_error *err)
{
    struct attn_setup s;
    enum attn_status status = attn_setup_open_part(&work->point.c, &x->part, &s, err);
    if (status != ATTN_OK)
        return status;
    s.problem.batch = s.problem.kv_heads = 1;
    s.problem.heads = x->heads;
    s.problem.origin.batch = x->batch;
    s.problem.origin.head = x->head;
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++) {
        const struct attn_tensor *t = &s.tensor[slot];
        const struct rows *of = &rows[slot];
        int64_t extent[4] = {1, t->extent[1], t->extent[2], 1};
        for (int64_t at[4] = ATTN_START; of->data != NULL && attn_each(at, extent);) {
            int64_t whole[4] = {at[0], at[1], at[2], 0};
            whole_of(&x->part, slot, whole);
            int64_t from = (whole[0] * of->heads + whole[1]) * of->n + of->place[whole[2]];
            if (of->place[whole[2]] >= 0)
                memcpy((char *)t->data +
                           of->bytes / t->extent[3] * attn_offset(t->stride, 0, at[1], at[2]),
                       of->data + from * of->bytes, (size_t)of->bytes);
        }
    }
    memset(r, 0, sizeof *r);
    s.unweighed = 1;
    attn_judge(&s, precision, sample, work->point.c.pass, r);
    attn_setup_close(&s);
    return ATTN_OK;
}

/* The worst of each output; the first head that is not right has the word. */
static void add_head(const struct attn_result *r, const struct head_part *x,
                     struct attn_result *all)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (r->output[o].n > 0 &&
            (all->output[o].n == 0 || r->output[o].ratio > all->output[o].ratio))
            all->output[o] = r->output[o];
    all->worst = r->worst > all->worst ? r->worst : all->worst;
    if (all->verdict != ATTN_PASS || r->verdict == ATTN_PASS)
        return;
    all->verdict = r->verdict;
    all->lacks_memory = r->lacks_memory;
    snprintf(all->text, sizeof all->text, "batch %lld, heads from %lld on: %.440s",
             (long long)x->batch, (long long)x->head, r->text);
}

static enum attn_status judge(struct attn_point_work *work, const struct attn_sample *sample,
                              const struct rows *rows, struct attn_error *err)
{
    const struct attn_problem *p = &work->setup.problem;
    struct attn_precision precision;
    struct attn_result all, r;
    enum attn_status status = ATTN_OK;
    int64_t group = p->heads / p->kv_heads;
    int64_t at_once = work->point.c.pass == ATTN_BACKWARD ? group : 1;
    memset(&all, 0, sizeof all);
    attn_precision_of(work->spec.impl, &work->spec.options, p, &precision);
    for (int64_t n = 0; n < p->batch * p->heads && status == ATTN_OK; n += at_once) {
        int64_t head = n % p->heads;
        const struct head_part x = {
            {extent_of, whole_of}, n / p->heads, head, at_once, head / group};
        status = judge_head(work, &x, &precision, sample, rows, &r, err);
        if (status == ATTN_OK)
            add_head(&r, &x, &all);
    }
    if (status == ATTN_OK)
        attn_point_keep_verdict(&work->point, &all);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Where each of n tokens stands in a sample of them. */
static int64_t *places(int64_t n, int64_t n_sample, const int64_t *sample)
{
    int64_t *place = calloc((size_t)n + 1, sizeof *place);
    for (int64_t i = 0; i < n && place != NULL; i++)
        place[i] = n_sample < 0 ? i : -1;
    for (int64_t i = 0; i < n_sample && place != NULL; i++)
        place[sample[i]] = i;
    return place;
}

void attn_point_judge_ranks(struct attn_point_work *work, int64_t verify_all)
{
    const struct attn_runner *runner = work->spec.options.runner;
    const struct attn_problem *p = &work->setup.problem;
    struct attn_error err = {0};
    int64_t row[ATTN_SAMPLE_MOST], key[ATTN_SAMPLE_MOST];
    const struct attn_sample sample = attn_point_sample(&work->point, verify_all, row, key);
    int64_t *place[2] = {places(p->n_query, sample.n_rows, row),
                         places(p->n_key, sample.n_keys, key)};
    struct rows rows[ATTN_SLOTS] = {{0}};
    int lacks = place[0] == NULL || place[1] == NULL;
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++) {
        const struct attn_tensor *t = &work->setup.tensor[slot];
        int keys = is_of_keys(slot);
        int64_t n = keys ? (sample.n_keys < 0 ? p->n_key : sample.n_keys)
                         : (sample.n_rows < 0 ? p->n_query : sample.n_rows);
        if (t->data == NULL || lacks)
            continue;
        rows[slot] =
            (struct rows){n, keys ? p->kv_heads : p->heads,
                          t->extent[3] * (int64_t)attn_dtype_size(t->dtype), place[keys], NULL};
        if (runner->rank == 0)
            rows[slot].data = malloc((size_t)(p->batch * rows[slot].heads * n * rows[slot].bytes));
        lacks |= runner->rank == 0 && rows[slot].data == NULL;
    }
    enum attn_status status = attn_point_settle(
        runner, lacks ? attn_fail(&err, ATTN_ENOMEM, "no memory for rows of results") : ATTN_OK,
        &err);
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS && status == ATTN_OK; slot++)
        if (rows[slot].place != NULL)
            status = fetch(work, slot, &rows[slot], &err);
    if (status == ATTN_OK && runner->rank == 0)
        status = judge(work, &sample, rows, &err);
    status = attn_point_settle(runner, status, &err);
    if (status != ATTN_OK)
        attn_point_fail(&work->point, &err);
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        free(rows[slot].data);
    free(place[0]);
    free(place[1]);
}
