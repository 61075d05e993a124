/* A case made concrete: its problem, its mask and its tensors, filled and guarded, for
 * a run of an implementation on them or for the oracle. */
#ifndef TESTS_HARNESS_SETUP_H
#define TESTS_HARNESS_SETUP_H

#include "ref/impl.h"
#include "ref/mask/mask.h"
#include "tests/harness/base/tensor.h"
#include "tests/harness/bound/bound.h"
#include "tests/harness/inputs/slots.h"

/* Outputs stand in the same order among the slots. */
static inline enum attn_slot attn_slot_of(enum attn_output output)
{
    return (enum attn_slot)(ATTN_T_O + (int)output);
}

/* A part of a case: what it has of the tensors of a slot, instead of whole ones, and where in the
 * whole its row [b,h,i] is; at[0] = -1: nowhere, and it is NaN. */
struct attn_setup_part {
    void (*extent)(const struct attn_setup_part *part, int slot, int64_t extent[4]);
    void (*whole)(const struct attn_setup_part *part, int slot, int64_t at[4]);
};

/* Mask, tensors and problem of a case.  Tensors that the case does not have are empty
 * (data == NULL).  Not to be copied: the problem points into it. */
struct attn_setup {
    struct attn_case given;
    struct attn_problem problem;
    struct attn_mask *mask;
    struct attn_made_tensor *made; /* what the mask names, made up from the names */
    double *slope;
    struct attn_tensor tensor[ATTN_SLOTS];
    struct attn_kept *kept;             /* NULL: nothing is */
    struct attn_subsets *subsets;       /* of the fill `subsets` (subsets/subsets.h); else NULL */
    const struct attn_setup_part *part; /* while it is opened; NULL: the whole */
    int unweighed;                      /* it is not asked what a pass proves about the mask */
    double most_work;                   /* of a model of a fault (diagnose.c); 0: as usual */
    /* Arithmetic that is declared for whatever runs, beside the spec's own; NULL: none. */
    void (*declare)(const struct attn_problem *problem, struct attn_precision *precision);
};

/* Inputs filled and remembered, outputs poisoned.  A mask of `none` is given to the problem as
 * NULL.  Fails (EINVAL) also when the fill cannot have its property in the case, and ENOTSUP for
 * storage that does not exist yet; nothing needs closing then. */
void attn_setup_close(struct attn_setup *setup);

/* With tensors of this part alone (NULL: with whole ones), [batch, heads, tokens, features] packed;
 * the problem is the whole one.  ENOTSUP of a part: what is put into tensors afterwards. */
enum attn_status attn_setup_open_part(const struct attn_case *c, const struct attn_setup_part *part,
                                      struct attn_setup *setup, struct attn_error *err);
static inline enum attn_status attn_setup_open(const struct attn_case *c, struct attn_setup *setup,
                                               struct attn_error *err)
{
    return attn_setup_open_part(c, NULL, setup, err);
}

/* The same without tensors: mask and problem, to ask what the case needs.  Close it too. */
enum attn_status attn_setup_describe(const struct attn_case *c, struct attn_setup *setup,
                                     struct attn_error *err);

/* Before a pass: outputs get a pattern that is never written; what the pass reads is remembered, to
 * see that it stays as it is; what the forward pass before it read, and left so, already is. */
void attn_setup_poison(struct attn_setup *setup);
void attn_setup_remember(struct attn_setup *setup, enum attn_pass pass);

/* From now on the inputs stay as they are, and what the oracle says of them is kept until the
 * setup is closed: for several specs on one case (attn_run_setup). */
void attn_setup_keep(struct attn_setup *setup);
struct attn_forward attn_setup_forward(const struct attn_setup *setup);
struct attn_backward attn_setup_backward(const struct attn_setup *setup);

/* Call an implementation on it: one pass, nothing else. */
enum attn_status attn_setup_call(const struct attn_setup *setup, const struct attn_impl *impl,
                                 struct attn_ctx *ctx, enum attn_pass pass);

/* 1: query i sees a key. */
int attn_setup_sees(const struct attn_setup *setup, int64_t b, int64_t h, int64_t i);

/* The inputs of the truth of a pass, and the types in which its results are stored. */
struct attn_inputs attn_setup_inputs(const struct attn_setup *setup, enum attn_pass pass);

/* Bytes of inputs and outputs: the floor below which no process can measure. */
int64_t attn_setup_bytes(const struct attn_setup *setup);

/* A seal (attn.h) over the setup's tensors, but for bias, sink and their gradients: those, like
 * masks, are spoken of in whole-problem indices, and ranks use them in place. */
struct attn_seal attn_setup_seal(struct attn_setup *setup);

/* The sum over all rows of outputs of a hash of their place and bits.  `part`: the tensors are
 * those of this part; the digests of all parts add up to that of the whole (NULL). */
uint64_t attn_setup_digest(const struct attn_setup *setup, const struct attn_setup_part *part,
                           enum attn_pass pass);

#endif
