/* The register tiles: all the floating-point work of attention that grows with L * L * d.
 *
 * Vectors run over queries.  A panel is PANEL = 3 * LANES of them; a panel of Q is stored
 * transposed, Q[c][query], so that one vector holds feature c of LANES queries, and scores come
 * out as S[key][query].  Keys and features are then scalars: K and V are read in place, an
 * element at a time, and broadcast.  Nothing is packed but Q, once; maxima, sums and rescales are
 * plain vertical arithmetic; masking is a choice between lanes.
 *
 * Keys come as a list of row pointers, so that any stride, a widened copy, or any selection of
 * keys is the same loop.
 *
 * A tile of T rows by N vectors keeps T * N accumulators in registers and does T * N multiply-adds
 * for T broadcasts and N loads.  TILE_ROWS is T for three vectors: 8 where there are 32 registers,
 * 4 where there are 16. */

#undef TILE
#undef TILE_OF
#define TILE_OF(type) static inline __attribute__((always_inline)) type
#define TILE          TILE_OF(void)

/* Turns of the inner loop that are written out.  Small tiles are a few instructions a turn, and
 * counting turns is a tenth of them; large ones gain nothing. */
#undef INNER_TURNS
#define INNER_TURNS (TILE_ROWS == 4 ? 4 : 1)

/* Makes the compiler hold this pointer in one register; it would rather keep one for each row of
 * the tile, and run out of them. */
#undef KEEP
#define KEEP(pointer) __asm__("" : "+r"(pointer))

/* acc[t][v] = Q . k[t] for `rows` keys and so many vectors of queries: their scores, which are in
 * registers still. */
TILE FN(tile_dots)(int rows, int vectors, const REAL *const *k, int64_t d, const REAL *Q,
                   VEC acc[8][3])
{
    enum { turns = INNER_TURNS }; /* gcc's pragma does not look into macros */
    const REAL *key[8];
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++) {
        key[t] = k[t];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            acc[t][v] = (VEC){0};
    }
#pragma GCC unroll turns
    for (int64_t c = 0; c < d; c++) {
        VEC q[3];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            q[v] = FN(load)(Q + c * PANEL + v * LANES);
#pragma GCC unroll 16
        for (int t = 0; t < rows; t++) {
            VEC kc = FN(all)(key[t][c]);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                acc[t][v] = VEC_FMA(kc, q[v], acc[t][v]);
        }
    }
}

/* S[t][:] = Q . k[t].  max, if given, gathers the largest of each query. */
TILE FN(scores_tile)(int rows, int vectors, const REAL *const *k, int64_t d, const REAL *Q, REAL *S,
                     VEC *max)
{
    VEC acc[8][3];
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

/* O[c][:] += sum_j P[j][:] v[j][c] for `rows` features c from c0 on.  The sums begin at 0, and O is
 * added at the end: it may come from afar, and nobody waits for it then. */
TILE FN(values_tile)(int rows, int vectors, const REAL *const *v, int64_t n, int64_t c0,
                     const REAL *P, REAL *O)
{
    enum { turns = INNER_TURNS };
    VEC acc[16][3];
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++)
#pragma GCC unroll 3
        for (int u = 0; u < vectors; u++)
            acc[t][u] = (VEC){0};
#pragma GCC unroll turns
    for (int64_t j = 0; j < n; j++) {
        const REAL *value = v[j] + c0;
        KEEP(value);
        VEC p[3];
#pragma GCC unroll 3
        for (int u = 0; u < vectors; u++)
            p[u] = FN(load)(P + j * PANEL + u * LANES);
#pragma GCC unroll 16
        for (int t = 0; t < rows; t++) {
            VEC x = FN(all)(value[t]);
#pragma GCC unroll 3
            for (int u = 0; u < vectors; u++)
                acc[t][u] = VEC_FMA(x, p[u], acc[t][u]);
        }
    }
#pragma GCC unroll 16
    for (int t = 0; t < rows; t++)
#pragma GCC unroll 3
        for (int u = 0; u < vectors; u++) {
            REAL *at = O + (c0 + t) * PANEL + u * LANES;
            FN(store)(at, FN(load)(at) + acc[t][u]);
        }
}

/* ---- any number of keys and features --------------------------------------------------- */

/* S[j][:] = Q . k[j] for n keys and so many vectors of queries.  k has, and S has workspace for, n
 * rounded up to a multiple of 8: what is past n is the last row again.  max, if given, gathers the
 * largest score of each query, a NaN passed over.  Meanwhile what is ahead is asked for, if given.
 */
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

/* O[c][:] += sum_j P[j][:] v[j][c] for all features and so many vectors of queries; meanwhile what
 * is ahead is asked for, if given. */
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
