/* Fault models: attention with one parameter for each mistake that implementations really make, so
 * that a failing one can be recognised by what it computed (diagnose.h).
 *
 * Plain double arithmetic, row by row; a wrong model is usually refuted by its first row.
 */
#ifndef TESTS_HARNESS_FAULTS_FAULT_MODEL_H
#define TESTS_HARNESS_FAULTS_FAULT_MODEL_H

#include "tests/harness/runner.h"

enum attn_model_mask {
    ATTN_MODEL_AS_IS,      /* `mask` decides                                     */
    ATTN_MODEL_INVERTED,   /* what it hides is seen and the reverse              */
    ATTN_MODEL_TRANSPOSED, /* pair (i,j) is asked as (j,i)                       */
    ATTN_MODEL_FLAT,       /* the stored [Lq,Lk] is read as [Lk,Lq]              */
    ATTN_MODEL_BATCH_0,    /* every batch uses the mask of batch 0               */
    ATTN_MODEL_HEAD_0,     /* every head that of head 0                          */
    ATTN_MODEL_SWAPPED,    /* batch and head change places in its index          */
    ATTN_MODEL_BATCH_LAST, /* every batch uses the mask of the last              */
    ATTN_MODEL_KV_HEAD,    /* the kv head indexes it                             */
    ATTN_MODEL_OWN_2,      /* of two ranks, each indexes it with its own heads   */
    ATTN_MODEL_OWN_4,      /* of four                                            */
    ATTN_MODEL_COUNTED,    /* as many leading keys as it shows: holes are lost   */
    ATTN_MODEL_FILLED,     /* every key up to the last that it shows             */
    ATTN_MODEL_ROWS_4,     /* asked once for four rows                           */
    ATTN_MODEL_ROWS_GROUP, /* asked for row i / (H/G)                            */
    ATTN_MODEL_KEYS_4,     /* four keys are seen when one of them is             */
    ATTN_MODEL_OLDEST,     /* the first visible key is lost, unless it is key 0  */
    ATTN_MODEL_KEYS_4_ON,  /* four keys from the first that is                   */
    ATTN_MODEL_FULL_NONE,  /* a row that sees every key sees none                */
    ATTN_MODEL_BATCH_STEP, /* plane b + h of the stored mask, not b H + h        */
    ATTN_MODEL_LENGTHS_8,  /* a row's number of keys is cut to a multiple of 8   */
    ATTN_MODEL_LOOP_16,    /* tiles of 16 beyond the diagonal are never visited  */
    ATTN_MODEL_LOOP_32,    /* of 32                                              */
    ATTN_MODEL_LOOP_64,    /* of 64                                              */
    ATTN_MODEL_MASKS
};

enum attn_model_heads {
    ATTN_MODEL_GROUPED, /* h / (H/G): right */
    ATTN_MODEL_MODULO,  /* h mod G          */
    ATTN_MODEL_DIVIDED, /* h / G            */
    ATTN_MODEL_FIRST,   /* 0                */
    ATTN_MODEL_NEXT,    /* the next one     */
    ATTN_MODEL_CLIPPED, /* min(h, G - 1)    */
    ATTN_MODEL_STRIDED  /* the group's size as modulus and stride */
};

enum attn_model_of { ATTN_MODEL_K_AND_V, ATTN_MODEL_K, ATTN_MODEL_V };

enum attn_model_stale {
    ATTN_MODEL_FRESH,
    ATTN_MODEL_STALE_O,
    ATTN_MODEL_STALE_L,
    ATTN_MODEL_STALE_BOTH
};

enum attn_model_empty {
    ATTN_MODEL_EMPTY_ZERO,  /* O = 0, LSE = -inf: right    */
    ATTN_MODEL_EMPTY_NAN,   /* 0 / 0                       */
    ATTN_MODEL_EMPTY_NAN_O, /* 0 / 0 in O alone           */
    ATTN_MODEL_EMPTY_MEAN,  /* the mean of all V           */
    ATTN_MODEL_EMPTY_PLUS,  /* LSE = +inf                  */
    ATTN_MODEL_EMPTY_NULL   /* LSE = 0                     */
};

/* Blocks of keys, one of each rank, in the order of a ring, and what is wrong where they meet. */
enum attn_model_merge {
    ATTN_MODEL_MERGE_NONE,      /* one block                                        */
    ATTN_MODEL_MERGE_MEAN,      /* partial results weigh the same                   */
    ATTN_MODEL_MERGE_EXP2,      /* 2^difference for e^difference                    */
    ATTN_MODEL_MERGE_MAX,       /* LSE becomes the larger of the two                */
    ATTN_MODEL_MERGE_UNSHIFTED, /* LSE = ln(e^a + e^b) without a shift              */
    ATTN_MODEL_MERGE_UNSORTED,  /* e^(b - a) whichever is larger                    */
    ATTN_MODEL_MERGE_TWICE,     /* every block but the first counts twice           */
    ATTN_MODEL_MERGE_SHORT,     /* the last block never arrives                     */
    ATTN_MODEL_MERGE_RESET,     /* a block that is hidden as a whole wipes the rest */
    ATTN_MODEL_MERGE_EMPTY,     /* -inf - -inf: two empty rows make NaN             */
    ATTN_MODEL_MERGES
};

enum attn_model_no_max {
    ATTN_MODEL_MAX,         /* weights are exp(s - m)                                  */
    ATTN_MODEL_NO_MAX,      /* they are exp(s), and O = 0/0 where their sum is 0       */
    ATTN_MODEL_NO_MAX_SUM,  /* exp(s), and O = 0 where their sum is 0                  */
    ATTN_MODEL_NO_MAX_ROWS, /* exp(s), and O = 0 where the row sees no key             */
    ATTN_MODEL_NO_MAXES
};

enum attn_model_place {
    ATTN_MODEL_PLACE_RIGHT,
    ATTN_MODEL_PLACE_QUERY,    /* queries stand where the block's keys do: always on the diagonal */
    ATTN_MODEL_PLACE_KEY,      /* keys stand where the rank's own do                              */
    ATTN_MODEL_PLACE_BIAS_KEY, /* the bias counts keys from the start of a block                  */
    ATTN_MODEL_PLACE_STALE,    /* K and V are the rank's own again and again                      */
    ATTN_MODEL_PLACES
};

enum attn_model_steps { ATTN_MODEL_ALL_STEPS, ATTN_MODEL_LAST_STEP, ATTN_MODEL_FIRST_STEP };

enum attn_model_sum { ATTN_MODEL_SUMMED, ATTN_MODEL_OVERWRITTEN, ATTN_MODEL_FIRST_HEAD };

struct attn_fault_model {
    /* forward */
    enum attn_model_mask how;
    const struct attn_mask *mask; /* NULL: everything is seen */
    double scale, softcap;
    int cap_last;       /* the cap is applied after the bias         */
    int cap_hidden;     /* and after the mask: hidden scores are -c  */
    double hidden;      /* score of a hidden pair: -inf              */
    int hidden_added;   /* it is added to the score, not put in its place */
    double bias_factor; /* 1 */
    int bias_by_kv;     /* looked up by kv head                      */
    int bias_plane;     /* 1: every (batch, head) uses the bias of (0, 0) */
    int bias_no_batch, bias_no_head, bias_no_row; /* that index is taken for 0  */
    int64_t bias_heads, bias_rows; /* 0, or the index is taken modulo this: a rank's own */
    int64_t alibi_offset;
    int alibi_signed; /* no absolute value */
    enum attn_model_heads heads;
    enum attn_model_of of; /* whose heads and batches are mistaken */
    int kv_batch_0;        /* K and V of batch 0 for all   */
    int fixed;             /* K and V come from this kv head and batch, whatever h and b are  */
    int64_t fixed_head, fixed_batch;
    int64_t lost_lo, lost_hi, twice_lo, twice_hi; /* keys left out, keys counted twice */
    int64_t zero_keys;                            /* keys of score 0 and V = 0 too many */
    int64_t tile;                                 /* keys of a tile, for stale    */
    enum attn_model_stale stale;                  /* not rescaled when m grows    */
    double m_start;                               /* where m starts: -inf         */
    enum attn_model_no_max no_max;
    int64_t d_used;        /* features in q.k              */
    double dot_limit;      /* q.k beyond it is infinite    */
    int cap_product;       /* s tanh(s / c)                */
    int64_t keys_repeated; /* V of key j / this            */
    double alibi_more;     /* added to the distance        */
    int64_t ranks;         /* of the three below           */
    enum attn_model_merge merge;
    enum attn_model_place place; /* of K and V, or of one of them, if it is PLACE_STALE */
    enum attn_model_of place_of;
    enum attn_model_steps steps;     /* only these reach dQ, dK and dV               */
    int unnormalised;                /* O is not divided by l        */
    int64_t shift_heads, shift_rows; /* output of another head, row  */
    enum attn_model_empty empty;
    double lse_factor;                  /* 1; log2(e) for base 2 */
    int lse_without_m;                  /* ln l alone            */
    int lse_is_l, lse_is_m, lse_no_log; /* l alone, m alone, m + l              */
    int inputs_turned, outputs_turned;  /* BHLD read as BLHD, or the reverse       */
    unsigned turned;                    /* 1 << slot: that tensor alone            */
    unsigned adjacent;                  /* its features are taken to be adjacent   */
    unsigned packed;                    /* it is taken to be packed as [B,H,L,d]   */
    unsigned rows_packed;               /* its rows are taken to lie d apart       */
    int64_t rounded;     /* base pointers of inputs are rounded down to so many bytes */
    int dbias_like_bias; /* strides of another tensor               */
    int v_like_k, do_like_o, dlse_like_lse,
        k_exchanged; /* strides of another tensor; K[b,j,g]     */
    /* backward */
    int no_delta, no_dlse, minus_dlse, no_cap_slope;
    double dq_factor, dk_factor, dv_factor; /* 1 */
    int group_last, group_first;            /* gradients of one head of a group only */
    int64_t delta_tile; /* delta of the first row of such a tile; 0: its own   */
    int delta_before;   /* 1: of the row before; 2: its O only                 */
    enum attn_model_sum dbias_sum;
    int dk_before;   /* dK lands on the visible key before                  */
    int by_position; /* dK, dV land at the position in the list of visible keys */
};

/* The truth. */
void attn_fault_none(const struct attn_setup *setup, struct attn_fault_model *model);

/* What was computed, against which fault models are held. */
struct attn_failed_run {
    const struct attn_setup *setup;
    struct attn_truth truth; /* with bounds */
    int failing[ATTN_OUTPUTS], compared[ATTN_OUTPUTS];
    int backward;  /* the forward is right: the mistake is in the backward */
    int ranks;     /* 0: it has none; 1: nobody knows; 2: it has                     */
    int64_t block; /* 0, or 1 + b H + h: only that batch and head are looked at */
    double loose;  /* relative tolerance                                   */
};

/* 1 when everything that the failed run is about was computed as the model tells it, and the model
 * explains what is wrong (fault_eval.h).  Without memory: 0. */
int attn_fault_fits(const struct attn_failed_run *failed, const struct attn_fault_model *model);

/* 1 when it is the truth, as far as the run's tolerance goes. */
int attn_truth_is_near(const struct attn_failed_run *failed);

#endif
