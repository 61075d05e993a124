/* The tracer of a textbook: it is called when a step ends, with the numbers that are there then.
 *
 * A step has a name; experiments/rim/explain/steps.def explains each.  attnlab explain is the
 * tracer.  A textbook calls it by TRACE (ref/trace_step.h), once a step; without a tracer that is
 * one comparison with NULL.  The numbers belong to the textbook and are overwritten later: a tracer
 * copies what it keeps, and computes nothing.
 */
#ifndef REF_TRACE_H
#define REF_TRACE_H

#include "ref/attn.h"

/* A matrix, or rows of one: numbers of `size` bytes, real or whole; row r begins at element
 * r * ld. */
struct attn_trace_value {
    const char *name; /* as docs/attention.md writes it: "S", "dQ_i"; static storage */
    const void *data;
    int64_t rows, columns, ld;
    int size, is_whole;
};

/* The end of a step, and where: in batch, head, query and key of the whole problem, the first ones
 * of what is shown.  All that is shown has equally many rows. */
struct attn_trace_step {
    const char *step; /* static storage */
    int rank, hop;    /* of ring and Ulysses; 0 on one process */
    int64_t batch, head, query, key;
    const struct attn_trace_value *shown;
    int n_shown;
};

/* on_step() is called in the order of computing; by several ranks at once, each in a thread of its
 * own. */
struct attn_tracer {
    void (*on_step)(void *arg, const struct attn_trace_step *step);
    void *arg;
};

#endif
