/* The input of a textbook of sequence parallelism: one rank of R, with its part of each tensor.
 *
 * The sequence is cut into R equal runs, and rank r has the r-th of them: tokens [r n, (r+1) n).
 * ref/ring.c and ref/ulysses.c are what one rank does.  They know no other rank but by messages
 * (ref/ranks.h): the same code runs in threads and in processes of MPI.  All memory is handed in by
 * optimized/parallel/textbooks.c, which has taken it from the rank's ledger.
 */
#ifndef REF_RANK_PART_H
#define REF_RANK_PART_H

#include "ref/ranks.h"
#include "ref/textbook.h"

/* Numbers are float or double, as the arithmetic is (`real` in ref/real.h). */
struct attn_rank_part {
    const struct attn_problem *whole;
    struct attn_transport *transport; /* its rank, and how many there are */
    struct attn_error *error;
    const struct attn_tracer *tracer; /* NULL: none */
    int64_t n_query, n_key;           /* tokens of a rank: Lq / R and Lk / R */
    int64_t size;                     /* bytes of a number */

    /* Its part of each tensor, contiguous: q o do dq [B,H,n_query,width], k v dk dv
     * [B,G,n_key,width], lse [B,H,n_query].  mine[ATTN_TAG_DELTA] is dLSE here, NULL where none is
     * given: the textbooks make D themselves. */
    void *mine[ATTN_TAG_KINDS];

    /* Ring: space for K and V of another rank, one behind the other, twice, because one pair leaves
     * while the next one comes; the same for dK and dV; what one head gets from one block. */
    void *pair[2], *gradients[2];
    void *o_block, *lse_block, *dq_block; /* [n_query,dv] [n_query] [n_query,d] */

    /* Ulysses: tensors of the rank's heads and all tokens, [B,H/R,L,width]; -D of its tokens,
     * [B,H,n_query]; one row of zeros, [dv]. */
    void *heads[ATTN_TAG_KINDS];
    void *minus_d, *zeros;

    struct attn_tiled_buffers tile; /* of ref/tiled.c */
};

/* One pass on one rank.  It fails as the first post or wait that fails. */
typedef enum attn_status attn_rank_pass(const struct attn_rank_part *x);
attn_rank_pass attn_ring_forward_f32, attn_ring_forward_f64, attn_ring_backward_f32,
    attn_ring_backward_f64, attn_ulysses_forward_f32, attn_ulysses_forward_f64,
    attn_ulysses_backward_f32, attn_ulysses_backward_f64;

/* Head h of batch b of a tensor [B,heads,n,width]; of none, a matrix without data. */
static inline struct attn_matrix attn_rank_head(const struct attn_rank_part *x, void *tensor,
                                                int64_t heads, int64_t b, int64_t h, int64_t n,
                                                int64_t width)
{
    int64_t first = (b * heads + h) * n * width;
    return (struct attn_matrix){tensor == NULL ? NULL : (char *)tensor + first * x->size, width};
}

#endif
