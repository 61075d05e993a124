/* See kept.h. */
#include "tests/harness/bound/kept.h"

#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"

struct attn_kept_row {
    struct attn_oracle_row row; /* block == NULL: not kept */
    int backward;
};

/* The longest cases of the batteries need less. */
enum { MOST_BYTES = 1 << 28 };

void attn_kept_open(const struct attn_problem *p, int rows, struct attn_kept *kept)
{
    int64_t n = attn_product(attn_product(p->batch, p->heads), p->n_query);
    *kept = (struct attn_kept){.n_rows = 0};
    atomic_init(&kept->bytes_left, MOST_BYTES);
    int64_t pairs = n < 0 ? -1 : attn_product(n, p->n_key);
    if (!rows || n < 0 || n > MOST_BYTES / (int64_t)sizeof *kept->row)
        return;
    if (pairs < 0 || pairs > MOST_BYTES / 64) /* no use: most would not fit */
        return;
    kept->row = calloc((size_t)n + 1, sizeof *kept->row);
    kept->n_rows = kept->row != NULL ? n : 0;
}

void attn_kept_close(struct attn_kept *kept)
{
    while (kept->first != NULL) {
        struct attn_kept_truth *next = kept->first->next;
        attn_truth_free(&kept->first->truth);
        free(kept->first);
        kept->first = next;
    }
    for (int64_t r = 0; r < kept->n_rows; r++)
        free(kept->row[r].row.block);
    free(kept->row);
    *kept = (struct attn_kept){0};
}

static struct attn_kept_row *place(const struct attn_kept *kept, const struct attn_problem *p,
                                   int64_t b, int64_t h, int64_t i)
{
    int64_t r = (b * p->heads + h) * p->n_query + i;
    return kept != NULL && r < kept->n_rows ? &kept->row[r] : NULL;
}

const struct attn_oracle_row *attn_kept_row(const struct attn_kept *kept,
                                            const struct attn_problem *p, int64_t b, int64_t h,
                                            int64_t i, int backward)
{
    const struct attn_kept_row *x = place(kept, p, b, h, i);
    return x == NULL || x->row.block == NULL || (backward && !x->backward) ? NULL : &x->row;
}

static double *copy(double **at, const double *from, int64_t n)
{
    double *to = *at;
    memcpy(to, from, (size_t)n * sizeof *to);
    *at += n;
    return to;
}

void attn_kept_row_add(struct attn_kept *kept, const struct attn_problem *p, int64_t b, int64_t h,
                       int64_t i, int backward, const struct attn_oracle_row *row)
{
    struct attn_kept_row *x = place(kept, p, b, h, i);
    int64_t n = row->n, numbers = (backward ? 9 : 6) * n + p->d_value + (backward ? p->d_key : 0);
    int64_t bytes = (numbers + 1) * (int64_t)sizeof(double) + n * (int64_t)sizeof *row->key;
    if (x == NULL)
        return;
    int fits = atomic_fetch_sub(&kept->bytes_left, bytes) >= bytes;
    double *at = fits ? malloc((size_t)bytes) : NULL;
    if (at == NULL) {
        atomic_fetch_add(&kept->bytes_left, bytes);
        return;
    }
    free(x->row.block);
    struct attn_oracle_row to = {.n = n,
                                 .max = row->max,
                                 .lse = row->lse,
                                 .z = row->z,
                                 .p_sink = row->p_sink,
                                 .delta = row->delta,
                                 .dz = row->dz,
                                 .block = at};
    to.raw = copy(&at, row->raw, n);
    to.magnitude = copy(&at, row->magnitude, n);
    to.slope = copy(&at, row->slope, n);
    to.bias = copy(&at, row->bias, n);
    to.s = copy(&at, row->s, n);
    to.p = copy(&at, row->p, n);
    to.o = copy(&at, row->o, p->d_value);
    if (backward) {
        to.dp = copy(&at, row->dp, n);
        to.dp_magnitude = copy(&at, row->dp_magnitude, n);
        to.ds = copy(&at, row->ds, n);
        to.dq = copy(&at, row->dq, p->d_key);
    }
    to.key = (int64_t *)at;
    memcpy(to.key, row->key, (size_t)n * sizeof *to.key);
    *x = (struct attn_kept_row){to, backward};
}
