/* csr-textbook: attention over the visible pairs only, kept as compressed sparse rows.
 *
 * The same formulas as dense, with sums over the stored pairs alone.  The pattern
 * (ref/mask/pattern.h) gives row i its keys in increasing order; element e of the row is the pair
 * (i, j) with j = key[e].
 *
 *      SDDMM      S_e = score(q_i . k_j)       sampled dense-dense product
 *      softmax    P   = softmax(S)             over the elements of a row
 *      SpMM       O_i = sum_e P_e v_j          sparse-dense product
 *
 * Memory   the pattern, and two values for each visible pair: S and P; backward: P and dS.
 *          In f32 that is 8 + 4 / (heads that share the pattern) bytes a visible pair, against 9
 *          bytes a pair of dense: it pays while less than 9 / (8 + 4 / heads) of them are visible.
 * Flops    2 (d + dv) per visible pair forward, 2 (3 d + 2 dv) backward.
 * Source   Gale et al. 2020 (Sputnik); the layout of xformers' SparseCS.
 * Caveats  Pairs are walked one at a time: rows of K and V are gathered, nothing is blocked.
 */
#include "ref/real.h"

/* Row i: n keys; its values are elements [first, first + n) of the head's S and P. */
struct csr_row {
    int64_t first, n;
    const int32_t *key;
};

static struct csr_row csr_row(const struct attn_head *x, const struct attn_csr *csr, int64_t i)
{
    struct csr_row r;
    const int32_t *start;
    attn_csr_row(csr, x->b, x->h, 0, &start);
    r.n = attn_csr_row(csr, x->b, x->h, i, &r.key);
    r.first = r.key - start;
    return r;
}

/* [n_query + 1]: where the rows of this head begin among its elements, and where the last one
 * ends. */
static const int64_t *csr_row_starts(const struct attn_head *x, const struct attn_csr *csr)
{
    return csr->row_start + (x->b * csr->batch_step + x->h * csr->head_step) * csr->n_query;
}

/* ---- forward ------------------------------------------------------------------------------- */

/* SDDMM, one row: S_e = score(X_e), X_e = q_i . k_j; slope_e: the derivative of S_e with respect to
 * X_e (NULL: not needed). */
static void csr_score_row(const struct attn_head *x, int64_t i, const int32_t *key, int64_t n,
                          real *S, real *slope)
{
    const real *q = row(x->Q, i);
    for (int64_t e = 0; e < n; e++)
        S[e] = score(x, i, key[e], dot(q, row(x->K, key[e]), x->d), slope ? &slope[e] : NULL);
}

/* P_e = exp(S_e - m) / l, where m = max_e S_e and l = sum_e exp(S_e - m); a sink is one more score
 * of both.  Returns LSE = m + ln l; without a sink -inf for a row without a key, or with biases of
 * -inf alone. */
static real csr_softmax_row(const struct attn_head *x, const real *S, real *P, int64_t n)
{
    real m = sink(x), l = 0;
    for (int64_t e = 0; e < n; e++)
        if (S[e] > m || S[e] != S[e]) /* x != x: a NaN.  It stays the maximum and shows in O */
            m = S[e];
    for (int64_t e = 0; e < n; e++)
        l += P[e] = m == MINUS_INF ? 0 : exp(S[e] - m);
    if (m == MINUS_INF)
        return MINUS_INF;
    if (x->sink != NULL)
        l += exp(sink(x) - m); /* in no P: its value is 0 */
    multiply(1 / l, P, n);
    return m + log(l);
}

/* SpMM, one row: O_i = sum_e P_e v_j */
static void csr_output_row(const struct attn_head *x, int64_t i, const int32_t *key, int64_t n,
                           const real *P)
{
    real *O = row(x->O, i);
    set_zero(O, x->dv);
    for (int64_t e = 0; e < n; e++)
        axpy(P[e], row(x->V, key[e]), O, x->dv);
}

void csr_forward(const struct attn_head *x, const struct attn_csr_buffers *w)
{
    real *S = row(w->pairs.S, 0), *P = row(w->pairs.P, 0);
    TRACE(x, "pattern", 0, 0, WHOLE("row_start", csr_row_starts(x, w->csr), x->n_query + 1));
    for (int64_t i = 0; i < x->n_query; i++) {
        struct csr_row r = csr_row(x, w->csr, i);
        csr_score_row(x, i, r.key, r.n, S + r.first, NULL);
        TRACE(x, "sddmm", i, r.first, WHOLE("j", r.key, r.n), COLUMN("S", S + r.first, r.n));
    }
    for (int64_t i = 0; i < x->n_query; i++) {
        struct csr_row r = csr_row(x, w->csr, i);
        *row(x->lse, i) = csr_softmax_row(x, S + r.first, P + r.first, r.n);
        TRACE(x, "csr.softmax", i, r.first, WHOLE("j", r.key, r.n), COLUMN("P", P + r.first, r.n));
    }
    for (int64_t i = 0; i < x->n_query; i++) {
        struct csr_row r = csr_row(x, w->csr, i);
        csr_output_row(x, i, r.key, r.n, P + r.first);
    }
    TRACE(x, "spmm", 0, 0, MATRIX("O", x->O, x->n_query, x->dv),
          MATRIX("LSE", x->lse, x->n_query, 1));
}

/* ---- backward ------------------------------------------------------------------------------ *
 * Each step quotes the forward line that it differentiates. */

/* Forward was P_e = exp(S_e - LSE): the same again, from the stored LSE.
 * On entry P holds the scores, on return the probabilities.  Returns 1 if any key has weight. */
static int csr_probability_row(real *P, real lse, int64_t n)
{
    int seen = 0;
    for (int64_t e = 0; e < n; e++) {
        seen |= P[e] != MINUS_INF;
        P[e] = P[e] == MINUS_INF ? 0 : exp(P[e] - lse);
    }
    return seen;
}

/* Forward was O_i = sum_e P_e v_j:   dP_e = dO_i . v_j          (SDDMM)
 * Forward was P = softmax(S):        dS_e = P_e (dP_e - D_i)    D_i: see real.h */
static void csr_dscore_row(const struct attn_head *x, int64_t i, const int32_t *key, int64_t n,
                           const real *P, int seen, real *dS)
{
    real D = seen ? delta(x, i) : 0;
    dsink_add(x, i, D, seen);
    for (int64_t e = 0; e < n; e++) {
        real dP = dot(row(x->dO, i), row(x->V, key[e]), x->dv);
        dS[e] = P[e] != 0 ? P[e] * (dP - D) : 0;
        dbias_add(x, i, key[e], dS[e]);
        TRACE(x, "dscore", i, key[e], NUMBER("P", P[e]), NUMBER("dP", dP), NUMBER("dS", dS[e]));
    }
}

/* Forward was S_e = score(X_e), X_e = q_i . k_j:   dX_e = dS_e slope_e
 * From here on the buffer of dS holds dX. */
static void csr_dproduct_row(real *dS, const real *slope, int64_t n)
{
    for (int64_t e = 0; e < n; e++)
        dS[e] *= slope[e];
}

/* Forward was X_e = q_i . k_j:           dQ_i = sum_e dX_e k_j    SpMM
 *                                        dK_j += dX_e q_i         SpMM with the transpose of dX
 * Forward was O_i = sum_e P_e v_j:       dV_j += P_e dO_i         SpMM with the transpose of P
 * The transpose is not stored: each element adds to the row of its key. */
static void csr_gradient_row(const struct attn_head *x, int64_t i, const int32_t *key, int64_t n,
                             const real *P, const real *dX)
{
    real *dQ = row(x->dQ, i);
    set_zero(dQ, x->d);
    for (int64_t e = 0; e < n; e++) {
        axpy(dX[e], row(x->K, key[e]), dQ, x->d);
        axpy(dX[e], row(x->Q, i), row(x->dK, key[e]), x->d);
        axpy(P[e], row(x->dO, i), row(x->dV, key[e]), x->dv);
        TRACE(x, "dquery", i, key[e], NUMBER("dX", dX[e]), ROW("k_j", row(x->K, key[e]), x->d),
              ROW("dQ_i", dQ, x->d));
        TRACE(x, "dkey", i, key[e], NUMBER("dX", dX[e]), ROW("q_i", row(x->Q, i), x->d),
              ROW("dK_j", row(x->dK, key[e]), x->d), NUMBER("P", P[e]),
              ROW("dO_i", row(x->dO, i), x->dv), ROW("dV_j", row(x->dV, key[e]), x->dv));
    }
}

void csr_backward(const struct attn_head *x, const struct attn_csr_buffers *w)
{
    real *slope = row(w->pairs.slope, 0);
    for (int64_t i = 0; i < x->n_query; i++) {
        struct csr_row r = csr_row(x, w->csr, i);
        real *P = row(w->pairs.P, 0) + r.first, *dS = row(w->pairs.dS, 0) + r.first;
        csr_score_row(x, i, r.key, r.n, P, slope);
        int seen = csr_probability_row(P, *row(x->lse, i), r.n);
        csr_dscore_row(x, i, r.key, r.n, P, seen, dS);
        csr_dproduct_row(dS, slope, r.n);
        csr_gradient_row(x, i, r.key, r.n, P, dS);
    }
}
