/* Storages of a mask as text and JSON; see storage.h. */
#include <jansson.h>

#include "experiments/cli/cli.h"
#include "experiments/price/storage.h"
#include "experiments/table/row_table.h"

/* One storage: counted, and for real where that was asked for. */
struct storage_price {
    const struct attn_storage *storage;
    const char *refused; /* NULL: it can express the mask */
    struct attn_tape counted;
    int made; /* the rest is of the one that was made */
    int64_t ledger_peak, ledger_kept, wrong;
};

static json_t *json_of(const struct storage_price *x, const struct attn_case *c)
{
    json_t *live = attn_tape_json(x->counted.block, x->counted.n);
    json_t *line =
        json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:o}", "storage", x->storage->name, "layout",
                  x->storage->layout, "source", x->storage->source, "mask", attn_case_mask(c),
                  "n_query", (json_int_t)c->n_query, "n_key", (json_int_t)c->n_key, "live", live);
    if (x->refused != NULL)
        json_object_set_new(line, "refused", json_string(x->refused));
    else {
        json_object_set_new(line, "kept_bytes", json_integer((json_int_t)x->counted.ledger.now));
        json_object_set_new(line, "peak_bytes", json_integer((json_int_t)x->counted.ledger.peak));
    }
    if (x->made) {
        json_object_set_new(line, "made_kept_bytes", json_integer((json_int_t)x->ledger_kept));
        json_object_set_new(line, "made_peak_bytes", json_integer((json_int_t)x->ledger_peak));
        json_object_set_new(line, "wrong_pairs", json_integer((json_int_t)x->wrong));
    }
    return line;
}

/* Make it on a ledger; the exit status that it deserves. */
static int make_one(struct storage_price *x, const struct attn_stored_mask *mask)
{
    struct attn_tape real = {.is_real = 1};
    int status = ATTN_EXIT_LACKS;
    if (x->counted.ledger.peak > attn_cli_memory_available())
        return attn_cli_fail(status, "%s is not made: there is not so much memory",
                             x->storage->name);
    attn_ledger_init(&real.ledger, NULL);
    x->storage->make(&real, mask);
    if (!real.is_cut) {
        x->made = 1;
        x->ledger_peak = real.ledger.peak;
        x->ledger_kept = real.ledger.now;
        x->wrong = attn_storage_wrong(x->storage, &real, mask);
        int same =
            x->ledger_peak == x->counted.ledger.peak && x->ledger_kept == x->counted.ledger.now;
        status = same && x->wrong == 0 ? ATTN_EXIT_GOOD : ATTN_EXIT_DISAGREE;
    }
    attn_ledger_clear(&real.ledger);
    return status;
}

/* In bytes, and as people say it. */
static const struct attn_column columns[] = {{"storage", "storage", ATTN_UNIT_WORDS},
                                             {"kept_bytes", "bytes", ATTN_UNIT_GROUPED},
                                             {"kept_bytes", "kept", ATTN_UNIT_BYTES},
                                             {"peak_bytes", "while made", ATTN_UNIT_BYTES},
                                             {"made_kept_bytes", "made: kept", ATTN_UNIT_GROUPED},
                                             {"made_peak_bytes", "at the peak", ATTN_UNIT_GROUPED},
                                             {"wrong_pairs", "pairs wrong", ATTN_UNIT_GROUPED},
                                             {"layout", "layout", ATTN_UNIT_WORDS},
                                             {"refused", "refused", ATTN_UNIT_WORDS},
                                             {.key = NULL}};

int attn_storage_print(const struct attn_case *c, const struct attn_problem *p, int make,
                       struct json_t *all)
{
    struct attn_stored_mask mask;
    struct attn_error err = {ATTN_OK, ""};
    int worst = ATTN_EXIT_GOOD;
    json_t *rows = json_array();
    if (attn_stored_mask_open(p, &mask, &err) != ATTN_OK)
        return attn_cli_error(&err);
    for (int s = 0; s < ATTN_STORAGES; s++) {
        struct storage_price x = {.storage = &attn_storages[s]};
        int status = ATTN_EXIT_GOOD;
        x.refused = x.storage->refuses != NULL ? x.storage->refuses(&mask) : NULL;
        x.counted = (struct attn_tape){.owner = NULL};
        if (x.refused == NULL)
            x.storage->make(&x.counted, &mask);
        if (x.refused == NULL && make)
            status = make_one(&x, &mask);
        worst = status > worst ? status : worst;
        json_array_append_new(rows, json_of(&x, c));
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
    return worst;
}
