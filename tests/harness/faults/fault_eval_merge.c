/* Rows whose keys come in blocks, one of each rank, in the order of a ring (rank r holds block r,
 * then r - 1, ...), and are merged wrongly. */
#include <math.h>

#include "ref/problem.h"
#include "tests/harness/faults/fault_eval.h"

static int64_t block_at(const struct fault_eval *x, int64_t i, int64_t step)
{
    int64_t ranks = x->t->ranks;
    return (i / (x->p->n_query / ranks) - step + ranks) % ranks;
}

int attn_eval_step_counts(const struct fault_eval *x, int64_t i, int64_t j)
{
    if (x->t->ranks == 0 || x->t->steps == ATTN_MODEL_ALL_STEPS)
        return 1;
    int64_t step = x->t->steps == ATTN_MODEL_LAST_STEP ? x->t->ranks - 1 : 0;
    return j / (x->p->n_key / x->t->ranks) == block_at(x, i, step);
}

/* Whether a rank may pass over the block: nothing in it is seen by any of its rows. */
static int is_hidden(const struct fault_eval *x, int64_t i, int64_t block)
{
    const struct attn_problem *p = x->p;
    int64_t rows = p->n_query / x->t->ranks, keys = p->n_key / x->t->ranks;
    for (int64_t b = 0; b < p->batch && p->mask != NULL; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t r = i / rows * rows; r < (i / rows + 1) * rows; r++)
                if (attn_mask_row_count(p->mask, b, h, r, block * keys, (block + 1) * keys) > 0)
                    return 0;
    return p->mask != NULL;
}

/* O of one block; returns its LSE. */
static double tell_block(struct fault_eval *x, int64_t b, int64_t g, int64_t block, double *o)
{
    int64_t keys = x->p->n_key / x->t->ranks;
    double m = -(double)INFINITY, l = 0;
    for (int64_t j = block * keys; j < (block + 1) * keys; j++)
        m = x->s[j] > m ? x->s[j] : m;
    for (int64_t c = 0; c < x->p->d_value; c++)
        o[c] = 0;
    if (m == -(double)INFINITY)
        return m;
    for (int64_t j = block * keys; j < (block + 1) * keys; j++)
        l += exp(x->s[j] - m);
    for (int64_t j = block * keys; j < (block + 1) * keys; j++)
        for (int64_t c = 0; c < x->p->d_value && x->s[j] > -(double)INFINITY; c++)
            o[c] += exp(x->s[j] - m) / l * attn_cview_get(&x->view[ATTN_T_V], b, g, j, c);
    return m + log(l);
}

/* As float32 has it: what is out of its range is 0 or infinite. */
static double narrow_exp(const struct fault_eval *x, double a)
{
    double e = x->t->merge == ATTN_MODEL_MERGE_EXP2 ? exp2(a) : exp(a);
    return x->p->dtype == ATTN_F32 ? (double)(float)e : e;
}

static void merge(struct fault_eval *x, double *o, double *lse, const double *other, double lse2)
{
    enum attn_model_merge how = x->t->merge;
    double lse1 = *lse;
    int sorted = how == ATTN_MODEL_MERGE_UNSORTED || lse1 >= lse2;
    double max = sorted ? lse1 : lse2, min = sorted ? lse2 : lse1;
    if (lse1 == -(double)INFINITY && lse2 == -(double)INFINITY && how != ATTN_MODEL_MERGE_EMPTY)
        return;
    double e = narrow_exp(x, min - max);
    double large = how == ATTN_MODEL_MERGE_MEAN ? 0.5 : 1 / (1 + e);
    double small = how == ATTN_MODEL_MERGE_MEAN ? 0.5 : e / (1 + e);
    for (int64_t c = 0; c < x->p->d_value; c++)
        o[c] = sorted ? large * o[c] + small * other[c] : large * other[c] + small * o[c];
    *lse = how == ATTN_MODEL_MERGE_MAX         ? max
           : how == ATTN_MODEL_MERGE_UNSHIFTED ? log(narrow_exp(x, lse1) + narrow_exp(x, lse2))
                                               : max + log1p(e);
}

void attn_eval_merge(struct fault_eval *x, int64_t b, int64_t h, int64_t i)
{
    enum attn_model_merge how = x->t->merge;
    int64_t g = attn_eval_kv_head(x, h, ATTN_MODEL_V);
    int64_t steps = x->t->ranks - (how == ATTN_MODEL_MERGE_SHORT);
    double *other = x->o + x->p->d_value;
    x->lse = -(double)INFINITY;
    for (int64_t c = 0; c < x->p->d_value; c++)
        x->o[c] = 0;
    for (int64_t step = 0; step < steps; step++) {
        int64_t block = block_at(x, i, step);
        if (how >= ATTN_MODEL_MERGE_RESET && is_hidden(x, i, block)) {
            for (int64_t c = 0; c < x->p->d_value && how == ATTN_MODEL_MERGE_RESET; c++)
                x->o[c] = 0;
            x->lse = how == ATTN_MODEL_MERGE_RESET ? -(double)INFINITY : x->lse;
            continue;
        }
        double lse = tell_block(x, b, g, block, step == 0 ? x->o : other);
        if (step == 0)
            x->lse = lse;
        else
            merge(x, x->o, &x->lse, other, lse);
        if (step > 0 && how == ATTN_MODEL_MERGE_TWICE)
            merge(x, x->o, &x->lse, other, lse);
    }
}
