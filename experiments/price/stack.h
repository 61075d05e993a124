/* The memory of training: a stack of attention layers, forward and then backward in reverse order.
 *
 * One schedule says when each tensor is taken, which call is made, and when each tensor is given
 * back.  A price reads it with a sheet of paper, a point (point_stack.c) with a ledger and calls:
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
 * With a hidden width C a layer is ref/layer_cost.h: x Wqkv, attention, Wo, and its y is the x of
 * the next one.  Parameters are there from the beginning to the end, and their gradients from the
 * backward pass of their layer on:
 *
 *      forward    Wqkv Wo of all layers, x;  of each layer call, take y, write it
 *                 the last y goes outside
 *      backward   dy from outside;  of each layer take dWqkv dWo dx, call, give its dy and x back
 *
 * The input that `inputs` keeps is then x, and q k v are made again too.
 *
 * Tensors that are live between the two halves, of each layer (bytes; e of an element):
 *      probs     q k v o lse and P    what saves P alone: gemm:save=probs
 *      rows      q k v o lse          what all others do
 *      inputs    q k v                o, lse (and P) are made again, for one layer at a time
 * and with a hidden width x Wqkv Wo beside them, in the last row in the place of q k v.
 */
#ifndef EXPERIMENTS_PRICE_STACK_H
#define EXPERIMENTS_PRICE_STACK_H

#include "optimized/registry.h"
#include "ref/layer_cost.h"

enum attn_stack_save { ATTN_SAVE_PROBS, ATTN_SAVE_ROWS, ATTN_SAVE_INPUTS };
enum { ATTN_SAVES = 3, ATTN_STACK_MOST = 1000000 };

const char *attn_stack_save_name(enum attn_stack_save save); /* "probs", "rows", "inputs" */

/* EINVAL names those there are. */
enum attn_status attn_stack_save_find(const char *name, enum attn_stack_save *save,
                                      struct attn_error *err);

/* Blocks of other programs that a price may add: "probs+mask+softmax".
 *      mask      of dropout, a byte for each pair, kept with P
 *      softmax   its output before dropout beside P, both in the storage type, as Megatron keeps
 *                them: with the mask 5 bytes a pair in 16 bits (Korthikanti et al. 2022, 4.1)
 *      expanded  in a backward call dK and dV of each query head, before those of a kv head are
 *                summed (FlashAttention 2)
 *      f32       in a backward call sums of dK and dV in float32 (Triton, TransformerEngine) */
enum { ATTN_STACK_MASK = 1, ATTN_STACK_SOFTMAX = 2, ATTN_STACK_EXPANDED = 4, ATTN_STACK_F32 = 8 };

struct attn_stack {
    int64_t n; /* 0: no stack, one call */
    enum attn_stack_save save;
    int64_t hidden; /* C; 0: attention alone */
    int adds;       /* the blocks above, ored: of a price alone */
};

/* The same with what a price adds. */
enum attn_status attn_stack_save_parse(const char *text, struct attn_stack *stack,
                                       struct attn_error *err);

/* 1: equal.  The saved tensors and the width count where there are layers. */
int attn_stack_equal(const struct attn_stack *a, const struct attn_stack *b);

/* "28 layers of hidden 1152, save rows"; "" for no stack. */
enum { ATTN_STACK_TEXT = 112 };
const char *attn_stack_print(const struct attn_stack *stack, char text[ATTN_STACK_TEXT]);

/* ---- the schedule ---------------------------------------------------------------------------- */

enum attn_stack_tensor {
    ATTN_STACK_Q,
    ATTN_STACK_K,
    ATTN_STACK_V,
    ATTN_STACK_O,
    ATTN_STACK_LSE,
    ATTN_STACK_DO,
    ATTN_STACK_DQ,
    ATTN_STACK_DK,
    ATTN_STACK_DV,
    ATTN_STACK_X, /* with a hidden width only; y of layer i is x of layer i + 1, and dy is its dx */
    ATTN_STACK_WQKV,
    ATTN_STACK_WO,
    ATTN_STACK_DX,
    ATTN_STACK_DWQKV,
    ATTN_STACK_DWO,
    ATTN_STACK_TENSORS
};
enum attn_stack_call {
    ATTN_STACK_FORWARD, /* with a hidden width: up to o */
    ATTN_STACK_Y,       /* and y of it                  */
    ATTN_STACK_AGAIN,
    ATTN_STACK_BACKWARD
};

/* Names on the ledger ("layer.q"), and in bytes; -1 where it exceeds 64 bits. */
const char *attn_stack_tensor_name(enum attn_stack_tensor tensor);
int64_t attn_stack_tensor_bytes(const struct attn_problem *p, int64_t hidden,
                                enum attn_stack_tensor tensor);

/* The reader of a schedule.  call: saves is 1 where P, of an implementation that can save it, is to
 * live on after this call; drop gives the layer's P back.  With a hidden width a forward call makes
 * the layer's q k v o lse itself.  Where inputs are saved, the call of y gives them back, else drop
 * does. */
struct attn_stack_reader {
    void *arg; /* a failure ends the reading */
    enum attn_status (*take)(void *arg, int64_t layer, enum attn_stack_tensor tensor);
    void (*give)(void *arg, int64_t layer, enum attn_stack_tensor tensor);
    enum attn_status (*call)(void *arg, int64_t layer, enum attn_stack_call call, int saves);
    void (*drop)(void *arg, int64_t layer);
};

/* One half: ATTN_FORWARD, or ATTN_BACKWARD, which comes after the other. */
enum attn_status attn_stack_read(const struct attn_stack *layers, enum attn_pass half,
                                 const struct attn_stack_reader *reader);

/* ---- the price ------------------------------------------------------------------------------- */

struct attn_stack_cost {
    struct attn_cost cost; /* of the half: peak and live set, flops of all its calls; saved_bytes is
                              what all layers hold between the halves.  All tensors are in it: there
                              is nothing beside, and shard_bytes is 0 */
    double again_flops;    /* of them, of forward passes that are made again */
};

/* ENOTSUP: the implementation has several ranks, no P to save, or saves one although the stack is
 * to hold rows; and what attn_price refuses. */
enum attn_status attn_stack_price(const struct attn_stack *layers, const struct attn_spec *spec,
                                  const struct attn_problem *p, enum attn_pass half,
                                  struct attn_stack_cost *cost, struct attn_error *err);

#endif
