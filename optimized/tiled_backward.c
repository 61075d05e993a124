/* See tiled.h; the arithmetic is in simd/backward_tmpl.h.
 *
 * Work      for each (batch, kv head): its queries are packed, a step of them at a time; each block
 *           of keys meets every step of queries that sees some of it; dQ is unpacked, step by step.
 *           These are the units, dealt out in this order to any thread that is free.  A block is
 *           one or several parts, which is what a kernel takes at a time: sums are by part, and the
 *           bits do not depend on how many make a block.
 * Order     dK and dV of a block of keys belong to one unit.  dQ of a step grows with each block of
 *           keys, and sums must not depend on who comes first: block n meets a step only when all
 *           blocks before it have passed that step.  Threads thus follow each other through the
 *           queries at a distance; a unit waits for units before it only, and a thread works on
 *           each of those, so none waits for ever.  Steps go from the last query to the first:
 *           under a causal mask a later block of keys has less to do, and so it can be done, and
 *           its thread go on, before the one it follows.
 * Lanes     where as many kv heads are in work as there are threads, their units are dealt out in
 *           turn, so that each thread has a head to itself: no thread waits, and no dQ travels.
 * Memory    each thread's workspace; and packed Q, dO, dQ, LSE, D of the query heads of one kv
 *           head: O(L d), as often as there are kv heads in work at a time ("slots").
 * Source    Dao 2023, FlashAttention-2, algorithm 2.
 */
#include "optimized/tiled.h"

#include <omp.h>
#include <string.h>

#include "optimized/integers.h"
#include "optimized/leak.h"
#include "optimized/ordered_sum.h"
#include "optimized/simd/isa.h"
#include "optimized/simd/workspace.h"
#include "optimized/tiled_plan.h"
#include "ref/problem.h"

/* ---- the plan ----------------------------------------------------------------------------- */

enum {
    STEP_PANELS = 2, /* panels in a step of queries: small, so that followers start early    */
    TILE = 8,        /* keys in the widest tile                                              */
    LEAST_KEYS = 48, /* in a part: shorter ones are not worth their while                    */
    LEAST_PARTS = 6, /* of keys, for each of fewer than FEW_HEADS (batch, kv head)           */
    FEW_HEADS = 4,   /* as many as these give enough to deal out                             */
    ROOM =
        512 * 1024, /* bytes that a thread's workspace should not exceed, for d + dv up to WIDTH */
    ROOM_WIDTH = 256,
    LONG = 2048, /* keys from which a block has SPAN parts: their queries come from afar */
    SPAN = 3,
    THREAD_UNITS = 4 /* blocks of keys for each thread, at least, or blocks have fewer parts */
};

struct plan {
    const struct attn_kernels *kernels;
    int threads;
    int64_t group;        /* query heads of a kv head                     */
    int64_t keys, parts;  /* keys in a part, parts                        */
    int64_t span, blocks; /* parts in a block, blocks                     */
    int64_t step, steps;  /* queries in a step, steps of one query head   */
    int64_t heads;        /* batch * kv heads                             */
    int64_t lanes, lag;   /* kv heads in a round; rounds until its unpack */
    int64_t slots;        /* kv heads that can be in work at a time       */
    int64_t packs;        /* group * steps: units that pack, that unpack  */
    int64_t units;        /* of one lane of a round: 2 * packs + blocks   */
    int64_t rounds;
};

/* Parts in a block, as far as the problem goes: a block reads all queries, and long ones less
 * often; but where queries are near anyway, more workspace only costs pages and cache. */
static int64_t count_span(const struct attn_problem *p)
{
    return p->n_key >= LONG ? SPAN : 1;
}

/* Keys in a part: as many as a thread's workspace has space for, with dK and dV of a block.  But
 * parts should be of one length, because threads keep pace with each other; and where there are few
 * heads, several parts, and an even number. */
static int64_t count_keys(const struct attn_problem *p, const struct plan *x)
{
    int64_t bytes = x->kernels->bytes, P = x->kernels->panel, width = p->d_key + p->d_value;
    int64_t tiles = p->softcap > 0 ? 3 : 2, most = ATTN_KEY_BLOCK, rows = 1 + count_span(p);
    int64_t ws = ROOM * at_least_1(ceil_div(width, ROOM_WIDTH)) - bytes * (P + rows) * width;
    while (most > LEAST_KEYS && bytes * ((most + 8) * tiles * P + rows * most * width) > ws)
        most -= LEAST_KEYS;
    int64_t parts = ceil_div(p->n_key, most);
    if (x->heads < FEW_HEADS) {
        int64_t even = ceil_div(parts, 2) * 2, useful = ceil_div(p->n_key, LEAST_KEYS);
        parts = even > LEAST_PARTS ? even : LEAST_PARTS;
        parts = parts < useful ? parts : useful;
    }
    return at_least_1(ceil_div(ceil_div(p->n_key, at_least_1(parts)), TILE)) * TILE;
}

/* The division of the work among threads; it changes no bit of the result. */
static void plan_units(const struct attn_problem *p, const struct attn_options *opt, struct plan *x)
{
    int64_t all = at_least_1(x->heads * x->parts), most;
    x->threads = opt->threads > 1 ? opt->threads : 1;
    x->threads = x->threads < all ? x->threads : (int)all;
    most = at_least_1(all / (THREAD_UNITS * x->threads));
    x->span = count_span(p) < most ? count_span(p) : most;
    x->blocks = ceil_div(x->parts, x->span);
    x->slots = 1 + ceil_div(x->threads - 1, at_least_1(x->blocks));
    x->slots = x->slots < x->heads ? x->slots : at_least_1(x->heads);
    x->lanes = x->slots == x->threads ? x->slots : 1;
    x->lag = x->slots / x->lanes - 1;
    x->packs = x->group * x->steps;
    x->units = 2 * x->packs + x->blocks;
    x->rounds = ceil_div(x->heads, x->lanes) + x->lag;
}

static enum attn_status make_plan(const struct attn_problem *p, const struct attn_options *opt,
                                  struct plan *x, struct attn_error *err)
{
    memset(x, 0, sizeof *x);
    x->kernels = attn_tiled_kernels(p, opt, err);
    if (x->kernels == NULL)
        return ATTN_EINVAL;
    x->heads = p->batch * p->kv_heads;
    x->group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    x->keys = count_keys(p, x);
    x->parts = ceil_div(p->n_key, x->keys);
    x->step = STEP_PANELS * x->kernels->panel;
    x->steps = ceil_div(p->n_query, x->step);
    plan_units(p, opt, x);
    return ATTN_OK;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* The packed queries of the kv heads in work, each thread's workspace, and how far each unit has
 * come. */
enum { BUFFERS = ATTN_STATES + ATTN_BACK + 1 };
struct memory {
    struct attn_buffer buffer[BUFFERS];
    const struct attn_buffer *state; /* [slots][group][panels] */
    const struct attn_buffer *ws;    /* [threads]              */
    _Atomic int32_t *passed;         /* [rounds][units][lanes] */
};

static int64_t panels_of(const struct plan *x)
{
    return x->steps * STEP_PANELS;
}

/* dK and dV are those of a whole block. */
static void lay_out(const struct attn_problem *p, const struct plan *x, struct memory *m)
{
    struct attn_buffer *state = m->buffer, *ws = state + ATTN_STATES, *order = ws + ATTN_BACK;
    int64_t panels = attn_product(x->slots * x->group, panels_of(x));
    attn_backward_buffers(x->kernels, p, panels, x->threads, x->keys, state, ws);
    ws[ATTN_BACK_DKV].numbers = attn_product(ws[ATTN_BACK_DKV].numbers, x->span);
    *order = attn_buffer_of("ordered.sum", x->rounds * x->lanes, x->units, 4);
    m->state = state, m->ws = ws;
}

enum attn_status attn_tiled_backward_cost(const struct attn_problem *p,
                                          const struct attn_options *opt, struct attn_cost *cost,
                                          struct attn_error *err)
{
    struct plan x;
    struct memory memory;
    enum attn_status status = make_plan(p, opt, &x, err);
    if (status != ATTN_OK)
        return status;
    lay_out(p, &x, &memory);
    cost->flops = attn_problem_flops(p, ATTN_BACKWARD, cost);
    return attn_buffers_price(memory.buffer, BUFFERS, cost, err);
}

/* ---- units and their order -----------------------------------------------------------------
 *
 * Round r packs its kv heads (batch and head in one number), one a lane, meets their keys, and
 * unpacks those of round r - lag: where a second slot allows it, the next kv head is begun before
 * the last one waits for its stragglers.  Step s of a kv head, 0 <= s < packs, is one of query head
 * s / steps, from the last query to the first. */

struct work {
    const struct attn_problem *p;
    const struct attn_backward *t;
    struct attn_runs runs;
    const struct plan *plan;
    const struct memory *memory;
    _Atomic int64_t next; /* unit that no thread has yet */
};

/* One thread's view of it. */
struct worker {
    struct work *work;
    const struct plan *plan;
    struct attn_tile_backward job;
    char *dkv;    /* its workspace for dK and dV */
    int64_t done; /* all units before this one are done, as far as this thread has looked */
};

#define DONE INT32_MAX

/* The number of unit u of a kv head's lane in the round that packs it. */
static int64_t unit_at(const struct plan *plan, int64_t head, int64_t u)
{
    return (head / plan->lanes * plan->units + u) * plan->lanes + head % plan->lanes;
}

/* How many steps of queries a unit has behind it; DONE when it is done. */
static void pass(struct worker *x, int64_t unit, int64_t steps)
{
    attn_ordered_sum_pass(&x->work->memory->passed[unit], steps);
}

static void wait_for(struct worker *x, int64_t unit, int64_t steps)
{
    attn_ordered_sum_wait(&x->work->memory->passed[unit], steps);
}

/* Waits until units first, first + lanes, ... before end have `steps` steps behind them. */
static void wait_for_all(struct worker *x, int64_t first, int64_t end, int64_t steps)
{
    const _Atomic int32_t *passed = x->work->memory->passed;
    int64_t lanes = x->plan->lanes;
    while (x->done < end && atomic_load_explicit(&passed[x->done], memory_order_acquire) == DONE)
        x->done++;
    if (x->done > first)
        first += ceil_div(x->done - first, lanes) * lanes;
    for (int64_t n = first; n < end; n += lanes)
        wait_for(x, n, steps);
}

/* Aim the thread's job at step s of a kv head. */
static void aim(struct worker *x, int64_t head, int64_t s)
{
    const struct attn_problem *p = x->work->p;
    const struct plan *plan = x->plan;
    struct attn_tile_backward *job = &x->job;
    int64_t n = plan->steps > 0 ? s / plan->steps : 0, m = plan->steps - 1 - (s - n * plan->steps);
    int64_t at = (head % plan->slots * plan->group + n) * panels_of(plan);
    job->at.b = head / p->kv_heads;
    job->g = head % p->kv_heads;
    job->at.h = job->g * plan->group + n;
    job->at.i0 = m * plan->step;
    job->at.i1 = job->at.i0 + plan->step < p->n_query ? job->at.i0 + plan->step : p->n_query;
    for (int k = 0; k < ATTN_STATES; k++)
        job->state[k] = attn_buffer_at(&x->work->memory->state[k], at);
}

/* The first step of the job's query head, from its step m on, that sees any of keys [j0,j1);
 * `steps` when there is none.  Stretches that see nothing are crossed in strides that double, and
 * halve where one is too long. */
static int64_t next_step(const struct worker *x, int64_t m, int64_t j0, int64_t j1)
{
    const struct attn_problem *p = x->work->p;
    const struct attn_tile_backward *job = &x->job;
    int64_t stride = 1, step = x->plan->step, steps = x->plan->steps;
    while (m < steps) {
        int64_t i1 = (steps - m) * step, i0 = (stride < steps - m ? steps - m - stride : 0) * step;
        i1 = i1 < p->n_query ? i1 : p->n_query;
        struct attn_tile_at at = {job->at.b, job->at.h, i0, i1, j0, j1};
        if (job->runs.tile(job->runs.arg, at) == ATTN_TILE_EMPTY) {
            m += stride;
            stride *= 2;
        } else if (stride == 1)
            return m;
        else
            stride /= 2;
    }
    return steps;
}

/* Aim the thread's job at a part of the keys, of a block that begins with part `first`. */
static void aim_keys(struct worker *x, int64_t first, int64_t part)
{
    const struct plan *plan = x->plan;
    struct attn_tile_backward *job = &x->job;
    int64_t n_key = x->work->p->n_key;
    job->at.j0 = part * plan->keys;
    job->at.j1 = job->at.j0 + plan->keys < n_key ? job->at.j0 + plan->keys : n_key;
    const struct attn_buffer *dkv = &x->work->memory->ws[ATTN_BACK_DKV];
    job->ws[ATTN_BACK_DKV] = x->dkv + (part - first) * (dkv->numbers / plan->span) * dkv->size;
}

/* The job's queries meet parts [first,end).  The workspace has K and V of one part: of several,
 * each must be begun again, which is next to nothing where they are read in place. */
static void step_parts(struct worker *x, int64_t first, int64_t end)
{
    const struct attn_kernels *kernels = x->plan->kernels;
    for (int64_t part = first; part < end; part++) {
        aim_keys(x, first, part);
        x->job.resume = 1;
        x->job.prefetch = part + 1 == end;
        if (end - first > 1)
            kernels->backward_begin(&x->job);
        kernels->backward_step(&x->job);
    }
}

/* A block of the keys of kv head `head`, parts [part,end): all query heads in order, their steps in
 * order. */
static void run_keys(struct worker *x, int64_t head, int64_t block)
{
    const struct plan *plan = x->plan;
    int64_t n_key = x->work->p->n_key, part = block * plan->span;
    int64_t end = part + plan->span < plan->parts ? part + plan->span : plan->parts;
    int64_t j0 = part * plan->keys, j1 = end * plan->keys < n_key ? end * plan->keys : n_key;
    int64_t before = unit_at(plan, head, plan->packs), unit = before + block * plan->lanes;
    aim(x, head, 0);
    x->job.resume = 0;
    for (int64_t n = part; n < end; n++) {
        aim_keys(x, part, n);
        plan->kernels->backward_begin(&x->job);
    }
    for (int64_t first = 0; first < plan->packs; first += plan->steps) {
        aim(x, head, first);
        for (int64_t m = next_step(x, 0, j0, j1); m < plan->steps;
             m = next_step(x, m + 1, j0, j1)) {
            int64_t s = first + m;
            pass(x, unit, s);
            wait_for(x, unit_at(plan, head, s), DONE); /* packed? */
            wait_for_all(x, before, unit, s + 1);
            aim(x, head, s);
            step_parts(x, part, end);
        }
    }
    for (int64_t n = part; n < end; n++) {
        aim_keys(x, part, n);
        plan->kernels->backward_end(&x->job);
    }
}

/* Step s of a kv head, when all keys have met it. */
static void run_unpack(struct worker *x, int64_t head, int64_t s)
{
    const struct plan *plan = x->plan;
    int64_t blocks = unit_at(plan, head, plan->packs);
    wait_for(x, unit_at(plan, head, s), DONE); /* packed? */
    wait_for_all(x, blocks, blocks + plan->blocks * plan->lanes, s + 1);
    aim(x, head, s);
    plan->kernels->backward_unpack(&x->job);
}

static void run_unit(struct worker *x, int64_t number)
{
    const struct plan *plan = x->plan;
    int64_t u = number / plan->lanes % plan->units, unpacks = plan->packs + plan->blocks;
    int64_t head = number / plan->lanes / plan->units * plan->lanes + number % plan->lanes;
    int64_t late = head - plan->lag * plan->lanes;
    if (u < plan->packs && head < plan->heads) { /* the slot's last user must have left it */
        if (head >= plan->slots)
            wait_for(x, unit_at(plan, head - plan->lanes, unpacks + u), DONE);
        aim(x, head, u);
        plan->kernels->backward_pack(&x->job);
    } else if (u >= plan->packs && u < unpacks && head < plan->heads) {
        run_keys(x, head, u - plan->packs);
    } else if (u >= unpacks && late >= 0 && late < plan->heads) {
        run_unpack(x, late, u - unpacks);
    }
    pass(x, number, DONE);
}

static void run_thread(struct work *work, int thread)
{
    const struct plan *plan = work->plan;
    struct worker x = {.work = work, .plan = plan};
    int64_t n, all = plan->rounds * plan->units * plan->lanes;
    x.job = (struct attn_tile_backward){.p = work->p, .t = work->t, .keys = plan->keys};
    x.job.runs = work->runs;
    for (int k = 0; k < ATTN_BACK; k++)
        x.job.ws[k] = attn_buffer_at(&work->memory->ws[k], thread);
    x.dkv = x.job.ws[ATTN_BACK_DKV];
    while ((n = atomic_fetch_add(&work->next, 1)) < all)
        run_unit(&x, n);
}

/* ---- the pass ----------------------------------------------------------------------------- */

int attn_dbias_is_shared(const struct attn_problem *p, const struct attn_view *dbias)
{
    const int64_t extent[4] = {p->batch, p->heads, p->n_query, p->n_key};
    for (int axis = 0; dbias->data != NULL && axis < 4; axis++)
        if (dbias->stride[axis] == 0 && extent[axis] > 1)
            return 1;
    return 0;
}

/* A dbias that is shared is summed in the order of units, by one thread: pairs of different kv
 * heads or blocks of keys would meet in it. */
enum attn_status attn_tiled_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                     struct attn_runs runs, const struct attn_backward *t)
{
    struct plan plan;
    struct memory memory;
    struct work work = {.p = p, .t = t, .runs = runs, .plan = &plan, .memory = &memory};
    enum attn_status status = make_plan(p, ctx->options, &plan, ctx->error);
    if (status != ATTN_OK)
        return status;
    lay_out(p, &plan, &memory);
    status = attn_buffers_take(memory.buffer, BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK) {
        memory.passed = (void *)memory.buffer[BUFFERS - 1].data;
        attn_ordered_sum_begin(memory.passed, plan.rounds * plan.lanes * plan.units);
        int threads = attn_dbias_is_shared(p, &t->dbias) ? 1 : plan.threads;
        attn_dbias_clear(p, &t->dbias);
        if (threads == 1)
            run_thread(&work, 0);
        else
#pragma omp parallel num_threads(threads)
            run_thread(&work, omp_get_thread_num());
    }
    attn_buffers_give(memory.buffer, BUFFERS, ctx->ledger);
    if (status == ATTN_OK)
        attn_leak_mend_backward(p, t, plan.kernels, plan.threads);
    return status;
}
