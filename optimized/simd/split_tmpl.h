/* Few queries against many keys: decoding.  The queries that share a kv head meet the same keys at
 * a time, first all their scores, then all their sums, so that K and V come from memory once and
 * from the nearest cache after that.  How far each query sees is a matter of runs
 * (mask_cursor.h). */

/* One query on its way through the keys. */
struct FN(split_row) {
    int64_t h, i;
    struct attn_run run; /* that it is in, or the next */
    uint64_t sees;       /* of the keys at hand: a bit each */
    REAL m, l;
};

/* On to the first run at or after the end of this one. */
static void FN(split_seek)(const struct attn_row_split *job, struct FN(split_row) * row)
{
    if (!job->runs.next(job->runs.arg, job->b, row->h, row->i, &row->run))
        row->run.lo = row->run.hi = job->j1;
}

/* Which of the keys [j0,j1) the row sees: a bit each. */
static uint64_t FN(split_sees)(const struct attn_row_split *job, struct FN(split_row) * row,
                               int64_t j0, int64_t j1)
{
    uint64_t bits = 0;
    while (row->run.lo < j1) {
        int64_t from = row->run.lo > j0 ? row->run.lo : j0;
        int64_t to = row->run.hi < j1 ? row->run.hi : j1, n = to - from;
        bits |= (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1) << (from - j0);
        if (row->run.hi > j1)
            break;
        FN(split_seek)(job, row);
    }
    return bits;
}

/* The set bits, as a list. */
static int FN(split_list)(uint64_t bits, int32_t *key)
{
    int n = 0;
    for (; bits != 0; bits &= bits - 1)
        key[n++] = __builtin_ctzll(bits);
    return n;
}

/* Rows where they are, or widened into workspace. */
static struct FN(source) FN(split_source)(struct attn_tensor_rows rows, REAL *ws)
{
    int64_t n = rows.n, width = FN(round_up)(n);
    struct FN(source) from = {.at = ws, .step = width, .width = width};
    if (n > 0 && n == width && FN(in_place)(rows.x, n)) {
        from.at = FN(at)(rows.x, rows.b, rows.h, rows.i0);
        from.step = rows.x->stride[2];
        return from;
    }
    for (int64_t j = rows.i0; j < rows.i1; j++)
        FN(fetch_padded)(rows.x, rows.b, rows.h, j, n, ws + (j - rows.i0) * width);
    return from;
}

/* How many rows from r on can go together: TWINS of them when they see the same keys, else one. */
static int FN(split_together)(const struct FN(split_row) * row, int r, int rows)
{
    if (r + TWINS > rows)
        return 1;
    for (int u = 1; u < TWINS; u++)
        if (row[r + u].sees != row[r].sees)
            return 1;
    return TWINS;
}

/* All rows against keys [j0,j1). */
static void FN(split_keys)(const struct attn_row_split *job, int64_t j0, int64_t j1, int rows,
                           struct FN(split_row) * row)
{
    const struct attn_problem *p = job->p;
    int64_t g = job->h0 / (p->heads / p->kv_heads), wide = FN(round_up)(p->d_key);
    REAL *Q = job->ws[ATTN_SPLIT_Q], *O = job->ws[ATTN_SPLIT_O], *S = job->ws[ATTN_SPLIT_S];
    REAL *K = job->ws[ATTN_SPLIT_KV], *V = K + ATTN_SPLIT_KEYS * wide, alpha[ATTN_SPLIT_ROWS];
    int32_t key[ATTN_SPLIT_KEYS];
    uint64_t seen = 0;
    for (int r = 0; r < rows; r++)
        seen |= row[r].sees = FN(split_sees)(job, &row[r], j0, j1);
    if (seen == 0)
        return;
    int64_t j2 = j1 + ATTN_SPLIT_KEYS < job->j1 ? j1 + ATTN_SPLIT_KEYS : job->j1;
    const struct attn_tensor_rows keys = {&job->t->k, job->b, g, j0, j1, p->d_key};
    const struct attn_tensor_rows next_keys = {&job->t->k, job->b, g, j1, j2, p->d_key};
    const struct attn_tensor_rows values = {&job->t->v, job->b, g, j0, j1, p->d_value};
    struct FN(source) k = FN(split_source)(keys, K);
    struct FN(prefetch) prefetch = FN(prefetch_rows)(values, rows / TWINS);
    for (int r = 0, together; r < rows; r += together, prefetch.passes--) {
        int n = FN(split_list)(row[r].sees, key);
        together = FN(split_together)(row, r, rows);
        if (together == TWINS)
            FN(twin_dots)
        (&k, key, n, Q + r * wide, S + r * ATTN_SPLIT_KEYS, ATTN_SPLIT_KEYS, &prefetch);
        else FN(row_dots)(&k, key, n, Q + r * wide, S + r * ATTN_SPLIT_KEYS);
        for (int u = r; u < r + together; u++) {
            const struct attn_pair_at at = {job->b, row[u].h, row[u].i, j0};
            FN(row_edit)(p, at, key, n, S + u * ATTN_SPLIT_KEYS, NULL);
            alpha[u] = FN(row_softmax)(S + u * ATTN_SPLIT_KEYS, n, &row[u].m, &row[u].l);
        }
    }
    struct FN(source) v = FN(split_source)(values, V);
    prefetch = FN(prefetch_rows)(next_keys, rows / TWINS);
    for (int r = 0, together; r < rows; r += together, prefetch.passes--) {
        int n = FN(split_list)(row[r].sees, key);
        together = FN(split_together)(row, r, rows);
        if (together == TWINS)
            FN(twin_sums)
        (&v, key, n, S + r * ATTN_SPLIT_KEYS, ATTN_SPLIT_KEYS, alpha + r, O + r * v.width,
         &prefetch);
        else FN(row_sums)(&v, key, n, S + r * ATTN_SPLIT_KEYS, alpha[r], O + r * v.width);
    }
}

/* Row r of the job's parts: o normalised, lse in natural logarithms. */
static void FN(split_finish)(const struct attn_row_split *job, struct FN(split_row) * row, REAL *o)
{
    int64_t dv = job->p->d_value;
    int64_t at = (row->h - job->h0) * job->part_step + row->i - job->i0;
    REAL *part = (REAL *)job->o_part + at * dv, over_l = row->l == 0 ? 0 : 1 / row->l;
    for (int64_t c = 0; c < dv; c++)
        part[c] = o[c] * over_l;
    ((REAL *)job->lse_part)[at] = FN(lse_of)(row->m, row->l);
}

static void FN(split)(const struct attn_row_split *job)
{
    const struct attn_problem *p = job->p;
    struct FN(split_row) row[ATTN_SPLIT_ROWS];
    int64_t wide = FN(round_up)(p->d_key), wide_v = FN(round_up)(p->d_value);
    REAL *Q = job->ws[ATTN_SPLIT_Q], *O = job->ws[ATTN_SPLIT_O];
    int rows = 0;
    for (int64_t h = job->h0; h < job->h1; h++)
        for (int64_t i = job->i0; i < job->i1; i++, rows++) {
            row[rows] = (struct FN(split_row)){.h = h, .i = i, .m = (REAL)-INFINITY};
            row[rows].run.hi = job->j0;
            FN(split_seek)(job, &row[rows]);
            if (row[rows].run.lo < job->j1) /* else it sees nothing, and q is not read */
                FN(fetch_scaled)(p, &job->t->q, job->b, h, i, Q + rows * wide);
        }
    memset(O, 0, (size_t)(rows * wide_v) * sizeof *O);
    for (int64_t j0 = job->j0; j0 < job->j1; j0 += ATTN_SPLIT_KEYS)
        FN(split_keys)
    (job, j0, j0 + ATTN_SPLIT_KEYS < job->j1 ? j0 + ATTN_SPLIT_KEYS : job->j1, rows, row);
    for (int r = 0; r < rows; r++)
        FN(split_finish)(job, &row[r], O + r * wide_v);
}
