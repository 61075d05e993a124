/* The kernels for Advanced SIMD, which every arm64 has. */
#if defined __aarch64__
#include <arm_neon.h>

#define ISA_NAME  neon
#define VEC_BYTES 16
#define TILE_ROWS 8

#define VEC_FMA_F32(a, b, c) \
    ((vec_f32)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define VEC_FMA_F64(a, b, c) \
    ((vec_f64)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))

/* FMAX and FMIN make NaN of any NaN; here the second operand is wanted. */
#define VEC_MAX_F32(a, b) choose_f32((ivec_f32)((a) > (b)), (a), (b))
#define VEC_MAX_F64(a, b) choose_f64((ivec_f64)((a) > (b)), (a), (b))
#define VEC_MIN_F32(a, b) choose_f32((ivec_f32)((a) < (b)), (a), (b))
#define VEC_MIN_F64(a, b) choose_f64((ivec_f64)((a) < (b)), (a), (b))

/* Widening is exact.  FCVTN rounds as FPCR says, so narrowing is left to integers. */
#define F16_TO_VEC(h) ((vec_f32)vcvt_f32_f16((float16x4_t)(h)))

#include "optimized/simd/all_tmpl.h"
#else
typedef int attn_not_this_architecture;
#endif
