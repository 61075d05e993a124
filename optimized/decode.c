/* See decode.h. */
#include "optimized/decode.h"

#include <omp.h>

#include "optimized/integers.h"
#include "optimized/leak.h"
#include "optimized/parts.h"
#include "optimized/simd/workspace.h"
#include "ref/problem.h"

/* Parts: enough for 16 units, but none shorter than 512 keys, which would be more merging than
 * reading. */
void attn_decode_plan(const struct attn_problem *p, const struct attn_kernels *kernels,
                      int64_t parts, int threads, struct attn_decode *x)
{
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    int64_t fit = ATTN_SPLIT_ROWS / at_least_1(p->n_query);
    x->kernels = kernels;
    x->heads = at_least_1(group < fit ? group : fit);
    int64_t groups = p->batch * p->kv_heads * ceil_div(group, x->heads);
    attn_parts_cut(p->n_key, ATTN_SPLIT_KEYS, parts, groups, &x->parts, &x->part);
    x->units = p->n_query > 0 ? groups * x->parts : 0;
    x->threads = (int)(threads < x->units ? threads : at_least_1(x->units));
}

enum { BUFFERS = ATTN_SPLIT_WORKSPACES + ATTN_PARTS };

static void lay_out(const struct attn_problem *p, const struct attn_decode *x,
                    struct attn_buffer *buffer)
{
    attn_split_buffers(x->kernels, p, x->threads, x->heads * p->n_query, buffer);
    attn_parts_buffers(x->kernels, x->parts, p->batch * p->heads * p->n_query, p->d_value,
                       buffer + ATTN_SPLIT_WORKSPACES);
}

enum attn_status attn_decode_cost(const struct attn_problem *p, const struct attn_decode *x,
                                  struct attn_cost *cost, struct attn_error *err)
{
    struct attn_buffer buffer[BUFFERS];
    lay_out(p, x, buffer);
    return attn_buffers_price(buffer, BUFFERS, cost, err);
}

/* Unit n: a part of the keys of some heads that share a kv head. */
static struct attn_row_split unit(const struct attn_problem *p, const struct attn_forward *t,
                                  struct attn_runs runs, const struct attn_decode *x,
                                  const struct attn_parts *parts, int64_t n)
{
    int64_t group = p->heads / p->kv_heads, chunks = ceil_div(group, x->heads);
    int64_t part = n % x->parts, rest = n / x->parts, chunk = rest % chunks;
    int64_t g = rest / chunks % p->kv_heads, b = rest / chunks / p->kv_heads;
    struct attn_row_split job = {.p = p, .t = t, .runs = runs, .b = b};
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

static void run(const struct attn_problem *p, const struct attn_forward *t, struct attn_runs runs,
                const struct attn_decode *x, const struct attn_buffer *buffer)
{
    int64_t rows = p->batch * p->heads * p->n_query;
    struct attn_parts parts = {x->kernels, x->parts, rows, buffer + ATTN_SPLIT_WORKSPACES};
#pragma omp parallel num_threads(x->threads) if (x->threads > 1)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < x->units; n++) {
            struct attn_row_split job = unit(p, t, runs, x, &parts, n);
            for (int r = 0; r < ATTN_SPLIT_WORKSPACES; r++)
                job.ws[r] = attn_buffer_at(&buffer[r], omp_get_thread_num());
            x->kernels->split(&job);
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++)
            attn_parts_merge_row(&parts, p, t, row);
    }
}

enum attn_status attn_decode_forward(const struct attn_decode *x, struct attn_ctx *ctx,
                                     const struct attn_problem *p, struct attn_runs runs,
                                     const struct attn_forward *t)
{
    struct attn_buffer buffer[BUFFERS];
    lay_out(p, x, buffer);
    enum attn_status status = attn_buffers_take(buffer, BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK)
        run(p, t, runs, x, buffer);
    attn_buffers_give(buffer, BUFFERS, ctx->ledger);
    if (status == ATTN_OK)
        attn_leak_mend_forward(p, t, x->kernels, x->threads);
    return status;
}
