/* Materialised attention on the same tiles: S, and then P, of all queries and keys is in memory at
 * once; backward, P and dS.
 *
 *      forward     a panel of queries meets all keys for S; once more for P = softmax(S), in place,
 *                  and O = P V
 *      backward    a panel of queries meets all keys for P, dS = P (dP - D), and dQ = dS K; when
 *                  all panels have, a block of keys meets all queries for dV = P^T dO, dK = dS^T Q
 *
 * Jobs are those of forward_tmpl.h and backward_tmpl.h, but that the workspaces for S and dP hold
 * all keys, of as many panels as the job has: [panels][n_key + 8][PANEL].  The tile of a panel and
 * a block of keys has rows for the keys that the whole panel sees, and then for each vector its
 * edge, as everywhere; the other rows are 0, and so is a tile that no query sees.
 *
 * Forward may leave P for backward (job.saves), which then makes only dS (job.saved): four products
 * instead of five and no exponential, for memory that lives between the passes. */

/* Where the block of keys from j0 on ends. */
static int64_t FN(gemm_end)(const struct attn_problem *p, int64_t j0)
{
    return j0 + ATTN_KEY_BLOCK < p->n_key ? j0 + ATTN_KEY_BLOCK : p->n_key;
}

/* ---- the forward pass ------------------------------------------------------------------------ */

/* The next block of keys, and who in the panel sees what of it. */
static enum attn_tile FN(gemm_next)(struct FN(block) * x, struct attn_mask_cursor *cursor,
                                    struct attn_keys *keys)
{
    int rows = (int)(x->job->at.i1 - x->job->at.i0);
    x->j0 = x->j1;
    x->j1 = FN(gemm_end)(x->job->p, x->j0);
    enum attn_tile tile = attn_mask_cursor_tile(cursor, 0, x->j0, x->j1);
    keys->n_full = 0;
    if (tile != ATTN_TILE_EMPTY)
        attn_keys_sort(cursor, tile, rows, LANES, (int)(x->j1 - x->j0), keys);
    return tile;
}

/* S, and the largest of each query. */
static void FN(gemm_scores)(const struct attn_tile_forward *job,
                            const struct FN(forward_workspace) * ws)
{
    const struct attn_problem *p = job->p;
    int64_t b = job->at.b, g = job->at.h / (p->heads / p->kv_heads);
    struct FN(panel) panel = FN(panel_of)(job, 0, ws);
    int vectors = panel.vectors;
    struct attn_mask_cursor cursor;
    struct attn_keys keys;
    struct FN(block) x = {.job = job};
    panel.m = panel.l = NULL;
    VEC max[ATTN_PANEL_VECTORS];
    for (int u = 0; u < vectors; u++)
        max[u] = FN(all)((REAL)-INFINITY);
    attn_mask_cursor_open(&cursor, job->runs, PANEL, job->at);
    while (x.j1 < p->n_key) {
        enum attn_tile tile = FN(gemm_next)(&x, &cursor, &keys);
        REAL *S = ws->S + x.j0 * PANEL;
        int64_t full = keys.n_full * PANEL;
        memset(S + full, 0, (size_t)((x.j1 - x.j0) * PANEL - full) * sizeof *S);
        if (tile == ATTN_TILE_EMPTY)
            continue;
        FN(point)((struct attn_tensor_rows){&job->t->k, b, g, x.j0, x.j1, p->d_key}, ws->K, x.k);
        panel.S = S;
        FN(panel_scores)(&x, &keys, &panel, max);
    }
    for (int u = 0; u < vectors; u++)
        FN(store)(ws->m + u * LANES, max[u]);
}

/* P, not yet divided by its sum: that is left to O, which is smaller.  Then O. */
static void FN(gemm_output)(const struct attn_tile_forward *job,
                            const struct FN(forward_workspace) * ws)
{
    const struct attn_problem *p = job->p;
    int64_t b = job->at.b, g = job->at.h / (p->heads / p->kv_heads);
    struct FN(panel) panel = FN(panel_of)(job, 0, ws);
    int vectors = panel.vectors;
    struct attn_mask_cursor cursor;
    struct attn_keys keys;
    struct FN(block) x = {.job = job};
    attn_mask_cursor_open(&cursor, job->runs, PANEL, job->at);
    while (x.j1 < p->n_key) {
        if (FN(gemm_next)(&x, &cursor, &keys) == ATTN_TILE_EMPTY)
            continue;
        REAL *P = ws->S + x.j0 * PANEL;
        for (int u = 0; u < vectors; u++) {
            VEC m = FN(load)(ws->m + u * LANES), l = FN(load)(ws->l + u * LANES);
            m = FN(choose)(m > FN(all)((REAL)-INFINITY), m, FN(all)(0)); /* nothing seen: P = 0 */
            l += FN(exponentiate)(P + u * LANES, keys.n_full + keys.n_edge[u], m);
            FN(store)(ws->l + u * LANES, l);
        }
        FN(point)((struct attn_tensor_rows){&job->t->v, b, g, x.j0, x.j1, p->d_value}, ws->V, x.v);
        panel.S = P;
        FN(panel_values)(&panel, &keys, x.v, (int)(x.j1 - x.j0), NULL);
    }
}

/* P divided by its sums, for a backward pass: it will not know them.  A sum may be NaN, and P of a
 * hidden pair is 0 all the same. */
static void FN(gemm_normalise)(const struct attn_tile_forward *job,
                               const struct FN(forward_workspace) * ws)
{
    int vectors = (int)((job->at.i1 - job->at.i0 + LANES - 1) / LANES);
    struct attn_mask_cursor cursor;
    struct attn_keys keys;
    struct FN(block) x = {.job = job};
    attn_mask_cursor_open(&cursor, job->runs, PANEL, job->at);
    while (x.j1 < job->p->n_key) {
        if (FN(gemm_next)(&x, &cursor, &keys) == ATTN_TILE_EMPTY)
            continue;
        REAL *P = ws->S + x.j0 * PANEL;
        for (int u = 0; u < vectors; u++) {
            VEC l = FN(load)(ws->l + u * LANES), over_l = FN(choose)(l == 0, (VEC){0}, 1 / l);
            for (int j = 0; j < keys.n_full + keys.n_edge[u]; j++) {
                REAL *at = P + j * PANEL + u * LANES;
                FN(store)(at, FN(choose)(FN(load)(at) != 0, FN(load)(at) * over_l, (VEC){0}));
            }
        }
    }
}

/* One panel of queries, all keys. */
static void FN(gemm_forward)(const struct attn_tile_forward *job)
{
    struct FN(forward_workspace) ws =
        FN(forward_layout)(job->ws, 1, job->p->d_key, job->p->d_value);
    FN(forward_begin)(job, 1, &ws);
    FN(gemm_scores)(job, &ws);
    FN(gemm_output)(job, &ws);
    if (job->saves)
        FN(gemm_normalise)(job, &ws);
    FN(forward_finish)(job, 0, (int)(job->at.i1 - job->at.i0), &ws);
}

/* ---- the backward pass ----------------------------------------------------------------------- */

/* The panel of queries from i0 on meets the job's keys: the tiles of P and dS, and which keys of
 * them each query sees; 0 when no query sees any. */
static int FN(gemm_step)(struct FN(tile_step) * x, int64_t i0)
{
    const struct attn_tile_backward *job = x->job;
    int64_t panel = (i0 - job->state_from) / PANEL;
    int64_t at = (panel * (job->p->n_key + 8) + job->at.j0) * PANEL;
    x->i0 = i0;
    x->queries = (int)(job->at.i1 - i0 < PANEL ? job->at.i1 - i0 : PANEL);
    x->vectors = (x->queries + LANES - 1) / LANES;
    x->n = (int)(job->at.j1 - job->at.j0);
    x->ws.S = (REAL *)job->ws[ATTN_BACK_S] + at;
    x->ws.dP = (REAL *)job->ws[ATTN_BACK_DP] + at;
    return FN(step_keys)(x);
}

/* One panel of queries, one block of keys: P, unless it was saved, dS, and dQ grows. */
static void FN(gemm_block)(const struct attn_tile_backward *job)
{
    const struct attn_backward *t = job->t;
    int64_t d = job->p->d_key, dv = job->p->d_value;
    struct FN(tile_step) x = {.job = job, .ws = FN(backward_layout)(job)};
    int seen = FN(gemm_step)(&x, job->at.i0);
    int64_t full = x.keys.n_full * PANEL;
    if (!job->saved)
        memset(x.ws.S + full, 0, (size_t)(x.n * PANEL - full) * sizeof(REAL));
    memset(x.ws.dP + full, 0, (size_t)(x.n * PANEL - full) * sizeof(REAL));
    if (!seen)
        return;
    x.state = FN(head_state_at)(job, job->at.i0);
    FN(point)(attn_job_keys(job, &t->k, d), x.ws.K, x.k);
    FN(point)(attn_job_keys(job, &t->v, dv), x.ws.V, x.v);
    if (!job->saved)
        FN(step_qk)(&x, NULL);
    FN(step_dov)(&x, NULL);
    FN(step_softmax)(&x);
    FN(step_dq)(&x, NULL);
}

/* One panel of queries, all keys: P, dS, dBias, dQ. */
static void FN(gemm_queries)(const struct attn_tile_backward *job)
{
    struct attn_tile_backward block = *job;
    FN(backward_pack)(job);
    for (block.at.j0 = 0; block.at.j0 < job->p->n_key; block.at.j0 = block.at.j1) {
        block.at.j1 = FN(gemm_end)(job->p, block.at.j0);
        FN(gemm_block)(&block);
    }
    FN(backward_unpack)(job);
}

/* One block of keys, queries [i0,i1), of which P and dS are there, but far away: each product
 * prefetches the tile of the next.  dK and dV grow. */
static void FN(gemm_keys)(const struct attn_tile_backward *job)
{
    int64_t wide = FN(round_up)(job->p->d_key) + FN(round_up)(job->p->d_value);
    struct FN(tile_step) x = {.job = job, .ws = FN(backward_layout)(job)};
    memset(x.ws.zeros, 0, (size_t)wide * sizeof(REAL));
    for (int64_t i0 = job->at.i0; i0 < job->at.i1; i0 += PANEL) {
        x.state.lse = (REAL *)job->state[ATTN_STATE_LSE] + (i0 - job->state_from);
        if (!FN(gemm_step)(&x, i0))
            continue;
        int64_t tile = x.n * PANEL, far = (job->p->n_key + 8) * PANEL; /* to the next panel's */
        struct FN(prefetch)
            dS = FN(prefetch_numbers)(x.ws.dP, tile),
            P = FN(prefetch_numbers)(x.ws.S + far, i0 + PANEL < job->at.i1 ? tile : 0);
        FN(step_dkv)(&x, &dS, &P);
    }
}
