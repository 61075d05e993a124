/* Judging results that no process has the whole of.  See point_work.h.
 *
 * A row of O needs the keys and values of its own head alone, and these are a function of the case.
 * So the first process makes the inputs of one head after the other (backward: of all heads of a kv
 * head) and gets the rows of results from the ranks: those of the sample, or all of a small
 * problem. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_work.h"
#include "ref/problem.h"

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

/* ---- rows of a head, from where they are ----------------------------------------------------- */

static char *row_of(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return (char *)t->data + (int64_t)attn_dtype_size(t->dtype) * attn_offset(t->stride, b, h, i);
}

/* Of these heads, the rows that a rank has and that are asked for (NULL: all), in the order of its
 * shard.  With a shard they are packed from it; with `head`, the tensor of the heads, they are
 * unpacked to it; without both they are only counted.  Returns their bytes. */
static int64_t carry(const struct attn_rank_home *rank, const struct head_part *x, int slot,
                     const char *asked, const struct attn_tensor *shard, char *packed,
                     const struct attn_tensor *head, int64_t bytes)
{
    int64_t extent[4] = {0, 0, 0, 1}, n = 0;
    int64_t first = is_of_keys(slot) ? x->kv_head : x->head;
    int64_t end = first + (is_of_keys(slot) ? 1 : x->heads);
    rank->part.extent(&rank->part, slot, extent);
    for (int64_t at[4] = ATTN_START; attn_each(at, extent);) {
        int64_t whole[4] = {at[0], at[1], at[2], 0};
        rank->part.whole(&rank->part, slot, whole);
        int is_other = whole[0] != x->batch || whole[1] < first || whole[1] >= end;
        if (is_other && at[2] == 0)
            at[2] = extent[2] - 1; /* skip the other rows of that head */
        if (is_other || (asked != NULL && !asked[whole[2]]))
            continue;
        if (shard != NULL)
            memcpy(packed + n, row_of(shard, at[0], at[1], at[2]), (size_t)bytes);
        if (head != NULL)
            memcpy(row_of(head, 0, whole[1] - first, whole[2]), packed + n, (size_t)bytes);
        n += bytes;
    }
    return n;
}

/* From all ranks to `to`, which is NULL on other processes. */
static enum attn_status fetch(struct attn_point_work *work, const struct head_part *x, int slot,
                              const char *asked, const struct attn_tensor *to,
                              struct attn_error *err)
{
    const struct attn_runner *runner = work->x.spec.options.runner;
    const struct attn_tensor *own = &work->setup.tensor[slot];
    int64_t bytes = own->extent[3] * (int64_t)attn_dtype_size(own->dtype);
    enum attn_status status = ATTN_OK;
    for (int r = 0; r < work->point->ranks && status == ATTN_OK; r++) {
        struct attn_rank_home rank = attn_rank_home_of(&work->x.spec, &work->setup.problem, r);
        int64_t n = carry(&rank, x, slot, asked, NULL, NULL, NULL, bytes);
        char *packed = attn_cli_need(malloc((size_t)n + 1));
        if (r == runner->rank)
            carry(&rank, x, slot, asked, own, packed, NULL, bytes);
        status = runner->share(runner->state, r, packed, n, err);
        if (to != NULL)
            carry(&rank, x, slot, asked, NULL, packed, to, bytes);
        free(packed);
    }
    return status;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Keep the worst of each output, and the verdict of the first head that fails. */
static void add_head(const struct attn_result *r, const struct head_part *x,
                     struct attn_result *all)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        struct attn_agreement *a = &all->output[o];
        double error = a->error, size = a->size;
        if (r->output[o].n > 0 && (a->n == 0 || r->output[o].ratio > a->ratio))
            *a = r->output[o];
        a->error = r->output[o].error <= error ? error : r->output[o].error; /* a NaN stays */
        a->size = fmax(r->output[o].size, size);
    }
    all->worst = r->worst > all->worst ? r->worst : all->worst;
    if (all->verdict != ATTN_PASS || r->verdict == ATTN_PASS)
        return;
    all->verdict = r->verdict;
    all->lacks_memory = r->lacks_memory;
    snprintf(all->text, sizeof all->text, "batch %lld, heads from %lld on: %.440s",
             (long long)x->batch, (long long)x->head, r->text);
}

/* asked: of queries, of keys. */
static enum attn_status judge_head(struct attn_point_work *work, const struct head_part *x,
                                   const struct attn_sample *sample, char *const asked[2],
                                   struct attn_result *all, struct attn_error *err)
{
    const int is_judge = work->x.spec.options.runner->rank == 0;
    struct attn_setup s = {0};
    struct attn_precision precision;
    struct attn_result r;
    enum attn_status status = ATTN_OK;
    if (is_judge)
        status = attn_setup_open_part(&work->point->c, &x->part, &s, err);
    status = attn_point_settle(work->x.spec.options.runner, status, err);
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS && status == ATTN_OK; slot++)
        if (work->setup.tensor[slot].data != NULL)
            status = fetch(work, x, slot, asked[is_of_keys(slot)],
                           is_judge ? &s.tensor[slot] : NULL, err);
    if (!is_judge || status != ATTN_OK) {
        attn_setup_close(&s);
        return status;
    }
    attn_precision_of(work->x.spec.impl, &work->x.spec.options, &work->setup.problem, &precision);
    s.problem.batch = s.problem.kv_heads = 1;
    s.problem.heads = x->heads;
    s.problem.origin.batch = x->batch;
    s.problem.origin.head = x->head;
    memset(&r, 0, sizeof r);
    attn_judge(&s, &precision, sample, work->point->c.pass, &r);
    attn_setup_close(&s);
    add_head(&r, x, all);
    return ATTN_OK;
}

/* Which of n tokens are in a sample of them; NULL: all. */
static char *asked_of(int64_t n, int64_t n_sample, const int64_t *sample)
{
    char *asked = n_sample < 0 ? NULL : attn_cli_need(calloc((size_t)n + 1, 1));
    for (int64_t i = 0; i < n_sample; i++)
        asked[sample[i]] = 1;
    return asked;
}

void attn_point_judge_ranks(struct attn_point_work *work)
{
    const struct attn_problem *p = &work->setup.problem;
    int64_t row[ATTN_SAMPLE_MOST], key[ATTN_SAMPLE_MOST], group = p->heads / p->kv_heads;
    int64_t at_once = work->point->c.pass == ATTN_BACKWARD ? group : 1;
    const struct attn_sample sample =
        attn_point_sample(work->point, work->how->verify_all, row, key);
    char *asked[2] = {asked_of(p->n_query, sample.n_rows, row),
                      asked_of(p->n_key, sample.n_keys, key)};
    struct attn_result all;
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    memset(&all, 0, sizeof all);
    for (int64_t n = 0; n < p->batch * p->heads && status == ATTN_OK; n += at_once) {
        int64_t head = n % p->heads;
        const struct head_part x = {
            {extent_of, whole_of}, n / p->heads, head, at_once, head / group};
        status = judge_head(work, &x, &sample, asked, &all, &err);
    }
    if (status != ATTN_OK)
        attn_point_fail(work->point, &err);
    else if (work->x.spec.options.runner->rank == 0)
        attn_point_keep_verdict(work->point, &all);
    free(asked[0]);
    free(asked[1]);
}
