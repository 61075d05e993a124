/* attnlab bench: how fast, as a fraction of what this machine can do.
 *
 *   cmd_bench.c       what is run, printed and left behind;  bench_flags.c  flags
 *   bench_roofs.c     what the machine can do: the FMA peak P, exponentials, bandwidth
 *   bench_blas.c      and what somebody's sgemm does
 *   bench_watch.c     what else happened meanwhile: waiting, switches, hardware counters
 *   bench_entry.c     one thing to be timed: its price, its model, its first call, one sample
 *   bench_block.c     several of them in turn, round by round
 *   bench_figures.c   numbers from samples: fractions, ceilings, ratios of pairs
 *   bench_table.c     rows with a target (bench_rows.def)
 *   bench_print.c     text, markdown, one line;  bench_json.c  JSON;  bench_roofline.c  the figure
 *
 * Every sample is paired with samples of P taken right before and after it, on as many threads and
 * for the same instruction set.  Things that are to be
 * compared are in one block, and round r of the one is compared with round r of the other.
 */
#ifndef EXPERIMENTS_BENCH_BENCH_H
#define EXPERIMENTS_BENCH_BENCH_H

#include "experiments/bench/bench_blas.h"
#include "experiments/bench/bench_roofs.h"
#include "experiments/bench/bench_watch.h"
#include "optimized/registry.h"
#include "tests/harness/runner.h"

enum { ATTN_BENCH_ROUNDS = 64 };

struct attn_bench_sample {
    double s;     /* seconds of a call                              */
    double peak;  /* flops/s of P: mean of right before and after   */
    double read;  /* bytes/s from memory, right after; NaN: not asked for */
    double tiles; /* flops/s of the pass's own tiles, right after; the same */
    double cpu_s; /* of all calls of the sample */
};

/* What one call is made of, counted from the problem, not from what an implementation does. */
struct attn_bench_work {
    double pairs;
    double flops; /* of the products: 2 pairs (d + dv), backward 2 pairs (3 d + 2 dv) */
    double exps;  /* one a pair                                                       */
    double
        bytes; /* inputs and outputs once, and what is too large for the second-level cache of the
                     buffers at the peak twice, written and read                        */
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
    int pair_read;                      /* memory is what limits it, or somebody wants to know */
    struct attn_roof_tiles tiles;       /* that it is made of; keys = 0: it is not made of tiles */
    int64_t priced_bytes, ledger_bytes; /* beside inputs and outputs */
    enum attn_bench_state state;
    char message[512];
    double worst;      /* error / bound of the first call */
    char verified[16]; /* "all", "16 rows", ""            */
    int64_t calls;     /* in one sample                   */
    int n;
    struct attn_bench_sample sample[ATTN_BENCH_ROUNDS];
    double counter[ATTN_COUNTERS]; /* a call, in the last sample; NaN: not counted */
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
    double sample_s;   /* a sample is as many calls as fill so many seconds           */
    double patience_s; /* what is predicted to take longer for one call is not begun   */
    struct attn_roofs roofs;
    struct attn_counters counters;
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

/* Before there are tensors: what can be said from the case alone.  ENOMEM: too large. */
enum attn_status attn_bench_entry_price(struct attn_bench_entry *entry, struct attn_error *err);

/* With a setup: price, model, and the first call (backward: after a forward), verified.  Decides
 * the number of calls in a sample.  Never fails: the entry's state says how it went.  Again, after
 * an end: no more than those calls. */
void attn_bench_entry_begin(const struct attn_bench *bench, struct attn_bench_entry *entry);

/* One sample, with P before and after it. */
void attn_bench_entry_sample(struct attn_bench *bench, struct attn_bench_entry *entry);

/* After the last sample: its memory goes back. */
void attn_bench_entry_end(struct attn_bench_entry *entry);

/* ---- bench_block.c ------------------------------------------------------------------------ */

/* Tensors, first calls, then the entries in turn until each has so many samples.  Tensors are gone
 * afterwards.  The rounds may be spread over several visits, with
 * other things between them: visit is 0 to visits - 1, in order. */
void attn_bench_block(struct attn_bench *bench, struct attn_bench_entry *entry, int n, int visit,
                      int visits);

/* All roofs for these kernels and threads, unless they are there already. */
void attn_bench_roofs(struct attn_bench *bench, const struct attn_kernels *kernels, const char *isa,
                      int threads);

/* ---- bench_figures.c ---------------------------------------------------------------------- */

/* The median of a measured roof, units a second; NaN when it was not measured. */
double attn_bench_roof_rate(const struct attn_bench *bench, enum attn_roof roof,
                            const struct attn_bench_entry *entry);

enum attn_bench_quantity {
    ATTN_BENCH_SECONDS,  /* of a call                            */
    ATTN_BENCH_FRACTION, /* flops / (seconds P)                  */
    ATTN_BENCH_RATE,     /* flops / seconds                      */
    ATTN_BENCH_READ, /* bytes / (seconds read bandwidth): work.bytes, samples with `read` only */
    ATTN_BENCH_TILES /* the tiles' flops/s / P: what the entry would reach if all were near */
};
/* Over all samples; the interval is that of the median, 95 %, by bootstrap. */
void attn_bench_spread(const struct attn_bench_entry *entry, enum attn_bench_quantity quantity,
                       struct attn_spread *spread);

void attn_bench_interval(const struct attn_bench_entry *entry, enum attn_bench_quantity quantity,
                         struct attn_interval *interval);

/* Time of `other` over time of `entry` (above 1: entry is faster), of the rounds that both have. */
struct attn_bench_ratio {
    int n, faster; /* pairs; of which ratio > 1 */
    struct attn_spread spread;
    struct attn_interval interval; /* 95 % of the median, by bootstrap */
};
void attn_bench_compare(const struct attn_bench_entry *entry, const struct attn_bench_entry *other,
                        struct attn_bench_ratio *ratio);

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

#endif
