/* See truth_sum.h. */
#include "tests/harness/bound/truth_sum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/impl.h"
#include "ref/problem.h"
#include "tests/harness/bound/classes.h"
#include "tests/harness/bound/kept.h"

void attn_sum_free(struct attn_sum *x)
{
    free(x->lost);
    free(x->error);
    free(x->size);
    free(x->terms);
    free(x->kinds);
}

/* The same output of the truth that was kept last, unless the kinds have spoken of it. */
static const struct attn_truth_tensor *known_sum(const struct attn_inputs *in,
                                                 const struct attn_truth_tensor *t,
                                                 enum attn_output output, size_t n)
{
    if (in->kept == NULL || in->kept->first == NULL)
        return NULL;
    const struct attn_truth_tensor *x = &in->kept->first->truth.tensor[output];
    int same = x->want != NULL && x->sample == t->sample &&
               memcmp(x->extent, t->extent, sizeof x->extent) == 0;
    for (size_t at = 0; same && at < n; at++)
        same = x->right[at] == 0;
    return same ? x : NULL;
}

enum attn_status attn_sum_open(const struct attn_inputs *in, struct attn_truth *truth,
                               enum attn_output output, struct attn_sum *x, struct attn_error *err)
{
    struct attn_truth_tensor *t = &truth->tensor[output];
    size_t rows = (size_t)(t->extent[0] * t->extent[1] * t->extent[2]);
    size_t n = rows * (size_t)t->extent[3];
    *x = (struct attn_sum){t,
                           known_sum(in, t, output, n),
                           calloc(n + 1, sizeof(double)),
                           calloc(n + 1, sizeof(double)),
                           calloc(n + 1, sizeof(double)),
                           calloc(rows + 1, sizeof(int64_t)),
                           malloc(n + 1)};
    if (x->lost == NULL || x->error == NULL || x->size == NULL || x->terms == NULL ||
        x->kinds == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to sum %s (%zu elements)", t->name, n);
    memset(x->kinds, ATTN_KIND_ZERO, n + 1);
    return ATTN_OK;
}

/* TwoSum keeps what double would lose. */
ATTN_ANY_WIDTH void attn_sum_add(struct attn_sum *x, const int64_t *place, int64_t n_places,
                                 int64_t width, const double *restrict y,
                                 const struct attn_addends *row, double tiny)
{
    const int64_t unknown = x->known == NULL ? width : 0;
    for (int64_t n = 0; n < n_places; n++) {
        if (place[n] < 0)
            continue;
        int64_t at = place[n] * width;
        double *restrict want = x->out->want + at, *restrict lost = x->lost + at;
        double *restrict gauges = x->out->gauge + at;
        double *restrict errors = x->error + at, *restrict size = x->size + at;
        double weight = row->weight[n], error = row->error[n] + row->more;
        double both = fabs(weight) + error, flushed = fabs(weight) * tiny;
        double gauge = row->times * row->gauge[n];
        for (int64_t c = 0; c < unknown; c++) {
            double term = weight * y[c], s = want[c] + term, z = s - want[c];
            lost[c] += (want[c] - (s - z)) + (term - z);
            want[c] = s;
            gauges[c] += gauge * fabs(y[c]);
        }
        for (int64_t c = 0; c < width; c++) {
            double a = fabs(y[c]), off = error * a + flushed, large = both * a;
            errors[c] += a > 0 ? off : 0; /* an error may be infinite: 0 of it is 0 */
            size[c] += a > 0 ? large : 0;
        }
    }
}

void attn_sum_kinds(struct attn_sum *x, int64_t at, int64_t n, const unsigned char *y,
                    unsigned weight)
{
    unsigned char *kinds = x->kinds + at;
    for (int64_t c = 0; c < n; c++)
        kinds[c] = (unsigned char)attn_kinds_plus(kinds[c], attn_kinds_weigh(weight, y[c]));
}

void attn_truth_set_right(struct attn_truth_tensor *t, int64_t at, unsigned kinds)
{
    unsigned right = attn_kinds_classes(kinds);
    t->right[at] = (unsigned char)right;
    if (!(right & ATTN_CLASS_FINITE)) {
        if (!(attn_class_of(t->want[at]) & right))
            t->want[at] = right & ATTN_CLASS_NAN        ? (double)NAN
                          : right & ATTN_CLASS_PLUS_INF ? (double)INFINITY
                                                        : -(double)INFINITY;
        t->bound[at] = t->gauge[at] = 0;
    } else if (kinds & ATTN_KIND_UNKNOWN || !isfinite(t->want[at])) {
        t->bound[at] = (double)INFINITY;
        t->gauge[at] = 0;
    }
}

/* 5.4: the sum, of operands rounded to `operand`, is multiplied by `scale` and stored, as `a` says;
 * its parts (a->sums more than one) may each underflow by themselves, and be stored narrower. */
void attn_sum_finish(struct attn_sum *x, double scale, double operand,
                     const struct attn_precision *a)
{
    const double size_of_scale = fabs(scale), parts = (double)(1 + a->sums);
    int64_t width = x->out->extent[3];
    int64_t rows = x->out->extent[0] * x->out->extent[1] * x->out->extent[2];
    for (int64_t at = 0; at < rows * width; at++) {
        double n = (double)x->terms[at / width], size = x->size[at];
        double relative = attn_sum_error(n + 4, attn_sum_roundoff(a), a->lambda);
        relative += operand * (1 + relative);
        double sum = x->out->want[at], lost = x->lost[at];
        double want =
            x->known != NULL ? x->known->want[at] : scale * (isnan(lost) ? sum : sum + lost);
        double e = size_of_scale * (x->error[at] + n * a->tiny + relative * size + 0x1p-51 * size);
        double partial = attn_partials_error(a, size_of_scale * size + e, parts, scale);
        e += (1 + relative) * partial;
        double stored = a->u_storage * (fabs(want) + e) + a->tiny_storage;
        x->out->want[at] = want;
        x->out->bound[at] = n == 0 ? 0 : e + stored + parts * a->tiny + 0x1p-52 * fabs(want);
        x->out->gauge[at] =
            x->known != NULL ? x->known->gauge[at] : size_of_scale * x->out->gauge[at];
        if (x->kinds[at] & ~(unsigned)ATTN_KINDS_FINITE)
            attn_truth_set_right(x->out, at, attn_kinds_times(attn_kind_of(scale), x->kinds[at]));
        if (isinf(partial) || attn_sum_may_overflow(a, fmax(1, size_of_scale) * size))
            attn_truth_set_right(x->out, at, ATTN_KINDS_ANY);
    }
}
