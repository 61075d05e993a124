/* What this instruction set can do at most: loops of known work on one thread, in the vectors and
 * with the exp of the real kernels, to be timed next to them (attnlab bench).
 *
 * Each runs `rounds` times over x[n], n a multiple of LIMIT_STEP, at least 3 * LIMIT_STEP (and 512
 * bytes), and
 * returns the work done in the unit of enum attn_limit.  x holds numbers in [0,1]; some are
 * overwritten, by numbers in [0,1].
 */
#define LIMIT_CHAINS \
    (3 * TILE_ROWS) /* accumulators: as many as a tile has, more than the latency */
#define LIMIT_STEP (8 * LANES)

/* Registers only: a = a/2 + 1/4 in independent chains.  The chains begin differently, lest the
 * compiler make one of them. */
static double FN(limit_fma)(void *x, int64_t n, int64_t rounds)
{
    VEC a[LIMIT_CHAINS], half = FN(all)((REAL)0.5), quarter = FN(all)((REAL)0.25), sum = {0};
    const REAL *from = x;
    (void)n;
#pragma GCC unroll 24
    for (int t = 0; t < LIMIT_CHAINS; t++)
        a[t] = FN(load)(from + t * LANES);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
        for (int t = 0; t < LIMIT_CHAINS; t++)
            a[t] = VEC_FMA(a[t], half, quarter);
    }
#pragma GCC unroll 24
    for (int t = 0; t < LIMIT_CHAINS; t++)
        sum += a[t];
    FN(store)(x, sum * (REAL)(1.0 / LIMIT_CHAINS));
    return 2.0 * LIMIT_CHAINS * LANES * (double)rounds;
}

/* A step of the online softmax without its maximum: load, subtract, 2^x, store, add. */
static double FN(limit_exp2)(void *x, int64_t n, int64_t rounds)
{
    const int64_t half = n / (2 * LIMIT_STEP) * LIMIT_STEP;
    const REAL *s = x;
    REAL *p = (REAL *)x + half;
    VEC m = FN(all)(1), l = {0}, other = {0};
    for (int64_t r = 0; r < rounds; r++)
        for (int64_t j = 0; j < half; j += 4 * LANES) {
            VEC a = FN(exp2)(FN(load)(s + j) - m), b = FN(exp2)(FN(load)(s + j + LANES) - m);
            VEC c = FN(exp2)(FN(load)(s + j + 2 * LANES) - m);
            VEC d = FN(exp2)(FN(load)(s + j + 3 * LANES) - m);
            FN(store)(p + j, a);
            FN(store)(p + j + LANES, b);
            FN(store)(p + j + 2 * LANES, c);
            FN(store)(p + j + 3 * LANES, d);
            l += a + b;
            other += c + d;
        }
    FN(store)(p, (l + other) * (REAL)(1.0 / ((double)rounds * (double)half)));
    return (double)rounds * (double)half;
}

/* Eight sums, so that neither the latency nor the rate of additions is what limits. */
static double FN(limit_read)(void *x, int64_t n, int64_t rounds)
{
    VEC sum[8] = {{0}}, all = {0};
    const REAL *from = x;
    for (int64_t r = 0; r < rounds; r++)
        for (int64_t j = 0; j + LIMIT_STEP <= n; j += LIMIT_STEP) {
#pragma GCC unroll 8
            for (int t = 0; t < 8; t++)
                sum[t] += FN(load)(from + j + t * LANES);
        }
    for (int t = 0; t < 8; t++)
        all += sum[t];
    FN(store)(x, all * (REAL)(1.0 / ((double)rounds * (double)n)));
    return (double)rounds * (double)n * sizeof(REAL);
}

/* STREAM's triad with a factor of 1/2 on both: two thirds read, one written by ordinary stores.
 * What these read before they write is not counted, as it is not there. */
static double FN(limit_triad)(void *x, int64_t n, int64_t rounds)
{
    const int64_t third = n / (3 * LIMIT_STEP) * LIMIT_STEP;
    const REAL *b = x, *c = b + third;
    REAL *a = (REAL *)x + 2 * third;
    VEC half = FN(all)((REAL)0.5);
    for (int64_t r = 0; r < rounds; r++)
        for (int64_t j = 0; j < third; j += LANES)
            FN(store)(a + j, VEC_FMA(half, FN(load)(b + j), half * FN(load)(c + j)));
    return (double)rounds * 3 * (double)third * sizeof(REAL);
}

/* Rows of 256 bytes from anywhere in x, as sparse attention reads K and V at d = 64: each round
 * takes as many as x has, rounded down to a power of two.  Two linear congruential generators
 * (Knuth's constants) say which, so that no load waits for another. */
static double FN(limit_gather)(void *x, int64_t n, int64_t rounds)
{
    enum { ROW = 256 / (int)sizeof(REAL), VECTORS = ROW / LANES };
    const REAL *from = x;
    VEC even[VECTORS] = {{0}}, odd[VECTORS] = {{0}}, all = {0};
    uint64_t a = 1, b = 2, rows = 2;
    while (2 * rows * ROW <= (uint64_t)n)
        rows *= 2;
    for (uint64_t r = (uint64_t)rounds * (rows / 2); r > 0; r--) {
        a = a * 6364136223846793005u + 1442695040888963407u;
        b = b * 6364136223846793005u + 1442695040888963407u;
        const REAL *u = from + ((a >> 33) & (rows - 1)) * ROW,
                   *v = from + ((b >> 33) & (rows - 1)) * ROW;
#pragma GCC unroll 16
        for (int t = 0; t < VECTORS; t++) {
            even[t] += FN(load)(u + t * LANES);
            odd[t] += FN(load)(v + t * LANES);
        }
    }
    for (int t = 0; t < VECTORS; t++)
        all += even[t] + odd[t];
    double taken = (double)rounds * (double)rows;
    FN(store)(x, all * (REAL)(1 / (taken * VECTORS)));
    return taken * 256;
}

/* Integers on general registers, in independent chains that the compiler must not join: as many
 * instructions a cycle as the core has units for, and neither vectors nor memory.  What is missing
 * from its best rate was given to somebody else, on the core's other hardware thread. */
static double FN(limit_issue)(void *x, int64_t n, int64_t rounds)
{
    enum { CHAINS = 8, TIMES = 8 };
    uint64_t a[CHAINS] = {0};
    (void)x;
    (void)n;
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 64
        for (int t = 0; t < TIMES * CHAINS; t++) {
            a[t % CHAINS]++;
            __asm__ volatile("" : "+r"(a[t % CHAINS]));
        }
    }
    return (double)(CHAINS * TIMES) * (double)rounds;
}

/* ---- tiles ------------------------------------------------------------------------------------
 *
 * The arithmetic of a pass on one panel of queries and so many keys (at most ATTN_KEY_BLOCK) that
 * all of them see, again and again: products and softmax by the very functions of the pass, and
 * everything near.  What a pass is slower than this, it loses to memory, masks, packing and
 * threads.  Each returns flops: of 2 products, of 5.  What they leave in x is neither infinite nor
 * subnormal, but may be above 1. */

/* What the next n numbers of x are for, in whole vectors. */
static REAL *FN(limit_workspace)(REAL **x, int64_t n)
{
    REAL *ws = *x;
    *x += FN(round_up)(n);
    return ws;
}

/* row[j] = from + j * step for n rows, and the last again for tiles that are not full. */
static void FN(limit_rows)(const REAL *from, int64_t n, int64_t step, const REAL **row)
{
    for (int64_t j = 0; j < n + 8; j++)
        row[j] = from + (j < n ? j : n - 1) * step;
}

static double FN(limit_forward)(void *x, int64_t d, int64_t keys, int64_t rounds)
{
    REAL *at = x, *Q = FN(limit_workspace)(&at, PANEL * d),
         *O = FN(limit_workspace)(&at, PANEL * d);
    REAL *S = FN(limit_workspace)(&at, (keys + 8) * PANEL), *m = FN(limit_workspace)(&at, PANEL);
    REAL *l = FN(limit_workspace)(&at, PANEL), *K = FN(limit_workspace)(&at, keys * d);
    REAL *V = FN(limit_workspace)(&at, keys * d);
    const REAL *k[ATTN_KEY_BLOCK + 8], *v[ATTN_KEY_BLOCK + 8];
    VEC max[ATTN_PANEL_VECTORS];
    FN(limit_rows)(K, keys, d, k);
    FN(limit_rows)(V, keys, d, v);
    memset(O, 0, (size_t)(PANEL * d) * sizeof *O); /* lest it grow without end */
    for (int64_t r = 0; r < rounds; r++) {
        for (int u = 0; u < ATTN_PANEL_VECTORS; u++)
            max[u] = FN(load)(m + u * LANES);
        int n = FN(optimistic_scores)(k, (int)keys, d, Q, S, 4, m, l, max, NULL);
        for (int e = 0; e < PANEL; e += LANES)
            FN(online_softmax)
        (S + e, n, (int)keys, max[e / LANES], 4, m + e, l + e, O + e, d);
        FN(values)(ATTN_PANEL_VECTORS, v, (int)keys, d, S, O, NULL);
    }
    return (double)rounds * 2 * 2 * PANEL * (double)keys * (double)d;
}

static double FN(limit_backward)(void *x, int64_t d, int64_t keys, int64_t rounds)
{
    int64_t wide = FN(round_up)(d);
    REAL *at = x, *Q = FN(limit_workspace)(&at, PANEL * d),
         *dO = FN(limit_workspace)(&at, PANEL * d);
    REAL *dQ = FN(limit_workspace)(&at, PANEL * d), *lse = FN(limit_workspace)(&at, PANEL);
    REAL *S = FN(limit_workspace)(&at, (keys + 8) * PANEL),
         *dP = FN(limit_workspace)(&at, (keys + 8) * PANEL);
    REAL *K = FN(limit_workspace)(&at, keys * d), *V = FN(limit_workspace)(&at, keys * d);
    REAL *dK = FN(limit_workspace)(&at, (keys + 1) * wide),
         *dV = FN(limit_workspace)(&at, (keys + 1) * wide);
    REAL *rows = FN(limit_workspace)(&at, PANEL * wide);
    const REAL *k[ATTN_KEY_BLOCK + 8], *v[ATTN_KEY_BLOCK + 8], *q[ATTN_MAX_PANEL + 8];
    uint8_t key[ATTN_KEY_BLOCK];
    FN(limit_rows)(K, keys, d, k);
    FN(limit_rows)(V, keys, d, v);
    FN(limit_rows)(rows, PANEL, wide, q);
    for (int64_t j = 0; j < keys; j++)
        key[j] = (uint8_t)j;
    memset(dQ, 0, (size_t)(PANEL * d) * sizeof *dQ);
    memset(dK, 0, (size_t)((keys + 1) * wide) * sizeof *dK);
    memset(dV, 0, (size_t)((keys + 1) * wide) * sizeof *dV);
    for (int64_t r = 0; r < rounds; r++) {
        FN(step_p)(k, (int)keys, d, Q, lse, S, NULL);
        FN(step_ds)(v, (int)keys, d, dO, lse, S, dP, NULL);
        FN(values)(ATTN_PANEL_VECTORS, k, (int)keys, d, dP, dQ, NULL);
        FN(gradients)(dV, wide, key, (int)keys, dV + keys * wide, S, q, PANEL, NULL);
        FN(gradients)(dK, wide, key, (int)keys, dK + keys * wide, dP, q, PANEL, NULL);
    }
    return (double)rounds * 5 * 2 * PANEL * (double)keys * (double)d;
}

/* Numbers of x that either takes. */
static int64_t FN(limit_tiles_workspace)(int64_t d, int64_t keys)
{
    int64_t wide = FN(round_up)(d);
    return 4 * PANEL * wide + 2 * PANEL + 2 * (keys + 8) * PANEL + 4 * (keys + 1) * wide;
}
