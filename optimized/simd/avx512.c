/* The kernels for AVX-512 F, BW, DQ, VL. */
#if defined __x86_64__
#define ISA_NAME avx512
#include "optimized/simd/avx512_vec.h"

#include "optimized/simd/all_tmpl.h"
#else
typedef int attn_not_this_architecture;
#endif
