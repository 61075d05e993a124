/* Relations of keys and queries: permuted, repeated, removed, taken apart (bugs.md R2 to R6, R16,
 * R18, R19). */
#include <math.h>
#include <stdio.h>

#include "tests/harness/cases/setup_mask.h"
#include "tests/harness/relations/relation_fixture.h"

/* Row i of an input becomes row row_of(i) of the other's. */
static void copy_rows(struct attn_trial *to, const struct attn_trial *from, enum attn_slot slot,
                      int64_t n, int64_t (*row_of)(int64_t row, const void *arg), const void *arg)
{
    const struct attn_tensor *x = &to->setup.tensor[slot];
    for (int64_t b = 0; b < x->extent[0]; b++)
        for (int64_t h = 0; h < x->extent[1]; h++)
            for (int64_t i = 0; i < n; i++) {
                const int64_t to_at[3] = {b, h, i}, from_at[3] = {b, h, row_of(i, arg)};
                if (from_at[2] >= 0)
                    attn_fixture_copy_row(to, from, slot, to_at, from_at);
            }
}

/* ---- R2, R3 ---------------------------------------------------------------------------------- */

/* Row i of the permuted problem is row permuted(i) of the first: 5 divides none of the lengths. */
static int64_t permuted(int64_t i, const void *arg)
{
    return (5 * i + 3) % *(const int64_t *)arg;
}

/* Output row i of the permuted problem. */
static void permuted_row(const void *arg, struct attn_fixture_want *want)
{
    want->at[2] = permuted(want->at[2], arg);
}

/* The stored [Lq,Lk] mask of y becomes that of x with rows or columns permuted. */
static void permute_mask(struct attn_trial *y, const struct attn_trial *x, int rows)
{
    int64_t nq = x->setup.problem.n_query, nk = x->setup.problem.n_key;
    unsigned char *to = y->setup.made->data;
    const unsigned char *from = x->setup.made->data;
    for (int64_t i = 0; i < nq; i++)
        for (int64_t j = 0; j < nk; j++)
            to[i * nk + j] =
                from[(rows ? permuted(i, &nq) : i) * nk + (rows ? j : permuted(j, &nk))];
}

static void permute(struct attn_fixture *f, const struct attn_fixture_shape *s, int rows)
{
    static const enum attn_slot moved[2][2] = {{ATTN_T_K, ATTN_T_V}, {ATTN_T_Q, ATTN_T_DO}};
    struct attn_trial x, y;
    const int64_t n = rows ? s->q : s->k;
    if (!attn_fixture_open(f, &x, s, "dense(qk60)", "normal:s1", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_open(f, &y, s, "dense(qk60)", "normal:s1", ATTN_BACKWARD, "")) {
        for (int m = 0; m < 2; m++)
            copy_rows(&y, &x, moved[rows][m], n, permuted, &n);
        permute_mask(&y, &x, rows);
        if (attn_fixture_run_both(f, &x, &y))
            for (int o = 0; o <= ATTN_DV; o++) {
                int by_query = o <= ATTN_DQ;
                attn_fixture_compare(f, &y, &x, (enum attn_output)o, ATTN_FIXTURE_BOUNDS,
                                     by_query == rows ? permuted_row : NULL, &n);
            }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

void attn_relation_permute_keys(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    permute(f, shape, 0);
}

void attn_relation_permute_queries(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    permute(f, shape, 1);
}

/* ---- R4 -------------------------------------------------------------------------------------- */

enum { REPEATED = 3, TIMES = 5 };

static int64_t repeated_key(int64_t j, const void *arg)
{
    return j < *(const int64_t *)arg ? j : REPEATED;
}

static void with_slack(const void *arg, struct attn_fixture_want *want)
{
    want->slack = *(const double *)arg;
}

/* One feature more carries the logarithm: q = 4, scale = 1/4, k = ln 5 for one key. */
static void set_last(struct attn_trial *t, enum attn_slot slot, int64_t column, double x)
{
    struct attn_tensor *a = &t->setup.tensor[slot];
    for (int64_t b = 0; b < a->extent[0]; b++)
        for (int64_t h = 0; h < a->extent[1]; h++)
            for (int64_t i = 0; i < a->extent[2]; i++)
                attn_tensor_set(a, b, h, i, column, x);
}

void attn_relation_repeat_key(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape one = *shape, many;
    const int64_t extra = one.d++;
    many = one;
    many.k += TIMES - 1;
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, &one, "none", "normal:s1", ATTN_FORWARD, ":scale=0.25"))
        return;
    if (attn_fixture_open(f, &y, &many, "none", "normal:s1", ATTN_FORWARD, ":scale=0.25")) {
        set_last(&x, ATTN_T_Q, extra, 4);
        set_last(&x, ATTN_T_K, extra, 0);
        attn_fixture_copy(&y, &x, ATTN_T_Q);
        copy_rows(&y, &x, ATTN_T_K, many.k, repeated_key, &one.k);
        copy_rows(&y, &x, ATTN_T_V, many.k, repeated_key, &one.k);
        struct attn_tensor *k = &x.setup.tensor[ATTN_T_K];
        for (int64_t b = 0; b < one.b; b++)
            for (int64_t g = 0; g < one.g; g++)
                attn_tensor_set(k, b, g, REPEATED, extra, log(TIMES));
        /* The logarithm is stored rounded: that moves LSE by as much, O by the spread of V (below
         * 10) times that. */
        double slack = fabs(attn_tensor_get(k, 0, 0, REPEATED, extra) - log(TIMES));
        double slack_o = 10 * slack;
        if (attn_fixture_run_both(f, &x, &y)) {
            attn_fixture_compare(f, &x, &y, ATTN_O, ATTN_FIXTURE_BOUNDS, with_slack, &slack_o);
            attn_fixture_compare(f, &x, &y, ATTN_LSE, ATTN_FIXTURE_BOUNDS, with_slack, &slack);
        }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

/* ---- R5, R6 ---------------------------------------------------------------------------------- */

static int64_t modulo(int64_t j, const void *arg)
{
    return j % *(const int64_t *)arg;
}

static void more_by_ln2(const void *arg, struct attn_fixture_want *want)
{
    (void)arg;
    want->shift = log(2);
}

static void half_of_original(const void *arg, struct attn_fixture_want *want)
{
    want->at[2] = modulo(want->at[2], arg);
    want->factor = 0.5;
}

void attn_relation_repeat_all(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape twice = *shape;
    twice.k *= 2;
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, shape, "none", "normal:s2", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_open(f, &y, &twice, "none", "normal:s2", ATTN_BACKWARD, "")) {
        copy_rows(&y, &x, ATTN_T_K, twice.k, modulo, &shape->k);
        copy_rows(&y, &x, ATTN_T_V, twice.k, modulo, &shape->k);
        if (attn_fixture_run_both(f, &x, &y)) {
            attn_fixture_compare(f, &y, &x, ATTN_O, ATTN_FIXTURE_BOUNDS, NULL, NULL);
            attn_fixture_compare(f, &y, &x, ATTN_LSE, ATTN_FIXTURE_BOUNDS, more_by_ln2, NULL);
            attn_fixture_compare(f, &y, &x, ATTN_DQ, ATTN_FIXTURE_BOUNDS, NULL, NULL);
            attn_fixture_compare(f, &y, &x, ATTN_DK, ATTN_FIXTURE_BOUNDS, half_of_original,
                                 &shape->k);
            attn_fixture_compare(f, &y, &x, ATTN_DV, ATTN_FIXTURE_BOUNDS, half_of_original,
                                 &shape->k);
        }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

/* Key j of the smaller problem is key 2 j of the larger one. */
static int64_t twice_as_far(int64_t j, const void *arg)
{
    (void)arg;
    return 2 * j;
}

static void even_or_nothing(const void *arg, struct attn_fixture_want *want)
{
    (void)arg;
    want->factor = want->at[2] % 2 == 0;
    want->at[2] /= 2;
}

void attn_relation_remove_key(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape more = *shape;
    more.k *= 2;
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, &more, "keys(x10)", "normal:s3", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_open(f, &y, shape, "none", "normal:s3", ATTN_BACKWARD, "")) {
        copy_rows(&y, &x, ATTN_T_K, shape->k, twice_as_far, NULL);
        copy_rows(&y, &x, ATTN_T_V, shape->k, twice_as_far, NULL);
        if (attn_fixture_run_both(f, &x, &y))
            for (int o = 0; o <= ATTN_DV; o++)
                attn_fixture_compare(f, &x, &y, (enum attn_output)o, ATTN_FIXTURE_BOUNDS,
                                     o > ATTN_DQ ? even_or_nothing : NULL, NULL);
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

/* ---- R16 ------------------------------------------------------------------------------------- */

static int64_t further_by(int64_t i, const void *arg)
{
    return i + *(const int64_t *)arg;
}

static void row_further_by(const void *arg, struct attn_fixture_want *want)
{
    want->at[2] += *(const int64_t *)arg;
}

/* Rows from `first` on of a square causal problem x, as a problem of their own. */
static void cut(struct attn_fixture *f, const struct attn_trial *x,
                const struct attn_fixture_shape *part, const char *mask, int64_t first)
{
    struct attn_trial y;
    if (!attn_fixture_open(f, &y, part, mask, "normal:s4", ATTN_FORWARD, ""))
        return;
    copy_rows(&y, x, ATTN_T_Q, part->q, further_by, &first);
    attn_fixture_copy(&y, x, ATTN_T_K);
    attn_fixture_copy(&y, x, ATTN_T_V);
    if (attn_fixture_run(f, &y)) {
        attn_fixture_compare(f, &y, x, ATTN_O, ATTN_FIXTURE_BOUNDS, row_further_by, &first);
        attn_fixture_compare(f, &y, x, ATTN_LSE, ATTN_FIXTURE_BOUNDS, row_further_by, &first);
    }
    attn_fixture_close(&y);
}

void attn_relation_causal_prefix(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape whole = *shape, first, last;
    whole.q = whole.k;
    first = last = whole;
    first.q = first.k = whole.k / 2;
    last.q = whole.k / 4;
    struct attn_trial x;
    if (!attn_fixture_open(f, &x, &whole, "causal(tl)", "normal:s4", ATTN_FORWARD, ""))
        return;
    if (attn_fixture_run(f, &x)) {
        cut(f, &x, &first, "causal(tl)", 0);
        cut(f, &x, &last, "causal(br)", whole.q - last.q);
    }
    attn_fixture_close(&x);
}

/* ---- R18 ------------------------------------------------------------------------------------- */

enum { PARTS = 3 };

/* (o, lse) := (o, lse) merged with (o2, lse2), in double: the harness's own. */
static void merge(double *o, double *lse, double o2, double lse2)
{
    double most = fmax(*lse, lse2);
    if (most == -HUGE_VAL)
        return;
    double w1 = exp(*lse - most), w2 = exp(lse2 - most);
    *o = (w1 * *o + w2 * o2) / (w1 + w2);
    *lse = most + log(w1 + w2);
}

/* Element `at` from its parts, in one order; the allowed error with it.  An error e in each LSE
 * changes a weight by a factor within exp(+-2 e). */
static void check_merged(struct attn_fixture *f, const struct attn_trial *x,
                         const struct attn_trial part[PARTS], const int64_t at[4],
                         const int order[PARTS])
{
    const int64_t row[4] = {at[0], at[1], at[2], 0};
    double o = 0, lse = -HUGE_VAL, e = 0, allowed = attn_fixture_bound(x, ATTN_O, at);
    for (int p = 0; p < PARTS; p++) {
        merge(&o, &lse, attn_fixture_get(&part[order[p]], ATTN_O, at),
              attn_fixture_get(&part[order[p]], ATTN_LSE, row));
        e = fmax(e, attn_fixture_bound(&part[p], ATTN_LSE, row));
    }
    for (int p = 0; p < PARTS; p++) {
        double weight = exp(attn_fixture_get(&part[p], ATTN_LSE, row) - lse + 2 * e);
        allowed += weight * (attn_fixture_bound(&part[p], ATTN_O, at) +
                             expm1(2 * e) * fabs(attn_fixture_get(&part[p], ATTN_O, at) - o));
    }
    attn_fixture_near(f, "o", at, attn_fixture_get(x, ATTN_O, at), o, allowed);
    attn_fixture_near(f, "lse", row, attn_fixture_get(x, ATTN_LSE, row), lse,
                      attn_fixture_bound(x, ATTN_LSE, row) + e);
}

static void merge_all(struct attn_fixture *f, const struct attn_trial *x,
                      const struct attn_trial part[PARTS])
{
    static const int order[][PARTS] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
    int64_t e[4], at[4];
    attn_fixture_extent(x, ATTN_O, e);
    for (at[0] = 0; at[0] < e[0]; at[0]++)
        for (at[1] = 0; at[1] < e[1]; at[1]++)
            for (at[2] = 0; at[2] < e[2]; at[2]++)
                for (at[3] = 0; at[3] < e[3]; at[3]++)
                    for (int n = 0; n < 3; n++)
                        check_merged(f, x, part, at, order[n]);
}

static void take_apart(struct attn_fixture *f, const struct attn_fixture_shape *s, const char *fill)
{
    const int64_t third = s->k / 3 / 4 * 4;
    const int64_t first[PARTS + 1] = {0, third, third + 4, s->k};
    struct attn_trial x, part[PARTS];
    int open = 0, ran = 1;
    if (!attn_fixture_open(f, &x, s, "none", fill, ATTN_FORWARD, ""))
        return;
    for (; open < PARTS; open++) {
        struct attn_fixture_shape piece = *s;
        piece.k = first[open + 1] - first[open];
        if (!attn_fixture_open(f, &part[open], &piece, "none", fill, ATTN_FORWARD, ""))
            break;
        attn_fixture_copy(&part[open], &x, ATTN_T_Q);
        copy_rows(&part[open], &x, ATTN_T_K, piece.k, further_by, &first[open]);
        copy_rows(&part[open], &x, ATTN_T_V, piece.k, further_by, &first[open]);
        ran = ran && attn_fixture_run(f, &part[open]);
    }
    if (open == PARTS && ran && attn_fixture_run(f, &x))
        merge_all(f, &x, part);
    while (open > 0)
        attn_fixture_close(&part[--open]);
    attn_fixture_close(&x);
}

void attn_relation_merge(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    take_apart(f, shape, "normal:s5");
    take_apart(f, shape, "cliffs:s6");
    take_apart(f, shape, "offset-120:s7");
}

/* ---- R19 ------------------------------------------------------------------------------------- */

enum { FIRST_Q = 8, FIRST_K = 12 }; /* the first sequence; the second is the rest */

/* Compare rows of the packed run with one sequence alone; [2] of the offsets: queries, keys. */
static void alone(struct attn_fixture *f, const struct attn_trial *x,
                  const struct attn_fixture_shape *s, const int64_t from[2])
{
    struct attn_trial y;
    if (!attn_fixture_open(f, &y, s, "none", "normal:s8", ATTN_BACKWARD, ""))
        return;
    copy_rows(&y, x, ATTN_T_Q, s->q, further_by, &from[0]);
    copy_rows(&y, x, ATTN_T_K, s->k, further_by, &from[1]);
    copy_rows(&y, x, ATTN_T_V, s->k, further_by, &from[1]);
    if (attn_fixture_has(&y, ATTN_DQ))
        copy_rows(&y, x, ATTN_T_DO, s->q, further_by, &from[0]);
    if (attn_fixture_run(f, &y))
        for (int o = 0; o <= ATTN_DV; o++)
            attn_fixture_compare(f, &y, x, (enum attn_output)o, ATTN_FIXTURE_BOUNDS, row_further_by,
                                 &from[o > ATTN_DQ]);
    attn_fixture_close(&y);
}

void attn_relation_pack(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape head = *shape, rest = *shape;
    const int64_t start[2] = {0, 0}, middle[2] = {FIRST_Q, FIRST_K};
    char mask[96];
    struct attn_trial x, y;
    head.q = FIRST_Q;
    head.k = FIRST_K;
    rest.q -= FIRST_Q;
    rest.k -= FIRST_K;
    snprintf(mask, sizeof mask, "documents(8x12,%lldx%lld)", (long long)rest.q, (long long)rest.k);
    if (!attn_fixture_open(f, &x, shape, mask, "normal:s8", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_run(f, &x)) {
        alone(f, &x, &head, start);
        alone(f, &x, &rest, middle);
        snprintf(mask, sizeof mask, "documents(0x0,8x12,0x0,%lldx%lld,0x0)", (long long)rest.q,
                 (long long)rest.k);
        if (attn_fixture_open(f, &y, shape, mask, "normal:s8", ATTN_BACKWARD, "")) {
            if (attn_fixture_run(f, &y))
                attn_fixture_compare_all(f, &x, &y, ATTN_FIXTURE_EXACT);
            attn_fixture_close(&y);
        }
    }
    attn_fixture_close(&x);
}
