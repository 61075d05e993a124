/* What the kernels of one instruction set must do, number by number.  Neither Check nor GSL: the
 * suite `isa` calls it, and so does the runner for arm64 (tests/arm64/runner.c).
 *
 * Each returns 1, or 0 with one line in text.  step: every so manieth float; 1 is all of them. */
#ifndef TESTS_ISA_LAB_H
#define TESTS_ISA_LAB_H

#include <stdint.h>

#include "optimized/simd/isa.h"
#include "optimized/simd/kernels.h"

enum { ISA_LAB_TEXT = 400 };

/* Errors allowed in the units of isa_lab_exp2 and isa_lab_tanh: what was measured over every float
 * of every instruction set, in the next tenth (float: all 2^32; double: some millions). */
#define ISA_LAB_EXP2_U 3.3
#define ISA_LAB_TANH_U 2.0

/* Sizes, and every entry there. */
int isa_lab_table(const struct attn_kernels *k, char *text);

/* 16-bit numbers, all of them, and floats and doubles, to and from the arithmetic type: the bits of
 * ref/half.h and of the compiler's own conversions, in whatever rounding mode for 16 bits. */
int isa_lab_widen(const struct attn_kernels *k, char *text);
int isa_lab_narrow(const struct attn_kernels *k, uint64_t step, char *text);

/* 0, 1, 2 ... numbers, from and to any address: no byte beside them is touched, and the bits do not
 * depend on where a number stands. */
int isa_lab_edges(const struct attn_kernels *k, char *text);

/* Relative error in u, half the spacing at 1, of the table's exp2 where the result is a normal
 * number, and of tanh; and their values at the ends, at 0, at infinities and NaN.  *worst: the
 * largest error that was seen. */
int isa_lab_exp2(const struct attn_kernels *k, uint64_t step, double *worst, char *text);
int isa_lab_tanh(const struct attn_kernels *k, uint64_t step, double *worst, char *text);

int isa_lab_transpose(const struct attn_kernels *k, char *text);

#endif
