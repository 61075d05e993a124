/* How a textbook traces a step that has ended (ref/trace.h).  No algorithm needs it: a
 * line that begins with TRACE may be skipped.
 *
 *      TRACE(x, "scores", 0, 0, MATRIX("S", w->S, x->n_query, x->n_key));
 *
 * `real` is the type of the arithmetic (ref/real.h).
 */
#ifndef REF_TRACE_STEP_H
#define REF_TRACE_STEP_H

#include "ref/textbook.h"

/* TRACE(x, step, i, j, shown...): to the tracer of a head, if it has one, that a step has ended,
 * and what is there from query i and key j on (ref/trace.h). */
#define TRACE(x, step, i, j, ...)                                                          \
    do {                                                                                   \
        if ((x)->tracer != NULL) {                                                         \
            const struct attn_trace_value shown[] = {__VA_ARGS__};                         \
            head_trace((x), (step), (i), (j), shown, (int)(sizeof shown / sizeof *shown)); \
        }                                                                                  \
    } while (0)

/* The numbers that are shown: a matrix from its first row on, or rows of one; one row; one column;
 * one number; the cells of a mask; whole numbers of any type, as a column. */
#define SHOWN(...)  \
    {               \
        __VA_ARGS__ \
    }
#define MATRIX(name, x, rows, n) SHOWN(name, (x).data, rows, n, (x).ld, sizeof(real), 0)
#define ROWS(name, x, i, end, n) SHOWN(name, row(x, i), (end) - (i), n, (x).ld, sizeof(real), 0)
#define ROW(name, numbers, n)    SHOWN(name, numbers, 1, n, n, sizeof(real), 0)
#define COLUMN(name, numbers, n) SHOWN(name, numbers, n, 1, 1, sizeof(real), 0)
#define NUMBER(name, x)          ROW(name, &(const real){x}, 1)
#define WHOLE(name, numbers, n)  SHOWN(name, numbers, n, 1, 1, sizeof *(numbers), 1)
#define CELLS(name, mask, rows)                                                          \
    SHOWN(name, (mask).data, rows, (mask).data != NULL ? (mask).n_key : 0, (mask).n_key, \
          (int)(mask).size, (mask).shown[0] != 0)

static inline void head_trace(const struct attn_head *x, const char *step, int64_t i, int64_t j,
                              const struct attn_trace_value *shown, int n)
{
    const struct attn_origin *from = &x->problem->origin;
    x->tracer->on_step(x->tracer->arg, &(struct attn_trace_step){.step = step,
                                                                 .rank = x->rank,
                                                                 .hop = x->hop,
                                                                 .batch = from->batch + x->b,
                                                                 .head = from->head + x->h,
                                                                 .query = from->query.first + i,
                                                                 .key = from->key.first + j,
                                                                 .shown = shown,
                                                                 .n_shown = n});
}

#endif
