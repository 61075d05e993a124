/* attnlab worker: the process in which a plug-in runs (tests/harness/subject/worker.h). */
#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "tests/harness/subject/worker.h"

#include <sys/stat.h>

/* The host holds the other end of both; whatever else happens to be open here is not ours. */
static int is_pipe(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode);
}

static int worker(void *values, int n, char **operand);

static const struct attn_flag_use flags[] = {{.flag = ATTN_FLAG_END}};

const struct attn_cli_command attn_cmd_worker = {
    .name = "worker",
    .summary = "the process of a plug-in (used by check)",
    .usage = "worker FILE.so",
    .about = "The process in which a plug-in runs; attnlab check --plugin starts it.",
    .flags = flags,
    .more = "",
    .operands_least = 1,
    .operands_most = 1,
    .internal = 1,
    .run = worker};

static int worker(void *values, int n, char **operand)
{
    (void)values, (void)n;
    if (!is_pipe(ATTN_WORKER_REQUESTS) || !is_pipe(ATTN_WORKER_FD))
        return attn_cli_fail(ATTN_EXIT_USAGE, "is started by attnlab check --plugin, not by hand");
    attn_cli_leave(0); /* exit(1) of a plug-in is its own word */
    return attn_worker_serve(operand[0]);
}
