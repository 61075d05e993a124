/* tiled-textbook: attention in tiles, with online softmax; nothing of size Lq x Lk ever exists.
 *
 * Memory   forward: the tiles alone, whatever L is: Br (d + dv + Bc + 2) + Bc (d + dv) numbers;
 *          backward: about twice the tiles, and dQ and D of one kv head's queries, O(L d).
 * Flops    2 (d + dv) per visible pair forward, 2 (3 d + 2 dv) backward: scores are made again.
 *          Tiles without a visible pair are skipped.
 * Source   Milakov & Gimelshein 2018 (online softmax); Dao 2023, FlashAttention-2, algorithms 1, 2.
 * Caveats  One thread, no SIMD by hand, K and V are copied into tiles although a CPU's cache
 *          would do that by itself: the copies are what a GPU's fast memory would hold.
 */
#include <math.h>

#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"

static const struct attn_option options[] = {{"br", 64, 1, 4096, NULL, "queries in a tile"},
                                             {"bc", 64, 1, 4096, NULL, "keys in a tile"},
                                             {0}};

#define REAL      float
#define FN(name)  name##_f32
#define REAL_EXP  expf
#define REAL_LOG  logf
#define REAL_TANH tanhf
#include "ref/textbook_tmpl.h"

#include "ref/tiled_tmpl.h"
#undef REAL
#undef FN
#undef REAL_EXP
#undef REAL_LOG
#undef REAL_TANH
#define REAL      double
#define FN(name)  name##_f64
#define REAL_EXP  exp
#define REAL_LOG  log
#define REAL_TANH tanh
#include "ref/textbook_tmpl.h"

#include "ref/tiled_tmpl.h"

/* ---- memory ------------------------------------------------------------------------------- */

/* Every buffer: its name, its elements, and where a tile keeps it.  The ledger is filled from
 * this table; cost() below is written out on its own. */
enum { BUFFERS = 13 };
struct buffers {
    int n;
    void *data[BUFFERS];
};

static int64_t group_rows(const struct attn_problem *p)
{
    return p->kv_heads > 0 ? p->heads / p->kv_heads * p->n_query : 0;
}

static enum attn_status take(struct attn_ctx *ctx, const struct attn_problem *p,
                             enum attn_pass pass, struct buffers *x)
{
    int64_t br = ctx->options->value[0], bc = ctx->options->value[1];
    int64_t real = p->dtype == ATTN_F64 ? 8 : 4, d = p->d_key, dv = p->d_value;
    const struct {
        const char *name;
        int64_t elements;
    } list[BUFFERS] = {{"tile.q", br * d},       {"tile.k", bc * d},   {"tile.v", bc * dv},
                       {"tile.o", br * dv},      {"tile.s", br * bc},  {"tile.m", br},
                       {"tile.l", br},           {"tile.do", br * dv}, {"tile.slope", br * bc},
                       {"tile.dk", bc * d},      {"tile.dv", bc * dv}, {"delta", group_rows(p)},
                       {"dq", group_rows(p) * d}};
    x->n = 0;
    for (int i = 0; i < (pass == ATTN_BACKWARD ? BUFFERS : 7); i++) {
        void *data =
            attn_ledger_take(ctx->ledger, list[i].name, list[i].elements, real, ctx->error);
        if (data == NULL)
            return ATTN_ENOMEM;
        x->data[x->n++] = data;
    }
    return ATTN_OK;
}

static void give(struct attn_ctx *ctx, struct buffers *x)
{
    while (x->n > 0)
        attn_ledger_give(ctx->ledger, x->data[--x->n]);
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    int64_t br = opt->value[0], bc = opt->value[1], real = p->dtype == ATTN_F64 ? 8 : 4;
    int64_t d = p->d_key, dv = p->d_value;
    double pairs = (double)attn_problem_all_pairs(p, &cost->counted);
    enum attn_status status = attn_cost_add(cost, "tile.q", br * d, real, err);
#define ADD(name, elements) \
    if (status == ATTN_OK)  \
    status = attn_cost_add(cost, name, elements, real, err)
    ADD("tile.k", bc * d);
    ADD("tile.v", bc * dv);
    ADD("tile.o", br * dv);
    ADD("tile.s", br * bc);
    ADD("tile.m", br);
    ADD("tile.l", br);
    cost->flops = 2 * pairs * (double)(d + dv);
    if (pass == ATTN_BACKWARD) {
        int64_t rows = p->heads == 0 ? 0 : p->n_query * (p->heads / p->kv_heads);
        ADD("tile.do", br * dv);
        ADD("tile.slope", br * bc);
        ADD("tile.dk", bc * d);
        ADD("tile.dv", bc * dv);
        ADD("delta", rows);
        ADD("dq", attn_product(rows, d));
        cost->flops = 2 * pairs * (double)(3 * d + 2 * dv);
    }
#undef ADD
    return status;
}

/* ---- the passes --------------------------------------------------------------------------- */

#define TILE(x, br_, bc_)                                                                  \
    {                                                                                      \
        .br = (br_), .bc = (bc_), .Q = (x)->data[0], .K = (x)->data[1], .V = (x)->data[2], \
        .O = (x)->data[3], .S = (x)->data[4], .m = (x)->data[5], .l = (x)->data[6],        \
        .dO = (x)->data[7], .slope = (x)->data[8], .dK = (x)->data[9], .dV = (x)->data[10] \
    }

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct buffers x = {0};
    enum attn_status status = take(ctx, p, ATTN_FORWARD, &x);
    int64_t br = ctx->options->value[0], bc = ctx->options->value[1];
    if (status == ATTN_OK) {
        struct tile_f32 tile32 = TILE(&x, br, bc);
        struct tile_f64 tile64 = TILE(&x, br, bc);
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t h = 0; h < p->heads; h++)
                for (int64_t i = 0; i < p->n_query; i += br) {
                    int64_t end = i + br < p->n_query ? i + br : p->n_query;
                    if (p->dtype == ATTN_F64)
                        tiled_forward_f64(p, t, b, h, i, end, &tile64);
                    else
                        tiled_forward_f32(p, t, b, h, i, end, &tile32);
                }
    }
    give(ctx, &x);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct buffers x = {0};
    enum attn_status status = take(ctx, p, ATTN_BACKWARD, &x);
    if (status == ATTN_OK) {
        struct tile_f32 tile32 = TILE(&x, ctx->options->value[0], ctx->options->value[1]);
        struct tile_f64 tile64 = TILE(&x, ctx->options->value[0], ctx->options->value[1]);
        attn_dbias_clear(p, &t->dbias);
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t g = 0; g < p->kv_heads; g++)
                if (p->dtype == ATTN_F64)
                    tiled_backward_f64(p, t, b, g, x.data[11], x.data[12], &tile64);
                else
                    tiled_backward_f32(p, t, b, g, x.data[11], x.data[12], &tile32);
    }
    give(ctx, &x);
    return status;
}

static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    return (p->n_key + opt->value[1] - 1) / opt->value[1]; /* once a tile of keys */
}

const struct attn_impl attn_impl_tiled_textbook = {
    .name = "tiled-textbook",
    .summary = "online softmax over tiles of keys (FlashAttention-2), nothing of size L x L",
    .family = "tiled",
    .caps = ATTN_TEXTBOOK_CAPS,
    .options = options,
    .rescales = rescales,
    .cost = cost,
    .forward = forward,
    .backward = backward,
};
