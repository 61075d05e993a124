/* The fifth register tile: gradients of keys.
 *
 * dV[j][:] += sum_i P[j][i] dO[i][:] is a sum over queries, and P[key][query] has queries as its
 * vectors: here they must become the scalars.  So vectors run over features, rows of dO (of Q, for
 * dK) are read as they are, and P (dS) is broadcast element by element, as K and V are in the other
 * tiles.  Still nothing is transposed.
 *
 * T keys by N vectors of features keep T * N accumulators: 6 by 4 where there are 32 registers, so
 * that 64 features are one strip; 6 by 2 where there are 16.  The sums begin at 0 and are added to
 * dV at the end, as in values_tile. */

#define STRIP (TILE_ROWS == 8 ? 4 : 2) /* vectors in the widest strip of features */

/* X[t][c] += sum_i P[t][i] row[i][c]: `rows` keys t, n queries i, so many vectors of c from c0. */
TILE FN(gradient_tile)(int rows, int vectors, REAL *const *X, int64_t c0, const REAL *P,
                       const REAL *const *row, int n)
{
    VEC acc[8][4];
    for (int t = 0; t < rows; t++)
        for (int v = 0; v < vectors; v++)
            acc[t][v] = (VEC){0};
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const REAL *from = row[i] + c0;
        VEC x[4];
        for (int v = 0; v < vectors; v++)
            x[v] = FN(load)(from + v * LANES);
#pragma GCC unroll 8
        for (int t = 0; t < rows; t++) {
            VEC p = FN(all)(P[t * PANEL + i]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                acc[t][v] = VEC_FMA(p, x[v], acc[t][v]);
        }
    }
    for (int t = 0; t < rows; t++)
        for (int v = 0; v < vectors; v++)
            FN(store)(X[t] + c0 + v * LANES, FN(load)(X[t] + c0 + v * LANES) + acc[t][v]);
}

/* The same for any number of keys, to which list has, and P has rows for, 8 more. */
TILE FN(gradient_strip)(int rows, int vectors, REAL *const *list, int n_key, int64_t c0,
                        const REAL *P, const REAL *const *row, int n,
                        struct FN(prefetch) * prefetch, int64_t lines)
{
    for (int t = 0; t < n_key; t += rows) {
        FN(prefetch_lines)(prefetch, lines);
        FN(gradient_tile)(rows, vectors, list + t, c0, P + t * PANEL, row, n);
    }
}

/* X[key[t]][:] += sum_i P[t][i] row[i][:] for n_key keys and n queries; X and rows are `width`
 * features wide, in whole vectors.  waste is a row of X that takes what tiles compute past the last
 * key, from whatever numbers P has there.  Meanwhile what is ahead is asked for, if given. */
static void FN(gradients)(REAL *X, int64_t width, const uint8_t *key, int n_key, REAL *waste,
                          const REAL *P, const REAL *const *row, int n,
                          struct FN(prefetch) * prefetch)
{
    REAL *list[ATTN_KEY_BLOCK + 8];
    int64_t c = 0, left = width / LANES, strips = (left + STRIP - 1) / STRIP;
    int64_t lines = FN(lines_of_step)(prefetch, strips * ((n_key + 5) / 6));
    for (int t = 0; t < n_key; t++)
        list[t] = X + key[t] * width;
    for (int t = 0; t < 8; t++)
        list[n_key + t] = waste;
    for (; left >= STRIP && left != STRIP + 1; c += STRIP * LANES, left -= STRIP)
        FN(gradient_strip)(6, STRIP, list, n_key, c, P, row, n, prefetch, lines);
    for (; left >= 3; c += 3 * LANES, left -= 3)
        FN(gradient_strip)(8, 3, list, n_key, c, P, row, n, prefetch, lines);
    for (; left >= 2; c += 2 * LANES, left -= 2)
        FN(gradient_strip)(8, 2, list, n_key, c, P, row, n, prefetch, lines);
    for (; left >= 1; c += LANES, left--)
        FN(gradient_strip)(8, 1, list, n_key, c, P, row, n, prefetch, lines);
}
