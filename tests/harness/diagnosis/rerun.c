/* See faults.h: what shows only when an implementation is run again: results that change from run
 * to run or with what memory held before, results that are right once heads or queries are computed
 * alone, and results that are right once one feature of the case is gone. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/faults.h"

/* ---- one run -------------------------------------------------------------------------------- */

/* The part of a problem that begins at (b, kv head g, query i); it borrows all of the setup. */
static struct attn_setup part_of(const struct attn_setup *s, int64_t b, int64_t g, int64_t i)
{
    struct attn_setup part = *s;
    int64_t h = s->problem.kv_heads > 0 ? g * (s->problem.heads / s->problem.kv_heads) : 0;
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        struct attn_tensor *t = &part.tensor[slot];
        int of_keys =
            slot == ATTN_T_K || slot == ATTN_T_V || slot == ATTN_T_DK || slot == ATTN_T_DV;
        int is_bias = slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS ||
                      slot == ATTN_T_SINK; /* looked up by the origin */
        int64_t at = of_keys ? attn_offset(t->stride, b, g, 0) : attn_offset(t->stride, b, h, i);
        if (t->data != NULL && !is_bias)
            t->data = (char *)t->data + at * (int64_t)attn_dtype_size(t->dtype);
    }
    part.tensor[ATTN_T_DSINK].data = NULL; /* a sum over all parts */
    part.problem.origin.batch = b;
    part.problem.origin.head = h;
    part.problem.origin.query.first = i;
    return part;
}

enum attn_status attn_rerun(const struct attn_spec *spec, const struct attn_setup *s, int fill_nan,
                            struct attn_error *err)
{
    struct attn_ledger ledger;
    struct attn_error unsaid = {0};
    struct attn_saved saved = {0};
    struct attn_ctx ctx = {.ledger = &ledger,
                           .options = &spec->options,
                           .error = err != NULL ? err : &unsaid,
                           .saved = &saved};
    enum attn_status status = ATTN_OK;
    attn_ledger_init(&ledger, NULL);
    ledger.poison = fill_nan;
    mallopt(M_PERTURB, fill_nan ? 0 : 0xc5); /* malloc's own: bytes of 0x3a */
    for (int pass = ATTN_FORWARD; pass <= (int)s->given.pass && status == ATTN_OK; pass++)
        status = attn_setup_call(s, spec->impl, &ctx, (enum attn_pass)pass);
    attn_saved_drop(&saved, &ledger);
    mallopt(M_PERTURB, 0);
    attn_ledger_clear(&ledger);
    return status;
}

/* ---- state and memory ----------------------------------------------------------------------- */

static const char *try_memory(const struct attn_spec *spec, const struct attn_setup *s)
{
    uint64_t bits[3];
    for (int n = 0; n < 3; n++) {
        if (attn_rerun(spec, s, n < 2, NULL) != ATTN_OK)
            return NULL;
        bits[n] = attn_setup_digest(s, NULL, s->given.pass);
    }
    return bits[0] != bits[1]   ? "fits results that change from run to run: a race, or state that "
                                  "is kept between calls"
           : bits[1] != bits[2] ? "fits memory that is read before it is written (a buffer not "
                                  "cleared, or read to its end)"
                                : NULL;
}

/* ---- alone ---------------------------------------------------------------------------------- */

int attn_rerun_is_right(const struct attn_setup *s, const struct attn_result *failed)
{
    struct attn_result r;
    memset(&r, 0, sizeof r);
    attn_judge(s, &failed->precision, NULL, s->given.pass, &r);
    return r.verdict == ATTN_PASS || r.verdict == ATTN_WEAK;
}

/* Every kv head with its query heads by itself, or every query of a head. */
static int right_alone(const struct attn_spec *spec, const struct attn_setup *s, int by_query,
                       const struct attn_result *failed)
{
    const struct attn_problem *p = &s->problem;
    int64_t parts = by_query ? p->n_query : p->batch * p->kv_heads;
    for (int64_t n = 0; n < parts; n++) {
        struct attn_setup part =
            by_query ? part_of(s, 0, 0, n) : part_of(s, n / p->kv_heads, n % p->kv_heads, 0);
        if (by_query) {
            part.problem.n_query = 1;
        } else {
            part.problem.batch = part.problem.kv_heads = 1;
            part.problem.heads = p->heads / p->kv_heads;
        }
        if (attn_rerun(spec, &part, 1, NULL) != ATTN_OK)
            return 0;
    }
    return parts > 1 && attn_rerun_is_right(s, failed);
}

static const char *try_neighbours(const struct attn_spec *spec, const struct attn_setup *s,
                                  const struct attn_result *failed)
{
    int is_ours = spec->impl->ranks == NULL && spec->options.local != spec->impl;
    if (!is_ours || s->given.d_bias) /* an external implementation or ranks are given no parts */
        return NULL;
    if (right_alone(spec, s, 0, failed))
        return "right when each kv head is computed alone: something is shared with other heads or "
               "batches, or left over from them";
    if (s->given.pass == ATTN_FORWARD && right_alone(spec, s, 1, failed))
        return "right when each query is computed alone: something is shared with other queries or "
               "left over from them, or one query goes another way";
    return NULL;
}

int attn_rerun_again(const struct attn_spec *spec, const struct attn_case *c,
                     const struct attn_result *failed, char *text, size_t size)
{
    struct attn_setup setup;
    struct attn_error err = {0};
    if (attn_setup_open(c, &setup, &err) != ATTN_OK)
        return 0;
    const char *found = try_memory(spec, &setup);
    found = found != NULL ? found : try_neighbours(spec, &setup, failed);
    snprintf(text, size, "%s", found != NULL ? found : "");
    attn_setup_close(&setup);
    return found != NULL;
}

/* ---- the case with one thing after another made plain --------------------------------------- */

enum { NAMED = 3, WORDS = 80, ONE_QUERY = 9, DROPS = 13, TAILS = 9 };

static int64_t round_up(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile * tile;
}

static const int64_t tiles[] = {16, 64, 128};

/* Lengths and widths that fill whole tiles; a square problem stays square.  0: they do already. */
static int fill_tiles(struct attn_case *c, int which, char words[WORDS])
{
    static const char *const what[] = {"a length that leaves the tail of a tile (not %lld keys)",
                                       "queries that leave the tail of a tile (not %lld)",
                                       "features that leave the tail of a tile (not d = %lld)"};
    enum { KEYS, QUERIES, FEATURES } of = which / 3;
    const int64_t tile = tiles[which % 3];
    int64_t *const lengths[] = {&c->n_key, &c->n_query, &c->d_key}, *n = lengths[of];
    const int square = c->n_query == c->n_key;
    const int64_t uneven = c->d_key - c->d_value;
    if ((of == QUERIES && *n == 1) ||
        (*n % tile == 0 && (of != FEATURES || c->d_value % tile == 0)) ||
        (of == QUERIES && square) || (of == FEATURES && tile > 64))
        return 0;
    *n = round_up(*n, tile);
    if (of == KEYS && square)
        c->n_query = c->n_key;
    if (of == FEATURES)
        c->d_value = round_up(c->d_value, tile);
    if (of == FEATURES && uneven != 0 && c->d_key == c->d_value)
        *(uneven > 0 ? &c->d_key : &c->d_value) += tile;
    snprintf(words, WORDS, what[of], (long long)*n);
    return 1;
}

/* Without one feature of the case; returns what that is called, whether the case has it or not. */
static const char *drop(struct attn_case *c, int which)
{
    const char *bias = c->bias == ATTN_CASE_BIAS_ALIBI ? "ALiBi" : "the bias";
    switch (which) {
    case 0:
        c->layout = ATTN_LAYOUT_BHLD;
        c->offset = c->only = 0;
        return "a layout that is not plain";
    case 1:
        c->bias = ATTN_CASE_BIAS_NONE;
        c->d_bias = 0;
        return bias;
    case 2:
        c->softcap = 0;
        return "softcap";
    case 3:
        c->scale = (double)NAN;
        return "another scale than 1/sqrt(d)";
    case 4:
        c->d_lse = 0;
        return "dLSE";
    case 5:
        c->kv_heads = c->heads;
        return "shared kv heads (H/G above 1)";
    case 6:
        c->batch = 1;
        return "more than one batch";
    case 7:
        c->poison = ATTN_POISON_NONE;
        return "NaN or 1e30 in rows that no query sees (0 times NaN is NaN)";
    case 8:
        c->d_value = c->d_key;
        return "dv other than d";
    case 10:
        c->sink = ATTN_CASE_SINK_NONE;
        return "a sink";
    case 11:
        c->kv_shared = 0;
        return "V that is a view of K";
    case ONE_QUERY:
        c->n_query = c->n_query == 1 ? 2 : 1;
        return c->n_query == 2 ? "one query" : "more than one query";
    default:
        snprintf(c->mask, sizeof c->mask, "none");
        return "keys hidden";
    }
}

static int make_plain(struct attn_case *c, int which, char words[WORDS])
{
    char before[ATTN_CASE_TEXT], after[ATTN_CASE_TEXT];
    if (which >= DROPS)
        return fill_tiles(c, which - DROPS, words);
    attn_case_print(c, before);
    snprintf(words, WORDS, "%s", drop(c, which));
    attn_case_print(c, after);
    return strcmp(before, after) != 0;
}

/* The case, parsed again, so that what a mask cannot be made for is left out; 0: it is not
 * asked. */
static int run_plain(const struct attn_spec *spec, const struct attn_claims *claims,
                     const struct attn_case *c, struct attn_result *r)
{
    char text[ATTN_CASE_TEXT];
    struct attn_case again;
    attn_case_print(c, text);
    if (attn_case_parse(text, &again, NULL) != ATTN_OK)
        return 0;
    if (claims != NULL &&
        attn_claims_allow_case(claims, &again, ATTN_ROUTE_PLUGIN, NULL) != ATTN_OK)
        return 0;
    attn_run_case(spec, &again, r);
    return 1;
}

int attn_rerun_reads_hidden(const struct attn_spec *spec, const struct attn_claims *claims,
                            const struct attn_case *c)
{
    struct attn_case plain = *c;
    struct attn_result r;
    plain.poison = ATTN_POISON_NONE;
    return run_plain(spec, claims, &plain, &r) && r.failure != ATTN_F_FINITE;
}

/* A fault of tails makes longer lengths wrong that leave the same tail.  Where these are right too,
 * or cannot be asked, a length matters in another way. */
static int is_of_tails(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, const struct attn_case *filled, int which,
                       const struct attn_restart *restart)
{
    const int64_t tile = tiles[which % 3];
    struct attn_case longer = *filled;
    struct attn_result r;
    longer.n_key += filled->n_key != c->n_key ? c->n_key % tile : 0;
    longer.n_query += filled->n_query != c->n_query ? c->n_query % tile : 0;
    longer.d_key += filled->d_key != c->d_key ? c->d_key % tile : 0;
    longer.d_value += filled->d_value != c->d_value ? c->d_value % tile : 0;
    return (restart == NULL || restart->start(restart->arg)) &&
           run_plain(spec, claims, &longer, &r) && r.verdict != ATTN_PASS;
}

static void say_length(const struct attn_case *c, const struct attn_case *plain, int of,
                       char words[WORDS])
{
    static const char *const what[] = {"%lld keys, not %lld", "%lld queries, not %lld",
                                       "d = %lld, not %lld"};
    const int64_t had[] = {c->n_key, c->n_query, c->d_key};
    const int64_t has[] = {plain->n_key, plain->n_query, plain->d_key};
    snprintf(words, WORDS, what[of], (long long)had[of], (long long)has[of]);
}

int attn_rerun_without(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, const struct attn_restart *restart, char *text,
                       size_t size)
{
    int named = 0, tails = 0;
    text[0] = '\0';
    for (int which = 0; which < DROPS + TAILS && named < NAMED; which++) {
        if (which == ONE_QUERY && c->n_query != 1 && restart == NULL)
            continue; /* many a fault needs two; of a crash it is the only trace */
        struct attn_case plain = *c;
        struct attn_result r;
        char words[WORDS];
        int tail = which >= DROPS ? 1 << (which - DROPS) / 3 : 0;
        if (tails & tail || !make_plain(&plain, which, words) ||
            (restart != NULL && !restart->start(restart->arg)) ||
            !run_plain(spec, claims, &plain, &r) || r.verdict != ATTN_PASS)
            continue;
        if (tail != 0 && !is_of_tails(spec, claims, c, &plain, which - DROPS, restart)) {
            if (restart == NULL)
                continue;
            say_length(c, &plain, (which - DROPS) / 3, words); /* a crash has no other trace */
        }
        tails |= tail;
        attn_append(text, size, "%s%s", named++ > 0 ? ", " : "fails only with ", words);
        if (which == DROPS - 1)
            break; /* with the length the mask would be another */
    }
    return named;
}
