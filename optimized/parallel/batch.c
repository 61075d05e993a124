/* batch: data parallelism, as a measure for the others.  Every rank has some batches, and nothing
 * is exchanged.  A batch of one cannot be divided: that is what sequence parallelism is for.
 *
 * Memory   what the local implementation takes for the rank's batches.
 * Sent     nothing.
 */
#include "optimized/parallel/sent.h"

static const struct attn_scheme batch = {.home = attn_layout_of_batches,
                                         .work = attn_layout_of_batches};

ATTN_SCHEME(batch, batch, attn_parallel_options, "data parallel: some batches on each rank")
