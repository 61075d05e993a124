/* Rows that are right, but stand in other places: each row of an output that fails is looked for
 * among the rows of the truth. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"

enum { MOST_ROWS = 4096 };

static const enum attn_slot slot_of[ATTN_OUTPUTS] = {ATTN_T_O,  ATTN_T_LSE, ATTN_T_DQ,
                                                     ATTN_T_DK, ATTN_T_DV,  ATTN_T_DBIAS};

/* One output: from[row] is the row of the truth that stands there. */
struct places {
    const struct attn_truth_tensor *t;
    struct attn_cview view;
    int64_t batches, heads, rows, n, *from;
    int moved;
};

static int row_is(const struct places *x, int64_t row, int64_t other)
{
    int64_t width = x->t->extent[3], bh = row / x->rows;
    for (int64_t c = 0; c < width; c++) {
        double got = attn_cview_get(&x->view, bh / x->heads, bh % x->heads, row % x->rows, c);
        double want = x->t->want[other * width + c], bound = x->t->bound[other * width + c];
        int ok = fabs(got - want) <= bound || got == want;
        if (!ok)
            return 0;
    }
    return 1;
}

/* A row of zeros or infinities is at home everywhere. */
static int has_content(const struct places *x, int64_t row)
{
    for (int64_t c = 0; c < x->t->extent[3]; c++) {
        double want = x->t->want[row * x->t->extent[3] + c];
        if (isfinite(want) && want != 0)
            return 1;
    }
    return 0;
}

/* Have enough rows moved, each from a place of its own? */
static int is_a_move(const struct places *x)
{
    if (x->moved < 2 || x->moved < x->n / 8)
        return 0;
    for (int64_t row = 0; row < x->n; row++)
        for (int64_t other = row + 1; other < x->n && x->from[row] != row; other++)
            if (x->from[other] != other && x->from[other] == x->from[row])
                return 0;
    return 1;
}

/* 0 when some row is nowhere, or it is no move. */
static int find_all(struct places *x)
{
    for (int64_t row = 0; row < x->n; row++) {
        int64_t from = row;
        if (!row_is(x, row, row))
            for (from = 0; from < x->n && !(has_content(x, from) && row_is(x, row, from)); from++)
                ;
        if (from == x->n)
            return 0;
        x->from[row] = from;
        x->moved += from != row;
    }
    return is_a_move(x);
}

/* ---- what kind of move ----------------------------------------------------------------------- */

/* Where row (b,h,i) would come from if ... */
static int64_t turned(const struct places *x, int64_t b, int64_t h, int64_t i, int way)
{
    int64_t at = way == 0 ? h * x->rows + i : i * x->heads + h; /* BHLD for BLHD, the reverse */
    int64_t to =
        way == 0 ? at % x->heads * x->rows + at / x->heads : at / x->rows * x->rows + at % x->rows;
    return b * x->heads * x->rows + to;
}

static int64_t regrouped(const struct places *x, int64_t b, int64_t h, int64_t i, int64_t groups)
{
    int64_t size = x->heads / groups;
    return (b * x->heads + h % groups * size + h / groups) * x->rows + i;
}

/* A rule fits when it explains every row; rows of equal content may stand for one another. */
static int all_turned(const struct places *x, int way)
{
    for (int64_t row = 0; row < x->n; row++) {
        int64_t bh = row / x->rows;
        if (!row_is(x, row, turned(x, bh / x->heads, bh % x->heads, row % x->rows, way)))
            return 0;
    }
    return 1;
}

static int all_regrouped(const struct places *x, int64_t groups)
{
    for (int64_t row = 0; row < x->n; row++) {
        int64_t bh = row / x->rows;
        if (!row_is(x, row, regrouped(x, bh / x->heads, bh % x->heads, row % x->rows, groups)))
            return 0;
    }
    return 1;
}

/* Do all moved rows keep this coordinate (0 batch, 1 head, 2 row)? */
static int all_keep(const struct places *x, int axis)
{
    for (int64_t row = 0; row < x->n; row++) {
        int64_t a = row, b = x->from[row];
        int same = axis == 2   ? a % x->rows == b % x->rows
                   : axis == 1 ? a / x->rows % x->heads == b / x->rows % x->heads
                               : a / x->rows / x->heads == b / x->rows / x->heads;
        if (!same)
            return 0;
    }
    return 1;
}

static void describe(const struct places *x, const char *name, char *text, size_t size)
{
    int batch = all_keep(x, 0), head = all_keep(x, 1), row = all_keep(x, 2);
    int64_t first = 0;
    while (x->from[first] == first)
        first++;
    int64_t bh = first / x->rows, was = x->from[first] / x->rows;
    for (int64_t groups = 2; groups < x->heads; groups++)
        if (x->heads % groups == 0 && all_regrouped(x, groups)) {
            snprintf(text, size, "fits %s stored with groups and heads swapped (%lld by %lld)",
                     name, (long long)groups, (long long)(x->heads / groups));
            return;
        }
    for (int way = 0; way < 2; way++)
        if (x->heads > 1 && x->rows > 1 && all_turned(x, way)) {
            snprintf(text, size, "fits %s stored in layout BLHD for BHLD, or the reverse", name);
            return;
        }
    const char *what = row && batch    ? "heads of"
                       : row && head   ? "batches of"
                       : batch && head ? "rows within the heads of"
                                       : "rows of";
    snprintf(text, size,
             "fits %s %s in the wrong places: [%lld,%lld,%lld] has what belongs to "
             "[%lld,%lld,%lld]",
             what, name, (long long)(bh / x->heads), (long long)(bh % x->heads),
             (long long)(first % x->rows), (long long)(was / x->heads), (long long)(was % x->heads),
             (long long)(x->from[first] % x->rows));
}

int attn_hypothesis_places(struct attn_hypotheses *x)
{
    static const char *const name[ATTN_OUTPUTS] = {"O", "LSE", "dQ", "dK", "dV", "dBias"};
    const struct attn_failed_run *q = x->failed;
    int found = 0;
    for (int o = 0; o < ATTN_OUTPUTS && !found; o++) {
        const struct attn_truth_tensor *t = &q->truth.tensor[o];
        struct places p = {.t = t,
                           .view = attn_tensor_cview(&q->setup->tensor[slot_of[o]]),
                           .batches = t->extent[0],
                           .heads = t->extent[1],
                           .rows = t->extent[2],
                           .n = t->extent[0] * t->extent[1] * t->extent[2]};
        if (!q->failing[o] || t->want == NULL || p.n > MOST_ROWS || p.n < 2)
            continue;
        p.from = calloc((size_t)p.n, sizeof *p.from);
        if (p.from != NULL && find_all(&p)) {
            describe(&p, name[o], x->text, x->size);
            found = 1;
        }
        free(p.from);
    }
    return found;
}
