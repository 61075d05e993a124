/* The kernels for any machine: vectors of 16 bytes, which compilers map to whatever there is, and
 * a product that is rounded before it is added. */
#define ISA_NAME  portable
#define VEC_BYTES 16
#define TILE_ROWS 4

#define VEC_FMA_F32(a, b, c) ((a) * (b) + (c))
#define VEC_FMA_F64(a, b, c) ((a) * (b) + (c))
#define VEC_MAX_F32(a, b)    choose_f32((ivec_f32)((a) > (b)), (a), (b))
#define VEC_MAX_F64(a, b)    choose_f64((ivec_f64)((a) > (b)), (a), (b))
#define VEC_MIN_F32(a, b)    choose_f32((ivec_f32)((a) < (b)), (a), (b))
#define VEC_MIN_F64(a, b)    choose_f64((ivec_f64)((a) < (b)), (a), (b))

#include "optimized/simd/all_tmpl.h"
