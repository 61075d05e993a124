/* The kernels for AVX2, FMA, F16C. */
#if defined __x86_64__
#include <immintrin.h>

#define ISA_NAME  avx2
#define VEC_BYTES 32
#define TILE_ROWS 4

#define VEC_FMA_F32(a, b, c) ((vec_f32)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define VEC_FMA_F64(a, b, c) ((vec_f64)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define VEC_MAX_F32(a, b)    ((vec_f32)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define VEC_MAX_F64(a, b)    ((vec_f64)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define VEC_MIN_F32(a, b)    ((vec_f32)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define VEC_MIN_F64(a, b)    ((vec_f64)_mm256_min_pd((__m256d)(a), (__m256d)(b)))

/* The rounding is the instruction's, not MXCSR's. */
#define F16_TO_VEC(h)   ((vec_f32)_mm256_cvtph_ps((__m128i)(h)))
#define F16_FROM_VEC(x) ((halves_f32)_mm256_cvtps_ph((__m256)(x), _MM_FROUND_TO_NEAREST_INT))

#include "optimized/simd/all_tmpl.h"
#else
typedef int attn_not_this_architecture;
#endif
