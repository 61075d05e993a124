/* See tape.h. */
#include "experiments/rim/storage/tape.h"

#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"

static void mark_peak(struct attn_tape *tape)
{
    tape->n_at_peak = tape->n;
    memcpy(tape->at_peak, tape->block, sizeof tape->block);
}

/* A tape that memory was lacking for, or a ledger's entries. */
static void *cut(struct attn_tape *tape, const struct attn_error *err)
{
    tape->is_cut = 1;
    if (tape->owner != NULL)
        tape->owner->lacks(tape->owner, err);
    return NULL;
}

void *attn_tape_take(struct attn_tape *tape, const char *name, const char *maker, int64_t count,
                     int64_t size)
{
    struct attn_error err = {ATTN_OK, ""};
    struct attn_tape_block block = {name, maker, count * size, -1, NULL};
    int64_t peak = tape->ledger.peak;
    if (tape->n == ATTN_TAPE_BLOCKS)
        attn_cli_need(NULL);
    if (tape->is_cut)
        return NULL;
    if (tape->is_real) {
        block.data = attn_ledger_take(&tape->ledger, name, count, size, &err);
        if (block.data == NULL)
            return cut(tape, &err);
    } else {
        if (tape->owner != NULL)
            block.entry = tape->owner->enter(tape->owner, name, &block.bytes);
        if (attn_ledger_count(&tape->ledger, name, block.bytes, 1, &err) != ATTN_OK)
            return cut(tape, &err);
    }
    tape->block[tape->n++] = block;
    if (tape->ledger.peak > peak)
        mark_peak(tape);
    return block.data;
}

/* The last block of a name; -1: it was not to be had, or never taken. */
static int find_block(const struct attn_tape *tape, const char *name)
{
    int b = tape->n - 1;
    while (b >= 0 && (tape->block[b].name[0] != name[0] || strcmp(tape->block[b].name, name) != 0))
        b--; /* asked for each pair: most names differ where they begin */
    return b;
}

void attn_tape_give(struct attn_tape *tape, const char *name)
{
    int b = find_block(tape, name);
    if (b < 0)
        return;
    if (tape->is_real)
        attn_ledger_give(&tape->ledger, tape->block[b].data);
    else
        attn_ledger_uncount(&tape->ledger, name, tape->block[b].bytes);
    memmove(&tape->block[b], &tape->block[b + 1], (size_t)(--tape->n - b) * sizeof tape->block[0]);
}

void *attn_tape_data(const struct attn_tape *tape, const char *name)
{
    int b = find_block(tape, name);
    return b >= 0 ? tape->block[b].data : NULL;
}

void attn_tape_rename(struct attn_tape *tape, const char *name, const char *to)
{
    struct attn_error err;
    int b = find_block(tape, name);
    if (b < 0)
        return;
    tape->block[b].name = to;
    if (tape->is_real)
        return;
    attn_ledger_uncount(&tape->ledger, name, tape->block[b].bytes);
    if (attn_ledger_count(&tape->ledger, to, tape->block[b].bytes, 1, &err) != ATTN_OK)
        (void)cut(tape, &err);
}

void attn_tape_restart(struct attn_tape *tape)
{
    mark_peak(tape);
    attn_ledger_restart(&tape->ledger);
}

void attn_pair_open(struct attn_pair *pair, struct attn_tape_owner *owner)
{
    pair->real = (struct attn_tape){.owner = owner, .is_real = 1};
    attn_ledger_init(&pair->real.ledger, NULL);
    pair->counted = (struct attn_tape){.owner = owner};
}

void attn_pair_close(struct attn_pair *pair)
{
    attn_ledger_clear(&pair->real.ledger);
}

json_t *attn_tape_json(const struct attn_tape_block *block, int n)
{
    json_t *live = json_array();
    for (int b = 0; b < n; b++)
        json_array_append_new(live, json_pack("{s:s, s:s, s:I}", "name", block[b].name, "by",
                                              block[b].maker, "bytes", (json_int_t)block[b].bytes));
    return live;
}
