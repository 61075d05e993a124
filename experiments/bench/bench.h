/* attnlab bench: how fast, as a fraction of what this machine can do.
 *
 *   cmd_bench.c       flags, what is run and left behind
 *   bench_roofs.c     what the machine can do: the FMA peak P, exponentials, bandwidth
 *   bench_blas.c      and what somebody's sgemm does
 *   bench_entry.c     things to be timed: price, model, first call; samples of several in turn
 *   bench_figures.c   numbers from samples: fractions, ratios, ceilings, rows with a target
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

#include "experiments/bench/bench_blas.h"
#include "experiments/bench/bench_roofs.h"
#include "optimized/registry.h"
#include "tests/harness/runner.h"

enum { ATTN_BENCH_ROUNDS = 64, ATTN_BENCH_SCHEMA = 2 };

struct attn_bench_sample {
    double s;    /* seconds of a call                              */
    double peak; /* flops/s of P: mean of right before and after   */
    double read; /* bytes/s from memory, right after; NaN: not asked for */
};

/* What one call is made of, counted from the problem, not from what an implementation does. */
struct attn_bench_work {
    double pairs;
    double flops; /* of the products: 2 pairs (d + dv), backward 2 pairs (3 d + 2 dv) */
    double exps;  /* one a pair                                                       */
    double bytes; /* inputs and outputs once, and the buffers at the peak twice (written and read)
                     where they are too large for the second-level cache */
    double gathered; /* csr: of rows of K and V (backward: of Q and dO as well), the first time that
                        a pair wants them; 0: nothing is read in random rows     */
};

enum attn_bench_state {
    ATTN_BENCH_WAITING,
    ATTN_BENCH_TIMED,
    ATTN_BENCH_WRONG,   /* timed nothing: the result is not within its bounds    */
    ATTN_BENCH_REFUSED, /* not claimed, not known here, or too much of something */
    ATTN_BENCH_FAILED
};
const char *attn_bench_state_name(enum attn_bench_state state); /* "timed", "wrong", ... */

/* A product of the BLAS: C = A B, or A B^T; m = 0: none. */
struct attn_bench_product {
    int m, n, k, transposed;
};

/* One thing to be timed: an implementation on a case, or a product. */
struct attn_bench_entry {
    char spec[128];
    char text[ATTN_CASE_TEXT]; /* the case; "" for a product */
    int threads;
    struct attn_bench_product product;
    struct attn_spec parsed;
    struct attn_case c;
    const struct attn_kernels *kernels; /* whose P it is measured by */
    const char *isa;
    struct attn_setup *setup;  /* while its block runs; shared by entries of the same case */
    struct attn_ledger ledger; /* of its calls: keeps their memory while its block runs   */
    struct attn_saved saved;   /* of the forward call that a backward one needs */
    struct attn_bench_work work;
    int pair_read;                      /* memory is what limits it, or a row asks for it */
    int64_t priced_bytes, ledger_bytes; /* beside inputs and outputs */
    enum attn_bench_state state;
    char message[512];
    double worst;      /* error / bound of the first call */
    char verified[16]; /* "all", "16 rows", ""            */
    int64_t calls;     /* in one sample                   */
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
    float *matrix; /* for products: a, b and c, matrix_room numbers each */
    int64_t matrix_room;
    int n_roofs;
    struct attn_bench_roof roof[ATTN_BENCH_ROOFS];
};

/* ---- bench_entry.c ------------------------------------------------------------------------ */

/* Parse both strings.  EINVAL, ENOTSUP: message; the entry is refused. */
enum attn_status attn_bench_entry_init(struct attn_bench_entry *entry, const char *spec,
                                       const char *text, int threads, struct attn_error *err);

/* A product, measured by the P of the machine's best instruction set. */
enum attn_status attn_bench_entry_product(struct attn_bench_entry *entry,
                                          const struct attn_bench_product *product, int threads,
                                          struct attn_error *err);

/* Tensors, first calls, which are verified, then the entries in turn until each has as many samples
 * as there are rounds.  Never fails: the state of an entry says how it went.  Tensors are gone
 * afterwards. */
void attn_bench_block(struct attn_bench *bench, struct attn_bench_entry *entry, int n);

/* All roofs for these kernels and threads, unless they are there already. */
void attn_bench_roofs(struct attn_bench *bench, const struct attn_kernels *kernels, const char *isa,
                      int threads);

/* ---- bench_figures.c ---------------------------------------------------------------------- */

/* The median of a measured roof, units a second; NaN when it was not measured. */
double attn_bench_roof_rate(const struct attn_bench *bench, enum attn_roof roof,
                            const struct attn_bench_entry *entry);

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
const char *attn_bench_unit(enum attn_bench_quantity quantity); /* "P", "of sgemm", "x", ... */
int attn_bench_is_pair(enum attn_bench_quantity quantity);
int attn_bench_at_least(enum attn_bench_quantity quantity); /* a target is; else at most */

/* Over all rounds that both have; the interval is that of the median, 95 %, by bootstrap, and
 * infinite where there are too few rounds. */
struct attn_bench_figure {
    struct attn_spread spread;
    struct attn_interval interval;
    int above_one; /* rounds in which it is more than 1 */
};
void attn_bench_figure(const struct attn_bench_entry *entry, const struct attn_bench_entry *other,
                       enum attn_bench_quantity quantity, struct attn_bench_figure *figure);
double attn_bench_median(const struct attn_bench_entry *entry, enum attn_bench_quantity quantity);

/* What stands above an entry: arithmetic (multiply-adds and exponentials share the same units, so
 * their times add) or memory, whichever takes longer.  Memory is the second-level cache where all
 * of work.bytes fits into it. */
struct attn_bench_ceiling {
    double fraction;   /* of P that is possible by this model */
    const char *binds; /* "fma", "exp", "memory", "gather"    */
    double fma_s, exp_s, memory_s, gather_s;
};
void attn_bench_ceiling(const struct attn_bench *bench, const struct attn_bench_entry *entry,
                        struct attn_bench_ceiling *ceiling);

/* ---- rows (bench_rows.def) ---------------------------------------------------------------- */

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
void attn_bench_print_roofs(FILE *file, const struct attn_bench *bench);

/* Entries of one case; against: NULL, or the one that the others are compared with. */
void attn_bench_print_entries(FILE *file, const struct attn_bench *bench,
                              const struct attn_bench_entry *entry, int n,
                              const struct attn_bench_entry *against);

/* Rows of a table; markdown: in pipes. */
void attn_bench_print_rows(FILE *file, const struct attn_bench *bench,
                           const struct attn_bench_outcome *outcome, int n, int markdown);

/* docs/speed.md: machine, how to read it, all rows. */
void attn_bench_print_page(FILE *file, const struct attn_bench *bench,
                           const struct attn_bench_list *list,
                           const struct attn_bench_outcome *outcome);

/* Machine, roofs and BLAS, with empty lists of entries and rows; what is added to them.  against:
 * NULL, or what the entry is compared with. */
json_t *attn_bench_json(const struct attn_bench *bench);
void attn_bench_json_entry(json_t *all, const struct attn_bench *bench,
                           const struct attn_bench_entry *entry,
                           const struct attn_bench_entry *against);
void attn_bench_json_row(json_t *all, const struct attn_bench_outcome *outcome);

/* ---- bench_roofline.c --------------------------------------------------------------------- */

/* The roofline (Williams, Waterman, Patterson 2009) of what was timed: rate against arithmetic
 * intensity (flops over work.bytes, a model), under the measured peak and bandwidths.  One panel
 * for each instruction set and number of threads.
 *
 * FOLDER/roofline.{csv,gp}, and the pictures where gnuplot is: svg, png, pdf.  The folder is made.
 * *drawn: 0 when there is no gnuplot, or nothing was timed. */
enum attn_status attn_bench_roofline(const struct attn_bench *bench,
                                     const struct attn_bench_entry *entry, int n,
                                     const char *folder, int *drawn, struct attn_error *err);

#endif
