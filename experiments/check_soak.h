/* Soak: random cases for a time, each failure made small; for registered specs and strangers. */
#ifndef EXPERIMENTS_CHECK_SOAK_H
#define EXPERIMENTS_CHECK_SOAK_H

#include "experiments/verdicts.h"
#include "tests/harness/soak.h"

struct attn_soak {
    /* say: the result will be shown, so that a failure is worth a diagnosis */
    void (*judge)(void *arg, const struct attn_case *c, int say, struct attn_result *result);
    void *arg;
    const char *route; /* who is judged, as it stands behind `attnlab check` */
    double seconds;
    uint64_t seed;
};

/* Judge until time is up or eight failures are found; verdicts are added, among them one for the
 * soak itself. */
void attn_soak_run(const struct attn_soak *soak, struct attn_verdicts *v);

/* ---- for routes that judge many cases at a time ---------------------------------------------- */

struct attn_soak_count {
    uint64_t cases;
    int verdict[ATTN_ERROR + 1];
};

/* File a failing case as it is; judged > 0: it was made small in so many steps from `large`. */
void attn_soak_found(const struct attn_soak *soak, const struct attn_case *c,
                     const struct attn_case *large, int judged, const struct attn_result *result,
                     struct attn_verdicts *v);

/* The soak itself is one check more, so that a clean one is seen to have run. */
void attn_soak_sum(const struct attn_soak *soak, const struct attn_soak_count *count,
                   struct attn_verdicts *v);

/* FAIL, CRASH, TIMEOUT. */
int attn_soak_is_bad(const struct attn_result *result);

#endif
