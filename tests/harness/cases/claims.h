/* The claims of an external implementation, and the cases that it must therefore be asked.
 *
 * The same declaration serves all three routes: a plug-in has it in its struct (ref/attn_plugin.h),
 * the others in a small JSON file (docs/external.md).
 */
#ifndef TESTS_HARNESS_CASES_CLAIMS_H
#define TESTS_HARNESS_CASES_CLAIMS_H

#include "ref/attn_plugin.h"
#include "tests/harness/cases/band.h"
#include "tests/harness/cases/shapes.h"
#include "tests/harness/inputs/setup.h"

struct attn_claims {
    char name[64];
    unsigned bits;                                    /* enum attn_cap; BAND has CAUSAL       */
    unsigned declines;                                /* enum attn_plugin_decline       */
    int lse, empty_lse, causal, window, layout, byte; /* conventions of attn_plugin.h   */
    int subnormals;                                   /* enum attn_plugin_subnormals    */
    int arithmetic;                                   /* a set of arithmetic.def        */
    /* 0: as the set has it */
    double u, u_sum, u_q, u_v, u_s, u_dp, u_p, u_ds, u_partial, u_head, exp_ulps, hidden;
    int64_t block, splits;
    int64_t page;      /* tokens of a page; 0: 16, 64 or 256, by the seed of the case */
    int64_t long_keys; /* our own: the most keys that a case of the full tier may have; 0: as others
                          do, as many as are declared (attn_claims_long_keys) */
    int ranks;         /* of a plug-in that is one rank of several; 0: it is not */
    struct attn_shapes shapes;
};

/* Where a declaration's numbers are kept, under the names of struct attn_precision. */
struct attn_claims_number {
    const char *key;
    double limit;             /* below which it must be */
    size_t at, to, of_plugin; /* the double in struct attn_claims, attn_precision, attn_plugin */
};
enum { ATTN_CLAIMS_NUMBERS = 12 };
extern const struct attn_claims_number attn_claims_number[ATTN_CLAIMS_NUMBERS];

/* 1: documents one behind the other, with padding between them or without. */
static inline int attn_claims_are_packed(const struct attn_claims *claims)
{
    return claims->layout == ATTN_PLUGIN_THD || claims->layout == ATTN_PLUGIN_THD_PADDED;
}

enum {
    ATTN_DECLINES = 8,
    ATTN_FEW_SHAPES = 40, /* cases in a tier, or a soak, where "few-shapes" is declined */
};
/* By bit. */
const char *attn_decline_name(int bit); /* "nan-bias", "nan-q", "nan-do" */

/* attn_claims_all: everything that can be claimed.  attn_claims_of_impl: the claims of one of our
 * own, which are its capabilities, every mask, and its shapes. */
void attn_claims_all(struct attn_claims *claims);
void attn_claims_of_impl(const struct attn_impl *impl, const struct attn_options *options,
                         struct attn_claims *claims);

/* The other way: an implementation with these claims, but for its functions.  It is asked for
 * nothing that is not claimed (attn_claims_allow), so all is claimed here; it is not on our ledger,
 * so its price is nothing. */
struct attn_impl attn_claims_impl(const struct attn_claims *claims, const char *summary,
                                  const char *family);

/* The most keys that are declared, no more than 2^17: how long the long cases of the full tier may
 * be.  0: none are declared. */
int64_t attn_claims_long_keys(const struct attn_claims *claims);

/* The declaration of a plug-in, checked.  EINVAL with one line. */
enum attn_status attn_claims_of_plugin(const struct attn_plugin *plugin, struct attn_claims *claims,
                                       struct attn_error *err);

/* The declaration in a file, or in a text (`path` is for messages). */
enum attn_status attn_claims_read(const char *path, struct attn_claims *claims,
                                  struct attn_error *err);
enum attn_status attn_claims_parse(const char *path, const char *text, struct attn_claims *claims,
                                   struct attn_error *err);

/* Set the seven conventions in a JSON object, key and word, as a declaration has them. */
void attn_claims_conventions(const struct attn_claims *claims, void *json_object);

/* The same as JSON text, malloc'ed; NULL without memory.  Parses back to the same claims. */
char *attn_claims_print(const struct attn_claims *claims);

/* The layout of a case whose tensors lie as declared (packed batches: of the case before it is
 * packed). */
enum attn_case_layout attn_claims_layout(const struct attn_claims *claims);

/* The claims that this case asks for.  A mask is a band where the claims can take it as one. */
unsigned attn_claims_needed(const struct attn_claims *claims, const struct attn_setup *setup,
                            enum attn_route route);

/* All by bit: the claims that a case needs; those of them that are missing; where none is missing,
 * what the case has that is declined; extents (factors.h) that are not declared. */
struct attn_wants {
    unsigned needs, missing, declined, shapes;
};
void attn_claims_want(const struct attn_claims *claims, const struct attn_setup *setup,
                      enum attn_route route, struct attn_wants *wants);

/* ENOTSUP, with what is not claimed or is declined, when the case must not be asked; *needs as
 * above. */
enum attn_status attn_claims_allow(const struct attn_claims *claims, const struct attn_setup *setup,
                                   enum attn_route route, unsigned *needs, struct attn_error *err);

/* The same of a case that is not set up; what attn_setup_describe says too. */
enum attn_status attn_claims_allow_case(const struct attn_claims *claims, const struct attn_case *c,
                                        enum attn_route route, struct attn_error *err);

/* How a mask is given: not at all, in numbers, or as bytes. */
enum attn_claims_mask { ATTN_CLAIMS_NO_MASK, ATTN_CLAIMS_BAND, ATTN_CLAIMS_BYTES };
struct attn_given_mask {
    struct attn_band band; /* in the claims' own counting, inside each document of a packed batch */
    unsigned claim; /* that it needs: CAUSAL or BAND if it is one, whatever is claimed; DENSE */
    struct attn_documents documents; /* of the mask, where they become documents of a packed batch
                                        and so vanish from it; or none */
    int is_self;     /* 0: some of these have other numbers of queries than of keys */
    int has_lengths; /* of K and V in pages: they end where attn_mask_length says, else at Lk */
    int is_ends;     /* 1: the last query of each batch stands at that end */
};
enum attn_claims_mask attn_claims_mask(const struct attn_claims *claims,
                                       const struct attn_problem *problem,
                                       struct attn_given_mask *given);

/* The declared precisions, for the bound: those of the set, then the numbers beside it. */
void attn_claims_precision(const struct attn_claims *claims, const struct attn_problem *problem,
                           struct attn_precision *precision);

/* LSE between the claims' convention and attnlab's (natural, -inf for an empty row), of the row
 * [b, h, i]; infinities of the wrong sign come out wrong on purpose. */
double attn_claims_lse_in(const struct attn_claims *claims, const struct attn_problem *problem,
                          const int64_t row[4], double theirs);
double attn_claims_lse_out(const struct attn_claims *claims, double ours);

/* Change a case to one that may be asked of code with only causal masks, no causal gradient or one
 * scale. */
void attn_case_narrow(const struct attn_claims *claims, struct attn_case *c);

/* An LSE from the oracle, for implementations that have none. */
enum attn_status attn_claims_fill_lse(const struct attn_problem *problem,
                                      const struct attn_cview *q, const struct attn_cview *k,
                                      const struct attn_cview *v, const struct attn_view *lse,
                                      struct attn_error *err);

#endif
