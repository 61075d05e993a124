/* The live set of a program that somebody else wrote: which blocks it took, who made them, and when
 * it gave them back.
 *
 * A counted tape only adds up, so it can be played at the published size.  A real tape takes the
 * same blocks from its ledger, and the study computes in them, at a size that fits.  One function
 * plays both, so what is counted is what is done. */
#ifndef EXPERIMENTS_STUDIES_TAPE_H
#define EXPERIMENTS_STUDIES_TAPE_H

#include "ref/ledger.h"

struct attn_study_run; /* study.h */

enum { ATTN_TAPE_BLOCKS = 64 };

struct attn_tape_block {
    const char *name, *maker; /* static storage: what it is, and the call that makes it */
    int64_t bytes;
    int entry; /* of the run; -1: on a real tape */
    void *data;
};

/* What was done, in blocks with their makers, over a ledger that counts their bytes.  A counted
 * tape is {.run}; a real one is {.run, .is_real} with a ledger that is open, to be cleared at the
 * end. */
struct attn_tape {
    struct attn_study_run *run; /* NULL: of no study; nobody is told where memory is lacking */
    int is_real, is_brief;      /* is_brief: its live set is not printed */
    int is_cut;                 /* memory was lacking: nothing is taken any more */
    struct attn_ledger ledger;
    int n, n_at_peak;
    struct attn_tape_block block[ATTN_TAPE_BLOCKS], at_peak[ATTN_TAPE_BLOCKS];
};

/* count * size bytes, live from here on.  The block on a real tape; NULL on a counted one, which
 * has nothing to compute in, and where there is no memory (run->lacks). */
void *attn_tape_take(struct attn_tape *tape, const char *name, const char *maker, int64_t count,
                     int64_t size);
void attn_tape_give(struct attn_tape *tape, const char *name);

/* The last block of a name; NULL on a counted tape, and where there is none. */
void *attn_tape_data(const struct attn_tape *tape, const char *name);

/* The name says what a block is to its program now: a new result is old in the next run. */
void attn_tape_rename(struct attn_tape *tape, const char *name, const char *to);

/* The peak begins anew with what is live, as torch.cuda.reset_peak_memory_stats(). */
void attn_tape_restart(struct attn_tape *tape);

/* The same played for real and counted. */
struct attn_pair {
    struct attn_tape real, counted;
};
void attn_pair_open(struct attn_pair *pair, struct attn_study_run *run);
void attn_pair_close(struct attn_pair *pair); /* gives back what is left on the ledger */

#endif
