/* The judge is judged: what attn_agree lets pass and what not, and the bound that it is given. */
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "tests/harness/bound/row_bound.h"
#include "tests/harness/judge/runner.h"

SUITE(agree);

static const double INF = (double)INFINITY, NONE = (double)NAN;

/* ---- one element ---------------------------------------------------------------------------- */

static struct attn_agreement agree_one(double got, double want, double bound)
{
    double gauge = 1;
    struct attn_cview view = {&got, ATTN_F64, {1, 1, 1, 1}};
    struct attn_truth_tensor truth = {
        .name = "x", .extent = {1, 1, 1, 1}, .want = &want, .bound = &bound, .gauge = &gauge};
    struct attn_agreement x;
    attn_agree(&view, &truth, 0x1p-53, &x);
    ck_assert_int_eq(x.n, 1);
    ck_assert_str_eq(x.name, "x");
    return x;
}

static void passes(double got, double want, double bound)
{
    struct attn_agreement x = agree_one(got, want, bound);
    ck_assert_msg(x.n_bad == 0 && x.ratio <= 1 && x.n_not_finite == 0, "%a, want %a +- %a: %g", got,
                  want, bound, x.ratio);
}

static void fails(double got, double want, double bound, int not_finite)
{
    struct attn_agreement x = agree_one(got, want, bound);
    ck_assert_msg(x.n_bad == 1 && !(x.ratio <= 1), "%a, want %a +- %a passed", got, want, bound);
    ck_assert_int_eq(x.n_not_finite, not_finite);
}

TEST(finite_elements)
{
    passes(1, 1, 0);
    passes(0, 0, 0);
    passes(-0.0, 0, 0); /* no claim covers the sign of zero */
    passes(1 + 0x1p-20, 1, 0x1p-20);
    passes(1 - 0x1p-20, 1, 0x1p-20);
    fails(1 + 0x1p-20 + 0x1p-52, 1, 0x1p-20, 0); /* one ulp beyond the bound */
    fails(1 - 0x1p-20 - 0x1p-53, 1, 0x1p-20, 0);
    fails(nextafter(1, 2), 1, 0, 0);
    fails(0x1p-1074, 0, 0, 0);
    passes(0x1p-1074, 0, 0x1p-1074); /* subnormals are numbers */
    passes(3 * 0x1p-149, 2 * 0x1p-149, 0x1p-149);
    fails(4 * 0x1p-149, 2 * 0x1p-149, 0x1p-149, 0);
    fails(2 * 0x1p-1074, 0, 0x1p-1074, 0);
    fails(1, -1, 1, 0);
    fails(DBL_MAX, -DBL_MAX, 1, 0); /* the difference overflows */
    fails(1, 2, -1, 0);             /* a bound below 0 bounds nothing */
    fails(1, 2, NONE, 0);
    passes(1e308, 1e300, INF); /* nothing is claimed */
}

TEST(infinities_and_nans)
{
    passes(INF, INF, 0);
    passes(-INF, -INF, 0);
    passes(-INF, -INF, INF);
    fails(INF, -INF, 1, 1);
    fails(-INF, INF, INF, 1);
    fails(INF, 1, INF, 1);
    fails(-INF, -DBL_MAX, INF, 1);
    fails(DBL_MAX, INF, INF, 1);
    fails(0, -INF, 1, 1);
    fails(NONE, 1, INF, 1);
    fails(NONE, 0, 0, 1);
    fails(1, NONE, INF, 1);    /* a NaN of the oracle is met by nothing, */
    fails(NONE, NONE, INF, 1); /* not by another one either */
    fails(NONE, INF, 1, 1);
    fails(INF, NONE, INF, 1);
    fails(NONE, -INF, 1, 1);
}

TEST(powerless_elements)
{
    ck_assert_int_eq(agree_one(0.5, 0.5, 0.5).n_powerless, 1); /* 0 would have passed */
    ck_assert_int_eq(agree_one(-0.5, -0.5, 0.6).n_powerless, 1);
    ck_assert_int_eq(agree_one(0.5, 0.5, 0.4).n_powerless, 0);
    ck_assert_int_eq(agree_one(0, 0, 0).n_powerless, 0); /* exactly 0 is a claim */
    ck_assert_int_eq(agree_one(-INF, -INF, 1).n_powerless, 0);
    ck_assert(agree_one(1 + 0x1p-50, 1, 1).gauge == 8);
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* want = 1, 2, 3 ... in [2,3,5,4], got the same in another layout. */
enum { B = 2, H = 3, L = 5, D = 4, N = B * H * L * D };
struct sheet {
    double want[N], bound[N], gauge[N];
    float got[N];
    struct attn_cview view;
    struct attn_truth_tensor truth;
};

static float *element(struct sheet *x, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const int64_t *s = x->view.stride;
    return &x->got[b * s[0] + h * s[1] + i * s[2] + c * s[3]];
}

static void open_sheet(struct sheet *x)
{
    x->view = (struct attn_cview){x->got, ATTN_F32, {1, 2, 24, 6}};
    x->truth = (struct attn_truth_tensor){.name = "sheet",
                                          .extent = {B, H, L, D},
                                          .want = x->want,
                                          .bound = x->bound,
                                          .gauge = x->gauge,
                                          .storage = ATTN_F32,
                                          .stored = ATTN_F32};
    for (int n = 0; n < N; n++) {
        x->want[n] = n + 1;
        x->bound[n] = 0x1p-10;
        x->gauge[n] = 1;
        *element(x, n / (H * L * D), n / (L * D) % H, n / D % L, n % D) = (float)(n + 1);
    }
}

TEST(worst_element_is_named)
{
    struct sheet x;
    struct attn_agreement a;
    open_sheet(&x);
    attn_agree(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert(a.n == N && a.n_bad == 0 && a.ratio == 0);
    *element(&x, 0, 2, 1, 3) += 0x1p-9f;
    *element(&x, 1, 0, 4, 2) += 0x1p-7f;
    *element(&x, 1, 2, 3, 0) += 0x1p-8f;
    *element(&x, 1, 2, 3, 1) += 0x1p-11f; /* within */
    attn_agree(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert_int_eq(a.n_bad, 3);
    ck_assert(a.ratio == 8);
    ck_assert(a.at[0] == 1 && a.at[1] == 0 && a.at[2] == 4 && a.at[3] == 2);
    ck_assert(a.want == 79 && a.got == 79 + 0x1p-7 && a.bound == 0x1p-10);
    *element(&x, 0, 0, 2, 1) = NAN; /* worse than any error, and the first of its kind stays */
    *element(&x, 1, 1, 1, 1) = INFINITY;
    attn_agree(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert(a.n_bad == 5 && a.n_not_finite == 2 && a.ratio == INF);
    ck_assert(a.at[0] == 0 && a.at[1] == 0 && a.at[2] == 2 && a.at[3] == 1);
    ck_assert(isnan(a.got) && a.want == 10);
}

/* Where the truth may round beyond the largest number of its type, an infinity of its sign is
 * right, and none of the other sign. */
TEST(overflow_has_a_sign)
{
    struct sheet x;
    struct attn_agreement a;
    open_sheet(&x);
    x.want[0] = -(double)FLT_MAX, x.bound[0] = 0x1p120;
    for (int wrong = 0; wrong < 2; wrong++) {
        *element(&x, 0, 0, 0, 0) = wrong ? INFINITY : -INFINITY;
        attn_agree(&x.view, &x.truth, 0x1p-24, &a);
        ck_assert_int_eq(a.n_bad, wrong);
    }
}

/* Every single element is looked at, and found where it is. */
TEST_EACH(every_element_counts, 2)
{
    struct sheet x;
    struct attn_agreement a;
    for (int n = 0; n < N; n++) {
        open_sheet(&x);
        *element(&x, n / (H * L * D), n / (L * D) % H, n / D % L, n % D) = _i ? NAN : 0;
        attn_agree(&x.view, &x.truth, 0x1p-24, &a);
        ck_assert_int_eq(a.n_bad, 1);
        ck_assert_int_eq(((a.at[0] * H + a.at[1]) * L + a.at[2]) * D + a.at[3], n);
        attn_agree_exactly(&x.view, &x.truth, 0x1p-24, &a);
        ck_assert_int_eq(a.n_bad, 1);
        ck_assert_int_eq(((a.at[0] * H + a.at[1]) * L + a.at[2]) * D + a.at[3], n);
    }
}

/* want holds rows 1 and 4 only; errors elsewhere do not count here. */
TEST(sampled_rows)
{
    static const int64_t row[] = {1, 4};
    struct sheet x;
    struct attn_agreement a;
    open_sheet(&x);
    for (int n = 0; n < B * H * 2 * D; n++)
        x.want[n] = (double)*element(&x, n / (H * 2 * D), n / (2 * D) % H, row[n / D % 2], n % D);
    x.truth.extent[2] = 2;
    x.truth.sample = row;
    *element(&x, 1, 1, 0, 0) = NAN;
    *element(&x, 0, 0, 3, 2) = NAN;
    attn_agree(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert(a.n == B * H * 2 * D && a.n_bad == 0);
    *element(&x, 1, 2, 4, 3) += 1;
    attn_agree(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert(a.n_bad == 1 && a.at[0] == 1 && a.at[1] == 2 && a.at[2] == 4 && a.at[3] == 3);
    attn_agree_exactly(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert(a.n == B * H * 2 * D && a.n_bad == 1 && a.at[2] == 4);
    for (int line = 0; line < ATTN_MARKS; line++) { /* row 4 is the second of the sample */
        ck_assert_uint_eq(a.marks.of_head[line], line == H + 2 ? 1u << 1 : 0);
        ck_assert_uint_eq(a.marks.of_row[line], line == 1 ? 1u << 3 : 0);
    }
    ck_assert_int_eq(a.marks.first, H + 2);
}

TEST(exactly)
{
    struct sheet x;
    struct attn_agreement a;
    open_sheet(&x);
    x.want[7] = 8 + 0x1p-40; /* rounds to the stored 8 */
    x.want[9] = -0.0, *element(&x, 0, 0, 2, 1) = 0;
    x.want[11] = -INF, *element(&x, 0, 0, 2, 3) = -INFINITY;
    attn_agree_exactly(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert(a.n == N && a.n_bad == 0 && a.ratio == 0);
    x.bound[0] = INF; /* a bound does not help */
    *element(&x, 0, 0, 0, 0) = nextafterf(1, 2);
    attn_agree_exactly(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert(a.n_bad == 1 && a.ratio == INF && a.n_not_finite == 0);
    x.want[3] = NONE, *element(&x, 0, 0, 0, 3) = NAN;
    *element(&x, 0, 0, 2, 3) = INFINITY;
    attn_agree_exactly(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert_int_eq(a.n_bad, 3);
    *element(&x, 1, 0, 0, 0) = INFINITY; /* of 61, which that arithmetic may not have */
    attn_agree_exactly(&x.view, &x.truth, 1.0 / 60, &a);
    ck_assert(a.n_bad == 3 && a.n_not_finite == 0);
    attn_agree_exactly(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert(a.n_bad == 4 && a.n_not_finite == 1);
    x.truth.storage = x.truth.stored = ATTN_F64; /* in f64 nothing is rounded away */
    double eight = 8;
    x.view = (struct attn_cview){&eight, ATTN_F64, {0, 0, 0, 0}};
    x.truth.extent[0] = x.truth.extent[1] = x.truth.extent[2] = x.truth.extent[3] = 1;
    x.truth.want = &x.want[7];
    attn_agree_exactly(&x.view, &x.truth, 0x1p-24, &a);
    ck_assert_int_eq(a.n_bad, 1);
}

/* One bad element among ten million zeros is found (TV-06): pages that were never written cost next
 * to nothing. */
TEST(one_in_ten_million)
{
    enum { ROWS = 100000, WIDTH = 100 };
    const int64_t n = (int64_t)ROWS * WIDTH, at = n - 3333333;
    float *got = calloc((size_t)n, sizeof *got);
    double *zero = calloc((size_t)n, sizeof *zero);
    ck_assert(got != NULL && zero != NULL);
    struct attn_cview view = {got, ATTN_F32, {n, n, WIDTH, 1}};
    struct attn_truth_tensor truth = {
        .name = "large", .extent = {1, 1, ROWS, WIDTH}, .want = zero, .bound = zero, .gauge = zero};
    struct attn_agreement a;
    got[at] = 1e-30F;
    attn_agree(&view, &truth, 0x1p-24, &a);
    ck_assert_int_eq(a.n, n);
    ck_assert_int_eq(a.n_bad, 1);
    ck_assert_int_eq(a.at[2] * WIDTH + a.at[3], at);
    free(got);
    free(zero);
}

/* ---- the bound ------------------------------------------------------------------------------ */

TEST(gamma_n)
{
    ck_assert(attn_gamma(0, 0x1p-24) == 0);
    ck_assert(attn_gamma(1, 0x1p-2) == 1.0 / 3);
    ck_assert(attn_gamma(100, 0x1p-24) > 100 * 0x1p-24);
    ck_assert(attn_gamma(100, 0x1p-24) < 100.001 * 0x1p-24);
    ck_assert(attn_gamma(0x1p24, 0x1p-24) == INF); /* after 2^24 roundings nothing is promised */
    ck_assert(attn_gamma(0x1p25, 0x1p-24) == INF);
    for (double n = 1; n < 1e7; n *= 1.5)
        ck_assert(attn_gamma(n, 0x1p-24) < attn_gamma(n * 1.5, 0x1p-24));
}

static int64_t elements(const struct attn_truth_tensor *t)
{
    return t->want == NULL ? 0 : t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
}

/* The largest bound of an output. */
static double largest_bound(const char *text, const char *spec, enum attn_output output)
{
    struct attn_truth truth = truth_of_case(text, spec, NULL);
    double most = 0;
    for (int64_t n = 0; n < elements(&truth.tensor[output]); n++)
        most = fmax(most, truth.tensor[output].bound[n]);
    attn_truth_free(&truth);
    return most;
}

/* The gradients of a sample of keys come from the rows that see one of them, and are those of the
 * whole, to the bit; so are their bounds. */
TEST_EACH(a_sample_is_of_the_whole, 4)
{
    static const char *const text[] = {
        "b2h4g2q70k70d8:causal(br)&window(3,0,br):f32:normal:s1:pass=bwd:dlse=1",
        "b1h2q70k70d8:causal(br):f32:normal:s2:pass=bwd",
        "b1h2q70k70d8:random(0.1,1):f32:normal:s3:pass=bwd",
        "b1h2q70k70d8:window(3,3,br):f32:normal:s4:pass=bwd:bias=full:dbias=1"};
    static const int64_t rows[] = {0, 17, 69}, keys[] = {2, 40, 41, 69};
    static const struct attn_sample sample = {3, 4, rows, keys};
    struct attn_truth whole = truth_of_case(text[_i], "tiled-textbook", NULL);
    struct attn_truth part = truth_of_case(text[_i], "tiled-textbook", &sample);
    for (int o = ATTN_DK; o <= ATTN_DV; o++) {
        const struct attn_truth_tensor *w = &whole.tensor[o], *p = &part.tensor[o];
        const int64_t d = w->extent[3];
        ck_assert_int_eq(p->extent[2], 4);
        for (int64_t own = 0; own < elements(p); own++) {
            int64_t row = own / d, at = (row / 4 * w->extent[2] + keys[row % 4]) * d + own % d;
            ck_assert(p->want[own] == w->want[at]);
            ck_assert(p->bound[own] == w->bound[at]);
        }
    }
    attn_truth_free(&whole);
    attn_truth_free(&part);
}

/* Rows that see no key, and the gradients of keys that no row sees: exactly 0, or -inf, with a
 * bound of 0. */
TEST_EACH(bounds_of_what_is_not_seen, 2)
{
    static const struct {
        const char *text, *spec;
        int output[2], row[2]; /* from, to */
    } unseen[] = {{"b2h2q20k10d4:causal(br):f32:normal:s1:pass=bwd:poison=nan",
                   "ring:ranks=2",
                   {ATTN_O, ATTN_DQ},
                   {0, 9}},
                  {"h2q6k9d4:prefix(5):f64:normal:s1:pass=bwd:poison=nan",
                   "dense",
                   {ATTN_DK, ATTN_DV},
                   {5, 8}}};
    struct attn_truth truth = truth_of_case(unseen[_i].text, unseen[_i].spec, NULL);
    for (int o = unseen[_i].output[0]; o <= unseen[_i].output[1]; o++) {
        const struct attn_truth_tensor *t = &truth.tensor[o];
        for (int64_t n = 0; n < elements(t); n++) {
            int64_t row = n / t->extent[3] % t->extent[2];
            int is_unseen = row >= unseen[_i].row[0] && row <= unseen[_i].row[1];
            ck_assert_int_eq(t->bound[n] == 0, is_unseen);
            ck_assert(!is_unseen || t->want[n] == (o == ATTN_LSE ? -INF : 0));
        }
    }
    attn_truth_free(&truth);
}

/* Scores a hundred times as large have bounds that are larger, for LSE and weights alike; more
 * merges and more rescales may err more, never less. */
TEST(bounds_grow)
{
    static const char *const text[] = {"h2q9k40d8:none:f32:normal:s1:scale=0.3:pass=bwd",
                                       "h2q9k40d8:none:f32:offset-120:s1:pass=bwd",
                                       "h2q9k40d8:none:f32:offset-32k:s1:pass=bwd",
                                       "h2q9k40d8:none:f32:offset-3e5:s1:pass=bwd"};
    static const struct {
        const char *text, *less, *more;
    } by[] = {{"h4q16k40d8:none:f32:normal:s1:pass=bwd", "dense", "tiled-textbook:bc=1"},
              {"h4q16k40d8:none:f32:offset-3e5:s1:pass=bwd", "ring:ranks=1", "ring:ranks=4"}};
    double last = 0;
    for (size_t n = 0; n < 4; n++) {
        double lse = largest_bound(text[n], "dense", ATTN_LSE);
        ck_assert_msg(lse > 3 * last, "%s: %g after %g", text[n], lse, last);
        last = lse;
    }
    for (size_t n = 0; n < 2; n++) {
        double less = largest_bound(by[n].text, by[n].less, ATTN_O);
        double more = largest_bound(by[n].text, by[n].more, ATTN_O);
        ck_assert_msg(more > 1.2 * less, "%s: %g, %s: %g", by[n].less, less, by[n].more, more);
    }
}

/* The threads of a truth change none of its bits: whole and of a sample. */
TEST_EACH(same_bits_for_any_number_of_threads, 4)
{
    static const char *const text[] = {
        "b2h4g2q200k150d24v40:causal(br):f32:normal:s7:pass=bwd",
        "b1h6g3q260k260d8:window(40,3,br):f64:stairs-up:s8:pass=bwd:softcap=20",
        "b3h2q200d16:random(0.3,5):bf16:spike:s9:pass=bwd:dlse=1",
        "b1h3g3q300d16:causal(br):f32:normal:s1:pass=bwd:bias=row:dbias=1"};
    static const int64_t index[] = {0, 3, 77, 149};
    const struct attn_sample sample = {4, 4, index, index};
    for (int sampled = 0; sampled < 2; sampled++) {
        struct attn_truth truth[2];
        for (int many = 0; many < 2; many++) {
            omp_set_num_threads(many ? 3 : 1);
            truth[many] = truth_of_case(text[_i], "tiled", sampled ? &sample : NULL);
        }
        for (int o = 0; o < ATTN_OUTPUTS; o++) {
            const struct attn_truth_tensor *a = &truth[0].tensor[o], *b = &truth[1].tensor[o];
            size_t n = (size_t)elements(a);
            ck_assert_int_eq(n, elements(b));
            int same = n == 0 || (memcmp(a->want, b->want, n * sizeof *a->want) == 0 &&
                                  memcmp(a->bound, b->bound, n * sizeof *a->bound) == 0 &&
                                  memcmp(a->gauge, b->gauge, n * sizeof *a->gauge) == 0 &&
                                  memcmp(a->right, b->right, n) == 0);
            ck_assert_msg(same, "%s: %s", text[_i], attn_output_name((enum attn_output)o));
        }
        attn_truth_free(&truth[0]);
        attn_truth_free(&truth[1]);
    }
}
