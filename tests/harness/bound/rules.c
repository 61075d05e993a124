/* See rules.h. */
#include "tests/harness/bound/rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"

/* Both finite: a pair for the rule.  The others have been dealt with. */
static int is_pair(const struct attn_rule_data *x, int64_t n)
{
    return isfinite(x->got[n]) && isfinite(x->want[n]);
}

/* The element with the largest figure; ok says whether it agrees by itself. */
static void see(struct attn_rule_result *r, int64_t n, double figure, int ok)
{
    r->n_bad += !ok;
    if (figure > r->figure || !(figure == figure)) {
        r->figure = figure;
        r->worst = n;
    }
}

/* error / tolerance, with 0 / 0 = 0: no error needs no tolerance. */
static double share(double error, double tolerance)
{
    return error == 0 ? 0 : tolerance > 0 ? error / tolerance : (double)INFINITY;
}

/* ---- rules that judge each element ---------------------------------------------------------- */

/* parameter: rtol, atol */
static void judge_allclose(const double parameter[2], const struct attn_rule_data *x,
                           struct attn_rule_result *r)
{
    r->limit = 1;
    for (int64_t n = 0; n < x->n; n++)
        if (is_pair(x, n)) {
            double allowed = parameter[1] + parameter[0] * fabs(x->want[n]);
            double figure = share(fabs(x->got[n] - x->want[n]), allowed);
            see(r, n, figure, figure <= 1);
        }
}

static void judge_bound(const double parameter[2], const struct attn_rule_data *x,
                        struct attn_rule_result *r)
{
    r->limit = parameter[0];
    for (int64_t n = 0; n < x->n; n++)
        if (is_pair(x, n)) {
            double figure = share(fabs(x->got[n] - x->want[n]), x->bound[n]);
            see(r, n, figure, figure <= r->limit);
        }
}

/* Place on the number line of a type with p bits and least normal 2^least, counted in its
 * numbers: a straight line within each power of two. */
static double place(double x, int p, int least)
{
    int e;
    double size = fabs(x), part = frexp(size, &e); /* size = part 2^e, part in [0.5, 1) */
    double at = size < ldexp(1, least) ? ldexp(size, p - 1 - least)
                                       : ldexp(2 * part + (e - 1 - least), p - 1);
    return x < 0 ? -at : at;
}

static uint64_t place_f64(double x) /* the bits of a double are in order as they are */
{
    uint64_t bits, half = (uint64_t)1 << 63;
    memcpy(&bits, &x, sizeof bits);
    return bits >= half ? half - (bits - half) : half + bits;
}

double attn_ulps_between(double a, double b, enum attn_dtype dtype)
{
    static const struct {
        int p, least;
    } type[ATTN_DTYPES] = {[ATTN_F64] = {53, -1022},
                           [ATTN_F32] = {24, -126},
                           [ATTN_BF16] = {8, -126},
                           [ATTN_F16] = {11, -14}};
    if (dtype == ATTN_F64) { /* 2^63 places: more than a double can tell apart */
        uint64_t i = place_f64(a), j = place_f64(b);
        return (double)(i > j ? i - j : j - i);
    }
    return fabs(place(a, type[dtype].p, type[dtype].least) -
                place(b, type[dtype].p, type[dtype].least));
}

static void judge_ulp(const double parameter[2], const struct attn_rule_data *x,
                      struct attn_rule_result *r)
{
    r->limit = parameter[0];
    for (int64_t n = 0; n < x->n; n++)
        if (is_pair(x, n)) {
            double figure = attn_ulps_between(x->got[n], x->want[n], x->dtype);
            see(r, n, figure, figure <= r->limit);
        }
}

/* By value: 0 and -0 are the same number. */
static void judge_exact(const double parameter[2], const struct attn_rule_data *x,
                        struct attn_rule_result *r)
{
    double largest = 0;
    r->limit = parameter[0];
    for (int64_t n = 0; n < x->n; n++) {
        if (!is_pair(x, n) || x->got[n] == x->want[n])
            continue;
        r->n_bad++;
        if (r->worst < 0 || fabs(x->got[n] - x->want[n]) > largest) {
            largest = fabs(x->got[n] - x->want[n]);
            r->worst = n;
        }
    }
    r->figure = (double)r->n_bad;
}

/* ---- rules that judge a whole tensor -------------------------------------------------------- */

static double largest(const struct attn_rule_data *x, const double *values)
{
    double size = 0;
    for (int64_t n = 0; n < x->n; n++)
        if (is_pair(x, n) && fabs(values[n]) > size)
            size = fabs(values[n]);
    return size;
}

/* Where got and want differ most; these rules have no worst element of their own. */
static double largest_error(const struct attn_rule_data *x, int64_t *worst)
{
    double size = 0;
    for (int64_t n = 0; n < x->n; n++)
        if (is_pair(x, n) && fabs(x->got[n] - x->want[n]) > size) {
            size = fabs(x->got[n] - x->want[n]);
            *worst = n;
        }
    return size;
}

/* parameter: factor, atol.  A reference that is not finite where the truth is allows nothing. */
static void judge_fa2(const double parameter[2], const struct attn_rule_data *x,
                      struct attn_rule_result *r)
{
    double naive = 0;
    for (int64_t n = 0; n < x->n; n++)
        if (is_pair(x, n)) {
            double error = fabs(x->reference[n] - x->want[n]);
            naive = error > naive || !(error == error) ? error : naive;
            if (!isfinite(error)) {
                naive = (double)NAN;
                break;
            }
        }
    r->figure = largest_error(x, &r->worst);
    r->limit = parameter[0] * naive + parameter[1];
}

/* sum (got - want)^2 / sum want^2, everything divided by the largest value first, so that no square
 * overflows or vanishes.  0/0 is 0: ggml's own arithmetic gives NaN there, and passes. */
static void judge_nmse(const double parameter[2], const struct attn_rule_data *x,
                       struct attn_rule_result *r)
{
    double size = fmax(largest(x, x->want), largest(x, x->got)), error = 0, norm = 0;
    largest_error(x, &r->worst);
    r->limit = parameter[0];
    for (int64_t n = 0; n < x->n && size > 0; n++)
        if (is_pair(x, n)) {
            double off = x->got[n] / size - x->want[n] / size, want = x->want[n] / size;
            error += off * off;
            norm += want * want;
        }
    r->figure = share(error, norm);
}

/* 1 - cosine of the angle between the two; 0 against 0 is an angle of 0, 0 against anything else a
 * right one. */
static void judge_cosine(const double parameter[2], const struct attn_rule_data *x,
                         struct attn_rule_result *r)
{
    double a = largest(x, x->got), b = largest(x, x->want), dot = 0, got = 0, want = 0;
    largest_error(x, &r->worst);
    r->limit = 1 - parameter[0];
    if (a == 0 || b == 0) {
        r->figure = a == b ? 0 : 1;
        return;
    }
    for (int64_t n = 0; n < x->n; n++)
        if (is_pair(x, n)) {
            double g = x->got[n] / a, w = x->want[n] / b;
            dot += g * w;
            got += g * g;
            want += w * w;
        }
    r->figure = fmax(0, 1 - dot / (sqrt(got) * sqrt(want)));
}

/* ---- the table ------------------------------------------------------------------------------ */

/* The figure of rules by element is the largest error as a share of what is allowed. */
const struct attn_rule attn_rule[] = {
    {"bound", {NULL}, {1}, ATTN_RULE_BOUND, judge_bound}, /* attnlab's own: docs/bounds.md */
    /* flash-attention's test_flash_attn.py: factor 2 for O (3, 5 for some gradients) */
    {"fa2", {"factor", "atol"}, {2, 0}, ATTN_RULE_REFERENCE, judge_fa2},
    {"allclose", {"rtol", "atol"}, {(double)NAN, (double)NAN}, 0, judge_allclose},
    {"numpy", {NULL}, {1e-5, 1e-8}, 0, judge_allclose}, /* numpy.allclose by default */
    /* torch.testing.assert_close by default */
    {"torch-f64", {NULL}, {1e-7, 1e-7}, 0, judge_allclose},
    {"torch-f32", {NULL}, {1.3e-6, 1e-5}, 0, judge_allclose},
    {"torch-f16", {NULL}, {1e-3, 1e-5}, 0, judge_allclose},
    {"torch-bf16", {NULL}, {1.6e-2, 1e-5}, 0, judge_allclose},
    {"flashinfer", {NULL}, {1e-3, 1e-3}, 0, judge_allclose}, /* FlashInfer's tests for f16 */
    {"cudnn", {NULL}, {2e-2, 2e-2}, 0, judge_allclose},      /* cuDNN frontend, test/python/sdpa */
    {"nmse", {"limit"}, {5e-4}, 0, judge_nmse},      /* ggml test-backend-ops, FLASH_ATTN_EXT */
    {"cosine", {"least"}, {0.999}, 0, judge_cosine}, /* common for quantised attention */
    {"ulp", {"n"}, {4}, 0, judge_ulp},               /* libm practice */
    {"exact", {NULL}, {0}, 0, judge_exact}};

const int attn_rule_count = sizeof attn_rule / sizeof *attn_rule;

void attn_rule_judge(const struct attn_rule_choice *choice, const struct attn_rule_data *x,
                     struct attn_rule_result *r)
{
    int64_t first = -1, n_not_finite = 0;
    *r = (struct attn_rule_result){.worst = -1};
    for (int64_t n = 0; n < x->n; n++)
        if (!is_pair(x, n) && !(x->got[n] == x->want[n])) { /* a NaN equals nothing */
            first = first < 0 ? n : first;
            n_not_finite++;
        }
    choice->rule->judge(choice->parameter, x, r);
    r->n_not_finite = n_not_finite;
    r->n_bad += n_not_finite;
    if (n_not_finite > 0) {
        r->figure = (double)INFINITY;
        r->worst = first;
    }
    r->ok = r->figure <= r->limit && isfinite(r->figure);
}

/* ---- text ----------------------------------------------------------------------------------- */

static enum attn_status no_such_rule(const char *text, struct attn_error *err)
{
    char list[256] = "";
    for (int i = 0; i < attn_rule_count; i++)
        attn_append(list, sizeof list, " %s", attn_rule[i].name);
    return attn_fail(err, ATTN_EINVAL, "no rule is called '%.40s'; there are:%s", text, list);
}

/* One "value" or "name=value", of `length` bytes; index: its place. */
static enum attn_status read_parameter(const char *text, size_t length, int index,
                                       struct attn_rule_choice *choice, struct attn_error *err)
{
    const struct attn_rule *rule = choice->rule;
    char one[64], *end, *value = one;
    snprintf(one, sizeof one, "%.*s", length < 63 ? (int)length : 63, text);
    char *equals = strchr(one, '=');
    if (equals != NULL) {
        *equals = '\0';
        value = equals + 1;
        for (index = 0; index < 2; index++)
            if (rule->parameter[index] != NULL && strcmp(one, rule->parameter[index]) == 0)
                break;
    }
    if (index >= 2 || rule->parameter[index] == NULL)
        return attn_fail(err, ATTN_EINVAL, "rule %s: '%.40s' is not one of its parameters:%s%s%s%s",
                         rule->name, equals != NULL ? one : text,
                         rule->parameter[0] != NULL ? " " : " it has none",
                         rule->parameter[0] != NULL ? rule->parameter[0] : "",
                         rule->parameter[1] != NULL ? " " : "",
                         rule->parameter[1] != NULL ? rule->parameter[1] : "");
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !(number >= 0 && isfinite(number)))
        return attn_fail(err, ATTN_EINVAL, "rule %s: %s is '%.40s': a number from 0 was expected",
                         rule->name, rule->parameter[index], value);
    choice->parameter[index] = number;
    return ATTN_OK;
}

enum attn_status attn_rule_parse(const char *text, struct attn_rule_choice *choice,
                                 struct attn_error *err)
{
    size_t length = strcspn(text, "("), whole = strlen(text);
    enum attn_status status = ATTN_OK;
    choice->rule = NULL;
    for (int i = 0; i < attn_rule_count; i++)
        if (strlen(attn_rule[i].name) == length && memcmp(attn_rule[i].name, text, length) == 0)
            choice->rule = &attn_rule[i];
    if (choice->rule == NULL)
        return no_such_rule(text, err);
    memcpy(choice->parameter, choice->rule->preset, sizeof choice->parameter);
    if (length < whole && text[whole - 1] != ')')
        return attn_fail(err, ATTN_EINVAL, "rule '%.60s': its parenthesis is not closed", text);
    const char *at = text + length + 1, *end = text + whole - 1; /* between the parentheses */
    for (int index = 0; at < end && status == ATTN_OK; index++) {
        size_t n = strcspn(at, ",)");
        status = read_parameter(at, n, index, choice, err);
        at += n + 1;
    }
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        if (isnan(choice->parameter[i]))
            status = attn_fail(err, ATTN_EINVAL, "rule %s needs %s: say %s(%s=..., %s=...)",
                               choice->rule->name, choice->rule->parameter[i], choice->rule->name,
                               choice->rule->parameter[0], choice->rule->parameter[1]);
    return status;
}

const char *attn_rule_print(const struct attn_rule_choice *choice, char *text, size_t size)
{
    const struct attn_rule *rule = choice->rule;
    snprintf(text, size, "%s", rule->name);
    for (int i = 0; i < 2 && rule->parameter[i] != NULL; i++)
        attn_append(text, size, "%c%s=%g", i == 0 ? '(' : ',', rule->parameter[i],
                    choice->parameter[i]);
    if (rule->parameter[0] != NULL)
        attn_append(text, size, ")");
    return text;
}
