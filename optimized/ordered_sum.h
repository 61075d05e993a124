/* Units of work that follow each other through the same steps at a distance, like runners with a
 * baton: a unit takes a step only when the unit before it has passed that step.  So sums that grow
 * from unit to unit are made in one order, whoever is fast.
 *
 * A unit waits for units before it only.  If threads take units in order, those are in somebody's
 * hands, and nobody waits for ever. */
#ifndef OPTIMIZED_ORDERED_SUM_H
#define OPTIMIZED_ORDERED_SUM_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

/* `passed`, one for each unit, counts the steps that are behind it; what it wrote there is seen by
 * who waited for it. */
static inline void attn_baton_pass(_Atomic int32_t *passed, int64_t steps)
{
    atomic_store_explicit(passed, (int32_t)steps, memory_order_release);
}

/* Waiting is spinning: a step takes about a tenth of a millisecond, and a thread that gives its
 * processor away on a busy machine gets it back much later.  PATIENCE is so many looks, some tenths
 * of a millisecond. */
static inline void attn_baton_wait(const _Atomic int32_t *passed, int64_t steps)
{
    enum { PATIENCE = 400000 };
    for (int n = 0; atomic_load_explicit(passed, memory_order_acquire) < steps; n++)
        if (n > PATIENCE)
            sched_yield();
}

#endif
