/* Storage types from and to REAL, a vector at a time: the bits of ref/half.h, on every machine.
 *
 * Rounding to nearest is done by integers, or by an instruction that names its rounding, so that it
 * does not depend on the floating-point environment; subnormals are kept.  (VCVTNEPS2BF16 is not
 * used because it takes subnormals for zero.)  Where the machine converts f16 itself, the including
 * file defines
 *      F16_TO_VEC(h)    vec_f32 of halves_f32
 *      F16_FROM_VEC(x)  halves_f32 of vec_f32, to nearest
 */

#if REAL_BITS == 32
typedef uint32_t uvec_f32 __attribute__((vector_size(VEC_BYTES)));
typedef uint16_t halves_f32 __attribute__((vector_size(VEC_BYTES / 2)));

static inline vec_f32 bf16_to_vec(halves_f32 h)
{
    return (vec_f32)(__builtin_convertvector(h, uvec_f32) << 16);
}

static inline uvec_f32 choose_bits(uvec_f32 mask, uvec_f32 yes, uvec_f32 no)
{
    return (yes & mask) | (no & ~mask);
}

static inline halves_f32 bf16_from_vec(vec_f32 x)
{
    uvec_f32 bits = (uvec_f32)x, nan = (uvec_f32)((bits & 0x7fffffffu) > 0x7f800000u);
    uvec_f32 near = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return __builtin_convertvector(choose_bits(nan, bits >> 16 | 0x40u, near), halves_f32);
}

#ifndef F16_TO_VEC
#define F16_TO_VEC f16_to_vec
static inline vec_f32 f16_to_vec(halves_f32 h)
{
    uvec_f32 x = __builtin_convertvector(h, uvec_f32), size = x & 0x7fffu,
             sign = (x & 0x8000u) << 16;
    uvec_f32 normal = (size << 13) + (112u << 23); /* the bias of float is greater by 112 */
    uvec_f32 quiet = (uvec_f32)(size > 0x7c00u) & 0x400000u;
    uvec_f32 top = (size << 13) | 0x7f800000u | quiet; /* infinity or NaN */
    /* a whole number of 2^-24, exactly */
    uvec_f32 small = (uvec_f32)(__builtin_convertvector((ivec_f32)size, vec_f32) * 0x1p-24f);
    uvec_f32 bits = choose_bits((uvec_f32)(size < 0x400u), small, normal);
    return (vec_f32)(sign | choose_bits((uvec_f32)(size >= 0x7c00u), top, bits));
}
#endif

#ifndef F16_FROM_VEC
#define F16_FROM_VEC f16_from_vec
static inline halves_f32 f16_from_vec(vec_f32 x)
{
    uvec_f32 bits = (uvec_f32)x, size = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    uvec_f32 normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    uvec_f32 top = 0x7c00u | ((uvec_f32)(size > 0x7f800000u) & (0x200u | (size >> 13 & 0x3ffu)));
    /* below 2^-14: drop what lies under 2^-24, at most everything; from 25 bits on, all goes */
    uvec_f32 drop = 126u - (size >> 23);
    drop = choose_bits((uvec_f32)(drop > 31u), (uvec_f32){0} + 31u, drop);
    uvec_f32 one = (uvec_f32){0} + 1u, whole = (size & 0x7fffffu) | 0x800000u;
    uvec_f32 up = whole >> drop, rest = whole & ((one << drop) - 1u), half = one << drop >> 1;
    uvec_f32 odd = (uvec_f32)((up & 1u) != 0);
    up -= (uvec_f32)(rest > half) | ((uvec_f32)(rest == half) & odd); /* true is -1 */
    uvec_f32 finite = choose_bits((uvec_f32)(size < 0x38800000u), up, normal);
    uvec_f32 all = sign | choose_bits((uvec_f32)(size >= 0x47800000u), top, finite);
    return __builtin_convertvector(all, halves_f32);
}
#endif

typedef double other_f32 __attribute__((vector_size(2 * VEC_BYTES)));
#else
typedef float other_f64 __attribute__((vector_size(VEC_BYTES / 2)));
#endif

/* LANES numbers, next to each other at `from`. */
static inline VEC FN(widen_vector)(enum attn_dtype dtype, const void *from)
{
    FN(other) other; /* the type of the two that REAL is not */
    if (dtype == ATTN_F32 || dtype == ATTN_F64) {
        memcpy(&other, from, sizeof other);
        return __builtin_convertvector(other, VEC);
    }
#if REAL_BITS == 32
    halves_f32 h;
    memcpy(&h, from, sizeof h);
    return dtype == ATTN_BF16 ? bf16_to_vec(h) : F16_TO_VEC(h);
#else
    uint16_t h[LANES];
    VEC x = {0};
    memcpy(h, from, sizeof h);
    for (int n = 0; n < LANES; n++)
        x[n] = (double)(dtype == ATTN_BF16 ? attn_bf16_to_float(h[n]) : attn_f16_to_float(h[n]));
    return x;
#endif
}

static inline void FN(narrow_vector)(enum attn_dtype dtype, VEC x, void *to)
{
    if (dtype == ATTN_F32 || dtype == ATTN_F64) {
        FN(other) other = __builtin_convertvector(x, FN(other));
        memcpy(to, &other, sizeof other);
        return;
    }
#if REAL_BITS == 32
    halves_f32 h = dtype == ATTN_BF16 ? bf16_from_vec(x) : F16_FROM_VEC(x);
#else
    uint16_t h[LANES];
    for (int n = 0; n < LANES; n++)
        h[n] = dtype == ATTN_BF16 ? attn_bf16_from_double(x[n]) : attn_f16_from_double(x[n]);
#endif
    memcpy(to, &h, sizeof h);
}

/* The same of n numbers, at most LANES, REALs too; the other lanes are 0. */
static inline VEC FN(widen_some)(enum attn_dtype dtype, const void *from, int64_t size, int64_t n)
{
    char some[LANES * 8] = {0};
    VEC x;
    memcpy(some, from, (size_t)(n * size));
    if (size != sizeof(REAL))
        return FN(widen_vector)(dtype, some);
    memcpy(&x, some, sizeof x);
    return x;
}

/* Is one of n numbers, next to each other, a NaN?  A NaN is not equal to itself. */
static int FN(has_nan)(enum attn_dtype dtype, const void *from, int64_t n)
{
    const char *x = from;
    int64_t size = dtype == ATTN_F64 ? 8 : dtype == ATTN_F32 ? 4 : 2, i = 0;
    IVEC found = {0};
    if (size == sizeof(REAL))
        for (; i + LANES <= n; i += LANES) {
            VEC v = FN(load)((const REAL *)from + i);
            found |= v != v;
        }
    for (; i < n; i += LANES) {
        VEC v = FN(widen_some)(dtype, x + i * size, size, n - i < LANES ? n - i : LANES);
        found |= v != v;
    }
    return FN(any)(found);
}

/* n numbers, next to each other; nothing beyond them is touched. */
static void FN(widen)(enum attn_dtype dtype, const void *from, int64_t n, void *to)
{
    const char *x = from;
    REAL *y = to;
    int64_t size = dtype == ATTN_F64 ? 8 : dtype == ATTN_F32 ? 4 : 2, i = 0;
    if (size == sizeof(REAL)) {
        if (n > 0)
            memcpy(to, from, (size_t)(n * size));
        return;
    }
    for (; i + LANES <= n; i += LANES)
        FN(store)(y + i, FN(widen_vector)(dtype, x + i * size));
    if (i < n) {
        VEC last = FN(widen_some)(dtype, x + i * size, size, n - i);
        memcpy(y + i, &last, (size_t)(n - i) * sizeof *y);
    }
}

/* The same backwards, each number rounded once. */
static void FN(narrow)(enum attn_dtype dtype, const void *from, int64_t n, void *to)
{
    const REAL *x = from;
    char *y = to;
    int64_t size = dtype == ATTN_F64 ? 8 : dtype == ATTN_F32 ? 4 : 2, i = 0;
    if (size == sizeof(REAL)) {
        if (n > 0)
            memcpy(to, from, (size_t)(n * size));
        return;
    }
    for (; i + LANES <= n; i += LANES)
        FN(narrow_vector)(dtype, FN(load)(x + i), y + i * size);
    if (i < n) {
        char rest[LANES * 8];
        VEC last = {0};
        memcpy(&last, x + i, (size_t)(n - i) * sizeof *x);
        FN(narrow_vector)(dtype, last, rest);
        memcpy(y + i * size, rest, (size_t)((n - i) * size));
    }
}
