/* The kernels for AVX-512 with AMX, the matrix unit of Xeons since 2023.  All are those of avx512.c
 * but for the products of matrix_tmpl.h.
 *
 * AMX has eight tile registers of 16 rows of 64 bytes.  An instruction names them by literals; how
 * many rows and bytes of each are in use is configured once for a job, and given back after it: a
 * thread whose tiles are in use costs the operating system 8 KiB at every switch.
 *
 *      tiles 0 1 2   C   [16][16] float, one for each vector of columns
 *      tile  3       A   [16][32] bf16               tile 5   [16][16], for the last 16 of k
 *      tile  4       B   [16 pairs][16 columns]      tile 6   [8 pairs][16 columns]
 *
 * A step loads A once and B three times for three products: products take 16 cycles each, loads 8.
 * Subnormal operands and sums count as 0; sums are rounded to nearest.
 * Source   Intel Architecture Instruction Set Extensions, ch. 3 (TDPBF16PS). */
#if defined __x86_64__
#define ISA_NAME amx
#include "optimized/simd/avx512_vec.h"

#include <stdint.h>

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t rows[16];
};

static inline void amx_begin(void)
{
    static const struct amx_config config = {.palette = 1,
                                             .bytes = {64, 64, 64, 64, 64, 32, 64},
                                             .rows = {16, 16, 16, 16, 16, 16, 8}};
    _tile_loadconfig(&config);
}

/* The compiler does not know that a tile load reads memory: nothing may move across. */
#define AMX_FENCE() __asm__ volatile("" ::: "memory")

/* Column tile n of a step of k. */
#define AMX_STEP(n, a, b, from)                                 \
    _tile_loadd(b, (from) + 16 * (n), (size_t)b_step * 4); \
    _tile_dpbf16ps(n, a, b)

/* matrix_product of matrix_tmpl.h, with so many column tiles: a constant, 1 to 3. */
static inline __attribute__((always_inline)) void
amx_columns(int tiles, const uint16_t *A, int64_t a_step, const uint32_t *B, int64_t b_step,
            int64_t k, float *C, int64_t c_step, int adds)
{
    size_t c_bytes = (size_t)c_step * 4, a_bytes = (size_t)a_step * 2;
    int64_t c = 0;
    AMX_FENCE();
    if (adds) {
        _tile_loadd(0, C, c_bytes);
        if (tiles > 1)
            _tile_loadd(1, C + 16, c_bytes);
        if (tiles > 2)
            _tile_loadd(2, C + 32, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
    }
    for (; c + 32 <= k; c += 32) {
        const uint32_t *pairs = B + c / 2 * b_step;
        _tile_loadd(3, A + c, a_bytes);
        AMX_STEP(0, 3, 4, pairs);
        if (tiles > 1) {
            AMX_STEP(1, 3, 4, pairs);
        }
        if (tiles > 2) {
            AMX_STEP(2, 3, 4, pairs);
        }
    }
    if (c < k) {
        const uint32_t *pairs = B + c / 2 * b_step;
        _tile_loadd(5, A + c, a_bytes);
        AMX_STEP(0, 5, 6, pairs);
        if (tiles > 1) {
            AMX_STEP(1, 5, 6, pairs);
        }
        if (tiles > 2) {
            AMX_STEP(2, 5, 6, pairs);
        }
    }
    _tile_stored(0, C, c_bytes);
    if (tiles > 1)
        _tile_stored(1, C + 16, c_bytes);
    if (tiles > 2)
        _tile_stored(2, C + 32, c_bytes);
    AMX_FENCE();
}

static void amx_product(const uint16_t *A, int64_t a_step, const uint32_t *B, int64_t b_step,
                        int64_t k, float *C, int64_t c_step, int64_t columns, int adds)
{
    if (columns == 48)
        amx_columns(3, A, a_step, B, b_step, k, C, c_step, adds);
    else if (columns == 32)
        amx_columns(2, A, a_step, B, b_step, k, C, c_step, adds);
    else
        amx_columns(1, A, a_step, B, b_step, k, C, c_step, adds);
}

#define MATRIX_BEGIN   amx_begin
#define MATRIX_END     _tile_release
#define MATRIX_PRODUCT amx_product

#include "optimized/simd/all_tmpl.h"
#else
typedef int attn_not_this_architecture;
#endif
