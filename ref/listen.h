/* The listener of a textbook: it is called when a step ends, with the numbers that are there then.
 *
 * A step has a name; experiments/rim/explain/steps.def explains each.  attnlab explain is the
 * listener.  A textbook calls it by TELL (ref/tell.h), once a step; without a listener that is one
 * comparison with NULL.  The numbers belong to the textbook and are overwritten later:
 * a listener copies what it keeps, and computes nothing.
 */
#ifndef REF_LISTEN_H
#define REF_LISTEN_H

#include "ref/attn.h"

/* A matrix, or rows of one: numbers of `size` bytes, real or whole; row r begins at element
 * r * ld. */
struct attn_shown {
    const char *name; /* as docs/attention.md writes it: "S", "dQ_i"; static storage */
    const void *data;
    int64_t rows, columns, ld;
    int size, is_whole;
};

/* The end of a step, and where: in batch, head, query and key of the whole problem, the first ones
 * of what is shown.  All that is shown has equally many rows. */
struct attn_told {
    const char *step; /* static storage */
    int rank, hop;    /* of ring and Ulysses; 0 on one process */
    int64_t batch, head, query, key;
    const struct attn_shown *shown;
    int n_shown;
};

/* hear() is called in the order of computing; by several ranks at once, each in a thread of its
 * own. */
struct attn_listener {
    void (*hear)(void *arg, const struct attn_told *told);
    void *arg;
};

#endif
