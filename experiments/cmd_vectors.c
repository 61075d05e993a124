/* attnlab vectors: write the cases of the battery as files, for an implementation elsewhere. */
#include <stdio.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "tests/harness/external/vector_files.h"

struct request {
    struct attn_cli_list cases;
    const char *claims;
    int tier;
};

static const struct attn_flag_use flags[] = {
    {.flag = ATTN_FLAG_CLAIMS,
     offsetof(struct request, claims),
     .kind = ATTN_KIND_TEXT,
     .help = "what the implementation claims; without it: f32, lengths that differ, dv, gqa, any "
             "mask, any scale, backward"},
    {.flag = ATTN_FLAG_TIER, offsetof(struct request, tier), "quick"},
    {.flag = ATTN_FLAG_CASE, offsetof(struct request, cases)},
    {.flag = ATTN_FLAG_END}};

static int vectors(int argc, char **argv);

const struct attn_cli_command attn_cmd_vectors = {
    .name = "vectors",
    .summary = "write the cases as files, for an implementation elsewhere",
    .usage = "vectors DIR [flags]",
    .about =
        "Write the inputs of cases to DIR/NAME/inputs.safetensors, and DIR/manifest.json.  "
        "Compute\n"
        "the outputs wherever you like, put them into OUT/NAME/result.safetensors (or result.npz,\n"
        "or o.npy, lse.npy, ...), then: attnlab check --results OUT --vectors DIR.  OUT may be "
        "DIR.\n"
        "docs/external.md is the manual.",
    .flags = flags,
    .more = "",
    .operands_least = 1,
    .operands_most = 1,
    .run = vectors};

/* What somebody who says nothing is taken to claim. */
static const char preset[] =
    "{\"name\": \"results\", \"claims\": [\"f32\", \"cross\", \"dv\", \"gqa\", \"scale\", \"band\","
    "\"dense\", \"backward\"]}";

static int vectors(int argc, char **argv)
{
    static struct request request;
    int written, exit_status = attn_cli_read(&attn_cmd_vectors, argc, argv, &request, NULL);
    if (exit_status >= 0)
        return exit_status;
    struct attn_claims claims;
    struct attn_question question = {0};
    struct attn_error err = {0};
    enum attn_status status = request.claims != NULL
                                  ? attn_claims_read(request.claims, &claims, &err)
                                  : attn_claims_parse("preset", preset, &claims, &err);
    if (status == ATTN_OK)
        status = attn_question_make(&request.cases, (enum attn_tier)request.tier, &question, &err);
    if (status != ATTN_OK)
        return attn_cli_fail(attn_cli_status(status), "%s", err.text);
    status = attn_question_write(&question, argv[1], &claims, &written, &err);
    attn_question_free(&question);
    if (status != ATTN_OK)
        return attn_cli_fail(attn_cli_status(status), "%s", err.text);
    printf("%d cases in %s\n", written, argv[1]);
    return attn_cli_flush();
}
