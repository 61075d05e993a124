/* What `attnlab bench` was asked for. */
#ifndef EXPERIMENTS_BENCH_BENCH_FLAGS_H
#define EXPERIMENTS_BENCH_BENCH_FLAGS_H

#include "experiments/bench/bench.h"
#include "experiments/cli/shape.h"

enum { ATTN_BENCH_CASES = 256 };

struct attn_bench_flags {
    struct attn_cli_shapes shapes;
    struct attn_cli_list given; /* cases */
    struct attn_cli_counts threads;
    const char *against, *out, *blas, *rows;
    char **spec; /* in argv */
    int n_specs, format, preset, limits, no_verify;
    int64_t rounds;
    double sample_s, patience_s;
    char text[ATTN_BENCH_CASES][ATTN_CASE_TEXT]; /* the cases, given and made of the shapes */
    int n_cases;
};
enum { ATTN_BENCH_TEXT, ATTN_BENCH_AS_JSON, ATTN_BENCH_LINE }; /* format */
enum { ATTN_BENCH_PRESET_TABLE, ATTN_BENCH_PRESET_STEPS, ATTN_BENCH_NO_PRESET };

extern const struct attn_flag_use attn_bench_uses[];

/* -1: go on; else the exit status.  Texts are borrowed from argv. */
int attn_bench_flags_read(int argc, char **argv, struct attn_bench_flags *flags);

#endif
