/* Relations of values: constants, signs, scales, columns (bugs.md R1, R7 to R13, R21 to R23). */
#include <math.h>
#include <stdio.h>

#include "ref/problem.h"
#include "tests/harness/relations/relation_fixture.h"

static struct attn_tensor *tensor(struct attn_trial *t, enum attn_slot slot)
{
    return &t->setup.tensor[slot];
}

static double times(double old, const int64_t at[4], const void *arg)
{
    (void)at;
    return old * *(const double *)arg;
}

/* ---- R1 -------------------------------------------------------------------------------------- */

/* The constant of row i: up to 96 on either side, exact in every type. */
static double row_shift(int64_t i)
{
    return 32 * (double)(i * 5 % 7 - 3);
}

static double one_in_column(double old, const int64_t at[4], const void *arg)
{
    return at[3] == *(const int64_t *)arg ? 1 : old;
}

static double shift_in_column(double old, const int64_t at[4], const void *arg)
{
    return at[3] == *(const int64_t *)arg ? 4 * row_shift(at[2]) : old; /* scale is 1/4 */
}

static double zero_in_column(double old, const int64_t at[4], const void *arg)
{
    return at[3] == *(const int64_t *)arg ? 0 : old;
}

static void shifted_lse(const void *arg, struct attn_fixture_want *want)
{
    (void)arg;
    want->shift = row_shift(want->at[2]);
}

static void not_in_column(const void *arg, struct attn_fixture_want *want)
{
    want->skip = want->at[3] == *(const int64_t *)arg;
}

void attn_relation_shift_rows(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape s = *shape;
    const int64_t extra = s.d++;
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, &s, "none", "normal:s1", ATTN_BACKWARD, ":scale=0.25"))
        return;
    if (attn_fixture_open(f, &y, &s, "none", "normal:s1", ATTN_BACKWARD, ":scale=0.25")) {
        attn_fixture_change(&x, ATTN_T_K, one_in_column, &extra);
        attn_fixture_change(&y, ATTN_T_K, one_in_column, &extra);
        attn_fixture_change(&x, ATTN_T_Q, shift_in_column, &extra);
        attn_fixture_change(&y, ATTN_T_Q, zero_in_column, &extra);
        if (attn_fixture_run_both(f, &x, &y)) {
            attn_fixture_compare(f, &x, &y, ATTN_O, ATTN_FIXTURE_BOUNDS, NULL, NULL);
            attn_fixture_compare(f, &x, &y, ATTN_LSE, ATTN_FIXTURE_BOUNDS, shifted_lse, NULL);
            attn_fixture_compare(f, &x, &y, ATTN_DQ, ATTN_FIXTURE_BOUNDS, not_in_column, &extra);
            attn_fixture_compare(f, &x, &y, ATTN_DK, ATTN_FIXTURE_BOUNDS, not_in_column, &extra);
            attn_fixture_compare(f, &x, &y, ATTN_DV, ATTN_FIXTURE_BOUNDS, NULL, NULL);
        }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

/* ---- R7 -------------------------------------------------------------------------------------- */

static void hidden_under(struct attn_fixture *f, const struct attn_fixture_shape *s,
                         const char *mask)
{
    static const char *const poison[] = {":poison=big", ":poison=nan"};
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, s, mask, "normal:s1", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_run(f, &x))
        for (int p = 0; p < 2; p++) {
            if (!attn_fixture_open(f, &y, s, mask, "normal:s1", ATTN_BACKWARD, poison[p]))
                break;
            if (attn_fixture_call(f, &y, f->spec, NULL, 1))
                attn_fixture_compare_all(f, &x, &y, ATTN_FIXTURE_EXACT);
            attn_fixture_close(&y);
        }
    attn_fixture_close(&x);
}

void attn_relation_hidden_values(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape tall = *shape;
    char mask[64];
    tall.q = shape->k;
    tall.k = shape->q;
    if (!attn_fixture_needs(f, ATTN_CAP_HARD | ATTN_CAP_MASK))
        return;
    snprintf(mask, sizeof mask, "prefix(%lld)&keys(x1101)", (long long)shape->k / 2);
    hidden_under(f, shape, mask);
    hidden_under(f, shape, "window(5,0,br)");
    hidden_under(f, &tall, "causal(br)");
}

/* ---- R8, R9 ---------------------------------------------------------------------------------- */

static void four_times(const void *arg, struct attn_fixture_want *want)
{
    (void)arg;
    want->factor = 0.25;
}

/* O(V + W) = O(V) + O(W), integers so that V + W is exact. */
static void add_v(struct attn_fixture *f, const struct attn_trial *x, const struct attn_trial *z,
                  struct attn_trial *sum)
{
    struct attn_tensor *v = tensor(sum, ATTN_T_V);
    int64_t e[4], at[4];
    for (int64_t b = 0; b < v->extent[0]; b++)
        for (int64_t g = 0; g < v->extent[1]; g++)
            for (int64_t j = 0; j < v->extent[2]; j++)
                for (int64_t c = 0; c < v->extent[3]; c++)
                    attn_tensor_set(v, b, g, j, c,
                                    attn_tensor_get(&x->setup.tensor[ATTN_T_V], b, g, j, c) +
                                        attn_tensor_get(&z->setup.tensor[ATTN_T_V], b, g, j, c));
    if (!attn_fixture_run(f, sum))
        return;
    attn_fixture_extent(sum, ATTN_O, e);
    for (at[0] = 0; at[0] < e[0]; at[0]++)
        for (at[1] = 0; at[1] < e[1]; at[1]++)
            for (at[2] = 0; at[2] < e[2]; at[2]++)
                for (at[3] = 0; at[3] < e[3]; at[3]++)
                    attn_fixture_near(
                        f, "o", at, attn_fixture_get(sum, ATTN_O, at),
                        attn_fixture_get(x, ATTN_O, at) + attn_fixture_get(z, ATTN_O, at),
                        attn_fixture_bound(sum, ATTN_O, at) + attn_fixture_bound(x, ATTN_O, at) +
                            attn_fixture_bound(z, ATTN_O, at));
}

void attn_relation_linear_in_v(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    static const char *const fill[4] = {"integer:s1", "integer:s1", "integer:s2", "integer:s1"};
    const double four = 4;
    struct attn_trial t[4]; /* V, 4 V, W, V + W */
    int open = 0;
    while (open < 4 &&
           attn_fixture_open(f, &t[open], shape, "none", fill[open], ATTN_FORWARD, ":scale=0.125"))
        open++;
    if (open == 4) {
        attn_fixture_change(&t[1], ATTN_T_V, times, &four);
        attn_fixture_copy(&t[2], &t[0], ATTN_T_Q);
        attn_fixture_copy(&t[2], &t[0], ATTN_T_K);
        if (attn_fixture_run_both(f, &t[0], &t[1]) && attn_fixture_run(f, &t[2])) {
            attn_fixture_compare(f, &t[0], &t[1], ATTN_O, ATTN_FIXTURE_EXACT, four_times, NULL);
            attn_fixture_compare(f, &t[0], &t[1], ATTN_LSE, ATTN_FIXTURE_EXACT, NULL, NULL);
            add_v(f, &t[0], &t[2], &t[3]);
        }
    }
    while (open > 0)
        attn_fixture_close(&t[--open]);
}

static void is_one(const void *arg, struct attn_fixture_want *want)
{
    (void)arg;
    want->factor = 0;
    want->shift = 1;
}

void attn_relation_ones(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_trial x;
    if (!attn_fixture_open(f, &x, shape, "none", "ones:s1", ATTN_FORWARD, ""))
        return;
    if (attn_fixture_run(f, &x))
        attn_fixture_compare(f, &x, &x, ATTN_O, ATTN_FIXTURE_BOUNDS, is_one, NULL);
    attn_fixture_close(&x);
}

/* ---- R10, R11 -------------------------------------------------------------------------------- */

static double identity(double old, const int64_t at[4], const void *arg)
{
    (void)old;
    (void)arg;
    return at[2] == at[3] ? 1 : 0;
}

static void check_p_row(struct attn_fixture *f, const struct attn_trial *x, int64_t at[4],
                        int64_t n)
{
    double sum = 0, bound = 0;
    int sees = 0;
    for (at[3] = 0; at[3] < n; at[3]++) {
        double p = attn_fixture_get(x, ATTN_O, at);
        int visible = attn_problem_allows(&x->setup.problem, at[0], at[1], at[2], at[3]);
        if (!visible)
            attn_fixture_near(f, "p (hidden)", at, p, 0, 0);
        else
            attn_fixture_near(f, "p (negative)", at, p < 0 ? p : 0, 0, 0);
        sum += p;
        bound += attn_fixture_bound(x, ATTN_O, at);
        sees |= visible;
    }
    at[3] = 0;
    attn_fixture_near(f, "sum of p", at, sum, sees, bound);
}

void attn_relation_reveal_p(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape s = *shape;
    struct attn_trial x;
    int64_t at[4], e[4];
    s.v = s.k;
    if (!attn_fixture_open(f, &x, &s, "causal(br)&keys(x110)", "normal:s1", ATTN_FORWARD, ""))
        return;
    attn_fixture_change(&x, ATTN_T_V, identity, NULL);
    if (attn_fixture_run(f, &x)) {
        attn_fixture_extent(&x, ATTN_O, e);
        for (at[0] = 0; at[0] < e[0]; at[0]++)
            for (at[1] = 0; at[1] < e[1]; at[1]++)
                for (at[2] = 0; at[2] < e[2]; at[2]++)
                    check_p_row(f, &x, at, e[3]);
    }
    attn_fixture_close(&x);
}

void attn_relation_within_v(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_trial x;
    int64_t at[4], e[4];
    if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s2", ATTN_FORWARD, ""))
        return;
    if (attn_fixture_run(f, &x)) {
        attn_fixture_extent(&x, ATTN_O, e);
        for (at[0] = 0; at[0] < e[0]; at[0]++)
            for (at[1] = 0; at[1] < e[1]; at[1]++)
                for (at[2] = 0; at[2] < e[2]; at[2]++)
                    for (at[3] = 0; at[3] < e[3]; at[3]++) {
                        double o = attn_fixture_get(&x, ATTN_O, at), least = HUGE_VAL,
                               most = -least;
                        for (int64_t j = 0; j < shape->k; j++) {
                            if (!attn_problem_allows(&x.setup.problem, at[0], at[1], at[2], j))
                                continue;
                            double v = attn_tensor_get(tensor(&x, ATTN_T_V), at[0],
                                                       at[1] / (shape->h / shape->g), j, at[3]);
                            least = v < least ? v : least;
                            most = v > most ? v : most;
                        }
                        if (least <= most)
                            attn_fixture_near(f, "o", at, o,
                                              o < least  ? least
                                              : o > most ? most
                                                         : o,
                                              attn_fixture_bound(&x, ATTN_O, at));
                    }
    }
    attn_fixture_close(&x);
}

/* ---- R12, R13 -------------------------------------------------------------------------------- */

static int64_t place(int64_t c, int64_t n)
{
    return (3 * c + 1) % n; /* a permutation: 3 divides neither width */
}

static double sign(int64_t c)
{
    return c % 2 == 0 ? -1 : 1;
}

static void permuted_features(const void *arg, struct attn_fixture_want *want)
{
    int64_t n = *(const int64_t *)arg;
    want->factor = sign(want->at[3]);
    want->at[3] = place(want->at[3], n);
}

static void scatter_features(struct attn_trial *y, const struct attn_trial *x, enum attn_slot slot)
{
    const struct attn_tensor *from = &x->setup.tensor[slot];
    struct attn_tensor *to = tensor(y, slot);
    for (int64_t b = 0; b < to->extent[0]; b++)
        for (int64_t h = 0; h < to->extent[1]; h++)
            for (int64_t i = 0; i < to->extent[2]; i++)
                for (int64_t c = 0; c < to->extent[3]; c++)
                    attn_tensor_set(to, b, h, i, place(c, to->extent[3]),
                                    sign(c) * attn_tensor_get(from, b, h, i, c));
}

void attn_relation_permute_features(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s3", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_open(f, &y, shape, "causal(br)", "normal:s3", ATTN_BACKWARD, "")) {
        scatter_features(&y, &x, ATTN_T_Q);
        scatter_features(&y, &x, ATTN_T_K);
        if (attn_fixture_run_both(f, &x, &y)) {
            attn_fixture_compare(f, &x, &y, ATTN_O, ATTN_FIXTURE_BOUNDS, NULL, NULL);
            attn_fixture_compare(f, &x, &y, ATTN_LSE, ATTN_FIXTURE_BOUNDS, NULL, NULL);
            attn_fixture_compare(f, &x, &y, ATTN_DQ, ATTN_FIXTURE_BOUNDS, permuted_features,
                                 &shape->d);
            attn_fixture_compare(f, &x, &y, ATTN_DK, ATTN_FIXTURE_BOUNDS, permuted_features,
                                 &shape->d);
            attn_fixture_compare(f, &x, &y, ATTN_DV, ATTN_FIXTURE_BOUNDS, NULL, NULL);
        }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

static void by_factor(const void *arg, struct attn_fixture_want *want)
{
    want->factor = *(const double *)arg;
}

static void move_between(struct attn_fixture *f, const struct attn_fixture_shape *s,
                         enum attn_slot slot, double factor, const char *scale)
{
    const double one = 1;
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, s, "causal(br)", "normal:s4", ATTN_BACKWARD, ":scale=0.25"))
        return;
    if (attn_fixture_open(f, &y, s, "causal(br)", "normal:s4", ATTN_BACKWARD, scale)) {
        attn_fixture_change(&y, slot, times, &factor);
        if (attn_fixture_run_both(f, &x, &y)) {
            attn_fixture_compare(f, &x, &y, ATTN_O, ATTN_FIXTURE_EXACT, NULL, NULL);
            attn_fixture_compare(f, &x, &y, ATTN_LSE, ATTN_FIXTURE_EXACT, NULL, NULL);
            attn_fixture_compare(f, &x, &y, ATTN_DQ, ATTN_FIXTURE_EXACT, by_factor,
                                 slot == ATTN_T_Q ? &factor : &one);
            attn_fixture_compare(f, &x, &y, ATTN_DK, ATTN_FIXTURE_EXACT, by_factor,
                                 slot == ATTN_T_K ? &factor : &one);
            attn_fixture_compare(f, &x, &y, ATTN_DV, ATTN_FIXTURE_EXACT, NULL, NULL);
        }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

void attn_relation_move_scale(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    move_between(f, shape, ATTN_T_Q, 2, ":scale=0.125");
    move_between(f, shape, ATTN_T_K, 8, ":scale=0.03125");
}

/* ---- R21 ------------------------------------------------------------------------------------- */

static double nothing(double old, const int64_t at[4], const void *arg)
{
    (void)old;
    (void)at;
    (void)arg;
    return 0;
}

/* Key j becomes key 0 of its (batch, head). */
static double first_key(double old, const int64_t at[4], const void *arg)
{
    (void)old;
    return attn_tensor_get(arg, at[0], at[1], 0, at[3]);
}

/* O is the mean of the visible V. */
static void check_mean(struct attn_fixture *f, const struct attn_trial *x, int64_t at[4],
                       int64_t dv)
{
    const struct attn_problem *p = &x->setup.problem;
    for (at[3] = 0; at[3] < dv; at[3]++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t j = 0; j < p->n_key; j++)
            if (attn_problem_allows(p, at[0], at[1], at[2], j)) {
                sum += attn_tensor_get(&x->setup.tensor[ATTN_T_V], at[0],
                                       at[1] / (p->heads / p->kv_heads), j, at[3]);
                n++;
            }
        attn_fixture_near(f, "o", at, attn_fixture_get(x, ATTN_O, at), n > 0 ? sum / (double)n : 0,
                          attn_fixture_bound(x, ATTN_O, at));
    }
    at[3] = 0;
}

/* ... and, where every score is 0, LSE is the log of how many. */
static void check_count(struct attn_fixture *f, const struct attn_trial *x, const int64_t at[4])
{
    int64_t n = 0;
    for (int64_t j = 0; j < x->setup.problem.n_key; j++)
        n += attn_problem_allows(&x->setup.problem, at[0], at[1], at[2], j) != 0;
    attn_fixture_near(f, "lse", at, attn_fixture_get(x, ATTN_LSE, at),
                      n > 0 ? log((double)n) : -HUGE_VAL, attn_fixture_bound(x, ATTN_LSE, at));
}

void attn_relation_uniform(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    for (int equal_keys = 0; equal_keys < 2; equal_keys++) {
        struct attn_trial x;
        int64_t at[4] = {0}, e[4];
        if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s5", ATTN_FORWARD, ""))
            return;
        if (equal_keys)
            attn_fixture_change(&x, ATTN_T_K, first_key, tensor(&x, ATTN_T_K));
        else
            attn_fixture_change(&x, ATTN_T_Q, nothing, NULL);
        int ran = attn_fixture_run(f, &x);
        attn_fixture_extent(&x, ATTN_O, e);
        for (at[0] = 0; ran && at[0] < e[0]; at[0]++)
            for (at[1] = 0; at[1] < e[1]; at[1]++)
                for (at[2] = 0; at[2] < e[2]; at[2]++) {
                    check_mean(f, &x, at, e[3]);
                    if (!equal_keys)
                        check_count(f, &x, at);
                }
        attn_fixture_close(&x);
    }
}

/* ---- R22, R23 -------------------------------------------------------------------------------- */

/* What c tanh(s/c) is away from s, at most: |s|^3 / (3 c^2); and what that does to O and LSE. */
static void capped(const void *arg, struct attn_fixture_want *want)
{
    want->slack = *(const double *)arg;
}

static double cap_slack(const struct attn_trial *x, double cap)
{
    const struct attn_tensor *q = &x->setup.tensor[ATTN_T_Q], *k = &x->setup.tensor[ATTN_T_K],
                             *v = &x->setup.tensor[ATTN_T_V];
    double size[3] = {0, 0, 0};
    const struct attn_tensor *const t[3] = {q, k, v};
    for (int n = 0; n < 3; n++)
        for (int64_t b = 0; b < t[n]->extent[0]; b++)
            for (int64_t h = 0; h < t[n]->extent[1]; h++)
                for (int64_t i = 0; i < t[n]->extent[2]; i++)
                    for (int64_t c = 0; c < t[n]->extent[3]; c++)
                        size[n] = fmax(size[n], fabs(attn_tensor_get(t[n], b, h, i, c)));
    double s = fabs(x->setup.problem.scale) * (double)q->extent[3] * size[0] * size[1];
    double off = s * s * s / (3 * cap * cap);
    return off * fmax(1, 2 * size[2]);
}

void attn_relation_neutral(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    static const struct {
        const char *mask, *fields;
    } same[] = {{"window(-1,-1,br)", ""},
                {"none", ":softcap=1048576"},
                {"none", ":bias=full"},
                {"none", ":bias=alibi"}};
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, shape, "none", "normal:s6", ATTN_FORWARD, ""))
        return;
    int ran = attn_fixture_run(f, &x);
    for (size_t n = 0; ran && n < sizeof same / sizeof *same; n++) {
        if (!attn_fixture_open(f, &y, shape, same[n].mask, "normal:s6", ATTN_FORWARD,
                               same[n].fields))
            continue;
        double slack = n == 1 ? cap_slack(&x, 1048576) : 0;
        if (tensor(&y, ATTN_T_BIAS)->data != NULL)
            attn_fixture_change(&y, ATTN_T_BIAS, nothing, NULL);
        for (int64_t h = 0; y.setup.slope != NULL && h < shape->h; h++)
            y.setup.slope[h] = 0;
        if (attn_fixture_run(f, &y)) {
            attn_fixture_compare(f, &x, &y, ATTN_O, ATTN_FIXTURE_BOUNDS, capped, &slack);
            attn_fixture_compare(f, &x, &y, ATTN_LSE, ATTN_FIXTURE_BOUNDS, capped, &slack);
        }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

static double other_column(double old, const int64_t at[4], const void *arg)
{
    return at[3] == *(const int64_t *)arg ? 100 - 3 * old : old;
}

void attn_relation_columns(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    for (int64_t column = 0; column < shape->v; column += shape->v - 1) {
        struct attn_trial x, y;
        if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s7", ATTN_FORWARD, ""))
            return;
        if (attn_fixture_open(f, &y, shape, "causal(br)", "normal:s7", ATTN_FORWARD, "")) {
            attn_fixture_change(&y, ATTN_T_V, other_column, &column);
            if (attn_fixture_run_both(f, &x, &y)) {
                attn_fixture_compare(f, &x, &y, ATTN_O, ATTN_FIXTURE_EXACT, not_in_column, &column);
                attn_fixture_compare(f, &x, &y, ATTN_LSE, ATTN_FIXTURE_EXACT, NULL, NULL);
            }
            attn_fixture_close(&y);
        }
        attn_fixture_close(&x);
    }
}
