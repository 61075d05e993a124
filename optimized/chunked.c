/* chunked: attention in chunks of queries and chunks of keys, each pair of them summarised, and the
 * summaries merged afterwards.
 *
 * Forward   For a chunk of queries: every chunk of keys gives a summary, (max, sum, value) in the
 *           paper, kept here as the equivalent pair (LSE, O).  All of them are kept at once; then
 *           they are merged, in order.  Unlike under the running maximum of `tiled`, chunks of keys
 *           do not wait for each other.
 * Backward  Checkpointed: nothing but o and LSE is kept, every chunk is computed again.  For a
 *           chunk of queries, every chunk of keys gives its own part of dQ, all kept at once and
 *           then added in order; dK and dV grow from chunk to chunk of queries.
 *
 * Memory    forward: q (dv + 1) numbers for each of Lk / k chunks of keys, and each thread's
 *           workspace: O(sqrt L) where k is the square root of L (k=0), as in the title of the
 *           paper; backward: q d for each, the packed chunk of queries, and dK, dV of one kv head,
 *           O(L d).
 * Threads   share the work within one chunk of queries; sums are made in the order of chunks, so
 *           the bits are the same for any number of threads.
 * Source    Rabe & Staats 2021, "Self-attention does not need O(n^2) memory"; q and k are the
 *           query_chunk_size and key_chunk_size of its code, with its values.
 * Caveats   A chunk is computed by the tile kernels: its scores never exist as a whole, which the
 *           paper's q x k matrix does.
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "optimized/integers.h"
#include "optimized/leak.h"
#include "optimized/parts.h"
#include "optimized/simd/isa.h"
#include "optimized/simd/workspace.h"
#include "optimized/tiled.h"
#include "ref/impl.h"
#include "ref/problem.h"

enum { OPTION_Q, OPTION_K };
static const struct attn_option options[] = {
    {"q", 1024, 1, 1 << 20, NULL, "queries in a chunk"},
    {"k", 4096, 0, 1 << 20, NULL, "keys in a chunk; 0: the square root of their number"},
    {0}};

/* ---- the plan ----------------------------------------------------------------------------- */

enum { BLOCK_PANELS = 4 }; /* panels of queries that a thread takes at a time */

struct plan {
    const struct attn_kernels *kernels;
    int threads;
    int64_t group;            /* query heads of a kv head                                */
    int64_t queries;          /* of a head                                               */
    int64_t q, q_chunks;      /* queries in a chunk, chunks                              */
    int64_t k, k_chunks;      /* keys in a chunk, chunks; one, if need be an empty one   */
    int64_t panels, block;    /* panels in a chunk of queries; queries in a block of them */
    int64_t keys, key_blocks; /* backward: keys in a block, blocks in a chunk            */
    int64_t all_blocks;       /* of all chunks                                           */
};

/* k=0: the square root of Lk, in steps of 64. */
static int64_t keys_of_chunk(const struct attn_problem *p, const struct attn_options *opt)
{
    int64_t k = opt->value[OPTION_K];
    if (k == 0)
        k = ceil_div((int64_t)ceil(sqrt((double)p->n_key)), 64) * 64;
    return at_least_1(less(k, p->n_key));
}

static enum attn_status make_plan(const struct attn_problem *p, const struct attn_options *opt,
                                  struct plan *x, struct attn_error *err)
{
    memset(x, 0, sizeof *x);
    x->kernels = attn_kernels_for(p, opt, err);
    if (x->kernels == NULL)
        return ATTN_EINVAL;
    x->group = p->heads > 0 ? p->heads / p->kv_heads : 0;
    x->queries = p->heads > 0 ? p->n_query : 0;
    x->q = at_least_1(less(opt->value[OPTION_Q], x->queries));
    x->q_chunks = ceil_div(x->queries, x->q);
    x->k = keys_of_chunk(p, opt);
    x->k_chunks = at_least_1(ceil_div(p->n_key, x->k));
    x->panels = ceil_div(x->q, x->kernels->panel);
    x->block = BLOCK_PANELS * x->kernels->panel;
    x->keys = less(x->k, ATTN_KEY_BLOCK);
    x->key_blocks = ceil_div(x->k, x->keys);
    x->all_blocks = (x->k_chunks - 1) * x->key_blocks; /* the last chunk may be short */
    x->all_blocks += ceil_div(p->n_key - (x->k_chunks - 1) * x->k, x->keys);
    x->threads = (int)less(at_least_1(opt->threads), x->k_chunks * ceil_div(x->q, x->block));
    return ATTN_OK;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Forward: each thread's workspace, then a summary for each chunk of keys and each query.
 * Backward: the state of a chunk of queries, then each thread's workspace; dQ is kept once for each
 * chunk of keys, dK and dV for each block of keys, whichever thread works on it. */
enum { BUFFERS = ATTN_STATES + ATTN_BACK };

static void lay_out(const struct attn_problem *p, const struct plan *x, enum attn_pass pass,
                    struct attn_buffer *buffer)
{
    if (pass == ATTN_FORWARD) {
        attn_forward_buffers(x->kernels, p, x->threads, less(BLOCK_PANELS, x->panels), buffer);
        attn_parts_buffers(x->kernels, x->k_chunks, x->q, p->d_value, buffer + ATTN_WORKSPACES);
        return;
    }
    struct attn_buffer *ws = buffer + ATTN_STATES;
    attn_backward_buffers(x->kernels, p, x->panels, x->threads, x->keys, buffer, ws);
    buffer[ATTN_STATE_DQ].parts *= x->k_chunks;
    ws[ATTN_BACK_DKV].name = "dkv";
    ws[ATTN_BACK_DKV].parts = x->all_blocks;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    struct plan x;
    struct attn_buffer buffer[BUFFERS] = {0};
    enum attn_status status = make_plan(p, opt, &x, err);
    if (status != ATTN_OK)
        return status;
    lay_out(p, &x, pass, buffer);
    cost->flops = attn_problem_flops(p, pass, cost);
    return attn_buffers_price(buffer, BUFFERS, cost, err);
}

/* ---- forward ------------------------------------------------------------------------------ */

/* Each function of this part and the next is called by all threads at once, or by a single one:
 * `omp for` shares its loop out, and no thread goes on before the whole loop is done. */

struct forward {
    const struct attn_problem *p;
    const struct attn_forward *t;
    const struct plan *plan;
    const struct attn_buffer *ws; /* [threads] */
    struct attn_parts parts;      /* one for each chunk of keys; rows are queries of the chunk */
};

/* The summary of each chunk of keys for queries [i0,i1). */
static void summarize(const struct forward *x, int64_t b, int64_t h, int64_t i0, int64_t i1)
{
    const struct plan *plan = x->plan;
    int64_t blocks = ceil_div(i1 - i0, plan->block);
    struct attn_tile_forward job = {.p = x->p, .t = x->t, .at = {.b = b, .h = h}, .rescale_at = 4};
    job.runs = attn_runs_of(x->p);
    for (int n = 0; n < ATTN_WORKSPACES; n++)
        job.ws[n] = attn_buffer_at(&x->ws[n], omp_get_thread_num());
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < blocks * plan->k_chunks; n++) {
        int64_t chunk = n / blocks, first = n % blocks * plan->block;
        job.at.i0 = i0 + first, job.at.i1 = less(job.at.i0 + plan->block, i1);
        job.at.j0 = chunk * plan->k, job.at.j1 = less(job.at.j0 + plan->k, x->p->n_key);
        job.o_part = attn_parts_o(&x->parts, chunk, first);
        job.lse_part = attn_parts_lse(&x->parts, chunk, first);
        plan->kernels->forward(&job);
    }
}

static void forward_chunk(const struct forward *x, int64_t b, int64_t h, int64_t chunk)
{
    int64_t i0 = chunk * x->plan->q, i1 = less(i0 + x->plan->q, x->plan->queries);
    summarize(x, b, h, i0, i1);
#pragma omp for schedule(static)
    for (int64_t i = i0; i < i1; i++)
        attn_parts_merge(&x->parts, i - i0, x->t, b, h, i);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct plan plan;
    struct attn_buffer buffer[BUFFERS] = {0};
    enum attn_status status = make_plan(p, ctx->options, &plan, ctx->error);
    if (status != ATTN_OK)
        return status;
    struct attn_parts parts = {plan.kernels, plan.k_chunks, plan.q, buffer + ATTN_WORKSPACES};
    struct forward x = {p, t, &plan, buffer, parts};
    lay_out(p, &plan, ATTN_FORWARD, buffer);
    status = attn_buffers_take(buffer, BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK)
#pragma omp parallel num_threads(plan.threads) if (plan.threads > 1)
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t h = 0; h < p->heads; h++)
                for (int64_t chunk = 0; chunk < plan.q_chunks; chunk++)
                    forward_chunk(&x, b, h, chunk);
    attn_buffers_give(buffer, BUFFERS, ctx->ledger);
    if (status == ATTN_OK)
        attn_leak_mend_forward(p, t, plan.kernels, plan.threads);
    return status;
}

/* ---- backward ----------------------------------------------------------------------------- */

struct backward {
    const struct attn_problem *p;
    const struct attn_backward *t;
    const struct plan *plan;
    const struct attn_buffer *state, *ws; /* [ATTN_STATES], [ATTN_BACK] */
};

/* This thread's job on the queries of `at`, whose head reads kv head g. */
static struct attn_tile_backward aim(const struct backward *x, int64_t g, struct attn_tile_at at)
{
    struct attn_tile_backward job = {.p = x->p, .t = x->t, .g = g, .at = at, .state_from = at.i0};
    job.runs = attn_runs_of(x->p);
    job.keys = x->plan->keys;
    for (int n = 0; n < ATTN_STATES; n++)
        job.state[n] = x->state[n].data;
    for (int n = 0; n < ATTN_BACK; n++)
        if (n != ATTN_BACK_DKV) /* goes by blocks of keys */
            job.ws[n] = attn_buffer_at(&x->ws[n], omp_get_thread_num());
    return job;
}

/* One chunk of keys meets the chunk of queries in the job, block after block.  dK and dV begin with
 * the first chunk of queries, and are written after the last. */
static void step_chunk(const struct backward *x, struct attn_tile_backward *job, int64_t chunk,
                       int first, int last)
{
    const struct plan *plan = x->plan;
    int64_t end = less((chunk + 1) * plan->k, x->p->n_key), block = chunk * plan->key_blocks;
    job->resume = !first;
    job->prefetch = 1;
    for (job->at.j0 = chunk * plan->k; job->at.j0 < end; job->at.j0 = job->at.j1, block++) {
        job->at.j1 = less(job->at.j0 + plan->keys, end);
        job->ws[ATTN_BACK_DKV] = attn_buffer_at(&x->ws[ATTN_BACK_DKV], block);
        plan->kernels->backward_begin(job);
        plan->kernels->backward_step(job);
        if (last)
            plan->kernels->backward_end(job);
    }
}

/* dQ of the first chunk of keys += that of chunk 1, 2, ...: n numbers each, `apart` numbers from
 * one chunk to the next. */
static void add_parts(const struct plan *plan, void *part, int64_t n, int64_t apart)
{
    for (int64_t chunk = 1; chunk < plan->k_chunks; chunk++)
        if (plan->kernels->bytes == 4) {
            float *sum = part, *more = sum + chunk * apart;
            for (int64_t c = 0; c < n; c++)
                sum[c] += more[c];
        } else {
            double *sum = part, *more = sum + chunk * apart;
            for (int64_t c = 0; c < n; c++)
                sum[c] += more[c];
        }
}

/* The queries of `at` against all keys. */
static void backward_chunk(const struct backward *x, int64_t g, struct attn_tile_at at, int first,
                           int last)
{
    const struct plan *plan = x->plan;
    int64_t P = plan->kernels->panel, panels = ceil_div(at.i1 - at.i0, P);
    const struct attn_buffer *dq = &x->state[ATTN_STATE_DQ]; /* [k_chunks][panels] */
    int64_t one = dq->numbers, all = plan->panels * one;
    struct attn_tile_backward job = aim(x, g, at);
#pragma omp for schedule(static)
    for (int64_t n = 0; n < panels; n++) {
        job.at.i0 = at.i0 + n * P, job.at.i1 = less(job.at.i0 + P, at.i1);
        plan->kernels->backward_pack(&job);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t chunk = 0; chunk < plan->k_chunks; chunk++) {
        job.at.i0 = at.i0, job.at.i1 = at.i1;
        job.state[ATTN_STATE_DQ] = attn_buffer_at(dq, chunk * plan->panels);
        memset(job.state[ATTN_STATE_DQ], 0, (size_t)(all * plan->kernels->bytes));
        step_chunk(x, &job, chunk, first, last);
    }
    job.state[ATTN_STATE_DQ] = dq->data;
#pragma omp for schedule(static)
    for (int64_t n = 0; n < panels; n++) {
        job.at.i0 = at.i0 + n * P, job.at.i1 = less(job.at.i0 + P, at.i1);
        add_parts(plan, attn_buffer_at(dq, n), one, all);
        plan->kernels->backward_unpack(&job);
    }
}

/* All queries that kv head g serves; without any, an empty chunk, which writes dK = dV = 0. */
static void backward_head(const struct backward *x, int64_t b, int64_t g)
{
    const struct plan *plan = x->plan;
    int64_t heads = at_least_1(plan->group), chunks = at_least_1(plan->q_chunks);
    for (int64_t n = 0; n < heads * chunks; n++) {
        int64_t h = g * plan->group + n / chunks, i0 = n % chunks * plan->q;
        struct attn_tile_at at = {b, h, i0, less(i0 + plan->q, plan->queries), 0, 0};
        backward_chunk(x, g, at, n == 0, n == heads * chunks - 1);
    }
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct plan plan;
    struct attn_buffer buffer[BUFFERS] = {0};
    struct backward x = {p, t, &plan, buffer, buffer + ATTN_STATES};
    enum attn_status status = make_plan(p, ctx->options, &plan, ctx->error);
    if (status != ATTN_OK)
        return status;
    lay_out(p, &plan, ATTN_BACKWARD, buffer);
    status = attn_buffers_take(buffer, BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK) {
        int threads = attn_dbias_is_shared(p, &t->dbias) ? 1 : plan.threads;
        attn_dbias_clear(p, &t->dbias);
#pragma omp parallel num_threads(threads) if (threads > 1)
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t g = 0; g < p->kv_heads; g++)
                backward_head(&x, b, g);
    }
    attn_buffers_give(buffer, BUFFERS, ctx->ledger);
    if (status == ATTN_OK)
        attn_leak_mend_backward(p, t, plan.kernels, plan.threads);
    return status;
}

/* ---- the record --------------------------------------------------------------------------- */

/* Within a chunk of keys, once a key block of the kernel. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    return ceil_div(keys_of_chunk(p, opt), ATTN_KEY_BLOCK) + 1;
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *opt)
{
    return at_least_1(ceil_div(p->n_key, keys_of_chunk(p, opt))) - 1;
}

const struct attn_impl attn_impl_chunked = {
    .name = "chunked",
    .summary = "chunks of queries and keys, their summaries merged (Rabe & Staats)",
    .family = "chunked",
    .caps = ATTN_CAPS_ALL,
    .options = options,
    .rescales = rescales,
    .merges = merges,
    .cost = cost,
    .forward = forward,
    .backward = backward,
    .precision = attn_kernels_precision,
    .flops_by_pairs = 1,
    .simd = 1,
};
