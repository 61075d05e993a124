/* How fast this machine can be at most, measured beside the calls of a point: clocks drift by
 * several per cent between minutes.  docs/measuring.md, Speed. */
#ifndef EXPERIMENTS_MEASURE_POINT_PEAK_H
#define EXPERIMENTS_MEASURE_POINT_PEAK_H

#include "optimized/registry.h"
#include "optimized/simd/kernels.h"

/* The kernels by whose peak a spec is measured: those that it names, or the best; NULL: none. */
const struct attn_kernels *attn_peak_kernels(const struct attn_spec *spec, enum attn_dtype dtype);

/* FMA: flops a second of multiply-adds on registers.  READ: bytes a second read from an array
 * beyond every cache, one of up to 256 MiB for each thread, in ordinary pages as tensors have.  A
 * sample of about `seconds`, the sum of all threads; NaN: no memory, or no threads. */
double attn_peak_sample(const struct attn_kernels *kernels, enum attn_limit limit, int threads,
                        double seconds);

#endif
