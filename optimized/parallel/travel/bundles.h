/* What travels between stops: tensors of a block that go together. */
#ifndef OPTIMIZED_PARALLEL_BUNDLES_H
#define OPTIMIZED_PARALLEL_BUNDLES_H

#include "optimized/parallel/work.h"

/* Which tensors, the wider ones first, so that they stay aligned; and in which type: sums of
 * gradients that follow a block are wide, what returns at once is partial. */
enum attn_bundle {
    ATTN_BUNDLE_KEYS,
    ATTN_BUNDLE_KEY_GRADIENTS,
    ATTN_BUNDLE_QUERIES,
    ATTN_BUNDLE_RESULTS,
    ATTN_BUNDLES
};
int attn_bundle_kinds(enum attn_pass pass, enum attn_bundle what, const enum attn_tag_kind **kinds);
enum attn_dtype attn_work_travel_dtype(const struct attn_work *w, enum attn_tag_kind kind);

#endif
