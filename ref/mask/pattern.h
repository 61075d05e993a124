/* Compressed sparse rows: the visible pairs of a problem, written down once.
 *
 * Rows are queries.  The keys that query i sees are column[row_start[r]] ... up to, but without,
 * column[row_start[r + 1]], in increasing order, as indices of the problem's own keys (the origin
 * is already taken off); r = pattern * n_query + i.  Masks that do not vary by batch or head have
 * one pattern for all of them.
 *
 * Memory     8 bytes a row and 4 bytes a visible pair, against 1 to 4 bytes for each of the
 *            n_query * n_key pairs of a dense mask; nothing of size n_query * n_key is made.
 *            A mask that is csr(NAME) has the pattern already: when it speaks of just this problem
 *            and its arrays are of these types, they are borrowed, and nothing is copied.
 * Time       O(nnz): one pass counts the rows, one fills them (Gustavson 1978; CSparse).  A
 *            borrowed pattern takes none.
 * Ledger     "csr.row_start" (int64_t, patterns * n_query + 1), "csr.column" (int32_t, nnz), each
 *            unless it is borrowed.
 */
#ifndef REF_MASK_PATTERN_H
#define REF_MASK_PATTERN_H

#include "ref/attn.h"

struct attn_csr {
    int64_t n_query;
    int64_t batch_step, head_step; /* pattern of (b, h) = b * batch_step + h * head_step */
    int64_t patterns;
    int64_t nnz;        /* visible pairs of all patterns together */
    int64_t *row_start; /* [patterns * n_query + 1], row_start[0] = 0 */
    int32_t *column;    /* [nnz] */
    int borrowed;       /* the mask's own arrays: not to be written to, and not given back */
};

/* One pattern for all, or one for each batch, head, or both, of a row for each query; no arrays. */
struct attn_csr attn_csr_patterns(const struct attn_problem *problem);

/* The batch and the head that a pattern is made for: the first of those that have it. */
int64_t attn_csr_batch(const struct attn_csr *csr, int64_t pattern);
int64_t attn_csr_head(const struct attn_csr *csr, int64_t pattern);

/* Build the pattern of a whole problem from its mask.  Both buffers come from the ledger, or are
 * those of the mask, which must outlive csr; they are the caller's until attn_csr_free.  ENOTSUP
 * when n_key >= 2^31 (columns are 32 bits wide), ENOMEM from the ledger; csr then owns nothing. */
enum attn_status attn_csr_build(const struct attn_problem *problem, struct attn_ledger *ledger,
                                struct attn_csr *csr, struct attn_error *err);

/* Give the buffers back.  A csr that was never built (all zero) is legal. */
void attn_csr_free(struct attn_csr *csr, struct attn_ledger *ledger);

/* The keys that query i of (b, h) sees: points *columns at them, returns how many. */
int64_t attn_csr_row(const struct attn_csr *csr, int64_t b, int64_t h, int64_t i,
                     const int32_t **columns);

/* The memory that attn_csr_build will take, without taking it: adds both accounts to cost and sets
 * cost->counted if the mask has no closed form.  csr is as it would be built, but without arrays.
 * EINVAL when a size exceeds int64, ENOTSUP as above. */
enum attn_status attn_csr_cost(const struct attn_problem *problem, struct attn_cost *cost,
                               struct attn_csr *csr, struct attn_error *err);

/* Visible pairs of all batches and heads: one pattern may serve many of them. */
int64_t attn_csr_pairs(const struct attn_problem *problem, const struct attn_csr *csr);

#endif
