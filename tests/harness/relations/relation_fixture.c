/* See relation_fixture.h. */
#include "tests/harness/relations/relation_fixture.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/pages.h"

void attn_fixture_fail(struct attn_fixture *f, enum attn_failure failure, const char *format, ...)
{
    if (f->result->verdict != ATTN_PASS)
        return;
    va_list args;
    va_start(args, format);
    f->result->verdict = ATTN_FAILED;
    f->result->failure = failure;
    vsnprintf(f->result->text, sizeof f->result->text, format, args);
    va_end(args);
}

void attn_fixture_explain(struct attn_fixture *f, const char *format, ...)
{
    char text[400];
    va_list args;
    snprintf(text, sizeof text, "%.380s", f->result->text);
    va_start(args, format);
    vsnprintf(f->result->text, sizeof f->result->text, format, args);
    va_end(args);
    size_t used = strlen(f->result->text);
    snprintf(f->result->text + used, sizeof f->result->text - used, ": %s", text);
}

int attn_fixture_needs(struct attn_fixture *f, unsigned caps)
{
    unsigned missing = caps & ~f->spec->impl->caps;
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (missing & 1u << bit)
            snprintf(f->refusal, sizeof f->refusal, "%s does not claim %s", f->spec->impl->name,
                     attn_cap_name(bit));
    if (caps & ATTN_CAP_BACKWARD && f->claims != NULL &&
        f->claims->declines & ATTN_PLUGIN_CAUSAL_BACKWARD) {
        snprintf(f->refusal, sizeof f->refusal, "declined: causal-backward");
        return 0;
    }
    return missing == 0;
}

int attn_fixture_repeats(struct attn_fixture *f)
{
    if (f->claims == NULL || f->claims->bits & ATTN_CAP_REPEATS)
        return 1;
    snprintf(f->refusal, sizeof f->refusal, "not claimed: repeats (equal bits)");
    return 0;
}

/* ---- opening and running --------------------------------------------------------------------- */

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

int attn_fixture_open(struct attn_fixture *f, struct attn_trial *t,
                      const struct attn_fixture_shape *s, const char *mask, const char *fill,
                      enum attn_pass pass, const char *fields)
{
    char text[ATTN_CASE_TEXT];
    struct attn_case c;
    struct attn_error err = {0};
    memset(t, 0, sizeof *t);
    int forward_alone = f->claims != NULL && f->claims->declines & ATTN_PLUGIN_CAUSAL_BACKWARD &&
                        pass == ATTN_BACKWARD && strcmp(mask, "none") != 0 &&
                        strcmp(mask, "dense") != 0 && strcmp(mask, "keys") != 0;
    int backward =
        pass == ATTN_BACKWARD && (f->spec->impl->caps & ATTN_CAP_BACKWARD) && !forward_alone;
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
    t->open = status == ATTN_OK;
    return t->open;
}

void attn_fixture_close(struct attn_trial *t)
{
    if (!t->open)
        return;
    attn_fixture_move_back(t);
    attn_truth_free(&t->truth);
    attn_setup_close(&t->setup);
    t->open = 0;
}

int attn_fixture_move(struct attn_fixture *f, struct attn_trial *t, enum attn_slot slot,
                      size_t bytes, size_t front, const int64_t stride[4])
{
    struct attn_tensor *x = &t->setup.tensor[slot];
    const struct attn_tensor plain = *x;
    unsigned char *pages = attn_pages_take(bytes, 1);
    if (pages == NULL) {
        snprintf(f->refusal, sizeof f->refusal,
                 "the system gives no mapping of %zu bytes without reserve", bytes);
        return 0;
    }
    t->moved[slot] = (struct attn_fixture_moved){plain, pages, bytes};
    x->data = pages + front;
    x->map = NULL; /* neither red zones nor a count of its span */
    memcpy(x->stride, stride, sizeof x->stride);
    int64_t at[4] = ATTN_START;
    while (attn_each(at, x->extent))
        attn_tensor_set(x, at[0], at[1], at[2], at[3],
                        attn_tensor_get(&plain, at[0], at[1], at[2], at[3]));
    if (slot == ATTN_T_BIAS)
        t->setup.problem.bias.tensor = attn_tensor_cview(x);
    return 1;
}

void attn_fixture_move_back(struct attn_trial *t)
{
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        if (t->moved[slot].pages != NULL) {
            t->setup.tensor[slot] = t->moved[slot].plain;
            attn_pages_free(t->moved[slot].pages, t->moved[slot].bytes);
            t->moved[slot].pages = NULL;
        }
    if (t->setup.tensor[ATTN_T_BIAS].data != NULL)
        t->setup.problem.bias.tensor = attn_tensor_cview(&t->setup.tensor[ATTN_T_BIAS]);
}

/* Returns 0 and the reason if the plug-in interface has no words for the trial. */
static int is_sayable(struct attn_fixture *f, const struct attn_trial *t, int threads)
{
    const char *why = NULL;
    if (f->claims != NULL && threads > 1)
        why = "a plug-in starts the threads that it wants";
    else if (f->claims != NULL && !attn_problem_is_whole(&t->setup.problem))
        why = "a plug-in is never given a part of a larger mask";
    if (why != NULL)
        snprintf(f->refusal, sizeof f->refusal, "%s", why);
    return why == NULL;
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
    attn_setup_poison(&t->setup);
    for (int pass = ATTN_FORWARD; pass <= (int)t->setup.given.pass && status == ATTN_OK; pass++) {
        attn_setup_remember(&t->setup, (enum attn_pass)pass);
        status = attn_setup_call(&t->setup, spec->impl, &ctx, (enum attn_pass)pass);
        if (status == ATTN_OK && f->result->verdict == ATTN_PASS)
            attn_setup_check(&t->setup, (enum attn_pass)pass, f->result);
    }
    attn_ledger_clear(ledger);
    if (status == ATTN_ENOTSUP && f->claims != NULL && f->result->verdict == ATTN_PASS)
        attn_result_refuse(f->result, err.text); /* all of the relation: half of one is no pass */
    else if (status == ATTN_ENOTSUP)
        snprintf(f->refusal, sizeof f->refusal, "%s", err.text);
    else if (status == ATTN_ENOMEM && f->result->verdict == ATTN_PASS)
        attn_result_error(f->result, status, err.text);
    else if (status != ATTN_OK)
        attn_fixture_fail(f, ATTN_F_STATUS, "%.400s", err.text);
    return status == ATTN_OK && f->result->verdict == ATTN_PASS;
}

/* Once for a trial of the same numbers and a precision. */
static int find_bounds(struct attn_fixture *f, struct attn_trial *t, const struct attn_spec *spec)
{
    struct attn_error err = {0};
    struct attn_precision precision;
    const struct attn_inputs in = attn_setup_inputs(&t->setup, t->setup.given.pass);
    attn_precision_of(spec->impl, &spec->options, &t->setup.problem, &precision);
    if (t->truth.tensor[ATTN_O].want != NULL &&
        memcmp(&precision, &t->precision, sizeof precision) == 0)
        return 1;
    t->precision = precision;
    attn_truth_free(&t->truth);
    enum attn_status status =
        attn_truth_compute(&t->setup.problem, &in, &precision, NULL, &t->truth, &err);
    if (status != ATTN_OK)
        attn_result_error(f->result, status, err.text);
    return status == ATTN_OK;
}

/* ---- elements -------------------------------------------------------------------------------- */

void attn_fixture_extent(const struct attn_trial *t, enum attn_output output, int64_t extent[4])
{
    const struct attn_tensor *x = &t->setup.tensor[attn_slot_of(output)];
    for (int axis = 0; axis < 4; axis++) /* dBias: once where it is broadcast */
        extent[axis] = x->extent[axis] > 1 && x->stride[axis] == 0 ? 1 : x->extent[axis];
}

double attn_fixture_value(const struct attn_trial *t, enum attn_slot slot, const int64_t at[4])
{
    return attn_tensor_get(&t->setup.tensor[slot], at[0], at[1], at[2], at[3]);
}

double attn_fixture_row(const struct attn_fixture_input *in, int trial, int64_t row)
{
    const int64_t at[4] = {in->at[0], in->at[1], row, in->at[3]};
    return attn_fixture_value(&in->f->trial[trial], in->slot, at);
}

double attn_fixture_get(const struct attn_trial *t, enum attn_output output, const int64_t at[4])
{
    return attn_fixture_value(t, attn_slot_of(output), at);
}

double attn_fixture_bound(const struct attn_trial *t, enum attn_output output, const int64_t at[4])
{
    const struct attn_truth_tensor *x = &t->truth.tensor[output];
    const int64_t *e = x->extent;
    if (x->bound == NULL)
        return 0;
    return x->bound[((at[0] * e[1] + at[1]) * e[2] + at[2]) * e[3] + at[3]];
}

void attn_fixture_change(struct attn_fixture *f, int trial, enum attn_slot slot,
                         double (*value)(const struct attn_fixture_input *in))
{
    struct attn_tensor *x = &f->trial[trial].setup.tensor[slot];
    struct attn_fixture_input in = {.f = f, .trial = trial, .slot = slot, .at = ATTN_START};
    const int64_t *at = in.at;
    while (x->data != NULL && attn_each(in.at, x->extent)) {
        in.old = attn_tensor_get(x, at[0], at[1], at[2], at[3]);
        double now = value(&in);
        if (memcmp(&now, &in.old, sizeof now) != 0)
            attn_tensor_set(x, at[0], at[1], at[2], at[3], now);
    }
}

/* ---- equations ------------------------------------------------------------------------------- */

void attn_equation_take(const struct attn_fixture *f, struct attn_equation *e, int trial,
                        double factor, const int64_t at[4])
{
    e->want += factor * attn_fixture_get(&f->trial[trial], e->output, at);
    e->allowed += fabs(factor) * attn_fixture_bound(&f->trial[trial], e->output, at);
}

void attn_equation_sum(const struct attn_fixture *f, struct attn_equation *e,
                       enum attn_output output, int axis)
{
    const struct attn_trial *t = &f->trial[e->trial];
    int64_t extent[4], at[4] = {e->at[0], e->at[1], e->at[2], e->at[3]};
    e->skip = at[axis] != 0;
    e->got = e->allowed = 0;
    attn_fixture_extent(t, output, extent);
    for (; !e->skip && at[axis] < extent[axis]; at[axis]++) {
        e->got += attn_fixture_get(t, output, at);
        e->allowed += attn_fixture_bound(t, output, at);
    }
}

/* The first that does not hold is the failure. */
int attn_fixture_judge(struct attn_fixture *f, const struct attn_equation *e)
{
    const double allowed = e->exact ? 0 : e->allowed, error = fabs(e->got - e->want);
    f->compared++;
    if (error <= allowed || e->got == e->want) { /* the same infinity */
        double ratio = allowed > 0 && error > 0 ? error / allowed : 0;
        if (ratio > f->result->worst)
            f->result->worst = ratio;
        return 1;
    }
    attn_fixture_fail(f, e->exact ? ATTN_F_EXACT : ATTN_F_BOUND,
                      "%s[%lld,%lld,%lld,%lld] = %.9g, the relation wants %.9g +- %.3g", e->what,
                      (long long)e->at[0], (long long)e->at[1], (long long)e->at[2],
                      (long long)e->at[3], e->got, e->want, allowed);
    f->result->worst = allowed > 0 && isfinite(error) ? error / allowed : HUGE_VAL;
    return 0;
}

static void compare(struct attn_fixture *f, const struct attn_relation_plan *plan, int trial)
{
    const struct attn_trial *t = &f->trial[trial];
    int64_t extent[4];
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        if (t->setup.tensor[attn_slot_of((enum attn_output)o)].data == NULL)
            continue;
        attn_fixture_extent(t, (enum attn_output)o, extent);
        int64_t at[4] = ATTN_START;
        while (attn_each(at, extent)) {
            struct attn_equation e = {.trial = trial,
                                      .output = (enum attn_output)o,
                                      .at = {at[0], at[1], at[2], at[3]},
                                      .got = attn_fixture_get(t, (enum attn_output)o, at),
                                      .allowed = attn_fixture_bound(t, (enum attn_output)o, at),
                                      .exact = plan->exact,
                                      .what = attn_output_name((enum attn_output)o)};
            if (plan->expect != NULL)
                plan->expect(f, &e);
            else
                attn_equation_take(f, &e, 0, 1, at);
            if (e.skip || (e.exact && !attn_fixture_repeats(f)))
                continue;
            if (!attn_fixture_judge(f, &e))
                return;
        }
    }
}

/* ---- a plan ---------------------------------------------------------------------------------- */

int64_t attn_fixture_place(int64_t i, int64_t n)
{
    static const int64_t prime[] = {5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    int p = 0;
    while (p < 9 && n % prime[p] == 0)
        p++;
    return (prime[p] * i + 3) % n;
}

void attn_fixture_tall(struct attn_fixture_shape *s, int trial)
{
    const int64_t q = s->q;
    (void)trial;
    s->q = s->k;
    s->k = q;
}

/* How much of the trials of a plan is not claimed. */
static int count_unclaimed(const struct attn_claims *claims, const struct attn_relation_plan *plan,
                           const struct attn_fixture_shape *shape)
{
    int n = 0;
    for (int t = 0; t < plan->trials; t++) {
        struct attn_fixture_shape s = *shape;
        if (plan->shape != NULL)
            plan->shape(&s, t);
        const int64_t extent[] = {s.d, s.v, s.h, s.g > 0 ? s.h / s.g : 1, s.b, s.q, s.k};
        for (int x = 0; x < ATTN_FACTOR_WINDOW; x++)
            n += extent[x] < 1 || !attn_shapes_have(&claims->shapes, x, extent[x]);
        n += !(claims->bits & ATTN_CAP_DV) && s.v != s.d;
        n += !(claims->bits & ATTN_CAP_CROSS) && s.q != s.k;
        const char *own = plan->own[t].fields, *fields = own != NULL ? own : plan->fields;
        const char *scale = fields != NULL ? strstr(fields, ":scale=") : NULL;
        n += !(claims->bits & ATTN_CAP_SCALE) && scale != NULL &&
             strtod(scale + 7, NULL) != 1 / sqrt((double)s.d);
    }
    return n;
}

/* Batches and heads that are declared, few where lengths are large. */
static void settle_heads(const struct attn_shapes *shapes, struct attn_fixture_shape *s)
{
    int is_large = (double)s->q * (double)s->k * (double)(s->d + s->v) > 1.5e5;
    int64_t group = attn_shapes_nearest(shapes, ATTN_FACTOR_GROUP, s->h / s->g);
    s->b = attn_shapes_nearest(shapes, ATTN_FACTOR_BATCH, is_large ? 1 : s->b);
    s->h = attn_shapes_nearest(shapes, ATTN_FACTOR_HEADS, is_large ? 2 * group : s->h);
    for (int more = 1; s->h % group != 0 && more <= 64; more++)
        s->h = attn_shapes_nearest(shapes, ATTN_FACTOR_HEADS, more * group);
    s->g = s->h % group == 0 ? s->h / group : s->h;
}

void attn_fixture_settle(struct attn_fixture *f, const struct attn_relation_plan *plan)
{
    enum { FAR = 512 };
    struct attn_fixture_shape s = f->shape;
    static const int factor[] = {ATTN_FACTOR_D, ATTN_FACTOR_DV, ATTN_FACTOR_KEYS,
                                 ATTN_FACTOR_QUERIES};
    int64_t *const axis[] = {&s.d, &s.v, &s.k, &s.q};
    int least = f->claims != NULL ? count_unclaimed(f->claims, plan, &s) : 0;
    if (least == 0)
        return;
    for (int a = 0; a < 4; a++)
        *axis[a] = attn_shapes_nearest(&f->claims->shapes, factor[a], *axis[a]);
    settle_heads(&f->claims->shapes, &s);
    least = count_unclaimed(f->claims, plan, &s);
    for (int a = 0; a < 8 && least > 0; a++) { /* one axis after the other, twice */
        const int64_t from = *axis[a % 4];
        int64_t best = from;
        for (int step = 2; step <= 2 * FAR && least > 0; step++) {
            *axis[a % 4] = from + (step % 2 == 0 ? step / 2 : -(step / 2));
            int n = count_unclaimed(f->claims, plan, &s);
            best = n < least ? *axis[a % 4] : best;
            least = n < least ? n : least;
        }
        *axis[a % 4] = best;
    }
    f->shape = s;
}

static int open_trial(struct attn_fixture *f, const struct attn_relation_plan *plan, int trial)
{
    struct attn_fixture_shape shape = f->shape;
    const char *mask = plan->own[trial].mask, *fill = plan->own[trial].fill,
               *fields = plan->own[trial].fields;
    if (plan->shape != NULL)
        plan->shape(&shape, trial);
    if (fields == NULL)
        fields = plan->fields != NULL ? plan->fields : "";
    return attn_fixture_open(f, &f->trial[trial], &shape, mask != NULL ? mask : plan->mask,
                             fill != NULL ? fill : plan->fill, plan->pass, fields);
}

static void run_trial(struct attn_fixture *f, const struct attn_relation_plan *plan, int trial)
{
    struct attn_trial *t = &f->trial[trial];
    const struct attn_spec *spec = trial > 0 && f->other != NULL ? f->other : f->spec;
    t->ran = t->open && attn_fixture_call(f, t, spec, NULL, 1) &&
             (plan->exact || find_bounds(f, t, spec));
}

static void run_trials(struct attn_fixture *f, const struct attn_relation_plan *plan)
{
    for (int n = 0; n < plan->trials; n++)
        for (int slot = 0; slot < ATTN_T_O && plan->change != NULL; slot++)
            if (f->trial[n].open)
                attn_fixture_change(f, n, (enum attn_slot)slot, plan->change);
    if (plan->prepare != NULL && !plan->prepare(f))
        return;
    int again = plan->next != NULL, many = plan->trials > 1;
    for (int n = 0; n < (again ? 1 : plan->trials); n++)
        run_trial(f, plan, n);
    for (int n = many; n < plan->trials && f->trial[0].ran; n += !again) {
        if (f->result->verdict != ATTN_PASS || (again && !plan->next(f)))
            return;
        if (again)
            run_trial(f, plan, n);
        if (f->trial[n].ran && f->result->verdict == ATTN_PASS)
            compare(f, plan, n);
    }
}

void attn_fixture_follow(struct attn_fixture *f, const struct attn_relation_plan *plan)
{
    const struct attn_fixture_shape given = f->shape;
    f->second = plan->second;
    attn_fixture_settle(f, plan);
    if (attn_fixture_needs(f, plan->needs) && open_trial(f, plan, 0)) {
        for (int n = 1; n < plan->trials; n++)
            open_trial(f, plan, n);
        run_trials(f, plan);
        for (int n = 0; n < plan->trials; n++)
            attn_fixture_close(&f->trial[n]);
    }
    f->shape = given;
}
