/* See grade.h. */
#include "tests/harness/bound/grade.h"
#include "tests/harness/bound/kept.h"

#include <math.h>
#include <stddef.h>

#include "ref/problem.h"
#include "tests/harness/bound/agree.h"

/* Fills of random signs in every sum (q.k, P V, dO.V, P^T dO).  The scores of INTEGER are exact:
 * only exp and P V round.  HETERO has three scales, and its own bounds for each. */
static int is_graded(enum attn_fill fill)
{
    return fill == ATTN_FILL_NORMAL || fill == ATTN_FILL_INTEGER || fill == ATTN_FILL_HETERO;
}

/* Looked at for bias: V in [0.5, 1.5) with maxima that tie, so that P holds exact ones; and V = 1,
 * where any error of O is one of the normaliser. */
static int may_lean(enum attn_fill fill)
{
    return fill == ATTN_FILL_TIES || fill == ATTN_FILL_ONES;
}

/* T2 costs half of what T1 does: a large problem has its grade from some of its rows, o, lse and dq
 * of these. */
static int is_long(const struct attn_problem *p)
{
    int64_t pairs = attn_product(attn_product(p->batch, p->heads), p->n_query * p->n_key);
    int64_t work = pairs < 0 ? -1 : attn_product(pairs, p->d_key + p->d_value);
    return work < 0 || work >= 1 << 24;
}

/* Rows, not elements, count as independent: the channels of one row share its weights.  The truth
 * is taken as its type would store it: that rounding is not the implementation's error, and in 16
 * bits it is the same in all the rows whose averages are close. */
static void find_bias(const struct attn_cview *got, const struct attn_truth_tensor *o,
                      struct attn_grade *grade)
{
    int64_t n = o->extent[0] * o->extent[1] * o->extent[2], width = o->extent[3];
    double sum = 0;
    for (int64_t row = 0; row < n; row++) {
        double mean = 0, value[64];
        int64_t used = 0, i = row % o->extent[2], bh = row / o->extent[2];
        for (int64_t c = 0; c < width; c++) {
            if (c % 64 == 0)
                attn_cview_row(got, (int64_t[4]){bh / o->extent[1], bh % o->extent[1], i, c},
                               width - c < 64 ? width - c : 64, value);
            double bound = o->bound[row * width + c];
            if (!(bound > 0) || !isfinite(bound)) /* nothing visible, or nothing to say */
                continue;
            double want = attn_dtype_round(o->want[row * width + c], o->storage);
            want = attn_dtype_round(want, o->stored);
            double error = value[c % 64] - want;
            if (!isfinite(error)) /* classes are judged elsewhere (classes.h) */
                continue;
            mean += error / bound;
            used++;
        }
        if (used > 0) {
            sum += mean / (double)used;
            grade->rows++;
        }
    }
    if (grade->rows > 0)
        grade->bias = sum / sqrt((double)grade->rows);
}

enum attn_status attn_grade_outputs(const struct attn_problem *p, const struct attn_inputs *in,
                                    const struct attn_precision *precision,
                                    const struct attn_cview *got, enum attn_fill fill,
                                    struct attn_grade *grade, struct attn_error *err)
{
    struct attn_precision likely = *precision;
    struct attn_inputs forward = *in;
    int graded = is_graded(fill), biased = may_lean(fill);
    *grade = (struct attn_grade){0};
    if (!graded && !biased)
        return ATTN_OK;
    if (!graded) /* bias is a matter of O */
        forward.d_o.data = forward.d_lse.data = NULL;
    likely.lambda = ATTN_GRADE_LAMBDA;
    enum attn_status status = ATTN_OK;
    int64_t *row = in->kept->graded;
    const struct attn_sample some = {attn_sample_choose(p->n_query, ATTN_SAMPLE_MOST, 0, 0, row), 0,
                                     row, row};
    int sampled = graded && is_long(p);
    forward.want_d_bias &= !sampled;
    const struct attn_kept_truth *kept =
        attn_kept_truth(p, &forward, &likely, sampled ? &some : NULL, &status, err);
    if (kept == NULL)
        return status;
    const struct attn_truth_tensor *truth = kept->truth.tensor;
    for (int o = 0; graded && o < ATTN_OUTPUTS; o++) {
        struct attn_agreement x;
        if (truth[o].want == NULL || got[o].data == NULL)
            continue;
        attn_agree(&got[o], &truth[o], precision->u, &x);
        grade->rho = x.ratio > grade->rho ? x.ratio : grade->rho;
    }
    if (graded)
        grade->letter = grade->rho <= 1 ? 'A' : 'B';
    if (biased)
        find_bias(&got[ATTN_O], &truth[ATTN_O], grade);
    return ATTN_OK;
}
