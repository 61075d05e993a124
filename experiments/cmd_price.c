/* attnlab price: what a call would cost, without making it. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/plan.h"
#include "experiments/price/asked.h"
#include "experiments/price/messages.h"
#include "experiments/price/model.h"
#include "experiments/price/show.h"
#include "optimized/registry.h"
#include "ref/clock.h"
#include "ref/mask/mask.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"

struct request {
    struct attn_plan_shapes shapes;
    struct attn_plan cases; /* the cases, without their pass: */
    int pass, first, last;  /* enum attn_need_pass */
    int json;
    const char *log, *save; /* save: NULL unless it is given */
    int64_t layers, hidden;
    struct attn_stack stack[ATTN_SAVES]; /* of both of them, one for each save */
    int stacks;
    const char *device, *params;
    struct attn_memory memory;
    int longest;
    int everything; /* no SPEC was named: that some implementations refuse a case is no error */
};

static const struct attn_flag_use flags[] = {
    ATTN_PLAN_SHAPE_FLAGS(offsetof(struct request, shapes)),
    ATTN_TAKES(PASS, offsetof(struct request, pass), "fwd"),
    ATTN_TAKES(LAYERS, offsetof(struct request, layers), "0"),
    ATTN_TAKES(
        SAVE, offsetof(struct request, save), .value = "probs|rows|inputs|all",
        .help =
            "what each layer keeps from its forward to its backward pass: q k v o lse and P; q k "
            "v o lse (rows, unless said otherwise); q k v, and the forward pass is made again; or "
            "each of these.  +mask+softmax+expanded+f32 behind a word: with blocks of other "
            "programs (docs/memory.md)"),
    ATTN_TAKES(HIDDEN, offsetof(struct request, hidden), "0"),
    ATTN_TAKES(MEMORY, offsetof(struct request, device)),
    ATTN_TAKES(PARAMS, offsetof(struct request, params)),
    ATTN_TAKES(LONGEST, offsetof(struct request, longest)),
    ATTN_TAKES(FORMAT, offsetof(struct request, json), "text"),
    ATTN_TAKES(
        LOG, offsetof(struct request, log),
        .help =
            "of one SPEC and one shape: count its messages rank by rank, and write each as a line "
            "of JSON (docs/parallel.md), by source rank, then in the order of posting"),
    {.flag = ATTN_FLAG_END}};

static int price(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_price = {
    .name = "price",
    .summary = "memory, flops and bytes sent, without running",
    .usage = "price SPEC... --length L,... [flags]\n"
             "price --model NAME|FILE[:KEY=VALUE,...] --length L,...\n"
             "    [--batch B] [flags]\n"
             "price [SPEC...] --memory SIZE --longest [flags]",
    .about =
        "Memory at the peak by named buffer, flops, and bytes sent, from the implementation's own\n"
        "formula: nothing is allocated, so any length can be asked for.  --pass both adds what "
        "one\n"
        "process needs that runs both.  A storage type in which a SPEC cannot run is priced all "
        "the\n"
        "same, and that is said.\n"
        "\n"
        "Without SPEC, --model prices the model's cache of keys and values, and its attention in\n"
        "prefill and in training.  FILE is a config.json of Hugging Face, or another name in\n"
        ".json.  KEY=VALUE are type=f32|f16|bf16|fp8|int4 of the cache, int4 with a scale of 16\n"
        "bits for each 32 numbers, and page=TOKENS.",
    .flags = flags,
    .more =
        "Masks without a closed formula, such as 'causal(br)|random(0.01,3)', are counted row by\n"
        "row, which takes seconds at lengths of 100,000 and more, and of many ranks minutes; a\n"
        "terminal is told so, and how long the other ranks will take.\n"
        "\n"
        "  attnlab price dense --length 200k --heads 8\n"
        "  attnlab price dense csr tiled --length 64Ki --mask 'causal(br)' --pass both\n"
        "  attnlab price tiled --length 64Ki --heads 16 --layers 28 \\\n"
        "      --save inputs --pass both\n"
        "  attnlab price --memory 80GiB --longest --heads 16 --dtype all --pass both\n"
        "  attnlab price --model config.json:type=fp8,page=16 --length 128Ki --batch 8",
    .exits = "0 good; 2 usage, or a SPEC that refuses: the others are priced.",
    .operands_most = -1,
    .computes = 1,
    .size = sizeof(struct request),
    .run = price};

/* The places that prices go to. */
struct output {
    json_t *all;               /* NULL for text */
    struct attn_messages *log; /* NULL: without --log */
};

/* Progress of a price that takes seconds: after 1 s, 2 s, 4 s ... */
struct pace {
    double start, next; /* s */
};

static void tell_pace(void *arg, int priced, int ranks)
{
    struct pace *pace = arg;
    char n[32], of[32];
    double took = attn_seconds(CLOCK_MONOTONIC) - pace->start;
    if (took < pace->next || priced == ranks)
        return;
    pace->next = 2 * took;
    fprintf(stderr, "attnlab price: %s of %s ranks are priced; about %.0f s more\n",
            attn_cli_grouped(priced, n), attn_cli_grouped(ranks, of),
            ceil(took * (ranks - priced) / priced));
}

/* One pass, or both, on all ranks. */
static int price_pass(const struct attn_price_asked *asked, const struct attn_problem *p,
                      const struct output *out)
{
    const struct attn_spec *spec = asked->spec;
    struct attn_error err = {0};
    struct attn_need need;
    struct pace pace = {attn_seconds(CLOCK_MONOTONIC), 1};
    size_t ranks = (size_t)attn_ranks(spec->impl, &spec->options);
    struct attn_cost *cost = attn_cli_need(calloc(ranks, sizeof *cost));
    const struct attn_need_each each = {cost, isatty(STDERR_FILENO) ? tell_pace : NULL, &pace};
    enum attn_status status = attn_need_of(asked, p, &each, &need, &err);
    if (status == ATTN_OK)
        attn_price_show(asked, &need, cost, out->all);
    else
        attn_price_show_refused(asked, err.text, out->all);
    free(cost);
    if (status != ATTN_OK)
        return attn_cli_status(status);
    if (out->log != NULL && asked->pass != ATTN_NEED_BOTH &&
        attn_messages_count(out->log, spec, p, (enum attn_pass)asked->pass, NULL, &err) != ATTN_OK)
        return attn_cli_error(&err);
    return ATTN_EXIT_GOOD;
}

/* *stop: no implementation could price it. */
static int price_shape(const struct attn_price_asked *asked, const struct output *out, int *stop)
{
    struct attn_error err = {0};
    struct attn_mask *mask = NULL;
    struct attn_problem p;
    enum attn_status status = attn_case_open(asked->c, NULL, &p, &mask, &err);
    *stop = status != ATTN_OK;
    int exit_status =
        *stop ? attn_cli_fail(attn_cli_status(status), "%s", err.text) : price_pass(asked, &p, out);
    attn_mask_free(mask);
    return exit_status;
}

static int price_longest(const struct attn_price_asked *asked, const struct output *out)
{
    struct attn_error err = {0};
    double bytes[2];
    int64_t length;
    enum attn_status status = attn_need_longest(asked, 0, HUGE_VAL, &length, bytes, &err);
    attn_price_add_longest(asked, length, bytes, status == ATTN_OK ? NULL : err.text, out->all);
    return attn_cli_status(status);
}

/* For SIGALRM: nothing else here takes a second. */
static void say_counting(int number)
{
    static const char text[] = "attnlab price: counting visible pairs row by row ...\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
}

static void be_patient(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = say_counting;
    action.sa_flags = SA_RESTART;
    if (isatty(STDERR_FILENO) && sigaction(SIGALRM, &action, NULL) == 0)
        alarm(1);
}

/* Every spec, with every stack, in every shape. */
static int price_all(const struct request *q, const struct attn_spec *spec, int n,
                     const struct output *out)
{
    int cases = (int)q->cases.n, passes = q->last - q->first + 1, stop = 0;
    int status = ATTN_EXIT_GOOD, worst = ATTN_EXIT_GOOD;
    be_patient();
    for (int i = 0; i < n * q->stacks * cases * passes && !stop; i++) {
        const struct attn_price_asked asked = {.spec = &spec[i / passes / cases / q->stacks],
                                               .stack = &q->stack[i / passes / cases % q->stacks],
                                               .c = &q->cases.point[i / passes % cases].c,
                                               .pass = (enum attn_need_pass)(q->first + i % passes),
                                               .memory = &q->memory};
        if (i % passes == ATTN_NEED_BOTH && status != ATTN_EXIT_GOOD)
            continue; /* refused in one pass: refused in both */
        status = q->longest ? price_longest(&asked, out) : price_shape(&asked, out, &stop);
        worst = status > worst && !q->everything ? status : worst;
    }
    alarm(0);
    if (q->longest && !q->json)
        attn_price_print_longest(out->all), json_decref(out->all);
    else
        attn_price_print_json(out->all);
    return worst;
}

/* --layers and --save. */
static void read_stack(struct request *q)
{
    struct attn_error err;
    int all = q->save != NULL && strcmp(q->save, "all") == 0;
    q->stacks = all ? ATTN_SAVES : 1;
    for (int s = 0; s < q->stacks; s++)
        q->stack[s] = (struct attn_stack){.n = q->layers,
                                          .save = all ? (enum attn_stack_save)s : ATTN_SAVE_ROWS,
                                          .hidden = q->hidden};
    if (q->save != NULL && !all)
        attn_cli_must(attn_stack_save_parse(q->save, &q->stack[0], &err), &err);
    if ((q->save != NULL || q->hidden > 0) && q->layers == 0)
        attn_cli_stop(ATTN_EINVAL, NULL, "--%s is of layers: --layers N is needed with it",
                      q->save != NULL ? "save" : "hidden");
    if (q->log != NULL && q->layers > 0)
        attn_cli_stop(ATTN_EINVAL, NULL, "--log is of ranks, --layers of one process");
}

/* --memory and --longest; then the length. */
static void read_device(struct request *q)
{
    struct attn_error err;
    q->memory = attn_memory_here();
    if (q->device != NULL)
        attn_cli_must(attn_memory_parse(q->device, &q->memory, &err), &err);
    if (q->params != NULL)
        attn_cli_must(attn_params_parse(q->params, &q->memory, &err), &err);
    const int has_length = attn_plan_has_key(&q->shapes.keys, "length");
    if (q->longest && (q->device == NULL || has_length || q->log != NULL ||
                       attn_plan_has_key(&q->shapes.keys, "keys")))
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--longest needs --memory SIZE, and finds the length itself: no --length, "
                      "--keys, --log");
    if (!q->longest && !has_length)
        attn_cli_stop(ATTN_EINVAL, NULL, "--length is needed: attnlab price dense --length 200k");
}

/* The same, and the messages into a file, unless something was refused. */
static int price_and_log(const struct request *q, const struct attn_spec *spec, int n,
                         struct output *out)
{
    struct attn_messages messages;
    struct attn_error err;
    if (n != 1 || q->cases.n != 1)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--log takes the messages of one SPEC in one shape, in one pass or both");
    attn_cli_must(attn_messages_open(&messages, spec, &err), &err);
    attn_cli_must(attn_save_check(q->log, &err), &err);
    out->log = &messages;
    int worst = price_all(q, spec, n, out);
    if (worst == ATTN_EXIT_GOOD)
        attn_cli_must(attn_messages_save(&messages, q->log, &err), &err);
    attn_messages_close(&messages);
    return worst;
}

/* Those that were named; without a name, for the longest, all there are. */
static struct attn_spec *read_specs(struct request *q, char **names, int *n)
{
    struct attn_error err;
    int named = *n;
    q->everything = named == 0;
    *n = named > 0 ? named : attn_impl_count();
    struct attn_spec *spec = attn_cli_need(calloc((size_t)*n, sizeof *spec));
    for (int s = 0; s < *n; s++)
        attn_cli_must(
            attn_spec_parse_priced(named > 0 ? names[s] : attn_impl_at(s)->name, &spec[s], &err),
            &err);
    return spec;
}

/* Flags that ask something of a SPEC. */
static void check_model(const struct request *q)
{
    int differ = 0;
    for (int64_t i = 0; i < q->cases.n; i++) {
        const struct attn_case *c = &q->cases.point[i].c, *first = &q->cases.point[0].c;
        differ |= c->dtype != first->dtype || c->d_key != first->d_key ||
                  c->heads != first->heads || strcmp(c->mask, first->mask) != 0;
    }
    if (q->pass != 0 || differ || q->layers > 0 || q->log != NULL)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--model without SPEC prices a model in one shape: no --pass, --layers or "
                      "--log goes with it, and one --dtype, --dim and --mask");
}

/* Of --model without SPEC: the model, at every length. */
static int price_model(struct request *q, const struct attn_model_given *model)
{
    struct attn_model_asked asked = {.model = model};
    struct attn_error err;
    json_t *all = q->json ? json_array() : NULL;
    check_model(q);
    q->layers = model->model.layers;
    read_stack(q);
    read_device(q);
    asked.stack = q->stack[0];
    asked.memory = q->memory;
    asked.has_memory = q->device != NULL;
    asked.is_longest = q->longest;
    for (int64_t i = 0; i < q->cases.n; i++) {
        asked.c = q->cases.point[i].c;
        asked.keys = q->cases.point[i].keys;
        if (model->model.value[ATTN_MODEL_DTYPE][0] == '\0' && asked.c.dtype == ATTN_F32)
            asked.c.dtype = ATTN_BF16;
        attn_cli_must(attn_model_price(&asked, all, &err), &err);
    }
    attn_plan_free(&q->cases);
    attn_price_print_json(all);
    return ATTN_EXIT_GOOD;
}

static int price(void *values, int n, char **operand)
{
    struct request *q = values;
    struct attn_model_given model = {.settings = ""};
    struct attn_error err;
    if (q->shapes.model != NULL)
        attn_cli_must(attn_model_open(q->shapes.model, &model, &err), &err);
    attn_cli_must(attn_plan_of_shapes(&q->shapes.keys, &q->cases, &err), &err);
    if (q->shapes.model != NULL && n == 0)
        return price_model(q, &model);
    if (model.settings[0] != '\0')
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--model %s: '%s' is of a cache, which is priced without SPEC",
                      model.model.name, model.settings);
    char *fields = attn_cli_text(":%s", q->shapes.model != NULL ? model.model.field : "");
    for (int64_t i = 0; (fields[1] == 's' || fields[1] == 'k') && i < q->cases.n; i++) /* no bias */
        attn_cli_must(attn_case_fields(fields, &q->cases.point[i].c, &err), &err);
    free(fields);
    q->last = q->pass; /* both: each, and both together */
    q->first = q->last == ATTN_NEED_BOTH ? ATTN_NEED_FORWARD : q->last;
    if (!q->longest && n == 0)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "one SPEC or more is needed: attnlab price dense --length 200k");
    read_stack(q);
    read_device(q);
    struct attn_spec *spec = read_specs(q, operand, &n);
    if (attn_cli_runner() != NULL)
        attn_cli_stop(ATTN_EINVAL, NULL, "ranks that are processes have no price: attnlab price");
    struct output out = {.all = q->json || q->longest ? json_array() : NULL};
    int worst = q->log != NULL ? price_and_log(q, spec, n, &out) : price_all(q, spec, n, &out);
    attn_plan_free(&q->cases);
    free(spec);
    return worst;
}
