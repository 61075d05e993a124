/* Relations of keys, queries and heads: permuted, repeated, removed, taken apart (bugs.md R2 to R6,
 * R14 to R16, R18, R19). */
#include <math.h>
#include <stdio.h>

#include "tests/harness/inputs/setup_mask.h"
#include "tests/harness/relations/relation_fixture.h"

static int is_key_or_value(enum attn_slot slot)
{
    return slot == ATTN_T_K || slot == ATTN_T_V;
}

static int is_of_keys(enum attn_output output)
{
    return output == ATTN_DK || output == ATTN_DV;
}

/* The wanted number: factor times row `row` of trial 0's output. */
static void take_row(const struct attn_fixture *f, struct attn_equation *e, double factor,
                     int64_t row)
{
    const int64_t from[4] = {e->at[0], e->at[1], row, e->at[3]};
    attn_equation_take(f, e, 0, factor, from);
}

/* ---- R2, R3 ---------------------------------------------------------------------------------- */

/* R2 permutes keys, R3 queries. */
static double permute(const struct attn_fixture_input *in)
{
    int of_queries = in->f->second;
    if (in->trial == 0 || is_key_or_value(in->slot) == of_queries)
        return in->old;
    return attn_fixture_row(
        in, 0, attn_fixture_place(in->at[2], of_queries ? in->f->shape.q : in->f->shape.k));
}

/* The stored [Lq,Lk] mask of trial 1 becomes that of trial 0 with rows or columns permuted. */
static int permute_mask(struct attn_fixture *f)
{
    const int64_t nq = f->shape.q, nk = f->shape.k;
    const unsigned char *from = f->trial[0].setup.made->data;
    for (int64_t n = 0; n < nq * nk && f->trial[1].open; n++) {
        int64_t i = n / nk, j = n % nk;
        f->trial[1].setup.made->data[n] = from[(f->second ? attn_fixture_place(i, nq) : i) * nk +
                                               (f->second ? j : attn_fixture_place(j, nk))];
    }
    return 1;
}

static void permuted_rows(const struct attn_fixture *f, struct attn_equation *e)
{
    int64_t n = f->second ? f->shape.q : f->shape.k, row = e->at[2];
    take_row(f, e, 1, is_of_keys(e->output) == f->second ? row : attn_fixture_place(row, n));
}

/* ---- R4 -------------------------------------------------------------------------------------- */

enum { REPEATED = 3, TIMES = 5 };

/* One feature more carries the logarithm: q = 4, scale = 1/4, k = ln 5 for one key.  Trial 1 has
 * that key five times, without the logarithm. */
static void four_keys_more(struct attn_fixture_shape *s, int trial)
{
    s->d++;
    s->k += trial == 1 ? TIMES - 1 : 0;
}

static double repeat_key(const struct attn_fixture_input *in)
{
    const int more = is_key_or_value(in->slot) && in->at[2] >= in->f->shape.k;
    const int64_t row = more ? REPEATED : in->at[2];
    if (in->slot == ATTN_T_V || in->at[3] < in->f->shape.d)
        return attn_fixture_row(in, 0, row);
    if (in->slot == ATTN_T_Q)
        return 4;
    return in->trial == 0 && row == REPEATED ? log(TIMES) : 0;
}

/* The logarithm is stored rounded: that moves LSE by as much, O by the spread of V (below 10) times
 * that. */
static void near_the_repeated(const struct attn_fixture *f, struct attn_equation *e)
{
    const int64_t at[4] = {0, 0, REPEATED, f->shape.d};
    double slack = fabs(attn_fixture_value(&f->trial[0], ATTN_T_K, at) - log(TIMES));
    attn_equation_take(f, e, 0, 1, e->at);
    e->allowed += e->output == ATTN_O ? 10 * slack : slack;
}

/* ---- R5, R6 ---------------------------------------------------------------------------------- */

static void twice_the_keys(struct attn_fixture_shape *s, int trial)
{
    s->k *= trial == 1 ? 2 : 1;
}

static double repeat_all(const struct attn_fixture_input *in)
{
    if (in->trial == 0 || !is_key_or_value(in->slot))
        return in->old;
    return attn_fixture_row(in, 0, in->at[2] % in->f->shape.k);
}

static void repeated_all(const struct attn_fixture *f, struct attn_equation *e)
{
    if (is_of_keys(e->output))
        take_row(f, e, 0.5, e->at[2] % f->shape.k);
    else
        take_row(f, e, 1, e->at[2]);
    e->want += e->output == ATTN_LSE ? log(2) : 0;
}

/* Key j of the smaller problem is key 2 j of the larger one, where the others are hidden. */
static double every_other_key(const struct attn_fixture_input *in)
{
    if (in->trial == 1 || !is_key_or_value(in->slot) || !in->f->trial[1].open)
        return in->old;
    return attn_fixture_row(in, 1, 2 * in->at[2]);
}

static void even_or_nothing(const struct attn_fixture *f, struct attn_equation *e)
{
    if (!is_of_keys(e->output))
        take_row(f, e, 1, e->at[2]);
    else if (e->at[2] % 2 == 0)
        take_row(f, e, 1, e->at[2] / 2);
}

/* ---- R14, R15 -------------------------------------------------------------------------------- */

enum { CHANGED = 1 }; /* head, and batch */

static double change_a_head(const struct attn_fixture_input *in)
{
    int here = in->at[0] == CHANGED || (!is_key_or_value(in->slot) && in->at[1] == CHANGED);
    return in->trial == 1 && here ? 3 - 2 * in->old : in->old;
}

/* The change may show in the batch and the head, and for dK and dV in the head's group. */
static void other_heads(const struct attn_fixture *f, struct attn_equation *e)
{
    const int64_t group = f->shape.h / f->shape.g;
    attn_equation_take(f, e, 0, 1, e->at);
    e->skip =
        e->at[0] == CHANGED || e->at[1] == (is_of_keys(e->output) ? CHANGED / group : CHANGED);
}

static void no_groups(struct attn_fixture_shape *s, int trial)
{
    s->g = trial == 1 ? s->h : s->g;
}

static double repeat_heads(const struct attn_fixture_input *in)
{
    const int64_t group = in->f->shape.h / in->f->shape.g,
                  from[4] = {in->at[0], in->at[1] / group, in->at[2], in->at[3]};
    if (in->trial == 0 || !is_key_or_value(in->slot))
        return in->old;
    return attn_fixture_value(&in->f->trial[0], in->slot, from);
}

/* The gradient of a kv head is the sum over its group. */
static void sum_of_heads(const struct attn_fixture *f, struct attn_equation *e)
{
    const int64_t group = f->shape.h / f->shape.g;
    int64_t at[4] = {e->at[0], e->at[1] / group, e->at[2], e->at[3]};
    if (!is_of_keys(e->output)) {
        attn_equation_take(f, e, 0, 1, e->at);
        return;
    }
    e->skip = e->at[1] % group != 0;
    e->got = attn_fixture_get(&f->trial[0], e->output, at);
    e->allowed = attn_fixture_bound(&f->trial[0], e->output, at);
    for (at[1] = e->at[1]; at[1] < e->at[1] + group && !e->skip; at[1]++)
        attn_equation_take(f, e, 1, 1, at);
}

/* ---- R16 ------------------------------------------------------------------------------------- */

/* Trial 1: the first half of a square causal problem.  Trial 2: its last rows. */
static void cut_shapes(struct attn_fixture_shape *s, int trial)
{
    const int64_t whole = s->k;
    s->q = trial == 0 ? whole : trial == 1 ? whole / 2 : whole / 4;
    s->k = trial == 1 ? whole / 2 : whole;
}

static int64_t cut_start(const struct attn_fixture *f, int trial)
{
    return trial == 2 ? f->shape.k - f->shape.k / 4 : 0;
}

static double cut(const struct attn_fixture_input *in)
{
    return attn_fixture_row(in, 0,
                            in->at[2] + (in->slot == ATTN_T_Q ? cut_start(in->f, in->trial) : 0));
}

static void cut_rows(const struct attn_fixture *f, struct attn_equation *e)
{
    take_row(f, e, 1, e->at[2] + cut_start(f, e->trial));
}

/* ---- R18 ------------------------------------------------------------------------------------- */

enum { PARTS = 3 }; /* trial 1 + p has part p of the keys */

static int64_t part_start(int64_t n_key, int part)
{
    const int64_t third = n_key / 3 / 4 * 4, start[PARTS + 1] = {0, third, third + 4, n_key};
    return start[part];
}

static void part_shapes(struct attn_fixture_shape *s, int trial)
{
    if (trial > 0)
        s->k = part_start(s->k, trial) - part_start(s->k, trial - 1);
}

static double take_apart(const struct attn_fixture_input *in)
{
    const int64_t start =
        is_key_or_value(in->slot) && in->trial > 0 ? part_start(in->f->shape.k, in->trial - 1) : 0;
    return attn_fixture_row(in, 0, in->at[2] + start);
}

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

/* An element of trial 0 from its parts, in an order for each trial.  An error e in each LSE changes
 * a weight by a factor within exp(+-2 e). */
static void merged(const struct attn_fixture *f, struct attn_equation *eq)
{
    static const int order[PARTS][PARTS] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
    const struct attn_trial *part = &f->trial[1];
    const int64_t *at = eq->at, row[4] = {at[0], at[1], at[2], 0};
    double o = 0, lse = -HUGE_VAL, e = 0;
    for (int p = 0; p < PARTS; p++)
        eq->skip |= !part[p].ran;
    for (int p = 0; p < PARTS && !eq->skip; p++) {
        const int next = order[eq->trial - 1][p];
        merge(&o, &lse, attn_fixture_get(&part[next], ATTN_O, at),
              attn_fixture_get(&part[next], ATTN_LSE, row));
        e = fmax(e, attn_fixture_bound(&part[p], ATTN_LSE, row));
    }
    eq->got = attn_fixture_get(&f->trial[0], eq->output, at);
    eq->want = eq->output == ATTN_O ? o : lse;
    eq->allowed = attn_fixture_bound(&f->trial[0], eq->output, at);
    if (eq->output == ATTN_LSE)
        eq->allowed += e;
    for (int p = 0; p < PARTS && eq->output == ATTN_O && !eq->skip; p++) {
        double weight = exp(attn_fixture_get(&part[p], ATTN_LSE, row) - lse + 2 * e);
        eq->allowed += weight * (attn_fixture_bound(&part[p], ATTN_O, at) +
                                 expm1(2 * e) * fabs(attn_fixture_get(&part[p], ATTN_O, at) - o));
    }
}

/* ---- R19 ------------------------------------------------------------------------------------- */

enum { HEAD = 1, REST, PADDED, FIRST_Q = 8, FIRST_K = 12 }; /* the first of two sequences */

static void sequence_shapes(struct attn_fixture_shape *s, int trial)
{
    if (trial == HEAD || trial == REST) {
        s->q = trial == HEAD ? FIRST_Q : s->q - FIRST_Q;
        s->k = trial == HEAD ? FIRST_K : s->k - FIRST_K;
    }
}

static double unpack(const struct attn_fixture_input *in)
{
    const int64_t start = is_key_or_value(in->slot) ? FIRST_K : FIRST_Q;
    if (in->trial != HEAD && in->trial != REST)
        return in->old;
    return attn_fixture_row(in, 0, in->at[2] + (in->trial == REST ? start : 0));
}

static void unpacked(const struct attn_fixture *f, struct attn_equation *e)
{
    const int64_t start = is_of_keys(e->output) ? FIRST_K : FIRST_Q;
    take_row(f, e, 1, e->at[2] + (e->trial == REST ? start : 0));
    e->exact = e->trial == PADDED;
}

static void pack(struct attn_fixture *f)
{
    char packed[80], padded[80];
    attn_fixture_settle(f, &(struct attn_relation_plan){.trials = 4, .shape = sequence_shapes});
    const long long q = f->shape.q - FIRST_Q, k = f->shape.k - FIRST_K;
    snprintf(packed, sizeof packed, "documents(8x12,%lldx%lld)", q, k);
    snprintf(padded, sizeof padded, "documents(0x0,8x12,0x0,%lldx%lld,0x0)", q, k);
    const struct attn_relation_plan plan = {.pass = ATTN_BACKWARD,
                                            .mask = "none",
                                            .fill = "normal:s8",
                                            .trials = 4,
                                            .own = {{.mask = packed}, [PADDED] = {.mask = padded}},
                                            .shape = sequence_shapes,
                                            .change = unpack,
                                            .expect = unpacked};
    attn_fixture_follow(f, &plan);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define IN_PARTS                                                                     \
    .mask = "none", .trials = 1 + PARTS, .shape = part_shapes, .change = take_apart, \
    .expect = merged

const struct attn_relation_plan attn_relations_of_keys[] = {
    {"R2", .pass = ATTN_BACKWARD, .mask = "dense(qk60)", .fill = "normal:s1", .trials = 2,
     .change = permute, .prepare = permute_mask, .expect = permuted_rows},
    {"R3", .pass = ATTN_BACKWARD, .mask = "dense(qk60)", .fill = "normal:s1", .trials = 2,
     .second = 1, .change = permute, .prepare = permute_mask, .expect = permuted_rows},
    {"R4", .mask = "none", .fill = "normal:s1", .fields = ":scale=0.25", .trials = 2,
     .shape = four_keys_more, .change = repeat_key, .expect = near_the_repeated},
    {"R5", .pass = ATTN_BACKWARD, .mask = "none", .fill = "normal:s2", .trials = 2,
     .shape = twice_the_keys, .change = repeat_all, .expect = repeated_all},
    {"R6", .pass = ATTN_BACKWARD, .mask = "none", .fill = "normal:s3", .trials = 2,
     .own = {[1] = {.mask = "keys(x10)"}}, .shape = twice_the_keys, .change = every_other_key,
     .expect = even_or_nothing},
    {"R14", .pass = ATTN_BACKWARD, .mask = "causal(br)", .fill = "normal:s1", .trials = 2,
     .change = change_a_head, .expect = other_heads},
    {"R15", .pass = ATTN_BACKWARD, .mask = "causal(br)", .fill = "normal:s2", .trials = 2,
     .shape = no_groups, .change = repeat_heads, .expect = sum_of_heads},
    {"R16", .mask = "causal(tl)", .fill = "normal:s4", .trials = 3,
     .own = {[2] = {.mask = "causal(br)"}}, .shape = cut_shapes, .change = cut, .expect = cut_rows},
    {"R18", IN_PARTS, .fill = "normal:s5"},
    {"R18", IN_PARTS, .fill = "cliffs:s6"},
    {"R18", IN_PARTS, .fill = "offset-120:s7"},
    {"R19", .run = pack},
    {.id = NULL}};
