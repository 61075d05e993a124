/* Relations of values: constants, signs, scales, columns (bugs.md R1, R7 to R13, R21 to R23). */
#include <math.h>

#include "ref/problem.h"
#include "tests/harness/relations/relation_fixture.h"

/* ---- R1 -------------------------------------------------------------------------------------- */

/* One feature more: 1 in k; in q what adds the row's constant to its scores, or nothing. */
static void one_feature_more(struct attn_fixture_shape *s, int trial)
{
    (void)trial;
    s->d++;
}

/* The constant of row i: up to 96 on either side, exact in every type. */
static double row_shift(int64_t i)
{
    return 32 * (double)(i * 5 % 7 - 3);
}

static double shift_rows(const struct attn_fixture_input *in)
{
    if (in->slot > ATTN_T_K || in->at[3] != in->f->shape.d)
        return in->old;
    if (in->slot == ATTN_T_K)
        return 1;
    return in->trial == 0 ? 0 : 4 * row_shift(in->at[2]); /* scale is 1/4 */
}

static void shifted_lse(const struct attn_fixture *f, struct attn_equation *e)
{
    attn_equation_take(f, e, 0, 1, e->at);
    if (e->output == ATTN_LSE)
        e->want += row_shift(e->at[2]);
    e->skip = (e->output == ATTN_DQ || e->output == ATTN_DK) && e->at[3] == f->shape.d;
}

/* ---- R8, R9 ---------------------------------------------------------------------------------- */

/* Trials: V, 4 V, W, V + W.  Integers, so that the sum is exact. */
static double combine_v(const struct attn_fixture_input *in)
{
    const int64_t row = in->at[2];
    if (in->trial == 1 && in->slot == ATTN_T_V)
        return 4 * in->old;
    if (in->trial == 2 && in->slot != ATTN_T_V)
        return attn_fixture_row(in, 0, row);
    if (in->trial == 3 && in->slot == ATTN_T_V)
        return attn_fixture_row(in, 0, row) + attn_fixture_row(in, 2, row);
    return in->old;
}

static void combined_o(const struct attn_fixture *f, struct attn_equation *e)
{
    attn_equation_take(f, e, 0, e->trial == 1 && e->output == ATTN_O ? 4 : 1, e->at);
    e->exact = e->trial == 1;
    if (e->trial == 3)
        attn_equation_take(f, e, 2, 1, e->at);
    e->skip = e->trial == 2 || (e->trial == 3 && e->output == ATTN_LSE) || !f->trial[2].ran;
}

static void is_one(const struct attn_fixture *f, struct attn_equation *e)
{
    (void)f;
    e->want = 1;
    e->skip = e->output == ATTN_LSE;
}

/* ---- R10, R11 -------------------------------------------------------------------------------- */

static void as_wide_as_keys(struct attn_fixture_shape *s, int trial)
{
    (void)trial;
    s->v = s->k;
}

static double identity_v(const struct attn_fixture_input *in)
{
    return in->slot == ATTN_T_V ? in->at[2] == in->at[3] : in->old;
}

/* Each p is at least 0, and 0 where hidden; in the place of LSE, the sum of a row of p is 1. */
static void is_p(const struct attn_fixture *f, struct attn_equation *e)
{
    const struct attn_trial *t = &f->trial[0];
    if (e->output == ATTN_LSE) {
        attn_equation_sum(f, e, ATTN_O, 3);
        e->want = attn_setup_sees(&t->setup, e->at[0], e->at[1], e->at[2]);
        e->what = "sum of p";
        return;
    }
    int visible = attn_problem_allows(&t->setup.problem, e->at[0], e->at[1], e->at[2], e->at[3]);
    e->want = visible && e->got > 0 ? e->got : 0;
    e->allowed = 0;
    e->what = visible ? "p (negative)" : "p (hidden)";
}

/* Element c of row j of the V that a place of O is made from. */
static double value_of(const struct attn_trial *t, const int64_t at[4], int64_t j)
{
    const struct attn_problem *p = &t->setup.problem;
    const int64_t from[4] = {at[0], at[1] / (p->heads / p->kv_heads), j, at[3]};
    return attn_fixture_value(t, ATTN_T_V, from);
}

static void is_within_v(const struct attn_fixture *f, struct attn_equation *e)
{
    const struct attn_trial *t = &f->trial[0];
    double least = HUGE_VAL, most = -least;
    if (e->output == ATTN_O)
        for (int64_t j = 0; j < f->shape.k; j++)
            if (attn_problem_allows(&t->setup.problem, e->at[0], e->at[1], e->at[2], j)) {
                least = fmin(least, value_of(t, e->at, j));
                most = fmax(most, value_of(t, e->at, j));
            }
    e->want = e->got < least ? least : e->got > most ? most : e->got;
    e->skip = least > most; /* LSE, or nothing visible */
}

/* ---- R12, R13 -------------------------------------------------------------------------------- */

static double sign(int64_t c)
{
    return c % 2 == 0 ? -1 : 1;
}

static double permute_features(const struct attn_fixture_input *in)
{
    const int64_t c = in->at[3], from[4] = {in->at[0], in->at[1], in->at[2],
                                            attn_fixture_place(c, in->f->shape.d)};
    if (in->trial == 0 || in->slot > ATTN_T_K)
        return in->old;
    return sign(c) * attn_fixture_value(&in->f->trial[0], in->slot, from);
}

static void permuted_features(const struct attn_fixture *f, struct attn_equation *e)
{
    const int64_t c = e->at[3],
                  from[4] = {e->at[0], e->at[1], e->at[2], attn_fixture_place(c, f->shape.d)};
    if (e->output == ATTN_DQ || e->output == ATTN_DK)
        attn_equation_take(f, e, 0, sign(c), from);
    else
        attn_equation_take(f, e, 0, 1, e->at);
}

/* Trial 1: 2 q, half the scale.  Trial 2: 8 k, an eighth of the scale. */
static double move_scale(const struct attn_fixture_input *in)
{
    if (in->trial == 1 && in->slot == ATTN_T_Q)
        return 2 * in->old;
    return in->trial == 2 && in->slot == ATTN_T_K ? 8 * in->old : in->old;
}

static void moved_scale(const struct attn_fixture *f, struct attn_equation *e)
{
    double factor = 1;
    if (e->trial == 1 && e->output == ATTN_DQ)
        factor = 0.5;
    if (e->trial == 2 && e->output == ATTN_DK)
        factor = 0.125;
    attn_equation_take(f, e, 0, factor, e->at);
}

/* ---- R21 ------------------------------------------------------------------------------------- */

static double zero_q(const struct attn_fixture_input *in)
{
    return in->slot == ATTN_T_Q ? 0 : in->old;
}

static double equal_keys(const struct attn_fixture_input *in)
{
    return in->slot == ATTN_T_K ? attn_fixture_row(in, 0, 0) : in->old;
}

/* O is the mean of the visible V. */
static void is_mean(const struct attn_fixture *f, struct attn_equation *e)
{
    const struct attn_trial *t = &f->trial[0];
    int64_t n = 0;
    e->skip = e->output == ATTN_LSE;
    for (int64_t j = 0; j < f->shape.k && !e->skip; j++)
        if (attn_problem_allows(&t->setup.problem, e->at[0], e->at[1], e->at[2], j)) {
            e->want += value_of(t, e->at, j);
            n++;
        }
    e->want = n > 0 ? e->want / (double)n : 0;
}

/* ... and, where every score is 0, LSE is the log of how many. */
static void is_counted(const struct attn_fixture *f, struct attn_equation *e)
{
    int64_t n = 0;
    if (e->output == ATTN_O) {
        is_mean(f, e);
        return;
    }
    for (int64_t j = 0; j < f->shape.k; j++)
        n += attn_problem_allows(&f->trial[0].setup.problem, e->at[0], e->at[1], e->at[2], j) != 0;
    e->want = n > 0 ? log((double)n) : -HUGE_VAL;
}

/* ---- R22, R23 -------------------------------------------------------------------------------- */

enum { CAPPED = 2 }; /* the trial with a cap of 2^20 */

/* The distance of c tanh(s/c) from s, at most: |s|^3 / (3 c^2); and what that does to O and LSE. */
static double cap_slack(const struct attn_trial *x, double cap)
{
    double size[3] = {0, 0, 0};
    for (int slot = ATTN_T_Q; slot <= ATTN_T_V; slot++) {
        const int64_t *extent = x->setup.tensor[slot].extent;
        int64_t at[4] = ATTN_START;
        while (attn_each(at, extent))
            size[slot] = fmax(size[slot], fabs(attn_fixture_value(x, (enum attn_slot)slot, at)));
    }
    double s = fabs(x->setup.problem.scale) * (double)x->setup.problem.d_key * size[0] * size[1];
    double off = s * s * s / (3 * cap * cap);
    return off * fmax(1, 2 * size[2]);
}

static double zero_bias(const struct attn_fixture_input *in)
{
    return in->slot == ATTN_T_BIAS ? 0 : in->old;
}

static int zero_slopes(struct attn_fixture *f)
{
    for (int n = 0; n < ATTN_TRIALS; n++)
        for (int64_t h = 0; f->trial[n].open && f->trial[n].setup.slope && h < f->shape.h; h++)
            f->trial[n].setup.slope[h] = 0;
    f->slack = cap_slack(&f->trial[0], 1048576);
    return 1;
}

static void near_the_uncapped(const struct attn_fixture *f, struct attn_equation *e)
{
    attn_equation_take(f, e, 0, 1, e->at);
    e->allowed += e->trial == CAPPED ? f->slack : 0;
}

/* Trial 1 changes the first column of V, trial 2 the last. */
static int is_changed_column(const struct attn_fixture *f, int trial, int64_t c)
{
    return trial > 0 && c == (trial == 1 ? 0 : f->shape.v - 1);
}

static double change_column(const struct attn_fixture_input *in)
{
    return in->slot == ATTN_T_V && is_changed_column(in->f, in->trial, in->at[3])
               ? 100 - 3 * in->old
               : in->old;
}

static void other_columns(const struct attn_fixture *f, struct attn_equation *e)
{
    attn_equation_take(f, e, 0, 1, e->at);
    e->skip = e->output == ATTN_O && is_changed_column(f, e->trial, e->at[3]);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define POISONED                                                                        \
    .needs = ATTN_CAP_HARD | ATTN_CAP_MASK, .pass = ATTN_BACKWARD, .fill = "normal:s1", \
    .trials = 3, .exact = 1,                                                            \
    .own = {[1] = {.fields = ":poison=big"}, [2] = {.fields = ":poison=nan"}}

const struct attn_relation_plan attn_relations_of_values[] = {
    {"R1", .pass = ATTN_BACKWARD, .mask = "none", .fill = "normal:s1", .fields = ":scale=0.25",
     .trials = 2, .shape = one_feature_more, .change = shift_rows, .expect = shifted_lse},
    {"R7", POISONED, .mask = "prefix(9)&keys(x1101)"},
    {"R7", POISONED, .mask = "window(5,0,br)"},
    {"R7", POISONED, .mask = "causal(br)", .shape = attn_fixture_tall},
    {"R8", .mask = "none", .fill = "integer:s1", .fields = ":scale=0.125", .trials = 4,
     .own = {[2] = {.fill = "integer:s2"}}, .change = combine_v, .expect = combined_o},
    {"R9", .mask = "none", .fill = "ones:s1", .trials = 1, .expect = is_one},
    {"R10", .mask = "causal(br)&keys(x110)", .fill = "normal:s1", .trials = 1,
     .shape = as_wide_as_keys, .change = identity_v, .expect = is_p},
    {"R11", .mask = "causal(br)", .fill = "normal:s2", .trials = 1, .expect = is_within_v},
    {"R12", .pass = ATTN_BACKWARD, .mask = "causal(br)", .fill = "normal:s3", .trials = 2,
     .change = permute_features, .expect = permuted_features},
    {"R13", .pass = ATTN_BACKWARD, .mask = "causal(br)", .fill = "normal:s4",
     .fields = ":scale=0.25", .trials = 3, .exact = 1,
     .own = {[1] = {.fields = ":scale=0.125"}, [2] = {.fields = ":scale=0.03125"}},
     .change = move_scale, .expect = moved_scale},
    {"R21", .mask = "causal(br)", .fill = "normal:s5", .trials = 1, .change = zero_q,
     .expect = is_counted},
    {"R21", .mask = "causal(br)", .fill = "normal:s5", .trials = 1, .change = equal_keys,
     .expect = is_mean},
    {"R22", .mask = "none", .fill = "normal:s6", .trials = 5,
     .own = {[1] = {.mask = "window(-1,-1,br)"},
             [CAPPED] = {.fields = ":softcap=1048576"},
             [3] = {.fields = ":bias=full"},
             [4] = {.fields = ":bias=alibi"}},
     .change = zero_bias, .prepare = zero_slopes, .expect = near_the_uncapped},
    {"R23", .mask = "causal(br)", .fill = "normal:s7", .trials = 3, .exact = 1,
     .change = change_column, .expect = other_columns},
    {.id = NULL}};
