/* The work of one rank in a layer, derived from its scheme: layouts of every tensor, which of
 * them change hands, its buffers.  layer_ranks.c does it, layer_price.c prices it; neither
 * computes, sends or allocates here.
 */
#ifndef EXPERIMENTS_RIM_LAYER_SCHEMES_LAYER_WORK_H
#define EXPERIMENTS_RIM_LAYER_SCHEMES_LAYER_WORK_H

#include "experiments/rim/layer/schemes/layer_scheme.h"
#include "optimized/parallel/layout/move.h"

/* q k v o lse, as in layer.h, and what else a forward pass keeps for the backward one. */
enum {
    ATTN_KEPT_X = ATTN_LAYER_KEPT, /* cut out of all of x, at a boundary   */
    ATTN_KEPT_X_IN,                /* exchanged; what is gathered is not kept */
    ATTN_KEPT_O,                   /* at home                              */
    ATTN_KEPT_BUFFERS,
    /* for a pass */
    ATTN_PASS_LISTS = ATTN_KEPT_BUFFERS,
    ATTN_PASS_Y, /* y, dy, dx of the rank's tokens, at a boundary */
    ATTN_PASS_DY,
    ATTN_PASS_DX,
    ATTN_PASS_DQ,
    ATTN_PASS_DK,
    ATTN_PASS_DV,
    ATTN_PASS_DO,
    ATTN_PASS_BUFFERS,
    /* for a moment */
    ATTN_MOMENT_X = ATTN_PASS_BUFFERS, /* gathered                             */
    ATTN_MOMENT_Y,                     /* before it goes home                  */
    ATTN_MOMENT_DY,                    /* come from home                       */
    ATTN_MOMENT_DO,                    /* at home                              */
    ATTN_MOMENT_DX,
    ATTN_MOMENT_DW, /* of one matrix, summed: the rows of this rank */
    ATTN_MOMENT_COPIES,
    ATTN_LAYER_BUFFERS
};

/* The weights. */
enum { ATTN_WEIGHT_Q, ATTN_WEIGHT_K, ATTN_WEIGHT_V, ATTN_WEIGHT_O, ATTN_WEIGHTS };

struct attn_layer_work {
    const struct attn_layer_spec *spec;
    const struct attn_layer *layer;
    int rank, ranks;
    struct attn_problem attention, tokens; /* q k v; x as a tensor of one head, kind q */
    struct attn_layout all, home, in, made,
        merged; /* everything; x; x, y at work; q k v; o at Wo */
    int moves_x, gathers_x, moves_o, moves_y;
};

struct attn_layer_work attn_layer_work_of(const struct attn_layer_spec *spec,
                                          const struct attn_layer *layer, int rank);

/* A weight as a tensor: its problem and kind, who has what of it, and, if its gradients have to be
 * added over ranks, who has what of the sum (0: nothing to add). */
struct attn_layer_weight {
    struct attn_problem whole;
    enum attn_tag_kind kind;
    struct attn_layout layout, summed;
    int sums;
};
struct attn_layer_weight attn_layer_weight_of(const struct attn_layer_work *w, int weight);

/* A rank's own numbers of a weight in one of its layouts; and the sum that it makes. */
int64_t attn_layer_weight_numbers(const struct attn_layer_weight *weight,
                                  const struct attn_layout *layout, int rank);
struct attn_buffer attn_layer_weight_sum(const struct attn_layer_weight *weight, int rank);

/* A rank's part of a layout, for the products. */
struct attn_layer_part attn_layer_part_of(const struct attn_layer_work *w,
                                          const struct attn_layout *layout);

/* The buffers of a pass; those that are not needed have no name.  Copies and dw are of a move. */
void attn_layer_buffers(const struct attn_layer_work *w, enum attn_pass pass,
                        struct attn_buffer buffer[ATTN_LAYER_BUFFERS]);

/* Moves of x, y and their gradients, and of o; data is the caller's. */
struct attn_move attn_layer_tokens_move(const struct attn_layer_work *w,
                                        const struct attn_layout *from,
                                        const struct attn_layout *to);
struct attn_move attn_layer_o_move(const struct attn_layer_work *w, int goes_home);

/* Of gradients of a weight: to the ranks that add them, or back to all. */
struct attn_move attn_layer_weight_move(const struct attn_layer_weight *weight, int back);

#endif
