/* A failing case made small: greedy, one simplification at a time, the boldest first. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/soak.h"

struct shrinker {
    const struct attn_soak_judge *judge;
    struct attn_case *best;
    int judged, budget;
};

/* Take a candidate if it is another case, can be written, and still fails. */
static int take(struct shrinker *s, const struct attn_case *candidate)
{
    char now[ATTN_CASE_TEXT], next[ATTN_CASE_TEXT];
    struct attn_case parsed;
    struct attn_error err = {0};
    attn_case_print(s->best, now);
    attn_case_print(candidate, next);
    if (strcmp(now, next) == 0 || s->judged >= s->budget ||
        attn_case_parse(next, &parsed, &err) != ATTN_OK)
        return 0;
    s->judged++;
    if (!s->judge->fails(s->judge->arg, &parsed))
        return 0;
    *s->best = parsed;
    return 1;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* A part is made neutral as a whole: a field, and those that mean nothing without it.  A field that
 * another one still needs is refused by the parser, and tried again when that one has gone. */
struct part {
    size_t at, size;
};
#define PART(member)                                                              \
    {                                                                             \
        offsetof(struct attn_case, member), sizeof((struct attn_case *)0)->member \
    }
enum { TOGETHER = 5 };
static const struct part simpler[][TOGETHER] = {
    {PART(pass), PART(d_lse), PART(d_bias)},
    {PART(d_bias), PART(bias), PART(bias_type), PART(slopes), PART(has_alibi_offset)},
    {PART(layout), PART(offset), PART(only)},
    {PART(offset)},
    {PART(poison)},
    {PART(d_lse)},
    {PART(d_bias)},
    {PART(sink)},
    {PART(kv_shared)},
    {PART(softcap)},
    {PART(scale)},
    {PART(fill)},
    {PART(wide)},
    {PART(dtype), PART(bias_type), PART(wide)},
    {PART(layout)},
    {PART(layout), PART(only)},
    {PART(bias_type)},
    {PART(slopes), PART(has_alibi_offset)},
    {PART(threads)},
    {PART(special)},
    {PART(seed)},
};

static int shrink_fields(struct shrinker *s)
{
    static const struct attn_case neutral = {
        .dtype = ATTN_F32, .fill = ATTN_FILL_NORMAL, .seed = 1, .scale = (double)NAN};
    int any = 0;
    for (size_t n = 0; n < sizeof simpler / sizeof *simpler; n++) {
        struct attn_case c = *s->best;
        for (int p = 0; p < TOGETHER; p++)
            memcpy((char *)&c + simpler[n][p].at, (const char *)&neutral + simpler[n][p].at,
                   simpler[n][p].size);
        any |= take(s, &c);
    }
    return any;
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* Cut text[from, to) out of a copy of the mask, with put in its place. */
static int replace(struct shrinker *s, size_t from, size_t to, const char *put)
{
    struct attn_case c = *s->best;
    const char *mask = s->best->mask;
    size_t middle = strlen(put), rest = strlen(mask + to) + 1;
    if (from + middle + rest > ATTN_CASE_MASK)
        return 0;
    memcpy(c.mask + from, put, middle);
    memcpy(c.mask + from + middle, mask + to, rest);
    return take(s, &c);
}

/* Every operand that an operator joins goes, once, with its operator. */
static int drop_operand(struct shrinker *s)
{
    const char *mask = s->best->mask;
    for (size_t at = 0; mask[at] != '\0'; at++) {
        if (mask[at] != '&' && mask[at] != '|')
            continue;
        size_t from = at,
               to = at + 1; /* to the left: up to a '(' that is not closed, or the start */
        for (int depth = 0; from > 0; from--) {
            depth += (mask[from - 1] == ')') - (mask[from - 1] == '(');
            if (depth < 0)
                break;
        }
        for (int depth = 0; mask[to] != '\0'; to++) {
            depth += (mask[to] == '(') - (mask[to] == ')');
            if (depth < 0 || (depth == 0 && (mask[to] == '&' || mask[to] == '|')))
                break;
        }
        if (replace(s, from, at + 1, "") || replace(s, at, to, ""))
            return 1;
    }
    return 0;
}

/* Parentheses around a whole operand. */
static int drop_parentheses(struct shrinker *s)
{
    const char *mask = s->best->mask;
    size_t n = strlen(mask);
    if (n < 2 || mask[0] != '(' || mask[n - 1] != ')')
        return 0;
    struct attn_case c = *s->best;
    snprintf(c.mask, sizeof c.mask, "%.*s", (int)(n - 2), mask + 1);
    return take(s, &c);
}

/* Every whole number above 1 is tried at half its value, then one less. */
static int halve_numbers(struct shrinker *s)
{
    const char *mask = s->best->mask;
    for (size_t at = 0; mask[at] != '\0'; at++) {
        if (mask[at] < '0' || mask[at] > '9' || (at > 0 && strchr(".x", mask[at - 1]) != NULL))
            continue;
        size_t end = at + strspn(mask + at, "0123456789");
        long value = strtol(mask + at, NULL, 10);
        char half[24], less[24];
        snprintf(half, sizeof half, "%ld", value / 2);
        snprintf(less, sizeof less, "%ld", value - 1);
        if (value > 1 && end - at < 9 && (replace(s, at, end, half) || replace(s, at, end, less)))
            return 1;
        at = end - 1;
    }
    return 0;
}

static int shrink_mask(struct shrinker *s)
{
    struct attn_case c = *s->best;
    snprintf(c.mask, sizeof c.mask, "none");
    return take(s, &c) || drop_operand(s) || drop_parentheses(s) || halve_numbers(s);
}

/* ---- extents --------------------------------------------------------------------------------- */

/* 1, half, one less: whichever is the first that still fails. */
static int shrink_extents(struct shrinker *s)
{
    static const int alone[] = {0, 3, 4, 5, 6}; /* heads go with those of K and V */
    int any = 0;
    for (int which = 0; which < 5; which++)
        for (int step = 0; step < 3; step++) {
            struct attn_case c = *s->best;
            int64_t *n = attn_case_extent(&c, alone[which]);
            if (*n <= 1)
                break;
            *n = step == 0 ? 1 : step == 1 ? *n / 2 : *n - 1;
            if (take(s, &c)) {
                any = 1;
                break;
            }
        }
    static const int64_t heads[][2] = {{1, 1}, {2, 2}, {2, 1}, {4, 4}, {4, 2}};
    for (size_t n = 0; n < sizeof heads / sizeof *heads; n++) {
        struct attn_case c = *s->best;
        if (c.heads <= heads[n][0])
            continue;
        c.heads = heads[n][0];
        c.kv_heads = heads[n][1];
        if (take(s, &c)) {
            any = 1;
            break;
        }
    }
    struct attn_case both = *s->best; /* masks and schemes may want them equal */
    if (both.n_query > 1 && both.n_query == both.n_key) {
        both.n_query = both.n_key = both.n_query / 2;
        any |= take(s, &both);
    }
    return any;
}

int attn_soak_shrink(const struct attn_soak_judge *judge, int budget, struct attn_case *c)
{
    struct shrinker s = {judge, c, 0, budget};
    while (s.judged < budget) {
        int any = shrink_fields(&s);
        any |= shrink_mask(&s);
        any |= shrink_extents(&s);
        if (!any)
            break;
    }
    return s.judged;
}
