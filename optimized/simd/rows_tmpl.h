/* The row kernels: one query at a time against keys that come as a list.
 *
 * Where few of the pairs of a tile are visible, or there are few queries, vectors run over
 * features.  A row of K meets the query in a dot product, a row of V is added to the output:
 *
 *      S_e = q . k[key[e]]      e = 0 .. n-1
 *      P   = 2^(S - m)          m, l: the online softmax of Milakov & Gimelshein 2018
 *      O   = alpha O + sum_e P_e v[key[e]]
 *
 * Each visible pair moves d + dv numbers through the load ports for 2 (d + dv) flops, and that is
 * the limit: nothing is loaded twice, and nothing that is not visible is loaded at all.  A dot
 * product ends in a sum across the lanes of a vector; LANES of them are summed together, which
 * takes two shuffles and one addition each.
 *
 * Rows of K and V are REALs in a row, a whole number of vectors of them (struct FN(source)). */

/* Keys whose dot products are made together: eight give enough independent sums. */

#undef GROUP
#define GROUP (LANES > 8 ? LANES : 8)

/* Where the rows of one kv head are. */
struct FN(source) {
    const REAL *at; /* row j is at + j * step.  NULL: rows are made one group at a time, in stage */
    int64_t step, width; /* width: numbers in a row, rounded up to vectors */
    const struct attn_cview *view;
    int64_t b, g, n;
    REAL *stage; /* [GROUP][width] */
};

static inline const REAL *FN(row_of)(const struct FN(source) * x, int32_t j)
{
    return x->at + j * x->step;
}

/* A row of Q times that: rounded once, the product is made in double. */
static void FN(fetch_scaled)(const struct attn_problem *p, const struct attn_cview *x, int64_t b,
                             int64_t h, int64_t i, REAL *ws)
{
    double factor = FN(exponent_factor)(p);
    FN(fetch_padded)(x, b, h, i, p->d_key, ws);
    for (int64_t c = 0; c < p->d_key; c++)
        ws[c] = (REAL)((double)ws[c] * factor);
}

/* Rows key[0 .. n-1], at most GROUP, in the stage: as rows in_order of a source. */
static const int32_t FN(in_order)[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static struct FN(source) FN(stage_rows)(const struct FN(source) * x, const int32_t *key, int n)
{
    for (int t = 0; t < n; t++)
        FN(fetch_padded)(x->view, x->b, x->g, key[t], x->n, x->stage + t * x->width);
    return (struct FN(source)){.at = x->stage, .step = x->width, .width = x->width};
}

/* Lane n: the sum of x[n]'s lanes.  The halves of x[i] and x[i + s] are exchanged as in a
 * transposition, and added: half as many vectors remain. */
static inline VEC FN(sums)(VEC x[])
{
#define ADD_HALVES(s)             \
    for (int i = 0; i < (s); i++) \
        x[i] = MIX(x[i], x[i + (s)], LOW, s) + MIX(x[i], x[i + (s)], HIGH, s);
#if LANE_COUNT >= 16
    ADD_HALVES(8)
#endif
#if LANE_COUNT >= 8
    ADD_HALVES(4)
#endif
#if LANE_COUNT >= 4
    ADD_HALVES(2)
#endif
    ADD_HALVES(1)
#undef ADD_HALVES
    return x[0];
}

/* Every lane: the sum, the greatest of x's lanes. */
#undef FLIP
#undef FOLD
#define FLIP(n, s) ((n) ^ (s))
#define FOLD(s, op)                             \
    if ((s) < LANES) {                          \
        VEC other = MIX(x, x, FLIP, s % LANES); \
        x = op;                                 \
    }

static inline VEC FN(sum)(VEC x)
{
    FOLD(1, x + other)
    FOLD(2, x + other)
    FOLD(4, x + other)
    FOLD(8, x + other)
    return x;
}

static inline VEC FN(greatest)(VEC x)
{
    FOLD(1, VEC_MAX(x, other))
    FOLD(2, VEC_MAX(x, other))
    FOLD(4, VEC_MAX(x, other))
    FOLD(8, VEC_MAX(x, other))
    return x;
}

/* ---- scores -------------------------------------------------------------------------------- */

/* The products of q and a row, summed lane by lane.  A row is read from end to end before the next
 * one is: that is what the machine's prefetching likes, and the chains of sums of several rows
 * overlap by themselves. */
static inline __attribute__((always_inline)) VEC FN(products)(const REAL *row, const REAL *q,
                                                              int64_t width)
{
    VEC sum = {0};
    for (int64_t c = 0; c < width; c += LANES)
        sum = VEC_FMA(FN(load)(q + c), FN(load)(row + c), sum);
    return sum;
}

/* S[e] = q . row key[e] for n keys; workspace for n rounded up to GROUP, what is past n is 0. */
TILE FN(dots_of_width)(const struct FN(source) * x, const int32_t *key, int n, const REAL *q,
                       int64_t width, REAL *S)
{
    for (int e = 0; e < n; e += GROUP) {
        VEC acc[GROUP];
        if (e + GROUP <= n) {
#pragma GCC unroll 16
            for (int t = 0; t < GROUP; t++)
                acc[t] = FN(products)(FN(row_of)(x, key[e + t]), q, width);
        } else { /* a group that is not full: short rows have many of those */
            memset(acc, 0, sizeof acc);
            for (int t = 0; t < n - e; t++)
                acc[t] = FN(products)(FN(row_of)(x, key[e + t]), q, width);
        }
        for (int t = 0; t < GROUP; t += LANES)
            FN(store)(S + e + t, FN(sums)(acc + t));
    }
}

static void FN(dots)(const struct FN(source) * x, const int32_t *key, int n, const REAL *q, REAL *S)
{
    if (x->width == 64)
        FN(dots_of_width)(x, key, n, q, 64, S);
    else if (x->width == 128)
        FN(dots_of_width)(x, key, n, q, 128, S);
    else
        FN(dots_of_width)(x, key, n, q, x->width, S);
}

/* ---- sums of rows -------------------------------------------------------------------------- */

/* `vectors` vectors of y, at c: y = alpha y + sum_e P_e (row key[e]).  Even and odd keys are summed
 * apart, for more independent sums. */
TILE FN(sum_rows_at)(int vectors, const struct FN(source) * x, const int32_t *key, int n,
                     const REAL *P, REAL alpha, REAL *y, int64_t c)
{
    VEC even[16][4], odd[16][4];
    for (int u = 0; u < vectors; u++)
        even[0][u] = FN(load)(y + c + u * LANES) * alpha;
    FN(tile_clear)(1, vectors, odd);
    int e = 0;
    for (; e + 2 <= n; e += 2) {
        FN(tile_turn)(1, vectors, &P, e, FN(row_of)(x, key[e]) + c, even);
        FN(tile_turn)(1, vectors, &P, e + 1, FN(row_of)(x, key[e + 1]) + c, odd);
    }
    if (e < n)
        FN(tile_turn)(1, vectors, &P, e, FN(row_of)(x, key[e]) + c, even);
    for (int u = 0; u < vectors; u++)
        FN(store)(y + c + u * LANES, even[0][u] + odd[0][u]);
}

static void FN(sum_rows)(const struct FN(source) * x, const int32_t *key, int n, const REAL *P,
                         REAL alpha, REAL *y)
{
    int64_t c = 0;
    for (; c + 4 * LANES <= x->width; c += 4 * LANES)
        FN(sum_rows_at)(4, x, key, n, P, alpha, y, c);
    for (; c < x->width; c += LANES)
        FN(sum_rows_at)(1, x, key, n, P, alpha, y, c);
}

/* ---- one row against a list of keys -------------------------------------------------------- */

/* The same from wherever the rows are. */
static void FN(row_dots)(const struct FN(source) * x, const int32_t *key, int n, const REAL *q,
                         REAL *S)
{
    if (x->at != NULL)
        FN(dots)(x, key, n, q, S);
    for (int e = 0; x->at == NULL && e < n; e += GROUP) {
        int rows = n - e < GROUP ? n - e : GROUP;
        struct FN(source) staged = FN(stage_rows)(x, key + e, rows);
        FN(dots)(&staged, FN(in_order), rows, q, S + e);
    }
}

static void FN(row_sums)(const struct FN(source) * x, const int32_t *key, int n, const REAL *P,
                         REAL alpha, REAL *y)
{
    if (x->at != NULL)
        FN(sum_rows)(x, key, n, P, alpha, y);
    for (int e = 0; x->at == NULL && e < n; e += GROUP) {
        int rows = n - e < GROUP ? n - e : GROUP;
        struct FN(source) staged = FN(stage_rows)(x, key + e, rows);
        FN(sum_rows)(&staged, FN(in_order), rows, P + e, e == 0 ? alpha : 1, y);
    }
}

/* Numbers from S[n] to the next whole vector: -inf. */
static void FN(row_pad)(REAL *S, int n)
{
    static const INT lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int last = n / LANES * LANES;
    IVEC number;
    if (last == n)
        return;
    memcpy(&number, lane, sizeof number);
    VEC x = FN(load)(S + last);
    FN(store)(S + last, FN(choose)(number < n - last, x, FN(all)((REAL)-INFINITY)));
}

/* S = 2^(S - base); returns the sum.  Reads and writes whole vectors: padded (row_pad). */
static REAL FN(row_exp2)(REAL *S, int n, VEC base)
{
    VEC sum = {0};
    FN(row_pad)(S, n);
    for (int e = 0; e < n; e += LANES) {
        VEC p = FN(exp2)(FN(load)(S + e) - base);
        FN(store)(S + e, p);
        sum += p;
    }
    return FN(sum)(sum)[0];
}

/* S[0 .. n-1], in units of log2 e, becomes P; m and l move on.  Returns alpha, the factor of
 * what was summed before.  S has workspace for n rounded up to LANES. */
static REAL FN(row_softmax)(REAL *S, int n, REAL *m, REAL *l)
{
    VEC old = FN(all)(*m), most = old;
    FN(row_pad)(S, n);
    for (int e = 0; e < n; e += LANES)
        most =
            VEC_MAX(FN(load)(S + e), most); /* in this order a NaN is passed over: it shows in P */
    most = FN(greatest)(most);
    VEC base = FN(choose)(most > FN(all)((REAL)-INFINITY), most, FN(all)(0));
    REAL sum = FN(row_exp2)(S, n, base), alpha = FN(exp2)(old - base)[0];
    *m = most[0];
    *l = *l * alpha + sum;
    return alpha;
}

/* Softcap and bias on the scores of query at.i with keys at.j + key[e].  They leave in units of
 * log2 e.  slope, if given, receives d softcap(s) / d s; it is written with a softcap only. */
static void FN(row_edit)(const struct attn_problem *p, struct attn_pair_at at, const int32_t *key,
                         int n, REAL *S, REAL *slope)
{
    REAL cap = (REAL)p->softcap;
    if (!FN(is_edited)(p))
        return;
    for (int e = 0; p->softcap > 0 && e < n; e += LANES) {
        VEC bent = FN(tanh)(FN(load)(S + e) / cap);
        FN(store)(S + e, cap * bent);
        if (slope != NULL)
            FN(store)(slope + e, 1 - bent * bent);
    }
    for (int e = 0; e < n; e++) {
        if (p->bias.kind != ATTN_BIAS_NONE)
            S[e] += (REAL)attn_problem_bias(p, at.b, at.h, at.i, at.j + key[e]);
        S[e] *= (REAL)LOG2_E;
    }
}

/* ---- several rows against one list of keys ----------------------------------------------------
 *
 * Queries that see the same keys share the loads: TWINS of them by four keys, or by four vectors of
 * the output, are as many sums as the registers hold. */
#undef TWINS
#define TWINS (TILE_ROWS / 2)

/* S[u][t] = q[u] . row key[t] for TWINS queries and four keys. */
TILE FN(twin_dots_of_four)(const struct FN(source) * x, const int32_t *key, const REAL *q,
                           int64_t width, REAL *S, int64_t s_step, struct FN(prefetch) * prefetch,
                           int64_t lines)
{
    VEC acc[4 * TWINS];
    REAL all[4 * TWINS];
    const REAL *row[4];
    for (int t = 0; t < 4; t++)
        row[t] = FN(row_of)(x, key[t]);
    for (int t = 0; t < 4 * TWINS; t++)
        acc[t] = (VEC){0};
    for (int64_t c = 0; c < width; c += LANES) {
        VEC k[4];
        FN(prefetch_lines)(prefetch, lines);
        for (int t = 0; t < 4; t++)
            k[t] = FN(load)(row[t] + c);
#pragma GCC unroll 4
        for (int u = 0; u < TWINS; u++) {
            VEC qc = FN(load)(q + u * width + c);
#pragma GCC unroll 4
            for (int t = 0; t < 4; t++)
                acc[u * 4 + t] = VEC_FMA(qc, k[t], acc[u * 4 + t]);
        }
    }
    for (int t = 0; t < 4 * TWINS; t += LANES)
        FN(store)(all + t, FN(sums)(acc + t));
    for (int u = 0; u < TWINS; u++)
        memcpy(S + u * s_step, all + u * 4, 4 * sizeof *S);
}

/* S[u][e] = q[u] . row key[e] for TWINS queries; workspace for n rounded up to four. */
static void FN(twin_dots)(const struct FN(source) * x, const int32_t *key, int n, const REAL *q,
                          REAL *S, int64_t s_step, struct FN(prefetch) * prefetch)
{
    int64_t lines = FN(lines_of_step)(prefetch, (n + 3) / 4 * (x->width / LANES));
    for (int e = 0; e < n; e += 4) {
        int32_t rest[4]; /* the last key again and again */
        for (int t = 0; t < 4; t++)
            rest[t] = key[e + t < n ? e + t : n - 1];
        FN(twin_dots_of_four)(x, rest, q, x->width, S + e, s_step, prefetch, lines);
    }
}

/* y[u] = alpha[u] y[u] + sum_e P[u][e] (row key[e]) for TWINS queries, `vectors` vectors at c. */
TILE FN(twin_sums_at)(int vectors, const struct FN(source) * x, const int32_t *key, int n,
                      const REAL *P, int64_t p_step, const REAL *alpha, REAL *y, int64_t c,
                      struct FN(prefetch) * prefetch, int64_t lines)
{
    VEC acc[16][4];
    const REAL *p[TWINS];
    for (int u = 0; u < TWINS; u++) {
        p[u] = P + u * p_step;
        for (int w = 0; w < vectors; w++)
            acc[u][w] = FN(load)(y + u * x->width + c + w * LANES) * alpha[u];
    }
    for (int e = 0; e < n; e++) {
        FN(prefetch_lines)(prefetch, lines);
        FN(tile_turn)(TWINS, vectors, p, e, FN(row_of)(x, key[e]) + c, acc);
    }
    for (int u = 0; u < TWINS; u++)
        for (int w = 0; w < vectors; w++)
            FN(store)(y + u * x->width + c + w * LANES, acc[u][w]);
}

static void FN(twin_sums)(const struct FN(source) * x, const int32_t *key, int n, const REAL *P,
                          int64_t p_step, const REAL *alpha, REAL *y,
                          struct FN(prefetch) * prefetch)
{
    int64_t c = 0, blocks = x->width / LANES / 4 + x->width / LANES % 4;
    int64_t lines = FN(lines_of_step)(prefetch, n * blocks);
    for (; c + 4 * LANES <= x->width; c += 4 * LANES)
        FN(twin_sums_at)(4, x, key, n, P, p_step, alpha, y, c, prefetch, lines);
    for (; c < x->width; c += LANES)
        FN(twin_sums_at)(1, x, key, n, P, p_step, alpha, y, c, prefetch, lines);
}
