/* See half.h. */
#include "tests/variants/half_store.h"

#include <math.h>

#include "optimized/merge.h"
#include "ref/half.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/harness/bound/bound.h"
#include "tests/variants/honest.h"

static const struct attn_option options[] = {
    {"order", HONEST_FORWARD, 0, 2, "forward reverse pairwise", "in which sums are added"},
    {"exp", HONEST_E, 0, 1, "e two", "the base of the exponential"},
    {"splits", 1, 1, 64, NULL, "parts of the keys"},
    {"p", HONEST_EXACT, 0, 2, "exact bf16 f16", "how P is rounded before it is used"},
    {"delta", HONEST_DOT, 0, 1, "dot sum", "how D is computed"},
    {"store", HALF_NEAREST, 0, 3, "nearest truncate flush saturate", "how results are stored"},
    {"sum", HALF_SUM_FLOAT, 0, 1, "float storage", "what partial results are kept in"},
    {"read", HALF_READ_ALL, 0, 1, "all normal", "which inputs count"},
    {0}};

enum { PIECE = 8 }; /* keys between two roundings of a sum in storage */

/* ---- numbers -------------------------------------------------------------------------------- */

static double least_normal(enum attn_dtype dtype)
{
    return dtype == ATTN_F16 ? 0x1p-14 : 0x1p-126;
}

/* x as it comes out of storage again. */
static float stored(enum attn_dtype dtype, enum half_store how, float x)
{
    float largest = dtype == ATTN_F16 ? 65504 : 0x1.fep127f, y;
    if (how == HALF_TRUNCATE && isfinite(x)) /* seven bits of fraction, or ten */
        x = attn_float_of_bits(attn_float_bits(x) &
                               (dtype == ATTN_F16 ? 0xffffe000u : 0xffff0000u));
    y = dtype == ATTN_F16 ? attn_f16_to_float(attn_f16_from_float(x))
                          : attn_bf16_to_float(attn_bf16_from_float(x));
    if (how == HALF_FLUSH && fabs((double)y) < least_normal(dtype))
        return 0;
    return how == HALF_SATURATE && isinf(y) ? copysignf(largest, y) : y;
}

/* [B,H,L,width] in float, contiguous. */
struct wide {
    float *data;
    int64_t batch, heads, rows, width;
};

static int64_t size_of(const struct wide *x)
{
    return x->batch * x->heads * x->rows * x->width;
}

static struct attn_view view_of(const struct wide *x)
{
    return (struct attn_view){
        x->data, ATTN_F32, {x->heads * x->rows * x->width, x->rows * x->width, x->width, 1}};
}

static struct attn_cview cview_of(const struct wide *x)
{
    return (struct attn_cview){
        x->data, ATTN_F32, {x->heads * x->rows * x->width, x->rows * x->width, x->width, 1}};
}

static void widen(const struct attn_cview *from, enum half_read how, struct wide *to)
{
    double least = how == HALF_READ_NORMAL ? least_normal(from->dtype) : 0;
    int64_t n = 0;
    for (int64_t b = 0; b < to->batch; b++)
        for (int64_t h = 0; h < to->heads; h++)
            for (int64_t i = 0; i < to->rows; i++)
                for (int64_t c = 0; c < to->width; c++, n++) {
                    double x = attn_cview_get(from, b, h, i, c);
                    to->data[n] = fabs(x) < least ? 0 : (float)x;
                }
}

static void narrow(const struct wide *from, enum half_store how, const struct attn_view *to)
{
    int64_t n = 0;
    for (int64_t b = 0; b < from->batch; b++)
        for (int64_t h = 0; h < from->heads; h++)
            for (int64_t i = 0; i < from->rows; i++)
                for (int64_t c = 0; c < from->width; c++, n++)
                    attn_view_set(to, b, h, i, c, (double)stored(to->dtype, how, from->data[n]));
}

/* ---- buffers -------------------------------------------------------------------------------- */

/* Everything that is wide; `part` is what a partial result is computed in. */
struct room {
    struct wide q, k, v, o, d_o, dq, dk, dv, part, part2;
    float *lse;
    float *block;
};

/* Lay out from `at` on (NULL: only count); returns how many numbers there are. */
static int64_t lay_out(const struct attn_problem *p, enum attn_pass pass, struct room *x, float *at)
{
    int backward = pass == ATTN_BACKWARD;
    const struct wide query = {NULL, p->batch, p->heads, p->n_query, p->d_key};
    const struct wide key = {NULL, p->batch, p->kv_heads, p->n_key, p->d_key};
    struct wide *const all[] = {&x->q,  &x->k,  &x->v,  &x->o,     &x->part,
                                &x->dq, &x->dk, &x->dv, &x->part2, &x->d_o};
    int64_t n = 0;
    x->q = x->dq = query;
    x->o = x->d_o = query;
    x->o.width = x->d_o.width = p->d_value;
    x->k = x->v = x->dk = x->dv = key;
    x->v.width = x->dv.width = p->d_value;
    x->part = backward ? x->k : x->o;
    x->part2 = x->v;
    for (int a = 0; a < (backward ? 10 : 5); a++) {
        all[a]->data = at != NULL ? at + n : NULL;
        n += size_of(all[a]);
    }
    x->lse = at != NULL ? at + n : NULL;
    return n + p->batch * p->heads * p->n_query;
}

static enum attn_status take(struct attn_ctx *ctx, const struct attn_problem *p,
                             enum attn_pass pass, struct room *x)
{
    struct room unused;
    int64_t n = lay_out(p, pass, &unused, NULL);
    x->block = attn_ledger_take(ctx->ledger, "wide", n, (int64_t)sizeof(float), ctx->error);
    if (x->block == NULL)
        return ATTN_ENOMEM;
    lay_out(p, pass, x, x->block);
    return ATTN_OK;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    struct attn_problem wide = *p;
    struct room unused;
    wide.dtype = ATTN_F32;
    if (opt->value[HALF_SUM] == HALF_SUM_STORAGE && pass == ATTN_FORWARD && wide.n_key > PIECE)
        wide.n_key = PIECE;
    enum attn_status status =
        attn_cost_add(cost, "wide", lay_out(p, pass, &unused, NULL), (int64_t)sizeof(float), err);
    return status == ATTN_OK ? variant_honest.cost(&wide, opt, pass, rank, cost, err) : status;
}

/* ---- forward -------------------------------------------------------------------------------- */

/* The keys in pieces of eight, merged; what is kept between pieces is rounded to storage.  `wide`
 * is the problem in float. */
static enum attn_status sum_in_storage(struct attn_ctx *ctx, const struct attn_problem *wide,
                                       enum attn_dtype dtype, const struct attn_forward *t,
                                       struct room *x)
{
    enum attn_status status = ATTN_OK;
    int64_t rows = wide->batch * wide->heads * wide->n_query, dv = wide->d_value;
    for (int64_t r = 0; r < rows; r++) {
        x->lse[r] = -INFINITY;
        for (int64_t c = 0; c < dv; c++)
            x->o.data[r * dv + c] = 0;
    }
    for (int64_t j = 0; (j == 0 || j < wide->n_key) && status == ATTN_OK; j += PIECE) {
        struct attn_problem piece = *wide;
        struct attn_forward f = *t;
        piece.n_key = wide->n_key - j < PIECE ? wide->n_key - j : PIECE;
        piece.origin.key += j;
        f.k.data = (const float *)f.k.data + j * wide->d_key;
        f.v.data = (const float *)f.v.data + j * dv;
        f.o = view_of(&x->part);
        status = variant_honest.forward(ctx, &piece, &f);
        for (int64_t r = 0; r < rows; r++) {
            int64_t i = r % wide->n_query, bh = r / wide->n_query;
            float lse = (float)attn_view_get(&t->lse, bh / wide->heads, bh % wide->heads, i, 0);
            float *o = x->o.data + r * dv;
            attn_merge_f32(o, &x->lse[r], x->part.data + r * dv, lse, dv);
            for (int64_t c = 0; c < dv; c++)
                o[c] = stored(dtype, HALF_NEAREST, o[c]);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = r % wide->n_query, bh = r / wide->n_query;
        attn_view_set(&t->lse, bh / wide->heads, bh % wide->heads, i, 0, (double)x->lse[r]);
    }
    return status;
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct room x = {0};
    struct attn_problem wide = *p;
    const int64_t *how = ctx->options->value;
    enum attn_status status = take(ctx, p, ATTN_FORWARD, &x);
    wide.dtype = ATTN_F32;
    if (status == ATTN_OK) {
        widen(&t->q, (enum half_read)how[HALF_READ], &x.q);
        widen(&t->k, (enum half_read)how[HALF_READ], &x.k);
        widen(&t->v, (enum half_read)how[HALF_READ], &x.v);
        const struct attn_forward f = {.q = cview_of(&x.q),
                                       .k = cview_of(&x.k),
                                       .v = cview_of(&x.v),
                                       .o = view_of(&x.o),
                                       .lse = t->lse};
        status = how[HALF_SUM] == HALF_SUM_STORAGE ? sum_in_storage(ctx, &wide, p->dtype, &f, &x)
                                                   : variant_honest.forward(ctx, &wide, &f);
    }
    if (status == ATTN_OK)
        narrow(&x.o, (enum half_store)how[HALF_STORE], &t->o);
    attn_ledger_give(ctx->ledger, x.block);
    return status;
}

/* ---- backward ------------------------------------------------------------------------------- */

/* The problem of one query head, and a view that begins there. */
static struct attn_cview from_head(struct attn_cview view, int64_t h)
{
    if (view.data != NULL)
        view.data = (const float *)view.data + h * view.stride[1];
    return view;
}

/* dK and dV once more, one query head after the other, those of a group summed in storage. */
static enum attn_status heads_in_storage(struct attn_ctx *ctx, const struct attn_problem *wide,
                                         enum attn_dtype dtype, const struct attn_backward *t,
                                         struct room *x)
{
    int64_t group = wide->kv_heads > 0 ? wide->heads / wide->kv_heads : 1;
    enum attn_status status = ATTN_OK;
    for (int64_t h = 0; h < wide->heads && status == ATTN_OK; h++) {
        struct attn_problem one = *wide;
        struct attn_backward b = *t;
        one.heads = one.kv_heads = 1;
        one.origin.head += h;
        b.q = from_head(t->q, h), b.o = from_head(t->o, h), b.d_o = from_head(t->d_o, h);
        b.lse = from_head(t->lse, h), b.d_lse = from_head(t->d_lse, h);
        b.k = from_head(t->k, h / group), b.v = from_head(t->v, h / group);
        b.dq.data = (float *)t->dq.data + h * t->dq.stride[1];
        b.dbias.data = NULL;
        b.dk = view_of(&x->part), b.dv = view_of(&x->part2);
        status = variant_honest.backward(ctx, &one, &b);
        for (int64_t n = 0; n < 2; n++) {
            struct wide *sum = n == 0 ? &x->dk : &x->dv, *part = n == 0 ? &x->part : &x->part2;
            int64_t head = sum->rows * sum->width;
            for (int64_t e = 0; e < sum->batch * head; e++) {
                int64_t at = (e / head * sum->heads) * head + e % head;
                float *to = &sum->data[at + h / group * head], more = part->data[at];
                *to = stored(dtype, HALF_NEAREST, h % group == 0 ? more : *to + more);
            }
        }
    }
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct room x = {0};
    struct attn_problem wide = *p;
    const int64_t *how = ctx->options->value;
    enum attn_status status = take(ctx, p, ATTN_BACKWARD, &x);
    wide.dtype = ATTN_F32;
    if (status == ATTN_OK) {
        enum half_read read = (enum half_read)how[HALF_READ];
        widen(&t->q, read, &x.q), widen(&t->k, read, &x.k), widen(&t->v, read, &x.v);
        widen(&t->o, read, &x.o), widen(&t->d_o, read, &x.d_o);
        const struct attn_backward b = {.q = cview_of(&x.q),
                                        .k = cview_of(&x.k),
                                        .v = cview_of(&x.v),
                                        .o = cview_of(&x.o),
                                        .lse = t->lse,
                                        .d_o = cview_of(&x.d_o),
                                        .d_lse = t->d_lse,
                                        .dq = view_of(&x.dq),
                                        .dk = view_of(&x.dk),
                                        .dv = view_of(&x.dv),
                                        .dbias = t->dbias};
        status = variant_honest.backward(ctx, &wide, &b);
        if (status == ATTN_OK && how[HALF_SUM] == HALF_SUM_STORAGE)
            status = heads_in_storage(ctx, &wide, p->dtype, &b, &x);
    }
    if (status == ATTN_OK) {
        narrow(&x.dq, (enum half_store)how[HALF_STORE], &t->dq);
        narrow(&x.dk, (enum half_store)how[HALF_STORE], &t->dk);
        narrow(&x.dv, (enum half_store)how[HALF_STORE], &t->dv);
    }
    attn_ledger_give(ctx->ledger, x.block);
    return status;
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *opt)
{
    return variant_honest.merges(p, opt);
}

static void precision(const struct attn_problem *p, const struct attn_options *opt,
                      struct attn_precision *x)
{
    variant_honest.precision(p, opt, x);
}

const struct attn_impl variant_half = {
    .name = "half",
    .summary = "16-bit storage, right or wrong: for the tests of the bound",
    .family = "test",
    .caps = ATTN_TEXTBOOK_CAPS & ~(unsigned)(ATTN_CAP_F64 | ATTN_CAP_F32),
    .options = options,
    .merges = merges,
    .precision = precision,
    .cost = cost,
    .forward = forward,
    .backward = backward,
};
