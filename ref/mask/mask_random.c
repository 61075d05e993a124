/* random(p,seed) and blocks(size,p,seed): which keys a row keeps, without storing them.
 *
 * Blocks of `size` queries choose among blocks of `size` keys; below, a row and a column are one
 * such block each, and for random(...) one token.
 *
 * A row keeps exactly k = round(p * columns).  Drawing k distinct columns the usual way needs
 * memory, and asking "is column j among them?" needs a search.  A permutation of the columns that
 * can be evaluated at one point needs neither:
 *
 *      column j is kept  iff  rank(j) < k            asking is O(1)
 *      the kept columns are   column(0 .. k-1)       listing is O(k), column = inverse of rank
 *
 * Such a permutation is a small block cipher.  A Feistel network turns any function F into a
 * permutation of pairs (x, y), because each round can be undone:
 *
 *      (x, y) -> (y, x ^ F(y))       undone by       (x, y) -> (y ^ F(x), x)
 *
 * Four rounds of independent pseudo-random functions give a strong pseudo-random permutation
 * (Luby, Rackoff 1988).  It permutes 4^half columns, the smallest such number that is at least
 * Lk, thus less than 4 Lk for Lk > 1; results beyond Lk are permuted again until one falls inside
 * ("cycle walking": Black, Rogaway, Ciphers with arbitrary finite domains, 2002), fewer than 4
 * steps on average.
 *
 * Integer arithmetic modulo 2^64 only: every machine draws the same masks.  Not cryptography.
 */
#include "ref/mask/mask_internal.h"

enum { ROUNDS = 4 };

/* Finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes all 64 bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* 2^64 divided by the golden ratio: consecutive values of n land far apart. */
static uint64_t absorb(uint64_t key, uint64_t n)
{
    return mix(key + (n + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t attn_mask_random_key(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                              int64_t h, int64_t i)
{
    uint64_t key = absorb(absorb(0, node->seed), (uint64_t)(i / node->size));
    if (node->by_head)
        key = absorb(key, (uint64_t)(b * mask->shape.heads + h));
    return key;
}

int attn_mask_random_half(int64_t columns)
{
    int half = 1;
    while (((int64_t)1 << (2 * half)) < columns)
        half++;
    return half;
}

/* F of round r: the top bits are the best mixed ones. */
static uint64_t feistel(uint64_t key, int r, uint64_t x, int half)
{
    return mix(key + ((uint64_t)r << 58) + x * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - half);
}

static uint64_t permute(uint64_t key, int half, uint64_t n)
{
    uint64_t x = n >> half, y = n & ((UINT64_C(1) << half) - 1);
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t z = x ^ feistel(key, r, y, half);
        x = y;
        y = z;
    }
    return x << half | y;
}

static uint64_t unpermute(uint64_t key, int half, uint64_t n)
{
    uint64_t x = n >> half, y = n & ((UINT64_C(1) << half) - 1);
    for (int r = ROUNDS - 1; r >= 0; r--) {
        uint64_t z = y ^ feistel(key, r, x, half);
        y = x;
        x = z;
    }
    return x << half | y;
}

int64_t attn_mask_random_rank(const struct mask_node *node, uint64_t key, int64_t j)
{
    uint64_t n = (uint64_t)j;
    do
        n = permute(key, node->half_bits, n);
    while (n >= (uint64_t)node->columns);
    return (int64_t)n;
}

int64_t attn_mask_random_column(const struct mask_node *node, uint64_t key, int64_t rank)
{
    uint64_t n = (uint64_t)rank;
    do
        n = unpermute(key, node->half_bits, n);
    while (n >= (uint64_t)node->columns);
    return (int64_t)n;
}

/* Of the columns [lo,hi), reached from `first` on by so many steps of the permutation or of its
 * inverse.  Walks go side by side, without branches: a processor has several of them under way. */
static int64_t count_images(uint64_t key, int half, uint64_t columns, int64_t first, int64_t n,
                            int inverse, uint64_t lo, uint64_t hi)
{
    enum { BLOCK = 256 };
    uint64_t x[BLOCK];
    int64_t found = 0;
    for (int64_t at = first; at < first + n; at += BLOCK) {
        int left = first + n - at < BLOCK ? (int)(first + n - at) : BLOCK;
        for (int t = 0; t < left; t++)
            x[t] = (uint64_t)(at + t);
        for (int beyond; left > 0; left = beyond) {
            beyond = 0;
            for (int t = 0; t < left; t++) {
                uint64_t y = inverse ? unpermute(key, half, x[t]) : permute(key, half, x[t]);
                found += (y < columns) & (y - lo < hi - lo);
                x[beyond] = y;
                beyond += y >= columns;
            }
        }
    }
    return found;
}

/* Kept columns in [lo,hi). */
static int64_t columns_within(const struct mask_node *node, uint64_t key, int64_t lo, int64_t hi)
{
    int64_t n = node->columns, width = hi - lo, kept = node->count;
    int half = node->half_bits;
    if (width <= 0 || kept == 0)
        return 0;
    if (width >= n)
        return kept;
    if (kept <= width && kept <= n - width) /* list what is kept */
        return count_images(key, half, (uint64_t)n, 0, kept, 1, (uint64_t)lo, (uint64_t)hi);
    if (width <= n - width) /* ask the columns, */
        return count_images(key, half, (uint64_t)n, lo, width, 0, 0, (uint64_t)kept);
    return kept - /* or all the others */
           count_images(key, half, (uint64_t)n, 0, lo, 0, 0, (uint64_t)kept) -
           count_images(key, half, (uint64_t)n, hi, n - hi, 0, 0, (uint64_t)kept);
}

/* n tokens of column c, if it is kept. */
static int64_t part(const struct mask_node *node, uint64_t key, int64_t c, int64_t n)
{
    return n > 0 && attn_mask_random_rank(node, key, c) < node->count ? n : 0;
}

int64_t attn_mask_random_within(const struct mask_node *node, uint64_t key, int64_t lo, int64_t hi)
{
    int64_t size = node->size, first = (lo + size - 1) / size, last = hi / size;
    if (lo >= hi)
        return 0;
    if (first > last) /* within one block */
        return part(node, key, last, hi - lo);
    return part(node, key, first - 1, first * size - lo) +
           size * columns_within(node, key, first, last) + part(node, key, last, hi - last * size);
}
