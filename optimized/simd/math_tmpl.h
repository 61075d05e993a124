/* 2^x; tanh, for softcap; LSE; and functions of whole arrays, for those that are not kernels. */

/* 2^x.  Exactly 1 at 0, 0 for -inf, NaN for NaN, infinity from 128 (double: 1024) up, and perhaps
 * already from 127.5 (1023.5).  Where x is below -126 (-1022) the result may be 0 or the subnormal
 * number; below -151 (-1076) it is 0.  Between those ends its relative error is at most 3.3 u: over
 * all floats 3.07 u with AVX-512, 2.88 with AVX2, 3.24 where products are rounded; over millions of
 * doubles 1.43, 1.32, 1.71 (tests/fixtures/isa_fixture.c measures it at every run).
 *
 * With two instructions of AVX-512, x = n + f, n = floor(x), and n is never seen: VEC_REST(x) is f
 * (0 for an infinity) and VEC_SCALE(p, x) is p * 2^floor(x).
 *
 * Elsewhere n is the nearest whole number and |f| <= 1/2: adding 1.5 * 2^23 leaves n in the low
 * bits of the sum; with the exponent's bias added as well, one shift makes those bits the number
 * 2^n, or 0 when n is the lowest. */
static inline VEC FN(exp2)(VEC x)
{
#ifdef VEC_REST_F32
    static const REAL term[] = EXP2_FLOOR_TERMS;
    VEC f = VEC_REST(x);
#else
    static const REAL term[] = EXP2_TERMS;
    x = VEC_MAX(FN(all)(EXP2_LOW), x); /* in this order a NaN in x stays */
    x = VEC_MIN(FN(all)(EXP2_HIGH), x);
    VEC shifted = x + EXP2_MAGIC, f = x - (shifted - EXP2_MAGIC);
#endif
    VEC p = FN(all)(term[0]);
    for (int n = 1; n < (int)(sizeof term / sizeof *term); n++)
        p = VEC_FMA(p, f, FN(all)(term[n]));
#ifdef VEC_REST_F32
    return VEC_SCALE(p, x);
#else
    return p * (VEC)((IVEC)shifted << EXP2_SHIFT);
#endif
}

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
