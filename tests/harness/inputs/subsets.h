/* The fill `subsets`: a problem of any length whose answer takes few keys of each row.
 *
 * Keys are dealt into subsets.  The first m features of k spell the number of its subset in bits of
 * +-w; q spells the number of the subset that it chooses.  Then come offsets, one for each power of
 * two in m: there k has w and q has -w, -2w, -4w, ..., which add up to -m w.  So
 *
 *   q.k = m w^2 - m w^2 = 0                 in the subset that is chosen, exactly
 *   q.k <= (m - 2) w^2 - m w^2 = -2 w^2     elsewhere: w is such that scale q.k <= -200
 *
 * and e^-200 is less than any number of 32 bits or fewer: the n visible keys of the subset share
 * the row, P = 1/n, and no other key has weight.  All features of q are powers of two: where q or k
 * is scaled and rounded first, all are off by one factor, and the sum is 0 still.
 * The oracle is asked for these keys alone (attn_oracle_row.keys), which costs n and not Lk a row:
 * each element of o, lse, dq, dk and dv is judged at shapes that the whole oracle could not do in
 * a minute.
 *
 *   v    +-2^e, whose sum over a subset is S 2^e with 4 <= |S| <= 16 (less where n is below 8):
 *        sums of float32 are exact, and O = S 2^e / n changes by a sixteenth and more where one key
 *        is lost or counted twice, at any n
 *   dO   +-2^e in one feature, the same in each row that chooses the subset; so dV = +-r 2^e / n
 *        for r such rows, and dK = scale dS q is 0 in no feature of the code
 *   k    in the features behind: keys of a subset take turns to have +-1 there, q has 0; dQ is
 *        scale dS times these marks
 *
 * LSE is ln n, which is 0 where n is 1: there zeros would pass.  So q has a power of two in the
 * feature that this one key marks, and its score, and LSE, is c with 2 <= |c| <= 4.  P is 1 and dS
 * is 0 as before.  Scores elsewhere grow by |c| at most, for which w leaves room.
 *
 * Subsets follow the mask, so that each key that is seen at all belongs to one that some row sees
 * whole.  Where all rows see a stretch of keys, a subset is spread over all of it; along the edges
 * of a causal mask or a window it is a block of keys side by side, as many as the marks have room
 * for.  Sizes are powers of two but for what is left over.  A row chooses the subset, among those
 * that it sees whole, that was chosen least, the last of them; a row that sees none whole chooses
 * that of its last key.  Where rows are fewer than subsets, the heads of a group share them out;
 * keys that are still left over have no weight in any row. */
#ifndef TESTS_HARNESS_SUBSETS_H
#define TESTS_HARNESS_SUBSETS_H

#include "tests/harness/inputs/setup.h"

/* EINVAL: the problem has no such answer; says which would.  The mask shows each query one run
 * of keys or none, the same for all heads; there is no bias and no softcap, d >= 3.  O(B Lq
 * sets) time, O(B (Lq group + Lk)) memory at most; batches of the same mask share theirs. */
enum attn_status attn_subsets_open(const struct attn_problem *problem, uint64_t seed,
                                   struct attn_subsets **subsets, struct attn_error *err);
void attn_subsets_close(struct attn_subsets *subsets); /* NULL: nothing */

/* A row of q, k, v or dO from element at[] on to the feature before `end`. */
void attn_subsets_fill(const struct attn_subsets *subsets, enum attn_slot slot, const int64_t at[4],
                       int64_t end, double *x);

/* The keys of row [b,h,i] that have weight, in increasing order; how many.  key: room for Lk. */
int64_t attn_subsets_keys(const void *subsets, int64_t b, int64_t h, int64_t i, int64_t *key);

/* How many features of q and k, and of v, are judged, from the first on.  All; but of a problem
 * of more than 2^18 elements those of the code and of 8 marks, or as many as a subset has keys
 * by 16, and 8 of v, among which the feature of dO is then: it is there to show rows and keys
 * that are wrong, and these are wrong in all features. */
void attn_subsets_judged(const struct attn_subsets *subsets, int64_t *d, int64_t *dv);

/* Their number without the list, and 2^e. */
int64_t attn_subsets_count(const struct attn_subsets *subsets, int64_t b, int64_t h, int64_t i);
double attn_subsets_unit(const struct attn_subsets *subsets);

/* Keys of batch b that some row of each head gives weight (0: of some head), of those seen. */
int64_t attn_subsets_covered(const struct attn_subsets *subsets, int64_t b, int each_head,
                             int64_t *seen);

#endif
