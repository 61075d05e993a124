/* The three textbooks: ref/dense.c, ref/csr.c and ref/tiled.c.
 *
 * Each is an algorithm for one (batch, head).  It is given every tensor as BLAS is given a matrix:
 * a base pointer and the distance between rows.  ref/textbook.c calls it for all batches and heads;
 * only that file knows layouts, storage types and the ledger.  ref/real.h has what all three use.
 */
#ifndef REF_TEXTBOOK_H
#define REF_TEXTBOOK_H

#include <string.h>

#include "ref/impl.h"
#include "ref/mask/pattern.h"
#include "ref/trace.h"

/* A matrix.  Row i begins at element i * ld of data; the elements of a row are adjacent.  They are
 * float or double, as the arithmetic is (`real` in ref/real.h). */
struct attn_matrix {
    void *data;
    int64_t ld;
};

/* One (batch, head). */
struct attn_head {
    const struct attn_problem *problem;
    int64_t b, h; /* its indices: masks and biases ask for them */
    int64_t n_query, n_key, d, dv;
    struct attn_matrix Q, K, V;       /* [Lq,d] [Lk,d] [Lk,dv]                                   */
    struct attn_matrix O, lse;        /* [Lq,dv] [Lq]: forward writes them, backward reads them  */
    struct attn_matrix dO, dlse;      /* [Lq,dv] [Lq]; dlse.data is NULL where there is none     */
    struct attn_matrix dQ;            /* [Lq,d], to be written                                   */
    struct attn_matrix dK, dV;        /* [Lk,d] [Lk,dv], to be added to: the query heads that
                                      share a kv head add up                                  */
    const struct attn_view *dbias;    /* to be added to; NULL: not asked for                     */
    const double *sink;               /* z, NULL: none */
    double *dsink;                    /* to be added to; NULL: not asked for */
    const struct attn_tracer *tracer; /* NULL: none */
    int rank, hop;                    /* of ring and Ulysses, for the tracer */
};

/* A mask as a framework stores it: one cell for each pair, of one of several types. */
struct attn_dense_mask {
    char *data;               /* [Lq,Lk] cells; NULL: every pair is visible */
    int64_t n_key, size;      /* bytes of a cell                            */
    char shown[8], hidden[8]; /* its contents                               */
};

static inline int attn_dense_mask_allows(const struct attn_dense_mask *mask, int64_t i, int64_t j)
{
    if (mask->data == NULL)
        return 1;
    const char *cell = mask->data + (i * mask->n_key + j) * mask->size;
    return mask->size == 1 ? *cell != 0 : memcmp(cell, mask->hidden, (size_t)mask->size) != 0;
}

/* The buffers of one (batch, head).  Of pairs, forward has S and P; backward P, dS and slope
 * [1,Lk].  They are the first of both textbooks that have them. */
struct attn_pair_buffers {
    struct attn_matrix S, P, dS, slope;
};

struct attn_dense_buffers {
    struct attn_pair_buffers pairs; /* [Lq,Lk] */
    struct attn_dense_mask mask;
    struct attn_matrix lines; /* where S, P and dS are stored narrower than the arithmetic: [2,Lk],
                                 two rows to work in; else no data, ld 0 */
    enum attn_dtype stored;   /* how they are stored then                */
};

struct attn_csr_buffers {
    struct attn_pair_buffers pairs; /* one element for each visible pair, ld = 1 */
    const struct attn_csr *csr;     /* the visible pairs                         */
};

struct attn_tiled_buffers {
    int64_t br, bc;                   /* queries and keys in a tile                           */
    struct attn_matrix Q, K, V, S;    /* [Br,d] [Bc,d] [Bc,dv] [Br,Bc]                        */
    struct attn_matrix O, m, l;       /* forward: [Br,dv] [Br] [Br]                           */
    struct attn_matrix slope;         /* backward: [Br,Bc]                                    */
    struct attn_matrix dO, dK, dV, D; /* backward: [Br,dv] [Bc,d] [Bc,dv] [Lq]                */
};

/* One pass over one (batch, head), in float and in double. */
typedef void attn_dense_pass(const struct attn_head *x, const struct attn_dense_buffers *w);
typedef void attn_csr_pass(const struct attn_head *x, const struct attn_csr_buffers *w);
typedef void attn_tiled_pass(const struct attn_head *x, const struct attn_tiled_buffers *t);
attn_dense_pass attn_dense_forward_f32, attn_dense_forward_f64, attn_dense_backward_f32,
    attn_dense_backward_f64;
attn_csr_pass attn_csr_forward_f32, attn_csr_forward_f64, attn_csr_backward_f32,
    attn_csr_backward_f64;
attn_tiled_pass attn_tiled_forward_f32, attn_tiled_forward_f64, attn_tiled_backward_f32,
    attn_tiled_backward_f64;

extern const struct attn_impl attn_impl_dense, attn_impl_csr_textbook, attn_impl_tiled_textbook;

#endif
