/* Instruction sets: what the kernels of this folder are compiled for, chosen at run time.
 *
 * The library runs on any machine of its architecture; the best set that this one has is taken,
 * unless a spec says otherwise (tiled@avx2) or the environment narrows it (ATTN_ISA=avx2: nothing
 * better than avx2, for every spec without an @; empty is as good as unset).  An unknown name
 * (EINVAL), or one that this machine does not have (ENOTSUP), is an error that lists what there is.
 */
#ifndef OPTIMIZED_SIMD_ISA_H
#define OPTIMIZED_SIMD_ISA_H

#include "ref/impl.h"

struct attn_kernels; /* kernels.h */

struct attn_isa {
    const char *name;                      /* "avx512", "avx2", "neon", "portable" */
    const char *needs;                     /* in words: "AVX-512 F, BW, DQ, VL"    */
    int (*present)(void);                  /* does this machine have it?           */
    const struct attn_kernels *kernels[2]; /* arithmetic in float, in double */
    const char *unit;                      /* its matrix unit, and what that multiplies, or NULL */
};

int attn_isa_count(void); /* those compiled in, best first */
const struct attn_isa *attn_isa_at(int n);

/* The set of this name, if this machine has it; else NULL with a message. */
const struct attn_isa *attn_isa_find(const char *name, size_t length, struct attn_error *err);

/* The instruction set that specs without an @ run on.  NULL, with a message, when ATTN_ISA is no
 * good. */
const struct attn_isa *attn_isa_best(struct attn_error *err);

/* The kernels of a call: those of options->isa, or of the best, for the problem's arithmetic.
 * NULL, with a message, where this machine lacks them, unless they are only priced. */
const struct attn_kernels *attn_kernels_for(const struct attn_problem *p,
                                            const struct attn_options *options,
                                            struct attn_error *err);

/* The kernels' declaration of their arithmetic (attn_impl.precision).  Probabilities below the
 * smallest normal number may be taken for 0.  exp errs by at most 3.3 u (isa_fixture.c); where the
 * running maximum lags, rounding its argument costs 1.4 u more (docs/kernel.md, section 6). */
void attn_kernels_precision(const struct attn_problem *p, const struct attn_options *options,
                            struct attn_precision *precision);

#endif
