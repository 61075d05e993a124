/* Somebody else's matrix product, where the machine has one: the rate that good kernels reach on
 * the problem that everybody has tuned.  Loaded when asked for; nothing here is linked to it.
 *
 * A BLAS chooses its kernels by the model of the processor, and one that does not know the model
 * takes its slowest (OpenBLAS 0.3.21: SSE3, a fifth of the rate).  So it is told which to take, and
 * asked which it took.
 */
#ifndef EXPERIMENTS_BENCH_BENCH_BLAS_H
#define EXPERIMENTS_BENCH_BENCH_BLAS_H

#include <stdint.h>

#include "ref/attn.h"

struct attn_blas {
    void *handle;     /* NULL: none */
    char name[64];    /* "OpenBLAS", "BLIS", "MKL", or the file's name         */
    char kernels[96]; /* as it says itself, or "it does not say"                */
    char doubt[160];  /* "" when the kernels are those that this machine should have */
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*set_threads)(int n); /* NULL: it has one, or cannot be told */
};

/* choice: "auto" (the first of the usual names that is there), or a file.  isa: what its kernels
 * should be made for, "avx512" or "avx2".  Before its threads are started: sets environment
 * variables.  ENOTSUP: there is none, or it is none. */
enum attn_status attn_blas_open(const char *choice, const char *isa, struct attn_blas *blas,
                                struct attn_error *err);

/* C = A B or A B^T, row by row; a [m,k], b [k,n] or [n,k], c [m,n]. */
void attn_blas_product(const struct attn_blas *blas, int transposed, int m, int n, int k,
                       const float *a, const float *b, float *c);

#endif
