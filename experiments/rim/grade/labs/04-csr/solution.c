/* Lab 04, a solution: compressed sparse rows, one head at a time. */
#include "docs/labs/lab.h"

/* Row i has elements row_start[i] up to row_start[i+1]; element e is key column[e]. */
struct csr {
    int64_t *row_start; /* [n_query + 1]  */
    int32_t *column;    /* [visible pairs] */
    float *value;       /* [visible pairs]: scores, then probabilities */
};

static void csr_free(struct csr *x)
{
    free(x->row_start);
    free(x->column);
    free(x->value);
}

/* The visible pairs of a head are counted, then listed.  0: no memory.  Pairs that numbers hide are
 * not even looked at. */
static int csr_build(attn_call *t, int64_t b, int64_t h, struct csr *x)
{
    int64_t lo, hi, e = 0;
    *x = (struct csr){.row_start = malloc((size_t)(t->n_query + 1) * sizeof *x->row_start)};
    if (x->row_start == NULL)
        return 0;
    x->row_start[0] = 0;
    for (int64_t i = 0; i < t->n_query; i++) {
        band(t, i, &lo, &hi);
        for (int64_t j = lo; j < hi; j++)
            e += sees(t, b, h, i, j);
        x->row_start[i + 1] = e;
    }
    x->column = malloc((size_t)(e + 1) * sizeof *x->column);
    x->value = malloc((size_t)(e + 1) * sizeof *x->value);
    if (x->column == NULL || x->value == NULL)
        return 0;
    e = 0;
    for (int64_t i = 0; i < t->n_query; i++) {
        band(t, i, &lo, &hi);
        for (int64_t j = lo; j < hi; j++)
            if (sees(t, b, h, i, j))
                x->column[e++] = (int32_t)j;
    }
    return 1;
}

/* SDDMM, softmax and SpMM of row i. */
static void csr_row(attn_call *t, int64_t b, int64_t h, int64_t i, const struct csr *x)
{
    int64_t first = x->row_start[i], end = x->row_start[i + 1], g = h / (t->heads / t->kv_heads);
    float *o = row_to(&t->o, b, h, i), *p = x->value, m = -INFINITY, l = 0;
    for (int64_t e = first; e < end; e++) {
        const float *q = row_of(&t->q, b, h, i), *k = row_of(&t->k, b, g, x->column[e]);
        p[e] = (float)t->scale * dot(q, k, t->d_key);
        m = p[e] <= m ? m : p[e]; /* a NaN stays, and shows in o */
    }
    for (int64_t e = first; e < end; e++)
        l += p[e] = expf(p[e] - m);
    set_zero(o, t->d_value);
    for (int64_t e = first; e < end; e++)
        axpy(p[e] / l, row_of(&t->v, b, g, x->column[e]), o, t->d_value);
    *row_to(&t->lse, b, h, i) = first < end ? (m + logf(l)) / LSE_UNIT : -INFINITY;
}

static int forward(attn_call *t)
{
    int built = 1;
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t h = 0; h < t->heads && built; h++) {
            struct csr x;
            built = csr_build(t, b, h, &x);
            for (int64_t i = 0; i < t->n_query && built; i++)
                csr_row(t, b, h, i, &x);
            csr_free(&x);
        }
    return built ? ATTN_PLUGIN_OK : ATTN_PLUGIN_FAILED;
}

const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin lab = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof lab,
        .name = "lab-04",
        .claims = ATTN_CAP_F32 | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_SCALE |
                  ATTN_CAP_BAND | ATTN_CAP_DENSE | ATTN_CAP_HARD | ATTN_CAP_EMPTY,
        .lse = TASK_LSE,
        .layout = TASK_LAYOUT,
        .byte = TASK_BYTE,
        .forward = forward,
    };
    return &lab;
}
