/* See plugin.h: one call, the problem put into the plug-in's conventions and its answer into ours;
 * then the rest of struct attn_impl. */
#include "tests/harness/subject/plugin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ref/problem.h"
#include "tests/harness/base/environment.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/pages.h"
#include "tests/harness/subject/vector_files.h"

enum { MAX_COPIES = 12 }; /* backward: q k v sink o lse dO dLSE, dq dk dv dsink */

/* One call being prepared.  Tensors that the plug-in wants in another layout, or token by token in
 * other places, are copied into test tensors of their own, with red zones and inaccessible pages
 * like the originals. */
struct work {
    struct attn_plugin_impl *plugin;
    const struct attn_problem *p;
    const struct attn_ctx *ctx;
    struct attn_plugin_call call;
    enum attn_status status; /* the first failure: nothing more is copied then */
    struct attn_error *err;
    struct attn_vector_rows rows; /* of documents and pages */
    struct attn_tensor copy[MAX_COPIES];
    struct attn_vector_place place[MAX_COPIES]; /* of elements in it */
    struct attn_view back[MAX_COPIES]; /* where an output's copy goes; data == NULL: an input */
    int n_copies;
    struct attn_plugin_block {
        void *at; /* read-only pages of this call: bytes of a mask, slopes, places of tokens */
        size_t bytes;
    } block[6];
    int n_blocks;
    char message[256];
};

/* Which tensor it is as far as its extents go. */
enum shape { OF_Q, OF_K, OF_V, OF_O, OF_ROWS, OF_PAIRS, OF_HEADS };

/* How it is handed on: read or written in the layout that the plug-in wants (rows: [B,H,L]), an LSE
 * in its terms too, or whatever it is. */
enum manner { READ, WRITTEN, READ_LSE, AS_IS };

static void extents(const struct attn_problem *p, enum shape shape, int64_t n[4])
{
    int of_keys = shape == OF_K || shape == OF_V;
    n[0] = p->batch;
    n[1] = of_keys ? p->kv_heads : p->heads;
    n[2] = of_keys ? p->n_key : p->n_query;
    n[3] = shape == OF_ROWS                 ? 1
           : shape == OF_PAIRS              ? p->n_key
           : shape == OF_O || shape == OF_V ? p->d_value
                                            : p->d_key;
    if (shape == OF_HEADS)
        n[0] = n[2] = n[3] = 1;
}

static size_t shape_count(const int64_t extent[4])
{
    return (size_t)(extent[0] * extent[1] * extent[2] * extent[3]);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The axes b h i c from slow to fast, as attn_tensor_alloc has them. */
static const char *const order_of[] = {
    [ATTN_PLUGIN_BHLD] = "bhic", [ATTN_PLUGIN_BLHD] = "bihc",       [ATTN_PLUGIN_SBHD] = "ibhc",
    [ATTN_PLUGIN_THD] = "bihc",  [ATTN_PLUGIN_THD_PADDED] = "bihc", [ATTN_PLUGIN_PAGED] = "bihc"};

static int lies_as(const char *order, const int64_t extent[4], const int64_t stride[4])
{
    static const char axes[] = "bhic";
    int64_t step = 1;
    for (int n = 3; n >= 0; n--) {
        int axis = (int)(strchr(axes, order[n]) - axes);
        if (extent[axis] > 1 && stride[axis] != step)
            return 0;
        step *= extent[axis];
    }
    return 1;
}

static int has_own_lse(const struct attn_plugin_impl *plugin)
{
    return plugin->claims.lse != ATTN_PLUGIN_LSE_E ||
           plugin->claims.empty_lse != ATTN_PLUGIN_EMPTY_MINUS_INF;
}

/* 1: its tokens are one axis of all documents, or slots of pages. */
static int is_placed(const struct work *w, enum shape shape)
{
    int is_keys = shape == OF_K || shape == OF_V;
    return (attn_claims_are_packed(&w->plugin->claims) && shape <= OF_ROWS) ||
           (w->plugin->claims.layout == ATTN_PLUGIN_PAGED && is_keys);
}

/* Ranks are dealt shards of any tensor. */
static int wants_copy(const struct work *w, enum manner manner, const char *order,
                      const int64_t extent[4], const int64_t stride[4])
{
    if (shape_count(extent) == 0 || manner == AS_IS)
        return 0;
    return (manner == READ_LSE && has_own_lse(w->plugin)) ||
           (!(w->plugin->claims.bits & ATTN_CAP_STRIDES) && w->plugin->claims.ranks == 0 &&
            !lies_as(order, extent, stride));
}

/* From a tensor to its copy, or (is_home) from the copy of an output home. */
static void carry(const struct attn_view *own, const struct attn_vector_place *place,
                  const struct attn_tensor *copy, int is_home)
{
    const size_t size = attn_dtype_size(own->dtype);
    for (int64_t at[4] = ATTN_START, to[4]; attn_each(at, place->n);) {
        if (!attn_vector_at(place, at, to))
            continue;
        int64_t here = attn_offset(own->stride, at[0], at[1], at[2]) + at[3] * own->stride[3];
        int64_t there = attn_offset(place->stride, to[0], to[1], to[2]) + to[3] * place->stride[3];
        char *a = (char *)own->data + here * (int64_t)size;
        char *b = (char *)copy->data + there * (int64_t)size;
        memcpy(is_home ? a : b, is_home ? b : a, size);
    }
}

/* LSE of extents n between a plug-in's terms and ours.  NaN stays as it is: unwritten elements must
 * remain recognisable. */
static void convert_lse(const struct work *w, const struct attn_view *lse, const int64_t n[4],
                        int in)
{
    const struct attn_claims *claims = &w->plugin->claims;
    for (int64_t at[4] = ATTN_START; attn_each(at, n);) {
        double x = attn_view_get(lse, at[0], at[1], at[2], 0);
        x = in ? attn_claims_lse_in(claims, w->p, at, x) : attn_claims_lse_out(claims, x);
        if (!isnan(x))
            attn_view_set(lse, at[0], at[1], at[2], 0, x);
    }
}

/* A copy of the tensor, in x in its place. */
static void copy_tensor(struct work *w, const char *name, const struct attn_view *own,
                        enum shape shape, enum manner manner, struct attn_plugin_out *x)
{
    static const int slot[] = {ATTN_T_Q, ATTN_T_K, ATTN_T_V, ATTN_T_O, ATTN_T_LSE, 0, ATTN_T_SINK};
    const struct attn_claims *claims = &w->plugin->claims;
    struct attn_tensor like = {.dtype = own->dtype}, *copy = &w->copy[w->n_copies];
    const int is_keys = shape == OF_K || shape == OF_V, placed = is_placed(w, shape);
    memcpy(like.extent, x->extent, sizeof like.extent);
    memcpy(like.stride, own->stride, sizeof like.stride);
    struct attn_vector_place *place = &w->place[w->n_copies];
    *place = attn_vector_files_place(claims, placed ? &w->rows : NULL, &like, slot[shape]);
    if (placed) {
        x->extent[2] =
            w->rows.at[is_keys] != NULL ? w->rows.tokens[is_keys] : x->extent[0] * x->extent[2];
        x->extent[0] = 1;
    }
    w->status = attn_tensor_alloc(copy, name, own->dtype, x->extent,
                                  order_of[shape == OF_ROWS ? ATTN_PLUGIN_BHLD : claims->layout], 0,
                                  0, 0, w->err);
    if (w->status != ATTN_OK)
        return;
    w->n_copies++;
    attn_tensor_poison(copy);
    if (manner == WRITTEN)
        w->back[w->n_copies - 1] = *own;
    else {
        const struct attn_view theirs = attn_tensor_view(copy);
        carry(own, place, copy, 0);
        if (manner == READ_LSE)
            convert_lse(w, &theirs, copy->extent, 0);
        attn_tensor_remember(copy);
    }
    memcpy(x->stride, copy->stride, sizeof x->stride);
    x->data = copy->data;
    if (placed && w->rows.page > 0) {
        x->extent[0] = x->extent[2] / w->rows.page;
        x->extent[2] = w->rows.page;
        x->stride[0] = x->stride[2] * w->rows.page;
    }
}

/* Hand a tensor, or a copy of it, on to *to, a struct attn_plugin_in or attn_plugin_out. */
static void give(struct work *w, const char *name, struct attn_view view, enum shape shape,
                 enum manner manner, void *to)
{
    _Static_assert(sizeof(struct attn_plugin_in) == sizeof(struct attn_plugin_out), "");
    struct attn_plugin_out x = {.data = view.data};
    extents(w->p, shape, x.extent);
    memcpy(x.stride, view.stride, sizeof x.stride);
    const char *order = order_of[shape == OF_ROWS ? ATTN_PLUGIN_BHLD : w->plugin->claims.layout];
    if (w->plugin->host != NULL && w->status == ATTN_OK && view.data != NULL &&
        !attn_pages_hold(view.data))
        w->status = attn_fail(w->err, ATTN_EINTERNAL,
                              "%s does not lie where a plug-in's process can see it", name);
    if (w->status == ATTN_OK && view.data != NULL &&
        (is_placed(w, shape) || wants_copy(w, manner, order, x.extent, x.stride)))
        copy_tensor(w, name, &view, shape, manner, &x);
    memcpy(to, &x, sizeof x);
}

/* The same for what is read only; the plug-in's struct is one of data that are not written. */
static void give_in(struct work *w, const char *name, const struct attn_cview *view,
                    enum shape shape, enum manner manner, struct attn_plugin_in *in)
{
    struct attn_view same;
    memcpy(&same, view, sizeof same);
    give(w, name, same, shape, manner, in);
}

/* Copies are checked like the originals would be, and outputs carried home. */
static void take_back(struct work *w)
{
    char text[256];
    for (int n = 0; n < w->n_copies; n++) {
        struct attn_tensor *copy = &w->copy[n];
        const char *complaint = attn_tensor_intact(copy, text, sizeof text);
        if (complaint == NULL && w->back[n].data == NULL)
            complaint = attn_tensor_unchanged(copy, text, sizeof text);
        char *integrity = w->plugin->notes.integrity;
        if (complaint != NULL && integrity[0] == '\0')
            snprintf(integrity, sizeof w->plugin->notes.integrity, "%s", complaint);
        if (w->back[n].data != NULL)
            carry(&w->back[n], &w->place[n], copy, 1);
    }
}

/* ---- masks, slopes, places ------------------------------------------------------------------- */

static void seal_last(struct work *w)
{
    attn_pages_protect(w->block[w->n_blocks - 1].at, w->block[w->n_blocks - 1].bytes, PROT_READ, 0);
}

/* These bytes, on pages to be read that end at an inaccessible one; from NULL: as many, to be
 * filled and sealed.  NULL without memory. */
static void *give_block(struct work *w, const void *from, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (bytes / page + 1) * page;
    unsigned char *at = attn_pages_take(all, 0);
    if (at == NULL) {
        w->status = attn_fail(w->err, ATTN_ENOMEM, "no memory for %zu bytes of a call", bytes);
        return NULL;
    }
    w->block[w->n_blocks++] = (struct attn_plugin_block){at, all};
    if (from != NULL) {
        memcpy(at + all - bytes, from, bytes);
        seal_last(w);
    }
    return at + all - bytes;
}

/* Made where they are read: a second copy would be on the curve of a plug-in that is measured. */
static void give_bytes(struct work *w)
{
    const struct attn_claims *claims = &w->plugin->claims;
    const struct attn_mask_shape shape = {w->p->batch, w->p->heads, w->p->n_query, w->p->n_key};
    struct attn_file_tensor x = {.data = NULL};
    struct attn_plugin_in *in = &w->call.mask;
    extents(w->p, OF_PAIRS, in->extent);
    if (attn_claims_are_packed(claims)) {
        w->status = attn_vector_files_gather_mask(claims, w->p, &w->rows, &x, w->err);
        if (w->status != ATTN_OK)
            return;
        in->data = give_block(w, x.data, (size_t)x.bytes);
        free(x.data);
        memcpy(in->extent, x.extent, sizeof in->extent);
    } else if ((x.data = give_block(
                    w, NULL, (size_t)(shape.batch * shape.heads * shape.n_query * shape.n_key))) !=
               NULL) {
        attn_mask_bytes(w->p->mask, &shape, claims->byte == ATTN_PLUGIN_ONE_IS_VISIBLE, x.data);
        seal_last(w);
        in->data = x.data;
    }
    in->stride[3] = 1;
    for (int a = 2; a >= 0; a--)
        in->stride[a] = in->stride[a + 1] * in->extent[a + 1];
}

static void give_slopes(struct work *w)
{
    const struct attn_bias *bias = &w->p->bias;
    size_t bytes = (size_t)w->p->heads * sizeof *bias->slope;
    if (bias->kind == ATTN_BIAS_ALIBI && bytes > 0)
        w->call.alibi_slope = give_block(w, bias->slope, bytes);
}

/* Where documents begin, or a table of pages and lengths. */
static void give_places(struct work *w, const int64_t k_stride[4], const int64_t v_stride[4])
{
    const struct attn_claims *claims = &w->plugin->claims;
    const struct attn_vector_tokens tokens = {w->p, k_stride, v_stride, w->plugin->seed};
    struct attn_plugin_call *call = &w->call;
    const int32_t **const to[2][4] = {{&call->cu_seqlens_q, &call->cu_seqlens_k,
                                       &call->cu_seqlens_q_padded, &call->cu_seqlens_k_padded},
                                      {&call->page_table, &call->lengths}};
    w->status = attn_vector_rows_open(claims, &tokens, &w->rows, w->err);
    const struct attn_file_tensor *given = w->rows.given;
    for (int n = 0; n < w->rows.n_given && w->status == ATTN_OK; n++)
        *to[w->rows.page > 0][n] = give_block(w, given[n].data, (size_t)given[n].bytes);
    if (w->status == ATTN_OK && w->rows.page > 0)
        call->table_pages = given[0].extent[1];
    else if (w->status == ATTN_OK && w->rows.n_given > 0)
        call->n_documents = given[0].extent[0] - 1;
}

static void give_mask(struct work *w)
{
    struct attn_given_mask given;
    enum attn_claims_mask how = attn_claims_mask(&w->plugin->claims, w->p, &given);
    if (how == ATTN_CLAIMS_BYTES)
        give_bytes(w);
    if (how != ATTN_CLAIMS_BAND)
        return;
    const struct attn_band band = given.band;
    int with_self = w->plugin->claims.window == ATTN_PLUGIN_WINDOW_WITH_SELF;
    w->call.banded = 1;
    w->call.causal = band.right == with_self;
    w->call.offset = band.offset;
    w->call.window_left = band.left;
    w->call.window_right = band.right;
}

/* ---- the call -------------------------------------------------------------------------------- */

static void start(struct work *w, struct attn_plugin_impl *plugin, const struct attn_problem *p,
                  const struct attn_ctx *ctx)
{
    memset(w, 0, sizeof *w);
    w->plugin = plugin;
    w->p = p;
    w->ctx = ctx;
    w->err = ctx->error;
    plugin->message[0] = '\0';
    w->call = (struct attn_plugin_call){
        .struct_size = sizeof w->call,
        .dtype = (int32_t)p->dtype,
        .batch = p->batch,
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .n_query = p->n_query,
        .n_key = p->n_key,
        .d_key = p->d_key,
        .d_value = p->d_value,
        .scale = p->scale,
        .softcap = p->softcap,
        .window_left = -1,
        .window_right = -1,
        .alibi_offset = p->bias.offset,
        .message = w->message,
        .message_size = sizeof w->message,
        .kv_shared = p->kv_shared,
    };
}

static void give_inputs(struct work *w, const struct attn_cview *q, const struct attn_cview *k,
                        const struct attn_cview *v)
{
    give_places(w, k->stride, v->stride);
    if (w->status == ATTN_OK)
        give_mask(w);
    give_slopes(w);
    give_in(w, "q", q, OF_Q, READ, &w->call.q);
    give_in(w, "k", k, OF_K, READ, &w->call.k);
    if (w->p->kv_shared) {
        w->call.v = w->call.k; /* of a copy too */
        w->call.v.extent[3] = w->p->d_value;
    } else
        give_in(w, "v", v, OF_V, READ, &w->call.v);
    if (w->p->bias.kind == ATTN_BIAS_TENSOR)
        give_in(w, "bias", &w->p->bias.tensor, OF_PAIRS, AS_IS, &w->call.bias);
    if (w->p->sink.given)
        give_in(w, "sink", &w->p->sink.tensor, OF_HEADS, READ, &w->call.sink);
}

int attn_plugin_call(struct attn_plugin_impl *g, enum attn_pass pass, const struct attn_seal *seal,
                     struct attn_plugin_call *call)
{
    struct attn_environment environment;
    char changed[sizeof g->notes.environment] = "";
    int status;
    attn_environment_save(&environment);
    if (g->claims.ranks > 0)
        status = attn_plugin_run_ranks(g, pass, seal, call);
    else if (pass == ATTN_FORWARD)
        status = g->plugin->forward(call);
    else
        status = g->plugin->backward(call);
    if (attn_environment_restore(&environment, changed, sizeof changed))
        memcpy(g->notes.environment, changed, sizeof changed);
    return status;
}

/* Tell who watches, call, and tell again. */
static enum attn_status make_call(struct work *w, enum attn_pass pass)
{
    struct attn_plugin_impl *g = w->plugin;
    const struct attn_seal *seal = w->ctx->seal;
    if (g->tell != NULL)
        g->tell(g->tell_arg, pass == ATTN_FORWARD ? ATTN_PHASE_FORWARD : ATTN_PHASE_BACKWARD);
    int status = g->host != NULL ? g->call_apart(g->host, pass, w->ctx->ledger->poison, &w->call)
                                 : attn_plugin_call(g, pass, seal, &w->call);
    if (g->tell != NULL)
        g->tell(g->tell_arg, ATTN_PHASE_JUDGING);
    w->message[sizeof w->message - 1] = '\0';
    attn_clean(w->message);
    take_back(w);
    if (status == ATTN_PLUGIN_OK)
        return ATTN_OK;
    if (status == ATTN_PLUGIN_REFUSED) {
        snprintf(g->message, sizeof g->message, "%s", w->message);
        return attn_fail(w->err, ATTN_ENOTSUP, "%s", g->message);
    }
    snprintf(g->message, sizeof g->message, "%s returned %d%s%.150s",
             pass == ATTN_FORWARD ? "forward()" : "backward()", status,
             w->message[0] != '\0' ? ": " : "", w->message);
    return attn_fail(w->err, ATTN_EINTERNAL, "%s", g->message);
}

static void finish(struct work *w)
{
    for (int n = 0; n < w->n_copies; n++)
        attn_tensor_free(&w->copy[n]);
    for (int n = 0; n < w->n_blocks; n++)
        attn_pages_free(w->block[n].at, w->block[n].bytes);
    attn_vector_rows_close(&w->rows);
}

static struct attn_plugin_impl *plugin_of(const struct attn_options *options)
{
    return (struct attn_plugin_impl *)(uintptr_t)options->local;
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct work w;
    struct attn_plugin_impl *plugin = plugin_of(ctx->options);
    int absent = plugin->claims.lse == ATTN_PLUGIN_LSE_ABSENT;
    const int64_t rows[4] = {p->batch, p->heads, p->n_query, 1};
    start(&w, plugin, p, ctx);
    give_inputs(&w, &t->q, &t->k, &t->v);
    give(&w, "o", t->o, OF_O, WRITTEN, &w.call.o);
    give(&w, "lse", t->lse, OF_ROWS, WRITTEN, &w.call.lse);
    if (absent)
        w.call.lse.data = NULL;
    enum attn_status status = w.status == ATTN_OK ? make_call(&w, ATTN_FORWARD) : w.status;
    if (status == ATTN_OK && absent && !plugin->leave_lse)
        status = attn_claims_fill_lse(p, &t->q, &t->k, &t->v, &t->lse, ctx->error);
    else if (status == ATTN_OK && !absent && has_own_lse(plugin))
        convert_lse(&w, &t->lse, rows, 1);
    finish(&w);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct work w;
    struct attn_plugin_impl *plugin = plugin_of(ctx->options);
    struct attn_cview lse = t->lse;
    if (plugin->claims.lse == ATTN_PLUGIN_LSE_ABSENT)
        lse.data = NULL;
    start(&w, plugin, p, ctx);
    give_inputs(&w, &t->q, &t->k, &t->v);
    give_in(&w, "o", &t->o, OF_O, READ, &w.call.o_in);
    give_in(&w, "do", &t->d_o, OF_O, READ, &w.call.d_o);
    give(&w, "dq", t->dq, OF_Q, WRITTEN, &w.call.dq);
    give(&w, "dk", t->dk, OF_K, WRITTEN, &w.call.dk);
    if (!p->kv_shared)
        give(&w, "dv", t->dv, OF_V, WRITTEN, &w.call.dv);
    give_in(&w, "dlse", &t->d_lse, OF_ROWS, READ, &w.call.d_lse);
    give(&w, "dbias", t->dbias, OF_PAIRS, AS_IS, &w.call.dbias);
    give(&w, "dsink", t->dsink, OF_HEADS, WRITTEN, &w.call.dsink);
    give_in(&w, "lse", &lse, OF_ROWS, READ_LSE, &w.call.lse_in);
    enum attn_status status = w.status == ATTN_OK ? make_call(&w, ATTN_BACKWARD) : w.status;
    finish(&w);
    return status;
}

/* ---- an implementation ----------------------------------------------------------------------- */

static void precision(const struct attn_problem *p, const struct attn_options *options,
                      struct attn_precision *x)
{
    attn_claims_precision(&plugin_of(options)->claims, p, x);
}

void attn_plugin_make_impl(struct attn_plugin_impl *plugin)
{
    plugin->impl = attn_claims_impl(&plugin->claims, "a plug-in", "plug-in");
    plugin->impl.forward = forward;
    plugin->impl.backward = backward;
    plugin->impl.precision = precision;
    plugin->spec = (struct attn_spec){.impl = &plugin->impl, .options.local = &plugin->impl};
}
