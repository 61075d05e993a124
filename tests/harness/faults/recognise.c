/* See faults.h: the rows of faults.def made hypotheses for one failed run, and held against it one
 * by one. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/setup_mask.h"
#include "tests/harness/faults/faults.h"

static const double log2_e = 1.44269504088896340736, ln_2 = 0.69314718055994530942;
static const char *const of[] = {"", " for K", " for V"};
static const char *const causal[] = {"causal(tl)", "causal(br)"};

enum { LOW_SCORES = 12, STARTS = 8, GRADIENT_FACTORS = 8, PARTS = 1000 };
static const double low_score[LOW_SCORES] = {-1e9, -1e4,   -(double)FLT_MAX, -1e30, -1e10, -1e6,
                                             -1e5, -65504, -32768,           -5e4,  -1e3,  -100};
static const double start[STARTS] = {0, -100, -1e3, -1e4, -32768, -5e4, -65504, -1e5};
static const char *const gradient_names[] = {"dS", "dq", "dk", "dv"};
static const char *const factor_words[GRADIENT_FACTORS] = {
    "lacks the scale", "has the scale twice",  "has the wrong sign", "is doubled",
    "is halved",       "has a factor log2(e)", "has a factor ln 2",  "is 0"};

/* ---- tensors -------------------------------------------------------------------------------- */

static int has(const struct attn_failed_run *run, int64_t slot)
{
    return run->setup->tensor[slot].data != NULL;
}

static const char *name_of(const struct attn_failed_run *run, int64_t slot)
{
    return run->setup->tensor[slot].name;
}

static int is_bias(int64_t slot)
{
    return slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS;
}

static int turns(const struct attn_case *c)
{
    return (c->layout == ATTN_LAYOUT_BHLD || c->layout == ATTN_LAYOUT_BLHD) && c->only == 0;
}

static const char *other_layout(const struct attn_case *c)
{
    return c->layout == ATTN_LAYOUT_BHLD ? "BLHD" : "BHLD";
}

/* The tensors of these slots that have tokens, heads and features. */
static unsigned wide(const struct attn_failed_run *run, int first, int end)
{
    unsigned slots = 0;
    for (int slot = first; slot < end; slot++)
        if (has(run, slot) && run->setup->tensor[slot].extent[3] > 1 && !is_bias(slot))
            slots |= 1u << slot;
    return slots;
}

/* All inputs (n = 0), or one. */
static unsigned input(int64_t n)
{
    return n == 0 ? (1u << ATTN_T_O) - 1 : 1u << (n - 1);
}

static int has_input(const struct attn_failed_run *run, int64_t n)
{
    return n == 0 || has(run, n - 1);
}

static const char *input_name(const struct attn_failed_run *run, int64_t n)
{
    return n == 0 ? "the inputs" : name_of(run, n - 1);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static int64_t offset(const struct attn_problem *p, int64_t n)
{
    return n == 0   ? 0
           : n == 1 ? p->n_key - p->n_query
           : n == 2 ? p->bias.offset + 1
                    : p->bias.offset - 1;
}

/* Of the n-th hypothesis about a factor: dQ and dK together, then one gradient after the other. */
static unsigned gradients(const struct attn_failed_run *run, int64_t n)
{
    int64_t which = n / GRADIENT_FACTORS;
    if (which > 0)
        return 1u << (ATTN_T_DQ + which - 1);
    return run->failing[ATTN_DQ] && run->failing[ATTN_DK] ? 1u << ATTN_T_DQ | 1u << ATTN_T_DK : 0;
}

static double gradient_factor(const struct attn_problem *p, int64_t n)
{
    const double factor[GRADIENT_FACTORS] = {1 / p->scale, p->scale, -1, 2, 0.5, log2_e, ln_2, 0};
    return factor[n % GRADIENT_FACTORS];
}

static unsigned failing_kv(const struct attn_failed_run *run)
{
    return (unsigned)run->failing[ATTN_DK] << ATTN_T_DK | (unsigned)run->failing[ATTN_DV]
                                                              << ATTN_T_DV;
}

static const char *names_kv(const struct attn_failed_run *run)
{
    return !run->failing[ATTN_DV] ? "dK" : !run->failing[ATTN_DK] ? "dV" : "dK, dV";
}

/* ---- keys ----------------------------------------------------------------------------------- */

struct part {
    int64_t lo, hi;
    char words[48];
};

/* The n-th part of the keys that somebody may lose; 0: there are fewer. */
static int part_of(const struct attn_problem *p, int64_t n, struct part *x)
{
#define PART(from, to, ...) \
    (x->lo = (from), x->hi = (to), snprintf(x->words, sizeof x->words, __VA_ARGS__) > 0)
    int64_t Lk = p->n_key;
    if (Lk > 1 && n-- == 0)
        return PART(0, Lk, "all");
    if (Lk > 0 && n-- == 0)
        return PART(Lk - 1, Lk, "the last");
    if (Lk > 0 && n-- == 0)
        return PART(0, 1, "the first");
    for (int64_t tile = 4; tile <= 256; tile *= 2)
        if (Lk % tile != 0 && Lk >= tile && n-- == 0)
            return PART(Lk - Lk % tile, Lk, "the tail of a tile of %lld", (long long)tile);
    for (int64_t most = 128; most < Lk; most *= 2)
        if (n-- == 0)
            return PART(most, Lk, "all beyond a largest block");
    for (int64_t ranks = 2; ranks <= 8 && ranks <= Lk; ranks++)
        for (int64_t rank = 0; rank < ranks; rank++)
            if (Lk % ranks == 0 && n-- == 0)
                return PART(rank * Lk / ranks, (rank + 1) * Lk / ranks, "shard %lld of %lld",
                            (long long)rank, (long long)ranks);
    for (int64_t tile = 16; tile <= 128; tile *= 2)
        for (int64_t j = 0; j + tile < Lk; j += tile)
            if (n-- == 0)
                return PART(j, j + tile, "a tile of %lld", (long long)tile);
    return 0;
#undef PART
}

/* May so many ranks have shared the problem? */
static int splits(const struct attn_failed_run *run, int64_t ranks)
{
    const struct attn_problem *p = &run->setup->problem;
    return run->ranks && p->n_query >= ranks && p->n_key >= ranks;
}

/* Keys before the first query's own position. */
static int64_t past(const struct attn_problem *p)
{
    const char *at = p->mask != NULL ? strstr(attn_mask_text(p->mask), "causal(") : NULL;
    return at == NULL                      ? 0
           : strncmp(at + 7, "br", 2) == 0 ? p->n_key - p->n_query
                                           : strtoll(at + 7, NULL, 10);
}

/* ---- masks: the text of another one, and what it is called ---------------------------------- */

enum { MASK_TEXT = 2 * ATTN_CASE_TEXT };
struct text {
    char mask[MASK_TEXT], words[300];
};

/* What is changed in the causal and window calls of a mask's text. */
struct change {
    const char *align;   /* "tl", "br", or NULL: as it is */
    int64_t left, right; /* the ends move outwards by so much */
    int swap, open_left, open_right, drop_windows, drop_causal;
    int left_end; /* of a window: 0 as it is, 1 beside i alone, 2 sign, 3 even of -1 */
    int keep_windows, keep_causal; /* such calls stay as they are */
};

/* A band lo <= j - i <= hi as a call; INT64_MIN and INT64_MAX are no end. */
static int put_band(int64_t lo, int64_t hi, char *to, size_t size)
{
    if (lo == INT64_MIN && hi == INT64_MAX)
        return snprintf(to, size, "none");
    if (lo == INT64_MIN)
        return snprintf(to, size, "causal(%+lld)", (long long)hi);
    if (hi == INT64_MAX)
        return snprintf(to, size, "window(0,-1,%+lld)", (long long)lo);
    if (hi < lo)
        return snprintf(to, size, "prefix(0)");
    return snprintf(to, size, "window(%lld,0,%+lld)", (long long)(hi - lo), (long long)hi);
}

static int change_call(const char **at, const struct attn_problem *p, const struct change *c,
                       char *to, size_t size)
{
    long long left = -1, right = 0;
    int window = strncmp(*at, "window(", 7) == 0, n = 0;
    char align[32];
    if (window && sscanf(*at, "window(%lld,%lld,%31[^)])%n", &left, &right, align, &n) != 3)
        return 0;
    if (!window && sscanf(*at, "causal(%31[^)])%n", align, &n) != 1)
        return 0;
    if (n == 0 || (window ? c->keep_windows : c->keep_causal))
        return 0;
    *at += n;
    if (window ? c->drop_windows : c->drop_causal)
        return snprintf(to, size, "none");
    const char *word = c->align != NULL ? c->align : align;
    int64_t offset = strcmp(word, "tl") == 0   ? 0
                     : strcmp(word, "br") == 0 ? p->n_key - p->n_query
                                               : strtoll(word, NULL, 10);
    if (c->swap) {
        long long other = left;
        left = right;
        right = other;
    }
    if (c->left_end > 0 && window && (left >= 0 || c->left_end == 3))
        return put_band(c->left_end == 1   ? -left
                        : c->left_end == 2 ? offset + left
                                           : offset - left,
                        right < 0 ? INT64_MAX : offset + right, to, size);
    return put_band(left < 0 || c->open_left ? INT64_MIN : offset - left - c->left,
                    right < 0 || c->open_right ? INT64_MAX : offset + right + c->right, to, size);
}

/* The text with every such call changed; returns how many there were. */
static int changed(const struct attn_problem *p, const struct change *c, char to[MASK_TEXT])
{
    const char *text = p->mask != NULL ? attn_mask_text(p->mask) : "";
    int calls = 0;
    size_t used = 0;
    while (*text != '\0' && used + 80 < MASK_TEXT) {
        int n = strncmp(text, "causal(", 7) == 0 || strncmp(text, "window(", 7) == 0
                    ? change_call(&text, p, c, to + used, MASK_TEXT - used)
                    : 0;
        calls += n > 0;
        if (n == 0)
            to[used++] = *text++;
        used += (size_t)n;
    }
    to[used] = '\0';
    return calls;
}

/* Of each top-level & and |: its left side alone, its right side, and one for the other. */
static int side(const struct attn_mask *mask, int64_t n, struct text *x)
{
    const char *whole = mask != NULL ? attn_mask_text(mask) : "";
    int depth = 0, at = 0;
    for (;; at++) {
        depth += (whole[at] == '(') - (whole[at] == ')');
        if (whole[at] == '\0' || at >= MASK_TEXT)
            return 0;
        if (depth == 0 && (whole[at] == '&' || whole[at] == '|') && (n -= 3) < 0)
            break;
    }
    snprintf(x->mask, sizeof x->mask, "%s", n == -2 ? whole + at + 1 : whole);
    char *sign = &x->mask[at], other = whole[at] == '&' ? '|' : '&';
    if (n == -2) {
        snprintf(x->words, sizeof x->words, "%.*s ignored", at < 200 ? at : 200, whole);
    } else if (n == -3) {
        *sign = '\0';
        snprintf(x->words, sizeof x->words, "%.200s ignored", whole + at + 1);
    } else {
        *sign = other;
        snprintf(x->words, sizeof x->words, "%c in place of %c between masks", other, whole[at]);
    }
    return 1;
}

static int cut(const struct attn_mask *mask, const char *by, struct text *x)
{
    if (mask == NULL)
        return 0;
    snprintf(x->mask, sizeof x->mask, "(%s)&%s", attn_mask_text(mask), by);
    snprintf(x->words, sizeof x->words, "the mask cut by %s, which was not asked for", by);
    return 1;
}

/* ---- the rows of faults.def ----------------------------------------------------------------- */

/* A row: its kind, and the values of n: the first and the last, and whether they double. */
#define ONCE          0, 0, 0
#define COUNT(k)      0, (k)-1, 0
#define FROM(a, b)    a, b, 0
#define DOUBLED(a, b) a, b, 1
static const struct {
    enum attn_fault kind;
    int64_t first, last;
    int doubles;
} rows[] = {
#define ATTN_FAULT(step, kind, range, ...) {ATTN_FAULT_##kind, range},
#define ATTN_ALSO(step, kind, range, ...)  {ATTN_FAULT_##kind, range},
#define ATTN_MASK(...)                     {ATTN_FAULT_KEYS, ONCE},
#define ATTN_TEXT(range, ...)              {ATTN_FAULT_KEYS, range},
#include "tests/harness/faults/faults.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

/* A row with its n: the model and its words, and where it needs another mask, that one's text. */
struct hypothesis {
    struct attn_fault_model model;
    char words[300], mask[MASK_TEXT];
};

#define NOTHING
#define N(number)               .n = (number)
#define VALUE(number)           .value = (number)
#define KEYS(from, to)          .lo = (from), .hi = (to)
#define OF(which)               .of = (enum attn_fault_of)(which)
#define SLOTS(bits)             .slots = (bits)
#define STRIDES(to, from)       .slots = 1u << (to), .n = (from)
#define ROUNDED_TO(bytes)       .slots = input(0), .n = (bytes)
#define GRADIENT(bits, number)  .slots = (bits), .value = (number)
#define STALE(ranks, which)     .n = (ranks), .of = (which)
#define BLOCK(ranks, ring_step) .n = (ranks), .lo = (ring_step)

/* 0 when the case cannot show it. */
static int set_up(const struct attn_failed_run *run, int row, int64_t n, struct hypothesis *x)
{
    const struct attn_problem *p = &run->setup->problem;
    const struct attn_case *c = &run->setup->given;
    int64_t B = p->batch, H = p->heads, G = p->kv_heads, r = G > 0 ? H / G : 1;
    int64_t Lq = p->n_query, Lk = p->n_key, d = p->d_key, dv = p->d_value;
    int bwd = run->backward, fwd = !bwd, masked = p->mask != NULL, at = 0;
    int bias = p->bias.kind != ATTN_BIAS_NONE, alibi = p->bias.kind == ATTN_BIAS_ALIBI;
    const char *added = alibi ? "ALiBi" : "bias";
    struct part part;
    struct text text;
    x->mask[0] = '\0';
#define ATTN_FAULT(which, kind, range, when, with, ...)                        \
    if (row == at++) {                                                         \
        if (!(when))                                                           \
            return 0;                                                          \
        x->model = (struct attn_fault_model){.step = ATTN_STEP_##which, with}; \
        snprintf(x->words, sizeof x->words, __VA_ARGS__);                      \
        return 1;                                                              \
    }
#define ATTN_ALSO ATTN_FAULT
#define ATTN_MASK(text, ...)                                                                      \
    ATTN_FAULT(MASK, KEYS, ONCE, changed(p, &(struct change){__VA_ARGS__}, x->mask) > 0, NOTHING, \
               text)
#define ATTN_TEXT(range, when, other, ...)                                                     \
    ATTN_FAULT(MASK, KEYS, ONCE, (when) && snprintf(x->mask, sizeof x->mask, "%s", other) > 0, \
               NOTHING, __VA_ARGS__)
#include "tests/harness/faults/faults.def"
    return 0;
}

static int fits(const struct attn_failed_run *run, struct hypothesis *x)
{
    const struct attn_case *c = &run->setup->given;
    struct attn_mask_shape shape = {c->batch, c->heads, c->n_query, c->n_key};
    struct attn_made_tensor *made = NULL;
    struct attn_mask_maker maker = {c, &made};
    struct attn_mask_source source = {attn_made_tensor_find, &maker};
    struct attn_mask *mask = NULL;
    if (x->mask[0] == '\0')
        return attn_fault_fits(run, &x->model);
    int found = attn_mask_parse(x->mask, &shape, &source, &mask, NULL) == ATTN_OK;
    x->model.mask = mask;
    found = found && attn_fault_fits(run, &x->model);
    attn_mask_free(mask);
    attn_made_tensor_free(made);
    return found;
}

enum attn_fault attn_fault_recognise(struct attn_failed_run *run, unsigned but)
{
    struct hypothesis x;
    for (int row = 0; row < ROWS; row++)
        for (int64_t n = rows[row].first; n <= rows[row].last && !(but >> rows[row].kind & 1);
             n = rows[row].doubles ? 2 * n : n + 1)
            if (set_up(run, row, n, &x) && fits(run, &x)) {
                int is_sentence = strncmp(x.words, "if ", 3) == 0;
                snprintf(run->text, run->size, "%s%s%s", is_sentence ? "" : "fits ",
                         x.words + (is_sentence ? 3 : 0),
                         run->backward ? " (in the backward)" : "");
                return rows[row].kind;
            }
    return ATTN_FAULT_NONE;
}
