/* See claims.h. */
#include "tests/harness/cases/claims.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "ref/oracle/oracle.h"
#include "ref/problem.h"
#include "ref/sink.h"
#include "tests/harness/base/fileio.h"

const char *attn_decline_name(int bit)
{
    static const char *const name[ATTN_DECLINES] = {"nan-bias",        "nan-q",     "nan-do",
                                                    "scale-0",         "nonfinite", "unmasked",
                                                    "causal-backward", "few-shapes"};
    return name[bit];
}

void attn_claims_all(struct attn_claims *claims)
{
    *claims = (struct attn_claims){.name = "everything",
                                   .bits = ((1u << ATTN_CAPS) - 1) & ~(unsigned)ATTN_CAPS_OWN};
}

/* Options may leave fewer storage types than the implementation has (tiled:p=bf16): those that it
 * refuses for a problem that any number of its ranks divides. */
static unsigned refused_storage(const struct attn_impl *impl, const struct attn_options *options)
{
    int64_t n = attn_ranks(impl, options);
    unsigned refused = 0;
    for (int dtype = ATTN_F64; impl->accepts != NULL && dtype <= ATTN_F16; dtype++) {
        struct attn_problem p = {.dtype = (enum attn_dtype)dtype,
                                 .batch = n,
                                 .heads = n,
                                 .kv_heads = n,
                                 .n_query = n,
                                 .n_key = n,
                                 .d_key = n,
                                 .d_value = n,
                                 .scale = 1};
        refused |= impl->accepts(&p, options, NULL) == ATTN_OK ? 0 : 1u << dtype;
    }
    return refused == ATTN_CAPS_STORAGE ? 0 : refused; /* of all: not for their types */
}

/* The longest of the long cases. */
enum { LONG_KEYS = 1 << 17 };

/* 1: it works on long rows of keys in a small part of the memory that they take themselves, by
 * its price, and in vectors: a textbook would take minutes. */
static int is_long(const struct attn_impl *impl, const struct attn_options *options)
{
    struct attn_case c = {.batch = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .n_query = 128,
                          .n_key = LONG_KEYS,
                          .d_key = 64,
                          .d_value = 64,
                          .scale = (double)NAN};
    struct attn_problem p;
    struct attn_cost cost;
    attn_case_problem(&c, &p);
    return impl->simd && attn_ranks(impl, options) == 1 &&
           attn_price(impl, options, &p, ATTN_FORWARD, 0, &cost, NULL) == ATTN_OK &&
           cost.peak_bytes <= LONG_KEYS * 64 * (int64_t)sizeof(float) / 16;
}

int64_t attn_claims_long_keys(const struct attn_claims *claims)
{
    int64_t most = claims->long_keys;
    for (int r = 0; r < claims->shapes.of[ATTN_FACTOR_KEYS].n; r++) {
        int64_t to = claims->shapes.of[ATTN_FACTOR_KEYS].range[r].to;
        most = to > most ? to : most;
    }
    return most < LONG_KEYS ? most : LONG_KEYS;
}

void attn_claims_of_impl(const struct attn_impl *impl, const struct attn_options *options,
                         struct attn_claims *claims)
{
    char shapes[128];
    *claims = (struct attn_claims){.bits = (impl->caps & ATTN_CAPS_SHARED)};
    claims->bits &= ~refused_storage(impl, options);
    claims->bits |= ATTN_CAP_SCALE | ATTN_CAP_EMPTY | ATTN_CAP_REPEATS;
    if (impl->caps & ATTN_CAP_MASK)
        claims->bits |= ATTN_CAP_BAND | ATTN_CAP_CAUSAL | ATTN_CAP_DENSE;
    snprintf(claims->name, sizeof claims->name, "%.60s", impl->name);
    claims->long_keys = is_long(impl, options) ? LONG_KEYS : 0;
    if (impl->shapes != NULL) {
        impl->shapes(options, shapes, sizeof shapes);
        attn_shapes_parse(shapes, &claims->shapes, NULL);
    }
}

static enum attn_status no_cost(const struct attn_problem *p, const struct attn_options *options,
                                enum attn_pass pass, int rank, struct attn_cost *cost,
                                struct attn_error *err)
{
    (void)p, (void)options, (void)pass, (void)rank, (void)cost, (void)err;
    return ATTN_OK;
}

struct attn_impl attn_claims_impl(const struct attn_claims *claims, const char *summary,
                                  const char *family)
{
    return (struct attn_impl){.name = claims->name,
                              .summary = summary,
                              .family = family,
                              .caps = ATTN_CAPS_ALL & ~ATTN_CAP_WIDE,
                              .sinks = ATTN_SINKS_IN_SUM,
                              .adds_dv = 1,
                              .cost = no_cost};
}

/* ---- which cases ----------------------------------------------------------------------------- */

static int aligned(const struct attn_claims *claims, const struct attn_problem *p,
                   const struct attn_band *band)
{
    return claims->causal == ATTN_PLUGIN_CAUSAL_TL   ? band->offset == 0
           : claims->causal == ATTN_PLUGIN_CAUSAL_BR ? band->offset == p->n_key - p->n_query
           : claims->causal == ATTN_PLUGIN_CAUSAL_SQUARE
               ? band->offset == 0 && p->n_key == p->n_query
               : 1;
}

/* Which claim a band wants: causal code knows no window, and no offset but the two usual ones. */
static unsigned claim_of(const struct attn_problem *p, const struct attn_band *band)
{
    int usual = band->offset == 0 || band->offset == p->n_key - p->n_query;
    return band->left < 0 && band->right == 0 && usual ? ATTN_CAP_CAUSAL : ATTN_CAP_BAND;
}

enum attn_claims_mask attn_claims_mask(const struct attn_claims *claims,
                                       const struct attn_problem *p, struct attn_given_mask *given)
{
    struct attn_chain chain;
    *given = (struct attn_given_mask){.claim = ATTN_CAP_DENSE, .is_self = 1};
    if (attn_mask_is_none(p->mask))
        return ATTN_CLAIMS_NO_MASK;
    int is_chain = attn_chain_of(p->mask, &chain);
    /* ALiBi counts from the start of a batch entry: the same inside documents that have as many
     * queries as keys, another number in each of others. */
    if (is_chain && attn_claims_are_packed(claims) && chain.documents.n > 0 &&
        (chain.is_self || (chain.n_bands == 0 && p->bias.kind != ATTN_BIAS_ALIBI))) {
        given->documents = chain.documents;
        given->is_self = chain.is_self;
    }
    if (is_chain && claims->layout == ATTN_PLUGIN_PAGED) {
        given->has_lengths = chain.length >= 0;
        given->is_ends = chain.is_ends;
    }
    if (!is_chain || chain.documents.n != given->documents.n ||
        (chain.length >= 0) != given->has_lengths)
        return ATTN_CLAIMS_BYTES;
    if (chain.n_bands == 0)
        return ATTN_CLAIMS_NO_MASK;
    if (chain.is_ends)
        chain.band.offset = p->n_key - p->n_query; /* of a batch whose keys all count */
    given->claim = claim_of(p, &chain.band);
    if (!(claims->bits & given->claim) || !aligned(claims, p, &chain.band) ||
        (given->has_lengths && !chain.is_ends))
        return ATTN_CLAIMS_BYTES;
    given->band = chain.band;
    if (claims->window == ATTN_PLUGIN_WINDOW_WITH_SELF) {
        given->band.left += chain.band.left >= 0;
        given->band.right += chain.band.right >= 0;
    }
    return ATTN_CLAIMS_BAND;
}

/* Rows that a mask leaves without keys ask for nothing where hidden scores stay numbers. */
static int has_empty(const struct attn_claims *claims, const struct attn_setup *s)
{
    const struct attn_problem *p = &s->problem;
    return p->batch == 0 || p->heads == 0 || p->n_query == 0 || p->n_key == 0 || p->d_key == 0 ||
           p->d_value == 0 || s->given.bias == ATTN_CASE_BIAS_INF ||
           (!(claims->hidden > 0) &&
            attn_mask_has_empty_rows(p->mask, p->batch, p->heads, p->n_query, p->n_key));
}

enum attn_case_layout attn_claims_layout(const struct attn_claims *claims)
{
    static const enum attn_case_layout layout[] = {
        [ATTN_PLUGIN_BHLD] = ATTN_LAYOUT_BHLD,       [ATTN_PLUGIN_BLHD] = ATTN_LAYOUT_BLHD,
        [ATTN_PLUGIN_SBHD] = ATTN_LAYOUT_SBHD,       [ATTN_PLUGIN_THD] = ATTN_LAYOUT_BHLD,
        [ATTN_PLUGIN_THD_PADDED] = ATTN_LAYOUT_BHLD, [ATTN_PLUGIN_PAGED] = ATTN_LAYOUT_BLHD,
    };
    return layout[claims->layout];
}

unsigned attn_claims_needed(const struct attn_claims *claims, const struct attn_setup *s,
                            enum attn_route route)
{
    const struct attn_case *c = &s->given;
    const struct attn_problem *p = &s->problem;
    struct attn_given_mask given;
    unsigned needs = attn_problem_needs(p) & ATTN_CAPS_SHARED;
    enum attn_claims_mask how = attn_claims_mask(claims, p, &given);
    int masked = how != ATTN_CLAIMS_NO_MASK;
    if (!given.is_self)
        needs |= ATTN_CAP_CROSS;
    if (masked) /* as numbers where it can; who claims no bytes must take it as numbers */
        needs |= how == ATTN_CLAIMS_BAND || !(claims->bits & ATTN_CAP_DENSE) ? given.claim
                                                                             : ATTN_CAP_DENSE;
    if (c->pass == ATTN_BACKWARD)
        needs |= ATTN_CAP_BACKWARD;
    if (c->d_bias)
        needs |= ATTN_CAP_DBIAS;
    if (c->d_lse)
        needs |= ATTN_CAP_DLSE;
    int is_own = c->layout == ATTN_LAYOUT_BHLD || claims->layout >= ATTN_PLUGIN_THD ||
                 (c->layout == attn_claims_layout(claims) && c->only == 0);
    if (route == ATTN_ROUTE_PLUGIN && !is_own)
        needs |= ATTN_CAP_STRIDES;
    int overflows = c->poison == ATTN_POISON_BIG && c->fill == ATTN_FILL_HUGE;
    int leaks = c->special != ATTN_SPECIAL_NONE && masked;
    if (c->poison == ATTN_POISON_NAN || overflows || leaks || c->bias == ATTN_CASE_BIAS_NAN)
        needs |= ATTN_CAP_HARD;
    double usual = p->d_key > 0 ? 1 / sqrt((double)p->d_key) : 1;
    if (!(p->scale == usual))
        needs |= ATTN_CAP_SCALE;
    if (has_empty(claims, s))
        needs |= ATTN_CAP_EMPTY;
    return needs;
}

/* The features of this case that may be declined. */
static unsigned declinable(const struct attn_setup *s, unsigned needs)
{
    const struct attn_case *c = &s->given;
    const struct attn_problem *p = &s->problem;
    unsigned found = c->bias == ATTN_CASE_BIAS_NAN ? ATTN_PLUGIN_NAN_BIAS : 0;
    found |= p->scale <= 0 ? ATTN_PLUGIN_SCALE_0 : 0u;
    found |= c->special != ATTN_SPECIAL_NONE ? ATTN_PLUGIN_NONFINITE : 0u;
    found |= attn_mask_is_none(p->mask) ? ATTN_PLUGIN_UNMASKED : 0u;
    if (c->pass == ATTN_BACKWARD && needs & (ATTN_CAP_CAUSAL | ATTN_CAP_BAND))
        found |= ATTN_PLUGIN_CAUSAL_BACKWARD;
    int poisoned = c->poison == ATTN_POISON_NAN, special = c->special;
    int in_q = poisoned || special == ATTN_SPECIAL_Q_NAN || special == ATTN_SPECIAL_Q_INF;
    int in_do = poisoned || special == ATTN_SPECIAL_DO_NAN || special == ATTN_SPECIAL_DO_INF;
    if (!attn_mask_has_empty_rows(p->mask, p->batch, p->heads, p->n_query, p->n_key))
        return found;
    return found | (in_q ? ATTN_PLUGIN_NAN_Q : 0u) |
           (in_do && c->pass == ATTN_BACKWARD ? ATTN_PLUGIN_NAN_DO : 0u);
}

/* Extents of the case, in the order of the factors.  Windows count where they come as numbers,
 * without the query's own key; -1: there is none. */
static void list_extents(const struct attn_claims *claims, const struct attn_problem *p,
                         int64_t extent[ATTN_EXTENTS])
{
    struct attn_given_mask given;
    int is_band = attn_claims_mask(claims, p, &given) == ATTN_CLAIMS_BAND && given.band.left >= 0;
    int64_t reach = given.band.left - (claims->window == ATTN_PLUGIN_WINDOW_WITH_SELF);
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 1;
    memcpy(extent,
           (const int64_t[ATTN_EXTENTS]){p->d_key, p->d_value, p->heads, group, p->batch,
                                         p->n_query, p->n_key, is_band ? reach : -1},
           ATTN_EXTENTS * sizeof *extent);
}

/* Those that are none of the declared ones; by bit. */
static unsigned other_shapes(const struct attn_claims *claims, const struct attn_problem *p)
{
    int64_t extent[ATTN_EXTENTS];
    unsigned others = 0;
    list_extents(claims, p, extent);
    for (int x = 0; x < ATTN_EXTENTS; x++)
        if (extent[x] >= 0 && !attn_shapes_have(&claims->shapes, x, extent[x]))
            others |= 1u << x;
    return others;
}

static void list_words(unsigned bits, const char *(*name)(int bit), char *text, size_t size)
{
    text[0] = '\0';
    for (int bit = 0; bits >> bit != 0; bit++)
        if (bits & 1u << bit)
            attn_append(text, size, "%s%s", text[0] != '\0' ? ", " : "", name(bit));
}

void attn_claims_want(const struct attn_claims *claims, const struct attn_setup *s,
                      enum attn_route route, struct attn_wants *wants)
{
    wants->needs = attn_claims_needed(claims, s, route);
    wants->missing = wants->needs & ~claims->bits;
    wants->declined = wants->missing == 0 ? declinable(s, wants->needs) & claims->declines : 0;
    wants->shapes = other_shapes(claims, &s->problem);
}

enum attn_status attn_claims_allow(const struct attn_claims *claims, const struct attn_setup *s,
                                   enum attn_route route, unsigned *needs, struct attn_error *err)
{
    char names[256];
    struct attn_given_mask given;
    struct attn_wants wants;
    attn_claims_want(claims, s, route, &wants);
    *needs = wants.needs;
    list_words(wants.missing, attn_cap_name, names, sizeof names);
    if (names[0] != '\0')
        return attn_fail(err, ATTN_ENOTSUP, "not claimed: %s", names);
    list_words(wants.declined, attn_decline_name, names, sizeof names);
    if (names[0] != '\0')
        return attn_fail(err, ATTN_ENOTSUP, "declined: %s", names);
    const char *ours = s->given.threads > 1                          ? "a number of threads"
                       : s->given.bias_type != ATTN_BIAS_TYPE_AS_LSE ? "a bias of another type"
                       : s->given.wide                               ? "a result of another type"
                                                                     : NULL;
    if (ours != NULL && route != ATTN_ROUTE_OWN)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s is not something that an external implementation can be asked for",
                         ours);
    if (*needs & (ATTN_CAP_BAND | ATTN_CAP_CAUSAL) &&
        attn_claims_mask(claims, &s->problem, &given) != ATTN_CLAIMS_BAND)
        return attn_fail(err, ATTN_ENOTSUP, "not claimed: causal or window masks aligned as %s",
                         attn_mask_text(s->problem.mask));
    for (int x = 0; x < ATTN_EXTENTS; x++)
        if (wants.shapes & 1u << x) {
            int64_t extent[ATTN_EXTENTS];
            list_extents(claims, &s->problem, extent);
            attn_shapes_print(&claims->shapes, x, names, sizeof names);
            return attn_fail(err, ATTN_ENOTSUP, "not declared: %s = %lld, but %s",
                             attn_factor[x].name, (long long)extent[x], names);
        }
    return ATTN_OK;
}

enum attn_status attn_claims_allow_case(const struct attn_claims *claims, const struct attn_case *c,
                                        enum attn_route route, struct attn_error *err)
{
    struct attn_setup setup;
    unsigned needs;
    enum attn_status status = attn_setup_describe(c, &setup, err);
    if (status != ATTN_OK)
        return status;
    status = attn_claims_allow(claims, &setup, route, &needs, err);
    attn_setup_close(&setup);
    return status;
}

/* ---- precisions and LSE ---------------------------------------------------------------------- */

#define NUMBER(member, limit)                                                             \
    {                                                                                     \
#member, limit, offsetof(struct attn_claims, member),                             \
            offsetof(struct attn_precision, member), offsetof(struct attn_plugin, member) \
    }
const struct attn_claims_number attn_claims_number[ATTN_CLAIMS_NUMBERS] = {
    NUMBER(u, 0.5),      NUMBER(u_sum, 0.5),    NUMBER(u_q, 0.5),  NUMBER(u_v, 0.5),
    NUMBER(u_s, 0.5),    NUMBER(u_p, 0.5),      NUMBER(u_ds, 0.5), NUMBER(u_partial, 0.5),
    NUMBER(u_head, 0.5), NUMBER(exp_ulps, 1e6), NUMBER(u_dp, 0.5), NUMBER(hidden, 1e300)};

void attn_claims_precision(const struct attn_claims *claims, const struct attn_problem *p,
                           struct attn_precision *x)
{
    static const struct attn_impl plain = {0};
    static const struct attn_options none = {.threads = 1};
    attn_precision_of(&plain, &none, p, x);
    attn_arithmetic_declare(claims->arithmetic, p, x);
    for (int n = 0; n < ATTN_CLAIMS_NUMBERS; n++) {
        double given;
        const struct attn_claims_number *number = &attn_claims_number[n];
        memcpy(&given, (const char *)claims + number->at, sizeof given);
        if (given > 0 && (p->dtype != ATTN_F64 || number->limit > 1))
            memcpy((char *)x + number->to, &given, sizeof given);
    }
    if (x->leans > 1 && claims->u_v > 0 && claims->u_p > 0) /* rounded, then */
        x->leans = 1;
    if (claims->exp_ulps > 0)
        x->other_ulps = claims->exp_ulps;
    if (claims->block > 0)
        x->rescales = (p->n_key + claims->block - 1) / claims->block;
    if (claims->splits > 1) {
        x->merges = claims->splits - 1;
        x->sums = x->sums > claims->splits ? x->sums : claims->splits;
    }
    if (claims->ranks > 0) /* the first block is merged with nothing, which rounds nothing */
        x->merges = x->sums = claims->ranks - 1;
    x->merges += p->sink.given; /* it may come in as a partial result (ref/sink.h) */
    if (claims->subnormals != ATTN_PLUGIN_KEPT)
        attn_precision_flush(p, x);
    /* Two more roundings each way: to base 2, and stored. */
    if (claims->lse == ATTN_PLUGIN_LSE_2)
        x->u_lse *= 5;
    attn_precision_complete(p, x);
    if (claims->subnormals == ATTN_PLUGIN_FLUSHED_16)
        attn_precision_flush_16(p, x);
}

static double convert_lse(const struct attn_claims *claims, double x, double factor)
{
    if (isinf(x))
        return claims->empty_lse == ATTN_PLUGIN_EMPTY_PLUS_INF ? -x : x;
    return claims->lse == ATTN_PLUGIN_LSE_2 ? x * factor : x;
}

/* No key has weight, and no sink. */
static int is_empty(const struct attn_problem *p, const int64_t row[4])
{
    return !attn_problem_sees(p, row[0], row[1], row[2]) &&
           attn_sink_of(p, row[1]) == -(double)INFINITY;
}

double attn_claims_lse_in(const struct attn_claims *claims, const struct attn_problem *p,
                          const int64_t row[4], double theirs)
{
    if (claims->empty_lse == ATTN_PLUGIN_EMPTY_0 && (theirs == 0 || isinf(theirs)) &&
        is_empty(p, row))
        return theirs == 0 ? -(double)INFINITY : 0;
    return convert_lse(claims, theirs, 0.69314718055994530942);
}

double attn_claims_lse_out(const struct attn_claims *claims, double ours)
{
    if (claims->empty_lse == ATTN_PLUGIN_EMPTY_0 && ours == -(double)INFINITY)
        return 0;
    return convert_lse(claims, ours, 1.44269504088896340736);
}

enum attn_status attn_claims_fill_lse(const struct attn_problem *p, const struct attn_cview *q,
                                      const struct attn_cview *k, const struct attn_cview *v,
                                      const struct attn_view *lse, struct attn_error *err)
{
    struct attn_oracle_row row;
    enum attn_status status = attn_oracle_row_alloc(p, &row, err);
    if (status != ATTN_OK)
        return status;
    const int64_t rows[4] = {p->batch, p->heads, p->n_query, 1};
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);) {
        attn_oracle_row_forward(p, q, k, v, at[0], at[1], at[2], &row);
        attn_view_set(lse, at[0], at[1], at[2], 0, row.lse);
    }
    attn_oracle_row_free(&row);
    return ATTN_OK;
}
