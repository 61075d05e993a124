/* Null models: nonsense that looks like attention.  Every case must fail them where they differ
 * from the truth by more than the bound; a case that cannot has no power.
 *
 * To be as hard to tell as possible, a null model has the right LSE (and, but for the zeros and the
 * mean, the right numbers in the wrong places).
 *
 *   zeros      O and all gradients are 0
 *   mean       the unweighted mean of V over the visible keys, and the gradients of that
 *   shuffled   the right rows, each at the place of the one before
 *   neighbour  the right heads, each at the place of the one before
 */
#ifndef TESTS_VARIANTS_NULL_H
#define TESTS_VARIANTS_NULL_H

#include "optimized/registry.h"

enum null_model { NULL_ZEROS, NULL_MEAN, NULL_SHUFFLED, NULL_NEIGHBOUR, NULL_MODELS };
extern const char *const null_model_name[NULL_MODELS];

/* dense, and then nonsense; until the next call. */
struct attn_spec null_spec(enum null_model which);

#endif
