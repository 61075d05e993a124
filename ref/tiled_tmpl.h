/* Tiled attention with online softmax, for one arithmetic type (see textbook_tmpl.h).
 *
 * Forward: FlashAttention-2 (Dao 2023), algorithm 1.  For a tile of Br queries, over tiles of Bc
 * keys:
 *      S  = scale Q K^T                    [Br,Bc]
 *      m' = max(m, rowmax S)               running maximum
 *      P  = exp(S - m')
 *      l' = exp(m - m') l + rowsum P       running sum
 *      O' = exp(m - m') O + P V            un-normalised
 * and at the end O / l, LSE = m + ln l.  A row whose keys so far are all hidden has m' = -inf;
 * exp(-inf - -inf) would be NaN, so such a row is left alone until a key shows up. */

struct FN(tile) {
    int64_t br, bc;   /* tile extents */
    REAL *Q, *K, *V;  /* [Br,d] [Bc,d] [Bc,dv]: what would sit in fast memory */
    REAL *O;          /* [Br,dv] */
    REAL *S;          /* [Br,Bc] scores, then P */
    REAL *m, *l;      /* [Br] */
    REAL *dO, *slope; /* backward: [Br,dv] [Br,Bc] */
    REAL *dK, *dV;    /* backward: [Bc,d] [Bc,dv] */
};

/* Copy rows [i0,i1) of x into consecutive memory. */
static void FN(load)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i0, int64_t i1,
                     int64_t n, REAL *to)
{
    for (int64_t i = i0; i < i1; i++, to += n) {
        const REAL *from = FN(row)(x, b, h, i, n, to);
        if (from != to)
            for (int64_t c = 0; c < n; c++)
                to[c] = from[c];
    }
}

/* S = scores of queries [i0,i1) with keys [j0,j1), -inf where hidden.  The mask comes as runs of
 * visible keys: what is hidden is not computed. */
static void FN(scores)(const struct attn_problem *p, int64_t b, int64_t h, int64_t i0, int64_t i1,
                       int64_t j0, int64_t j1, struct FN(tile) * x)
{
    for (int64_t i = i0; i < i1; i++) {
        REAL *S = x->S + (i - i0) * x->bc, unused;
        int64_t lo, hi;
        for (int64_t j = j0; j < j1; j++)
            S[j - j0] = MINUS_INF;
        for (int64_t from = j0; attn_problem_next(p, b, h, i, from, &lo, &hi) && lo < j1; from = hi)
            for (int64_t j = lo; j < (hi < j1 ? hi : j1); j++) {
                REAL qk = FN(dot)(x->Q + (i - i0) * p->d_key, x->K + (j - j0) * p->d_key, p->d_key);
                REAL *slope = x->slope ? &x->slope[(i - i0) * x->bc + (j - j0)] : &unused;
                S[j - j0] = FN(score)(p, b, h, i, j, qk, slope);
            }
    }
}

/* One row of one tile of the forward pass. */
static void FN(online_softmax)(const struct attn_problem *p, int64_t r, int64_t n,
                               struct FN(tile) * x)
{
    REAL *S = x->S + r * x->bc, *O = x->O + r * p->d_value;
    REAL m = x->m[r], l = 0;
    for (int64_t j = 0; j < n; j++)
        if (S[j] > m || S[j] != S[j])
            m = S[j];
    if (m == MINUS_INF) /* nothing visible yet */
        return;
    REAL alpha = REAL_EXP(x->m[r] - m); /* 0 on the first visible tile */
    FN(scale)(alpha, O, p->d_value);
    for (int64_t j = 0; j < n; j++) {
        if (S[j] == MINUS_INF)
            continue; /* hidden: V may hold anything, so not even 0 * v */
        REAL P = REAL_EXP(S[j] - m);
        l += P;
        FN(axpy)(P, x->V + j * p->d_value, O, p->d_value);
    }
    x->l[r] = alpha * x->l[r] + l;
    x->m[r] = m;
}

static void FN(tiled_forward)(const struct attn_problem *p, const struct attn_forward *t, int64_t b,
                              int64_t h, int64_t i0, int64_t i1, struct FN(tile) * x)
{
    int64_t g = h / (p->heads / p->kv_heads);
    FN(load)(&t->q, b, h, i0, i1, p->d_key, x->Q);
    for (int64_t r = 0; r < i1 - i0; r++) {
        x->m[r] = MINUS_INF, x->l[r] = 0;
        for (int64_t c = 0; c < p->d_value; c++)
            x->O[r * p->d_value + c] = 0;
    }
    for (int64_t j0 = 0; j0 < p->n_key; j0 += x->bc) {
        int64_t j1 = j0 + x->bc < p->n_key ? j0 + x->bc : p->n_key;
        if (attn_problem_tile(p, b, h, i0, i1, j0, j1) == ATTN_TILE_EMPTY)
            continue; /* nothing is read, nothing computed */
        FN(load)(&t->k, b, g, j0, j1, p->d_key, x->K);
        FN(load)(&t->v, b, g, j0, j1, p->d_value, x->V);
        FN(scores)(p, b, h, i0, i1, j0, j1, x);
        for (int64_t r = 0; r < i1 - i0; r++)
            FN(online_softmax)(p, r, j1 - j0, x);
    }
    for (int64_t r = 0; r < i1 - i0; r++) {
        int seen = x->m[r] != MINUS_INF; /* else O = 0, LSE = -inf by definition */
        REAL over_l = seen ? 1 / x->l[r] : 0;
        FN(row_store)(&t->o, b, h, i0 + r, p->d_value, over_l, x->O + r * p->d_value);
        FN(put)(&t->lse, b, h, i0 + r, seen ? x->m[r] + REAL_LOG(x->l[r]) : MINUS_INF);
    }
}

/* ---- backward: algorithm 2 ----------------------------------------------------------------- *
 * P is not stored but made again from LSE: forward was P_ij = exp(S_ij - m) / l, which is
 * exp(S_ij - LSE_i).  Tiles of keys are the outer loop, so dK and dV of a tile are finished in one
 * go, and dQ collects in a buffer of its own. */

/* D_i = sum_j P_ij dP_ij - dLSE_i = dO_i . O_i - dLSE_i, for rows that see a key. */
static void FN(delta)(const struct attn_problem *p, const struct attn_backward *t, int64_t b,
                      int64_t h, REAL *D, struct FN(tile) * x)
{
    for (int64_t i = 0; i < p->n_query; i++) {
        D[i] = 0;
        if (FN(get)(&t->lse, b, h, i) == MINUS_INF)
            continue;
        const REAL *o = FN(row)(&t->o, b, h, i, p->d_value, x->O);
        D[i] = FN(dot)(FN(row)(&t->d_o, b, h, i, p->d_value, x->dO), o, p->d_value);
        if (t->d_lse.data != NULL)
            D[i] -= FN(get)(&t->d_lse, b, h, i);
    }
}

/* Rows [i0,i1) of head h against the keys in x->K, x->V; D and dQ belong to the head. */
static void FN(tile_backward)(const struct attn_problem *p, const struct attn_backward *t,
                              int64_t b, int64_t h, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                              const REAL *D, REAL *dQ, struct FN(tile) * x)
{
    FN(load)(&t->q, b, h, i0, i1, p->d_key, x->Q);
    FN(load)(&t->d_o, b, h, i0, i1, p->d_value, x->dO);
    FN(scores)(p, b, h, i0, i1, j0, j1, x);
    for (int64_t i = i0; i < i1; i++) {
        const REAL *q = x->Q + (i - i0) * p->d_key, *dO = x->dO + (i - i0) * p->d_value;
        REAL *S = x->S + (i - i0) * x->bc, *slope = x->slope + (i - i0) * x->bc;
        REAL lse = FN(get)(&t->lse, b, h, i);
        for (int64_t j = 0; j < j1 - j0; j++) {
            if (S[j] == MINUS_INF)
                continue;
            REAL P = REAL_EXP(S[j] - lse);
            /* forward was O_i = sum_j P_ij v_j */
            FN(axpy)(P, dO, x->dV + j * p->d_value, p->d_value);
            REAL dP = FN(dot)(dO, x->V + j * p->d_value, p->d_value);
            /* forward was P = softmax(S) */
            REAL dS = P * (dP - D[i]);
            if (t->dbias.data != NULL)
                attn_view_add(&t->dbias, b, h, i, j0 + j, (double)dS);
            /* forward was S_ij = scale q_i . k_j, bent by the softcap; scale comes on storing */
            dS *= slope[j];
            FN(axpy)(dS, x->K + j * p->d_key, dQ + i * p->d_key, p->d_key);
            FN(axpy)(dS, q, x->dK + j * p->d_key, p->d_key);
        }
    }
}

/* All queries that kv head g serves.  D [group,Lq], dQ [group,Lq,d]. */
static void FN(tiled_backward)(const struct attn_problem *p, const struct attn_backward *t,
                               int64_t b, int64_t g, REAL *D, REAL *dQ, struct FN(tile) * x)
{
    int64_t group = p->heads / p->kv_heads;
    for (int64_t n = 0; n < group; n++)
        FN(delta)(p, t, b, g * group + n, D + n * p->n_query, x);
    for (int64_t n = 0; n < group * p->n_query * p->d_key; n++)
        dQ[n] = 0;
    for (int64_t j0 = 0; j0 < p->n_key; j0 += x->bc) {
        int64_t j1 = j0 + x->bc < p->n_key ? j0 + x->bc : p->n_key;
        FN(load)(&t->k, b, g, j0, j1, p->d_key, x->K);
        FN(load)(&t->v, b, g, j0, j1, p->d_value, x->V);
        for (int64_t n = 0; n < x->bc * p->d_key; n++)
            x->dK[n] = 0;
        for (int64_t n = 0; n < x->bc * p->d_value; n++)
            x->dV[n] = 0;
        for (int64_t n = 0; n < group; n++)
            for (int64_t i0 = 0; i0 < p->n_query; i0 += x->br) {
                REAL *D_h = D + n * p->n_query, *dQ_h = dQ + n * p->n_query * p->d_key;
                int64_t h = g * group + n, i1 = i0 + x->br < p->n_query ? i0 + x->br : p->n_query;
                if (attn_problem_tile(p, b, h, i0, i1, j0, j1) != ATTN_TILE_EMPTY)
                    FN(tile_backward)(p, t, b, h, i0, i1, j0, j1, D_h, dQ_h, x);
            }
        for (int64_t j = j0; j < j1; j++) {
            FN(row_store)(&t->dk, b, g, j, p->d_key, (REAL)p->scale, x->dK + (j - j0) * p->d_key);
            FN(row_store)(&t->dv, b, g, j, p->d_value, 1, x->dV + (j - j0) * p->d_value);
        }
    }
    for (int64_t n = 0; n < group; n++)
        for (int64_t i = 0; i < p->n_query; i++) {
            const REAL *dq = dQ + (n * p->n_query + i) * p->d_key;
            FN(row_store)(&t->dq, b, g * group + n, i, p->d_key, (REAL)p->scale, dq);
        }
}
