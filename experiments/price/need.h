/* The need of a call, and the question if it fits: into this machine, where all ranks are simulated
 * at once, or into devices of which each holds one rank.  It comes from prices alone: nothing is
 * allocated.
 *
 * Bytes.  Numbers that may exceed 64 bits are doubles.
 */
#ifndef EXPERIMENTS_PRICE_NEED_H
#define EXPERIMENTS_PRICE_NEED_H

#include "optimized/registry.h"

/* Of one pass, or of both in one process: the tensors of both are there throughout, and each pass
 * has its own buffers beside them.  The first two are enum attn_pass. */
enum attn_need_pass { ATTN_NEED_FORWARD, ATTN_NEED_BACKWARD, ATTN_NEED_BOTH };
const char *attn_need_pass_name(enum attn_need_pass pass); /* "fwd", "bwd", "both" */

struct attn_need {
    int ranks, counted; /* counted: pairs had no closed form */
    const char *lacks;  /* who cannot run in this storage type (attn_cost.lacks); NULL: it runs */
    double flops;       /* of all ranks */
    double again_flops; /* of them, in forward passes that are made again */
    double beside;      /* all inputs and outputs; 0 where the peak has them */
    double copies;      /* of them, the shards of simulated ranks; 0 of one process */
    double peaks;       /* of all ranks together */
    double device;      /* of the rank that needs most: its share of inputs and outputs, its peak */
    double shard;       /* the largest share of a rank; 0 where the peak has it */
    double weights;     /* in the peak: parameters of the model, and their gradients */
    int64_t peak, saved, sent, messages; /* the largest of a rank; messages of who sends most */
};

/* Each rank, as its price is known; members may be NULL.  cost: room for the prices of all ranks.
 * tell is called after each, since counting pairs is slow; priced: the ranks so far. */
struct attn_need_each {
    struct attn_cost *cost;
    void (*tell)(void *arg, int priced, int ranks);
    void *arg;
};

/* Of one call of a problem; each: NULL: nothing.  ENOTSUP, EINVAL: as attn_price. */
enum attn_status attn_need_of_call(const struct attn_spec *spec, const struct attn_problem *p,
                                   enum attn_need_pass pass, const struct attn_need_each *each,
                                   struct attn_need *need, struct attn_error *err);

/* Count the price of one more rank; of both passes, *cost of the backward one becomes that of both
 * (forward: NULL: one pass alone). */
void attn_need_add(struct attn_need *need, struct attn_cost *cost, const struct attn_cost *forward);

/* ---- does it fit? ---------------------------------------------------------------------------- */

struct attn_memory {
    double bytes;                /* HUGE_VAL where this machine does not say */
    int is_device;               /* one for each rank; else this machine, for all of them */
    int64_t params, param_bytes; /* of the model, in each: parameters, and bytes of one with its
                                    gradient and its optimizer's state */
};

/* "80GiB", "80GB", "80Gi", "4096B": a device, 1 byte or more.  EINVAL, also of less than 1 MiB
 * without a unit. */
enum attn_status attn_memory_parse(const char *text, struct attn_memory *memory,
                                   struct attn_error *err);
struct attn_memory attn_memory_here(void);

/* "7G", "6.74G" or "7e9,16", parameters and bytes of each, 16 unless given: in 16 bits the weight
 * and its gradient, in float32 the weight and Adam's two moments.  EINVAL. */
enum attn_status attn_params_parse(const char *text, struct attn_memory *memory,
                                   struct attn_error *err);

/* The bytes of its parameters, but for those that the need has already. */
double attn_need_params(const struct attn_need *need, const struct attn_memory *memory);

/* The bytes of this memory that are needed, parameters included: they fit where that is no more
 * than memory->bytes.  In this machine it is inputs and outputs, copies and peaks of all ranks. */
double attn_need_in(const struct attn_need *need, const struct attn_memory *memory);

/* Any price of a number of tokens. */
struct attn_length_price {
    enum attn_status (*bytes)(void *arg, int64_t length, double *bytes, struct attn_error *err);
    void *arg;
    int64_t unit; /* bytes grow from one multiple of it to the next */
    int is_even;  /* no other length is looked at */
};

/* The largest number of tokens that fits into these bytes: it fits, and one more does not.
 * *bytes[0] is of it, *bytes[1] of one more, infinite where that has no price for 64 bits, or is
 * refused.  0 when nothing fits.  patience: CPU seconds that one price may take, HUGE_VAL for any.
 * ENOTSUP when one took longer, or every length is refused. */
enum attn_status attn_longest_of(const struct attn_length_price *price, double memory,
                                 double patience, int64_t *longest, double bytes[2],
                                 struct attn_error *err);

#endif
