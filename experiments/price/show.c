#include "experiments/price/show.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/table/row_table.h"
#include "optimized/simd/isa.h"

/* ---- what was asked for ---------------------------------------------------------------------- */

const char *attn_price_bytes(double bytes, char text[32])
{
    return attn_cli_bytes(attn_cli_to_bytes(bytes), text);
}

/* "b1h8g8q128k128d64v64:none:f32": every extent, and no data. */
static void print_case(const struct attn_case *c, char *text, size_t size)
{
    snprintf(text, size, "b%lldh%lldg%lldq%lldk%lldd%lldv%lld:%s:%s%s%s", (long long)c->batch,
             (long long)c->heads, (long long)c->kv_heads, (long long)c->n_query,
             (long long)c->n_key, (long long)c->d_key, (long long)c->d_value, attn_case_mask(c),
             attn_dtype_name(c->dtype), c->sink != ATTN_CASE_SINK_NONE ? ":sink" : "",
             c->kv_shared ? ":kv=shared" : "");
}

void attn_price_print_asked(const struct attn_price_asked *asked)
{
    char name[256], about[1024], stack[ATTN_STACK_TEXT];
    attn_spec_print(asked->spec, name, sizeof name);
    print_case(asked->c, about, sizeof about);
    printf("%s  %s  %s%s%s", name, attn_need_pass_name(asked->pass), about,
           asked->stack->n > 0 ? "  " : "", attn_stack_print(asked->stack, stack));
}

void attn_price_print_isa(const struct attn_spec *spec, const char *before, const char *after)
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

json_t *attn_price_asked_json(const struct attn_price_asked *asked)
{
    char name[256];
    const struct attn_case *c = asked->c;
    const struct attn_stack *stack = asked->stack;
    attn_spec_print(asked->spec, name, sizeof name);
    json_t *json = json_pack("{s:s, s:o, s:s, s:I, s:I, s:s, s:s}", "spec", name, "isa",
                             isa_json(asked->spec), "pass", attn_need_pass_name(asked->pass),
                             "n_query", (json_int_t)c->n_query, "n_key", (json_int_t)c->n_key,
                             "mask", attn_case_mask(c), "dtype", attn_dtype_name(c->dtype));
    if (stack->n == 0)
        return json;
    json_object_set_new(json, "layers", json_integer((json_int_t)stack->n));
    json_object_set_new(json, "hidden", json_integer((json_int_t)stack->hidden));
    json_object_set_new(json, "save", json_string(attn_stack_save_name(stack->save)));
    return json;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *price_json(const struct attn_price_asked *asked, const struct attn_need *need,
                          const struct attn_cost *cost, int rank)
{
    const struct attn_memory *memory = asked->memory;
    double bytes = attn_need_in(need, memory);
    json_t *json = attn_price_asked_json(asked), *live = json_array();
    for (int a = 0; a < cost->n_live; a++)
        json_array_append_new(live, json_pack("{s:s,s:I}", "name", cost->live[a].name, "bytes",
                                              (json_int_t)cost->live[a].bytes));
    json_t *rest =
        json_pack("{s:i, s:o, s:I, s:f, s:I, s:f, s:f, s:f, s:I, s:I, s:b, s:f, s:o, s:o}", "rank",
                  rank, "live", live, "peak_bytes", (json_int_t)cost->peak_bytes, "shard_bytes",
                  cost->shard_bytes, "saved_bytes", (json_int_t)cost->saved_bytes, "floor_bytes",
                  memory->is_device ? 0.0 : need->beside, "flops", cost->flops, "pairs",
                  cost->pairs, "bytes_sent", (json_int_t)cost->bytes_sent, "messages",
                  (json_int_t)cost->messages, "counted", cost->counted, "needed_bytes", bytes,
                  "available_bytes", attn_cli_real(memory->bytes), "fits",
                  isinf(memory->bytes) ? json_null() : json_boolean(bytes <= memory->bytes));
    json_object_update(json, rest);
    json_decref(rest);
    if (memory->params > 0)
        json_object_set_new(json, "params_bytes", json_real(attn_need_params(need, memory)));
    if (asked->stack->n > 0)
        json_object_set_new(json, "again_flops", json_real(need->again_flops));
    if (need->lacks != NULL)
        json_object_set_new(
            json, "priced_only",
            json_sprintf("%s does not run in %s", need->lacks, attn_dtype_name(asked->c->dtype)));
    else if (asked->spec->options.priced_only)
        json_object_set_new(json, "priced_only",
                            json_sprintf("this machine has no %s", asked->spec->options.isa->name));
    return json;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The known parts of a buffer: "2 x 25,600,000 x 4 B". */
static void add_buffer(json_t *rows, const struct attn_account *buffer)
{
    char parts[32], numbers[32];
    json_t *row = json_pack("{s:s, s:I}", "name", buffer->name, "bytes", (json_int_t)buffer->bytes);
    if (buffer->parts > 0)
        json_object_set_new(
            row, "product",
            json_sprintf("%s x %s x %lld B", attn_cli_grouped(buffer->parts, parts),
                         attn_cli_grouped(buffer->bytes / buffer->parts / buffer->size, numbers),
                         (long long)buffer->size));
    json_array_append_new(rows, row);
}

static void add_bytes(json_t *rows, const char *name, double bytes)
{
    add_buffer(rows, &(const struct attn_account){name, attn_cli_to_bytes(bytes), 0, 0});
}

void attn_price_print_beside(const struct attn_price_asked *asked)
{
    const struct attn_memory *memory = asked->memory;
    char number[32], bytes[32];
    const char *projections = asked->stack->hidden > 0 ? "" : "projections, ";
    double params = (double)memory->params * (double)memory->param_bytes;
    if (memory->params > 0)
        printf("  needed too: %s parameters of %lld B, %s\n",
               attn_cli_grouped(memory->params, number), (long long)memory->param_bytes,
               attn_price_bytes(params, bytes));
    if (asked->stack->n > 0)
        printf("  not in it: %sMLP, norms and embeddings%s\n", projections,
               memory->params > 0 ? "" : ", their weights and the optimizer's state (--params)");
}

static void print_fit(const struct attn_price_asked *asked, const struct attn_need *need)
{
    const struct attn_memory *memory = asked->memory;
    char part[32], beside[32], sum[32], has[32], copies[32], of[64] = "", shards[64] = "";
    double bytes = attn_need_in(need, memory);
    const char *verdict = bytes <= memory->bytes ? "fits" : "does not fit";
    if (isinf(memory->bytes)) {
        printf("  whether that fits is unknown: this machine does not say what it has\n\n");
        return;
    }
    if (memory->is_device) {
        printf("  %s: %sneeds %s of %s device's %s\n\n", verdict,
               need->ranks > 1 ? "the fullest rank " : "", attn_price_bytes(bytes, part),
               need->ranks > 1 ? "its" : "the", attn_price_bytes(memory->bytes, has));
        return;
    }
    if (need->ranks > 1)
        snprintf(of, sizeof of, " of %d simulated ranks", need->ranks);
    if (need->copies > 0)
        snprintf(shards, sizeof shards, " + %s of shards, their copies",
                 attn_price_bytes(need->copies, copies));
    printf("  %s: %s available here\n", verdict, attn_price_bytes(memory->bytes, has));
    if (asked->stack->n == 0 && (bytes > memory->bytes || need->ranks > 1))
        printf("      %s%s + %s of inputs and outputs%s = %s\n",
               attn_price_bytes(need->peaks, part), of, attn_price_bytes(need->beside, beside),
               shards, attn_price_bytes(bytes, sum));
    putchar('\n');
}

static const struct attn_column of_ranks[] = {
    {"rank", "rank", ATTN_UNIT_WORDS},
    {"shard_bytes", "inputs and outputs", ATTN_UNIT_BYTES},
    {"peak_bytes", "beyond them", ATTN_UNIT_BYTES},
    {"all_bytes", "together", ATTN_UNIT_BYTES},
    {"flops", "flop", ATTN_UNIT_REAL},
    {"pairs", "pairs", ATTN_UNIT_GROUPED},
    {"bytes_sent", "sends", ATTN_UNIT_BYTES},
    {"messages", "messages", ATTN_UNIT_GROUPED},
    {.key = NULL}};

static int are_alike(const json_t *a, const json_t *b)
{
    int c = 1;
    while (of_ranks[c].key != NULL &&
           json_equal(json_object_get(a, of_ranks[c].key), json_object_get(b, of_ranks[c].key)))
        c++;
    return of_ranks[c].key == NULL;
}

/* A row for each run of ranks that are alike; of many runs the first and the last ones. */
static void print_ranks(const struct attn_price_asked *asked, const struct attn_need *need,
                        const struct attn_cost *cost)
{
    enum { MOST_RUNS = 32, AT_END = 8 };
    json_t *rows = json_array();
    for (int rank = 0; rank < need->ranks; rank++) {
        json_t *row = price_json(asked, need, &cost[rank], rank);
        double bytes = cost[rank].shard_bytes + (double)cost[rank].peak_bytes;
        json_object_set_new(row, "all_bytes", json_real(bytes));
        json_array_append_new(rows, row);
    }
    for (int first = 0, n, r = 0; first < need->ranks; first += n, r++) {
        json_t *row = json_array_get(rows, (size_t)r);
        for (n = 1; are_alike(row, json_array_get(rows, (size_t)r + 1)); n++)
            json_array_remove(rows, (size_t)r + 1);
        if (n > 1)
            json_object_set_new(row, "rank", json_sprintf("%d to %d", first, first + n - 1));
    }
    if (json_array_size(rows) > MOST_RUNS) {
        while (json_array_size(rows) > 2 * AT_END)
            json_array_remove(rows, AT_END);
        json_array_insert_new(rows, AT_END, json_pack("{s:s}", "rank", "..."));
    }
    attn_table_print(stdout, ATTN_TABLE_INDENTED, of_ranks, rows);
    json_decref(rows);
}

/* Buffers of the rank that holds most, the first of them.  Of both passes their larger peak alone:
 * its live set stands above. */
static void print_buffers(const struct attn_price_asked *asked, const struct attn_cost *most,
                          int ranks)
{
    static const struct attn_column column[] = {{"name", "", ATTN_UNIT_WORDS},
                                                {"bytes", "", ATTN_UNIT_GROUPED},
                                                {"bytes", "", ATTN_UNIT_BYTES},
                                                {"product", "", ATTN_UNIT_WORDS},
                                                {.key = NULL}};
    const int is_stack = asked->stack->n > 0;
    json_t *rows = json_array();
    for (int a = 0; a < most->n_live && asked->pass != ATTN_NEED_BOTH; a++)
        add_buffer(rows, &most->live[a]);
    add_bytes(rows, "peak", (double)most->peak_bytes);
    if (most->saved_bytes > 0)
        add_bytes(rows, is_stack ? "saved between" : "of it, saved", (double)most->saved_bytes);
    if (!is_stack && ranks == 1) {
        add_bytes(rows, "inputs and outputs", most->shard_bytes);
        add_bytes(rows, "with them", most->shard_bytes + (double)most->peak_bytes);
    }
    attn_table_print(stdout, ATTN_TABLE_INDENTED, column, rows);
    json_decref(rows);
}

static void print_text(const struct attn_price_asked *asked, const struct attn_need *need,
                       const struct attn_cost *cost)
{
    char weights[32];
    int fullest = 0, alike = 1;
    for (int r = 1; r < need->ranks; r++) {
        alike &= cost[r].peak_bytes == cost[0].peak_bytes;
        if (cost[r].peak_bytes > cost[fullest].peak_bytes)
            fullest = r;
    }
    const struct attn_cost *most = &cost[fullest];
    attn_price_print_asked(asked);
    if (need->ranks > 1 && alike)
        printf("  each of %d ranks", need->ranks);
    else if (need->ranks > 1)
        printf("  rank %d of %d, the fullest", fullest, need->ranks);
    putchar('\n');
    print_buffers(asked, most, need->ranks);
    if (need->ranks > 1)
        print_ranks(asked, need, cost);
    else
        printf("  %s%.4g flop", asked->stack->n > 0 ? "with all inputs and outputs; " : "",
               most->flops);
    if (need->again_flops > 0)
        printf(", %.4g of them in forward passes made again", need->again_flops);
    printf("%s%s",
           most->counted && need->ranks > 1 ? "  "
           : most->counted                  ? "; "
                                            : "",
           most->counted     ? "visible pairs counted row by row\n"
           : need->ranks > 1 ? ""
                             : "\n");
    attn_price_print_isa(asked->spec, "  ",
                         ", the best instruction set here: SPEC@ISA prices another\n");
    if (asked->spec->options.priced_only)
        printf("  priced only: this machine has no %s\n", asked->spec->options.isa->name);
    if (need->lacks != NULL)
        printf(
            "  priced only: %s does not run in %s, and what converting would take is not known\n",
            need->lacks, attn_dtype_name(asked->c->dtype));
    attn_price_print_beside(asked);
    if (asked->memory->params > 0 && need->weights > 0)
        printf("  %s of these parameters stand above: projections, and gradients of theirs\n",
               attn_price_bytes(need->weights, weights));
    print_fit(asked, need);
}

/* ---- one or the other ------------------------------------------------------------------------ */

void attn_price_show(const struct attn_price_asked *asked, const struct attn_need *need,
                     const struct attn_cost *cost, json_t *all)
{
    if (all == NULL)
        print_text(asked, need, cost);
    for (int rank = 0; rank < need->ranks && all != NULL; rank++)
        json_array_append_new(all, price_json(asked, need, &cost[rank], rank));
}

void attn_price_show_refused(const struct attn_price_asked *asked, const char *why, json_t *all)
{
    if (all != NULL) {
        json_t *json = attn_price_asked_json(asked);
        json_object_set_new(json, "refused", json_string(why));
        json_array_append_new(all, json);
        return;
    }
    attn_price_print_asked(asked);
    printf("\n  refused: %s\n\n", why);
}

void attn_price_add_longest(const struct attn_price_asked *asked, int64_t length,
                            const double bytes[2], const char *why, json_t *all)
{
    json_t *json = attn_price_asked_json(asked);
    json_object_del(json, "n_query"), json_object_del(json, "n_key");
    json_object_set_new(json, "memory_bytes", attn_cli_real(asked->memory->bytes));
    json_array_append_new(all, json);
    if (why != NULL) {
        json_object_set_new(json, "refused", json_string(why));
        return;
    }
    json_object_set_new(json, "longest", json_integer((json_int_t)length));
    json_object_set_new(json, "needed_bytes", attn_cli_real(bytes[0]));
    json_object_set_new(json, "one_more_bytes", attn_cli_real(bytes[1]));
}

void attn_price_print_longest(const json_t *all)
{
    static const struct attn_column column[] = {{"spec", "spec", ATTN_UNIT_CODE},
                                                {"pass", "pass", ATTN_UNIT_WORDS},
                                                {"dtype", "type", ATTN_UNIT_WORDS},
                                                {"save", "save", ATTN_UNIT_WORDS},
                                                {"longest", "longest L", ATTN_UNIT_GROUPED},
                                                {"needed_bytes", "needs", ATTN_UNIT_BYTES},
                                                {"one_more_bytes", "one more", ATTN_UNIT_BYTES},
                                                {"isa", "priced for", ATTN_UNIT_WORDS},
                                                {"refused", "refused", ATTN_UNIT_WORDS},
                                                {.key = NULL}};
    attn_table_print(stdout, ATTN_TABLE_TEXT, column, all);
}

void attn_price_print_json(json_t *all)
{
    if (all != NULL)
        attn_table_print(stdout, ATTN_TABLE_JSON, NULL, all);
    json_decref(all);
}
