/* See faults.h: the rows of faults.def made hypotheses for one failed run, and held against it one
 * by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/setup_mask.h"
#include "tests/harness/faults/faults.h"

/* ---- helpers of the rows -------------------------------------------------------------------- */

static const char *const for_kv[] = {"", " for K", " for V"};
static const char *const flushed_numbers[] = {"results", "inputs", "all that is computed"};
static const char *const p_or_ds[] = {"P and dS", "dS", "P"};
static const char *const causal[] = {"causal(tl)", "causal(br)"};

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
    return n == 0 || has(run, n - 1);
}

static const char *input_name(const struct attn_failed_run *run, int64_t n)
{
    return n == 0 ? "the inputs" : name_of(run, n - 1);
}

/* May so many ranks have shared the problem? */
static int splits(const struct attn_failed_run *run, int64_t ranks)
{
    const struct attn_problem *p = &run->setup->problem;
    return run->ranks && p->n_query >= ranks && p->n_key >= ranks;
}

/* ---- the mask, taken apart ------------------------------------------------------------------- */

static int has_band(const struct attn_failed_run *run, enum attn_band_kind kind)
{
    int found = 0;
    for (int n = 0; n < run->parts; n++)
        found |= run->part[n].band.kind == kind;
    return found;
}

/* The band of causal(A) and window(l,r,A). */
static struct attn_fault_band band_of(const char *text, const struct attn_problem *p)
{
    long long left = -1, right = 0;
    char align[32];
    int n = 0;
    struct attn_fault_band band = {.kind = ATTN_BAND_WINDOW};
    sscanf(text, "window(%lld,%lld,%31[^)])%n", &left, &right, align, &n);
    if (n == 0) {
        band.kind = ATTN_BAND_CAUSAL;
        sscanf(text, "causal(%31[^)])%n", align, &n);
    }
    if (n == 0 || text[n] != '\0')
        return (struct attn_fault_band){.kind = ATTN_BAND_NONE};
    band.offset = strcmp(align, "br") == 0 ? p->n_key - p->n_query : strtoll(align, NULL, 10);
    band.left = left < 0 ? ATTN_NO_END : left;
    band.right = right < 0 ? ATTN_NO_END : right;
    return band;
}

/* The length of the text up to the next & or | outside of parentheses. */
static size_t part_length(const char *text)
{
    int depth = 0;
    size_t n = 0;
    while (text[n] != '\0' && (depth > 0 || strchr("&|", text[n]) == NULL)) {
        depth += (text[n] == '(') - (text[n] == ')');
        n++;
    }
    return n;
}

void attn_run_open_parts(struct attn_failed_run *run)
{
    const struct attn_problem *p = &run->setup->problem;
    const struct attn_case *c = &run->setup->given;
    const struct attn_mask_shape shape = {c->batch, c->heads, c->n_query, c->n_key};
    struct attn_mask_maker maker = {c, &run->made};
    const struct attn_mask_source source = {attn_made_tensor_find, &maker};
    const char *const whole = p->mask != NULL ? attn_mask_text(p->mask) : "", *text = whole;
    int ok = 1, is_and = 0;
    while (*text != '\0' && ok && run->parts < ATTN_PARTS) {
        struct attn_mask_part *part = &run->part[run->parts++];
        size_t n = part_length(text);
        snprintf(part->text, sizeof part->text, "%.*s", (int)n, text);
        part->is_or = text[n] == '|';
        part->is_and = is_and || text[n] == '&' || n == strlen(whole);
        part->band = band_of(part->text, p);
        is_and = text[n] == '&';
        ok = attn_mask_parse(part->text, &shape, &source, &part->mask, NULL) == ATTN_OK;
        text += n + (text[n] != '\0');
    }
    if (!ok || *text != '\0')
        attn_run_close_parts(run);
}

void attn_run_close_parts(struct attn_failed_run *run)
{
    while (run->parts > 0)
        attn_mask_free(run->part[--run->parts].mask);
    attn_made_tensor_free(run->made);
    run->made = NULL;
}

/* ---- the rows of faults.def ----------------------------------------------------------------- */

#define ONCE          FROM(0, 0)
#define COUNT(k)      FROM(0, (k)-1)
#define FROM(a, b)    ((struct attn_fault_range){a, b, 0})
#define DOUBLED(a, b) ((struct attn_fault_range){a, b, 1})

/* A row is known by its line. */
static const int rows[] = {
#define ATTN_FAULT(...) __LINE__,
#include "tests/harness/faults/faults.def"
};

/* 0 when the case cannot show it. */
static int set_up(const struct attn_failed_run *run, struct attn_hypothesis *x)
{
    const struct attn_problem *p = &run->setup->problem;
    const struct attn_case *c = &run->setup->given;
    const int64_t B = p->batch, H = p->heads, G = p->kv_heads, r = G > 0 ? H / G : 1;
    const int64_t Lq = p->n_query, Lk = p->n_key, d = p->d_key, dv = p->d_value, n = x->model.n;
    const int bwd = run->backward, fwd = !bwd, masked = p->mask != NULL;
    const int bias = p->bias.kind != ATTN_BIAS_NONE, alibi = p->bias.kind == ATTN_BIAS_ALIBI;
    const char *added = alibi ? "ALiBi" : "bias";
    switch (x->model.row) {
#define ATTN_FAULT(kind_of, range_of, when, at, change, ...) \
    case __LINE__:                                           \
        x->kind = ATTN_FAULT_##kind_of;                      \
        x->range = range_of;                                 \
        x->model.place = ATTN_AT_##at;                       \
        if (n < x->range.first || !(when))                   \
            return 0;                                        \
        snprintf(x->words, sizeof x->words, __VA_ARGS__);    \
        return 1;
#include "tests/harness/faults/faults.def"
    }
    return 0;
}

void attn_hypothesis_skip(struct attn_hypothesis *x)
{
    x->r++;
    x->model.row = 0;
}

int attn_hypothesis_next(const struct attn_failed_run *run, struct attn_hypothesis *x)
{
    for (; x->r < (int)(sizeof rows / sizeof *rows); attn_hypothesis_skip(x)) {
        int64_t *n = &x->model.n;
        if (x->model.row == 0) {
            x->model.row = rows[x->r], *n = -1;
            set_up(run, x); /* its range */
        }
        do
            *n = *n < 0 ? x->range.first : x->range.doubles ? 2 * *n : *n + 1;
        while (*n <= x->range.last && !set_up(run, x));
        if (*n <= x->range.last)
            return 1;
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
            return x.kind;
        }
    }
    return ATTN_FAULT_NONE;
}
