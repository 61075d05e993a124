/* Tensors that the mask of a case names, made up from the name.
 *
 *   AXES PERCENT    dense(bhqk50), keys(k25), csr(qk10)
 *
 * AXES out of b h q k, in this order, k always there; the tensor varies along these and is
 * broadcast along the rest.  A cell is visible with PERCENT in a hundred, by the case's seed:
 * dense(qk50) and csr(qk50) are the same mask.  Widths, and the values that mean "visible",
 * differ from name to name on purpose: 1 in 1 byte, 256 in 4, 2^32 in 8.
 */
#ifndef TESTS_HARNESS_CASES_SETUP_MASK_H
#define TESTS_HARNESS_CASES_SETUP_MASK_H

#include "ref/mask/mask.h"
#include "tests/harness/inputs/case.h"

struct attn_made_tensor {
    struct attn_made_tensor *next;
    struct attn_mask_tensor tensor;
    _Alignas(16) unsigned char data[];
};

struct attn_mask_maker {
    const struct attn_case *c;
    struct attn_made_tensor **made; /* new ones are put in front of this list */
};

/* As struct attn_mask_source wants it; arg is a struct attn_mask_maker. */
enum attn_status attn_made_tensor_find(void *arg, const char *name, const char *part,
                                       struct attn_mask_tensor *tensor, struct attn_error *err);
void attn_made_tensor_free(struct attn_made_tensor *first);

#endif
