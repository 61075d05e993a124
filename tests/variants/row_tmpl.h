/* Rows, and the loops over them that every textbook implementation uses.  Included once for each
 * arithmetic type, with
 *      REAL      float or double
 *      FN(name)  name with the type's suffix
 *      REAL_EXP, REAL_LOG, REAL_TANH   the type's functions
 */
#ifndef REAL
#error "define REAL and FN before including this template"
#endif
#undef MINUS_INF
#define MINUS_INF ((REAL)-INFINITY)

/* Row (b,h,i) of a tensor as n consecutive numbers: the tensor's own memory when features are
 * adjacent, else a copy in room[n]. */
static inline const REAL *FN(row)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i,
                                  int64_t n, REAL *room)
{
    if (n == 0)
        return room;
    const REAL *from = (const REAL *)x->data + attn_offset(x->stride, b, h, i);
    if (x->stride[3] == 1 || n == 1)
        return from;
    for (int64_t c = 0; c < n; c++)
        room[c] = from[c * x->stride[3]];
    return room;
}

/* Write a row: y[b,h,i,:] = a * x. */
static inline void FN(row_store)(const struct attn_view *y, int64_t b, int64_t h, int64_t i,
                                 int64_t n, REAL a, const REAL *x)
{
    int64_t at = attn_offset(y->stride, b, h, i);
    for (int64_t c = 0; c < n; c++)
        ((REAL *)y->data)[at + c * y->stride[3]] = a * x[c];
}

static inline REAL FN(get)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i)
{
    return ((const REAL *)x->data)[attn_offset(x->stride, b, h, i)];
}

static inline void FN(put)(const struct attn_view *y, int64_t b, int64_t h, int64_t i, REAL value)
{
    ((REAL *)y->data)[attn_offset(y->stride, b, h, i)] = value;
}

/* x . y in sixteen partial sums.  Written so because a compiler may not reorder one sum by
 * itself; sixteen independent ones it can keep in vector registers, and their error grows with
 * n / 16. */
static inline REAL FN(dot)(const REAL *restrict x, const REAL *restrict y, int64_t n)
{
    REAL part[16] = {0}, sum = 0;
    int64_t c = 0;
    for (; c + 16 <= n; c += 16)
        for (int t = 0; t < 16; t++)
            part[t] += x[c + t] * y[c + t];
    for (; c < n; c++)
        sum += x[c] * y[c];
    for (int width = 8; width > 0; width /= 2)
        for (int t = 0; t < width; t++)
            part[t] += part[t + width];
    return part[0] + sum;
}

/* y += a x */
static inline void FN(axpy)(REAL a, const REAL *restrict x, REAL *restrict y, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] += a * x[c];
}

static inline void FN(scale)(REAL a, REAL *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        x[c] *= a;
}

/* The final score of a pair from q.k: scale, softcap, bias.  *slope = d score / d raw score. */
static inline REAL FN(score)(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                             int64_t j, REAL qk, REAL *slope)
{
    REAL s = (REAL)p->scale * qk;
    *slope = 1;
    if (p->softcap > 0) {
        REAL t = REAL_TANH(s / (REAL)p->softcap);
        s = (REAL)p->softcap * t;
        *slope = 1 - t * t; /* d c tanh(s/c) / ds */
    }
    if (p->bias.kind != ATTN_BIAS_NONE)
        s += (REAL)attn_problem_bias(p, b, h, i, j);
    return s;
}
