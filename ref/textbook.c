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

#include "ref/problem.h"

static int64_t real_size(const struct attn_problem *p)
{
    return p->dtype == ATTN_F64 ? 8 : 4;
}

static int brings_heads(const struct attn_problem *p)
{
    return p->scattered || p->dtype == ATTN_BF16 || p->dtype == ATTN_F16;
}

/* ---- prices -------------------------------------------------------------------------------- *
 * Formulas of their own, not a sum over what the calls below ask for: tests compare the two. */

struct price {
    const struct attn_problem *p;
    struct attn_cost *cost;
    struct attn_error *err;
    enum attn_status status; /* of the first failure */
};

static void add(struct price *x, const char *name, int64_t count, int64_t size)
{
    if (x->status == ATTN_OK)
        x->status = attn_cost_add(x->cost, name, count, size, x->err);
}

static enum attn_status price_rest(struct price *x, enum attn_pass pass, double pairs)
{
    const struct attn_problem *p = x->p;
    int64_t real = real_size(p), Lq = p->n_query, Lk = p->n_key, d = p->d_key, dv = p->d_value;
    if (brings_heads(p)) {
        int64_t copies = pass == ATTN_BACKWARD ? 2 : 1; /* and gradients */
        const char *const name[2][4] = {{"head.q", "head.k", "head.v", "head.o"},
                                        {"head.dq", "head.dk", "head.dv", "head.do"}};
        for (int64_t n = 0; n < copies; n++) {
            add(x, name[n][0], attn_product(Lq, d), real);
            add(x, name[n][1], attn_product(Lk, d), real);
            add(x, name[n][2], attn_product(Lk, dv), real);
            add(x, name[n][3], attn_product(Lq, dv), real);
        }
    }
    /* forward: QK^T, PV.  backward: QK^T, dO V^T, dS K, dS^T Q, P^T dO. */
    x->cost->flops = 2 * pairs * (double)(pass == ATTN_FORWARD ? d + dv : 3 * d + 2 * dv);
    return x->status;
}

/* ---- a call -------------------------------------------------------------------------------- */

/* One tensor on its way to the algorithm. */
enum role { READ, WRITE, ADD }; /* ADD: begins at 0 */
struct tensor {
    const char *name;      /* of the buffer that a head of it is brought into; NULL: never is */
    struct attn_view view; /* the data of an input is not written to                          */
    struct attn_rows *at;  /* where the algorithm finds it, in struct attn_head               */
    int of_keys;           /* one for each kv head; else one for each query head              */
    int64_t n_rows, width; /* of one head                                                     */
    enum role role;
    struct attn_rows buffer;
};

enum { TENSORS = 10, BLOCKS = 32 };
struct call {
    struct attn_ctx *ctx;
    const struct attn_problem *p;
    enum attn_pass pass;
    struct attn_head head;
    struct attn_work work; /* whole buffers */
    struct attn_csr csr;
    struct tensor tensor[TENSORS];
    int n_tensors, n_blocks;
    void *block[BLOCKS];
    enum attn_status status;
};

static void *take_bytes(struct call *x, const char *name, int64_t count, int64_t size)
{
    if (x->status != ATTN_OK)
        return NULL;
    void *data = attn_ledger_take(x->ctx->ledger, name, count, size, x->ctx->error);
    if (data == NULL)
        x->status = ATTN_ENOMEM;
    else
        x->block[x->n_blocks++] = data;
    return data;
}

static struct attn_rows take(struct call *x, const char *name, int64_t n_rows, int64_t ld)
{
    return (struct attn_rows){take_bytes(x, name, n_rows * ld, real_size(x->p)), ld};
}

static struct attn_rows rows_from(struct attn_rows x, int64_t i, int64_t size)
{
    return (struct attn_rows){(char *)x.data + i * x.ld * size, x.ld};
}

/* A tensor of this call: width features of each query, or of each key. */
static void add_tensor(struct call *x, const char *name, struct attn_view view,
                       struct attn_rows *at, int of_keys, int64_t width, enum role role)
{
    int64_t n_rows = of_keys ? x->p->n_key : x->p->n_query;
    struct tensor t = {name, view, at, of_keys, n_rows, width, role, {0}};
    if (name != NULL && brings_heads(x->p))
        t.buffer = take(x, name, n_rows, width);
    x->tensor[x->n_tensors++] = t;
}

static struct attn_view input(const struct attn_cview *x)
{
    const int64_t *s = x->stride;
    return (struct attn_view){(void *)(uintptr_t)x->data, x->dtype, {s[0], s[1], s[2], s[3]}};
}

static void add_forward(struct call *x, const struct attn_forward *t)
{
    struct attn_head *h = &x->head;
    add_tensor(x, "head.q", input(&t->q), &h->Q, 0, h->d, READ);
    add_tensor(x, "head.k", input(&t->k), &h->K, 1, h->d, READ);
    add_tensor(x, "head.v", input(&t->v), &h->V, 1, h->dv, READ);
    add_tensor(x, "head.o", t->o, &h->O, 0, h->dv, WRITE);
    add_tensor(x, NULL, t->lse, &h->lse, 0, 1, WRITE);
}

static void add_backward(struct call *x, const struct attn_backward *t)
{
    struct attn_head *h = &x->head;
    add_tensor(x, "head.q", input(&t->q), &h->Q, 0, h->d, READ);
    add_tensor(x, "head.k", input(&t->k), &h->K, 1, h->d, READ);
    add_tensor(x, "head.v", input(&t->v), &h->V, 1, h->dv, READ);
    add_tensor(x, "head.o", input(&t->o), &h->O, 0, h->dv, READ);
    add_tensor(x, NULL, input(&t->lse), &h->lse, 0, 1, READ);
    add_tensor(x, "head.do", input(&t->d_o), &h->dO, 0, h->dv, READ);
    if (t->d_lse.data != NULL)
        add_tensor(x, NULL, input(&t->d_lse), &h->dlse, 0, 1, READ);
    add_tensor(x, "head.dq", t->dq, &h->dQ, 0, h->d, WRITE);
    add_tensor(x, "head.dk", t->dk, &h->dK, 1, h->d, ADD);
    add_tensor(x, "head.dv", t->dv, &h->dV, 1, h->dv, ADD);
    h->dbias = t->dbias.data != NULL ? &t->dbias : NULL;
}

/* One head between its tensor and its buffer. */
static void copy_in(const struct tensor *t, int64_t b, int64_t h, int64_t size)
{
    for (int64_t i = 0; i < t->n_rows; i++)
        for (int64_t c = 0; c < t->width; c++) {
            double value = attn_view_get(&t->view, b, h, i, c);
            if (size == 8)
                ((double *)t->buffer.data)[i * t->width + c] = value;
            else
                ((float *)t->buffer.data)[i * t->width + c] = (float)value;
        }
}

static void copy_out(const struct tensor *t, int64_t b, int64_t h, int64_t size)
{
    for (int64_t i = 0; i < t->n_rows; i++)
        for (int64_t c = 0; c < t->width; c++) {
            int64_t at = i * t->width + c;
            attn_view_set(&t->view, b, h, i, c,
                          size == 8 ? ((double *)t->buffer.data)[at]
                                    : (double)((float *)t->buffer.data)[at]);
        }
}

/* Show the algorithm head h of batch b: its own memory, or the buffer. */
static void open_head(const struct tensor *t, int64_t b, int64_t h, int64_t size)
{
    static const double nothing = 0;
    if (t->n_rows == 0 || t->width == 0) { /* has no memory: an address that is not read */
        *t->at = (struct attn_rows){(void *)(uintptr_t)&nothing, 0};
        return;
    }
    char *first = (char *)t->view.data + attn_offset(t->view.stride, b, h, 0) * size;
    *t->at = t->buffer.data != NULL ? t->buffer : (struct attn_rows){first, t->view.stride[2]};
    if (t->buffer.data != NULL && t->role == READ)
        copy_in(t, b, h, size);
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
            copy_out(t, b, h, real_size(x->p));
    }
}

/* ---- three families ------------------------------------------------------------------------ */

struct family {
    attn_head_pass *pass[2][2]; /* [pass][f64] */
    void (*take)(struct call *x);
    /* The buffers of head h of batch b, from those of all heads. */
    struct attn_work (*work)(struct call *x, int64_t b, int64_t h);
};

/* Every head of every batch; a kv head is opened once for the group of query heads it serves. */
static enum attn_status run(struct call *x, const struct family *family)
{
    const struct attn_problem *p = x->p;
    attn_head_pass *pass = family->pass[x->pass][p->dtype == ATTN_F64];
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    family->take(x);
    for (int64_t b = 0; b < p->batch && x->status == ATTN_OK; b++)
        for (int64_t g = 0; g < p->kv_heads; g++) {
            open_heads(x, 1, b, g);
            for (int64_t h = g * group; h < (g + 1) * group; h++) {
                struct attn_work work = family->work(x, b, h);
                x->head.b = b, x->head.h = h;
                open_heads(x, 0, b, h);
                pass(&x->head, &work);
                close_heads(x, 0, b, h);
            }
            close_heads(x, 1, b, g);
        }
    while (x->n_blocks > 0)
        attn_ledger_give(x->ctx->ledger, x->block[--x->n_blocks]);
    attn_csr_free(&x->csr, x->ctx->ledger);
    return x->status;
}

static void begin(struct call *x, struct attn_ctx *ctx, const struct attn_problem *p,
                  enum attn_pass pass)
{
    *x = (struct call){.ctx = ctx, .p = p, .pass = pass};
    x->head = (struct attn_head){
        .problem = p, .n_query = p->n_query, .n_key = p->n_key, .d = p->d_key, .dv = p->d_value};
}

static enum attn_status forward(const struct family *family, struct attn_ctx *ctx,
                                const struct attn_problem *p, const struct attn_forward *t)
{
    struct call x;
    begin(&x, ctx, p, ATTN_FORWARD);
    add_forward(&x, t);
    return run(&x, family);
}

static enum attn_status backward(const struct family *family, struct attn_ctx *ctx,
                                 const struct attn_problem *p, const struct attn_backward *t)
{
    struct call x;
    begin(&x, ctx, p, ATTN_BACKWARD);
    attn_dbias_clear(p, &t->dbias);
    add_backward(&x, t);
    return run(&x, family);
}

/* ---- dense --------------------------------------------------------------------------------- *
 * How the mask is stored is a matter of memory alone, never of meaning: a hidden score is replaced,
 * not shifted by a large number, so float4d with -inf means the same as bool2d. */

enum mask_store { BOOL4D, BOOL2D, INT32, FLOAT4D };

static const struct attn_option dense_options[] = {
    {"mask", BOOL4D, 0, 3, "bool4d bool2d int32 float4d",
     "how the mask is stored: [B,H,Lq,Lk] bytes, [Lq,Lk] bytes, [B,1,Lq,Lk] int32 (Open-Sora), "
     "[B,H,Lq,Lk] floats of 0 and -inf"},
    {0}};

static int has_mask(const struct attn_problem *p)
{
    return p->mask != NULL && !attn_mask_is_none(p->mask);
}

/* Masks that are stored: [batch, heads] of them, 1 where they are shared. */
static int64_t mask_batches(const struct attn_problem *p, int64_t store)
{
    return store == BOOL2D && p->batch > 0 ? 1 : p->batch;
}

static int64_t mask_heads(const struct attn_problem *p, int64_t store)
{
    return (store == BOOL2D || store == INT32) && p->heads > 0 ? 1 : p->heads;
}

static int64_t mask_cell(const struct attn_problem *p, int64_t store)
{
    return store == INT32 ? 4 : store == FLOAT4D ? real_size(p) : 1;
}

static enum attn_status dense_accepts(const struct attn_problem *p, const struct attn_options *opt,
                                      struct attn_error *err)
{
    int64_t store = opt->value[0];
    if (!has_mask(p))
        return ATTN_OK;
    if (store == BOOL2D && attn_mask_varies_by_batch(p->mask))
        return attn_fail(err, ATTN_ENOTSUP,
                         "dense:mask=bool2d holds one [Lq,Lk] mask, but '%s' differs between "
                         "batches: mask=bool4d or int32 would work",
                         attn_mask_text(p->mask));
    if ((store == BOOL2D || store == INT32) && attn_mask_varies_by_head(p->mask))
        return attn_fail(err, ATTN_ENOTSUP,
                         "dense:mask=%s shares one mask among heads, but '%s' differs between "
                         "them: mask=bool4d or float4d would work",
                         store == INT32 ? "int32" : "bool2d", attn_mask_text(p->mask));
    return ATTN_OK;
}

static enum attn_status dense_cost(const struct attn_problem *p, const struct attn_options *opt,
                                   enum attn_pass pass, int rank, struct attn_cost *cost,
                                   struct attn_error *err)
{
    (void)rank;
    struct price x = {p, cost, err, ATTN_OK};
    int64_t store = opt->value[0], square = attn_product(p->n_query, p->n_key);
    int64_t pairs = attn_product(attn_product(p->batch, p->heads), square);
    int64_t masks = attn_product(mask_batches(p, store), mask_heads(p, store));
    if (has_mask(p))
        add(&x, "mask", attn_product(masks, square), mask_cell(p, store));
    add(&x, pass == ATTN_FORWARD ? "scores" : "probs", pairs, real_size(p));
    add(&x, pass == ATTN_FORWARD ? "probs" : "dscores", pairs, real_size(p));
    if (pass == ATTN_BACKWARD)
        add(&x, "slope", p->n_key, real_size(p));
    return price_rest(&x, pass, (double)pairs);
}

/* Both values of a cell, in the bytes of its type. */
static void set_cells(struct attn_dense_mask *mask, const struct attn_problem *p, int64_t store)
{
    int32_t one = 1;
    float hidden = -INFINITY;
    double hidden_f64 = -(double)INFINITY;
    mask->n_key = p->n_key;
    mask->size = mask_cell(p, store);
    if (store == FLOAT4D && p->dtype == ATTN_F64)
        memcpy(mask->hidden, &hidden_f64, sizeof hidden_f64);
    else if (store == FLOAT4D)
        memcpy(mask->hidden, &hidden, sizeof hidden);
    else if (store == INT32)
        memcpy(mask->shown, &one, sizeof one);
    else
        mask->shown[0] = 1;
}

static void fill_mask(const struct attn_problem *p, struct attn_dense_mask mask, int64_t batches,
                      int64_t heads)
{
    char *cell = mask.data;
    size_t size = (size_t)mask.size;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < p->n_query; i++, cell += p->n_key * mask.size) {
                int64_t lo, hi;
                for (int64_t j = 0; j < p->n_key; j++)
                    memcpy(cell + j * mask.size, mask.hidden, size);
                for (int64_t from = 0; attn_problem_next(p, b, h, i, from, &lo, &hi); from = hi)
                    for (int64_t j = lo; j < hi; j++)
                        memcpy(cell + j * mask.size, mask.shown, size);
            }
}

static void dense_take(struct call *x)
{
    const struct attn_problem *p = x->p;
    int64_t store = x->ctx->options->value[0], rows = p->batch * p->heads * p->n_query;
    if (has_mask(p)) {
        int64_t batches = mask_batches(p, store), heads = mask_heads(p, store);
        set_cells(&x->work.mask, p, store);
        x->work.mask.data =
            take_bytes(x, "mask", batches * heads * p->n_query * p->n_key, x->work.mask.size);
        if (x->status == ATTN_OK)
            fill_mask(p, x->work.mask, batches, heads);
    }
    if (x->pass == ATTN_FORWARD) {
        x->work.S = take(x, "scores", rows, p->n_key);
        x->work.P = take(x, "probs", rows, p->n_key);
    } else {
        x->work.P = take(x, "probs", rows, p->n_key);
        x->work.dS = take(x, "dscores", rows, p->n_key);
        x->work.slope = take(x, "slope", 1, p->n_key);
    }
}

static struct attn_work dense_work(struct call *x, int64_t b, int64_t h)
{
    const struct attn_problem *p = x->p;
    struct attn_work own = x->work;
    int64_t store = x->ctx->options->value[0], size = real_size(p);
    int64_t row = (b * p->heads + h) * p->n_query;
    own.S = rows_from(own.S, row, size);
    own.P = rows_from(own.P, row, size);
    own.dS = rows_from(own.dS, row, size);
    if (own.mask.data != NULL) {
        int64_t heads = mask_heads(p, store);
        b = mask_batches(p, store) > 1 ? b : 0;
        h = heads > 1 ? h : 0;
        own.mask.data += (b * heads + h) * p->n_query * p->n_key * own.mask.size;
    }
    return own;
}

static const struct family dense = {{{attn_dense_forward_f32, attn_dense_forward_f64},
                                     {attn_dense_backward_f32, attn_dense_backward_f64}},
                                    dense_take,
                                    dense_work};

static enum attn_status dense_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                      const struct attn_forward *t)
{
    return forward(&dense, ctx, p, t);
}

static enum attn_status dense_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_backward *t)
{
    return backward(&dense, ctx, p, t);
}

const struct attn_impl attn_impl_dense = {
    .name = "dense",
    .summary = "everything of size L x L in memory: mask, scores, probabilities",
    .family = "dense",
    .caps = ATTN_TEXTBOOK_CAPS,
    .options = dense_options,
    .accepts = dense_accepts,
    .cost = dense_cost,
    .forward = dense_forward,
    .backward = dense_backward,
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

static enum attn_status csr_cost(const struct attn_problem *p, const struct attn_options *opt,
                                 enum attn_pass pass, int rank, struct attn_cost *cost,
                                 struct attn_error *err)
{
    (void)opt, (void)rank;
    int64_t pairs = 0;
    struct price x = {p, cost, err, attn_csr_cost(p, cost, NULL, &pairs, err)};
    add(&x, pass == ATTN_FORWARD ? "scores" : "probs", pairs, real_size(p));
    add(&x, pass == ATTN_FORWARD ? "probs" : "dscores", pairs, real_size(p));
    if (pass == ATTN_BACKWARD)
        add(&x, "slope", p->n_key, real_size(p));
    return price_rest(&x, pass, (double)pairs);
}

/* Visible pairs of one (batch, head). */
static int64_t csr_pairs(const struct attn_csr *csr, int64_t b, int64_t h)
{
    const int64_t *start =
        csr->row_start + (b * csr->batch_step + h * csr->head_step) * csr->n_query;
    return start[csr->n_query] - start[0];
}

static void csr_take(struct call *x)
{
    const struct attn_problem *p = x->p;
    int64_t pairs = 0;
    if (x->status == ATTN_OK)
        x->status = attn_csr_build(p, x->ctx->ledger, &x->csr, x->ctx->error);
    for (int64_t b = 0; b < p->batch && x->status == ATTN_OK; b++)
        for (int64_t h = 0; h < p->heads; h++)
            pairs += csr_pairs(&x->csr, b, h);
    x->work.csr = &x->csr;
    if (x->pass == ATTN_FORWARD) {
        x->work.S = take(x, "scores", pairs, 1);
        x->work.P = take(x, "probs", pairs, 1);
    } else {
        x->work.P = take(x, "probs", pairs, 1);
        x->work.dS = take(x, "dscores", pairs, 1);
        x->work.slope = take(x, "slope", 1, p->n_key);
    }
}

/* Heads come in order: what one has used, the next ones leave alone. */
static struct attn_work csr_work(struct call *x, int64_t b, int64_t h)
{
    struct attn_work own = x->work;
    int64_t pairs = csr_pairs(&x->csr, b, h), size = real_size(x->p);
    x->work.S = rows_from(own.S, pairs, size);
    x->work.P = rows_from(own.P, pairs, size);
    x->work.dS = rows_from(own.dS, pairs, size);
    return own;
}

static const struct family csr = {
    {{attn_csr_forward_f32, attn_csr_forward_f64}, {attn_csr_backward_f32, attn_csr_backward_f64}},
    csr_take,
    csr_work};

static enum attn_status csr_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                    const struct attn_forward *t)
{
    return forward(&csr, ctx, p, t);
}

static enum attn_status csr_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                     const struct attn_backward *t)
{
    return backward(&csr, ctx, p, t);
}

const struct attn_impl attn_impl_csr_textbook = {
    .name = "csr-textbook",
    .summary = "visible pairs only, as compressed sparse rows: SDDMM, softmax, SpMM",
    .family = "csr",
    .caps = ATTN_TEXTBOOK_CAPS,
    .accepts = csr_accepts,
    .cost = csr_cost,
    .forward = csr_forward,
    .backward = csr_backward,
};

/* ---- tiled-textbook ------------------------------------------------------------------------ */

static const struct attn_option tiled_options[] = {{"br", 64, 1, 4096, NULL, "queries in a tile"},
                                                   {"bc", 64, 1, 4096, NULL, "keys in a tile"},
                                                   {0}};

static enum attn_status tiled_cost(const struct attn_problem *p, const struct attn_options *opt,
                                   enum attn_pass pass, int rank, struct attn_cost *cost,
                                   struct attn_error *err)
{
    (void)rank;
    struct price x = {p, cost, err, ATTN_OK};
    int64_t br = opt->value[0], bc = opt->value[1], real = real_size(p);
    double pairs = (double)attn_problem_all_pairs(p, &cost->counted);
    add(&x, "tile.q", attn_product(br, p->d_key), real);
    add(&x, "tile.k", attn_product(bc, p->d_key), real);
    add(&x, "tile.v", attn_product(bc, p->d_value), real);
    if (pass == ATTN_FORWARD) {
        add(&x, "tile.o", attn_product(br, p->d_value), real);
        add(&x, "tile.s", br * bc, real);
        add(&x, "tile.m", br, real);
        add(&x, "tile.l", br, real);
    } else {
        add(&x, "tile.s", br * bc, real);
        add(&x, "tile.do", attn_product(br, p->d_value), real);
        add(&x, "tile.slope", br * bc, real);
        add(&x, "tile.dk", attn_product(bc, p->d_key), real);
        add(&x, "tile.dv", attn_product(bc, p->d_value), real);
        add(&x, "delta", p->n_query, real);
    }
    return price_rest(&x, pass, pairs);
}

static void tiled_take(struct call *x)
{
    struct attn_work *w = &x->work;
    int64_t br = w->br = x->ctx->options->value[0], bc = w->bc = x->ctx->options->value[1];
    w->Q = take(x, "tile.q", br, x->head.d);
    w->K = take(x, "tile.k", bc, x->head.d);
    w->V = take(x, "tile.v", bc, x->head.dv);
    w->S = take(x, "tile.s", br, bc);
    if (x->pass == ATTN_FORWARD) {
        w->O = take(x, "tile.o", br, x->head.dv);
        w->m = take(x, "tile.m", br, 1);
        w->l = take(x, "tile.l", br, 1);
    } else {
        w->dO = take(x, "tile.do", br, x->head.dv);
        w->slope = take(x, "tile.slope", br, bc);
        w->dK = take(x, "tile.dk", bc, x->head.d);
        w->dV = take(x, "tile.dv", bc, x->head.dv);
        w->D = take(x, "delta", x->head.n_query, 1);
    }
}

static struct attn_work tiled_work(struct call *x, int64_t b, int64_t h)
{
    (void)b, (void)h;
    return x->work;
}

static const struct family tiled = {{{attn_tiled_forward_f32, attn_tiled_forward_f64},
                                     {attn_tiled_backward_f32, attn_tiled_backward_f64}},
                                    tiled_take,
                                    tiled_work};

static enum attn_status tiled_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                      const struct attn_forward *t)
{
    return forward(&tiled, ctx, p, t);
}

static enum attn_status tiled_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_backward *t)
{
    return backward(&tiled, ctx, p, t);
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
    .options = tiled_options,
    .rescales = rescales,
    .cost = tiled_cost,
    .forward = tiled_forward,
    .backward = tiled_backward,
};
