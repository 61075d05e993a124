/* Rows of tensors in and out of the kernels: any layout, any storage type. */

static const REAL *FN(at)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i)
{
    return (const REAL *)x->data + attn_offset(x->stride, b, h, i);
}

/* Can rows of n be read where they are? */
static int FN(in_place)(const struct attn_cview *x, int64_t n)
{
    return attn_dtype_size(x->dtype) == sizeof(REAL) && (x->stride[3] == 1 || n <= 1);
}

/* Row (b,h,i) of n numbers, widened into workspace. */
static void FN(fetch)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i, int64_t n,
                      REAL *ws)
{
    int64_t size = (int64_t)attn_dtype_size(x->dtype), step = x->stride[3] * size;
    const char *from =
        n == 0 ? NULL : (const char *)x->data + attn_offset(x->stride, b, h, i) * size;
    if (x->stride[3] == 1 || n <= 1)
        FN(widen)(x->dtype, from, n, ws);
    else
        for (int64_t c = 0; c < n; c++)
            FN(widen)(x->dtype, from + c * step, 1, ws + c);
}

/* The same, padded by zeros to whole vectors. */
static void FN(fetch_padded)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i, int64_t n,
                             void *row)
{
    REAL *ws = row;
    FN(fetch)(x, b, h, i, n, ws);
    for (int64_t c = n; c < FN(round_up)(n); c++)
        ws[c] = 0;
}

/* y[b,h,i,:] = row, of REAL, rounded to y's type. */
static void FN(emit)(const struct attn_view *y, int64_t b, int64_t h, int64_t i, int64_t n,
                     const void *row)
{
    int64_t size = (int64_t)attn_dtype_size(y->dtype), step = y->stride[3] * size;
    char *to = n == 0 ? NULL : (char *)y->data + attn_offset(y->stride, b, h, i) * size;
    if (y->stride[3] == 1 || n <= 1)
        FN(narrow)(y->dtype, row, n, to);
    else
        for (int64_t c = 0; c < n; c++)
            FN(narrow)(y->dtype, (const REAL *)row + c, 1, to + c * step);
}

/* Pointers to rows, where they are or where FN(point) has widened them.  Eight more repeat the
 * last, for tiles that are not full. */
static void FN(pointed)(struct attn_tensor_rows from, const REAL *ws, const REAL **row)
{
    int direct = FN(in_place)(from.x, from.n) && from.n > 0;
    for (int64_t t = 0; t < from.i1 - from.i0 + 8; t++) {
        int64_t i = from.i0 + t < from.i1 ? from.i0 + t : from.i1 - 1;
        row[t] = direct ? FN(at)(from.x, from.b, from.h, i) : ws + (i - from.i0) * from.n;
    }
}

/* The same, widened into workspace [i1 - i0][n] where need be. */
static void FN(point)(struct attn_tensor_rows from, REAL *ws, const REAL **row)
{
    int direct = FN(in_place)(from.x, from.n);
    for (int64_t i = from.i0; !direct && i < from.i1; i++)
        FN(fetch)(from.x, from.b, from.h, i, from.n, ws + (i - from.i0) * from.n);
    FN(pointed)(from, ws, row);
}

/* The n chosen of `all` rows, in the form of FN(point): the rows themselves when all are chosen. */
static const REAL *const *FN(select)(const REAL *const *row, const uint8_t *chosen, int n, int all,
                                     const REAL **list)
{
    if (n == all)
        return row;
    for (int t = 0; t < n; t++)
        list[t] = row[chosen[t]];
    for (int t = 0; t < 8 && n > 0; t++)
        list[n + t] = list[n - 1];
    return list;
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

/* ---- panels: rows of queries turned into vectors over queries, and back ----------------------
 *
 *      a tensor's rows      x[i][c]     queries i, features c
 *      a panel              X[c][i]     PANEL = 3 * LANES queries: feature c of all, then c + 1
 *
 * Only what the tiles read as vectors is packed so (tile_tmpl.h): Q, and in the backward pass dO.
 * It is done once for a block of queries, whatever number of keys it meets. */

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
