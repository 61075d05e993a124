/* See faults.h: where the failing elements are, in words, when no model fits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/faults.h"

/* Failing elements of one output: how many, in which range of each axis, and of what kind. */
struct pattern {
    int64_t n, bad, nan, inf, zero, empty_rows;
    int64_t low[4], high[4];
    int64_t beyond; /* in rows whose scores exp cannot take without a shift */
    int64_t late;   /* the fewest hidden keys that a failing row begins with */
    int64_t early;  /* the most that a row begins with that is right; -1: of one */
};

/* Rows may fail because the tiles that they begin with are hidden. */
static void note_late(const struct attn_problem *p, const int64_t at[4], int is_right,
                      struct pattern *x)
{
    struct attn_run run = {0, 0};
    if (p->mask != NULL && !attn_mask_next(p->mask, at[0], at[1], at[2], &run))
        run.lo = p->n_key;
    int64_t lo = run.lo;
    if (is_right)
        x->early = lo > x->early && lo < p->n_key ? lo : x->early;
    else
        x->late = lo < x->late ? lo : x->late;
}

/* Do all rows fail that begin with a hidden tile, and no others?  A lone row says nothing. */
static int begin_late(const struct pattern *x)
{
    for (int64_t tile = 16; tile <= 128; tile *= 2)
        if (x->late != INT64_MAX && x->late >= tile && x->early >= 0 && x->early < tile)
            return 1;
    return 0;
}

static void look(const struct attn_failed_run *run, enum attn_output o, struct pattern *x)
{
    const struct attn_problem *p = &run->setup->problem;
    const struct attn_truth_tensor *t = &run->truth.tensor[o], *lse = &run->truth.tensor[ATTN_LSE];
    int64_t width = t->extent[3], of_queries = o == ATTN_O || o == ATTN_LSE || o == ATTN_DQ;
    double limit = p->dtype == ATTN_F32 ? 87 : 708; /* of exp */
    *x = (struct pattern){.n = attn_run_rows(run, o) * width,
                          .low = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
                          .late = INT64_MAX,
                          .early = p->n_query > 1 ? 0 : -1,
                          .high = {-1, -1, -1, -1}};
    for (int64_t n = 0; n < x->n; n++) {
        int64_t row = n / width,
                at[4] = {row / t->extent[2] / t->extent[1], row / t->extent[2] % t->extent[1],
                         row % t->extent[2], n % width};
        double got = run->x[ATTN_T_O + o][n];
        if (of_queries && at[3] == 0)
            note_late(p, at, attn_run_row_is_right(run, o, row), x);
        if (attn_run_element_is_right(run, o, n))
            continue;
        x->bad++;
        x->nan += isnan(got) != 0;
        x->inf += isinf(got) != 0;
        x->zero += got == 0;
        x->empty_rows += of_queries && lse->want[row] == -(double)INFINITY;
        x->beyond += of_queries && isfinite(lse->want[row]) && fabs(lse->want[row]) > limit;
        for (int a = 0; a < 4; a++) {
            x->low[a] = at[a] < x->low[a] ? at[a] : x->low[a];
            x->high[a] = at[a] > x->high[a] ? at[a] : x->high[a];
        }
    }
}

int64_t attn_tail_of(int64_t low, int64_t high, int64_t n)
{
    for (int64_t tile = 128; tile >= 8; tile /= 2)
        if (n % tile != 0 && low > 0 && low == n - n % tile && high >= n - 1 - (n % tile) / 4)
            return tile;
    return 0;
}

/* Says what a range is: the tail of a tile, if all features of it fail, or the shard of one
 * rank. */
static void put_cause(int whole, int ranked, int64_t low, int64_t high, int64_t n, char *text,
                      size_t size)
{
    int64_t tile = whole ? attn_tail_of(low, high, n) : 0;
    if (tile > 0)
        attn_append(text, size, " (the tail of a tile of %lld)", (long long)tile);
    for (int64_t ranks = 2; ranks <= 8 && ranked && tile == 0; ranks++)
        for (int64_t r = 0; r < ranks && n % ranks == 0; r++)
            if (low == r * n / ranks && high == (r + 1) * n / ranks - 1) {
                attn_append(text, size, " (shard %lld of %lld)", (long long)r, (long long)ranks);
                return;
            }
}

/* "head 1", "rows 64 to 69": the axes along which failure is confined. */
static void put_range(const int64_t n[4], int is_ranked, const struct pattern *x,
                      enum attn_output o, char *text, size_t size)
{
    const char *const axis[4] = {"batch", "head", o == ATTN_DK || o == ATTN_DV ? "key" : "query",
                                 "feature"};
    int whole = x->low[3] == 0 && x->high[3] == n[3] - 1;
    text[0] = '\0';
    for (int a = 0; a < 4; a++) {
        long long low = x->low[a], high = x->high[a];
        if (low == 0 && high == n[a] - 1)
            continue;
        if (low == high)
            attn_append(text, size, ", %s %lld only", axis[a], low);
        else
            attn_append(text, size, ", %s %lld to %lld only", axis[a], low, high);
        if (a == 3 && low > 0 && low == n[a] - 1)
            attn_append(text, size, " (the last)");
        if (a == 1 || a == 2)
            put_cause(whole, is_ranked, low, high, n[a], text, size);
    }
}

/* Says what is special about the case, where the output is NaN. */
static const char *special(const struct attn_failed_run *run, const struct pattern *x)
{
    const int is_empty = x->empty_rows == x->bad;
    if (x->nan > 0 && run->setup->given.poison == ATTN_POISON_NAN && run->reads_hidden > 0)
        return ": K and V rows that no query sees are NaN here, and were read";
    if (x->nan > 0 && run->setup->given.poison == ATTN_POISON_NAN && is_empty)
        return ": 0/0, or K and V rows that no query sees, which are NaN here";
    if (x->nan == x->bad && is_empty)
        return ": 0/0, or exp(-inf - -inf)";
    if (x->nan == x->bad && run->setup->given.bias == ATTN_CASE_BIAS_INF)
        return ": the bias is -inf in places, and something is multiplied by it";
    return "";
}

/* One output in words, and the fault where they say more than where. */
static struct attn_diagnosis in_words(const struct attn_failed_run *run, enum attn_output o,
                                      const struct pattern *x, const char *range)
{
    struct attn_diagnosis d = {.fault = ATTN_FAULT_NONE};
    const enum attn_fill fill = run->setup->given.fill; /* scores are so by design in some */
    int is_beyond = x->beyond == x->bad && x->nan + x->inf + x->zero == x->bad &&
                    fill != ATTN_FILL_SELECT && fill != ATTN_FILL_SUBSETS;
    int is_empty = x->empty_rows == x->bad;
    const char *kind = x->nan == x->bad            ? "NaN"
                       : x->nan + x->inf == x->bad ? "not finite"
                       : x->zero == x->bad         ? "0"
                       : x->nan > 0                ? "wrong or NaN"
                                                   : "wrong";
    const char *where = is_empty        ? " in rows that see no key"
                        : begin_late(x) ? " in rows with an empty leading tile"
                        : is_beyond     ? " in rows whose scores are beyond the range of exp"
                                        : "";
    const char *why = special(run, x);
    d.fault = is_empty                              ? ATTN_FAULT_EMPTY
              : strstr(range, "(the last)") != NULL ? ATTN_FAULT_LAYOUT
              : strstr(where, "exp") != NULL        ? ATTN_FAULT_SOFTMAX
              : where[0] != '\0' || strchr(range, '(') != NULL || why[0] != '\0' ? ATTN_FAULT_KEYS
                                                                                 : ATTN_FAULT_NONE;
    attn_append(d.text, sizeof d.text, "%s%lld of %lld elements of %s are %s%s%s%s",
                d.fault != ATTN_FAULT_NONE ? "" : "not recognised: ", (long long)x->bad,
                (long long)x->n, attn_output_name(o), kind, where, range, why);
    return d;
}

void attn_describe(const struct attn_failed_run *run, struct attn_diagnosis *d)
{
    const int is_known = d->fault != ATTN_FAULT_NONE;
    for (int at = 0; at < ATTN_OUTPUTS; at++) {
        const enum attn_output o = (enum attn_output)at;
        struct pattern x;
        char range[160];
        if (!run->failing[o] || run->truth.tensor[o].want == NULL)
            continue;
        look(run, o, &x);
        if (x.bad == 0)
            continue;
        put_range(run->truth.tensor[o].extent, run->ranks > 1, &x, o, range, sizeof range);
        if (is_known && range[0] != '\0')
            attn_append(d->where, sizeof d->where, "%s%s:%s", d->where[0] != '\0' ? "; " : "",
                        attn_output_name(o), range + 1);
        if (is_known || d->fault != ATTN_FAULT_NONE)
            continue;
        const struct attn_diagnosis one = in_words(run, o, &x, range);
        if (one.fault != ATTN_FAULT_NONE || d->text[0] == '\0')
            *d = one;
    }
}

void attn_describe_large(const struct attn_case *c, const struct attn_result *r,
                         struct attn_diagnosis *d)
{
    for (int at = 0; at < ATTN_DBIAS && d->text[0] == '\0'; at++) {
        const struct attn_agreement *a = &r->output[at];
        const int of_keys = at >= ATTN_DK;
        const int64_t n[4] = {c->batch, of_keys ? c->kv_heads : c->heads,
                              of_keys ? c->n_key : c->n_query,
                              at == ATTN_LSE                   ? 1
                              : at == ATTN_DQ || at == ATTN_DK ? c->d_key
                                                               : c->d_value};
        struct pattern x = {.n = a->n};
        char range[160];
        memcpy(x.low, a->low, sizeof x.low), memcpy(x.high, a->high, sizeof x.high);
        if (a->n_bad == 0)
            continue;
        put_range(n, 0, &x, (enum attn_output)at, range, sizeof range);
        snprintf(d->text, sizeof d->text, "too large for fault models: %s fails%s",
                 attn_output_name((enum attn_output)at),
                 range[0] != '\0' ? range : " along all axes");
    }
}
