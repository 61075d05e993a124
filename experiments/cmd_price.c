/* attnlab price: what a call would cost, without making it. */
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli.h"
#include "optimized/registry.h"
#include "ref/mask/mask.h"
#include "ref/problem.h"

static const char help[] =
    "attnlab price SPEC [SPEC ...] --length N[,N...] [OPTIONS]\n\n"
    "Memory at the peak by named buffer, flops, and bytes sent, from the implementation's own\n"
    "formula: nothing is allocated, so any length can be asked for.\n\n"
    "  --length N,...   queries (and keys)          --keys N       keys, where they differ\n"
    "  --batch B (1)    --heads H (8)  --kv-heads G (H)  --dim d (64)  --dv dv (d)\n"
    "  --mask MASK (none)              --dtype f64|f32 (f32)\n"
    "  --pass fwd|bwd|both (fwd)       --format text|json\n\n"
    "Masks without a closed formula, such as 'causal(br)|random(0.01,3)', are counted row by row,\n"
    "which takes seconds at lengths of 100,000 and more; a terminal is told so.\n\n"
    "  attnlab price dense --length 200000\n"
    "  attnlab price dense csr-textbook tiled-textbook --length 65536 --mask 'causal(br)' --pass "
    "both\n";

struct request {
    int64_t batch, heads, kv_heads, keys, dim, dv;
    const char *lengths, *mask;
    enum attn_dtype dtype;
    int pass[2], json;
};

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

/* Bytes of inputs and outputs of a pass; double, because this may exceed 64 bits where the
 * price does not. */
static double floor_bytes(const struct attn_problem *p, int backward)
{
    double e = (double)attn_dtype_size(p->dtype), bh = (double)p->batch * (double)p->heads;
    double q = bh * (double)p->n_query,
           k = (double)p->batch * (double)p->kv_heads * (double)p->n_key;
    double in = e * (q * (double)p->d_key + k * (double)(p->d_key + p->d_value));
    double out = q * (e * (double)p->d_value + (p->dtype == ATTN_F64 ? 8 : 4));
    return backward ? 2 * in + out + e * q * (double)p->d_value : in + out;
}

static void print_text(const struct attn_spec *spec, const struct attn_problem *p, const char *mask,
                       enum attn_pass pass, int rank, const struct attn_cost *cost)
{
    char name[256], text[32], floor_text[32];
    int ranks = attn_ranks(spec->impl, &spec->options);
    attn_spec_print(spec, name, sizeof name);
    printf("%s  %s  b%lldh%lldg%lldq%lldk%lldd%lldv%lld:%s:%s", name, attn_pass_name(pass),
           (long long)p->batch, (long long)p->heads, (long long)p->kv_heads, (long long)p->n_query,
           (long long)p->n_key, (long long)p->d_key, (long long)p->d_value, mask,
           attn_dtype_name(p->dtype));
    printf(ranks > 1 ? "  rank %d of %d\n" : "\n", rank, ranks);
    for (int a = 0; a < cost->n_live; a++)
        print_buffer(cost->live[a].name, cost->live[a].bytes);
    print_buffer("peak", cost->peak_bytes);
    if (cost->saved_bytes > 0)
        print_buffer("  of it, saved", cost->saved_bytes);
    double in_out = floor_bytes(p, pass == ATTN_BACKWARD);
    int64_t machine = attn_cli_memory_available();
    printf("  beside inputs and outputs of %s%s; %.4g flop%s",
           in_out < 9e18 ? attn_cli_bytes((int64_t)in_out, floor_text) : "more than 8 EiB",
           ranks > 1 ? " over all ranks" : "", cost->flops, ranks > 1 ? " on this rank" : "");
    if (ranks > 1)
        printf("; sends %s in %lld messages", attn_cli_bytes(cost->bytes_sent, text),
               (long long)cost->messages);
    printf("%s\n", cost->counted ? "; visible pairs counted row by row" : "");
    double need = in_out + (double)cost->peak_bytes * ranks;
    if (machine == INT64_MAX)
        printf("  whether that fits is unknown: this machine does not say what it has\n\n");
    else
        printf("  %s: %s available here\n\n", need <= (double)machine ? "fits" : "does not fit",
               attn_cli_bytes(machine, text));
}

static json_t *price_json(const struct attn_spec *spec, const struct attn_problem *p,
                          const char *mask, enum attn_pass pass, int rank,
                          const struct attn_cost *cost)
{
    char name[256];
    attn_spec_print(spec, name, sizeof name);
    json_t *live = json_array();
    for (int a = 0; a < cost->n_live; a++)
        json_array_append_new(live, json_pack("{s:s,s:I}", "name", cost->live[a].name, "bytes",
                                              (json_int_t)cost->live[a].bytes));
    return json_pack("{s:s,s:s,s:i,s:I,s:I,s:s,s:s,s:o,s:I,s:I,s:f,s:f,s:I,s:I,s:b}", "spec", name,
                     "pass", attn_pass_name(pass), "rank", rank, "n_query", (json_int_t)p->n_query,
                     "n_key", (json_int_t)p->n_key, "mask", mask, "dtype",
                     attn_dtype_name(p->dtype), "live", live, "peak_bytes",
                     (json_int_t)cost->peak_bytes, "saved_bytes", (json_int_t)cost->saved_bytes,
                     "floor_bytes", floor_bytes(p, pass == ATTN_BACKWARD), "flops", cost->flops,
                     "bytes_sent", (json_int_t)cost->bytes_sent, "messages",
                     (json_int_t)cost->messages, "counted", cost->counted);
}

/* Every pass and every rank whose price differs from the one before. */
static enum attn_status price_one(const struct attn_spec *spec, const struct request *q,
                                  const struct attn_problem *p, json_t *all, struct attn_error *err)
{
    int ranks = attn_ranks(spec->impl, &spec->options);
    for (int pass = 0; pass < 2; pass++) {
        struct attn_cost last = {0};
        for (int rank = 0; q->pass[pass] && rank < ranks; rank++) {
            struct attn_cost cost;
            enum attn_status status =
                attn_price(spec->impl, &spec->options, p, (enum attn_pass)pass, rank, &cost, err);
            if (status != ATTN_OK)
                return status;
            int same = rank > 0 && cost.peak_bytes == last.peak_bytes &&
                       fabs(cost.flops - last.flops) <= 0 && cost.bytes_sent == last.bytes_sent;
            if (q->json)
                json_array_append_new(
                    all, price_json(spec, p, q->mask, (enum attn_pass)pass, rank, &cost));
            else if (!same)
                print_text(spec, p, q->mask, (enum attn_pass)pass, rank, &cost);
            last = cost;
        }
    }
    return ATTN_OK;
}

static int price_length(const struct attn_spec *spec, const struct request *q, int64_t length,
                        json_t *all)
{
    struct attn_error err = {0};
    struct attn_problem p = {
        .batch = q->batch,
        .heads = q->heads,
        .kv_heads = q->kv_heads > 0 ? q->kv_heads : q->heads,
        .n_query = length,
        .n_key = q->keys >= 0 ? q->keys : length,
        .d_key = q->dim,
        .d_value = q->dv >= 0 ? q->dv : q->dim,
        .scale = q->dim > 0 ? 1 / sqrt((double)q->dim) : 1,
        .dtype = q->dtype,
    };
    struct attn_mask_shape shape = {p.batch, p.heads, p.n_query, p.n_key};
    struct attn_mask *mask = NULL;
    enum attn_status status = attn_problem_check(&p, &err); /* of extents, before of a mask */
    if (status == ATTN_OK)
        status = attn_mask_parse(q->mask, &shape, NULL, &mask, &err);
    p.mask = mask;
    if (status == ATTN_OK)
        status = price_one(spec, q, &p, all, &err);
    attn_mask_free(mask);
    if (status == ATTN_OK)
        return ATTN_EXIT_GOOD;
    return attn_cli_fail("price", attn_cli_status(status), "%s", err.text);
}

static int each_length(const struct attn_spec *spec, const struct request *q, json_t *all)
{
    for (const char *at = q->lengths; at != NULL;) {
        char word[32] = "";
        size_t n = strcspn(at, ",");
        int64_t length;
        snprintf(word, sizeof word, "%.*s", n < 31 ? (int)n : 31, at);
        if (!attn_cli_int(word, 0, INT64_MAX, &length))
            return attn_cli_fail("price", ATTN_EXIT_USAGE,
                                 "--length '%s': numbers such as 1024,200000 are needed",
                                 q->lengths);
        int status = price_length(spec, q, length, all);
        if (status != ATTN_EXIT_GOOD)
            return status;
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return ATTN_EXIT_GOOD;
}

static int parse_word(int o, const char *value, struct request *q)
{
    if (o == 't') {
        for (int d = 0; d < ATTN_DTYPES; d++)
            if (strcmp(value, attn_dtype_name((enum attn_dtype)d)) == 0) {
                q->dtype = (enum attn_dtype)d;
                return 1;
            }
        return 0;
    }
    if (o == 'f') {
        q->json = strcmp(value, "json") == 0;
        return q->json || strcmp(value, "text") == 0;
    }
    q->pass[0] = strcmp(value, "bwd") != 0;
    q->pass[1] = strcmp(value, "fwd") != 0;
    return strcmp(value, "fwd") == 0 || strcmp(value, "bwd") == 0 || strcmp(value, "both") == 0;
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

int attn_cmd_price(int argc, char **argv)
{
    static const struct option longs[] = {{"length", required_argument, NULL, 'l'},
                                          {"keys", required_argument, NULL, 'k'},
                                          {"batch", required_argument, NULL, 'b'},
                                          {"heads", required_argument, NULL, 'H'},
                                          {"kv-heads", required_argument, NULL, 'G'},
                                          {"dim", required_argument, NULL, 'd'},
                                          {"dv", required_argument, NULL, 'v'},
                                          {"mask", required_argument, NULL, 'm'},
                                          {"dtype", required_argument, NULL, 't'},
                                          {"pass", required_argument, NULL, 'p'},
                                          {"format", required_argument, NULL, 'f'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct request q = {1, 8, -1, -1, 64, -1, NULL, "none", ATTN_F32, {1, 0}, 0};
    if (attn_cli_options("price", argc, argv, longs, NULL) != ATTN_EXIT_GOOD)
        return ATTN_EXIT_USAGE;
    for (int o, index = 0; (o = getopt_long(argc, argv, "", longs, &index)) != -1;) {
        int64_t *number = o == 'k'   ? &q.keys
                          : o == 'b' ? &q.batch
                          : o == 'H' ? &q.heads
                          : o == 'G' ? &q.kv_heads
                          : o == 'd' ? &q.dim
                          : o == 'v' ? &q.dv
                                     : NULL;
        if (o == 'h')
            return attn_cli_help(help);
        int good = 1;
        if (o == 'l')
            q.lengths = optarg;
        else if (o == 'm')
            q.mask = optarg;
        else if (number != NULL)
            good = attn_cli_int(optarg, 0, INT64_MAX, number);
        else
            good = parse_word(o, optarg, &q);
        if (!good)
            return attn_cli_fail("price", ATTN_EXIT_USAGE, "--%s %s: see attnlab price --help",
                                 longs[index].name, optarg);
    }
    if (optind == argc || q.lengths == NULL)
        return attn_cli_fail("price", ATTN_EXIT_USAGE,
                             "a SPEC and --length are needed: attnlab price dense --length 200000");
    json_t *all = json_array();
    int status = ATTN_EXIT_GOOD;
    be_patient();
    for (int i = optind; i < argc && status == ATTN_EXIT_GOOD; i++) {
        struct attn_spec spec;
        struct attn_error err = {0};
        if (attn_spec_parse(argv[i], &spec, &err) != ATTN_OK)
            status = attn_cli_fail("price", attn_cli_status(err.status), "%s", err.text);
        else
            status = each_length(&spec, &q, all);
    }
    if (status == ATTN_EXIT_GOOD && q.json) {
        json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
        fputc('\n', stdout);
    }
    alarm(0);
    json_decref(all);
    return status != ATTN_EXIT_GOOD ? status : attn_cli_flush("price");
}
