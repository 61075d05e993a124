/* See repeats.h. */
#include "tests/harness/repeats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/clock.h"
#include "ref/problem.h"
#include "tests/harness/files/fileio.h"

/* ---- bits ------------------------------------------------------------------------------------ */

static size_t bytes_of(const struct attn_tensor *t)
{
    return t->data != NULL ? (size_t)t->span * attn_dtype_size(t->dtype) : 0;
}

static const unsigned char *lowest(const struct attn_tensor *t)
{
    return (const unsigned char *)t->data + t->first * (int64_t)attn_dtype_size(t->dtype);
}

/* Elements of t whose bits are not the kept ones, of *n; the first of them in first[]. */
static int64_t count_others(const struct attn_tensor *t, const unsigned char *kept, int64_t *n,
                            int64_t first[4])
{
    size_t size = attn_dtype_size(t->dtype);
    int64_t others = 0;
    *n = 0;
    for (int64_t at[4] = ATTN_START; attn_each(at, t->extent); ++*n) {
        int64_t slot = attn_offset(t->stride, at[0], at[1], at[2]) + at[3] * t->stride[3];
        size_t byte = (size_t)(slot - t->first) * size;
        if (memcmp(lowest(t) + byte, kept + byte, size) != 0 && others++ == 0)
            memcpy(first, at, sizeof at);
    }
    return others;
}

/* A kept element as a number. */
static double kept_value(const struct attn_tensor *t, const unsigned char *kept,
                         const int64_t at[4])
{
    struct attn_tensor same = *t;
    same.data = (unsigned char *)(uintptr_t)kept - t->first * (int64_t)attn_dtype_size(t->dtype);
    return attn_tensor_get(&same, at[0], at[1], at[2], at[3]);
}

/* "o: 1 of 64 elements, first [0,0,3,1]: 1.5 where it fails, 0.5 where not; lse: none" */
static void compare(struct attn_repeats *x, const struct attn_setup *s, int now_bad)
{
    int64_t n, at[4] = {0};
    int is_first = x->differs[0] == '\0';
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS && is_first; slot++) {
        const struct attn_tensor *t = &s->tensor[slot];
        if (x->kept[slot] == NULL || (s->given.pass == ATTN_FORWARD && slot > ATTN_T_LSE))
            continue;
        int64_t others = count_others(t, x->kept[slot], &n, at);
        attn_append(x->differs, sizeof x->differs, "%s%s: %lld of %lld elements",
                    x->differs[0] != '\0' ? "; " : "", t->name, (long long)others, (long long)n);
        if (others == 0)
            continue;
        double here = attn_tensor_get(t, at[0], at[1], at[2], at[3]);
        double there = kept_value(t, x->kept[slot], at);
        attn_append(x->differs, sizeof x->differs, " ([%lld,%lld,%lld,%lld] %.6g, else %.6g)",
                    (long long)at[0], (long long)at[1], (long long)at[2], (long long)at[3],
                    now_bad ? here : there, now_bad ? there : here);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

void attn_repeats_open(struct attn_repeats *x, const struct attn_repetition *how,
                       const struct attn_setup *s, const struct attn_result *first)
{
    *x = (struct attn_repeats){.how = how, .runs = 1, .first = *first, .bad = *first};
    x->failed = attn_result_is_bad(first);
    x->until = how->seconds > 0 ? attn_seconds(CLOCK_MONOTONIC) + how->seconds : 0;
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS && first->digest != 0; slot++) {
        size_t bytes = bytes_of(&s->tensor[slot]);
        if (bytes > 0 && (x->kept[slot] = malloc(bytes)) != NULL)
            memcpy(x->kept[slot], lowest(&s->tensor[slot]), bytes);
    }
}

int attn_repeats_go_on(const struct attn_repeats *x)
{
    return x->runs < x->how->calls && !x->lacking &&
           (x->until <= 0 || attn_seconds(CLOCK_MONOTONIC) < x->until);
}

void attn_repeats_add(struct attn_repeats *x, const struct attn_setup *s,
                      const struct attn_result *r)
{
    int other_bits = r->digest != x->first.digest, bad = attn_result_is_bad(r);
    x->lacking = r->verdict == ATTN_ERROR; /* no memory for this one: it is no run */
    if (x->lacking)
        return;
    x->runs++;
    x->others += other_bits;
    if (bad && x->failed++ == 0)
        x->bad = *r;
    int is_other = bad != attn_result_is_bad(&x->first) || (other_bits && x->how->same_bits);
    if (is_other && r->digest != 0)
        compare(x, s, bad);
}

void attn_repeats_close(struct attn_repeats *x, struct attn_result *r)
{
    int changes = x->failed == 0 && x->others > 0 && x->how->same_bits;
    *r = x->failed > 0 ? x->bad : x->first;
    r->runs = x->runs;
    r->failed = changes ? x->others : x->failed;
    if (changes) {
        r->failure = ATTN_F_EXACT;
        snprintf(r->text, sizeof r->text,
                 "other bits than in the first run, within the bounds: equal bits were promised");
    }
    if (r->failed > 0 && r->failed < x->runs) {
        r->verdict = ATTN_INTERMITTENT;
        snprintf(r->differs, sizeof r->differs, "%s", x->differs);
    }
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        free(x->kept[slot]);
}
