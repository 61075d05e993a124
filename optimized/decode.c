/* See decode.h. */
#include "optimized/decode.h"

#include <omp.h>

#include "optimized/integers.h"
#include "optimized/leak.h"
#include "optimized/parts.h"
#include "ref/ledger.h"
#include "ref/problem.h"

/* Parts: enough for 16 units, but none shorter than 512 keys, which would be more merging than
 * reading. */
void attn_decode_plan(const struct attn_problem *p, const struct attn_kernels *kernels,
                      int64_t parts, int threads, struct attn_decode *x)
{
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    int64_t fit = ATTN_SPLIT_ROWS / at_least_1(p->n_query);
    int64_t longest = at_least_1(ceil_div(p->n_key, ATTN_SPLIT_KEYS));
    x->kernels = kernels;
    x->heads = at_least_1(group < fit ? group : fit);
    int64_t groups = p->batch * p->kv_heads * ceil_div(group, x->heads);
    if (parts == 0) {
        parts = groups == 0 || groups >= 16 ? 1 : ceil_div(16, groups);
        parts = parts < longest / 8 ? parts : at_least_1(longest / 8);
    }
    parts = parts < longest ? parts : longest;
    x->part = at_least_1(ceil_div(longest, parts)) * ATTN_SPLIT_KEYS;
    x->parts = at_least_1(ceil_div(p->n_key, x->part));
    x->units = p->n_query > 0 ? groups * x->parts : 0;
    x->threads = (int)(threads < x->units ? threads : at_least_1(x->units));
}

static const char *const workspace_name[ATTN_SPLIT_WORKSPACES] = ATTN_SPLIT_WORK_NAMES;

enum attn_status attn_decode_cost(const struct attn_problem *p, const struct attn_decode *x,
                                  struct attn_cost *cost, struct attn_error *err)
{
    int64_t lanes = x->kernels->lanes, t = x->threads, bytes = x->kernels->bytes;
    int64_t wide = ceil_div(p->d_key, lanes) * lanes, wide_v = ceil_div(p->d_value, lanes) * lanes;
    int64_t rows = x->heads * p->n_query, all = x->parts * p->batch * p->heads * p->n_query;
    const struct {
        const char *name;
        int64_t numbers;
    } live[] = {{"row.q", t * rows * wide},
                {"row.o", t * rows * wide_v},
                {"row.s", t * rows * ATTN_SPLIT_KEYS},
                {"row.kv", t * ATTN_SPLIT_KEYS * (wide + wide_v)},
                {"part.o", attn_product(all, p->d_value)},
                {"part.lse", all}};
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < 6 && status == ATTN_OK; n++)
        status = attn_cost_add(cost, live[n].name, live[n].numbers, bytes, err);
    return status;
}

/* Unit n: a part of the keys of some heads that share a kv head. */
static struct attn_row_split unit(const struct attn_problem *p, const struct attn_forward *t,
                                  const struct attn_decode *x, const struct attn_parts *parts,
                                  int64_t n)
{
    int64_t group = p->heads / p->kv_heads, chunks = ceil_div(group, x->heads);
    int64_t part = n % x->parts, rest = n / x->parts, chunk = rest % chunks;
    int64_t g = rest / chunks % p->kv_heads, b = rest / chunks / p->kv_heads;
    struct attn_row_split job = {.p = p, .t = t, .runs = attn_runs_of(p), .b = b};
    job.h0 = g * group + chunk * x->heads;
    job.h1 = job.h0 + x->heads < (g + 1) * group ? job.h0 + x->heads : (g + 1) * group;
    job.i1 = p->n_query;
    job.j0 = part * x->part;
    job.j1 = job.j0 + x->part < p->n_key ? job.j0 + x->part : p->n_key;
    int64_t row = (b * p->heads + job.h0) * p->n_query;
    job.o_part = attn_parts_o(parts, part, row);
    job.lse_part = attn_parts_lse(parts, part, row);
    job.part_step = p->n_query;
    return job;
}

enum attn_status attn_decode_forward(const struct attn_decode *x, struct attn_ctx *ctx,
                                     const struct attn_problem *p, const struct attn_forward *t)
{
    void *ws[ATTN_SPLIT_WORKSPACES] = {NULL};
    int64_t share[ATTN_SPLIT_WORKSPACES];
    struct attn_parts parts = {0};
    enum attn_status status = ATTN_OK;
    x->kernels->split_workspace(x->heads * p->n_query, p->d_key, p->d_value, share);
    for (int n = 0; n < ATTN_SPLIT_WORKSPACES && status == ATTN_OK; n++) {
        ws[n] = attn_ledger_take(ctx->ledger, workspace_name[n], x->threads * share[n],
                                 x->kernels->bytes, ctx->error);
        status = ws[n] != NULL ? ATTN_OK : ATTN_ENOMEM;
    }
    if (status == ATTN_OK)
        status = attn_parts_take(p, x->kernels, x->parts, ctx, &parts);
    if (status == ATTN_OK) {
#pragma omp parallel num_threads(x->threads) if (x->threads > 1)
        {
#pragma omp for schedule(dynamic, 1)
            for (int64_t n = 0; n < x->units; n++) {
                struct attn_row_split job = unit(p, t, x, &parts, n);
                for (int r = 0; r < ATTN_SPLIT_WORKSPACES; r++)
                    job.ws[r] = (char *)ws[r] + omp_get_thread_num() * share[r] * x->kernels->bytes;
                x->kernels->split(&job);
            }
#pragma omp for schedule(static)
            for (int64_t row = 0; row < parts.rows; row++)
                attn_parts_merge(&parts, p, t, row);
        }
    }
    attn_parts_give(&parts, ctx);
    for (int n = ATTN_SPLIT_WORKSPACES - 1; n >= 0; n--)
        attn_ledger_give(ctx->ledger, ws[n]);
    if (status == ATTN_OK)
        attn_leak_mend_forward(p, t, x->kernels, x->threads);
    return status;
}
