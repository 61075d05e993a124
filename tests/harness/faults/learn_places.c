/* See faults.h: rows that are right, but stand in other places: each row of an output that fails is
 * looked for among the rows of the truth. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/faults/faults.h"

enum { MOST_ROWS = 4096 };

/* One output: from[row] is the row of the truth that stands there. */
struct places {
    const struct attn_truth_tensor *t;
    const double *got;
    int64_t heads, rows, n, *from;
    int moved;
};

static int row_is(const struct places *x, int64_t row, int64_t other)
{
    int64_t width = x->t->extent[3];
    for (int64_t c = 0; c < width; c++) {
        double got = x->got[row * width + c], want = x->t->want[other * width + c];
        if (!(fabs(got - want) <= x->t->bound[other * width + c] || got == want))
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

/* ---- what kind of move ---------------------------------------------------------------------- */

/* Where a row comes from when heads and groups of them are swapped; where it comes from in layout
 * BHLD (0) for BLHD, or the reverse (-1). */
static int64_t place_by(const struct places *x, int64_t row, int64_t groups)
{
    int64_t i = row % x->rows, bh = row / x->rows, h = bh % x->heads, base = row - h * x->rows - i;
    int64_t at = groups == 0 ? h * x->rows + i : i * x->heads + h;
    if (groups > 0)
        return base + (h % groups * (x->heads / groups) + h / groups) * x->rows + i;
    return base + (groups == 0 ? at % x->heads * x->rows + at / x->heads : at);
}

/* A rule fits when it explains every row; rows of equal content may stand for one another. */
static int all_by(const struct places *x, int64_t groups)
{
    for (int64_t row = 0; row < x->n; row++)
        if (!row_is(x, row, place_by(x, row, groups)))
            return 0;
    return 1;
}

/* Do all moved rows keep this coordinate: row / unit % n? */
static int all_keep(const struct places *x, int64_t unit, int64_t n)
{
    for (int64_t row = 0; row < x->n; row++)
        if (row / unit % n != x->from[row] / unit % n)
            return 0;
    return 1;
}

static void describe(const struct places *x, const char *name, char *text, size_t size)
{
    int row = all_keep(x, 1, x->rows), head = all_keep(x, x->rows, x->heads);
    int batch = all_keep(x, x->rows * x->heads, x->n);
    int64_t first = 0;
    while (x->from[first] == first)
        first++;
    int64_t bh = first / x->rows, was = x->from[first] / x->rows;
    for (int64_t groups = 2; groups < x->heads; groups++)
        if (x->heads % groups == 0 && all_by(x, groups)) {
            snprintf(text, size, "fits %s stored with groups and heads swapped (%lld by %lld)",
                     name, (long long)groups, (long long)(x->heads / groups));
            return;
        }
    if (x->heads > 1 && x->rows > 1 && (all_by(x, 0) || all_by(x, -1))) {
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

int attn_learn_places(struct attn_failed_run *run)
{
    static const char *const name[ATTN_OUTPUTS] = {"O", "LSE", "dQ", "dK", "dV", "dBias"};
    int found = 0;
    for (int o = 0; o < ATTN_OUTPUTS && !found; o++) {
        const struct attn_truth_tensor *t = &run->truth.tensor[o];
        struct places x = {.t = t,
                           .got = run->x[ATTN_T_O + o],
                           .heads = t->extent[1],
                           .rows = t->extent[2],
                           .n = attn_run_rows(run, (enum attn_output)o)};
        if (!run->failing[o] || t->want == NULL || x.n > MOST_ROWS || x.n < 2)
            continue;
        x.from = calloc((size_t)x.n, sizeof *x.from);
        found = x.from != NULL && find_all(&x);
        if (found)
            describe(&x, name[o], run->text, run->size);
        free(x.from);
    }
    return found;
}
