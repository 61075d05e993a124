/* A plug-in that claims everything, by way of this library's dense textbook: what it is given is
 * put together again from the numbers of the call, so every field of the interface is exercised.
 *
 * SAYS_x is what it declares, DOES_x what it does, in the numbers of ref/attn_plugin.h, as its
 * switches say (switches.h); where they differ the checker must notice and name the difference.
 *
 * It may be wrong in some shapes, those of D features, HEADS heads and GROUP heads to a kv head, or
 * those beyond D_TO features or L_TO tokens: results are TIMES per cent of what they should be, all
 * or one of them (TIMES_DQ). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/registry.h"
#include "ref/attn_plugin.h"
#include "ref/ledger.h"
#include "ref/mask/mask.h"
#include "ref/problem.h"
#include "tests/external/switches.h"
#include "tests/harness/base/tensor.h"

static struct convention {
    int lse, empty, causal, window, layout, byte;
} says, does;

static int strides, scales; /* any strides are followed; the scale is */
static int refused;         /* a storage type, or -1 for every gradient */

/* ---- shapes in which it is wrong ------------------------------------------------------------- */

static int is_wrong_for(const struct attn_plugin_call *t)
{
    int64_t group = t->kv_heads > 0 ? t->heads / t->kv_heads : 1;
    int64_t most = t->n_query > t->n_key ? t->n_query : t->n_key;
    return switch_number("D", (int)t->d_key) == t->d_key &&
           switch_number("HEADS", (int)t->heads) == t->heads &&
           switch_number("GROUP", (int)group) == group &&
           (t->d_key > switch_number("D_TO", -1) || most > switch_number("L_TO", -1));
}

static void multiply(const struct attn_plugin_call *t, const struct attn_plugin_out *x,
                     const char *word)
{
    double times = switch_number(word, switch_number("TIMES", 100)) / 100.0;
    if (x->data == NULL || times == 1 || !is_wrong_for(t))
        return;
    struct attn_view view = {x->data, (enum attn_dtype)t->dtype, {0}};
    memcpy(view.stride, x->stride, sizeof view.stride);
    for (int64_t at[4] = ATTN_START; attn_each(at, x->extent);)
        attn_view_set(&view, at[0], at[1], at[2], at[3],
                      times * attn_view_get(&view, at[0], at[1], at[2], at[3]));
}

/* A tensor as the library wants it.  Without STRIDES only the declared layout counts. */
static void strides_of(const int64_t extent[4], const int64_t given[4], int is_row, int64_t to[4])
{
    memcpy(to, given, 4 * sizeof *to);
    if (strides || is_row)
        return;
    static const int order[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 0, 1, 3}}; /* slowest first */
    int64_t whole = 1;
    for (int o = 3; o >= 0; o--) {
        to[order[does.layout][o]] = whole;
        whole *= extent[order[does.layout][o]];
    }
}

static struct attn_cview in(const struct attn_plugin_in *t, int dtype, int is_row)
{
    struct attn_cview view = {t->data, (enum attn_dtype)dtype, {0, 0, 0, 0}};
    strides_of(t->extent, t->stride, is_row, view.stride);
    return view;
}

static struct attn_view out(const struct attn_plugin_out *t, int dtype, int is_row)
{
    struct attn_view view = {t->data, (enum attn_dtype)dtype, {0, 0, 0, 0}};
    strides_of(t->extent, t->stride, is_row, view.stride);
    return view;
}

/* A view of k has its strides. */
static struct attn_cview value(const struct attn_plugin_call *t)
{
    return in(t->kv_shared ? &t->k : &t->v, t->dtype, 0);
}

/* ---- masks ----------------------------------------------------------------------------------- */

struct bytes {
    const struct attn_plugin_call *call;
    unsigned char *byte;
};

static enum attn_status find(void *arg, const char *name, const char *part,
                             struct attn_mask_tensor *tensor, struct attn_error *err)
{
    struct bytes *x = arg;
    const struct attn_plugin_call *t = x->call;
    size_t n = (size_t)(t->batch * t->heads * t->n_query * t->n_key);
    (void)name, (void)part, (void)err;
    x->byte = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        x->byte[i] = ((const unsigned char *)t->mask.data)[i] != does.byte;
    *tensor = (struct attn_mask_tensor){x->byte, 1, 4, {t->batch, t->heads, t->n_query, t->n_key}};
    return ATTN_OK;
}

static int read_mask(const struct attn_plugin_call *t, struct bytes *bytes, struct attn_mask **mask)
{
    char text[128];
    struct attn_mask_shape shape = {t->batch, t->heads, t->n_query, t->n_key};
    struct attn_mask_source source = {find, bytes};
    int64_t offset = does.causal == ATTN_PLUGIN_CAUSAL_TL   ? 0
                     : does.causal == ATTN_PLUGIN_CAUSAL_BR ? t->n_key - t->n_query
                                                            : t->offset;
    int64_t left = t->window_left, right = t->window_right;
    left -= does.window && left >= 0;
    right -= does.window && right >= 0;
    if (is_on("ALWAYS")) { /* it knows only causal masks */
        offset = t->banded ? t->offset : t->n_key - t->n_query;
        left = -1, right = 0;
    }
    snprintf(text, sizeof text, "window(%lld,%lld,%+lld)", (long long)left, (long long)right,
             (long long)offset);
    *mask = NULL;
    if (!t->banded && t->mask.data == NULL && !is_on("ALWAYS"))
        return 0;
    return attn_mask_parse(t->banded || is_on("ALWAYS") ? text : "dense(m)", &shape, &source, mask,
                           NULL);
}

/* ---- LSE ------------------------------------------------------------------------------------- */

static double to_theirs(double x)
{
    if (isinf(x))
        return does.empty == ATTN_PLUGIN_EMPTY_0 ? 0 : does.empty ? -x : x;
    return does.lse == 1 ? x * 1.44269504088896340736 : x;
}

static double to_ours(double x)
{
    if (isinf(x))
        return does.empty ? -x : x;
    return does.lse == 1 ? x * 0.69314718055994530942 : x;
}

/* LSE is computed into memory of our own and given away in the convention that we follow. */
static void convert(const void *from, const int64_t from_stride[4], void *to,
                    const int64_t to_stride[4], const struct attn_plugin_call *t,
                    double (*f)(double))
{
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < t->n_query; i++) {
                int64_t x = b * from_stride[0] + h * from_stride[1] + i * from_stride[2];
                int64_t y = b * to_stride[0] + h * to_stride[1] + i * to_stride[2];
                if (t->dtype == ATTN_PLUGIN_IS_F64)
                    ((double *)to)[y] = f(((const double *)from)[x]);
                else
                    ((float *)to)[y] = (float)f((double)((const float *)from)[x]);
            }
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct job {
    struct attn_problem problem;
    struct attn_ledger ledger;
    struct attn_options options;
    struct attn_error err;
    struct attn_ctx ctx;
    struct attn_mask *mask;
    struct bytes bytes;
    void *lse;
    int64_t lse_stride[4];
};

static double scale_of(const struct attn_plugin_call *t)
{
    return is_on("OWN_SCALE") ? 1 / sqrt((double)t->d_key) : scales ? t->scale : 1;
}

static int open_job(const struct attn_plugin_call *t, struct job *j)
{
    memset(j, 0, sizeof *j);
    int wide = t->dtype == ATTN_PLUGIN_IS_F64 ? ATTN_F64 : ATTN_F32;
    j->bytes.call = t;
    if (read_mask(t, &j->bytes, &j->mask) != 0)
        return 1;
    j->problem = (struct attn_problem){
        t->batch, t->heads,   t->kv_heads, t->n_query, t->n_key,
        t->d_key, t->d_value, scale_of(t), t->softcap, (enum attn_dtype)t->dtype,
        j->mask,  {0},        {0}};
    if (t->bias.data != NULL) {
        j->problem.bias.kind = ATTN_BIAS_TENSOR;
        j->problem.bias.tensor = in(&t->bias, wide, 1);
    } else if (t->alibi_slope != NULL) {
        j->problem.bias.kind = ATTN_BIAS_ALIBI;
        j->problem.bias.slope = t->alibi_slope;
        j->problem.bias.offset = t->alibi_offset;
    }
    if (t->sink.data != NULL)
        j->problem.sink = (struct attn_sink){1, in(&t->sink, wide, 1)};
    j->problem.kv_shared = t->kv_shared;
    attn_ledger_init(&j->ledger, NULL);
    j->ctx = (struct attn_ctx){.ledger = &j->ledger, .options = &j->options, .error = &j->err};
    j->lse = malloc((size_t)(t->batch * t->heads * t->n_query) * 8 + 8);
    j->lse_stride[0] = t->heads * t->n_query;
    j->lse_stride[1] = t->n_query;
    j->lse_stride[2] = j->lse_stride[3] = 1;
    return 0;
}

static int close_job(const struct attn_plugin_call *t, struct job *j, enum attn_status status)
{
    if (status != ATTN_OK)
        snprintf(t->message, t->message_size, "%s", j->err.text);
    attn_ledger_clear(&j->ledger);
    attn_mask_free(j->mask);
    free(j->bytes.byte);
    free(j->lse);
    return status == ATTN_OK ? ATTN_PLUGIN_OK : ATTN_PLUGIN_FAILED;
}

static enum attn_status compute(const struct attn_plugin_call *t, struct job *j,
                                const struct attn_view *o)
{
    int wide = t->dtype == ATTN_PLUGIN_IS_F64 ? ATTN_F64 : ATTN_F32;
    struct attn_forward f = {in(&t->q, t->dtype, 0),
                             in(&t->k, t->dtype, 0),
                             value(t),
                             *o,
                             {j->lse, (enum attn_dtype)wide, {0, 0, 0, 0}}};
    memcpy(f.lse.stride, j->lse_stride, sizeof j->lse_stride);
    const struct attn_impl *dense = attn_impl_find("dense");
    attn_options_preset(dense, &j->options);
    return attn_run_forward(dense, &j->ctx, &j->problem, &f);
}

static int refuse(const struct attn_plugin_call *t)
{
    snprintf(t->message, t->message_size, "no such kernel");
    return ATTN_PLUGIN_REFUSED;
}

static int forward(const struct attn_plugin_call *t)
{
    struct job j;
    struct attn_view o = out(&t->o, t->dtype, 0);
    if (t->dtype == refused)
        return refuse(t);
    if (open_job(t, &j) != 0)
        return ATTN_PLUGIN_FAILED;
    enum attn_status status = compute(t, &j, &o);
    if (status == ATTN_OK && t->lse.data != NULL)
        convert(j.lse, j.lse_stride, t->lse.data, strides ? t->lse.stride : j.lse_stride, t,
                to_theirs);
    multiply(t, &t->o, "TIMES_O");
    return close_job(t, &j, status);
}

static int backward(const struct attn_plugin_call *t)
{
    struct job j;
    int wide = t->dtype == ATTN_PLUGIN_IS_F64 ? ATTN_F64 : ATTN_F32;
    enum attn_status status = ATTN_OK;
    if (refused == -1)
        return refuse(t);
    if ((is_on("CAUSAL_FORWARD") && t->banded) || open_job(t, &j) != 0)
        return ATTN_PLUGIN_FAILED;
    if (t->lse_in.data != NULL)
        convert(t->lse_in.data, strides ? t->lse_in.stride : j.lse_stride, j.lse, j.lse_stride, t,
                to_ours);
    else { /* no LSE was given away: compute it again, with an O that is dropped */
        size_t n = (size_t)(t->batch * t->heads * t->n_query * t->d_value);
        struct attn_view o = {
            malloc(n * 8 + 8),
            (enum attn_dtype)t->dtype,
            {t->heads * t->n_query * t->d_value, t->n_query * t->d_value, t->d_value, 1}};
        status = compute(t, &j, &o);
        free(o.data);
    }
    struct attn_cview lse = {j.lse, (enum attn_dtype)wide, {0, 0, 0, 0}};
    memcpy(lse.stride, j.lse_stride, sizeof j.lse_stride);
    const struct attn_view dk = out(&t->dk, t->dtype, 0);
    struct attn_backward g = {in(&t->q, t->dtype, 0),
                              in(&t->k, t->dtype, 0),
                              value(t),
                              in(&t->o_in, t->dtype, 0),
                              lse,
                              in(&t->d_o, t->dtype, 0),
                              in(&t->d_lse, wide, 1),
                              out(&t->dq, t->dtype, 0),
                              dk,
                              t->kv_shared ? dk : out(&t->dv, t->dtype, 0),
                              out(&t->dbias, wide, 1),
                              out(&t->dsink, wide, 1)};
    const struct attn_impl *dense = attn_impl_find("dense");
    attn_options_preset(dense, &j.options);
    if (status == ATTN_OK)
        status = attn_run_backward(dense, &j.ctx, &j.problem, &g);
    multiply(t, &t->dq, "TIMES_DQ");
    multiply(t, &t->dk, "TIMES_DK");
    multiply(t, &t->dv, "TIMES_DV");
    return close_job(t, &j, status);
}

/* Beside STRIDES. */
static const unsigned everything =
    ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV |
    ATTN_CAP_HARD | ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI | ATTN_CAP_BIAS | ATTN_CAP_DBIAS |
    ATTN_CAP_DLSE | ATTN_CAP_SCALE | ATTN_CAP_EMPTY | ATTN_CAP_BAND | ATTN_CAP_DENSE |
    ATTN_CAP_REPEATS | ATTN_CAP_SINK | ATTN_CAP_KV_SHARED;

const struct attn_plugin *attn_plugin_get(void)
{
    static struct attn_plugin full;
    says = (struct convention){switch_number("SAYS_LSE", 0),    switch_number("SAYS_EMPTY", 0),
                               switch_number("SAYS_CAUSAL", 0), switch_number("SAYS_WINDOW", 0),
                               switch_number("SAYS_LAYOUT", 0), switch_number("SAYS_BYTE", 0)};
    does = (struct convention){
        switch_number("DOES_LSE", says.lse),       switch_number("DOES_EMPTY", says.empty),
        switch_number("DOES_CAUSAL", 0),           switch_number("DOES_WINDOW", says.window),
        switch_number("DOES_LAYOUT", says.layout), switch_number("DOES_BYTE", says.byte)};
    strides = !is_on("NO_STRIDES");
    scales = !is_on("NO_SCALE");
    refused = switch_number("REFUSES", 99);
    full = (struct attn_plugin){
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = is_on("OLD") ? offsetof(struct attn_plugin, u_sum) : sizeof full,
        .u_sum = is_on("OLD") ? 7 : 0, /* behind its end */
        .name = "full",
        .claims = (uint32_t)switch_number("CLAIMS", (int)everything) |
                  (strides && !switch_number("CLAIMS", 0) ? ATTN_CAP_STRIDES : 0),
        .lse = says.lse,
        .empty_lse = says.empty,
        .causal = says.causal,
        .window = says.window,
        .layout = says.layout,
        .byte = says.byte,
        .forward = forward,
        .backward = backward,
        .declines = switch_number("DECLINES", 0),
    };
    return &full;
}
