/* attnlab storage: what a mask takes in every usual storage. */
#include <jansson.h>
#include <stdio.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/measure/plan.h"
#include "experiments/rim/storage/storage.h"
#include "experiments/table/row_table.h"

struct request {
    struct attn_plan_shapes shapes;
    int json;
};

#define KEY(...) ATTN_PLAN_KEY(offsetof(struct request, shapes), __VA_ARGS__)

static const struct attn_flag_use flags[] = {
    KEY(LENGTH, NULL, ATTN_KIND_ONCE),
    KEY(KEYS, NULL, ATTN_KIND_ONCE),
    KEY(BATCH, "1", ATTN_KIND_ONCE),
    KEY(HEADS, "1", ATTN_KIND_ONCE),
    KEY(MASK, NULL),
    ATTN_TAKES(FORMAT, offsetof(struct request, json), "text"),
    {.flag = ATTN_FLAG_END}};

static int storages(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_storage = {
    .name = "storage",
    .summary = "what a mask takes in every usual storage, and while it is made",
    .usage = "storage --length L,... [--mask MASK] [flags]",
    .about =
        "The bytes that a mask takes in each storage that frameworks and libraries have, and\n"
        "the peak while it is made the usual way.  Nothing is allocated, so any length can be\n"
        "asked for.",
    .flags = flags,
    .more = "  attnlab storage --length 1M --mask 'causal(br)&window(511,0,br)'",
    .exits = "0 good; 2 usage.",
    .size = sizeof(struct request),
    .run = storages};

/* refused: NULL where the storage can express the mask. */
static json_t *row_of(const struct attn_storage *storage, const char *refused,
                      const struct attn_tape *counted, const struct attn_case *c)
{
    json_t *live = attn_tape_json(counted->block, counted->n);
    json_t *row =
        json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:o}", "storage", storage->name, "layout",
                  storage->layout, "source", storage->source, "mask", attn_case_mask(c), "n_query",
                  (json_int_t)c->n_query, "n_key", (json_int_t)c->n_key, "live", live);
    if (refused != NULL)
        json_object_set_new(row, "refused", json_string(refused));
    else {
        json_object_set_new(row, "kept_bytes", json_integer((json_int_t)counted->ledger.now));
        json_object_set_new(row, "peak_bytes", json_integer((json_int_t)counted->ledger.peak));
    }
    return row;
}

/* The storages of one mask, a row each. */
static json_t *rows_of(const struct attn_case *c)
{
    struct attn_error err;
    struct attn_problem p;
    struct attn_mask *made;
    struct attn_stored_mask mask;
    json_t *rows = json_array();
    attn_cli_must(attn_case_open(c, NULL, &p, &made, &err), &err);
    attn_cli_must(attn_stored_mask_open(&p, &mask, &err), &err);
    for (int s = 0; s < ATTN_STORAGES; s++) {
        const struct attn_storage *storage = &attn_storages[s];
        const char *refused = storage->refuses != NULL ? storage->refuses(&mask) : NULL;
        struct attn_tape counted = {.owner = NULL};
        if (refused == NULL)
            storage->make(&counted, &mask);
        json_array_append_new(rows, row_of(storage, refused, &counted, c));
    }
    attn_mask_free(made);
    return rows;
}

/* In bytes, and as people say it. */
static const struct attn_column columns[] = {{"storage", "storage", ATTN_UNIT_WORDS},
                                             {"kept_bytes", "bytes", ATTN_UNIT_GROUPED},
                                             {"kept_bytes", "kept", ATTN_UNIT_BYTES},
                                             {"peak_bytes", "while made", ATTN_UNIT_BYTES},
                                             {"layout", "layout", ATTN_UNIT_WORDS},
                                             {"refused", "refused", ATTN_UNIT_WORDS},
                                             {.key = NULL}};

static int storages(void *values, int n, char **operand)
{
    struct request *q = values;
    struct attn_plan cases;
    struct attn_error err;
    json_t *all = json_array();
    (void)n, (void)operand;
    if (!attn_plan_has_key(&q->shapes.keys, "length"))
        attn_cli_stop(ATTN_EINVAL, NULL, "--length is needed: attnlab storage --length 200k");
    attn_cli_must(attn_plan_of_shapes(&q->shapes.keys, &cases, &err), &err);
    for (int64_t i = 0; i < cases.n; i++) {
        const struct attn_case *c = &cases.point[i].c;
        json_t *rows = rows_of(c);
        if (!q->json) {
            printf("b%lldh%lldq%lldk%lld:%s\n", (long long)c->batch, (long long)c->heads,
                   (long long)c->n_query, (long long)c->n_key, attn_case_mask(c));
            attn_table_print(stdout, ATTN_TABLE_TEXT, columns, rows);
            putchar('\n');
        }
        json_array_extend(all, rows);
        json_decref(rows);
    }
    if (q->json)
        attn_table_print(stdout, ATTN_TABLE_JSON, NULL, all);
    json_decref(all);
    attn_plan_free(&cases);
    return ATTN_EXIT_GOOD;
}
