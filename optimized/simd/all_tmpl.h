/* All kernels of one instruction set, in float and in double.  The including file says which:
 *
 *      ISA_NAME    the set's name in isa.c
 *      VEC_BYTES, VEC_FMA_F32, ...    vec_tmpl.h
 *      TILE_ROWS   tile_tmpl.h
 *      F16_TO_VEC, F16_FROM_VEC       convert_tmpl.h; may be left out
 *      ONLY_BITS   32 or 64: the kernels of that arithmetic alone; may be left out
 */
#include <math.h>
#include <string.h>

#include "optimized/simd/kernels.h"
#include "ref/half.h"
#include "ref/mask/pattern.h"
#include "ref/problem.h"

#define PANEL  (ATTN_PANEL_VECTORS * LANES) /* queries */
#define LOG2_E 1.4426950408889634074
#define LN2    0.69314718055994530942

#define JOIN(a, b)       a##b
#define KERNELS(isa, of) JOIN(attn_kernels_##isa, of)
#define KERNELS_OF(isa)  KERNELS(isa, FN())

#if !defined ONLY_BITS || ONLY_BITS == 32
#define REAL_BITS 32
#include "optimized/simd/one_tmpl.h"
#undef REAL_BITS
#endif

#if !defined ONLY_BITS || ONLY_BITS == 64
#define REAL_BITS 64
#include "optimized/simd/one_tmpl.h"
#undef REAL_BITS
#endif
