/* attnlab bench: how fast, as a fraction of what this machine can do.
 *
 *   cmd_bench.c       flags, what is run and left behind
 *   bench_roofs.c     what the machine can do: the FMA peak P, read bandwidth, somebody's sgemm
 *   bench_entry.c     things to be timed: price, first call; samples of several in turn
 *   bench_figures.c   numbers from samples: fractions and ratios; rows with a target
 *   bench_print.c     text, markdown and JSON;  bench_roofline.c  the figure
 *
 * Every sample is paired with samples of P taken right before and after it, on as many threads and
 * for the same instruction set.  Things that are to be compared are timed in turn, and round r of
 * the one is compared with round r of the other.
 */
#ifndef EXPERIMENTS_BENCH_BENCH_H
#define EXPERIMENTS_BENCH_BENCH_H

#include <jansson.h>
#include <stdio.h>

#include "experiments/measure/record.h"
#include "experiments/measure/stats.h"
#include "optimized/registry.h"
#include "optimized/simd/isa.h"
#include "optimized/simd/kernels.h"
#include "tests/harness/subject/runner.h"

enum { ATTN_BENCH_ROUNDS = 64, ATTN_BENCH_THREADS = 64, ATTN_BENCH_SCHEMA = 3 };

/* ---- bench_roofs.c ------------------------------------------------------------------------ */

/* What the machine can do at most, measured in this process and next to what is timed, because
 * clocks drift by several per cent between minutes.  Each thread has memory of its own, in ordinary
 * pages as tensors have; the rate of a sample is the sum of theirs. */
enum attn_roof {
    ATTN_ROOF_FMA,  /* P: multiply-adds on registers                            */
    ATTN_ROOF_READ, /* bytes read from memory, from an array beyond every cache */
    ATTN_ROOF_L2,   /* bytes read from half of the second-level cache           */
    ATTN_ROOFS
};
const char *attn_roof_name(enum attn_roof roof); /* "fma", "read", "read-l2" */
const char *attn_roof_unit(enum attn_roof roof); /* "GFLOP/s", "GB/s" */

struct attn_roofs {
    int threads;      /* at most             */
    int64_t bytes;    /* of memory, each     */
    int64_t l2_bytes; /* of the second-level cache; a guess where it is not known */
    void *memory[ATTN_BENCH_THREADS];
};

/* Memory for so many threads: beyond the caches, an eighth of what there is at most. */
enum attn_status attn_roofs_open(struct attn_roofs *roofs, int threads, struct attn_error *err);
void attn_roofs_close(struct attn_roofs *roofs);

/* One sample of about so many seconds: units a second, all threads together; NaN when threads could
 * not be started. */
double attn_roof_sample(struct attn_roofs *roofs, const struct attn_kernels *kernels,
                        enum attn_roof roof, int threads, double seconds);

/* Somebody else's matrix product, where the machine has one: the rate that good kernels reach on
 * the problem that everybody has tuned.  Loaded when asked for; nothing here is linked to it. */
struct attn_blas {
    void *handle;  /* NULL: none */
    char name[96]; /* the file's name; of OpenBLAS its version and the kernels that it runs */
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*set_threads)(int n); /* NULL: it runs one */
};

/* choice: "auto" (the first of the usual names that is there), or a file.  isa: what its kernels
 * should be made for, "avx512" or "avx2": a BLAS chooses them by the model of the processor, and
 * takes its slowest for a model that it does not know.  Before threads are started: sets
 * environment variables.  ENOTSUP: there is none, or it is none. */
enum attn_status attn_blas_open(const char *choice, const char *isa, struct attn_blas *blas,
                                struct attn_error *err);

/* ---- bench_entry.c ------------------------------------------------------------------------ */

struct attn_bench_sample {
    double s;    /* seconds of a call                              */
    double peak; /* flops/s of P: mean of right before and after   */
    double read; /* bytes/s from memory, right after; NaN: not asked for */
};

/* What one call is made of, counted from the problem, not from what an implementation does. */
struct attn_bench_work {
    double pairs;
    double flops; /* of the products: 2 pairs (d + dv), backward 2 pairs (3 d + 2 dv) */
    double bytes; /* inputs and outputs once, and the buffers at the peak twice (written and read)
                     where they are too large for the second-level cache */
};

enum attn_bench_state {
    ATTN_BENCH_WAITING,
    ATTN_BENCH_TIMED,
    ATTN_BENCH_WRONG,   /* timed nothing: the result is not within its bounds    */
    ATTN_BENCH_REFUSED, /* not claimed, not known here, or too much of something */
    ATTN_BENCH_FAILED
};
const char *attn_bench_state_name(enum attn_bench_state state); /* "timed", "wrong", ... */

/* One thing to be timed: an implementation on a case, or a BLAS's product of 4096 x 4096. */
struct attn_bench_entry {
    struct attn_point point; /* price, ledger, verdict and message; text "" for a product */
    int threads, is_sgemm;
    struct attn_spec parsed;
    const struct attn_kernels *kernels; /* whose P it is measured by */
    const char *isa;
    struct attn_setup *setup;  /* while its block runs; shared by entries of the same case */
    struct attn_ledger ledger; /* of its calls: keeps their memory while its block runs   */
    struct attn_saved saved;   /* of the forward call that a backward one needs */
    struct attn_bench_work work;
    int pair_read; /* memory is what limits it, or a row asks for it */
    enum attn_bench_state state;
    int64_t calls; /* in one sample */
    int n;
    struct attn_bench_sample sample[ATTN_BENCH_ROUNDS];
};

/* One measured roof. */
struct attn_bench_roof {
    enum attn_roof roof;
    const struct attn_kernels *kernels;
    const char *isa;
    int threads;
    struct attn_spread spread; /* units a second */
};
enum { ATTN_BENCH_ROOFS = 512 };

struct attn_bench {
    int rounds, verify;
    double sample_s; /* a sample is as many calls as fill so many seconds           */
    struct attn_roofs roofs;
    struct attn_blas blas;
    char blas_why_not[512];
    float *matrix; /* for the product: a, b and c; NULL before the first */
    int n_roofs;
    struct attn_bench_roof roof[ATTN_BENCH_ROOFS];
};

/* Parse both strings; a spec of "sgemm" has no case.  EINVAL, ENOTSUP: message; the entry is
 * refused. */
enum attn_status attn_bench_entry_init(struct attn_bench_entry *entry, const char *spec,
                                       const char *text, int threads, struct attn_error *err);

/* Tensors, first calls, which are verified, then the entries in turn until each has as many samples
 * as there are rounds.  Never fails: the state of an entry says how it went.  Tensors are gone
 * afterwards. */
void attn_bench_block(struct attn_bench *bench, struct attn_bench_entry *entry, int n);

/* All roofs for these kernels and threads, unless they are there already. */
void attn_bench_roofs(struct attn_bench *bench, const struct attn_kernels *kernels, const char *isa,
                      int threads);

/* The median of a measured roof, units a second; NaN when it was not measured. */
double attn_bench_roof_rate(const struct attn_bench *bench, enum attn_roof roof,
                            const struct attn_bench_entry *entry);

/* ---- bench_figures.c ---------------------------------------------------------------------- */

/* What a sample says: of an entry alone, or of it and of `other` in the same round. */
enum attn_bench_quantity {
    ATTN_BENCH_SECONDS, /* of a call                                                       */
    ATTN_BENCH_FLOPS,   /* flops / seconds                                                 */
    ATTN_BENCH_PEAK,    /* flops / (seconds P)                                             */
    ATTN_BENCH_READ,    /* bytes / (seconds read bandwidth), samples with `read` only      */
    ATTN_BENCH_MEMORY,  /* MiB a thread beside inputs and outputs: a price, and no time    */
    ATTN_BENCH_SGEMM,   /* its fraction of P over that of the other, a BLAS's product      */
    ATTN_BENCH_RATE,    /* its flops / seconds over those of the other                     */
    ATTN_BENCH_TIME,    /* its time over that of the other                                 */
    ATTN_BENCH_STEP     /* time of the other over its own: how many times as fast it is    */
};
struct attn_bench_about {
    const char *unit;            /* "P", "of sgemm", "x", ...                        */
    int is_pair, at_least;       /* a target is at least so much; else at most       */
    enum attn_bench_quantity of; /* of a pair: what is divided by that of the other  */
};
extern const struct attn_bench_about attn_bench_about[];

/* Over all rounds that both have; the interval is that of the median, 95 %, by bootstrap, and
 * infinite where there are too few rounds. */
struct attn_bench_figure {
    struct attn_spread spread;
    struct attn_interval interval;
};
struct attn_bench_figure attn_bench_figure(const struct attn_bench_entry *entry,
                                           const struct attn_bench_entry *other,
                                           enum attn_bench_quantity quantity);
double attn_bench_median(const struct attn_bench_entry *entry, enum attn_bench_quantity quantity);

/* A row of a table (bench_rows.def, or a step of bench_figures.c). */
struct attn_bench_row {
    const char *block, *what;
    enum attn_bench_quantity goal;
    double target; /* 0: none, the row is shown and not judged */
    const char *spec, *text;
    int threads;
    const char *other_spec, *other_text; /* NULL: measured by itself */
    int other_threads;
};

/* The rows of a preset. */
enum { ATTN_BENCH_PRESET_TABLE, ATTN_BENCH_PRESET_STEPS, ATTN_BENCH_PRESETS };
struct attn_bench_list {
    const char *name;
    const struct attn_bench_row *row;
    int n;
};
extern const struct attn_bench_list attn_bench_presets[ATTN_BENCH_PRESETS];

/* What came of a row; entries are borrowed. */
struct attn_bench_outcome {
    const struct attn_bench_row *row;
    const struct attn_bench_entry *entry, *other; /* other: NULL when there is none         */
    int known;        /* 0: why not is in the entry, or the other                           */
    int inconclusive; /* the interval covers the target: neither met nor not met            */
    int met;          /* where there is a target                                            */
    struct attn_bench_figure figure;
};
void attn_bench_judge(const struct attn_bench_row *row, const struct attn_bench_entry *entry,
                      const struct attn_bench_entry *other, struct attn_bench_outcome *outcome);

/* Time n rows in turn, and judge them.  Entries for both sides are made in `entry`, which has room
 * for 2 n; how many there are. */
int attn_bench_rows(struct attn_bench *bench, const struct attn_bench_row *row, int n,
                    struct attn_bench_entry *entry, struct attn_bench_outcome *outcome);

/* ---- bench_print.c ------------------------------------------------------------------------ */

/* Roofs measured so far, and the BLAS. */
void attn_bench_print_roofs(const struct attn_bench *bench);

/* Entries of one case; against: NULL, or the one that the others are compared with. */
void attn_bench_print_entries(const struct attn_bench_entry *entry, int n,
                              const struct attn_bench_entry *against);

/* docs/speed.md, and the table of docs/kernel.md: machine and how to read it; a line for each row;
 * how many were measured and met. */
void attn_bench_print_head(const struct attn_bench *bench, const struct attn_bench_list *list);
void attn_bench_print_row(const struct attn_bench_outcome *outcome);
void attn_bench_print_sum(const struct attn_bench_outcome *outcome, int n);

/* Machine, roofs and BLAS, with empty lists of entries and rows; what is added to them.  against:
 * NULL, or what the entry is compared with. */
json_t *attn_bench_json(const struct attn_bench *bench);
void attn_bench_json_entry(json_t *all, const struct attn_bench_entry *entry,
                           const struct attn_bench_entry *against);
void attn_bench_json_row(json_t *all, const struct attn_bench_outcome *outcome);

/* ---- bench_roofline.c --------------------------------------------------------------------- */

/* The roofline (Williams, Waterman, Patterson 2009) of what was timed: rate against arithmetic
 * intensity (flops over work.bytes, a model), under the measured peak and bandwidths.  One panel
 * for each instruction set and number of threads.
 *
 * FOLDER/roofline.{csv,gp}, and the pictures where gnuplot is: svg, png, pdf.  *is_drawn: 0 when
 * there is no gnuplot, or nothing was timed: there are no pictures.  ENOMEM. */
#define ATTN_BENCH_ROOFLINE "roofline"
enum attn_status attn_bench_roofline(const struct attn_bench *bench,
                                     const struct attn_bench_entry *entry, int n,
                                     const char *folder, int overwrite, int *is_drawn,
                                     struct attn_error *err);

#endif
