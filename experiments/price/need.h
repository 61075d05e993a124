/* The need of a call or a stack of layers, and the question if it fits: into this machine, where
 * all ranks are simulated at once, or into devices of which each holds one rank.  It comes from
 * prices alone: nothing is allocated.  `price`, its --longest, `advise` and the points too big of
 * `measure` ask here.
 *
 * Bytes.  Numbers that may exceed 64 bits are doubles.
 */
#ifndef EXPERIMENTS_PRICE_NEED_H
#define EXPERIMENTS_PRICE_NEED_H

#include "experiments/price/stack.h"
#include "tests/harness/inputs/case.h"

/* Of one pass, or of both in one process: the tensors of both are there throughout, and each pass
 * has its own buffers beside them.  The first two are enum attn_pass. */
enum attn_need_pass { ATTN_NEED_FORWARD, ATTN_NEED_BACKWARD, ATTN_NEED_BOTH };
const char *attn_need_pass_name(enum attn_need_pass pass); /* "fwd", "bwd", "both" */

/* The question that a price answers. */
struct attn_memory;
struct attn_price_asked {
    const struct attn_spec *spec;
    const struct attn_stack *stack; /* of no layers: one call */
    const struct attn_case *c;
    enum attn_need_pass pass; /* in the place of the case's */
    const struct attn_memory *memory;
};

struct attn_need {
    int ranks, counted; /* counted: pairs had no closed form */
    const char *lacks;  /* who cannot run in this storage type (attn_cost.lacks); NULL: it runs */
    double flops;       /* of all ranks */
    double again_flops; /* of them, in forward passes that a stack of layers makes again */
    double beside;      /* all inputs and outputs; 0 for a stack, whose peak has them */
    double copies;      /* of them, the shards of simulated ranks; 0 of one process */
    double peaks;       /* of all ranks together */
    double device;      /* of the rank that needs most: its share of inputs and outputs, its peak */
    double shard;       /* the largest share of a rank; 0 for a stack */
    double weights;     /* in the peak of a stack: Wqkv and Wo, and their gradients */
    int64_t peak, saved, sent, messages; /* the largest of a rank; messages of who sends most */
};

/* tell is called after each rank, since counting pairs is slow; priced: the ranks so far. */
struct attn_need_watch {
    void (*tell)(void *arg, int priced, int ranks);
    void *arg;
};

/* Of an open problem; asked->c and memory are not read.  each: NULL, or room for the prices of all
 * ranks, of a stack for one; not of both passes.  watch: NULL: no reports.  ENOTSUP, EINVAL: as
 * attn_price and attn_stack_price. */
enum attn_status attn_need_of(const struct attn_price_asked *asked, const struct attn_problem *p,
                              const struct attn_need_watch *watch, struct attn_cost *each,
                              struct attn_need *need, struct attn_error *err);

/* The same of asked->c.  EINVAL, as attn_case_open too. */
enum attn_status attn_need_of_case(const struct attn_price_asked *asked, struct attn_need *need,
                                   struct attn_error *err);

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

/* The largest number of tokens that fits into these bytes, as attn_need_longest below. */
enum attn_status attn_longest_of(const struct attn_length_price *price, double memory,
                                 double patience, int64_t *longest, double bytes[2],
                                 struct attn_error *err);

/* The largest number of tokens, queries and keys alike, of which the case fits there: it fits, and
 * one more does not.  *bytes[0] is of it, *bytes[1] of one more, infinite where that has no price
 * for 64 bits, or is refused.  0 when nothing fits.  is_even: among multiples of 4 tokens a rank.
 * patience: CPU seconds that one price may take, HUGE_VAL for any.  ENOTSUP when one took longer,
 * or the case is refused at every length. */
enum attn_status attn_need_longest(const struct attn_price_asked *asked, int is_even,
                                   double patience, int64_t *longest, double bytes[2],
                                   struct attn_error *err);

#endif
