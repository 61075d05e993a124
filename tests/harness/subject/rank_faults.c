/* See rank_steps.h: attention as the ranks of a ring compute it, with one place changed, held
 * against what a rank holds.  Plain double arithmetic, of everything that is held. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/oracle/oracle.h"
#include "ref/problem.h"
#include "tests/harness/subject/rank_steps.h"

static const double log2_e = 1.44269504088896340736;
enum { MAX_PAIRS = 1 << 20 }; /* a hint is not worth more */

/* Of the whole: the numbers of a pair, whatever the mask says, and of its row, as it says. */
struct pair {
    double s, slope, dp, lse, delta;
};

/* One place where a row of rank_faults.def may change what is done. */
struct at {
    const struct attn_rank_steps *x;
    const struct attn_problem *p; /* of the case */
    const struct pair *pair;      /* [B,H,Lq,Lk] */
    int64_t b, h, i, j, li, lj;
    int rank, t, S, ends, block, seen, from, counts, is_difference;
    int64_t g, jk, jv;
    double scale, lse, before, delta, old, part, kept, given, dk, dv;
};

static double add_lse(double a, double b)
{
    double m = fmax(a, b);
    return m == -HUGE_VAL ? m : m + log(exp(a - m) + exp(b - m));
}

static double weight(double lse, double of)
{
    return lse == -HUGE_VAL ? 0 : exp(lse - of);
}

/* ---- helpers of rank_faults.def -------------------------------------------------------------- */

static int turn(const struct at *at, int rank)
{
    return (rank % at->x->ranks + at->x->ranks) % at->x->ranks;
}

/* The block that this rank has at a step; the rank that has a block at this step. */
static int block_at(const struct at *at, int step)
{
    return attn_rank_block(at->x, at->rank, turn(at, step));
}

static int holder(const struct at *at, int block)
{
    int r = 0;
    while (attn_rank_block(at->x, r, at->t) != block)
        r++;
    return r;
}

static struct attn_box box_of(const struct at *at, int is_keys, int rank)
{
    return attn_rank_held(at->x, rank, at->x->steps).box[is_keys];
}

/* 1: query token i sees key token j. */
static int sees(const struct at *at, int64_t i, int64_t j)
{
    return i >= 0 && j >= 0 && i < at->p->n_query && j < at->p->n_key &&
           at->x->sees[((at->b * at->p->heads + at->h) * at->p->n_query + i) * at->p->n_key + j];
}

/* Token n of a rank's shard, if shards lay one behind the other. */
static int64_t in_a_row(const struct at *at, int is_keys, int rank, int64_t n)
{
    for (int r = 0; r < rank; r++)
        n += box_of(at, is_keys, r).tokens;
    return n;
}

static const struct pair *pair_of(const struct at *at, int64_t j)
{
    return &at->pair[((at->b * at->p->heads + at->h) * at->p->n_query + at->i) * at->p->n_key + j];
}

/* Of the row, over the block that is multiplied alone. */
static double block_lse(const struct at *at)
{
    const struct attn_box box = box_of(at, 1, at->block);
    double lse = -HUGE_VAL;
    for (int64_t n = 0; n < box.tokens; n++) {
        int64_t j = attn_rank_token(&box, n);
        lse = sees(at, at->i, j) ? add_lse(lse, pair_of(at, j)->s) : lse;
    }
    return lse;
}

/* Delta of the row, had it no keys but those of this block, under this LSE. */
static double block_delta(const struct at *at, double lse)
{
    const struct attn_box box = box_of(at, 1, at->block);
    const struct attn_tensor *d_lse = &at->x->setup->tensor[ATTN_T_DLSE];
    double delta = d_lse->data != NULL ? -attn_tensor_get(d_lse, at->b, at->h, at->i, 0) : 0;
    for (int64_t n = 0; n < box.tokens; n++) {
        const struct pair *pair = pair_of(at, attn_rank_token(&box, n));
        delta += sees(at, at->i, attn_rank_token(&box, n)) ? weight(pair->s, lse) * pair->dp : 0;
    }
    return delta;
}

/* The mean score of all keys of the block: scale q . mean(K). */
static double mean_score(const struct at *at)
{
    const struct attn_box box = box_of(at, 1, at->block);
    double sum = 0;
    for (int64_t n = 0; n < box.tokens; n++)
        sum += pair_of(at, attn_rank_token(&box, n))->s;
    return box.tokens > 0 ? sum / (double)box.tokens : 0;
}

/* The sum so far and the part trade their weights; the LSE that is kept is right. */
static void swap_parts(struct at *at)
{
    const double old = at->old;
    at->old = at->part, at->part = old;
}

/* With 2^x for e^x, and ln for what is kept. */
static void merge_base_2(struct at *at)
{
    const double m = fmax(at->old, at->part);
    if (m == -HUGE_VAL)
        return;
    at->old = (at->old - m) / log2_e, at->part = (at->part - m) / log2_e;
    at->kept = at->given = m + add_lse(at->old, at->part);
}

static int64_t group_of(const struct at *at)
{
    return at->p->heads / at->p->kv_heads;
}

/* The first key that is counted, had a block that is not the first the first n keys before its
 * own. */
static int with_first(const struct at *at, int64_t n)
{
    const int64_t tokens = box_of(at, 1, 0).tokens;
    return at->block == 0 ? 0 : -(int)(n < tokens ? n : tokens);
}

/* The key of the rank's own block at the same place, or the block's last. */
static int64_t own_key(const struct at *at)
{
    const struct attn_box box = box_of(at, 1, at->rank);
    return attn_rank_token(&box, at->lj < box.tokens ? at->lj : box.tokens - 1);
}

/* ---- the rows of rank_faults.def, each a function that is named by its line ------------------ */

enum place { BLOCK, KEYS, SEEN, PAIR, MERGE, ROW, ADD, SUM, DQ };
enum { FORWARD = 1, BACKWARD = 2, BOTH = 3 };

#define NAMED_(line) change_##line
#define NAMED(line)  NAMED_(line)
#define ATTN_RANK_FAULT(pass, place, change_by, words) \
    static void NAMED(__LINE__)(struct at * at)        \
    {                                                  \
        change_by;                                     \
    }
#include "tests/harness/subject/rank_faults.def"
#undef ATTN_RANK_FAULT

static const struct model {
    int passes;
    enum place place;
    void (*change)(struct at *at);
    const char *words;
} models[] = {
#define ATTN_RANK_FAULT(pass, place, change_by, words) {pass, place, NAMED(__LINE__), words},
#include "tests/harness/subject/rank_faults.def"
};

/* ---- what a model computes ------------------------------------------------------------------- */

struct evaluation {
    struct at at;
    const struct model *model;
    const struct attn_rank_held *held;
    double *part;            /* O of a row over one block */
    struct attn_truth truth; /* whose gauges, which nobody needs here, become what is predicted */
};

static void change(struct evaluation *e, enum place place)
{
    if (e->model->place == place)
        e->model->change(&e->at);
}

/* Which block the rank of `at` multiplies at its step, and which of its pairs are seen. */
static struct attn_box multiplied(struct evaluation *e)
{
    e->at.block = block_at(&e->at, e->at.t);
    change(e, BLOCK);
    return box_of(&e->at, 1, e->at.block);
}

static int is_seen(struct evaluation *e, const struct attn_box *box, int64_t lj)
{
    const struct attn_box other = lj < 0 ? box_of(&e->at, 1, 0) : *box;
    e->at.lj = lj;
    e->at.j = attn_rank_token(&other, lj < 0 ? lj - e->at.from : lj);
    e->at.seen = sees(&e->at, e->at.i, e->at.j);
    change(e, SEEN);
    return e->at.seen;
}

static double value(const struct evaluation *e, int slot, int64_t h, int64_t token, int64_t c)
{
    return attn_tensor_get(&e->at.x->setup->tensor[slot], e->at.b, h, token, c);
}

static double capped(double s, double c)
{
    return c > 0 ? c * tanh(s / c) : s;
}

/* q . k, or dO . V, of query i with the row of a key. */
static double product(const struct evaluation *e, int of_query, int of_key, int64_t j, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += value(e, of_query, e->at.h, e->at.i, c) * value(e, of_key, e->at.g, j, c);
    return sum;
}

/* The numbers of the pair that is at hand, with another key, head or scale where the model says so;
 * the bias stays. */
static struct pair numbers(struct evaluation *e)
{
    struct at *at = &e->at;
    struct pair pair = *pair_of(at, at->j);
    at->g = at->h / group_of(at), at->jk = at->jv = at->j, at->scale = at->p->scale;
    if (e->model->place != PAIR)
        return pair;
    pair.s -=
        capped(at->p->scale * product(e, ATTN_T_Q, ATTN_T_K, at->j, at->p->d_key), at->p->softcap);
    change(e, PAIR);
    const double raw = at->scale * product(e, ATTN_T_Q, ATTN_T_K, at->jk, at->p->d_key);
    const double y = at->p->softcap > 0 ? tanh(raw / at->p->softcap) : 0;
    pair.s += capped(raw, at->p->softcap);
    pair.slope = 1 - y * y;
    if (at->x->setup->tensor[ATTN_T_DO].data != NULL)
        pair.dp = product(e, ATTN_T_DO, ATTN_T_V, at->jv, at->p->d_value);
    return pair;
}

/* Row (b,h,i): parts of blocks, merged one by one. */
static void predict_row(struct evaluation *e, double *o, double *lse)
{
    struct at *at = &e->at;
    double kept = -HUGE_VAL, before = -HUGE_VAL;
    for (at->t = 0; at->t <= at->S; at->t++) {
        const struct attn_box box = multiplied(e);
        at->lse = -HUGE_VAL, at->from = 0;
        change(e, KEYS);
        for (int64_t lj = at->from; lj < box.tokens; lj++)
            if (is_seen(e, &box, lj))
                at->lse = add_lse(at->lse, numbers(e).s);
        at->before = before;
        at->old = kept, at->part = at->lse, at->kept = at->given = add_lse(kept, at->lse);
        change(e, MERGE);
        const double both = add_lse(at->old, at->part), first = weight(at->old, both);
        const double second = weight(at->part, both);
        memset(e->part, 0, (size_t)at->p->d_value * sizeof *e->part);
        for (int64_t lj = at->from; lj < box.tokens; lj++) {
            if (!is_seen(e, &box, lj))
                continue;
            const double w = weight(numbers(e).s, at->lse);
            for (int64_t c = 0; c < at->p->d_value; c++)
                e->part[c] += w * value(e, ATTN_T_V, at->g, at->jv, c);
        }
        for (int64_t c = 0; c < at->p->d_value; c++)
            o[c] = at->is_difference ? o[c] - second * (o[c] - e->part[c])
                                     : first * o[c] + second * e->part[c];
        kept = at->kept, before = at->lse;
        *lse = at->given;
    }
}

static void predict_forward(struct evaluation *e)
{
    const struct attn_box *box = &e->held->box[0];
    int64_t n = 0;
    for (e->at.b = 0; e->at.b < e->at.p->batch; e->at.b++)
        for (e->at.h = 0; e->at.h < e->at.p->heads; e->at.h++)
            for (e->at.li = 0; e->at.li < box->tokens; e->at.li++, n++) {
                e->at.i = attn_rank_token(box, e->at.li);
                predict_row(e, &e->truth.tensor[ATTN_O].gauge[n * e->at.p->d_value],
                            &e->truth.tensor[ATTN_LSE].gauge[n]);
            }
}

/* The terms that row (b,h,i) of the rank of `at` adds: to the sums of the block that it multiplies,
 * where dq is NULL; else to its dQ. */
static void add_row(struct evaluation *e, const struct attn_box *box, double *dq)
{
    struct at *at = &e->at;
    const int64_t keys = e->held->box[1].tokens;
    double *dk = e->truth.tensor[ATTN_DK].gauge, *dv = e->truth.tensor[ATTN_DV].gauge;
    if (at->p->n_key == 0)
        return;
    at->lse = pair_of(at, 0)->lse;
    at->delta = pair_of(at, 0)->delta;
    change(e, ROW);
    at->dk = at->dv = 1;
    change(e, ADD);
    for (int64_t lj = 0; lj < box->tokens && (dq != NULL || lj < keys); lj++) {
        if (!is_seen(e, box, lj))
            continue;
        const struct pair pair = numbers(e);
        double w = weight(pair.s, at->lse), ds = w * (pair.dp - at->delta) * pair.slope * at->scale;
        int64_t n = (at->b * at->p->kv_heads + at->g) * keys + lj;
        for (int64_t c = 0; c < at->p->d_key && dq != NULL; c++)
            dq[c] += ds * value(e, ATTN_T_K, at->g, at->jk, c);
        for (int64_t c = 0; c < at->p->d_key && dq == NULL; c++)
            dk[n * at->p->d_key + c] += at->dk * ds * value(e, ATTN_T_Q, at->h, at->i, c);
        for (int64_t c = 0; c < at->p->d_value && dq == NULL; c++)
            dv[n * at->p->d_value + c] += at->dv * w * value(e, ATTN_T_DO, at->h, at->i, c);
    }
}

/* All rows of the rank of `at`, at its step. */
static void add_rows(struct evaluation *e, int is_dq)
{
    struct at *at = &e->at;
    const struct attn_box keys = multiplied(e), rows = box_of(at, 0, at->rank);
    int64_t row = 0;
    for (at->b = 0; at->b < at->p->batch; at->b++)
        for (at->h = 0; at->h < at->p->heads; at->h++)
            for (at->li = 0; at->li < rows.tokens; at->li++, row++) {
                at->i = attn_rank_token(&rows, at->li);
                add_row(e, &keys,
                        is_dq ? &e->truth.tensor[ATTN_DQ].gauge[row * at->p->d_key] : NULL);
            }
}

static void predict_backward(struct evaluation *e)
{
    struct at *at = &e->at;
    for (at->t = 0; at->t <= at->S; at->t++) {
        at->rank = e->held->rank;
        at->counts = at->ends;
        change(e, DQ);
        if (at->counts)
            add_rows(e, 1);
        at->from = holder(at, e->held->block);
        change(e, SUM);
        at->rank = at->from;
        if (at->from >= 0)
            add_rows(e, 0);
    }
}

/* ---- against what is held -------------------------------------------------------------------- */

/* Every element is as the model has it; and most that are wrong are none that the truth, within
 * what is allowed here, would be. */
static int fits(const struct evaluation *e, const struct attn_setup *part)
{
    const double u = attn_dtype_roundoff(part->problem.dtype);
    const double loose = part->problem.dtype == ATTN_F64 ? 1e-11 : fmax(2e-5, 4 * u);
    int64_t wrong = 0, apart = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_truth_tensor *t = &e->truth.tensor[o];
        int64_t n = 0;
        for (int64_t at[4] = ATTN_START; t->want != NULL && attn_each(at, t->extent); n++) {
            double got =
                attn_tensor_get(&part->tensor[ATTN_T_O + o], at[0], at[1], t->sample[at[2]], at[3]);
            double is = t->gauge[n], want = t->want[n], size = 0;
            for (int64_t c = n - at[3]; c < n - at[3] + t->extent[3]; c++)
                size = isfinite(t->gauge[c]) ? fmax(size, fabs(t->gauge[c])) : size;
            double tolerance = loose * size + 4 * t->bound[n] + 1e-30;
            if (!(got == is || fabs(got - is) <= tolerance || (isnan(got) && isnan(is))))
                return 0;
            wrong += !(got == want || fabs(got - want) <= t->bound[n]);
            apart += !(is == want || fabs(is - want) <= 2 * tolerance);
        }
    }
    return wrong > 0 && 2 * apart > wrong;
}

static enum attn_status take_numbers(const struct attn_rank_steps *x, struct pair *pair)
{
    struct attn_problem open = x->setup->problem;
    const struct attn_problem *p = &x->setup->problem;
    const struct attn_inputs in = attn_setup_inputs(x->setup, x->setup->given.pass);
    const int64_t n[4] = {p->batch, p->heads, p->n_query, 1};
    struct attn_oracle_row o;
    open.mask = NULL;
    enum attn_status status = attn_oracle_row_alloc(p, &o, NULL);
    if (status != ATTN_OK)
        return status;
    for (int64_t at[4] = ATTN_START; attn_each(at, n); pair += p->n_key) {
        attn_oracle_row_forward(p, &in.q, &in.k, &in.v, at[0], at[1], at[2], &o);
        if (in.d_o.data != NULL)
            attn_oracle_row_backward(p, &in.d_o, &in.d_lse, at[0], at[1], at[2], &o);
        const double lse = o.lse, delta = o.delta;
        attn_oracle_row_forward(&open, &in.q, &in.k, &in.v, at[0], at[1], at[2], &o);
        if (in.d_o.data != NULL)
            attn_oracle_row_backward(&open, &in.d_o, &in.d_lse, at[0], at[1], at[2], &o);
        for (int64_t j = 0; j < p->n_key; j++)
            pair[j] =
                (struct pair){o.s[j], o.slope[j], in.d_o.data != NULL ? o.dp[j] : 0, lse, delta};
    }
    attn_oracle_row_free(&o);
    return ATTN_OK;
}

/* The words of the first model that fits, or NULL. */
static const char *recognise(struct evaluation *e, enum attn_pass pass,
                             const struct attn_setup *part)
{
    const struct at start = e->at;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        if ((models[m].passes & (pass == ATTN_FORWARD ? FORWARD : BACKWARD)) == 0)
            continue;
        e->model = &models[m];
        e->at = start;
        for (int o = 0; o < ATTN_OUTPUTS; o++) {
            struct attn_truth_tensor *t = &e->truth.tensor[o];
            int64_t n = t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
            int is_predicted =
                pass == ATTN_FORWARD || o >= ATTN_DQ; /* else it is as it should be */
            for (int64_t i = 0; t->want != NULL && i < n; i++)
                t->gauge[i] = is_predicted ? 0 : t->want[i];
        }
        if (pass == ATTN_FORWARD)
            predict_forward(e);
        else
            predict_backward(e);
        if (fits(e, part))
            return models[m].words;
    }
    return NULL;
}

void attn_rank_diagnose(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                        enum attn_pass pass, const struct attn_setup *part,
                        const struct attn_sample *sample, const struct attn_precision *precision,
                        struct attn_diagnosis *diagnosis)
{
    const struct attn_problem *p = &x->setup->problem;
    const struct attn_inputs in = attn_setup_inputs(part, pass);
    const double pairs = (double)(p->batch * p->heads * p->n_query) * (double)p->n_key;
    struct evaluation e = {.held = held};
    if (!x->is_ring || pairs > MAX_PAIRS ||
        attn_truth_compute(&part->problem, &in, precision, sample, &e.truth, NULL) != ATTN_OK)
        return;
    struct pair *pair = malloc(((size_t)pairs + 1) * sizeof *pair);
    e.part = malloc(((size_t)p->d_value + 1) * sizeof *e.part);
    e.at = (struct at){
        .x = x, .p = p, .pair = pair, .rank = held->rank, .ends = held->step == x->steps};
    e.at.S = held->step - e.at.ends;
    const char *words = pair != NULL && e.part != NULL && take_numbers(x, pair) == ATTN_OK
                            ? recognise(&e, pass, part)
                            : NULL;
    if (words != NULL) {
        diagnosis->fault = ATTN_FAULT_RANKS;
        snprintf(diagnosis->text, sizeof diagnosis->text, "fits %s", words);
    } else /* it is counted where causes are voted for */
        snprintf(diagnosis->text, sizeof diagnosis->text, "not recognised");
    free(pair);
    free(e.part);
    attn_truth_free(&e.truth);
}
