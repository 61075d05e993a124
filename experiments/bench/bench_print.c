#include "experiments/bench/bench_print.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"

/* "27.1 ms" */
static const char *seconds_text(double s, char text[32])
{
    if (s < 0.9995e-3)
        snprintf(text, 32, "%.3g us", s * 1e6);
    else if (s < 0.9995)
        snprintf(text, 32, "%.3g ms", s * 1e3);
    else
        snprintf(text, 32, "%.4g s", s);
    return text;
}

/* ---- roofs -------------------------------------------------------------------------------- */

static void print_counters(FILE *file, const struct attn_bench *bench)
{
    if (bench->counters.why_not[0] == '\0')
        fputs("Hardware counters: cycles, instructions, cache misses.\n", file);
    else
        fprintf(
            file,
            "Hardware counters: none (%s). Bytes of the roofline are therefore modelled: inputs "
            "and outputs\nonce, and twice (written, read) the buffers at the peak where they "
            "exceed the second-level cache.\n",
            bench->counters.why_not);
}

void attn_bench_print_roofs(FILE *file, const struct attn_bench *bench, int markdown)
{
    if (markdown)
        fputs("| roof | set | threads | median | from | to | unit |\n"
              "| --- | --- | ---: | ---: | ---: | ---: | --- |\n",
              file);
    for (int r = 0; r < bench->n_roofs; r++) {
        const struct attn_bench_roof *x = &bench->roof[r];
        fprintf(file,
                markdown ? "| %s | %s %s | %d | %.4g | %.4g | %.4g | %s |\n"
                         : "  %-8s %8s %s, threads %d %8.4g  (%.4g to %.4g) %s\n",
                attn_roof_name(x->roof), x->isa, x->kernels->bytes == 8 ? "f64" : "f32", x->threads,
                1e-9 * x->spread.median, 1e-9 * x->spread.min, 1e-9 * x->spread.max,
                attn_roof_unit(x->roof));
    }
    fputc('\n', file);
    if (bench->blas.handle != NULL)
        fprintf(file, "BLAS: %s, kernels: %s%s%s.\n", bench->blas.name, bench->blas.kernels,
                bench->blas.doubt[0] != '\0' ? ". CAUTION: " : "", bench->blas.doubt);
    else
        fprintf(file, "BLAS: %s.\n", bench->blas_why_not);
    print_counters(file, bench);
}

/* ---- entries ------------------------------------------------------------------------------ */

static void print_against(FILE *file, const struct attn_bench_entry *e,
                          const struct attn_bench_entry *against)
{
    struct attn_bench_ratio ratio;
    if (against == e || against->state != ATTN_BENCH_TIMED || against->n == 0)
        return;
    attn_bench_compare(e, against, &ratio);
    fprintf(file, "      %.3f x as fast as %s (95 %%: %.3f to %.3f), faster in %d of %d rounds\n",
            ratio.spread.median, against->spec, ratio.interval.low, ratio.interval.high,
            ratio.faster, ratio.n);
}

static void print_entry(FILE *file, const struct attn_bench *bench,
                        const struct attn_bench_entry *e)
{
    struct attn_spread seconds, fraction;
    struct attn_bench_ceiling ceiling;
    char time[32], extra[32];
    if (e->state != ATTN_BENCH_TIMED) {
        fprintf(file, "  %-28s threads %d  %s: %s\n", e->spec, e->threads,
                attn_bench_state_name(e->state), e->message);
        return;
    }
    attn_bench_spread(e, ATTN_BENCH_SECONDS, &seconds);
    attn_bench_spread(e, ATTN_BENCH_FRACTION, &fraction);
    attn_bench_ceiling(bench, e, &ceiling);
    fprintf(file, "  %-28s threads %d %7.4f P (%.4f to %.4f) %8.4g GFLOP/s  %s", e->spec,
            e->threads, fraction.median, fraction.quarter, fraction.three_quarters,
            1e-9 * e->work.flops / seconds.median, seconds_text(seconds.median, time));
    if (e->product.m == 0)
        fprintf(file, "  ceiling %.2f P by %s  extra %s  error/bound %.3g", ceiling.fraction,
                ceiling.binds, attn_cli_bytes(e->priced_bytes, extra), e->worst);
    fputc('\n', file);
    if (e->pair_read) {
        struct attn_spread read;
        attn_bench_spread(e, ATTN_BENCH_READ, &read);
        fprintf(file, "      %.4g GB/s, %.3f of the read bandwidth (%.3f to %.3f)\n",
                1e-9 * e->work.bytes / seconds.median, read.median, read.quarter,
                read.three_quarters);
    }
    if (e->tiles.keys > 0) {
        struct attn_spread tiles;
        attn_bench_spread(e, ATTN_BENCH_TILES, &tiles);
        fprintf(file, "      its tiles alone, on near data: %.4f P (%.4f to %.4f)\n", tiles.median,
                tiles.quarter, tiles.three_quarters);
    }
    if (!isnan(e->counter[ATTN_COUNT_CYCLES]))
        fprintf(file, "      %.4g cycles, %.4g instructions, %.4g cache misses a call\n",
                e->counter[ATTN_COUNT_CYCLES], e->counter[ATTN_COUNT_INSTRUCTIONS],
                e->counter[ATTN_COUNT_MISSES]);
}

void attn_bench_print_entries(FILE *file, const struct attn_bench *bench,
                              const struct attn_bench_entry *entry, int n,
                              const struct attn_bench_entry *against)
{
    fprintf(file, "%s\n", entry[0].text[0] != '\0' ? entry[0].text : "matrix products");
    for (int at = 0; at < n; at++) {
        print_entry(file, bench, &entry[at]);
        if (against != NULL && entry[at].state == ATTN_BENCH_TIMED &&
            entry[at].threads == against->threads)
            print_against(file, &entry[at], against);
    }
}

void attn_bench_print_line(FILE *file, const struct attn_bench_entry *e)
{
    struct attn_spread seconds, fraction;
    if (e->state != ATTN_BENCH_TIMED) {
        attn_cli_fail("bench", 0, "%s: %s: %s", e->spec, attn_bench_state_name(e->state),
                      e->message);
        return;
    }
    attn_bench_spread(e, ATTN_BENCH_SECONDS, &seconds);
    attn_bench_spread(e, ATTN_BENCH_FRACTION, &fraction);
    fprintf(file,
            "%s %s threads %d median %.9f s min %.9f s max %.9f s %.2f GFLOP/s %.4f P "
            "extra %.3f MiB samples %d\n",
            e->spec, e->text, e->threads, seconds.median, seconds.min, seconds.max,
            1e-9 * e->work.flops / seconds.median, fraction.median,
            (double)e->ledger_bytes / (1 << 20), e->n);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* ">= 0.19 P", "none" */
static const char *target_text(const struct attn_bench_row *row, char text[32])
{
    if (row->target > 0)
        snprintf(text, 32, "%s %.3g %s",
                 attn_bench_goal_at_least(row->goal) ? ">=" : "<=", row->target,
                 attn_bench_goal_unit(row->goal));
    else
        snprintf(text, 32, "none, in %s", attn_bench_goal_unit(row->goal));
    return text;
}

static void print_known(FILE *file, const struct attn_bench *bench,
                        const struct attn_bench_outcome *x, int markdown)
{
    struct attn_bench_ceiling ceiling;
    struct attn_spread seconds, its_tiles;
    char time[32], target[32], limit[48] = "", tiles[16] = "";
    attn_bench_spread(x->entry, ATTN_BENCH_SECONDS, &seconds);
    attn_bench_ceiling(bench, x->entry, &ceiling);
    if (x->entry->product.m == 0)
        snprintf(limit, sizeof limit, "%.2f P by %s", ceiling.fraction, ceiling.binds);
    attn_bench_spread(x->entry, ATTN_BENCH_TILES, &its_tiles);
    if (x->entry->tiles.keys > 0)
        snprintf(tiles, sizeof tiles, "%.3f P", its_tiles.median);
    const char *verdict = x->row->target == 0 ? ""
                          : x->inconclusive   ? "inconclusive"
                          : x->met            ? "met"
                                              : "NOT MET";
    double rate = 1e-9 * x->entry->work.flops / seconds.median;
    if (markdown)
        fprintf(file, "| %s | %s | **%.3f** | %.3f to %.3f | %s | %.4g | %s |\n", x->row->what,
                target_text(x->row, target), x->spread.median, x->interval.low, x->interval.high,
                verdict, rate, tiles);
    else
        fprintf(file, "  %-46s %-16s %6.3f (%.3f to %.3f) %-7s %7.4g GFLOP/s %9s  %s  %s\n",
                x->row->what, target_text(x->row, target), x->spread.median, x->interval.low,
                x->interval.high, verdict, rate, seconds_text(seconds.median, time), limit, tiles);
}

static void print_step(FILE *file, const struct attn_bench_outcome *x, int markdown)
{
    struct attn_spread seconds, fraction;
    char time[32];
    attn_bench_spread(x->entry, ATTN_BENCH_SECONDS, &seconds);
    attn_bench_spread(x->entry, ATTN_BENCH_FRACTION, &fraction);
    fprintf(file,
            markdown ? "| %s | `%s` | %s | **%.3g** | %.3g to %.3g | %.4g | %.3f |\n"
                     : "  %-64s %-38s %9s %6.3g x (%.3g to %.3g) %7.4g GFLOP/s %6.3f P\n",
            x->row->what, x->row->spec, seconds_text(seconds.median, time), x->spread.median,
            x->interval.low, x->interval.high, 1e-9 * x->entry->work.flops / seconds.median,
            fraction.median);
}

void attn_bench_print_outcomes(FILE *file, const struct attn_bench *bench,
                               const struct attn_bench_outcome *outcome, int n, int markdown)
{
    char target[32];
    for (int at = 0; at < n; at++) {
        const struct attn_bench_outcome *x = &outcome[at];
        if (x->known && x->row->goal == ATTN_GOAL_STEP) {
            print_step(file, x, markdown);
            continue;
        }
        if (x->known) {
            print_known(file, bench, x, markdown);
            continue;
        }
        const struct attn_bench_entry *e =
            x->entry->state != ATTN_BENCH_TIMED ? x->entry : x->other;
        if (x->row->goal == ATTN_GOAL_STEP) {
            fprintf(file,
                    markdown ? "| %s | `%s` | not known | | | | %s: %s |\n"
                             : "  %-64s %-38s not known: %s: %s\n",
                    x->row->what, x->row->spec, attn_bench_state_name(e->state), e->message);
            continue;
        }
        fprintf(file,
                markdown ? "| %s | %s | not known | | | | %s: %s |\n"
                         : "  %-46s %-16s not known: %s: %s\n",
                x->row->what, target_text(x->row, target), attn_bench_state_name(e->state),
                e->message);
    }
}

static void print_machine(FILE *file)
{
    json_t *facts = attn_machine_facts();
    const char *key[] = {"cpu", "kernel", "compiler", "flags", "version"};
    fputs("Machine: ", file);
    for (size_t k = 0; facts != NULL && k < sizeof key / sizeof *key; k++) {
        const char *value = json_string_value(json_object_get(facts, key[k]));
        fprintf(file, "%s%s", k > 0 ? "; " : "", value != NULL ? value : "not available");
    }
    fprintf(file, "; %lld processors.\n\n",
            facts == NULL ? 0
                          : (long long)json_integer_value(json_object_get(facts, "cores_online")));
    json_decref(facts);
}

static const char rows_head[] = "| what | target | median | interval | | GFLOP/s | tiles |\n"
                                "| --- | --- | ---: | --- | --- | ---: | ---: |\n";
static const char steps_head[] =
    "| step | run as | time | times as fast as the step before | from, to | GFLOP/s | P |"
    "\n| --- | --- | ---: | ---: | --- | ---: | ---: |\n";

static void print_rows_page(FILE *file, const struct attn_bench *bench,
                            const struct attn_bench_table *table)
{
    int met = 0, known = 0, unclear = 0, targets = 0;
    for (int at = 0; at < table->n; at++) {
        met += table->outcome[at].known && table->outcome[at].met;
        targets += table->outcome[at].row->target > 0;
        known += table->outcome[at].known;
        unclear += table->outcome[at].inconclusive;
    }
    fputs("<!-- made by `make bench`, from `attnlab bench --preset table` -->\n\n# Speed\n\n",
          file);
    print_machine(file);
    fprintf(file,
            "%d of %d rows were measured: %d of %d targets met, %d inconclusive (the interval "
            "covers the target).\n"
            "Figures are medians of %d rounds in turn, with 95 %% intervals by bootstrap.  P is "
            "the multiply-add peak of\n"
            "the instruction set in use, measured beside each sample; [measuring.md](measuring.md#"
            "speed) defines the columns.\n\n",
            known, table->n, met, targets, unclear, bench->rounds);
    fputs(rows_head, file);
    attn_bench_print_outcomes(file, bench, table->outcome, table->n, 1);
}

static void print_steps_page(FILE *file, const struct attn_bench *bench,
                             const struct attn_bench_table *table)
{
    fputs("<!-- made by `make steps`, from `attnlab bench --preset steps` -->\n\n"
          "# From the textbook to the kernel\n\n",
          file);
    print_machine(file);
    fprintf(
        file,
        "f32, 2,048 queries and keys, d=64, one head, one thread; timed in turn, %d rounds; "
        "medians, with 95 %% intervals by bootstrap.\nP is the multiply-add peak of the "
        "instruction set of that step, or of the best for the textbooks. [kernel.md](kernel.md) "
        "explains the steps.\nThe last has half of the flops.\n\n",
        bench->rounds);
    fputs(steps_head, file);
    attn_bench_print_outcomes(file, bench, table->outcome, table->n, 1);
}

void attn_bench_print_page(FILE *file, const struct attn_bench *bench,
                           const struct attn_bench_table *table)
{
    if (table->list->row[0].goal == ATTN_GOAL_STEP)
        print_steps_page(file, bench, table);
    else
        print_rows_page(file, bench, table);
}
