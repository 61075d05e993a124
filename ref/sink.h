/* A learned sink around an implementation that knows none.
 *
 * The sink z of a head is a partial result of one more key: (0, z) in the words of ref/merge.h.  So
 * one step brings it into any result, and one step makes a backward pass right:
 *
 *      forward    LSE' = ln(exp LSE + exp z)      O' = exp(LSE - LSE') O
 *      backward   P = exp(S - LSE') and D = dO . O' - dLSE are those of the row with its sink: the
 *                 implementation gets LSE' and O' in the place of LSE and O, and nothing else
 *                 changes.  dz = - sum over batches and queries of exp(z - LSE') D
 *
 * A row in which no key has weight has LSE' = z, a finite number, by which implementations would
 * take it for a row with keys and read its dO.  So they get -inf for it, in a copy of LSE'.  Its D
 * is -dLSE.  Such rows are found by mask and bias: any row may have LSE' = z.
 *
 * Memory     backward: the copy of LSE', on the ledger as "sink.lse".
 * Rounding   as of one more merge; O is stored twice (attn_precision.again).
 * Sources    gpt-oss, 2025; Xiao et al. 2023 (attention sinks); FlashAttention, PR 2706.
 */
#ifndef REF_SINK_H
#define REF_SINK_H

#include "ref/buffers.h"
#include "ref/problem.h"

/* z of a head, in the problem's own numbers; -inf: it has none. */
double attn_sink_of(const struct attn_problem *problem, int64_t h);

/* One row of results gets its sink; returns exp(LSE - LSE'), what everything that was normalised by
 * its sum is to be multiplied by. */
double attn_sink_row_forward(const struct attn_view *o, const struct attn_view *lse,
                             const int64_t at[3], int64_t d_value, double z);

/* The term of a row in dz; 0 where z is -inf.  sees: some key has weight (attn_problem_sees). */
double attn_sink_row_backward(const struct attn_backward *t, const int64_t at[3], int64_t d_value,
                              double z, int sees);

/* All rows after a forward pass of ctx; its saved data are weighed. */
void attn_sink_forward(const struct attn_ctx *ctx, const struct attn_impl *impl,
                       const struct attn_problem *problem, const struct attn_forward *t);

/* All rows before a backward pass: dsink, where it is asked for, and the copy of LSE' in lse, which
 * has room for batch * heads * n_query numbers of its type. */
void attn_sink_backward(const struct attn_problem *problem, const struct attn_backward *t,
                        void *lse);

static inline struct attn_buffer attn_sink_lse(const struct attn_problem *problem, int64_t rows)
{
    return attn_buffer_of("sink.lse", rows, 1, (int64_t)attn_dtype_size(attn_lse_dtype(problem)));
}

#endif
