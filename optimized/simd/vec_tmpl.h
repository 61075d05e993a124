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

/* ---- a square: LANES vectors of LANES numbers -------------------------------------------------
 *
 * Exchanging the off-diagonal quarters of a square, then those of each quarter, and so on,
 * transposes it.  In the stage of distance s, rows i and i + s (bit s of i clear) exchange halves:
 * LOW(n) and HIGH(n) say where lane n of either comes from, b's lanes counted on from a's. */
#undef LOW
#undef HIGH
#undef MIX
#undef STAGE
#define LOW(n, s)     ((n) & (s) ? LANE_COUNT + (n) - (s) : (n))
#define HIGH(n, s)    ((n) & (s) ? LANE_COUNT + (n) : (n) + (s))
#define PAIR(X, n, s) X(n, s), X((n) + 1, s)
#define FOUR(X, n, s) PAIR(X, n, s), PAIR(X, (n) + 2, s)
#define OCTET(X, s)   FOUR(X, 0, s), FOUR(X, 4, s)
#if LANE_COUNT == 16
#define MIX(a, b, X, s) __builtin_shufflevector(a, b, OCTET(X, s), FOUR(X, 8, s), FOUR(X, 12, s))
#elif LANE_COUNT == 8
#define MIX(a, b, X, s) __builtin_shufflevector(a, b, OCTET(X, s))
#elif LANE_COUNT == 4
#define MIX(a, b, X, s) __builtin_shufflevector(a, b, FOUR(X, 0, s))
#else
#define MIX(a, b, X, s) __builtin_shufflevector(a, b, PAIR(X, 0, s))
#endif
#define STAGE(s)                                   \
    for (int i = 0; (s) < LANES && i < LANES; i++) \
        if ((i & (s)) == 0) {                      \
            VEC a = x[i], b = x[i + (s)];          \
            x[i] = MIX(a, b, LOW, s);              \
            x[i + (s)] = MIX(a, b, HIGH, s);       \
        }

static inline void FN(transpose)(VEC x[])
{
    STAGE(1)
#if LANE_COUNT >= 4
    STAGE(2)
#endif
#if LANE_COUNT >= 8
    STAGE(4)
#endif
#if LANE_COUNT >= 16
    STAGE(8)
#endif
}
