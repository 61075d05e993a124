/* attnlab explain: a small call, step by step, in numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/rim/explain/explain.h"

struct request {
    const char *case_text, *input, *mask, *fill, *only;
    int64_t length, keys, dim, heads, kv_heads;
    int pass, format, memory;
};
#define PLACE(member) offsetof(struct request, member)

static const struct attn_flag_use uses[] = {
    ATTN_TAKES(CASE, PLACE(case_text), .kind = ATTN_KIND_TEXT,
               .help = "this problem: a case string, or the name of a case (attnlab list cases)"),
    ATTN_TAKES(INPUT, PLACE(input), .help = "this problem: tensors as attnlab run takes them"),
    {.flag = ATTN_FLAG_TITLE, .help = "Else, a problem of one batch:"},
    ATTN_TAKES(LENGTH, PLACE(length), "4", .kind = ATTN_KIND_COUNT, .value = "L"),
    ATTN_TAKES(KEYS, PLACE(keys)),
    ATTN_TAKES(DIM, PLACE(dim), "2", .kind = ATTN_KIND_COUNT, .value = "D",
               .help = "features of a query, a key and a value"),
    ATTN_TAKES(HEADS, PLACE(heads), "1"),
    ATTN_TAKES(KV_HEADS, PLACE(kv_heads)),
    ATTN_TAKES(MASK, PLACE(mask), "none", .kind = ATTN_KIND_TEXT,
               .help = "such as 'causal(br)' (attnlab list masks)"),
    ATTN_TAKES(FILL, PLACE(fill), "powers", .kind = ATTN_KIND_TEXT,
               .help =
                   "test data (attnlab list fills); under powers all weights are powers of two"),
    ATTN_TAKES(PASS, PLACE(pass), "fwd", .value = "fwd|bwd",
               .help = "bwd: the forward pass, and then the backward one"),
    {.flag = ATTN_FLAG_TITLE, .help = "Of any problem:"},
    ATTN_TAKES(MEMORY, PLACE(memory), .kind = ATTN_KIND_SWITCH, .value = "",
               .help =
                   "which buffer is taken and given back when, and what is live; of every SPEC"),
    ATTN_TAKES(ONLY, PLACE(only), .help = "steps whose names begin so, such as tile.update"),
    ATTN_TAKES(FORMAT, PLACE(format), "text", .value = "text|md"),
    {.flag = ATTN_FLAG_END}};

static int explain(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_explain = {
    .name = "explain",
    .summary = "a small problem step by step, in numbers",
    .usage = "explain SPEC [--case CASE | --input FILE] [flags]\n"
             "explain SPEC --memory [--case CASE | --input FILE] [flags]",
    .about =
        "The steps of dense, csr-textbook, tiled-textbook, ring-textbook and ulysses-textbook, in\n"
        "the letters of docs/attention.md.  Numbers are those that the implementation has when a\n"
        "step ends; none is computed again.  Six digits are printed of the largest beside it.",
    .flags = uses,
    .more =
        "  attnlab explain tiled-textbook:br=2,bc=2 --pass bwd\n"
        "  attnlab explain ring-textbook:ranks=2 --mask 'causal(br)'\n"
        "  attnlab explain gemm:save=probs --memory --length 64 --pass bwd\n"
        "\n"
        "The last lines have the bits of the outputs, which attnlab run gives too: FNV-1a of the\n"
        "bytes of each, elements in the order [B,H,L,d].",
    .operands_least = 1,
    .operands_most = 1,
    .computes = 1,
    .size = sizeof(struct request),
    .initial = &(const struct request){.keys = -1, .kv_heads = -1},
    .run = explain};

/* The problem that flags describe.  Under powers the scale is ln 2, so that X_ij are the whole
 * numbers whose powers of two are the weights. */
static enum attn_status flags_case(const struct request *r, struct attn_case *c,
                                   struct attn_error *err)
{
    char text[2 * ATTN_CASE_TEXT];
    int n = snprintf(text, sizeof text, "b1h%lldg%lldq%lldk%lldd%lldv%lld:%.640s:f32:%.64s:s1%s%s",
                     (long long)r->heads, (long long)(r->kv_heads < 0 ? r->heads : r->kv_heads),
                     (long long)r->length, (long long)(r->keys < 0 ? r->length : r->keys),
                     (long long)r->dim, (long long)r->dim, r->mask, r->fill,
                     strcmp(r->fill, "powers") == 0 ? ":scale=0.69314718055994529" : "",
                     r->pass == ATTN_BACKWARD ? ":pass=bwd" : "");
    if (n < 0 || (size_t)n >= sizeof text)
        return attn_fail(err, ATTN_EINVAL, "the mask is too long: 640 characters would work");
    return attn_case_parse(text, c, err);
}

static enum attn_status explain_case(const struct request *r, struct attn_explain *x,
                                     struct attn_error *err)
{
    struct attn_case c;
    struct attn_setup setup;
    struct attn_problem extents;
    char text[ATTN_CASE_TEXT], spec[256], title[ATTN_CASE_TEXT + 300];
    const struct attn_battery_case *named =
        r->case_text != NULL ? attn_battery_find(r->case_text) : NULL;
    enum attn_status status =
        r->case_text != NULL ? attn_case_parse(named != NULL ? named->text : r->case_text, &c, err)
                             : flags_case(r, &c, err);
    if (status == ATTN_OK) {
        attn_case_problem(&c, &extents);
        status = attn_explain_check(x, &extents, err);
    }
    if (status == ATTN_OK)
        status = attn_setup_open(&c, &setup, err);
    if (status != ATTN_OK)
        return status;
    attn_case_print(&c, text);
    attn_spec_print(x->spec, spec, sizeof spec);
    snprintf(title, sizeof title, "%s  %s", spec, text);
    x->title = title;
    x->problem = &setup.problem;
    x->last = c.pass;
    x->forward = attn_setup_forward(&setup);
    x->backward = attn_setup_backward(&setup);
    status = attn_explain_show(x, err);
    attn_setup_close(&setup);
    return status;
}

static enum attn_status explain_input(const struct request *r, const char *spec,
                                      struct attn_explain *x, struct attn_error *err)
{
    const struct attn_request asked = {.spec = spec, .input = r->input, .pass = r->pass};
    struct attn_files files = {0};
    char title[1024];
    enum attn_status status = attn_files_open(&asked, NULL, &files, err);
    if (status == ATTN_OK)
        status = attn_files_price(&files, err);
    if (status == ATTN_OK)
        status = attn_files_begin(&files, err);
    if (status == ATTN_OK) {
        snprintf(title, sizeof title, "%s  %s", spec, r->input);
        x->title = title;
        x->problem = &files.problem;
        x->last = files.c.pass;
        x->forward = attn_files_forward(&files);
        x->backward = attn_files_backward(&files);
        status = attn_explain_show(x, err);
    }
    attn_files_close(&files);
    return status;
}

static int explain(void *values, int n, char **operand)
{
    const struct request *r = values;
    struct attn_spec spec;
    struct attn_error err;
    (void)n;
    struct attn_explain x = {.spec = &spec,
                             .only = r->only,
                             .memory = r->memory,
                             .format = (enum attn_handout_format)r->format};
    enum attn_status status = attn_spec_parse(operand[0], &spec, &err);
    if (status == ATTN_OK && r->case_text != NULL && r->input != NULL)
        status = attn_fail(&err, ATTN_EINVAL, "--case and --input: one problem at a time");
    if (status == ATTN_OK && r->memory && r->only != NULL)
        status = attn_fail(&err, ATTN_EINVAL, "--only names steps, which --memory does not print");
    if (status == ATTN_OK)
        status =
            r->input != NULL ? explain_input(r, operand[0], &x, &err) : explain_case(r, &x, &err);
    return status == ATTN_OK ? attn_cli_flush() : attn_cli_error(&err);
}
