/* How a mask can be stored: one table of what frameworks and libraries keep, and of what they hold
 * while they make it.  `attnlab storage`.
 *
 * A storage is made by playing it on a tape (tape.h): on a counted tape that is its price, at any
 * length; on a real tape its blocks are taken from a ledger and filled, and what they say of each
 * pair can be compared with the mask.  One function does both.
 *
 * Letters  B batch, H heads, Lq queries, Lk keys; nnz visible pairs, of one (batch, head) where the
 *          mask does not vary, else of all that differ.
 */
#ifndef EXPERIMENTS_RIM_STORAGE_STORAGE_H
#define EXPERIMENTS_RIM_STORAGE_STORAGE_H

#include "experiments/rim/storage/tape.h"
#include "ref/mask/mask.h"
#include "ref/mask/pattern.h"
#include "tests/harness/inputs/case.h"

/* The mask that is stored.  Of the problem only the extents and the mask count. */
struct attn_stored_mask {
    const struct attn_problem *problem;
    struct attn_csr pattern; /* nnz and patterns, no arrays */
};

/* EINVAL where sizes exceed 64 bits, ENOTSUP where keys cannot be numbered with 32 bits. */
enum attn_status attn_stored_mask_open(const struct attn_problem *problem,
                                       struct attn_stored_mask *mask, struct attn_error *err);

/* The same of a text; mask and problem are in it until the close.  Any status of the parser too. */
struct attn_stored_text {
    struct attn_mask *mask;
    struct attn_problem problem;
    struct attn_stored_mask stored;
};
enum attn_status attn_stored_text_open(const char *text, const struct attn_mask_shape *shape,
                                       struct attn_stored_text *x, struct attn_error *err);
void attn_stored_text_close(struct attn_stored_text *x);

/* Query i and key j of one head. */
struct attn_pair_place {
    int64_t b, h, i, j;
};

struct attn_storage {
    const char *name;
    const char *layout; /* what is kept, with its type */
    const char *source; /* who keeps it so, and makes it so */

    /* Why it cannot express this mask; NULL: it can.  A NULL function: it can express any. */
    const char *(*refuses)(const struct attn_stored_mask *mask);

    /* Play the making.  The blocks that are live at the end are the storage. */
    void (*make)(struct attn_tape *tape, const struct attn_stored_mask *mask);

    /* The answer of a real storage for a pair: 1, 0, or another number: it contradicts itself. */
    int (*allows)(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                  struct attn_pair_place at);
};

enum { ATTN_STORAGES = 11 };
extern const struct attn_storage attn_storages[ATTN_STORAGES];
const struct attn_storage *attn_storage_find(const char *name); /* NULL: there is none */

/* Pairs of which a real storage says otherwise than the mask. */
int64_t attn_storage_wrong(const struct attn_storage *storage, const struct attn_tape *tape,
                           const struct attn_stored_mask *mask);

#endif
