/* Sparse attention, backward, by recomputation from LSE.
 *
 *      forward   S_ij  = scale q_i . k_j (softcap, bias)      P_ij = exp(S_ij - LSE_i)
 *                O_i   = sum_j P_ij v_j
 *      backward  dP_ij = dO_i . v_j      D_i = dO_i . O_i - dLSE_i      dS_ij = P_ij (dP_ij - D_i)
 *                dQ_i  = scale sum_j dS_ij k_j    dK_j = scale sum_i dS_ij q_i
 *                                                 dV_j = sum_i P_ij dO_i
 *
 * One walk over the pairs of a chunk of keys makes all three.  A query meets the keys of its row:
 * it gathers K and V for two dot products, from which P and dS follow; then it gathers K once more
 * for dQ, and scatters q and dO, weighted, over dK and dV.  Five products a pair, each made once;
 * the pattern is read by rows only, so it is never transposed.
 *
 * The rows of a key lie together: K, V, dK, dV, one after the other, for the keys of the chunk.  A
 * pair thus moves four neighbouring rows in and two out, between registers and whichever cache
 * holds the chunk, and that is its limit. */

/* The workspace of a thread. */
struct FN(back_workspace) {
    REAL *keys;                 /* [keys][K, V, dK, dV]                            */
    int64_t step, wide, wide_v; /* numbers from key to key; d, dv in whole vectors */
    REAL *S, *dP, *slope;       /* [ATTN_BACK_STEP + 16]                           */
    REAL *q, *d_o, *o;          /* [wide], [wide_v], [wide_v]                      */
};

static struct FN(back_workspace) FN(back_layout)(const struct attn_row_backward *job)
{
    struct FN(back_workspace) x;
    REAL *at = job->ws;
    x.wide = FN(round_up)(job->p->d_key), x.wide_v = FN(round_up)(job->p->d_value);
    x.step = 2 * (x.wide + x.wide_v);
    x.S = at, at += ATTN_BACK_STEP + 16;
    x.dP = at, at += ATTN_BACK_STEP + 16;
    x.slope = at, at += ATTN_BACK_STEP + 16;
    x.q = at, at += FN(whole)(x.wide);
    x.d_o = at, at += FN(whole)(x.wide_v);
    x.o = at, at += FN(whole)(x.wide_v);
    x.keys = at;
    return x;
}

/* Where the pairs of query i of the job's head begin. */
static const int64_t *FN(back_row)(const struct attn_row_backward *job, int64_t i)
{
    const struct attn_csr *csr = job->csr;
    return csr->row_start + (job->b * csr->batch_step + job->h * csr->head_step) * csr->n_query + i;
}

/* grad[r] * factor, to the tensor. */
static void FN(back_emit)(const struct attn_view *to, int64_t b, int64_t h, int64_t i, int64_t n,
                          REAL *grad, double factor)
{
    for (int64_t c = 0; c < n; c++)
        grad[c] = (REAL)((double)grad[c] * factor);
    FN(emit)(to, b, h, i, n, grad);
}

/* ---- queries, before the first key and after the last --------------------------------------- */

/* D of query i; dO and o pass through the workspace. */
static REAL FN(back_delta)(const struct attn_row_backward *job,
                           const struct FN(back_workspace) * ws, int64_t i)
{
    const struct attn_backward *t = job->t;
    VEC D = {0};
    FN(fetch_padded)(&t->d_o, job->b, job->h, i, job->p->d_value, ws->d_o);
    FN(fetch_padded)(&t->o, job->b, job->h, i, job->p->d_value, ws->o);
    for (int64_t c = 0; c < ws->wide_v; c += LANES)
        D = VEC_FMA(FN(load)(ws->d_o + c), FN(load)(ws->o + c), D);
    REAL delta = FN(sum)(D)[0];
    if (t->d_lse.data != NULL)
        delta -= ((const REAL *)t->d_lse.data)[attn_offset(t->d_lse.stride, job->b, job->h, i)];
    return delta;
}

/* LSE to base 2 and D of queries [i0,i1), dQ = 0.  A query that sees nothing, or nothing but -inf,
 * is not read: its LSE becomes +inf, and it meets no key. */
static void FN(row_backward_start)(const struct attn_row_backward *job)
{
    const struct attn_cview *of = &job->t->lse;
    struct FN(back_workspace) ws = FN(back_layout)(job);
    REAL *lse = job->lse, *delta = job->delta, *dQ = job->dq;
    for (int64_t i = job->i0; i < job->i1; i++) {
        const int64_t *row = FN(back_row)(job, i);
        REAL of_i = ((const REAL *)of->data)[attn_offset(of->stride, job->b, job->h, i)];
        int seen = row[1] > row[0] && of_i != (REAL)-INFINITY;
        lse[i] = seen ? of_i * (REAL)LOG2_E : (REAL)INFINITY;
        delta[i] = seen ? FN(back_delta)(job, &ws, i) : 0;
        job->done[i] = 0;
        memset(dQ + i * ws.wide, 0, (size_t)ws.wide * sizeof *dQ);
    }
}

static void FN(row_backward_finish)(const struct attn_row_backward *job)
{
    int64_t d = job->p->d_key, wide = FN(round_up)(d);
    for (int64_t i = job->i0; i < job->i1; i++)
        FN(back_emit)
    (&job->t->dq, job->b, job->h, i, d, (REAL *)job->dq + i * wide, job->p->scale);
}

/* ---- keys, before the first query and after the last ----------------------------------------- */

static void FN(row_backward_begin)(const struct attn_row_backward *job)
{
    const struct attn_problem *p = job->p;
    struct FN(back_workspace) ws = FN(back_layout)(job);
    int64_t half = ws.wide + ws.wide_v;
    for (int64_t j = job->j0; j < job->j1; j++) {
        REAL *key = ws.keys + (j - job->j0) * ws.step;
        FN(fetch_padded)(&job->t->k, job->b, job->g, j, p->d_key, key);
        FN(fetch_padded)(&job->t->v, job->b, job->g, j, p->d_value, key + ws.wide);
        memset(key + half, 0, (size_t)half * sizeof *key);
    }
}

static void FN(row_backward_end)(const struct attn_row_backward *job)
{
    const struct attn_problem *p = job->p;
    struct FN(back_workspace) ws = FN(back_layout)(job);
    for (int64_t j = job->j0; j < job->j1; j++) {
        REAL *dK = ws.keys + (j - job->j0) * ws.step + ws.wide + ws.wide_v;
        FN(back_emit)(&job->t->dk, job->b, job->g, j, p->d_key, dK, p->scale);
        FN(back_emit)(&job->t->dv, job->b, job->g, j, p->d_value, dK + ws.wide, 1);
    }
}

/* ---- queries meet keys ----------------------------------------------------------------------- */

/* One query and at most ATTN_BACK_STEP keys of the chunk that it sees, counted from its first. */
struct FN(back_step) {
    const struct attn_row_backward *job;
    struct FN(back_workspace) ws;
    int64_t i;
    const REAL *q, *d_o; /* in whole vectors */
    REAL *dQ;
    int n;
    int32_t key[ATTN_BACK_STEP];
};

/* S becomes P and dP becomes dS = P (dP - D). */
static void FN(back_scores)(REAL *S, REAL *dP, int n, REAL lse, REAL delta)
{
    VEC L = FN(all)(lse), D = FN(all)(delta);
    for (int e = 0; e < n; e += LANES) {
        VEC p = FN(exp2)(FN(load)(S + e) - L);
        FN(store)(S + e, p);
        FN(store)(dP + e, p * (FN(load)(dP + e) - D));
    }
}

/* dS is the gradient of the bias; times the slope of the softcap, of the raw score. */
static void FN(back_edit)(const struct FN(back_step) * x)
{
    const struct attn_row_backward *job = x->job;
    REAL *dS = x->ws.dP;
    for (int e = 0; job->t->dbias.data != NULL && e < x->n; e++)
        attn_view_add(&job->t->dbias, job->b, job->h, x->i, job->j0 + x->key[e], (double)dS[e]);
    for (int e = 0; job->p->softcap > 0 && e < x->n; e++)
        dS[e] *= x->ws.slope[e];
}

/* `vectors` vectors of features from c on: dQ += sum_e dS_e k_e, dK_e += dS_e q, dV_e += P_e dO.
 * The rows of a key are thus walked over once, line after line.  Where d and dv differ, keys or
 * values end first, and the others go on alone. */
TILE FN(scatter_at)(int vectors, int keys, int values, const struct FN(back_step) * x, int64_t c)
{
    const struct FN(back_workspace) *ws = &x->ws;
    VEC q[4], d_o[4], dQ[4];
    for (int u = 0; u < vectors; u++) {
        q[u] = keys ? FN(load)(x->q + c + u * LANES) : (VEC){0};
        dQ[u] = keys ? FN(load)(x->dQ + c + u * LANES) : (VEC){0};
        d_o[u] = values ? FN(load)(x->d_o + c + u * LANES) : (VEC){0};
    }
    for (int e = 0; e < x->n; e++) {
        REAL *K = ws->keys + x->key[e] * ws->step + c;
        REAL *dK = K + ws->wide + ws->wide_v, *dV = dK + ws->wide;
        VEC dS = FN(all)(ws->dP[e]), P = FN(all)(ws->S[e]);
#pragma GCC unroll 4
        for (int u = 0; u < vectors; u++) {
            int64_t at = u * LANES;
            if (keys) {
                dQ[u] = VEC_FMA(dS, FN(load)(K + at), dQ[u]);
                FN(store)(dK + at, VEC_FMA(dS, q[u], FN(load)(dK + at)));
            }
            if (values)
                FN(store)(dV + at, VEC_FMA(P, d_o[u], FN(load)(dV + at)));
        }
    }
    for (int u = 0; keys && u < vectors; u++)
        FN(store)(x->dQ + c + u * LANES, dQ[u]);
}

/* Features [c, end), whole vectors of them. */
TILE FN(scatter_between)(int keys, int values, const struct FN(back_step) * x, int64_t c,
                         int64_t end)
{
    for (; c + 4 * LANES <= end; c += 4 * LANES)
        FN(scatter_at)(4, keys, values, x, c);
    for (; c < end; c += LANES)
        FN(scatter_at)(1, keys, values, x, c);
}

static void FN(back_scatter)(const struct FN(back_step) * x)
{
    int64_t wide = x->ws.wide, wide_v = x->ws.wide_v, both = wide < wide_v ? wide : wide_v;
    FN(scatter_between)(1, 1, x, 0, both);
    FN(scatter_between)(1, 0, x, both, wide);
    FN(scatter_between)(0, 1, x, both, wide_v);
}

static void FN(back_tile_step)(const struct FN(back_step) * x)
{
    const struct attn_row_backward *job = x->job;
    const struct attn_problem *p = job->p;
    const struct FN(back_workspace) *ws = &x->ws;
    struct FN(source) k = {.at = ws->keys, .step = ws->step, .width = ws->wide};
    struct FN(source) v = {.at = ws->keys + ws->wide, .step = ws->step, .width = ws->wide_v};
    VEC factor = FN(all)((REAL)FN(exponent_factor)(p));
    FN(dots)(&k, x->key, x->n, x->q, ws->S);
    FN(dots)(&v, x->key, x->n, x->d_o, ws->dP);
    for (int e = 0; e < x->n; e += LANES)
        FN(store)(ws->S + e, FN(load)(ws->S + e) * factor);
    const struct attn_pair_at at = {job->b, job->h, x->i, job->j0};
    FN(row_edit)(p, at, x->key, x->n, ws->S, ws->slope);
    FN(back_scores)
    (ws->S, ws->dP, x->n, ((const REAL *)job->lse)[x->i], ((const REAL *)job->delta)[x->i]);
    FN(back_edit)(x);
    FN(back_scatter)(x);
}

/* Row (b,h,i) of n numbers in whole vectors: where it is, if it is that already; else in
 * workspace. */
static const REAL *FN(row_in_cache)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i,
                                    int64_t n, REAL *ws)
{
    if (n == FN(round_up)(n) && n > 0 && FN(in_place)(x, n))
        return FN(at)(x, b, h, i);
    FN(fetch_padded)(x, b, h, i, n, ws);
    return ws;
}

/* Queries [i0,i1) against the keys of the chunk.  done says how far each row has come: chunks are
 * met in order. */
static void FN(row_backward_step)(const struct attn_row_backward *job)
{
    const struct attn_problem *p = job->p;
    const REAL *lse = job->lse;
    struct FN(back_step) x = {.job = job, .ws = FN(back_layout)(job)};
    for (x.i = job->i0; x.i < job->i1; x.i++) {
        const int64_t *row = FN(back_row)(job, x.i);
        const int32_t *key = job->csr->column + row[0] + job->done[x.i];
        int n = (int)(row[1] - row[0] - job->done[x.i]);
        if (lse[x.i] == (REAL)INFINITY)
            continue;
        if (job->j1 < p->n_key)
            n = FN(walk_below)(key, n, job->j1);
        if (n == 0)
            continue;
        job->done[x.i] += n;
        if (x.i + 2 < job->i1)
            FN(prefetch_keys)(job->csr->column + row[2] + job->done[x.i + 2], n);
        x.q = FN(row_in_cache)(&job->t->q, job->b, job->h, x.i, p->d_key, x.ws.q);
        x.d_o = FN(row_in_cache)(&job->t->d_o, job->b, job->h, x.i, p->d_value, x.ws.d_o);
        x.dQ = (REAL *)job->dq + x.i * x.ws.wide;
        for (int e = 0; e < n; e += x.n) {
            x.n = n - e < ATTN_BACK_STEP ? n - e : ATTN_BACK_STEP;
            for (int t = 0; t < x.n; t++)
                x.key[t] = (int32_t)(key[e + t] - job->j0);
            FN(back_tile_step)(&x);
        }
    }
}
