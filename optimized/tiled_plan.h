/* The plan of a forward pass of `tiled`: how the work is cut into units, and their memory. */
#ifndef OPTIMIZED_TILED_PLAN_H
#define OPTIMIZED_TILED_PLAN_H

#include "optimized/decode.h"
#include "optimized/parts.h"
#include "optimized/simd/workspace.h"

/* The options of `tiled`. */
enum { ATTN_TILED_PARTS, ATTN_TILED_PANELS, ATTN_TILED_RESCALE, ATTN_TILED_FEW, ATTN_TILED_P };

/* The kernels of a call, by its instruction set and p=; NULL, with a message, as
 * attn_kernels_for. */
const struct attn_kernels *attn_tiled_kernels(const struct attn_problem *p,
                                              const struct attn_options *opt,
                                              struct attn_error *err);

/* A unit is a block of queries of one (batch, head) against one part of the keys.  Blocks and parts
 * follow from problem and spec; threads only share units out. */
struct attn_tiled_plan {
    const struct attn_kernels *kernels;
    int threads;
    int64_t parts, part;   /* of the keys: how many, keys in each                             */
    int64_t panels;        /* in a block of queries                                            */
    int64_t block, blocks; /* queries in a block, blocks in (batch, head)                      */
    double rescale_at;
    int few; /* decode.h does it */
    struct attn_decode decode;
    int64_t units; /* batch * heads * blocks * parts                                   */
};

enum attn_status attn_tiled_plan_make(const struct attn_problem *p, const struct attn_options *opt,
                                      struct attn_tiled_plan *plan, struct attn_error *err);

/* Each thread's workspace, then the parts, where there are several. */
enum { ATTN_TILED_BUFFERS = ATTN_WORKSPACES + ATTN_PARTS };
void attn_tiled_buffers(const struct attn_problem *p, const struct attn_tiled_plan *x,
                        struct attn_buffer buffer[ATTN_TILED_BUFFERS]);

#endif
