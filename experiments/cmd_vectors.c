/* attnlab vectors: write the cases of the battery as files, for an implementation elsewhere. */
#include <getopt.h>
#include <string.h>

#include "experiments/check/external.h"
#include "experiments/cli.h"
#include "tests/harness/external/vector_files.h"

static const char help[] =
    "attnlab vectors DIR [--claims FILE] [--tier quick|full] [--case C]...\n\n"
    "Write the inputs of cases to DIR/NAME/inputs.safetensors, and DIR/manifest.json.  Compute "
    "the\n"
    "outputs wherever you like, put them into OUT/NAME/result.safetensors (or result.npz, or "
    "o.npy,\n"
    "lse.npy, ...), then: attnlab check --results OUT --vectors DIR.  OUT may be DIR.\n"
    "docs/external.md is the manual.\n\n"
    "  --claims F   what the implementation claims; without it: f32, lengths that differ, dv, "
    "gqa,\n"
    "               any mask, any scale, backward\n"
    "  --tier T     quick (default) or full\n"
    "  --case C     only this case, by name or case string; may be repeated\n";

enum { MAX_CASES = 64 };

/* What somebody who says nothing is taken to claim. */
static const char preset[] =
    "{\"name\": \"results\", \"claims\": [\"f32\", \"cross\", \"dv\", \"gqa\", \"scale\", \"band\","
    "\"dense\", \"backward\"]}";

int attn_cmd_vectors(int argc, char **argv)
{
    static const struct option longs[] = {
        {"claims", required_argument, NULL, 'C'}, {"caps", required_argument, NULL, 'C'},
        {"tier", required_argument, NULL, 't'},   {"case", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},         {0}};
    const char *claims_path = NULL, *text[MAX_CASES];
    int n = 0, tier = ATTN_TIER_QUICK, written;
    if (attn_cli_options("vectors", argc, argv, longs, "case") != ATTN_EXIT_GOOD)
        return ATTN_EXIT_USAGE;
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        if (o == 'C')
            claims_path = optarg;
        else if (o == 'c' && n < MAX_CASES)
            text[n++] = optarg;
        else if (o == 't' && (tier = attn_tier_find(optarg)) >= 0)
            continue;
        else if (o == 'h')
            return attn_cli_help(help);
        else
            return attn_cli_fail("vectors", ATTN_EXIT_USAGE,
                                 "see attnlab vectors --help (tiers: quick, full; at most %d "
                                 "--case)",
                                 MAX_CASES);
    if (optind + 1 != argc)
        return attn_cli_fail("vectors", ATTN_EXIT_USAGE, "one folder to write to is needed");
    struct attn_claims claims;
    struct attn_question question = {0};
    struct attn_error err = {0};
    enum attn_status status = claims_path != NULL
                                  ? attn_claims_read(claims_path, &claims, &err)
                                  : attn_claims_parse("preset", preset, &claims, &err);
    if (status == ATTN_OK)
        status = attn_question_make(text, n, (enum attn_tier)tier, &question, &err);
    if (status != ATTN_OK)
        return attn_cli_fail("vectors", attn_cli_status(status), "%s", err.text);
    status = attn_question_write(&question, argv[optind], &claims, &written, &err);
    attn_question_free(&question);
    if (status != ATTN_OK)
        return attn_cli_fail("vectors", attn_cli_status(status), "%s", err.text);
    printf("%d cases in %s\n", written, argv[optind]);
    return attn_cli_flush("vectors");
}
