/* tanh, for softcap; LSE; and functions of whole arrays, for those that are not kernels. */

/* tanh x: odd, exactly 1 where it rounds to 1, NaN for NaN.  Its relative error is below 2 u:
 * at most 1.95 u over all floats, 1.73 over millions of doubles (tests/fixtures/isa_fixture.c).
 *
 * Up to TANH_SPLIT it is x + x^3 P(x^2): x carries most of the value, so that the error of the rest
 * counts little.  Beyond, it is 1 - 2 / (e^2x + 1): there the fraction is small, and where e^2x is
 * infinite the result is 1. */
static inline VEC FN(tanh)(VEC x)
{
    static const REAL term[] = TANH_TERMS;
    IVEC sign = (IVEC)x & (IVEC)FN(all)((REAL)-0.0);
    VEC size = (VEC)((IVEC)x ^ sign), square = size * size, p = FN(all)(term[0]);
    for (int n = 1; n < (int)(sizeof term / sizeof *term); n++)
        p = VEC_FMA(p, square, FN(all)(term[n]));
    VEC near = VEC_FMA(size * square, p, size);
    VEC far = 1 - 2 / (FN(exp2)(size * (REAL)(2 * LOG2_E)) + 1);
    return (VEC)((IVEC)FN(choose)(size <= TANH_SPLIT, near, far) | sign);
}

/* LSE of a running maximum to base 2 and its sum.  A sum of 0: no key was seen, or none but at
 * -inf. */
static REAL FN(lse_of)(REAL m, REAL l)
{
    return l == 0 ? (REAL)-INFINITY : m * (REAL)LN2 + REAL_LOG(l);
}

/* y[i] = f(x[i]), n of them. */
#define ARRAY_FUNCTION(f)                                            \
    static void FN(f##_array)(int64_t n, const void *from, void *to) \
    {                                                                \
        const REAL *x = from;                                        \
        REAL *y = to;                                                \
        int64_t i = 0;                                               \
        for (; i + LANES <= n; i += LANES)                           \
            FN(store)(y + i, FN(f)(FN(load)(x + i)));                \
        if (i < n) {                                                 \
            VEC rest = {0};                                          \
            memcpy(&rest, x + i, (size_t)(n - i) * sizeof *x);       \
            rest = FN(f)(rest);                                      \
            memcpy(y + i, &rest, (size_t)(n - i) * sizeof *y);       \
        }                                                            \
    }

ARRAY_FUNCTION(exp2)
ARRAY_FUNCTION(tanh)
#undef ARRAY_FUNCTION
