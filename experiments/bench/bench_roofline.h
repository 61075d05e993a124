/* The roofline (Williams, Waterman, Patterson 2009) of what was timed: rate against arithmetic
 * intensity, under the measured peak and bandwidths.  One panel for each instruction set and number
 * of threads.  Intensity is flops over bytes; bytes are counted (64 for each cache miss) where the
 * machine counts, else modelled (bench.h). */
#ifndef EXPERIMENTS_BENCH_BENCH_ROOFLINE_H
#define EXPERIMENTS_BENCH_BENCH_ROOFLINE_H

#include "experiments/bench/bench.h"

/* FOLDER/roofline.{dat,set}, and the pictures where gnuplot is: svg, png, pdf.  The folder is made.
 * *drawn: 0 when there is no gnuplot, or nothing was timed. */
enum attn_status attn_bench_roofline(const struct attn_bench *bench,
                                     const struct attn_bench_entry *entry, int n,
                                     const char *folder, int *drawn, struct attn_error *err);

#endif
