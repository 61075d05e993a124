/* attnlab grade: points for a submission to a lab, or for each of a class; the task of a seed. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/grade/grading.h"
#include "experiments/rim/grade/prices.h"
#include "tests/harness/base/ending.h"

struct flags {
    const char *exec, *claims, *seed;
    int format;
};

#define TO(member) offsetof(struct flags, member)

static const struct attn_flag_use uses[] = {
    ATTN_TAKES(EXEC, TO(exec), .kind = ATTN_KIND_TEXT, .value = "COMMAND",
               .help = "a command, run as COMMAND CASES OUT (docs/external.md)"),
    ATTN_TAKES(CLAIMS, TO(claims), .kind = ATTN_KIND_TEXT,
               .help = "what the command does, JSON; a plug-in says it itself"),
    ATTN_TAKES(
        SEED, TO(seed), "", ATTN_KIND_TEXT, "NAME[:KEY]",
        "NAME draws conventions of the task, such as the base of LSE, in a class NAME/STUDENT; "
        "KEY, which students do not know, the numbers that are asked"),
    ATTN_TAKES(FORMAT, TO(format), "text", .value = "text|json|csv"),
    {.flag = ATTN_FLAG_END}};

static int grade(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_grade = {
    .name = "grade",
    .summary = "points for a submission to a lab (docs/labs)",
    .usage = "grade LAB FILE [--seed NAME]\n"
             "grade LAB --exec COMMAND --claims FILE [--seed NAME]\n"
             "grade LAB DIR [--seed NAME]\n"
             "grade LAB [--seed NAME]",
    .about =
        "Grade a plug-in, FILE.so, or a command, by the criteria of a lab (docs/labs/README.md),\n"
        "out of 100.  Of each that is lost: the first case that fails, the likely fault, the\n"
        "command that repeats it, and what to read.  Of a folder, every submission in it: NAME.so, "
        "or\n"
        "NAME/ with lab.json and a file `command`, one line.  Without a submission the task is "
        "printed.",
    .flags = uses,
    .more = "  attnlab grade 06 tiled.c\n"
            "\n"
            "Every submission runs in a process of its own, with limits.  One that writes to "
            "inputs or\n"
            "to files that are not its own, leaves processes behind or ends others has 0 points.",
    .exits = "0 all points, or a class is graded; 1 fewer; 2 there is no such lab or file; 3 the "
             "environment lacks something.",
    .operands_least = 1,
    .operands_most = 2,
    .computes = 1,
    .size = sizeof(struct flags),
    .run = grade};

static const struct attn_lab *find(const char *name)
{
    char known[400] = "";
    const struct attn_lab *lab = attn_lab_find(name);
    for (int l = 0; attn_lab_at(l) != NULL; l++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", attn_lab_at(l)->name);
    if (lab == NULL)
        attn_cli_stop(ATTN_EINVAL, NULL, "no lab is called '%s'; there are:%s", name, known);
    return lab;
}

static void check_flags(const struct flags *f, const struct attn_lab *lab, const char *file)
{
    if (file != NULL && f->exec != NULL)
        attn_cli_stop(ATTN_EINVAL, NULL, "FILE or --exec: one of them");
    const int has_claims = lab->form == ATTN_LAB_CODE;
    if ((f->exec != NULL && has_claims) != (f->claims != NULL))
        attn_cli_stop(ATTN_EINVAL, NULL,
                      has_claims ? "--exec and --claims go together"
                                 : "%s is asked no case: there is nothing to claim",
                      lab->name);
    if (file != NULL && access(file, R_OK) != 0)
        attn_cli_stop(ATTN_EINVAL, file, "cannot be read");
}

static int is_folder(const char *path)
{
    struct stat info;
    return path != NULL && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

struct printing {
    const struct attn_lab *lab;
    enum attn_sheet_format format;
};

static void print(void *arg, const struct attn_sheet *sheet)
{
    const struct printing *p = arg;
    if (p->format == ATTN_SHEET_TEXT)
        attn_sheet_line(sheet, stdout);
    else
        attn_sheet_print(sheet, p->format, stdout);
    fflush(stdout);
}

static int grade_class(const struct flags *f, const struct attn_task *task, const char *folder)
{
    struct attn_error err = {0};
    struct printing p = {task->lab, (enum attn_sheet_format)f->format};
    const struct attn_grade_class class = {task->lab, folder, task->seed, task->hidden, print, &p};
    attn_sheet_head(task->lab, p.format, stdout);
    attn_cli_must(attn_class_grade(&class, &err), &err);
    return attn_cli_flush();
}

static int grade(void *values, int n, char **operand)
{
    const struct flags *f = values;
    if (n == 2 && strcmp(operand[0], "prices") == 0) /* a child of kind_prices.c */
        return attn_price_serve(operand[1]);
    const struct attn_lab *lab = find(operand[0]);
    const char *file = n > 1 ? operand[1] : NULL;
    struct attn_sheet sheet;
    struct attn_task task;
    struct attn_error err = {0};
    char seed[151];
    check_flags(f, lab, file);
    const char *key = strchr(f->seed, ':');
    snprintf(seed, sizeof seed, "%.*s", (int)(key != NULL ? key - f->seed : 150), f->seed);
    attn_cli_must(attn_task_make(lab, seed, key != NULL ? key + 1 : "", &task, &err), &err);
    if (file == NULL && f->exec == NULL) {
        if (f->format == ATTN_SHEET_CSV)
            attn_cli_stop(ATTN_EINVAL, NULL,
                          "csv has points, and there is no submission: a task "
                          "is --format text or json");
        attn_task_print(&task, (enum attn_sheet_format)f->format, stdout);
        return attn_cli_flush();
    }
    if (is_folder(file))
        return grade_class(f, &task, file);
    const char *source = f->exec != NULL ? f->exec : file;
    const struct attn_submission of = {
        .name = source,
        .x = {.route = f->exec != NULL ? &attn_exec_route : &attn_plugin_route,
              .source = source,
              .claims_path = f->claims}};
    attn_grade(&task, &of, &sheet);
    if (attn_process_interrupted())
        return attn_cli_fail(ATTN_EXIT_LACKS, "interrupted: nothing is graded");
    if (f->format == ATTN_SHEET_CSV)
        attn_sheet_head(lab, ATTN_SHEET_CSV, stdout);
    attn_sheet_print(&sheet, (enum attn_sheet_format)f->format, stdout);
    int flushed = attn_cli_flush(), points = 0;
    for (int c = 0; c < sheet.n; c++)
        points += sheet.outcome[c].points;
    return flushed != 0 ? flushed : sheet.total == points ? ATTN_EXIT_GOOD : ATTN_EXIT_DISAGREE;
}
