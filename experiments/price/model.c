/* See model.h. */
#include "experiments/price/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/table/row_table.h"

enum use { CACHE, PREFILL, TRAINING, USES };

struct pricing {
    const struct attn_model_asked *asked;
    struct attn_cache cache;
    struct attn_spec spec;
    enum use use;
};

/* One call of a layer; or the stack of all layers. */
static enum attn_status need_of(const struct pricing *x, int64_t length, double *bytes,
                                struct attn_error *err)
{
    const int is_stack = x->use == TRAINING;
    const struct attn_stack one_call = {0};
    struct attn_case c = x->asked->c;
    struct attn_need need = {0};
    c.n_query = length;
    c.n_key = x->asked->keys >= 0 ? x->asked->keys : length;
    const struct attn_price_asked asked = {&x->spec, is_stack ? &x->asked->stack : &one_call, &c,
                                           is_stack ? ATTN_NEED_BOTH : ATTN_NEED_FORWARD, NULL};
    enum attn_status status = attn_need_of_case(&asked, &need, err);
    *bytes = need.device;
    return status;
}

static enum attn_status bytes_of(void *arg, int64_t length, double *bytes, struct attn_error *err)
{
    const struct pricing *x = arg;
    double cache = attn_cache_bytes(&x->cache, length);
    enum attn_status status = ATTN_OK;
    *bytes = 0;
    if (x->use != CACHE)
        status = need_of(x, length, bytes, err);
    *bytes += x->use != TRAINING ? cache : 0;
    return status;
}

static double params_of(const struct attn_memory *memory)
{
    return (double)memory->params * (double)memory->param_bytes;
}

static enum attn_status open(const struct attn_model_asked *asked, struct pricing *x,
                             struct attn_error *err)
{
    *x = (struct pricing){.asked = asked};
    enum attn_status status = attn_cache_open(asked->model, &asked->c, asked->keys, &x->cache, err);
    return status == ATTN_OK ? attn_spec_parse_priced("tiled@portable", &x->spec, err) : status;
}

/* "training, save rows". */
static const char *use_name(const struct pricing *x, char text[40])
{
    static const char *const name[USES] = {"cache", "prefill, with one layer's call",
                                           "training, save "};
    snprintf(text, 40, "%s%s", name[x->use],
             x->use == TRAINING ? attn_stack_save_name(x->asked->stack.save) : "");
    return text;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static json_t *row_of(const struct pricing *x, const char *part)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:s}", "model", x->cache.model->name, "type",
                     x->cache.type->name, "page", (json_int_t)x->cache.page, "batch",
                     (json_int_t)x->cache.c->batch, "part", part);
}

static void add_bytes(const struct pricing *x, double bytes, json_t *row)
{
    const struct attn_memory *memory = &x->asked->memory;
    json_object_set_new(row, "bytes",
                        bytes < 9e18 ? json_integer((json_int_t)bytes) : json_real(bytes));
    if (x->asked->has_memory && !x->asked->is_longest)
        json_object_set_new(row, "fits",
                            json_string(bytes + params_of(memory) <= memory->bytes ? "yes" : "no"));
}

/* Of the layers of one kind, where there are any. */
static void add_part(const struct pricing *x, int kind, json_t *rows)
{
    const struct attn_cache_part part = attn_cache_part(&x->cache, kind, x->asked->c.n_query);
    char name[64] = "layers that see all keys";
    if (part.layers == 0)
        return;
    if (part.window > 0)
        snprintf(name, sizeof name, "layers with a window of %lld", (long long)part.window);
    json_t *row = row_of(x, name);
    json_object_set_new(row, "layers", json_integer((json_int_t)part.layers));
    json_object_set_new(row, "tokens", json_integer((json_int_t)part.tokens));
    if (x->cache.page > 1)
        json_object_set_new(row, "pages", json_integer((json_int_t)part.pages));
    json_object_set_new(row, "token_bytes", json_integer((json_int_t)part.token_bytes));
    add_bytes(x, part.bytes, row);
    json_object_del(row, "fits");
    json_array_append_new(rows, row);
}

static void print_head(const struct pricing *x)
{
    const struct attn_model *model = x->cache.model;
    const struct attn_case *c = x->cache.c;
    char text[32];
    printf("%s  b%lldh%lldg%lld", model->name, (long long)c->batch, (long long)c->heads,
           (long long)c->kv_heads);
    if (!x->asked->is_longest)
        printf("q%lld", (long long)c->n_query);
    printf("d%lldv%lld:%s:%s  %d layers", (long long)c->d_key, (long long)c->d_value,
           attn_case_mask(c), attn_dtype_name(c->dtype), model->layers);
    if (model->latent > 0)
        printf(", one latent vector of %d for all heads", model->latent);
    printf("; cache in %s", x->cache.type->name);
    if (x->cache.page > 1)
        printf(", pages of %s tokens", attn_cli_grouped(x->cache.page, text));
    putchar('\n');
}

static void print(const struct pricing *x, const json_t *rows)
{
    static const struct attn_column columns[] = {
        {"part", "part", ATTN_UNIT_WORDS},       {"layers", "layers", ATTN_UNIT_GROUPED},
        {"tokens", "tokens", ATTN_UNIT_GROUPED}, {"longest", "tokens", ATTN_UNIT_GROUPED},
        {"pages", "pages", ATTN_UNIT_GROUPED},   {"token_bytes", "a token", ATTN_UNIT_GROUPED},
        {"bytes", "bytes", ATTN_UNIT_GROUPED},   {"bytes", "", ATTN_UNIT_BYTES},
        {"fits", "fits", ATTN_UNIT_WORDS},       {.key = NULL}};
    const struct attn_memory *memory = &x->asked->memory;
    char number[32], bytes[32];
    print_head(x);
    attn_table_print(stdout, ATTN_TABLE_INDENTED, columns, rows);
    if (memory->params > 0)
        printf("  needed too: %s parameters of %lld B, %s\n",
               attn_cli_grouped(memory->params, number), (long long)memory->param_bytes,
               attn_cli_bytes(attn_cli_to_bytes(params_of(memory)), bytes));
    printf("  not in it: the projections, MLP, norms and embeddings\n\n");
}

/* ---- both questions -------------------------------------------------------------------------- */

/* One of the uses: its bytes after the tokens that were asked for, or its longest. */
static enum attn_status add_use(struct pricing *x, json_t *rows, struct attn_error *err)
{
    const struct attn_model_asked *asked = x->asked;
    const struct attn_length_price price = {bytes_of, x, 1, 0};
    const double memory = asked->memory.bytes - params_of(&asked->memory);
    int64_t length;
    double bytes[2];
    char name[40];
    enum attn_status status = asked->is_longest
                                  ? attn_longest_of(&price, memory, HUGE_VAL, &length, bytes, err)
                                  : bytes_of(x, asked->c.n_query, bytes, err);
    if (status != ATTN_OK)
        return status;
    json_t *row = row_of(x, use_name(x, name));
    if (asked->is_longest)
        json_object_set_new(row, "longest", json_integer((json_int_t)length));
    add_bytes(x, bytes[0], row);
    json_array_append_new(rows, row);
    return ATTN_OK;
}

enum attn_status attn_model_price(const struct attn_model_asked *asked, json_t *all,
                                  struct attn_error *err)
{
    struct pricing x;
    enum attn_status status = open(asked, &x, err);
    json_t *rows = json_array();
    for (int kind = 0; kind < ATTN_CACHE_KINDS && status == ATTN_OK && !asked->is_longest; kind++)
        add_part(&x, kind, rows);
    for (int use = 0; use < USES && status == ATTN_OK; use++) {
        x.use = (enum use)use;
        status = add_use(&x, rows, err);
    }
    if (status == ATTN_OK && all != NULL)
        json_array_extend(all, rows);
    else if (status == ATTN_OK)
        print(&x, rows);
    json_decref(rows);
    return status;
}
