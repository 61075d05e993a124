/* Suspects among masks: the mask's own text with one thing changed, and the mask asked in a wrong
 * way. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/setup_mask.h"
#include "tests/harness/faults/diagnose.h"

static int try_text(struct attn_hypotheses *x, const char *mask_text, const char *words)
{
    const struct attn_case *c = &x->setup->given;
    struct attn_mask_shape shape = {c->batch, c->heads, c->n_query, c->n_key};
    struct attn_made_tensor *made = NULL;
    struct attn_mask_maker maker = {c, &made};
    struct attn_mask_source source = {attn_made_tensor_find, &maker};
    struct attn_mask *mask = NULL;
    struct attn_fault_model t;
    int fits = 0;
    if (attn_mask_parse(mask_text, &shape, &source, &mask, NULL) == ATTN_OK) {
        attn_fault_none(x->setup, &t);
        t.mask = mask;
        fits = attn_hypothesis(x, &t, "fits %s", words != NULL ? words : mask_text);
    }
    attn_mask_free(mask);
    attn_made_tensor_free(made);
    return fits;
}

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

static int change_call(const char **at, const struct attn_mask_shape *shape, const struct change *c,
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
                     : strcmp(word, "br") == 0 ? shape->n_key - shape->n_query
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

/* Copy the text with every such call changed; returns how many there were. */
static int change_text(const char *text, const struct attn_mask_shape *shape,
                       const struct change *c, char *to, size_t size)
{
    int calls = 0;
    size_t used = 0;
    while (*text != '\0' && used + 80 < size) {
        int n = strncmp(text, "causal(", 7) == 0 || strncmp(text, "window(", 7) == 0
                    ? change_call(&text, shape, c, to + used, size - used)
                    : 0;
        calls += n > 0;
        if (n == 0)
            to[used++] = *text++;
        used += (size_t)n;
    }
    to[used] = '\0';
    return calls;
}

static int try_bands(struct attn_hypotheses *x)
{
    static const struct {
        struct change change;
        const char *words;
    } list[] = {
        {{.align = "tl"}, "causal(tl): query 0 sits at key 0"},
        {{.align = "br"}, "causal(br): the last query sits at the last key"},
        {{.right = 1, .keep_windows = 1}, "a diagonal one key too far to the right"},
        {{.right = -1, .keep_windows = 1},
         "a diagonal one key too far to the left (the query's own key is hidden)"},
        {{.left = -1, .keep_causal = 1}, "a window that counts the query's own key on its left"},
        {{.left = -1, .right = -1, .keep_causal = 1},
         "a window that counts the query's own key on both sides"},
        {{.right = -1, .keep_causal = 1}, "a window one key short on the right"},
        {{.left = 1, .right = 1, .keep_causal = 1}, "a window one key too long on both sides"},
        {{.left = 1, .keep_causal = 1}, "a window one key too long on the left"},
        {{.right = 1, .keep_causal = 1}, "a window one key too long on the right"},
        {{.align = "tl", .keep_causal = 1}, "a window aligned top left"},
        {{.align = "br", .keep_causal = 1}, "a window aligned bottom right"},
        {{.align = "tl", .keep_windows = 1}, "causal(tl), and the window as it should be"},
        {{.swap = 1, .keep_causal = 1}, "a window with left and right swapped"},
        {{.open_left = 1, .keep_causal = 1}, "a window without its left end"},
        {{.open_right = 1, .keep_causal = 1}, "a window without its right end"},
        {{.left_end = 1, .keep_causal = 1}, "a window whose left end is aligned top left"},
        {{.left_end = 2, .keep_causal = 1}, "a window with the wrong sign on its left"},
        {{.left_end = 3, .keep_causal = 1}, "a window of -1 taken for a number, not for no end"},
        {{.drop_windows = 1}, "the window ignored"},
        {{.drop_causal = 1}, "causal ignored"},
    };
    const struct attn_problem *p = &x->setup->problem;
    struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    char text[2 * ATTN_CASE_TEXT];
    for (size_t n = 0; n < sizeof list / sizeof *list; n++)
        if (change_text(attn_mask_text(p->mask), &shape, &list[n].change, text, sizeof text) > 0 &&
            try_text(x, text, list[n].words))
            return 1;
    return 0;
}

/* Causal on top of what was asked for, as loop ends do it. */
static int try_extra(struct attn_hypotheses *x)
{
    static const char *const align[] = {"tl", "br"};
    char text[2 * ATTN_CASE_TEXT], words[100];
    for (int n = 0; n < 2; n++) {
        snprintf(text, sizeof text, "(%s)&causal(%s)", attn_mask_text(x->setup->problem.mask),
                 align[n]);
        snprintf(words, sizeof words, "the mask cut by causal(%s), which was not asked for",
                 align[n]);
        if (try_text(x, text, words))
            return 1;
    }
    return 0;
}

/* One side of each top-level & alone, and | for &. */
static int try_sides(struct attn_hypotheses *x)
{
    char text[2 * ATTN_CASE_TEXT], words[300];
    const char *whole = attn_mask_text(x->setup->problem.mask);
    size_t n = strlen(whole);
    int depth = 0;
    for (size_t at = 0; at < n && n < sizeof text; at++) {
        depth += (whole[at] == '(') - (whole[at] == ')');
        if (depth > 0 || (whole[at] != '&' && whole[at] != '|'))
            continue;
        snprintf(text, sizeof text, "%.*s", (int)at, whole);
        snprintf(words, sizeof words, "%.200s ignored", whole + at + 1);
        if (try_text(x, text, words))
            return 1;
        snprintf(words, sizeof words, "%.*s ignored", at < 200 ? (int)at : 200, whole);
        if (try_text(x, whole + at + 1, words))
            return 1;
        snprintf(text, sizeof text, "%s", whole);
        text[at] = whole[at] == '&' ? '|' : '&';
        snprintf(words, sizeof words, "%c in place of %c between masks", text[at], whole[at]);
        if (try_text(x, text, words))
            return 1;
    }
    return 0;
}

/* Keys before the first query's own position: causal that hides the past. */
static int try_past(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    const char *at = strstr(attn_mask_text(p->mask), "causal(");
    struct attn_fault_model t;
    if (at == NULL)
        return 0;
    attn_fault_none(x->setup, &t);
    t.lost_hi = strncmp(at + 7, "br", 2) == 0 ? p->n_key - p->n_query : strtoll(at + 7, NULL, 10);
    return t.lost_hi > 0 &&
           attn_hypothesis(x, &t,
                           "fits causal that hides the past: keys before the first query's own");
}

/* The mask asked in a wrong way. */
static int try_ways(struct attn_hypotheses *x, enum attn_model_mask first)
{
    static const char *const words[ATTN_MODEL_MASKS] = {
        "",
        "mask inverted",
        "mask transposed",
        "mask read as [Lk,Lq]",
        "the mask of batch 0 for every batch",
        "the mask of head 0 for every head",
        "a mask with batch and head swapped in its index",
        "the mask of the last batch for every batch",
        "a mask indexed by the kv head",
        "a mask indexed by a rank's own heads (2 ranks)",
        "a mask indexed by a rank's own heads (4 ranks)",
        "a mask taken for a number of leading keys (its holes are lost)",
        "a mask taken for its last visible key (its holes are filled)",
        "a mask asked once for four rows",
        "a mask asked for row i / (H/G)",
        "a mask asked once for four keys (seen when one of them is)",
        "a window that loses the oldest key of a row",
        "a mask of granules of four keys, seen from the first that is",
        "a mask that hides all from rows that see every key",
        "a mask whose batch steps by one plane (index b + h)",
        "a mask whose lengths are cut to a multiple of 8",
        "a loop that ends at the diagonal, as if causal (tiles of 16)",
        "a loop that ends at the diagonal, as if causal (tiles of 32)",
        "a loop that ends at the diagonal, as if causal (tiles of 64)"};
    struct attn_fault_model t;
    for (int how = first; how < ATTN_MODEL_MASKS; how++) {
        attn_fault_none(x->setup, &t);
        t.how = (enum attn_model_mask)how;
        if (attn_hypothesis(x, &t, "fits %s", words[how]))
            return 1;
    }
    return 0;
}

int attn_hypothesis_masks(struct attn_hypotheses *x)
{
    const struct attn_mask *mask = x->setup->problem.mask;
    if (mask == NULL)
        return try_text(x, "causal(tl)", "causal(tl) although no mask was asked for") ||
               try_text(x, "causal(br)", "causal(br) although no mask was asked for") ||
               try_ways(x, ATTN_MODEL_LOOP_16);
    if (try_past(x) || try_bands(x) || try_text(x, "none", "no mask at all") ||
        try_text(x, "causal(tl)", "causal(tl), whatever the mask says") ||
        try_text(x, "causal(br)", "causal(br), whatever the mask says"))
        return 1;
    return try_ways(x, ATTN_MODEL_INVERTED) || try_sides(x) || try_extra(x);
}
