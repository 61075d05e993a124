/* The limits of this instruction set: loops of known work on one thread, in the vectors of the real
 * kernels, to be timed next to them (attnlab measure --peak).
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
