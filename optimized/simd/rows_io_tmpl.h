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

/* y[b,h,i,:] = row, rounded to y's type. */
static void FN(emit)(const struct attn_view *y, int64_t b, int64_t h, int64_t i, int64_t n,
                     const REAL *row)
{
    int64_t size = (int64_t)attn_dtype_size(y->dtype), step = y->stride[3] * size;
    char *to = n == 0 ? NULL : (char *)y->data + attn_offset(y->stride, b, h, i) * size;
    if (y->stride[3] == 1 || n <= 1)
        FN(narrow)(y->dtype, row, n, to);
    else
        for (int64_t c = 0; c < n; c++)
            FN(narrow)(y->dtype, row + c, 1, to + c * step);
}

static void FN(store_row)(const struct attn_view *y, int64_t b, int64_t h, int64_t i, int64_t n,
                          const void *row)
{
    FN(emit)(y, b, h, i, n, row);
}

/* Pointers to rows [j0,j1) of kv head g, widened into workspace [j1 - j0][n] where need be.  Eight
 * more repeat the last, for tiles that are not full. */
static void FN(point)(const struct attn_cview *x, int64_t b, int64_t g, int64_t j0, int64_t j1,
                      int64_t n, REAL *ws, const REAL **row)
{
    int direct = FN(in_place)(x, n);
    for (int64_t j = j0; j < j1; j++) {
        row[j - j0] = direct && n > 0 ? FN(at)(x, b, g, j) : ws + (j - j0) * n;
        if (!direct)
            FN(fetch)(x, b, g, j, n, ws + (j - j0) * n);
    }
    for (int t = 0; t < 8; t++)
        row[j1 - j0 + t] = row[j1 - j0 - 1];
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

/* Rows [i0,i1) of x, at most a panel, times factor, transposed: to[c][PANEL].  Lanes without a row
 * are 0.  workspace: LANES rows of n rounded up to LANES. */
static void FN(pack)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i0, int64_t i1,
                     int64_t n, double factor, REAL *to, REAL *ws)
{
    int64_t width = FN(round_up)(n), whole = FN(in_place)(x, n) ? n / LANES * LANES : 0;
    for (int v = 0; v < ATTN_PANEL_VECTORS; v++) {
        const REAL *row[LANES];
        int64_t first = i0 + v * LANES, rows = i1 - first < LANES ? i1 - first : LANES;
        memset(ws, 0, (size_t)(whole == n && rows == LANES ? 0 : LANES * width) * sizeof *ws);
        for (int64_t r = 0; r < LANES; r++) {
            row[r] = ws + r * width;
            if (r < rows && whole == n && n > 0)
                row[r] = FN(at)(x, b, h, first + r);
            else if (r < rows)
                FN(fetch)(x, b, h, first + r, n, ws + r * width);
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
