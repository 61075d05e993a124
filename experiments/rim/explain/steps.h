/* The printed form of the steps that attnlab explain traces; it formats and computes nothing. */
#ifndef EXPERIMENTS_RIM_EXPLAIN_STEPS_H
#define EXPERIMENTS_RIM_EXPLAIN_STEPS_H

#include "experiments/rim/explain/handout.h"
#include "experiments/rim/explain/traced.h"

struct attn_show {
    int has_ranks;              /* hops are the steps: INNER ones are left out */
    int has_heads, has_batches; /* several: each part says of which it is */
    const char *only;           /* NULL, or beginnings of steps' names with commas between them */
};

/* Steps of one place are a part; in a part all steps of a kind are one table.  How many tables
 * there are.  handout: NULL, to count alone. */
int attn_show_steps(const struct attn_show *show, const struct attn_trace *trace,
                    struct attn_handout *handout);

#endif
