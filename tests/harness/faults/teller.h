/* For the files of tales only (tale.h): one tale being held against what was computed. */
#ifndef TESTS_HARNESS_FAULTS_TELLER_H
#define TESTS_HARNESS_FAULTS_TELLER_H

#include "tests/harness/faults/tale.h"

/* Elements of rows that fit: those that are wrong; of these those that are as the tale tells them
 * and not as the truth has them, numbers and NaNs; and the finite ones of outputs that fail. */
struct evidence {
    int64_t wrong, apart, nan_apart, finite;
};

struct teller {
    const struct attn_inquiry *q;
    const struct attn_tale *t;
    const struct attn_problem *p;
    struct attn_cview view[ATTN_SLOTS];
    double *s, *w, *o, *dq, *dk, *dv, *dbias; /* o has room for two rows */
    char *seen;
    double *raw;
    double m, l, lse;
    int unsure; /* the row's numbers hang on how exp rounds: nothing is told */
    struct evidence evidence;
};

/* tale.c: scores, weights, m, l and LSE of a row; a row of an output as told, against what was
 * computed.  Whatever opening returns (0: the tale cannot be told), close. */
int attn_teller_open(struct teller *x, const struct attn_inquiry *q, const struct attn_tale *t);
void attn_teller_close(struct teller *x);
void attn_teller_scores(struct teller *x, int64_t b, int64_t h, int64_t i);
int attn_teller_row_fits(struct teller *x, enum attn_output o, int64_t b, int64_t h, int64_t i,
                         const double *told);

/* Is the tale one that these numbers speak for?  It must tell something else than the truth, and
 * most elements that are wrong must be what it tells: a tale of empty rows is none where no row
 * is. */
int attn_teller_explains(const struct teller *x);

/* tale_views.c: how the tale reads memory; 0 when it would leave a tensor's. */
int attn_teller_views(struct teller *x);

/* tale_index.c: what the tale's mask shows, and where its query finds K, V and bias. */
int attn_teller_sees(const struct teller *x, int64_t b, int64_t h, int64_t i, int64_t j);
int64_t attn_teller_kv_head(const struct teller *x, int64_t h, enum attn_tale_of of);
int64_t attn_teller_kv_batch(const struct teller *x, int64_t b, enum attn_tale_of of);
int64_t attn_teller_key(const struct teller *x, int64_t i, int64_t j, enum attn_tale_of of);
double attn_teller_bias(const struct teller *x, int64_t b, int64_t h, int64_t i, int64_t j);

/* tale_merge.c: O and LSE of a row whose keys come in blocks, one of each rank, and are merged. */
void attn_teller_merge(struct teller *x, int64_t b, int64_t h, int64_t i);
int attn_teller_step_counts(const struct teller *x, int64_t i, int64_t j);

#endif
