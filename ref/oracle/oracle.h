/* The oracle: attention row by row, over the visible keys only, in a wider type.
 *
 * It shares no arithmetic with any implementation: no tiles, no rescaling, no storage types.
 * Two passes over a row (maximum, then sums), compensated sums (Neumaier 1974) over the keys,
 * double for problems stored in 32 bits or fewer, long double for f64.  Products of two stored
 * f32 values are exact in double, so that a score's error is a few u(double) * |q||k|: 2^29
 * times below what is judged with it.
 *
 * Where an input is NaN or infinite, this is IEEE arithmetic of the formulas, but that a weight of
 * 0 is skipped, not multiplied: so a bias of -inf hides whatever is in k and v.
 *
 * Rows are the unit because bounds, samples of rows at large L, and diagnosis all need p_ij and
 * friends, and nothing of size L x L should exist to get them.
 */
#ifndef REF_ORACLE_ORACLE_H
#define REF_ORACLE_ORACLE_H

#include "ref/attn.h"

/* Before a function whose loops walk over columns, which do not depend on each other: it is
 * compiled for each width of vectors, and chosen when the program starts.  No sum changes its
 * order, nothing is contracted: the bits are the same with each width. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define ATTN_ANY_WIDTH __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define ATTN_ANY_WIDTH
#endif

/* Columns side by side, for sums that stay in registers while keys go by: arithmetic of vectors is
 * that of their numbers, one by one.  No wider than the registers of avx2: compilers keep wider
 * ones in memory there.  For locals and their loads alone: no function takes one. */
enum { ATTN_LANES = 4 };
typedef double attn_lanes __attribute__((vector_size(8 * ATTN_LANES), aligned(8), may_alias));
typedef int64_t attn_lane_bits __attribute__((vector_size(8 * ATTN_LANES)));
#define ATTN_LANES_AT(x)  (*(const attn_lanes *)(x))
#define ATTN_LANES_ABS(x) ((attn_lanes)((attn_lane_bits)(x)&INT64_MAX))
#define ATTN_LANES_IF(say, x) \
    ((attn_lanes)((attn_lane_bits)(x) & (attn_lane_bits)(say))) /* else 0 */

/* Writes the keys of row (b,h,i) that have weight, all of them visible, in increasing order;
 * returns how many. */
typedef int64_t attn_oracle_keys(const void *arg, int64_t b, int64_t h, int64_t i, int64_t *key);

/* Everything about one query row.  Arrays belong to the row object; [n] runs over the visible
 * keys in increasing order. */
struct attn_oracle_row {
    int64_t n;         /* visible keys                                                   */
    int64_t *key;      /* [n] their indices                                              */
    double *raw;       /* [n] scale * q.k                                                */
    double *magnitude; /* [n] |scale| * sum_c |q_c k_c|: what rounding of raw is relative to */
    double *slope;     /* [n] d s / d raw: 1, or 1 - tanh^2 under a softcap              */
    double *bias;      /* [n] the bias added                                             */
    double *s;         /* [n] the final score                                            */
    double *p;         /* [n] probability                                                */
    double max, lse;   /* -inf when n = 0 or every score is -inf; with a sink lse is then z  */
    double z, p_sink;  /* the sink's score, -inf without one, and its probability         */
    double *o;         /* [dv]                                                           */
    /* after attn_oracle_row_backward: */
    double *dp;           /* [n] dO . v_j                                                   */
    double *dp_magnitude; /* [n] sum_c |dO_c v_jc|                                        */
    double *ds;           /* [n] gradient with respect to the final score s (= dBias)       */
    double delta;         /* D_i = dO . O - dLSE; with a sink -dLSE where max is -inf       */
    double dz;            /* gradient with respect to z                                     */
    double *dq;           /* [d]                                                            */
    /* the caller's, after alloc: 1: infinities and NaN in v and dO count as 0, which is what is
     * left of a row where they are skipped.  0, as after alloc: IEEE arithmetic of the formulas */
    int finite;
    int without_dq; /* the caller's: dq is not wanted, and stays 0 */
    /* the caller's, after alloc: the only keys that have weight, in a problem made so that all
     * others have none in any type; n counts these.  NULL: every visible key is looked at */
    attn_oracle_keys *keys;
    const void *keys_arg;
    /* the oracle's own: inputs, a head's keys and values among them, which double has in any
     * storage; a row's scores, weights and sums in the wide type */
    double *stored_q, *stored_k, *stored_v, *stored_do;
    void *wide_s, *wide_p, *wide_sum;
    int64_t cached_batch, cached_head, width;
    void *block;
};

/* Room for n_rows rows of one problem and one set of tensors, which share the keys and values of a
 * head (kept between calls): O(Lk (d + dv)) numbers, O(Lk) for each row.  Free with
 * attn_oracle_rows_free. */
enum { ATTN_ORACLE_ROWS = 32 };
int attn_oracle_block(const struct attn_problem *problem); /* the rows that pay: 1 or more */
enum attn_status attn_oracle_rows_alloc(const struct attn_problem *problem, int n_rows,
                                        struct attn_oracle_row *rows, struct attn_error *err);
void attn_oracle_rows_free(struct attn_oracle_row *rows);

/* Fill the forward part of rows (b,h,i[r]).  Visibility is asked of attn_mask_allows, pair by pair:
 * the oracle does not trust the derived forms.  A stretch of K or V that is read serves all of the
 * rows; a row's bits do not depend on the others. */
void attn_oracle_rows_forward(const struct attn_problem *problem, const struct attn_cview *q,
                              const struct attn_cview *k, const struct attn_cview *v, int64_t b,
                              int64_t h, const int64_t *i, int n_rows,
                              struct attn_oracle_row *rows);

/* The same as far as the scores: n, key, raw, magnitude, slope, bias, s and max. */
void attn_oracle_rows_scores(const struct attn_problem *problem, const struct attn_cview *q,
                             const struct attn_cview *k, const struct attn_cview *v, int64_t b,
                             int64_t h, const int64_t *i, int n_rows, struct attn_oracle_row *rows);

/* Then the backward part of the rows just filled.  d_lse may have data == NULL. */
void attn_oracle_rows_backward(const struct attn_problem *problem, const struct attn_cview *d_o,
                               const struct attn_cview *d_lse, int64_t b, int64_t h,
                               const int64_t *i, int n_rows, struct attn_oracle_row *rows);

/* One row. */
static inline enum attn_status attn_oracle_row_alloc(const struct attn_problem *problem,
                                                     struct attn_oracle_row *row,
                                                     struct attn_error *err)
{
    return attn_oracle_rows_alloc(problem, 1, row, err);
}

static inline void attn_oracle_row_free(struct attn_oracle_row *row)
{
    attn_oracle_rows_free(row);
}

static inline void attn_oracle_row_forward(const struct attn_problem *problem,
                                           const struct attn_cview *q, const struct attn_cview *k,
                                           const struct attn_cview *v, int64_t b, int64_t h,
                                           int64_t i, struct attn_oracle_row *row)
{
    attn_oracle_rows_forward(problem, q, k, v, b, h, &i, 1, row);
}

static inline void attn_oracle_row_backward(const struct attn_problem *problem,
                                            const struct attn_cview *d_o,
                                            const struct attn_cview *d_lse, int64_t b, int64_t h,
                                            int64_t i, struct attn_oracle_row *row)
{
    attn_oracle_rows_backward(problem, d_o, d_lse, b, h, &i, 1, row);
}

#endif
