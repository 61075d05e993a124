/* The call of which xformers' 509 and 329 MiB tell (xformers_order.c), for the studies that price
 * it. */
#ifndef EXPERIMENTS_RIM_STUDIES_XFORMERS_ORDER_H
#define EXPERIMENTS_RIM_STUDIES_XFORMERS_ORDER_H

#include "experiments/rim/storage/tape.h"

/* q, k and v are one tensor of B matrices of L x L numbers (d = L in the published run), the mask
 * is what it is called, and is applied or not. */
struct attn_xformers_call {
    int64_t batch, length, dim;
    int64_t flush;     /* bytes that a first call takes to tune its softmax; 0: tuned before  */
    int64_t workspace; /* of cuBLAS, made once                                                */
    int has_float_mask;
};

/* The tensors before the call, and then the call: all of it stays on the tape. */
void attn_study_xformers_call(struct attn_tape *tape, const struct attn_xformers_call *call,
                              int is_first);

#endif
