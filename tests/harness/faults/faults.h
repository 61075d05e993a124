/* Fault models: attention with one place of its definition changed, as implementations really get
 * it wrong (faults.def), evaluated and held against what a failing implementation computed.
 *
 * Plain double arithmetic, row by row; a wrong model is usually refuted by its first row.
 */
#ifndef TESTS_HARNESS_FAULTS_FAULTS_H
#define TESTS_HARNESS_FAULTS_FAULTS_H

#include <float.h>
#include <math.h>

#include "tests/harness/faults/diagnose.h"

/* ---- what was computed, against which models are held ---------------------------------------- */

/* A causal or window call: offset - left <= j - i <= offset + right. */
enum attn_band_kind { ATTN_BAND_NONE, ATTN_BAND_CAUSAL, ATTN_BAND_WINDOW };
enum { ATTN_NO_END = 1 << 30, ATTN_PARTS = 8 };
struct attn_fault_band {
    enum attn_band_kind kind;
    int64_t offset, left, right;
};

/* One side of the & and | of a mask. */
struct attn_mask_part {
    char text[ATTN_CASE_MASK];
    struct attn_mask *mask;
    struct attn_fault_band band;
    int is_or;  /* | stands behind it, not & */
    int is_and; /* & stands at one of its sides, or nothing at either */
};

struct attn_failed_run {
    const struct attn_setup *setup;
    struct attn_truth truth; /* with bounds */
    double *x[ATTN_SLOTS];   /* the numbers of each tensor, packed; NULL: the case has none */
    int64_t extent[ATTN_SLOTS][4];
    struct attn_mask_part part[ATTN_PARTS]; /* of the mask; none: there is none, or too many */
    int parts;
    struct attn_made_tensor *made; /* what they name */
    int failing[ATTN_OUTPUTS], compared[ATTN_OUTPUTS];
    int backward;  /* the forward is right: the mistake is in the backward            */
    int ranks;     /* 0: it has none; 1: nobody knows; 2: it has                      */
    int64_t block; /* 0, or 1 + b H + h: only that batch and head are looked at       */
    double loose;  /* relative tolerance                                              */
    char *text;    /* what is found out                                               */
    size_t size;
};

/* The elements of a view with these extents, packed; malloc'ed, NULL without memory. */
double *attn_packed_numbers(const struct attn_cview *view, const int64_t extent[4]);

/* The truth under these precisions, and all tensors of a setup as numbers; 0 without memory.  What
 * is compared, what fails and in which pass is the caller's to say. */
int attn_run_open(struct attn_failed_run *run, const struct attn_setup *setup,
                  const struct attn_precision *precision);
void attn_run_close(struct attn_failed_run *run);

/* Rows of an output are counted over batches, heads and rows. */
int64_t attn_run_rows(const struct attn_failed_run *run, enum attn_output o);
int attn_run_row_is_right(const struct attn_failed_run *run, enum attn_output o, int64_t row);
int attn_run_element_is_right(const struct attn_failed_run *run, enum attn_output o, int64_t n);

/* Of a range of n rows or keys: the tile whose tail it is (128 down to 8), or 0. */
int64_t attn_tail_of(int64_t low, int64_t high, int64_t n);

/* ---- evaluate.c: one model, row by row ------------------------------------------------------- */

/* Where a row of faults.def changes the evaluation, and what it may change there: members of struct
 * attn_fault_at (of which b, h, i, j and y are written without `at->`) or of the evaluation x. */
enum attn_place {
    ATTN_AT_NONE,     /* nothing is changed: the truth                                        */
    ATTN_AT_PROBLEM,  /* x->problem, x->features: before anything is computed                 */
    ATTN_AT_VIEW,     /* the view of a slot: how a tensor is read, or an output was written   */
    ATTN_AT_PAIR,     /* i, j: what mask and bias are asked about                             */
    ATTN_AT_MASK,     /* b, h, i, j: what the mask is asked; or seen, the answer              */
    ATTN_AT_PART,     /* one part of the mask: its band, seen, ignored, is_or                 */
    ATTN_AT_KEY,      /* b, g, j: the row of K or V (of) for query i of head h                */
    ATTN_AT_BIAS,     /* b, h, i, j: where the bias is looked up                              */
    ATTN_AT_DISTANCE, /* y: that of ALiBi                                                     */
    ATTN_AT_ADDED,    /* y: the bias of a pair                                                */
    ATTN_AT_DOT,      /* y: q.k                                                               */
    ATTN_AT_SCORE,    /* y: of s, the scaled product, and more, the bias                      */
    ATTN_AT_HIDDEN,   /* y: the score of a hidden pair                                        */
    ATTN_AT_MAX,      /* y: the maximum of a row                                              */
    ATTN_AT_ROW,      /* x->w, m, l, lse, norm: all weights of a row are there                */
    ATTN_AT_BLOCKS,   /* blocks, times, hidden: blocks of keys of n ranks, merged one by one  */
    ATTN_AT_MERGE,    /* is_second_larger, exponent: a block is merged into what is there     */
    ATTN_AT_MERGED,   /* large, small, y: of lse and lse2, the weights of both and the new LSE */
    ATTN_AT_DELTA,    /* row, dot, dlse: of which row delta is, and its two factors             */
    ATTN_AT_PROB,     /* lse, delta, seen: P and dS of a pair in the backward                 */
    ATTN_AT_STORE,    /* j_dk, j_dv, dk, dv, slope: where a pair's gradients go, their factors */
    ATTN_AT_DBIAS,    /* y, sum: what is added to which sum                                   */
    ATTN_AT_NUMBER    /* y: a number of this kind (of_number), as it is rounded on its way     */
};

/* Bits, so that a row can speak of several. */
enum {
    ATTN_OF_Q = 1, /* inputs, in the order of the slots */
    ATTN_OF_QK = 3,
    ATTN_OF_FACTORS = 0x17, /* q, k, v, dO */
    ATTN_OF_INPUTS = 0x3f,
    ATTN_OF_DOT = 0x40,
    ATTN_OF_SCORE = 0x80,
    ATTN_OF_WEIGHT = 0x100, /* exp(s - m), as it meets V                     */
    ATTN_OF_P = 0x200,      /* its quotient by l; exp(s - LSE) as it meets dO */
    ATTN_OF_PRODUCT = 0x400,
    ATTN_OF_DS = 0x800,
    ATTN_OF_RESULT = 0x1000
};

enum attn_fault_of { ATTN_OF_K_AND_V, ATTN_OF_K, ATTN_OF_V };
enum attn_hidden_block { ATTN_MERGED_TOO, ATTN_PASSED_OVER, ATTN_WIPES };

struct attn_fault_at {
    int64_t b, h, i, j;
    double y, lse;
    int seen; /* -1: nothing is said yet */
    union {
        struct { /* VIEW */
            enum attn_slot slot;
            const struct attn_tensor *tensor;
            struct attn_cview *view;
        };
        struct { /* PART */
            int part, ignored, is_or;
            struct attn_fault_band band;
        };
        struct { /* KEY */
            enum attn_fault_of of;
            int64_t g;
        };
        struct { /* SCORE */
            double s, more;
        };
        struct { /* BLOCKS, MERGE, MERGED */
            int64_t blocks;
            int times, is_second_larger;
            enum attn_hidden_block hidden;
            double exponent, lse2, large, small;
        };
        struct { /* DELTA */
            int64_t row;
            double dot, dlse;
        };
        struct { /* STORE: position and before are of the visible key in its row's list */
            int64_t j_dk, j_dv, position, before;
            double dk, dv, slope;
        };
        double delta;       /* PROB   */
        double sum;         /* DBIAS  */
        unsigned of_number; /* NUMBER */
    };
};

struct attn_fault_model {
    enum attn_place place;
    int row; /* of faults.def: its line; 0: n says whether K, V or both are kv head g of batch b */
    int64_t n; /* of the row's range */
    int64_t b, g;
};

/* Elements of rows that fit: those that are wrong; of these those that are as the model has them
 * and not as the truth has them, numbers and NaNs; those that are right, and the model has another
 * number there; and the finite ones of outputs that fail. */
struct attn_evidence {
    int64_t wrong, apart, nan_apart, against, finite;
};

struct attn_evaluation {
    const struct attn_failed_run *run;
    const struct attn_fault_model *f;
    struct attn_problem problem;                     /* the model's */
    const struct attn_problem *p;                    /* the same */
    int64_t features;                                /* of q and k that are multiplied     */
    const double *x[ATTN_SLOTS];                     /* as the model reads and writes them */
    double *moved[ATTN_SLOTS];                       /* those of them that are its own     */
    int has_moved_outputs, is_hidden_number, is_nan; /* of a row without keys: it is so by rule */
    double *s, *w, *raw, *probs, *o, *other, *dq, *dk, *dv, *dbias;
    double m, l, lse, norm; /* O is the sum over norm */
    int unsure;             /* the row's numbers hang on how exp rounds: nothing is said of them */
    struct attn_evidence evidence;
};

static inline double attn_root(int64_t d) /* 1 / sqrt(d), the usual scale */
{
    return 1 / sqrt((double)(d > 0 ? d : 1));
}

static inline double attn_least_normal(enum attn_dtype dtype)
{
    return dtype == ATTN_F64 ? 0x1p-1022 : dtype == ATTN_F16 ? 0x1p-14 : 0x1p-126;
}

static inline int is_half(const struct attn_problem *p)
{
    return p->dtype == ATTN_BF16 || p->dtype == ATTN_F16;
}

/* Offsets of ALiBi's distance that one may take. */
static inline int64_t attn_offset_of(const struct attn_problem *p, int64_t n)
{
    const int64_t offset[] = {0, p->n_key - p->n_query, p->bias.offset + 1, p->bias.offset - 1};
    return offset[n];
}

/* Returns 0 when the model would leave a tensor's memory, or without memory; close it anyway. */
int attn_evaluation_open(struct attn_evaluation *x, const struct attn_failed_run *run,
                         const struct attn_fault_model *f);
void attn_evaluation_close(struct attn_evaluation *x);

/* Row (b,h,i) of a tensor. */
const double *attn_evaluation_row(const struct attn_evaluation *x, enum attn_slot slot, int64_t b,
                                  int64_t h, int64_t i);

/* Scores, raw scores, weights, m, l and LSE of a row. */
void attn_evaluate_scores(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i);

/* Row `row` of dQ into x->dq, had its delta been this. */
void attn_evaluate_dq(struct attn_evaluation *x, int64_t row, double delta);

/* A row of an output, `told` by the model, against what was computed; the tolerance is some bounds
 * of the truth and a part of the row's size. */
int attn_evaluation_fits(struct attn_evaluation *x, enum attn_output o, int64_t row,
                         const double *told);

/* Is the model one that these numbers speak for?  It must say something else than the truth, most
 * elements that are wrong must be as it says, and few others may be right where it says another
 * number: a model of empty rows is none where no row is empty, nor is a layout of one head, nor an
 * error of every element where few are wrong. */
int attn_evaluation_explains(const struct attn_evaluation *x);

/* 1 when everything that the failed run is about was computed as the model has it, and the model
 * explains what is wrong; of the truth, as far as the run's tolerance goes.  Without memory: 0. */
int attn_fault_fits(const struct attn_failed_run *run, const struct attn_fault_model *f);

/* Of a run that is the truth, of infinite tolerance: 1 when the model moves an element beyond its
 * bound. */
int attn_fault_exceeds(const struct attn_failed_run *run, const struct attn_fault_model *f);

/* ---- who is asked, in this order: 1 and run->text when the fault is found -------------------- */

/* A row of faults.def, the r-th, with its n: the model and its words. */
struct attn_hypothesis {
    int r;
    enum attn_fault kind;
    struct attn_fault_range {
        int64_t first, last; /* values of n, which may double */
        int doubles;
    } range;
    struct attn_fault_model model;
    char words[300];
};

/* The next that the case can show, or 0; the first follows one of zeros.  skip: its row is done. */
int attn_hypothesis_next(const struct attn_failed_run *run, struct attn_hypothesis *x);
void attn_hypothesis_skip(struct attn_hypothesis *x);

/* The models of faults.def; the kind of the first that fits, or ATTN_FAULT_NONE.  Kinds in `but`
 * (bits) are left out. */
enum attn_fault attn_fault_recognise(struct attn_failed_run *run, unsigned but);

/* Take the mask apart at its & and |. */
void attn_run_open_parts(struct attn_failed_run *run);
void attn_run_close_parts(struct attn_failed_run *run);

/* What is learned from the numbers: which kv head and batch each block has read (learn_heads.c);
 * whether rows are right but in other places (learn_places.c); which keys each row has seen
 * (learn_keys.c); whether delta alone is wrong, whether outputs are the truth times a number, or
 * plus one (learn_numbers.c). */
int attn_learn_heads(struct attn_failed_run *run);
int attn_learn_places(struct attn_failed_run *run);
int attn_learn_keys(struct attn_failed_run *run);
int attn_learn_delta(struct attn_failed_run *run);
int attn_learn_lines(struct attn_failed_run *run);

/* describe.c.  Where the failing elements are: beside a fault that is known, the ranges; else a
 * sentence, and the fault where that tells it. */
void attn_describe(const struct attn_failed_run *run, struct attn_diagnosis *diagnosis);

/* rerun.c: the passes of a case, as it failed (fill_nan: fresh memory holds NaN) or with other
 * bytes in fresh memory; runs in other circumstances that explain the failure; and "fails only with
 * the bias, a length that leaves the tail of a tile ...": the features that the failure needs, and
 * how many are named. */
enum attn_status attn_rerun(const struct attn_spec *spec, const struct attn_setup *setup,
                            int fill_nan, struct attn_error *err);
int attn_rerun_again(const struct attn_spec *spec, const struct attn_case *c,
                     const struct attn_result *failed, char *text, size_t size);
int attn_rerun_without(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, char *text, size_t size);

/* ---- numbers that rows of faults.def share --------------------------------------------------- */

enum { LOW_SCORES = 12, STARTS = 8 };
static const double log2_e = 1.44269504088896340736, ln_2 = 0.69314718055994530942;
static const double low_score[LOW_SCORES] = {-1e9, -1e4,   -(double)FLT_MAX, -1e30, -1e10, -1e6,
                                             -1e5, -65504, -32768,           -5e4,  -1e3,  -100};
static const double max_start[STARTS] = {0, -100, -1e3, -1e4, -32768, -5e4, -65504, -1e5};

#endif
