/* The 16-bit storage types: bf16 and f16 from and to float and double.
 *
 *      bf16   sign, 8 bits of exponent, 7 of fraction: the upper half of a float
 *      f16    sign, 5 bits of exponent, 10 of fraction: up to 65504, subnormals down to 2^-24
 *
 * Round to nearest, ties to even, whatever the rounding mode; subnormals are kept; what rounds
 * beyond the largest number is an infinity; a NaN stays one, with its sign and leading payload, and
 * quiet (but for bf16 to float, which is a shift).  Integer arithmetic only, so that every machine
 * gives the same bits: vectorised conversions are tested against these.
 *
 * Source: IEEE 754-2019, 3.4 (binary16) and 4.3.1. */
#ifndef REF_HALF_H
#define REF_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t attn_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float attn_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float attn_bf16_to_float(uint16_t x)
{
    return attn_float_of_bits((uint32_t)x << 16);
}

static inline uint16_t attn_bf16_from_float(float x)
{
    uint32_t bits = attn_float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40); /* quiet: the payload may be all in the lower half */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float attn_f16_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 0x3ff;
    if (exponent == 31)
        return attn_float_of_bits(sign | 0x7f800000u | (fraction != 0) << 22 | fraction << 13);
    if (exponent > 0)
        return attn_float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float small = (float)fraction * 0x1p-24f; /* a whole number of the smallest: exact */
    return sign != 0 ? -small : small;
}

static inline uint16_t attn_f16_from_float(float x)
{
    uint32_t bits = attn_float_bits(x), size = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x47800000u) /* 65536 */
        return (uint16_t)(sign | 0x7c00);
    if (size >= 0x38800000u) /* 2^-14: normal; a carry into the exponent is the right answer */
        return (uint16_t)(sign | (size - 0x38000000u + 0xfff + (size >> 13 & 1)) >> 13);
    uint32_t exponent = size >> 23, shift = 126 - exponent;
    if (exponent < 102) /* below half of the smallest */
        return (uint16_t)sign;
    uint32_t whole = (size & 0x7fffffu) | 0x800000u, up = whole >> shift;
    uint32_t rest = whole & ((1u << shift) - 1), half = 1u << (shift - 1);
    up += rest > half || (rest == half && (up & 1) != 0);
    return (uint16_t)(sign | up);
}

/* Towards zero, with the last bit set where anything was lost: rounding this once more, to a type
 * with two bits fewer or less, is rounding x once. */
static inline float attn_float_to_odd(double x)
{
    float near = (float)x;
    uint32_t bits = attn_float_bits(near);
    if (x != x || (double)near == x)
        return near;
    bits -= ((double)near > x) != (x < 0); /* no branch: either is as likely */
    return attn_float_of_bits(bits | 1);
}

static inline uint16_t attn_bf16_from_double(double x)
{
    return attn_bf16_from_float(attn_float_to_odd(x));
}

static inline uint16_t attn_f16_from_double(double x)
{
    return attn_f16_from_float(attn_float_to_odd(x));
}

#endif
