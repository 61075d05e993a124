/* Calling an implementation: every check in one place, so that implementations hold arithmetic
 * only and no caller can reach one with a problem it does not claim. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/impl.h"
#include "ref/problem.h"
#include "ref/sink.h"

static void preset_values(const struct attn_impl *impl, int64_t value[ATTN_MAX_OPTIONS])
{
    memset(value, 0, ATTN_MAX_OPTIONS * sizeof *value);
    for (int o = 0; impl->options != NULL && impl->options[o].name != NULL; o++)
        value[o] = impl->options[o].preset;
}

void attn_options_preset(const struct attn_impl *impl, struct attn_options *options)
{
    memset(options, 0, sizeof *options);
    options->impl = impl;
    options->threads = 1;
    preset_values(impl, options->value);
}

void attn_options_set_local(struct attn_options *options, const struct attn_impl *local)
{
    options->local = local;
    preset_values(local, options->local_value);
}

int attn_ranks(const struct attn_impl *impl, const struct attn_options *options)
{
    return impl->ranks != NULL ? impl->ranks(options) : 1;
}

/* ---- refusals ----------------------------------------------------------------------------- */

static enum attn_status check_needs(const struct attn_impl *impl, unsigned needs,
                                    struct attn_error *err)
{
    unsigned missing = needs & ~impl->caps;
    if (missing == 0)
        return ATTN_OK;
    if (missing & (ATTN_CAP_BF16 | ATTN_CAP_F16))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s does not store %s: f32 and f64 would work, convert the tensors first",
                         impl->name, missing & ATTN_CAP_BF16 ? "bf16" : "f16");
    char names[160] = "";
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (missing & 1u << bit)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                     names[0] != '\0' ? ", " : "", attn_cap_name(bit));
    return attn_fail(err, ATTN_ENOTSUP, "%s does not claim: %s (attnlab list shows which do)",
                     impl->name, names);
}

static unsigned storage_needs(const struct attn_problem *p)
{
    return attn_problem_needs(p) & ATTN_CAPS_STORAGE;
}

/* The implementation that cannot run in this storage type: this one, or the one that does a rank's
 * work.  NULL: both run. */
static const struct attn_impl *lacks_storage(const struct attn_impl *impl,
                                             const struct attn_options *options,
                                             const struct attn_problem *p)
{
    const struct attn_impl *who[] = {impl, options->local};
    for (int w = 0; w < 2; w++)
        if (who[w] != NULL && storage_needs(p) & ~who[w]->caps)
            return who[w];
    return NULL;
}

/* But for storage: what cannot be stored is priced all the same. */
static enum attn_status check_request(const struct attn_impl *impl,
                                      const struct attn_options *options,
                                      const struct attn_problem *p, unsigned needs,
                                      struct attn_error *err)
{
    enum attn_status status = attn_problem_check(p, err);
    if (status == ATTN_OK && needs & impl->caps & ATTN_CAP_BACKWARD && impl->backward == NULL)
        status = attn_fail(err, ATTN_EINTERNAL,
                           "%s claims a backward pass but has no function for it", impl->name);
    if (status == ATTN_OK)
        status = check_needs(impl, needs & ~(unsigned)ATTN_CAPS_STORAGE, err);
    if (status == ATTN_OK && impl->accepts != NULL)
        status = impl->accepts(p, options, err);
    return status;
}

/* ---- tensors ------------------------------------------------------------------------------ */

enum role {
    INPUT,
    OUTPUT = 1,
    RESULT = 2 /* o or a gradient: may be f32 where inputs are bf16 or f16 */
};

struct wanted {
    const char *name;
    int64_t extent[4];
    enum attn_dtype dtype;
    unsigned role; /* enum role, ored */
    const struct attn_cview *view;
};

static enum attn_status check_tensor(const struct wanted *w, unsigned caps, struct attn_error *err)
{
    const struct attn_cview *view = w->view;
    int64_t n = 1, dense[4] = {0, 0, 0, 1};
    for (int a = 0; a < 4; a++)
        n *= w->extent[a];
    if (n == 0)
        return ATTN_OK;
    if (view->data == NULL)
        return attn_fail(err, ATTN_EINVAL, "tensor %s is absent: [%lld,%lld,%lld,%lld] is needed",
                         w->name, (long long)w->extent[0], (long long)w->extent[1],
                         (long long)w->extent[2], (long long)w->extent[3]);
    int is_wide = w->role & RESULT && view->dtype == ATTN_F32 && w->dtype != ATTN_F64;
    if (is_wide && view->dtype != w->dtype && !(caps & ATTN_CAP_WIDE))
        return attn_fail(err, ATTN_ENOTSUP,
                         "tensor %s is stored as f32 in a problem of %s: wide results are not "
                         "claimed, %s would work (attnlab list shows which claim wide)",
                         w->name, attn_dtype_name(w->dtype), attn_dtype_name(w->dtype));
    if (view->dtype != w->dtype && !is_wide)
        return attn_fail(err, ATTN_EINVAL, "tensor %s is stored as %s: this problem needs %s",
                         w->name, attn_dtype_name(view->dtype), attn_dtype_name(w->dtype));
    for (int a = 3; a >= 0; a--) {
        if (a < 3)
            dense[a] = dense[a + 1] * w->extent[a + 1];
        if (w->extent[a] <= 1)
            continue;
        if (w->role & OUTPUT && view->stride[a] == 0)
            return attn_fail(err, ATTN_EINVAL,
                             "output %s has stride 0 on axis %d of extent %lld: its elements "
                             "would overwrite each other",
                             w->name, a, (long long)w->extent[a]);
        if (!(caps & ATTN_CAP_STRIDES) && view->stride[a] != dense[a])
            return attn_fail(err, ATTN_ENOTSUP,
                             "tensor %s: stride %lld on axis %d, only contiguous [B,H,L,d] "
                             "(stride %lld) is claimed",
                             w->name, (long long)view->stride[a], a, (long long)dense[a]);
    }
    return ATTN_OK;
}

static enum attn_status check_dbias(const struct attn_problem *p, const struct attn_view *dbias,
                                    struct attn_error *err)
{
    const int64_t extent[4] = {p->batch, p->heads, p->n_query, p->n_key};
    if (p->bias.kind != ATTN_BIAS_TENSOR)
        return attn_fail(err, ATTN_EINVAL,
                         "dbias was asked for, but the problem has no bias tensor");
    int empty = 0; /* strides of nothing mean nothing */
    for (int a = 0; a < 4; a++)
        empty |= extent[a] == 0;
    for (int a = 0; a < 4 && !empty; a++)
        if (extent[a] > 1 && (dbias->stride[a] == 0) != (p->bias.tensor.stride[a] == 0))
            return attn_fail(err, ATTN_EINVAL,
                             "dbias must have stride 0 on axis %d exactly when the bias has", a);
    if (dbias->dtype != p->bias.tensor.dtype)
        return attn_fail(err, ATTN_EINVAL, "dbias is stored as %s, the bias as %s: must be equal",
                         attn_dtype_name(dbias->dtype), attn_dtype_name(p->bias.tensor.dtype));
    return ATTN_OK;
}

/* +inf in a bias would make a row NaN for no reason that its reader could see. */
static enum attn_status check_bias_values(const struct attn_problem *p, struct attn_error *err)
{
    if (p->bias.kind != ATTN_BIAS_TENSOR)
        return ATTN_OK;
    const struct attn_cview *x = &p->bias.tensor;
    if (x->data == NULL && p->batch > 0 && p->heads > 0 && p->n_query > 0 && p->n_key > 0)
        return attn_fail(err, ATTN_EINVAL, "a bias tensor was announced but is absent");
    for (int64_t b = 0; b < (x->stride[0] != 0 ? p->batch : p->batch > 0); b++)
        for (int64_t h = 0; h < (x->stride[1] != 0 ? p->heads : p->heads > 0); h++)
            for (int64_t i = 0; i < (x->stride[2] != 0 ? p->n_query : p->n_query > 0); i++)
                for (int64_t j = 0; j < (x->stride[3] != 0 ? p->n_key : p->n_key > 0); j++)
                    if (attn_problem_bias(p, b, h, i, j) == (double)INFINITY)
                        return attn_fail(err, ATTN_EINVAL,
                                         "bias[%lld,%lld,%lld,%lld] is +inf: only finite values "
                                         "and -inf (hides the pair) have a meaning",
                                         (long long)b, (long long)h, (long long)i, (long long)j);
    return ATTN_OK;
}

/* The sink's values, and its gradient where that is asked for. */
static enum attn_status check_sink(const struct attn_problem *p, unsigned caps,
                                   const struct attn_view *dsink, struct attn_error *err)
{
    const struct attn_cview *z = &p->sink.tensor;
    if (dsink != NULL && !p->sink.given)
        return attn_fail(err, ATTN_EINVAL, "dsink was asked for, but the problem has no sink");
    if (!p->sink.given || p->heads == 0)
        return ATTN_OK;
    if (z->data == NULL)
        return attn_fail(err, ATTN_EINVAL, "a sink was announced but is absent");
    if (!(caps & ATTN_CAP_STRIDES) && p->heads > 1 &&
        (z->stride[1] != 1 || (dsink != NULL && dsink->stride[1] != 1)))
        return attn_fail(err, ATTN_ENOTSUP,
                         "stride %lld between the sinks of two heads, only contiguous is claimed",
                         (long long)z->stride[1]);
    if (dsink != NULL && (dsink->dtype != z->dtype || (p->heads > 1 && dsink->stride[1] == 0)))
        return attn_fail(err, ATTN_EINVAL,
                         "dsink is stored as %s with stride %lld, the sink as %s: types must be "
                         "equal, and a stride of 0 would overwrite other heads",
                         attn_dtype_name(dsink->dtype), (long long)dsink->stride[1],
                         attn_dtype_name(z->dtype));
    for (int64_t h = 0; h < p->heads; h++)
        if (attn_sink_of(p, h) == (double)INFINITY)
            return attn_fail(err, ATTN_EINVAL,
                             "sink[%lld] is +inf: a finite value, or -inf for no sink, would work",
                             (long long)h);
    return ATTN_OK;
}

/* v is k, and dv is dk. */
static enum attn_status check_shared(const struct attn_problem *p, const char *name,
                                     const struct attn_cview *whole, const struct attn_cview *view,
                                     struct attn_error *err)
{
    int is_view = view->data == whole->data && view->dtype == whole->dtype &&
                  memcmp(view->stride, whole->stride, sizeof view->stride) == 0;
    if (p->kv_shared && !is_view)
        return attn_fail(err, ATTN_EINVAL,
                         "K and V are shared, but %s lies apart: the data and strides of the other "
                         "would work",
                         name);
    return ATTN_OK;
}

/* Everything that is asked before a call; dbias, dsink: NULL, or a gradient that is asked
 * for. */
static enum attn_status check_call(const struct attn_impl *impl, const struct attn_options *options,
                                   const struct attn_problem *p, unsigned needs,
                                   const struct wanted *list, size_t n,
                                   const struct attn_view *dbias, const struct attn_view *dsink,
                                   struct attn_error *err)
{
    enum attn_status status = check_request(impl, options, p, needs, err);
    const struct attn_impl *lacks = status == ATTN_OK ? lacks_storage(impl, options, p) : NULL;
    if (lacks != NULL)
        status = check_needs(lacks, storage_needs(p), err);
    for (size_t i = 0; i < n && status == ATTN_OK; i++)
        status = check_tensor(&list[i], impl->caps, err);
    if (status == ATTN_OK && dbias != NULL)
        status = check_dbias(p, dbias, err);
    if (status == ATTN_OK)
        status = check_sink(p, impl->caps, dsink, err);
    return status == ATTN_OK ? check_bias_values(p, err) : status;
}

#define Q_SHAPE(p, w)                             \
    {                                             \
        (p)->batch, (p)->heads, (p)->n_query, (w) \
    }
#define K_SHAPE(p, w)                              \
    {                                              \
        (p)->batch, (p)->kv_heads, (p)->n_key, (w) \
    }

enum attn_status attn_check_forward(const struct attn_impl *impl,
                                    const struct attn_options *options,
                                    const struct attn_problem *p, const struct attn_forward *t,
                                    struct attn_error *err)
{
    const struct attn_cview o = attn_view_const(&t->o), lse = attn_view_const(&t->lse);
    const struct wanted list[] = {{"q", Q_SHAPE(p, p->d_key), p->dtype, INPUT, &t->q},
                                  {"k", K_SHAPE(p, p->d_key), p->dtype, INPUT, &t->k},
                                  {"v", K_SHAPE(p, p->d_value), p->dtype, INPUT, &t->v},
                                  {"o", Q_SHAPE(p, p->d_value), p->dtype, OUTPUT | RESULT, &o},
                                  {"lse", Q_SHAPE(p, 1), attn_lse_dtype(p), OUTPUT, &lse}};
    enum attn_status status = check_call(impl, options, p, attn_problem_needs(p), list,
                                         sizeof list / sizeof *list, NULL, NULL, err);
    return status == ATTN_OK ? check_shared(p, "v", &t->k, &t->v, err) : status;
}

enum attn_status attn_check_backward(const struct attn_impl *impl,
                                     const struct attn_options *options,
                                     const struct attn_problem *p, const struct attn_backward *t,
                                     struct attn_error *err)
{
    const struct attn_cview dq = attn_view_const(&t->dq), dk = attn_view_const(&t->dk),
                            dv = attn_view_const(&t->dv);
    const struct wanted list[] = {
        {"q", Q_SHAPE(p, p->d_key), p->dtype, INPUT, &t->q},
        {"k", K_SHAPE(p, p->d_key), p->dtype, INPUT, &t->k},
        {"v", K_SHAPE(p, p->d_value), p->dtype, INPUT, &t->v},
        {"o", Q_SHAPE(p, p->d_value), p->dtype, INPUT | RESULT, &t->o},
        {"lse", Q_SHAPE(p, 1), attn_lse_dtype(p), INPUT, &t->lse},
        {"do", Q_SHAPE(p, p->d_value), p->dtype, INPUT, &t->d_o},
        {"dlse", Q_SHAPE(p, t->d_lse.data != NULL), attn_lse_dtype(p), INPUT, &t->d_lse},
        {"dq", Q_SHAPE(p, p->d_key), p->dtype, OUTPUT | RESULT, &dq},
        {"dk", K_SHAPE(p, p->d_key), p->dtype, OUTPUT | RESULT, &dk},
        {"dv", K_SHAPE(p, p->d_value), p->dtype, OUTPUT | RESULT, &dv}};
    const struct attn_view *dbias = t->dbias.data != NULL ? &t->dbias : NULL;
    unsigned needs = attn_problem_needs(p) | ATTN_CAP_BACKWARD;
    needs |= dbias != NULL ? ATTN_CAP_DBIAS : 0;
    needs |= t->d_lse.data != NULL ? ATTN_CAP_DLSE : 0;
    const struct attn_view *dsink = t->dsink.data != NULL ? &t->dsink : NULL;
    enum attn_status status =
        check_call(impl, options, p, needs, list, sizeof list / sizeof *list, dbias, dsink, err);
    if (status == ATTN_OK)
        status = check_shared(p, "v", &t->k, &t->v, err);
    return status == ATTN_OK ? check_shared(p, "dv", &dk, &dv, err) : status;
}

/* ---- saved for backward ------------------------------------------------------------------- */

void attn_saved_drop(struct attn_saved *saved, struct attn_ledger *ledger)
{
    attn_ledger_give(ledger, saved->data);
    saved->data = NULL;
    saved->bytes = 0;
}

static int same_options(const struct attn_options *a, const struct attn_options *b)
{
    return memcmp(a->value, b->value, sizeof a->value) == 0 && a->local == b->local &&
           memcmp(a->local_value, b->local_value, sizeof a->local_value) == 0 && a->isa == b->isa;
}

static int same_problem(const struct attn_problem *a, const struct attn_problem *b)
{
    return a->batch == b->batch && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->n_query == b->n_query && a->n_key == b->n_key && a->d_key == b->d_key &&
           a->d_value == b->d_value && !(a->scale < b->scale || a->scale > b->scale) &&
           !(a->softcap < b->softcap || a->softcap > b->softcap) && a->dtype == b->dtype &&
           a->mask == b->mask && a->bias.kind == b->bias.kind &&
           a->bias.tensor.data == b->bias.tensor.data && a->bias.slope == b->bias.slope &&
           a->bias.offset == b->bias.offset && a->sink.given == b->sink.given &&
           a->sink.tensor.data == b->sink.tensor.data && a->kv_shared == b->kv_shared &&
           memcmp(&a->origin, &b->origin, sizeof a->origin) == 0;
}

/* Is what was saved what this backward pass may read? */
static enum attn_status check_saved(const struct attn_impl *impl, const struct attn_ctx *ctx,
                                    const struct attn_problem *p)
{
    const struct attn_saved *saved = ctx->saved;
    if (saved == NULL || saved->data == NULL)
        return ATTN_OK;
    if (saved->impl == impl && same_options(&saved->options, ctx->options) &&
        same_problem(&saved->problem, p))
        return ATTN_OK;
    return attn_fail(ctx->error, ATTN_EINVAL,
                     "the backward pass of %s was given what a forward pass of %s saved%s: give it "
                     "its own, or nothing, and it computes again",
                     impl->name, saved->impl->name,
                     saved->impl != impl                           ? ""
                     : same_options(&saved->options, ctx->options) ? " for another problem"
                                                                   : " under other options");
}

static enum attn_status check_runs(const struct attn_impl *impl, const struct attn_ctx *ctx)
{
    if (ctx->options->priced_only)
        return attn_fail(ctx->error, ATTN_ENOTSUP,
                         "%s is of an instruction set that this machine does not have: it can only "
                         "be priced",
                         impl->name);
    if (!ctx->counts_only || impl->ranks != NULL)
        return ATTN_OK;
    return attn_fail(ctx->error, ATTN_EINVAL,
                     "%s is one process, which sends no messages to count: an implementation with "
                     "ranks, such as ring, would work",
                     impl->name);
}

/* Steps of run.c around a call; the implementation's problem has none of them. */
struct around {
    int sink, dv; /* the sink comes in; dV is added to dK, of which it is a view */
};

static struct around around_of(const struct attn_impl *impl, struct attn_problem *own)
{
    struct around x = {own->sink.given && impl->sinks == ATTN_SINKS_AROUND,
                       own->kv_shared && !impl->adds_dv};
    if (x.sink)
        own->sink = (struct attn_sink){0};
    if (x.dv)
        own->kv_shared = 0;
    return x;
}

/* The buffers of a backward pass around the implementation's own: LSE as it has to be seen, and dV
 * until it is added. */
enum { SINK_LSE, SHARED_DV, AROUND_BUFFERS };
static void around_buffers(const struct around *x, const struct attn_problem *p,
                           struct attn_buffer buffer[AROUND_BUFFERS])
{
    memset(buffer, 0, AROUND_BUFFERS * sizeof *buffer);
    if (x->sink)
        buffer[SINK_LSE] = attn_sink_lse(p, p->batch * p->heads * p->n_query);
    if (x->dv)
        buffer[SHARED_DV] =
            attn_buffer_of("shared.dv", p->batch * p->kv_heads, p->n_key * p->d_value,
                           (int64_t)attn_dtype_size(attn_result_dtype(p)));
}

enum attn_status attn_run_forward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                  const struct attn_problem *p, const struct attn_forward *t)
{
    enum attn_status status = attn_check_forward(impl, ctx->options, p, t, ctx->error);
    if (status == ATTN_OK)
        status = check_runs(impl, ctx);
    if (status != ATTN_OK)
        return status;
    if (ctx->saved != NULL && ctx->saved->data != NULL)
        return attn_fail(ctx->error, ATTN_EINVAL,
                         "%lld bytes are saved already: attn_saved_drop them before another "
                         "forward pass",
                         (long long)ctx->saved->bytes);
    if (ctx->saved != NULL)
        *ctx->saved = (struct attn_saved){.impl = impl, .options = *ctx->options, .problem = *p};
    struct attn_problem own = *p;
    own.scattered |= attn_scattered_forward(p, t);
    const struct around around = around_of(impl, &own);
    status = impl->forward(ctx, &own, t);
    if (around.sink && status == ATTN_OK)
        attn_sink_forward(ctx, impl, p, t);
    return status;
}

/* dsink, then the backward pass with the LSE that it has to see; then dV. */
static enum attn_status run_backward_around(const struct attn_impl *impl, struct attn_ctx *ctx,
                                            const struct around *x, const struct attn_problem *p,
                                            const struct attn_problem *own,
                                            const struct attn_backward *t)
{
    struct attn_backward seen = *t;
    struct attn_buffer buffer[AROUND_BUFFERS];
    around_buffers(x, p, buffer);
    enum attn_status status = attn_buffers_take(buffer, AROUND_BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK && x->sink) {
        void *lse = buffer[SINK_LSE].data;
        attn_sink_backward(p, t, lse);
        seen.lse = attn_packed_cview(lse, attn_lse_dtype(p), p->heads, p->n_query, 1);
        seen.dsink = (struct attn_view){0};
    }
    if (x->dv)
        seen.dv = attn_packed_view(buffer[SHARED_DV].data, attn_result_dtype(p), p->kv_heads,
                                   p->n_key, p->d_value);
    if (status == ATTN_OK)
        status = impl->backward(ctx, own, &seen);
    if (status == ATTN_OK && x->dv)
        attn_shared_add(p, &t->dk, &seen.dv);
    attn_buffers_give(buffer, AROUND_BUFFERS, ctx->ledger);
    return status;
}

enum attn_status attn_run_backward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                   const struct attn_problem *p, const struct attn_backward *t)
{
    enum attn_status status = attn_check_backward(impl, ctx->options, p, t, ctx->error);
    if (status == ATTN_OK)
        status = check_runs(impl, ctx);
    if (status == ATTN_OK)
        status = check_saved(impl, ctx, p);
    struct attn_problem own = *p;
    own.scattered |= attn_scattered_backward(p, t);
    if (status != ATTN_OK)
        return status;
    const struct around around = around_of(impl, &own);
    return run_backward_around(impl, ctx, &around, p, &own, t);
}

enum attn_status attn_price(const struct attn_impl *impl, const struct attn_options *options,
                            const struct attn_problem *p, enum attn_pass pass, int rank,
                            struct attn_cost *cost, struct attn_error *err)
{
    unsigned needs = attn_problem_needs(p) | (pass == ATTN_BACKWARD ? ATTN_CAP_BACKWARD : 0u);
    memset(cost, 0, sizeof *cost);
    enum attn_status status = check_request(impl, options, p, needs, err);
    if (status != ATTN_OK)
        return status;
    if (rank < 0 || rank >= attn_ranks(impl, options))
        return attn_fail(err, ATTN_EINVAL, "rank %d: %s has ranks 0 to %d", rank, impl->name,
                         attn_ranks(impl, options) - 1);
    if (impl->ranks == NULL) /* ranks have shards, and say of what size */
        cost->shard_bytes = attn_pass_bytes(p, pass);
    struct attn_problem own = *p;
    const struct around around = around_of(impl, &own);
    status = impl->cost(&own, options, pass, rank, cost, err);
    struct attn_buffer buffer[AROUND_BUFFERS];
    around_buffers(&around, p, buffer);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = attn_buffers_price(buffer, AROUND_BUFFERS, cost, err);
    const struct attn_impl *lacks = lacks_storage(impl, options, p);
    cost->lacks = lacks != NULL ? lacks->name : NULL;
    return status;
}
