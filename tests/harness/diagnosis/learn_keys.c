/* See faults.h: which keys a failing row has seen, learned from its LSE and O: the true set with
 * one run of keys lost or added, or another run in its place.  Sums over runs are differences of
 * prefix sums, so that all runs of a row can be tried.  Where V shows each key in a column of its
 * own (the fill `reveal`), any set can be read off. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/faults.h"

enum { MOST_KEYS = 512, MOST_ROWS = 2048 };
enum how { LOST, ADDED, REPLACED, HOWS };

struct learner {
    struct attn_evaluation eval;  /* of a model in which everything is visible */
    const struct attn_problem *p; /* the true one */
    int64_t n, d, b, h, i, row;   /* keys, features; the row that is looked at */
    double *weight[HOWS];         /* prefix sums of the weights of seen, of hidden, of all keys */
    double *value[HOWS];          /* the same times the first feature of V */
    double size;                  /* largest first feature of V, which that of O does not exceed */
    char *seen, *got, *different; /* the true set of the row, what it has seen, what is not both */
};

static const double *value_row(const struct learner *x, int64_t j)
{
    return attn_evaluation_row(&x->eval, ATTN_T_V, x->b, x->h / (x->p->heads / x->p->kv_heads), j);
}

/* A sum over the true set, once the run [lo,hi) is lost, is added, or is all. */
static double with_run(const struct learner *x, double *const sum[HOWS], enum how how, int64_t lo,
                       int64_t hi)
{
    double change = sum[how][hi] - sum[how][lo], all = sum[LOST][x->n];
    return how == LOST ? all - change : how == ADDED ? all + change : change;
}

/* Weights and the true set of a row; 0 when there is a score that is no number. */
static int weigh(struct learner *x)
{
    attn_evaluate_scores(&x->eval, x->b, x->h, x->i);
    for (int64_t j = 0; j < x->n; j++) {
        double w = x->eval.w[j];
        if (!isfinite(w))
            return 0;
        x->seen[j] = (char)attn_mask_allows(x->p->mask, x->b, x->h, x->i, j);
        x->size = fmax(j == 0 ? 0 : x->size, fabs(value_row(x, j)[0]));
        for (int how = LOST; how <= REPLACED; how++) {
            int counts = how == REPLACED || (how == LOST) == x->seen[j];
            x->weight[how][j + 1] = x->weight[how][j] + (counts ? w : 0);
            x->value[how][j + 1] = x->value[how][j] + (counts ? w * value_row(x, j)[0] : 0);
        }
    }
    return isfinite(x->eval.m);
}

/* Can the first element of the row be what is predicted?  more: what the prefix sums have lost. */
static int is_near(const struct learner *x, enum attn_output o, double predicted, double size,
                   double more)
{
    const struct attn_failed_run *run = x->eval.run;
    int64_t n = o == ATTN_O ? x->row * x->d : x->row;
    double bound = run->truth.tensor[o].bound[n], got = run->x[ATTN_T_O + o][n];
    return !run->compared[o] || !isfinite(predicted) || isinf(bound) ||
           fabs(got - predicted) <= run->loose * size + 4 * bound + 1e-30 + more;
}

/* Most runs are refuted by LSE, or by the first feature. */
static int may_be(const struct learner *x, enum how how, int64_t lo, int64_t hi)
{
    double l = with_run(x, x->weight, how, lo, hi), lost = 1e-12 * x->weight[REPLACED][x->n] / l;
    double lse = x->eval.m + log(l), o = with_run(x, x->value, how, lo, hi) / l;
    if (!(l > 0))
        return 1;
    return is_near(x, ATTN_LSE, lse, fabs(lse), lost) &&
           is_near(x, ATTN_O, o, x->size, lost * x->size);
}

/* Are LSE and O those of the set? */
static int confirm(struct learner *x)
{
    struct attn_evaluation *e = &x->eval;
    const struct attn_evidence before = e->evidence;
    double l = 0;
    for (int64_t j = 0; j < x->n; j++)
        l += x->got[j] ? e->w[j] : 0;
    for (int64_t c = 0; c < x->d; c++)
        e->o[c] = 0;
    for (int64_t j = 0; j < x->n && l > 0; j++)
        for (int64_t c = 0; c < x->d && x->got[j]; c++)
            e->o[c] += e->w[j] / l * value_row(x, j)[c];
    double lse = l > 0 ? e->m + log(l) : -(double)INFINITY;
    if ((!e->run->compared[ATTN_LSE] || attn_evaluation_fits(e, ATTN_LSE, x->row, &lse)) &&
        attn_evaluation_fits(e, ATTN_O, x->row, e->o))
        return 1;
    e->evidence = before;
    return 0;
}

/* Read a set off O, where V has a column for each key. */
static int read_off(struct learner *x)
{
    if (x->eval.run->setup->given.fill != ATTN_FILL_REVEAL || x->d < x->n)
        return 0;
    for (int64_t j = 0; j < x->n; j++) {
        x->got[j] = 0;
        for (int64_t c = 0; c < x->d; c++)
            if (value_row(x, j)[c] != 0 && fabs(x->eval.run->x[ATTN_T_O][x->row * x->d + c]) > 1e-6)
                x->got[j] = 1;
    }
    return confirm(x);
}

/* Try all runs, the shortest first. */
static int find(struct learner *x)
{
    if (read_off(x))
        return 1;
    for (int how = LOST; how <= REPLACED; how++)
        for (int64_t size = 1; size <= x->n; size++)
            for (int64_t lo = 0, hi = size; hi <= x->n; lo++, hi++) {
                if (how != REPLACED &&
                    ((how == LOST) != x->seen[lo] || !(x->weight[how][hi] > x->weight[how][lo])))
                    continue;
                if (!may_be(x, (enum how)how, lo, hi))
                    continue;
                for (int64_t j = 0; j < x->n; j++) {
                    int in = j >= lo && j < hi;
                    x->got[j] = (char)(how == LOST    ? x->seen[j] && !in
                                       : how == ADDED ? x->seen[j] || in
                                                      : in);
                }
                if (confirm(x))
                    return 1;
            }
    return 0;
}

/* ---- all rows ------------------------------------------------------------------------------- */

/* The facts of a row: how its set differs, the first and last key that is lost or added, by how
 * much its ends have moved outwards, and the true ends. */
enum { HOW, LO, HI, LEFT, RIGHT, FIRST, LAST, FACTS };

/* The sets of all failing rows against the true ones, and what they have in common. */
struct common {
    int64_t rows, b, h, i; /* how many; the first of them */
    int64_t low, high;     /* rows */
    int64_t tile;          /* lost are whole tiles of this size, visible in part; or 0 */
    int64_t of[FACTS];     /* of the first */
    int same[FACTS];       /* of all */
    int64_t lost[2];       /* the first and last key that any row has lost */
};

static void ends(const char *set, int64_t n, int64_t *first, int64_t *last)
{
    *first = n, *last = -1;
    for (int64_t j = 0; j < n; j++)
        if (set[j]) {
            *first = j < *first ? j : *first;
            *last = j;
        }
}

/* Returns 1 if the row loses whole tiles and nothing else, which are visible in part. */
static int loses_partial(const struct learner *x, int64_t tile)
{
    const struct attn_problem *p = x->p;
    int64_t i0 = x->i / tile * tile, i1 = i0 + tile < p->n_query ? i0 + tile : p->n_query;
    for (int64_t j0 = 0; j0 < x->n; j0 += tile) {
        int64_t j1 = j0 + tile < x->n ? j0 + tile : x->n;
        int seen = 0, got = 0;
        for (int64_t j = j0; j < j1; j++)
            seen += x->seen[j], got += x->got[j];
        const struct attn_tile_at at = {x->b, x->h, i0, i1, j0, j1};
        if (got != seen && (got > 0 || attn_problem_tile(p, at) != ATTN_TILE_PARTIAL))
            return 0;
    }
    return tile < x->n;
}

static void take(struct common *c, struct learner *x)
{
    int64_t now[FACTS], got_first, got_last;
    int lost = 0, added = 0;
    for (int64_t j = 0; j < x->n; j++) {
        x->different[j] = x->seen[j] != x->got[j];
        lost += x->seen[j] && !x->got[j];
        added += x->got[j] && !x->seen[j];
    }
    ends(x->seen, x->n, &now[FIRST], &now[LAST]);
    ends(x->got, x->n, &got_first, &got_last);
    ends(x->different, x->n, &now[LO], &now[HI]);
    now[HOW] = added == 0 ? LOST : lost == 0 ? ADDED : REPLACED;
    now[LEFT] = now[FIRST] - got_first;
    now[RIGHT] = got_last - now[LAST];
    if (c->rows++ == 0) {
        *c = (struct common){1, x->b, x->h, x->i, x->i, x->i, 64, {0}, {0}, {x->n, -1}};
        memcpy(c->of, now, sizeof now);
    }
    for (int f = 0; f < FACTS; f++)
        c->same[f] = (c->rows == 1 || c->same[f]) && now[f] == c->of[f];
    c->lost[0] = now[LO] < c->lost[0] ? now[LO] : c->lost[0];
    c->lost[1] = now[HI] > c->lost[1] ? now[HI] : c->lost[1];
    c->low = x->i < c->low ? x->i : c->low;
    c->high = x->i > c->high ? x->i : c->high;
    while (c->tile > 0 && (now[HOW] != LOST || c->tile < 8 || !loses_partial(x, c->tile)))
        c->tile = c->rows == 1 && c->tile > 8 ? c->tile / 2 : 0; /* the first decides how many */
}

/* Keys n to g are hidden, whatever the mask says. */
static void hide_keys(struct attn_evaluation *x, struct attn_fault_at *at)
{
    if (at->j >= x->f->n && at->j <= x->f->g)
        at->seen = 0;
}

/* Rows lose different keys where they see different ones: are the same keys lost for all? */
static void join_lost(struct common *c, const struct attn_failed_run *run)
{
    const struct attn_fault_model f = {ATTN_AT_MASK, hide_keys, c->lost[0], 0, c->lost[1]};
    if (!c->same[HOW] || c->of[HOW] != LOST || !attn_fault_fits(run, &f))
        return;
    c->of[LO] = c->lost[0], c->of[HI] = c->lost[1];
    c->same[LO] = c->same[HI] = 1;
}

static void describe(const struct common *c, struct attn_failed_run *run)
{
    static const char *const rows_that[] = {"lose keys that the mask shows",
                                            "see keys that the mask hides",
                                            "lose some keys and see others"};
    const struct attn_problem *p = &run->setup->problem;
    const long long lo = c->of[LO], hi = c->of[HI], left = c->of[LEFT], right = c->of[RIGHT];
    long long tail = attn_tail_of(c->low, c->high, p->n_query);
    int how = (int)c->of[HOW], same = c->same[HOW] && c->same[LO] && c->same[HI];
    int moved = !(c->same[FIRST] && c->same[LAST]) && c->same[LEFT] && c->same[RIGHT];
    char *text = run->text, keys[60];
    size_t size = run->size;
    snprintf(keys, sizeof keys, lo == hi ? "key %lld" : "keys %lld to %lld", lo, hi);
    if (c->tile > 0)
        snprintf(text, size, "fits tiles of %lld keys that are visible in part taken for hidden",
                 (long long)c->tile);
    else if (same && how == LOST && lo == 0 && hi == p->n_key - 1)
        snprintf(text, size, "fits rows%s taken for rows that see no key",
                 tail > 0 ? " in the tail of a tile" : "");
    else if (same && how == LOST && hi == p->n_key - 1)
        snprintf(text, size, "fits %s lost: the last %lld%s", keys, hi - lo + 1,
                 lo == p->n_query ? " (as many are read as there are queries)" : "");
    else if (same && how == LOST)
        snprintf(text, size, "fits %s lost in every row that fails", keys);
    else if (moved && left == 0 && right != 0)
        snprintf(text, size, "fits a diagonal %lld keys too far to the %s%s", llabs(right),
                 right > 0 ? "right" : "left",
                 llabs(right) == llabs(p->n_key - p->n_query) ? ": aligned at the other corner"
                                                              : "");
    else if (moved && left != 0)
        snprintf(text, size, "fits a window %lld keys too %s on the left", llabs(left),
                 left > 0 ? "long" : "short");
    else { /* of which query is no part of the cause: every case has another */
        snprintf(text, size, "fits rows%s that %s", tail > 0 ? " in the tail of a tile" : "",
                 rows_that[how]);
        snprintf(run->where, run->where_size, "query [%lld,%lld,%lld]", (long long)c->b,
                 (long long)c->h, (long long)c->i);
        if (c->rows > 1)
            attn_append(run->where, run->where_size, " and %lld more", (long long)c->rows - 1);
        attn_append(run->where, run->where_size, ": %s", keys);
    }
}

static int learn(struct attn_failed_run *run, struct learner *x)
{
    const struct attn_problem *p = x->p;
    struct common common = {0};
    for (x->row = 0; x->row < attn_run_rows(run, ATTN_O); x->row++) {
        x->b = x->row / p->n_query / p->heads;
        x->h = x->row / p->n_query % p->heads;
        x->i = x->row % p->n_query;
        if (attn_run_row_is_right(run, ATTN_O, x->row) &&
            (!run->compared[ATTN_LSE] || attn_run_row_is_right(run, ATTN_LSE, x->row)))
            continue;
        if (!weigh(x) || !find(x))
            return 0;
        take(&common, x);
    }
    if (common.rows == 0 || !attn_evaluation_explains(&x->eval))
        return 0;
    join_lost(&common, run);
    describe(&common, run);
    return 1;
}

int attn_learn_keys(struct attn_failed_run *run)
{
    const struct attn_problem *p = &run->setup->problem;
    const struct attn_fault_model truth = {.place = ATTN_AT_NONE};
    struct learner x = {.p = p, .n = p->n_key, .d = p->d_value};
    if (run->backward || !run->failing[ATTN_O] || x.n > MOST_KEYS || x.n < 2 || x.d == 0 ||
        attn_run_rows(run, ATTN_O) > MOST_ROWS)
        return 0;
    double sums[2 * HOWS][MOST_KEYS + 1];
    char sets[3][MOST_KEYS];
    for (int how = LOST; how <= REPLACED; how++) {
        x.weight[how] = sums[how], x.value[how] = sums[HOWS + how];
        x.weight[how][0] = x.value[how][0] = 0;
    }
    x.seen = sets[0], x.got = sets[1], x.different = sets[2];
    int found = attn_evaluation_open(&x.eval, run, &truth);
    x.eval.problem.mask = NULL; /* everything is visible */
    found = found && learn(run, &x);
    attn_evaluation_close(&x.eval);
    return found;
}
