/* The register tiles: all the floating-point work of attention that grows with L * L * d.
 *
 * Every product is the same loop.  A tile keeps `rows` x `vectors` sums in registers while a third
 * index runs; each turn of it adds the product of `rows` numbers and `vectors` vectors:
 *
 *                                     numbers, rows   vectors of   a turn each
 *      S[key][query] = K Q^T          K, keys         queries      feature       tile_dots
 *      O[feature][query] += V^T P     V, features     queries      key           values_tile
 *      dV[key][feature] += P dO       P, keys         features     query         gradient_tile
 *
 * dP = V dO^T, dQ += K^T dS and dK += dS Q of the backward pass are these three again.
 *
 * In the first two, vectors run over queries.  A panel is PANEL = 3 * LANES queries; its Q is stored
 * transposed, Q[c][query] (panel_tmpl.h), so that one vector holds feature c of LANES queries.  K
 * and V are read in place, a number at a time, and broadcast to all lanes.  So maxima, sums and
 * rescales are vertical arithmetic, and masking is a choice between lanes.  The gradients of keys
 * are sums over queries: there rows of dO are the vectors, and P is broadcast.
 *
 * Keys come as a list of row pointers: any stride, a widened copy, or any selection of keys is the
 * same loop.  TILE_ROWS is how many rows go with three vectors: 8 where there are 32 registers, 4
 * where there are 16. */

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
 * `vectors` are constants where a tile is inlined, so each acc[t][v] has a name, and a register.  An
 * array of vectors that is indexed by a variable would lie in memory.
 *
 * This is the tile of scores with AVX2, 4 keys by 3 vectors of 8 queries, as gcc compiles it:
 *
 *      vmovups      (Q), %ymm15           y[0]: feature c of queries 0 to 7
 *      vmovups      32(Q), %ymm14         y[1]: of queries 8 to 15
 *      vmovups      64(Q), %ymm13         y[2]: of queries 16 to 23
 *      vbroadcastss (k0,c,4), %ymm12      number c of key 0, in all lanes
 *      vfmadd231ps  %ymm12, %ymm15, %ymm0     acc[0][0] += key 0 * y[0]
 *      vfmadd231ps  %ymm12, %ymm14, %ymm1     acc[0][1]
 *      vfmadd231ps  %ymm12, %ymm13, %ymm2     acc[0][2]
 *      vbroadcastss (k1,c,4), %ymm12      and so on for keys 1, 2 and 3
 *      ...
 *
 * 12 multiply-adds for 3 + 4 loads, and 12 + 3 + 1 = 16 registers, which is all that there are.
 * Each sum waits for its own last turn only, 12 multiply-adds ago: longer than the 8 that a core
 * needs to have under way (two a cycle, each of which takes four cycles). */
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

/* ---- the tiles -------------------------------------------------------------------------------- */

/* acc[t][v] = Q . k[t] for `rows` keys and so many vectors of queries: their scores, which are in
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

/* X[t][c] += sum_i P[t][i] row[i][c] for `rows` keys t, n queries i, so many vectors of features c
 * from c0 on: X and row are dV and dO, or dK and Q. */
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
