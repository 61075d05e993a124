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
    if (x->asked->has_memory)
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

static void print(const struct pricing *x, const struct attn_column *columns, json_t *rows,
                  json_t *all)
{
    const struct attn_memory *memory = &x->asked->memory;
    char number[32], bytes[32];
    if (all != NULL)
        json_array_extend(all, rows);
    else {
        attn_table_print(stdout, ATTN_TABLE_INDENTED, columns, rows);
        if (memory->params > 0)
            printf("  needed too: %s parameters of %lld B, %s\n",
                   attn_cli_grouped(memory->params, number), (long long)memory->param_bytes,
                   attn_cli_bytes((int64_t)fmin(params_of(memory), 9e18), bytes));
        printf("  not in it: the projections, MLP, norms and embeddings\n\n");
    }
    json_decref(rows);
}

static void print_head(const struct pricing *x, int64_t length)
{
    const struct attn_model *model = x->cache.model;
    const struct attn_case *c = x->cache.c;
    char text[32];
    printf("%s  b%lldh%lldg%lld", model->name, (long long)c->batch, (long long)c->heads,
           (long long)c->kv_heads);
    if (length > 0)
        printf("q%lld", (long long)length);
    printf("d%lldv%lld:%s:%s  %d layers", (long long)c->d_key, (long long)c->d_value,
           attn_case_mask(c), attn_dtype_name(c->dtype), model->layers);
    if (model->latent > 0)
        printf(", one latent vector of %d for all heads", model->latent);
    printf("; cache in %s", x->cache.type->name);
    if (x->cache.page > 1)
        printf(", pages of %s tokens", attn_cli_grouped(x->cache.page, text));
    putchar('\n');
}

/* ---- both questions -------------------------------------------------------------------------- */

enum attn_status attn_model_price(const struct attn_model_asked *asked, json_t *all,
                                  struct attn_error *err)
{
    static const struct attn_column columns[] = {{"part", "part", ATTN_UNIT_WORDS},
                                                 {"layers", "layers", ATTN_UNIT_GROUPED},
                                                 {"tokens", "tokens", ATTN_UNIT_GROUPED},
                                                 {"pages", "pages", ATTN_UNIT_GROUPED},
                                                 {"token_bytes", "a token", ATTN_UNIT_GROUPED},
                                                 {"bytes", "bytes", ATTN_UNIT_GROUPED},
                                                 {"bytes", "", ATTN_UNIT_BYTES},
                                                 {"fits", "fits", ATTN_UNIT_WORDS},
                                                 {.key = NULL}};
    struct pricing x;
    char name[40];
    double bytes[USES];
    enum attn_status status = open(asked, &x, err);
    for (int use = 0; use < USES && status == ATTN_OK; use++) {
        x.use = (enum use)use;
        status = bytes_of(&x, asked->c.n_query, &bytes[use], err);
    }
    if (status != ATTN_OK)
        return status;
    json_t *rows = json_array();
    for (int kind = 0; kind < ATTN_CACHE_KINDS; kind++)
        add_part(&x, kind, rows);
    for (int use = 0; use < USES; use++) {
        x.use = (enum use)use;
        json_t *row = row_of(&x, use_name(&x, name));
        add_bytes(&x, bytes[use], row);
        json_array_append_new(rows, row);
    }
    if (all == NULL)
        print_head(&x, asked->c.n_query);
    print(&x, columns, rows, all);
    return ATTN_OK;
}

enum attn_status attn_model_longest(const struct attn_model_asked *asked, json_t *all,
                                    struct attn_error *err)
{
    static const struct attn_column columns[] = {{"part", "part", ATTN_UNIT_WORDS},
                                                 {"longest", "tokens", ATTN_UNIT_GROUPED},
                                                 {"bytes", "bytes", ATTN_UNIT_GROUPED},
                                                 {"bytes", "", ATTN_UNIT_BYTES},
                                                 {.key = NULL}};
    struct pricing x;
    const struct attn_length_price price = {bytes_of, &x, 1, 0};
    enum attn_status status = open(asked, &x, err);
    if (status != ATTN_OK)
        return status;
    json_t *rows = json_array();
    for (int use = 0; use < USES && status == ATTN_OK; use++) {
        int64_t length;
        double bytes[2];
        char name[40];
        x.use = (enum use)use;
        status = attn_longest_of(&price, asked->memory.bytes - params_of(&asked->memory), HUGE_VAL,
                                 &length, bytes, err);
        json_t *row = row_of(&x, use_name(&x, name));
        json_object_set_new(row, "longest", json_integer((json_int_t)length));
        add_bytes(&x, bytes[0], row);
        json_object_del(row, "fits");
        json_array_append_new(rows, row);
    }
    if (status != ATTN_OK) {
        json_decref(rows);
        return status;
    }
    if (all == NULL)
        print_head(&x, 0);
    print(&x, columns, rows, all);
    return ATTN_OK;
}
