/* attnlab measure: flags or a plan file to a plan, then the sweep, then the table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli.h"
#include "experiments/measure/record.h"
#include "experiments/measure/sweep.h"
#include "experiments/report/csv.h"
#include "tests/harness/files/fileio.h"

static const char help_head[] =
    "usage: attnlab measure --plan FILE --out FILE.jsonl [--csv FILE.csv] [flags]\n"
    "       attnlab measure --spec SPEC[;SPEC...] --length L[,L...] [--mask M[;M...]] ...\n"
    "                       --out FILE.jsonl [--csv FILE.csv] [flags]\n"
    "       attnlab measure --from FILE.jsonl --csv FILE.csv\n"
    "\n"
    "Memory and time of implementations, one fresh process for each point and round.\n"
    "Records are appended to FILE.jsonl (docs/records.md); the same command continues an\n"
    "interrupted measurement.  --csv derives a table; with --from, nothing is measured.\n"
    "\n"
    "  --plan FILE   what to measure (docs/measuring.md; experiments/plans has some)\n"
    "  --dry-run     list the points, with what they need, and stop\n"
    "  --quiet       no progress, no summary\n"
    "\n"
    "Yours beside ours (docs/measuring.md); each may be repeated, and joins every group:\n"
    "\n"
    "  --plugin [NAME=]FILE.so   a shared object with attn_plugin_get()\n"
    "  --exec [NAME=]COMMAND     a command, run as COMMAND CASES OUT; after it\n"
    "  --claims FILE             what it can do, JSON\n"
    "\n"
    "Without --plan, these keys of a plan are flags (--spec and --mask may be repeated, or\n"
    "hold several separated by ';'; --length and --pass by ','):\n"
    "\n";
static const char help_tail[] =
    "\n"
    "With --plan, the last seven replace what the file says.\n"
    "Exit status: 0 done, 1 a result was wrong, 2 usage or a bad file, 3 the machine lacks\n"
    "something, a point could not be measured, or the measurement was interrupted.\n";

struct flags {
    const char *plan, *out, *csv, *from;
    int dry_run, quiet, n_keys;    /* keys of a plan */
    struct attn_plan_draft *draft; /* of keys given as flags, when there is no --plan */
    struct attn_external_specs *externals;
};

static const double MEETING_S = 60; /* for loading a plug-in, or a command on a tiny case */

static int print_help(void)
{
    fputs(help_head, stdout);
    for (int line = 0; attn_plan_help(line) != NULL; line++)
        printf("  --%s\n", attn_plan_help(line));
    fputs(help_tail, stdout);
    return attn_cli_flush("measure");
}

/* A list on the command line to a list of a plan; 0 when an item is empty. */
static int separate(const char *key, char *value)
{
    const char *marks = strcmp(key, "length") == 0 || strcmp(key, "pass") == 0 ? "," : ";";
    for (char *at = value;; at++) {
        size_t n = strcspn(at, marks);
        if (strspn(at, " \t") >= n)
            return 0;
        at += n;
        if (*at == '\0')
            return 1;
        *at = ' ';
    }
}

static int set_key(struct flags *flags, const char *key, const char *value, struct attn_error *err)
{
    char *copy = strdup(value);
    if (copy == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory");
    if (!separate(key, copy)) {
        free(copy);
        return attn_fail(err, ATTN_EINVAL, "--%s '%.60s': an item is empty", key, value);
    }
    int repeatable = strcmp(key, "spec") == 0 || strcmp(key, "mask") == 0;
    enum attn_status status = repeatable ? attn_plan_add(flags->draft, key, copy, err)
                                         : attn_plan_set(flags->draft, key, copy, err);
    free(copy);
    return status;
}

/* A key of the plan given beside --plan; 0 when it is none of those. */
static int override(struct attn_plan *plan, const char *key, const char *value)
{
    int64_t seed = 0;
    if (strcmp(key, "rounds") == 0)
        return attn_cli_int(value, 1, 1000, &plan->rounds);
    if (strcmp(key, "repeat") == 0)
        return attn_cli_int(value, 0, 64, &plan->repeat);
    if (strcmp(key, "verify-all") == 0)
        return attn_cli_int(value, 0, 1 << 30, &plan->verify_all);
    if (strcmp(key, "enough") == 0)
        return attn_cli_double(value, &plan->enough_s) && plan->enough_s >= 0;
    if (strcmp(key, "budget") == 0)
        return attn_cli_double(value, &plan->budget_s) && plan->budget_s >= 0;
    if (strcmp(key, "timeout") == 0)
        return attn_cli_double(value, &plan->timeout_s) && plan->timeout_s >= 0;
    if (strcmp(key, "seed") != 0 || !attn_cli_int(value, 0, INT64_MAX, &seed))
        return 0;
    plan->seed = (uint64_t)seed;
    return 1;
}

/* One argument that is not a switch: its name without dashes, its value ("--name value" and
 * "--name=value"); how many arguments it took, 0 when it is no such thing. */
static int split(int argc, char **argv, int at, char name[32], const char **value)
{
    const char *text = argv[at];
    size_t n = strcspn(text, "=");
    if (strncmp(text, "--", 2) != 0 || n < 3 || n - 2 >= 32)
        return 0;
    memcpy(name, text + 2, n - 2);
    name[n - 2] = '\0';
    if (text[n] == '=') {
        *value = text + n + 1;
        return 1;
    }
    *value = at + 1 < argc ? argv[at + 1] : NULL;
    return *value != NULL ? 2 : 0;
}

/* Which of the places of a flag a name has; NULL: none. */
static const char **place(struct flags *flags, const char *name)
{
    return strcmp(name, "plan") == 0   ? &flags->plan
           : strcmp(name, "out") == 0  ? &flags->out
           : strcmp(name, "csv") == 0  ? &flags->csv
           : strcmp(name, "from") == 0 ? &flags->from
                                       : NULL;
}

static int is_external(const char *name)
{
    return strcmp(name, "plugin") == 0 || strcmp(name, "exec") == 0 || strcmp(name, "claims") == 0;
}

/* Was this flag among the arguments before `at`, where it may be only once? */
static int is_repeated(int at, char **argv, const char *name)
{
    char other[32];
    const char *value;
    if (strcmp(name, "spec") == 0 || strcmp(name, "mask") == 0 || is_external(name))
        return 0;
    for (int a = 1, took; a < at; a += took) {
        took = split(at, argv, a, other, &value);
        if (took > 0 && strcmp(other, name) == 0)
            return 1;
        if (took == 0 || strcmp(argv[a], "--dry-run") == 0 || strcmp(argv[a], "--quiet") == 0)
            took = 1;
    }
    return 0;
}

static int bad_argument(const char *text)
{
    return attn_cli_fail("measure", ATTN_EXIT_USAGE, "cannot use '%s'; see attnlab measure --help",
                         text);
}

/* Goes through the arguments twice: what --plan says must be known before keys are. */
static int read_places(int argc, char **argv, struct flags *flags)
{
    char name[32];
    const char *value;
    struct attn_error err = {ATTN_OK, ""};
    for (int a = 1, took; a < argc; a += took) {
        took = 1;
        if (strcmp(argv[a], "--dry-run") == 0)
            flags->dry_run = 1;
        else if (strcmp(argv[a], "--quiet") == 0)
            flags->quiet = 1;
        else if ((took = split(argc, argv, a, name, &value)) == 0)
            return bad_argument(argv[a]);
        else if (is_repeated(a, argv, name))
            return attn_cli_fail("measure", ATTN_EXIT_USAGE, "--%s was given before", name);
        else if (place(flags, name) != NULL)
            *place(flags, name) = value;
        else if (!is_external(name))
            flags->n_keys++;
        else if (attn_external_specs_add(flags->externals, name, value, &err) != ATTN_OK)
            return attn_cli_fail("measure", ATTN_EXIT_USAGE, "%s", err.text);
    }
    return ATTN_EXIT_GOOD;
}

static int read_keys(int argc, char **argv, struct flags *flags, struct attn_plan *plan)
{
    char name[32];
    const char *value;
    struct attn_error err = {ATTN_OK, ""};
    for (int a = 1, took; a < argc; a += took) {
        took = 1;
        if (strcmp(argv[a], "--dry-run") == 0 || strcmp(argv[a], "--quiet") == 0)
            continue;
        took = split(argc, argv, a, name, &value);
        if (place(flags, name) != NULL || is_external(name))
            continue;
        if (flags->plan != NULL && !override(plan, name, value))
            return bad_argument(argv[a]);
        if (flags->plan == NULL && set_key(flags, name, value, &err) != ATTN_OK)
            return attn_cli_fail("measure", attn_cli_status(err.status), "%s", err.text);
    }
    return ATTN_EXIT_GOOD;
}

/* The plan of a file, or of flags. */
static int make_plan(int argc, char **argv, struct flags *flags, struct attn_plan *plan)
{
    struct attn_error err = {ATTN_OK, ""};
    memset(plan, 0, sizeof *plan);
    if (attn_external_specs_meet(flags->externals, MEETING_S, &err) != ATTN_OK)
        return attn_cli_fail("measure", attn_cli_status(err.status), "%s", err.text);
    if (flags->plan != NULL) {
        if (attn_plan_read(flags->plan, flags->externals, plan, &err) != ATTN_OK)
            return attn_cli_fail("measure", attn_cli_status(err.status), "%s", err.text);
        return read_keys(argc, argv, flags, plan);
    }
    flags->draft = attn_plan_begin();
    if (flags->draft == NULL || attn_plan_group(flags->draft, "length", &err) != ATTN_OK) {
        attn_plan_abandon(flags->draft);
        return attn_cli_fail("measure", ATTN_EXIT_LACKS, "no memory");
    }
    attn_plan_invite(flags->draft, flags->externals);
    int status = read_keys(argc, argv, flags, plan);
    if (status != ATTN_EXIT_GOOD)
        attn_plan_abandon(flags->draft);
    else if (attn_plan_finish(flags->draft, plan, NULL, &err) != ATTN_OK)
        status = attn_cli_fail("measure", attn_cli_status(err.status), "%s", err.text);
    return status;
}

static int write_csv(const char *from, const char *to)
{
    struct attn_point *points = NULL;
    int64_t n = 0;
    struct attn_error err = {ATTN_OK, ""};
    if (attn_record_read(from, &points, &n, NULL, &err) != ATTN_OK)
        return attn_cli_fail("measure", attn_cli_status(err.status), "%s", err.text);
    int status = ATTN_EXIT_GOOD;
    if (strcmp(to, "-") == 0) {
        attn_csv_write(stdout, points, n);
        status = attn_cli_flush("measure");
    } else if (attn_csv_save(to, points, n, &err) != ATTN_OK)
        status = attn_cli_fail("measure", attn_cli_status(err.status), "table %s", err.text);
    free(points);
    return status;
}

int attn_cmd_measure(int argc, char **argv)
{
    static struct attn_external_specs externals;
    struct flags flags = {.externals = &externals};
    struct attn_plan plan;
    int64_t n_errors = 0;
    for (int a = 1; a < argc; a++)
        if (strcmp(argv[a], "--help") == 0 || strcmp(argv[a], "-h") == 0)
            return print_help();
    int status = read_places(argc, argv, &flags);
    if (status != ATTN_EXIT_GOOD)
        return status;
    if (flags.from != NULL) {
        if (flags.csv == NULL || flags.out != NULL || flags.plan != NULL || flags.n_keys > 0 ||
            externals.n > 0 || flags.dry_run)
            return attn_cli_fail("measure", ATTN_EXIT_USAGE,
                                 "--from goes with --csv and nothing else");
        return write_csv(flags.from, flags.csv);
    }
    status = make_plan(argc, argv, &flags, &plan);
    if (status == ATTN_EXIT_GOOD && flags.out == NULL && !flags.dry_run)
        status = attn_cli_fail("measure", ATTN_EXIT_USAGE, "--out FILE.jsonl is needed");
    if (status == ATTN_EXIT_GOOD) {
        struct attn_sweep_options options = {"measure", flags.dry_run, flags.quiet};
        status = attn_sweep_run(&plan, flags.out != NULL ? flags.out : "", &options, &n_errors);
    }
    attn_plan_free(&plan);
    int table = flags.csv != NULL && !flags.dry_run;
    if (table && (status == ATTN_EXIT_GOOD || status == ATTN_EXIT_DISAGREE)) {
        int wrote = write_csv(flags.out, flags.csv);
        status = wrote == ATTN_EXIT_GOOD ? status : wrote;
    }
    return status == ATTN_EXIT_GOOD && n_errors > 0 ? ATTN_EXIT_LACKS : status;
}
