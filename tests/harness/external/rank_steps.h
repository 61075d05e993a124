/* What each rank of a sequence-parallel scheme has at home, holds after every step, and must have
 * at the end: for distributed implementations elsewhere, which are judged step by step.
 *
 *      ring     step s      O, LSE of the rank's queries on the keys of blocks 0 to s that it has
 *                           met; in a backward the travelling sums dK, dV of the block that is here,
 *                           of the queries of all ranks that it has visited
 *      ulysses  step 0      q k v (dO) of the rank's heads, all tokens
 *               step 1      O LSE (dQ dK dV) of these heads
 *      both     results     O LSE (dQ dK dV) of the rank's own tokens
 *
 * Which block is where at which step is the scheme's own schedule (optimized/parallel/scheme.h).
 * What it should be is no scheme's: the oracle's attention over the pairs that count so far, and
 * their bounds.
 *
 *      rank_cases.c    writes shards and truths        rank_results.c   reads and judges results
 *      rank_faults.c   what a wrong step looks like
 */
#ifndef TESTS_HARNESS_EXTERNAL_RANK_STEPS_H
#define TESTS_HARNESS_EXTERNAL_RANK_STEPS_H

#include "optimized/parallel/work.h"
#include "optimized/registry.h"
#include "tests/harness/external/vector_files.h"

struct attn_rank_steps {
    const struct attn_setup *setup; /* of the whole case; borrowed */
    struct attn_spec spec;
    enum attn_pass pass;
    int ranks, steps;         /* step number `steps` are the results */
    int *query_rank;          /* [n_query] of a ring: whose queries these are, */
    int *key_rank;            /* [n_key] and whose keys */
    unsigned char *sees;      /* [B,H,Lq,Lk] the mask of the case */
    unsigned char *counts;    /* the same, of the pairs that count at a step */
};

/* EINVAL: no such spec; ENOTSUP: a scheme whose steps are not known, which names those that are, or
 * a case that the scheme does not take.  Nothing is to be closed then. */
enum attn_status attn_rank_steps_open(const char *spec, const struct attn_setup *setup,
                                      struct attn_rank_steps *x, struct attn_error *err);
void attn_rank_steps_close(struct attn_rank_steps *x);

/* What a rank holds after a step: these slots (bits), of these heads and tokens.  block: the rank
 * whose keys are here. */
struct attn_rank_held {
    int rank, step, block;
    unsigned slots;
    struct attn_box queries, keys;
};
struct attn_rank_held attn_rank_held(const struct attn_rank_steps *x, int rank, int step);
/* The same of what it is given: q k v (dO dLSE). */
struct attn_rank_held attn_rank_given(const struct attn_rank_steps *x, int rank);

/* The block that a rank has at a step of a ring, as its scheme says. */
int attn_rank_block(const struct attn_rank_steps *x, int rank, int step);

/* Token number `row` of a box, in the whole sequence. */
int64_t attn_rank_token(const struct attn_box *box, int64_t row);

/* The box of a slot; whether a tensor has the axes of keys. */
const struct attn_box *attn_rank_box(const struct attn_rank_held *held, int slot);

/* The name of a folder of results: "CASE/rank-1/step-2", or "CASE/rank-1". */
const char *attn_rank_folder(const struct attn_rank_steps *x, const char *name, int rank, int step,
                             char text[240]);

/* Tensors of these shapes, empty; given tells which case they are of.  Freed by piece_close. */
enum attn_status attn_rank_piece_open(const struct attn_rank_steps *x,
                                      const struct attn_rank_held *held, struct attn_setup *piece,
                                      struct attn_error *err);
void attn_rank_piece_close(struct attn_setup *piece);

/* Whether an output is held, and judged in this pass: o and lse forward, gradients backward. */
static inline int attn_rank_judges(const struct attn_rank_held *held, enum attn_pass pass, int output)
{
    return (held->slots >> (ATTN_T_O + output) & 1u) != 0 &&
           (output <= ATTN_LSE) == (pass == ATTN_FORWARD);
}

/* Element of a piece's tensor: where it is in the whole. */
void attn_rank_place(const struct attn_rank_held *held, int slot, const int64_t at[4],
                     int64_t whole[4]);

/* The truth of what is held in this pass (o, lse; or dq, dk, dv), and its bounds, in the shapes of
 * the piece.  stored: of the results, or NULL.  To be freed. */
enum attn_status attn_rank_truth(struct attn_rank_steps *x, const struct attn_rank_held *held,
                                 enum attn_pass pass, const struct attn_precision *precision,
                                 const struct attn_setup *piece, struct attn_truth *truth,
                                 struct attn_error *err);

/* What is declared of the arithmetic, and that partial results are merged. */
void attn_rank_precision(const struct attn_rank_steps *x, const struct attn_claims *claims,
                         struct attn_precision *precision);

/* DIR/NAME/rank-R/inputs.safetensors and truth.safetensors, by the writer's scheme; w->ranks is
 * set.  ENOTSUP: the scheme does not take the case. */
enum attn_status attn_rank_cases_write(struct attn_vector_files_writer *w, const char *name,
                                       const struct attn_setup *setup, struct attn_error *err);

/* Read what all ranks hold and judge it: steps in their order, forward before backward, results
 * after steps; the first that is wrong is the verdict, with its rank, and what it looks like. */
void attn_rank_results_judge(const char *scheme, const char *folder, const char *name,
                             const struct attn_claims *claims, struct attn_setup *setup,
                             struct attn_result *result);

/* Hold the fault models of rank_faults.def against what a rank holds, which is wrong. */
void attn_rank_diagnose(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                        enum attn_pass pass, const struct attn_setup *piece,
                        const struct attn_truth *truth, struct attn_diagnosis *diagnosis);

#endif
