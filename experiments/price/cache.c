/* See cache.h. */
#include "experiments/price/cache.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

static const struct attn_cache_type types[] = {{"f64", 64, 0},  {"f32", 32, 0}, {"f16", 16, 0},
                                               {"bf16", 16, 0}, {"fp8", 8, 0},  {"int4", 4, 32}};

static const struct attn_cache_type *find_type(const char *name, size_t n)
{
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        if (strlen(types[t].name) == n && memcmp(types[t].name, name, n) == 0)
            return &types[t];
    return NULL;
}

/* One KEY=VALUE of n bytes; 0: it is none. */
static int set(struct attn_cache *cache, const char *text, size_t n)
{
    char number[24] = "";
    if (n > 5 && memcmp(text, "type=", 5) == 0)
        return (cache->type = find_type(text + 5, n - 5)) != NULL;
    if (n <= 5 || memcmp(text, "page=", 5) != 0 || n - 5 >= sizeof number)
        return 0;
    memcpy(number, text + 5, n - 5);
    return attn_cli_int(number, 1, 1 << 20, &cache->page);
}

/* Of its mask: may a later query see a key, and in how long a window? */
static void read_mask(struct attn_cache *cache)
{
    struct attn_problem p;
    struct attn_mask *mask;
    struct attn_mask_call call;
    attn_case_open(cache->c, NULL, &p, &mask, NULL);
    for (int64_t n = 0; attn_mask_call(mask, 0, n, &call); n++) {
        int is_band = call.kind == ATTN_CALL_BAND;
        cache->is_causal |= is_band && call.right == 0;
        if (is_band && call.left >= 0 && (cache->window == 0 || call.left < cache->window))
            cache->window = call.left + 1;
    }
    attn_mask_free(mask);
}

enum attn_status attn_cache_open(const struct attn_model_given *given, const struct attn_case *c,
                                 int64_t keys, struct attn_cache *cache, struct attn_error *err)
{
    const char *type = attn_dtype_name(c->dtype);
    *cache = (struct attn_cache){.model = &given->model,
                                 .c = c,
                                 .type = find_type(type, strlen(type)),
                                 .keys = keys,
                                 .page = 1};
    read_mask(cache);
    for (const char *text = given->settings; *text != '\0';) {
        size_t n = strcspn(text, ",");
        if (!set(cache, text, n))
            return attn_fail(err, ATTN_EINVAL,
                             "'%.*s' of a model: type=f32|f16|bf16|fp8|int4 and page=TOKENS would "
                             "work, such as type=fp8,page=16",
                             (int)(n < 40 ? n : 40), text);
        text += n + (text[n] == ',');
    }
    return ATTN_OK;
}

/* Of a vector of n numbers. */
static double vector_bytes(const struct attn_cache_type *type, int64_t n)
{
    int64_t scales = type->scaled > 0 ? (n + type->scaled - 1) / type->scaled : 0;
    return (double)((n * type->bits + 7) / 8 + 2 * scales);
}

/* Tokens that are kept: all, or those of the window; those of an encoder; none without an order of
 * tokens, where every call has all of them. */
static int64_t tokens_of(const struct attn_cache *cache, int64_t window, int64_t length)
{
    if (cache->keys >= 0)
        return cache->keys;
    if (!cache->is_causal)
        return 0;
    return window > 0 && window < length ? window : length;
}

/* Of one layer. */
static double token_bytes(const struct attn_cache *cache)
{
    const struct attn_case *c = cache->c;
    if (cache->model->latent > 0)
        return vector_bytes(cache->type, cache->model->latent);
    return (double)c->kv_heads *
           (vector_bytes(cache->type, c->d_key) + vector_bytes(cache->type, c->d_value));
}

struct attn_cache_part attn_cache_part(const struct attn_cache *cache, int kind, int64_t length)
{
    const int64_t page = cache->page, window = cache->window, layers = cache->model->layers;
    /* a mask of the caller's with a window is that of all layers, where the model has none */
    int64_t windowed = window == 0                  ? 0
                       : cache->model->windowed > 0 ? cache->model->windowed
                                                    : layers;
    struct attn_cache_part x = {.layers = layers - windowed};
    if (kind == ATTN_CACHE_WINDOW)
        x = (struct attn_cache_part){.layers = windowed, .window = window};
    x.tokens = tokens_of(cache, x.window, length);
    x.pages = (x.tokens + page - 1) / page;
    if (x.window > 0 && x.window < length) { /* as many as it can touch, and no more than all */
        int64_t touched = (x.window + page - 2) / page + 1, all = (length + page - 1) / page;
        x.pages = touched < all ? touched : all;
    }
    x.token_bytes = token_bytes(cache);
    x.bytes =
        (double)cache->c->batch * (double)x.layers * x.token_bytes * (double)x.pages * (double)page;
    return x;
}

double attn_cache_bytes(const struct attn_cache *cache, int64_t length)
{
    double bytes = 0;
    for (int kind = 0; kind < ATTN_CACHE_KINDS; kind++)
        bytes += attn_cache_part(cache, kind, length).bytes;
    return bytes;
}
