/* The attention of a whole model: its cache, and what it holds beside in prefill and in training.
 *
 *      prefill    all prompts at once: the cache, and the inputs, outputs and buffers of one
 *                 layer's call
 *      training   a stack of all its layers (stack.h), both passes
 *
 * Calls are those of tiled@portable, so that the numbers are the same on every machine. */
#ifndef EXPERIMENTS_PRICE_MODEL_H
#define EXPERIMENTS_PRICE_MODEL_H

#include <jansson.h>

#include "experiments/price/asked.h"
#include "experiments/price/cache.h"

struct attn_model_asked {
    const struct attn_model_given *model;
    struct attn_case c;      /* of any length: what the model says, or flags in its place */
    int64_t keys;            /* of an encoder; -1: as queries */
    struct attn_stack stack; /* of its layers */
    struct attn_memory memory;
    int has_memory; /* one was named: does it fit? */
    int is_longest;
};

/* After c.n_query tokens; or how many tokens fit into the memory, parameters beside, in each of the
 * three.  all: NULL for text, else where the rows go.  EINVAL: settings that are none; what has no
 * price. */
enum attn_status attn_model_price(const struct attn_model_asked *asked, json_t *all,
                                  struct attn_error *err);

#endif
