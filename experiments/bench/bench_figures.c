/* See bench.h: numbers from samples: fractions, ratios of pairs, and the rows of a table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/bench/bench.h"

/* ---- quantities --------------------------------------------------------------------------- */

const struct attn_bench_about attn_bench_about[] = {
    [ATTN_BENCH_SECONDS] = {"s", 0, 0, 0},
    [ATTN_BENCH_FLOPS] = {"FLOP/s", 0, 1, 0},
    [ATTN_BENCH_PEAK] = {"P", 0, 1, 0},
    [ATTN_BENCH_READ] = {"of read", 0, 1, 0},
    [ATTN_BENCH_MEMORY] = {"MiB", 0, 0, 0},
    [ATTN_BENCH_SGEMM] = {"of sgemm", 1, 1, ATTN_BENCH_PEAK},
    [ATTN_BENCH_RATE] = {"x", 1, 1, ATTN_BENCH_FLOPS},
    [ATTN_BENCH_TIME] = {"x", 1, 0, ATTN_BENCH_SECONDS},
    [ATTN_BENCH_STEP] = {"x", 1, 1, ATTN_BENCH_SECONDS},
};

/* What round `r` says. */
static double value_of(const struct attn_bench_entry *e, const struct attn_bench_entry *other,
                       enum attn_bench_quantity quantity, int r)
{
    const struct attn_bench_sample *s = &e->sample[r];
    switch (quantity) {
    case ATTN_BENCH_SECONDS:
        return s->s;
    case ATTN_BENCH_FLOPS:
        return e->work.flops / s->s;
    case ATTN_BENCH_PEAK:
        return e->work.flops / (s->s * s->peak);
    case ATTN_BENCH_READ:
        return e->work.bytes / (s->s * s->read);
    case ATTN_BENCH_MEMORY:
        return (double)e->point.priced_bytes / e->threads / (1 << 20);
    default:
        break;
    }
    double ratio = value_of(e, NULL, attn_bench_about[quantity].of, r) /
                   value_of(other, NULL, attn_bench_about[quantity].of, r);
    return quantity == ATTN_BENCH_STEP ? 1 / ratio : ratio;
}

struct attn_bench_figure attn_bench_figure(const struct attn_bench_entry *e,
                                           const struct attn_bench_entry *other,
                                           enum attn_bench_quantity quantity)
{
    enum { DRAWS = 2000 }; /* resamples of the bootstrap */
    struct attn_bench_figure figure;
    double x[ATTN_BENCH_ROUNDS];
    int n = other != NULL && other->n < e->n ? other->n : e->n;
    for (int r = 0; r < n; r++)
        x[r] = value_of(e, other, quantity, r);
    /* One sample says nothing; a price is known. */
    if (attn_stats_bootstrap_median(x, n, DRAWS, 1, 0.95, &figure.interval) != 0)
        figure.interval = (struct attn_interval){-HUGE_VAL, HUGE_VAL};
    attn_stats_spread(x, n, &figure.spread);
    if (quantity == ATTN_BENCH_MEMORY)
        figure.interval = (struct attn_interval){figure.spread.median, figure.spread.median};
    return figure;
}

double attn_bench_median(const struct attn_bench_entry *e, enum attn_bench_quantity quantity)
{
    return attn_bench_figure(e, NULL, quantity).spread.median;
}

/* ---- rows with a target ------------------------------------------------------------------- */

#define F32(shape, mask)      shape ":" mask ":f32:normal:s1"
#define BF16(shape, mask)     shape ":" mask ":bf16:normal:s1"
#define F16(shape, mask)      shape ":" mask ":f16:normal:s1"
#define BACKWARD(shape, mask) shape ":" mask ":f32:normal:s1:pass=bwd"
#define ENTRY(block, what, goal, ...)               \
    {                                               \
        block, what, ATTN_BENCH_##goal, __VA_ARGS__ \
    }
#define PAIR(...) ENTRY(__VA_ARGS__),
#define ROW(block, what, goal, target, spec, text, threads) \
    PAIR(block, what, goal, target, spec, text, threads, NULL, NULL, 0)
#define STEP(what, spec, mask, before, mask_before)                       \
    ENTRY("steps", what, STEP, 0, spec, F32("q2048d64", mask), 1, before, \
          F32("q2048d64", mask_before), 1)
#define STEP_BF16(what, spec, before)                                        \
    ENTRY("steps", what, STEP, 0, spec, BF16("q2048d64", "none"), 1, before, \
          BF16("q2048d64", "none"), 1)

static const struct attn_bench_row rows[] = {
#include "experiments/bench/bench_rows.def"
};
/* From the textbook to the kernel, one idea at a time (docs/kernel.md): f32 with a mask, or bf16;
 * L=2k, d=64, one thread.  The first is compared with itself. */
static const struct attn_bench_row steps[] = {
    STEP("textbook: the whole matrix of scores", "dense", "none", "dense", "none"),
    STEP("tiles and online softmax, one number at a time", "tiled-textbook", "none", "dense",
         "none"),
    STEP("vectors over queries, register tiles: 4 lanes, no fused multiply-add",
         "tiled:panels=1,rescale=eager@portable", "none", "tiled-textbook", "none"),
    STEP("8 lanes, fused multiply-add (AVX2)", "tiled:panels=1,rescale=eager@avx2", "none",
         "tiled:panels=1,rescale=eager@portable", "none"),
    STEP("16 lanes, twice the registers (AVX-512)", "tiled:panels=1,rescale=eager@avx512", "none",
         "tiled:panels=1,rescale=eager@avx2", "none"),
    STEP("several panels of packed queries for each block of keys", "tiled:rescale=eager@avx512",
         "none", "tiled:panels=1,rescale=eager@avx512", "none"),
    STEP("lazy rescale", "tiled@avx512", "none", "tiled:rescale=eager@avx512", "none"),
    STEP("causal mask: tiles that no query sees are skipped", "tiled@avx512", "causal(br)",
         "tiled@avx512", "none"),
    STEP_BF16("products of bf16 numbers, a matrix unit (AMX)", "tiled:p=bf16@amx", "tiled@avx512")};
const struct attn_bench_list attn_bench_presets[ATTN_BENCH_PRESETS] = {
    [ATTN_BENCH_PRESET_TABLE] = {"table", rows, sizeof rows / sizeof *rows},
    [ATTN_BENCH_PRESET_STEPS] = {"steps", steps, sizeof steps / sizeof *steps}};

void attn_bench_judge(const struct attn_bench_row *row, const struct attn_bench_entry *e,
                      const struct attn_bench_entry *other, struct attn_bench_outcome *x)
{
    *x = (struct attn_bench_outcome){.row = row, .entry = e, .other = other};
    x->known = e->state == ATTN_BENCH_TIMED && e->n > 0 &&
               (other == NULL || (other->state == ATTN_BENCH_TIMED && other->n > 0));
    if (!x->known)
        return;
    x->figure = attn_bench_figure(e, other, row->goal);
    if (row->target == 0)
        return;
    x->inconclusive = x->figure.interval.low < row->target && x->figure.interval.high > row->target;
    x->met = !x->inconclusive &&
             (attn_bench_about[row->goal].at_least ? x->figure.spread.median >= row->target
                                                   : x->figure.spread.median <= row->target);
}

/* The entry of that spec, case and threads among *n, made if need be. */
static struct attn_bench_entry *entry_of(struct attn_bench_entry *entry, int *n, const char *spec,
                                         const char *text, int threads)
{
    struct attn_bench_entry *made = &entry[*n];
    struct attn_error err = {ATTN_OK, ""};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    attn_bench_entry_init(made, spec, text, threads, &err);
    if (made->state == ATTN_BENCH_WAITING && threads > processors) {
        made->state = ATTN_BENCH_REFUSED;
        snprintf(made->point.message, sizeof made->point.message, "%d threads on %ld processors",
                 threads, processors);
    }
    for (struct attn_bench_entry *e = entry; e < made; e++)
        if (strcmp(e->point.spec, made->point.spec) == 0 &&
            strcmp(e->point.text, made->point.text) == 0 && e->threads == threads)
            return e;
    (*n)++;
    return made;
}

int attn_bench_rows(struct attn_bench *bench, const struct attn_bench_row *row, int n,
                    struct attn_bench_entry *entry, struct attn_bench_outcome *outcome)
{
    int n_entries = 0;
    for (int r = 0; r < n; r++) {
        const struct attn_bench_row *x = &row[r];
        struct attn_bench_entry *own = entry_of(entry, &n_entries, x->spec, x->text, x->threads);
        own->pair_read |= x->goal == ATTN_BENCH_READ;
        outcome[r] = (struct attn_bench_outcome){.entry = own};
        if (x->other_spec != NULL)
            outcome[r].other =
                entry_of(entry, &n_entries, x->other_spec, x->other_text, x->other_threads);
    }
    attn_bench_block(bench, entry, n_entries);
    for (int r = 0; r < n; r++)
        attn_bench_judge(&row[r], outcome[r].entry, outcome[r].other, &outcome[r]);
    return n_entries;
}
