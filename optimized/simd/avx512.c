/* The kernels for AVX-512 F, BW, DQ, VL.  Those for AMX are this text too (amx.c). */
#if defined __x86_64__
#include <immintrin.h>

#ifndef ISA_NAME
#define ISA_NAME avx512
#endif
#define VEC_BYTES 64
#define TILE_ROWS 8

#define VEC_FMA_F32(a, b, c) ((vec_f32)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define VEC_FMA_F64(a, b, c) ((vec_f64)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define VEC_MAX_F32(a, b)    ((vec_f32)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define VEC_MAX_F64(a, b)    ((vec_f64)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define VEC_MIN_F32(a, b)    ((vec_f32)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define VEC_MIN_F64(a, b)    ((vec_f64)_mm512_min_pd((__m512d)(a), (__m512d)(b)))

/* math_tmpl.h, exp2: x - floor(x), and p * 2^floor(x). */
#define VEC_REST_F32(x)     ((vec_f32)_mm512_reduce_ps((__m512)(x), _MM_FROUND_TO_NEG_INF))
#define VEC_REST_F64(x)     ((vec_f64)_mm512_reduce_pd((__m512d)(x), _MM_FROUND_TO_NEG_INF))
#define VEC_SCALE_F32(p, x) ((vec_f32)_mm512_scalef_ps((__m512)(p), (__m512)(x)))
#define VEC_SCALE_F64(p, x) ((vec_f64)_mm512_scalef_pd((__m512d)(p), (__m512d)(x)))

/* F16C's conversions; the rounding is the instruction's, not MXCSR's. */
#define F16_TO_VEC(h)   ((vec_f32)_mm512_cvtph_ps((__m256i)(h)))
#define F16_FROM_VEC(x) ((halves_f32)_mm512_cvtps_ph((__m512)(x), _MM_FROUND_TO_NEAREST_INT))

#include "optimized/simd/all_tmpl.h"
#else
typedef int attn_not_this_architecture;
#endif
