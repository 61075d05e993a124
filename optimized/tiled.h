/* What `tiled` is made of, for whoever measures it (attnlab bench). */
#ifndef OPTIMIZED_TILED_H
#define OPTIMIZED_TILED_H

#include "ref/attn.h"

/* Keys that a panel of queries meets at a time in this pass, by the plan for these options; 0 where
 * there are no tiles (few queries go by rows) or no kernels. */
int64_t attn_tiled_keys(const struct attn_problem *p, const struct attn_options *options,
                        enum attn_pass pass);

#endif
