/* See bench.h: text for people, markdown for docs/speed.md, JSON with all that was measured. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/bench/bench.h"
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

/* ---- roofs and entries -------------------------------------------------------------------- */

void attn_bench_print_roofs(const struct attn_bench *bench)
{
    for (int r = 0; r < bench->n_roofs; r++) {
        const struct attn_bench_roof *x = &bench->roof[r];
        printf("    %-8s %8s %s, threads %d %8.4g  (%.4g to %.4g) %s\n", attn_roof_name(x->roof),
               x->isa, attn_kernels_arithmetic(x->kernels), x->threads, 1e-9 * x->spread.median,
               1e-9 * x->spread.min, 1e-9 * x->spread.max, attn_roof_unit(x->roof));
    }
    printf("\nBLAS: %s.\n", bench->blas.handle != NULL ? bench->blas.name : bench->blas_why_not);
}

static void print_against(const struct attn_bench_entry *e, const struct attn_bench_entry *against)
{
    if (against == e || against->state != ATTN_BENCH_TIMED || against->n == 0)
        return;
    struct attn_bench_figure x = attn_bench_figure(e, against, ATTN_BENCH_STEP);
    printf("      %.3f x as fast as %s (95 %%: %.3f to %.3f)\n", x.spread.median,
           against->point.spec, x.interval.low, x.interval.high);
}

static void print_entry(const struct attn_bench_entry *e)
{
    char time[32], extra[32];
    if (e->state != ATTN_BENCH_TIMED) {
        printf("  %-28s threads %d  %s: %s\n", e->point.spec, e->threads,
               attn_bench_state_name(e->state), e->point.message);
        return;
    }
    struct attn_bench_figure peak = attn_bench_figure(e, NULL, ATTN_BENCH_PEAK);
    printf("  %-28s threads %d %7.4f P (%.4f to %.4f) %8.4g GFLOP/s  %s", e->point.spec, e->threads,
           peak.spread.median, peak.spread.quarter, peak.spread.three_quarters,
           1e-9 * attn_bench_median(e, ATTN_BENCH_FLOPS),
           seconds_text(attn_bench_median(e, ATTN_BENCH_SECONDS), time));
    if (!e->is_sgemm)
        printf("  extra %s  error/bound %.3g", attn_cli_bytes(e->point.priced_bytes, extra),
               e->point.worst);
    putchar('\n');
    if (!e->pair_read)
        return;
    struct attn_bench_figure read = attn_bench_figure(e, NULL, ATTN_BENCH_READ);
    printf("      %.4g GB/s, %.3f of the read bandwidth (%.3f to %.3f)\n",
           1e-9 * e->work.bytes / attn_bench_median(e, ATTN_BENCH_SECONDS), read.spread.median,
           read.spread.quarter, read.spread.three_quarters);
}

void attn_bench_print_entries(const struct attn_bench_entry *entry, int n,
                              const struct attn_bench_entry *against)
{
    printf("%s\n", entry[0].point.text[0] != '\0' ? entry[0].point.text : "matrix product");
    for (int at = 0; at < n; at++) {
        print_entry(&entry[at]);
        if (against != NULL && entry[at].state == ATTN_BENCH_TIMED &&
            entry[at].threads == against->threads)
            print_against(&entry[at], against);
    }
}

/* ---- rows --------------------------------------------------------------------------------- */

/* ">= 0.19 P", "none, in P" */
static const char *target_text(const struct attn_bench_row *row, char text[32])
{
    const char *unit = attn_bench_about[row->goal].unit;
    if (row->target > 0)
        snprintf(text, 32, "%s %.3g %s",
                 attn_bench_about[row->goal].at_least ? ">=" : "<=", row->target, unit);
    else
        snprintf(text, 32, "none, in %s", unit);
    return text;
}

void attn_bench_print_head(const struct attn_bench *bench, const struct attn_bench_list *list)
{
    static const char *const key[] = {"cpu", "kernel", "compiler", "flags", "version"};
    json_t *facts = attn_machine_facts();
    printf("<!-- from `attnlab bench --preset %s` -->\n\n# Speed\n\nMachine: ", list->name);
    for (size_t k = 0; k < sizeof key / sizeof *key; k++) {
        const char *value = json_string_value(json_object_get(facts, key[k]));
        printf("%s%s", k > 0 ? "; " : "", value != NULL ? value : "not available");
    }
    printf("; %lld processors.\n\n"
           "Figures are medians of %d rounds in turn, with 95 %% intervals by bootstrap.  P is "
           "the multiply-add peak of\n"
           "the instruction set in use, measured beside each sample; [measuring.md](measuring.md#"
           "speed) defines the columns.\n\n"
           "| what | run as | target | median | interval | | GFLOP/s | P | time |\n"
           "| --- | --- | --- | ---: | --- | --- | ---: | ---: | ---: |\n",
           (long long)json_integer_value(json_object_get(facts, "cores_online")), bench->rounds);
    json_decref(facts);
}

void attn_bench_print_row(const struct attn_bench_outcome *x)
{
    const struct attn_bench_entry *e = x->entry;
    char time[32], target[32];
    printf("| %s | `%s` | %s ", x->row->what, x->row->spec, target_text(x->row, target));
    if (!x->known) {
        e = e->state != ATTN_BENCH_TIMED ? e : x->other;
        printf("| not known | | %s: %s | | | |\n", attn_bench_state_name(e->state),
               e->point.message);
        return;
    }
    printf("| **%.3f** | %.3f to %.3f | %s | %.4g | %.3f | %s |\n", x->figure.spread.median,
           x->figure.interval.low, x->figure.interval.high,
           x->row->target == 0 ? ""
           : x->inconclusive   ? "inconclusive"
           : x->met            ? "met"
                               : "NOT MET",
           1e-9 * attn_bench_median(e, ATTN_BENCH_FLOPS), attn_bench_median(e, ATTN_BENCH_PEAK),
           seconds_text(attn_bench_median(e, ATTN_BENCH_SECONDS), time));
}

void attn_bench_print_sum(const struct attn_bench_outcome *outcome, int n)
{
    int met = 0, known = 0, unclear = 0, targets = 0;
    for (int at = 0; at < n; at++) {
        met += outcome[at].met;
        targets += outcome[at].row->target > 0;
        known += outcome[at].known;
        unclear += outcome[at].inconclusive;
    }
    printf("\n%d of %d rows were measured: %d of %d targets met, %d inconclusive (the interval "
           "covers the target).\n",
           known, n, met, targets, unclear);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static json_t *spread_of(const struct attn_spread *s)
{
    return json_pack("{s:i,s:o,s:o,s:o,s:o,s:o}", "n", s->n, "min", attn_cli_real(s->min),
                     "quarter", attn_cli_real(s->quarter), "median", attn_cli_real(s->median),
                     "three_quarters", attn_cli_real(s->three_quarters), "max",
                     attn_cli_real(s->max));
}

json_t *attn_bench_json(const struct attn_bench *bench)
{
    json_t *blas = json_null(), *roofs = json_array();
    for (int r = 0; r < bench->n_roofs; r++) {
        const struct attn_bench_roof *x = &bench->roof[r];
        json_array_append_new(roofs, json_pack("{s:s,s:s,s:s,s:i,s:s,s:o}", "roof",
                                               attn_roof_name(x->roof), "isa", x->isa, "arithmetic",
                                               attn_kernels_arithmetic(x->kernels), "threads",
                                               x->threads, "unit", attn_roof_unit(x->roof),
                                               "per_second", spread_of(&x->spread)));
    }
    if (bench->blas.handle != NULL)
        blas = json_string(bench->blas.name);
    return json_pack("{s:i,s:o,s:i,s:o,s:o,s:[],s:[]}", "schema", ATTN_BENCH_SCHEMA, "machine",
                     attn_machine_facts(), "rounds", bench->rounds, "roofs", roofs, "blas", blas,
                     "entries", "rows");
}

static void put_figures(json_t *to, const struct attn_bench_entry *e)
{
    struct attn_bench_figure seconds = attn_bench_figure(e, NULL, ATTN_BENCH_SECONDS);
    struct attn_bench_figure peak = attn_bench_figure(e, NULL, ATTN_BENCH_PEAK);
    json_object_set_new(to, "seconds", spread_of(&seconds.spread));
    json_object_set_new(to, "fraction_of_peak", spread_of(&peak.spread));
    json_object_set_new(to, "gflops", attn_cli_real(1e-9 * e->work.flops / seconds.spread.median));
}

void attn_bench_json_entry(json_t *all, const struct attn_bench_entry *e,
                           const struct attn_bench_entry *against)
{
    json_t *samples = json_array();
    for (int s = 0; s < e->n; s++)
        json_array_append_new(samples,
                              json_pack("{s:o,s:o,s:o}", "s", attn_cli_real(e->sample[s].s), "peak",
                                        attn_cli_real(e->sample[s].peak), "read",
                                        attn_cli_real(e->sample[s].read)));
    json_t *to = json_pack(
        "{s:s,s:s,s:i,s:s,s:s,s:o,s:s,s:o,s:I,s:I,s:o,s:o,s:o,s:I,s:o}", "spec", e->point.spec,
        "case", e->point.text, "threads", e->threads, "isa", e->isa != NULL ? e->isa : "", "state",
        attn_bench_state_name(e->state), "message", attn_cli_words(e->point.message), "verified",
        e->point.verified, "worst", attn_cli_real(e->point.worst), "priced_bytes",
        (json_int_t)e->point.priced_bytes, "ledger_bytes", (json_int_t)e->point.ledger_bytes,
        "pairs", attn_cli_real(e->work.pairs), "flops", attn_cli_real(e->work.flops),
        "modelled_bytes", attn_cli_real(e->work.bytes), "calls_a_sample", (json_int_t)e->calls,
        "samples", samples);
    if (to != NULL && e->state == ATTN_BENCH_TIMED)
        put_figures(to, e);
    if (to != NULL && against != NULL && against != e && e->n > 0 && against->n > 0) {
        struct attn_bench_figure x = attn_bench_figure(e, against, ATTN_BENCH_STEP);
        json_object_set_new(to, "against",
                            json_pack("{s:s,s:i,s:o,s:o,s:o}", "spec", against->point.spec,
                                      "rounds", x.spread.n, "times_as_fast", spread_of(&x.spread),
                                      "low", attn_cli_real(x.interval.low), "high",
                                      attn_cli_real(x.interval.high)));
    }
    json_array_append_new(json_object_get(all, "entries"), to);
}

void attn_bench_json_row(json_t *all, const struct attn_bench_outcome *x)
{
    const struct attn_bench_row *row = x->row;
    int is_judged = x->known && row->target > 0 && !x->inconclusive;
    json_array_append_new(
        json_object_get(all, "rows"),
        json_pack("{s:s,s:s,s:s,s:b,s:o,s:s,s:s,s:i,s:b,s:o,s:o}", "block", row->block, "what",
                  row->what, "unit", attn_bench_about[row->goal].unit, "at_least",
                  attn_bench_about[row->goal].at_least, "target",
                  row->target > 0 ? attn_cli_real(row->target) : json_null(), "spec", row->spec,
                  "case", row->text, "threads", row->threads, "known", x->known, "met",
                  is_judged ? json_boolean(x->met) : json_null(), "value",
                  x->known ? spread_of(&x->figure.spread) : json_null()));
}
