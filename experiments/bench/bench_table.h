/* Rows with a target: what is to be reached, what is, and whether that is enough. */
#ifndef EXPERIMENTS_BENCH_BENCH_TABLE_H
#define EXPERIMENTS_BENCH_BENCH_TABLE_H

#include "experiments/bench/bench.h"

enum attn_bench_goal {
    ATTN_GOAL_PEAK,   /* flops / (time P), at least                                     */
    ATTN_GOAL_READ,   /* bytes / (time read bandwidth), at least                        */
    ATTN_GOAL_SGEMM,  /* its fraction of P over that of the BLAS's product, at least    */
    ATTN_GOAL_RATE,   /* flops / time over that of the other, at least                  */
    ATTN_GOAL_TIME,   /* time over that of the other, at most                           */
    ATTN_GOAL_MEMORY, /* MiB a thread beside inputs and outputs, at most; not a time   */
    ATTN_GOAL_STEP    /* time of the other over its own; never judged                  */
};

struct attn_bench_row {
    const char *block, *what;
    enum attn_bench_goal goal;
    double target; /* 0: none, the row is shown and not judged */
    const char *spec, *text;
    int threads;
    const char *other_spec, *other_text; /* NULL: measured by itself */
    int other_threads;
};

/* The rows of a preset: "table", "steps". */
enum { ATTN_BENCH_ROWS = 96 }; /* at most */
struct attn_bench_list {
    const char *name;
    const struct attn_bench_row *row;
    int n;
};
int attn_bench_list_count(void);
const struct attn_bench_list *attn_bench_list_at(int index);
const struct attn_bench_list *attn_bench_list_find(const char *name); /* NULL: there is none */

const char *attn_bench_goal_unit(enum attn_bench_goal goal); /* "P", "read", "sgemm", "x", ... */
int attn_bench_goal_at_least(enum attn_bench_goal goal);     /* else at most */

/* What came of a row; entries are borrowed. */
struct attn_bench_outcome {
    const struct attn_bench_row *row;
    const struct attn_bench_entry *entry, *other; /* other: NULL when there is none           */
    int known;        /* 0: why not is in the entry, or the other                            */
    int n;            /* samples, of the pair where there is one                           */
    int inconclusive; /* the interval covers the target: neither met nor not met           */
    int met;          /* where there is a target                                           */
    struct attn_interval interval; /* of the median: 95 %, by bootstrap */
    struct attn_spread spread; /* of the rounds; its median is what is compared with the target */
};
void attn_bench_judge(const struct attn_bench_row *row, const struct attn_bench_entry *entry,
                      const struct attn_bench_entry *other, struct attn_bench_outcome *outcome);

/* All rows of a list: entries are made, timed block by block, and judged.  Each block is visited
 * three times, a third of the rounds at a time, so that one bad minute of the machine is not the
 * whole of any row.  entry and outcome are malloc'ed.  begin is called before each visit; report in
 * the last, after each block, with the outcomes of its rows. */
struct attn_bench_table {
    const struct attn_bench_list *list;
    int n_entries, n;
    struct attn_bench_entry *entry;
    struct attn_bench_outcome *outcome;
};
enum attn_status attn_bench_table_run(
    struct attn_bench *bench, const struct attn_bench_list *list, struct attn_bench_table *table,
    void (*begin)(int visit, int visits),
    void (*report)(const struct attn_bench *bench, const struct attn_bench_outcome *outcome, int n),
    struct attn_error *err);
void attn_bench_table_free(struct attn_bench_table *table);

#endif
