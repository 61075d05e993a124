/* What training holds: a stack of attention layers, forward and then backward in reverse order.
 *
 * One schedule says when each tensor is taken, which call is made, and when each tensor is given
 * back.  A price reads it with a sheet of paper, a point (point_layers.c) with a ledger and calls:
 * so the two cannot be about different stacks.
 *
 *      forward    of layer 0, 1, ... n-1:   take q k v o lse;  call forward;
 *                                           inputs: give o lse back
 *      backward   of layer n-1, ... 1, 0:   take dO;  inputs: take o lse, call forward again;
 *                                           take dq dk dv;  call backward;
 *                                           give P, and all tensors of the layer, back
 *
 * A layer is attention alone: its q, k and v are its own, o and gradients go to a reader outside
 * who keeps nothing.  So o is a layer's only where its backward pass is to find it, dO arrives when
 * that pass begins, and dq dk dv leave when it ends.
 *
 * What is live between the two halves, of each layer (bytes; e of an element):
 *      probs     q k v o lse and P    what saves P alone: gemm:save=probs
 *      rows      q k v o lse          what all others do
 *      inputs    q k v                o, lse (and P) are made again, for one layer at a time
 */
#ifndef EXPERIMENTS_MEASURE_LAYERS_H
#define EXPERIMENTS_MEASURE_LAYERS_H

#include "optimized/registry.h"

enum attn_layer_save { ATTN_SAVE_PROBS, ATTN_SAVE_ROWS, ATTN_SAVE_INPUTS };
enum { ATTN_SAVES = 3, ATTN_LAYERS_MOST = 1000000 };

const char *attn_layer_save_name(enum attn_layer_save save); /* "probs", "rows", "inputs" */
extern const char attn_layer_save_names[]; /* "probs|rows|inputs", as flags write it */

/* EINVAL names those there are. */
enum attn_status attn_layer_save_find(const char *name, enum attn_layer_save *save,
                                      struct attn_error *err);

struct attn_layers {
    int64_t n; /* 0: no stack, one call */
    enum attn_layer_save save;
};

/* ---- the schedule ---------------------------------------------------------------------------- */

enum attn_layer_tensor {
    ATTN_LAYER_Q,
    ATTN_LAYER_K,
    ATTN_LAYER_V,
    ATTN_LAYER_O,
    ATTN_LAYER_LSE,
    ATTN_LAYER_DO,
    ATTN_LAYER_DQ,
    ATTN_LAYER_DK,
    ATTN_LAYER_DV,
    ATTN_LAYER_TENSORS
};
enum attn_layer_call { ATTN_LAYER_FORWARD, ATTN_LAYER_AGAIN, ATTN_LAYER_BACKWARD };

/* Names on the ledger ("layer.q"), and in bytes; -1 where it exceeds 64 bits. */
const char *attn_layer_tensor_name(enum attn_layer_tensor tensor);
int64_t attn_layer_tensor_bytes(const struct attn_problem *p, enum attn_layer_tensor tensor);

/* Who reads the schedule.  call: saves says whether P, where the implementation has one to save, is
 * to live on after this call; drop gives the layer's P back.  A failure ends the reading. */
struct attn_layer_reader {
    void *arg;
    enum attn_status (*take)(void *arg, int64_t layer, enum attn_layer_tensor tensor);
    void (*give)(void *arg, int64_t layer, enum attn_layer_tensor tensor);
    enum attn_status (*call)(void *arg, int64_t layer, enum attn_layer_call call, int saves);
    void (*drop)(void *arg, int64_t layer);
};

/* One half: ATTN_FORWARD, or ATTN_BACKWARD, which comes after the other. */
enum attn_status attn_layers_read(const struct attn_layers *layers, enum attn_pass half,
                                  const struct attn_layer_reader *reader);

/* ---- the price ------------------------------------------------------------------------------- */

struct attn_layers_cost {
    struct attn_cost cost; /* of the half: peak and live set, flops of all its calls; saved_bytes is
                              what all layers hold between the halves.  All tensors are in it: there
                              is nothing beside, and shard_bytes is 0 */
    double again_flops;    /* of them, of forward passes that are made again */
};

/* ENOTSUP: the implementation has several ranks, no P to save, or saves one although the stack is
 * to hold rows; and what attn_price refuses. */
enum attn_status attn_layers_price(const struct attn_layers *layers, const struct attn_spec *spec,
                                   const struct attn_problem *p, enum attn_pass half,
                                   struct attn_layers_cost *cost, struct attn_error *err);

#endif
