/* A runner of ranks that are processes, one rank each, and not threads of this process
 * (transport_mpi.h).  Every process makes the same calls with the same arguments, and runs its own
 * rank of each.
 */
#ifndef OPTIMIZED_PARALLEL_RANK_RUNNER_H
#define OPTIMIZED_PARALLEL_RANK_RUNNER_H

#include "ref/ranks.h"

struct attn_runner {
    void *state;
    int rank, size; /* this process; of how many */

    /* This process's rank of `ranks`, if it is one of them, and then what became of all: on every
     * process the same status and line, that of a simulation. */
    enum attn_status (*run)(void *state, int ranks, const struct attn_rank_code *code,
                            struct attn_error *err);

    /* The data of process `from`, to all. */
    enum attn_status (*share)(void *state, int from, void *data, int64_t bytes,
                              struct attn_error *err);

    /* Until all processes are here; the largest number of all. */
    enum attn_status (*largest)(void *state, double *x, struct attn_error *err);
    double (*seconds)(void); /* by the clock on the wall */

    /* A name of another process, in memory that stays. */
    const char *(*name)(void *state, const char *text);
};

#endif
