/* attnlab layer: a whole layer over ranks, against the same layer in one process. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/price/messages.h"
#include "experiments/rim/layer/layer_bound.h"
#include "experiments/rim/layer/schemes/layer_scheme.h"
#include "experiments/table/row_table.h"
#include "ref/mask/mask.h"
#include "ref/textbook.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/inputs/case.h"

struct request {
    int64_t length, hidden, batch, heads, kv_heads;
    const char *mask, *log;
    int pass, boundary, json;
};

static int is_asked(const struct request *q, int pass)
{
    return q->pass == 2 || q->pass == pass;
}

static const struct attn_flag_use flags[] = {
    ATTN_TAKES(LENGTH, offsetof(struct request, length), "32", .kind = ATTN_KIND_COUNT,
               .value = "L", .help = "tokens"),
    ATTN_TAKES(HIDDEN, offsetof(struct request, hidden), "64",
               .help = "features of x, divided among the heads"),
    ATTN_TAKES(BATCH, offsetof(struct request, batch), "1"),
    ATTN_TAKES(HEADS, offsetof(struct request, heads), "4"),
    ATTN_TAKES(KV_HEADS, offsetof(struct request, kv_heads)),
    ATTN_TAKES(MASK, offsetof(struct request, mask), "none", .kind = ATTN_KIND_TEXT),
    ATTN_TAKES(PASS, offsetof(struct request, pass), "both"),
    ATTN_TAKES(BOUNDARY, offsetof(struct request, boundary), "none"),
    ATTN_TAKES(LOG, offsetof(struct request, log)),
    ATTN_TAKES(FORMAT, offsetof(struct request, json), "text"),
    {.flag = ATTN_FLAG_END}};

static int layer(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_layer = {
    .name = "layer",
    .summary = "a layer around attention over ranks: agreement, bytes sent, memory",
    .usage = "layer SPEC... [--length L] [--hidden C] [--heads H] [flags]\n"
             "layer list",
    .about =
        "Run a layer, y = attention(x Wqkv) Wo, forward and backward on simulated ranks, in "
        "float64,\n"
        "and compare y, dx, dWqkv and dWo with the same layer in one process.  A SPEC is a scheme\n"
        "around the layer (fastseq, dsp) or any sequence-parallel implementation, "
        "which\n"
        "then does the attention (attnlab layer list).",
    .words = "list ",
    .flags = flags,
    .more =
        "Printed are the largest difference of each result and how large rounding alone may make\n"
        "it; and of each rank what it sent, also in units of B L C (R-1)/R^2 numbers, and its\n"
        "memory beside its shards, at the peak, by named buffers.  Prices must equal counts.\n"
        "\n"
        "  attnlab layer fastseq:ranks=4 ulysses:ranks=4\n"
        "  attnlab layer video dsp --mask 'spatial(8,8,1)' --pass fwd\n"
        "  attnlab layer ulysses --boundary unscaled",
    .exits = "0 good; 1 a disagreement; 2 usage, a SPEC that refuses, or sizes at which rounding "
             "could hide a mistake.",
    .operands_least = 1,
    .operands_most = -1,
    .computes = 1,
    .size = sizeof(struct request),
    .initial = &(const struct request){.kv_heads = -1},
    .run = layer};

/* ---- the data -------------------------------------------------------------------------------- */

struct data {
    struct attn_layer layer;
    struct attn_mask *mask;
    double *x, *dy, *wqkv, *wo; /* as large as the results that belong to them */
    double *one[ATTN_LAYER_RESULTS], *ranks[ATTN_LAYER_RESULTS]; /* in one process, over ranks */
    struct attn_layer_bound bound;
};

/* Of weights, a column of C numbers has a norm of about 1.  Half the usual x keeps scores, and with
 * them what rounding may do, small. */
static double *draw(const struct data *d, int like, uint64_t stream)
{
    int64_t n = attn_layer_result_count(&d->layer, like);
    int is_weight = like == ATTN_LAYER_DWQKV || like == ATTN_LAYER_DWO;
    double by = is_weight ? 1 / sqrt((double)d->layer.hidden) : 0.5;
    double *x = attn_cli_need(calloc((size_t)n + 1, sizeof *x));
    for (int64_t i = 0; i < n; i++)
        x[i] = by * attn_hash_normal(1, stream, (uint64_t)i);
    return x;
}

/* The data live as long as the program. */
static void open_data(struct data *d, const struct request *q)
{
    struct attn_error err;
    int64_t kv_heads = q->kv_heads >= 0 ? q->kv_heads : q->heads;
    struct attn_problem problem;
    *d = (struct data){.layer = {.batch = q->batch,
                                 .length = q->length,
                                 .hidden = q->hidden,
                                 .heads = q->heads,
                                 .kv_heads = kv_heads,
                                 .dtype = ATTN_F64}};
    if (q->heads < 1 || q->hidden % q->heads != 0)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--hidden %lld --heads %lld: heads must divide hidden; --hidden %lld would "
                      "work",
                      (long long)q->hidden, (long long)q->heads, (long long)(16 * q->heads));
    d->layer.d_key = d->layer.d_value = q->hidden / q->heads;
    d->layer.scale = 1 / sqrt((double)d->layer.d_key);
    attn_cli_must(attn_layer_check(&d->layer, &err), &err);
    struct attn_case c = {.batch = q->batch,
                          .heads = q->heads,
                          .kv_heads = kv_heads,
                          .n_query = q->length,
                          .n_key = q->length,
                          .d_key = d->layer.d_key,
                          .d_value = d->layer.d_value};
    attn_case_set_mask(&c, q->mask);
    attn_cli_must(attn_case_open(&c, NULL, &problem, &d->mask, &err), &err);
    d->layer.mask = d->mask;
    d->x = draw(d, ATTN_LAYER_Y, 1);
    d->dy = draw(d, ATTN_LAYER_Y, 2);
    d->wqkv = draw(d, ATTN_LAYER_DWQKV, 3);
    d->wo = draw(d, ATTN_LAYER_DWO, 4);
    for (int r = 0; r < ATTN_LAYER_RESULTS; r++) {
        size_t n = (size_t)attn_layer_result_count(&d->layer, r) + 1;
        d->one[r] = attn_cli_need(calloc(n, sizeof **d->one));
        d->ranks[r] = attn_cli_need(calloc(n, sizeof **d->ranks));
    }
    d->bound = attn_layer_bound(&d->layer, d->x, d->wqkv, d->wo, d->dy);
}

static struct attn_layer_forward forward_of(const struct data *d, double *const *result)
{
    return (struct attn_layer_forward){d->x, d->wqkv, d->wo, result[ATTN_LAYER_Y]};
}

static struct attn_layer_backward backward_of(const struct data *d, double *const *result)
{
    return (struct attn_layer_backward){d->x,
                                        d->wqkv,
                                        d->wo,
                                        d->dy,
                                        result[ATTN_LAYER_DX],
                                        result[ATTN_LAYER_DWQKV],
                                        result[ATTN_LAYER_DWO]};
}

/* The layer in one process, by the textbook. */
static void run_one(struct data *d)
{
    struct attn_ledger ledger;
    struct attn_options options;
    struct attn_error err;
    const struct attn_impl *impl = &attn_impl_tiled_textbook;
    attn_options_preset(impl, &options);
    attn_ledger_init(&ledger, NULL);
    struct attn_ctx ctx = {.ledger = &ledger, .options = &options, .error = &err};
    const struct attn_layer_forward forward = forward_of(d, d->one);
    const struct attn_layer_backward backward = backward_of(d, d->one);
    attn_cli_must(attn_layer_run_forward(impl, &ctx, &d->layer, &forward, NULL), &err);
    attn_cli_must(attn_layer_run_backward(impl, &ctx, &d->layer, &backward, NULL), &err);
    attn_ledger_clear(&ledger);
}

/* ---- one SPEC -------------------------------------------------------------------------------- */

/* The outcome of a SPEC. */
struct judged {
    const struct attn_layer_spec *spec;
    int ranks, results; /* of the pass or passes that were asked for */
    int passes;         /* that were run: 2 with a backward one      */
    struct {
        double difference, largest; /* largest difference; largest element */
        double tolerance;           /* both are within the bound of the exact result, or one is
                                       wrong */
        int agrees, judged;
    } result[ATTN_LAYER_RESULTS];
    int differ; /* copies of results on ranks, from the last rank's */
    struct attn_rank_use *use[2];
    struct attn_cost *cost[2];
};

/* NaN disagrees with everything.  A tolerance of a thousandth of the largest element might hide a
 * mistake. */
static void compare(const struct data *d, struct judged *j)
{
    for (int r = 0; r < j->results; r++) {
        double difference = 0, largest = 0, tolerance = 2 * d->bound.at[r];
        int64_t n = attn_layer_result_count(&d->layer, r);
        for (int64_t i = 0; i < n; i++) {
            double error = fabs(d->ranks[r][i] - d->one[r][i]);
            if (!(error <= difference))
                difference = error;
            largest = fmax(largest, fabs(d->one[r][i]));
        }
        j->result[r].difference = difference;
        j->result[r].largest = largest;
        j->result[r].tolerance = tolerance;
        j->result[r].agrees = difference <= tolerance;
        j->result[r].judged = tolerance <= 1e-3 * largest || n == 0;
    }
}

static int as_priced(const struct judged *j, int pass, int rank)
{
    const struct attn_rank_use *use = &j->use[pass][rank];
    const struct attn_cost *cost = &j->cost[pass][rank];
    return use->peak_bytes == cost->peak_bytes && use->bytes_sent == cost->bytes_sent &&
           use->messages == cost->messages;
}

/* The bytes of a rank, from one sharding to another, in units of B L C (R-1)/R^2 numbers. */
static double units(const struct data *d, const struct judged *j, int64_t bytes)
{
    double p = j->ranks;
    double m = 8 * (double)attn_layer_result_count(&d->layer, ATTN_LAYER_Y) * (p - 1) / (p * p);
    return m > 0 ? (double)bytes / m : 0;
}

static enum attn_status run_spec(struct data *d, const struct attn_log *log, struct judged *j,
                                 struct attn_error *err)
{
    struct attn_ledger ledger;
    struct attn_ctx ctx = {.ledger = &ledger, .error = err, .log = log};
    const struct attn_layer_forward forward = forward_of(d, d->ranks);
    const struct attn_layer_backward backward = backward_of(d, d->ranks);
    struct attn_layer_call call = {
        &d->layer, &forward, j->passes > 1 ? &backward : NULL, {j->use[0], j->use[1]}, 0};
    attn_ledger_init(&ledger, NULL);
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < j->passes * j->ranks && status == ATTN_OK; n++)
        status = attn_layer_ranks_cost(j->spec, &d->layer, (enum attn_pass)(n % j->passes),
                                       n / j->passes, &j->cost[n % j->passes][n / j->passes], err);
    if (status == ATTN_OK)
        status = attn_layer_ranks_run(j->spec, &ctx, &call);
    attn_ledger_clear(&ledger);
    j->differ = call.differ;
    if (status == ATTN_OK)
        compare(d, j);
    return status;
}

/* ---- what is printed ------------------------------------------------------------------------- */

/* The first of the ranks that hold most has its buffers beside it. */
static int is_fullest(const struct judged *j, int pass, int rank)
{
    const struct attn_rank_use *use = j->use[pass];
    for (int r = 0; r < j->ranks; r++)
        if (use[r].peak_bytes > use[rank].peak_bytes - (r < rank))
            return 0;
    return 1;
}

static json_t *rank_row(const struct data *d, const struct judged *j, int pass, int rank)
{
    const struct attn_rank_use *use = &j->use[pass][rank];
    json_t *live = json_array();
    for (int a = 0; a < use->n_live; a++)
        json_array_append_new(live, json_pack("{s:s,s:I}", "name", use->live[a].name, "bytes",
                                              (json_int_t)use->live[a].bytes));
    json_t *row = json_pack(
        "{s:s,s:i,s:I,s:I,s:f,s:I,s:f,s:b}", "pass", attn_pass_name((enum attn_pass)pass), "rank",
        rank, "bytes_sent", (json_int_t)use->bytes_sent, "messages", (json_int_t)use->messages,
        "units", units(d, j, use->bytes_sent), "peak_bytes", (json_int_t)use->peak_bytes,
        "shard_bytes", j->cost[pass][rank].shard_bytes, "as_priced", as_priced(j, pass, rank));
    if (is_fullest(j, pass, rank))
        json_object_set(row, "live", live);
    json_decref(live);
    return row;
}

static json_t *result_row(const struct judged *j, int r)
{
    const char *verdict = !j->result[r].agrees ? "DISAGREES"
                          : j->result[r].judged
                              ? "agrees"
                              : "cannot be judged: try fewer tokens or a smaller --hidden";
    return json_pack("{s:s,s:o,s:o,s:o,s:s}", "name", attn_layer_result_name[r], "difference",
                     attn_cli_real(j->result[r].difference), "largest",
                     attn_cli_real(j->result[r].largest), "tolerance",
                     attn_cli_real(j->result[r].tolerance), "verdict", verdict);
}

static json_t *spec_row(const struct data *d, const struct request *q, const struct judged *j)
{
    char name[256];
    json_t *results = json_array(), *ranks = json_array();
    attn_spec_print(&j->spec->spec, name, sizeof name);
    for (int r = 0; r < j->results; r++)
        json_array_append_new(results, result_row(j, r));
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < j->ranks && is_asked(q, pass); r++)
            json_array_append_new(ranks, rank_row(d, j, pass, r));
    return json_pack("{s:s,s:i,s:o,s:o}", "spec", name, "copies_that_differ", j->differ, "results",
                     results, "ranks", ranks);
}

static void print_text(const struct data *d, const struct request *q, const json_t *row)
{
    static const struct attn_column of_results[] = {
        {"name", "", ATTN_UNIT_WORDS},         {"verdict", "verdict", ATTN_UNIT_WORDS},
        {"difference", "off", ATTN_UNIT_REAL}, {"tolerance", "tolerance", ATTN_UNIT_REAL},
        {"largest", "of", ATTN_UNIT_REAL},     {.key = NULL}};
    static const struct attn_column of_ranks[] = {{"pass", "", ATTN_UNIT_WORDS},
                                                  {"rank", "rank", ATTN_UNIT_PLAIN},
                                                  {"bytes_sent", "sends", ATTN_UNIT_BYTES},
                                                  {"messages", "messages", ATTN_UNIT_PLAIN},
                                                  {"units", "units", ATTN_UNIT_REAL},
                                                  {"shard_bytes", "shards", ATTN_UNIT_BYTES},
                                                  {"peak_bytes", "beyond them", ATTN_UNIT_BYTES},
                                                  {"as_priced", "as priced", ATTN_UNIT_WORDS},
                                                  {"live", "", ATTN_UNIT_BYTES | ATTN_UNIT_BELOW},
                                                  {.key = NULL}};
    const struct attn_layer *l = &d->layer;
    json_int_t differ = json_integer_value(json_object_get(row, "copies_that_differ"));
    printf("%s  b%lldl%lldc%lldh%lldg%lld:%s\n", json_string_value(json_object_get(row, "spec")),
           (long long)l->batch, (long long)l->length, (long long)l->hidden, (long long)l->heads,
           (long long)l->kv_heads, q->mask);
    attn_table_print(stdout, ATTN_TABLE_INDENTED, of_results, json_object_get(row, "results"));
    if (differ > 0)
        printf("  DISAGREES: %lld copies of results on ranks differ from the last rank's\n",
               (long long)differ);
    attn_table_print(stdout, ATTN_TABLE_INDENTED, of_ranks, json_object_get(row, "ranks"));
    putchar('\n');
}

/* The worst of what was found. */
static int verdict(const struct judged *j)
{
    int wrong = j->differ > 0, open = 0;
    for (int r = 0; r < j->results; r++) {
        wrong |= !j->result[r].agrees;
        open |= !j->result[r].judged;
    }
    for (int n = 0; n < j->ranks * j->passes; n++)
        wrong |= !as_priced(j, n / j->ranks, n % j->ranks);
    return wrong ? ATTN_EXIT_DISAGREE : open ? ATTN_EXIT_USAGE : ATTN_EXIT_GOOD;
}

static int one_spec(struct data *d, const struct attn_layer_spec *spec, const struct request *q,
                    json_t *all)
{
    size_t ranks = (size_t)attn_layer_ranks(spec);
    struct attn_error err = {0};
    struct judged j = {.spec = spec,
                       .ranks = (int)ranks,
                       .results = q->pass > 0 ? ATTN_LAYER_RESULTS : 1,
                       .passes = q->pass > 0 ? 2 : 1};
    for (int pass = 0; pass < 2; pass++) {
        j.use[pass] = attn_cli_need(calloc(ranks, sizeof **j.use));
        j.cost[pass] = attn_cli_need(calloc(ranks, sizeof **j.cost));
    }
    struct attn_messages messages = {.ranks = 0};
    int logs = q->log != NULL;
    enum attn_status status = logs ? attn_messages_open(&messages, &spec->spec, &err) : ATTN_OK;
    if (status == ATTN_OK)
        status = run_spec(d, logs ? &messages.log : NULL, &j, &err);
    if (status == ATTN_OK && logs)
        status = attn_messages_save(&messages, q->log, &err);
    attn_messages_close(&messages);
    int exit_status = status == ATTN_OK ? verdict(&j) : attn_cli_error(&err);
    if (status == ATTN_OK)
        json_array_append_new(all, spec_row(d, q, &j));
    if (status == ATTN_OK && !q->json)
        print_text(d, q, json_array_get(all, json_array_size(all) - 1));
    for (int pass = 0; pass < 2; pass++) {
        free(j.use[pass]);
        free(j.cost[pass]);
    }
    return exit_status;
}

/* A disagreement outweighs what could not be run. */
static int heavier(int a, int b)
{
    return a == ATTN_EXIT_DISAGREE || b == ATTN_EXIT_DISAGREE ? ATTN_EXIT_DISAGREE : a > b ? a : b;
}

/* Schemes around a layer, then those that exchange q, k, v and do for a layer's attention. */
static int list(void)
{
    for (int i = 0; i < attn_layer_scheme_count(); i++) {
        const struct attn_impl *record = &attn_layer_scheme_at(i)->record;
        printf("%-16s  %s\n", record->name, record->summary);
    }
    for (int i = 0; i < attn_impl_count(); i++)
        if (attn_impl_at(i)->scheme != NULL)
            printf("%-16s  %s\n", attn_impl_at(i)->name, attn_impl_at(i)->summary);
    return attn_cli_flush();
}

static int layer(void *values, int n, char **operand)
{
    const struct request *asked = values;
    if (n == 1 && strcmp(operand[0], "list") == 0)
        return list();
    static struct data d;
    struct attn_error err;
    if (asked->log != NULL && attn_cli_runner() != NULL)
        attn_cli_stop(ATTN_ENOTSUP, NULL, "--log is for simulated ranks: attnlab layer");
    if (asked->log != NULL && n != 1)
        attn_cli_stop(ATTN_EINVAL, NULL, "--log takes the messages of one SPEC");
    struct attn_layer_spec *spec = attn_cli_need(calloc((size_t)n, sizeof *spec));
    for (int s = 0; s < n; s++) {
        attn_cli_must(attn_layer_spec_parse(operand[s], &spec[s], &err), &err);
        spec[s].boundary = (enum attn_boundary)asked->boundary;
        attn_cli_must(attn_cli_run_by(attn_layer_ranks(&spec[s]), &spec[s].spec.options, &err),
                      &err);
    }
    if (asked->log != NULL)
        attn_cli_must(attn_save_check(asked->log, &err), &err);
    open_data(&d, asked);
    run_one(&d);
    int worst = ATTN_EXIT_GOOD;
    json_t *all = json_array();
    for (int s = 0; s < n; s++)
        worst = heavier(worst, one_spec(&d, &spec[s], asked, all));
    if (asked->json)
        attn_table_print(stdout, ATTN_TABLE_JSON, NULL, all);
    json_decref(all);
    free(spec);
    return worst;
}
