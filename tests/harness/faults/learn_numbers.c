/* See faults.h: the delta that each row of a backward has used, and whether an output is the truth
 * times a number, or plus one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/faults/faults.h"
#include "tests/harness/files/fileio.h"

/* ---- delta ---------------------------------------------------------------------------------- */

/* dS is linear in delta, and so is a row of dQ: got = A - delta B with A = sum P dP k, B = sum P k
 * (scaled, and bent by the softcap).  So the delta that was used can be read off, and whether
 * anything else is wrong too.  room: 2 d numbers. */
static int row_has_delta(struct attn_evaluation *x, int64_t row, double *room, double *delta)
{
    const struct attn_problem *p = x->p;
    int64_t i = row % p->n_query, h = row / p->n_query % p->heads, b = row / p->n_query / p->heads;
    int64_t g = h / (p->heads / p->kv_heads), d = p->d_key;
    double lse = x->run->truth.tensor[ATTN_LSE].want[row], *A = room, *B = room + d;
    double top = 0, bottom = 0;
    const double *dq = attn_evaluation_row(x, ATTN_T_DQ, b, h, i);
    const double *d_o = attn_evaluation_row(x, ATTN_T_DO, b, h, i);
    memset(room, 0, 2 * (size_t)d * sizeof *room);
    attn_evaluate_scores(x, b, h, i);
    for (int64_t j = 0; j < p->n_key; j++) {
        const double *v = attn_evaluation_row(x, ATTN_T_V, b, g, j);
        const double *k = attn_evaluation_row(x, ATTN_T_K, b, g, j);
        double dp = 0, y = p->softcap > 0 ? tanh(x->raw[j] / p->softcap) : 0;
        double weight = exp(x->s[j] - lse) * (1 - y * y) * p->scale;
        if (x->s[j] == -(double)INFINITY)
            continue;
        for (int64_t c = 0; c < p->d_value; c++)
            dp += d_o[c] * v[c];
        for (int64_t c = 0; c < d; c++)
            A[c] += weight * dp * k[c], B[c] += weight * k[c];
    }
    for (int64_t c = 0; c < d; c++)
        top += (A[c] - dq[c]) * B[c], bottom += B[c] * B[c];
    *delta = bottom > 0 ? top / bottom : 0;
    for (int64_t c = 0; c < d; c++)
        A[c] -= *delta * B[c];
    return bottom > 0 && isfinite(*delta) && attn_evaluation_fits(x, ATTN_DQ, row, A);
}

int attn_learn_delta(struct attn_failed_run *run)
{
    const struct attn_problem *p = &run->setup->problem;
    const struct attn_fault_model truth = {.step = ATTN_STEP_NONE};
    struct attn_evaluation x;
    int64_t wrong = 0;
    int ok = run->backward && run->failing[ATTN_DQ] && p->d_key > 1;
    double *room = ok ? malloc(2 * (size_t)p->d_key * sizeof *room) : NULL, delta, first = 0;
    if (room == NULL)
        return 0;
    ok = attn_evaluation_open(&x, run, &truth);
    for (int64_t row = 0; row < attn_run_rows(run, ATTN_DQ) && ok; row++) {
        if (attn_run_row_is_right(run, ATTN_DQ, row))
            continue;
        ok = row_has_delta(&x, row, room, &delta);
        first = wrong++ == 0 ? delta : first;
    }
    ok = ok && wrong > 0 && attn_evaluation_explains(&x);
    attn_evaluation_close(&x);
    free(room);
    if (ok)
        snprintf(run->text, run->size,
                 "fits a wrong delta in %lld rows (%.4g in the first), and nothing else wrong",
                 (long long)wrong, first);
    return ok;
}

/* ---- a factor, a term ----------------------------------------------------------------------- */

/* What an output would be of the truth: times a number, plus a number. */
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
 * is on some line always. */
static int is_on(const struct attn_failed_run *run, enum attn_output o, int64_t n,
                 const struct line *line)
{
    const struct attn_truth_tensor *t = &run->truth.tensor[o];
    int64_t wrong = 0, apart = 0;
    for (int64_t e = 0; e < n; e++) {
        double want = t->want[e], got = run->x[ATTN_T_O + o][e];
        double told = isinf(want) ? want : line->factor * want + line->term;
        double room = 4 * t->bound[e] * fmax(1, fabs(line->factor)) + run->loose * fabs(told);
        int is_right = attn_run_element_is_right(run, o, e);
        if (isinf(t->bound[e]))
            continue;
        if (!(fabs(got - told) <= room || got == told))
            return 0;
        wrong += !is_right;
        apart += !is_right && fabs(got - told) < fabs(got - want) / 4;
    }
    return apart >= 4 && 2 * apart >= wrong;
}

/* What a factor may be. */
static const char *origin_of(const struct attn_problem *p, double factor)
{
    double root = attn_root(p->d_key);
    return fabs(factor - p->scale) <= 1e-3 * fabs(p->scale) ? " (the scale)"
           : fabs(factor * p->scale - 1) <= 1e-3            ? " (1 / the scale)"
           : fabs(factor - root) <= 1e-3 * root             ? " (a scale of 1/sqrt(d))"
                                                            : "";
}

/* One output; returns whether it is on a line.  LSE has terms where O has factors. */
static int put_line(const struct attn_failed_run *run, enum attn_output o, char *text, size_t size)
{
    int64_t n = attn_run_rows(run, o) * run->truth.tensor[o].extent[3];
    for (int way = 0; way < 2; way++) {
        int is_factor = (o != ATTN_LSE) == (way == 0);
        struct line line = line_of(&run->truth.tensor[o], run->x[ATTN_T_O + o], n, is_factor);
        if (line.factor == 0 || !is_on(run, o, n, &line))
            continue;
        if (is_factor)
            snprintf(text, size, "%s times %.4g%s", attn_output_name(o), line.factor,
                     origin_of(&run->setup->problem, line.factor));
        else
            snprintf(text, size, "%s %.4g too %s", attn_output_name(o), fabs(line.term),
                     line.term > 0 ? "large" : "small");
        return 1;
    }
    return 0;
}

int attn_learn_lines(struct attn_failed_run *run)
{
    char part[80];
    run->text[0] = '\0';
    int end = run->backward ? ATTN_OUTPUTS : ATTN_DQ;
    for (int o = run->backward ? ATTN_DQ : ATTN_O; o < end; o++) {
        if (!run->failing[o] || run->truth.tensor[o].want == NULL)
            continue;
        if (!put_line(run, (enum attn_output)o, part, sizeof part))
            return 0;
        attn_append(run->text, run->size, "%s %s", run->text[0] == '\0' ? "fits" : " and", part);
    }
    return run->text[0] != '\0';
}
