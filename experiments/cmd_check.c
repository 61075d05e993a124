/* attnlab check: judge implementations on the battery and the relations, on one of them, or on
 * random cases. */
#include <string.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "tests/harness/cases/models.h"

#define PLACE(member) offsetof(struct attn_check_request, member)

static const struct attn_flag_use uses[] = {
    ATTN_TAKES(TIER, PLACE(tier), "quick",
               .help =
                   "quick (a few seconds for each SPEC) or full (attnlab list cases --tier full)"),
    ATTN_TAKES(CASE, PLACE(cases)),
    ATTN_TAKES(MODEL, PLACE(model), .value = "NAME",
               .help = "only the cases of the tier that have the shape of a "
                       "published model (attnlab list models)"),
    ATTN_TAKES(RELATION, PLACE(relation)),
    ATTN_TAKES(SOAK, PLACE(soak)),
    ATTN_TAKES(SEED, PLACE(seed), "1",
               .help = "of the random cases, and of the values that a tier draws"),
    ATTN_TAKES(REPEAT, PLACE(repeat),
               .help = "run every case N times in a row (1; in a soak 4, of a plug-in 16)"),
    ATTN_TAKES(FORMAT, PLACE(format), "text", .value = "text|junit|json",
               .help = "text: the worst first; junit: XML; json"),
    ATTN_TAKES(REPORT, PLACE(report)),
    ATTN_TAKES(STRICT, PLACE(strict)),
    ATTN_TAKES(VERBOSE, PLACE(verbose)),
    ATTN_TAKES(REFUSALS, PLACE(refusals)),
    {.flag = ATTN_FLAG_TITLE,
     .help = "External implementations, in the place of SPECs (docs/external.md); "
             "the worst exit status wins:"},
    ATTN_TAKES(PLUGIN, PLACE(externals), .value = "FILE.so"),
    ATTN_TAKES(EXEC, PLACE(externals), .value = "COMMAND"),
    ATTN_TAKES(SERVE, PLACE(externals)),
    ATTN_TAKES(CLAIMS, PLACE(externals),
               .help = "what the commands before it claim, JSON; a plug-in says it itself"),
    ATTN_TAKES(SCHEME, PLACE(scheme),
               .help = "commands are asked what each rank of SPEC holds at each step"),
    ATTN_TAKES(RESULTS, PLACE(externals)),
    ATTN_TAKES(VECTORS, PLACE(vectors)),
    ATTN_TAKES(TIMEOUT, PLACE(timeout)),
    ATTN_TAKES(BUDGET, PLACE(budget), NULL, ATTN_KIND_REAL, NULL,
               "seconds for all of it: what is not reached is SKIPPED; 0: no limit"),
    ATTN_TAKES(OUT, PLACE(work),
               .help =
                   "of a command: keep cases and results there (of several in DIR/1, DIR/2, ...)"),
    {.flag = ATTN_FLAG_END}};

static int check(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_check = {
    .name = "check",
    .summary = "judge implementations on the battery or on one case",
    .usage = "check [SPEC...] [flags]\n"
             "check --plugin FILE.so... [flags]\n"
             "check --exec COMMAND... --claims FILE [flags]\n"
             "check --serve AGAIN --claims FILE [flags]\n"
             "check --results DIR [--claims FILE] [flags]",
    .about =
        "Judge implementations against the oracle.  Without SPEC: every registered one.  Without\n"
        "--case and --relation: the battery (attnlab list cases), the relations that must hold\n"
        "between two runs, and for what has ranks or splits the growth of errors with them.",
    .flags = uses,
    .more = "  attnlab check tiled-textbook --tier full\n"
            "  attnlab check ring:ranks=4 \\\n"
            "      --case 'b1h2q128d32:causal(br):f32:stairs-up:s1:pass=bwd'\n"
            "\n"
            "attnlab help verdicts says what the words and numbers of a verdict mean.",
    .exits = "0 good; 1 a case fails, crashes, hangs, or a claim is never exercised; 2 it cannot "
             "be judged at all; 3 the environment lacks something, or the budget ended it.",
    .operands_most = -1,
    .computes = 1,
    .size = sizeof(struct attn_check_request),
    .run = check};

/* The cases of the tier that have the shape of a model. */
static int check_model(struct attn_check_request *asked, char **operand, int n)
{
    const struct attn_model *model;
    struct attn_model_case c[ATTN_MODEL_CASES];
    struct attn_error err;
    attn_cli_must(attn_model_find(asked->model, &model, &err), &err);
    asked->cases.n = asked->tier == ATTN_TIER_FULL ? ATTN_MODEL_CASES : 1;
    for (int i = 0; i < asked->cases.n; i++) {
        attn_model_case(model, i, ATTN_CAP_BF16 | ATTN_CAP_SINK | ATTN_CAP_KV_SHARED, &c[i]);
        asked->cases.at[i].value = c[i].name;
    }
    return attn_check(asked, operand, n);
}

/* Flags must not exclude each other, nor name what is not there. */
static int check(void *values, int n, char **operand)
{
    struct attn_check_request *asked = values;
    const char *relation = asked->relation;
    int externals = 0;
    if ((asked->cases.n > 0) + (asked->model != NULL) + (relation != NULL) + (asked->soak > 0) > 1)
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "--case, --model, --relation and --soak: one of them at a "
                             "time");
    const int growth = relation != NULL && strcmp(relation, "growth") == 0;
    if (relation != NULL && strcmp(relation, "all") != 0 && !growth &&
        attn_relation_find(relation) == NULL)
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "no relation is called '%s': there are R1 to R23, G1 to G9, D1 "
                             "to D3, P1, P2, I1, I2, growth and all (attnlab list relations)",
                             relation);
    if (attn_cli_runner() != NULL && (asked->externals.n > 0 || asked->soak > 0 || growth))
        return attn_cli_fail(
            ATTN_EXIT_USAGE,
            "--soak, --relation growth and external implementations are for one process: "
            "attnlab check");
    for (int x = 0; x < asked->externals.n; x++)
        externals += strcmp(asked->externals.at[x].flag, "claims") != 0;
    if (externals > 0 && (n > 0 || growth))
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             n > 0
                                 ? "a SPEC and an external implementation are not judged in "
                                   "one run"
                                 : "--relation growth is for implementations of attnlab: ranks and "
                                   "splits are options of a SPEC");
    if (externals == 0 && (asked->externals.n > 0 || asked->vectors != NULL ||
                           asked->work != NULL || asked->timeout > 0 || asked->budget > 0))
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "--claims, --vectors, --out, --timeout and --budget are for external "
                             "implementations: --plugin, --exec, --serve or --results");
    if (asked->budget > 0 && asked->soak > 0)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--budget and --soak: one of them at a time");
    return asked->model == NULL ? attn_check(asked, operand, n) : check_model(asked, operand, n);
}
