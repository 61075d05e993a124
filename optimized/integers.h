/* Small arithmetic of extents, in one place: all arguments are at least 0, divisors at least 1. */
#ifndef OPTIMIZED_INTEGERS_H
#define OPTIMIZED_INTEGERS_H

#include <stdint.h>

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t less(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t at_least_1(int64_t n)
{
    return greater(n, 1);
}

#endif
