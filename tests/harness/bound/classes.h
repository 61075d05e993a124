/* Which classes of number the results of a row may be: finite, +inf, -inf, NaN.
 *
 * A bound speaks of finite results only.  Where an input is NaN or infinite, or a size leaves the
 * domain of ref/attn.h, the class is worked out here, from the formulas: every quantity is the set
 * of the kinds of number that honest arithmetic may make of it, in any order of sums, with weights
 * that may underflow, and with zeros that are multiplied or skipped.  docs/bounds.md, 6.3. */
#ifndef TESTS_HARNESS_BOUND_CLASSES_H
#define TESTS_HARNESS_BOUND_CLASSES_H

#include "tests/harness/bound/row_bound.h"

/* Kinds of number; a set is their sum. */
enum {
    ATTN_KIND_ZERO = 1,
    ATTN_KIND_POSITIVE = 2,
    ATTN_KIND_NEGATIVE = 4,
    ATTN_KIND_PLUS_INF = 8,
    ATTN_KIND_MINUS_INF = 16,
    ATTN_KIND_NAN = 32,
    ATTN_KIND_UNKNOWN = 64, /* beyond the domain: nothing can be said of the value either */
    ATTN_KINDS_FINITE = ATTN_KIND_ZERO | ATTN_KIND_POSITIVE | ATTN_KIND_NEGATIVE,
    ATTN_KINDS_ANY = 127
};

unsigned attn_kind_of(double x);
unsigned attn_kinds_plus(unsigned a, unsigned b);
unsigned attn_kinds_times(unsigned a, unsigned b);
unsigned attn_kinds_weigh(unsigned weight, unsigned x); /* some skip a weight of 0: 0 * NaN is 0 */

/* The classes of attn_truth_tensor that a set comes to. */
unsigned attn_kinds_classes(unsigned kinds);

/* One row's sets; arrays run over its visible keys, as in attn_oracle_row. */
struct attn_row_kinds {
    int special;                     /* 0: all is finite, and nothing else here is set      */
    unsigned char *s, *slope, *p;    /* [n] the score, d s / d raw, the weight              */
    unsigned char *dp, *ds, *dsr;    /* [n] with respect to P, the score, the raw score     */
    unsigned char *o, *dq, *q, *d_o; /* [dv] [d]; of this row's inputs [d] [dv]             */
    unsigned char lse, sink, dz;     /* sink: its weight */
    void *block;
};

enum attn_status attn_row_kinds_alloc(const struct attn_problem *problem,
                                      struct attn_row_kinds *kinds, struct attn_error *err);
void attn_row_kinds_free(struct attn_row_kinds *kinds);

/* After the row's bounds, of both passes where in->d_o is there. */
void attn_row_kinds(const struct attn_problem *problem, const struct attn_inputs *in,
                    const struct attn_precision *precision, const struct attn_oracle_row *row,
                    const struct attn_row_bound *bound, int64_t b, int64_t h, int64_t i,
                    struct attn_row_kinds *kinds);

#endif
