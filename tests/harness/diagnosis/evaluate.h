/* Attention with one place of its definition changed (a fault model), evaluated row by row and held
 * against what a failing implementation computed.
 *
 * Plain double arithmetic; a wrong model is usually refuted by its first row. */
#ifndef TESTS_HARNESS_FAULTS_EVALUATE_H
#define TESTS_HARNESS_FAULTS_EVALUATE_H

#include <math.h>

#include "ref/problem.h"
#include "tests/harness/diagnosis/failed_run.h"

/* Where a row of faults.def changes the evaluation, and what it may change there: members of struct
 * attn_fault_at (of which b, h, i, j and y are written without `at->`) or of the evaluation x. */
enum attn_place {
    ATTN_AT_NONE,     /* nothing is changed: the truth                                        */
    ATTN_AT_PROBLEM,  /* x->problem, x->features: before anything is computed                 */
    ATTN_AT_VIEW,     /* the view of a slot: how a tensor is read, or an output was written   */
    ATTN_AT_PAIR,     /* i, j: what mask and bias are asked about                             */
    ATTN_AT_MASK,     /* b, h, i, j: what the mask is asked; or seen, the answer              */
    ATTN_AT_PART,     /* one part of the mask: its band, seen, ignored                        */
    ATTN_AT_KEY,      /* b, g, j: the row of K or V (of) for query i of head h                */
    ATTN_AT_BIAS,     /* b, h, i, j: where the bias is looked up                              */
    ATTN_AT_DISTANCE, /* y: that of ALiBi                                                     */
    ATTN_AT_ADDED,    /* y: the bias of a pair                                                */
    ATTN_AT_SCORE,    /* y: of s, the scaled product, and more, the bias                      */
    ATTN_AT_HIDDEN,   /* y: the score of a hidden pair                                        */
    ATTN_AT_SINK,     /* y: the sink of head h                                                */
    ATTN_AT_ROW,      /* x->w, m, l, lse, norm: all weights of a row are there                */
    ATTN_AT_BLOCKS,   /* blocks, times, hidden: blocks of keys of n ranks, merged one by one  */
    ATTN_AT_MERGE,    /* is_second_larger, exponent: a block is merged into what is there     */
    ATTN_AT_MERGED,   /* large, small, y: of lse and lse2, the weights of both and the new LSE */
    ATTN_AT_DELTA,    /* row, dot, dlse: of which row delta is, and its two factors             */
    ATTN_AT_PROB,     /* lse, delta, seen: P and dS of a pair in the backward                 */
    ATTN_AT_STORE,    /* j_dk, j_dv, c_dv, dk, dv, slope: where gradients go, their factors    */
    ATTN_AT_DSINK,    /* y: what a row adds to the gradient of its head's sink                */
    ATTN_AT_DBIAS,    /* y, sum: what is added to which sum                                   */
    ATTN_AT_NUMBER    /* y: a number of this kind (of_number), as it is rounded on its way     */
};

/* Bits, so that a row can speak of several. */
enum {
    ATTN_OF_Q = 1, /* inputs, in the order of the slots */
    ATTN_OF_QK = 3,
    ATTN_OF_FACTORS = 0x27, /* q, k, v, dO */
    ATTN_OF_INPUTS = 0x7f,
    ATTN_OF_DOT = 0x80,
    ATTN_OF_SCORE = 0x100,
    ATTN_OF_WEIGHT = 0x200, /* exp(s - m), as it meets V                     */
    ATTN_OF_P = 0x400,      /* its quotient by l; exp(s - LSE) as it meets dO */
    ATTN_OF_PRODUCT = 0x800,
    ATTN_OF_DS = 0x1000,
    ATTN_OF_RESULT = 0x2000,
    ATTN_OF_SUM = 0x4000 /* of weights times V, as each key is added */
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
            int by_feature; /* heads lie within the features */
        };
        struct { /* PART */
            int part, ignored;
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
            int64_t c_dv; /* of a dK that gets dV: from which feature on */
            double dk, dv, slope;
        };
        double delta;       /* PROB   */
        double sum;         /* DBIAS  */
        unsigned of_number; /* NUMBER */
    };
};

struct attn_evaluation;
struct attn_fault_model {
    enum attn_place place;
    void (*change)(struct attn_evaluation *x, struct attn_fault_at *at); /* NULL where NONE is */
    int64_t n;                                                           /* of the row's range */
    int64_t b, g; /* beyond n: what a learner says (learn_heads.c, learn_keys.c) */
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
    int has_vanished; /* the sum of a row that sees keys is 0, or none */
    double *s, *w, *raw, *probs, *o, *other, *dq, *dk, *dv, *dbias, *dsink;
    double m, l, lse, norm; /* O is the sum over norm */
    double z;               /* of the row: its sink, or -inf */
    double vague; /* relative: how exp takes the rounding of scores that are not the truth's */
    int unsure;   /* the row's numbers hang on how exp rounds: nothing is said of them */
    struct attn_evidence evidence;
};

/* Returns 0 when the model would leave a tensor's memory, or without memory; close it anyway. */
int attn_evaluation_open(struct attn_evaluation *x, const struct attn_failed_run *run,
                         const struct attn_fault_model *f);
void attn_evaluation_close(struct attn_evaluation *x);

/* Row (b,h,i) of a tensor. */
const double *attn_evaluation_row(const struct attn_evaluation *x, enum attn_slot slot, int64_t b,
                                  int64_t h, int64_t i);

/* Scores, raw scores, weights, m, l and LSE of a row. */
void attn_evaluate_scores(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i);

/* The delta of a row; row `row` of dQ into x->dq, had its delta been this, and its share of dK and
 * dV added to x->dk and x->dv. */
double attn_evaluate_delta(struct attn_evaluation *x, int64_t row);
void attn_evaluate_dq(struct attn_evaluation *x, int64_t row, double delta);

/* A row of an output as the model predicts it, against what was computed; the tolerance is some
 * bounds of the truth and a part of the row's size. */
int attn_evaluation_fits(struct attn_evaluation *x, enum attn_output o, int64_t row,
                         const double *predicted);

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

/* ---- steps of the evaluation, which rows of faults.def and the backward take too ------------- */

static inline void attn_change(struct attn_evaluation *x, enum attn_place place,
                               struct attn_fault_at *at)
{
    if (x->f->place == place)
        x->f->change(x, at);
}

/* A number of this kind, as the model rounds it. */
static inline double attn_changed_number(struct attn_evaluation *x, unsigned of_number, double y)
{
    if (x->f->place != ATTN_AT_NUMBER)
        return y;
    struct attn_fault_at at = {.y = y, .of_number = of_number};
    x->f->change(x, &at);
    return at.y;
}

/* The row of K (or V) that query i of head h takes for key j. */
const double *attn_evaluate_key_row(struct attn_evaluation *x, enum attn_fault_of of, int64_t b,
                                    int64_t h, int64_t i, int64_t j);
double attn_evaluate_score(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j);
/* Scores, raw scores; returns the largest score. */
double attn_evaluate_score_row(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i);
/* Weights from scores and a maximum, their sum l with the sink's and what follows from it; a row
 * without keys and sink. */
void attn_evaluation_weigh(struct attn_evaluation *x, double m);
void attn_evaluation_set_sum(struct attn_evaluation *x, double l);
void attn_evaluation_see_nothing(struct attn_evaluation *x);
/* The sink of a head, -inf where there is none. */
double attn_evaluation_sink(const struct attn_evaluation *x, int64_t h);
/* The LSE of one of `ranks` blocks of keys, from the scores of a row. */
double attn_evaluate_block_lse(const struct attn_evaluation *x, int64_t ranks, int64_t block);
/* O and LSE of the model against those of the run. */
int attn_evaluation_fits_forward(struct attn_evaluation *x);

static inline int64_t attn_group_of(const struct attn_problem *p)
{
    return p->kv_heads > 0 ? p->heads / p->kv_heads : 1;
}

/* As the type of the problem has it: in float32 what is out of its range is 0 or infinite. */
static inline double attn_narrow(const struct attn_problem *p, double a)
{
    return p->dtype == ATTN_F64 ? a : (double)(float)a;
}

static inline double attn_narrow_exp(const struct attn_problem *p, double a)
{
    return p->dtype == ATTN_F32 ? (double)(float)exp(a) : exp(a);
}

static inline double attn_cap(double s, double c)
{
    return c > 0 ? c * tanh(s / c) : s;
}

static inline int attn_is_half(const struct attn_problem *p)
{
    return p->dtype == ATTN_BF16 || p->dtype == ATTN_F16;
}

/* ---- ranks: who has which of n tokens ------------------------------------------------------- */

/* The first tokens % ranks of them have one token more. */
static inline int64_t attn_fault_rank_of(int64_t ranks, int64_t tokens, int64_t token)
{
    int64_t least = tokens / ranks, more = tokens % ranks, edge = more * (least + 1);
    return token < edge ? token / (least + 1) : more + (token - edge) / least;
}

static inline int64_t attn_fault_rank_start(int64_t ranks, int64_t tokens, int64_t rank)
{
    int64_t more = tokens % ranks;
    return rank * (tokens / ranks) + (rank < more ? rank : more);
}

/* The block that the rank of query i has at a step of the ring: its own, then those before it. */
static inline int64_t attn_fault_block_at(int64_t ranks, int64_t n_query, int64_t i, int64_t step)
{
    return (attn_fault_rank_of(ranks, n_query, i) - step + ranks) % ranks;
}

#endif
