/* All kernels of one instruction set for one arithmetic type, and their table. */
#include "optimized/simd/real_tmpl.h"

#include "optimized/simd/vec_tmpl.h"

#include "optimized/simd/convert_tmpl.h"
#include "optimized/simd/math_tmpl.h"

#include "optimized/simd/rows_io_tmpl.h"

#include "optimized/simd/prefetch_tmpl.h"
#include "optimized/simd/tile_tmpl.h"

#include "optimized/simd/edit_tmpl.h"
#include "optimized/simd/forward_tmpl.h"

#include "optimized/simd/gradient_tmpl.h"

#include "optimized/simd/backward_tmpl.h"
#include "optimized/simd/gemm_tmpl.h"

#include "optimized/simd/rows_tmpl.h"

#include "optimized/simd/split_tmpl.h"

#include "optimized/simd/walk_tmpl.h"

#include "optimized/simd/rows_forward_tmpl.h"

#include "optimized/simd/limits_tmpl.h"
#include "optimized/simd/rows_backward_tmpl.h"

/* The entries of a table beside the tile kernels. */
#undef COMMON_KERNELS
#define COMMON_KERNELS                                                                            \
    .bytes = sizeof(REAL), .lanes = LANES, .panel = PANEL, .widen = FN(widen),                    \
    .narrow = FN(narrow), .has_nan = FN(has_nan), .exp2 = FN(exp2_array), .tanh = FN(tanh_array), \
    .transpose = FN(transpose_square), .split = FN(split), .store_row = FN(emit),                 \
    .load_row = FN(fetch_padded)

#if REAL_BITS == 32
#include "optimized/simd/matrix_tmpl.h"

#include "optimized/simd/matrix_backward_tmpl.h"
#include "optimized/simd/matrix_forward_tmpl.h"

static const struct attn_kernels matrix_kernels = {COMMON_KERNELS,
                                                   .is_matrix = 1,
                                                   .forward = matrix_forward,
                                                   .backward_pack = matrix_backward_pack,
                                                   .backward_begin = matrix_backward_begin,
                                                   .backward_step = matrix_backward_step,
                                                   .backward_end = matrix_backward_end,
                                                   .backward_unpack = matrix_backward_unpack,
                                                   .limit = {matrix_limit, FN(limit_read)}};
#endif

const struct attn_kernels KERNELS_OF(ISA_NAME) = {
    COMMON_KERNELS,
#if REAL_BITS == 32
    .matrix = &matrix_kernels,
#endif
    .forward = FN(forward),
    .backward_pack = FN(backward_pack),
    .backward_begin = FN(backward_begin),
    .backward_step = FN(backward_step),
    .backward_end = FN(backward_end),
    .backward_unpack = FN(backward_unpack),
    .gemm_forward = FN(gemm_forward),
    .gemm_queries = FN(gemm_queries),
    .gemm_keys = FN(gemm_keys),
    .row_forward = FN(row_forward),
    .row_sddmm = FN(row_sddmm),
    .row_softmax = FN(row_softmax_all),
    .row_spmm = FN(row_spmm),
    .row_backward_start = FN(row_backward_start),
    .row_backward_begin = FN(row_backward_begin),
    .row_backward_step = FN(row_backward_step),
    .row_backward_end = FN(row_backward_end),
    .row_backward_finish = FN(row_backward_finish),
    .limit = {FN(limit_fma), FN(limit_read)},
};
