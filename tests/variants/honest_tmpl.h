/* Attention in the styles of honest.h, for one arithmetic type (see row_tmpl.h); further
 *      REAL_EXP2, REAL_LOG2, REAL_MERGE   the type's functions */

/* The sum of n terms in the order of the style. */
static REAL FN(total)(int64_t order, const REAL *x, int64_t n)
{
    REAL sum = 0;
    if (order == HONEST_PAIRWISE && n > 1)
        return FN(total)(order, x, n / 2) + FN(total)(order, x + n / 2, n - n / 2);
    for (int64_t t = 0; t < n; t++)
        sum += x[order == HONEST_REVERSE ? n - 1 - t : t];
    return sum;
}

/* The final score, in units of log 2 where the style says so. */
static REAL FN(styled_score)(const struct attn_problem *p, const struct attn_options *style,
                             int64_t b, int64_t h, int64_t i, int64_t j, REAL qk, REAL *slope)
{
    if (style->value[HONEST_EXP] == HONEST_E)
        return FN(score)(p, b, h, i, j, qk, slope);
    REAL s = (REAL)(p->scale * LOG2_E) * qk;
    *slope = 1;
    if (p->softcap > 0) {
        REAL t = REAL_TANH((REAL)p->scale * qk / (REAL)p->softcap);
        s = (REAL)(p->softcap * LOG2_E) * t;
        *slope = 1 - t * t;
    }
    if (p->bias.kind != ATTN_BIAS_NONE)
        s += (REAL)(attn_problem_bias(p, b, h, i, j) * LOG2_E);
    return s;
}

static REAL FN(styled_exp)(const struct attn_options *style, REAL x)
{
    return style->value[HONEST_EXP] == HONEST_E ? REAL_EXP(x) : REAL_EXP2(x);
}

/* (O, LSE) of one row over keys[0,n). */
static REAL FN(part)(const struct attn_problem *p, const struct attn_options *style,
                     const struct attn_forward *t, int64_t b, int64_t h, int64_t i,
                     const int64_t *keys, int64_t n, struct honest_room *x, REAL *o)
{
    REAL *s = x->s, *P = x->p, *term = x->term, m = MINUS_INF, unused;
    int64_t g = h / (p->heads / p->kv_heads), order = style->value[HONEST_ORDER];
    const REAL *q = n > 0 ? FN(row)(&t->q, b, h, i, p->d_key, x->q) : NULL;
    for (int64_t e = 0; e < n; e++) {
        const REAL *k = FN(row)(&t->k, b, g, keys[e], p->d_key, x->k);
        s[e] = FN(styled_score)(p, style, b, h, i, keys[e], FN(dot)(q, k, p->d_key), &unused);
        if (s[e] > m || s[e] != s[e])
            m = s[e];
    }
    for (int64_t c = 0; c < p->d_value; c++)
        o[c] = 0;
    if (m == MINUS_INF)
        return MINUS_INF;
    for (int64_t e = 0; e < n; e++)
        P[e] = FN(styled_exp)(style, s[e] - m);
    REAL l = FN(total)(order, P, n);
    for (int64_t c = 0; c < p->d_value; c++) {
        for (int64_t e = 0; e < n; e++) {
            const REAL *v = FN(row)(&t->v, b, g, keys[e], p->d_value, x->v);
            term[e] = P[e] != 0 ? (REAL)round_p(style, (double)P[e]) * v[c] : 0;
        }
        o[c] = FN(total)(order, term, n) / l;
    }
    if (style->value[HONEST_EXP] == HONEST_E)
        return m + REAL_LOG(l);
    return (m + REAL_LOG2(l)) * (REAL)LN_2;
}

static void FN(honest_forward)(const struct attn_problem *p, const struct attn_options *style,
                               const struct attn_forward *t, struct honest_room *x)
{
    REAL *o = x->o, *o2 = x->o2;
    int64_t splits = style->value[HONEST_SPLITS];
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t n = visible_keys(p, b, h, i, x->key), first = 0;
                REAL lse = MINUS_INF;
                for (int64_t part = 0; part < splits; part++) {
                    int64_t end = first;
                    while (end < n && x->key[end] < (part + 1) * p->n_key / splits)
                        end++;
                    REAL lse2 = FN(part)(p, style, t, b, h, i, x->key + first, end - first, x,
                                         part == 0 ? o : o2);
                    if (part > 0)
                        REAL_MERGE(o, &lse, o2, lse2, p->d_value);
                    else
                        lse = lse2;
                    first = end;
                }
                FN(row_store)(&t->o, b, h, i, p->d_value, 1, o);
                FN(put)(&t->lse, b, h, i, lse);
            }
}

/* P and dS of one row, at the columns of the visible keys; 0 elsewhere. */
static void FN(row_backward)(const struct attn_problem *p, const struct attn_options *style,
                             const struct attn_backward *t, int64_t b, int64_t h, int64_t i,
                             struct honest_room *x, REAL *P, REAL *dS)
{
    int64_t n = visible_keys(p, b, h, i, x->key), g = h / (p->heads / p->kv_heads);
    REAL lse = FN(get)(&t->lse, b, h, i), *slope = x->s, *dP = x->p, *term = x->term;
    for (int64_t j = 0; j < p->n_key; j++)
        P[j] = dS[j] = 0;
    if (lse == MINUS_INF)
        return;
    if (style->value[HONEST_EXP] == HONEST_TWO)
        lse *= (REAL)LOG2_E;
    const REAL *q = FN(row)(&t->q, b, h, i, p->d_key, x->q);
    const REAL *dO = FN(row)(&t->d_o, b, h, i, p->d_value, x->o);
    for (int64_t e = 0; e < n; e++) {
        const REAL *k = FN(row)(&t->k, b, g, x->key[e], p->d_key, x->k);
        const REAL *v = FN(row)(&t->v, b, g, x->key[e], p->d_value, x->v);
        REAL s = FN(styled_score)(p, style, b, h, i, x->key[e], FN(dot)(q, k, p->d_key), &slope[e]);
        P[x->key[e]] = s == MINUS_INF ? 0 : FN(styled_exp)(style, s - lse);
        dP[e] = FN(dot)(dO, v, p->d_value);
        term[e] = P[x->key[e]] * dP[e];
    }
    REAL D = style->value[HONEST_DELTA] == HONEST_SUM
                 ? FN(total)(style->value[HONEST_ORDER], term, n)
                 : FN(dot)(dO, FN(row)(&t->o, b, h, i, p->d_value, x->o2), p->d_value);
    if (t->d_lse.data != NULL)
        D -= FN(get)(&t->d_lse, b, h, i);
    for (int64_t e = 0; e < n; e++) {
        REAL ds = P[x->key[e]] * (dP[e] - D);
        if (t->dbias.data != NULL)
            attn_view_add(&t->dbias, b, h, i, x->key[e], (double)ds);
        dS[x->key[e]] = (REAL)round_ds(style, (double)(ds * slope[e]));
        P[x->key[e]] = (REAL)round_p(style, (double)P[x->key[e]]);
    }
}

/* dK and dV of one key of kv head g: sums over the rows of its group. */
static void FN(key_backward)(const struct attn_problem *p, const struct attn_options *style,
                             const struct attn_backward *t, int64_t b, int64_t g, int64_t j,
                             struct honest_room *x)
{
    int64_t group = p->heads / p->kv_heads, rows = group * p->n_query;
    const REAL *P = x->probs, *dS = x->dscores;
    REAL *term = x->term, *dk = x->k, *dv = x->v;
    for (int64_t c = 0; c < p->d_key + p->d_value; c++) {
        for (int64_t r = 0; r < rows; r++) {
            int64_t h = g * group + r / p->n_query, i = r % p->n_query;
            const REAL weight = c < p->d_key ? dS[r * p->n_key + j] : P[r * p->n_key + j];
            const REAL *from = c < p->d_key ? FN(row)(&t->q, b, h, i, p->d_key, x->q)
                                            : FN(row)(&t->d_o, b, h, i, p->d_value, x->o);
            term[r] = weight != 0 ? weight * from[c < p->d_key ? c : c - p->d_key] : 0;
        }
        REAL sum = FN(total)(style->value[HONEST_ORDER], term, rows);
        if (c < p->d_key)
            dk[c] = sum;
        else
            dv[c - p->d_key] = sum;
    }
    FN(row_store)(&t->dk, b, g, j, p->d_key, (REAL)p->scale, dk);
    FN(row_store)(&t->dv, b, g, j, p->d_value, 1, dv);
}

/* dQ of one row, from its dS. */
static void FN(query_backward)(const struct attn_problem *p, const struct attn_options *style,
                               const struct attn_backward *t, int64_t b, int64_t h, int64_t i,
                               struct honest_room *x, const REAL *dS)
{
    REAL *dq = x->q, *term = x->term;
    for (int64_t c = 0; c < p->d_key; c++) {
        for (int64_t j = 0; j < p->n_key; j++) {
            int64_t g = h / (p->heads / p->kv_heads);
            term[j] = dS[j] != 0 ? dS[j] * FN(row)(&t->k, b, g, j, p->d_key, x->k)[c] : 0;
        }
        dq[c] = FN(total)(style->value[HONEST_ORDER], term, p->n_key);
    }
    FN(row_store)(&t->dq, b, h, i, p->d_key, (REAL)p->scale, dq);
}

static void FN(honest_backward)(const struct attn_problem *p, const struct attn_options *style,
                                const struct attn_backward *t, struct honest_room *x)
{
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++) {
            for (int64_t r = 0; r < group * p->n_query; r++) {
                int64_t h = g * group + r / p->n_query, i = r % p->n_query;
                REAL *P = (REAL *)x->probs + r * p->n_key, *dS = (REAL *)x->dscores + r * p->n_key;
                FN(row_backward)(p, style, t, b, h, i, x, P, dS);
                FN(query_backward)(p, style, t, b, h, i, x, dS);
            }
            for (int64_t j = 0; j < p->n_key; j++)
                FN(key_backward)(p, style, t, b, g, j, x);
        }
}
