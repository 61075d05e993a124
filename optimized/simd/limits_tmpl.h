/* What this instruction set can do at most: loops of known work on one thread, in the vectors and
 * with the exp of the real kernels, to be timed next to them (attnlab bench).
 *
 * Each runs `rounds` times over x[n], n a multiple of LIMIT_STEP, at least 3 * LIMIT_STEP (and 512
 * bytes), and returns the work done in the unit of enum attn_limit.  x holds numbers in [0,1]; some
 * are overwritten, by numbers in [0,1].
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
