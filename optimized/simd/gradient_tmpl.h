/* The register tiles of the backward pass: dV[key][feature] += P dO, and dK += dS Q.
 *
 * They are the loop of tile_tmpl.h, turned: sums are over queries, so rows of dO and Q are the
 * vectors, and P and dS are broadcast. */

/* X[t][c] += sum_i P[t][i] row[i][c] for `rows` keys t, n queries i, `vectors` vectors of features
 * c from c0 on: X and row are dV and dO, or dK and Q. */
TILE FN(gradient_tile)(int rows, int vectors, REAL *const *X, int64_t c0, const REAL *P,
                       const REAL *const *row, int n)
{
    VEC acc[16][4];
    REAL *to[8];
    FN(tile_clear)(rows, vectors, acc);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const REAL *x[8];
        for (int t = 0; t < rows; t++)
            x[t] = P + i + t * PANEL;
        FN(tile_turn)(rows, vectors, x, 0, row[i] + c0, acc);
    }
    for (int t = 0; t < rows; t++)
        to[t] = X[t] + c0;
    FN(tile_add)(rows, vectors, to, acc);
}

/* Vectors of features in the widest tile of gradients, which has 6 keys: 64 features are one strip
 * where there are 32 registers. */
#undef STRIP
#define STRIP (TILE_ROWS == 8 ? 4 : 2)

/* gradient_tile for any number of keys, to which list has, and P has rows for, 8 more. */
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
 * key, from whatever numbers P has there.  `prefetch` as in scores. */
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
