/* See faults.h: rows that are right, but stand in other places: each row of an output that fails is
 * looked for among the rows of the truth. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/diagnosis/faults.h"

enum { MOST_ROWS = 4096 };

/* Does row `row` of the output hold what the truth has in row `other`? */
static int row_is(const struct attn_failed_run *run, enum attn_output o, int64_t row, int64_t other)
{
    const struct attn_truth_tensor *t = &run->truth.tensor[o];
    for (int64_t c = 0; c < t->extent[3]; c++) {
        double got = run->x[ATTN_T_O + o][row * t->extent[3] + c];
        double want = t->want[other * t->extent[3] + c];
        if (!(fabs(got - want) <= t->bound[other * t->extent[3] + c] || got == want))
            return 0;
    }
    return 1;
}

/* A row of zeros or infinities is at home everywhere. */
static int has_content(const struct attn_truth_tensor *t, int64_t row)
{
    for (int64_t c = 0; c < t->extent[3]; c++) {
        double want = t->want[row * t->extent[3] + c];
        if (isfinite(want) && want != 0)
            return 1;
    }
    return 0;
}

/* from[row] is the row of the truth that stands there.  Returns how many have moved, each from a
 * place of its own; 0 when some row is nowhere. */
static int find_all(const struct attn_failed_run *run, enum attn_output o, int64_t n,
                    int64_t from[], char taken[])
{
    int moved = 0;
    for (int64_t row = 0; row < n; row++) {
        from[row] = row;
        if (attn_run_row_is_right(run, o, row))
            continue;
        for (from[row] = 0; from[row] < n; from[row]++)
            if (has_content(&run->truth.tensor[o], from[row]) && row_is(run, o, row, from[row]))
                break;
        if (from[row] == n || taken[from[row]]++)
            return 0;
        moved++;
    }
    return moved;
}

static void describe(const struct attn_failed_run *run, enum attn_output o, const int64_t from[])
{
    static const char *const name[ATTN_OUTPUTS] = {"O", "LSE", "dQ", "dK", "dV", "dBias", "dsink"};
    const int64_t heads = run->truth.tensor[o].extent[1], rows = run->truth.tensor[o].extent[2];
    const int64_t n = attn_run_rows(run, o);
    int64_t first = 0, keep = 1;
    while (from[first] == first)
        first++;
    for (int64_t row = 0; row < n; row++)
        keep &= row % rows == from[row] % rows;
    int64_t was = from[first];
    snprintf(run->text, run->size,
             "fits %s of %s in the wrong places: [%lld,%lld,%lld] has what belongs to "
             "[%lld,%lld,%lld]",
             keep ? "heads" : "rows", name[o], (long long)(first / rows / heads),
             (long long)(first / rows % heads), (long long)(first % rows),
             (long long)(was / rows / heads), (long long)(was / rows % heads),
             (long long)(was % rows));
}

/* Rows of O lie d numbers apart where they are dv wide: what is in both widths is right there. */
static int is_of_width_d(const struct attn_failed_run *run)
{
    const struct attn_problem *p = &run->setup->problem;
    const int64_t d = p->d_key, dv = p->d_value, rows = attn_run_rows(run, ATTN_O);
    const struct attn_truth_tensor *t = &run->truth.tensor[ATTN_O];
    int64_t right = 0;
    for (int64_t n = 0; n < rows * dv && n < rows * d && d != dv; n++) {
        int64_t at = n / d * dv + n % d;
        if (n % d >= dv)
            continue;
        if (!(fabs(run->x[ATTN_T_O][n] - t->want[at]) <= t->bound[at]))
            return 0;
        right += t->want[at] != 0 && !attn_run_element_is_right(run, ATTN_O, n);
    }
    return right >= 4;
}

int attn_learn_places(struct attn_failed_run *run)
{
    int found = run->failing[ATTN_O] && !run->backward && is_of_width_d(run);
    if (found)
        snprintf(run->text, run->size, "fits rows of O that are d numbers apart, not dv");
    for (int at = 0; at < ATTN_OUTPUTS && !found; at++) {
        const enum attn_output o = (enum attn_output)at;
        const int64_t n = run->failing[o] ? attn_run_rows(run, o) : 0;
        if (n < 2 || n > MOST_ROWS || run->truth.tensor[o].want == NULL)
            continue;
        int64_t *from = calloc((size_t)n, sizeof *from + 1); /* and n times `taken` */
        int moved = from != NULL ? find_all(run, o, n, from, (char *)(from + n)) : 0;
        found = moved >= 2 && moved >= n / 8;
        if (found)
            describe(run, o, from);
        free(from);
    }
    return found;
}
