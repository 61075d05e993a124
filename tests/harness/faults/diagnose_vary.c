/* Which feature of a case its failure needs: the case is run with one thing after another made
 * plain, and what makes it pass is named. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/faults/diagnose.h"

enum { NAMED = 3, WORDS = 80 };

/* A case with one thing made plain, and how that is said; 0: it was plain already. */
struct variant {
    struct attn_case c;
    char words[WORDS];
};

static int64_t round_up(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile * tile;
}

/* Lengths and widths that fill whole tiles; a square problem stays square. */
static int fill_tiles(struct variant *v, int which)
{
    static const int64_t tile[] = {16, 64, 128};
    struct attn_case *c = &v->c;
    int64_t to = tile[which % 3];
    int square = c->n_query == c->n_key;
    switch (which / 3) {
    case 0:
        if (c->n_key % to == 0 || c->n_key == 0)
            return 0;
        c->n_key = round_up(c->n_key, to);
        c->n_query = square ? c->n_key : c->n_query;
        snprintf(v->words, WORDS, "a length that leaves the tail of a tile (not %lld keys)",
                 (long long)c->n_key);
        return 1;
    case 1:
        if (square || c->n_query % to == 0 || c->n_query == 0)
            return 0;
        c->n_query = round_up(c->n_query, to);
        snprintf(v->words, WORDS, "queries that leave the tail of a tile (not %lld)",
                 (long long)c->n_query);
        return 1;
    default:
        if ((c->d_key % to == 0 && c->d_value % to == 0) || to > 64)
            return 0;
        c->d_value = c->d_value == c->d_key ? round_up(c->d_key, to) : round_up(c->d_value, to);
        c->d_key = round_up(c->d_key, to);
        snprintf(v->words, WORDS, "features that leave a tail (not d = %lld)", (long long)c->d_key);
        return 1;
    }
}

/* Features that are there or not: what it is called where it is there, and without it. */
static const char *drop(struct attn_case *c, int which)
{
    const struct attn_case was = *c;
    switch (which) {
    case 0:
        c->layout = ATTN_LAYOUT_BHLD;
        c->offset = c->only = 0;
        return was.layout != c->layout || was.offset != 0 ? "a layout that is not plain" : NULL;
    case 1:
        c->bias = ATTN_CASE_BIAS_NONE;
        c->d_bias = 0;
        return was.bias == ATTN_CASE_BIAS_NONE    ? NULL
               : was.bias == ATTN_CASE_BIAS_ALIBI ? "ALiBi"
                                                  : "the bias";
    case 2:
        c->softcap = 0;
        return was.softcap > 0 ? "softcap" : NULL;
    case 3:
        c->scale = (double)NAN;
        return isnan(was.scale) ? NULL : "another scale than 1/sqrt(d)";
    case 4:
        c->d_lse = 0;
        return was.d_lse ? "dLSE" : NULL;
    case 5:
        c->kv_heads = c->heads;
        return was.kv_heads != was.heads ? "shared kv heads (H/G above 1)" : NULL;
    case 6:
        c->batch = 1;
        return was.batch > 1 ? "more than one batch" : NULL;
    default:
        snprintf(c->mask, sizeof c->mask, "none");
        return strcmp(was.mask, "none") != 0 ? "keys hidden" : NULL;
    }
}

enum { DROPS = 8, TILES = 9 };

static int make_plain(struct variant *v, int which)
{
    if (which >= DROPS)
        return fill_tiles(v, which - DROPS);
    const char *words = drop(&v->c, which);
    if (words != NULL)
        snprintf(v->words, WORDS, "%s", words);
    return words != NULL;
}

/* The variant, parsed again, so that what a mask cannot be made for is left out. */
static int passes(const struct attn_spec *spec, const struct attn_claims *claims,
                  const struct attn_case *c)
{
    char text[ATTN_CASE_TEXT];
    struct attn_case again;
    struct attn_setup setup;
    struct attn_result r;
    unsigned needs;
    attn_case_print(c, text);
    if (attn_case_parse(text, &again, NULL) != ATTN_OK)
        return 0;
    if (claims != NULL) {
        if (attn_setup_open(&again, &setup, NULL) != ATTN_OK)
            return 0;
        enum attn_status status =
            attn_claims_allow(claims, &setup, ATTN_ROUTE_PLUGIN, &needs, NULL);
        attn_setup_close(&setup);
        if (status != ATTN_OK)
            return 0;
    }
    attn_run_case(spec, &again, &r);
    return r.verdict == ATTN_PASS;
}

int attn_hypothesis_feature(const struct attn_spec *spec, const struct attn_claims *claims,
                            const struct attn_case *c, char *text, size_t size)
{
    int named = 0, tails = 0;
    text[0] = '\0';
    for (int which = 0; which < DROPS + TILES && named < NAMED; which++) {
        struct variant v = {.c = *c};
        int tail = which >= DROPS ? 1 << (which - DROPS) / 3 : 0;
        if (tails & tail || !make_plain(&v, which) || !passes(spec, claims, &v.c))
            continue;
        tails |= tail;
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", named++ > 0 ? ", " : "fails only with ",
                 v.words);
    }
    return named;
}
