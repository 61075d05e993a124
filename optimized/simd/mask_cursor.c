/* See mask_cursor.h. */
#include "optimized/simd/mask_cursor.h"

#include <string.h>

#include "ref/problem.h"

static int next_of_problem(const void *arg, int64_t b, int64_t h, int64_t i, struct attn_run *run)
{
    struct attn_run all;
    if (!attn_problem_span(arg, b, h, i, &all))
        return attn_problem_next(arg, b, h, i, run);
    *run = (struct attn_run){all.lo > run->hi ? all.lo : run->hi, all.hi};
    return run->lo < run->hi ? 2 : 0;
}

static enum attn_tile tile_of_problem(const void *arg, struct attn_tile_at at)
{
    return attn_problem_tile(arg, at);
}

struct attn_runs attn_runs_of(const struct attn_problem *p)
{
    return (struct attn_runs){next_of_problem, tile_of_problem, p};
}

/* Move row r to its first run that ends after `from`. */
static void seek(struct attn_mask_cursor *x, int r, int64_t from)
{
    struct attn_cursor *c = &x->cursor[r];
    const struct attn_tile_at *at = &x->at;
    while (c->run.hi <= from && c->run.lo < at->j1) {
        c->run.hi = from;
        int more = c->last ? 0 : x->runs.next(x->runs.arg, at->b, at->h, at->i0 + r, &c->run);
        if (more == 0 || c->run.lo >= at->j1)
            c->run.lo = c->run.hi = at->j1;
        else if (c->run.hi > at->j1)
            c->run.hi = at->j1;
        c->last = more != 1;
    }
}

/* Bring the rows of panel n to key `from`. */
static void refresh(struct attn_mask_cursor *x, int n, int64_t from)
{
    int r0 = n * x->panel, r1 = r0 + x->panel < x->n ? r0 + x->panel : x->n;
    struct attn_front front = {x->at.j1, 0, x->at.j1};
    for (int r = r0; r < r1; r++) {
        if (x->cursor[r].run.hi <= from)
            seek(x, r, from);
        struct attn_run run = x->cursor[r].run;
        front.first = run.lo < front.first ? run.lo : front.first;
        front.last = run.lo > front.last ? run.lo : front.last;
        front.end = run.hi < front.end ? run.hi : front.end;
    }
    x->front[n] = front;
}

void attn_mask_cursor_open(struct attn_mask_cursor *x, struct attn_runs runs, int panel,
                           struct attn_tile_at at)
{
    x->runs = runs;
    x->at = at;
    x->n = (int)(at.i1 - at.i0);
    x->panel = panel;
    for (int r = 0; r < x->n; r++)
        x->cursor[r] = (struct attn_cursor){{at.j0 - 1, at.j0}, 0};
    for (int n = 0; n * panel < x->n; n++)
        refresh(x, n, at.j0);
}

int64_t attn_mask_cursor_first(struct attn_mask_cursor *x, int64_t from)
{
    int64_t first = x->at.j1;
    for (int n = 0; n * x->panel < x->n; n++) {
        if (x->front[n].end <= from)
            refresh(x, n, from);
        if (x->front[n].first < first)
            first = x->front[n].first;
    }
    return first > from || first == x->at.j1 ? first : from;
}

enum attn_tile attn_mask_cursor_tile(struct attn_mask_cursor *x, int n, int64_t j0, int64_t j1)
{
    int r0 = n * x->panel, r1 = r0 + x->panel < x->n ? r0 + x->panel : x->n;
    if (x->front[n].end <= j0)
        refresh(x, n, j0);
    if (x->front[n].first >= j1)
        return ATTN_TILE_EMPTY;
    if (x->front[n].last <= j0 && x->front[n].end >= j1)
        return ATTN_TILE_FULL;
    int64_t from = x->front[n].first > j0 ? x->front[n].first - j0 : 0, to = from;
    memset(x->seen + from, 0, (size_t)(j1 - j0 + 1 - from) * sizeof *x->seen);
    for (int r = r0; r < r1; r++) {
        struct attn_run *run = &x->cursor[r].run;
        uint64_t bit = (uint64_t)1 << (r - r0);
        while (run->lo < j1) {
            int64_t lo = run->lo > j0 ? run->lo - j0 : 0, hi = (run->hi < j1 ? run->hi : j1) - j0;
            x->seen[lo] ^= bit;
            x->seen[hi] ^= bit;
            to = hi > to ? hi : to;
            if (run->hi >= j1)
                break;
            seek(x, r, run->hi);
        }
    }
    for (int64_t j = from + 1; j < to; j++)
        x->seen[j] ^= x->seen[j - 1];
    x->from = (int)from, x->to = (int)to;
    refresh(x, n, j0);
    return ATTN_TILE_PARTIAL;
}

void attn_keys_sort(const struct attn_mask_cursor *x, enum attn_tile tile, int rows, int lanes,
                    int n, struct attn_keys *keys)
{
    uint64_t everyone = ((uint64_t)1 << rows) - 1, lane = ((uint64_t)1 << lanes) - 1;
    int from = tile == ATTN_TILE_FULL ? 0 : x->from, to = tile == ATTN_TILE_FULL ? n : x->to;
    int full = 0, edge[ATTN_PANEL_VECTORS] = {0};
    for (int j = from; j < to; j++) {
        if (tile == ATTN_TILE_FULL || x->seen[j] == everyone) {
            keys->full[full++] = (uint8_t)j;
            continue;
        }
        /* Written always, kept if any lane sees it. */
        for (int v = 0; v < ATTN_PANEL_VECTORS; v++) {
            unsigned bits = (unsigned)(x->seen[j] >> v * lanes & lane);
            keys->edge[v][edge[v]] = (uint8_t)j;
            keys->bits[v][edge[v]] = (uint16_t)bits;
            edge[v] += bits != 0;
        }
    }
    keys->n_full = full;
    memcpy(keys->n_edge, edge, sizeof edge);
}

void attn_keys_seen(const struct attn_mask_cursor *x, enum attn_tile tile, int n,
                    struct attn_keys *keys, uint64_t *seen)
{
    int from = tile == ATTN_TILE_FULL ? 0 : x->from, to = tile == ATTN_TILE_FULL ? n : x->to;
    int all = 0;
    for (int j = from; j < to; j++) {
        uint64_t by = tile == ATTN_TILE_FULL ? ~(uint64_t)0 : x->seen[j];
        keys->full[all] = (uint8_t)j;
        seen[all] = by;
        all += by != 0;
    }
    keys->n_full = all;
    memset(keys->n_edge, 0, sizeof keys->n_edge);
}

void attn_keys_round(struct attn_keys *keys, int rows, int lanes)
{
    uint64_t everyone = ((uint64_t)1 << rows) - 1, lane = ((uint64_t)1 << lanes) - 1;
    int edges = 0;
    for (int v = 0; v < ATTN_PANEL_VECTORS; v++)
        edges += keys->n_edge[v];
    for (; edges > 0 && keys->n_full % ATTN_EDGE_KEYS != 0; keys->n_full--)
        for (int v = 0; v < ATTN_PANEL_VECTORS; v++) {
            int n = keys->n_edge[v];
            unsigned bits = (unsigned)(everyone >> v * lanes & lane);
            keys->edge[v][n] = keys->full[keys->n_full - 1];
            keys->bits[v][n] = (uint16_t)bits;
            keys->n_edge[v] += bits != 0;
        }
}
