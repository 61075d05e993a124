/* attnlab point: one point in this process, which does nothing else (measure/point/point.h). */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
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

static const struct attn_flag_use uses[] = {{.flag = ATTN_FLAG_END}};

static int point(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_point = {
    .name = "point",
    .summary = "one point of a measurement (used by measure)",
    .usage = "point RECORD",
    .about = "Measure one point in this process and print its record, one line of JSON\n"
             "(docs/measuring.md).  RECORD is such a line too: it says what is measured, and has "
             "repeat,\n"
             "enough_s and verify_all beside.  `attnlab measure` starts one such process for each "
             "point\n"
             "and round.",
    .flags = uses,
    .operands_least = 1,
    .operands_most = 1,
    .computes = 1,
    .internal = 1,
    .run = point};

/* This process writes no core file of gigabytes and dies with its parent.  It is the first that the
 * kernel kills when memory runs out. */
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

/* Returns a stream to the standard output of before, for the record; NULL: see errno.  From now on
 * standard output is standard error, because code of others may print. */
static FILE *set_output_aside(void)
{
    int record = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    if (record < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return NULL;
    return fdopen(record, "w");
}

static int measure(const json_t *line)
{
    static struct attn_point p;
    struct attn_point_how how;
    struct attn_error err = {ATTN_OK, ""};
    if (attn_point_asked(line, &how, &p, &err) != ATTN_OK)
        return attn_cli_error(&err);
    int is_ours = p.route[0] == '\0';
    FILE *out = is_ours ? stdout : set_output_aside();
    if (out == NULL)
        return attn_cli_fail(ATTN_EXIT_LACKS, "standard output: %s", strerror(errno));
    attn_point_measure(&how, &p);
    if (attn_record_write_point(out, &p) != 0)
        return attn_cli_fail(ATTN_EXIT_LACKS, "standard output: %s", strerror(errno));
    int status = p.status == ATTN_POINT_WRONG ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD;
    if (!is_ours)
        _exit(status); /* no destructors of external code: the record is written */
    return status;
}

static int point(void *values, int n, char **operand)
{
    struct attn_error err = {ATTN_OK, ""};
    const char *kind;
    (void)values;
    (void)n;
    be_expendable();
    json_t *line = attn_record_line(operand[0], strlen(operand[0]), &kind, &err);
    if (line == NULL)
        return attn_cli_error(&err);
    int64_t bytes = json_integer_value(json_object_get(line, "expected_bytes"));
    int is_calibration = kind != NULL && strcmp(kind, "calibration") == 0 && bytes > 0;
    int status = is_calibration ? attn_calibrate_memory_here(bytes) : measure(line);
    json_decref(line);
    return status;
}
