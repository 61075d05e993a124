/* The register tiles: all the floating-point work of attention that grows with L * L * d.
 *
 * Every product is the same loop.  A tile keeps `rows` x `vectors` sums in registers while a third
 * index runs; each turn of it adds the product of `rows` numbers and `vectors` vectors:
 *
 *                                     numbers, rows   vectors of   a turn each
 *      S[key][query] = K Q^T          K, keys         queries      feature       tile_dots
 *      O[feature][query] += V^T P     V, features     queries      key           values_tile
 *
 * dP = V dO^T and dQ += K^T dS of the backward pass are these two again; the gradients of keys have
 * a tile of their own (gradient_tmpl.h).
 *
 * Vectors run over queries.  A panel is PANEL = 3 * LANES queries; its Q is stored transposed,
 * Q[c][query] (rows_io_tmpl.h): one vector holds feature c of LANES queries.  K and V are read in
 * place, a number at a time, and broadcast to all lanes.  So maxima, sums and rescales are vertical
 * arithmetic, and masking is a choice between lanes.
 *
 * Keys come as a list of row pointers: any stride, a widened copy, or any selection of keys is the
 * same loop.  TILE_ROWS is how many rows go with three vectors: 8 where there are 32 registers, 4
 * where there are 16.
 *
 * One text serves every instruction set and both arithmetic types.  REAL is float or double, FN(x)
 * is x with the type's suffix, VEC is a vector of LANES REALs; load, store and all (a number in all
 * lanes) are what they say, VEC_FMA(a, b, c) is a * b + c (vec_tmpl.h). */

#undef TILE
#undef TILE_OF
#define TILE_OF(type) static inline __attribute__((always_inline)) type
#define TILE          TILE_OF(void)

/* Turns that are written out one after the other.  Small tiles are a few instructions a turn, and
 * counting turns is a tenth of them; large ones gain nothing. */
#undef INNER_TURNS
#define INNER_TURNS (TILE_ROWS == 4 ? 4 : 1)

/* Makes the compiler hold this pointer in one register; it would rather keep one for each row of
 * the tile, and run out of them. */
#undef KEEP
#define KEEP(pointer) __asm__("" : "+r"(pointer))

/* ---- a turn -----------------------------------------------------------------------------------
 *
 * acc[t][v] += x[t][at] * y[v].  All loops over t and v are unrolled, by pragma: `rows` and
 * `vectors` are constants where a tile is inlined, so each acc[t][v] has a name, and a register.
 * An array of vectors that is indexed by a variable would lie in memory.
 *
 * This is what gcc makes of a turn of the widest tile of scores with AVX2 (objdump -d
 * --disassemble=scores_f32 on optimized/simd/avx2.o), but that it begins the loads of the next turn
 * early.  The keys are at r9, r8, rdi and rcx, the queries at r11; rdx is c.
 *
 *      vmovups      (r11),        ymm2           y[0]: feature c of queries 0 to 7
 *      vmovups      32(r11),      ymm1           y[1]: of queries 8 to 15
 *      vmovups      64(r11),      ymm0           y[2]: of queries 16 to 23
 *      vbroadcastss (r9,rdx,4),   ymm3           x[0]: feature c of key 0, in all lanes
 *      vfmadd231ps  ymm2,  ymm3,  ymm15          acc[0][0] += x[0] * y[0]
 *      vfmadd231ps  ymm1,  ymm3,  ymm5           acc[0][1] += x[0] * y[1]
 *      vfmadd231ps  ymm0,  ymm3,  ymm11          acc[0][2] += x[0] * y[2]
 *      vbroadcastss (r8,rdx,4),   ymm3           x[1]: key 1
 *      vfmadd231ps  ymm2,  ymm3,  ymm7           acc[1][0]
 *      vfmadd231ps  ymm1,  ymm3,  ymm8           acc[1][1]
 *      vfmadd231ps  ymm0,  ymm3,  ymm10          acc[1][2]
 *      vbroadcastss (rdi,rdx,4),  ymm3           x[2]: key 2
 *      vfmadd231ps  ymm2,  ymm3,  ymm13          acc[2][0]
 *      vfmadd231ps  ymm1,  ymm3,  ymm6           acc[2][1]
 *      vfmadd231ps  ymm0,  ymm3,  ymm9           acc[2][2]
 *      vbroadcastss (rcx,rdx,4),  ymm3           x[3]: key 3
 *      vfmadd231ps  ymm2,  ymm3,  ymm12          acc[3][0]
 *      vfmadd231ps  ymm1,  ymm3,  ymm14          acc[3][1]
 *      vfmadd231ps  ymm0,  ymm3,  ymm4           acc[3][2]
 *
 * 12 sums, 3 vectors and 1 broadcast are the 16 registers that there are.  7 loads for 12
 * multiply-adds are less than a core can do, one for each.  A sum waits for its own turn before, 12
 * multiply-adds ago: with two a cycle and four cycles each, 8 must be under way. */
TILE FN(tile_turn)(int rows, int vectors, const REAL *const *x, int64_t at, const REAL *y,
                   VEC acc[16][4])
{
    VEC b[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        b[v] = FN(load)(y + v * LANES);
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++) {
        VEC a = FN(all)(x[t][at]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[t][v] = VEC_FMA(a, b[v], acc[t][v]);
    }
}

/* Before the first turn. */
TILE FN(tile_clear)(int rows, int vectors, VEC acc[16][4])
{
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[t][v] = (VEC){0};
}

/* After the last one, where sums go on from tile to tile: to[t][:] += acc[t][:].  Memory is added
 * at the end, and not loaded at the beginning: no multiply-add waits for it, and each sum has one
 * rounding less. */
TILE FN(tile_add)(int rows, int vectors, REAL *const *to, VEC acc[16][4])
{
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            REAL *at = to[t] + v * LANES;
            FN(store)(at, FN(load)(at) + acc[t][v]);
        }
}

/* ---- the tiles ------------------------------------------------------------------------------- */

/* acc[t][v] = Q . k[t] for `rows` keys and `vectors` vectors of queries: their scores, which are in
 * registers still. */
TILE FN(tile_dots)(int rows, int vectors, const REAL *const *k, int64_t d, const REAL *Q,
                   VEC acc[16][4])
{
    enum { turns = INNER_TURNS }; /* gcc's pragma does not look into macros */
    const REAL *key[8];
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++)
        key[t] = k[t];
    FN(tile_clear)(rows, vectors, acc);
#pragma GCC unroll turns
    for (int64_t c = 0; c < d; c++)
        FN(tile_turn)(rows, vectors, key, c, Q + c * PANEL, acc);
}

/* S[t][:] = Q . k[t].  max, if given, gathers the largest of each query. */
TILE FN(scores_tile)(int rows, int vectors, const REAL *const *k, int64_t d, const REAL *Q, REAL *S,
                     VEC *max)
{
    VEC acc[16][4];
    FN(tile_dots)(rows, vectors, k, d, Q, acc);
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            FN(store)(S + t * PANEL + v * LANES, acc[t][v]);
            if (max != NULL)
                max[v] = VEC_MAX(acc[t][v], max[v]);
        }
}

/* O[c][:] += sum_j P[j][:] v[j][c] for `rows` features c from c0 on. */
TILE FN(values_tile)(int rows, int vectors, const REAL *const *v, int64_t n, int64_t c0,
                     const REAL *P, REAL *O)
{
    enum { turns = INNER_TURNS };
    VEC acc[16][4];
    REAL *to[16];
    FN(tile_clear)(rows, vectors, acc);
#pragma GCC unroll turns
    for (int64_t j = 0; j < n; j++) {
        const REAL *value = v[j] + c0, *x[16];
        KEEP(value);
#pragma GCC unroll 16
        for (int t = 0; t < rows; t++)
            x[t] = value + t;
        FN(tile_turn)(rows, vectors, x, 0, P + j * PANEL, acc);
    }
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++)
        to[t] = O + (c0 + t) * PANEL;
    FN(tile_add)(rows, vectors, to, acc);
}

/* ---- any number of keys and features --------------------------------------------------- */

/* S[j][:] = Q . k[j] for n keys and `vectors` vectors of queries.  k has, and S has workspace for,
 * n rounded up to a multiple of 8: rows past n are the last row again.  max, if given, gathers the
 * largest score of each query, a NaN passed over.  `prefetch`, if given, goes on with each tile
 * (prefetch_tmpl.h). */
static void FN(scores)(int vectors, const REAL *const *k, int n, int64_t d, const REAL *Q, REAL *S,
                       VEC *max, struct FN(prefetch) * prefetch)
{
    int step = vectors == 1 ? 8 : TILE_ROWS;
    int64_t lines = FN(lines_of_step)(prefetch, (n + step - 1) / step);
    for (int j = 0; j < n; j += step) {
        FN(prefetch_lines)(prefetch, lines);
        if (vectors == 3 && max != NULL)
            FN(scores_tile)(TILE_ROWS, 3, k + j, d, Q, S + j * PANEL, max);
        else if (vectors == 3)
            FN(scores_tile)(TILE_ROWS, 3, k + j, d, Q, S + j * PANEL, NULL);
        else if (vectors == 2)
            FN(scores_tile)(TILE_ROWS, 2, k + j, d, Q, S + j * PANEL, max);
        else
            FN(scores_tile)(8, 1, k + j, d, Q, S + j * PANEL, max);
    }
}

/* O[c][:] += sum_j P[j][:] v[j][c] for all features and `vectors` vectors of queries; `prefetch` as
 * in scores. */
static void FN(values)(int vectors, const REAL *const *v, int n, int64_t dv, const REAL *P, REAL *O,
                       struct FN(prefetch) * prefetch)
{
    int64_t c = 0, lines = FN(lines_of_step)(prefetch, dv / TILE_ROWS);
    if (n == 0)
        return;
    for (; vectors == 3 && c + TILE_ROWS <= dv; c += TILE_ROWS) {
        FN(prefetch_lines)(prefetch, lines);
        FN(values_tile)(TILE_ROWS, 3, v, n, c, P, O);
    }
    for (; vectors == 2 && c + TILE_ROWS <= dv; c += TILE_ROWS)
        FN(values_tile)(TILE_ROWS, 2, v, n, c, P, O);
    for (; vectors == 1 && c + 2 * TILE_ROWS <= dv; c += 2 * TILE_ROWS)
        FN(values_tile)(2 * TILE_ROWS, 1, v, n, c, P, O);
    for (; c + 4 <= dv; c += 4)
        for (int u = 0; u < vectors; u++)
            FN(values_tile)(4, 1, v, n, c, P + u * LANES, O + u * LANES);
    for (; c < dv; c++)
        for (int u = 0; u < vectors; u++)
            FN(values_tile)(1, 1, v, n, c, P + u * LANES, O + u * LANES);
}
