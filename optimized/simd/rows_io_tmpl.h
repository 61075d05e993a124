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
