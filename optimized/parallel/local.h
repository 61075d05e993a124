/* The implementation that a rank runs on its piece of the problem: which, with which options, and
 * what it must be able to do. */
#ifndef OPTIMIZED_PARALLEL_LOCAL_H
#define OPTIMIZED_PARALLEL_LOCAL_H

#include "ref/impl.h"

/* That of local=, or tiled; with its options, for one thread. */
const struct attn_impl *attn_rank_local(const struct attn_options *options);
struct attn_options attn_rank_local_options(const struct attn_options *options);

/* ENOTSUP unless it claims all of these; and all that a backward pass of scheme.h asks of it. */
enum attn_status attn_check_local(const struct attn_options *options, unsigned caps,
                                  struct attn_error *err);
enum attn_status attn_check_local_backward(const struct attn_options *options,
                                           struct attn_error *err);

#endif
