/* Test data: value = f(seed, tensor, index), so that no filter, thread count or sharding changes
 * it, and built from integer hashing, exact products and sums only, so that every machine and
 * every libm gives the same bits.
 *
 * Fills are named; each exists because of bugs that plain normal data cannot show (the README of
 * a checker is its list of inputs).
 */
#ifndef TESTS_HARNESS_FILL_H
#define TESTS_HARNESS_FILL_H

#include <stdint.h>

enum attn_fill {
    ATTN_FILL_NORMAL,      /* near-normal values of variance 1: the baseline                   */
    ATTN_FILL_OFFSET_M120, /* every score near -120: m = 0 starts, tails scored 0, LSE < -88   */
    ATTN_FILL_OFFSET_M32K, /* near -32768: finite "minus infinity" sentinels                   */
    ATTN_FILL_OFFSET_M3E5, /* near -3e5: the larger sentinels                                  */
    ATTN_FILL_OFFSET_P120, /* near +120: no maximum subtracted                                 */
    ATTN_FILL_STAIRS_UP,   /* scores climb by about 8 a key: a rescale at every step           */
    ATTN_FILL_STAIRS_DOWN, /* and fall: never a rescale, late keys vanish                      */
    ATTN_FILL_CLIFFS,      /* gaps above 88 between quarters of the keys: merge overflow       */
    ATTN_FILL_SPIKE,       /* one key at +200: lost or doubled blocks                          */
    ATTN_FILL_TIES,        /* several exactly equal maxima, V of one sign                      */
    ATTN_FILL_FLAT,        /* q = 0, V = 0.1: the length of the sum itself                     */
    ATTN_FILL_ONES,        /* V = 1: the normaliser                                            */
    ATTN_FILL_HETERO,      /* heads and batches of scales 1, 64, 4096: blind norms             */
    ATTN_FILL_INTEGER,     /* small integers: exact scores                                     */
    ATTN_FILL_LOWRANK,     /* nearly parallel keys: cancelling gradients                       */
    ATTN_FILL_TINY,        /* V subnormal in its storage type: flushed stores and operands     */
    ATTN_FILL_HUGE,        /* V and dO large: f16 gradients beyond 65504 are stored as inf     */
    ATTN_FILL_REVEAL,      /* q = 0, V = unit columns: n_i * O_i counts the visible keys       */
    ATTN_FILL_SELECT,      /* each query picks one key by a gap above 200: O_i = V_j bitwise   */
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

#endif
