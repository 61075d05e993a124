/* See explain.h. */
#include "experiments/rim/explain/explain.h"

#include <stdio.h>
#include <stdlib.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/rim/explain/events.h"
#include "experiments/rim/explain/steps.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"

enum { TOKENS = 16, FEATURES = 8, HEADS = 8, TOKENS_OF_MEMORY = 4096, EVENTS = 1000 };

/* ---- what can be read ------------------------------------------------------------------------ */

static enum attn_status check_tells(const struct attn_explain *x, struct attn_error *err)
{
    char who[256] = "";
    if (x->memory || x->spec->impl->traces)
        return ATTN_OK;
    for (int n = 0; n < attn_impl_count(); n++)
        if (attn_impl_at(n)->traces)
            attn_append(who, sizeof who, "%s%s", who[0] != '\0' ? ", " : "", attn_impl_at(n)->name);
    return attn_fail(err, ATTN_ENOTSUP,
                     "%s traces no steps: %s do; --memory explains the buffers of every SPEC",
                     x->spec->impl->name, who);
}

static enum attn_status check_size(const struct attn_explain *x, const struct attn_problem *p,
                                   struct attn_error *err)
{
    const int64_t tokens = x->memory ? TOKENS_OF_MEMORY : TOKENS;
    const struct {
        const char *what;
        int64_t n, most;
    } extent[] = {
        {"queries", p->n_query, tokens},
        {"keys", p->n_key, tokens},
        {"features of a key", p->d_key, x->memory ? INT64_MAX : FEATURES},
        {"features of a value", p->d_value, x->memory ? INT64_MAX : FEATURES},
        {"heads of all batches", attn_product(p->batch, p->heads), x->memory ? INT64_MAX : HEADS}};
    for (size_t e = 0; e < sizeof extent / sizeof *extent; e++)
        if (extent[e].n > extent[e].most)
            return attn_fail(
                err, ATTN_ENOTSUP, "%lld %s are too many to be %s: at most %lld would work%s",
                (long long)extent[e].n, extent[e].what,
                x->memory ? "run for their buffers" : "read", (long long)extent[e].most,
                x->memory ? "; attnlab price has no limit"
                          : "; --memory, which prints no numbers, explains more");
    return ATTN_OK;
}

enum attn_status attn_explain_check(const struct attn_explain *x,
                                    const struct attn_problem *problem, struct attn_error *err)
{
    enum attn_status status = check_tells(x, err);
    return status == ATTN_OK ? check_size(x, problem, err) : status;
}

/* ---- tensors as steps ------------------------------------------------------------------------ */

/* Those that are there. */
enum { TENSORS = 4 };
struct tensors {
    int n;
    const char *name[TENSORS];
    struct attn_cview view[TENSORS];
    int64_t width[TENSORS];
};

static void add(struct tensors *t, const char *name, struct attn_cview view, int64_t width)
{
    if (view.data == NULL)
        return;
    t->name[t->n] = name;
    t->view[t->n] = view;
    t->width[t->n++] = width;
}

/* Before or after a call: each head of each rank, its queries and then its keys.  Ranks have equal
 * runs of tokens (ref/rank_part.h). */
static void add_heads(struct attn_trace *trace, const struct attn_explain *x,
                      const char *const step[2], int hop, const struct tensors t[2])
{
    const struct attn_problem *p = x->problem;
    const int64_t heads[2] = {p->heads, p->kv_heads}, tokens[2] = {p->n_query, p->n_key};
    int ranks = attn_ranks(x->spec->impl, &x->spec->options);
    struct attn_trace_step at = {.hop = hop};
    for (at.rank = 0; at.rank < ranks; at.rank++)
        for (at.batch = 0; at.batch < p->batch; at.batch++)
            for (at.head = 0; at.head < p->heads; at.head++)
                for (int k = 0; k < 2; k++) {
                    int64_t rows = tokens[k] / ranks;
                    at.step = step[k];
                    at.query = at.rank * rows;
                    if (t[k].n > 0 && at.head < heads[k])
                        attn_trace_add(trace, &at, rows, t[k].name, t[k].view, t[k].width, t[k].n);
                }
}

static void add_given(struct attn_trace *trace, const struct attn_explain *x, enum attn_pass pass)
{
    const char *const step[2] = {pass == ATTN_FORWARD ? "given.queries" : "given.stored",
                                 "given.keys"};
    const struct attn_problem *p = x->problem;
    struct tensors t[2] = {0};
    if (pass == ATTN_FORWARD) {
        add(&t[0], "Q", x->forward.q, p->d_key);
        add(&t[1], "K", x->forward.k, p->d_key);
        add(&t[1], "V", x->forward.v, p->d_value);
    } else {
        add(&t[0], "dO", x->backward.d_o, p->d_value);
        add(&t[0], "dLSE", x->backward.d_lse, 1);
        add(&t[0], "O", x->backward.o, p->d_value);
        add(&t[0], "LSE", x->backward.lse, 1);
    }
    add_heads(trace, x, step, 0, t);
}

static void add_result(struct attn_trace *trace, const struct attn_explain *x, enum attn_pass pass)
{
    static const char *const step[2] = {"result.queries", "result.keys"};
    const struct attn_problem *p = x->problem;
    struct tensors t[2] = {0};
    if (pass == ATTN_FORWARD) {
        add(&t[0], "O", attn_view_const(&x->forward.o), p->d_value);
        add(&t[0], "LSE", attn_view_const(&x->forward.lse), 1);
    } else {
        add(&t[0], "dQ", attn_view_const(&x->backward.dq), p->d_key);
        add(&t[1], "dK", attn_view_const(&x->backward.dk), p->d_key);
        add(&t[1], "dV", attn_view_const(&x->backward.dv), p->d_value);
    }
    add_heads(trace, x, step, attn_ranks(x->spec->impl, &x->spec->options), t);
}

/* ---- the bits -------------------------------------------------------------------------------- */

/* FNV-1a of the elements as they are stored, in the order [B,H,L,width]. */
static uint64_t bits_of(const struct attn_view *view, int64_t batch, int64_t heads, int64_t rows,
                        int64_t width)
{
    uint64_t digest = ATTN_DIGEST_BEGIN;
    size_t size = attn_dtype_size(view->dtype);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t c = 0; c < width; c++) {
                    int64_t at = attn_offset(view->stride, b, h, i) + c * view->stride[3];
                    digest = attn_digest_bytes(digest,
                                               (const char *)view->data + at * (int64_t)size, size);
                }
    return digest;
}

static void bits_line(const struct attn_explain *x, enum attn_pass pass, char text[96])
{
    const struct attn_problem *p = x->problem;
    const struct {
        const char *name;
        const struct attn_view *view;
        int64_t heads, rows, width;
    } out[] = {{"o", &x->forward.o, p->heads, p->n_query, p->d_value},
               {"lse", &x->forward.lse, p->heads, p->n_query, 1},
               {"dq", &x->backward.dq, p->heads, p->n_query, p->d_key},
               {"dk", &x->backward.dk, p->kv_heads, p->n_key, p->d_key},
               {"dv", &x->backward.dv, p->kv_heads, p->n_key, p->d_value}};
    snprintf(text, 96, "bits:");
    for (int o = pass == ATTN_FORWARD ? 0 : 2; o < (pass == ATTN_FORWARD ? 2 : 5); o++)
        attn_append(text, 96, " %s %016llx", out[o].name,
                    (unsigned long long)bits_of(out[o].view, p->batch, out[o].heads, out[o].rows,
                                                out[o].width));
}

/* ---- a call, traced -------------------------------------------------------------------------- */

static enum attn_status call(const struct attn_explain *x, struct attn_trace *trace,
                             struct attn_events *events, struct attn_error *err)
{
    struct attn_ledger *ledger = attn_cli_need(malloc(sizeof *ledger));
    struct attn_saved saved = {0};
    struct attn_ctx ctx = {.ledger = ledger,
                           .options = &x->spec->options,
                           .error = err,
                           .tracer = x->memory ? NULL : &trace->tracer,
                           .saved = x->last == ATTN_BACKWARD ? &saved : NULL};
    enum attn_status status = ATTN_OK;
    attn_ledger_init(ledger, NULL);
    ledger->tracer = &events->tracer;
    for (int pass = ATTN_FORWARD; pass <= (int)x->last && status == ATTN_OK; pass++) {
        trace->pass = events->pass = (enum attn_pass)pass;
        if (!x->memory)
            add_given(trace, x, trace->pass);
        status = pass == ATTN_FORWARD
                     ? attn_run_forward(x->spec->impl, &ctx, x->problem, &x->forward)
                     : attn_run_backward(x->spec->impl, &ctx, x->problem, &x->backward);
        if (status == ATTN_OK && !x->memory)
            add_result(trace, x, trace->pass);
    }
    ledger->tracer = NULL; /* what was saved is the caller's to give back */
    attn_ledger_clear(ledger);
    free(ledger);
    return status;
}

/* ---- printing -------------------------------------------------------------------------------- */

static enum attn_status check_events(const struct attn_events *events, struct attn_error *err)
{
    if (events->n <= EVENTS)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "buffers are taken and given back %lld times, too many to be read: at most %d "
                     "would work, so fewer tokens or heads",
                     (long long)events->n, EVENTS);
}

static enum attn_status check_only(const struct attn_explain *x, const struct attn_show *show,
                                   const struct attn_trace *trace, struct attn_error *err)
{
    if (x->only == NULL || attn_show_steps(show, trace, NULL) > 0)
        return ATTN_OK;
    return attn_fail(err, ATTN_EINVAL,
                     "--only %s: no step of %s begins so; without it, each table begins with the "
                     "name of its step",
                     x->only, x->spec->impl->name);
}

static enum attn_status show_memory(const struct attn_explain *x, struct attn_events *events,
                                    struct attn_handout *handout, struct attn_error *err)
{
    attn_events_sort(events);
    return attn_events_show(events, x->spec, x->problem, x->last, handout, err);
}

/* Shows the buffers beyond inputs and outputs, from the price; of ranks those of each. */
static void show_buffers(const struct attn_explain *x, enum attn_pass pass,
                         struct attn_handout *handout)
{
    struct attn_cost cost;
    char text[1024], bytes[32];
    if (attn_price(x->spec->impl, &x->spec->options, x->problem, pass, 0, &cost, NULL) != ATTN_OK)
        return;
    snprintf(text, sizeof text, "Buffers of the %s pass, beyond inputs and outputs%s:",
             pass == ATTN_FORWARD ? "forward" : "backward",
             x->spec->impl->ranks != NULL ? ", of a rank" : "");
    for (int a = 0; a < cost.n_live; a++)
        attn_append(text, sizeof text, " %s %s%s", cost.live[a].name,
                    attn_cli_bytes(cost.live[a].bytes, bytes), a + 1 < cost.n_live ? "," : ".");
    attn_handout_words(handout, text);
}

static enum attn_status show_steps(const struct attn_explain *x, const struct attn_show *show,
                                   const struct attn_trace *trace, struct attn_handout *handout)
{
    char bits[96];
    for (int pass = ATTN_FORWARD; pass <= (int)x->last && x->only == NULL; pass++)
        show_buffers(x, (enum attn_pass)pass, handout);
    attn_show_steps(show, trace, handout);
    for (int pass = ATTN_FORWARD; pass <= (int)x->last && x->only == NULL; pass++) {
        bits_line(x, (enum attn_pass)pass, bits);
        attn_handout_words(handout, bits);
    }
    return ATTN_OK;
}

enum attn_status attn_explain_show(const struct attn_explain *x, struct attn_error *err)
{
    const struct attn_show show = {.has_ranks = x->spec->impl->ranks != NULL,
                                   .has_heads = x->problem->heads > 1,
                                   .has_batches = x->problem->batch > 1,
                                   .only = x->only};
    struct attn_trace trace;
    struct attn_events events;
    struct attn_handout handout;
    enum attn_status status = attn_explain_check(x, x->problem, err);
    if (status != ATTN_OK)
        return status;
    attn_trace_open(&trace);
    attn_events_open(&events, show.has_ranks);
    status = call(x, &trace, &events, err);
    if (status == ATTN_OK)
        status = check_events(&events, err);
    if (status == ATTN_OK)
        status = attn_trace_sort(&trace, show.has_ranks, err);
    if (status == ATTN_OK)
        status = check_only(x, &show, &trace, err);
    if (status == ATTN_OK) {
        attn_handout_begin(&handout, x->format, x->title);
        status = x->memory ? show_memory(x, &events, &handout, err)
                           : show_steps(x, &show, &trace, &handout);
    }
    attn_events_close(&events);
    attn_trace_close(&trace);
    return status;
}
