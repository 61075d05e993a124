/* See faults.h: the delta that each row of a backward has used, and whether an output is the truth
 * times a number, or plus one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/faults.h"

/* ---- delta ---------------------------------------------------------------------------------- */

/* dS is linear in delta, and so is a row of dQ: with dq0 and dq1 for delta 0 and 1 it is
 * dq0 + delta (dq1 - dq0).  So the delta that was used can be read off, and whether anything else
 * is wrong too.  dq0: room for d numbers. */
static int row_has_delta(struct attn_evaluation *x, int64_t row, double *dq0, double *delta)
{
    const int64_t d = x->p->d_key;
    const double *got = x->x[ATTN_T_DQ] + row * d;
    double top = 0, bottom = 0;
    attn_evaluate_dq(x, row, 0);
    memcpy(dq0, x->dq, (size_t)d * sizeof *dq0);
    attn_evaluate_dq(x, row, 1);
    for (int64_t c = 0; c < d; c++) {
        double slope = x->dq[c] - dq0[c];
        top += (got[c] - dq0[c]) * slope;
        bottom += slope * slope;
    }
    *delta = bottom > 0 ? top / bottom : (double)NAN;
    attn_evaluate_dq(x, row, *delta);
    return isfinite(*delta) && attn_evaluation_fits(x, ATTN_DQ, row, x->dq);
}

/* A row that sees one key all but alone fits every delta. */
static int has_two_keys(const struct attn_evaluation *x)
{
    double most = 0, sum = 0;
    for (int64_t j = 0; j < x->p->n_key; j++)
        most = fmax(most, x->probs[j]), sum += x->probs[j];
    return most < 0.99 * sum;
}

/* dK is of the same dS: do these deltas, one a row, leave at most a quarter of its error? */
static int is_of_dk_too(struct attn_evaluation *x, const double *delta)
{
    const struct attn_truth_tensor *t = &x->run->truth.tensor[ATTN_DK];
    const int64_t n = attn_run_rows(x->run, ATTN_DK) * x->p->d_key;
    double error = 0, left = 0;
    memset(x->dk, 0, (size_t)n * sizeof *x->dk);
    for (int64_t row = 0; row < attn_run_rows(x->run, ATTN_DQ); row++)
        attn_evaluate_dq(x, row, delta[row]);
    for (int64_t e = 0; e < n; e++) {
        const double got = x->x[ATTN_T_DK][e], off = fabs(got - t->want[e]) - t->bound[e];
        error += fmax(off, 0);
        left += fmax(fabs(got - x->dk[e]) - t->bound[e], 0);
    }
    return 4 * left <= error;
}

int attn_learn_delta(struct attn_failed_run *run)
{
    const struct attn_fault_model truth = {.place = ATTN_AT_NONE};
    const int64_t d = run->setup->problem.d_key, rows = attn_run_rows(run, ATTN_DQ);
    struct attn_evaluation x;
    int64_t wrong = 0;
    double first = 0;
    int says = 0;
    if (!run->backward || !run->failing[ATTN_DQ] || run->failing[ATTN_DV] || d < 2)
        return 0;
    double *dq0 = malloc((size_t)(d + rows) * sizeof *dq0), *delta = dq0 + d;
    int ok = attn_evaluation_open(&x, run, &truth) && dq0 != NULL;
    for (int64_t row = 0; row < rows && ok; row++) {
        delta[row] = attn_evaluate_delta(&x, row);
        if (attn_run_row_is_right(run, ATTN_DQ, row))
            continue;
        ok = row_has_delta(&x, row, dq0, &delta[row]);
        first = wrong++ == 0 ? delta[row] : first;
        says |= has_two_keys(&x);
    }
    ok = ok && says && attn_evaluation_explains(&x) &&
         (!run->failing[ATTN_DK] || is_of_dk_too(&x, delta));
    attn_evaluation_close(&x);
    free(dq0);
    if (ok)
        snprintf(run->text, run->size,
                 "fits a wrong delta in %lld rows (%.4g in the first), and nothing else wrong",
                 (long long)wrong, first);
    return ok;
}

/* ---- nothing at all ------------------------------------------------------------------------- */

int attn_learn_zeros(struct attn_failed_run *run)
{
    const double least = attn_least_normal(run->setup->problem.dtype);
    char names[40] = "";
    int is_lost = 0;
    for (int o = run->backward ? ATTN_DQ : ATTN_O; o < ATTN_OUTPUTS; o++) {
        if (!run->failing[o] || run->truth.tensor[o].want == NULL)
            continue;
        int64_t n = attn_run_rows(run, (enum attn_output)o) * run->truth.tensor[o].extent[3];
        for (; n > 0 && run->x[ATTN_T_O + o][n - 1] == 0; n--)
            is_lost |= isfinite(run->truth.tensor[o].want[n - 1]) &&
                       fabs(run->truth.tensor[o].want[n - 1]) >= least &&
                       !attn_run_element_is_right(run, (enum attn_output)o, n - 1);
        if (n > 0)
            return 0;
        attn_append(names, sizeof names, "%s%s", names[0] != '\0' ? ", " : "",
                    attn_output_name((enum attn_output)o));
    }
    snprintf(run->text, run->size, "fits 0 in every element of %s", names);
    return is_lost;
}

/* ---- a factor, a term ----------------------------------------------------------------------- */

/* An output as the truth times a number, plus a number. */
struct line {
    double factor, term;
};

/* The factor, or else the term, that comes closest. */
static struct line line_of(const struct attn_truth_tensor *t, const double *got, int64_t n,
                           int is_factor)
{
    double top = 0, bottom = 0, difference = 0, n_finite = 0;
    for (int64_t e = 0; e < n; e++) {
        if (!isfinite(t->want[e]) || !isfinite(got[e]) || isinf(t->bound[e]))
            continue;
        top += got[e] * t->want[e], bottom += t->want[e] * t->want[e];
        difference += got[e] - t->want[e], n_finite++;
    }
    return is_factor ? (struct line){bottom > 0 ? top / bottom : 1, 0}
                     : (struct line){1, n_finite > 0 ? difference / n_finite : 0};
}

/* Is every element on the line, and do several of those that are wrong speak for it?  A single one
 * is on some line always, and 0 in place of a subnormal says nothing of a factor. */
static int is_on(const struct attn_failed_run *run, enum attn_output o, int64_t n,
                 const struct line *line)
{
    const struct attn_truth_tensor *t = &run->truth.tensor[o];
    const double least = attn_least_normal(run->setup->problem.dtype);
    int64_t wrong = 0, apart = 0;
    for (int64_t e = 0; e < n; e++) {
        double want = t->want[e], got = run->x[ATTN_T_O + o][e];
        double predicted = isinf(want) ? want : line->factor * want + line->term;
        double tolerance =
            4 * t->bound[e] * fmax(1, fabs(line->factor)) + run->loose * fabs(predicted);
        int is_right = attn_run_element_is_right(run, o, e);
        if (isinf(t->bound[e]))
            continue;
        if (!(fabs(got - predicted) <= tolerance || got == predicted))
            return 0;
        if (want != 0 && fabs(want) < least)
            continue;
        wrong += !is_right;
        apart +=
            !is_right && fabs(got - predicted) < fabs(got - want) / 4 &&
            (line->term != 0 || fabs(got) > t->bound[e]); /* what is all but 0 fits any factor */
    }
    return apart >= 4 && 2 * apart >= wrong;
}

/* Says where a factor may come from: all that it may be. */
static void put_origin(const struct attn_problem *p, enum attn_output o, double factor, char *text,
                       size_t size)
{
    const int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 1;
    const int is_summed = group > 1 && (o == ATTN_DK || o == ATTN_DV);
    const struct {
        double factor;
        const char *words;
    } origin[] = {{p->scale, "the scale"},
                  {1 / p->scale, "1 / the scale, which it lacks"},
                  {p->scale != attn_root(p->d_key) ? attn_root(p->d_key) : (double)NAN,
                   "a scale of 1/sqrt(d)"},
                  {log2_e, "log2(e)"},
                  {ln_2, "ln 2"},
                  {is_summed ? 1 / (double)group : (double)NAN,
                   "averaged over the %lld heads of a group, not summed"}};
    int found = 0;
    for (size_t n = 0; n < sizeof origin / sizeof *origin; n++)
        if (fabs(factor - origin[n].factor) <= 1e-3 * fabs(origin[n].factor)) {
            attn_append(text, size, found++ > 0 ? ", or " : " (");
            attn_append(text, size, origin[n].words, (long long)group);
        }
    attn_append(text, size, "%s", found > 0 ? ")" : "");
}

/* One output; returns whether it is on a line.  LSE has terms where O has factors. */
static int put_line(const struct attn_failed_run *run, enum attn_output o, char *text, size_t size)
{
    int64_t n = attn_run_rows(run, o) * run->truth.tensor[o].extent[3];
    for (int way = 0; way < 2; way++) {
        int is_factor = (o != ATTN_LSE) == (way == 0);
        struct line line = line_of(&run->truth.tensor[o], run->x[ATTN_T_O + o], n, is_factor);
        if (!is_on(run, o, n, &line) || fabs(line.factor) < 1e-9)
            continue;
        if (is_factor) {
            snprintf(text, size, "%s times %.4g", attn_output_name(o), line.factor);
            put_origin(&run->setup->problem, o, line.factor, text, size);
        } else
            snprintf(text, size, "%s %.4g too %s", attn_output_name(o), fabs(line.term),
                     line.term > 0 ? "large" : "small");
        return 1;
    }
    return 0;
}

int attn_learn_lines(struct attn_failed_run *run)
{
    char part[120];
    run->text[0] = '\0';
    int end = run->backward ? ATTN_OUTPUTS : ATTN_DQ;
    for (int o = run->backward ? ATTN_DQ : ATTN_O; o < end; o++) {
        if (!run->failing[o] || run->truth.tensor[o].want == NULL)
            continue;
        if (o == ATTN_LSE && run->setup->given.fill == ATTN_FILL_SELECT)
            return 0; /* all LSE are near one number: a scale that is off looks like a term */
        if (!put_line(run, (enum attn_output)o, part, sizeof part))
            return 0;
        attn_append(run->text, run->size, "%s %s", run->text[0] == '\0' ? "fits" : " and", part);
    }
    return run->text[0] != '\0';
}
