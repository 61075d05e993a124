/* attnlab bench --format=json: all that was measured, sample by sample (docs/measuring.md). */
#ifndef EXPERIMENTS_BENCH_BENCH_JSON_H
#define EXPERIMENTS_BENCH_BENCH_JSON_H

#include <jansson.h>

#include "experiments/bench/bench_table.h"

enum { ATTN_BENCH_SCHEMA = 1 };

/* Machine, roofs and BLAS.  NULL: no memory. */
json_t *attn_bench_json(const struct attn_bench *bench);

/* Add an entry to "entries" of that object; against: NULL, or what it is compared with. */
void attn_bench_json_entry(json_t *all, const struct attn_bench *bench,
                           const struct attn_bench_entry *entry,
                           const struct attn_bench_entry *against);

/* Add rows to "rows". */
void attn_bench_json_outcomes(json_t *all, const struct attn_bench_outcome *outcome, int n);

#endif
