/* Which record of a list speaks of the same point and round: a hash table of places, so that a file
 * of n records is read in O(n) time. */
#ifndef EXPERIMENTS_MEASURE_RECORD_INDEX_H
#define EXPERIMENTS_MEASURE_RECORD_INDEX_H

#include "experiments/measure/record.h"

struct attn_record_index { /* all zero: empty */
    int64_t *slot;         /* [room] a place + 1; 0: free */
    size_t room, used;     /* room is a power of two */
};

/* The place in points[0..n) of a record of the same point and round as points[n]; n when there is
 * none, and then n is entered.  -1: no memory. */
int64_t attn_record_index_place(struct attn_record_index *index, const struct attn_point *points,
                                int64_t n);
void attn_record_index_free(struct attn_record_index *index);

#endif
