/* Materialised attention on the same tiles: a step of all heads is in memory before the next
 * begins, as in code that calls a matrix product for each.
 *
 *      S = Q K^T,  P = softmax(S) in place,  O = P V
 *      dP = dO V^T,  dS = P (dP - D) in place,  dQ = dS K,  dV = P^T dO,  dK = dS^T Q
 *
 * Hidden pairs are computed like any other and then thrown away; where no query of the panel sees a
 * key, a row of zeros stands in for its K and V, which may hold anything. */

/* Rows [j0,j1) of K or V, for the tiles: `zeros` where no query of the panel sees the key. */
static void FN(gemm_rows)(const struct attn_gemm *job, const struct attn_cview *x, int64_t j0,
                          int64_t j1, int64_t n, const REAL **row)
{
    const struct attn_tile_forward *tile = &job->tile;
    int64_t g = tile->h / (tile->p->heads / tile->p->kv_heads);
    FN(point)(x, tile->b, g, j0, j1, n, tile->room[ATTN_ROOM_KV], row);
    for (int64_t j = j0; j < j1; j++)
        if (!job->seen[j])
            row[j - j0] = job->zeros;
}

/* Who sees what of keys [j0,j1): bit r of word[j - j0] for query r. */
static void FN(gemm_sight)(const struct attn_gemm *job, struct attn_sight *sight, int64_t j0,
                           int64_t j1, uint64_t everyone, uint64_t *word)
{
    enum attn_tile tile = attn_sight_tile(sight, 0, j0, j1);
    for (int j = 0; j < (int)(j1 - j0); j++) {
        word[j] = tile == ATTN_TILE_FULL ? everyone : 0;
        if (tile == ATTN_TILE_PARTIAL && j >= sight->from && j < sight->to)
            word[j] = sight->seen[j];
        job->seen[j0 + j] = word[j] != 0;
    }
}

/* S of the panel with keys [j0,j1): the products, softcap and bias, -inf where hidden. */
static void FN(gemm_scores_block)(const struct attn_gemm *job, struct attn_sight *sight,
                                  const REAL *Q, int64_t j0, int64_t j1)
{
    const struct attn_tile_forward *tile = &job->tile;
    const struct attn_problem *p = tile->p;
    int rows = (int)(tile->i1 - tile->i0), vectors = (rows + LANES - 1) / LANES, n = (int)(j1 - j0);
    uint64_t everyone = ((uint64_t)1 << rows) - 1, word[ATTN_KEY_BLOCK];
    const REAL *k[ATTN_KEY_BLOCK + 8];
    REAL *S = (REAL *)job->scores + j0 * PANEL;
    REAL *slope = job->slope != NULL ? (REAL *)job->slope + j0 * PANEL : NULL;
    struct attn_keys keys = {.n_full = n};
    for (int j = 0; j < n; j++)
        keys.full[j] = (uint8_t)j;
    FN(gemm_sight)(job, sight, j0, j1, everyone, word);
    FN(gemm_rows)(job, job->k, j0, j1, p->d_key, k);
    FN(scores)(vectors, k, n, p->d_key, Q, S, NULL);
    for (int u = 0; u < vectors; u++) {
        REAL *own = S + u * LANES, *bent = slope != NULL ? slope + u * LANES : NULL;
        if (FN(is_edited)(p))
            FN(edit)(p, tile->b, tile->h, tile->i0 + u * LANES, tile->i1, j0, &keys, u, own, bent);
        for (int j = 0; j < n; j++) {
            uint16_t bits = (uint16_t)(word[j] >> u * LANES & (((uint64_t)1 << LANES) - 1));
            if (word[j] != everyone)
                FN(hide)(own + j * PANEL, 1, &bits, (VEC){0});
        }
    }
}

/* S of the panel with all keys. */
static void FN(gemm_all_scores)(const struct attn_gemm *job, const REAL *Q)
{
    const struct attn_tile_forward *tile = &job->tile;
    int64_t n = tile->p->n_key;
    struct attn_sight sight;
    attn_sight_open(&sight, tile->runs, PANEL, tile->b, tile->h, tile->i0, tile->i1, 0, n);
    for (int64_t j0 = 0; j0 < n; j0 += ATTN_KEY_BLOCK)
        FN(gemm_scores_block)
    (job, &sight, Q, j0, j0 + ATTN_KEY_BLOCK < n ? j0 + ATTN_KEY_BLOCK : n);
}

/* X[c][:] += sum_j P[j][:] rows[j][c], over all keys. */
static void FN(gemm_values)(const struct attn_gemm *job, const struct attn_cview *rows, int64_t n,
                            const REAL *P, REAL *X)
{
    const struct attn_tile_forward *tile = &job->tile;
    int64_t n_key = tile->p->n_key;
    int vectors = (int)((tile->i1 - tile->i0 + LANES - 1) / LANES);
    for (int64_t j0 = 0; j0 < n_key; j0 += ATTN_KEY_BLOCK) {
        const REAL *row[ATTN_KEY_BLOCK + 8];
        int64_t j1 = j0 + ATTN_KEY_BLOCK < n_key ? j0 + ATTN_KEY_BLOCK : n_key;
        FN(gemm_rows)(job, rows, j0, j1, n, row);
        FN(values)(vectors, row, (int)(j1 - j0), n, P + j0 * PANEL, X);
    }
}

/* ---- the steps of the forward pass ---------------------------------------------------------- */

static void FN(gemm_scores)(const struct attn_gemm *job)
{
    const struct attn_tile_forward *tile = &job->tile;
    const struct attn_problem *p = tile->p;
    struct FN(forward_room) room = FN(forward_layout)(tile->room, 1, p->d_key);
    FN(pack)
    (&tile->t->q, tile->b, tile->h, tile->i0, tile->i1, p->d_key,
     FN(is_edited)(p) ? p->scale : p->scale * LOG2_E, room.Q, room.rows);
    FN(gemm_all_scores)(job, room.Q);
}

/* P is not yet divided by its sum: that is left to O, which is smaller. */
static void FN(gemm_softmax)(const struct attn_gemm *job)
{
    const struct attn_tile_forward *tile = &job->tile;
    struct FN(forward_room) room = FN(forward_layout)(tile->room, 1, tile->p->d_key);
    int n = (int)tile->p->n_key;
    for (int64_t u = 0; tile->i0 + u * LANES < tile->i1; u++) {
        REAL *S = (REAL *)job->scores + u * LANES;
        VEC m = FN(largest)(S, n, FN(all)((REAL)-INFINITY));
        FN(store)(room.m + u * LANES, m);
        m = FN(choose)(m > FN(all)((REAL)-INFINITY), m, FN(all)(0)); /* nothing seen: P = 0 */
        FN(store)(room.l + u * LANES, FN(exponentiate)(S, n, m));
    }
}

static void FN(gemm_output)(const struct attn_gemm *job)
{
    const struct attn_tile_forward *tile = &job->tile;
    int64_t dv = tile->p->d_value;
    struct FN(forward_room) room = FN(forward_layout)(tile->room, 1, tile->p->d_key);
    memset(room.O, 0, (size_t)(PANEL * dv) * sizeof *room.O);
    FN(gemm_values)(job, job->v, dv, job->scores, room.O);
    FN(forward_finish)(tile, 0, (int)(tile->i1 - tile->i0), &room);
}

/* ---- the steps of the backward pass --------------------------------------------------------- */

/* forward was P = softmax(S): again, from the LSE.  Hidden pairs have S = -inf, and P = 0 even
 * where the LSE is NaN. */
static void FN(gemm_probs)(const struct attn_gemm *job)
{
    const struct attn_tile_forward *tile = &job->tile;
    struct FN(kept) kept = FN(kept_at)(&job->back, tile->i0);
    FN(gemm_all_scores)(job, kept.Q);
    for (int64_t u = 0; tile->i0 + u * LANES < tile->i1; u++) {
        VEC L = FN(load)(kept.lse + u * LANES);
        for (int64_t j = 0; j < tile->p->n_key; j++) {
            REAL *at = (REAL *)job->scores + j * PANEL + u * LANES;
            VEC S = FN(load)(at), P = FN(exp2)(S - L);
            FN(store)(at, FN(choose)(S == FN(all)((REAL)-INFINITY), (VEC){0}, P));
        }
    }
}

/* forward was O = P V and P = softmax(S): dP = dO V^T, dS = P (dP - D); then dBias, and the slope
 * of the softcap. */
static void FN(gemm_dscores)(const struct attn_gemm *job)
{
    const struct attn_tile_forward *tile = &job->tile;
    const struct attn_problem *p = tile->p;
    struct FN(kept) kept = FN(kept_at)(&job->back, tile->i0);
    int vectors = (int)((tile->i1 - tile->i0 + LANES - 1) / LANES);
    for (int64_t j0 = 0; j0 < p->n_key; j0 += ATTN_KEY_BLOCK) {
        struct attn_tile_backward block = job->back;
        struct attn_keys keys = {0};
        const REAL *v[ATTN_KEY_BLOCK + 8];
        REAL *P = (REAL *)job->scores + j0 * PANEL, *dS = (REAL *)job->dscores + j0 * PANEL;
        REAL *slope = job->slope != NULL ? (REAL *)job->slope + j0 * PANEL : NULL;
        block.j0 = j0, block.j1 = j0 + ATTN_KEY_BLOCK < p->n_key ? j0 + ATTN_KEY_BLOCK : p->n_key;
        keys.n_full = (int)(block.j1 - j0);
        for (int j = 0; j < keys.n_full; j++)
            keys.full[j] = (uint8_t)j;
        FN(gemm_rows)(job, job->v, j0, block.j1, p->d_value, v);
        FN(scores)(vectors, v, keys.n_full, p->d_value, kept.dO, dS, NULL);
        for (int u = 0; u < vectors; u++) {
            VEC D = FN(load)(kept.D + u * LANES);
            for (int j = 0; j < keys.n_full; j++) {
                VEC p_j = FN(load)(P + j * PANEL + u * LANES);
                VEC ds = p_j * (FN(load)(dS + j * PANEL + u * LANES) - D);
                FN(store)(dS + j * PANEL + u * LANES, FN(choose)(p_j != 0, ds, (VEC){0}));
            }
            if (FN(is_edited)(p))
                FN(edit_gradient)
            (&block, tile->i0 + u * LANES, &keys, u, dS + u * LANES,
             slope != NULL ? slope + u * LANES : NULL);
        }
    }
}

/* forward was S = Q K^T: dQ = dS K. */
static void FN(gemm_dq)(const struct attn_gemm *job)
{
    struct FN(kept) kept = FN(kept_at)(&job->back, job->tile.i0);
    FN(gemm_values)(job, job->k, job->tile.p->d_key, job->dscores, kept.dQ);
    FN(backward_unpack)(&job->back);
}

/* One panel's share of dV = P^T dO and dK = dS^T Q, keys [j0,j1). */
static void FN(gemm_panel_dkv)(const struct attn_gemm *job, int64_t i0, const REAL *P,
                               const REAL *dS)
{
    const struct attn_tile_backward *back = &job->back;
    const struct attn_problem *p = back->p;
    struct FN(backward_room) room = FN(backward_layout)(back);
    struct FN(kept) kept = FN(kept_at)(back, i0);
    int64_t i1 = i0 + PANEL < p->n_query ? i0 + PANEL : p->n_query;
    int64_t wide_d = FN(round_up)(p->d_key), wide_dv = FN(round_up)(p->d_value);
    const REAL *row[ATTN_MAX_PANEL];
    uint8_t key[ATTN_KEY_BLOCK];
    int n = (int)(back->j1 - back->j0), queries = (int)(i1 - i0);
    for (int j = 0; j < n; j++)
        key[j] = (uint8_t)j;
    FN(query_rows)
    (&back->t->d_o, back->b, back->h, i0, i1, p->d_value, kept.lse, room.rows, room.zeros, row);
    FN(gradients)(room.dV, wide_dv, key, n, room.dV + back->keys * wide_dv, P, row, queries);
    FN(query_rows)
    (&back->t->q, back->b, back->h, i0, i1, p->d_key, kept.lse, room.rows, room.zeros, row);
    FN(gradients)(room.dK, wide_d, key, n, room.dK + back->keys * wide_d, dS, row, queries);
}

/* The share of one query head: all its panels, from scores and dscores on. */
static void FN(gemm_dkv)(const struct attn_gemm *job)
{
    const struct attn_problem *p = job->back.p;
    struct FN(backward_room) room = FN(backward_layout)(&job->back);
    int64_t wide = FN(round_up)(p->d_key) + FN(round_up)(p->d_value);
    memset(room.zeros, 0, (size_t)wide * sizeof(REAL));
    for (int64_t i0 = 0; i0 < p->n_query; i0 += PANEL) {
        int64_t at = i0 / PANEL * (p->n_key + 8) * PANEL + job->back.j0 * PANEL;
        FN(gemm_panel_dkv)(job, i0, (REAL *)job->scores + at, (REAL *)job->dscores + at);
    }
}
