/* The forward pass of one block of queries: online softmax, one key block after another.  To be
 * read from the end: forward, forward_panel, panel_scores, online_softmax.
 *
 *      S  = K Q^T                     [key][query], in units of log2 e: P = 2^(S - m)
 *      m' = max(m, S)                 per query, that is per lane
 *      P  = 2^(S - m')
 *      l' = 2^(m - m') l + sum P
 *      O' = 2^(m - m') O + V^T P      [feature][query]
 *
 * Lazy rescale: m need not be the maximum, only near it.  It is moved (and l and O multiplied) when
 * a score exceeds it by more than rescale_at = 4, so that P stays below 2^4; after the first few
 * blocks that hardly ever happens.  Rounding the exponent S - m <= 4 costs no more than what the
 * bound leaves of exp's error (docs/kernel.md).
 *
 * So m of the blocks before will do for most tiles, and P of keys that the whole panel sees is made
 * on that assumption, while their scores are in registers still (optimistic_scores).  The first
 * tile with a score that is too large ends it; its block is finished by the way of the papers, in
 * which all scores come first.  Either way a query's O and l are rescaled at most once a block.
 *
 * Which keys a panel sees is sorted by mask_cursor.h: `full`, those that every query sees, are the
 * first rows of S; then each vector of the panel has its `edge`, the other keys that one of its
 * queries sees, with a bit a lane.  Hidden keys get S = -inf, and P is then exactly 0: not the
 * smallest number, whose products would be subnormal and slow. */

/* The workspace of a thread (ATTN_WORK_Q and on). */
struct FN(forward_workspace) {
    REAL *Q, *O;    /* [panels][d][PANEL], [panels][dv][PANEL]              */
    REAL *S;        /* [keys][PANEL]: scores, then P, of one panel          */
    REAL *m, *l;    /* [panels][PANEL]: running maximum and sum             */
    REAL *K, *V;    /* [keys][d], [keys][dv]: widened, if storage asks      */
    REAL *rows;     /* [LANES][d or dv]: rows on their way in and out       */
    int64_t o_rows; /* of O, in each panel: dv, or more                     */
};

static struct FN(forward_workspace)
    FN(forward_layout)(void *const ws[ATTN_WORKSPACES], int64_t panels, int64_t d, int64_t dv)
{
    struct FN(forward_workspace) x = {.Q = ws[ATTN_WORK_Q],
                                      .O = ws[ATTN_WORK_O],
                                      .S = ws[ATTN_WORK_S],
                                      .m = ws[ATTN_WORK_ML],
                                      .K = ws[ATTN_WORK_KV],
                                      .rows = ws[ATTN_WORK_ROWS]};
    x.l = x.m + panels * PANEL;
    x.V = x.K + ATTN_KEY_BLOCK * d;
    x.o_rows = dv;
    return x;
}

/* A panel of queries, and what it has so far. */
struct FN(panel) {
    int64_t i0, d, dv; /* its first query; features of Q and O    */
    int rows, vectors; /* queries, and the vectors that they fill */
    REAL *Q, *O;       /* [d][PANEL], [dv][PANEL]                 */
    REAL *S;           /* [keys][PANEL]: scores, then P           */
    REAL *m, *l;       /* [PANEL]; NULL where only S is asked for */
};

/* ---- one vector of queries, n keys: online softmax ------------------------------------------- */

/* The largest of n scores of one vector of queries, S[j][PANEL], and of max.  A NaN is passed over,
 * by the order of the operands: it shows up in P by itself. */
static VEC FN(largest)(const REAL *S, int n, VEC max)
{
    for (int j = 0; j < n; j++)
        max = VEC_MAX(FN(load)(S + j * PANEL), max);
    return max;
}

/* Hide what the bits of n keys do not show; the largest of what is left, and of max. */
static VEC FN(hide)(REAL *S, int n, const uint16_t *bits, VEC max)
{
    VEC hidden = FN(all)((REAL)-INFINITY);
    for (int j = 0; j < n; j++) {
        VEC s = FN(choose)(FN(lanes_of)(bits[j]), FN(load)(S + j * PANEL), hidden);
        FN(store)(S + j * PANEL, s);
        max = VEC_MAX(s, max);
    }
    return max;
}

/* S becomes P; returns the sums. */
static VEC FN(exponentiate)(REAL *S, int n, VEC m)
{
    VEC l = {0}, other = {0};
    int j = 0;
    for (; j + 4 <= n; j += 4) {
        VEC a = FN(exp2)(FN(load)(S + j * PANEL) - m);
        VEC b = FN(exp2)(FN(load)(S + (j + 1) * PANEL) - m);
        VEC c = FN(exp2)(FN(load)(S + (j + 2) * PANEL) - m);
        VEC d = FN(exp2)(FN(load)(S + (j + 3) * PANEL) - m);
        FN(store)(S + j * PANEL, a);
        FN(store)(S + (j + 1) * PANEL, b);
        FN(store)(S + (j + 2) * PANEL, c);
        FN(store)(S + (j + 3) * PANEL, d);
        l += a + b;
        other += c + d;
    }
    for (; j < n; j++) {
        VEC p = FN(exp2)(FN(load)(S + j * PANEL) - m);
        FN(store)(S + j * PANEL, p);
        l += p;
    }
    return l + other;
}

/* x[r][:] times alpha, n rows of one vector of queries. */
static void FN(rescale)(REAL *x, int64_t n, VEC alpha)
{
    for (int64_t r = 0; r < n; r++)
        FN(store)(x + r * PANEL, FN(load)(x + r * PANEL) * alpha);
}

/* Vector u of a panel meets n scores of which max is the largest: rescale if need be, P, its sum.
 * The first n_done of them are P already, of the m that was, and summed. */
static void FN(online_softmax)(const struct FN(panel) * x, int u, int n_done, int n, VEC max,
                               REAL at)
{
    REAL *S = x->S + u * LANES, *m = x->m + u * LANES, *l = x->l + u * LANES;
    VEC base = FN(load)(m), sum = FN(load)(l);
    if (FN(any)(max > base + at)) {
        VEC alpha = FN(exp2)(base - max); /* 0 where m = -inf; NaN where nothing was seen yet: */
        alpha = FN(choose)(max > FN(all)((REAL)-INFINITY), alpha, FN(all)(1));
        int begun = FN(any)(base > FN(all)((REAL)-INFINITY)); /* if not, O is 0 */
        FN(rescale)(x->O + u * LANES, begun ? x->dv : 0, alpha);
        FN(rescale)(S, n_done, alpha);
        sum *= alpha;
        base = max;
        FN(store)(m, base);
    }
    base = FN(choose)(base > FN(all)((REAL)-INFINITY), base, FN(all)(0)); /* -inf - -inf is NaN */
    FN(store)(l, sum + FN(exponentiate)(S + n_done * PANEL, n - n_done, base));
}

/* ---- three vectors: P while the scores are in registers -------------------------------------- */

/* A tile of three vectors: P[t][:] = 2^(Q . k[t] - m), added to l; but where a score exceeds
 * m + at, the scores themselves, and the answer is 0. */
TILE_OF(int)
FN(optimistic_tile)
(const REAL *const *k, int64_t d, const REAL *Q, REAL *P, REAL at, const VEC m[3], VEC l[3],
 VEC max[3])
{
    VEC acc[16][4];
    FN(tile_dots)(TILE_ROWS, 3, k, d, Q, acc);
#pragma GCC unroll 16
    for (int t = 0; t < TILE_ROWS; t++)
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++)
            max[v] = VEC_MAX(acc[t][v], max[v]);
    int fits = !FN(any)((max[0] > m[0] + at) | (max[1] > m[1] + at) | (max[2] > m[2] + at));
#pragma GCC unroll 16
    for (int t = 0; t < TILE_ROWS; t++)
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++) {
            if (fits) {
                acc[t][v] = FN(exp2)(acc[t][v] - m[v]);
                l[v] += acc[t][v];
            }
            FN(store)(P + t * PANEL + v * LANES, acc[t][v]);
        }
    return fits;
}

/* n keys that the whole panel sees: P of the first ones, as long as m is near enough, and the
 * scores of the rest.  Returns the number of P.  max: the largest scores seen. */
static int FN(optimistic_scores)(const struct FN(panel) * x, const REAL *const *k, int n, REAL at,
                                 VEC max[3], struct FN(prefetch) * prefetch)
{
    int64_t lines = FN(lines_of_step)(prefetch, (n + TILE_ROWS - 1) / TILE_ROWS);
    VEC base[3], sum[3], none = FN(all)((REAL)-INFINITY);
    int j = 0, is_p = 1;
    for (int v = 0; v < 3; v++)
        base[v] = FN(load)(x->m + v * LANES), sum[v] = FN(load)(x->l + v * LANES);
    if (FN(any)((base[0] == none) | (base[1] == none) | (base[2] == none)))
        is_p = 0; /* a query has seen nothing yet */
    while (is_p && j + TILE_ROWS <= n) {
        FN(prefetch_lines)(prefetch, lines);
        is_p = FN(optimistic_tile)(k + j, x->d, x->Q, x->S + j * PANEL, at, base, sum, max);
        j += TILE_ROWS;
    }
    for (int v = 0; v < 3; v++)
        FN(store)(x->l + v * LANES, sum[v]);
    FN(scores)(3, k + j, n - j, x->d, x->Q, x->S + j * PANEL, max, prefetch);
    return is_p || j == 0 ? j : j - TILE_ROWS;
}

/* ---- a panel meets a block of keys ----------------------------------------------------------- */

/* Everything that a block of queries shares while it meets one block of keys. */
struct FN(block) {
    const struct attn_tile_forward *job;
    int64_t j0, j1;
    const REAL *k[ATTN_KEY_BLOCK + 8], *v[ATTN_KEY_BLOCK + 8];
    struct FN(prefetch) with_scores, with_values; /* rows to prefetch meanwhile */
};

/* S[j][:] = Q . row[j] for the edge of vector u, in its place below the full keys. */
static void FN(edge_scores)(const REAL *const *row, const struct attn_keys *keys, int u, int64_t d,
                            const REAL *Q, REAL *S)
{
    const REAL *list[ATTN_KEY_BLOCK + 8];
    const REAL *const *k = FN(select)(row, keys->edge[u], keys->n_edge[u], -1, list);
    REAL *edge = S + keys->n_full * PANEL + u * LANES;
    FN(scores)(1, k, keys->n_edge[u], d, Q + u * LANES, edge, NULL, NULL);
}

/* The scores of a panel: rows 0 .. n_full-1 of S for the full keys, the rest for each vector's own
 * edge.  max[u] is the largest that a query of vector u may see, or has seen.  Where the panel has
 * m and l, the first rows may be P already; returns their number. */
static int FN(panel_scores)(struct FN(block) * x, const struct attn_keys *keys,
                            const struct FN(panel) * panel, VEC max[ATTN_PANEL_VECTORS])
{
    const struct attn_problem *p = x->job->p;
    const REAL *list[ATTN_KEY_BLOCK + 8];
    int n_full = keys->n_full, edited = FN(is_edited)(p), n_done = 0, vectors = panel->vectors;
    REAL *Q = panel->Q, *S = panel->S;
    REAL at = (REAL)x->job->rescale_at;
    const REAL *const *k = FN(select)(x->k, keys->full, n_full, (int)(x->j1 - x->j0), list);
    if (panel->m != NULL && vectors == 3 && !edited)
        n_done = FN(optimistic_scores)(panel, k, n_full, at, max, &x->with_scores);
    else
        FN(scores)(vectors, k, n_full, p->d_key, Q, S, edited ? NULL : max, &x->with_scores);
    for (int u = 0; u < vectors; u++) {
        REAL *own = S + u * LANES, *edge = own + n_full * PANEL;
        FN(edge_scores)(x->k, keys, u, p->d_key, Q, S);
        if (edited) {
            struct attn_tile_at from = x->job->at;
            from.i0 = panel->i0 + u * LANES, from.j0 = x->j0;
            FN(edit)(p, from, keys, u, own, NULL);
            max[u] = FN(largest)(own, n_full, max[u]);
        }
        max[u] = FN(hide)(edge, keys->n_edge[u], keys->bits[u], max[u]);
    }
    return n_done;
}

/* O += P V of a panel, P in the order of panel_scores; v: the rows of the block's n keys. */
static void FN(panel_values)(const struct FN(panel) * x, const struct attn_keys *keys,
                             const REAL *const *v, int n, struct FN(prefetch) * prefetch)
{
    const REAL *list[ATTN_KEY_BLOCK + 8], *P = x->S;
    int64_t dv = x->dv;
    REAL *O = x->O;
    const REAL *const *full = FN(select)(v, keys->full, keys->n_full, n, list);
    FN(values)(x->vectors, full, keys->n_full, dv, P, O, prefetch);
    for (int u = 0; u < x->vectors; u++) {
        const REAL *const *edge = FN(select)(v, keys->edge[u], keys->n_edge[u], -1, list);
        const REAL *of_edge = P + keys->n_full * PANEL + u * LANES;
        FN(values)(1, edge, keys->n_edge[u], dv, of_edge, O + u * LANES, NULL);
    }
}

/* Panel number n of a job. */
static struct FN(panel) FN(panel_of)(const struct attn_tile_forward *job, int n,
                                     const struct FN(forward_workspace) * ws)
{
    int64_t i0 = job->at.i0 + n * PANEL, left = job->at.i1 - i0;
    struct FN(panel) x = {.i0 = i0, .d = job->p->d_key, .dv = job->p->d_value, .S = ws->S};
    x.rows = left < PANEL ? (int)left : PANEL;
    x.vectors = (x.rows + LANES - 1) / LANES;
    x.Q = ws->Q + n * x.d * PANEL;
    x.O = ws->O + n * ws->o_rows * PANEL;
    x.m = ws->m + n * PANEL;
    x.l = ws->l + n * PANEL;
    return x;
}

/* Panel number n meets the block. */
static void FN(forward_panel)(struct FN(block) * x, struct attn_mask_cursor *cursor, int n,
                              const struct FN(forward_workspace) * ws)
{
    const struct FN(panel) panel = FN(panel_of)(x->job, n, ws);
    int rows = panel.rows, n_keys = (int)(x->j1 - x->j0);
    enum attn_tile tile = attn_mask_cursor_tile(cursor, n, x->j0, x->j1);
    if (tile == ATTN_TILE_EMPTY)
        return;
    struct attn_keys keys;
    VEC max[ATTN_PANEL_VECTORS];
    for (int u = 0; u < panel.vectors; u++)
        max[u] = FN(load)(panel.m + u * LANES);
    attn_keys_sort(cursor, tile, rows, LANES, n_keys, &keys);
    attn_keys_round(&keys, rows, LANES);
    int n_done = FN(panel_scores)(x, &keys, &panel, max);
    for (int u = 0; u < panel.vectors; u++)
        FN(online_softmax)
    (&panel, u, n_done, keys.n_full + keys.n_edge[u], max[u], (REAL)x->job->rescale_at);
    FN(panel_values)(&panel, &keys, x->v, n_keys, &x->with_values);
}

/* ---- before the first key, and after the last ------------------------------------------------ */

/* O / l and LSE of one panel, to the tensors or to the parts. */
static void FN(forward_finish)(const struct attn_tile_forward *job, int r0, int r1,
                               const struct FN(forward_workspace) * ws)
{
    int64_t dv = job->p->d_value, width = FN(round_up)(dv), panel = r0 / PANEL;
    for (int u = 0; r0 + u * LANES < r1; u++) {
        REAL *l = ws->l + panel * PANEL + u * LANES, *m = ws->m + panel * PANEL + u * LANES;
        VEC sum = FN(load)(l), over_l = FN(choose)(sum == 0, (VEC){0}, 1 / sum);
        FN(unpack)(ws->O + panel * ws->o_rows * PANEL + u * LANES, dv, over_l, ws->rows);
        for (int r = r0 + u * LANES; r < r1 && r < r0 + (u + 1) * LANES; r++) {
            int lane = r - r0 - u * LANES;
            int64_t i = job->at.i0 + r;
            const REAL *o = ws->rows + lane * width;
            REAL lse = FN(lse_of)(m[lane], l[lane]);
            if (job->o_part != NULL) {
                memcpy((REAL *)job->o_part + r * dv, o, (size_t)dv * sizeof *o);
                ((REAL *)job->lse_part)[r] = lse;
                continue;
            }
            FN(emit)(&job->t->o, job->at.b, job->at.h, i, dv, o);
            ((REAL *)job->t->lse.data)[attn_offset(job->t->lse.stride, job->at.b, job->at.h, i)] =
                lse;
        }
    }
}

/* Q of all panels, and no key met yet.  The next panel's queries are prefetched while one is
 * packed: under a window they are a good part of all that is read. */
static void FN(forward_begin)(const struct attn_tile_forward *job, int panels,
                              const struct FN(forward_workspace) * ws)
{
    const struct attn_problem *p = job->p;
    int64_t d = p->d_key;
    double factor = FN(exponent_factor)(p);
    for (int n = 0; n < panels; n++) {
        int64_t i0 = job->at.i0 + n * PANEL, next = i0 + PANEL, end = next + PANEL;
        end = end < job->at.i1 ? end : job->at.i1;
        struct attn_tensor_rows here = {&job->t->q, job->at.b, job->at.h, i0, job->at.i1, d},
                                then = here;
        then.i0 = next, then.i1 = end;
        struct FN(prefetch) q = FN(prefetch_rows)(then, 1);
        FN(prefetch_lines)(&q, FN(lines_of_step)(&q, 1));
        FN(pack)(here, factor, ws->Q + n * d * PANEL, ws->rows);
    }
    memset(ws->O, 0, (size_t)(panels * PANEL * p->d_value) * sizeof *ws->O);
    for (int n = 0; n < panels * PANEL; n++)
        ws->m[n] = (REAL)-INFINITY, ws->l[n] = 0;
}

/* ---- all of it: key block after key block ---------------------------------------------------- */

/* The keys after j1 that are worth prefetching end here.  Beyond what the block sees (a diagonal,
 * the end of a window) lies what the next block of queries will see: it is prefetched if it will
 * still be in the cache by then, after as many keys as this block has met since `first`. */
static int64_t FN(prefetch_until)(const struct attn_tile_forward *job, int64_t first, int64_t j1)
{
    const struct attn_problem *p = job->p;
    int64_t end = j1 + ATTN_KEY_BLOCK < job->at.j1 ? j1 + ATTN_KEY_BLOCK : job->at.j1;
    double met = (double)(j1 - first) * (double)(p->d_key + p->d_value) * sizeof(REAL);
    if (job->in_cache || j1 >= end)
        return j1;
    if (met <= ATTN_NEAR_BYTES)
        return end;
    struct attn_tile_at next = {job->at.b, job->at.h, job->at.i0, job->at.i1, j1, end};
    return attn_problem_tile(p, next) != ATTN_TILE_EMPTY ? end : j1;
}

static void FN(forward)(const struct attn_tile_forward *job)
{
    const struct attn_problem *p = job->p;
    int64_t d = p->d_key, dv = p->d_value, g = job->at.h / (p->heads / p->kv_heads);
    int queries = (int)(job->at.i1 - job->at.i0), panels = (queries + PANEL - 1) / PANEL;
    struct FN(forward_workspace) ws = FN(forward_layout)(job->ws, panels, d, dv);
    FN(forward_begin)(job, panels, &ws);
    struct attn_mask_cursor cursor;
    struct FN(block) x = {.job = job};
    attn_mask_cursor_open(&cursor, job->runs, PANEL, job->at);
    int64_t first = attn_mask_cursor_first(&cursor, job->at.j0);
    for (int64_t j = first; j < job->at.j1; j = attn_mask_cursor_first(&cursor, x.j1)) {
        int64_t start = j / ATTN_KEY_BLOCK * ATTN_KEY_BLOCK, end = start + ATTN_KEY_BLOCK;
        x.j0 = start > job->at.j0 ? start : job->at.j0;
        x.j1 = end < job->at.j1 ? end : job->at.j1;
        struct attn_tensor_rows k = {&job->t->k, job->at.b, g, x.j0, x.j1, d}, next_k = k;
        struct attn_tensor_rows v = {&job->t->v, job->at.b, g, x.j0, x.j1, dv}, own_v = v;
        FN(point)(k, ws.K, x.k);
        FN(point)(v, ws.V, x.v);
        int64_t next = FN(prefetch_until)(job, first, x.j1);
        for (int n = 0; n < panels; n++) { /* the block's own V, and K of the next: just in time */
            own_v.i1 = n == 0 && !job->in_cache ? x.j1 : x.j0;
            next_k.i0 = x.j1, next_k.i1 = n == panels - 1 ? next : x.j1;
            x.with_scores = FN(prefetch_rows)(own_v, 1);
            x.with_values = FN(prefetch_rows)(next_k, 1);
            FN(forward_panel)(&x, &cursor, n, &ws);
        }
    }
    for (int n = 0; n < panels; n++)
        FN(forward_finish)
    (job, n * PANEL, (n + 1) * PANEL < queries ? (n + 1) * PANEL : queries, &ws);
}
