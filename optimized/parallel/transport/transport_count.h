/* A transport that counts messages, for prices and logs: no threads and no data.
 *
 * One rank after another runs its whole code.  A message is done when it is posted, and nothing
 * arrives, so what a rank sends and when can be known for thousands of ranks: prices are compared
 * with it, and logs for pictures are made of it.  Buffers are taken as always, and those that the
 * rank code fills are filled.  A schedule that would deadlock is not found here.
 */
#ifndef OPTIMIZED_PARALLEL_TRANSPORT_COUNT_H
#define OPTIMIZED_PARALLEL_TRANSPORT_COUNT_H

#include "ref/ranks.h"

/* Run `size` ranks, 1 to ATTN_MAX_RANKS, and end with the first that fails.  EPEER when the
 * messages or bytes that all ranks together send are not those that they wait for. */
enum attn_status attn_count_run(int size, const struct attn_rank_code *code,
                                struct attn_error *err);

#endif
