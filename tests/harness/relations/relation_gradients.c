/* Identities that gradients must meet (bugs.md G1 to G9).  They hold exactly in real arithmetic;
 * the allowed error is the sum of the bounds of what is added up. */
#include <math.h>

#include "ref/problem.h"
#include "tests/harness/relations/relation_fixture.h"

/* ---- sums over keys: G1, G2 ------------------------------------------------------------------ */

static void dk_sums_to_zero(const struct attn_fixture *f, struct attn_equation *e)
{
    attn_equation_sum(f, e, e->output, 2);
    e->skip |= e->output != ATTN_DK;
    e->what = "sum of dk";
}

/* Element c of dO, summed over rows of a group for which `counts` says so. */
static double sum_of_do(const struct attn_trial *t, const int64_t at[4],
                        int (*counts)(const struct attn_trial *t, const int64_t row[4], int64_t j))
{
    const struct attn_problem *p = &t->setup.problem;
    const int64_t group = p->heads / p->kv_heads;
    double sum = 0;
    for (int64_t h = at[1] * group; h < (at[1] + 1) * group; h++)
        for (int64_t i = 0; i < p->n_query; i++) {
            const int64_t row[4] = {at[0], h, i, at[3]};
            if (counts(t, row, at[2]))
                sum += attn_fixture_value(t, ATTN_T_DO, row);
        }
    return sum;
}

static int sees_a_key(const struct attn_trial *t, const int64_t row[4], int64_t j)
{
    (void)j;
    return attn_setup_sees(&t->setup, row[0], row[1], row[2]);
}

static void dv_sums_to_do(const struct attn_fixture *f, struct attn_equation *e)
{
    attn_equation_sum(f, e, e->output, 2);
    e->skip |= e->output != ATTN_DV;
    e->want = e->skip ? 0 : sum_of_do(&f->trial[0], e->at, sees_a_key);
    e->what = "sum of dv";
}

/* ---- inner products: G3, G4 ------------------------------------------------------------------ */

/* <input, output>; the error that the output's bounds allow is added to *bound. */
static double inner(const struct attn_trial *t, enum attn_slot slot, enum attn_output output,
                    double *bound)
{
    double product = 0;
    int64_t extent[4];
    attn_fixture_extent(t, output, extent);
    int64_t at[4] = ATTN_START;
    while (attn_each(at, extent)) {
        double value = attn_fixture_value(t, slot, at);
        product += value * attn_fixture_get(t, output, at);
        *bound += fabs(value) * attn_fixture_bound(t, output, at);
    }
    return product;
}

/* One equation for a whole problem stands at the first element of O: G3, and G4. */
static void products(const struct attn_fixture *f, struct attn_equation *e)
{
    const struct attn_trial *t = &f->trial[0];
    e->skip = e->output != ATTN_O || (e->at[0] | e->at[1] | e->at[2] | e->at[3]) != 0;
    if (e->skip)
        return;
    e->allowed = 0;
    e->got = f->second ? inner(t, ATTN_T_Q, ATTN_DQ, &e->allowed)
                       : inner(t, ATTN_T_DO, ATTN_O, &e->allowed);
    e->want = f->second ? inner(t, ATTN_T_K, ATTN_DK, &e->allowed)
                        : inner(t, ATTN_T_V, ATTN_DV, &e->allowed);
    e->what = f->second ? "<q, dQ> against <k, dK>" : "<dO, O> against <V, dV>";
}

/* ---- G5, G6, G7 ------------------------------------------------------------------------------ */

/* Integers: the sum is exact. */
static double shift_keys(const struct attn_fixture_input *in)
{
    double shift = in->at[3] % 2 == 0 ? 2 : -1;
    return in->trial == 1 && in->slot == ATTN_T_K ? in->old + shift : in->old;
}

static void unshifted(const struct attn_fixture *f, struct attn_equation *e)
{
    attn_equation_take(f, e, 0, 1, e->at);
    e->skip = e->output == ATTN_LSE || e->output == ATTN_DK;
}

/* Rows that see nothing hold 0 in q and dO, or NaN: that must be the same. */
static double fill_empty_rows(const struct attn_fixture_input *in)
{
    if ((in->slot != ATTN_T_Q && in->slot != ATTN_T_DO) ||
        attn_setup_sees(&in->f->trial[in->trial].setup, in->at[0], in->at[1], in->at[2]))
        return in->old;
    return in->trial == 0 ? 0 : (double)NAN;
}

/* Is q of this row the code word of key j?  That has the largest score. */
static int is_selected(const struct attn_trial *t, const int64_t row[4], int64_t j)
{
    const struct attn_problem *p = &t->setup.problem;
    int same = p->d_key > 0;
    for (int64_t c = 0; c < p->d_key && same; c++) {
        const int64_t q[4] = {row[0], row[1], row[2], c},
                      k[4] = {row[0], row[1] / (p->heads / p->kv_heads), j, c};
        same = attn_fixture_value(t, ATTN_T_Q, q) == attn_fixture_value(t, ATTN_T_K, k);
    }
    return same;
}

static void gathered(const struct attn_fixture *f, struct attn_equation *e)
{
    e->want = e->output == ATTN_DV ? sum_of_do(&f->trial[0], e->at, is_selected) : 0;
    e->skip = e->output < ATTN_DQ;
}

/* ---- G8 -------------------------------------------------------------------------------------- */

/* Central differences: trial 0 has the gradients, trial 1 takes the steps. */
struct step {
    uint64_t seed;
    double length;
};

static double direction(const int64_t at[4], enum attn_slot slot, uint64_t seed)
{
    return attn_hash_normal(seed, (uint64_t)slot,
                            (uint64_t)(((at[0] * 64 + at[1]) * 1024 + at[2]) * 1024 + at[3]));
}

static double take_step(const struct attn_fixture_input *in)
{
    const struct step *step = in->f->arg;
    return attn_fixture_row(in, 0, in->at[2]) +
           step->length * direction(in->at, in->slot, step->seed);
}

/* <dO, O> + <dLSE, LSE> at the end of a step; NaN when it does not run. */
static double value_at(struct attn_fixture *f, struct step step)
{
    struct attn_trial *t = &f->trial[1];
    double bound = 0;
    f->arg = &step;
    for (int slot = ATTN_T_Q; slot <= ATTN_T_V; slot++)
        attn_fixture_change(f, 1, (enum attn_slot)slot, take_step);
    if (!attn_fixture_call(f, t, f->spec, NULL, 1))
        return (double)NAN;
    double value = inner(t, ATTN_T_DO, ATTN_O, &bound);
    return t->setup.tensor[ATTN_T_DLSE].data == NULL
               ? value
               : value + inner(t, ATTN_T_DLSE, ATTN_LSE, &bound);
}

/* The slope by the gradients, and the sum of magnitudes that its error is relative to. */
static double slope_of(const struct attn_trial *t, uint64_t seed, double *size)
{
    static const enum attn_output gradient[] = {ATTN_DQ, ATTN_DK, ATTN_DV};
    double slope = 0;
    int64_t extent[4];
    *size = 0;
    for (int n = 0; n < 3; n++) {
        attn_fixture_extent(t, gradient[n], extent);
        int64_t at[4] = ATTN_START;
        while (attn_each(at, extent)) {
            double part =
                attn_fixture_get(t, gradient[n], at) * direction(at, (enum attn_slot)n, seed);
            slope += part;
            *size += fabs(part);
        }
    }
    return slope;
}

/* A step of 1e-4 leaves a truncation error of about 1e-8 third derivatives, and a rounding error
 * of about 1e-16 / 1e-4: both below 1e-6 of the sum of magnitudes. */
static void differences(struct attn_fixture *f)
{
    const double h = 1e-4;
    const enum attn_dtype dtype = f->dtype;
    const unsigned caps = f->spec->impl->caps;
    const char *fields =
        caps & ATTN_CAP_SOFTCAP ? (caps & ATTN_CAP_DLSE ? ":softcap=4:dlse=1" : ":softcap=4") : "";
    if (!attn_fixture_needs(f, ATTN_CAP_F64 | ATTN_CAP_BACKWARD))
        return;
    f->dtype = ATTN_F64;
    attn_fixture_settle(f, &(struct attn_relation_plan){.trials = 1});
    int open = 0, ran = 0;
    while (open < 2 && attn_fixture_open(f, &f->trial[open], &f->shape, "causal(br)", "normal:s7",
                                         ATTN_BACKWARD, fields))
        open++;
    ran = open == 2 && attn_fixture_call(f, &f->trial[0], f->spec, NULL, 1);
    for (uint64_t seed = 1; seed <= 5 && ran; seed++) {
        struct attn_equation e = {.what = "slope by gradients against differences"};
        e.got = slope_of(&f->trial[0], seed, &e.allowed);
        e.allowed *= 1e-6;
        e.want = value_at(f, (struct step){seed, h});
        e.want = (e.want - value_at(f, (struct step){seed, -h})) / (2 * h);
        attn_fixture_judge(f, &e);
    }
    while (open > 0)
        attn_fixture_close(&f->trial[--open]);
    f->dtype = dtype;
}

/* ---- G9 -------------------------------------------------------------------------------------- */

/* Trial 0 shares one bias among batches and heads; the full one of trial 1 has its values. */
static double shared_bias(const struct attn_fixture_input *in)
{
    const int64_t first[4] = {0, 0, in->at[2], in->at[3]};
    if (in->trial == 0 || in->slot != ATTN_T_BIAS)
        return in->old;
    return attn_fixture_value(&in->f->trial[0], in->slot, first);
}

/* The shared gradient is the sum over batches and heads; in the place of LSE, the rows of the full
 * one sum to 0. */
static void dbias(const struct attn_fixture *f, struct attn_equation *e)
{
    int64_t at[4] = {0, 0, e->at[2], e->at[3]};
    if (e->output == ATTN_LSE) {
        attn_equation_sum(f, e, ATTN_DBIAS, 3);
        e->what = "sum of dbias";
        return;
    }
    e->skip = e->output != ATTN_DBIAS || (e->at[0] | e->at[1]) != 0;
    if (e->skip)
        return;
    e->got = attn_fixture_get(&f->trial[0], e->output, at);
    e->allowed = attn_fixture_bound(&f->trial[0], e->output, at);
    for (at[0] = 0; at[0] < f->shape.b; at[0]++)
        for (at[1] = 0; at[1] < f->shape.h; at[1]++)
            attn_equation_take(f, e, 1, 1, at);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define GRADIENTS .needs = ATTN_CAP_BACKWARD, .pass = ATTN_BACKWARD

const struct attn_relation_plan attn_relations_of_gradients[] = {
    {"G1", GRADIENTS, .mask = "none", .fill = "normal:s1", .trials = 1, .expect = dk_sums_to_zero},
    {"G1", GRADIENTS, .mask = "causal(br)", .fill = "normal:s1", .trials = 1,
     .expect = dk_sums_to_zero},
    {"G2", GRADIENTS, .mask = "causal(br)", .fill = "normal:s2", .trials = 1,
     .shape = attn_fixture_tall, .expect = dv_sums_to_do},
    {"G3", GRADIENTS, .mask = "causal(br)", .fill = "normal:s3", .trials = 1, .expect = products},
    {"G4", GRADIENTS, .mask = "causal(br)", .fill = "normal:s3", .trials = 1, .second = 1,
     .expect = products},
    {"G5", GRADIENTS, .mask = "causal(br)", .fill = "integer:s4", .fields = ":scale=0.125",
     .trials = 2, .change = shift_keys, .expect = unshifted},
    {"G6", .needs = ATTN_CAP_BACKWARD | ATTN_CAP_HARD, .pass = ATTN_BACKWARD, .mask = "causal(br)",
     .fill = "normal:s5", .trials = 2, .exact = 1, .shape = attn_fixture_tall,
     .change = fill_empty_rows},
    {"G7", GRADIENTS, .mask = "none", .fill = "select:s6", .fields = ":scale=0.25", .trials = 1,
     .expect = gathered},
    {"G8", .run = differences},
    {"G9", .needs = ATTN_CAP_BACKWARD | ATTN_CAP_DBIAS | ATTN_CAP_BIAS, .pass = ATTN_BACKWARD,
     .mask = "none", .fill = "normal:s8", .trials = 2,
     .own = {{.fields = ":bias=row:dbias=1"}, {.fields = ":bias=full:dbias=1"}},
     .change = shared_bias, .expect = dbias},
    {.id = NULL}};
