/* Sparse attention over a CSR pattern, for one arithmetic type (see textbook_tmpl.h).
 *
 * The same formula as dense, with sums over the stored pairs only:
 *      SDDMM    S_ij = scale q_i . k_j        sampled dense-dense product, at stored (i,j)
 *      softmax  P_ij = exp(S_ij - LSE_i)      row by row
 *      SpMM     O_i  = sum_j P_ij v_j         sparse-dense product
 *
 * Values are stored head after head in the order of the pattern's rows, so that one running
 * index `at` walks them. */

/* SDDMM of queries and keys: S, and its slope under a softcap where asked for. */
static void FN(sddmm)(const struct attn_problem *p, const struct attn_csr *csr,
                      const struct attn_cview *q, const struct attn_cview *k, REAL *S, REAL *slope,
                      REAL *room)
{
    int64_t at = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                const int32_t *key;
                int64_t n = attn_csr_row(csr, b, h, i, &key), g = h / (p->heads / p->kv_heads);
                const REAL *qi = FN(row)(q, b, h, i, p->d_key, room);
                for (int64_t e = 0; e < n; e++, at++) {
                    const REAL *kj = FN(row)(k, b, g, key[e], p->d_key, room + p->d_key);
                    REAL unused, *bent = slope != NULL ? &slope[at] : &unused;
                    S[at] = FN(score)(p, b, h, i, key[e], FN(dot)(qi, kj, p->d_key), bent);
                }
            }
}

/* P = exp(S - m) / l over the n stored pairs of a row; returns LSE = m + ln l, -inf for none. */
static REAL FN(softmax_row)(const REAL *S, REAL *P, int64_t n)
{
    REAL m = MINUS_INF, l = 0;
    for (int64_t e = 0; e < n; e++)
        if (S[e] > m || S[e] != S[e])
            m = S[e];
    for (int64_t e = 0; e < n; e++)
        l += P[e] = m == MINUS_INF ? 0 : REAL_EXP(S[e] - m); /* only a bias of -inf: P = 0 */
    if (m == MINUS_INF)
        return MINUS_INF;
    FN(scale)(1 / l, P, n);
    return m + REAL_LOG(l);
}

static void FN(csr_forward)(const struct attn_problem *p, const struct attn_csr *csr,
                            const struct attn_forward *t, REAL *S, REAL *P, REAL *room)
{
    REAL *o = room + 2 * p->d_key, *room_v = o + p->d_value;
    const int32_t *key;
    int64_t at = 0;

    FN(sddmm)(p, csr, &t->q, &t->k, S, NULL, room);

    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t n = attn_csr_row(csr, b, h, i, &key);
                FN(put)(&t->lse, b, h, i, FN(softmax_row)(S + at, P + at, n));
                at += n;
            }

    at = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t n = attn_csr_row(csr, b, h, i, &key), g = h / (p->heads / p->kv_heads);
                for (int64_t c = 0; c < p->d_value; c++)
                    o[c] = 0;
                for (int64_t e = 0; e < n; e++, at++) {
                    const REAL *vj = FN(row)(&t->v, b, g, key[e], p->d_value, room_v);
                    FN(axpy)(P[at], vj, o, p->d_value);
                }
                FN(row_store)(&t->o, b, h, i, p->d_value, 1, o);
            }
}

/* dS of one row, from its P; dS holds the slope of the softcap on entry.  Forward was
 * O_i = sum_j P_ij v_j, P = softmax(S): dP_ij = dO_i . v_j, dS_ij = P_ij (dP_ij - D_i). */
static void FN(csr_dscores)(const struct attn_problem *p, const struct attn_backward *t, int64_t b,
                            int64_t h, int64_t i, int64_t n, const int32_t *key, const REAL *P,
                            REAL *dS, REAL *room)
{
    int64_t g = h / (p->heads / p->kv_heads);
    REAL *room_do = room, *room_o = room + p->d_value;
    const REAL *dO = FN(row)(&t->d_o, b, h, i, p->d_value, room_do);
    REAL D = FN(dot)(dO, FN(row)(&t->o, b, h, i, p->d_value, room_o), p->d_value);
    if (t->d_lse.data != NULL)
        D -= FN(get)(&t->d_lse, b, h, i);
    for (int64_t e = 0; e < n; e++) {
        REAL dP = FN(dot)(dO, FN(row)(&t->v, b, g, key[e], p->d_value, room_o), p->d_value);
        REAL slope = dS[e];
        dS[e] = P[e] * (dP - D);
        if (t->dbias.data != NULL)
            attn_view_add(&t->dbias, b, h, i, key[e], (double)dS[e]);
        dS[e] *= slope;
    }
}

/* One row's share of every gradient.  Forward was S_ij = scale q_i . k_j, so a stored pair sends
 * dS_ij k_j to dq_i and dS_ij q_i to dk_j: the latter is SpMM with the transpose, done by
 * scattering.  dK [Lk,d] and dV [Lk,dv] collect over the query heads of one kv head. */
static void FN(csr_scatter)(const struct attn_problem *p, const struct attn_backward *t, int64_t b,
                            int64_t h, int64_t i, int64_t n, const int32_t *key, const REAL *P,
                            const REAL *dS, REAL *dK, REAL *dV, REAL *room)
{
    int64_t g = h / (p->heads / p->kv_heads);
    REAL *dq = room, *room_k = dq + p->d_key, *room_do = room_k + p->d_key;
    const REAL *dO = FN(row)(&t->d_o, b, h, i, p->d_value, room_do);
    for (int64_t c = 0; c < p->d_key; c++)
        dq[c] = 0;
    for (int64_t e = 0; e < n; e++) {
        FN(axpy)(dS[e], FN(row)(&t->k, b, g, key[e], p->d_key, room_k), dq, p->d_key);
        FN(axpy)(P[e], dO, dV + key[e] * p->d_value, p->d_value);
    }
    const REAL *q = FN(row)(&t->q, b, h, i, p->d_key, room_k);
    for (int64_t e = 0; e < n; e++)
        FN(axpy)(dS[e], q, dK + key[e] * p->d_key, p->d_key);
    FN(row_store)(&t->dq, b, h, i, p->d_key, (REAL)p->scale, dq);
}

static void FN(csr_backward)(const struct attn_problem *p, const struct attn_csr *csr,
                             const struct attn_backward *t, REAL *P, REAL *dS, REAL *dK, REAL *dV,
                             REAL *room)
{
    int64_t at = 0, group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    FN(sddmm)(p, csr, &t->q, &t->k, P, dS, room);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++) {
            for (int64_t n = 0; n < p->n_key * p->d_key; n++)
                dK[n] = 0;
            for (int64_t n = 0; n < p->n_key * p->d_value; n++)
                dV[n] = 0;
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                for (int64_t i = 0; i < p->n_query; i++) {
                    const int32_t *key;
                    int64_t n = attn_csr_row(csr, b, h, i, &key);
                    REAL lse = n > 0 ? FN(get)(&t->lse, b, h, i) : 0;
                    for (int64_t e = 0; e < n; e++) /* forward was P = exp(S - LSE) */
                        P[at + e] = P[at + e] == MINUS_INF ? 0 : REAL_EXP(P[at + e] - lse);
                    if (n > 0 && lse != MINUS_INF)
                        FN(csr_dscores)(p, t, b, h, i, n, key, P + at, dS + at, room);
                    else
                        FN(scale)(0, dS + at, n);
                    FN(csr_scatter)(p, t, b, h, i, n, key, P + at, dS + at, dK, dV, room);
                    at += n;
                }
            for (int64_t j = 0; j < p->n_key; j++) {
                FN(row_store)(&t->dk, b, g, j, p->d_key, (REAL)p->scale, dK + j * p->d_key);
                FN(row_store)(&t->dv, b, g, j, p->d_value, 1, dV + j * p->d_value);
            }
        }
}
