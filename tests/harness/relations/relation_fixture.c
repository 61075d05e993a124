/* See relation_fixture.h. */
#include "tests/harness/relations/relation_fixture.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum attn_slot slot_of[ATTN_OUTPUTS] = {ATTN_T_O,  ATTN_T_LSE, ATTN_T_DQ,
                                                     ATTN_T_DK, ATTN_T_DV,  ATTN_T_DBIAS};

void attn_fixture_fail(struct attn_fixture *f, const char *format, ...)
{
    if (f->result->verdict != ATTN_PASS)
        return;
    va_list args;
    va_start(args, format);
    f->result->verdict = ATTN_FAILED;
    f->result->failure = ATTN_F_BOUND;
    vsnprintf(f->result->text, sizeof f->result->text, format, args);
    va_end(args);
}

static void fail_as(struct attn_fixture *f, enum attn_failure failure, const char *text)
{
    if (f->result->verdict != ATTN_PASS)
        return;
    attn_fixture_fail(f, "%.400s", text);
    f->result->failure = failure;
}

int attn_fixture_needs(struct attn_fixture *f, unsigned caps)
{
    unsigned missing = caps & ~f->spec->impl->caps;
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (missing & 1u << bit)
            snprintf(f->refusal, sizeof f->refusal, "%s does not claim %s", f->spec->impl->name,
                     attn_cap_name((enum attn_cap)(1u << bit)));
    return missing == 0;
}

int attn_fixture_repeats(struct attn_fixture *f)
{
    if (f->claims == NULL || f->claims->bits & ATTN_PLUGIN_REPEATS)
        return 1;
    snprintf(f->refusal, sizeof f->refusal, "not claimed: repeats (equal bits)");
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

/* A case that is not claimed is closed again. */
static enum attn_status allow(struct attn_fixture *f, struct attn_trial *t, struct attn_error *err)
{
    unsigned needs;
    if (f->claims == NULL)
        return ATTN_OK;
    enum attn_status status =
        attn_claims_allow(f->claims, &t->setup, ATTN_ROUTE_PLUGIN, &needs, err);
    if (status == ATTN_OK)
        f->needs |= needs;
    else
        attn_setup_close(&t->setup);
    return status;
}

/* What the plug-in interface has no words for. */
static int is_sayable(struct attn_fixture *f, const struct attn_trial *t, int threads)
{
    const struct attn_origin *at = &t->setup.problem.origin;
    const char *why = NULL;
    if (f->claims != NULL && threads > 1)
        why = "a plug-in starts the threads that it wants";
    else if (f->claims != NULL && (at->batch | at->head | at->query | at->key) != 0)
        why = "a plug-in is never given a part of a larger mask";
    if (why != NULL)
        snprintf(f->refusal, sizeof f->refusal, "%s", why);
    return why == NULL;
}

int attn_fixture_open(struct attn_fixture *f, struct attn_trial *t,
                      const struct attn_fixture_shape *s, const char *mask, const char *fill,
                      enum attn_pass pass, const char *fields)
{
    char text[ATTN_CASE_TEXT];
    struct attn_case c;
    struct attn_error err = {0};
    memset(t, 0, sizeof *t);
    int backward = pass == ATTN_BACKWARD && (f->spec->impl->caps & ATTN_CAP_BACKWARD);
    snprintf(text, sizeof text,
             "b%" PRId64 "h%" PRId64 "g%" PRId64 "q%" PRId64 "k%" PRId64 "d%" PRId64 "v%" PRId64
             ":%s:%s:%s%s%s",
             s->b, s->h, s->g, s->q, s->k, s->d, s->v, mask, attn_dtype_name(f->dtype), fill,
             backward ? ":pass=bwd" : "", fields);
    enum attn_status status = attn_case_parse(text, &c, &err);
    if (status == ATTN_OK)
        status = attn_setup_open(&c, &t->setup, &err);
    if (status == ATTN_OK)
        status = allow(f, t, &err);
    if (status == ATTN_ENOTSUP)
        snprintf(f->refusal, sizeof f->refusal, "%s", err.text);
    else if (status != ATTN_OK && f->result->verdict == ATTN_PASS) {
        attn_result_error(f->result, status, "");
        snprintf(f->result->text, sizeof f->result->text, "%.250s: %.250s", text, err.text);
    }
    return status == ATTN_OK;
}

void attn_fixture_close(struct attn_trial *t)
{
    attn_truth_free(&t->truth);
    attn_setup_close(&t->setup);
}

static void check_tensors(struct attn_fixture *f, struct attn_trial *t)
{
    char text[256];
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        const struct attn_tensor *x = &t->setup.tensor[slot];
        if (x->data == NULL || x->map == NULL)
            continue;
        const char *complaint = attn_tensor_intact(x, text, sizeof text);
        if (complaint == NULL)
            complaint = slot >= ATTN_T_O ? attn_tensor_written(x, text, sizeof text)
                                         : attn_tensor_unchanged(x, text, sizeof text);
        if (complaint != NULL)
            fail_as(f, ATTN_F_INTEGRITY, complaint);
    }
}

static enum attn_status call_pass(struct attn_trial *t, const struct attn_spec *spec,
                                  struct attn_ctx *ctx, enum attn_pass pass)
{
    if (pass == ATTN_FORWARD) {
        struct attn_forward f = attn_setup_forward(&t->setup);
        return attn_run_forward(spec->impl, ctx, &t->setup.problem, &f);
    }
    struct attn_backward f = attn_setup_backward(&t->setup);
    return attn_run_backward(spec->impl, ctx, &t->setup.problem, &f);
}

int attn_fixture_call(struct attn_fixture *f, struct attn_trial *t, const struct attn_spec *spec,
                      struct attn_ledger *ledger, int threads)
{
    struct attn_ledger fresh;
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    if (!is_sayable(f, t, threads))
        return 0;
    if (ledger == NULL) {
        ledger = &fresh;
        attn_ledger_init(ledger, NULL);
    }
    ledger->poison = 1;
    struct attn_options options = spec->options;
    options.threads = threads;
    struct attn_saved saved = {0};
    struct attn_ctx ctx = {.ledger = ledger, .options = &options, .error = &err, .saved = &saved};
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        struct attn_tensor *x = &t->setup.tensor[slot];
        if (x->data == NULL || x->map == NULL)
            continue;
        if (slot >= ATTN_T_O)
            attn_tensor_poison(x);
        else
            attn_tensor_remember(x);
    }
    for (int pass = ATTN_FORWARD; pass <= (int)t->setup.given.pass && status == ATTN_OK; pass++)
        status = call_pass(t, spec, &ctx, (enum attn_pass)pass);
    attn_ledger_clear(ledger);
    if (status == ATTN_ENOTSUP)
        snprintf(f->refusal, sizeof f->refusal, "%s", err.text);
    else if (status == ATTN_ENOMEM && f->result->verdict == ATTN_PASS)
        attn_result_error(f->result, status, err.text);
    else if (status != ATTN_OK)
        fail_as(f, ATTN_F_STATUS, err.text);
    else
        check_tensors(f, t);
    return status == ATTN_OK && f->result->verdict == ATTN_PASS;
}

static int find_bounds(struct attn_fixture *f, struct attn_trial *t, const struct attn_spec *spec)
{
    struct attn_error err = {0};
    struct attn_precision precision;
    const struct attn_inputs in = attn_setup_inputs(&t->setup, t->setup.given.pass);
    attn_precision_of(spec->impl, &spec->options, &t->setup.problem, &precision);
    attn_truth_free(&t->truth);
    enum attn_status status =
        attn_truth_compute(&t->setup.problem, &in, &precision, NULL, &t->truth, &err);
    if (status != ATTN_OK)
        attn_result_error(f->result, status, err.text);
    return status == ATTN_OK;
}

int attn_fixture_run(struct attn_fixture *f, struct attn_trial *t)
{
    return attn_fixture_call(f, t, f->spec, NULL, 1) && find_bounds(f, t, f->spec);
}

int attn_fixture_run_both(struct attn_fixture *f, struct attn_trial *x, struct attn_trial *y)
{
    return attn_fixture_run(f, x) && attn_fixture_run(f, y);
}

/* ---- elements -------------------------------------------------------------------------------- */

int attn_fixture_has(const struct attn_trial *t, enum attn_output output)
{
    return t->setup.tensor[slot_of[output]].data != NULL;
}

void attn_fixture_extent(const struct attn_trial *t, enum attn_output output, int64_t extent[4])
{
    const struct attn_tensor *x = &t->setup.tensor[slot_of[output]];
    for (int axis = 0; axis < 4; axis++) /* dBias: once where it is broadcast */
        extent[axis] = x->extent[axis] > 1 && x->stride[axis] == 0 ? 1 : x->extent[axis];
}

double attn_fixture_get(const struct attn_trial *t, enum attn_output output, const int64_t at[4])
{
    return attn_tensor_get(&t->setup.tensor[slot_of[output]], at[0], at[1], at[2], at[3]);
}

double attn_fixture_bound(const struct attn_trial *t, enum attn_output output, const int64_t at[4])
{
    const struct attn_truth_tensor *x = &t->truth.tensor[output];
    if (x->bound == NULL)
        return 0;
    const int64_t *e = x->extent;
    return x->bound[((at[0] * e[1] + at[1]) * e[2] + at[2]) * e[3] + at[3]];
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void attn_fixture_copy_row(struct attn_trial *to, const struct attn_trial *from,
                           enum attn_slot slot, const int64_t to_at[3], const int64_t from_at[3])
{
    struct attn_tensor *x = &to->setup.tensor[slot];
    const struct attn_tensor *y = &from->setup.tensor[slot];
    if (x->data == NULL || y->data == NULL)
        return;
    for (int64_t c = 0; c < smaller(x->extent[3], y->extent[3]); c++)
        attn_tensor_set(x, to_at[0], to_at[1], to_at[2], c,
                        attn_tensor_get(y, from_at[0], from_at[1], from_at[2], c));
}

void attn_fixture_copy(struct attn_trial *to, const struct attn_trial *from, enum attn_slot slot)
{
    const struct attn_tensor *x = &to->setup.tensor[slot], *y = &from->setup.tensor[slot];
    for (int64_t b = 0; b < smaller(x->extent[0], y->extent[0]); b++)
        for (int64_t h = 0; h < smaller(x->extent[1], y->extent[1]); h++)
            for (int64_t i = 0; i < smaller(x->extent[2], y->extent[2]); i++) {
                const int64_t at[3] = {b, h, i};
                attn_fixture_copy_row(to, from, slot, at, at);
            }
}

void attn_fixture_change(struct attn_trial *t, enum attn_slot slot,
                         double (*value)(double old, const int64_t at[4], const void *arg),
                         const void *arg)
{
    struct attn_tensor *x = &t->setup.tensor[slot];
    int64_t at[4];
    if (x->data == NULL)
        return;
    for (at[0] = 0; at[0] < x->extent[0]; at[0]++)
        for (at[1] = 0; at[1] < x->extent[1]; at[1]++)
            for (at[2] = 0; at[2] < x->extent[2]; at[2]++)
                for (at[3] = 0; at[3] < x->extent[3]; at[3]++) {
                    double old = attn_tensor_get(x, at[0], at[1], at[2], at[3]);
                    attn_tensor_set(x, at[0], at[1], at[2], at[3], value(old, at, arg));
                }
}

/* ---- comparing ------------------------------------------------------------------------------- */

int attn_fixture_near(struct attn_fixture *f, const char *what, const int64_t at[4], double got,
                      double want, double allowed)
{
    double error = fabs(got - want);
    int ok = error <= allowed || got == want; /* the same infinity */
    f->compared++;
    if (ok) {
        double ratio = allowed > 0 && error > 0 ? error / allowed : 0;
        if (ratio > f->result->worst)
            f->result->worst = ratio;
        return 1;
    }
    static const int64_t nowhere[4];
    const int64_t *a = at != NULL ? at : nowhere;
    attn_fixture_fail(f, "%s[%lld,%lld,%lld,%lld] = %.9g, the relation wants %.9g +- %.3g", what,
                      (long long)a[0], (long long)a[1], (long long)a[2], (long long)a[3], got, want,
                      allowed);
    f->result->worst = allowed > 0 && isfinite(error) ? error / allowed : HUGE_VAL;
    return 0;
}

void attn_fixture_compare(struct attn_fixture *f, const struct attn_trial *x,
                          const struct attn_trial *y, enum attn_output output,
                          enum attn_fixture_rule rule,
                          void (*map)(const void *arg, struct attn_fixture_want *want),
                          const void *arg)
{
    int64_t e[4], at[4];
    if (!attn_fixture_has(x, output) || (rule == ATTN_FIXTURE_EXACT && !attn_fixture_repeats(f)))
        return;
    attn_fixture_extent(x, output, e);
    for (at[0] = 0; at[0] < e[0]; at[0]++)
        for (at[1] = 0; at[1] < e[1]; at[1]++)
            for (at[2] = 0; at[2] < e[2]; at[2]++)
                for (at[3] = 0; at[3] < e[3]; at[3]++) {
                    struct attn_fixture_want w = {{at[0], at[1], at[2], at[3]}, 1, 0, 0, 0};
                    if (map != NULL)
                        map(arg, &w);
                    if (w.skip)
                        continue;
                    double want = w.shift, allowed = 0;
                    if (w.factor != 0)
                        want += w.factor * attn_fixture_get(y, output, w.at);
                    if (rule == ATTN_FIXTURE_BOUNDS)
                        allowed = attn_fixture_bound(x, output, at) + w.slack;
                    if (rule == ATTN_FIXTURE_BOUNDS && w.factor != 0)
                        allowed += fabs(w.factor) * attn_fixture_bound(y, output, w.at);
                    if (!attn_fixture_near(f, attn_output_name(output), at,
                                           attn_fixture_get(x, output, at), want, allowed)) {
                        if (rule == ATTN_FIXTURE_EXACT)
                            f->result->failure = ATTN_F_EXACT;
                        return;
                    }
                }
}

void attn_fixture_compare_all(struct attn_fixture *f, const struct attn_trial *x,
                              const struct attn_trial *y, enum attn_fixture_rule rule)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (attn_fixture_has(x, (enum attn_output)o) && attn_fixture_has(y, (enum attn_output)o))
            attn_fixture_compare(f, x, y, (enum attn_output)o, rule, NULL, NULL);
}
