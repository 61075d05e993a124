/* One small call, explained: its problem from a case or from files, its steps as the textbook
 * traces them (traced.h), its buffers as the ledger has them (events.h), and the bits it gives. */
#ifndef EXPERIMENTS_RIM_EXPLAIN_EXPLAIN_H
#define EXPERIMENTS_RIM_EXPLAIN_EXPLAIN_H

#include "experiments/rim/explain/handout.h"
#include "experiments/rim/files/file_problem.h"
#include "tests/harness/inputs/setup.h"

/* The call that is explained; all of it borrowed. */
struct attn_explain {
    const struct attn_spec *spec;
    const struct attn_problem *problem;
    struct attn_forward forward;
    struct attn_backward backward;
    enum attn_pass last; /* of the passes that are made */
    const char *title, *only;
    enum attn_handout_format format;
    int memory; /* buffers in the place of steps */
};

/* ENOTSUP where the implementation traces no steps, or a problem of these extents is too large to
 * be read: before its tensors are made. */
enum attn_status attn_explain_check(const struct attn_explain *x,
                                    const struct attn_problem *problem, struct attn_error *err);

/* Check it, call it, and print.  EINVAL where `only` names none; else what the call says. */
enum attn_status attn_explain_show(const struct attn_explain *x, struct attn_error *err);

#endif
