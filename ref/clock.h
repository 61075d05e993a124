/* The one clock: seconds since some start of CLOCK_MONOTONIC (wall time), of
 * CLOCK_PROCESS_CPUTIME_ID or of CLOCK_THREAD_CPUTIME_ID (CPU time). */
#ifndef REF_CLOCK_H
#define REF_CLOCK_H

#include <time.h>

static inline double attn_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
