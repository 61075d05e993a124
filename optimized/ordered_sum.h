/* Sums that grow from unit to unit of work, made in one order whatever the threads do.
 *
 * All units go through the same steps.  A unit takes a step only when the unit before it has passed
 * that step, so the order of additions is that of the units.
 *
 * A unit waits for units before it only.  Where threads take units in order, the unit waited for is
 * always in work, so no thread waits for ever. */
#ifndef OPTIMIZED_ORDERED_SUM_H
#define OPTIMIZED_ORDERED_SUM_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

/* No unit has passed anything. */
static inline void attn_ordered_sum_begin(_Atomic int32_t *passed, int64_t units)
{
    for (int64_t n = 0; n < units; n++)
        atomic_init(&passed[n], 0);
}

/* `passed`, one for each unit, counts the steps that the unit has passed.  A unit that waited for
 * them sees all that this one wrote in them. */
static inline void attn_ordered_sum_pass(_Atomic int32_t *passed, int64_t steps)
{
    atomic_store_explicit(passed, (int32_t)steps, memory_order_release);
}

/* Waiting is spinning: a step takes about a tenth of a millisecond, and a thread that gives its
 * processor away on a busy machine gets it back much later.  PATIENCE is a number of looks, some
 * tenths of a millisecond. */
static inline void attn_ordered_sum_wait(const _Atomic int32_t *passed, int64_t steps)
{
    enum { PATIENCE = 400000 };
    for (int n = 0; atomic_load_explicit(passed, memory_order_acquire) < steps; n++)
        if (n > PATIENCE)
            sched_yield();
}

#endif
