/* What a textbook told of a call, kept: each step with copies of the numbers that were shown, in an
 * order that does not depend on threads.
 *
 *      struct attn_listener  ->  struct attn_heard  ->  tables (steps.h)
 */
#ifndef EXPERIMENTS_RIM_EXPLAIN_HEARD_H
#define EXPERIMENTS_RIM_EXPLAIN_HEARD_H

#include <pthread.h>

#include "ref/listen.h"

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
struct attn_heard_matrix {
    const char *name;
    int64_t rows, columns;
    int size, is_whole; /* as in struct attn_shown */
    double *value;
};

enum { ATTN_HEARD_MATRICES = 8 };
struct attn_heard_step {
    const struct attn_step_kind *kind;
    enum attn_pass pass;
    struct attn_told at; /* but for what was shown: */
    int n;
    struct attn_heard_matrix matrix[ATTN_HEARD_MATRICES];
    int64_t order; /* of its arrival */
};

struct attn_heard {
    struct attn_listener listener; /* give it to a context; it points to this struct */
    enum attn_pass pass;           /* of the call that comes next */
    int64_t n, capacity;
    struct attn_heard_step *step;
    const char *unknown; /* the first step that steps.def does not have; NULL: none */
    pthread_mutex_t lock;
};

void attn_heard_open(struct attn_heard *heard);
void attn_heard_close(struct attn_heard *heard);

/* By pass, and of ranks by hop and then by rank; else as it came.  EINTERNAL: a step is unknown. */
enum attn_status attn_heard_sort(struct attn_heard *heard, int has_ranks, struct attn_error *err);

/* Tensors of the problem as a step of its own: at one head, so many rows from at->query (of keys
 * the same number) on; `names` has one name for each view. */
void attn_heard_tell(struct attn_heard *heard, const struct attn_told *at, int64_t rows,
                     const char *const *names, const struct attn_cview *view,
                     const int64_t *columns, int n);

#endif
