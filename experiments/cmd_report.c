/* attnlab report: measure, or read stored records; put the rounds of a point together; draw; write
 * the page. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/measure/sweep.h"
#include "experiments/report/curves.h"
#include "experiments/report/page.h"
#include "ref/clock.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"

struct flags {
    const char *plan, *out, *from;
    int quiet, overwrite;
    int preset;                 /* place among attn_figure_preset */
    struct attn_cli_list keys;  /* of the plan's session */
    struct attn_cli_list given; /* --plugin, --exec and --claims, in order */
    struct attn_subjects externals;
};

static const struct attn_flag_use uses[] = {
    ATTN_TAKES(PLAN, offsetof(struct flags, plan)),
    ATTN_TAKES(FROM, offsetof(struct flags, from)),
    ATTN_TAKES(OUT, offsetof(struct flags, out)),
    ATTN_TAKES(PRESET, offsetof(struct flags, preset), "page"),
    ATTN_TAKES(OVERWRITE, offsetof(struct flags, overwrite)),
    ATTN_TAKES(QUIET, offsetof(struct flags, quiet), .help = "no progress"),
    {.flag = ATTN_FLAG_TITLE, .help = "Of SPECs; with --plan, these replace what the file says:"},
    ATTN_TAKES(LENGTH, offsetof(struct flags, keys), NULL, ATTN_KIND_ONCE, NULL,
               "of all groups; a `limit` holds as before"),
    ATTN_TAKES(MASK, offsetof(struct flags, keys), .help = "of all groups (attnlab list masks)"),
    ATTN_TAKES(BUDGET, offsetof(struct flags, keys), NULL, ATTN_KIND_ONCE, NULL),
    ATTN_TAKES(ROUNDS, offsetof(struct flags, keys), NULL, ATTN_KIND_ONCE, NULL),
    {.flag = ATTN_FLAG_TITLE, .help = "Of SPECs alone:"},
    ATTN_TAKES(PASS, offsetof(struct flags, keys), "fwd", ATTN_KIND_ONCE, "fwd|bwd|both"),
    ATTN_TAKES(HEADS, offsetof(struct flags, keys), "1", ATTN_KIND_ONCE, NULL),
    {.flag = ATTN_FLAG_TITLE, .help = "Yours beside ours; each joins every group:"},
    ATTN_TAKES(PLUGIN, offsetof(struct flags, given)),
    ATTN_TAKES(EXEC, offsetof(struct flags, given)),
    ATTN_TAKES(CLAIMS, offsetof(struct flags, given)),
    {.flag = ATTN_FLAG_END}};

static int report(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_report = {
    .name = "report",
    .summary = "measure, draw, and write a page",
    .usage = "report --plan FILE --out DIR                 measure, then draw\n"
             "report SPEC... --length L,... --out DIR      the same of these\n"
             "report --from RECORDS --out DIR              draw stored records\n"
             "report --from RECORDS --plan FILE --out DIR  with labels of FILE\n"
             "report --out DIR                             draw it again",
    .about =
        "Writes DIR/index.html (one page, nothing external), DIR/records.csv, DIR/summary.csv "
        "(a line\n"
        "for each point, all rounds together), and under DIR/figures every figure: NAME.csv (its\n"
        "numbers), NAME.gp (a script for gnuplot whose first lines are its words, ranges and "
        "colours,\n"
        "to be edited), and the pictures .svg, .png and .pdf; `gnuplot NAME.gp` in that folder "
        "draws\n"
        "it again.  With --plan the records go to\n"
        "DIR/records.jsonl; an interrupted measurement is continued by the same command.  Figures\n"
        "pick their points by the first word of a group's name (docs/measuring.md), one of\n"
        " "
#define GROUP(id, word, ...) " " word
#include "experiments/measure/group_words.def"
#undef GROUP
        "",
    .flags = uses,
    .more = "  attnlab report --plan experiments/plans/quick.plan --out build/quick\n"
            "  attnlab report dense tiled --length 128,256,512 --pass both --out build/mine",
    .exits = "0 good; 1 a result was wrong (the page says which); 2 usage, bad records, or no "
             "group that has a figure; 3 gnuplot or its scripts are missing, DIR cannot be "
             "written, a point could not be measured, or no figure has enough good points.",
    .operands_most = -1,
    .computes = 1,
    .size = sizeof(struct flags),
    .run = report};

/* Everything of one report, which lives as long as the program. */
struct report {
    char records[PATH_MAX], figures_folder[PATH_MAX];
    struct attn_records read;
    struct attn_plan plan; /* empty without --plan */
    int64_t n_errors;      /* of the measurement just made */
    struct attn_summary summary;
    struct attn_figure_groups groups;
    struct attn_figures figures;
};

/* 1: points are measured, those of a plan or of SPECs; 0: records are read. */
static int measures(const struct flags *flags)
{
    for (int k = 0; k < flags->keys.n; k++)
        if (strcmp(flags->keys.at[k].flag, "spec") == 0)
            return 1;
    return flags->plan != NULL && flags->from == NULL;
}

static void check_flags(struct flags *flags, int n, char **operand)
{
    if (n > 0 && (flags->plan != NULL || flags->from != NULL))
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "'%.60s': a SPEC is measured by itself: without --plan and --from it works",
                      operand[0]);
    struct attn_error err;
    attn_cli_must(attn_cli_take_specs(&flags->keys, n, operand, &err), &err);
    if (flags->out == NULL)
        attn_cli_stop(ATTN_EINVAL, NULL, "--out DIR is missing");
    if (flags->out[0] == '\0')
        attn_cli_stop(ATTN_EINVAL, NULL, "--out '' names no folder; . is this one");
    if (flags->plan == NULL && !measures(flags) && flags->given.n > 0)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "a plug-in or a command belongs to a plan: --plan FILE is missing");
    if (flags->keys.n > 0 && !measures(flags))
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--%s is of measuring: it goes with --plan or a SPEC, without --from",
                      flags->keys.at[0].flag);
}

/* ---- folders ------------------------------------------------------------------------------- */

/* Make a folder and those above it. */
static enum attn_status make_folders(const char *path, struct attn_error *err)
{
    char part[PATH_MAX];
    enum attn_status status = ATTN_OK;
    for (size_t n = 1; status == ATTN_OK && path[n - 1] != '\0'; n++)
        if (path[n] == '/' || path[n] == '\0') {
            (void)snprintf(part, sizeof part, "%.*s", (int)n, path);
            status = attn_folder_make(part, err);
        }
    return status;
}

/* The report's folder is made and checked before anything is read or measured. */
static void prepare(const struct flags *flags, struct report *r)
{
    const char *out = flags->out;
    char *style;
    if (!attn_draw_possible())
        attn_cli_stop(ATTN_ENOMEM, NULL,
                      "gnuplot cannot be started; install it (Debian: apt-get install "
                      "gnuplot-nox), or use attnlab measure, which needs none");
    if (attn_plots_read("style.gp", &style, NULL) != ATTN_OK)
        attn_cli_stop(ATTN_ENOMEM, NULL,
                      "the gnuplot scripts are missing: there is no plots/style.gp here or above "
                      "the program; run attnlab from its source folder");
    free(style);
    struct attn_error err;
    if (snprintf(r->records, sizeof r->records, "%s/records.jsonl", out) >= PATH_MAX ||
        snprintf(r->figures_folder, sizeof r->figures_folder, "%s/figures", out) >= PATH_MAX)
        attn_cli_stop(ATTN_EINVAL, NULL, "--out is too long");
    if (!flags->overwrite)
        attn_cli_must(attn_scripts_check(r->figures_folder, &err), &err);
}

/* Called when flags, plan and records are good: a failure before that leaves no folder. */
static void make_out(const struct flags *flags, const struct report *r)
{
    static const char *const file[] = {"index.html", "records.csv", "summary.csv",
                                       "figures/style.gp"};
    struct attn_error err;
    attn_cli_must(make_folders(r->figures_folder, &err), &err);
    /* The folder is locked for this report until the program ends.  Not every file system locks. */
    int fd = open(flags->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        attn_cli_stop(ATTN_ENOMEM, NULL,
                      "another report is at work in %.200s: wait for it, or name another folder",
                      flags->out);
    for (size_t f = 0; f < sizeof file / sizeof *file; f++) {
        char *path = attn_cli_text("%s/%s", flags->out, file[f]);
        attn_cli_must(attn_save_check(path, &err), &err);
        free(path);
    }
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Adds the external implementations of stored records: a plan may name them, too. */
static void know_externals(struct attn_subjects *externals, const struct attn_records *all)
{
    for (int64_t i = 0; i < all->n && externals->n < ATTN_SUBJECTS; i++) {
        const struct attn_point *p = &all->point[i];
        if (p->route[0] != '\0' && attn_subjects_find(externals, p->spec) == NULL)
            (void)snprintf(externals->one[externals->n++].name, sizeof externals->one[0].name,
                           "%.31s", p->spec);
    }
}

/* Read before anything is measured, so that an error in the file shows at once. */
static void read_plan(struct flags *flags, struct report *r)
{
    struct attn_error err;
    if (flags->plan == NULL && !measures(flags))
        return;
    attn_cli_must(attn_subjects_open(&flags->externals, &flags->given, &flags->keys, &err), &err);
    if (flags->from != NULL)
        know_externals(&flags->externals, &r->read);
    attn_cli_must(flags->plan != NULL
                      ? attn_plan_read(flags->plan, &flags->keys, &flags->externals, &r->plan, &err)
                      : attn_plan_from_flags(&flags->keys, &flags->externals, &r->plan, &err),
                  &err);
    /* The page prints the flags of each external; those that know_externals() added have none. */
    while (flags->externals.n > 0 && flags->externals.one[flags->externals.n - 1].route == NULL)
        flags->externals.n--;
}

static const char *records_of(const struct flags *flags, const struct report *r)
{
    return flags->from != NULL ? flags->from : r->records;
}

static void read_records(const struct flags *flags, struct report *r)
{
    struct attn_error err;
    attn_cli_must(attn_record_read(records_of(flags, r), &r->read, &err), &err);
}

static void fold(struct report *r)
{
    struct attn_records *all = &r->read;
    attn_summary_make(all->point, all->n, &r->summary);
    /* The plan given now has the last word, whatever the records were measured with. */
    if (r->plan.labels != NULL && all->labels != NULL &&
        json_array_extend(all->labels, r->plan.labels) != 0)
        attn_cli_stop(ATTN_ENOMEM, NULL, "no memory");
    attn_groups_make(&r->summary, all->labels, &r->groups);
    attn_curves_study(&r->groups);
}

/* Says which labels of the plan name a SPEC that their group has no record of. */
static void say_unmatched(const struct report *r)
{
    for (size_t g = 0; g < json_array_size(r->plan.labels); g++) {
        json_t *labels = json_array_get(r->plan.labels, g), *text;
        const char *group = json_string_value(json_object_get(labels, "group")), *subject;
        json_object_foreach(json_object_get(labels, "label"), subject, text)
        {
            int64_t s = 0;
            while (s < r->summary.n &&
                   !(strcmp(r->summary.row[s].point->group, group) == 0 &&
                     attn_spec_is_named(r->summary.row[s].point->spec, subject)))
                s++;
            if (s == r->summary.n)
                (void)attn_cli_fail(0, "group %s: label names '%.60s', of which it has no record",
                                    group, subject);
        }
    }
}

static void write_csv(const struct flags *flags, const struct report *r)
{
    char path[PATH_MAX + 16];
    struct attn_error err;
    (void)snprintf(path, sizeof path, "%s/records.csv", flags->out);
    attn_cli_must(attn_csv_save(path, r->read.point, r->read.n, &err), &err);
    (void)snprintf(path, sizeof path, "%s/summary.csv", flags->out);
    attn_cli_must(attn_summary_csv_save(path, &r->groups, &err), &err);
}

/* Every figure carries the machine that it was made on; the page names the build, once. */
static void describe_machine(const struct report *r, struct attn_figure_machine *m)
{
    char memory[32] = "";
    const struct attn_records *all = &r->read;
    const char *cpu = json_string_value(json_object_get(all->machine, "cpu"));
    json_int_t cores = json_integer_value(json_object_get(all->machine, "cores_online"));
    m->memory_bytes = json_integer_value(json_object_get(all->machine, "memory_total_bytes"));
    const char *build = all->n > 0 ? all->point[all->n - 1].build : "", *others = "";
    for (int64_t i = 0; i < all->n; i++)
        if (strcmp(all->point[i].build, build) != 0)
            others = "; several builds";
    m->text[0] = '\0';
    if (m->memory_bytes > 0)
        (void)attn_cli_bytes(m->memory_bytes, memory);
    if (all->machines_differ)
        m->memory_bytes = 0; /* no line of memory in figures: it would be of one machine */
    if (all->machines_differ)
        (void)snprintf(m->text, sizeof m->text, "several machines%s", others);
    else if (cpu != NULL)
        (void)snprintf(m->text, sizeof m->text, "%.120s, %lld core%s%s%s%s", cpu, (long long)cores,
                       cores == 1 ? "" : "s", memory[0] != '\0' ? ", " : "", memory, others);
}

/* The page that it wrote, to be freed. */
static char *draw(const struct flags *flags, struct report *r)
{
    struct attn_figure_machine machine;
    struct attn_error err = {ATTN_OK, ""};
    struct attn_page page = {.out = flags->out,
                             .records = &r->read,
                             .from = records_of(flags, r),
                             .plan = flags->plan,
                             .keys = &flags->keys,
                             .externals = &flags->externals,
                             .summary = &r->summary,
                             .groups = &r->groups,
                             .figures = &r->figures};
    describe_machine(r, &machine);
    attn_cli_must(attn_figures_make(&r->groups, &machine, &r->figures, &err), &err);
    for (int f = 0; f < r->figures.n; f++) { /* none is written unless all may be */
        struct attn_figure *figure = &r->figures.figure[f];
        figure->overwrite = flags->overwrite;
        figure->preset = attn_figure_preset[flags->preset];
        if (figure->omitted[0] == '\0')
            attn_cli_must(attn_figure_check(figure, r->figures_folder, &err), &err);
    }
    for (int f = 0; f < r->figures.n; f++)
        if (r->figures.figure[f].omitted[0] == '\0')
            attn_cli_must(attn_draw(&r->figures.figure[f], r->figures_folder, &err), &err);
    char *path;
    attn_cli_must(attn_page_write(&page, &path, &err), &err);
    return path;
}

/* Names the groups that get no figure, because their names say nothing. */
static void say_no_figure(const struct report *r)
{
    for (int g = 0; g < r->groups.n; g++)
        if (r->groups.group[g].kind == ATTN_GROUP_OTHER)
            (void)attn_cli_fail(0,
                                "group %s is a table and no figure: its name begins with none of%s",
                                r->groups.group[g].name, attn_group_word_list);
}

/* The exit status, when the page is written: 1 if a result is wrong, else 3 if a point could not be
 * measured, else 2 or 3 if there is no figure.  A missing figure is said on standard error. */
static int judge(const struct report *r)
{
    int64_t n_status[ATTN_POINT_ERROR + 1] = {0};
    int n_drawn = 0;
    char text[256] = "";
    for (int f = 0; f < r->figures.n; f++)
        n_drawn += r->figures.figure[f].omitted[0] == '\0';
    for (int64_t s = 0; s < r->summary.n; s++)
        n_status[r->summary.row[s].status]++;
    for (int status = 0; status <= ATTN_POINT_ERROR; status++)
        if (n_status[status] > 0)
            attn_append(text, sizeof text, "%s%lld %s", text[0] != '\0' ? ", " : "",
                        (long long)n_status[status],
                        attn_status_phrase((enum attn_point_status)status));
    int status = n_drawn > 0 ? ATTN_EXIT_GOOD
                 : r->figures.n == 0 && r->summary.n > 0
                     ? attn_cli_fail(ATTN_EXIT_USAGE,
                                     "the page has tables and no figure: the names of its groups "
                                     "begin with none of%s (docs/measuring.md)",
                                     attn_group_word_list)
                     : attn_cli_fail(ATTN_EXIT_LACKS,
                                     "the page has no figure: a curve needs two good points of one "
                                     "implementation; of %lld points: %s",
                                     (long long)r->summary.n, text[0] != '\0' ? text : "none");
    return n_status[ATTN_POINT_WRONG] > 0 ? ATTN_EXIT_DISAGREE
           : r->n_errors > 0              ? ATTN_EXIT_LACKS
                                          : status;
}

static int report(void *values, int n, char **operand)
{
    struct flags *asked = values;
    static struct report r;
    double begin = attn_seconds(CLOCK_MONOTONIC);
    check_flags(asked, n, operand);
    prepare(asked, &r);
    int is_measured = measures(asked);
    if (!is_measured)
        read_records(asked, &r);
    read_plan(asked, &r);
    make_out(asked, &r);
    if (is_measured) {
        int status = attn_sweep_run(&r.plan, r.records, 0, asked->quiet, &r.n_errors);
        if (status != ATTN_EXIT_GOOD && status != ATTN_EXIT_DISAGREE)
            return attn_cli_fail(status,
                                 "nothing is drawn; the same command goes on measuring, and "
                                 "attnlab report --out %s draws what there is",
                                 asked->out);
    }
    if (is_measured)
        read_records(asked, &r);
    fold(&r);
    say_unmatched(&r);
    write_csv(asked, &r);
    char *page = draw(asked, &r);
    say_no_figure(&r);
    int status = judge(&r);
    if (status == ATTN_EXIT_DISAGREE)
        (void)attn_cli_fail(status, "some results are wrong; the page says which");
    char shown[PATH_MAX];
    (void)printf("%s  (%.1f s)\n", attn_cleaned(page, shown, sizeof shown),
                 attn_seconds(CLOCK_MONOTONIC) - begin);
    free(page);
    return status;
}
