/* See torch_layers.h. */
#include "experiments/rim/studies/torch_layers.h"

#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "optimized/integers.h"

/* ---- tensors --------------------------------------------------------------------------------- */

const struct attn_torch_named attn_torch_tensors[TENSORS] = {
#define ATTN_TENSOR(id, name, maker, bytes) {name, maker},
#include "experiments/rim/studies/torch_layers.def"
#undef ATTN_TENSOR
};

/* Parts that flash cuts the keys of a head into, where heads and blocks of 64 queries are too few
 * for the 132 multiprocessors: the fewest parts within 15 % of the best load (flash_api.cpp). */
static int64_t flash_splits(const struct attn_torch_row *r)
{
    int64_t width = r->d <= 64 ? 256 : r->d <= 128 ? 128 : 64;
    int64_t blocks = ceil_div(r->L, width), slots = 2 * 132;
    int64_t tasks = r->B * r->H * ceil_div(r->L, 64), most = blocks < 128 ? blocks : 128;
    double load[128], best = 0;
    if (r->backend != FLASH || (double)tasks >= 0.8 * (double)slots)
        return 1;
    for (int64_t n = 1; n <= most; n++) {
        int fewer = n > 1 && ceil_div(blocks, n) == ceil_div(blocks, n - 1);
        double waves = (double)(tasks * n) / (double)slots;
        load[n - 1] = fewer ? 0 : waves / ceil(waves);
        best = load[n - 1] > best ? load[n - 1] : best;
    }
    int64_t n = 1;
    while (load[n - 1] < 0.85 * best)
        n++;
    return n;
}

/* Features of a head in the accumulators of a kernel: its tiles are so wide. */
static int64_t accumulator_width(const struct attn_torch_row *r)
{
    int64_t tile = r->backend == EFFICIENT ? 64 : r->backend == FLASH ? 32 : 1;
    return ceil_div(r->d, tile) * tile;
}

static int64_t bytes_of(const struct attn_torch_row *r, enum attn_torch_tensor tensor)
{
    int64_t e = r->is_f32 ? 4 : 2, C = r->H * r->d, L2 = r->L * r->L;
    int64_t u = r->B * r->L * C * e, f = r->B * r->L * C * 4, S = 4 * r->B * r->H * L2;
    int64_t rows = r->B * r->H * r->L, splits = flash_splits(r);
    int64_t wide = rows * accumulator_width(r) * 4;
    if (r->backend == EFFICIENT) /* 16 B of counters for each block of queries */
        wide += ceil_div(r->L, r->is_f32 || r->d <= 64 ? 64 : 128) * r->B * r->H * 16;
    switch (tensor) {
#define ATTN_TENSOR(id, name, maker, bytes) \
    case id:                                \
        return bytes;
#include "experiments/rim/studies/torch_layers.def"
#undef ATTN_TENSOR
    case TENSORS:
        break;
    }
    return 0;
}

/* ---- the order of taking and giving ---------------------------------------------------------- */

static void take(struct attn_torch_play *x, int64_t layer, enum attn_torch_tensor tensor)
{
    int64_t bytes = bytes_of(x->row, tensor);
    if (bytes == 0 || x->entry[tensor] == x->run->leave_out)
        return;
    const struct attn_cuda_block *block =
        attn_cli_need(attn_cuda_take(&x->cache, attn_torch_tensors[tensor].name, bytes));
    x->live_at[layer][tensor] = 1 + block->address;
}

static void give(struct attn_torch_play *x, int64_t layer, enum attn_torch_tensor tensor)
{
    int64_t *live_at = &x->live_at[layer][tensor];
    if (*live_at > 0)
        attn_cuda_give(&x->cache, *live_at - 1);
    *live_at = 0;
}

/* What a layer takes, and with ~ gives back, in this order; what a row does not have is nothing. */
static void steps(struct attn_torch_play *x, int64_t layer, const int *step)
{
    for (; *step != (int)TENSORS; step++)
        if (*step >= 0)
            take(x, layer, (enum attn_torch_tensor) * step);
        else
            give(x, layer, (enum attn_torch_tensor) ~*step);
}
#define STEPS(...) steps(x, i, (const int[]){__VA_ARGS__, TENSORS})

/* efficient, flash, cudnn: one kernel.  saves: for the backward pass. */
static void fused_forward(struct attn_torch_play *x, int64_t i, int saves)
{
    STEPS(QKV, BIAS, O, LSE, SEED, OFFSET, LSE_PARTS, O_PARTS, ~LSE_PARTS, ~O_PARTS);
    if (!saves)
        STEPS(~BIAS, ~LSE, ~SEED, ~OFFSET);
}

/* math: one operator after the other, in float32.  More than one batch: bmm copies what it cannot
 * see as one axis, and saves the copies. */
static void math_forward(struct attn_torch_play *x, int64_t i, int saves)
{
    int originals = saves && x->row->B == 1;
    STEPS(QKV, BIAS, Q_F, K_F, V_F);
    STEPS(Q_S, ONES, TRIL, ~ONES, CAUSAL_BIAS, ~TRIL, K_S, Q_COPY, K_COPY, SCORES);
    if (!originals)
        STEPS(~K_S);
    if (!saves)
        STEPS(~Q_COPY, ~K_COPY);
    STEPS(P, ZERO, HIDDEN, HIDDEN_ROWS, ~HIDDEN, ~HIDDEN_ROWS, ~ZERO, ~SCORES, V_COPY, PV);
    if (!saves)
        STEPS(~V_COPY);
    if (!x->row->is_f32)
        STEPS(PV_E, ~PV);
    STEPS(~BIAS, ~CAUSAL_BIAS);
    if (!originals)
        STEPS(~Q_S);
    STEPS(~Q_F, ~K_F);
    if (!originals)
        STEPS(~V_F);
    if (!saves)
        STEPS(~P);
    STEPS(O, ~PV, ~PV_E);
}

static void attention_forward(struct attn_torch_play *x, int64_t i, int saves)
{
    if (x->row->backend == MATH)
        math_forward(x, i, saves);
    else
        fused_forward(x, i, saves);
}

/* math saves scaled and copied tensors; q k v themselves only where v is a view of them. */
static int saves_qkv(const struct attn_torch_row *r)
{
    return r->backend != MATH || (r->is_f32 && r->B == 1);
}

static void layer_forward(struct attn_torch_play *x, int64_t i)
{
    const struct attn_torch_row *r = x->row;
    attention_forward(x, i, !r->checkpoint);
    STEPS(WO_O, Y, ~WO_O);
    if (r->checkpoint || !saves_qkv(r))
        STEPS(~QKV);
    if (r->checkpoint)
        STEPS(~O);
}

/* Give back what the attention of a layer saved. */
static void drop_saved(struct attn_torch_play *x, int64_t i)
{
    for (int t = QKV; t <= (int)O; t++)
        give(x, i, (enum attn_torch_tensor)t);
}

static void fused_backward(struct attn_torch_play *x, int64_t i)
{
    STEPS(DQ, DK, DV, DELTA, DQ_WIDE, ~DQ_WIDE, ~DELTA);
    drop_saved(x, i);
    STEPS(~DO);
}

/* P V is done first, with what it saved; P is the softmax's too. */
static void math_backward(struct attn_torch_play *x, int64_t i)
{
    int is_f32 = x->row->is_f32;
    if (!saves_qkv(x->row))
        STEPS(~QKV);
    STEPS(~O);
    if (!is_f32)
        STEPS(DO_F, ~DO);
    if (x->row->B > 1)
        STEPS(DO_COPY, is_f32 ? ~DO : ~DO_F);
    STEPS(DV_F, DP, ~V_F, ~V_COPY, ~QKV, ~DO_COPY, ~DO_F, ~DO);
    STEPS(DP_P, DS, ~DP_P, ~DP, ~P, DK_F, DQ_F, ~DS);
    drop_saved(x, i);
    if (!is_f32)
        STEPS(DV, ~DV_F);
    STEPS(DK, ~DK_F, DQ, ~DQ_F);
}

/* G is the gradient of y of the last layer, which its caller holds; DY that of a lower layer. */
static void layer_backward(struct attn_torch_play *x, int64_t i)
{
    const struct attn_torch_row *r = x->row;
    if (r->checkpoint)
        attention_forward(x, i, 1);
    STEPS(DWO, DO);
    if (r->backend == MATH)
        math_backward(x, i);
    else
        fused_backward(x, i);
    STEPS(DQKV_STACK, ~DQ, ~DK, ~DV, ~DV_F); /* float32 keeps DV_F to the end */
    STEPS(DQKV, ~DQKV_STACK, DWQKV, DX, ~DQKV);
    if (i > 0)
        give(x, i - 1, Y);
    if (i == r->layers - 1)
        take(x, 0, DY); /* G + DX; below, DX is added to DY in place */
    STEPS(~DX);
}

void attn_torch_play_row(struct attn_torch_play *x, const struct attn_torch_row *row,
                         int64_t got[MOMENTS])
{
    int64_t n = row->layers, i = 0;
    x->row = row;
    attn_cuda_open(&x->cache);
    memset(x->live_at, 0, sizeof x->live_at);
    STEPS(LIBRARIES);
    for (; i < n; i++)
        STEPS(WQKV, WO);
    i = 0;
    STEPS(X, MASK_ONES, MASK, ~MASK_ONES);
    struct attn_ledger *live = &x->cache.live;
    int64_t base = live->now;
    attn_ledger_restart(live);
    for (i = 0; i < n; i++)
        layer_forward(x, i);
    got[AFTER_FORWARD] = live->now - base;
    got[PEAK_FORWARD] = live->peak - base;
    x->forward = *live;
    attn_ledger_restart(live);
    take(x, 0, G);
    for (i = n - 1; i >= 0; i--)
        layer_backward(x, i);
    got[PEAK_BACKWARD] = live->peak - base;
}
