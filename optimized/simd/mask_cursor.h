/* Mask cursors: which keys of a block each query of a block sees, from the runs of the mask.
 *
 * A mask gives each query its visible keys as runs, in increasing order (attn_problem_next; a
 * stored pattern does the same).  A kernel walks over key blocks in increasing order with one
 * cursor a query, so every run is asked for once, however many blocks it crosses, and blocks that
 * no query sees are never visited.
 *
 * For one panel of queries and one block of keys the answer is a word a key: bit r of seen[j] says
 * that query r sees key j.  A run [lo, hi) toggles bit r at lo and again at hi; running
 * exclusive-or over the keys then gives all words, in time O(runs + keys) however many pairs are
 * visible.
 */
#ifndef OPTIMIZED_SIMD_MASK_CURSOR_H
#define OPTIMIZED_SIMD_MASK_CURSOR_H

#include "ref/attn.h"
#include "ref/mask/mask.h"

/* Where runs come from.  next() gives the first run at or after run->hi; it returns 0 when there is
 * none, 2 when this is surely the last one, else 1.  tile() classes a tile as attn_problem_tile
 * does, soundly: backward passes ask it first. */
struct attn_runs {
    int (*next)(const void *arg, int64_t b, int64_t h, int64_t i, struct attn_run *run);
    enum attn_tile (*tile)(const void *arg, struct attn_tile_at at);
    const void *arg;
};

/* The runs of a problem's own mask. */
struct attn_runs attn_runs_of(const struct attn_problem *p);

struct attn_cursor {
    struct attn_run run; /* the current one; lo = hi = the end of the keys when none is left */
    int last;            /* no other follows */
};

enum {
    ATTN_KEY_BLOCK = 192, /* keys that a block of queries meets at a time, from a multiple of it */
    ATTN_MAX_PANEL = 48,  /* queries in the widest panel: they fit a word of bits               */
    ATTN_MAX_PANELS = 8,  /* panels in a block of queries                                       */
    ATTN_PANEL_VECTORS = 3, /* vectors in a panel                                                */
    ATTN_EDGE_KEYS = 8      /* keys in a tile of one vector                                      */
};

/* Where the cursors of one panel stand: the least and the greatest start of a current run, and the
 * least end.  While the block lies between last and end, every query sees all of it; no cursor is
 * asked before `end` is passed. */
struct attn_front {
    int64_t first, last, end;
};

struct attn_mask_cursor {
    struct attn_runs runs;
    struct attn_tile_at at; /* row r of the block is query i0 + r; keys end at j1 */
    int n, panel;           /* queries in the block, in a panel                   */
    struct attn_front front[ATTN_MAX_PANELS];
    struct attn_cursor cursor[ATTN_MAX_PANELS * ATTN_MAX_PANEL];
    /* Of the panel and key block that were last PARTIAL: keys outside [from, to) are hidden. */
    int from, to;
    uint64_t seen[ATTN_KEY_BLOCK + 1];
};

/* Start at key at.j0, for the queries of `at` in panels of `panel` queries. */
void attn_mask_cursor_open(struct attn_mask_cursor *cursor, struct attn_runs runs, int panel,
                           struct attn_tile_at at);

/* The first key at or after `from` that any query of the block may still see; j1 when none. */
int64_t attn_mask_cursor_first(struct attn_mask_cursor *cursor, int64_t from);

/* Panel number n of the block against keys [j0,j1) (at most ATTN_KEY_BLOCK): EMPTY, FULL, or
 * PARTIAL with from, to and seen[from..to) filled in.  Calls for a panel come with increasing
 * j0. */
enum attn_tile attn_mask_cursor_tile(struct attn_mask_cursor *cursor, int n, int64_t j0,
                                     int64_t j1);

/* The keys of one panel and one block, sorted by how they are seen.  A key that every query of the
 * panel sees needs no masking and goes to the widest tile.  The others are listed for each vector
 * of the panel that sees any of it, with one bit a lane; a key that no query sees is in no list,
 * and its K and V are never read. */
struct attn_keys {
    int n_full, n_edge[ATTN_PANEL_VECTORS];
    uint8_t full[ATTN_KEY_BLOCK]; /* minus j0, increasing */
    uint8_t edge[ATTN_PANEL_VECTORS][ATTN_KEY_BLOCK];
    uint16_t bits[ATTN_PANEL_VECTORS][ATTN_KEY_BLOCK];
};

/* After attn_mask_cursor_tile, FULL or PARTIAL, of `rows` queries in vectors of `lanes` lanes, and
 * n keys. */
void attn_keys_sort(const struct attn_mask_cursor *cursor, enum attn_tile tile, int rows, int lanes,
                    int n, struct attn_keys *keys);

/* The same keys in one list, for kernels that compute whole tiles and hide afterwards: `full` has
 * every key that any query sees, no vector has an edge, and bit r of seen[t] says that query r sees
 * key full[t]. */
void attn_keys_seen(const struct attn_mask_cursor *cursor, enum attn_tile tile, int n,
                    struct attn_keys *keys, uint64_t *seen);

/* Where there are edges, what remains of the full keys beyond whole tiles of ATTN_EDGE_KEYS joins
 * them, after the keys that were there: the tiles of both are fuller then.  For a forward pass; the
 * gradients of keys are made of all queries of a panel at once, and lose by it. */
void attn_keys_round(struct attn_keys *keys, int rows, int lanes);

#endif
