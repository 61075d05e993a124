/* See evaluate.h: a row of an output, as a model tells it, against what was computed, and whether
 * the rows that fit speak for the model. */
#include <math.h>

#include "tests/harness/diagnosis/evaluate.h"

static int is_as(double got, double want, double bound)
{
    return fabs(got - want) <= bound || got == want || (isnan(got) && isnan(want));
}

/* One element more of a row that fits.  Where outputs are looked for in other places, what is wrong
 * in its own place must be right there. */
static void count(struct attn_evaluation *x, double got, double own, double predicted, double want,
                  double bound)
{
    struct attn_evidence *e = &x->evidence;
    double error = got == predicted ? 0 : fabs(got - predicted);
    int is_apart = x->has_moved_outputs || !is_as(predicted, want, bound);
    if (isinf(bound)) /* nothing can be said of it */
        return;
    if (is_as(own, want, bound)) {
        e->against += is_apart && error > bound;
        return;
    }
    e->wrong++;
    if (isnan(got))
        e->nan_apart += !isnan(want);
    else
        e->apart += is_apart && !(error >= fabs(own - want) / 2);
}

/* The prediction, as the result's type has it, if `got` is a number of that type. */
static double as_result(struct attn_evaluation *x, enum attn_output o, double got, double predicted)
{
    enum attn_dtype dtype = attn_result_dtype(x->p);
    if (o == ATTN_LSE || o >= ATTN_DBIAS) /* never in 16 bits */
        return predicted;
    predicted = attn_changed_number(x, ATTN_OF_RESULT, predicted);
    return got == attn_dtype_round(got, dtype) ? attn_dtype_round(predicted, dtype) : predicted;
}

int attn_evaluation_fits(struct attn_evaluation *x, enum attn_output o, int64_t row,
                         const double *predicted)
{
    const struct attn_truth_tensor *t = &x->run->truth.tensor[o];
    int64_t width = t->extent[3], at = row * width;
    const double *got = x->x[ATTN_T_O + o] + at, *own = x->run->x[ATTN_T_O + o] + at;
    double size = 0, loose = x->run->loose + (o == ATTN_LSE ? 0 : x->vague);
    if (x->f->place == ATTN_AT_PROB) /* numbers far too large are rounded so */
        loose += 4 * attn_dtype_roundoff(x->p->dtype);
    if (x->f->place == ATTN_AT_NUMBER) /* near the middle of two, either may be the nearest */
        loose = fmax(loose, 4 * attn_dtype_roundoff(attn_is_half(x->p) ? x->p->dtype : ATTN_F16));
    if (!x->run->compared[o])
        return 1;
    for (int64_t c = 0; c < width; c++)
        size = isfinite(predicted[c]) && fabs(predicted[c]) > size ? fabs(predicted[c]) : size;
    for (int64_t c = 0; c < width; c++) {
        double tolerance = loose * size + 4 * t->bound[at + c];
        int is_exact = x->f->place == ATTN_AT_NONE && predicted[c] == 0 && t->bound[at + c] == 0;
        if (!isinf(t->bound[at + c]) &&
            !is_as(got[c], as_result(x, o, got[c], predicted[c]), is_exact ? 0 : tolerance))
            return 0;
    }
    for (int64_t c = 0; c < width; c++) {
        count(x, got[c], own[c], as_result(x, o, got[c], predicted[c]), t->want[at + c],
              t->bound[at + c]);
        x->evidence.finite += x->run->failing[o] && isfinite(got[c]);
    }
    return 1;
}

int attn_evaluation_explains(const struct attn_evaluation *x)
{
    const struct attn_evidence *e = &x->evidence;
    enum attn_place place = x->f->place;
    const int64_t apart = e->apart + e->nan_apart;
    if (apart == 0 || 2 * apart < e->wrong || 4 * e->against > apart)
        return 0;
    /* NaN alone fits every model that ends in NaN; where numbers stand beside it, its places speak,
     * unless the model reads what it should not, and all that it reads is NaN, or has another
     * scale: too large is every number then. */
    int has_places = e->finite > 0 && (!x->is_hidden_number || x->has_vanished) &&
                     place != ATTN_AT_VIEW && place != ATTN_AT_PROBLEM;
    return e->apart > 0 || has_places || x->is_nan;
}
