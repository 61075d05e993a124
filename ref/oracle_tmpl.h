/* The oracle's arithmetic for one wide type: WIDE and FN; WIDE_LOOPS stands before what has long
 * loops.  exp, log, tanh and fabs are those of the type (tgmath.h).  Used by oracle.c alone. */

/* sum + *lost += x without loss: Knuth's TwoSum, which needs no branch on magnitudes. */
static inline void FN(add)(WIDE *sum, WIDE *lost, WIDE x)
{
    WIDE s = *sum + x, y = s - *sum;
    *lost += (*sum - (s - y)) + (x - y);
    *sum = s;
}

/* The sum: an infinity has lost inf - inf on its way, which is none of it. */
static inline WIDE FN(total)(WIDE sum, WIDE lost)
{
    return lost == lost ? sum + lost : sum;
}

/* x . y, and the same sum over absolute values. */
static inline WIDE FN(dot)(const WIDE *x, const WIDE *y, int64_t n, double *magnitude)
{
    WIDE part[4] = {0}, size[4] = {0};
    int64_t c = 0;
    for (; c + 4 <= n; c += 4)
        for (int t = 0; t < 4; t++) {
            WIDE product = x[c + t] * y[c + t];
            part[t] += product;
            size[t] += fabs(product);
        }
    for (; c < n; c++) {
        part[0] += x[c] * y[c];
        size[0] += fabs(x[c] * y[c]);
    }
    *magnitude = (double)(size[0] + size[1] + (size[2] + size[3]));
    return part[0] + part[1] + (part[2] + part[3]);
}

static void FN(load)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i, int64_t n,
                     WIDE *to)
{
    for (int64_t c = 0; c < n; c++)
        to[c] = (WIDE)attn_cview_get(x, b, h, i, c);
}

/* Values or their gradients: row->finite says what becomes of those that are not finite. */
static void FN(load_values)(const struct attn_oracle_row *row, const struct attn_cview *x,
                            int64_t b, int64_t h, int64_t i, int64_t n, WIDE *to)
{
    FN(load)(x, b, h, i, n, to);
    for (int64_t c = 0; row->finite && c < n; c++)
        to[c] = to[c] - to[c] == 0 ? to[c] : 0;
}

/* Keys and values of one kv head, widened once and kept until another head is asked for. */
static void FN(load_head)(const struct attn_problem *p, const struct attn_cview *k,
                          const struct attn_cview *v, int64_t b, int64_t g,
                          struct attn_oracle_row *row)
{
    WIDE *K = row->wide_k, *V = row->wide_v;
    if (row->cached_batch == b && row->cached_head == g)
        return;
    for (int64_t j = 0; j < p->n_key; j++) {
        FN(load)(k, b, g, j, p->d_key, K + j * p->d_key);
        FN(load_values)(row, v, b, g, j, p->d_value, V + j * p->d_value);
    }
    row->cached_batch = b, row->cached_head = g;
}

/* y[c] = sum over visible keys of weight[n] * x[key[n]][c]: plain within runs of 32 keys, run
 * totals compensated. */
WIDE_LOOPS static void FN(combine)(const struct attn_oracle_row *row, const WIDE *weight,
                                   const WIDE *x, int64_t width, WIDE *y, WIDE *lost, WIDE *run)
{
    for (int64_t c = 0; c < width; c++)
        y[c] = lost[c] = 0;
    for (int64_t n0 = 0; n0 < row->n; n0 += 32) {
        int64_t n1 = n0 + 32 < row->n ? n0 + 32 : row->n;
        for (int64_t c = 0; c < width; c++)
            run[c] = 0;
        for (int64_t n = n0; n < n1; n++)
            if (weight[n] != 0)
                for (int64_t c = 0; c < width; c++)
                    run[c] += weight[n] * x[row->key[n] * width + c];
        for (int64_t c = 0; c < width; c++)
            FN(add)(&y[c], &lost[c], run[c]);
    }
    for (int64_t c = 0; c < width; c++)
        y[c] = FN(total)(y[c], lost[c]);
}

/* Pass 1: which keys, their scores, the maximum. */
WIDE_LOOPS static WIDE FN(scores)(const struct attn_problem *p, const struct attn_cview *q,
                                  int64_t b, int64_t h, int64_t i, struct attn_oracle_row *row)
{
    const WIDE *K = row->wide_k;
    WIDE *S = row->wide_s, max = -(WIDE)INFINITY;
    FN(load)(q, b, h, i, p->d_key, row->wide_q);
    for (int64_t n = 0; n < row->n; n++) {
        int64_t j = row->key[n];
        WIDE s =
            (WIDE)p->scale * FN(dot)(row->wide_q, K + j * p->d_key, p->d_key, &row->magnitude[n]);
        row->magnitude[n] *= fabs(p->scale);
        row->raw[n] = (double)s;
        row->slope[n] = 1;
        if (p->softcap > 0) {
            WIDE t = tanh(s / (WIDE)p->softcap);
            s = (WIDE)p->softcap * t;
            row->slope[n] = (double)((1 - t) * (1 + t));
        }
        row->bias[n] = true_bias(p, b, h, i, j);
        s += (WIDE)row->bias[n];
        if (row->bias[n] == -(double)INFINITY)
            s = -(WIDE)INFINITY; /* hidden, whatever the score was */
        S[n] = s;
        row->s[n] = (double)s;
        if (s > max || s != s)
            max = s;
    }
    return max;
}

static void FN(forward)(const struct attn_problem *p, const struct attn_cview *q, int64_t b,
                        int64_t h, int64_t i, struct attn_oracle_row *row)
{
    WIDE *P = row->wide_p, *y = row->wide_sum, *lost = y + row->width, *run = lost + row->width;
    row->max = row->lse = -(double)INFINITY;
    for (int64_t c = 0; c < p->d_value; c++)
        row->o[c] = 0;
    if (row->n == 0)
        return; /* q is not even read */
    WIDE max = FN(scores)(p, q, b, h, i, row), l = 0, l_lost = 0;
    row->max = (double)max;
    for (int64_t n = 0; n < row->n; n++)
        P[n] = max == -(WIDE)INFINITY ? 0 : exp(((WIDE *)row->wide_s)[n] - max);
    for (int64_t n = 0; n < row->n; n++)
        FN(add)(&l, &l_lost, P[n]);
    l = FN(total)(l, l_lost);
    for (int64_t n = 0; n < row->n; n++) {
        P[n] = max == -(WIDE)INFINITY ? 0 : P[n] / l;
        row->p[n] = (double)P[n];
    }
    if (max != -(WIDE)INFINITY)
        row->lse = (double)(max + log(l));
    FN(combine)(row, P, row->wide_v, p->d_value, y, lost, run);
    for (int64_t c = 0; c < p->d_value; c++)
        row->o[c] = (double)y[c];
}

/* dP = dO V^T, D = sum P dP - dLSE, dS = P (dP - D), dq = scale sum dS slope k. */
WIDE_LOOPS static void FN(backward)(const struct attn_problem *p, const struct attn_cview *d_o,
                                    const struct attn_cview *d_lse, int64_t b, int64_t h, int64_t i,
                                    struct attn_oracle_row *row)
{
    WIDE *dP = row->wide_s, *P = row->wide_p, D = 0, D_lost = 0;
    WIDE *y = row->wide_sum, *lost = y + row->width, *run = lost + row->width;
    const WIDE *V = row->wide_v;
    row->delta = 0;
    for (int64_t c = 0; c < p->d_key; c++)
        row->dq[c] = 0;
    if (row->max == -(double)INFINITY) { /* nothing visible, or only scores of -inf */
        for (int64_t n = 0; n < row->n; n++)
            row->dp[n] = row->dp_magnitude[n] = row->ds[n] = 0;
        return;
    }
    FN(load_values)(row, d_o, b, h, i, p->d_value, row->wide_do);
    for (int64_t n = 0; n < row->n; n++) {
        dP[n] =
            FN(dot)(row->wide_do, V + row->key[n] * p->d_value, p->d_value, &row->dp_magnitude[n]);
        row->dp[n] = (double)dP[n];
        if (P[n] != 0)
            FN(add)(&D, &D_lost, P[n] * dP[n]);
    }
    D = FN(total)(D, D_lost);
    if (d_lse->data != NULL)
        D -= (WIDE)attn_cview_get(d_lse, b, h, i, 0);
    row->delta = (double)D;
    for (int64_t n = 0; n < row->n; n++) {
        WIDE dS = P[n] != 0 ? P[n] * (dP[n] - D) : 0;
        row->ds[n] = (double)dS;
        dP[n] = dS * (WIDE)row->slope[n];
    }
    if (row->without_dq)
        return;
    FN(combine)(row, dP, row->wide_k, p->d_key, y, lost, run);
    for (int64_t c = 0; c < p->d_key; c++)
        row->dq[c] = (double)((WIDE)p->scale * y[c]);
}
