/* The kernels for AVX-512 with AMX, the matrix unit of Xeons since 2023.  All are those of avx512.c
 * but for the products of matrix_tmpl.h.
 *
 * AMX has eight tile registers of 16 rows of 64 bytes.  An instruction names them by literals; how
 * many rows and bytes of each are in use is configured before a product, and given back after a
 * job: a thread whose tiles are in use costs the operating system 8 KiB at every switch.  No result
 * shows whether that is done, so no test asks for it: MATRIX_END stands at the end of both walks.
 *
 *      tiles 0 1 2   C   [16][16] float, one for each vector of columns
 *      tile  3       A   [16][32] bf16               tile 5   [16][16], for the last 16 of k
 *      tile  4       B   [16 pairs][16 columns]      tile 6   [8 pairs][16 columns]
 *
 * A product takes 16 cycles, a load from the first-level cache 10 to 12, and a step of k has three
 * products and four loads.  Two rows of tiles by two columns (four loads for four products) are no
 * faster: the scores are stored and loaded between the products, and that is what shows.
 * Subnormal operands and sums count as 0; sums are rounded to nearest.
 * Source   Intel Architecture Instruction Set Extensions, ch. 3 (TDPBF16PS). */
#if defined __x86_64__
#define ISA_NAME amx
#include <immintrin.h>
#include <stdint.h>

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t rows[16];
};

static const struct amx_config amx_tiles = {
    .palette = 1, .bytes = {64, 64, 64, 64, 64, 32, 64}, .rows = {16, 16, 16, 16, 16, 16, 8}};

/* The compiler does not know that a tile load reads memory: nothing may move across. */
#define AMX_FENCE() __asm__ volatile("" ::: "memory")

/* Column tile n of a step of k. */
#define AMX_STEP(n, a, b, from)                            \
    _tile_loadd(b, (from) + 16 * (n), (size_t)b_step * 4); \
    _tile_dpbf16ps(n, a, b)

/* Sixteen rows of C and `tiles` tiles of columns: a constant, 1 to 3. */
static inline __attribute__((always_inline)) void amx_columns(int tiles, const uint16_t *A,
                                                              int64_t a_step, const uint32_t *B,
                                                              int64_t b_step, int64_t k, float *C,
                                                              int64_t c_step, int adds)
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

/* matrix_products of matrix_tmpl.h. */
static void amx_products(const uint16_t *A, int64_t a_step, const uint32_t *B, int64_t b_step,
                         int64_t k, float *C, int64_t c_step, int64_t rows, int64_t columns,
                         int adds)
{
    _tile_loadconfig(&amx_tiles);
    for (int64_t n = 0, left; n < columns; n += left < 48 ? left : 48) {
        left = columns - n;
        for (int64_t t = 0; t < rows; t += 16) {
            const uint16_t *a = A + t * a_step;
            float *c = C + t * c_step + n;
            if (left >= 48)
                amx_columns(3, a, a_step, B + n, b_step, k, c, c_step, adds);
            else if (left == 32)
                amx_columns(2, a, a_step, B + n, b_step, k, c, c_step, adds);
            else
                amx_columns(1, a, a_step, B + n, b_step, k, c, c_step, adds);
        }
    }
}

/* Two vectors of numbers, rounded to nearest, as one of pairs; subnormals become 0. */
static inline __m512i amx_pair(__m512 even, __m512 odd)
{
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), both);
}

#define MATRIX_PAIR(even, odd) ((uvec_f32)amx_pair((__m512)(even), (__m512)(odd)))
/* matrix_limit: three tiles, again and again. */
static inline void amx_peak(void)
{
    _tile_dpbf16ps(0, 3, 4);
    _tile_dpbf16ps(1, 3, 4);
    _tile_dpbf16ps(2, 3, 4);
}

#define MATRIX_PEAK_BEGIN()  _tile_loadconfig(&amx_tiles)
#define MATRIX_PEAK(A, B, C) ((void)(A), (void)(B), amx_peak())
#define MATRIX_END           _tile_release
#define MATRIX_PRODUCTS      amx_products

#include "optimized/simd/avx512.c"
#else
typedef int attn_not_this_architecture;
#endif
