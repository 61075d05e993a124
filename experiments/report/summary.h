/* Records folded to what figures and tables show: one row for each (group, spec, case), its
 * rounds together. */
#ifndef EXPERIMENTS_REPORT_SUMMARY_H
#define EXPERIMENTS_REPORT_SUMMARY_H

#include "experiments/measure/plan.h"
#include "experiments/measure/record.h"
#include "experiments/measure/stats.h"

enum { ATTN_SUMMARY_DRAWS = 2000 }; /* of a bootstrap, with seed 1 */
enum { ATTN_LABEL_TEXT = 200 };

struct attn_row {
    const struct attn_point *point; /* the first good round, else the first record (borrowed)    */
    int impl;                       /* place in the registry; later places for unknown names     */
    enum attn_point_status status;  /* WRONG if any round is, else OK if any is, else point's    */
    int rounds, good;               /* of the last program of this name; of which OK             */

    /* Seconds of one call, over the good rounds: of warm calls where at least half of these have
     * some; else `time` is empty, and `single` has the first calls. */
    struct attn_spread time, single;
    struct attn_interval time_interval; /* 95 % bootstrap of the median; NaN for one round */
    struct attn_samples times;          /* of `time`, a round each; borrowed from the summary */

    double peak_rate; /* P, flops/s: the median of the good rounds; NaN: not measured */
    double read_rate; /* the same of bytes/s that memory gives                        */

    int64_t priced, ledger;        /* peak of the largest rank; -1 unknown  */
    int64_t process, resident;     /* peak of all ranks together; median of the rounds' VmHWM
                                       growth; -1 unknown                    */
    struct attn_samples residents; /* a round each; borrowed from the summary */
    int64_t peak;                  /* the ledger; of what has none (not ours), resident         */
    double worst;                  /* largest error/bound of any round; NaN: not compared       */
    double output[ATTN_OUTPUTS];   /* the same for each output                                  */
    double error[ATTN_OUTPUTS];    /* its largest error by its largest number                   */

    /* What it is to the figure group that it belongs to (groups.h). */
    char label[ATTN_LABEL_TEXT];  /* in legends: the spec, R where the spec leaves it at its preset,
                                     and what else the group has several of              */
    char option[ATTN_LABEL_TEXT]; /* beside points: the same without what all points of an
                                     implementation share                                */
    int64_t first;                /* row of the group that had this label first          */
    double x;

    /* What it is to its curve there (curves.h); unknown: NaN, of a power n = 0. */
    int is_beyond, is_alone, is_frontier, is_sample; /* sample: not every element was compared    */
    int of_processes; /* ranks that are processes, or one process beside such */
    struct attn_power bytes_power, time_power;  /* the exponents of the curve                */
    double ideal, total_ideal, sent;            /* bytes: guides that fall as 1/R; a price   */
    double crossing, crossing_bytes;            /* where a csr curve meets a dense one       */
    double judged_output[ATTN_OUTPUTS], judged; /* output of both passes, or worst           */
};

/* Rows sorted by group (as first met), implementation, spec, pass, length, ranks, density. */
struct attn_summary {
    struct attn_row *row;
    double *sample; /* of all rows */
    int64_t n;
};

/* Fold n records.  Rows borrow from points, which must outlive them. */
void attn_summary_make(const struct attn_point *points, int64_t n, struct attn_summary *summary);
void attn_summary_free(struct attn_summary *summary);

#endif
