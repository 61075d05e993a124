/* attnlab point: one point in one process, which does nothing else.  point.c calls an
 * implementation, ours or a plug-in's; point_exec.c starts a command. */
#ifndef EXPERIMENTS_MEASURE_POINT_H
#define EXPERIMENTS_MEASURE_POINT_H

#include "experiments/measure/machine.h"
#include "experiments/measure/record.h"
#include "tests/harness/subject/plugin.h"

struct attn_point_flags {
    const char *spec, *text, *verified;
    const char *plugin, *exec, *claims, *name, *work; /* of an implementation that is not ours */
    const char *save;                                 /* of `layers` layers; 0: of one call */
    int64_t repeat, verify_all, calibrate, layers, hidden;
    double enough;
};

/* Everything about the one point. */
struct attn_point_work {
    struct attn_spec spec;
    struct attn_setup setup;
    struct attn_ledger ledger;
    struct attn_saved saved;   /* of the forward call that a backward point needs */
    struct attn_rank_use *use; /* [ranks] */
    struct attn_point point;
    double cpu_max[ATTN_RECORD_TIMES], cpu_sum[ATTN_RECORD_TIMES];
    struct attn_plugin_impl *plugin;  /* NULL: ours, or a command                           */
    double plugin_wall, plugin_cpu;   /* of its last call, by the clock right around it     */
    const struct attn_claims *claims; /* of what is not ours; NULL: ours                  */
    int64_t highest;                  /* VmHWM before the mark of the calls was set */
};

/* This point has no result: refused, or an error. */
void attn_point_fail(struct attn_point *point, const struct attn_error *err);

/* The same of calls in this process, for which ENOMEM is memory and nothing else. */
void attn_point_fail_here(struct attn_point *point, const struct attn_error *err);

/* Load the plug-in, so that calls of work->spec are calls of it; from here on what it prints goes
 * to standard error, and the record to the descriptor that is returned, -1 on failure. */
int attn_point_load(struct attn_point_work *work, const struct attn_point_flags *flags,
                    struct attn_error *err);

/* Set up as this implementation wants its tensors, and refuse what it does not claim. */
enum attn_status attn_point_open(struct attn_point_work *work, struct attn_error *err);

/* The stack of layers that the point is of (stack.h; point_stack.c).  One half of it, with the
 * seconds in its calls; forget: what layers hold goes, so that it can begin again.  After close the
 * outputs, and of a hidden width the inputs, are those of every layer. */
enum attn_status attn_point_stack_open(struct attn_point_work *work, struct attn_error *err);
enum attn_status attn_point_stack_half(struct attn_point_work *work, enum attn_pass half,
                                       double *seconds, struct attn_error *err);
void attn_point_stack_forget(struct attn_point_work *work);
void attn_point_stack_close(struct attn_point_work *work);

/* After a call of p->c.pass on this set-up, of a point or of bench.  Overwritten red zones, changed
 * inputs, elements that nobody wrote: 1 when there are none, else 0 and p->message. */
int attn_point_intact(const struct attn_setup *setup, struct attn_point *p);

/* What is compared, and p->verified says: every element up to verify_all queries and keys; beyond,
 * 64 rows and keys. */
struct attn_sample attn_point_sample(struct attn_point *p, int64_t verify_all,
                                     int64_t row[ATTN_SAMPLE_MOST], int64_t key[ATTN_SAMPLE_MOST]);
void attn_point_keep_verdict(struct attn_point *p, const struct attn_result *result);

/* The oracle: status, verdict, message, worst errors and `verified` of p.  lacks_lse: whoever ran
 * gives none. */
void attn_point_judge(const struct attn_setup *setup, const struct attn_precision *precision,
                      int64_t verify_all, int lacks_lse, struct attn_point *p);

/* Integrity, digest, oracle.  A result that is wrong has no time. */
void attn_point_verify(struct attn_point_work *work, const struct attn_point_flags *flags);

/* All of a point whose work a call, or a command, does: fills work->point, whatever happens. */
void attn_point_call(struct attn_point_work *work, const struct attn_point_flags *flags);
void attn_point_exec(struct attn_point_work *work, const struct attn_point_flags *flags);

#endif
