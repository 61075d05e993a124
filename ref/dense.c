/* dense: attention as the formula says it, with everything of size Lq x Lk in memory.
 *
 *      S_ij = score(q_i . k_j)       -inf where the mask hides              (Vaswani 2017, eq. 1)
 *      P    = softmax(S)             row by row
 *      O    = P V
 *
 * Memory   mask, S and P; backward: mask, P and dS.  For all batches and heads at once, as in a
 *          framework's eager mode (ref/textbook.c).  With scores=storage S, P and dS are stored in
 *          the type of q, as eager mode in 16 bits does; a row is worked on in a line beside them.
 * Flops    2 (d + dv) Lq Lk forward, 2 (3 d + 2 dv) Lq Lk backward, counted for all pairs.
 *          Scores of hidden pairs are computed and thrown away; products with a weight of 0 are
 *          skipped.
 * Caveats  This is what one should not do for long sequences; that is why it is here.
 */
#include "ref/real.h"

/* ---- rows as they are stored --------------------------------------------------------------- */

static struct attn_view stored(const struct attn_dense_buffers *w, struct attn_matrix x)
{
    return (struct attn_view){x.data, w->stored, {0, 0, x.ld, 1}};
}

/* Where row i of S, P or dS is written: in its place, or in a line. */
static real *place(const struct attn_dense_buffers *w, struct attn_matrix x, int64_t i, int line)
{
    return w->lines.data == NULL ? row(x, i) : row(w->lines, line);
}

static real element(const struct attn_dense_buffers *w, struct attn_matrix x, int64_t i, int64_t j)
{
    const struct attn_view all = stored(w, x);
    return w->lines.data == NULL ? row(x, i)[j] : (real)attn_view_get(&all, 0, 0, i, j);
}

/* Row i to be read. */
static real *fetch(const struct attn_dense_buffers *w, struct attn_matrix x, int64_t i, int line)
{
    real *to = place(w, x, i, line);
    for (int64_t j = 0; j < w->lines.ld; j++)
        to[j] = element(w, x, i, j);
    return to;
}

/* The row in this line is written: from here on it is what the storage type holds of it. */
static void keep(const struct attn_dense_buffers *w, struct attn_matrix x, int64_t i, int line)
{
    const struct attn_view all = stored(w, x);
    for (int64_t j = 0; j < w->lines.ld; j++)
        attn_view_set(&all, 0, 0, i, j, (double)row(w->lines, line)[j]);
    fetch(w, x, i, line);
}

/* ---- forward ------------------------------------------------------------------------------- */

/* Row i of S, and slope_ij, the derivative of S_ij with respect to X_ij = q_i . k_j (NULL: not
 * needed).  A hidden score is -inf whatever q and k are, so its slope is 0. */
static void dense_score_row(const struct attn_head *x, const struct attn_dense_mask *mask,
                            int64_t i, real *S, real *slope)
{
    const real *q = row(x->Q, i);
    for (int64_t j = 0; j < x->n_key; j++) {
        S[j] = score(x, i, j, dot(q, row(x->K, j), x->d), slope != NULL ? &slope[j] : NULL);
        if (attn_dense_mask_allows(mask, i, j))
            continue;
        S[j] = MINUS_INF;
        if (slope != NULL)
            slope[j] = 0;
    }
}

/* P_ij = exp(S_ij - m_i) / l_i, where m_i = max_j S_ij and l_i = sum_j exp(S_ij - m_i); a sink is
 * one more score of both.  Returns LSE_i = m_i + ln l_i. */
static real dense_softmax_row(const struct attn_head *x, int64_t i, const real *S, real *P)
{
    int64_t n = x->n_key;
    real m = sink(x), l = 0;
    for (int64_t j = 0; j < n; j++)
        if (S[j] > m || S[j] != S[j]) /* x != x: a NaN.  It stays the maximum and shows in O */
            m = S[j];
    if (m == MINUS_INF) { /* no key is visible, no sink: P = 0, LSE = -inf */
        set_zero(P, n);
        return MINUS_INF;
    }
    for (int64_t j = 0; j < n; j++) {
        P[j] = exp(S[j] - m);
        l += P[j];
    }
    if (x->sink != NULL)
        l += exp(sink(x) - m); /* in no P: its value is 0 */
    multiply(1 / l, P, n);
    TRACE(x, "softmax", i, 0, NUMBER("m", m), NUMBER("l", l), ROW("P", P, n));
    return m + log(l);
}

/* O_i = sum_j P_ij v_j.  Zeros are skipped, not multiplied: 0 * NaN is NaN, and a hidden v may hold
 * anything. */
static void dense_output_row(const struct attn_head *x, int64_t i, const real *P)
{
    real *O = row(x->O, i);
    set_zero(O, x->dv);
    for (int64_t j = 0; j < x->n_key; j++)
        if (P[j] != 0)
            axpy(P[j], row(x->V, j), O, x->dv);
}

void dense_forward(const struct attn_head *x, const struct attn_dense_buffers *w)
{
    TRACE(x, "mask", 0, 0, CELLS("mask", w->mask, x->n_query));
    for (int64_t i = 0; i < x->n_query; i++) {
        dense_score_row(x, &w->mask, i, place(w, w->pairs.S, i, 0), NULL);
        keep(w, w->pairs.S, i, 0);
    }
    if (w->lines.data == NULL)
        TRACE(x, "scores", 0, 0, MATRIX("S", w->pairs.S, x->n_query, x->n_key));
    for (int64_t i = 0; i < x->n_query; i++) {
        *row(x->lse, i) =
            dense_softmax_row(x, i, fetch(w, w->pairs.S, i, 0), place(w, w->pairs.P, i, 1));
        keep(w, w->pairs.P, i, 1);
    }
    for (int64_t i = 0; i < x->n_query; i++)
        dense_output_row(x, i, fetch(w, w->pairs.P, i, 0));
    TRACE(x, "output", 0, 0, MATRIX("O", x->O, x->n_query, x->dv),
          MATRIX("LSE", x->lse, x->n_query, 1));
}

/* ---- backward ------------------------------------------------------------------------------ *
 * Each step quotes the forward line that it differentiates. */

/* Forward was P_ij = exp(S_ij - LSE_i): the same again, from the stored LSE.
 * On entry P holds the scores, on return the probabilities.  Returns 1 if any key has weight. */
static int dense_probability_row(real *P, real lse, int64_t n)
{
    int seen = 0;
    for (int64_t j = 0; j < n; j++) {
        seen |= P[j] != MINUS_INF;
        P[j] = P[j] == MINUS_INF ? 0 : exp(P[j] - lse);
    }
    return seen;
}

/* Forward was O_i = sum_j P_ij v_j:   dP_ij = dO_i . v_j
 * Forward was P_i = softmax(S_i):     dS_ij = P_ij (dP_ij - D_i)       D_i: see real.h */
static void dense_dscore_row(const struct attn_head *x, int64_t i, const real *P, int seen,
                             real *dS)
{
    real D = seen ? delta(x, i) : 0;
    dsink_add(x, i, D, seen);
    for (int64_t j = 0; j < x->n_key; j++) {
        dS[j] = 0;
        if (P[j] == 0)
            continue; /* zeros are skipped, as in the forward pass */
        real dP = dot(row(x->dO, i), row(x->V, j), x->dv);
        dS[j] = P[j] * (dP - D);
        dbias_add(x, i, j, dS[j]);
        TRACE(x, "dscore", i, j, NUMBER("P", P[j]), NUMBER("dP", dP), NUMBER("dS", dS[j]));
    }
}

/* Forward was S_ij = score(X_ij), X_ij = q_i . k_j:   dX_ij = dS_ij slope_ij
 * From here on the buffer of dS holds dX. */
static void dense_dproduct_row(real *dS, const real *slope, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        dS[j] *= slope[j];
}

/* Forward was X_ij = q_i . k_j:   dQ_i = sum_j dX_ij k_j */
static void dense_dquery_row(const struct attn_head *x, int64_t i, const real *dX)
{
    real *dQ = row(x->dQ, i);
    set_zero(dQ, x->d);
    for (int64_t j = 0; j < x->n_key; j++) {
        if (dX[j] == 0)
            continue;
        axpy(dX[j], row(x->K, j), dQ, x->d);
        TRACE(x, "dquery", i, j, NUMBER("dX", dX[j]), ROW("k_j", row(x->K, j), x->d),
              ROW("dQ_i", dQ, x->d));
    }
}

/* Forward was X_ij = q_i . k_j:              dK_j += sum_i dX_ij q_i
 * Forward was O_i = sum_j P_ij v_j:          dV_j += sum_i P_ij dO_i
 * Added to what is there, 0 in the beginning: several query heads may share these keys. */
static void dense_dkey_row(const struct attn_head *x, int64_t j, const struct attn_dense_buffers *w)
{
    for (int64_t i = 0; i < x->n_query; i++) {
        real P = element(w, w->pairs.P, i, j), dX = element(w, w->pairs.dS, i, j);
        if (dX != 0)
            axpy(dX, row(x->Q, i), row(x->dK, j), x->d);
        if (P == 0)
            continue; /* and so is dX: hidden */
        axpy(P, row(x->dO, i), row(x->dV, j), x->dv);
        TRACE(x, "dkey", i, j, NUMBER("dX", dX), ROW("q_i", row(x->Q, i), x->d),
              ROW("dK_j", row(x->dK, j), x->d), NUMBER("P", P), ROW("dO_i", row(x->dO, i), x->dv),
              ROW("dV_j", row(x->dV, j), x->dv));
    }
}

void dense_backward(const struct attn_head *x, const struct attn_dense_buffers *w)
{
    real *slope = row(w->pairs.slope, 0);
    for (int64_t i = 0; i < x->n_query; i++) {
        real *P = place(w, w->pairs.P, i, 0), *dS = place(w, w->pairs.dS, i, 1);
        dense_score_row(x, &w->mask, i, P, slope);
        keep(w, w->pairs.P, i, 0); /* as the forward pass did: LSE is of these scores */
        int seen = dense_probability_row(P, *row(x->lse, i), x->n_key);
        keep(w, w->pairs.P, i, 0);
        dense_dscore_row(x, i, P, seen, dS);
        dense_dproduct_row(dS, slope, x->n_key);
        keep(w, w->pairs.dS, i, 1);
        dense_dquery_row(x, i, dS);
    }
    for (int64_t j = 0; j < x->n_key; j++)
        dense_dkey_row(x, j, w);
}
