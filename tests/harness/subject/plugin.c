/* See plugin.h: one call, the problem put into the plug-in's conventions and its answer into ours;
 * then the rest of struct attn_impl. */
#include "tests/harness/subject/plugin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ref/problem.h"
#include "tests/harness/base/environment.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/pages.h"

enum { MAX_COPIES = 12 }; /* backward: q k v sink o lse dO dLSE, dq dk dv dsink */

/* One call being prepared.  Tensors that the plug-in wants in another layout are copied into test
 * tensors of their own, with red zones and inaccessible pages like the originals. */
struct work {
    struct attn_plugin_impl *plugin;
    const struct attn_problem *p;
    const struct attn_ctx *ctx;
    struct attn_plugin_call call;
    enum attn_status status; /* the first failure: nothing more is copied then */
    struct attn_error *err;
    struct attn_tensor copy[MAX_COPIES];
    struct attn_view back[MAX_COPIES]; /* where an output's copy goes; data == NULL: an input */
    int n_copies;
    struct attn_plugin_block {
        void *at; /* read-only pages of this call: bytes of a mask, slopes */
        size_t bytes;
    } block[2];
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
    [ATTN_PLUGIN_BHLD] = "bhic", [ATTN_PLUGIN_BLHD] = "bihc", [ATTN_PLUGIN_SBHD] = "ibhc"};

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

static void copy_elements(const struct attn_cview *from, const struct attn_view *to,
                          const int64_t extent[4])
{
    int64_t size = (int64_t)attn_dtype_size(from->dtype);
    for (int64_t at[4] = ATTN_START; attn_each(at, extent);)
        memcpy((char *)to->data +
                   (attn_offset(to->stride, at[0], at[1], at[2]) + at[3] * to->stride[3]) * size,
               (const char *)from->data +
                   (attn_offset(from->stride, at[0], at[1], at[2]) + at[3] * from->stride[3]) *
                       size,
               (size_t)size);
}

/* LSE between a plug-in's terms and ours.  NaN stays as it is: unwritten elements must remain
 * recognisable. */
static void convert_lse(const struct work *w, const struct attn_view *lse, int in)
{
    const struct attn_claims *claims = &w->plugin->claims;
    int64_t n[4];
    extents(w->p, OF_ROWS, n);
    for (int64_t at[4] = ATTN_START; attn_each(at, n);) {
        double x = attn_view_get(lse, at[0], at[1], at[2], 0);
        x = in ? attn_claims_lse_in(claims, w->p, at, x) : attn_claims_lse_out(claims, x);
        if (!isnan(x))
            attn_view_set(lse, at[0], at[1], at[2], 0, x);
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
        wants_copy(w, manner, order, x.extent, x.stride)) {
        struct attn_tensor *copy = &w->copy[w->n_copies];
        w->status = attn_tensor_alloc(copy, name, view.dtype, x.extent, order, 0, 0, 0, w->err);
        if (w->status != ATTN_OK)
            return;
        struct attn_view own = attn_tensor_view(copy);
        struct attn_cview from = attn_view_const(&view);
        if (manner == WRITTEN) {
            attn_tensor_poison(copy);
            w->back[w->n_copies] = view;
        } else {
            copy_elements(&from, &own, x.extent);
            if (manner == READ_LSE)
                convert_lse(w, &own, 0);
            attn_tensor_remember(copy);
        }
        w->n_copies++;
        memcpy(x.stride, copy->stride, sizeof x.stride);
        x.data = copy->data;
    }
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
        struct attn_cview from = attn_tensor_cview(copy);
        if (w->back[n].data != NULL)
            copy_elements(&from, &w->back[n], copy->extent);
    }
}

/* ---- masks, slopes --------------------------------------------------------------------------- */

/* Pages whose last `bytes` bytes end at an inaccessible one. */
static void *take_block(struct work *w, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (bytes / page + 1) * page;
    struct attn_plugin_block *block = &w->block[w->n_blocks];
    block->bytes = all;
    block->at = attn_pages_take(all, 0);
    if (block->at == NULL) {
        w->status = attn_fail(w->err, ATTN_ENOMEM, "no memory for %zu bytes of a call", bytes);
        return NULL;
    }
    w->n_blocks++;
    return (unsigned char *)block->at + all - bytes;
}

static void protect_last(struct work *w)
{
    const struct attn_plugin_block *block = &w->block[w->n_blocks - 1];
    attn_pages_protect(block->at, block->bytes, PROT_READ, 0);
}

static void give_bytes(struct work *w)
{
    const struct attn_problem *p = w->p;
    struct attn_plugin_in *in = &w->call.mask;
    struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    extents(p, OF_PAIRS, in->extent);
    unsigned char *byte = take_block(w, shape_count(in->extent));
    if (byte == NULL)
        return;
    attn_mask_bytes(p->mask, &shape, w->plugin->claims.byte == ATTN_PLUGIN_ONE_IS_VISIBLE, byte);
    protect_last(w);
    in->data = byte;
    in->stride[3] = 1;
    for (int a = 2; a >= 0; a--)
        in->stride[a] = in->stride[a + 1] * in->extent[a + 1];
}

static void give_slopes(struct work *w)
{
    const struct attn_bias *bias = &w->p->bias;
    size_t bytes = (size_t)w->p->heads * sizeof *bias->slope;
    double *slope = bias->kind == ATTN_BIAS_ALIBI && bytes > 0 ? take_block(w, bytes) : NULL;
    if (slope == NULL)
        return;
    memcpy(slope, bias->slope, bytes);
    protect_last(w);
    w->call.alibi_slope = slope;
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
        convert_lse(&w, &t->lse, 1);
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
