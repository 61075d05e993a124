/* The results of a failing implementation, beside the truth and its bounds: hypotheses about the
 * fault are held against these numbers. */
#ifndef TESTS_HARNESS_FAULTS_FAILED_RUN_H
#define TESTS_HARNESS_FAULTS_FAILED_RUN_H

#include "tests/harness/judge/judge.h"

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
    const struct attn_precision *precision; /* as declared */
    struct attn_truth truth;                /* with its bounds */
    double *x[ATTN_SLOTS]; /* the numbers of each tensor, packed; NULL: the case has none */
    int64_t extent[ATTN_SLOTS][4];
    struct attn_mask_part part[ATTN_PARTS]; /* of the mask; none: there is none, or too many */
    int parts, is_masked;                   /* a mask of "none" hides nothing */
    struct attn_made_tensor *made;          /* the tensors that they name */
    int failing[ATTN_OUTPUTS], compared[ATTN_OUTPUTS];
    int backward;     /* the forward is right: the mistake is in the backward            */
    int ranks;        /* 0: it has none; 1: unknown; 2: it has                           */
    int reads_hidden; /* K and V rows that no query sees are NaN: 1: they were read; 0: they were
                         not; -1: not tried */
    int64_t block;    /* 0, or 1 + b H + h: only that batch and head are looked at       */
    double loose;     /* relative tolerance                                              */
    char *text;       /* the findings                                                    */
    char *where;      /* and of which query, where a case has one of its own               */
    size_t size, where_size;
    char remedy[96]; /* of what was found; "" */
};

/* The elements of a view with these extents, packed; malloc'ed, NULL without memory. */
double *attn_packed_numbers(const struct attn_cview *view, const int64_t extent[4]);

/* The truth under these precisions, and all tensors of a setup as numbers; 0 without memory.  The
 * caller says what is compared, what fails and in which pass. */
int attn_run_open(struct attn_failed_run *run, const struct attn_setup *setup,
                  const struct attn_precision *precision);
void attn_run_close(struct attn_failed_run *run);

/* Rows of an output are counted over batches, heads and rows. */
int64_t attn_run_rows(const struct attn_failed_run *run, enum attn_output o);
int attn_run_row_is_right(const struct attn_failed_run *run, enum attn_output o, int64_t row);
int attn_run_element_is_right(const struct attn_failed_run *run, enum attn_output o, int64_t n);

/* Of a range of n rows or keys: the tile whose tail it is (128 down to 8), or 0. */
int64_t attn_tail_of(int64_t low, int64_t high, int64_t n);

/* O fails, and LSE, which scores of low precision would show in, is right. */
static inline int attn_run_is_behind_softmax(const struct attn_failed_run *run)
{
    return run->failing[ATTN_O] && run->compared[ATTN_LSE] && !run->failing[ATTN_LSE];
}

#endif
