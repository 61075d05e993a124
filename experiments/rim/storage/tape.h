/* The live set of another program: the blocks that it took, who made them, and when it gave them
 * back.
 *
 * A counted tape only adds up, so it can be played at the published size.  A real tape takes the
 * same blocks from its ledger, and the study computes in them, at a size that fits.  One function
 * plays both, so what is counted is what is done. */
#ifndef EXPERIMENTS_RIM_STORAGE_TAPE_H
#define EXPERIMENTS_RIM_STORAGE_TAPE_H

#include <jansson.h>

#include "ref/ledger.h"

enum { ATTN_TAPE_BLOCKS = 64 };

struct attn_tape_block {
    const char *name, *maker; /* static storage: what it is, and the call that makes it */
    int64_t bytes;
    int entry; /* of the owner; -1: on a real tape, and without an owner */
    void *data;
};

/* The run that tapes belong to.  enter: the number of a block that a counted tape takes; its bytes
 * may become 0.  lacks: memory was refused. */
struct attn_tape_owner {
    int (*enter)(struct attn_tape_owner *owner, const char *name, int64_t *bytes);
    void (*lacks)(struct attn_tape_owner *owner, const struct attn_error *err);
};

/* The blocks that were taken, with their makers, over a ledger that counts their bytes.  A counted
 * tape is {.owner}; a real one is {.owner, .is_real} with a ledger that is open, to be cleared at
 * the end. */
struct attn_tape {
    struct attn_tape_owner *owner; /* NULL: there is none */
    int is_real, is_brief;         /* is_brief: its live set is not printed */
    int is_cut;                    /* memory was lacking: nothing is taken any more */
    struct attn_ledger ledger;
    int n, n_at_peak;
    struct attn_tape_block block[ATTN_TAPE_BLOCKS], at_peak[ATTN_TAPE_BLOCKS];
};

/* count * size bytes, live from here on.  The block on a real tape; NULL on a counted one, which
 * has nothing to compute in, and where there is no memory (owner->lacks). */
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
void attn_pair_open(struct attn_pair *pair, struct attn_tape_owner *owner);
void attn_pair_close(struct attn_pair *pair); /* gives back what is left on the ledger */

/* Blocks as an array of JSON objects. */
json_t *attn_tape_json(const struct attn_tape_block *block, int n);

#endif
