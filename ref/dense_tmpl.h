/* Dense attention as the formula says it, for one arithmetic type (see textbook_tmpl.h).
 *
 *      S = scale Q K^T + mask      P = softmax(S)      O = P V             (Vaswani 2017, eq. 1)
 *
 * Everything of size Lq x Lk exists, for all heads at once, as in a framework's eager mode. */

/* s[j] = final score of query i with every key, -inf where the mask hides. */
static void FN(score_row)(const struct attn_problem *p, const struct dense_mask *mask,
                          const struct attn_cview *k, int64_t b, int64_t h, int64_t i,
                          const REAL *q, REAL *room, REAL *s, REAL *slope)
{
    int64_t g = h / (p->heads / p->kv_heads);
    for (int64_t j = 0; j < p->n_key; j++) {
        REAL unused;
        const REAL *kj = FN(row)(k, b, g, j, p->d_key, room);
        s[j] = FN(score)(p, b, h, i, j, FN(dot)(q, kj, p->d_key), slope ? &slope[j] : &unused);
        if (!dense_mask_allows(mask, b, h, i, j))
            s[j] = MINUS_INF;
    }
}

/* P = exp(S - m) / l over one row, and LSE = m + ln l. */
static REAL FN(softmax_row)(const REAL *s, REAL *P, int64_t n)
{
    REAL m = MINUS_INF, l = 0;
    for (int64_t j = 0; j < n; j++)
        if (s[j] > m || s[j] != s[j]) /* a NaN becomes the maximum and stays it */
            m = s[j];
    if (m == MINUS_INF) { /* no key is visible: P = 0, LSE = -inf */
        for (int64_t j = 0; j < n; j++)
            P[j] = 0;
        return MINUS_INF;
    }
    for (int64_t j = 0; j < n; j++)
        l += P[j] = REAL_EXP(s[j] - m);
    FN(scale)(1 / l, P, n);
    return m + REAL_LOG(l);
}

static void FN(dense_forward)(const struct attn_problem *p, const struct attn_forward *t,
                              const struct dense_mask *mask, REAL *S, REAL *P, REAL *room)
{
    REAL *room_q = room, *room_k = room_q + p->d_key, *room_v = room_k + p->d_key;
    REAL *o = room_v + p->d_value;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t g = h / (p->heads / p->kv_heads);
                int64_t at = ((b * p->heads + h) * p->n_query + i) * p->n_key;
                REAL *s = S + at, *Pi = P + at;

                /* S_ij = scale q_i . k_j, masked */
                const REAL *q = FN(row)(&t->q, b, h, i, p->d_key, room_q);
                FN(score_row)(p, mask, &t->k, b, h, i, q, room_k, s, NULL);

                /* P_ij = exp(S_ij - LSE_i) */
                FN(put)(&t->lse, b, h, i, FN(softmax_row)(s, Pi, p->n_key));

                /* O_i = sum_j P_ij v_j.  Zeros are skipped, not multiplied: 0 * NaN is NaN, and a
                 * hidden v may hold anything. */
                for (int64_t c = 0; c < p->d_value; c++)
                    o[c] = 0;
                for (int64_t j = 0; j < p->n_key; j++)
                    if (Pi[j] != 0)
                        FN(axpy)(Pi[j], FN(row)(&t->v, b, g, j, p->d_value, room_v), o, p->d_value);
                FN(row_store)(&t->o, b, h, i, p->d_value, 1, o);
            }
}

/* One row of the gradient.  Forward: O_i = sum_j P_ij v_j, P = softmax(S).  So
 *      dP_ij = dO_i . v_j
 *      dS_ij = P_ij (dP_ij - D_i),   D_i = sum_j P_ij dP_ij - dLSE_i = dO_i . O_i - dLSE_i
 * and, where a softcap bent the raw score, times its slope.  On entry dS holds that slope. */
static void FN(dense_dscores)(const struct attn_problem *p, const struct attn_backward *t,
                              int64_t b, int64_t h, int64_t i, const REAL *P, REAL *dS, REAL *room)
{
    int64_t g = h / (p->heads / p->kv_heads);
    REAL *room_o = room, *room_do = room_o + p->d_value, *room_v = room_do + p->d_value;
    const REAL *o = FN(row)(&t->o, b, h, i, p->d_value, room_o);
    const REAL *dO = FN(row)(&t->d_o, b, h, i, p->d_value, room_do);
    REAL D = FN(dot)(dO, o, p->d_value);
    if (t->d_lse.data != NULL)
        D -= FN(get)(&t->d_lse, b, h, i);
    for (int64_t j = 0; j < p->n_key; j++) {
        REAL ds = 0, slope = dS[j];
        if (P[j] != 0) {
            REAL dP = FN(dot)(dO, FN(row)(&t->v, b, g, j, p->d_value, room_v), p->d_value);
            ds = P[j] * (dP - D);
        }
        if (t->dbias.data != NULL)
            attn_view_add(&t->dbias, b, h, i, j, (double)ds);
        dS[j] = ds != 0 ? ds * slope : 0;
    }
}

static void FN(dense_backward)(const struct attn_problem *p, const struct attn_backward *t,
                               const struct dense_mask *mask, REAL *P, REAL *dS, REAL *room)
{
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    int64_t width = p->d_key > p->d_value ? p->d_key : p->d_value;
    REAL *x = room, *y = x + width, *sum = y + width, *sum2 = sum + width;

    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t at = ((b * p->heads + h) * p->n_query + i) * p->n_key;

                /* forward was P_ij = exp(S_ij - LSE_i): the same again from the stored LSE */
                REAL lse = FN(get)(&t->lse, b, h, i);
                const REAL *q = FN(row)(&t->q, b, h, i, p->d_key, x);
                FN(score_row)(p, mask, &t->k, b, h, i, q, y, P + at, dS + at);
                for (int64_t j = 0; j < p->n_key; j++)
                    P[at + j] = P[at + j] == MINUS_INF ? 0 : REAL_EXP(P[at + j] - lse);
                FN(dense_dscores)(p, t, b, h, i, P + at, dS + at, room);

                /* forward was S_ij = scale q_i . k_j: dq_i = scale sum_j dS_ij k_j */
                for (int64_t c = 0; c < p->d_key; c++)
                    sum[c] = 0;
                for (int64_t j = 0; j < p->n_key; j++)
                    if (dS[at + j] != 0) {
                        const REAL *kj = FN(row)(&t->k, b, h / group, j, p->d_key, y);
                        FN(axpy)(dS[at + j], kj, sum, p->d_key);
                    }
                FN(row_store)(&t->dq, b, h, i, p->d_key, (REAL)p->scale, sum);
            }

    /* A kv head serves all query heads of its group: their gradients add up. */
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++)
            for (int64_t j = 0; j < p->n_key; j++) {
                for (int64_t c = 0; c < width; c++)
                    sum[c] = sum2[c] = 0;
                for (int64_t h = g * group; h < (g + 1) * group; h++)
                    for (int64_t i = 0; i < p->n_query; i++) {
                        int64_t at = ((b * p->heads + h) * p->n_query + i) * p->n_key + j;
                        if (dS[at] != 0) /* dk_j = scale sum_i dS_ij q_i */
                            FN(axpy)(dS[at], FN(row)(&t->q, b, h, i, p->d_key, x), sum, p->d_key);
                        if (P[at] != 0) { /* dv_j = sum_i P_ij dO_i */
                            const REAL *dO = FN(row)(&t->d_o, b, h, i, p->d_value, y);
                            FN(axpy)(P[at], dO, sum2, p->d_value);
                        }
                    }
                FN(row_store)(&t->dk, b, g, j, p->d_key, (REAL)p->scale, sum);
                FN(row_store)(&t->dv, b, g, j, p->d_value, 1, sum2);
            }
}
