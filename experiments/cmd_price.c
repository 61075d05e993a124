/* attnlab price: what a call would cost, without making it. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/shape.h"
#include "experiments/measure/device.h"
#include "experiments/measure/stack.h"
#include "experiments/problem/messages.h"
#include "experiments/studies/storage.h"
#include "optimized/registry.h"
#include "optimized/simd/isa.h"
#include "ref/mask/mask.h"
#include "ref/problem.h"

struct request {
    struct attn_cli_shapes shapes;
    int json, storage, make;
    const char *log, *save; /* save: NULL unless it is given */
    int64_t layers, hidden;
    struct attn_stack stack; /* both of them */
    const char *memory;
    int longest;
    int64_t device; /* memory in bytes; 0: this machine */
};

static const struct attn_flag_use flags[] = {
    ATTN_CLI_SHAPE_FLAGS(offsetof(struct request, shapes)),
    {.flag = ATTN_FLAG_LAYERS, offsetof(struct request, layers), "0"},
    {.flag = ATTN_FLAG_SAVE,
     offsetof(struct request, save),
     .help = "what each layer keeps from its forward to its backward pass: q k v o lse and P; q k "
             "v o lse (rows, unless said otherwise); q k v, and the forward pass is made again"},
    {.flag = ATTN_FLAG_MASK_STORAGE, offsetof(struct request, storage)},
    {.flag = ATTN_FLAG_MAKE, offsetof(struct request, make)},
    {.flag = ATTN_FLAG_HIDDEN, offsetof(struct request, hidden), "0"},
    {.flag = ATTN_FLAG_MEMORY, offsetof(struct request, memory)},
    {.flag = ATTN_FLAG_LONGEST, offsetof(struct request, longest)},
    {.flag = ATTN_FLAG_FORMAT, offsetof(struct request, json), "text"},
    {.flag = ATTN_FLAG_LOG,
     offsetof(struct request, log),
     .help = "of one SPEC and one shape: count its messages rank by rank, and write each as a line "
             "of JSON (docs/parallel.md), by source rank, then in the order of posting"},
    {.flag = ATTN_FLAG_END}};

static int price(int argc, char **argv);

const struct attn_cli_command attn_cmd_price = {
    .name = "price",
    .summary = "memory, flops and bytes sent, without running",
    .usage = "price SPEC... --length L,... [flags]\n"
             "       attnlab price --mask-storage --length L,... [--mask MASK] [--make] [flags]\n"
             "       attnlab price [SPEC...] --memory SIZE --longest [flags]",
    .about =
        "Memory at the peak by named buffer, flops, and bytes sent, from the implementation's own\n"
        "formula: nothing is allocated, so any length can be asked for.",
    .flags = flags,
    .more =
        "Masks without a closed formula, such as 'causal(br)|random(0.01,3)', are counted row by\n"
        "row, which takes seconds at lengths of 100,000 and more; a terminal is told so.\n"
        "\n"
        "  attnlab price dense --length 200k --heads 8\n"
        "  attnlab price dense csr tiled --length 64Ki --mask 'causal(br)' --pass both\n"
        "  attnlab price tiled --length 64Ki --heads 16 --layers 28 --save inputs --pass both\n"
        "  attnlab price --memory 80GiB --longest --heads 16 --dtype bf16 --pass both\n"
        "  attnlab price --mask-storage --length 1M --mask 'causal(br)&window(511,0,br)'\n"
        "\n"
        "Exit status: 0 good; 1 a storage was made with other bytes or other pairs; 2 usage, or a\n"
        "SPEC that refuses: the others are priced; 3 a storage does not fit here.",
    .operands_least = 0,
    .operands_most = -1,
    .computes = 1,
    .run = price};

static void print_buffer(const char *name, int64_t bytes)
{
    char binary[32], grouped[32];
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes;
    int u = 0;
    for (; x >= 1000 && u < 6; u++)
        x /= 1000;
    printf("  %-16s %26s B  %8.4g %-2s  %12s\n", name, attn_cli_grouped(bytes, grouped), x, unit[u],
           attn_cli_bytes(bytes, binary));
}

/* What all of it needs at once: the ranks of an implementation are simulated in one machine. */
struct fit {
    double floor, peaks, available; /* available: HUGE_VAL where the machine does not say */
    int is_device; /* available is what a device for each rank has, peaks what the fullest needs */
};

static struct fit fit_of(const struct attn_problem *p, enum attn_pass pass, double peaks)
{
    int64_t machine = attn_cli_memory_available();
    return (struct fit){attn_pass_bytes(p, pass), peaks,
                        machine == INT64_MAX ? HUGE_VAL : (double)machine, 0};
}

static const char *large_text(double bytes, char text[32])
{
    if (bytes >= 9e18)
        snprintf(text, 32, "more than 8 EiB");
    else
        attn_cli_bytes((int64_t)bytes, text);
    return text;
}

static void print_fit(const struct fit *fit, int ranks)
{
    char part[32], floor_text[32], sum[32], machine[32], of[32] = "";
    if (isinf(fit->available)) {
        printf("  whether that fits is unknown: this machine does not say what it has\n\n");
        return;
    }
    if (fit->is_device) {
        printf("  %s: a device of %s%s needs %s\n\n",
               fit->peaks <= fit->available ? "fits" : "does not fit",
               large_text(fit->available, machine), ranks > 1 ? " for each rank; the fullest" : "",
               large_text(fit->peaks, part));
        return;
    }
    if (ranks > 1)
        snprintf(of, sizeof of, " of %d simulated ranks", ranks);
    printf("  %s: %s available here\n",
           fit->floor + fit->peaks <= fit->available ? "fits" : "does not fit",
           large_text(fit->available, machine));
    if (fit->floor + fit->peaks > fit->available || ranks > 1)
        printf("      %s%s + %s of inputs and outputs = %s\n", large_text(fit->peaks, part), of,
               large_text(fit->floor, floor_text), large_text(fit->floor + fit->peaks, sum));
    putchar('\n');
}

static int is_same(const struct attn_cost *a, const struct attn_cost *b)
{
    return a->peak_bytes == b->peak_bytes && fabs(a->flops - b->flops) <= 0 &&
           a->bytes_sent == b->bytes_sent && fabs(a->shard_bytes - b->shard_bytes) <= 0;
}

/* Where the run of ranks that fare like this one ends. */
static int end_of_run(const struct attn_cost *cost, int ranks, int first)
{
    int end = first + 1;
    while (end < ranks && is_same(&cost[first], &cost[end]))
        end++;
    return end;
}

static void print_run(const struct attn_cost *cost, int ranks, int first, int end)
{
    const struct attn_cost *x = &cost[first];
    char text[32];
    if (ranks > 1 && end - first == ranks)
        printf("  each rank: ");
    else if (end - first > 1)
        printf("  ranks %d to %d: ", first, end - 1);
    else
        printf(ranks > 1 ? "  rank %d: " : "  ", first);
    printf("beside inputs and outputs of %s, ", large_text(x->shard_bytes, text));
    printf("with them %s; ", large_text(x->shard_bytes + (double)x->peak_bytes, text));
    printf("%.4g flop", x->flops);
    if (ranks > 1)
        printf("; sends %s in %lld messages", attn_cli_bytes(x->bytes_sent, text),
               (long long)x->messages);
    printf("%s\n", x->counted ? "; visible pairs counted row by row" : "");
}

/* Of many ranks, no two of which need be equal, the least and the most. */
static void print_range(const struct attn_cost *cost, int first, int end)
{
    char low[32], high[32];
    struct attn_cost least = cost[first], most = cost[first];
    double with[2] = {HUGE_VAL, 0};
    for (int r = first; r < end; r++) {
        double held = cost[r].shard_bytes + (double)cost[r].peak_bytes;
        with[0] = fmin(with[0], held);
        with[1] = fmax(with[1], held);
        least.flops = fmin(least.flops, cost[r].flops);
        most.flops = fmax(most.flops, cost[r].flops);
        if (cost[r].bytes_sent < least.bytes_sent)
            least.bytes_sent = cost[r].bytes_sent;
        if (cost[r].bytes_sent > most.bytes_sent)
            most.bytes_sent = cost[r].bytes_sent;
    }
    printf("  ranks %d to %d: inputs and outputs with what is beside them %s to %s; ", first,
           end - 1, large_text(with[0], low), large_text(with[1], high));
    printf("%.4g to %.4g flop; each sends %s to %s\n", least.flops, most.flops,
           attn_cli_bytes(least.bytes_sent, low), attn_cli_bytes(most.bytes_sent, high));
}

/* One line for each run of ranks that fare alike, of many runs the first and the last ones; for one
 * process, the line. */
enum { MOST_RUNS = 32, RUNS_AT_END = 8 };
static void print_ranks(const struct attn_cost *cost, int ranks)
{
    int runs = 0, run = 0, between = -1;
    for (int first = 0; first < ranks; first = end_of_run(cost, ranks, first))
        runs++;
    for (int first = 0, end; first < ranks; first = end, run++) {
        end = end_of_run(cost, ranks, first);
        int is_hidden = runs > MOST_RUNS && run >= RUNS_AT_END && run < runs - RUNS_AT_END;
        if (is_hidden && between < 0)
            between = first;
        if (is_hidden)
            continue;
        if (between >= 0)
            print_range(cost, between, first);
        between = -1;
        print_run(cost, ranks, first, end);
    }
}

/* What a price depends on, where the spec does not say it: before and after its name. */
static void print_isa(const struct attn_spec *spec, const char *before, const char *after)
{
    const struct attn_isa *isa = attn_spec_isa(spec);
    if (isa != NULL && spec->options.isa == NULL)
        printf("%spriced for %s%s", before, isa->name, after);
}

/* null: the price does not depend on it. */
static json_t *isa_json(const struct attn_spec *spec)
{
    const struct attn_isa *isa = attn_spec_isa(spec);
    return isa != NULL ? json_string(isa->name) : json_null();
}

/* saved: how its saved_bytes are called. */
static void print_live(const struct attn_cost *cost, const char *saved)
{
    for (int a = 0; a < cost->n_live; a++)
        print_buffer(cost->live[a].name, cost->live[a].bytes);
    print_buffer("peak", cost->peak_bytes);
    if (cost->saved_bytes > 0)
        print_buffer(saved, cost->saved_bytes);
}

/* The live set of the rank that holds most, the first of them. */
static void print_text(const struct attn_spec *spec, const struct attn_cli_shape *shape,
                       const struct attn_cost *cost, const struct fit *fit)
{
    char name[256], about[1024];
    int ranks = attn_ranks(spec->impl, &spec->options), fullest = 0, alike = 1;
    for (int r = 1; r < ranks; r++) {
        alike &= cost[r].peak_bytes == cost[0].peak_bytes;
        if (cost[r].peak_bytes > cost[fullest].peak_bytes)
            fullest = r;
    }
    attn_spec_print(spec, name, sizeof name);
    attn_cli_shape_print(shape, about, sizeof about);
    printf("%s  %s  %s", name, attn_pass_name(shape->pass), about);
    if (ranks > 1 && alike)
        printf("  each of %d ranks", ranks);
    else if (ranks > 1)
        printf("  rank %d of %d, the fullest", fullest, ranks);
    putchar('\n');
    print_live(&cost[fullest], "  of it, saved");
    print_isa(spec, "  ", ", the best instruction set here: SPEC@ISA prices another\n");
    print_ranks(cost, ranks);
    print_fit(fit, ranks);
}

/* One half of a stack of layers. */
static void print_stack(const struct attn_spec *spec, const struct attn_cli_shape *shape,
                        const struct attn_stack *layers, const struct attn_stack_cost *cost,
                        const struct fit *fit)
{
    char name[256], about[1024], stack[ATTN_STACK_TEXT];
    attn_spec_print(spec, name, sizeof name);
    attn_cli_shape_print(shape, about, sizeof about);
    printf("%s  %s  %s  %s\n", name, attn_pass_name(shape->pass), about,
           attn_stack_print(layers, stack));
    print_live(&cost->cost, "saved between");
    print_isa(spec, "  ", ", the best instruction set here: SPEC@ISA prices another\n");
    printf("  with all inputs and outputs; %.4g flop", cost->cost.flops);
    if (cost->again_flops > 0)
        printf(", %.4g of them in forward passes made again", cost->again_flops);
    printf("%s\n", cost->cost.counted ? "; visible pairs counted row by row" : "");
    print_fit(fit, 1);
}

static json_t *price_json(const struct attn_spec *spec, const struct attn_cli_shape *shape,
                          int rank, const struct attn_cost *cost, const struct fit *fit)
{
    char name[256];
    double need = fit->floor + fit->peaks;
    attn_spec_print(spec, name, sizeof name);
    json_t *live = json_array();
    for (int a = 0; a < cost->n_live; a++)
        json_array_append_new(live, json_pack("{s:s,s:I}", "name", cost->live[a].name, "bytes",
                                              (json_int_t)cost->live[a].bytes));
    return json_pack(
        "{s:s,s:o,s:s,s:i,s:I,s:I,s:s,s:s,s:o,s:I,s:f,s:I,s:f,s:f,s:I,s:I,s:b,s:f,s:o,s:o}", "spec",
        name, "isa", isa_json(spec), "pass", attn_pass_name(shape->pass), "rank", rank, "n_query",
        (json_int_t)shape->n_query, "n_key", (json_int_t)shape->n_key, "mask", shape->mask, "dtype",
        attn_dtype_name(shape->dtype), "live", live, "peak_bytes", (json_int_t)cost->peak_bytes,
        "shard_bytes", cost->shard_bytes, "saved_bytes", (json_int_t)cost->saved_bytes,
        "floor_bytes", fit->floor, "flops", cost->flops, "bytes_sent", (json_int_t)cost->bytes_sent,
        "messages", (json_int_t)cost->messages, "counted", cost->counted, "needed_bytes", need,
        "available_bytes", attn_cli_real(fit->available), "fits",
        isinf(fit->available) ? json_null() : json_boolean(need <= fit->available));
}

/* What an implementation does not do, or cannot divide, in the place of its price. */
static void refuse(const struct attn_spec *spec, const struct attn_cli_shape *shape,
                   const char *why, json_t *all)
{
    char name[256], about[1024];
    attn_spec_print(spec, name, sizeof name);
    attn_cli_shape_print(shape, about, sizeof about);
    if (all == NULL)
        printf("%s  %s  %s\n  refused: %s\n\n", name, attn_pass_name(shape->pass), about, why);
    else
        json_array_append_new(all, json_pack("{s:s,s:s,s:I,s:I,s:s,s:s,s:s}", "spec", name, "pass",
                                             attn_pass_name(shape->pass), "n_query",
                                             (json_int_t)shape->n_query, "n_key",
                                             (json_int_t)shape->n_key, "mask", shape->mask, "dtype",
                                             attn_dtype_name(shape->dtype), "refused", why));
}

/* What prices go to. */
struct output {
    json_t *all;                    /* NULL for text */
    const struct attn_stack *stack; /* of no layers: one call */
    struct attn_messages *log;      /* NULL: without --log */
    int make;                       /* of storages of a mask: for real too */
    int64_t device;                 /* bytes of a device that is not this machine; 0: none */
};

/* A stack of layers: all its tensors are in its price, and there is nothing beside. */
static int price_stack(const struct attn_spec *spec, const struct attn_cli_shape *shape,
                       const struct attn_problem *p, const struct output *out)
{
    struct attn_error err = {0};
    struct attn_stack_cost stack;
    if (attn_stack_price(out->stack, spec, p, shape->pass, &stack, &err) != ATTN_OK) {
        refuse(spec, shape, err.text, out->all);
        return attn_cli_status(err.status);
    }
    struct fit fit = fit_of(p, shape->pass, (double)stack.cost.peak_bytes);
    fit.floor = 0;
    if (out->device > 0)
        fit = (struct fit){0, fit.peaks, (double)out->device, 1};
    if (out->all == NULL) {
        print_stack(spec, shape, out->stack, &stack, &fit);
        return ATTN_EXIT_GOOD;
    }
    json_t *json = price_json(spec, shape, 0, &stack.cost, &fit);
    json_object_set_new(json, "layers", json_integer((json_int_t)out->stack->n));
    json_object_set_new(json, "hidden", json_integer((json_int_t)out->stack->hidden));
    json_object_set_new(json, "save", json_string(attn_stack_save_name(out->stack->save)));
    json_object_set_new(json, "again_flops", json_real(stack.again_flops));
    json_array_append_new(out->all, json);
    return ATTN_EXIT_GOOD;
}

/* Every rank. */
static int price_one(const struct attn_spec *spec, const struct attn_cli_shape *shape,
                     const struct attn_problem *p, const struct output *out)
{
    struct attn_error err = {0};
    json_t *all = out->all;
    if (out->stack->n > 0)
        return price_stack(spec, shape, p, out);
    int ranks = attn_ranks(spec->impl, &spec->options);
    double peaks = 0;
    struct attn_cost *cost = attn_cli_need(calloc((size_t)ranks, sizeof *cost));
    for (int rank = 0; rank < ranks; peaks += (double)cost[rank++].peak_bytes)
        if (attn_price(spec->impl, &spec->options, p, shape->pass, rank, &cost[rank], &err) !=
            ATTN_OK) {
            refuse(spec, shape, err.text, all);
            free(cost);
            return attn_cli_status(err.status);
        }
    struct fit fit = fit_of(p, shape->pass, peaks);
    if (out->device > 0) {
        fit = (struct fit){0, 0, (double)out->device, 1};
        (void)attn_device_need(spec, out->stack, p, shape->pass, &fit.peaks, &err);
    }
    if (all == NULL)
        print_text(spec, shape, cost, &fit);
    for (int rank = 0; rank < ranks && all != NULL; rank++)
        json_array_append_new(all, price_json(spec, shape, rank, &cost[rank], &fit));
    free(cost);
    if (out->log != NULL &&
        attn_messages_count(out->log, spec, p, shape->pass, NULL, &err) != ATTN_OK)
        return attn_cli_error(&err);
    return ATTN_EXIT_GOOD;
}

/* spec NULL: storages of the mask.  *stop: no implementation could price it. */
static int price_shape(const struct attn_cli_shape *shape, const struct attn_spec *spec,
                       const struct output *out, int *stop)
{
    struct attn_error err = {0};
    struct attn_problem p = attn_cli_shape_problem(shape);
    struct attn_mask_shape extents = {p.batch, p.heads, p.n_query, p.n_key};
    struct attn_mask *mask = NULL;
    enum attn_status status = attn_problem_check(&p, &err); /* of extents, before of a mask */
    if (status == ATTN_OK)
        status = attn_mask_parse(shape->mask, &extents, NULL, &mask, &err);
    p.mask = mask;
    *stop = status != ATTN_OK;
    int exit_status = *stop          ? attn_cli_fail(attn_cli_status(status), "%s", err.text)
                      : spec != NULL ? price_one(spec, shape, &p, out)
                                     : attn_storage_print(shape, &p, out->make, out->all);
    attn_mask_free(mask);
    return exit_status;
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

/* One line for the longest problem of this shape. */
static int price_longest(const struct attn_spec *spec, const struct attn_cli_shape *shape,
                         const struct output *out)
{
    char name[256], text[2][32], bytes[2][32];
    struct attn_error err = {0};
    double need[2];
    int64_t length;
    attn_spec_print(spec, name, sizeof name);
    enum attn_status status =
        attn_device_longest(spec, out->stack, shape, out->device, &length, need, &err);
    if (out->all != NULL) {
        json_t *json =
            json_pack("{s:s, s:o, s:s, s:s, s:s, s:I}", "spec", name, "isa", isa_json(spec), "pass",
                      attn_pass_name(shape->pass), "mask", shape->mask, "dtype",
                      attn_dtype_name(shape->dtype), "memory_bytes", (json_int_t)out->device);
        json_object_set_new(json, status == ATTN_OK ? "longest" : "refused",
                            status == ATTN_OK ? json_integer((json_int_t)length)
                                              : json_string(err.text));
        json_array_append_new(out->all, json);
    } else if (status != ATTN_OK)
        printf("%-28s %s  refused: %s\n", name, attn_pass_name(shape->pass), err.text);
    else {
        printf("%-28s %s  L = %-14s %10s; one more %10s", name, attn_pass_name(shape->pass),
               attn_cli_grouped(length, text[0]), large_text(need[0], bytes[0]),
               large_text(need[1], bytes[1]));
        print_isa(spec, "; ", "");
        putchar('\n');
    }
    return attn_cli_status(status);
}

/* Of each SPEC, or of all implementations. */
static int all_longest(const struct request *q, const struct attn_spec *spec, int n,
                       const struct output *out)
{
    struct attn_cli_shapes shapes = q->shapes;
    int all = n == 0 ? attn_impl_count() : n, worst = ATTN_EXIT_GOOD;
    shapes.lengths = (struct attn_cli_counts){.n = 1};
    be_patient();
    for (int i = 0; i < all * attn_cli_shape_count(&shapes); i++) {
        int shape_count = attn_cli_shape_count(&shapes);
        const struct attn_cli_shape shape = attn_cli_shape_at(&shapes, i % shape_count);
        struct attn_spec one = n > 0 ? spec[i / shape_count] : (struct attn_spec){0};
        if (n == 0) {
            one.impl = attn_impl_at(i / shape_count);
            attn_options_preset(one.impl, &one.options);
        }
        int status = price_longest(&one, &shape, out);
        worst = status > worst && n > 0 ? status : worst;
    }
    alarm(0);
    if (out->all != NULL)
        json_dumpf(out->all, stdout, JSON_INDENT(1));
    return worst;
}

/* Every spec in every shape. */
static int price_all(const struct request *q, const struct attn_spec *spec, int n,
                     const struct output *out)
{
    int shapes = attn_cli_shape_count(&q->shapes), stop = 0, worst = ATTN_EXIT_GOOD;
    be_patient();
    for (int i = 0; i < n * shapes && !stop; i++) {
        const struct attn_cli_shape shape = attn_cli_shape_at(&q->shapes, i % shapes);
        int status = price_shape(&shape, spec != NULL ? &spec[i / shapes] : NULL, out, &stop);
        worst = status > worst ? status : worst;
    }
    alarm(0);
    if (out->all != NULL) {
        json_dumpf(out->all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
        fputc('\n', stdout);
    }
    return worst;
}

/* --mask-storage and --make, which take no SPEC.  -1: go on; else the exit status. */
static int check_storage(const struct request *q, int n)
{
    if (q->make && !q->storage)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--make is of --mask-storage");
    if (q->storage && (n > 0 || q->log != NULL || q->layers > 0 || q->shapes.pass != 0))
        return attn_cli_fail(ATTN_EXIT_USAGE, "--mask-storage is of a mask: no SPEC, --pass, --log "
                                              "or --layers goes with it");
    if (!q->storage && !q->longest && n == 0)
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "one SPEC or more is needed, or --mask-storage: attnlab price dense "
                             "--length 200k");
    return -1;
}

/* --layers and --save.  -1: go on; else the exit status. */
static int read_stack(struct request *q)
{
    struct attn_error err = {0};
    q->stack = (struct attn_stack){q->layers, ATTN_SAVE_ROWS, q->hidden};
    if (q->save != NULL && attn_stack_save_find(q->save, &q->stack.save, &err) != ATTN_OK)
        return attn_cli_error(&err);
    if ((q->save != NULL || q->hidden > 0) && q->layers == 0)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--%s is of layers: --layers N is needed with it",
                             q->save != NULL ? "save" : "hidden");
    if (q->log != NULL && q->layers > 0)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--log is of ranks, --layers of one process");
    return -1;
}

/* --memory and --longest.  -1: go on; else the exit status. */
static int read_device(struct request *q)
{
    struct attn_error err = {0};
    if (q->memory != NULL && attn_device_parse(q->memory, &q->device, &err) != ATTN_OK)
        return attn_cli_error(&err);
    if (q->longest && (q->memory == NULL || q->shapes.lengths.n > 0 || q->shapes.keys >= 0 ||
                       q->log != NULL || q->storage))
        return attn_cli_fail(ATTN_EXIT_USAGE, "--longest needs --memory SIZE, and finds the length "
                                              "itself: no --length, --keys, --log");
    return -1;
}

/* The same, and the messages into a file, unless something was refused. */
static int price_and_log(const struct request *q, const struct attn_spec *spec, int n,
                         struct output *out)
{
    struct attn_messages messages;
    struct attn_error err = {0};
    int passes = q->shapes.pass == 2 ? 2 : 1; /* both */
    if (n != 1 || attn_cli_shape_count(&q->shapes) != passes)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--log takes the messages of one SPEC in one shape, "
                                              "in one pass or both");
    if (attn_messages_open(&messages, spec, &err) != ATTN_OK)
        return attn_cli_error(&err);
    out->log = &messages;
    int worst = price_all(q, spec, n, out);
    if (worst == ATTN_EXIT_GOOD && attn_messages_save(&messages, q->log, &err) != ATTN_OK)
        worst = attn_cli_error(&err);
    attn_messages_close(&messages);
    return worst;
}

static int price(int argc, char **argv)
{
    struct request q = {.shapes = ATTN_CLI_SHAPES_OPEN};
    struct attn_error err = {0};
    int n, worst = attn_cli_read(&attn_cmd_price, argc, argv, &q, &n);
    if (worst >= 0)
        return worst;
    worst = check_storage(&q, n);
    if (worst < 0)
        worst = read_stack(&q);
    if (worst < 0)
        worst = read_device(&q);
    if (worst >= 0)
        return worst;
    if (q.shapes.lengths.n == 0 && !q.longest)
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "--length is needed: attnlab price dense --length 200k");
    struct attn_spec *spec = attn_cli_need(calloc((size_t)n + 1, sizeof *spec));
    for (int s = 0; s < n; s++)
        if (attn_spec_parse(argv[s + 1], &spec[s], &err) != ATTN_OK) {
            free(spec);
            return attn_cli_error(&err);
        }
    struct output out = {
        .all = q.json ? json_array() : NULL, .stack = &q.stack, .make = q.make, .device = q.device};
    if (q.longest)
        worst = all_longest(&q, spec, n, &out);
    else if (q.storage)
        worst = price_all(&q, NULL, 1, &out);
    else
        worst = q.log != NULL ? price_and_log(&q, spec, n, &out) : price_all(&q, spec, n, &out);
    json_decref(out.all);
    free(spec);
    int flushed = attn_cli_flush();
    return flushed != ATTN_EXIT_GOOD ? flushed : worst;
}
