/* Vectors of REAL, for the instruction set that the including file is compiled for.
 *
 * Everything here is GNU C vector arithmetic, so that one text serves every instruction set; only
 * fused multiply-add and maximum are named by the instruction set itself.  The including file
 * defines
 *      REAL, INT      float and int32_t, or double and int64_t
 *      FN(name)       name with the type's suffix
 *      VEC_BYTES      64, 32 or 16
 *      VEC_FMA(a,b,c) a * b + c, rounded once where the machine can
 *      VEC_MAX(a,b)   a > b ? a : b in every lane: b when either is NaN
 */
#undef VEC
#undef IVEC
#undef LANES
#undef LANE_COUNT
#define VEC        FN(vec)
#define IVEC       FN(ivec)
#define LANE_COUNT (VEC_BYTES * 8 / REAL_BITS) /* for #if; LANES is the same number */
#define LANES      (VEC_BYTES / (int)sizeof(REAL))

typedef REAL VEC __attribute__((vector_size(VEC_BYTES)));
typedef INT IVEC __attribute__((vector_size(VEC_BYTES)));
typedef REAL FN(vec_anywhere)
    __attribute__((vector_size(VEC_BYTES), aligned(sizeof(REAL)), may_alias));

static inline VEC FN(load)(const REAL *x)
{
    return *(const FN(vec_anywhere) *)x;
}

static inline void FN(store)(REAL *x, VEC a)
{
    *(FN(vec_anywhere) *)x = a;
}

static inline VEC FN(all)(REAL x) /* x in every lane */
{
    VEC zero = {0};
    return x - zero; /* x - 0 is x, -0 and NaN included: the compiler makes it a broadcast */
}

/* Lane by lane: `yes` where mask is all ones, `no` where it is zero. */
static inline VEC FN(choose)(IVEC mask, VEC yes, VEC no)
{
    return (VEC)(((IVEC)yes & mask) | ((IVEC)no & ~mask));
}

/* All ones in the lanes whose bit is set. */
static inline IVEC FN(lanes_of)(unsigned bits)
{
    static const INT bit[16] = {1,     2,     4,     8,     0x10,   0x20,   0x40,   0x80,
                                0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000};
    IVEC lane;
    memcpy(&lane, bit, sizeof lane);
    return (lane & (INT)bits) != 0;
}

/* 1 if a bit is set in any lane. */
static inline int FN(any)(IVEC mask)
{
    uint64_t word[VEC_BYTES / 8], all = 0;
    memcpy(word, &mask, sizeof word);
    for (int n = 0; n < VEC_BYTES / 8; n++)
        all |= word[n];
    return all != 0;
}

/* n, rounded up to a multiple of LANES. */
static inline int64_t FN(round_up)(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

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
