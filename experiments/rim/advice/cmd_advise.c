/* attnlab advise: what to change first. */
#include <stddef.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/plan.h"
#include "experiments/rim/advice/advice.h"

struct request {
    struct attn_plan_shapes shapes;
    int64_t layers, hidden;
    const char *save, *device, *params;
    int pass, json; /* pass: enum attn_need_pass */
};
#define PLACE(member) offsetof(struct request, member)

static const struct attn_flag_use flags[] = {ATTN_PLAN_SHAPE_FLAGS(PLACE(shapes)),
                                             ATTN_TAKES(PASS, PLACE(pass), "fwd"),
                                             ATTN_TAKES(LAYERS, PLACE(layers), "0"),
                                             ATTN_TAKES(SAVE, PLACE(save), "rows"),
                                             ATTN_TAKES(HIDDEN, PLACE(hidden), "0"),
                                             ATTN_TAKES(MEMORY, PLACE(device)),
                                             ATTN_TAKES(PARAMS, PLACE(params)),
                                             ATTN_TAKES(FORMAT, PLACE(json), "text"),
                                             {.flag = ATTN_FLAG_END}};

static int advise(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_advise = {
    .name = "advise",
    .summary = "what to change first where memory is short",
    .usage = "advise SPEC --length L [--memory SIZE] [flags]",
    .about = "Prices one change at a time of one SPEC in one shape, the most bytes first: other\n"
             "implementations, options, ranks, what a stack keeps, one sample at a time; apart,\n"
             "what changes the result.  Below each stands the command that prints its price.",
    .flags = flags,
    .more = "  attnlab advise dense:mask=int32 --length 192Ki --heads 16 --memory 80GiB",
    .exits = "0 good; 2 usage, or a SPEC that refuses.",
    .operands_least = 1,
    .operands_most = 1,
    .computes = 1,
    .size = sizeof(struct request),
    .run = advise};

static int advise(void *values, int n, char **operand)
{
    struct request *q = values;
    struct attn_memory memory = attn_memory_here();
    struct attn_stack stack = {.n = q->layers, .save = ATTN_SAVE_ROWS, .hidden = q->hidden};
    const enum attn_need_pass pass = (enum attn_need_pass)q->pass;
    struct attn_plan cases;
    struct attn_spec spec;
    struct attn_error err;
    (void)n;
    attn_cli_must(attn_spec_parse_priced(operand[0], &spec, &err), &err);
    attn_cli_must(attn_stack_save_find(q->save, &stack.save, &err), &err);
    if (q->device != NULL)
        attn_cli_must(attn_memory_parse(q->device, &memory, &err), &err);
    if (q->params != NULL)
        attn_cli_must(attn_params_parse(q->params, &memory, &err), &err);
    if (q->hidden > 0 && q->layers == 0)
        attn_cli_stop(ATTN_EINVAL, NULL, "--hidden is of layers: --layers N is needed with it");
    attn_cli_must(attn_plan_of_shapes(&q->shapes.keys, &cases, &err), &err);
    if (cases.n != 1 || !attn_plan_has_key(&q->shapes.keys, "length"))
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "advice is for one shape: one --length, --mask and --dtype");
    const struct attn_price_asked asked = {&spec, &stack, &cases.point[0].c, pass, &memory};
    json_t *all = q->json ? json_array() : NULL;
    int status = attn_price_advise(&asked, all);
    attn_price_print_json(all);
    attn_plan_free(&cases);
    return status;
}
