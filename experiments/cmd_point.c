/* attnlab point: one point in this process, which does nothing else (measure/point.h). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/measure/calibrate.h"
#include "experiments/measure/point/point.h"
#include "experiments/price/stack.h"

#define PLACE(member) offsetof(struct attn_point_flags, member)

static const struct attn_flag_use uses[] = {
    ATTN_TAKES(SPEC, PLACE(spec), .kind = ATTN_KIND_TEXT),
    ATTN_TAKES(CASE, PLACE(text), .kind = ATTN_KIND_TEXT, .help = "a case string"),
    ATTN_TAKES(PLUGIN, PLACE(plugin), .kind = ATTN_KIND_TEXT, .value = "FILE.so"),
    ATTN_TAKES(EXEC, PLACE(exec), .kind = ATTN_KIND_TEXT, .value = "COMMAND"),
    ATTN_TAKES(CLAIMS, PLACE(claims), .kind = ATTN_KIND_TEXT),
    ATTN_TAKES(NAME, PLACE(name)),
    ATTN_TAKES(WORK, PLACE(work)),
    ATTN_TAKES(LAYERS, PLACE(layers), "0"),
    ATTN_TAKES(SAVE, PLACE(save), "rows"),
    ATTN_TAKES(HIDDEN, PLACE(hidden), "0"),
    ATTN_TAKES(REPEAT, PLACE(repeat), "10",
               .help = "warm calls, those after the first one, at most"),
    ATTN_TAKES(ENOUGH, PLACE(enough), "0.3", ATTN_KIND_REAL),
    ATTN_TAKES(VERIFY_ALL, PLACE(verify_all), "2048", ATTN_KIND_COUNT),
    ATTN_TAKES(VERIFIED, PLACE(verified)),
    ATTN_TAKES(CALIBRATE_MEMORY, PLACE(calibrate)),
    {.flag = ATTN_FLAG_END}};

static int point(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_point = {
    .name = "point",
    .summary = "one point of a measurement (used by measure)",
    .usage = "point --spec SPEC --case CASE [flags]\n"
             "point --plugin FILE.so --name NAME --case CASE [flags]\n"
             "point --exec COMMAND --claims FILE --work DIR --name NAME --case CASE [flags]\n"
             "point --calibrate-memory BYTES",
    .about =
        "Measure one point in this process and print its record, one line of JSON\n"
        "(docs/measuring.md).  `attnlab measure` starts one such process for each point and round.",
    .flags = uses,
    .more = "",
    .computes = 1,
    .internal = 1,
    .size = sizeof(struct attn_point_flags),
    .run = point};

/* No core files of gigabytes, no survivor of a parent that died, and the first to go when memory
 * runs out. */
static void be_expendable(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FILE *file = fopen("/proc/self/oom_score_adj", "we");
    if (file != NULL) {
        fputs("1000", file);
        fclose(file);
    }
}

static void check_flags(const struct attn_point_flags *flags)
{
    if (flags->repeat > ATTN_RECORD_TIMES)
        attn_cli_stop(ATTN_EINVAL, NULL, "--repeat %lld: a record has room for %d",
                      (long long)flags->repeat, ATTN_RECORD_TIMES);
    int which = (flags->spec != NULL) + (flags->plugin != NULL) + (flags->exec != NULL);
    if (flags->layers > 0 && flags->spec == NULL)
        attn_cli_stop(ATTN_EINVAL, NULL, "--layers goes with --spec");
    if (flags->hidden > 0 && flags->layers == 0)
        attn_cli_stop(ATTN_EINVAL, NULL, "--hidden goes with --layers");
    int named = flags->spec != NULL || flags->name != NULL;
    if (flags->calibrate == 0 &&
        (which != 1 || !named || flags->text == NULL ||
         (flags->exec != NULL && (flags->claims == NULL || flags->work == NULL))))
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--spec, --plugin or --exec, and --case are needed; see attnlab point "
                      "--help");
}

/* Whose point it is.  The descriptor for the record; -1 on failure. */
static int choose(struct attn_point_work *work, const struct attn_point_flags *flags,
                  struct attn_error *err)
{
    struct attn_point *p = &work->point;
    if (attn_case_parse(flags->text, &p->c, err) != ATTN_OK)
        return -1;
    attn_case_print(&p->c, p->text);
    if (flags->spec != NULL) {
        p->stack = (struct attn_stack){.n = flags->layers, .hidden = flags->hidden};
        if (attn_spec_parse(flags->spec, &work->spec, err) != ATTN_OK ||
            attn_stack_save_find(flags->save, &p->stack.save, err) != ATTN_OK)
            return -1;
        attn_spec_print(&work->spec, p->spec, sizeof p->spec);
        return STDOUT_FILENO;
    }
    snprintf(p->spec, sizeof p->spec, "%s", flags->name);
    snprintf(p->impl, sizeof p->impl, "%s", flags->name);
    return flags->plugin != NULL ? attn_point_load(work, flags, err) : STDOUT_FILENO;
}

static int point(void *values, int n, char **operand)
{
    const struct attn_point_flags *asked = values;
    static struct attn_point_work work; /* too large for the stack: it has room for all samples */
    struct attn_error err = {ATTN_OK, ""};
    (void)n;
    (void)operand;
    check_flags(asked);
    be_expendable();
    if (asked->calibrate > 0)
        return attn_calibrate_memory_here(asked->calibrate);
    attn_point_init(&work.point);
    int fd = choose(&work, asked, &err);
    FILE *out = fd == STDOUT_FILENO ? stdout : fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out == NULL)
        return attn_cli_fail(ATTN_EXIT_USAGE, "%s", fd >= 0 ? strerror(errno) : err.text);
    if (asked->exec != NULL)
        attn_point_exec(&work, asked);
    else
        attn_point_call(&work, asked);
    if (attn_record_write_point(out, &work.point) != 0)
        return attn_cli_fail(ATTN_EXIT_LACKS, "standard output: %s", strerror(errno));
    int status = work.point.status == ATTN_POINT_WRONG ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD;
    if (asked->plugin != NULL)
        _exit(status); /* what an external implementation's destructors do comes too late */
    return status;
}
