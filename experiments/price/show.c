#include "experiments/price/show.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "optimized/simd/isa.h"

/* ---- what was asked for ---------------------------------------------------------------------- */

const char *attn_price_seconds(double s, char text[32])
{
    static const char *const unit[] = {"s", "ms", "us"};
    int u = 0;
    for (; u < 2 && s < 1; u++)
        s *= 1000;
    snprintf(text, 32, "%.4g %s", s, unit[u]);
    return text;
}

const char *attn_price_bytes(double bytes, char text[32])
{
    if (bytes >= 9e18)
        snprintf(text, 32, "more than 8 EiB");
    else
        attn_cli_bytes((int64_t)bytes, text);
    return text;
}

/* "b1h8g8q128k128d64v64:none:f32": every extent, and no data. */
static void print_case(const struct attn_case *c, char *text, size_t size)
{
    snprintf(text, size, "b%lldh%lldg%lldq%lldk%lldd%lldv%lld:%s:%s", (long long)c->batch,
             (long long)c->heads, (long long)c->kv_heads, (long long)c->n_query,
             (long long)c->n_key, (long long)c->d_key, (long long)c->d_value, attn_case_mask(c),
             attn_dtype_name(c->dtype));
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

/* ---- text ------------------------------------------------------------------------------------ */

/* "2 x 25,600,000 x 4 B": parts, numbers in each, and their size. */
static const char *product_text(const struct attn_account *buffer, char text[80])
{
    char parts[32], numbers[32];
    snprintf(text, 80, "  %s x %s x %lld B", attn_cli_grouped(buffer->parts, parts),
             attn_cli_grouped(buffer->bytes / buffer->parts / buffer->size, numbers),
             (long long)buffer->size);
    return text;
}

static void print_buffer(const struct attn_account *buffer)
{
    char binary[32], grouped[32], product[80];
    const int64_t bytes = buffer->bytes;
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes;
    int u = 0;
    for (; x >= 1000 && u < 6; u++)
        x /= 1000;
    printf("  %-16s %26s B  %8.4g %-2s  %12s%s\n", buffer->name, attn_cli_grouped(bytes, grouped),
           x, unit[u], attn_cli_bytes(bytes, binary),
           buffer->parts > 0 ? product_text(buffer, product) : "");
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

static int is_same(const struct attn_cost *a, const struct attn_cost *b)
{
    return a->peak_bytes == b->peak_bytes && fabs(a->flops - b->flops) <= 0 &&
           fabs(a->pairs - b->pairs) <= 0 && a->bytes_sent == b->bytes_sent &&
           fabs(a->shard_bytes - b->shard_bytes) <= 0;
}

static const char *counted_text(const struct attn_cost *cost)
{
    return cost->counted ? "; visible pairs counted row by row" : "";
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
    char text[32], pairs[32];
    if (ranks > 1 && end - first == ranks)
        printf("  each rank: ");
    else if (end - first > 1)
        printf("  ranks %d to %d: ", first, end - 1);
    else
        printf(ranks > 1 ? "  rank %d: " : "  ", first);
    printf("beside inputs and outputs of %s, ", attn_price_bytes(x->shard_bytes, text));
    printf("with them %s; ", attn_price_bytes(x->shard_bytes + (double)x->peak_bytes, text));
    printf("%.4g flop", x->flops);
    if (ranks > 1)
        printf(" of %s pairs; sends %s in %lld messages",
               attn_cli_grouped((int64_t)fmin(x->pairs, 9e18), pairs),
               attn_cli_bytes(x->bytes_sent, text), (long long)x->messages);
    printf("%s\n", counted_text(x));
}

/* Of many ranks, no two of which need be equal, the least and the most. */
static void print_range(const struct attn_cost *cost, int first, int end)
{
    char low[32], high[32];
    struct attn_cost least = cost[first], most = cost[first];
    double with[2] = {HUGE_VAL, 0};
    for (int r = first; r < end; r++) {
        double total = cost[r].shard_bytes + (double)cost[r].peak_bytes;
        with[0] = fmin(with[0], total);
        with[1] = fmax(with[1], total);
        least.flops = fmin(least.flops, cost[r].flops);
        most.flops = fmax(most.flops, cost[r].flops);
        if (cost[r].bytes_sent < least.bytes_sent)
            least.bytes_sent = cost[r].bytes_sent;
        if (cost[r].bytes_sent > most.bytes_sent)
            most.bytes_sent = cost[r].bytes_sent;
    }
    printf("  ranks %d to %d: inputs and outputs with what is beside them %s to %s; ", first,
           end - 1, attn_price_bytes(with[0], low), attn_price_bytes(with[1], high));
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

/* The live set of the rank that holds most, the first of them.  Of both passes their larger peak
 * alone: its live set stands above. */
static void print_text(const struct attn_price_asked *asked, const struct attn_need *need,
                       const struct attn_cost *cost)
{
    const char *saved = asked->stack->n > 0 ? "saved between" : "  of it, saved";
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
    for (int a = 0; a < most->n_live && asked->pass != ATTN_NEED_BOTH; a++)
        print_buffer(&most->live[a]);
    print_buffer(&(const struct attn_account){"peak", most->peak_bytes, 0, 0});
    if (most->saved_bytes > 0)
        print_buffer(&(const struct attn_account){saved, most->saved_bytes, 0, 0});
    attn_price_print_isa(asked->spec, "  ",
                         ", the best instruction set here: SPEC@ISA prices another\n");
    if (asked->spec->options.priced_only)
        printf("  priced only: this machine has no %s\n", asked->spec->options.isa->name);
    if (asked->stack->n == 0)
        print_ranks(cost, need->ranks);
    else {
        printf("  with all inputs and outputs; %.4g flop", cost->flops);
        if (need->again_flops > 0)
            printf(", %.4g of them in forward passes made again", need->again_flops);
        printf("%s\n", counted_text(cost));
    }
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

void attn_price_show_longest(const struct attn_price_asked *asked, int64_t length,
                             const double bytes[2], const char *why, json_t *all)
{
    char name[256], text[3][32];
    const char *dtype = attn_dtype_name(asked->c->dtype);
    const char *save = asked->stack->n > 0 ? attn_stack_save_name(asked->stack->save) : "";
    if (all != NULL) {
        json_t *json = attn_price_asked_json(asked);
        json_object_del(json, "n_query"), json_object_del(json, "n_key");
        json_object_set_new(json, "memory_bytes", attn_cli_real(asked->memory->bytes));
        json_object_set_new(json, why == NULL ? "longest" : "refused",
                            why == NULL ? json_integer((json_int_t)length) : json_string(why));
        json_array_append_new(all, json);
        return;
    }
    attn_spec_print(asked->spec, name, sizeof name);
    printf("%-28s %-4s %-4s %s%s", name, attn_need_pass_name(asked->pass), dtype, save,
           save[0] != '\0' ? "  " : "");
    if (why != NULL)
        printf("refused: %s\n", why);
    else {
        printf("L = %-14s %10s; one more %10s", attn_cli_grouped(length, text[0]),
               attn_price_bytes(bytes[0], text[1]),
               isinf(bytes[1]) ? "has none" : attn_price_bytes(bytes[1], text[2]));
        attn_price_print_isa(asked->spec, "; ", "");
        putchar('\n');
    }
}

void attn_price_print_json(json_t *all)
{
    if (all == NULL)
        return;
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17) | JSON_ENSURE_ASCII);
    fputc('\n', stdout);
    json_decref(all);
}
