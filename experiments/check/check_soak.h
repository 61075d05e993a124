/* Soak: random cases for a time, each failure made small; for registered specs and external
 * implementations. */
#ifndef EXPERIMENTS_CHECK_CHECK_SOAK_H
#define EXPERIMENTS_CHECK_CHECK_SOAK_H

#include "experiments/check/verdicts.h"
#include "tests/harness/cases/soak.h"

enum {
    ATTN_SOAK_SAY = 1,      /* the result will be shown: a failure is worth a diagnosis */
    ATTN_SOAK_FRESH = 2,    /* in a process that has not yet judged anything           */
    ATTN_SOAK_CALLS = 16,   /* of each case: a race may strike one call in a thousand  */
    ATTN_SOAK_OWN_CALLS = 4 /* of our own, whose threads have tests of their own     */
};
enum { ATTN_REPEAT_MOST = 1000000 }; /* --repeat */

struct attn_soak {
    /* Run a case as often as `how` says; its same_bits is the judge's to set. */
    void (*judge)(void *arg, const struct attn_case *c, const struct attn_repetition *how,
                  int flags, struct attn_result *result);
    void *arg;
    const char *route; /* who is judged, as it stands behind `attnlab check` */
    double seconds;
    uint64_t seed;
    int calls; /* of each case */
};

/* Judge until time is up, or eight failures are found, or one that comes and goes; verdicts are
 * added, among them one for the soak itself.  Whatever failed once is a failure: FAIL, CRASH or
 * TIMEOUT where it fails each time, INTERMITTENT where it does not. */
void attn_soak_run(const struct attn_soak *soak, struct attn_verdict_list *list);

/* ---- for routes that judge many cases at a time ---------------------------------------------- */

struct attn_soak_count {
    uint64_t cases;
    double seconds;
    int verdict[ATTN_ERROR + 1]; /* ERROR: cases that cannot be set up */
};

/* All runs of one case. */
struct attn_soak_tally {
    int runs, failed;
    struct attn_result bad, good; /* the first of either sort */
    int64_t bad_call[2], good_call[2];
};
void attn_soak_tally(struct attn_soak_tally *tally, const struct attn_result *result);

/* File a failing case; found: the larger case that it was made from, or NULL. */
void attn_soak_file(const struct attn_soak *soak, const struct attn_case *c,
                    const struct attn_case *found, const char *why,
                    const struct attn_result *result, struct attn_verdict_list *list);

/* File one that fails in some runs and not in others.  small: the runs of c, where this is
 * smaller than what was found; NULL: no smaller case was seen to fail. */
void attn_soak_intermittent(const struct attn_soak *soak, const struct attn_case *c,
                            const struct attn_case *found, const struct attn_soak_tally *all,
                            const struct attn_soak_tally *small, struct attn_verdict_list *list);

/* ERROR, and not for a fill that cannot keep its promise for the case: that is nobody's failure. */
int attn_soak_is_error(const struct attn_case *c, const struct attn_result *result);

/* The soak itself is one check more: a clean one is seen to have run, and any failure fails it. */
void attn_soak_sum(const struct attn_soak *soak, const struct attn_soak_count *count,
                   struct attn_verdict_list *list);

#endif
