/* Several runs of one case in one process: how many fail, and what differs between the runs. */
#ifndef TESTS_HARNESS_REPEATS_H
#define TESTS_HARNESS_REPEATS_H

#include "tests/harness/runner.h"

struct attn_repeats {
    const struct attn_repetition *how;
    double until;                      /* by the clock of repeats.c; 0: no limit */
    int runs, failed, others, lacking; /* others: with other bits than the first        */
    struct attn_result first, bad;     /* bad: the first that failed, when failed > 0   */
    unsigned char *kept[ATTN_SLOTS];   /* the outputs of the first run; NULL: not known */
    char differs[sizeof((struct attn_result *)0)->differs];
};

/* The first run is done: its outputs are in the set-up, its verdict in first. */
void attn_repeats_open(struct attn_repeats *repeats, const struct attn_repetition *how,
                       const struct attn_setup *setup, const struct attn_result *first);

/* Is another run wanted? */
int attn_repeats_go_on(const struct attn_repeats *repeats);

/* One more is done. */
void attn_repeats_add(struct attn_repeats *repeats, const struct attn_setup *setup,
                      const struct attn_result *result);

/* The verdict of all runs together. */
void attn_repeats_close(struct attn_repeats *repeats, struct attn_result *result);

#endif
