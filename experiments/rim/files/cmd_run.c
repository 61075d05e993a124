/* attnlab run: compute attention on tensors from files, write the results, judge them. */
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/price/messages.h"
#include "experiments/rim/files/file_problem.h"
#include "tests/harness/base/fileio.h"

#define PLACE(member) offsetof(struct attn_request, member)

static const struct attn_flag_use uses[] = {
    ATTN_TAKES(INPUT, PLACE(input)),
    ATTN_TAKES(NAMES, PLACE(names)),
    ATTN_TAKES(OUT, PLACE(out),
               .help = "write the results there; needed unless --compare is given"),
    ATTN_TAKES(FORMAT, PLACE(format), "safetensors", .value = "safetensors|npy",
               .help = "of the results: DIR/result.safetensors, or DIR/o.npy, DIR/lse.npy, ..."),
    ATTN_TAKES(LOG, PLACE(log)),
    ATTN_TAKES(
        COMPARE, PLACE(compare),
        .help =
            "judge the results, and those in the file, by error bounds; any of F64, F32, BF16 and "
            "F16 beside any inputs.  A line says which arithmetic given ones fit.  Results that "
            "cannot be judged are named, and make the status 2"),
    ATTN_TAKES(ONLY, PLACE(only)),
    ATTN_TAKES(ARITHMETIC, PLACE(arithmetic)),
    ATTN_TAKES(CLAIMS, PLACE(claims), .kind = ATTN_KIND_TEXT, .help = ATTN_FILES_CLAIMS_HELP),
    ATTN_TAKES(ROWS, PLACE(rows)),
    ATTN_TAKES(DBIAS, PLACE(d_bias)),
    ATTN_TAKES(
        PASS, PLACE(pass),
        .help =
            "bwd and both need do, and write o and lse too (both when there is a do, else fwd)"),
    ATTN_TAKES(
        MASK, PLACE(mask), .kind = ATTN_KIND_TEXT,
        .help =
            "such as 'causal(br)&keys(key_mask)' (attnlab list masks); keys, csr and dense take "
            "names of tensors in the file"),
    ATTN_TAKES(SCALE, PLACE(scale)),
    ATTN_TAKES(SOFTCAP, PLACE(softcap)),
    ATTN_TAKES(ALIBI, PLACE(alibi)),
    ATTN_TAKES(ALIBI_ALIGN, PLACE(alibi_align)),
    ATTN_TAKES(LAYOUT, PLACE(layout)),
    ATTN_TAKES(HEADS, PLACE(heads), .kind = ATTN_KIND_TEXT, .help = "BLE: heads of q"),
    ATTN_TAKES(KV_HEADS, PLACE(kv_heads), .kind = ATTN_KIND_TEXT,
               .help = "BLE: heads of k and v (as many as of q)"),
    {.flag = ATTN_FLAG_END}};

static int run(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_run = {
    .name = "run",
    .summary = "compute attention on tensors from files",
    .usage = "run SPEC --input FILE|DIR [--out DIR] [--compare] [flags]",
    .about =
        "Compute O and LSE, and with dO also dQ, dK and dV, by the implementation SPEC names.\n"
        "FILE is safetensors or .npz, DIR a folder of such and of .npy files (docs/formats.md), "
        "with\n"
        "tensors named q, k, v and, where they are there, do, dlse, bias, sink, key_mask; o, lse,\n"
        "dq, dk, dv, dbias and dsink are results to compare with.  Tensors are [B,H,L,d], "
        "[H,L,d]\n"
        "or [L,d]; lse is [B,H,L], sink [H].\n"
        "Results have as many axes.  A cache of keys is no input of its own: give past and new "
        "keys\n"
        "as one k, one v.",
    .flags = uses,
    .more = "  attnlab run tiled --input tests/data/gpt-causal.safetensors --compare\n"
            "\n"
            "Flags win over the file's metadata (mask, scale, softcap, alibi, alibi-align, layout) "
            "and\n"
            "say so where they differ.",
    .exits = "0 good, 1 --compare found a disagreement, 2 usage, a bad file, or something that "
             "--compare could not judge, 3 not enough memory or disk.",
    .operands_least = 1,
    .operands_most = 1,
    .computes = 1,
    .size = sizeof(struct attn_request),
    .initial = &(const struct attn_request){.pass = ATTN_PASS_NOT_SAID},
    .run = run};

/* Flags that contradict each other, before any file is touched. */
static enum attn_status check_request(const struct attn_request *r, struct attn_error *err)
{
    const char *wrong = NULL;
    if (r->input == NULL)
        wrong = "tensors are missing: --input FILE, or a folder of files such as q.npy";
    else if (r->out == NULL && !r->compare)
        wrong = "--out DIR says where results go (or --compare judges them)";
    else if (r->log != NULL && attn_cli_runner() != NULL)
        wrong = "--log is for simulated ranks: attnlab run";
    else if (!r->compare && (r->only || r->arithmetic || r->claims || r->rows))
        wrong = "--only, --arithmetic, --claims and --rows are for --compare";
    return wrong != NULL ? attn_fail(err, ATTN_EINVAL, "%s", wrong) : ATTN_OK;
}

/* Compute; with --log, write down the messages. */
static enum attn_status compute(struct attn_files *files, struct attn_error *err)
{
    struct attn_messages messages;
    const char *path = files->request->log;
    if (path == NULL)
        return attn_files_run(files, err);
    enum attn_status status = attn_messages_open(&messages, &files->spec, err);
    if (status != ATTN_OK)
        return status;
    files->log = &messages.log;
    status = attn_files_run(files, err);
    files->log = NULL;
    if (status == ATTN_OK)
        status = attn_messages_save(&messages, path, err);
    attn_messages_close(&messages);
    return status;
}

static enum attn_status carry_out(const struct attn_request *asked, struct attn_files *files,
                                  struct attn_found *found, struct attn_error *err)
{
    enum attn_status status = attn_files_open(asked, NULL, files, err);
    if (status == ATTN_OK)
        status = attn_files_price(files, err);
    if (status == ATTN_OK && asked->out != NULL && attn_cli_is_first())
        status = attn_files_may_write(files, err); /* before the work, not after */
    if (status == ATTN_OK && asked->log != NULL)
        status = attn_save_check(asked->log, err);
    if (status == ATTN_OK)
        status = compute(files, err);
    if (status == ATTN_OK && asked->out != NULL && attn_cli_is_first())
        status = attn_files_write(files, err);
    if (status == ATTN_OK && asked->compare && attn_cli_is_first())
        status = attn_files_compare(files, found, err);
    return status;
}

static int run(void *values, int n, char **operand)
{
    struct attn_request *asked = values;
    struct attn_files files = {0};
    struct attn_error err;
    struct attn_found found = {0};
    (void)n;
    asked->spec = operand[0];
    enum attn_status status = check_request(asked, &err);
    if (status == ATTN_OK)
        status = carry_out(asked, &files, &found, &err);
    attn_files_close(&files);
    return status == ATTN_OK ? attn_found_exit(&found) : attn_cli_error(&err);
}
