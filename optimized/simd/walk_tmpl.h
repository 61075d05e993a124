/* Walking over the stored pairs of a block of queries: chunk of keys after chunk of keys, and in
 * each chunk query after query, so that the rows of K and V that a chunk has stay in the cache
 * for all queries of the block.  A step is one query and the keys of one chunk that it sees, at
 * most ATTN_ROW_KEYS of them. */

struct FN(walk) {
    const struct attn_csr *csr;
    const int64_t *start; /* of the block's rows: [rows + 1] */
    INT *done;            /* [rows]: stored pairs that are behind us */
    int rows, next_row;
    int64_t n_key, chunk, j1; /* keys in all, in a chunk; where the present one ends */
    int64_t next_key;         /* the first that is still ahead in any row */
    /* the step: */
    int row, n;
    int64_t at; /* of its first pair in csr->column */
    const int32_t *key;
};

/* at: the queries of a block, against all keys. */
static void FN(walk_start)(struct FN(walk) * x, const struct attn_csr *csr, struct attn_tile_at at,
                           int64_t chunk, INT *done)
{
    int64_t row = (at.b * csr->batch_step + at.h * csr->head_step) * csr->n_query + at.i0;
    *x = (struct FN(walk)){.csr = csr, .start = csr->row_start + row, .done = done};
    x->rows = (int)(at.i1 - at.i0);
    x->next_row = x->rows;
    x->n_key = at.j1;
    x->chunk = chunk;
    memset(done, 0, (size_t)x->rows * sizeof *done);
    x->next_key = 0;
}

/* How many of the first n keys are below j1: in eights, then without a branch, which would be
 * guessed wrong once a step.  Keys that are far beyond are not touched: they are not near yet. */
static int FN(walk_below)(const int32_t *key, int n, int64_t j1)
{
    int e = 0, more = 0;
    while (e + 8 <= n && key[e + 7] < j1)
        e += 8;
    if (e + 8 <= n) {
        for (int t = 0; t < 7; t++)
            more += key[e + t] < j1;
        return e + more;
    }
    while (e < n && key[e] < j1)
        e++;
    return e;
}

/* Prefetch the keys that another row will meet in this chunk, about as many as the present one, n:
 * which they are decides what is done next, so that waiting for them would be waiting indeed.
 * Inlined by force: gcc (12.2) takes a function that does nothing but prefetch for one without any
 * effect, and drops the calls. */
TILE FN(prefetch_keys)(const int32_t *key, int n)
{
    for (int e = 0; e <= n; e += 16)
        __builtin_prefetch(key + e);
}

/* The next step; 0 after the last. */
static int FN(walk_next)(struct FN(walk) * x)
{
    for (;;) {
        if (x->next_row == x->rows) { /* the chunk is done: on to the next that has any key */
            if (x->next_key == INT64_MAX)
                return 0;
            x->j1 = (x->next_key / x->chunk + 1) * x->chunk;
            x->next_key = INT64_MAX;
            x->next_row = 0;
            if (x->rows == 0)
                return 0;
        }
        int r = x->next_row;
        int64_t at = x->start[r] + x->done[r], left = x->start[r + 1] - at;
        const int32_t *key = x->csr->column + at;
        int n = (int)(left < ATTN_ROW_KEYS ? left : ATTN_ROW_KEYS);
        if (x->j1 < x->n_key)
            n = FN(walk_below)(key, n, x->j1);
        x->done[r] += (INT)n;
        if (n < ATTN_ROW_KEYS) { /* else there may be more of this row in the chunk */
            if (n < left && key[n] < x->next_key)
                x->next_key = key[n];
            x->next_row++;
        }
        if (n > 0) {
            x->row = r, x->n = n, x->at = at, x->key = key;
            if (r + 2 < x->rows)
                FN(prefetch_keys)(x->csr->column + x->start[r + 2] + x->done[r + 2], n);
            return 1;
        }
    }
}
