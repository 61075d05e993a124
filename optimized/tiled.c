/* tiled: attention in tiles on the kernels of optimized/simd; nothing of size Lq x Lk ever exists.
 * Here are its options, its price and its record; tiled_plan.c cuts the work into units,
 * tiled_forward.c and tiled_backward.c deal them to threads. */
#include "optimized/tiled.h"

#include "optimized/integers.h"
#include "optimized/simd/isa.h"
#include "optimized/tiled_plan.h"
#include "ref/precision.h"
#include "ref/problem.h"

static const struct attn_option options[] = {
    {"parts", 0, 0, 4096, NULL, "parts that the keys are cut into; 0: as few queries ask for"},
    {"panels", 0, 0, ATTN_MAX_PANELS, NULL, "panels in a block of queries; 0: as the caches like"},
    {"rescale", 0, 0, 1, "lazy eager", "eager: at every new maximum, as in the papers"},
    {"few", ATTN_DECODE_QUERIES, 0, ATTN_SPLIT_ROWS, NULL,
     "up to n queries go by rows instead of tiles"},
    {"p", 0, 0, 1, "f32 bf16",
     "bf16: products of bf16 numbers, P and dS rounded, as matrix units do"},
    {0}};

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    struct attn_tiled_plan x;
    struct attn_buffer buffer[ATTN_TILED_BUFFERS] = {0};
    if (pass == ATTN_BACKWARD)
        return attn_tiled_backward_cost(p, opt, cost, err);
    enum attn_status status = attn_tiled_plan_make(p, opt, &x, err);
    if (status != ATTN_OK)
        return status;
    cost->flops = attn_problem_flops(p, pass, cost);
    if (x.few)
        return attn_decode_cost(p, &x.decode, cost, err);
    attn_tiled_buffers(p, &x, buffer);
    return attn_buffers_price(buffer, ATTN_TILED_BUFFERS, cost, err);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    return attn_tiled_forward(ctx, p, attn_runs_of(p), t);
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    return attn_tiled_backward(ctx, p, attn_runs_of(p), t);
}

/* At most once a key block. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    int few = p->n_query <= opt->value[ATTN_TILED_FEW];
    return ceil_div(p->n_key, few ? ATTN_SPLIT_KEYS : ATTN_KEY_BLOCK) + 1;
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *opt)
{
    struct attn_tiled_plan x;
    if (attn_tiled_plan_make(p, opt, &x, NULL) != ATTN_OK)
        return 0;
    return (x.few ? x.decode.parts : x.parts) - 1;
}

/* There is nothing to gain where numbers are wider, and f16 has no such unit: its P would need
 * scaling. */
static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *opt,
                                struct attn_error *err)
{
    if (opt->value[ATTN_TILED_P] == 0 || p->dtype == ATTN_BF16)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "tiled:p=bf16 multiplies bf16 numbers, and these are %s: "
                     "leave p=bf16 out",
                     attn_dtype_name(p->dtype));
}

/* With p=bf16 that of the set "fused-16" (docs/bounds.md, 9), but for gradients of a group, which
 * are summed in float: operands are as stored, P and dS are rounded. */
static void precision(const struct attn_problem *p, const struct attn_options *opt,
                      struct attn_precision *x)
{
    attn_kernels_precision(p, opt, x);
    if (opt->value[ATTN_TILED_P] == 0)
        return;
    x->u_sum = 0x1p-22;
    x->u_p = x->u_ds = 0x1p-8;
    x->exp_ulps = 8;
    x->leans = 1;
}

const struct attn_impl attn_impl_tiled = {
    .name = "tiled",
    .summary = "online softmax over tiles, vectors over queries; nothing of size L x L",
    .family = "tiled",
    .caps = ATTN_CAPS_ALL,
    .options = options,
    .rescales = rescales,
    .merges = merges,
    .cost = cost,
    .forward = forward,
    .backward = backward,
    .accepts = accepts,
    .precision = precision,
    .flops_by_pairs = 1,
    .simd = 1,
};
