/* Lab 04: compressed sparse rows.
 * docs/labs/04-csr/README.md is its page.
 *
 *      cc -O2 -shared -fPIC -I. -o lab.so docs/labs/04-csr/lab.c -lm
 *      attnlab grade 04 ./lab.so
 */
#include "docs/labs/lab.h"

/* Row i has elements row_start[i] up to row_start[i+1]; element e is key column[e]. */
struct csr {
    int64_t *row_start; /* [n_query + 1]  */
    int32_t *column;    /* [visible pairs] */
    float *value;       /* [visible pairs]: scores, then probabilities */
};

/* YOURS: list the visible pairs of query head h.  band() gives the keys of a row that the numbers
 * leave, sees() answers for one of them.  Returns 0 if there is no memory. */
static int csr_build(attn_call *t, int64_t b, int64_t h, struct csr *x)
{
    (void)t, (void)b, (void)h, (void)x;
    return 0;
}

/* YOURS: scores, softmax and output of row i, and LSE: sums over its elements alone. */
static void csr_row(attn_call *t, int64_t b, int64_t h, int64_t i, const struct csr *x)
{
    (void)t, (void)b, (void)h, (void)i, (void)x;
}

static int forward(attn_call *t)
{
    int built = 1;
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t h = 0; h < t->heads && built; h++) {
            struct csr x = {0};
            built = csr_build(t, b, h, &x);
            for (int64_t i = 0; i < t->n_query && built; i++)
                csr_row(t, b, h, i, &x);
            free(x.row_start);
            free(x.column);
            free(x.value);
        }
    return built ? ATTN_PLUGIN_OK : not_written(t, "csr_build");
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
