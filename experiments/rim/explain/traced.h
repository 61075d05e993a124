/* The steps that a textbook traced in a call, kept with copies of their numbers, in an order that
 * does not depend on threads.
 *
 *      struct attn_tracer  ->  struct attn_trace  ->  tables (steps.h)
 */
#ifndef EXPERIMENTS_RIM_EXPLAIN_TRACED_H
#define EXPERIMENTS_RIM_EXPLAIN_TRACED_H

#include <pthread.h>

#include "ref/trace.h"

enum attn_rows_of {
    ATTN_ROWS_QUERIES,
    ATTN_ROWS_KEYS,
    ATTN_ROWS_ELEMENTS,
    ATTN_ROWS_PAIRS,
    ATTN_ROWS_GRID
};
enum { ATTN_STEP_OPENS = 1, ATTN_STEP_BY_KEY = 2, ATTN_STEP_INNER = 4, ATTN_STEP_ENDS = 8 };

/* A line of steps.def. */
struct attn_step_kind {
    const char *name;
    enum attn_rows_of rows;
    unsigned flags;
    const char *sentence;
};

/* One matrix that was shown; value [rows, columns]. */
struct attn_traced_matrix {
    const char *name;
    int64_t rows, columns;
    int size, is_whole; /* as in struct attn_trace_value */
    double *value;
};

enum { ATTN_TRACE_MATRICES = 8 };
struct attn_traced_step {
    const struct attn_step_kind *kind;
    enum attn_pass pass;
    struct attn_trace_step at; /* but for what was shown: */
    int n;
    struct attn_traced_matrix matrix[ATTN_TRACE_MATRICES];
    int64_t order; /* of its arrival */
};

struct attn_trace {
    struct attn_tracer tracer; /* give it to a context; it points to this struct */
    enum attn_pass pass;       /* of the call that comes next */
    int64_t n, capacity;
    struct attn_traced_step *step;
    const char *unknown; /* the first step that steps.def does not have; NULL: none */
    pthread_mutex_t lock;
};

void attn_trace_open(struct attn_trace *trace);
void attn_trace_close(struct attn_trace *trace);

/* By pass, and of ranks by hop and then by rank; else as it came.  EINTERNAL: a step is unknown. */
enum attn_status attn_trace_sort(struct attn_trace *trace, int has_ranks, struct attn_error *err);

/* Tensors of the problem as a step of its own: at one head, `rows` rows from at->query (of keys the
 * same number) on; `names` has one name for each view. */
void attn_trace_add(struct attn_trace *trace, const struct attn_trace_step *at, int64_t rows,
                    const char *const *names, const struct attn_cview *view, const int64_t *columns,
                    int n);

#endif
