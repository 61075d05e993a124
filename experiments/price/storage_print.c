/* Storages of a mask as text and JSON; see storage.h. */
#include <jansson.h>

#include "experiments/cli/cli.h"
#include "experiments/price/storage.h"
#include "experiments/table/row_table.h"

/* refused: NULL where the storage can express the mask. */
static json_t *json_of(const struct attn_storage *storage, const char *refused,
                       const struct attn_tape *counted, const struct attn_case *c)
{
    json_t *live = attn_tape_json(counted->block, counted->n);
    json_t *line =
        json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:o}", "storage", storage->name, "layout",
                  storage->layout, "source", storage->source, "mask", attn_case_mask(c), "n_query",
                  (json_int_t)c->n_query, "n_key", (json_int_t)c->n_key, "live", live);
    if (refused != NULL)
        json_object_set_new(line, "refused", json_string(refused));
    else {
        json_object_set_new(line, "kept_bytes", json_integer((json_int_t)counted->ledger.now));
        json_object_set_new(line, "peak_bytes", json_integer((json_int_t)counted->ledger.peak));
    }
    return line;
}

/* In bytes, and as people say it. */
static const struct attn_column columns[] = {{"storage", "storage", ATTN_UNIT_WORDS},
                                             {"kept_bytes", "bytes", ATTN_UNIT_GROUPED},
                                             {"kept_bytes", "kept", ATTN_UNIT_BYTES},
                                             {"peak_bytes", "while made", ATTN_UNIT_BYTES},
                                             {"layout", "layout", ATTN_UNIT_WORDS},
                                             {"refused", "refused", ATTN_UNIT_WORDS},
                                             {.key = NULL}};

int attn_storage_print(const struct attn_case *c, const struct attn_problem *p, struct json_t *all)
{
    struct attn_stored_mask mask;
    struct attn_error err = {ATTN_OK, ""};
    json_t *rows = json_array();
    if (attn_stored_mask_open(p, &mask, &err) != ATTN_OK)
        return attn_cli_error(&err);
    for (int s = 0; s < ATTN_STORAGES; s++) {
        const struct attn_storage *storage = &attn_storages[s];
        const char *refused = storage->refuses != NULL ? storage->refuses(&mask) : NULL;
        struct attn_tape counted = {.owner = NULL};
        if (refused == NULL)
            storage->make(&counted, &mask);
        json_array_append_new(rows, json_of(storage, refused, &counted, c));
    }
    if (all != NULL)
        json_array_extend(all, rows);
    else {
        printf("b%lldh%lldq%lldk%lld:%s\n", (long long)p->batch, (long long)p->heads,
               (long long)p->n_query, (long long)p->n_key, attn_case_mask(c));
        attn_table_print(stdout, ATTN_TABLE_TEXT, columns, rows);
        putchar('\n');
    }
    json_decref(rows);
    return ATTN_EXIT_GOOD;
}
