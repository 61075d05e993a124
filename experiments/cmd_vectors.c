/* attnlab vectors: write the cases of the battery as files, for an implementation elsewhere. */
#include <stdio.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/subject/vector_files.h"

struct request {
    struct attn_cli_list cases;
    const char *claims, *scheme;
    int tier;
    int64_t seed;
};

static const struct attn_flag_use flags[] = {
    ATTN_TAKES(
        CLAIMS, offsetof(struct request, claims), .kind = ATTN_KIND_TEXT,
        .help =
            "what the implementation claims; without it: f32, lengths that differ, dv, gqa, any "
            "mask, any scale, backward"),
    ATTN_TAKES(TIER, offsetof(struct request, tier), "quick"),
    ATTN_TAKES(SEED, offsetof(struct request, seed), "1", .help = "of the values that it draws"),
    ATTN_TAKES(CASE, offsetof(struct request, cases)),
    ATTN_TAKES(SCHEME, offsetof(struct request, scheme)),
    {.flag = ATTN_FLAG_END}};

static int vectors(void *values, int n, char **operand);

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
        "With --scheme a distributed implementation is judged rank by rank and step by step:\n"
        "DIR/NAME/rank-R has a rank's shards, and what it must hold after every step and give.\n"
        "docs/external.md is the manual.",
    .flags = flags,
    .more = "  attnlab vectors cases --claims mine.json\n"
            "  attnlab check --results results --vectors cases",
    .exits = "0 good, 2 usage, 3 DIR cannot be written.",
    .operands_least = 1,
    .operands_most = 1,
    .size = sizeof(struct request),
    .run = vectors};

/* The claims where --claims is not given. */
static const char preset[] =
    "{\"name\": \"results\", \"claims\": [\"f32\", \"cross\", \"dv\", \"gqa\", \"scale\", \"band\","
    "\"dense\", \"backward\"]}";

static int vectors(void *values, int n, char **operand)
{
    const struct request *asked = values;
    struct attn_claims claims;
    struct attn_question question;
    struct attn_error err = {0};
    int written;
    (void)n; /* one operand: the folder */
    attn_cli_must(asked->claims != NULL ? attn_claims_read(asked->claims, &claims, &err)
                                        : attn_claims_parse("preset", preset, &claims, &err),
                  &err);
    /* The last 1: no corners, whose files are large. */
    const struct attn_asking asking = {&asked->cases,    (enum attn_tier)asked->tier, &claims,
                                       ATTN_ROUTE_FILES, (uint64_t)asked->seed,       1};
    attn_cli_must(attn_question_make(&asking, &question, &err), &err);
    attn_cli_must(attn_vector_files_write_all(operand[0], &claims, asked->scheme, 1, question.asked,
                                              question.n, &written, &err),
                  &err);
    attn_question_free(&question);
    if (asked->scheme != NULL && written == 0)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--scheme %s: it takes no case of these%s%s",
                             asked->scheme, err.text[0] != '\0' ? "; of the last: " : "", err.text);
    char shown[4096];
    printf("%d cases in %s\n", written, attn_cleaned(operand[0], shown, sizeof shown));
    return ATTN_EXIT_GOOD;
}
