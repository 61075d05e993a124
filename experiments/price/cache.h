/* The cache of keys and values of a model: of every layer, K and V of each token that a later query
 * may see.  It grows with the tokens, but for layers with a window, which keep that many.
 *
 *      numbers of a token   kv heads (d + dv); or of a latent vector, which is key and value of all
 *                           heads, its width alone
 *      bytes of n numbers   f32 4n, f16 and bf16 2n, fp8 n; int4 n/2, and a scale of 16 bits for
 *                           each 32 of a vector (llama.cpp's q4_0)
 *      pages of P tokens    ceil(tokens / P); of a window of W at most ceil((W - 1) / P) + 1, for
 *                           it begins anywhere in a page
 *
 * Bytes are doubles: they may exceed 64 bits.
 */
#ifndef EXPERIMENTS_PRICE_CACHE_H
#define EXPERIMENTS_PRICE_CACHE_H

#include "tests/harness/cases/models.h"

struct attn_cache_type {
    const char *name;
    int bits, scaled; /* of a number; numbers that share a scale of 16 bits, 0: there are none */
};

struct attn_cache {
    const struct attn_model *model; /* layers, and a latent vector */
    const struct attn_case *c;      /* batch, kv heads, features, mask */
    const struct attn_cache_type *type;
    int64_t keys, page; /* keys of an encoder, which are the same for all lengths; -1: none */
    int64_t window;     /* of its mask, in keys; 0: none */
    int is_causal;      /* tokens have an order: no query sees a later key */
};

/* settings: "type=f32|f16|bf16|fp8|int4", that of the case unless given; "page=P", 1.  EINVAL names
 * them. */
enum attn_status attn_cache_open(const struct attn_model_given *given, const struct attn_case *c,
                                 int64_t keys, struct attn_cache *cache, struct attn_error *err);

/* Those that see all keys, those with a window. */
enum { ATTN_CACHE_ALL, ATTN_CACHE_WINDOW, ATTN_CACHE_KINDS };
struct attn_cache_part {
    int64_t layers, window, tokens, pages; /* of each sequence */
    double token_bytes, bytes;             /* of one layer's token; of all layers and sequences */
};

/* After `length` tokens. */
struct attn_cache_part attn_cache_part(const struct attn_cache *cache, int kind, int64_t length);
double attn_cache_bytes(const struct attn_cache *cache, int64_t length);

#endif
