/* One golden problem while it is being made: inputs as double (every value exact in the type that
 * it will be stored in), results as the sum of two doubles.
 *
 * Nothing here comes from ref/: contract, masks and arithmetic are written a second time, so that
 * a mistake in either is a disagreement and not a convention.
 */
#ifndef TESTS_GOLDEN_GOLDEN_H
#define TESTS_GOLDEN_GOLDEN_H

#include <stdint.h>

/* Bits of every intermediate.  Scores cancel by at most 2^40 here, sums by 2^60, and results are
 * wanted to 2^-106 of their size: 512 leaves 300 bits to spare. */
enum { GOLDEN_BITS = 512 };

enum golden_output {
    GOLDEN_O,
    GOLDEN_LSE,
    GOLDEN_DQ,
    GOLDEN_DK,
    GOLDEN_DV,
    GOLDEN_DBIAS,
    GOLDEN_DSINK,
    GOLDEN_OUTPUTS
};

struct golden {
    const char *name, *note;
    int64_t B, H, G, Lq, Lk, d, dv;
    int wide; /* stored as f64, else as f32 */
    double scale, softcap;
    const char *mask; /* in attnlab's language; visible[] says the same by a loop of its own */
    int has_alibi;    /* slope[h], key position of query 0 = alibi_offset */
    int has_d_lse;
    int64_t bias_axis[4]; /* extents of the bias, 1 broadcasts; all 0: there is none */

    double *q, *k, *v, *d_o, *d_lse, *bias;
    double *sink;           /* [H], or NULL */
    unsigned char *visible; /* [B,H,Lq,Lk] */
    double slope[8];
    int64_t alibi_offset;

    int64_t n[GOLDEN_OUTPUTS];    /* elements */
    double *hi[GOLDEN_OUTPUTS];   /* the result rounded to double     */
    double *rest[GOLDEN_OUTPUTS]; /* what that left, rounded to double */
    double *size[GOLDEN_OUTPUTS]; /* what rounding errors are relative to (exact.c) */
};

/* problems.c: 0 <= index < count; inputs, visible[], then golden_compute.  Never freed: the process
 * makes its files and ends. */
int golden_count(void);
void golden_make(int index, struct golden *x);

/* exact.c: fill n, hi, rest and size from the inputs. */
void golden_compute(struct golden *x);

#endif
