/* What relations are made with: run a set-up, change one, compare two. */
#ifndef TESTS_HARNESS_RELATIONS_RELATION_FIXTURE_H
#define TESTS_HARNESS_RELATIONS_RELATION_FIXTURE_H

#include "tests/harness/relations/relations.h"

struct attn_fixture_shape {
    int64_t b, h, g, q, k, d, v;
};

/* One relation on one implementation. */
struct attn_fixture {
    const struct attn_spec *spec;
    struct attn_result *result;
    enum attn_dtype dtype;            /* the type that relations run in: one that is claimed */
    int64_t compared;                 /* elements that were compared so far                  */
    char refusal[512];                /* why something could not be run, or ""               */
    const struct attn_claims *claims; /* of somebody else's implementation, or NULL    */
    unsigned needs;                   /* the claims that were asked for               */
};

/* A case that may be changed between opening and running. */
struct attn_trial {
    struct attn_setup setup;
    struct attn_truth truth; /* the bounds of this run's outputs (and what the oracle says) */
};

/* 1 when the implementation claims all of these; else 0, and the fixture knows what is missing. */
int attn_fixture_needs(struct attn_fixture *f, unsigned caps);

/* Open a case: shape, mask, fill and seed ("normal:s1"), fields (":scale=1", or "").  The
 * gradients are asked for where `pass` says so and the implementation has a backward.  0: refused
 * or failed, the fixture knows why, and nothing needs closing. */
int attn_fixture_open(struct attn_fixture *f, struct attn_trial *t,
                      const struct attn_fixture_shape *shape, const char *mask, const char *fill,
                      enum attn_pass pass, const char *fields);

/* Run what was opened, check integrity, and find the bounds.  0 as above; close in any case. */
int attn_fixture_run(struct attn_fixture *f, struct attn_trial *t);
int attn_fixture_run_both(struct attn_fixture *f, struct attn_trial *x, struct attn_trial *y);
void attn_fixture_close(struct attn_trial *t);

/* May outputs be asked for equal bits?  Else 0, and the fixture knows why. */
int attn_fixture_repeats(struct attn_fixture *f);

/* The same without bounds, by another spec, ledger (NULL: a fresh one) or number of threads. */
int attn_fixture_call(struct attn_fixture *f, struct attn_trial *t, const struct attn_spec *spec,
                      struct attn_ledger *ledger, int threads);

/* An element of an output, and its bound (0 when bounds were not asked for). */
double attn_fixture_get(const struct attn_trial *t, enum attn_output output, const int64_t at[4]);
double attn_fixture_bound(const struct attn_trial *t, enum attn_output output, const int64_t at[4]);
int attn_fixture_has(const struct attn_trial *t, enum attn_output output);

/* Copy row (b, head, i) of an input from one trial to another; features both have. */
void attn_fixture_copy_row(struct attn_trial *to, const struct attn_trial *from,
                           enum attn_slot slot, const int64_t to_at[3], const int64_t from_at[3]);
/* Copy a whole input: every row that both have. */
void attn_fixture_copy(struct attn_trial *to, const struct attn_trial *from, enum attn_slot slot);

/* Every element of an input becomes value(old, [b,h,i,c], arg). */
void attn_fixture_change(struct attn_trial *t, enum attn_slot slot,
                         double (*value)(double old, const int64_t at[4], const void *arg),
                         const void *arg);

/* ok = |got - want| <= allowed, or both the same infinity.  The first that is not is the failure;
 * what names it, at says where (may be NULL).  Returns ok. */
int attn_fixture_near(struct attn_fixture *f, const char *what, const int64_t at[4], double got,
                      double want, double allowed);
void attn_fixture_fail(struct attn_fixture *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What element `at` of one output should be: factor * y[at] + shift.  factor 0: y is not asked.
 * slack: allowed beyond the bounds. */
struct attn_fixture_want {
    int64_t at[4];
    double factor, shift, slack;
    int skip;
};

/* Compare an output of x with one of y.  map turns an element of x into what is wanted (given as
 * the same element, factor 1); NULL: as it is.  Allowed: both bounds; or nothing. */
enum attn_fixture_rule { ATTN_FIXTURE_BOUNDS, ATTN_FIXTURE_EXACT };
void attn_fixture_compare(struct attn_fixture *f, const struct attn_trial *x,
                          const struct attn_trial *y, enum attn_output output,
                          enum attn_fixture_rule rule,
                          void (*map)(const void *arg, struct attn_fixture_want *want),
                          const void *arg);
/* All outputs that both have. */
void attn_fixture_compare_all(struct attn_fixture *f, const struct attn_trial *x,
                              const struct attn_trial *y, enum attn_fixture_rule rule);

/* Extents of an output: [B, heads, rows, width]. */
void attn_fixture_extent(const struct attn_trial *t, enum attn_output output, int64_t extent[4]);

#endif
