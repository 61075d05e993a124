/* The tensors that each rank of a sequence-parallel scheme has, holds after every step, and must
 * give.  By them distributed implementations are judged, rank by rank and step by step.
 *
 *      ring     step s     O, LSE of the rank's queries over the keys of the s+1 blocks that it has
 *                          met; backward the travelling sums dK, dV of the block that is here, over
 *                          the queries of the s+1 ranks that it has visited
 *      ulysses  step 0     q k v (dO) of the rank's heads, all tokens
 *               step 1     O LSE (dQ dK dV) of these heads
 *      both     results    O LSE (dQ dK dV) of the rank's own tokens
 *
 * Where a block is at which step is the scheme's own schedule (optimized/parallel/scheme.h).
 * No scheme computes the truth: it is the oracle's attention over the pairs that count so far,
 * with the bounds of bound.h.
 *
 *      rank_cases.c     writes shards and truths
 *      rank_results.c   reads results and judges them
 *      rank_faults.c    what a wrong step looks like
 */
#ifndef TESTS_HARNESS_SUBJECT_RANK_STEPS_H
#define TESTS_HARNESS_SUBJECT_RANK_STEPS_H

#include "optimized/parallel/work.h"
#include "optimized/registry.h"
#include "tests/harness/subject/vector_files.h"

struct attn_rank_steps {
    const struct attn_setup *setup; /* of the whole case; borrowed */
    struct attn_spec spec;
    int ranks, steps;      /* step number `steps` is the results */
    int is_ring;           /* else ulysses */
    int *block;            /* [ranks][steps] of a ring: attn_rank_block */
    int *query_rank;       /* [n_query] whose queries these are, */
    int *key_rank;         /* [n_key] and whose keys, while the scheme computes */
    unsigned char *sees;   /* [B,H,Lq,Lk] the mask of the case */
    unsigned char *counts; /* the same of the pairs that count at a step */
    int64_t *token[2];     /* [n_query], [n_key] of what is held: attn_rank_case */
};

/* EINVAL: no such spec, a scheme whose steps are not known, or claims under which ranks are not
 * judged; ENOTSUP: the scheme does not take the case.  Nothing is to be closed then. */
enum attn_status attn_rank_steps_open(const char *spec, const struct attn_claims *claims,
                                      const struct attn_setup *setup, struct attn_rank_steps *x,
                                      struct attn_error *err);
void attn_rank_steps_close(struct attn_rank_steps *x);

/* The block of a ring that a rank has at a step. */
static inline int attn_rank_block(const struct attn_rank_steps *x, int rank, int step)
{
    return x->block[rank * x->steps + step];
}

/* The holding of a rank after a step: these slots (bits), of these heads and tokens. */
struct attn_rank_held {
    int rank, step;
    int block; /* whose keys are here */
    unsigned slots;
    struct attn_box box[2]; /* of queries, of keys */
};
struct attn_rank_held attn_rank_held(const struct attn_rank_steps *x, int rank, int step);

/* Token number `row` of a box, in the whole sequence; the whole place of a place in a slot. */
int64_t attn_rank_token(const struct attn_box *box, int64_t row);
void attn_rank_place(const struct attn_rank_held *held, int slot, const int64_t at[4],
                     int64_t whole[4]);

/* "CASE/rank-1/step-2", of results "CASE/rank-1". */
const char *attn_rank_folder(const struct attn_rank_steps *x, const char *name, int rank, int step,
                             char text[240]);

/* Tensors of what is held, in their own types or as float64; their elements copied from those of
 * the whole, or to them. */
enum attn_status attn_rank_piece_open(const struct attn_rank_steps *x,
                                      const struct attn_rank_held *held, int is_wide,
                                      struct attn_setup *piece, struct attn_error *err);
void attn_rank_piece_copy(const struct attn_rank_held *held, struct attn_setup *piece,
                          struct attn_setup *whole, int to_whole);
void attn_rank_piece_close(struct attn_setup *piece);

/* The case in which only those pairs are visible that count for what is held in a pass, and which
 * rows and keys of it are held: what attn_judge and attn_truth_compute take.  Other heads see
 * nothing.  It borrows the whole's tensors; its mask is to be freed, and the sample is good until
 * the next. */
enum attn_status attn_rank_case(struct attn_rank_steps *x, const struct attn_rank_held *held,
                                enum attn_pass pass, struct attn_setup *part,
                                struct attn_sample *sample, struct attn_error *err);

/* The declared arithmetic, and that partial results are merged. */
void attn_rank_precision(const struct attn_rank_steps *x, const struct attn_claims *claims,
                         struct attn_precision *precision);

/* DIR/NAME/rank-R/inputs.safetensors and truth.safetensors, by the writer's scheme; w->ranks is
 * set.  ENOTSUP: the scheme does not take the case. */
enum attn_status attn_rank_cases_write(struct attn_vector_files_writer *w, const char *name,
                                       const struct attn_setup *setup, struct attn_error *err);

/* Read what all ranks hold, and judge it: forward before backward, step after step, results last.
 * The first that is wrong is the verdict, with its rank and what it looks like. */
void attn_rank_results_judge(const char *scheme, const char *folder, const char *name,
                             const struct attn_claims *claims, struct attn_setup *setup,
                             struct attn_result *result);

/* Results of all ranks of a ring in order, in the outputs of a setup: what those of the first rank
 * that is wrong look like, with its number; 1, or 0 and nothing where no model fits. */
int attn_rank_results_diagnose(int ranks, const struct attn_claims *claims,
                               struct attn_setup *setup, struct attn_diagnosis *diagnosis);

/* Hold the models of rank_faults.def against the outputs of part, which are wrong. */
void attn_rank_diagnose(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                        enum attn_pass pass, const struct attn_setup *part,
                        const struct attn_sample *sample, const struct attn_precision *precision,
                        struct attn_diagnosis *diagnosis);

#endif
