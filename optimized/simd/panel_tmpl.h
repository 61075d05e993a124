/* Panels: rows of queries turned into vectors over queries, and back.
 *
 *      a tensor's rows      x[i][c]     queries i, features c
 *      a panel              X[c][i]     PANEL = 3 * LANES queries: feature c of all, then c + 1
 *
 * Only what the tiles read as vectors is packed so (tile_tmpl.h): Q, and in the backward pass dO.
 * It is done once for a block of queries, whatever number of keys it meets. */

/* ---- a square: LANES vectors of LANES numbers -------------------------------------------------
 *
 * Exchanging the off-diagonal quarters of a square, then those of each quarter, and so on,
 * transposes it.  In the stage of distance s, rows i and i + s (bit s of i clear) exchange halves:
 * LOW(n) and HIGH(n) say where lane n of either comes from, b's lanes counted on from a's. */
#undef LOW
#undef HIGH
#undef MIX
#undef STAGE
#define LOW(n, s)     ((n) & (s) ? LANE_COUNT + (n) - (s) : (n))
#define HIGH(n, s)    ((n) & (s) ? LANE_COUNT + (n) : (n) + (s))
#define PAIR(X, n, s) X(n, s), X((n) + 1, s)
#define FOUR(X, n, s) PAIR(X, n, s), PAIR(X, (n) + 2, s)
#define OCTET(X, s)   FOUR(X, 0, s), FOUR(X, 4, s)
#if LANE_COUNT == 16
#define MIX(a, b, X, s) __builtin_shufflevector(a, b, OCTET(X, s), FOUR(X, 8, s), FOUR(X, 12, s))
#elif LANE_COUNT == 8
#define MIX(a, b, X, s) __builtin_shufflevector(a, b, OCTET(X, s))
#elif LANE_COUNT == 4
#define MIX(a, b, X, s) __builtin_shufflevector(a, b, FOUR(X, 0, s))
#else
#define MIX(a, b, X, s) __builtin_shufflevector(a, b, PAIR(X, 0, s))
#endif
#define STAGE(s)                                   \
    for (int i = 0; (s) < LANES && i < LANES; i++) \
        if ((i & (s)) == 0) {                      \
            VEC a = x[i], b = x[i + (s)];          \
            x[i] = MIX(a, b, LOW, s);              \
            x[i + (s)] = MIX(a, b, HIGH, s);       \
        }

static inline void FN(transpose)(VEC x[])
{
    STAGE(1)
#if LANE_COUNT >= 4
    STAGE(2)
#endif
#if LANE_COUNT >= 8
    STAGE(4)
#endif
#if LANE_COUNT >= 16
    STAGE(8)
#endif
}

/* [LANES][LANES], in place. */
static void FN(transpose_square)(void *square)
{
    REAL *at = square;
    VEC x[LANES];
    for (int n = 0; n < LANES; n++)
        x[n] = FN(load)(at + n * LANES);
    FN(transpose)(x);
    for (int n = 0; n < LANES; n++)
        FN(store)(at + n * LANES, x[n]);
}

/* ---- a panel --------------------------------------------------------------------------------- */

/* Rows, at most a panel, times factor, transposed: to[c][PANEL].  Lanes without a row are 0.
 * workspace: LANES rows of n rounded up to LANES. */
static void FN(pack)(struct attn_tensor_rows from, double factor, REAL *to, REAL *ws)
{
    int64_t n = from.n, width = FN(round_up)(n);
    int64_t whole = FN(in_place)(from.x, n) ? n / LANES * LANES : 0;
    for (int v = 0; v < ATTN_PANEL_VECTORS; v++) {
        const REAL *row[LANES];
        int64_t first = from.i0 + v * LANES;
        int64_t rows = from.i1 - first < LANES ? from.i1 - first : LANES;
        memset(ws, 0, (size_t)(whole == n && rows == LANES ? 0 : LANES * width) * sizeof *ws);
        for (int64_t r = 0; r < LANES; r++) {
            row[r] = ws + r * width;
            if (r < rows && whole == n && n > 0)
                row[r] = FN(at)(from.x, from.b, from.h, first + r);
            else if (r < rows)
                FN(fetch)(from.x, from.b, from.h, first + r, n, ws + r * width);
        }
        for (int64_t c0 = 0; c0 < n; c0 += LANES) {
            VEC square[LANES];
            for (int r = 0; r < LANES; r++)
                square[r] = FN(load)(row[r] + c0) * (REAL)factor;
            FN(transpose)(square);
            for (int c = 0; c < LANES && c0 + c < n; c++)
                FN(store)(to + (c0 + c) * PANEL + v * LANES, square[c]);
        }
    }
}

/* The way back, one vector of queries: stage[r][c] = from[c][r] * factor[r], rows of n rounded up
 * to LANES. */
static void FN(unpack)(const REAL *from, int64_t n, VEC factor, REAL *stage)
{
    int64_t width = FN(round_up)(n);
    for (int64_t c0 = 0; c0 < n; c0 += LANES) {
        VEC square[LANES];
        for (int c = 0; c < LANES; c++)
            square[c] = c0 + c < n ? FN(load)(from + (c0 + c) * PANEL) * factor : (VEC){0};
        FN(transpose)(square);
        for (int r = 0; r < LANES; r++)
            FN(store)(stage + r * width + c0, square[r]);
    }
}
