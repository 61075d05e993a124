/* Relations: what must hold between two runs, whatever the right answer is.
 *
 * A case meets the oracle; a relation compares an implementation with itself, on a problem and the
 * same problem transformed: keys permuted, a scale moved, memory laid out otherwise, the same call
 * again.  It shows what a case cannot (state, placement, index width) and is blind to what both
 * runs share, so relations stand beside the oracle and never replace it.
 *
 * Where two runs need not have the same bits, they may differ by the sum of their own bounds
 * (docs/bounds.md).  Exact are: hidden values, powers of two, columns of V, empty sequences,
 * repeats, threads and history.
 */
#ifndef TESTS_HARNESS_RELATIONS_RELATIONS_H
#define TESTS_HARNESS_RELATIONS_RELATIONS_H

#include "tests/harness/cases/claims.h"
#include "tests/harness/judge/runner.h"

struct attn_relation {
    const char *id;   /* "R1" to "R23" metamorphic, "G1" to "G9" of gradients, "D" determinism,
                         "P" placement, "I" index width                                      */
    const char *ids;  /* the catalogued bugs that it can show                                */
    const char *says; /* one line                                                            */
};
enum { ATTN_RELATION_COUNT = 39 };
extern const struct attn_relation attn_relations[ATTN_RELATION_COUNT];
const struct attn_relation *attn_relation_find(const char *id); /* NULL when there is none */

/* Run one for an implementation, on a ragged shape and on one that ranks can share.  PASS needs
 * one of them to have been compared; REFUSED says what is not claimed.  worst is the largest
 * difference over what was allowed.
 *
 * claims: of an external implementation, which is asked what it claims and nothing else; NULL for
 * ours.  Shapes are made square, of equal widths and without groups where those are not claimed.  A
 * plug-in that refuses one of the runs refuses the relation.  Refused are also what a plug-in has
 * no say in (threads, options, a part of a larger mask) and, unless `repeats` is claimed,
 * everything that compares bits.  Returns the claims that were exercised. */
unsigned attn_relation_run(const struct attn_relation *relation, const struct attn_spec *spec,
                           const struct attn_claims *claims, struct attn_result *result);

#endif
