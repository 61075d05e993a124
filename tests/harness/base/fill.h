/* Test data: value = f(seed, tensor, index), so that no filter, thread count or sharding changes
 * it, and built from integer hashing, exact products and sums only, so that every machine and
 * every libm gives the same bits.
 *
 * Fills are named; each exists because of bugs that plain normal data cannot show (the README of
 * a checker is its list of inputs).
 */
#ifndef TESTS_HARNESS_BASE_FILL_H
#define TESTS_HARNESS_BASE_FILL_H

#include <stdint.h>

enum attn_fill {
#define ATTN_FILL(id, ...) ATTN_FILL_##id,
#include "tests/harness/base/fills.def"
    ATTN_FILLS
};

const char *attn_fill_name(enum attn_fill fill); /* "normal", "offset-120", ...                */
const char *attn_fill_aim(enum attn_fill fill);  /* one line: what it is for                   */
int attn_fill_find(const char *name);            /* -1 when unknown                            */

/* 64 well-mixed bits of (seed, stream, index): splitmix64 (Steele, Lea, Flood 2014). */
uint64_t attn_hash(uint64_t seed, uint64_t stream, uint64_t index);

/* In [0, 1), a multiple of 2^-53. */
double attn_hash_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Mean 0, variance 1, |x| < 4.9: the centred sum of eight 16-bit uniforms (Irwin-Hall), exact
 * up to its one final product.  Not normal in the far tail; nothing here needs that. */
double attn_hash_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* The same for many numbers of one stream: half of the mixing is done once. */
uint64_t attn_hash_stream(uint64_t seed, uint64_t stream);
double attn_hash_normal_of(uint64_t stream, uint64_t index);

#endif
