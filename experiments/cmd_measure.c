/* attnlab measure: flags or a plan file to a plan, then the sweep, then the table. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/measure/record.h"
#include "experiments/measure/sweep.h"
#include "experiments/report/page.h"
#include "experiments/table/row_table.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"

struct flags {
    const char *plan, *out, *csv, *from;
    int dry_run, quiet;
    struct attn_plan_shapes shapes; /* and other keys of a plan */
    struct attn_cli_list given;     /* --plugin, --exec and --claims, in order */
    struct attn_subjects externals;
};

#define TO(member) offsetof(struct flags, member)
#define TITLE(text)                           \
    {                                         \
        .flag = ATTN_FLAG_TITLE, .help = text \
    }

/* A key of a plan: its values are the plan's own affair. */
#define KEY(id, at_first, ...) ATTN_PLAN_KEY(TO(shapes), id, at_first, ATTN_KIND_ONCE, __VA_ARGS__)

static const struct attn_flag_use uses[] = {
    ATTN_TAKES(PLAN, TO(plan)),
    ATTN_TAKES(OUT, TO(out), .value = "FILE.jsonl", .help = "where records are appended"),
    ATTN_TAKES(CSV, TO(csv)),
    ATTN_TAKES(FROM, TO(from)),
    ATTN_TAKES(DRY_RUN, TO(dry_run)),
    ATTN_TAKES(QUIET, TO(quiet)),
    TITLE("Yours beside ours (docs/measuring.md); each joins every group:"),
    ATTN_TAKES(PLUGIN, TO(given)),
    ATTN_TAKES(EXEC, TO(given)),
    ATTN_TAKES(CLAIMS, TO(given)),
    TITLE("Without --plan, the keys of a plan are flags; with it, --length and --mask replace its "
          "own:"),
    ATTN_PLAN_SHAPE_FLAGS(TO(shapes)),
    KEY(PASS, "fwd", "fwd|bwd|both"),
    KEY(LAYERS, "0", "N,..."),
    KEY(SAVE, "rows", "probs|rows|inputs,..."),
    KEY(THREADS, "1", NULL),
    KEY(PEAK, "0", NULL),
    KEY(FILL, "normal", NULL),
    KEY(SCALE, NULL, NULL),
    KEY(SOFTCAP, NULL, NULL),
    TITLE("With --plan, these replace what the file says:"),
    KEY(ROUNDS, "5", NULL),
    KEY(REPEAT, "10", NULL, "warm calls in a process, those after its first, at most"),
    KEY(ENOUGH, "0.3", NULL),
    KEY(BUDGET, "0", NULL),
    KEY(TIMEOUT, "300", NULL, "seconds for one process"),
    KEY(VERIFY_ALL, "2048", NULL),
    KEY(SEED, "1", NULL, "of the order of points"),
    KEY(SHUFFLE, "0", NULL),
    {.flag = ATTN_FLAG_END}};

static int measure(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_measure = {
    .name = "measure",
    .summary = "memory and time, of ours and yours, one fresh process a point",
    .usage = "measure SPEC... --length L,... [--out FILE.jsonl]\n"
             "    [--csv FILE.csv] [flags]\n"
             "measure --plan FILE [--out FILE.jsonl] [--csv FILE.csv] [flags]\n"
             "measure --from FILE.jsonl --csv FILE.csv",
    .about = "Memory and time of implementations, one fresh process for each point and round.\n"
             "Records are added to FILE.jsonl (docs/measuring.md); the same command continues an\n"
             "interrupted measurement.  Without --out they are printed as a table, and not kept.",
    .flags = uses,
    .more = "  attnlab measure tiled dense --length 1024 --mask 'causal(br)' --peak 1\n"
            "  attnlab measure --plan experiments/plans/quick.plan --dry-run",
    .exits = "0 done, 1 a result was wrong, 2 usage or a bad file, 3 the machine lacks something, "
             "a point could not be measured, or the measurement was interrupted.",
    .operands_most = -1,
    .computes = 1,
    .size = sizeof(struct flags),
    .run = measure};

/* The plan of a file, with flags that replace what it says; or of flags alone. */
static void make_plan(struct flags *flags, struct attn_plan *plan)
{
    struct attn_error err;
    attn_cli_must(attn_subjects_open(&flags->externals, &flags->given, &flags->shapes.keys, &err),
                  &err);
    attn_cli_must(
        flags->plan != NULL
            ? attn_plan_read(flags->plan, &flags->shapes.keys, &flags->externals, plan, &err)
            : attn_plan_from_flags(&flags->shapes.keys, &flags->externals, plan, &err),
        &err);
}

static void write_csv(const char *from, const char *to)
{
    struct attn_records records;
    struct attn_error err;
    attn_cli_must(attn_record_read(from, &records, &err), &err);
    if (strcmp(to, "-") == 0)
        attn_csv_write(stdout, records.point, records.n);
    else if (attn_csv_save(to, records.point, records.n, &err) != ATTN_OK)
        attn_cli_stop(err.status, NULL, "table %s", err.text);
    attn_records_free(&records);
}

/* Of all rounds of a point; what is not known is left out. */
static json_t *row_of(const struct attn_row *row)
{
    const struct attn_point *p = row->point;
    const int is_ok = row->status == ATTN_POINT_OK;
    const double s = row->time.n > 0 ? row->time.median : row->single.median;
    const double flops = is_ok ? attn_point_products(p) / s : (double)NAN;
    const double bytes = is_ok ? attn_point_traffic(p) / s : (double)NAN;
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:s}", "spec", attn_cli_words(p->spec),
                     "call", attn_cli_real(is_ok && s > 0 ? s : (double)NAN), "gflops",
                     attn_cli_real(flops / 1e9), "peak", attn_cli_real(flops / row->peak_rate),
                     "read", attn_cli_real(bytes / row->read_rate), "extra",
                     row->peak >= 0 ? json_integer((json_int_t)row->peak) : json_null(), "error",
                     attn_cli_real(row->worst), "case", p->text, "why", is_ok ? "" : p->message);
}

static void print_table(const char *path)
{
    static const struct attn_column column[] = {
        {"spec", "spec", ATTN_UNIT_CODE},      {"call", "a call", ATTN_UNIT_SECONDS},
        {"gflops", "GFLOP/s", ATTN_UNIT_REAL}, {"peak", "P", ATTN_UNIT_REAL},
        {"read", "read", ATTN_UNIT_REAL},      {"extra", "extra", ATTN_UNIT_BYTES},
        {"error", "error", ATTN_UNIT_REAL},    {"case", "case", ATTN_UNIT_CODE},
        {"why", "", ATTN_UNIT_CODE},           {.key = NULL}};
    struct attn_records records;
    struct attn_summary summary;
    struct attn_error err;
    json_t *rows = json_array();
    attn_cli_must(attn_record_read(path, &records, &err), &err);
    attn_summary_make(records.point, records.n, &summary);
    for (int64_t r = 0; r < summary.n; r++)
        json_array_append_new(rows, row_of(&summary.row[r]));
    attn_table_print(stdout, ATTN_TABLE_TEXT, column, rows);
    json_decref(rows);
    attn_summary_free(&summary);
    attn_records_free(&records);
}

static void check_flags(int n, char **operand, struct flags *flags)
{
    struct attn_error err;
    attn_cli_must(attn_cli_take_specs(&flags->shapes.keys, n, operand, &err), &err);
    if (flags->plan != NULL && flags->shapes.model != NULL)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--model %s: a plan says heads, dim and mask itself; without --plan it works",
                      flags->shapes.model);
    int others = flags->out != NULL || flags->plan != NULL || flags->shapes.keys.n > 0 ||
                 flags->given.n > 0 || flags->dry_run;
    if (flags->from != NULL && (flags->csv == NULL || others))
        attn_cli_stop(ATTN_EINVAL, NULL, "--from goes with --csv and nothing else");
}

static int measure(void *values, int n, char **operand)
{
    struct flags *asked = values;
    struct attn_plan plan;
    int64_t n_errors = 0;
    check_flags(n, operand, asked);
    if (attn_cli_runner() != NULL && asked->given.n > 0)
        attn_cli_stop(ATTN_ENOTSUP, NULL,
                      "external implementations are one process: attnlab measure");
    if (asked->from != NULL) {
        write_csv(asked->from, asked->csv);
        return ATTN_EXIT_GOOD;
    }
    make_plan(asked, &plan);
    struct attn_error err;
    char folder[4096], path[4200] = "";
    int is_kept = asked->out != NULL || asked->dry_run;
    if (!is_kept) {
        attn_cli_must(attn_temporary_open(folder, &err), &err);
        snprintf(path, sizeof path, "%s/records.jsonl", folder);
        asked->quiet = 1;
    } else if (asked->out != NULL)
        snprintf(path, sizeof path, "%s", asked->out);
    if (asked->csv != NULL && strcmp(asked->csv, "-") != 0 && !asked->dry_run)
        attn_cli_must(attn_save_check(asked->csv, &err), &err);
    int status = attn_sweep_run(&plan, path, asked->dry_run, asked->quiet, &n_errors);
    attn_plan_free(&plan);
    int is_measured = status == ATTN_EXIT_GOOD || status == ATTN_EXIT_DISAGREE;
    if (is_measured && asked->csv != NULL && !asked->dry_run)
        write_csv(path, asked->csv);
    if (is_measured && asked->csv == NULL && !is_kept)
        print_table(path);
    if (!is_kept)
        attn_temporary_close(folder);
    return status == ATTN_EXIT_GOOD && n_errors > 0 ? ATTN_EXIT_LACKS : status;
}
