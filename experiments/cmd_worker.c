/* attnlab worker: a submission to lab 07 in a process of its own (experiments/rim/grade/prices.h). */
#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/rim/grade/prices.h"

static int worker(void *values, int n, char **operand);

static const struct attn_flag_use flags[] = {{.flag = ATTN_FLAG_END}};

const struct attn_cli_command attn_cmd_worker = {
    .name = "worker",
    .summary = "the prices of a submission to lab 07 (used by grade)",
    .usage = "worker FILE.so prices",
    .about = "Answers problems of lab 07, a line of standard input each.",
    .flags = flags,
    .more = "",
    .operands_least = 2,
    .operands_most = 2,
    .internal = 1,
    .run = worker};

static int worker(void *values, int n, char **operand)
{
    (void)values, (void)n;
    return attn_price_serve(operand[0]);
}
