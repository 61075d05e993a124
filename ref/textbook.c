/* The textbooks as implementations: dense, csr-textbook, tiled-textbook.
 *
 * Their algorithms know one (batch, head), in float or double, with adjacent features.  Everything
 * else is done here, once: the loops over batches, kv heads and the query heads that share one; the
 * buffers, their names and their prices; the mask that dense stores.
 *
 * When tensors are stored in bf16 or f16, or the features of one are not adjacent
 * (attn_problem.scattered), a head's q, k, v, o and gradients are brought into buffers "head.*" of
 * the arithmetic's type, O(L d).  Results are rounded once, on the way back.
 */
#include "ref/textbook.h"

#include <math.h>
#include <stdint.h>

#include "ref/buffers.h"
#include "ref/precision.h"
#include "ref/problem.h"
#include "ref/sink.h"

static int64_t real_size(const struct attn_problem *p)
{
    return p->dtype == ATTN_F64 ? 8 : 4;
}

static int brings_heads(const struct attn_problem *p)
{
    return p->scattered || p->dtype == ATTN_BF16 || p->dtype == ATTN_F16;
}

/* ---- a call -------------------------------------------------------------------------------- */

/* One tensor on its way to the algorithm. */
enum role { READ, WRITE, ADD }; /* ADD: begins at 0 */
struct tensor {
    const char *name;       /* of the buffer that a head of it is brought into; NULL: never is */
    struct attn_view view;  /* the data of an input is not written to                          */
    struct attn_matrix *at; /* where the algorithm finds it, in struct attn_head               */
    int of_keys;            /* one for each kv head; else one for each query head              */
    int64_t n_rows, width;  /* of one head                                                     */
    enum role role;
    struct attn_matrix buffer;
};

/* The differences of the three. */
struct call;
struct family {
    int has_csr; /* of its visible pairs */
    void (*lay_out)(struct call *x);
    void (*run_head)(struct call *x); /* x->head; heads come in order */
    double (*pairs)(const struct call *x, struct attn_cost *cost); /* that are computed */
};

enum { TENSORS = 10, BUFFERS = 20 };
struct call {
    const struct attn_problem *p;
    const struct attn_options *options;
    enum attn_pass pass;
    struct attn_head head;
    union { /* of the head that comes next; for S, P and dS, of those after it too */
        struct attn_dense_buffers dense;
        struct attn_csr_buffers csr;
        struct attn_tiled_buffers tiled;
    } work;
    int64_t score_size;      /* bytes of a number of S, P and dS */
    struct attn_matrix mask; /* dense: [..,Lq,Lk] cells */
    int64_t masks[2];        /* batches and heads of it: 1 where they share it */
    struct attn_csr csr;     /* csr-textbook            */
    struct tensor tensor[TENSORS];
    struct attn_view dsink; /* to be added to; without data where it is not asked for */
    struct attn_buffer buffer[BUFFERS];
    struct attn_matrix *rows[BUFFERS]; /* where a buffer's address goes */
    int n_tensors, n_buffers;
};

/* A buffer of n_rows rows of ld numbers. */
static void add(struct call *x, const char *name, int64_t n_rows, int64_t ld,
                struct attn_matrix *rows)
{
    rows->ld = ld;
    x->rows[x->n_buffers] = rows;
    x->buffer[x->n_buffers++] = attn_buffer_of(name, n_rows, ld, real_size(x->p));
}

static struct attn_matrix rows_from(struct attn_matrix x, int64_t i, int64_t size)
{
    return (struct attn_matrix){(char *)x.data + i * x.ld * size, x.ld};
}

/* A tensor of this call: width features of each query, or of each key. */
static void add_tensor(struct call *x, const char *name, struct attn_view view,
                       struct attn_matrix *at, int of_keys, int64_t width, enum role role)
{
    int64_t n_rows = of_keys ? x->p->n_key : x->p->n_query;
    struct tensor t = {name, view, at, of_keys, n_rows, width, role, {0}};
    if (name != NULL && brings_heads(x->p))
        add(x, name, n_rows, width, &x->tensor[x->n_tensors].buffer);
    t.buffer.ld = width;
    x->tensor[x->n_tensors++] = t;
}

static void add_forward(struct call *x, const struct attn_forward *t)
{
    struct attn_head *h = &x->head;
    add_tensor(x, "head.q", attn_view_input(&t->q), &h->Q, 0, h->d, READ);
    add_tensor(x, "head.k", attn_view_input(&t->k), &h->K, 1, h->d, READ);
    add_tensor(x, "head.v", attn_view_input(&t->v), &h->V, 1, h->dv, READ);
    add_tensor(x, "head.o", t->o, &h->O, 0, h->dv, WRITE);
    add_tensor(x, NULL, t->lse, &h->lse, 0, 1, WRITE);
}

static void add_backward(struct call *x, const struct attn_backward *t)
{
    struct attn_head *h = &x->head;
    add_tensor(x, "head.q", attn_view_input(&t->q), &h->Q, 0, h->d, READ);
    add_tensor(x, "head.k", attn_view_input(&t->k), &h->K, 1, h->d, READ);
    add_tensor(x, "head.v", attn_view_input(&t->v), &h->V, 1, h->dv, READ);
    add_tensor(x, "head.o", attn_view_input(&t->o), &h->O, 0, h->dv, READ);
    add_tensor(x, NULL, attn_view_input(&t->lse), &h->lse, 0, 1, READ);
    if (t->d_lse.data != NULL)
        add_tensor(x, NULL, attn_view_input(&t->d_lse), &h->dlse, 0, 1, READ);
    add_tensor(x, "head.dq", t->dq, &h->dQ, 0, h->d, WRITE);
    add_tensor(x, "head.dk", t->dk, &h->dK, 1, h->d, ADD);
    add_tensor(x, "head.dv", t->dv, &h->dV, 1, h->dv, ADD);
    add_tensor(x, "head.do", attn_view_input(&t->d_o), &h->dO, 0, h->dv, READ);
    h->dbias = t->dbias.data != NULL ? &t->dbias : NULL;
    attn_dbias_clear(x->p, &t->dbias);
    x->dsink = t->dsink;
    for (int64_t j = 0; j < x->p->heads && t->dsink.data != NULL; j++)
        attn_view_set(&t->dsink, 0, j, 0, 0, 0);
}

/* One head into its buffer, or from there into its tensor. */
static void copy_head(const struct tensor *t, int64_t b, int64_t h, int64_t size, int in)
{
    struct attn_view buffer = {
        t->buffer.data, size == 8 ? ATTN_F64 : ATTN_F32, {0, 0, t->width, 1}};
    for (int64_t i = 0; i < t->n_rows; i++)
        for (int64_t c = 0; c < t->width; c++)
            if (in)
                attn_view_set(&buffer, 0, 0, i, c, attn_view_get(&t->view, b, h, i, c));
            else
                attn_view_set(&t->view, b, h, i, c, attn_view_get(&buffer, 0, 0, i, c));
}

/* Show the algorithm head h of batch b: its own memory, or the buffer. */
static void open_head(const struct tensor *t, int64_t b, int64_t h, int64_t size)
{
    static const double nothing = 0;
    if (t->n_rows == 0 || t->width == 0) { /* has no memory: an address that is not read */
        *t->at = (struct attn_matrix){(void *)(uintptr_t)&nothing, 0};
        return;
    }
    char *first = (char *)t->view.data + attn_offset(t->view.stride, b, h, 0) * size;
    *t->at = t->buffer.data != NULL ? t->buffer : (struct attn_matrix){first, t->view.stride[2]};
    if (t->buffer.data != NULL && t->role == READ)
        copy_head(t, b, h, size, 1);
    for (int64_t i = 0; i < t->n_rows && t->role == ADD; i++)
        memset(rows_from(*t->at, i, size).data, 0, (size_t)(t->width * size));
}

static void open_heads(const struct call *x, int of_keys, int64_t b, int64_t h)
{
    for (int n = 0; n < x->n_tensors; n++)
        if (x->tensor[n].of_keys == of_keys)
            open_head(&x->tensor[n], b, h, real_size(x->p));
}

static void close_heads(const struct call *x, int of_keys, int64_t b, int64_t h)
{
    for (int n = 0; n < x->n_tensors; n++) {
        const struct tensor *t = &x->tensor[n];
        if (t->of_keys == of_keys && t->role != READ && t->buffer.data != NULL)
            copy_head(t, b, h, real_size(x->p), 0);
    }
}

/* ---- the mask that dense stores ------------------------------------------------------------ *
 * How it is stored is a matter of memory alone, never of meaning: a hidden score is replaced, not
 * shifted by a large number, so float4d with -inf means the same as bool2d. */

enum mask_store { BOOL4D, BOOL2D, INT32, FLOAT4D };
static const struct {
    const char *name;
    int by_batch, by_head; /* one for each; else they share it */
    int64_t size;          /* of a cell; 0: of a number        */
} STORE[] = {{"bool4d", 1, 1, 1}, {"bool2d", 0, 0, 1}, {"int32", 1, 0, 4}, {"float4d", 1, 1, 0}};

static int has_mask(const struct attn_problem *p)
{
    return p->mask != NULL && !attn_mask_is_none(p->mask);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Its size, and both values of a cell in the bytes of its type. */
static void lay_out_mask(struct call *x, enum mask_store store)
{
    const struct attn_problem *p = x->p;
    struct attn_dense_mask *mask = &x->work.dense.mask;
    const float hidden = -INFINITY;
    const double hidden_f64 = -(double)INFINITY;
    x->masks[0] = STORE[store].by_batch ? p->batch : least(p->batch, 1);
    x->masks[1] = STORE[store].by_head ? p->heads : least(p->heads, 1);
    mask->n_key = p->n_key;
    mask->size = STORE[store].size > 0 ? STORE[store].size : real_size(p);
    if (store != FLOAT4D)
        mask->shown[0] = 1;
    else if (p->dtype == ATTN_F64)
        memcpy(mask->hidden, &hidden_f64, sizeof hidden_f64);
    else
        memcpy(mask->hidden, &hidden, sizeof hidden);
    add(x, "mask", attn_product(attn_product(x->masks[0], x->masks[1]), p->n_query), p->n_key,
        &x->mask);
    x->buffer[0].size = mask->size;
}

static void fill_mask(struct call *x)
{
    const struct attn_problem *p = x->p;
    const struct attn_dense_mask *mask = &x->work.dense.mask;
    size_t size = (size_t)mask->size;
    char *cell = x->mask.data;
    for (int64_t b = 0; b < x->masks[0]; b++)
        for (int64_t h = 0; h < x->masks[1]; h++)
            for (int64_t i = 0; i < p->n_query; i++, cell += p->n_key * mask->size) {
                struct attn_run run = {0, 0};
                for (int64_t j = 0; j < p->n_key; j++)
                    memcpy(cell + j * mask->size, mask->hidden, size);
                while (attn_problem_next(p, b, h, i, &run))
                    for (int64_t j = run.lo; j < run.hi; j++)
                        memcpy(cell + j * mask->size, mask->shown, size);
            }
}

/* Bytes of the cells before those of head h of batch b. */
static int64_t mask_before(const struct call *x, int64_t b, int64_t h)
{
    b = x->masks[0] > 1 ? b : 0;
    h = x->masks[1] > 1 ? h : 0;
    return (b * x->masks[1] + h) * x->p->n_query * x->p->n_key * x->work.dense.mask.size;
}

/* ---- every call ---------------------------------------------------------------------------- */

/* Every head of every batch; a kv head is opened once for the group of query heads it serves. */
static void run_heads(struct call *x, const struct family *family)
{
    const struct attn_problem *p = x->p;
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++) {
            open_heads(x, 1, b, g);
            for (int64_t h = g * group; h < (g + 1) * group; h++) {
                double z = attn_sink_of(p, h), dz = 0;
                x->head.b = b, x->head.h = h;
                x->head.sink = p->sink.given ? &z : NULL;
                x->head.dsink = x->dsink.data != NULL ? &dz : NULL;
                open_heads(x, 0, b, h);
                family->run_head(x);
                close_heads(x, 0, b, h);
                if (x->dsink.data != NULL)
                    attn_view_add(&x->dsink, 0, h, 0, 0, dz);
            }
            close_heads(x, 1, b, g);
        }
}

/* The tables of a call, of which csr is known; of a price, where the tensors are absent. */
static void lay_out(struct call *x, const struct family *family, const struct attn_forward *t,
                    const struct attn_backward *back)
{
    const struct attn_problem *p = x->p;
    x->head = (struct attn_head){
        .problem = p, .n_query = p->n_query, .n_key = p->n_key, .d = p->d_key, .dv = p->d_value};
    x->score_size = real_size(p);
    family->lay_out(x);
    if (x->pass == ATTN_FORWARD)
        add_forward(x, t);
    else
        add_backward(x, back);
}

/* Forward with t, or backward with back; the other is NULL. */
static enum attn_status run(const struct family *family, struct attn_ctx *ctx,
                            const struct attn_problem *p, const struct attn_forward *t,
                            const struct attn_backward *back)
{
    enum attn_pass pass = back == NULL ? ATTN_FORWARD : ATTN_BACKWARD;
    struct call call = {.p = p, .options = ctx->options, .pass = pass}, *x = &call;
    enum attn_status status =
        family->has_csr ? attn_csr_build(p, ctx->ledger, &x->csr, ctx->error) : ATTN_OK;
    if (status != ATTN_OK)
        return status;
    lay_out(x, family, t, back);
    x->head.tracer = ctx->tracer;
    status = attn_buffers_take(x->buffer, x->n_buffers, ctx->ledger, ctx->error);
    for (int n = 0; n < x->n_buffers; n++)
        x->rows[n]->data = x->buffer[n].data;
    if (status == ATTN_OK && x->mask.data != NULL)
        fill_mask(x);
    if (status == ATTN_OK)
        run_heads(x, family);
    attn_buffers_give(x->buffer, x->n_buffers, ctx->ledger);
    attn_csr_free(&x->csr, ctx->ledger);
    return status;
}

/* The same tables, without tensors. */
static enum attn_status price(const struct family *family, const struct attn_problem *p,
                              const struct attn_options *options, enum attn_pass pass,
                              struct attn_cost *cost, struct attn_error *err)
{
    struct call x = {.p = p, .options = options, .pass = pass};
    enum attn_status status = family->has_csr ? attn_csr_cost(p, cost, &x.csr, err) : ATTN_OK;
    if (status != ATTN_OK)
        return status;
    lay_out(&x, family, &(struct attn_forward){0}, &(struct attn_backward){0});
    cost->pairs = family->pairs(&x, cost);
    cost->flops = attn_pass_flops(p, pass, cost->pairs);
    return attn_buffers_price(x.buffer, x.n_buffers, cost, err);
}

/* A family, from NAME_lay_out, NAME_run_head and NAME_pairs; and the functions of struct attn_impl
 * that stand for it: NAME_cost, NAME_forward, NAME_backward. */
#define TEXTBOOK(NAME, HAS_CSR)                                                                   \
    static const struct family NAME = {HAS_CSR, NAME##_lay_out, NAME##_run_head, NAME##_pairs};   \
    static enum attn_status NAME##_cost(const struct attn_problem *p,                             \
                                        const struct attn_options *options, enum attn_pass pass,  \
                                        int rank, struct attn_cost *cost, struct attn_error *err) \
    {                                                                                             \
        (void)rank;                                                                               \
        return price(&NAME, p, options, pass, cost, err);                                         \
    }                                                                                             \
    static enum attn_status NAME##_forward(struct attn_ctx *ctx, const struct attn_problem *p,    \
                                           const struct attn_forward *t)                          \
    {                                                                                             \
        return run(&NAME, ctx, p, t, NULL);                                                       \
    }                                                                                             \
    static enum attn_status NAME##_backward(struct attn_ctx *ctx, const struct attn_problem *p,   \
                                            const struct attn_backward *t)                        \
    {                                                                                             \
        return run(&NAME, ctx, p, NULL, t);                                                       \
    }

/* The numbers that dense has for each pair of a row of keys, csr for each visible pair. */
static void add_scores(struct call *x, int64_t rows, int64_t ld)
{
    struct attn_pair_buffers *w = &x->work.dense.pairs;
    int forward_pass = x->pass == ATTN_FORWARD;
    if (forward_pass)
        add(x, "scores", rows, ld, &w->S);
    add(x, "probs", rows, ld, &w->P);
    if (!forward_pass) {
        add(x, "dscores", rows, ld, &w->dS);
        add(x, "slope", 1, x->p->n_key, &w->slope);
    }
}

/* Those of the next head: behind the `rows` of this one. */
static void next_scores(struct call *x, int64_t rows)
{
    struct attn_pair_buffers *w = &x->work.dense.pairs;
    w->S = rows_from(w->S, rows, x->score_size);
    w->P = rows_from(w->P, rows, x->score_size);
    w->dS = rows_from(w->dS, rows, x->score_size);
}

/* ---- dense --------------------------------------------------------------------------------- */

static const struct attn_option dense_options[] = {
    {"mask", BOOL4D, 0, 3, "bool4d bool2d int32 float4d",
     "how the mask is stored: [B,H,Lq,Lk] bytes, [Lq,Lk] bytes, [B,1,Lq,Lk] int32 (Open-Sora), "
     "[B,H,Lq,Lk] floats of 0 and -inf"},
    {"scores", 0, 0, 1, "arithmetic storage",
     "the type of scores, P and dS: that of the arithmetic, or of q as eager mode has in 16 bits"},
    {0}};

static int is_narrow(const struct attn_problem *p, const struct attn_options *options)
{
    return options->value[1] == 1 && (p->dtype == ATTN_BF16 || p->dtype == ATTN_F16);
}

static enum attn_status dense_accepts(const struct attn_problem *p, const struct attn_options *opt,
                                      struct attn_error *err)
{
    int64_t store = opt->value[0];
    if (!has_mask(p))
        return ATTN_OK;
    if (!STORE[store].by_head && attn_mask_varies_by_head(p->mask))
        return attn_fail(err, ATTN_ENOTSUP,
                         "dense:mask=%s shares one mask among heads, but '%s' differs between "
                         "them: mask=bool4d or float4d would work",
                         STORE[store].name, attn_mask_text(p->mask));
    if (!STORE[store].by_batch && attn_problem_varies_by_batch(p))
        return attn_fail(err, ATTN_ENOTSUP,
                         "dense:mask=%s holds one [Lq,Lk] mask, but '%s' differs between "
                         "batches: mask=bool4d or int32 would work",
                         STORE[store].name, attn_mask_text(p->mask));
    return ATTN_OK;
}

static void dense_lay_out(struct call *x)
{
    const struct attn_problem *p = x->p;
    if (has_mask(p))
        lay_out_mask(x, (enum mask_store)x->options->value[0]);
    int first = x->n_buffers;
    add_scores(x, attn_product(attn_product(p->batch, p->heads), p->n_query), p->n_key);
    if (!is_narrow(p, x->options))
        return;
    x->score_size = (int64_t)attn_dtype_size(p->dtype);
    x->buffer[first].size = x->buffer[first + 1].size = x->score_size; /* S, P; or P, dS */
    x->work.dense.stored = p->dtype;
    add(x, "lines", 2, p->n_key, &x->work.dense.lines);
}

/* S, P and dS are rounded once each; dP is not stored.  P is rounded after its division by l. */
static void dense_precision(const struct attn_problem *p, const struct attn_options *options,
                            struct attn_precision *precision)
{
    if (!is_narrow(p, options))
        return;
    precision->u_s = precision->u_p = precision->u_ds = attn_dtype_roundoff(p->dtype);
    precision->u_dp = precision->u;
    precision->leans = 1;
}

static void dense_run_head(struct call *x)
{
    static attn_dense_pass *const pass[2][2] = {{attn_dense_forward_f32, attn_dense_forward_f64},
                                                {attn_dense_backward_f32, attn_dense_backward_f64}};
    if (x->mask.data != NULL)
        x->work.dense.mask.data = (char *)x->mask.data + mask_before(x, x->head.b, x->head.h);
    pass[x->pass][x->p->dtype == ATTN_F64](&x->head, &x->work.dense);
    next_scores(x, x->p->n_query);
}

/* Hidden pairs are computed too. */
static double dense_pairs(const struct call *x, struct attn_cost *cost)
{
    int64_t heads = attn_product(x->p->batch, x->p->heads);
    (void)cost;
    return (double)attn_product(heads, attn_product(x->p->n_query, x->p->n_key));
}

TEXTBOOK(dense, 0)

const struct attn_impl attn_impl_dense = {
    .name = "dense",
    .summary = "everything of size L x L in memory: mask, scores, probabilities",
    .family = "dense",
    .caps = ATTN_CAPS_ALL,
    .options = dense_options,
    .accepts = dense_accepts,
    .cost = dense_cost,
    .forward = dense_forward,
    .backward = dense_backward,
    .precision = dense_precision,
    .sinks = ATTN_SINKS_IN_SUM,
    .traces = 1,
};

/* ---- csr-textbook -------------------------------------------------------------------------- */

static enum attn_status csr_accepts(const struct attn_problem *p, const struct attn_options *opt,
                                    struct attn_error *err)
{
    (void)opt;
    if (p->n_key > INT32_MAX)
        return attn_fail(err, ATTN_ENOTSUP,
                         "csr-textbook indexes keys with 32 bits: %lld keys are "
                         "too many, 2147483647 would work",
                         (long long)p->n_key);
    return ATTN_OK;
}

static void csr_lay_out(struct call *x)
{
    x->work.csr.csr = &x->csr;
    add_scores(x, attn_csr_pairs(x->p, &x->csr), 1);
}

static void csr_run_head(struct call *x)
{
    static attn_csr_pass *const pass[2][2] = {{attn_csr_forward_f32, attn_csr_forward_f64},
                                              {attn_csr_backward_f32, attn_csr_backward_f64}};
    const struct attn_csr *csr = &x->csr;
    const int64_t *start = csr->row_start;
    start += (x->head.b * csr->batch_step + x->head.h * csr->head_step) * csr->n_query;
    pass[x->pass][x->p->dtype == ATTN_F64](&x->head, &x->work.csr);
    next_scores(x, start[csr->n_query] - start[0]); /* one for each visible pair */
}

static double csr_pairs(const struct call *x, struct attn_cost *cost)
{
    (void)cost; /* attn_csr_cost has said whether they were counted */
    return (double)attn_csr_pairs(x->p, &x->csr);
}

TEXTBOOK(csr, 1)

const struct attn_impl attn_impl_csr_textbook = {
    .name = "csr-textbook",
    .summary = "visible pairs only, as compressed sparse rows: SDDMM, softmax, SpMM",
    .family = "csr",
    .caps = ATTN_CAPS_ALL,
    .accepts = csr_accepts,
    .cost = csr_cost,
    .forward = csr_forward,
    .backward = csr_backward,
    .sinks = ATTN_SINKS_IN_SUM,
    .traces = 1,
};

/* ---- tiled-textbook ------------------------------------------------------------------------ */

static const struct attn_option tiled_options[] = {{"br", 64, 1, 4096, NULL, "queries in a tile"},
                                                   {"bc", 64, 1, 4096, NULL, "keys in a tile"},
                                                   {0}};

static void tiled_lay_out(struct call *x)
{
    struct attn_tiled_buffers *w = &x->work.tiled;
    int64_t br = w->br = x->options->value[0], bc = w->bc = x->options->value[1];
    int64_t d = x->head.d, dv = x->head.dv;
    add(x, "tile.q", br, d, &w->Q);
    add(x, "tile.k", bc, d, &w->K);
    add(x, "tile.v", bc, dv, &w->V);
    if (x->pass == ATTN_FORWARD) {
        add(x, "tile.o", br, dv, &w->O);
        add(x, "tile.s", br, bc, &w->S);
        add(x, "tile.m", br, 1, &w->m);
        add(x, "tile.l", br, 1, &w->l);
    } else {
        add(x, "tile.s", br, bc, &w->S);
        add(x, "tile.do", br, dv, &w->dO);
        add(x, "tile.slope", br, bc, &w->slope);
        add(x, "tile.dk", bc, d, &w->dK);
        add(x, "tile.dv", bc, dv, &w->dV);
        add(x, "delta", x->head.n_query, 1, &w->D);
    }
}

static void tiled_run_head(struct call *x)
{
    static attn_tiled_pass *const pass[2][2] = {{attn_tiled_forward_f32, attn_tiled_forward_f64},
                                                {attn_tiled_backward_f32, attn_tiled_backward_f64}};
    pass[x->pass][x->p->dtype == ATTN_F64](&x->head, &x->work.tiled);
}

static double tiled_pairs(const struct call *x, struct attn_cost *cost)
{
    return (double)attn_problem_all_pairs(x->p, &cost->counted);
}

TEXTBOOK(tiled, 0)

static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    return (p->n_key + opt->value[1] - 1) / opt->value[1]; /* once a tile of keys */
}

const struct attn_impl attn_impl_tiled_textbook = {
    .name = "tiled-textbook",
    .summary = "online softmax over tiles of keys (FlashAttention-2), nothing of size L x L",
    .family = "tiled",
    .caps = ATTN_CAPS_ALL,
    .options = tiled_options,
    .rescales = rescales,
    .cost = tiled_cost,
    .forward = tiled_forward,
    .backward = tiled_backward,
    .sinks = ATTN_SINKS_IN_SUM,
    .flops_by_pairs = 1,
    .traces = 1,
};
