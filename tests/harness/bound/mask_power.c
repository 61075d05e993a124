/* See mask_power.h. */
#include "tests/harness/bound/mask_power.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/mask/mask.h"
#include "ref/oracle.h"
#include "ref/problem.h"
#include "tests/harness/bound/kept.h"

enum { MOST_PAIRS = 1 << 22 };

/* A row of the truth: what the pairs of a row are compared with. */
struct row {
    double lse, lse_bound;
    const double *o, *o_bound;
    int64_t visible; /* keys of weight */
};

static double in_bounds(double effect, double bound)
{
    return effect == 0 ? 0 : bound > 0 ? effect / bound : (double)INFINITY;
}

/* Effect / bound of losing or leaking the key of score s and value v; any effect from `enough` on
 * is as good as the largest.  |ln(1 - p)| >= p and ln(1 + p) >= p / (1 + p): what is enough by
 * these, with room for rounding, needs no logarithm. */
static double effect_of(const struct row *row, double s, int visible, const struct attn_cview *v,
                        int64_t b, int64_t g, int64_t j, int64_t dv, double enough)
{
    if (isnan(s) || row->visible == 0 || (visible && row->visible == 1))
        return (double)INFINITY; /* a NaN gets in; a row appears, or is emptied */
    double p = exp(s - row->lse);
    double weight = visible ? p / (1 - p) : p < 1e300 ? p / (1 + p) : 1;
    double least = in_bounds(visible ? p : weight, row->lse_bound);
    if (least > 1.001 * enough)
        return least;
    double most = in_bounds(fabs(log1p(visible ? -p : p)), row->lse_bound);
    for (int64_t c = 0; c < dv && !(most >= enough); c++) {
        double away = fabs(attn_cview_get(v, b, g, j, c) - row->o[c]);
        double effect = in_bounds(weight * away, row->o_bound[c]);
        if (!(effect <= most)) /* a NaN in a hidden v shows as well */
            most = isnan(effect) ? (double)INFINITY : effect;
    }
    return most;
}

/* sees[j]: whether row (b,h,i) sees key j; of the kept row, or of the mask. */
static void find_visible(const struct attn_problem *p, const struct attn_kept *kept, int64_t b,
                         int64_t h, int64_t i, char *sees)
{
    const struct attn_oracle_row *row = attn_kept_row(kept, p, b, h, i, 0);
    memset(sees, 0, (size_t)p->n_key);
    for (int64_t n = 0; row != NULL && n < row->n; n++)
        sees[row->key[n]] = 1;
    for (int64_t j = 0; row == NULL && j < p->n_key; j++)
        sees[j] = attn_problem_allows(p, b, h, i, j) != 0;
}

/* all: the row's scores with every key visible; sees: what the mask says of each. */
static void weigh_row(const struct attn_problem *p, const struct attn_cview *v,
                      const struct attn_oracle_row *all, const char *sees, struct row *row,
                      int64_t b, int64_t h, struct attn_mask_power *x)
{
    row->visible = 0;
    for (int64_t n = 0; n < all->n; n++)
        row->visible += sees[n] && all->s[n] != -(double)INFINITY;
    for (int64_t n = 0; n < all->n; n++) {
        if (all->s[n] == -(double)INFINITY)
            continue;
        double enough = x->pairs == 0                 ? (double)INFINITY
                        : x->weakest > ATTN_POWER_MIN ? x->weakest
                                                      : ATTN_POWER_MIN;
        double effect = effect_of(row, all->s[n], sees[n], v, b, h / (p->heads / p->kv_heads),
                                  all->key[n], p->d_value, enough);
        x->seen += effect >= ATTN_POWER_MIN;
        x->weakest = x->pairs == 0 || effect < x->weakest ? effect : x->weakest;
        x->pairs++;
    }
}

enum attn_status attn_mask_power_weigh(const struct attn_problem *p, const struct attn_inputs *in,
                                       const struct attn_truth *truth, struct attn_mask_power *x,
                                       struct attn_error *err)
{
    const struct attn_truth_tensor *o = &truth->tensor[ATTN_O], *lse = &truth->tensor[ATTN_LSE];
    struct attn_problem open = *p;
    struct attn_oracle_row all;
    *x = (struct attn_mask_power){0};
    int64_t pairs = attn_product(attn_product(p->batch, p->heads), p->n_query * p->n_key);
    if (pairs < 0 || pairs > MOST_PAIRS)
        return ATTN_OK;
    open.mask = NULL;
    enum attn_status status = attn_oracle_row_alloc(&open, &all, err);
    char *sees = malloc((size_t)p->n_key + 1);
    if (status == ATTN_OK && sees == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for %lld keys", (long long)p->n_key);
    if (status != ATTN_OK) {
        attn_oracle_row_free(&all);
        free(sees);
        return status;
    }
    for (int64_t r = 0; r < p->batch * p->heads * p->n_query; r++) {
        int64_t i = r % p->n_query, h = r / p->n_query % p->heads, b = r / p->n_query / p->heads;
        struct row row = {lse->want[r], lse->bound[r], o->want + r * p->d_value,
                          o->bound + r * p->d_value, 0};
        if (isnan(row.lse))
            continue;
        attn_oracle_rows_scores(&open, &in->q, &in->k, &in->v, b, h, &i, 1, &all);
        find_visible(p, in->kept, b, h, i, sees);
        weigh_row(p, &in->v, &all, sees, &row, b, h, x);
    }
    free(sees);
    attn_oracle_row_free(&all);
    return ATTN_OK;
}

const char *attn_mask_power_words(const struct attn_mask_power *x, char text[64])
{
    text[0] = '\0';
    if (x->pairs > 0 && x->seen == x->pairs)
        snprintf(text, 64, "every key");
    else if (x->pairs > 0 && x->seen == 0)
        snprintf(text, 64, "no key");
    else if (x->pairs > 0)
        snprintf(text, 64, "%lld of %lld pairs", (long long)x->seen, (long long)x->pairs);
    return text;
}
