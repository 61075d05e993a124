/* What bench says: text for people, markdown for docs/speed.md, a line for scripts. */
#ifndef EXPERIMENTS_BENCH_BENCH_PRINT_H
#define EXPERIMENTS_BENCH_BENCH_PRINT_H

#include <stdio.h>

#include "experiments/bench/bench_table.h"

/* Roofs measured so far, the BLAS, and which counters there are. */
void attn_bench_print_roofs(FILE *file, const struct attn_bench *bench, int markdown);

/* Entries of one case; against: NULL, or the one that the others are compared with. */
void attn_bench_print_entries(FILE *file, const struct attn_bench *bench,
                              const struct attn_bench_entry *entry, int n,
                              const struct attn_bench_entry *against);

/* "SPEC CASE threads 1 median 0.027123456 s ..." for scripts; a refused one goes to stderr. */
void attn_bench_print_line(FILE *file, const struct attn_bench_entry *entry);

/* A row of the table; markdown: in pipes. */
void attn_bench_print_outcomes(FILE *file, const struct attn_bench *bench,
                               const struct attn_bench_outcome *outcome, int n, int markdown);

/* "docs/speed.md", the steps of docs/kernel.md: machine, roofs, all rows, how to read them. */
void attn_bench_print_page(FILE *file, const struct attn_bench *bench,
                           const struct attn_bench_table *table);

#endif
