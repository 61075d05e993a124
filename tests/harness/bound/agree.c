/* See agree.h. */
#include "tests/harness/bound/agree.h"

#include <math.h>
#include <string.h>

#include "ref/half.h"
#include "ref/oracle/oracle.h"
#include "ref/problem.h"
#include "tests/harness/base/tensor.h"

unsigned attn_class_of(double x)
{
    return isnan(x)      ? ATTN_CLASS_NAN
           : isfinite(x) ? ATTN_CLASS_FINITE
           : x > 0       ? ATTN_CLASS_PLUS_INF
                         : ATTN_CLASS_MINUS_INF;
}

/* The classes that are right for element n: none if the value is a NaN that `right` knows nothing
 * of, which is an error of the suite. */
static unsigned right_of(const struct attn_truth_tensor *t, int64_t n)
{
    if (t->right != NULL && t->right[n] != 0)
        return t->right[n];
    return isnan(t->want[n]) ? 0 : attn_class_of(t->want[n]);
}

/* The ratio of one element: error / bound, or +inf for an error that cannot be rounding: a class
 * that is not right, or any error where the bound is 0.  From `overflow` on the storage type has
 * infinities only. */
static inline double judge(double got, double want, double bound, unsigned right, double overflow,
                           int *not_finite)
{
    *not_finite = 0;
    if (right == ATTN_CLASS_FINITE && isfinite(got - want) && bound > 0)
        return fabs(got - want) / bound;
    unsigned is = attn_class_of(got);
    if (!(bound >= 0)) /* an error of the suite: nothing agrees with it */
        return (double)INFINITY;
    if (is & right && !(is & ATTN_CLASS_FINITE && isfinite(want)))
        return 0;
    if (!(right & ATTN_CLASS_FINITE)) {
        *not_finite = 1;
        return (double)INFINITY;
    }
    if (isinf(got) && (got > 0) == (want > 0) && fabs(want) >= overflow)
        return 0;
    if (isinf(got) && (got > 0) == (want > 0) && isfinite(bound) && fabs(want) + bound >= overflow)
        return (overflow - fabs(want)) / bound;
    if (!isfinite(got)) {
        *not_finite = 1;
        return (double)INFINITY;
    }
    double error = fabs(got - want);
    if (error == 0)
        return 0;
    return bound > 0 ? error / bound : (double)INFINITY;
}

/* Part of a row of a truth: its place there and in the whole tensor, the number of its first
 * element, and the values that stand there. */
struct part {
    int64_t own[4], at[4], n, width;
    double value[64];
};

static struct part begin_parts(void)
{
    return (struct part){.own = {0, 0, 0, -64}};
}

/* The next part; 0: there is none. */
static int next(const struct attn_truth_tensor *truth, const struct attn_cview *got, struct part *x)
{
    const int64_t most = 64, *extent = truth->extent;
    const int64_t parts[4] = {extent[0], extent[1], extent[2], (extent[3] + most - 1) / most};
    x->own[3] /= most;
    x->n += x->width;
    int is_there = attn_each(x->own, parts);
    x->own[3] *= most;
    if (!is_there)
        return 0;
    x->width = extent[3] - x->own[3] < most ? extent[3] - x->own[3] : most;
    memcpy(x->at, x->own, sizeof x->at);
    if (truth->sample != NULL)
        x->at[2] = truth->sample[x->own[2]];
    attn_cview_row(got, x->at, x->width, x->value);
    return 1;
}

static void start(const struct attn_truth_tensor *truth, struct attn_agreement *x)
{
    memset(x, 0, sizeof *x);
    x->name = truth->name;
    memcpy(x->marks.extent, truth->extent, sizeof x->marks.extent);
    x->ratio = -1; /* so that the first element is remembered even when it is perfect */
}

/* The place of one of n among the lines or bits of marks. */
static int place_of(int64_t i, int64_t n)
{
    return (int)(n <= ATTN_MARKS ? i : i * ATTN_MARKS / n);
}

static void mark(struct attn_marks *m, int is_first, const int64_t own[4])
{
    const int64_t *n = m->extent, head = own[0] * n[1] + own[1];
    const int row = place_of(own[2], n[2]);
    m->first = is_first ? head : m->first;
    m->of_head[place_of(head, n[0] * n[1])] |= UINT32_C(1) << row;
    if (head == m->first)
        m->of_row[row] |= UINT32_C(1) << place_of(own[3], n[3]);
}

/* Element c of a part. */
static void note(struct attn_agreement *x, double ratio, int ok, const struct part *part, int64_t c,
                 double want, double bound)
{
    int64_t own[4], at[4];
    memcpy(own, part->own, sizeof own);
    memcpy(at, part->at, sizeof at);
    own[3] += c;
    at[3] += c;
    if (!ok)
        mark(&x->marks, x->n_bad == 0, own);
    for (int a = 0; a < 4 && !ok; a++) {
        int is_first = x->n_bad == 0;
        x->low[a] = is_first || at[a] < x->low[a] ? at[a] : x->low[a];
        x->high[a] = is_first || at[a] > x->high[a] ? at[a] : x->high[a];
    }
    if (!ok && (x->n_bad == 0 || memcmp(x->last, at, sizeof x->last) != 0)) {
        memcpy(x->last, at, sizeof x->last);
        x->bad_rows++;
    }
    x->n_bad += !ok;
    if (ratio > x->ratio) {
        x->ratio = ratio;
        memcpy(x->at, at, sizeof x->at);
        x->got = isnan(part->value[c]) ? (double)NAN : part->value[c]; /* of no sign */
        x->want = want, x->bound = bound;
    }
}

static inline void see(struct attn_agreement *x, double ratio, int ok, const struct part *part,
                       int64_t c, double want, double bound)
{
    x->n++;
    if (!ok || ratio > x->ratio)
        note(x, ratio, ok, part, c, want, bound);
}

/* The printed figures beside the verdict.  An infinity that is right has no size. */
static inline void measure(const struct attn_truth_tensor *truth, int64_t n, double u, double value,
                           int ok, struct attn_agreement *x)
{
    double want = truth->want[n], error = fabs(value - want);
    double size = (truth->u > u ? truth->u : u) * truth->gauge[n];
    if (!isfinite(value) && ok)
        return;
    if (size > 0 && error / size > x->gauge)
        x->gauge = error / size;
    if (isfinite(want)) {
        x->error = error <= x->error ? x->error : error; /* a NaN stays */
        x->size = fabs(want) > x->size ? fabs(want) : x->size;
    }
}

/* The same of all elements of a part, where all are finite and within finite bounds; 0: some are
 * not, and nothing is done.  Of equal ratios the first is noted. */
ATTN_ANY_WIDTH static int see_ordinary(const struct attn_truth_tensor *truth,
                                       const struct part *part, double u, struct attn_agreement *x)
{
    const double *want = truth->want + part->n, *bound = truth->bound + part->n;
    const double *gauge = truth->gauge + part->n, *value = part->value;
    const unsigned char *right = truth->right != NULL ? truth->right + part->n : NULL;
    const double u_of_size = truth->u > u ? truth->u : u, infinite = (double)INFINITY;
    double ratio[64], worst = 0, size = 0, error = 0, in_sizes = 0;
    int is_ordinary = 1, powerless = 0, blind = 0;
    for (int64_t c = 0; c < part->width; c++) {
        ratio[c] = fabs(value[c] - want[c]) / bound[c];
        is_ordinary &= (fabs(value[c] - want[c]) < infinite) & (fabs(want[c]) < infinite) &
                       (bound[c] > 0) & (bound[c] < infinite) & (ratio[c] <= 1);
    }
    for (int64_t c = 0; c < part->width && right != NULL; c++)
        is_ordinary &= (right[c] & ~ATTN_CLASS_FINITE) == 0;
    if (!is_ordinary)
        return 0;
    for (int64_t c = 0; c < part->width; c++) {
        double away = fabs(value[c] - want[c]), large = fabs(want[c]);
        double own = u_of_size * gauge[c], in_own = own > 0 ? away / own : 0;
        worst = ratio[c] > worst ? ratio[c] : worst;
        error = away > error ? away : error;
        size = large > size ? large : size;
        in_sizes = in_own > in_sizes ? in_own : in_sizes;
        powerless += large <= bound[c];
        blind += (large <= bound[c]) & !(bound[c] <= 0.25 * gauge[c]);
    }
    int64_t first = 0;
    while (ratio[first] < worst)
        first++;
    x->n += part->width - 1;
    see(x, worst, 1, part, first, want[first], bound[first]);
    x->n_powerless += powerless;
    x->n_blind += blind;
    x->gauge = in_sizes > x->gauge ? in_sizes : x->gauge;
    x->error = error <= x->error ? x->error : error;
    x->size = size > x->size ? size : x->size;
    return 1;
}

void attn_agree(const struct attn_cview *got, const struct attn_truth_tensor *truth, double u,
                struct attn_agreement *x)
{
    double first = attn_dtype_overflow(truth->storage), then = attn_dtype_overflow(truth->stored);
    double overflow = first < then ? first : then;
    start(truth, x);
    for (struct part part = begin_parts(); next(truth, got, &part);) {
        if (see_ordinary(truth, &part, u, x))
            continue;
        for (int64_t c = 0; c < part.width; c++) {
            const int64_t n = part.n + c;
            double want = truth->want[n], bound = truth->bound[n];
            unsigned right = right_of(truth, n);
            int not_finite;
            double ratio = judge(part.value[c], want, bound, right, overflow, &not_finite);
            see(x, ratio, ratio <= 1, &part, c, want, bound);
            x->n_not_finite += not_finite;
            x->n_unbounded += bound == (double)INFINITY;
            x->n_either += (right & (right - 1)) != 0 && isfinite(bound);
            x->n_no_bound += !(bound >= 0);
            int powerless = bound > 0 && fabs(want) <= bound;
            x->n_powerless += powerless;
            x->n_blind += powerless && !(bound <= 0.25 * truth->gauge[n]);
            measure(truth, n, u, part.value[c], ratio <= 1, x);
        }
    }
    x->ratio = x->ratio < 0 ? 0 : x->ratio;
}

double attn_dtype_round(double x, enum attn_dtype dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return (double)(float)x;
    case ATTN_BF16:
        return (double)attn_bf16_to_float(attn_bf16_from_double(x));
    case ATTN_F16:
        return (double)attn_f16_to_float(attn_f16_from_double(x));
    default:
        return x;
    }
}

void attn_agree_exactly(const struct attn_cview *got, const struct attn_truth_tensor *truth,
                        double u, struct attn_agreement *x)
{
    start(truth, x);
    for (struct part part = begin_parts(); next(truth, got, &part);)
        for (int64_t c = 0; c < part.width; c++) {
            const int64_t n = part.n + c;
            double want = attn_dtype_round(truth->want[n], truth->storage);
            want = attn_dtype_round(want, truth->stored);
            unsigned right = right_of(truth, n);
            int is_asked = !(isfinite(want) && fabs(want) > 1 / u) && (right & (right - 1)) == 0;
            int ok = part.value[c] == want || !is_asked;
            see(x, ok ? 0 : (double)INFINITY, ok, &part, c, want, 0);
            x->n_not_finite += is_asked && isfinite(want) && !isfinite(part.value[c]);
        }
    x->ratio = x->ratio < 0 ? 0 : x->ratio;
}
