/* What `attnlab bench` was asked for. */
#ifndef EXPERIMENTS_BENCH_BENCH_FLAGS_H
#define EXPERIMENTS_BENCH_BENCH_FLAGS_H

#include "experiments/bench/bench.h"

enum { ATTN_BENCH_CASES = 256, ATTN_BENCH_SPECS = 32, ATTN_BENCH_COUNTS = 8 };

struct attn_bench_flags {
    const char *lengths, *dims, *heads, *kv_heads, *keys, *batch, *dtype, *pass, *masks;
    const char *given_case[ATTN_BENCH_CASES], *spec[ATTN_BENCH_SPECS];
    const char *against, *format, *out, *blas, *preset, *rows;
    int n_given, n_specs, limits, no_verify, help;
    int thread[ATTN_BENCH_COUNTS], n_threads;
    int64_t rounds;
    double sample_s, again_s, patience_s;
    char text[ATTN_BENCH_CASES][ATTN_CASE_TEXT]; /* the cases, given and made of the others */
    int n_cases;
};

/* ATTN_EXIT_GOOD, or USAGE after a message.  Texts are borrowed from argv. */
int attn_bench_flags_read(int argc, char **argv, struct attn_bench_flags *flags);

extern const char attn_bench_help[];

#endif
