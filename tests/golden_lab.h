/* The golden vectors (tests/golden/): problems with results of 106 bits, made by arbitrary-
 * precision code that shares nothing with ref/ (tests/golden/exact.c), loaded as a problem and
 * its tensors. */
#ifndef TESTS_GOLDEN_LAB_H
#define TESTS_GOLDEN_LAB_H

#include "optimized/registry.h"
#include "ref/mask.h"
#include "tests/harness/bound.h"
#include "tests/harness/files.h"

struct golden {
    const char *name;
    struct attn_file file;
    struct attn_problem problem;
    struct attn_mask *mask;
    double slope[8];
    struct attn_inputs in;
    double *widened[6]; /* inputs as f64, once asked for */
    struct {
        int64_t n, width;        /* elements (0: no such output), elements a row */
        const double *hi, *rest; /* the result is hi + rest                      */
        const double *size;      /* what rounding is relative to: exact.c        */
    } want[ATTN_OUTPUTS];
    const unsigned char *visible; /* [B,H,Lq,Lk] */
};

int golden_count(void);

/* wide: values stored as f32 are presented as f64, the same numbers; a problem that is f64 already
 * is itself.  Aborts the test when the file is not as it should be. */
struct golden *golden_open(int index, int wide);
void golden_close(struct golden *x);

/* Run both passes of an implementation; out[o] dense as in the file, storage as declared.  0 when
 * it refuses the problem.  To be freed by golden_drop. */
struct golden_run {
    void *out[ATTN_OUTPUTS];
    enum attn_dtype dtype[ATTN_OUTPUTS];
    struct attn_precision precision;
};
int golden_forward_backward(const struct golden *x, const struct attn_spec *spec,
                            struct golden_run *run);
void golden_drop(struct golden_run *run);
double golden_got(const struct golden_run *run, int output, int64_t at);

#endif
