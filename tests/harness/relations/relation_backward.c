/* Identities that gradients must meet (bugs.md G1 to G9).  They hold exactly in real arithmetic;
 * the allowed error is the sum of the bounds of what is added up. */
#include <math.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/relations/relation_fixture.h"

/* Open and run one case with gradients; 0 when that cannot be. */
static int run(struct attn_fixture *f, struct attn_trial *x, const struct attn_fixture_shape *s,
               const char *mask, const char *fill, const char *fields)
{
    if (!attn_fixture_needs(f, ATTN_CAP_BACKWARD) ||
        !attn_fixture_open(f, x, s, mask, fill, ATTN_BACKWARD, fields))
        return 0;
    if (attn_fixture_run(f, x))
        return 1;
    attn_fixture_close(x);
    return 0;
}

static double input(const struct attn_trial *x, enum attn_slot slot, const int64_t at[4])
{
    return attn_tensor_get(&x->setup.tensor[slot], at[0], at[1], at[2], at[3]);
}

/* ---- sums over keys: G1, G2 ---------------------------------------------------------------- */

static void sum_keys(const struct attn_trial *x, enum attn_output output, const int64_t column[4],
                     double *sum, double *bound)
{
    int64_t e[4], at[4] = {column[0], column[1], 0, column[3]};
    attn_fixture_extent(x, output, e);
    *sum = *bound = 0;
    for (; at[2] < e[2]; at[2]++) {
        *sum += attn_fixture_get(x, output, at);
        *bound += attn_fixture_bound(x, output, at);
    }
}

void attn_relation_dk_sums_to_zero(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    static const char *const mask[] = {"none", "causal(br)"};
    for (int m = 0; m < 2; m++) {
        struct attn_trial x;
        int64_t at[4] = {0};
        if (!run(f, &x, shape, mask[m], "normal:s1", ""))
            return;
        for (at[0] = 0; at[0] < shape->b; at[0]++)
            for (at[1] = 0; at[1] < shape->g; at[1]++)
                for (at[3] = 0; at[3] < shape->d; at[3]++) {
                    double sum, bound;
                    sum_keys(&x, ATTN_DK, at, &sum, &bound);
                    attn_fixture_near(f, "sum of dk", at, sum, 0, bound);
                }
        attn_fixture_close(&x);
    }
}

static int sees_a_key(const struct attn_problem *p, int64_t b, int64_t h, int64_t i)
{
    for (int64_t j = 0; j < p->n_key; j++)
        if (attn_problem_allows(p, b, h, i, j))
            return 1;
    return 0;
}

void attn_relation_dv_sums_to_do(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape tall = *shape; /* causal with Lq > Lk: some rows see nothing */
    struct attn_trial x;
    int64_t at[4] = {0}, group = shape->h / shape->g;
    tall.q = shape->k;
    tall.k = shape->q;
    if (!run(f, &x, &tall, "causal(br)", "normal:s2", ""))
        return;
    for (at[0] = 0; at[0] < tall.b; at[0]++)
        for (at[1] = 0; at[1] < tall.g; at[1]++)
            for (at[3] = 0; at[3] < tall.v; at[3]++) {
                double sum, bound, want = 0;
                sum_keys(&x, ATTN_DV, at, &sum, &bound);
                for (int64_t h = at[1] * group; h < (at[1] + 1) * group; h++)
                    for (int64_t i = 0; i < tall.q; i++)
                        if (sees_a_key(&x.setup.problem, at[0], h, i))
                            want += input(&x, ATTN_T_DO, (const int64_t[4]){at[0], h, i, at[3]});
                attn_fixture_near(f, "sum of dv", at, sum, want, bound);
            }
    attn_fixture_close(&x);
}

/* ---- inner products: G3, G4 ---------------------------------------------------------------- */

/* <input, output>, and the error that the output's bounds allow. */
static void inner(const struct attn_trial *x, enum attn_slot slot, enum attn_output output,
                  double *product, double *bound)
{
    int64_t e[4], at[4];
    attn_fixture_extent(x, output, e);
    *product = *bound = 0;
    for (at[0] = 0; at[0] < e[0]; at[0]++)
        for (at[1] = 0; at[1] < e[1]; at[1]++)
            for (at[2] = 0; at[2] < e[2]; at[2]++)
                for (at[3] = 0; at[3] < e[3]; at[3]++) {
                    double value = input(x, slot, at);
                    *product += value * attn_fixture_get(x, output, at);
                    *bound += fabs(value) * attn_fixture_bound(x, output, at);
                }
}

static void same_products(struct attn_fixture *f, const struct attn_fixture_shape *s,
                          const char *what, enum attn_slot slot1, enum attn_output output1,
                          enum attn_slot slot2, enum attn_output output2)
{
    struct attn_trial x;
    double a, b, bound_a, bound_b;
    if (!run(f, &x, s, "causal(br)", "normal:s3", ""))
        return;
    inner(&x, slot1, output1, &a, &bound_a);
    inner(&x, slot2, output2, &b, &bound_b);
    attn_fixture_near(f, what, NULL, a, b, bound_a + bound_b);
    attn_fixture_close(&x);
}

void attn_relation_euler(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    same_products(f, shape, "<dO, O> against <V, dV>", ATTN_T_DO, ATTN_O, ATTN_T_V, ATTN_DV);
}

void attn_relation_balance(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    same_products(f, shape, "<q, dQ> against <k, dK>", ATTN_T_Q, ATTN_DQ, ATTN_T_K, ATTN_DK);
}

/* ---- G5 ---------------------------------------------------------------------------------- */

static double plus_two(double old, const int64_t at[4], const void *arg)
{
    (void)arg;
    return old + (at[3] % 2 == 0 ? 2 : -1);
}

void attn_relation_shift_keys(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_trial x, y; /* integers: the sum is exact */
    if (!run(f, &x, shape, "causal(br)", "integer:s4", ":scale=0.125"))
        return;
    if (attn_fixture_open(f, &y, shape, "causal(br)", "integer:s4", ATTN_BACKWARD,
                          ":scale=0.125")) {
        attn_fixture_change(&y, ATTN_T_K, plus_two, NULL);
        if (attn_fixture_run(f, &y)) {
            attn_fixture_compare(f, &x, &y, ATTN_O, ATTN_FIXTURE_BOUNDS, NULL, NULL);
            attn_fixture_compare(f, &x, &y, ATTN_DQ, ATTN_FIXTURE_BOUNDS, NULL, NULL);
            attn_fixture_compare(f, &x, &y, ATTN_DV, ATTN_FIXTURE_BOUNDS, NULL, NULL);
        }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

/* ---- G6, G7 ------------------------------------------------------------------------------ */

/* Rows that see nothing hold NaN in q and dO; every output must be as with 0 there. */
static double nan_in_empty_rows(double old, const int64_t at[4], const void *arg)
{
    const struct attn_trial *x = arg;
    return sees_a_key(&x->setup.problem, at[0], at[1], at[2]) ? old : (double)NAN;
}

static double zero_in_empty_rows(double old, const int64_t at[4], const void *arg)
{
    const struct attn_trial *x = arg;
    return sees_a_key(&x->setup.problem, at[0], at[1], at[2]) ? old : 0;
}

void attn_relation_empty_rows(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape tall = *shape;
    struct attn_trial x, y;
    tall.q = shape->k;
    tall.k = shape->q;
    if (!attn_fixture_needs(f, ATTN_CAP_BACKWARD | ATTN_CAP_HARD) ||
        !attn_fixture_open(f, &x, &tall, "causal(br)", "normal:s5", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_open(f, &y, &tall, "causal(br)", "normal:s5", ATTN_BACKWARD, "")) {
        attn_fixture_change(&x, ATTN_T_Q, zero_in_empty_rows, &x);
        attn_fixture_change(&x, ATTN_T_DO, zero_in_empty_rows, &x);
        attn_fixture_change(&y, ATTN_T_Q, nan_in_empty_rows, &y);
        attn_fixture_change(&y, ATTN_T_DO, nan_in_empty_rows, &y);
        if (attn_fixture_call(f, &x, f->spec, NULL, 1) &&
            attn_fixture_call(f, &y, f->spec, NULL, 1))
            attn_fixture_compare_all(f, &x, &y, ATTN_FIXTURE_EXACT);
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

static void is_zero(const void *arg, struct attn_fixture_want *want)
{
    (void)arg;
    want->factor = 0;
}

/* dV of a key gathers dO of the rows whose q is its code word: those with the largest score. */
static double gathered(const struct attn_trial *x, const int64_t at[4])
{
    const struct attn_problem *p = &x->setup.problem;
    int64_t group = p->heads / p->kv_heads;
    double sum = 0;
    for (int64_t h = at[1] * group; h < (at[1] + 1) * group; h++)
        for (int64_t i = 0; i < p->n_query; i++) {
            int chosen = p->d_key > 0;
            for (int64_t c = 0; c < p->d_key && chosen; c++) {
                const int64_t q[4] = {at[0], h, i, c}, k[4] = {at[0], at[1], at[2], c};
                chosen = input(x, ATTN_T_Q, q) == input(x, ATTN_T_K, k);
            }
            if (chosen)
                sum += input(x, ATTN_T_DO, (const int64_t[4]){at[0], h, i, at[3]});
        }
    return sum;
}

void attn_relation_selected(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_trial x;
    int64_t e[4], at[4];
    if (!run(f, &x, shape, "none", "select:s6", ":scale=0.25"))
        return;
    attn_fixture_compare(f, &x, &x, ATTN_DQ, ATTN_FIXTURE_BOUNDS, is_zero, NULL);
    attn_fixture_compare(f, &x, &x, ATTN_DK, ATTN_FIXTURE_BOUNDS, is_zero, NULL);
    attn_fixture_extent(&x, ATTN_DV, e);
    for (at[0] = 0; at[0] < e[0]; at[0]++)
        for (at[1] = 0; at[1] < e[1]; at[1]++)
            for (at[2] = 0; at[2] < e[2]; at[2]++)
                for (at[3] = 0; at[3] < e[3]; at[3]++)
                    attn_fixture_near(f, "dv", at, attn_fixture_get(&x, ATTN_DV, at),
                                      gathered(&x, at), attn_fixture_bound(&x, ATTN_DV, at));
    attn_fixture_close(&x);
}

/* ---- G8 ---------------------------------------------------------------------------------- */

static const struct {
    enum attn_slot slot;
    enum attn_output gradient;
} variable[] = {{ATTN_T_Q, ATTN_DQ}, {ATTN_T_K, ATTN_DK}, {ATTN_T_V, ATTN_DV}};

static double direction(const int64_t at[4], int variable_number, uint64_t seed)
{
    return attn_hash_normal(seed, (uint64_t)variable_number,
                            (uint64_t)(((at[0] * 64 + at[1]) * 1024 + at[2]) * 1024 + at[3]));
}

struct step {
    const struct attn_trial *from;
    int variable;
    uint64_t seed;
    double length;
};

static double stepped(double old, const int64_t at[4], const void *arg)
{
    const struct step *s = arg;
    (void)old;
    return input(s->from, variable[s->variable].slot, at) +
           s->length * direction(at, s->variable, s->seed);
}

/* <dO, O> + <dLSE, LSE> at the end of a step; NaN when it does not run. */
static double value_at(struct attn_fixture *f, struct attn_trial *y, const struct attn_trial *x,
                       uint64_t seed, double length)
{
    double o, lse = 0, bound;
    for (int n = 0; n < 3; n++) {
        struct step step = {x, n, seed, length};
        attn_fixture_change(y, variable[n].slot, stepped, &step);
    }
    if (!attn_fixture_call(f, y, f->spec, NULL, 1))
        return (double)NAN;
    inner(y, ATTN_T_DO, ATTN_O, &o, &bound);
    if (y->setup.tensor[ATTN_T_DLSE].data != NULL)
        inner(y, ATTN_T_DLSE, ATTN_LSE, &lse, &bound);
    return o + lse;
}

/* The slope by the gradients, and the sum of magnitudes that its error is relative to. */
static double slope_of(const struct attn_trial *x, uint64_t seed, double *size)
{
    double slope = 0;
    int64_t e[4], at[4];
    *size = 0;
    for (int n = 0; n < 3; n++) {
        attn_fixture_extent(x, variable[n].gradient, e);
        for (at[0] = 0; at[0] < e[0]; at[0]++)
            for (at[1] = 0; at[1] < e[1]; at[1]++)
                for (at[2] = 0; at[2] < e[2]; at[2]++)
                    for (at[3] = 0; at[3] < e[3]; at[3]++) {
                        double part =
                            attn_fixture_get(x, variable[n].gradient, at) * direction(at, n, seed);
                        slope += part;
                        *size += fabs(part);
                    }
    }
    return slope;
}

/* A step of 1e-4 leaves a truncation error of about 1e-8 third derivatives, and a rounding error
 * of about 1e-16 / 1e-4: both below 1e-6 of the sum of magnitudes. */
void attn_relation_differences(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    const double h = 1e-4;
    unsigned caps = f->spec->impl->caps;
    const char *fields =
        caps & ATTN_CAP_SOFTCAP ? (caps & ATTN_CAP_DLSE ? ":softcap=4:dlse=1" : ":softcap=4") : "";
    struct attn_trial x, y;
    if (!attn_fixture_needs(f, ATTN_CAP_F64))
        return;
    struct attn_fixture own = *f;
    own.dtype = ATTN_F64;
    if (run(&own, &x, shape, "causal(br)", "normal:s7", fields)) {
        if (attn_fixture_open(&own, &y, shape, "causal(br)", "normal:s7", ATTN_BACKWARD, fields)) {
            for (uint64_t seed = 1; seed <= 5; seed++) {
                double size, slope = slope_of(&x, seed, &size);
                double ahead = value_at(&own, &y, &x, seed, h);
                double back = value_at(&own, &y, &x, seed, -h);
                attn_fixture_near(&own, "slope by gradients against differences", NULL, slope,
                                  (ahead - back) / (2 * h), 1e-6 * size);
            }
            attn_fixture_close(&y);
        }
        attn_fixture_close(&x);
    }
    f->compared = own.compared;
    memcpy(f->refusal, own.refusal, sizeof f->refusal);
}

/* ---- G9 ---------------------------------------------------------------------------------- */

/* The full bias takes the values of the one that is shared by batches and heads. */
static double shared_value(double old, const int64_t at[4], const void *arg)
{
    const int64_t first[4] = {0, 0, at[2], at[3]};
    (void)old;
    return input(arg, ATTN_T_BIAS, first);
}

static void check_rows(struct attn_fixture *f, const struct attn_trial *full,
                       const struct attn_fixture_shape *s)
{
    int64_t at[4] = {0};
    for (at[0] = 0; at[0] < s->b; at[0]++)
        for (at[1] = 0; at[1] < s->h; at[1]++)
            for (at[2] = 0; at[2] < s->q; at[2]++) {
                double sum = 0, bound = 0;
                for (at[3] = 0; at[3] < s->k; at[3]++) {
                    sum += attn_fixture_get(full, ATTN_DBIAS, at);
                    bound += attn_fixture_bound(full, ATTN_DBIAS, at);
                }
                at[3] = 0;
                attn_fixture_near(f, "sum of dbias", at, sum, 0, bound);
            }
}

static void check_shared(struct attn_fixture *f, const struct attn_trial *full,
                         const struct attn_trial *row, const struct attn_fixture_shape *s)
{
    int64_t at[4] = {0};
    for (at[2] = 0; at[2] < s->q; at[2]++)
        for (at[3] = 0; at[3] < s->k; at[3]++) {
            double sum = 0, bound = attn_fixture_bound(row, ATTN_DBIAS, at);
            for (int64_t b = 0; b < s->b; b++)
                for (int64_t h = 0; h < s->h; h++) {
                    const int64_t from[4] = {b, h, at[2], at[3]};
                    sum += attn_fixture_get(full, ATTN_DBIAS, from);
                    bound += attn_fixture_bound(full, ATTN_DBIAS, from);
                }
            attn_fixture_near(f, "dbias", at, attn_fixture_get(row, ATTN_DBIAS, at), sum, bound);
        }
}

void attn_relation_dbias(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_trial full, row;
    if (!attn_fixture_needs(f, ATTN_CAP_DBIAS | ATTN_CAP_BIAS) ||
        !run(f, &row, shape, "none", "normal:s8", ":bias=row:dbias=1"))
        return;
    if (attn_fixture_open(f, &full, shape, "none", "normal:s8", ATTN_BACKWARD,
                          ":bias=full:dbias=1")) {
        attn_fixture_change(&full, ATTN_T_BIAS, shared_value, &row);
        if (attn_fixture_run(f, &full)) {
            check_rows(f, &full, shape);
            check_shared(f, &full, &row, shape);
        }
        attn_fixture_close(&full);
    }
    attn_fixture_close(&row);
}
