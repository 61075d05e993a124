/* The workspace of the kernels: the buffers of a pass, as tables (ref/buffers.h).  Their layout
 * stands in simd/kernels.h, beside the names of the entries. */
#ifndef OPTIMIZED_SIMD_WORKSPACE_H
#define OPTIMIZED_SIMD_WORKSPACE_H

#include "optimized/simd/kernels.h"
#include "ref/buffers.h"

/* n numbers, as whole vectors of these kernels. */
static inline int64_t attn_whole_vectors(const struct attn_kernels *kernels, int64_t n)
{
    return (n + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
}

/* A share for each thread: blocks of `panels` panels of queries. */
void attn_forward_buffers(const struct attn_kernels *kernels, const struct attn_problem *p,
                          int64_t threads, int64_t panels, struct attn_buffer ws[ATTN_WORKSPACES]);

/* The state of `panels` panels of queries; a share for each thread: blocks of `keys` keys. */
void attn_backward_buffers(const struct attn_kernels *kernels, const struct attn_problem *p,
                           int64_t panels, int64_t threads, int64_t keys,
                           struct attn_buffer state[ATTN_STATES], struct attn_buffer ws[ATTN_BACK]);

/* A share for each thread: jobs of `rows` (head, query) pairs. */
void attn_split_buffers(const struct attn_kernels *kernels, const struct attn_problem *p,
                        int64_t threads, int64_t rows,
                        struct attn_buffer ws[ATTN_SPLIT_WORKSPACES]);

/* Numbers of a thread, in whole 64 bytes: row_forward and its three steps, for jobs of `rows` rows;
 * row_backward, for chunks of `keys` keys. */
int64_t attn_row_numbers(const struct attn_kernels *kernels, const struct attn_problem *p,
                         int64_t rows);
int64_t attn_row_backward_numbers(const struct attn_kernels *kernels, const struct attn_problem *p,
                                  int64_t keys);

#endif
