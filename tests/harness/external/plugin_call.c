/* See plugin_call.h. */
#include "tests/harness/external/plugin_call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ref/problem.h"
#include "tests/harness/environment.h"
#include "tests/harness/files/fileio.h"

enum { MAX_COPIES = 10 };

/* One call being prepared.  Tensors that the plug-in wants in another layout are copied into test
 * tensors of their own, with red zones and inaccessible pages like the originals. */
struct work {
    struct attn_plugin_impl *plugin;
    const struct attn_problem *p;
    struct attn_plugin_call call;
    struct attn_error *err;
    struct attn_tensor copy[MAX_COPIES];
    struct attn_view back[MAX_COPIES]; /* where an output's copy goes; data == NULL: an input */
    int n_copies;
    void *mask_map;
    size_t mask_bytes;
    char message[256];
};

static size_t shape_count(const int64_t extent[4])
{
    return (size_t)(extent[0] * extent[1] * extent[2] * extent[3]);
}

/* ---- layouts --------------------------------------------------------------------------------- */

static int is_token_major(const int64_t extent[4], const int64_t stride[4])
{
    static const int order[4] = {3, 1, 2, 0}; /* fastest first */
    int64_t room = 1;
    for (int n = 0; n < 4; n++) {
        int axis = order[n];
        if (extent[axis] > 1 && stride[axis] != room)
            return 0;
        room *= extent[axis];
    }
    return 1;
}

static int wants_copy(const struct work *w, const int64_t extent[4], const int64_t stride[4])
{
    return w->plugin->claims.layout == ATTN_PLUGIN_BLHD &&
           !(w->plugin->claims.bits & ATTN_PLUGIN_STRIDES) && shape_count(extent) > 0 &&
           !is_token_major(extent, stride);
}

static void copy_elements(const struct attn_cview *from, const struct attn_view *to,
                          const int64_t extent[4])
{
    size_t size = attn_dtype_size(from->dtype);
    for (int64_t b = 0; b < extent[0]; b++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t i = 0; i < extent[2]; i++)
                for (int64_t c = 0; c < extent[3]; c++)
                    memcpy((char *)to->data +
                               (attn_offset(to->stride, b, h, i) + c * to->stride[3]) *
                                   (int64_t)size,
                           (const char *)from->data +
                               (attn_offset(from->stride, b, h, i) + c * from->stride[3]) *
                                   (int64_t)size,
                           size);
}

static enum attn_status make_copy(struct work *w, const char *name, enum attn_dtype dtype,
                                  const int64_t extent[4], struct attn_tensor **copy)
{
    if (w->n_copies == MAX_COPIES)
        return attn_fail(w->err, ATTN_EINTERNAL, "more than %d copies in one call", MAX_COPIES);
    *copy = &w->copy[w->n_copies];
    enum attn_status status =
        attn_tensor_alloc(*copy, name, dtype, extent, "bihc", 0, 0, 0, w->err);
    w->n_copies += status == ATTN_OK;
    return status;
}

static enum attn_status give_in(struct work *w, const char *name, const struct attn_cview *view,
                                const int64_t extent[4], struct attn_plugin_in *in)
{
    struct attn_tensor *copy = NULL;
    memcpy(in->extent, extent, sizeof in->extent);
    memcpy(in->stride, view->stride, sizeof in->stride);
    in->data = view->data;
    if (view->data == NULL || !wants_copy(w, extent, view->stride))
        return ATTN_OK;
    enum attn_status status = make_copy(w, name, view->dtype, extent, &copy);
    if (status != ATTN_OK)
        return status;
    struct attn_view to = attn_tensor_view(copy);
    copy_elements(view, &to, extent);
    attn_tensor_remember(copy);
    memcpy(in->stride, copy->stride, sizeof in->stride);
    in->data = copy->data;
    return ATTN_OK;
}

static enum attn_status give_out(struct work *w, const char *name, const struct attn_view *view,
                                 const int64_t extent[4], struct attn_plugin_out *out)
{
    struct attn_tensor *copy = NULL;
    memcpy(out->extent, extent, sizeof out->extent);
    memcpy(out->stride, view->stride, sizeof out->stride);
    out->data = view->data;
    if (view->data == NULL || !wants_copy(w, extent, view->stride))
        return ATTN_OK;
    enum attn_status status = make_copy(w, name, view->dtype, extent, &copy);
    if (status != ATTN_OK)
        return status;
    attn_tensor_poison(copy);
    w->back[w->n_copies - 1] = *view;
    memcpy(out->stride, copy->stride, sizeof out->stride);
    out->data = copy->data;
    return ATTN_OK;
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
        if (complaint != NULL && w->plugin->integrity[0] == '\0')
            snprintf(w->plugin->integrity, sizeof w->plugin->integrity, "%s", complaint);
        struct attn_cview from = attn_tensor_cview(copy);
        if (w->back[n].data != NULL)
            copy_elements(&from, &w->back[n], copy->extent);
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* The bytes end at an inaccessible page. */
static enum attn_status give_bytes(struct work *w)
{
    const struct attn_problem *p = w->p;
    struct attn_plugin_in *in = &w->call.mask;
    const int64_t extent[4] = {p->batch, p->heads, p->n_query, p->n_key};
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = shape_count(extent);
    size_t room = (bytes + page - 1) / page * page;
    w->mask_bytes = room + page;
    w->mask_map =
        mmap(NULL, w->mask_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w->mask_map == MAP_FAILED) {
        w->mask_map = NULL;
        return attn_fail(w->err, ATTN_ENOMEM, "no memory for a mask of %zu bytes", bytes);
    }
    unsigned char *byte = (unsigned char *)w->mask_map + room - bytes;
    struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    attn_mask_bytes(p->mask, &shape, w->plugin->claims.byte == ATTN_PLUGIN_ONE_IS_VISIBLE, byte);
    mprotect(w->mask_map, w->mask_bytes, PROT_READ);
    mprotect((unsigned char *)w->mask_map + room, page, PROT_NONE);
    in->data = byte;
    memcpy(in->extent, extent, sizeof extent);
    in->stride[3] = 1;
    for (int a = 2; a >= 0; a--)
        in->stride[a] = in->stride[a + 1] * extent[a + 1];
    return ATTN_OK;
}

static enum attn_status give_mask(struct work *w)
{
    const struct attn_problem *p = w->p;
    struct attn_band band;
    if (p->mask == NULL || attn_mask_is_none(p->mask))
        return ATTN_OK;
    if (!attn_claims_band(&w->plugin->claims, p, &band))
        return give_bytes(w);
    int with_self = w->plugin->claims.window == ATTN_PLUGIN_WINDOW_WITH_SELF;
    w->call.banded = 1;
    w->call.causal = band.right == with_self;
    w->call.offset = band.offset;
    w->call.window_left = band.left;
    w->call.window_right = band.right;
    return ATTN_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */

static void start(struct work *w, struct attn_plugin_impl *plugin, const struct attn_problem *p,
                  struct attn_error *err)
{
    memset(w, 0, sizeof *w);
    w->plugin = plugin;
    w->p = p;
    w->err = err;
    plugin->message[0] = plugin->environment[0] = '\0';
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
        .alibi_slope = p->bias.kind == ATTN_BIAS_ALIBI ? p->bias.slope : NULL,
        .alibi_offset = p->bias.offset,
        .message = w->message,
        .message_size = sizeof w->message,
    };
}

static enum attn_status give_inputs(struct work *w, const struct attn_cview *q,
                                    const struct attn_cview *k, const struct attn_cview *v)
{
    const struct attn_problem *p = w->p;
    const int64_t qe[4] = {p->batch, p->heads, p->n_query, p->d_key};
    const int64_t ke[4] = {p->batch, p->kv_heads, p->n_key, p->d_key};
    const int64_t ve[4] = {p->batch, p->kv_heads, p->n_key, p->d_value};
    const int64_t be[4] = {p->batch, p->heads, p->n_query, p->n_key};
    enum attn_status status = give_mask(w);
    if (status == ATTN_OK)
        status = give_in(w, "q", q, qe, &w->call.q);
    if (status == ATTN_OK)
        status = give_in(w, "k", k, ke, &w->call.k);
    if (status == ATTN_OK)
        status = give_in(w, "v", v, ve, &w->call.v);
    if (status == ATTN_OK && p->bias.kind == ATTN_BIAS_TENSOR) {
        w->call.bias.data = p->bias.tensor.data;
        memcpy(w->call.bias.extent, be, sizeof be);
        memcpy(w->call.bias.stride, p->bias.tensor.stride, sizeof be);
    }
    return status;
}

/* Tell who watches, call between two looks at the environment, and tell again. */
static enum attn_status make_call(struct work *w, enum attn_plugin_phase phase)
{
    struct attn_plugin_impl *g = w->plugin;
    struct attn_environment environment;
    char changed[sizeof g->environment] = "";
    g->call = &w->call;
    g->phase = phase;
    if (g->tell != NULL)
        g->tell(g->tell_arg, phase);
    attn_environment_save(&environment);
    int status =
        phase == ATTN_PHASE_FORWARD ? g->plugin->forward(&w->call) : g->plugin->backward(&w->call);
    if (attn_environment_restore(&environment, changed, sizeof changed))
        memcpy(g->environment, changed, sizeof changed);
    g->phase = ATTN_PHASE_JUDGING;
    g->call = NULL;
    if (g->tell != NULL)
        g->tell(g->tell_arg, ATTN_PHASE_JUDGING);
    w->message[sizeof w->message - 1] = '\0';
    attn_clean(w->message);
    take_back(w);
    if (status == ATTN_PLUGIN_OK)
        return ATTN_OK;
    snprintf(g->message, sizeof g->message, "%s returned %d%s%.150s",
             phase == ATTN_PHASE_FORWARD ? "forward()" : "backward()", status,
             w->message[0] != '\0' ? ": " : "", w->message);
    return attn_fail(w->err, ATTN_EINTERNAL, "%s", g->message);
}

static void finish(struct work *w)
{
    for (int n = 0; n < w->n_copies; n++)
        attn_tensor_free(&w->copy[n]);
    if (w->mask_map != NULL)
        munmap(w->mask_map, w->mask_bytes);
}

/* LSE between a plug-in's terms and ours.  NaN stays as it is: unwritten elements must remain
 * recognisable. */
static void convert_lse(const struct work *w, const struct attn_view *from,
                        const struct attn_view *lse,
                        double (*convert)(const struct attn_claims *, double))
{
    const struct attn_problem *p = w->p;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t at = attn_offset(lse->stride, b, h, i);
                double x = convert(&w->plugin->claims, attn_view_get(from, b, h, i, 0));
                if (isnan(x))
                    continue;
                if (lse->dtype == ATTN_F64)
                    ((double *)lse->data)[at] = x;
                else
                    ((float *)lse->data)[at] = (float)x;
            }
}

static int has_own_lse(const struct attn_plugin_impl *plugin)
{
    return plugin->claims.lse != ATTN_PLUGIN_LSE_E ||
           plugin->claims.empty_lse != ATTN_PLUGIN_EMPTY_MINUS_INF;
}

enum attn_status attn_plugin_forward(struct attn_plugin_impl *plugin, const struct attn_problem *p,
                                     const struct attn_forward *t, struct attn_error *err)
{
    struct work w;
    const int64_t oe[4] = {p->batch, p->heads, p->n_query, p->d_value};
    const int64_t le[4] = {p->batch, p->heads, p->n_query, 1};
    int absent = plugin->claims.lse == ATTN_PLUGIN_LSE_ABSENT;
    start(&w, plugin, p, err);
    enum attn_status status = give_inputs(&w, &t->q, &t->k, &t->v);
    if (status == ATTN_OK)
        status = give_out(&w, "o", &t->o, oe, &w.call.o);
    memcpy(w.call.lse.extent, le, sizeof le);
    memcpy(w.call.lse.stride, t->lse.stride, sizeof le);
    w.call.lse.data = absent ? NULL : t->lse.data;
    if (status == ATTN_OK)
        status = make_call(&w, ATTN_PHASE_FORWARD);
    if (status == ATTN_OK && absent && !plugin->leave_lse)
        status = attn_claims_fill_lse(p, &t->q, &t->k, &t->v, &t->lse, err);
    else if (status == ATTN_OK && !absent && has_own_lse(plugin))
        convert_lse(&w, &t->lse, &t->lse, attn_claims_lse_in);
    finish(&w);
    return status;
}

/* The LSE that a backward reads, in the plug-in's own terms. */
static enum attn_status give_lse(struct work *w, const struct attn_cview *lse)
{
    struct attn_tensor *copy = &w->copy[w->n_copies];
    const int64_t extent[4] = {w->p->batch, w->p->heads, w->p->n_query, 1};
    memcpy(w->call.lse_in.extent, extent, sizeof extent);
    memcpy(w->call.lse_in.stride, lse->stride, sizeof extent);
    w->call.lse_in.data = w->plugin->claims.lse == ATTN_PLUGIN_LSE_ABSENT ? NULL : lse->data;
    if (w->call.lse_in.data == NULL || !has_own_lse(w->plugin) || shape_count(extent) == 0)
        return ATTN_OK;
    enum attn_status status =
        attn_tensor_alloc(copy, "lse", lse->dtype, extent, "bhic", 0, 0, 0, w->err);
    if (status != ATTN_OK)
        return status;
    w->n_copies++;
    struct attn_view to = attn_tensor_view(copy);
    copy_elements(lse, &to, extent);
    convert_lse(w, &to, &to, attn_claims_lse_out);
    attn_tensor_remember(copy);
    w->call.lse_in.data = copy->data;
    memcpy(w->call.lse_in.stride, copy->stride, sizeof extent);
    return ATTN_OK;
}

static enum attn_status give_backward(struct work *w, const struct attn_backward *t)
{
    const struct attn_problem *p = w->p;
    const int64_t oe[4] = {p->batch, p->heads, p->n_query, p->d_value};
    const int64_t le[4] = {p->batch, p->heads, p->n_query, 1};
    const int64_t qe[4] = {p->batch, p->heads, p->n_query, p->d_key};
    const int64_t ke[4] = {p->batch, p->kv_heads, p->n_key, p->d_key};
    const int64_t ve[4] = {p->batch, p->kv_heads, p->n_key, p->d_value};
    const int64_t be[4] = {p->batch, p->heads, p->n_query, p->n_key};
    enum attn_status status = give_in(w, "o", &t->o, oe, &w->call.o_in);
    if (status == ATTN_OK)
        status = give_in(w, "do", &t->d_o, oe, &w->call.d_o);
    if (status == ATTN_OK)
        status = give_out(w, "dq", &t->dq, qe, &w->call.dq);
    if (status == ATTN_OK)
        status = give_out(w, "dk", &t->dk, ke, &w->call.dk);
    if (status == ATTN_OK)
        status = give_out(w, "dv", &t->dv, ve, &w->call.dv);
    w->call.d_lse.data = t->d_lse.data;
    memcpy(w->call.d_lse.extent, le, sizeof le);
    memcpy(w->call.d_lse.stride, t->d_lse.stride, sizeof le);
    w->call.dbias.data = t->dbias.data;
    memcpy(w->call.dbias.extent, be, sizeof be);
    memcpy(w->call.dbias.stride, t->dbias.stride, sizeof be);
    return status == ATTN_OK ? give_lse(w, &t->lse) : status;
}

enum attn_status attn_plugin_backward(struct attn_plugin_impl *plugin, const struct attn_problem *p,
                                      const struct attn_backward *t, struct attn_error *err)
{
    struct work w;
    start(&w, plugin, p, err);
    enum attn_status status = give_inputs(&w, &t->q, &t->k, &t->v);
    if (status == ATTN_OK)
        status = give_backward(&w, t);
    if (status == ATTN_OK)
        status = make_call(&w, ATTN_PHASE_BACKWARD);
    finish(&w);
    return status;
}
