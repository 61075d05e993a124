/* The backward pass: one block of keys meets one block of queries after another.
 *
 * Nothing of size L x L was kept: scores are made again, and P from the LSE of the forward pass.
 *
 *      forward was                             backward is
 *      S   = K Q^T          [key][query]       (again)
 *      P   = 2^(S - LSE)                       (again; S and LSE in units of log2 e)
 *      O^T = V^T P          [feature][query]   dV += P dO,    dP = V dO^T
 *      softmax                                 dS  = P (dP - D),    D = rowsum(P dP) = dO . O
 *      S   = K Q^T                             dK += dS Q,    dQ^T += K^T dS
 *
 * S, dP and dQ^T are the tiles of the forward pass, dV and dK have their own (gradient_tmpl.h).
 * Between blocks of keys a query head keeps Q and dO, transposed, dQ^T, LSE and D (struct
 * head_state).
 *
 * Hidden pairs have P = 0 and dS = 0 by choice between lanes, not by arithmetic: their K and V may
 * hold NaN.  A query with LSE = -inf sees nothing: its q, o and dO are replaced by zeros, and its
 * LSE by +inf, which makes P = 0. */

/* The state of a query head, and the workspace of a thread: see ATTN_STATE_Q and ATTN_BACK_S, and
 * on. */
struct FN(head_state) {
    REAL *Q, *dO, *dQ, *lse, *D; /* at a panel */
};
struct FN(backward_workspace) {
    REAL *S, *dP, *slope, *K, *V, *dK, *dV, *rows, *zeros;
};

static struct FN(backward_workspace) FN(backward_layout)(const struct attn_tile_backward *job)
{
    int64_t d = job->p->d_key, dv = job->p->d_value, wide = FN(round_up)(d) + FN(round_up)(dv);
    struct FN(backward_workspace)
        x = {.S = job->ws[ATTN_BACK_S],
             .dP = job->ws[ATTN_BACK_DP],
             .slope = job->p->softcap > 0 ? job->ws[ATTN_BACK_SLOPE] : NULL,
             .K = job->ws[ATTN_BACK_KV],
             .dK = job->ws[ATTN_BACK_DKV],
             .rows = job->ws[ATTN_BACK_ROWS]};
    x.V = x.K + job->keys * d;
    x.dV = x.dK + (job->keys + 1) * FN(round_up)(d);
    x.zeros = x.rows + PANEL * wide;
    return x;
}

static struct FN(head_state) FN(head_state_at)(const struct attn_tile_backward *job, int64_t i)
{
    int64_t panel = (i - job->state_from) / PANEL, d = job->p->d_key, dv = job->p->d_value;
    return (struct FN(head_state)){.Q = (REAL *)job->state[ATTN_STATE_Q] + panel * PANEL * d,
                                   .dO = (REAL *)job->state[ATTN_STATE_DO] + panel * PANEL * dv,
                                   .dQ = (REAL *)job->state[ATTN_STATE_DQ] + panel * PANEL * d,
                                   .lse = (REAL *)job->state[ATTN_STATE_LSE] + panel * PANEL,
                                   .D = (REAL *)job->state[ATTN_STATE_DELTA] + panel * PANEL};
}

/* ---- before the first block of keys ---------------------------------------------------------- */

/* forward was P = softmax(S), and LSE = ln sum exp S:
 * dS = P (dP - sum P dP) + P dLSE, and sum_j P_ij dP_ij = dO_i . sum_j P_ij v_j = dO_i . O_i */
static REAL FN(delta)(const struct attn_tile_backward *job, int64_t i, REAL *o, REAL *d_o)
{
    const struct attn_backward *t = job->t;
    int64_t dv = job->p->d_value;
    VEC sum = {0};
    REAL D = 0;
    memset(o, 0, (size_t)FN(round_up)(dv) * sizeof *o);
    memset(d_o, 0, (size_t)FN(round_up)(dv) * sizeof *o);
    FN(fetch)(&t->o, job->at.b, job->at.h, i, dv, o);
    FN(fetch)(&t->d_o, job->at.b, job->at.h, i, dv, d_o);
    for (int64_t c = 0; c < dv; c += LANES)
        sum = VEC_FMA(FN(load)(d_o + c), FN(load)(o + c), sum);
    for (int n = 0; n < LANES; n++)
        D += sum[n];
    return t->d_lse.data != NULL ? D - *FN(at)(&t->d_lse, job->at.b, job->at.h, i) : D;
}

/* x[c][:] = 0 for queries that see nothing. */
static void FN(blank)(REAL *x, int64_t n, const REAL *lse)
{
    for (int u = 0; u < ATTN_PANEL_VECTORS; u++) {
        IVEC alive = FN(load)(lse + u * LANES) != FN(all)((REAL)INFINITY);
        for (int64_t c = 0; c < n; c++) {
            REAL *at = x + c * PANEL + u * LANES;
            FN(store)(at, FN(choose)(alive, FN(load)(at), (VEC){0}));
        }
    }
}

/* Queries [i0,i1), whole panels but for the last: Q, dO, LSE, D; dQ = 0. */
static void FN(backward_pack)(const struct attn_tile_backward *job)
{
    const struct attn_problem *p = job->p;
    const struct attn_backward *t = job->t;
    struct FN(backward_workspace) ws = FN(backward_layout)(job);
    double factor = FN(exponent_factor)(p);
    for (int64_t i0 = job->at.i0; i0 < job->at.i1; i0 += PANEL) {
        struct FN(head_state) x = FN(head_state_at)(job, i0);
        int n = (int)(job->at.i1 - i0 < PANEL ? job->at.i1 - i0 : PANEL), blank = 0;
        for (int r = 0; r < PANEL; r++) {
            REAL lse = r < n ? *FN(at)(&t->lse, job->at.b, job->at.h, i0 + r) : (REAL)-INFINITY;
            int alive = lse != (REAL)-INFINITY;
            x.lse[r] = alive ? (REAL)((double)lse * LOG2_E) : (REAL)INFINITY;
            x.D[r] = alive ? FN(delta)(job, i0 + r, ws.rows, ws.zeros) : 0;
            blank |= !alive;
        }
        FN(pack)(attn_job_queries(job, &t->q, i0, i0 + n, p->d_key), factor, x.Q, ws.rows);
        FN(pack)(attn_job_queries(job, &t->d_o, i0, i0 + n, p->d_value), 1, x.dO, ws.rows);
        if (blank) {
            FN(blank)(x.Q, p->d_key, x.lse);
            FN(blank)(x.dO, p->d_value, x.lse);
        }
        memset(x.dQ, 0, (size_t)(PANEL * p->d_key) * sizeof *x.dQ);
    }
}

/* ---- a block of keys: begin, meet queries, end ----------------------------------------------- */

static void FN(backward_begin)(const struct attn_tile_backward *job)
{
    const struct attn_problem *p = job->p;
    struct FN(backward_workspace) ws = FN(backward_layout)(job);
    int64_t d = p->d_key, dv = p->d_value, n = job->at.j1 - job->at.j0;
    const REAL *row[ATTN_KEY_BLOCK + 8];
    FN(point)(attn_job_keys(job, &job->t->k, d), ws.K, row);
    FN(point)(attn_job_keys(job, &job->t->v, dv), ws.V, row);
    if (job->resume)
        return;
    memset(ws.dK, 0, (size_t)(n * FN(round_up)(d)) * sizeof(REAL));
    memset(ws.dV, 0, (size_t)(n * FN(round_up)(dv)) * sizeof(REAL));
}

/* Rows to be read in whole vectors: in place where that reads nothing beyond them, else from
 * workspace.  Queries that see nothing have a row of zeros. */
static void FN(query_rows)(struct attn_tensor_rows from, const REAL *lse, REAL *ws,
                           const REAL *zeros, const REAL **row)
{
    int64_t n = from.n, wide = FN(round_up)(n);
    int direct = FN(in_place)(from.x, n) && n == wide && n > 0;
    for (int64_t r = 0; r < from.i1 - from.i0; r++) {
        if (lse[r] == (REAL)INFINITY) {
            row[r] = zeros;
            continue;
        }
        row[r] = direct ? FN(at)(from.x, from.b, from.h, from.i0 + r) : ws + r * wide;
        if (direct)
            continue;
        for (int64_t c = n; c < wide; c++)
            ws[r * wide + c] = 0;
        FN(fetch)(from.x, from.b, from.h, from.i0 + r, n, ws + r * wide);
    }
}

/* One vector of queries and n keys, of which P was saved, 0 where hidden: dP becomes dS. */
static void FN(saved_gradient)(const REAL *P, REAL *dP, int n, const REAL *delta)
{
    VEC D = FN(load)(delta);
    for (int j = 0; j < n; j++) {
        VEC p = FN(load)(P + j * PANEL), dS = p * (FN(load)(dP + j * PANEL) - D);
        FN(store)(dP + j * PANEL, FN(choose)(p != 0, dS, (VEC){0}));
    }
}

/* forward was S = softcap(scale q.k) + bias: dbias = dS; and what goes on is dS times the slope of
 * the softcap, which is NaN where q.k of a hidden pair was. */
static void FN(edit_gradient)(const struct attn_tile_backward *job, int64_t i0,
                              const struct attn_keys *keys, int u, REAL *dS, const REAL *slope)
{
    int n = keys->n_full + keys->n_edge[u];
    int lanes = job->at.i1 - i0 < LANES ? (int)(job->at.i1 - i0) : LANES;
    for (int r = 0; r < n; r++) {
        int64_t key = r < keys->n_full ? keys->full[r] : keys->edge[u][r - keys->n_full];
        REAL *ds = dS + r * PANEL;
        for (int t = 0; job->t->dbias.data != NULL && t < lanes; t++)
            if (ds[t] != 0)
                attn_view_add(&job->t->dbias, job->at.b, job->at.h, i0 + t, job->at.j0 + key,
                              (double)ds[t]);
        if (slope != NULL) {
            VEC bent = FN(load)(ds) * FN(load)(slope + r * PANEL);
            FN(store)(ds, FN(choose)(FN(load)(ds) != 0, bent, (VEC){0}));
        }
    }
}

/* A panel of queries that meets a block of keys. */
struct FN(tile_step) {
    const struct attn_tile_backward *job;
    int64_t i0;              /* the panel's first query */
    int queries, vectors, n; /* n keys */
    struct attn_keys keys;
    struct FN(head_state) state;
    struct FN(backward_workspace) ws;
    const REAL *k[ATTN_KEY_BLOCK + 8], *v[ATTN_KEY_BLOCK + 8], *q[ATTN_MAX_PANEL],
        *d_o[ATTN_MAX_PANEL];
};

/* Are P and dS of the keys that all queries see made while their tiles are in registers? */
static int FN(steps_at_once)(const struct FN(tile_step) * x)
{
    return x->vectors == 3 && !FN(is_edited)(x->job->p);
}

/* S = K Q^T with LSE, or dP = V dO^T with D: rows of keys, a panel, and where the product goes. */
struct FN(operands) {
    const REAL *const *row;
    int64_t d;
    const REAL *Q, *base;
    REAL *to;
};

static struct FN(operands) FN(operands_of)(const struct FN(tile_step) * x, int is_ds)
{
    const struct attn_problem *p = x->job->p;
    if (is_ds)
        return (struct FN(operands)){x->v, p->d_value, x->state.dO, x->state.D, x->ws.dP};
    return (struct FN(operands)){x->k, p->d_key, x->state.Q, x->state.lse, x->ws.S};
}

/* So: of three vectors of queries and the n keys of `row`, which all of them see,
 *      P[j][:] = 2^(Q . k[j] - LSE),  or, is_ds,  dS[j][:] = P[j][:] (dO . v[j] - D) */
TILE FN(step_at_once)(int is_ds, const struct FN(operands) * of, const REAL *const *row, int n,
                      const REAL *P, struct FN(prefetch) * prefetch)
{
    int64_t d = of->d, lines = FN(lines_of_step)(prefetch, (n + TILE_ROWS - 1) / TILE_ROWS);
    const REAL *Q = of->Q, *base = of->base;
    REAL *to = of->to;
    VEC minus[3] = {FN(load)(base), FN(load)(base + LANES), FN(load)(base + 2 * LANES)};
    for (int j = 0; j < n; j += TILE_ROWS) {
        VEC acc[16][4];
        FN(prefetch_lines)(prefetch, lines);
        FN(tile_dots)(TILE_ROWS, 3, row + j, d, Q, acc);
#pragma GCC unroll 16
        for (int t = 0; t < TILE_ROWS; t++)
#pragma GCC unroll 3
            for (int v = 0; v < 3; v++) {
                int64_t at = (j + t) * PANEL + v * LANES;
                VEC x = acc[t][v] - minus[v];
                FN(store)(to + at, is_ds ? FN(load)(P + at) * x : FN(exp2)(x));
            }
    }
}

/* P of the keys that all queries see, or their scores; scores of the edges.  is_ds: dS and dP. */
TILE FN(step_product)(int is_ds, const struct FN(tile_step) * x, struct FN(prefetch) * prefetch)
{
    const struct FN(operands) of = FN(operands_of)(x, is_ds);
    const REAL *list[ATTN_KEY_BLOCK + 8];
    int n = x->keys.n_full;
    const REAL *const *full = FN(select)(of.row, x->keys.full, n, x->n, list);
    if (FN(steps_at_once)(x))
        FN(step_at_once)(is_ds, &of, full, n, x->ws.S, prefetch);
    else
        FN(scores)(x->vectors, full, n, of.d, of.Q, of.to, NULL, prefetch);
    for (int u = 0; u < x->vectors; u++)
        FN(edge_scores)(of.row, &x->keys, u, of.d, of.Q, of.to);
}

static void FN(step_qk)(const struct FN(tile_step) * x, struct FN(prefetch) * prefetch)
{
    FN(step_product)(0, x, prefetch);
}

static void FN(step_dov)(const struct FN(tile_step) * x, struct FN(prefetch) * prefetch)
{
    FN(step_product)(1, x, prefetch);
}

/* Vector u of a step, keys n_done and on.  S becomes P = 2^(S - LSE), dP becomes dS = P (dP - D).
 * Keys of the edge are masked by bits.  Those below n_sure are not looked at: there P > 0 or dP is
 * finite. */
static void FN(softmax_gradient)(const struct FN(tile_step) * x, int u, int n_done, int n_sure)
{
    REAL *S = x->ws.S + u * LANES, *dP = x->ws.dP + u * LANES;
    const uint16_t *bits = x->keys.bits[u];
    int n_full = x->keys.n_full, n = n_full + x->keys.n_edge[u];
    VEC L = FN(load)(x->state.lse + u * LANES), D = FN(load)(x->state.D + u * LANES);
    for (int j = n_done; j < n_sure; j++) {
        VEC P = FN(exp2)(FN(load)(S + j * PANEL) - L);
        FN(store)(S + j * PANEL, P);
        FN(store)(dP + j * PANEL, P * (FN(load)(dP + j * PANEL) - D));
    }
    for (int j = n_sure; j < n; j++) {
        VEC P = FN(exp2)(FN(load)(S + j * PANEL) - L), dS = P * (FN(load)(dP + j * PANEL) - D);
        if (j >= n_full)
            P = FN(choose)(FN(lanes_of)(bits[j - n_full]), P, (VEC){0});
        FN(store)(S + j * PANEL, P);
        FN(store)(dP + j * PANEL, FN(choose)(P != 0, dS, (VEC){0}));
    }
}

/* Makes P and dS of the S and dP that are left. */
static void FN(step_softmax)(const struct FN(tile_step) * x)
{
    const struct attn_tile_backward *job = x->job;
    const struct attn_problem *p = job->p;
    int n_done = FN(steps_at_once)(x) ? x->keys.n_full : 0, edited = FN(is_edited)(p);
    for (int u = 0; u < x->vectors; u++) {
        int n = x->keys.n_full + x->keys.n_edge[u], at = u * LANES;
        int64_t i0 = x->i0 + at, done = n_done * PANEL;
        struct attn_tile_at from = job->at;
        from.i0 = i0;
        REAL *S = x->ws.S + at, *dP = x->ws.dP + at;
        REAL *slope = x->ws.slope != NULL ? x->ws.slope + at : NULL;
        if (edited && !job->saved)
            FN(edit)(p, from, &x->keys, u, S, slope);
        if (job->saved)
            FN(saved_gradient)(S + done, dP + done, n - n_done, x->state.D + at);
        else
            FN(softmax_gradient)(x, u, n_done, edited ? n_done : x->keys.n_full);
        if (edited)
            FN(edit_gradient)(job, i0, &x->keys, u, dP, slope);
    }
}

/* forward was S = K Q^T: dQ^T += K^T dS, which is O^T += V^T P again. */
static void FN(step_dq)(const struct FN(tile_step) * x, struct FN(prefetch) * prefetch)
{
    const struct FN(panel)
        panel = {.dv = x->job->p->d_key, .vectors = x->vectors, .S = x->ws.dP, .O = x->state.dQ};
    FN(panel_values)(&panel, &x->keys, x->k, x->n, prefetch);
}

/* forward was O = P V: dV += P dO.  The same makes dK of dS and Q. */
static void FN(step_gradients)(const struct FN(tile_step) * x, REAL *dX, int64_t width,
                               const REAL *P, const REAL *const *row,
                               struct FN(prefetch) * prefetch)
{
    const struct attn_keys *keys = &x->keys;
    REAL *waste = dX + x->job->keys * width;
    FN(gradients)(dX, width, keys->full, keys->n_full, waste, P, row, x->queries, prefetch);
    for (int u = 0; u < x->vectors; u++) {
        int left = x->queries - u * LANES;
        FN(gradients)
        (dX, width, keys->edge[u], keys->n_edge[u], waste, P + keys->n_full * PANEL + u * LANES,
         row + u * LANES, left < LANES ? left : LANES, NULL);
    }
}

/* The keys that the panel sees, sorted; 0 when there are none. */
static int FN(step_keys)(struct FN(tile_step) * x)
{
    const struct attn_tile_backward *job = x->job;
    struct attn_mask_cursor cursor;
    struct attn_tile_at at = job->at;
    at.i0 = x->i0, at.i1 = x->i0 + x->queries;
    enum attn_tile tile = job->runs.tile(job->runs.arg, at);
    if (tile == ATTN_TILE_PARTIAL) {
        attn_mask_cursor_open(&cursor, job->runs, PANEL, at);
        tile = attn_mask_cursor_tile(&cursor, 0, job->at.j0, job->at.j1);
    }
    if (tile != ATTN_TILE_EMPTY)
        attn_keys_sort(&cursor, tile, x->queries, LANES, x->n, &x->keys);
    return tile != ATTN_TILE_EMPTY;
}

/* dV and dK, and what is prefetched with either. */
static void FN(step_dkv)(struct FN(tile_step) * x, struct FN(prefetch) * with_dv,
                         struct FN(prefetch) * with_dk)
{
    const struct attn_tile_backward *job = x->job;
    const struct attn_backward *t = job->t;
    int64_t d = job->p->d_key, dv = job->p->d_value;
    int64_t wide_d = FN(round_up)(d), wide_dv = FN(round_up)(dv), i1 = x->i0 + x->queries;
    const REAL *lse = x->state.lse, *zeros = x->ws.zeros;
    FN(query_rows)
    (attn_job_queries(job, &t->d_o, x->i0, i1, dv), lse, x->ws.rows, zeros, x->d_o);
    FN(step_gradients)(x, x->ws.dV, wide_dv, x->ws.S, x->d_o, with_dv);
    FN(query_rows)
    (attn_job_queries(job, &t->q, x->i0, i1, d), lse, x->ws.rows + PANEL * wide_dv, zeros, x->q);
    FN(step_gradients)(x, x->ws.dK, wide_d, x->ws.dP, x->q, with_dk);
}

/* Queries [i0,i1) against keys [j0,j1).  The next call is about the queries before these, an
 * order that a processor does not foresee: each product prefetches some of them (docs/kernel.md,
 * 9). */
static void FN(backward_step)(const struct attn_tile_backward *job)
{
    const struct attn_backward *t = job->t;
    int64_t d = job->p->d_key, dv = job->p->d_value;
    int64_t wide = FN(round_up)(d) + FN(round_up)(dv);
    int64_t step = (job->at.i1 - job->at.i0 + PANEL - 1) / PANEL * PANEL;
    struct FN(tile_step) x = {.job = job, .ws = FN(backward_layout)(job)};
    x.n = (int)(job->at.j1 - job->at.j0);
    memset(x.ws.zeros, 0, (size_t)wide * sizeof(REAL));
    FN(pointed)(attn_job_keys(job, &t->k, d), x.ws.K, x.k);
    FN(pointed)(attn_job_keys(job, &t->v, dv), x.ws.V, x.v);
    for (x.i0 = job->at.i0; x.i0 < job->at.i1; x.i0 += PANEL) {
        x.queries = (int)(job->at.i1 - x.i0 < PANEL ? job->at.i1 - x.i0 : PANEL);
        x.vectors = (x.queries + LANES - 1) / LANES;
        x.state = FN(head_state_at)(job, x.i0);
        if (!FN(step_keys)(&x))
            continue;
        int64_t next = x.i0 - step, rows = job->prefetch && next >= job->state_from ? PANEL : 0;
        int64_t end = next + rows;
        struct FN(head_state) soon = FN(head_state_at)(job, rows > 0 ? next : x.i0);
        struct FN(prefetch) Q = FN(prefetch_numbers)(soon.Q, rows * d),
                            dO = FN(prefetch_numbers)(soon.dO, rows * dv),
                            dQ = FN(prefetch_numbers)(soon.dQ, rows * d),
                            q = FN(prefetch_rows)(attn_job_queries(job, &t->q, next, end, d), 1),
                            d_o =
                                FN(prefetch_rows)(attn_job_queries(job, &t->d_o, next, end, dv), 1);
        FN(step_qk)(&x, &Q);
        FN(step_dov)(&x, &dO);
        FN(step_softmax)(&x);
        FN(step_dq)(&x, &dQ);
        FN(step_dkv)(&x, &d_o, &q);
    }
}

/* dK and dV of the block to the tensors, from rows of wide_k and wide_v numbers.  Q in dK is not
 * the scaled one, so scale comes here. */
static void FN(emit_keys)(const struct attn_tile_backward *job, REAL *dK, int64_t wide_k, REAL *dV,
                          int64_t wide_v)
{
    const struct attn_problem *p = job->p;
    for (int64_t j = job->at.j0; j < job->at.j1; j++) {
        REAL *dk = dK + (j - job->at.j0) * wide_k, *dv = dV + (j - job->at.j0) * wide_v;
        for (int64_t c = 0; c < wide_k; c += LANES)
            FN(store)(dk + c, FN(load)(dk + c) * (REAL)p->scale);
        FN(emit)(&job->t->dk, job->at.b, job->g, j, p->d_key, dk);
        FN(emit)(&job->t->dv, job->at.b, job->g, j, p->d_value, dv);
    }
}

static void FN(backward_end)(const struct attn_tile_backward *job)
{
    struct FN(backward_workspace) ws = FN(backward_layout)(job);
    FN(emit_keys)
    (job, ws.dK, FN(round_up)(job->p->d_key), ws.dV, FN(round_up)(job->p->d_value));
}

/* ---- after the last block of keys ------------------------------------------------------------ */

/* dQ of one vector of queries, from i on, out of its panel; stage as in unpack. */
static void FN(emit_queries)(const struct attn_tile_backward *job, int64_t i, const REAL *dQ,
                             REAL *stage)
{
    int64_t d = job->p->d_key, wide = FN(round_up)(d);
    FN(unpack)(dQ + (i - job->state_from) % PANEL, d, FN(all)((REAL)job->p->scale), stage);
    for (int r = 0; r < LANES && i + r < job->at.i1; r++)
        FN(emit)(&job->t->dq, job->at.b, job->at.h, i + r, d, stage + r * wide);
}

static void FN(backward_unpack)(const struct attn_tile_backward *job)
{
    struct FN(backward_workspace) ws = FN(backward_layout)(job);
    for (int64_t i = job->at.i0; i < job->at.i1; i += LANES)
        FN(emit_queries)(job, i, FN(head_state_at)(job, i).dQ, ws.rows);
}
