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
#include "experiments/measure/preflight.h"
#include "optimized/registry.h"
#include "ref/mask/mask.h"
#include "ref/problem.h"

struct request {
    struct attn_cli_shapes shapes;
    int json;
};

static const struct attn_flag_use flags[] = {
    ATTN_CLI_SHAPE_FLAGS(offsetof(struct request, shapes)),
    {.flag = ATTN_FLAG_FORMAT, offsetof(struct request, json), "text"},
    {.flag = ATTN_FLAG_END}};

static int price(int argc, char **argv);

const struct attn_cli_command attn_cmd_price = {
    .name = "price",
    .summary = "memory, flops and bytes sent, without running",
    .usage = "price SPEC... --length L,... [flags]",
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
        "\n"
        "Exit status: 0 good; 2 usage, or a SPEC that refuses: the others are priced.",
    .operands_least = 1,
    .operands_most = -1,
    .computes = 1,
    .run = price};

static void print_grouped(int64_t n, char text[40])
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), out = 0;
    for (int i = 0; i < length; i++) {
        text[out++] = digits[i];
        if ((length - 1 - i) % 3 == 0 && i < length - 1 && digits[i] != '-')
            text[out++] = ',';
    }
    text[out] = '\0';
}

static void print_buffer(const char *name, int64_t bytes)
{
    char binary[32], grouped[40];
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes;
    int u = 0;
    for (; x >= 1000 && u < 6; u++)
        x /= 1000;
    print_grouped(bytes, grouped);
    printf("  %-16s %26s B  %8.4g %-2s  %12s\n", name, grouped, x, unit[u],
           attn_cli_bytes(bytes, binary));
}

/* What all of it needs at once: the ranks of an implementation are simulated in one machine. */
struct fit {
    double floor, peaks, available; /* available: HUGE_VAL where the machine does not say */
};

static struct fit fit_of(const struct attn_problem *p, enum attn_pass pass, double peaks)
{
    int64_t machine = attn_cli_memory_available();
    return (struct fit){attn_preflight_floor(p, pass, NULL), peaks,
                        machine == INT64_MAX ? HUGE_VAL : (double)machine};
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

static void print_text(const struct attn_spec *spec, const struct attn_cli_shape *shape, int rank,
                       const struct attn_cost *cost, const struct fit *fit)
{
    char name[256], text[32], about[1024];
    int ranks = attn_ranks(spec->impl, &spec->options);
    attn_spec_print(spec, name, sizeof name);
    attn_cli_shape_print(shape, about, sizeof about);
    printf("%s  %s  %s", name, attn_pass_name(shape->pass), about);
    printf(ranks > 1 ? "  rank %d of %d\n" : "\n", rank, ranks);
    for (int a = 0; a < cost->n_live; a++)
        print_buffer(cost->live[a].name, cost->live[a].bytes);
    print_buffer("peak", cost->peak_bytes);
    if (cost->saved_bytes > 0)
        print_buffer("  of it, saved", cost->saved_bytes);
    printf("  beside inputs and outputs of %s%s; %.4g flop%s", large_text(fit->floor, text),
           ranks > 1 ? " over all ranks" : "", cost->flops, ranks > 1 ? " on this rank" : "");
    if (ranks > 1)
        printf("; sends %s in %lld messages", attn_cli_bytes(cost->bytes_sent, text),
               (long long)cost->messages);
    printf("%s\n", cost->counted ? "; visible pairs counted row by row" : "");
    print_fit(fit, ranks);
}

/* NaN and infinity: not known. */
static json_t *known(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
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
    return json_pack("{s:s,s:s,s:i,s:I,s:I,s:s,s:s,s:o,s:I,s:I,s:f,s:f,s:I,s:I,s:b,s:f,s:o,s:o}",
                     "spec", name, "pass", attn_pass_name(shape->pass), "rank", rank, "n_query",
                     (json_int_t)shape->n_query, "n_key", (json_int_t)shape->n_key, "mask",
                     shape->mask, "dtype", attn_dtype_name(shape->dtype), "live", live,
                     "peak_bytes", (json_int_t)cost->peak_bytes, "saved_bytes",
                     (json_int_t)cost->saved_bytes, "floor_bytes", fit->floor, "flops", cost->flops,
                     "bytes_sent", (json_int_t)cost->bytes_sent, "messages",
                     (json_int_t)cost->messages, "counted", cost->counted, "needed_bytes", need,
                     "available_bytes", known(fit->available), "fits",
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

/* Every rank; in text those whose price differs from the one before.  all: NULL for text. */
static int price_one(const struct attn_spec *spec, const struct attn_cli_shape *shape,
                     const struct attn_problem *p, json_t *all)
{
    struct attn_error err = {0};
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
    const struct fit fit = fit_of(p, shape->pass, peaks);
    for (int rank = 0; rank < ranks; rank++) {
        const struct attn_cost *last = &cost[rank > 0 ? rank - 1 : 0], *now = &cost[rank];
        int same = rank > 0 && now->peak_bytes == last->peak_bytes &&
                   fabs(now->flops - last->flops) <= 0 && now->bytes_sent == last->bytes_sent;
        if (all != NULL)
            json_array_append_new(all, price_json(spec, shape, rank, now, &fit));
        else if (!same)
            print_text(spec, shape, rank, now, &fit);
    }
    free(cost);
    return ATTN_EXIT_GOOD;
}

/* *stop: no implementation could price it. */
static int price_shape(const struct attn_cli_shape *shape, const struct attn_spec *spec,
                       json_t *all, int *stop)
{
    struct attn_error err = {0};
    struct attn_problem p = {
        .batch = shape->batch,
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .n_query = shape->n_query,
        .n_key = shape->n_key,
        .d_key = shape->dim,
        .d_value = shape->dv,
        .scale = shape->dim > 0 ? 1 / sqrt((double)shape->dim) : 1,
        .dtype = shape->dtype,
    };
    struct attn_mask_shape extents = {p.batch, p.heads, p.n_query, p.n_key};
    struct attn_mask *mask = NULL;
    enum attn_status status = attn_problem_check(&p, &err); /* of extents, before of a mask */
    if (status == ATTN_OK)
        status = attn_mask_parse(shape->mask, &extents, NULL, &mask, &err);
    p.mask = mask;
    *stop = status != ATTN_OK;
    int exit_status = *stop ? attn_cli_fail(attn_cli_status(status), "%s", err.text)
                            : price_one(spec, shape, &p, all);
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

static int price(int argc, char **argv)
{
    struct request q = {.shapes = ATTN_CLI_SHAPES_OPEN};
    struct attn_error err = {0};
    int n, worst = attn_cli_read(&attn_cmd_price, argc, argv, &q, &n);
    if (worst >= 0)
        return worst;
    if (q.shapes.lengths.n == 0)
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "--length is needed: attnlab price dense --length 200k");
    struct attn_spec *spec = attn_cli_need(calloc((size_t)n, sizeof *spec));
    for (int s = 0; s < n; s++)
        if (attn_spec_parse(argv[s + 1], &spec[s], &err) != ATTN_OK) {
            free(spec);
            return attn_cli_error(&err);
        }
    json_t *all = q.json ? json_array() : NULL;
    be_patient();
    worst = ATTN_EXIT_GOOD;
    int shapes = attn_cli_shape_count(&q.shapes), stop = 0;
    for (int i = 0; i < n * shapes && !stop; i++) {
        const struct attn_cli_shape shape = attn_cli_shape_at(&q.shapes, i % shapes);
        int status = price_shape(&shape, &spec[i / shapes], all, &stop);
        worst = status > worst ? status : worst;
    }
    alarm(0);
    if (all != NULL) {
        json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
        fputc('\n', stdout);
    }
    json_decref(all);
    free(spec);
    int flushed = attn_cli_flush();
    return flushed != ATTN_EXIT_GOOD ? flushed : worst;
}
