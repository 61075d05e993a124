/* See faults.h: the rows of faults.def made hypotheses for one failed run, and compared with it one
 * by one. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/diagnosis/faults.h"

/* ---- whether a case can show a row, and its words -------------------------------------------- */

enum { LOW_SCORES = 18, STARTS = 8, CLAMPS = 10, FLOORS = 10, OVERS = 4 };
static const double low_score[LOW_SCORES] = {-1e9,  -1e4,   -(double)FLT_MAX,
                                             -1e30, -1e10,  -1e6,
                                             -1e5,  -65504, -32768,
                                             -5e4,  -1e3,   -100,
                                             -500,  -200,   -50,
                                             -30,   -20,    -10};
static const double max_start[STARTS] = {-1e5, -65504, -5e4, -32768, -1e4, -1e3, -100, 0};
static const double clamp_at[CLAMPS] = {1e4, 1e3, 100, 88, 80, 64, 50, 30, 20, 10};
static const double floor_at[FLOORS] = {30, 20, 16, 15, 12, 10, 8, 5, 4, 2};
static const char *const clamp_side[] = {"to +-", "to at most ", "to at least -"};

static const char *const for_kv[] = {"", " for K", " for V"};
static const char *const flushed_numbers[] = {"results", "inputs", "all that is computed"};
static const char *const p_or_ds[] = {"P and dS", "dS", "P"};
static const char *const causal[] = {"causal(tl)", "causal(br)"};
static const char *const ignored[] = {"", ": causal ignored", ": the window ignored"};
static const char *const over[OVERS] = {"the queries of a key", "the heads of a pair",
                                        "the batches of a pair", "the keys of all heads"};

static int has(const struct attn_failed_run *run, int64_t slot)
{
    return run->setup->tensor[slot].data != NULL;
}

static const char *name_of(const struct attn_failed_run *run, int64_t slot)
{
    return run->setup->tensor[slot].name;
}

static int turns(const struct attn_case *c)
{
    return (c->layout == ATTN_LAYOUT_BHLD || c->layout == ATTN_LAYOUT_BLHD) && c->only == 0;
}

static const char *other_layout(const struct attn_case *c)
{
    return c->layout == ATTN_LAYOUT_BHLD ? "BLHD" : "BHLD";
}

static int has_input(const struct attn_failed_run *run, int64_t n)
{
    return n == ATTN_T_O || has(run, n);
}

static const char *input_name(const struct attn_failed_run *run, int64_t n)
{
    return n == ATTN_T_O ? "the inputs" : name_of(run, n);
}

/* Is there a row whose exp(s) has no number without a shift? */
static int overflows(const struct attn_failed_run *run)
{
    const double limit = run->setup->problem.dtype == ATTN_F64 ? 708 : 87;
    for (int64_t row = 0; row < attn_run_rows(run, ATTN_LSE); row++)
        if (run->truth.tensor[ATTN_LSE].want[row] > limit)
            return 1;
    return 0;
}

/* Is there a row that sees keys, all of whose scores are below this? */
static int has_row_below(const struct attn_failed_run *run, double start)
{
    for (int64_t row = 0; row < attn_run_rows(run, ATTN_LSE); row++)
        if (run->truth.tensor[ATTN_LSE].want[row] < start &&
            run->truth.tensor[ATTN_LSE].want[row] > -(double)INFINITY)
            return 1;
    return 0;
}

/* The LSE that was given for the first row without keys; -inf where none is empty. */
static double empty_lse(const struct attn_failed_run *run)
{
    for (int64_t row = 0; row < attn_run_rows(run, ATTN_LSE) && run->compared[ATTN_LSE]; row++)
        if (run->truth.tensor[ATTN_LSE].want[row] == -(double)INFINITY)
            return run->x[ATTN_T_LSE][row];
    return -(double)INFINITY;
}

/* How many rows a softmax over `over[n]` takes together; 0 where that is too much to try. */
static int64_t others(const struct attn_problem *p, int64_t n)
{
    const int64_t count[OVERS] = {p->n_query, p->heads, p->batch, p->heads};
    double work = (double)(p->batch * p->heads * p->n_query) * (double)p->n_key *
                  (double)(count[n] * (p->d_key + 4));
    return work <= 2e7 ? count[n] : 0;
}

/* May `ranks` ranks have shared the problem? */
static int splits(const struct attn_failed_run *run, int64_t ranks)
{
    const struct attn_problem *p = &run->setup->problem;
    return run->ranks && p->n_query >= ranks && p->n_key >= ranks;
}

/* Offsets of ALiBi's distance that one may take. */
static int64_t alibi_offset(const struct attn_problem *p, int64_t n)
{
    const int64_t offset[] = {0, p->n_key - p->n_query, p->bias.offset + 1, p->bias.offset - 1};
    return offset[n];
}

static int has_band(const struct attn_failed_run *run, enum attn_band_kind kind)
{
    int found = 0;
    for (int n = 0; n < run->parts; n++)
        found |= run->part[n].band.kind == kind;
    return found;
}

/* ---- what a row changes: how a tensor is read ----------------------------------------------- */

static int is_broadcast(const struct attn_tensor *t, int axis)
{
    return t->extent[axis] > 1 && t->stride[axis] == 0;
}

/* Token-major where it is head-major and the reverse. */
static void turn(struct attn_fault_at *at)
{
    const int64_t *n = at->tensor->extent;
    int64_t *stride = at->view->stride, width = n[3], heads = n[1], rows = n[2];
    int token_major = heads > 1 && rows > 1 && stride[2] > stride[1];
    stride[3] = 1;
    stride[0] = heads * rows * width;
    stride[1] = token_major ? rows * width : width;
    stride[2] = token_major ? width : heads * width;
}

/* As if packed; axes that are broadcast stay so. */
static void pack(struct attn_fault_at *at)
{
    int64_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        if (is_broadcast(at->tensor, axis))
            continue;
        at->view->stride[axis] = step;
        step *= at->tensor->extent[axis];
    }
}

static void adjoin(struct attn_fault_at *at)
{
    at->view->stride[3] = is_broadcast(at->tensor, 3) ? 0 : 1;
}

static void close_rows(struct attn_fault_at *at)
{
    if (!is_broadcast(at->tensor, 2))
        at->view->stride[2] = at->tensor->extent[3] * at->view->stride[3];
}

static void round_down(struct attn_fault_at *at, int64_t bytes)
{
    at->view->data = (const void *)((uintptr_t)at->view->data & ~((uintptr_t)bytes - 1));
}

static void strides_of(struct attn_fault_at *at, const struct attn_tensor *other)
{
    memcpy(at->view->stride, other->stride, sizeof at->view->stride);
}

/* The tensors from this slot on that have tokens, heads and features. */
static unsigned wide(const struct attn_failed_run *run, int first)
{
    unsigned slots = 0;
    for (int slot = first; slot < ATTN_SLOTS; slot++)
        if (run->extent[slot][3] > 1 && slot != ATTN_T_BIAS && slot != ATTN_T_DBIAS)
            slots |= 1u << slot;
    return slots;
}

/* Of tensors with features: all (n = 0), the inputs, the outputs. */
static int interleaves(enum attn_slot slot, int64_t n)
{
    const int is_input = slot <= ATTN_T_V || slot == ATTN_T_DO;
    return (is_input || slot == ATTN_T_O || (slot >= ATTN_T_DQ && slot <= ATTN_T_DV)) &&
           n != 1 + is_input;
}

/* One input, or all (n = ATTN_T_O). */
static unsigned input(int64_t n)
{
    return n == ATTN_T_O ? (1u << ATTN_T_O) - 1 : 1u << n;
}

/* ---- what a row changes: which keys, of which rank ------------------------------------------ */

static int sees(const struct attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return attn_mask_allows(p->mask, b, h, i, j);
}

/* How many keys of [lo,hi) a query sees. */
static int64_t visible(const struct attn_problem *p, const struct attn_fault_at *at, int64_t lo,
                       int64_t hi)
{
    return attn_mask_row_count(p->mask, at->b, at->h, at->i, lo, hi < p->n_key ? hi : p->n_key);
}

/* Of the tile of keys that the diagonal cuts, is this one behind the first `shown`? */
static int at_edge(const struct attn_fault_at *at, int tile, int shown)
{
    const int64_t edge = at->i + at->band.offset + at->band.right;
    return edge >= 0 && at->j / tile == edge / tile && at->j % tile >= shown;
}

/* The token at the same place in the part of another rank, or the last one. */
static int64_t moved_to(int64_t ranks, int64_t tokens, int64_t token, int64_t rank)
{
    int64_t own = attn_fault_rank_start(ranks, tokens, attn_fault_rank_of(ranks, tokens, token));
    int64_t to = token - own + attn_fault_rank_start(ranks, tokens, rank);
    return to < tokens ? to : tokens - 1;
}

/* The key that is j-th where what the ranks hold lies one behind the other: two runs each, one from
 * each end. */
static int64_t of_two_runs(int64_t ranks, int64_t n_key, int64_t j)
{
    int64_t each = n_key / ranks, rank = j / each, at = j % each;
    int64_t run = 2 * at < each ? rank : 2 * ranks - 1 - rank;
    return run * (each / 2) + at % (each / 2);
}

/* ---- what a row changes: numbers, and the softmax of a row ---------------------------------- */

/* Of q and k that are scaled before they are multiplied. */
static double stored_times(const struct attn_problem *p, double y, double factor)
{
    return attn_dtype_round(y * factor, p->dtype) / factor;
}

/* Of an input or a result, in its own type; of what is between, in that of the arithmetic. */
static double flushed(const struct attn_problem *p, unsigned of, double y)
{
    int is_stored = (of & (ATTN_OF_INPUTS | ATTN_OF_RESULT)) != 0;
    enum attn_dtype dtype = is_stored || p->dtype == ATTN_F64 ? p->dtype : ATTN_F32;
    return fabs(y) < attn_least_normal(dtype) ? 0 : y;
}

/* To 11 significant bits, or cut to them. */
static double as_tf32(double y, int is_cut)
{
    int e;
    double fraction = ldexp(frexp(y, &e), 11);
    return y == 0 || !isfinite(y) ? y : ldexp(is_cut ? trunc(fraction) : rint(fraction), e - 11);
}

/* Weights are exp(s - m), whatever the maximum is; where they are subnormal, or their sum alone
 * overflows, the numbers hang on rounding.  A sum of 0 gives 0/0; or O = 0; or a row without keys
 * is passed over. */
enum { DIVIDED, ZEROED, SKIPPED };
static const char *const no_sum[] = {"", " (a sum of 0 makes O = 0)",
                                     " (a row without keys is passed over)"};
static void weigh_from(struct attn_evaluation *x, double m, int64_t how, int64_t rounds)
{
    double least = x->p->dtype == ATTN_F64 ? 0x1p-1000 : 0x1p-110, l = 0, largest = 0;
    const int empty = x->m == -(double)INFINITY;
    if ((empty && how == SKIPPED) || m == -(double)INFINITY)
        return;
    for (int64_t j = 0; j < x->p->n_key; j++) {
        double w = attn_narrow(x->p, exp(x->s[j] - m));
        l += w;
        largest = fmax(largest, w);
        x->w[j] = rounds ? attn_dtype_round(w, x->p->dtype) : w;
    }
    x->m = m;
    attn_evaluation_set_sum(x, attn_narrow(x->p, l));
    x->unsure = (x->l > 0 && x->l < least) || (isinf(x->l) && isfinite(largest));
    x->is_hidden_number |= empty && how == DIVIDED;
    x->has_vanished |= !empty && !(x->l > 0 && isfinite(x->l));
    if (x->l == 0 && how == ZEROED)
        attn_evaluation_see_nothing(x);
}

static double hidden_max(struct attn_evaluation *x, const struct attn_fault_at *at)
{
    double m = -(double)INFINITY;
    x->is_hidden_number = 1;
    for (int64_t j = 0; j < x->p->n_key; j++)
        m = fmax(m, attn_evaluate_score(x, at->b, at->h, at->i, j));
    return m;
}

static void weigh_alike(struct attn_evaluation *x)
{
    for (int64_t j = 0; j < x->p->n_key; j++)
        x->w[j] = 1;
    x->norm = (double)x->p->n_key;
}

/* All keys share in the sum; hidden ones are then left out. */
static void mask_late(struct attn_evaluation *x, const struct attn_fault_at *at)
{
    double m = hidden_max(x, at), l = 0;
    for (int64_t j = 0; j < x->p->n_key; j++) {
        double w = exp(attn_evaluate_score(x, at->b, at->h, at->i, j) - m);
        l += w;
        x->w[j] = sees(x->p, at->b, at->h, at->i, j) ? w : 0;
    }
    x->m = m;
    attn_evaluation_set_sum(x, l);
}

/* A row is hidden where the last query does not see the key of its number: it sees nothing, or all
 * keys alike. */
static void lay_along(struct attn_evaluation *x, const struct attn_fault_at *at, int64_t sees_none)
{
    const int is_shown = at->i >= x->p->n_key || sees(x->p, at->b, at->h, x->p->n_query - 1, at->i);
    double m = hidden_max(x, at);
    for (int64_t j = 0; j < x->p->n_key; j++)
        x->s[j] = attn_evaluate_score(x, at->b, at->h, at->i, j);
    attn_evaluation_weigh(x, m);
    if (!is_shown && sees_none)
        attn_evaluation_see_nothing(x);
    else if (!is_shown)
        weigh_alike(x);
}

/* The sum of a weight is that of its pair in other rows (over[n]). */
static void normalise(struct attn_evaluation *x, const struct attn_fault_at *at, int64_t n)
{
    const int64_t count = others(x->p, n);
    double total = 0;
    for (int64_t j = 0; j < x->p->n_key && x->m > -(double)INFINITY; j++) {
        double l = 0, m = n == 3 ? x->m : x->s[j];
        for (int64_t t = 0; t < count && m > -(double)INFINITY; t++) {
            int64_t b = n == 2 ? t : at->b, h = n % 2 ? t : at->h, i = n == 0 ? t : at->i;
            l += sees(x->p, b, h, i, j) ? exp(attn_evaluate_score(x, b, h, i, j) - m) : 0;
        }
        total += l;
        x->w[j] = x->s[j] == -(double)INFINITY ? 0 : n == 3 ? exp(x->s[j] - m) : 1 / l;
    }
    x->norm = n == 3 && total > 0 ? total : 1;
}

/* scale q . k of a row, the mean of all keys. */
static double mean_score(struct attn_evaluation *x, const struct attn_fault_at *at)
{
    double sum = 0;
    hidden_max(x, at);
    for (int64_t j = 0; j < x->p->n_key; j++)
        sum += x->raw[j];
    return sum / (double)x->p->n_key;
}

static double clamped(double y, int64_t n)
{
    const double c = clamp_at[n / 3];
    y = n % 3 != 2 ? fmin(y, c) : y;
    return n % 3 != 1 ? fmax(y, -c) : y;
}

/* Weights of scores without their scale; a softcap would have it inside. */
static void scale_late(struct attn_evaluation *x, double scale)
{
    double m = -(double)INFINITY;
    for (int64_t j = 0; j < x->p->n_key && x->m > -(double)INFINITY; j++) {
        x->s[j] += x->s[j] > -(double)INFINITY ? x->raw[j] / scale - x->raw[j] : 0;
        m = fmax(m, x->s[j]);
    }
    if (x->m == -(double)INFINITY)
        return;
    attn_evaluation_weigh(x, m);
    x->norm = x->l / scale;
}

/* No exponent s - m is below `least`; hidden keys may have it too. */
static void weigh_above(struct attn_evaluation *x, double least, int is_hidden_too)
{
    double l = 0;
    for (int64_t j = 0; j < x->p->n_key && x->m > -(double)INFINITY; j++) {
        if (x->s[j] > -(double)INFINITY || is_hidden_too)
            x->w[j] = exp(fmax(x->s[j] - x->m, least));
        l += x->w[j];
    }
    if (l > 0)
        attn_evaluation_set_sum(x, l);
}

/* Every weight has this much more. */
static void weigh_more(struct attn_evaluation *x, double more, int is_hidden_too)
{
    double l = x->l;
    for (int64_t j = 0; j < x->p->n_key && x->m > -(double)INFINITY; j++) {
        const double added = x->s[j] > -(double)INFINITY || is_hidden_too ? more : 0;
        x->w[j] += added, l += added;
    }
    if (l > 0)
        attn_evaluation_set_sum(x, l);
}

/* Keys from `first` on. */
static void count_twice(struct attn_evaluation *x, int64_t first)
{
    double l = x->l;
    for (int64_t j = first; j < x->p->n_key; j++) {
        l += x->w[j];
        x->w[j] *= 2;
    }
    if (l > 0)
        attn_evaluation_set_sum(x, l);
}

/* Each block of d keys meets as many rows of V as there are in a block of dv, the first ones. */
static void step_values(struct attn_evaluation *x, int64_t d, int64_t dv)
{
    for (int64_t j = 0; j < x->p->n_key; j++) {
        const double w = x->w[j];
        x->w[j] = 0;
        if (j % d < dv)
            x->w[j / d * dv + j % d] = w;
    }
}

/* Keys of score 0, whose V is 0. */
static void pad_keys(struct attn_evaluation *x, int64_t more)
{
    attn_evaluation_weigh(x, fmax(x->m, 0));
    attn_evaluation_set_sum(x, x->l + (double)more * exp(-x->m));
}

/* LSE of the keys alone. */
static void forget_sink(struct attn_evaluation *x)
{
    double l = 0;
    for (int64_t j = 0; j < x->p->n_key; j++)
        l += x->w[j];
    x->lse = x->m + log(l);
}

/* The head whose sink is taken for that of head h. */
enum { OTHER_SINKS = 4 };
static const char *const other_sink[OTHER_SINKS] = {"the kv head", "head 0", "the next head",
                                                    "head h mod G"};
static int64_t sink_head(const struct attn_problem *p, int64_t h, int64_t n)
{
    return n == 0   ? h / attn_group_of(p)
           : n == 1 ? 0
           : n == 2 ? (h + 1) % p->heads
                    : h % p->kv_heads;
}

/* Running sums that are not rescaled: each weight is relative to the maximum of its time. */
enum { STALE_O = 1, STALE_L = 2 };
static int64_t stale_tile(int64_t n) /* 1, 3, 4, 6, 8, ... 384; of 2 each score may be a maximum */
{
    return n == 0 ? 1 : (2 + n % 2) << n / 2;
}
static void make_stale(struct attn_evaluation *x, int64_t tile, int what)
{
    double m = -(double)INFINITY, l = 0;
    for (int64_t j0 = 0; j0 < x->p->n_key; j0 += tile) {
        int64_t j1 = j0 + tile < x->p->n_key ? j0 + tile : x->p->n_key;
        for (int64_t j = j0; j < j1; j++)
            m = x->s[j] > m ? x->s[j] : m;
        for (int64_t j = j0; j < j1; j++) {
            double w = m == -(double)INFINITY ? 0 : exp(x->s[j] - m);
            l += w;
            if (what & STALE_O)
                x->w[j] = w;
        }
    }
    if (what & STALE_L && m > -(double)INFINITY)
        attn_evaluation_set_sum(x, l);
}

/* ---- the rows of faults.def, each two functions that are named by its line ------------------ */

#define ONCE          FROM(0, 0)
#define COUNT(k)      FROM(0, (k)-1)
#define FROM(a, b)    ((struct attn_fault_range){a, b, 0})
#define DOUBLED(a, b) ((struct attn_fault_range){a, b, 1})

/* The names that conditions, words and changes of a row may use; few of them use all. */
#define UNUSED __attribute__((unused)) const
#define FACTS(run, problem, number)                                                   \
    UNUSED struct attn_problem *p = (problem);                                        \
    UNUSED struct attn_case *c = &(run)->setup->given;                                \
    UNUSED int64_t B = p->batch, H = p->heads, G = p->kv_heads, r = attn_group_of(p); \
    UNUSED int64_t Lq = p->n_query, Lk = p->n_key, d = p->d_key, dv = p->d_value;     \
    UNUSED int64_t n = (number);                                                      \
    UNUSED int bwd = (run)->backward, fwd = !bwd, masked = (run)->is_masked;          \
    UNUSED int bias = p->bias.kind != ATTN_BIAS_NONE;                                 \
    UNUSED int alibi = p->bias.kind == ATTN_BIAS_ALIBI;                               \
    UNUSED char *added = alibi ? "ALiBi" : "bias"
#define JOINED(a, b) a##b
#define NAMED(a, b)  JOINED(a, b)

/* The first is 0 when the case cannot show the row. */
#define ATTN_FAULT(kind_of, range_of, when, at_place, change_by, ...)                           \
    static int NAMED(shows_, __LINE__)(const struct attn_failed_run *run,                       \
                                       struct attn_hypothesis *x)                               \
    {                                                                                           \
        FACTS(run, &run->setup->problem, x->model.n);                                           \
        x->range = range_of;                                                                    \
        if (n < x->range.first || !(when))                                                      \
            return 0;                                                                           \
        snprintf(x->words, sizeof x->words, __VA_ARGS__);                                       \
        return 1;                                                                               \
    }                                                                                           \
    static void NAMED(change_, __LINE__)(struct attn_evaluation * x, struct attn_fault_at * at) \
    {                                                                                           \
        UNUSED struct attn_failed_run *run = x->run;                                            \
        FACTS(run, x->p, x->f->n);                                                              \
        UNUSED int empty = x->m == -(double)INFINITY;                                           \
        __attribute__((unused)) struct attn_fault_band *band = &at->band;                       \
        int64_t b = at->b, h = at->h, i = at->i, j = at->j;                                     \
        double y = at->y;                                                                       \
        change_by;                                                                              \
        at->b = b, at->h = h, at->i = i, at->j = j;                                             \
        at->y = y;                                                                              \
    }
#include "tests/harness/diagnosis/faults.def"

static const struct {
    enum attn_fault kind;
    enum attn_place place;
    int (*shows)(const struct attn_failed_run *run, struct attn_hypothesis *x);
    void (*change)(struct attn_evaluation *x, struct attn_fault_at *at);
} row[] = {
#define ATTN_FAULT(kind_of, range_of, when, at_place, ...) \
    {ATTN_FAULT_##kind_of, ATTN_AT_##at_place, NAMED(shows_, __LINE__), NAMED(change_, __LINE__)},
#include "tests/harness/diagnosis/faults.def"
};

/* ---- hypotheses ----------------------------------------------------------------------------- */

void attn_hypothesis_skip(struct attn_hypothesis *x)
{
    x->r++;
    x->model.change = NULL;
}

int attn_hypothesis_next(const struct attn_failed_run *run, struct attn_hypothesis *x)
{
    for (; x->r < (int)(sizeof row / sizeof *row); attn_hypothesis_skip(x)) {
        int64_t *n = &x->model.n;
        if (x->model.change == NULL) {
            x->kind = row[x->r].kind;
            x->model = (struct attn_fault_model){row[x->r].place, row[x->r].change, -1, 0, 0};
            row[x->r].shows(run, x); /* its range */
        }
        do
            *n = *n < 0 ? x->range.first : x->range.doubles ? 2 * *n : *n + 1;
        while (*n <= x->range.last && !row[x->r].shows(run, x));
        if (*n <= x->range.last) {
            char *end = x->words + strcspn(x->words, "\n");
            x->remedy = end + (*end != '\0');
            *end = '\0';
            return 1;
        }
    }
    return 0;
}

enum attn_fault attn_fault_recognise(struct attn_failed_run *run, unsigned but)
{
    struct attn_hypothesis x = {0};
    while (attn_hypothesis_next(run, &x)) {
        if (but >> x.kind & 1)
            attn_hypothesis_skip(&x);
        else if (attn_fault_fits(run, &x.model)) {
            int is_sentence = strncmp(x.words, "if ", 3) == 0;
            snprintf(run->text, run->size, "%s%s%s", is_sentence ? "" : "fits ",
                     x.words + (is_sentence ? 3 : 0), run->backward ? " (in the backward)" : "");
            snprintf(run->remedy, sizeof run->remedy, "%s",
                     run->backward && *x.remedy != '\0'
                         ? "the forward is right: let the backward do the same"
                         : x.remedy);
            return x.kind;
        }
    }
    return ATTN_FAULT_NONE;
}
