/* attnlab bench: from flags to entries, in turn by blocks, to what is printed and left behind. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/bench/bench_flags.h"
#include "experiments/bench/bench_json.h"
#include "experiments/bench/bench_print.h"
#include "experiments/bench/bench_roofline.h"
#include "experiments/cli/cli.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/files/folder.h"

static int bench_command(int argc, char **argv);

const struct attn_cli_command attn_cmd_bench = {
    .name = "bench",
    .summary = "speed, as a fraction of what this machine can do",
    .usage = "bench SPEC... --length L,... [flags]\n"
             "bench SPEC... --case CASE [flags]\n"
             "bench --preset table|steps [--rows TEXT] [flags]\n"
             "bench --limits [flags]",
    .about =
        "How fast implementations are, as a fraction of P, the multiply-add peak of the "
        "instruction\n"
        "set in use, which is measured in the same process right before and after every sample.\n"
        "What has one case is timed in turn, round by round (docs/measuring.md).  A SPEC may say "
        "its\n"
        "instruction set: tiled@avx2.",
    .flags = attn_bench_uses,
    .more =
        "Exit status: 0 done, 1 a result was wrong, 2 usage, 3 something could not be measured.",
    .operands_most = -1,
    .computes = 1,
    .run = bench_command};

/* ---- what is left behind ------------------------------------------------------------------ */

static int any_timed(const struct attn_bench_entry *entry, int n)
{
    for (int at = 0; at < n; at++)
        if (entry[at].state == ATTN_BENCH_TIMED)
            return 1;
    return 0;
}

static enum attn_status leave(const struct attn_bench *bench, const struct attn_bench_table *table,
                              const struct attn_bench_entry *entry, int n, const json_t *json,
                              const char *folder, struct attn_error *err)
{
    int drawn = 0;
    char path[4096];
    struct attn_save save;
    snprintf(path, sizeof path, "%.3000s/bench.json", folder);
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    if (attn_folder_make(folder, err) != ATTN_OK || attn_save_open(path, &save, err) != ATTN_OK) {
        free(text);
        return err->status;
    }
    fputs(text, save.stream);
    free(text);
    enum attn_status status = attn_save_close(&save, ATTN_OK, err);
    if (status == ATTN_OK && table != NULL) {
        snprintf(path, sizeof path, "%.3000s/table.md", folder);
        status = attn_save_open(path, &save, err);
        if (status == ATTN_OK) {
            attn_bench_print_page(save.stream, bench, table);
            status = attn_save_close(&save, ATTN_OK, err);
        }
    }
    if (status == ATTN_OK)
        status = attn_bench_roofline(bench, entry, n, folder, &drawn, err);
    if (status != ATTN_OK)
        return status;
    if (!drawn && any_timed(entry, n))
        fprintf(stderr, "attnlab bench: no figure: gnuplot is not there\n");
    return ATTN_OK;
}

/* ---- running ------------------------------------------------------------------------------ */

static const struct attn_bench_flags *shown; /* by the reports below */

static void report_visit(int visit, int visits)
{
    if (shown->format == ATTN_BENCH_TEXT)
        printf("%d of %d: a part of the rounds of every row%s\n", visit + 1, visits,
               visit + 1 < visits ? "" : "; what came of them:");
    fflush(stdout);
}

static void report_rows(const struct attn_bench *bench, const struct attn_bench_outcome *outcome,
                        int n)
{
    if (shown->format == ATTN_BENCH_TEXT)
        attn_bench_print_outcomes(stdout, bench, outcome, n, 0);
    fflush(stdout);
}

/* 1 a wrong result, 3 one that is missing, 0 else. */
static int status_of(const struct attn_bench_entry *entry, int n)
{
    int status = ATTN_EXIT_GOOD;
    for (int at = 0; at < n; at++) {
        if (entry[at].state == ATTN_BENCH_WRONG)
            return ATTN_EXIT_DISAGREE;
        if (entry[at].state != ATTN_BENCH_TIMED)
            status = ATTN_EXIT_LACKS;
    }
    return status;
}

static int finish(struct attn_bench *bench, const struct attn_bench_flags *f,
                  const struct attn_bench_table *table, const struct attn_bench_entry *entry, int n,
                  json_t *json, int status)
{
    struct attn_error err = {ATTN_OK, ""};
    if (f->format == ATTN_BENCH_AS_JSON) {
        json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
        fputc('\n', stdout);
    }
    if (f->format == ATTN_BENCH_TEXT) {
        fputs("\n", stdout);
        attn_bench_print_roofs(stdout, bench, 0);
    }
    if (f->out != NULL && leave(bench, table, entry, n, json, f->out, &err) != ATTN_OK)
        status = attn_cli_fail("bench", attn_cli_status(err.status), "%s", err.text);
    json_decref(json);
    int flushed = attn_cli_flush("bench");
    return status != ATTN_EXIT_GOOD ? status : flushed;
}

/* The rows of a preset whose name or block contains the text, in `row`; all without one. */
static struct attn_bench_list choose_rows(const struct attn_bench_list *all, const char *text,
                                          struct attn_bench_row *row)
{
    struct attn_bench_list list = {.name = all->name, .row = row};
    for (int r = 0; r < all->n; r++)
        if (text == NULL || strstr(all->row[r].what, text) != NULL ||
            strstr(all->row[r].block, text) != NULL)
            row[list.n++] = all->row[r];
    return list;
}

static int run_table(struct attn_bench *bench, const struct attn_bench_flags *f)
{
    struct attn_bench_row row[ATTN_BENCH_ROWS];
    struct attn_bench_table table;
    struct attn_error err = {ATTN_OK, ""};
    shown = f;
    const struct attn_bench_list list = choose_rows(attn_bench_list_at(f->preset), f->rows, row);
    if (list.n == 0)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE,
                             "--rows '%s': no row or block of --preset %s has that in its name",
                             f->rows, attn_bench_list_at(f->preset)->name);
    if (attn_bench_table_run(bench, &list, &table, report_visit, report_rows, &err) != ATTN_OK) {
        attn_bench_table_free(&table);
        return attn_cli_fail("bench", attn_cli_status(err.status), "%s", err.text);
    }
    json_t *json = attn_bench_json(bench);
    for (int at = 0; at < table.n_entries; at++) {
        attn_bench_json_entry(json, bench, &table.entry[at], NULL);
        if (f->format == ATTN_BENCH_LINE)
            attn_bench_print_line(stdout, &table.entry[at]);
    }
    attn_bench_json_outcomes(json, table.outcome, table.n);
    int wrong = status_of(table.entry, table.n_entries) == ATTN_EXIT_DISAGREE;
    int status = finish(bench, f, &table, table.entry, table.n_entries, json,
                        wrong ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD);
    attn_bench_table_free(&table);
    return status;
}

/* Entries of one case, in `entry`: for each number of threads what it is compared with, then the
 * specs.  0 after a message. */
static int make_block(const struct attn_bench_flags *f, const char *text,
                      struct attn_bench_entry *entry)
{
    for (int t = 0; t < f->threads.n; t++)
        for (int s = f->against != NULL ? -1 : 0; s < f->n_specs; s++) {
            struct attn_error err = {ATTN_OK, ""};
            const char *spec = s < 0 ? f->against : f->spec[s];
            if (attn_bench_entry_init(entry++, spec, text, (int)f->threads.at[t], &err) == ATTN_OK)
                continue;
            attn_cli_fail("bench", ATTN_EXIT_USAGE, "%s", err.text);
            return 0;
        }
    return 1;
}

static void show_block(const struct attn_bench *bench, const struct attn_bench_flags *f,
                       const struct attn_bench_entry *entry, int n)
{
    int a_turn = n / f->threads.n; /* entries of one number of threads, the first compared with */
    for (int at = 0; at < n; at += a_turn)
        if (f->format == ATTN_BENCH_TEXT)
            attn_bench_print_entries(stdout, bench, entry + at, a_turn,
                                     f->against != NULL ? &entry[at] : NULL);
    for (int at = 0; at < n && f->format == ATTN_BENCH_LINE; at++)
        attn_bench_print_line(stdout, &entry[at]);
    fflush(stdout);
}

static int run_cases(struct attn_bench *bench, const struct attn_bench_flags *f)
{
    int turn = f->n_specs + (f->against != NULL), width = turn * f->threads.n;
    int n = width * f->n_cases, good = 1;
    struct attn_bench_entry *entry = calloc((size_t)n, sizeof *entry);
    if (entry == NULL)
        return attn_cli_fail("bench", ATTN_EXIT_LACKS, "no memory for %d cases", f->n_cases);
    for (int c = 0; c < f->n_cases && good; c++)
        good = make_block(f, f->text[c], entry + c * width);
    for (int c = 0; c < f->n_cases && good; c++) {
        attn_bench_block(bench, entry + c * width, width, 0, 1);
        show_block(bench, f, entry + c * width, width);
    }
    int status = ATTN_EXIT_USAGE;
    if (good) {
        json_t *json = attn_bench_json(bench);
        for (int at = 0; at < n; at++)
            attn_bench_json_entry(json, bench, &entry[at],
                                  f->against != NULL ? &entry[at - at % turn] : NULL);
        status = finish(bench, f, NULL, entry, n, json, status_of(entry, n));
    }
    free(entry);
    return status;
}

/* The roofs of every instruction set that this machine has, and the BLAS's products. */
static int run_limits(struct attn_bench *bench, const struct attn_bench_flags *f)
{
    static const struct attn_bench_product products[] = {{4096, 4096, 4096, 0},
                                                         {256, 512, 64, 1},
                                                         {256, 512, 128, 1},
                                                         {256, 64, 512, 0},
                                                         {256, 128, 512, 0}};
    enum { PRODUCTS = sizeof products / sizeof *products };
    struct attn_error err = {ATTN_OK, ""};
    int n = 0, most = PRODUCTS * f->threads.n;
    struct attn_bench_entry *entry = calloc((size_t)most, sizeof *entry);
    if (entry == NULL)
        return attn_cli_fail("bench", ATTN_EXIT_LACKS, "no memory");
    for (int t = 0; t < f->threads.n; t++) {
        for (int i = 0; i < attn_isa_count(); i++)
            for (int k = 0; k < 2 && attn_isa_at(i)->present(); k++)
                attn_bench_roofs(bench, attn_isa_at(i)->kernels[k], attn_isa_at(i)->name,
                                 (int)f->threads.at[t]);
        for (int p = 0; p < PRODUCTS && bench->blas.handle != NULL; p++)
            attn_bench_entry_product(&entry[n++], &products[p], (int)f->threads.at[t], &err);
    }
    attn_bench_block(bench, entry, n, 0, 1);
    if (f->format != ATTN_BENCH_AS_JSON && n > 0)
        show_block(bench, f, entry, n);
    json_t *json = attn_bench_json(bench);
    for (int at = 0; at < n; at++)
        attn_bench_json_entry(json, bench, &entry[at], NULL);
    int status = finish(bench, f, NULL, entry, n, json, status_of(entry, n));
    free(entry);
    return status;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void open_blas(struct attn_bench *bench, const struct attn_bench_flags *f)
{
    struct attn_error err = {ATTN_OK, ""};
    snprintf(bench->blas_why_not, sizeof bench->blas_why_not, "not asked for");
    if (strcmp(f->blas, "none") == 0 || !(f->limits || f->preset != ATTN_BENCH_NO_PRESET))
        return;
    const struct attn_isa *isa = attn_isa_best(&err);
    if (isa == NULL || attn_blas_open(f->blas, isa->name, &bench->blas, &err) != ATTN_OK)
        snprintf(bench->blas_why_not, sizeof bench->blas_why_not, "%s", err.text);
    if (bench->blas.doubt[0] != '\0')
        fprintf(stderr, "attnlab bench: caution: %s\n", bench->blas.doubt);
}

static int most_threads(const struct attn_bench_flags *f)
{
    int most = f->preset != ATTN_BENCH_NO_PRESET ? 2 : 1; /* its rows have one or two */
    for (int t = 0; t < f->threads.n; t++)
        most = f->threads.at[t] > most ? (int)f->threads.at[t] : most;
    return most;
}

static int bench_command(int argc, char **argv)
{
    static struct attn_bench bench; /* both too large for the stack */
    static struct attn_bench_flags flags;
    struct attn_error err = {ATTN_OK, ""};
    int status = attn_bench_flags_read(argc, argv, &flags);
    if (status >= 0)
        return status;
    status = ATTN_EXIT_GOOD;
    bench = (struct attn_bench){.rounds = (int)flags.rounds,
                                .verify = !flags.no_verify,
                                .sample_s = flags.sample_s,
                                .patience_s = flags.patience_s};
    attn_counters_open(&bench.counters);
    open_blas(&bench, &flags);
    if (attn_roofs_open(&bench.roofs, most_threads(&flags), &err) != ATTN_OK)
        status = attn_cli_fail("bench", attn_cli_status(err.status), "%s", err.text);
    else if (flags.limits)
        status = run_limits(&bench, &flags);
    else
        status = flags.preset != ATTN_BENCH_NO_PRESET ? run_table(&bench, &flags)
                                                      : run_cases(&bench, &flags);
    attn_roofs_close(&bench.roofs);
    attn_counters_close(&bench.counters);
    free(bench.matrix);
    return status;
}
