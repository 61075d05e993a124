/* Judging what was computed: everything in the order of verdicts (runner.h) from "finite" on. */
#include "tests/harness/judge/judge.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/bound/kept.h"
#include "tests/harness/inputs/subsets.h"

const char *attn_verdict_name(enum attn_verdict verdict)
{
    static const char *const name[] = {"PASS",    "FAIL",         "REFUSED", "WEAK", "CRASH",
                                       "TIMEOUT", "INTERMITTENT", "SKIPPED", "ERROR"};
    return (unsigned)verdict < sizeof name / sizeof *name ? name[verdict] : "unknown";
}

const char *attn_failure_name(enum attn_failure failure)
{
    static const char *const name[] = {"none",  "status", "integrity", "finite", "exact",
                                       "bound", "bias",   "growth",    "memory"};
    return (unsigned)failure < sizeof name / sizeof *name ? name[failure] : "unknown";
}

int attn_result_is_bad(const struct attn_result *r)
{
    return r->verdict == ATTN_FAILED || r->verdict == ATTN_CRASH || r->verdict == ATTN_TIMEOUT ||
           r->verdict == ATTN_INTERMITTENT;
}

void attn_result_fail(struct attn_result *r, enum attn_failure failure, const char *format, ...)
{
    if (r->verdict == ATTN_FAILED)
        return;
    va_list args;
    va_start(args, format);
    r->verdict = ATTN_FAILED;
    r->failure = failure;
    vsnprintf(r->text, sizeof r->text, format, args);
    va_end(args);
}

void attn_result_error(struct attn_result *r, enum attn_status status, const char *text)
{
    r->verdict = ATTN_ERROR;
    r->lacks_memory = status == ATTN_ENOMEM;
    snprintf(r->text, sizeof r->text, "%s", text);
}

void attn_result_refuse(struct attn_result *r, const char *words)
{
    size_t signs = strspn(words, " \t\r\n?.-");
    *r = (struct attn_result){.verdict = ATTN_REFUSED, .by_it = 1};
    snprintf(r->text, sizeof r->text, "%s", words);
    attn_clean(r->text);
    if (words[signs] != '\0')
        return;
    *r = (struct attn_result){.verdict = ATTN_PASS};
    attn_result_fail(r, ATTN_F_STATUS, "it refuses, and does not say why: a refusal has a reason");
}

/* SUBSETS: n O is a whole number of units, the sum of V over the n keys of the row.  Weights of
 * 1 or 1/n for n a power of two are exact in every type, and so are sums of whole numbers while
 * the type of sums has them; then half of what one key adds is beyond any error. */
static void judge_sums(const struct attn_setup *s, const struct attn_truth_tensor *o,
                       struct attn_result *r)
{
    const struct attn_precision *a = &r->precision;
    struct attn_cview got = attn_tensor_cview(&s->tensor[ATTN_T_O]);
    int rounds = a->merges > 0 && a->u_partial > 0;
    double most = 1 / attn_sum_roundoff(a), unit = attn_subsets_unit(s->subsets);
    const int64_t rows[4] = {o->extent[0], o->extent[1], o->extent[2], 1};
    int64_t row = 0, width = o->extent[3];
    for (int64_t at[4] = ATTN_START; attn_each(at, rows); row++) {
        int64_t i = o->sample != NULL ? o->sample[at[2]] : at[2];
        int64_t n = attn_subsets_count(s->subsets, at[0], at[1], i);
        if (n == 0 || (n & (n - 1)) != 0 || rounds || (double)n > most)
            continue;
        for (int64_t c = 0; c < width; c++) {
            double value = attn_cview_get(&got, at[0], at[1], i, c) * (double)n / unit;
            double want = round(o->want[row * width + c] * (double)n / unit);
            if (!(fabs(value - want) < 0.5))
                attn_result_fail(
                    r, ATTN_F_EXACT,
                    "o[%lld,%lld,%lld,%lld] is the sum of %.6g values over %lld keys of equal "
                    "weight, and should be that of %g: keys are lost, count twice or are hidden "
                    "ones",
                    (long long)at[0], (long long)at[1], (long long)i, (long long)c, value,
                    (long long)n, want);
        }
    }
}

/* Probes at zero tolerance.  REVEAL: q = 0 and unit columns of V make n_i O_ic a whole number, the
 * visible keys of column c; hidden ones must give exactly 0.  SELECT: O is a row of V, where the
 * declared arithmetic has its numbers. */
static void judge_exactly(const struct attn_setup *s, const struct attn_truth *truth,
                          struct attn_result *r)
{
    const struct attn_truth_tensor *o = &truth->tensor[ATTN_O], *lse = &truth->tensor[ATTN_LSE];
    struct attn_cview got = attn_tensor_cview(&s->tensor[ATTN_T_O]);
    if (s->given.fill == ATTN_FILL_SELECT) {
        struct attn_agreement x;
        const struct attn_precision *a = &r->precision;
        attn_agree_exactly(&got, o, fmax(fmax(a->u, a->u_sum), a->u_v), &x);
        if (x.n_bad > 0)
            attn_result_fail(r, ATTN_F_EXACT,
                             "o[%lld,%lld,%lld,%lld] = %.9g: the selected key has v = %.9g",
                             (long long)x.at[0], (long long)x.at[1], (long long)x.at[2],
                             (long long)x.at[3], x.got, x.want);
        return;
    }
    if (s->given.fill == ATTN_FILL_SUBSETS) {
        judge_sums(s, o, r);
        return;
    }
    int64_t width = o->extent[3], rows = o->extent[0] * o->extent[1] * o->extent[2];
    for (int64_t n = 0; n < rows * width; n++) {
        int64_t row = n / width, i = row % o->extent[2], bh = row / o->extent[2];
        double visible = isfinite(lse->want[row]) ? round(exp(lse->want[row])) : 0;
        double value = attn_cview_get(&got, bh / o->extent[1], bh % o->extent[1],
                                      o->sample != NULL ? o->sample[i] : i, n % width);
        double count = round(o->want[n] * visible);
        if (isinf(o->bound[n])) /* nothing is known of the row */
            continue;
        if (lse->want[row] == -(double)INFINITY && value != 0)
            attn_result_fail(
                r, ATTN_F_EXACT,
                "query [%lld,%lld,%lld] sees no key, and o has %.6g in column %lld: it "
                "should be 0",
                (long long)(bh / o->extent[1]), (long long)(bh % o->extent[1]), (long long)i, value,
                (long long)(n % width));
        double off = 0.25 + o->bound[n] * visible; /* 16 bits: 1/n, and the result, are rounded */
        int ok = o->want[n] == 0 ? value == 0 : fabs(value * visible - count) < off;
        if (!ok)
            attn_result_fail(
                r, ATTN_F_EXACT,
                "query [%lld,%lld,%lld]: the keys of column %lld weigh %.6g together, and should "
                "weigh %g (1 for each that is visible)",
                (long long)(bh / o->extent[1]), (long long)(bh % o->extent[1]), (long long)i,
                (long long)(n % width), value * visible, count);
    }
}

/* Zeros would have passed everywhere: the case proves nothing. */
static int is_powerless(const struct attn_result *r)
{
    int64_t n = 0, powerless = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        n += r->output[o].n;
        powerless += r->output[o].n_powerless;
    }
    return n > 0 && powerless == n;
}

/* Says how much a pass is worth. */
static void weigh_power(struct attn_result *r)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_agreement *x = &r->output[o];
        if (x->n_no_bound > 0) {
            r->verdict = ATTN_ERROR;
            snprintf(r->text, sizeof r->text, "%lld bounds of %s are no numbers",
                     (long long)x->n_no_bound, x->name);
            return;
        }
        if (r->verdict == ATTN_PASS && x->n > 0 && x->n_unbounded == x->n) {
            r->verdict = ATTN_WEAK;
            snprintf(
                r->text, sizeof r->text,
                "nothing can be said about %s: on these scores honest rounding may do anything",
                x->name);
        }
    }
    if (r->verdict == ATTN_PASS && is_powerless(r)) {
        r->verdict = ATTN_WEAK;
        snprintf(r->text, sizeof r->text, "an output of zeros would have passed as well");
    }
}

static void judge_output(const struct attn_agreement *x, enum attn_failure failure,
                         struct attn_result *r)
{
    int64_t bad = failure == ATTN_F_FINITE ? x->n_not_finite : x->n_bad;
    if (x->n == 0 || bad == 0)
        return;
    attn_result_fail(
        r, failure, "%s[%lld,%lld,%lld,%lld] = %.9g, want %.9g +- %.3g; %lld of %lld elements %s",
        x->name, (long long)x->at[0], (long long)x->at[1], (long long)x->at[2], (long long)x->at[3],
        x->got, x->want, x->bound, (long long)bad, (long long)x->n,
        failure == ATTN_F_FINITE ? "are not finite where they should be, or the reverse"
                                 : "are beyond their bound");
}

/* Grade what has passed, and look for bias in it. */
static void judge_together(const struct attn_setup *s, const struct attn_inputs *in,
                           struct attn_result *r)
{
    struct attn_error err = {0};
    struct attn_cview got[ATTN_OUTPUTS];
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        got[o] = attn_tensor_cview(&s->tensor[ATTN_T_O + o]);
    enum attn_status status =
        attn_grade_outputs(&s->problem, in, &r->precision, got, s->given.fill, &r->grade, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    int leans = r->precision.leans > (s->given.fill == ATTN_FILL_TIES ? 0 : 1);
    int ok = fabs(r->grade.bias) <= ATTN_BIAS_LIMIT || leans;
    if (!ok)
        attn_result_fail(
            r, ATTN_F_BIAS,
            "the errors of o lean to one side: their mean over %lld rows is %.3g deviations from "
            "0, and %g would be too many",
            (long long)r->grade.rows, r->grade.bias, ATTN_BIAS_LIMIT);
}

/* in->kept is there. */
static void judge_by(const struct attn_setup *s, const struct attn_inputs *in,
                     const struct attn_sample *sample, struct attn_result *r)
{
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    struct attn_problem problem = s->problem;
    if (s->subsets != NULL)
        attn_subsets_judged(s->subsets, &problem.d_key, &problem.d_value);
    struct attn_kept_truth *kept =
        attn_kept_truth(&problem, in, &r->precision, sample, &status, &err);
    if (kept == NULL) {
        attn_result_error(r, status, err.text);
        return;
    }
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        if (kept->truth.tensor[o].want == NULL)
            continue;
        struct attn_cview got = attn_tensor_cview(&s->tensor[ATTN_T_O + o]);
        attn_agree(&got, &kept->truth.tensor[o], r->precision.u, &r->output[o]);
        if (r->output[o].ratio > r->worst)
            r->worst = r->output[o].ratio;
    }
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        judge_output(&r->output[o], ATTN_F_FINITE, r);
    if (s->given.fill == ATTN_FILL_REVEAL || s->given.fill == ATTN_FILL_SELECT ||
        s->given.fill == ATTN_FILL_SUBSETS)
        judge_exactly(s, &kept->truth, r);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        judge_output(&r->output[o], ATTN_F_BOUND, r);
    weigh_power(r);
    if (r->verdict != ATTN_PASS || sample != NULL)
        return;
    if (!s->unweighed && !kept->is_weighed && in->keys == NULL &&
        attn_mask_power_weigh(&s->problem, in, &kept->truth, &kept->power, &err) != ATTN_OK) {
        attn_result_error(r, ATTN_ENOMEM, err.text);
        return;
    }
    kept->is_weighed = !s->unweighed;
    r->mask = kept->power;
    judge_together(s, in, r);
}

/* Of a forward pass that would take the oracle minutes, 64 rows of each head are judged, the first
 * and the last among them.  0: all rows. */
static int64_t rows_to_judge(const struct attn_setup *s, enum attn_pass pass,
                             int64_t row[ATTN_SAMPLE_MOST])
{
    enum { STREAM_ROWS = 310 };
    const struct attn_problem *p = &s->problem;
    double keys = (double)p->n_query * (double)p->n_key, most = 0x1p32;
    if (s->subsets != NULL) { /* these rows are longer work for each key */
        keys = 0;
        for (int64_t i = 0; i < p->n_query; i++)
            keys += (double)attn_subsets_count(s->subsets, 0, 0, i);
        most = 0x1p29;
    }
    double work = (double)p->batch * (double)p->heads * keys * (double)(p->d_key + p->d_value);
    return pass == ATTN_BACKWARD || work <= most
               ? 0
               : attn_sample_choose(p->n_query, ATTN_SAMPLE_MOST, s->given.seed, STREAM_ROWS, row);
}

void attn_judge(const struct attn_setup *s, const struct attn_precision *precision,
                const struct attn_sample *sample, enum attn_pass pass, struct attn_result *r)
{
    struct attn_inputs in = attn_setup_inputs(s, pass);
    struct attn_kept own;
    int64_t row[ATTN_SAMPLE_MOST];
    const struct attn_sample some = {rows_to_judge(s, pass, row), 0, row, NULL};
    r->precision = *precision;
    r->dtype = s->problem.dtype;
    if (sample == NULL && some.n_rows > 0)
        sample = &some;
    if (in.kept != NULL && sample == NULL) {
        judge_by(s, &in, NULL, r);
        return;
    }
    attn_kept_open(&s->problem, sample == NULL && s->subsets == NULL, &own);
    in.kept = &own;
    judge_by(s, &in, sample, r);
    attn_kept_close(&own);
}

void attn_result_drop_lse(struct attn_result *r)
{
    r->output[ATTN_LSE].n = 0;
    r->worst = 0;
    int64_t n = 0, powerless = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        if (r->output[o].n == 0)
            continue;
        r->worst = r->output[o].ratio > r->worst ? r->output[o].ratio : r->worst;
        n += r->output[o].n;
        powerless += r->output[o].n_powerless;
    }
    if (r->verdict == ATTN_PASS && n > 0 && n == powerless) {
        r->verdict = ATTN_WEAK;
        snprintf(r->text, sizeof r->text, "an output of zeros would have passed as well");
    }
}
