/* Records folded to what figures and tables show: one row for each (group, spec, case), its
 * rounds together. */
#ifndef EXPERIMENTS_REPORT_SUMMARY_H
#define EXPERIMENTS_REPORT_SUMMARY_H

#include "experiments/measure/record.h"
#include "experiments/measure/stats.h"

struct attn_row {
    const struct attn_point *point; /* the first good round, else the first record (borrowed)    */
    int impl;                       /* place in the registry; later places for unknown names     */
    enum attn_point_status status;  /* WRONG if any round is, else OK if any is, else point's    */
    int records;                    /* all of it, also of another program of the same name      */
    int rounds, good;               /* of this one; of which OK                                  */

    /* Seconds of one call of a kind: the spread, over the good rounds, of attn_point_call_s().  The
     * kind is the same in all rows of a group, so that no curve and no fit mixes them: warm calls
     * where at least half of those rows that have any time have some in half of their rounds, else
     * the kind that most have; ATTN_CALLS where no row has any.  A row without warm calls in such
     * a group has no time, but `single`: its first calls, which are marked apart. */
    enum attn_call call;
    struct attn_spread time, single;
    struct attn_interval time_interval; /* 95 % bootstrap of the median; NaN for one round */

    int64_t priced, ledger;      /* peak of the largest rank; -1 unknown  */
    int64_t process, resident;   /* peak of all ranks together; median of the rounds' VmHWM
                                       growth; -1 unknown                    */
    int64_t peak;                /* the ledger; of what has none (not ours), resident         */
    double worst;                /* largest error/bound of any round; NaN: not compared       */
    double output[ATTN_OUTPUTS]; /* the same for each output                                  */
    char worst_output[8];
};

/* Rows sorted by group (as first met), implementation, spec, pass, length, ranks, density. */
struct attn_summary {
    struct attn_row *row;
    int64_t n;
};

/* Fold n records.  Rows borrow from points, which must outlive them. */
void attn_summary_make(const struct attn_point *points, int64_t n, struct attn_summary *summary);
void attn_summary_free(struct attn_summary *summary);

/* A spec without its option `ranks`: "ring:ranks=4,local=dense" gives "ring:local=dense".
 * text has room for 128 bytes. */
void attn_spec_without_ranks(const char *spec, char text[128]);

#endif
