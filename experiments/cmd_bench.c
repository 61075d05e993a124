/* attnlab bench: from flags to entries, timed in turn, to what is printed and left behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"
#include "experiments/cli/shape.h"
#include "experiments/report/figures.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"

enum { CASES = 256, NO_PRESET = ATTN_BENCH_PRESETS };

struct request {
    struct attn_cli_shapes shapes;
    struct attn_cli_list given; /* cases */
    struct attn_cli_counts threads;
    const char *against, *out, *blas, *rows, *scale, *softcap;
    char **spec; /* in argv */
    int n_specs, json, preset, limits, no_verify, overwrite;
    int64_t rounds;
    double sample_s;
    char text[CASES][ATTN_CASE_TEXT]; /* the cases, given and made of the shapes */
    int n_cases;
};

#define PLACE(member) offsetof(struct request, member)

static const struct attn_flag_use uses[] = {
    ATTN_CLI_SHAPE_FLAGS(PLACE(shapes)),
    ATTN_TAKES(SCALE, PLACE(scale)),
    ATTN_TAKES(SOFTCAP, PLACE(softcap)),
    ATTN_TAKES(CASE, PLACE(given), .help = "a case string; may be given several times"),
    {.flag = ATTN_FLAG_TITLE, .help = "How it is timed:"},
    ATTN_TAKES(THREADS, PLACE(threads), "1"),
    ATTN_TAKES(ROUNDS, PLACE(rounds), "7", .help = "samples of each"),
    ATTN_TAKES(AGAINST, PLACE(against)),
    ATTN_TAKES(SAMPLE, PLACE(sample_s), "0.01"),
    ATTN_TAKES(NO_VERIFY, PLACE(no_verify)),
    ATTN_TAKES(LIMITS, PLACE(limits)),
    ATTN_TAKES(PRESET, PLACE(preset)),
    ATTN_TAKES(ROWS, PLACE(rows)),
    ATTN_TAKES(BLAS, PLACE(blas), "auto"),
    ATTN_TAKES(FORMAT, PLACE(json), "text"),
    ATTN_TAKES(OUT, PLACE(out), .help = "bench.json and the roofline figure"),
    ATTN_TAKES(OVERWRITE, PLACE(overwrite)),
    {.flag = ATTN_FLAG_END}};

static int bench_command(void *values, int n, char **operand);

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
    .flags = uses,
    .more =
        "Exit status: 0 done, 1 a result was wrong, 2 usage, 3 something could not be measured.",
    .operands_most = -1,
    .computes = 1,
    .size = sizeof(struct request),
    .initial = &(const struct request){.shapes = ATTN_CLI_SHAPES_OPEN, .preset = NO_PRESET},
    .run = bench_command};

/* ---- what is asked ------------------------------------------------------------------------ */

static void add_case(struct request *q, const char *text)
{
    struct attn_case c;
    struct attn_error err;
    if (q->n_cases == CASES)
        attn_cli_stop(ATTN_EINVAL, NULL, "more than %d cases", CASES);
    attn_cli_must(attn_case_parse(text, &c, &err), &err);
    attn_case_print(&c, q->text[q->n_cases++]);
}

static void make_cases(struct request *q)
{
    char shape_text[ATTN_CASE_TEXT], text[ATTN_CASE_TEXT + 128];
    for (int c = 0; c < q->given.n; c++)
        add_case(q, q->given.at[c].value);
    for (int s = 0; s < attn_cli_shape_count(&q->shapes); s++) {
        const struct attn_cli_shape shape = attn_cli_shape_at(&q->shapes, s);
        attn_cli_shape_print(&shape, shape_text, sizeof shape_text);
        snprintf(text, sizeof text, "%s:normal:s1%s", shape_text,
                 shape.pass == ATTN_BACKWARD ? ":pass=bwd" : "");
        if (q->scale != NULL)
            attn_append(text, sizeof text, ":scale=%.40s", q->scale);
        if (q->softcap != NULL)
            attn_append(text, sizeof text, ":softcap=%.40s", q->softcap);
        add_case(q, text);
    }
}

/* Is there something to do, and only one thing? */
static void check(const struct request *q)
{
    int cases = q->given.n > 0 || q->shapes.lengths.n > 0, preset = q->preset != NO_PRESET;
    int stands_alone = q->limits || preset;
    if (q->rows != NULL && !preset)
        attn_cli_stop(ATTN_EINVAL, NULL, "--rows %s: of which table? --preset table --rows %s",
                      q->rows, q->rows);
    if ((q->shapes.model != NULL || q->scale != NULL || q->softcap != NULL) &&
        q->shapes.lengths.n == 0)
        attn_cli_stop(ATTN_EINVAL, NULL, "--model, --scale and --softcap: --length is needed too");
    if (q->rounds > ATTN_BENCH_ROUNDS)
        attn_cli_stop(ATTN_EINVAL, NULL, "--rounds %lld: at most %d", (long long)q->rounds,
                      ATTN_BENCH_ROUNDS);
    for (int t = 0; t < q->threads.n; t++)
        if (q->threads.at[t] > ATTN_BENCH_THREADS)
            attn_cli_stop(ATTN_EINVAL, NULL, "--threads %lld: at most %d",
                          (long long)q->threads.at[t], ATTN_BENCH_THREADS);
    if (stands_alone && (q->n_specs > 0 || cases || q->against != NULL || (q->limits && preset)))
        attn_cli_stop(ATTN_EINVAL, NULL, "--%s stands alone: no SPEC, no cases",
                      q->limits ? "limits" : "preset");
    if (!stands_alone && (q->n_specs == 0 || !cases))
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "a SPEC and --case or --length are needed (or --preset table, or --limits): "
                      "attnlab bench dense --length 512");
}

/* ---- what is done ------------------------------------------------------------------------- */

/* What was timed, of one kind of request or another. */
struct done {
    struct attn_bench_entry *entry;
    int n, turn;                        /* turn: entries in a row that are compared with the
                                                first of them; 0: none is                      */
    const struct attn_bench_list *list; /* of rows; NULL: there are none                  */
    const struct attn_bench_outcome *outcome;
};

static void leave(const struct attn_bench *bench, const struct done *done, const json_t *json,
                  const char *folder, int overwrite)
{
    struct attn_error err;
    char *path = attn_cli_text("%s/bench.json", folder);
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    attn_cli_must(attn_cli_save(path, text, &err), &err);
    free(text);
    free(path);
    int drawn;
    attn_cli_must(attn_bench_roofline(bench, done->entry, done->n, folder, overwrite, &drawn, &err),
                  &err);
    for (int at = 0; at < done->n && !drawn; at++)
        if (done->entry[at].state == ATTN_BENCH_TIMED) {
            fprintf(stderr, "attnlab bench: no figure: gnuplot is not there\n");
            break;
        }
}

/* 1: a wrong result; 3: one that is missing, which in a table is no surprise. */
static int status_of(const struct done *done)
{
    int status = ATTN_EXIT_GOOD;
    for (int at = 0; at < done->n; at++) {
        if (done->entry[at].state == ATTN_BENCH_WRONG)
            return ATTN_EXIT_DISAGREE;
        if (done->entry[at].state != ATTN_BENCH_TIMED && done->list == NULL)
            status = ATTN_EXIT_LACKS;
    }
    return status;
}

static int finish(const struct attn_bench *bench, const struct request *q, const struct done *done)
{
    json_t *json = attn_bench_json(bench);
    for (int at = 0; at < done->n; at++)
        attn_bench_json_entry(json, &done->entry[at],
                              done->turn > 0 ? &done->entry[at - at % done->turn] : NULL);
    for (int r = 0; done->list != NULL && r < done->list->n; r++)
        attn_bench_json_row(json, &done->outcome[r]);
    if (q->json) {
        json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
        fputc('\n', stdout);
    } else {
        if (done->list != NULL)
            attn_bench_print_sum(done->outcome, done->list->n);
        fputs("\n", stdout);
        attn_bench_print_roofs(bench);
    }
    if (q->out != NULL)
        leave(bench, done, json, q->out, q->overwrite);
    json_decref(json);
    return status_of(done);
}

/* When nothing that was asked is left to refuse: where results go, and the arrays that bandwidth is
 * read from, for whoever has the most threads, a quarter of a second. */
static void begin(struct attn_bench *bench, const struct request *q)
{
    struct attn_error err;
    if (q->out != NULL) {
        const struct attn_figure figure = {.name = ATTN_BENCH_ROOFLINE, .overwrite = q->overwrite};
        attn_cli_must(attn_folder_make(q->out, &err), &err);
        attn_cli_must(attn_figure_check(&figure, q->out, &err), &err);
        char *path = attn_cli_text("%s/bench.json", q->out);
        attn_cli_must(attn_save_check(path, &err), &err);
        free(path);
    }
    int most = q->preset != NO_PRESET ? 2 : 1; /* rows have one or two threads */
    for (int t = 0; t < q->threads.n; t++)
        most = q->threads.at[t] > most ? (int)q->threads.at[t] : most;
    attn_cli_must(attn_roofs_open(&bench->roofs, most, &err), &err);
}

/* The rows of the preset whose name or block contains the text, block by block. */
static int run_table(struct attn_bench *bench, const struct request *q)
{
    const struct attn_bench_list *all = &attn_bench_presets[q->preset];
    struct attn_bench_row *row = attn_cli_need(calloc((size_t)all->n, sizeof *row));
    struct attn_bench_outcome *outcome = attn_cli_need(calloc((size_t)all->n, sizeof *outcome));
    struct attn_bench_list list = {all->name, row, 0};
    for (int r = 0; r < all->n; r++)
        if (q->rows == NULL || strstr(all->row[r].what, q->rows) != NULL ||
            strstr(all->row[r].block, q->rows) != NULL)
            row[list.n++] = all->row[r];
    if (list.n == 0)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--rows '%s': no row or block of --preset %s has that in its name", q->rows,
                      all->name);
    begin(bench, q);
    struct done done = {attn_cli_need(calloc(2 * (size_t)all->n, sizeof *done.entry)), 0, 0, &list,
                        outcome};
    if (!q->json)
        attn_bench_print_head(bench, &list);
    for (int from = 0, to = 0; from < list.n; from = to) {
        while (to < list.n && strcmp(row[to].block, row[from].block) == 0)
            to++;
        done.n +=
            attn_bench_rows(bench, row + from, to - from, done.entry + done.n, outcome + from);
        for (int r = from; r < to && !q->json; r++)
            attn_bench_print_row(&outcome[r]);
        fflush(stdout);
    }
    int status = finish(bench, q, &done);
    free(done.entry);
    free(outcome);
    free(row);
    return status;
}

static void show_block(const struct request *q, const struct attn_bench_entry *entry, int n)
{
    int turn = n / q->threads.n; /* entries of one number of threads, the first compared with */
    for (int at = 0; at < n && !q->json; at += turn)
        attn_bench_print_entries(entry + at, turn, q->against != NULL ? &entry[at] : NULL);
    fflush(stdout);
}

/* Case by case, for each number of threads what it is compared with, then the specs. */
static int run_cases(struct attn_bench *bench, const struct request *q)
{
    int first = q->against != NULL ? -1 : 0, turn = q->n_specs - first;
    int width = turn * q->threads.n, n = width * q->n_cases;
    struct attn_bench_entry *entry = attn_cli_need(calloc((size_t)n, sizeof *entry));
    struct attn_error err;
    for (int at = 0; at < n; at++) {
        int spec = at % turn + first;
        attn_cli_must(attn_bench_entry_init(&entry[at], spec < 0 ? q->against : q->spec[spec],
                                            q->text[at / width],
                                            (int)q->threads.at[at % width / turn], &err),
                      &err);
    }
    begin(bench, q);
    for (int at = 0; at < n; at += width) {
        attn_bench_block(bench, entry + at, width);
        show_block(q, entry + at, width);
    }
    const struct done done = {entry, n, first < 0 ? turn : 0, NULL, NULL};
    int status = finish(bench, q, &done);
    free(entry);
    return status;
}

/* The roofs of every instruction set that this machine has, and the BLAS's product. */
static int run_limits(struct attn_bench *bench, const struct request *q)
{
    struct attn_error err = {ATTN_OK, ""};
    struct done done = {.entry = attn_cli_need(calloc((size_t)q->threads.n, sizeof *done.entry))};
    begin(bench, q);
    for (int t = 0; t < q->threads.n; t++) {
        for (int i = 0; i < attn_isa_count(); i++) {
            const struct attn_isa *isa = attn_isa_at(i);
            const struct attn_kernels *of[] = {isa->kernels[0], isa->kernels[1],
                                               isa->kernels[0]->matrix};
            for (int k = 0; k < 3 && isa->present(); k++)
                attn_bench_roofs(bench, of[k], isa->name, (int)q->threads.at[t]);
        }
        if (bench->blas.handle != NULL)
            attn_bench_entry_init(&done.entry[done.n++], "sgemm", "", (int)q->threads.at[t], &err);
    }
    attn_bench_block(bench, done.entry, done.n);
    if (done.n > 0)
        show_block(q, done.entry, done.n);
    int status = finish(bench, q, &done);
    free(done.entry);
    return status;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void open_blas(struct attn_bench *bench, const struct request *q)
{
    struct attn_error err = {ATTN_OK, ""};
    snprintf(bench->blas_why_not, sizeof bench->blas_why_not, "not asked for");
    if (strcmp(q->blas, "none") == 0 || !(q->limits || q->preset != NO_PRESET))
        return;
    const struct attn_isa *isa = attn_isa_best(&err);
    if (isa == NULL || attn_blas_open(q->blas, isa->name, &bench->blas, &err) != ATTN_OK)
        snprintf(bench->blas_why_not, sizeof bench->blas_why_not, "%s", err.text);
}

static int bench_command(void *values, int n, char **operand)
{
    static struct attn_bench bench; /* too large for the stack */
    struct request *q = values;
    q->spec = operand;
    q->n_specs = n;
    check(q);
    make_cases(q);
    bench = (struct attn_bench){
        .rounds = (int)q->rounds, .verify = !q->no_verify, .sample_s = q->sample_s};
    open_blas(&bench, q);
    int status = q->limits                ? run_limits(&bench, q)
                 : q->preset != NO_PRESET ? run_table(&bench, q)
                                          : run_cases(&bench, q);
    attn_roofs_close(&bench.roofs);
    free(bench.matrix);
    return status;
}
