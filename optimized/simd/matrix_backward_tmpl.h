/* The backward pass on the matrix unit (matrix_tmpl.h): a block of keys meets one block of queries
 * after another, as in backward_tmpl.h.
 *
 * The numbers that a product sums over must lie side by side in A and in pairs in B.  So Q and dO
 * are kept twice: in pairs of features for S and dP, in pairs of queries for dK and dV.  dS is
 * written twice too: its rows for dK, its pairs of keys for dQ. */

struct matrix_state {
    uint32_t *Q, *dO;           /* [d / 2][PANEL], [dv / 2][PANEL]: pairs of features */
    uint32_t *q_rows, *do_rows; /* [PANEL / 2][d], [PANEL / 2][dv]: pairs of queries  */
    float *dQ, *lse, *D;        /* [d][PANEL], [PANEL], [PANEL]                       */
};

struct matrix_step {
    const struct attn_tile_backward *job;
    int64_t d, dv;         /* in whole 16's */
    float *S, *dP, *slope; /* [keys][PANEL] */
    uint16_t *P, *dS;      /* [keys][PANEL], rounded */
    uint32_t *dS_pairs;    /* [keys / 2][PANEL] */
    struct matrix_keys block, some;
    float *dK, *dV;     /* [keys][d], [keys][dv] */
    float *rows, *sums; /* rows on their way in and out; [16][d or dv] of a tile */
};

static struct matrix_step matrix_step_layout(const struct attn_tile_backward *job)
{
    int64_t keys = matrix_round(job->keys);
    struct matrix_step x = {.job = job,
                            .d = matrix_round(job->p->d_key),
                            .dv = matrix_round(job->p->d_value),
                            .S = job->ws[ATTN_BACK_S],
                            .dP = job->ws[ATTN_BACK_DP],
                            .slope = job->p->softcap > 0 ? job->ws[ATTN_BACK_SLOPE] : NULL,
                            .dK = job->ws[ATTN_BACK_DKV],
                            .rows = job->ws[ATTN_BACK_ROWS]};
    x.P = (uint16_t *)(x.S + keys * PANEL);
    x.dS = (uint16_t *)(x.dP + keys * PANEL);
    x.dS_pairs = (uint32_t *)(x.dS + keys * PANEL);
    x.dV = x.dK + keys * x.d;
    x.sums = x.rows + PANEL * (x.d + x.dv);
    uint16_t *kv = job->ws[ATTN_BACK_KV];
    x.block = matrix_keys_at(kv, x.d, x.dv, keys, 1);
    x.some = matrix_keys_at(kv + keys * (x.d + x.dv) + ATTN_KEY_BLOCK * x.d, x.d, x.dv, keys, 1);
    return x;
}

static struct matrix_state matrix_state_at(const struct attn_tile_backward *job, int64_t i)
{
    int64_t panel = (i - job->state_from) / PANEL;
    int64_t d = matrix_round(job->p->d_key) * PANEL, dv = matrix_round(job->p->d_value) * PANEL;
    struct matrix_state x = {.Q = (uint32_t *)job->state[ATTN_STATE_Q] + panel * d,
                             .dO = (uint32_t *)job->state[ATTN_STATE_DO] + panel * dv,
                             .dQ = (float *)job->state[ATTN_STATE_DQ] + panel * d,
                             .lse = (float *)job->state[ATTN_STATE_LSE] + panel * PANEL,
                             .D = (float *)job->state[ATTN_STATE_DELTA] + panel * PANEL};
    x.q_rows = x.Q + d / 2;
    x.do_rows = x.dO + dv / 2;
    return x;
}

/* Queries [i0,i1), whole panels but for the last: Q, dO, LSE, D; dQ = 0.  A query that sees nothing
 * has rows of zeros, and P = 0. */
static void matrix_backward_pack(const struct attn_tile_backward *job)
{
    const struct attn_problem *p = job->p;
    const struct attn_backward *t = job->t;
    struct matrix_step ws = matrix_step_layout(job);
    uint16_t *q = (uint16_t *)ws.rows, *d_o = q + PANEL * ws.d;
    for (int64_t i0 = job->at.i0; i0 < job->at.i1; i0 += PANEL) {
        struct matrix_state x = matrix_state_at(job, i0);
        int n = (int)(job->at.i1 - i0 < PANEL ? job->at.i1 - i0 : PANEL);
        for (int r = 0; r < PANEL; r++) {
            float lse = r < n ? *at_f32(&t->lse, job->at.b, job->at.h, i0 + r) : -INFINITY;
            int alive = lse != -INFINITY;
            x.lse[r] = alive ? (float)((double)lse * LOG2_E) : INFINITY;
            x.D[r] = alive ? delta_f32(job, i0 + r, ws.sums, ws.sums + ws.dv) : 0;
            if (alive) {
                matrix_row(&t->q, job->at.b, job->at.h, i0 + r, p->d_key, q + r * ws.d);
                matrix_row(&t->d_o, job->at.b, job->at.h, i0 + r, p->d_value, d_o + r * ws.dv);
            } else {
                memset(q + r * ws.d, 0, (size_t)ws.d * sizeof *q);
                memset(d_o + r * ws.dv, 0, (size_t)ws.dv * sizeof *d_o);
            }
        }
        matrix_feature_pairs(q, n, ws.d, x.Q);
        matrix_feature_pairs(d_o, n, ws.dv, x.dO);
        matrix_row_pairs(q, n, ws.d, x.q_rows);
        matrix_row_pairs(d_o, n, ws.dv, x.do_rows);
        memset(x.dQ, 0, (size_t)(PANEL * ws.d) * sizeof *x.dQ);
    }
}

static void matrix_backward_begin(const struct attn_tile_backward *job)
{
    struct matrix_step x = matrix_step_layout(job);
    int64_t keys = matrix_round(job->keys);
    matrix_keys_load(&x.block, attn_job_keys(job, &job->t->k, job->p->d_key),
                     attn_job_keys(job, &job->t->v, job->p->d_value));
    if (!job->resume)
        memset(x.dK, 0, (size_t)(keys * (x.d + x.dv)) * sizeof *x.dK);
}

/* The vector of queries at lane e of a panel: the exponents in S become P = 2^(S - LSE), and dP
 * becomes dS = P (dP - D), both 0 where hidden, and where there is no query (LSE = +inf): its q is
 * 0, but 0 times an infinite K is not. */
static void matrix_gradient(const struct matrix_step *x, const struct matrix_seen *seen, int e,
                            const struct matrix_state *state)
{
    float *S = x->S + e, *dP = x->dP + e;
    vec_f32 L = load_f32(state->lse + e), delta = load_f32(state->D + e), zero = {0};
    ivec_f32 alive = L != all_f32(INFINITY);
    for (int j = 0; j < seen->keys.n_full; j++) {
        vec_f32 P = choose_f32(alive, exp2_f32(load_f32(S + j * PANEL) - L), zero);
        vec_f32 dS = P * (load_f32(dP + j * PANEL) - delta);
        if (seen->by != NULL)
            P = choose_f32(lanes_of_f32((unsigned)(seen->by[j] >> e)), P, zero);
        store_f32(S + j * PANEL, P);
        store_f32(dP + j * PANEL, choose_f32((ivec_f32)(P != 0), dS, zero));
    }
}

/* P and dS of one vector of queries and n keys, rounded: rows, and dS in pairs of keys; zeros up to
 * whole 16's of `keys`. */
static void matrix_round_off(struct matrix_step *x, int n, int e, int keys)
{
    int all = (int)matrix_round(keys);
    for (int j = 0; j < all; j++) {
        vec_f32 P = j < n ? load_f32(x->S + j * PANEL + e) : (vec_f32){0};
        vec_f32 dS = j < n ? load_f32(x->dP + j * PANEL + e) : (vec_f32){0};
        halves_f32 p = bf16_from_vec(P), ds = bf16_from_vec(dS);
        memcpy(x->P + j * PANEL + e, &p, sizeof p);
        memcpy(x->dS + j * PANEL + e, &ds, sizeof ds);
    }
    for (int j = 0; j < all; j += 2) {
        halves_f32 even, odd;
        memcpy(&even, x->dS + j * PANEL + e, sizeof even);
        memcpy(&odd, x->dS + (j + 1) * PANEL + e, sizeof odd);
        uvec_f32 pair =
            __builtin_convertvector(even, uvec_f32) | __builtin_convertvector(odd, uvec_f32) << 16;
        memcpy(x->dS_pairs + j / 2 * PANEL + e, &pair, sizeof pair);
    }
}

/* dX[key[t]][:] += sum_i W[t][i] row[i][:] of a part of the keys that a panel sees: W is P or dS,
 * the rows those of dO or Q. */
static void matrix_keys_add(struct matrix_step *x, const struct attn_keys *keys,
                            const struct matrix_part *part, const uint16_t *W, const uint32_t *rows,
                            int64_t width, float *dX)
{
    W += part->t0 * PANEL;
    if (part->first >= 0) {
        MATRIX_PRODUCTS(W, PANEL, rows, width, PANEL, dX + part->first * width, width, part->all,
                        width, 1);
        return;
    }
    for (int64_t t0 = 0; t0 < part->n; t0 += MATRIX_ROWS) {
        MATRIX_PRODUCTS(W + t0 * PANEL, PANEL, rows, width, PANEL, x->sums, width, MATRIX_ROWS,
                        width, 0);
        for (int64_t t = t0; t < part->n && t < t0 + MATRIX_ROWS; t++)
            for (int64_t c = 0; c < width; c += LANES) {
                float *to = dX + keys->full[part->t0 + t] * width + c;
                store_f32(to, load_f32(to) + load_f32(x->sums + (t - t0) * width + c));
            }
    }
}

/* The panel of queries from i0 on meets the block. */
static void matrix_backward_panel(struct matrix_step *x, int64_t i0)
{
    const struct attn_tile_backward *job = x->job;
    int n_keys = (int)(job->at.j1 - job->at.j0);
    int queries = (int)(job->at.i1 - i0 < PANEL ? job->at.i1 - i0 : PANEL);
    struct matrix_state state = matrix_state_at(job, i0);
    struct attn_mask_cursor cursor;
    struct matrix_seen seen;
    const struct attn_keys *keys = &seen.keys;
    struct attn_tile_at tile_at = job->at;
    tile_at.i0 = i0, tile_at.i1 = i0 + queries;
    enum attn_tile tile = job->runs.tile(job->runs.arg, tile_at);
    if (tile == ATTN_TILE_PARTIAL) {
        attn_mask_cursor_open(&cursor, job->runs, PANEL, tile_at);
        tile = attn_mask_cursor_tile(&cursor, 0, job->at.j0, job->at.j1);
    }
    if (tile == ATTN_TILE_EMPTY)
        return;
    attn_keys_seen(&cursor, tile, n_keys, &seen.keys, seen.words);
    seen.by = tile == ATTN_TILE_FULL ? NULL : seen.words;
    if (keys->n_full == 0)
        return;
    struct matrix_part part[2];
    int parts = matrix_parts(&x->some, &x->block, keys, part), n = keys->n_full;
    for (int t = 0; t < parts; t++) {
        int64_t at = part[t].t0 * PANEL, all = part[t].all;
        MATRIX_PRODUCTS(part[t].K, x->d, state.Q, PANEL, x->d, x->S + at, PANEL, all, PANEL, 0);
        MATRIX_PRODUCTS(part[t].V, x->dv, state.dO, PANEL, x->dv, x->dP + at, PANEL, all, PANEL, 0);
    }
    for (int u = 0; u < ATTN_PANEL_VECTORS; u++) {
        int e = u * LANES;
        if (e >= queries) { /* a vector without a query */
            matrix_round_off(x, 0, e, n);
            continue;
        }
        float *slope = x->slope != NULL ? x->slope + e : NULL;
        matrix_exponents(job->p, tile_at, &seen, u, x->S + e, slope);
        matrix_gradient(x, &seen, e, &state);
        if (is_edited_f32(job->p))
            edit_gradient_f32(job, i0 + e, keys, u, x->dP + e, slope);
        matrix_round_off(x, n, e, n);
    }
    for (int t = 0; t < parts; t++) {
        MATRIX_PRODUCTS(part[t].turned, ATTN_KEY_BLOCK, x->dS_pairs + part[t].t0 / 2 * PANEL, PANEL,
                        part[t].all, state.dQ, PANEL, x->d, PANEL, 1);
        matrix_keys_add(x, keys, &part[t], x->P, state.do_rows, x->dv, x->dV);
        matrix_keys_add(x, keys, &part[t], x->dS, state.q_rows, x->d, x->dK);
    }
}

static void matrix_backward_step(const struct attn_tile_backward *job)
{
    struct matrix_step x = matrix_step_layout(job);
    x.block.n = job->at.j1 - job->at.j0; /* as matrix_backward_begin left it */
    for (int64_t i0 = job->at.i0; i0 < job->at.i1; i0 += PANEL)
        matrix_backward_panel(&x, i0);
    MATRIX_END();
}

static void matrix_backward_end(const struct attn_tile_backward *job)
{
    struct matrix_step x = matrix_step_layout(job);
    emit_keys_f32(job, x.dK, x.d, x.dV, x.dv);
}

static void matrix_backward_unpack(const struct attn_tile_backward *job)
{
    struct matrix_step x = matrix_step_layout(job);
    for (int64_t i = job->at.i0; i < job->at.i1; i += LANES)
        emit_queries_f32(job, i, matrix_state_at(job, i).dQ, x.rows);
}
