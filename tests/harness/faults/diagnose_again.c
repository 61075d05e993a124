/* What shows only when an implementation is run again: results that change from run to run or with
 * what memory held before, and results that are right once heads or queries are computed alone. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"

/* ---- one run --------------------------------------------------------------------------------- */

static void shift(struct attn_cview *view, int64_t b, int64_t h, int64_t i)
{
    int64_t at = attn_offset(view->stride, b, h, i);
    if (view->data != NULL)
        view->data = (const char *)view->data + at * (int64_t)attn_dtype_size(view->dtype);
}

static void shift_out(struct attn_view *view, int64_t b, int64_t h, int64_t i)
{
    int64_t at = attn_offset(view->stride, b, h, i);
    if (view->data != NULL)
        view->data = (char *)view->data + at * (int64_t)attn_dtype_size(view->dtype);
}

/* Part of a problem: it begins at (b, kv head g, query i). */
struct part {
    struct attn_problem problem;
    int64_t b, g, i;
};

static enum attn_status run_forward(const struct attn_spec *spec, struct attn_ctx *ctx,
                                    const struct attn_setup *s, const struct part *x)
{
    struct attn_forward f = attn_setup_forward(s);
    int64_t h = x->g * (s->problem.kv_heads > 0 ? s->problem.heads / s->problem.kv_heads : 0);
    shift(&f.q, x->b, h, x->i);
    shift(&f.k, x->b, x->g, 0);
    shift(&f.v, x->b, x->g, 0);
    shift_out(&f.o, x->b, h, x->i);
    shift_out(&f.lse, x->b, h, x->i);
    return attn_run_forward(spec->impl, ctx, &x->problem, &f);
}

static enum attn_status run_backward(const struct attn_spec *spec, struct attn_ctx *ctx,
                                     const struct attn_setup *s, const struct part *x)
{
    struct attn_backward f = attn_setup_backward(s);
    int64_t h = x->g * (s->problem.kv_heads > 0 ? s->problem.heads / s->problem.kv_heads : 0);
    struct attn_cview *const of_queries[] = {&f.q, &f.o, &f.lse, &f.d_o, &f.d_lse};
    for (int n = 0; n < 5; n++)
        shift(of_queries[n], x->b, h, x->i);
    shift(&f.k, x->b, x->g, 0);
    shift(&f.v, x->b, x->g, 0);
    shift_out(&f.dq, x->b, h, x->i);
    shift_out(&f.dk, x->b, x->g, 0);
    shift_out(&f.dv, x->b, x->g, 0);
    return attn_run_backward(spec->impl, ctx, &x->problem, &f);
}

/* fill: what fresh memory holds, NaN or something else. */
static enum attn_status run(const struct attn_spec *spec, struct attn_setup *s,
                            const struct part *x, int fill_nan)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_saved saved = {0};
    struct attn_ctx ctx = {
        .ledger = &ledger, .options = &spec->options, .error = &err, .saved = &saved};
    attn_ledger_init(&ledger, NULL);
    ledger.poison = fill_nan;
    mallopt(M_PERTURB, fill_nan ? 0 : 0xc5); /* malloc's own: bytes of 0x3a */
    enum attn_status status = run_forward(spec, &ctx, s, x);
    if (status == ATTN_OK && s->given.pass == ATTN_BACKWARD)
        status = run_backward(spec, &ctx, s, x);
    attn_saved_drop(&saved, &ledger);
    mallopt(M_PERTURB, 0);
    attn_ledger_clear(&ledger);
    return status;
}

static struct part whole(const struct attn_setup *s)
{
    return (struct part){s->problem, 0, 0, 0};
}

/* ---- state and memory ------------------------------------------------------------------------ */

static int try_memory(const struct attn_spec *spec, struct attn_setup *s, char *text, size_t size)
{
    struct part x = whole(s);
    uint64_t bits[3];
    for (int n = 0; n < 3; n++) {
        if (run(spec, s, &x, n < 2) != ATTN_OK)
            return 0;
        bits[n] = attn_setup_digest(s, s->given.pass);
    }
    if (bits[0] != bits[1])
        snprintf(text, size,
                 "fits results that change from run to run: a race, or state that is "
                 "kept between calls");
    else if (bits[1] != bits[2])
        snprintf(text, size,
                 "fits memory that is read before it is written (a buffer not cleared, "
                 "or read to its end)");
    return bits[0] != bits[1] || bits[1] != bits[2];
}

/* ---- alone ----------------------------------------------------------------------------------- */

static int is_right(const struct attn_setup *s, const struct attn_result *failed)
{
    struct attn_result r;
    memset(&r, 0, sizeof r);
    attn_judge(s, &failed->precision, NULL, s->given.pass, &r);
    return r.verdict == ATTN_PASS || r.verdict == ATTN_WEAK;
}

/* Every kv head with its query heads by itself. */
static int heads_alone(const struct attn_spec *spec, struct attn_setup *s)
{
    struct part x = whole(s);
    x.problem.batch = x.problem.kv_heads = 1;
    x.problem.heads = s->problem.heads / s->problem.kv_heads;
    for (x.b = 0; x.b < s->problem.batch; x.b++)
        for (x.g = 0; x.g < s->problem.kv_heads; x.g++) {
            x.problem.origin.batch = x.b;
            x.problem.origin.head = x.g * x.problem.heads;
            if (run(spec, s, &x, 1) != ATTN_OK)
                return 0;
        }
    return 1;
}

/* Every query by itself. */
static int queries_alone(const struct attn_spec *spec, struct attn_setup *s)
{
    struct part x = whole(s);
    x.problem.n_query = 1;
    for (x.i = 0; x.i < s->problem.n_query; x.i++) {
        x.problem.origin.query = x.i;
        if (run(spec, s, &x, 1) != ATTN_OK)
            return 0;
    }
    return 1;
}

static int try_neighbours(const struct attn_spec *spec, struct attn_setup *s,
                          const struct attn_result *failed, char *text, size_t size)
{
    const struct attn_problem *p = &s->problem;
    int is_ours = spec->impl->ranks == NULL && spec->options.local != spec->impl;
    if (!is_ours ||
        s->given
            .d_bias) /* parts of a problem are not an external implementation's, or ranks', fare */
        return 0;
    if (p->batch * p->kv_heads > 1 && heads_alone(spec, s) && is_right(s, failed)) {
        snprintf(text, size,
                 "right when each kv head is computed alone: left over from another head or batch, "
                 "or taken for its own");
        return 1;
    }
    if (p->n_query > 1 && s->given.pass == ATTN_FORWARD && queries_alone(spec, s) &&
        is_right(s, failed)) {
        snprintf(text, size,
                 "right when each query is computed alone: left over from another query, or taken "
                 "for its own");
        return 1;
    }
    return 0;
}

int attn_hypothesis_again(const struct attn_spec *spec, const struct attn_case *c,
                          const struct attn_result *failed, char *text, size_t size)
{
    struct attn_setup setup;
    struct attn_error err = {0};
    if (attn_setup_open(c, &setup, &err) != ATTN_OK)
        return 0;
    int found =
        try_memory(spec, &setup, text, size) || try_neighbours(spec, &setup, failed, text, size);
    attn_setup_close(&setup);
    return found;
}
