/* The acceptance rules: what each accepts and rejects, by small arrays whose verdict can be
 * worked out by hand; and that no rule can be passed by a NaN. */
#include "tests/suites.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/bound/rules.h"

SUITE(rules);

static const double INF = (double)INFINITY, NONE = (double)NAN;

enum { MOST = 8 };

/* Judge n pairs; reference and bound are used by the rules that need them. */
static struct attn_rule_result judge_all(const char *text, int64_t n, const double *got,
                                         const double *want, const double *reference,
                                         const double *bound, enum attn_dtype dtype)
{
    struct attn_rule_choice choice;
    struct attn_error err = {0};
    struct attn_rule_result r;
    struct attn_rule_data data = {n, got, want, reference, bound, dtype};
    ck_assert_msg(attn_rule_parse(text, &choice, &err) == ATTN_OK, "%s: %s", text, err.text);
    attn_rule_judge(&choice, &data, &r);
    return r;
}

static struct attn_rule_result judge(const char *text, int64_t n, const double *got,
                                     const double *want)
{
    static const double small[MOST] = {1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6};
    double reference[MOST]; /* a naive run that is off by 1e-6 */
    for (int64_t i = 0; i < n; i++)
        reference[i] = want[i] + 1e-6;
    return judge_all(text, n, got, want, reference, small, ATTN_F64);
}

static struct attn_rule_result one(const char *text, double got, double want)
{
    return judge(text, 1, &got, &want);
}

static void is(int ok, const char *text, double got, double want)
{
    struct attn_rule_result r = one(text, got, want);
    ck_assert_msg(r.ok == ok, "%s: got %a, want %a: figure %g, limit %g", text, got, want, r.figure,
                  r.limit);
}

/* "allclose" has no default: the name as a test can use it. */
static const char *callable(int index)
{
    const char *name = attn_rule[index].name;
    return strcmp(name, "allclose") == 0 ? "allclose(1e-3,1e-3)" : name;
}

/* ---- what holds for every rule -------------------------------------------------------------- */

TEST_EACH(every_rule_accepts_equality, attn_rule_count)
{
    const char *text = callable(_i);
    static const double values[] = {0,       -0.0,     1,         -3.5,      0x1p-1074, -0x1p-149,
                                    DBL_MAX, -DBL_MAX, 0x1p-1022, 1.0 / 3.0, 6e-320,    1e300};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        is(1, text, values[v], values[v]);
    is(1, text, -0.0, 0);
    is(1, text, INF, INF);
    is(1, text, -INF, -INF);
    struct attn_rule_result r = judge(text, 0, values, values);
    ck_assert_msg(r.ok && r.worst == -1 && r.n_bad == 0, "%s: an empty tensor", text);
}

TEST_EACH(no_rule_is_blind_to_what_is_not_finite, attn_rule_count)
{
    const char *text = callable(_i);
    static const double finite[] = {0, 1, -DBL_MAX, 0x1p-1074};
    for (size_t f = 0; f < 4; f++) {
        double x = finite[f];
        is(0, text, NONE, x);
        is(0, text, x, NONE);
        is(0, text, INF, x);
        is(0, text, x, INF);
        is(0, text, -INF, x);
    }
    is(0, text, NONE, NONE);
    is(0, text, NONE, INF);
    is(0, text, INF, -INF);
    /* one NaN in the middle of perfection, with its index */
    const double want[6] = {1, 2, 3, -INF, 5, 6}, got[6] = {1, 2, 3, -INF, NONE, 6};
    struct attn_rule_result r = judge(text, 6, got, want);
    ck_assert_msg(!r.ok && r.n_not_finite == 1 && r.n_bad == 1 && r.worst == 4 && r.figure == INF,
                  "%s: %d, %lld, %lld, %lld, %g", text, r.ok, (long long)r.n_not_finite,
                  (long long)r.n_bad, (long long)r.worst, r.figure);
}

/* Opposite giants: differences and squares overflow, and no rule may be fooled by inf <= inf. */
TEST_EACH(extremes, attn_rule_count)
{
    const char *text = callable(_i);
    is(0, text, DBL_MAX, -DBL_MAX);
    is(0, text, 1e200, -1e200);
    is(0, text, 1, -1);
    if (strcmp(text, "nmse") != 0 && strcmp(text, "cosine") != 0 && strcmp(text, "ulp") != 0)
        is(0, text, DBL_MAX, DBL_MAX / 2); /* the ratio is judged by those that know no other */
    /* the same value everywhere, and one that is half of it */
    double got[MOST], want[MOST];
    for (int64_t n = 0; n < MOST; n++)
        got[n] = want[n] = 1e308;
    ck_assert_msg(judge(text, MOST, got, want).ok, "%s: equal giants", text);
    got[5] = -1e308;
    struct attn_rule_result r = judge(text, MOST, got, want);
    ck_assert_msg(!r.ok && r.worst == 5, "%s: %d, worst %lld", text, r.ok, (long long)r.worst);
}

TEST_EACH(worst_element, attn_rule_count)
{
    const char *text = callable(_i);
    const double want[5] = {1, 1, 1, 1, 1}, got[5] = {1, 1.5, -4, 0.5, 1};
    struct attn_rule_result r = judge(text, 5, got, want);
    ck_assert_msg(!r.ok && r.worst == 2, "%s: worst is %lld", text, (long long)r.worst);
}

/* ---- each by itself ------------------------------------------------------------------------- */

TEST(allclose)
{
    is(1, "allclose(0,0.5)", 1.5, 1);
    is(0, "allclose(0,0.5)", nextafter(1.5, 2), 1);
    is(1, "allclose(0.5,0)", 3, 2);
    is(0, "allclose(0.5,0)", nextafter(3, 4), 2);
    is(1, "allclose(0.5,0)", 2, 4);         /* relative to want, */
    is(0, "allclose(0.5,0)", 4, 2);         /* not to got        */
    is(1, "allclose(0.25,0.5)", 3, 2);      /* they add up */
    is(0, "allclose(0.5,0)", 0x1p-1074, 0); /* a reference of 0 has only atol */
    is(1, "allclose(0.5,1e-300)", 0x1p-1074, 0);
    is(1, "numpy", 1.000009, 1);
    is(0, "numpy", 1.00002, 1);
    is(0, "numpy", 1e-5, 0);
    is(1, "torch-f32", 1e-5, 0);
    is(1, "torch-f32", 1000.0012, 1000);
    is(0, "torch-f32", 1000.0014, 1000);
    is(1, "torch-bf16", 101.5, 100);
    is(0, "torch-bf16", 101.7, 100);
    is(1, "torch-f16", 1.001, 1);
    is(0, "torch-f64", 1.000001, 1);
    const double want[4] = {1, 2, 3, 4}, got[4] = {1, 2.2, 3, 4.1};
    struct attn_rule_result r = judge("allclose(0,0.05)", 4, got, want);
    ck_assert_int_eq(r.n_bad, 2);
    ck_assert_int_eq(r.worst, 1);
    ck_assert(fabs(r.figure - 4) < 1e-9);
}

TEST(twice_a_naive_run)
{
    const double want[3] = {1, 0, 100}, naive[3] = {1, 0.25, 100}, got[3] = {1.5, 0, 100};
    struct attn_rule_result r = judge_all("fa2", 3, got, want, naive, NULL, ATTN_F32);
    ck_assert(r.ok && r.figure == 0.5 && r.limit == 0.5 && r.worst == 0);
    ck_assert(!judge_all("fa2(1.9)", 3, got, want, naive, NULL, ATTN_F32).ok);
    ck_assert(judge_all("fa2(1,0.25)", 3, got, want, naive, NULL, ATTN_F32).ok);
    ck_assert(judge_all("fa2(atol=0.3,factor=1)", 3, got, want, naive, NULL, ATTN_F32).ok);
    /* a naive run without error allows none: the rule's known false alarm */
    ck_assert(!judge_all("fa2", 3, got, want, want, NULL, ATTN_F32).ok);
    ck_assert(judge_all("fa2", 3, want, want, want, NULL, ATTN_F32).ok);
    const double broken[3] = {1, NONE, 100}, infinite[3] = {1, INF, 100};
    ck_assert(!judge_all("fa2", 3, want, want, broken, NULL, ATTN_F32).ok);
    ck_assert(!judge_all("fa2", 3, got, want, infinite, NULL, ATTN_F32).ok);
    /* where the truth is infinite, the reference may be anything */
    const double empty[3] = {1, -INF, 2}, odd[3] = {1.5, NONE, 2};
    ck_assert(judge_all("fa2", 3, empty, empty, odd, NULL, ATTN_F32).ok);
}

TEST(nmse)
{
    const double want[4] = {3, 4, 0, 0}, got[4] = {3, 4, 0.1, 0};
    struct attn_rule_result r = judge("nmse", 4, got, want);
    ck_assert(r.ok && fabs(r.figure - 0.01 / 25) < 1e-15 && r.limit == 5e-4);
    ck_assert(!judge("nmse(3e-4)", 4, got, want).ok);
    is(0, "nmse", 1e-30, 0);          /* anything against zeros */
    double tiny_want[4], tiny_got[4]; /* scale does not matter: no square may vanish or overflow */
    for (int e = -1060; e <= 1020; e += 80) {
        for (int n = 0; n < 4; n++) {
            tiny_want[n] = ldexp(want[n], e);
            tiny_got[n] = ldexp(n == 2 ? 4 : got[n], e); /* 0.1 has no subnormal */
        }
        r = judge("nmse", 4, tiny_got, tiny_want);
        ck_assert_msg(!r.ok && fabs(r.figure - 16.0 / 25) < 1e-12, "2^%d: %g", e, r.figure);
    }
}

TEST(cosine)
{
    const double want[2] = {1, 0}, near_it[2] = {1, 0.04}, off[2] = {1, 0.05}, twice[2] = {2, 0},
                 zero[2] = {0, 0};
    ck_assert(judge("cosine", 2, near_it, want).ok); /* 1/sqrt(1.0016) = 0.9992 */
    ck_assert(!judge("cosine", 2, off, want).ok);    /* 0.99875 */
    ck_assert(judge("cosine", 2, twice, want).ok);   /* blind to scale: that is this rule */
    ck_assert(!judge("cosine", 2, zero, want).ok);
    ck_assert(!judge("cosine", 2, want, zero).ok);
    ck_assert(judge("cosine", 2, zero, zero).ok);
    ck_assert(judge("cosine(0.998)", 2, off, want).ok);
}

static double ulps(double a, double b, enum attn_dtype dtype)
{
    double there = attn_ulps_between(a, b, dtype), back = attn_ulps_between(b, a, dtype);
    ck_assert(there == back);
    return there;
}

TEST(numbers_between)
{
    ck_assert(ulps(1, nextafter(1, 2), ATTN_F64) == 1);
    ck_assert(ulps(1, nextafter(1, 0), ATTN_F64) == 1);
    ck_assert(ulps(-0x1p-1074, 0x1p-1074, ATTN_F64) == 2); /* through zero, which is one number */
    ck_assert(ulps(0, -0.0, ATTN_F64) == 0);
    ck_assert(ulps(1, 2, ATTN_F64) == 0x1p52);
    ck_assert(ulps(-DBL_MAX, DBL_MAX, ATTN_F64) > 1.8e19);
    ck_assert(ulps(1, 1 + 0x1p-23, ATTN_F32) == 1);
    ck_assert(ulps(1, 1 - 0x1p-24, ATTN_F32) == 1);
    ck_assert(ulps(0x1p-126, 0x1p-126 - 0x1p-149, ATTN_F32) == 1); /* into the subnormals */
    ck_assert(ulps(0, 0x1p-149, ATTN_F32) == 1);
    ck_assert(ulps((double)-FLT_MIN, (double)FLT_MIN, ATTN_F32) == 0x1p24);
    ck_assert(ulps(1, 1 + 0x1p-7, ATTN_BF16) == 1);
    ck_assert(ulps(1, 1 + 0x1p-10, ATTN_F16) == 1);
    ck_assert(ulps(0, 0x1p-24, ATTN_F16) == 1);
    ck_assert(ulps(1, 1 + 0x1p-24, ATTN_F32) == 0.5); /* between two numbers */
    is(1, "ulp(1)", nextafter(1, 2), 1);
    is(0, "ulp(1)", nextafter(nextafter(1, 2), 2), 1);
    const double got = 1 + 0x1p-21, want = 1;
    ck_assert(judge_all("ulp", 1, &got, &want, NULL, NULL, ATTN_F32).ok);
    ck_assert(!judge_all("ulp(3)", 1, &got, &want, NULL, NULL, ATTN_F32).ok);
}

TEST(exact_and_bound)
{
    is(0, "exact", nextafter(1, 2), 1);
    is(0, "exact", 0x1p-1074, 0);
    const double want[4] = {1, 2, 3, 4}, got[4] = {1, 2.5, 3, 3};
    struct attn_rule_result r = judge("exact", 4, got, want);
    ck_assert(!r.ok && r.n_bad == 2 && r.figure == 2 && r.worst == 3);
    const double bound[4] = {0, 0.5, 0, 1}, tight[4] = {0, 0.5, 0, 0.99},
                 broken[4] = {0, NONE, 0, 1};
    r = judge_all("bound", 4, got, want, NULL, bound, ATTN_F32);
    ck_assert(r.ok && r.figure == 1);
    r = judge_all("bound", 4, got, want, NULL, tight, ATTN_F32);
    ck_assert(!r.ok && r.n_bad == 1 && r.worst == 3);
    ck_assert(!judge_all("bound", 4, got, want, NULL, broken, ATTN_F32).ok);
    const double moved[4] = {1, 2, nextafter(3, 4), 4}; /* a bound of 0 is met by equality alone */
    ck_assert(!judge_all("bound", 4, moved, want, NULL, bound, ATTN_F32).ok);
}
