/* Which keys a failing row has seen, learned from its LSE and O: the true set with one run of keys
 * lost or added, or another run in its place.  Sums over runs are differences of prefix sums, so
 * all runs of a row can be tried: by LSE, then by a weighted sum of O's features; all of O confirms
 * what both propose.  Where V shows each key in a column of its own (the fill `reveal`), any set
 * can be read off. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"
#include "tests/harness/faults/fault_eval.h"

enum { MOST_KEYS = 512, MOST_ROWS = 2048 };
enum how { LOST, ADDED, REPLACED };

struct learner {
    struct fault_eval evaluation;
    struct attn_fault_model open; /* everything is seen */
    double *sum;                  /* [3][n + 1] prefix sums of weights: seen, hidden, all */
    double *value;                /* the same of weight times blend(V)                    */
    double blend;                 /* of O                                                 */
    double slack, largest;        /* how far it may be off; largest blend(V)              */
    double size;                  /* largest |V|, which no feature of O exceeds           */
    int64_t kept;                 /* 1 + b G + g: whose V the three below are of; 0: none */
    double *v;                    /* [d][n] features of V, one after the other            */
    double *v_blend;              /* [n] blend(V)                                         */
    double *share;                /* [n] weights of the set being tried, of 1             */
    char *seen, *got;             /* the true set of the row, and what it has seen */
};

/* A run [lo,hi) that was lost, was added, or is all. */
struct run {
    enum how how;
    int64_t lo, hi;
};

static double part(const struct learner *x, const double *sums, int which, int64_t lo, int64_t hi)
{
    const double *sum = sums + which * (x->evaluation.p->n_key + 1);
    return sum[hi] - sum[lo];
}

/* What a sum over the true set becomes by the run. */
static double with_run(const struct learner *x, const double *sums, const struct run *f)
{
    double all = part(x, sums, 0, 0, x->evaluation.p->n_key),
           change = part(x, sums, f->how, f->lo, f->hi);
    return f->how == LOST ? all - change : f->how == ADDED ? all + change : change;
}

static void set_run(struct learner *x, const struct run *f)
{
    for (int64_t j = 0; j < x->evaluation.p->n_key; j++) {
        int in = j >= f->lo && j < f->hi;
        x->got[j] = (char)(f->how == LOST    ? x->seen[j] && !in
                           : f->how == ADDED ? x->seen[j] || in
                                             : in);
    }
}

/* A weighted sum of a row's features: the weights differ, so that V's rows do. */
static double blend(const struct attn_cview *of, int64_t b, int64_t h, int64_t i, int64_t d)
{
    double sum = 0, weight = 1;
    for (int64_t c = 0; c < d; c++, weight = fmod(weight + 0.6180339887498949, 1) + 0.5)
        sum += weight * attn_cview_get(of, b, h, i, c);
    return sum;
}

static double largest_of(double size, double v)
{
    return isfinite(v) && fabs(v) > size ? fabs(v) : size;
}

/* Can blend(O) be that of the run?  The tolerance is no less than that of all features together,
 * and what the prefix sums have lost. */
static int blend_agrees(const struct learner *x, const struct run *f, double l)
{
    const struct fault_eval *t = &x->evaluation;
    double all = part(x, x->sum, 2, 0, t->p->n_key);
    double told = l > 0 ? with_run(x, x->value, f) / l : 0;
    double tolerance = x->slack + (l > 0 ? 1e-12 * all / l * x->largest : 0);
    return !isfinite(told) || fabs(x->blend - told) <= tolerance;
}

/* Is feature c of O, as told, off by more than any row could be forgiven? */
static int refuted(const struct learner *x, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const struct fault_eval *t = &x->evaluation;
    const struct attn_truth_tensor *want = &t->q->truth.tensor[ATTN_O];
    double got = attn_cview_get(&t->view[ATTN_T_O], b, h, i, c);
    double bound =
        want->bound[((b * want->extent[1] + h) * want->extent[2] + i) * want->extent[3] + c];
    return fabs(got - t->o[c]) > t->q->loose * x->size + 4 * (isfinite(bound) ? bound : 0) + 1e-30;
}

/* Does O agree with the set?  LSE did.  Most sets are refuted by their first feature. */
static int o_agrees(struct learner *x, int64_t b, int64_t h, int64_t i)
{
    struct fault_eval *t = &x->evaluation;
    int64_t n = t->p->n_key;
    double l = 0;
    for (int64_t j = 0; j < n; j++)
        l += x->got[j] ? t->w[j] : 0;
    for (int64_t j = 0; j < n && l > 0; j++)
        x->share[j] = x->got[j] ? t->w[j] / l : 0;
    for (int64_t c = 0; c < t->p->d_value; c++) {
        const double *v = x->v + c * n;
        t->o[c] = 0;
        for (int64_t j = 0; j < n && l > 0; j++)
            if (x->got[j])
                t->o[c] += x->share[j] * v[j];
        if (isfinite(t->o[c]) && refuted(x, b, h, i, c))
            return 0;
    }
    return attn_eval_row_fits(t, ATTN_O, b, h, i, t->o);
}

static int lse_agrees(struct learner *x, int64_t b, int64_t h, int64_t i, double l)
{
    double lse = l > 0 ? x->evaluation.m + log(l) : -(double)INFINITY;
    if (!x->evaluation.q->compared[ATTN_LSE])
        return 1;
    return attn_eval_row_fits(&x->evaluation, ATTN_LSE, b, h, i, &lse);
}

/* One key more in three prefix sums: seen, hidden, all. */
static void add_to(double *sum, int64_t n, int seen, double term)
{
    sum[1] = sum[0] + (seen ? term : 0);
    sum[n + 2] = sum[n + 1] + (seen ? 0 : term);
    sum[2 * n + 3] = sum[2 * n + 2] + term;
}

/* V of the row's kv head, read once for all rows that share it; values of V are not bounded by
 * their blend, so their size is taken besides. */
static void keep_head(struct learner *x, int64_t b, int64_t g)
{
    const struct fault_eval *t = &x->evaluation;
    int64_t n = t->p->n_key, d = t->p->d_value;
    if (x->kept == 1 + b * t->p->kv_heads + g)
        return;
    x->kept = 1 + b * t->p->kv_heads + g;
    x->size = x->largest = 0;
    for (int64_t j = 0; j < n; j++) {
        for (int64_t c = 0; c < d; c++) {
            x->v[c * n + j] = attn_cview_get(&t->view[ATTN_T_V], b, g, j, c);
            x->size = largest_of(x->size, x->v[c * n + j]);
        }
        x->v_blend[j] = blend(&t->view[ATTN_T_V], b, g, j, d);
        x->largest = largest_of(x->largest, x->v_blend[j]);
    }
}

/* The blend of O's row, and what the tolerances of its features come to. */
static void set_slack(struct learner *x, int64_t b, int64_t h, int64_t i)
{
    const struct fault_eval *t = &x->evaluation;
    const struct attn_truth_tensor *want = &t->q->truth.tensor[ATTN_O];
    int64_t d = t->p->d_value;
    const double *bound = want->bound + ((b * want->extent[1] + h) * want->extent[2] + i) * d;
    x->blend = blend(&t->view[ATTN_T_O], b, h, i, d);
    x->slack = 0;
    for (int64_t c = 0; c < d; c++)
        x->slack += 1.5 * (t->q->loose * x->size + 4 * (isfinite(bound[c]) ? bound[c] : 0) + 1e-30);
}

/* Weights and the true set of a row; 0 when there is a score that is no number. */
static int weigh(struct learner *x, int64_t b, int64_t h, int64_t i)
{
    struct fault_eval *t = &x->evaluation;
    int64_t n = t->p->n_key, g = h / (t->p->heads / t->p->kv_heads);
    attn_eval_scores(t, b, h, i);
    memset(x->sum, 0, 6 * (size_t)(n + 1) * sizeof *x->sum);
    keep_head(x, b, g);
    for (int64_t j = 0; j < n; j++) {
        if (!isfinite(t->w[j]))
            return 0;
        x->seen[j] = (char)attn_mask_allows(t->p->mask, b, h, i, j);
        add_to(x->sum + j, n, x->seen[j], t->w[j]);
        add_to(x->value + j, n, x->seen[j], t->w[j] * x->v_blend[j]);
    }
    set_slack(x, b, h, i);
    return isfinite(t->m);
}

/* Read a set off O, where V has a column for each key. */
static int read_off(struct learner *x, int64_t b, int64_t h, int64_t i)
{
    struct fault_eval *t = &x->evaluation;
    int64_t n = t->p->n_key, g = h / (t->p->heads / t->p->kv_heads);
    if (t->q->setup->given.fill != ATTN_FILL_REVEAL || t->p->d_value < n)
        return 0;
    for (int64_t j = 0; j < n; j++) {
        x->got[j] = 0;
        for (int64_t c = 0; c < t->p->d_value; c++)
            if (attn_cview_get(&t->view[ATTN_T_V], b, g, j, c) != 0 &&
                fabs(attn_cview_get(&t->view[ATTN_T_O], b, h, i, c)) > 1e-6)
                x->got[j] = 1;
    }
    return o_agrees(x, b, h, i);
}

/* Try all runs, the shortest first. */
static int find(struct learner *x, int64_t b, int64_t h, int64_t i)
{
    int64_t n = x->evaluation.p->n_key;
    if (read_off(x, b, h, i))
        return 1;
    for (int how = LOST; how <= REPLACED; how++)
        for (int64_t size = 1; size <= n; size++)
            for (int64_t lo = 0; lo + size <= n; lo++) {
                const struct run f = {(enum how)how, lo, lo + size};
                double l = with_run(x, x->sum, &f);
                int ends = how == REPLACED || (how == LOST) == x->seen[lo];
                if (!ends || (how != REPLACED && !(part(x, x->sum, how, f.lo, f.hi) > 0)) ||
                    !lse_agrees(x, b, h, i, l) || !blend_agrees(x, &f, l))
                    continue;
                set_run(x, &f);
                if (o_agrees(x, b, h, i))
                    return 1;
            }
    return 0;
}

/* ---- all rows -------------------------------------------------------------------------------- */

/* The sets of all failing rows against the true ones, and what they have in common. */
struct common {
    int64_t rows, b, h, i;     /* how many; the first of them                           */
    enum how how;              /* of the first                                          */
    int64_t lo, hi;            /* first and last key that is lost or added, of the first */
    int same;                  /* in all rows                                            */
    int64_t left, right;       /* by how much the ends of the first have moved outwards  */
    int left_same, right_same; /* in all rows                                            */
    int64_t first, last;       /* true ends of the first                                 */
    int diagonal;              /* true ends differ between rows                          */
    int64_t low, high;         /* rows                                                   */
    int64_t tile;              /* keys are lost by whole tiles of so many; 0: they are not */
    int partial;               /* all of which are visible in part                       */
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

/* Whether the row loses all or nothing that it should see of each tile. */
static int by_tiles(const struct learner *x, int64_t tile)
{
    for (int64_t j0 = 0; j0 < x->evaluation.p->n_key; j0 += tile) {
        int64_t j1 = j0 + tile < x->evaluation.p->n_key ? j0 + tile : x->evaluation.p->n_key;
        int seen = 0, got = 0;
        for (int64_t j = j0; j < j1; j++)
            seen += x->seen[j], got += x->got[j];
        if (got != 0 && got != seen)
            return 0;
    }
    return 1;
}

static int all_partial(const struct learner *x, int64_t b, int64_t h, int64_t i, int64_t tile)
{
    const struct attn_problem *p = x->evaluation.p;
    int64_t i0 = i / tile * tile, i1 = i0 + tile < p->n_query ? i0 + tile : p->n_query;
    for (int64_t j = 0; j < p->n_key; j++) {
        int64_t j0 = j / tile * tile, j1 = j0 + tile < p->n_key ? j0 + tile : p->n_key;
        if (x->seen[j] && !x->got[j] &&
            attn_problem_tile(p, b, h, i0, i1, j0, j1) != ATTN_TILE_PARTIAL)
            return 0;
    }
    return 1;
}

static void take_tiles(struct common *c, const struct learner *x, int64_t b, int64_t h, int64_t i)
{
    if (c->rows == 1)
        for (c->tile = 64; c->tile >= 8; c->tile /= 2)
            if (c->tile < x->evaluation.p->n_key && by_tiles(x, c->tile))
                break;
    if (c->tile < 8 || c->how != LOST || !by_tiles(x, c->tile))
        c->tile = 0;
    c->partial &= c->tile > 0 && all_partial(x, b, h, i, c->tile);
}

static void take(struct common *c, const struct learner *x, int64_t b, int64_t h, int64_t i)
{
    int64_t n = x->evaluation.p->n_key, first, last, got_first, got_last, lo = n, hi = -1;
    int lost = 0, added = 0;
    ends(x->seen, n, &first, &last);
    ends(x->got, n, &got_first, &got_last);
    for (int64_t j = 0; j < n; j++) {
        lost += x->seen[j] && !x->got[j];
        added += x->got[j] && !x->seen[j];
        lo = x->seen[j] != x->got[j] && j < lo ? j : lo;
        hi = x->seen[j] != x->got[j] ? j : hi;
    }
    enum how how = added == 0 ? LOST : lost == 0 ? ADDED : REPLACED;
    int64_t left = first - got_first, right = got_last - last;
    if (c->rows++ == 0)
        *c = (struct common){1, b, h,     i,    how, lo, hi, 1, left, right,
                             1, 1, first, last, 0,   i,  i,  0, 1};
    c->same &= how == c->how && lo == c->lo && hi == c->hi;
    c->left_same &= left == c->left;
    c->right_same &= right == c->right;
    c->diagonal |= last != c->last || first != c->first;
    c->low = i < c->low ? i : c->low;
    c->high = i > c->high ? i : c->high;
    take_tiles(c, x, b, h, i);
}

static void describe(const struct common *c, const struct attn_problem *p, char *text, size_t size)
{
    static const char *const verb[] = {"loses", "sees", "loses some and sees other of"};
    static const char *const end[] = {", which the mask shows", ": not what the mask says",
                                      ": not what the mask says"};
    long long lo = c->lo, hi = c->hi, tail = attn_tail_of(c->low, c->high, p->n_query);
    int moved = c->diagonal && c->left_same && c->right_same;
    if (c->tile > 0 && c->partial)
        snprintf(text, size, "fits tiles of %lld keys that are visible in part taken for hidden",
                 (long long)c->tile);
    else if (c->same && c->how == LOST && c->hi == p->n_key - 1)
        snprintf(text, size, "fits keys %lld to %lld lost: the last %lld%s", lo, hi, hi - lo + 1,
                 c->lo == p->n_query ? " (as many are read as there are queries)" : "");
    else if (c->same && c->how == LOST)
        snprintf(text, size, "fits keys %lld to %lld lost in every row that fails", lo, hi);
    else if (moved && c->left == 0 && c->right != 0)
        snprintf(text, size, "fits a diagonal %lld keys too far to the %s%s",
                 (long long)llabs(c->right), c->right > 0 ? "right" : "left",
                 llabs(c->right) == llabs(p->n_key - p->n_query) ? ": aligned at the other corner"
                                                                 : "");
    else if (moved && c->left != 0)
        snprintf(text, size, "fits a window %lld keys too %s on the left",
                 (long long)llabs(c->left), c->left > 0 ? "long" : "short");
    else if (tail > 0)
        snprintf(text, size,
                 "fits queries %lld to %lld (the tail of a tile of %lld) under another mask: the "
                 "first %s keys %lld to %lld",
                 (long long)c->low, (long long)c->high, tail, verb[c->how], lo, hi);
    else
        snprintf(text, size,
                 "fits query [%lld,%lld,%lld], and %lld like it, that %s keys %lld to "
                 "%lld%s",
                 (long long)c->b, (long long)c->h, (long long)c->i, (long long)c->rows - 1,
                 verb[c->how], lo, hi, end[c->how]);
}

/* What speaks for the set that was found: sets that were tried in vain have been counted too. */
static int count_again(struct learner *x, const struct evidence *before, int64_t b, int64_t h,
                       int64_t i)
{
    double l = 0;
    for (int64_t j = 0; j < x->evaluation.p->n_key; j++)
        l += x->got[j] ? x->evaluation.w[j] : 0;
    x->evaluation.evidence = *before;
    return lse_agrees(x, b, h, i, l) && o_agrees(x, b, h, i);
}

static int learn(struct attn_hypotheses *x, struct learner *learner)
{
    const struct attn_problem *p = &x->setup->problem;
    struct common common = {0};
    for (int64_t row = 0; row < p->batch * p->heads * p->n_query; row++) {
        int64_t bh = row / p->n_query, b = bh / p->heads, h = bh % p->heads, i = row % p->n_query;
        int right = attn_row_is_right(x->failed, ATTN_O, row) &&
                    (!x->failed->compared[ATTN_LSE] || attn_row_is_right(x->failed, ATTN_LSE, row));
        if (right)
            continue;
        const struct evidence before = learner->evaluation.evidence;
        if (!weigh(learner, b, h, i) || !find(learner, b, h, i) ||
            !count_again(learner, &before, b, h, i))
            return 0;
        take(&common, learner, b, h, i);
    }
    if (common.rows == 0 || !attn_eval_explains(&learner->evaluation))
        return 0;
    describe(&common, p, x->text, x->size);
    return 1;
}

int attn_hypothesis_seen(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    struct learner learner = {.sum = NULL};
    int64_t rows = p->batch * p->heads * p->n_query;
    if (x->failed->backward || !x->failed->failing[ATTN_O] || p->n_key > MOST_KEYS ||
        p->n_key < 2 || rows > MOST_ROWS || p->d_value == 0)
        return 0;
    attn_fault_none(x->setup, &learner.open);
    learner.open.mask = NULL;
    learner.sum =
        calloc((size_t)(6 * (p->n_key + 1) + (p->d_value + 2) * p->n_key), sizeof(double));
    learner.value = learner.sum != NULL ? learner.sum + 3 * (p->n_key + 1) : NULL;
    learner.v_blend = learner.sum != NULL ? learner.value + 3 * (p->n_key + 1) : NULL;
    learner.share = learner.sum != NULL ? learner.v_blend + p->n_key : NULL;
    learner.v = learner.sum != NULL ? learner.share + p->n_key : NULL;
    learner.seen = calloc((size_t)p->n_key, 1);
    learner.got = calloc((size_t)p->n_key, 1);
    int found = attn_eval_open(&learner.evaluation, x->failed, &learner.open) &&
                learner.sum != NULL && learner.seen != NULL && learner.got != NULL &&
                learn(x, &learner);
    attn_eval_close(&learner.evaluation);
    free(learner.got);
    free(learner.seen);
    free(learner.sum);
    return found;
}
