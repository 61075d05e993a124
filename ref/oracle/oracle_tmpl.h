/* The oracle's arithmetic for one wide type: WIDE and FN; WIDE_LANE, a number or several side by
 * side, WIDE_AT, which reads stored ones, and WIDE_ABS; WIDE_KEYS; WIDE_LOOPS stands before what
 * has long loops.  exp, log, tanh and fabs are those of the type (tgmath.h).  Used by oracle.c
 * alone. */

/* sum + *lost += x without loss: Knuth's TwoSum, which needs no branch on magnitudes. */
static inline void FN(add)(WIDE *sum, WIDE *lost, WIDE x)
{
    WIDE s = *sum + x, y = s - *sum;
    *lost += (*sum - (s - y)) + (x - y);
    *sum = s;
}

/* The same of several columns side by side. */
static inline __attribute__((always_inline)) void FN(add_columns)(WIDE *sum, WIDE *lost,
                                                                  const WIDE_LANE *x)
{
    WIDE_LANE before = *(WIDE_LANE *)sum, s = before + *x, y = s - before;
    *(WIDE_LANE *)lost += (before - (s - y)) + (*x - y);
    *(WIDE_LANE *)sum = s;
}

/* The sum: an infinity has lost inf - inf on its way, which is none of it. */
static inline WIDE FN(total)(WIDE sum, WIDE lost)
{
    return lost == lost ? sum + lost : sum;
}

enum { FN(LANE) = sizeof(WIDE_LANE) / sizeof(WIDE), FN(FOURTH) = 4 / FN(LANE) };

/* dot[n] = x . y_n, and the same sum over absolute values, for keys n0 to n1 of the row, of which
 * WIDE_KEYS share each number of x: four partial sums for each. */
static inline __attribute__((always_inline)) void FN(dots)(const struct attn_oracle_row *row,
                                                           int64_t n0, int64_t n1, const double *x,
                                                           const double *keys, int64_t width,
                                                           WIDE *dot, double *magnitude)
{
    for (int64_t n = n0; n < n1; n += WIDE_KEYS) {
        WIDE_LANE parts[WIDE_KEYS][FN(FOURTH)], sizes[WIDE_KEYS][FN(FOURTH)];
        const double *y[WIDE_KEYS];
        int64_t c = 0;
        for (int k = 0; k < WIDE_KEYS; k++) {
            y[k] = keys + row->key[n + k < n1 ? n + k : n1 - 1] * stride_of(width);
            for (int t = 0; t < FN(FOURTH); t++)
                parts[k][t] = sizes[k][t] = (WIDE_LANE){0};
        }
        for (; c + 4 <= width; c += 4)
            for (int k = 0; k < WIDE_KEYS; k++)
                for (int t = 0; t < FN(FOURTH); t++) {
                    WIDE_LANE product =
                        WIDE_AT(x + c + t * FN(LANE)) * WIDE_AT(y[k] + c + t * FN(LANE));
                    parts[k][t] += product;
                    sizes[k][t] += WIDE_ABS(product);
                }
        for (int k = 0; k < WIDE_KEYS && n + k < n1; k++) {
            WIDE part[4], size[4];
            memcpy(part, parts[k], sizeof part);
            memcpy(size, sizes[k], sizeof size);
            for (int64_t tail = c; tail < width; tail++) {
                WIDE product = (WIDE)x[tail] * (WIDE)y[k][tail];
                part[0] += product;
                size[0] += fabs(product);
            }
            magnitude[n + k] = (double)(size[0] + size[1] + (size[2] + size[3]));
            dot[n + k] = part[0] + part[1] + (part[2] + part[3]);
        }
    }
}

/* ---- rows of one head: each stretch of keys that is read serves all of them ----------------- */

/* Keys of which totals are compensated, keys that are multiplied while they are in the nearest
 * cache, and vectors of columns that are summed in registers. */
enum { FN(STRETCH) = 32, FN(NEAR) = 8, FN(VECTORS) = 8 };

/* Keys n0 to n1 of a row, and some vectors of their columns: y += sum of weight[n] * x[key[n]],
 * summed by itself and added without loss. */
static inline __attribute__((always_inline)) void
FN(combine_columns)(const struct attn_oracle_row *row, int64_t n0, int64_t n1, const WIDE *weight,
                    const double *x, int64_t width, int vectors, WIDE *y, WIDE *lost)
{
    WIDE_LANE run[FN(VECTORS)];
    for (int t = 0; t < vectors; t++)
        run[t] = (WIDE_LANE){0};
    for (int64_t n = n0; n < n1; n++) {
        const double *from = x + row->key[n] * stride_of(width);
        const WIDE w = weight[n];
        if (w == 0)
            continue;
        for (int t = 0; t < vectors; t++)
            run[t] += w * WIDE_AT(from + t * FN(LANE));
    }
    for (int t = 0; t < vectors; t++)
        FN(add_columns)(y + t * FN(LANE), lost + t * FN(LANE), &run[t]);
}

/* y[c] = sum over visible keys of weight[n] * x[key[n]][c], for each row: plain within runs of 32
 * keys, run totals compensated.  Weights are wide_p, or wide_s for the gradient. */
WIDE_LOOPS static void FN(combine)(struct attn_oracle_row *rows, int n_rows, int gradient,
                                   const double *x, int64_t width)
{
    int64_t longest = 0;
    for (int r = 0; r < n_rows; r++) {
        memset(rows[r].wide_sum, 0, 2 * (size_t)rows[r].width * sizeof(WIDE));
        longest = rows[r].n > longest ? rows[r].n : longest;
    }
    for (int64_t n0 = 0; n0 < longest; n0 += FN(STRETCH))
        for (int64_t c = 0, vectors; c < width; c += vectors * FN(LANE)) {
            vectors = c + FN(VECTORS) * FN(LANE) <= width ? FN(VECTORS) : 1;
            for (int r = 0; r < n_rows; r++) {
                const struct attn_oracle_row *row = &rows[r];
                const WIDE *weight = gradient ? row->wide_s : row->wide_p;
                int64_t n1 = n0 + FN(STRETCH) < row->n ? n0 + FN(STRETCH) : row->n;
                WIDE *y = (WIDE *)row->wide_sum + c, *lost = y + row->width;
                if (n0 >= n1 || (gradient && !has_dq(row)))
                    continue;
                if (vectors > 1) {
                    FN(combine_columns)(row, n0, n1, weight, x + c, width, FN(VECTORS), y, lost);
                } else {
                    FN(combine_columns)(row, n0, n1, weight, x + c, width, 1, y, lost);
                }
            }
        }
    for (int r = 0; r < n_rows; r++) {
        WIDE *y = rows[r].wide_sum;
        for (int64_t c = 0; c < width; c++)
            y[c] = FN(total)(y[c], y[rows[r].width + c]);
    }
}

/* wide_s = q . k of each row's keys, or dO . v. */
WIDE_LOOPS static void FN(dot_rows)(struct attn_oracle_row *rows, int n_rows, int gradient,
                                    const double *keys, int64_t width)
{
    int64_t longest = 0;
    for (int r = 0; r < n_rows; r++)
        longest = rows[r].n > longest ? rows[r].n : longest;
    for (int64_t n0 = 0; n0 < longest; n0 += FN(NEAR))
        for (int r = 0; r < n_rows; r++) {
            struct attn_oracle_row *row = &rows[r];
            int64_t n1 = n0 + FN(NEAR) < row->n ? n0 + FN(NEAR) : row->n;
            if (n0 < n1 && !(gradient && row->max == -(double)INFINITY))
                FN(dots)
            (row, n0, n1, gradient ? row->stored_do : row->stored_q, keys, width, row->wide_s,
             gradient ? row->dp_magnitude : row->magnitude);
        }
}

/* Pass 1 of a row whose products with its keys are known: its scores, their maximum. */
static WIDE FN(row_scores)(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                           struct attn_oracle_row *row)
{
    WIDE *S = row->wide_s, max = -(WIDE)INFINITY;
    for (int64_t n = 0; n < row->n; n++) {
        WIDE s = (WIDE)p->scale * S[n];
        row->magnitude[n] *= fabs(p->scale);
        row->raw[n] = (double)s;
        row->slope[n] = 1;
        if (p->softcap > 0) {
            WIDE t = tanh(s / (WIDE)p->softcap);
            s = (WIDE)p->softcap * t;
            row->slope[n] = (double)((1 - t) * (1 + t));
        }
        row->bias[n] = true_bias(p, b, h, i, row->key[n]);
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

/* Pass 2 of a row: its weights, its LSE.  max is of the keys; a sink is one more term. */
static void FN(row_weights)(WIDE max, struct attn_oracle_row *row)
{
    WIDE *P = row->wide_p, l = 0, l_lost = 0, z = (WIDE)row->z;
    if (z > max || z != z)
        max = z;
    for (int64_t n = 0; n < row->n; n++)
        P[n] = max == -(WIDE)INFINITY ? 0 : exp(((WIDE *)row->wide_s)[n] - max);
    for (int64_t n = 0; n < row->n; n++)
        FN(add)(&l, &l_lost, P[n]);
    WIDE of_sink = z == -(WIDE)INFINITY ? 0 : exp(z - max);
    FN(add)(&l, &l_lost, of_sink);
    l = FN(total)(l, l_lost);
    row->p_sink = of_sink != 0 ? (double)(of_sink / l) : 0;
    for (int64_t n = 0; n < row->n; n++) {
        P[n] = max == -(WIDE)INFINITY ? 0 : P[n] / l;
        row->p[n] = (double)P[n];
    }
    if (max != -(WIDE)INFINITY)
        row->lse = (double)(max + log(l));
}

/* scores_only: that is enough. */
static void FN(forward)(const struct attn_problem *p, const struct attn_cview *q, int64_t b,
                        int64_t h, const int64_t *i, int n_rows, int scores_only,
                        struct attn_oracle_row *rows)
{
    for (int r = 0; r < n_rows; r++)
        if (rows[r].n > 0) /* else q is not even read */
            attn_cview_row(q, (int64_t[4]){b, h, i[r], 0}, p->d_key, rows[r].stored_q);
    FN(dot_rows)(rows, n_rows, 0, rows->stored_k, p->d_key);
    for (int r = 0; r < n_rows; r++) {
        WIDE max = FN(row_scores)(p, b, h, i[r], &rows[r]);
        rows[r].max = (double)max;
        rows[r].lse = -(double)INFINITY;
        rows[r].p_sink = rows[r].dz = 0;
        if (!scores_only)
            FN(row_weights)(max, &rows[r]);
    }
    if (scores_only)
        return;
    FN(combine)(rows, n_rows, 0, rows->stored_v, p->d_value);
    for (int r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < p->d_value; c++)
            rows[r].o[c] = (double)((WIDE *)rows[r].wide_sum)[c];
}

/* D = sum P dP - dLSE, dS = P (dP - D), of a row whose dP is known. */
static void FN(row_gradient)(const struct attn_cview *d_lse, int64_t b, int64_t h, int64_t i,
                             struct attn_oracle_row *row)
{
    WIDE *dP = row->wide_s, *P = row->wide_p, D = 0, D_lost = 0;
    row->delta = row->dz = 0;
    if (row->max == -(double)INFINITY) { /* nothing visible, or only scores of -inf */
        for (int64_t n = 0; n < row->n; n++)
            row->dp[n] = row->dp_magnitude[n] = row->ds[n] = 0;
        if (row->p_sink != 0 && d_lse->data != NULL) /* LSE is z */
            row->delta = -(row->dz = attn_cview_get(d_lse, b, h, i, 0));
        return;
    }
    for (int64_t n = 0; n < row->n; n++) {
        row->dp[n] = (double)dP[n];
        if (P[n] != 0)
            FN(add)(&D, &D_lost, P[n] * dP[n]);
    }
    D = FN(total)(D, D_lost);
    if (d_lse->data != NULL)
        D -= (WIDE)attn_cview_get(d_lse, b, h, i, 0);
    row->delta = (double)D;
    row->dz = row->p_sink != 0 ? -row->p_sink * row->delta : 0; /* dP of the sink is 0 */
    for (int64_t n = 0; n < row->n; n++) {
        WIDE dS = P[n] != 0 ? P[n] * (dP[n] - D) : 0;
        row->ds[n] = (double)dS;
        dP[n] = dS * (WIDE)row->slope[n];
    }
}

/* dP = dO V^T, dS, dq = scale sum dS slope k. */
static void FN(backward)(const struct attn_problem *p, const struct attn_cview *d_o,
                         const struct attn_cview *d_lse, int64_t b, int64_t h, const int64_t *i,
                         int n_rows, struct attn_oracle_row *rows)
{
    for (int r = 0; r < n_rows; r++)
        if (rows[r].max != -(double)INFINITY)
            load_values(&rows[r], d_o, b, h, i[r], p->d_value, rows[r].stored_do);
    FN(dot_rows)(rows, n_rows, 1, rows->stored_v, p->d_value);
    for (int r = 0; r < n_rows; r++)
        FN(row_gradient)(d_lse, b, h, i[r], &rows[r]);
    FN(combine)(rows, n_rows, 1, rows->stored_k, p->d_key);
    for (int r = 0; r < n_rows; r++) {
        const WIDE *y = has_dq(&rows[r]) ? rows[r].wide_sum : NULL;
        for (int64_t c = 0; c < p->d_key; c++)
            rows[r].dq[c] = y != NULL ? (double)((WIDE)p->scale * y[c]) : 0;
    }
}
