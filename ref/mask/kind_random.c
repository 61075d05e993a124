/* Masks that are drawn, without storing them.
 *
 *      random(p,seed[,heads])       exactly round(p * Lk) keys in every row, chosen by a keyed
 *                                   permutation of the columns; with `heads`, another choice in
 *                                   each (batch, head)
 *      blocks(size,p,seed[,heads])  the same of blocks of size queries by size keys, in all
 *                                   n = ceil(Lk / size): round(p * n) of them in every row
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

#include <math.h>

struct draw {
    int64_t count;   /* blocks kept in each row */
    int64_t size;    /* tokens of a block, 1 for random(...) */
    int64_t columns; /* blocks of keys, the last of which may be shorter */
    int half_bits;   /* the permutation lives on 4^half_bits columns */
    uint64_t seed;
};

/* ---- the permutation ---------------------------------------------------------------------- */

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

/* The key of the permutation of one row of tokens. */
static uint64_t key_of(const struct mask_view *v, int64_t i)
{
    const struct draw *x = v->node->own;
    uint64_t key = absorb(absorb(0, x->seed), (uint64_t)(i / x->size));
    if (v->node->by_head)
        key = absorb(key, (uint64_t)(v->b * v->mask->shape.heads + v->h));
    return key;
}

/* Smallest half with 4^half >= columns. */
static int half_of(int64_t columns)
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

/* The permutation of [0, columns) and its inverse.  Block j is kept iff rank(j) < count. */
static int64_t rank_of(const struct draw *x, uint64_t key, int64_t j)
{
    uint64_t n = (uint64_t)j;
    do
        n = permute(key, x->half_bits, n);
    while (n >= (uint64_t)x->columns);
    return (int64_t)n;
}

static int64_t column_of(const struct draw *x, uint64_t key, int64_t rank)
{
    uint64_t n = (uint64_t)rank;
    do
        n = unpermute(key, x->half_bits, n);
    while (n >= (uint64_t)x->columns);
    return (int64_t)n;
}

/* Counts the images of first, ..., first + n - 1 in [lo,hi), under the permutation of the columns
 * or its inverse.  Walks go side by side, without branches: a processor has several of them under
 * way. */
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
static int64_t columns_within(const struct draw *x, uint64_t key, int64_t lo, int64_t hi)
{
    int64_t n = x->columns, width = hi - lo, kept = x->count;
    int half = x->half_bits;
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
static int64_t part(const struct draw *x, uint64_t key, int64_t c, int64_t n)
{
    return n > 0 && rank_of(x, key, c) < x->count ? n : 0;
}

/* Keys of kept blocks in [lo,hi): in as many steps as there are kept blocks, blocks inside, or
 * blocks outside, whichever are fewest. */
static int64_t count_draw(const struct mask_view *v, int64_t i, int64_t lo, int64_t hi)
{
    const struct draw *x = v->node->own;
    int64_t size = x->size, first = (lo + size - 1) / size, last = hi / size;
    if (lo >= hi)
        return 0;
    uint64_t key = key_of(v, i);
    if (first > last) /* within one block */
        return part(x, key, last, hi - lo);
    return part(x, key, first - 1, first * size - lo) + size * columns_within(x, key, first, last) +
           part(x, key, last, hi - last * size);
}

/* ---- the kind ----------------------------------------------------------------------------- */

static int in_draw(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct draw *x = v->node->own;
    return rank_of(x, key_of(v, i), j / x->size) < x->count;
}

static int next_in_draw(const struct mask_view *v, int64_t i, int64_t from, int64_t until,
                        int64_t *lo, int64_t *hi)
{
    const struct draw *x = v->node->own;
    uint64_t key = key_of(v, i);
    int64_t size = x->size, block = from / size;
    while (block * size < until && rank_of(x, key, block) >= x->count)
        block++;
    *lo = mask_max(from, block * size);
    do
        block++;
    while (size == 1 && block < x->columns && block - *lo < MASK_RUN_CUT &&
           rank_of(x, key, block) < x->count);
    *hi = mask_min(block * size, v->mask->shape.n_key);
    return *lo < until;
}

/* A range of fewer blocks than are kept is asked block by block. */
static void each_draw(const struct mask_view *v, int64_t i, int64_t j0, int64_t j1, mask_see *see,
                      void *arg)
{
    const struct draw *x = v->node->own;
    uint64_t key = key_of(v, i);
    int64_t size = x->size, first = j0 / size, last = (j1 - 1) / size;
    int ask = last - first < x->count;
    for (int64_t n = ask ? first : 0; n < (ask ? last + 1 : x->count); n++) {
        if (ask && rank_of(x, key, n) >= x->count)
            continue;
        int64_t block = ask ? n : column_of(x, key, n);
        int64_t lo = mask_max(block * size, j0), hi = mask_min((block + 1) * size, j1);
        if (lo < hi)
            see(arg, lo, hi);
    }
}

/* Whole rows, of whole blocks. */
static int64_t pairs_of_draw(const struct mask_view *v, const struct attn_tokens *queries,
                             const struct attn_tokens *keys)
{
    const struct draw *x = v->node->own;
    int64_t n_key = v->mask->shape.n_key;
    return keys->n == n_key && n_key % x->size == 0 ? queries->n * x->count * x->size : -1;
}

/* ---- calls -------------------------------------------------------------------------------- */

static const struct mask_least block = {1, "blocks have 1 token or more, such as 16 or 128"};

/* digits[.digits]: at most 15 digits, so that numerator and power of ten are exact doubles and
 * their quotient is the nearest double, whatever the locale and the libm. */
static double density(struct mask_parser *p)
{
    struct mask_slice arg = attn_mask_argument(p);
    double digits = 0, scale = 1;
    int n = 0, points = 0, others = 0;
    for (int64_t at = 0; at < arg.size; at++) {
        char c = arg.text[at];
        if (c >= '0' && c <= '9') {
            n++;
            digits = 10 * digits + (c - '0');
            scale = points ? 10 * scale : scale;
        } else if (c == '.')
            points++;
        else
            others++;
    }
    if (n == 0 || n > 15 || points > 1 || others > 0 || !(digits / scale <= 1))
        attn_mask_fail_at(p, arg.text,
                          "'%.*s' is not a density: a decimal number from 0 to 1 such as 0.25, "
                          "of at most 15 digits",
                          MASK_SLICE(arg));
    return p->status == ATTN_OK ? digits / scale : 0;
}

/* p,seed[,heads], of blocks of `size` tokens. */
static void read_draw(struct mask_parser *p, struct mask_node *node, int64_t size)
{
    int64_t n_key = p->mask->shape.n_key;
    struct draw x = {.size = size, .columns = n_key / size + (n_key % size > 0)};
    x.count = (int64_t)round(density(p) * (double)x.columns);
    x.seed = (uint64_t)attn_mask_number(p, &mask_natural);
    x.half_bits = half_of(x.columns);
    node->by_head = node->by_batch = p->more;
    node->kind = MASK_random;
    node->alike = size;
    attn_mask_keep(p, node, &x, sizeof x);
    if (!p->more)
        return;
    struct mask_slice arg = attn_mask_argument(p);
    if (!attn_mask_slice_is(arg, "heads"))
        attn_mask_fail_at(p, arg.text, "'%.*s': only the word heads may stand here",
                          MASK_SLICE(arg));
}

static void read_random(struct mask_parser *p, struct mask_node *node)
{
    read_draw(p, node, 1);
}

static void read_blocks(struct mask_parser *p, struct mask_node *node)
{
    read_draw(p, node, attn_mask_number(p, &block));
}

const struct mask_kind attn_mask_kind_random = {
    MASK_CALL("random", read_random, "a density and a seed: random(0.25,1)",
              "random(p,seed[,heads])   exactly round(p * Lk) keys in every row"),
    .allows = in_draw,
    .next = next_in_draw,
    .count = count_draw,
    .each = each_draw,
    .pairs = pairs_of_draw};

const struct mask_kind attn_mask_kind_blocks = {MASK_CALL(
    "blocks", read_blocks, "a size, a density and a seed: blocks(16,0.25,1)",
    "blocks(size,p,seed[,heads])  random in blocks: round(p * blocks) of them in every row")};
