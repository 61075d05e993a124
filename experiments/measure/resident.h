/* Resident memory of this process over a stretch of work: VmHWM, reset where the kernel allows. */
#ifndef EXPERIMENTS_MEASURE_RESIDENT_H
#define EXPERIMENTS_MEASURE_RESIDENT_H

#include <stdint.h>

struct attn_resident {
    int reset;        /* clear_refs took the mark down to what is resident now         */
    int64_t baseline; /* bytes resident at the start                                   */
    int64_t mark;     /* VmHWM then: the baseline when reset, else perhaps more        */
    int64_t hwm;      /* VmHWM at the end                                              */
    int64_t bytes;    /* hwm - baseline; -1 unknown: no reset, and the mark never moved */
};

/* Call with everything written that shall not count, and right before the work. */
void attn_resident_begin(struct attn_resident *resident);

/* Call right after the work, before anything else is allocated. */
void attn_resident_end(struct attn_resident *resident);

#endif
