#include "experiments/bench/bench_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define F32(shape, mask)      shape ":" mask ":f32:normal:s1"
#define BF16(shape, mask)     shape ":" mask ":bf16:normal:s1"
#define F16(shape, mask)      shape ":" mask ":f16:normal:s1"
#define BACKWARD(shape, mask) shape ":" mask ":f32:normal:s1:pass=bwd"
#define PAIR(block, what, goal, target, spec, text, threads, other, other_text, other_threads) \
    {block, what, ATTN_GOAL_##goal, target, spec, text, threads, other, other_text, other_threads},
#define ROW(block, what, goal, target, spec, text, threads) \
    PAIR(block, what, goal, target, spec, text, threads, NULL, NULL, 0)
#define STEP(what, spec, mask, before, mask_before)                      \
    PAIR("steps", what, STEP, 0, spec, F32("q2048d64", mask), 1, before, \
         F32("q2048d64", mask_before), 1)

static const struct attn_bench_row rows[] = {
#include "experiments/bench/bench_rows.def"
};
static const struct attn_bench_row steps[] = {
#include "experiments/bench/bench_steps.def"
};
_Static_assert(sizeof rows / sizeof *rows <= ATTN_BENCH_ROWS, "a choice of rows has room for all");
static const struct attn_bench_list lists[] = {{"table", rows, sizeof rows / sizeof *rows},
                                               {"steps", steps, sizeof steps / sizeof *steps}};
static const struct attn_bench_product sgemm = {4096, 4096, 4096, 0};

int attn_bench_list_count(void)
{
    return sizeof lists / sizeof *lists;
}

const struct attn_bench_list *attn_bench_list_at(int index)
{
    return &lists[index];
}

const struct attn_bench_list *attn_bench_list_find(const char *name)
{
    for (int l = 0; l < attn_bench_list_count(); l++)
        if (strcmp(lists[l].name, name) == 0)
            return &lists[l];
    return NULL;
}

const char *attn_bench_goal_unit(enum attn_bench_goal goal)
{
    static const char *const unit[] = {"P", "of read", "of sgemm", "x", "x", "MiB", "x"};
    return unit[goal];
}

int attn_bench_goal_at_least(enum attn_bench_goal goal)
{
    return goal != ATTN_GOAL_TIME && goal != ATTN_GOAL_MEMORY;
}

/* ---- judging ------------------------------------------------------------------------------ */

/* Samples of a pair as if of one entry: seconds and P of the one over those of the other, so that
 * the figures of an entry are those of the pair. */
static void pair_up(const struct attn_bench_entry *e, const struct attn_bench_entry *other,
                    struct attn_bench_entry *pair)
{
    *pair = (struct attn_bench_entry){.n = e->n < other->n ? e->n : other->n};
    pair->work.flops = e->work.flops / other->work.flops;
    for (int s = 0; s < pair->n; s++) {
        pair->sample[s].s = e->sample[s].s / other->sample[s].s;
        pair->sample[s].peak = e->sample[s].peak / other->sample[s].peak;
    }
}

void attn_bench_judge(const struct attn_bench_row *row, const struct attn_bench_entry *e,
                      const struct attn_bench_entry *other, struct attn_bench_outcome *outcome)
{
    static const enum attn_bench_quantity quantity[] = {
        [ATTN_GOAL_PEAK] = ATTN_BENCH_FRACTION,  [ATTN_GOAL_READ] = ATTN_BENCH_READ,
        [ATTN_GOAL_SGEMM] = ATTN_BENCH_FRACTION, [ATTN_GOAL_RATE] = ATTN_BENCH_RATE,
        [ATTN_GOAL_TIME] = ATTN_BENCH_SECONDS,   [ATTN_GOAL_MEMORY] = ATTN_BENCH_SECONDS,
        [ATTN_GOAL_STEP] = ATTN_BENCH_SECONDS};
    struct attn_bench_entry pair;
    *outcome = (struct attn_bench_outcome){.row = row, .entry = e, .other = other};
    outcome->known = e->state == ATTN_BENCH_TIMED && e->n > 0 &&
                     (other == NULL || (other->state == ATTN_BENCH_TIMED && other->n > 0));
    if (!outcome->known)
        return;
    if (other != NULL && row->goal == ATTN_GOAL_STEP)
        pair_up(other, e, &pair);
    else if (other != NULL)
        pair_up(e, other, &pair);
    attn_bench_spread(other != NULL ? &pair : e, quantity[row->goal], &outcome->spread);
    if (row->goal == ATTN_GOAL_MEMORY) {
        double mib = (double)e->priced_bytes / e->threads / (1 << 20);
        outcome->spread = (struct attn_spread){1, mib, mib, mib, mib, mib};
    }
    const struct attn_bench_entry *judged = other != NULL ? &pair : e;
    outcome->n = judged->n;
    if (row->goal == ATTN_GOAL_MEMORY)
        outcome->interval = (struct attn_interval){outcome->spread.median, outcome->spread.median};
    else
        attn_bench_interval(judged, quantity[row->goal], &outcome->interval);
    if (row->target == 0)
        return;
    outcome->inconclusive = row->goal != ATTN_GOAL_MEMORY && outcome->interval.low < row->target &&
                            outcome->interval.high > row->target;
    if (outcome->inconclusive)
        return;
    outcome->met = attn_bench_goal_at_least(row->goal) ? outcome->spread.median >= row->target
                                                       : outcome->spread.median <= row->target;
}

/* ---- running ------------------------------------------------------------------------------ */

/* The entry of that spec, case and threads among those from `first` on, made if need be. */
static struct attn_bench_entry *entry_of(struct attn_bench_table *table, int first,
                                         const char *spec, const char *text, int threads)
{
    struct attn_bench_entry *e = &table->entry[table->n_entries], made;
    struct attn_error err = {ATTN_OK, ""};
    if (strcmp(spec, "sgemm") == 0)
        attn_bench_entry_product(&made, &sgemm, threads, &err);
    else
        attn_bench_entry_init(&made, spec, text, threads, &err);
    if (made.state == ATTN_BENCH_WAITING && threads > sysconf(_SC_NPROCESSORS_ONLN)) {
        made.state = ATTN_BENCH_REFUSED;
        snprintf(made.message, sizeof made.message, "%d threads on %ld processors", threads,
                 sysconf(_SC_NPROCESSORS_ONLN));
    }
    for (int at = first; at < table->n_entries; at++)
        if (strcmp(table->entry[at].spec, made.spec) == 0 &&
            strcmp(table->entry[at].text, made.text) == 0 && table->entry[at].threads == threads)
            return &table->entry[at];
    *e = made;
    table->n_entries++;
    return e;
}

/* Rows [from,to) are a block; their outcomes hold its entries, [first,end), until judged. */
struct block {
    int from, to, first, end;
};

static void make_block(struct attn_bench_table *table, struct block *block)
{
    block->first = table->n_entries;
    for (int r = block->from; r < block->to; r++) {
        const struct attn_bench_row *row = &table->list->row[r];
        struct attn_bench_entry *entry =
            entry_of(table, block->first, row->spec, row->text, row->threads);
        entry->pair_read |= row->goal == ATTN_GOAL_READ;
        table->outcome[r].entry = entry;
        if (row->other_spec != NULL)
            table->outcome[r].other =
                entry_of(table, block->first, row->other_spec, row->other_text, row->other_threads);
    }
    block->end = table->n_entries;
}

static int make_blocks(struct attn_bench_table *table, struct block *block)
{
    const struct attn_bench_row *row = table->list->row;
    int n = 0, blocks = 0;
    while (n < table->list->n) {
        struct block *x = &block[blocks++];
        for (x->from = n++; n < table->list->n && strcmp(row[n].block, row[x->from].block) == 0;)
            n++;
        x->to = n;
        make_block(table, x);
    }
    return blocks;
}

enum attn_status attn_bench_table_run(
    struct attn_bench *bench, const struct attn_bench_list *list, struct attn_bench_table *table,
    void (*begin)(int visit, int visits),
    void (*report)(const struct attn_bench *bench, const struct attn_bench_outcome *outcome, int n),
    struct attn_error *err)
{
    enum { VISITS = 3 };
    *table = (struct attn_bench_table){.list = list};
    table->entry = calloc(2 * (size_t)list->n, sizeof *table->entry); /* both sides of each row */
    table->outcome = calloc((size_t)list->n, sizeof *table->outcome);
    struct block *block = calloc((size_t)list->n, sizeof *block);
    int made = table->entry != NULL && table->outcome != NULL && block != NULL;
    int blocks = made ? make_blocks(table, block) : 0;
    for (int visit = 0; made && visit < VISITS; visit++) {
        begin(visit, VISITS);
        for (int b = 0; b < blocks; b++) {
            const struct block *x = &block[b];
            attn_bench_block(bench, &table->entry[x->first], x->end - x->first, visit, VISITS);
            if (visit + 1 < VISITS)
                continue;
            for (int r = x->from; r < x->to; r++, table->n++)
                attn_bench_judge(&list->row[r], table->outcome[r].entry, table->outcome[r].other,
                                 &table->outcome[r]);
            report(bench, &table->outcome[x->from], x->to - x->from);
        }
    }
    free(block);
    return made ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "no memory for %d rows", list->n);
}

void attn_bench_table_free(struct attn_bench_table *table)
{
    free(table->entry);
    free(table->outcome);
    *table = (struct attn_bench_table){0};
}
