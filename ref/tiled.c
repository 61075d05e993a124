/* tiled-textbook: attention in tiles with online softmax; nothing of size Lq x Lk ever exists.
 *
 * Memory   forward: the tiles alone, whatever L is: Br (d + dv + Bc + 2) + Bc (d + dv) numbers;
 *          backward: about twice the tiles, and D, one number for each query.
 * Flops    2 (d + dv) per visible pair forward, 2 (3 d + 2 dv) backward.
 *          Tiles without a visible pair are skipped.
 * Source   Milakov & Gimelshein 2018 (online softmax); Dao 2023, FlashAttention-2, algorithms 1, 2.
 * Caveats  Q, K and V are copied into tiles although a CPU's cache would do that by itself: the
 *          copies are what a GPU's fast memory would hold.
 */
#include "ref/real.h"

/* Rows [i0,i1) of a matrix into fast memory. */
static void tiled_load(struct attn_matrix from, int64_t i0, int64_t i1, int64_t n,
                       struct attn_matrix tile)
{
    for (int64_t i = i0; i < i1; i++)
        for (int64_t c = 0; c < n; c++)
            row(tile, i - i0)[c] = row(from, i)[c];
}

/* S = scores of a tile, -inf where hidden; slope (data NULL: not needed) their derivatives.
 * attn_problem_next gives one run of visible keys after another, so hidden scores are not computed.
 */
static void tiled_scores(const struct attn_head *x, const struct attn_tiled_buffers *t,
                         struct attn_tile_at at)
{
    int64_t i0 = at.i0, j0 = at.j0, j1 = at.j1;
    for (int64_t i = i0; i < at.i1; i++) {
        real *S = row(t->S, i - i0), *slope = t->slope.data ? row(t->slope, i - i0) : NULL;
        struct attn_run run = {j0, j0};
        for (int64_t j = j0; j < j1; j++)
            S[j - j0] = MINUS_INF;
        while (attn_problem_next(x->problem, x->b, x->h, i, &run) && run.lo < j1)
            for (int64_t j = run.lo; j < least(run.hi, j1); j++) {
                real qk = dot(row(t->Q, i - i0), row(t->K, j - j0), x->d);
                S[j - j0] = score(x, i, j, qk, slope != NULL ? &slope[j - j0] : NULL);
            }
    }
    TRACE(x, "tile.scores", i0, j0, MATRIX("S", t->S, at.i1 - i0, j1 - j0));
}

/* ---- forward: algorithm 1 ------------------------------------------------------------------ *
 *
 *  for each tile I of queries:
 *      load Q_I;  O = 0, l = 0, m = -inf; of a sink l = 1, m = z
 *      for each tile J of keys:
 *          load K_J, V_J
 *          S = score(Q_I K_J^T)
 *          m' = max(m, rowmax S);  alpha = exp(m - m');  P = exp(S - m')
 *          l = alpha l + rowsum P
 *          O = alpha O + P V_J;  m = m'
 *      O_I = O / l;  LSE_I = m + ln l
 */

void tiled_forward(const struct attn_head *x, const struct attn_tiled_buffers *t)
{
    for (int64_t i0 = 0; i0 < x->n_query; i0 += t->br) {
        int64_t i1 = least(i0 + t->br, x->n_query);
        tiled_load(x->Q, i0, i1, x->d, t->Q);
        for (int64_t r = 0; r < i1 - i0; r++) {
            set_zero(row(t->O, r), x->dv);
            *row(t->m, r) = sink(x); /* -inf without one.  A sink is a key that was seen before, */
            *row(t->l, r) = sink(x) == MINUS_INF ? 0 : 1; /* of value 0: l = exp(z - m)          */
        }
        TRACE(x, "tile.begin", i0, 0, MATRIX("m", t->m, i1 - i0, 1), MATRIX("l", t->l, i1 - i0, 1),
              MATRIX("o", t->O, i1 - i0, x->dv));
        for (int64_t j0 = 0; j0 < x->n_key; j0 += t->bc) {
            int64_t j1 = least(j0 + t->bc, x->n_key), n = j1 - j0;
            const struct attn_tile_at at = {x->b, x->h, i0, i1, j0, j1};
            if (attn_problem_tile(x->problem, at) == ATTN_TILE_EMPTY)
                continue; /* nothing is read, nothing computed */
            tiled_load(x->K, j0, j1, x->d, t->K);
            tiled_load(x->V, j0, j1, x->dv, t->V);
            TRACE(x, "tile.load", i0, j0, MATRIX("K_J", t->K, n, x->d),
                  MATRIX("V_J", t->V, n, x->dv));
            tiled_scores(x, t, at);
            for (int64_t r = 0; r < i1 - i0; r++) {
                const real *S = row(t->S, r);
                real *O = row(t->O, r), *m = row(t->m, r), *l = row(t->l, r);
                real m_new = *m, l_tile = 0;
                for (int64_t j = 0; j < n; j++)
                    if (S[j] > m_new || S[j] != S[j]) /* x != x: a NaN.  It stays the maximum, */
                        m_new = S[j];                 /* and shows in O                        */
                if (m_new == MINUS_INF) /* nothing visible yet: exp(-inf - -inf) would be NaN */
                    continue;
                real alpha = exp(*m - m_new); /* 0 on the first visible tile */
                multiply(alpha, O, x->dv);
                for (int64_t j = 0; j < n; j++) {
                    if (S[j] == MINUS_INF)
                        continue; /* hidden: v may hold anything, so not even 0 * v */
                    real P = exp(S[j] - m_new);
                    l_tile += P;
                    axpy(P, row(t->V, j), O, x->dv);
                    TRACE(x, "tile.weight", i0 + r, j0 + j, NUMBER("exp(S-m')", P));
                }
                *l = alpha * *l + l_tile;
                TRACE(x, "tile.update", i0 + r, j0, NUMBER("m", *m), NUMBER("m'", m_new),
                      NUMBER("exp(m-m')", alpha), NUMBER("l'", *l), ROW("o'", O, x->dv));
                *m = m_new;
            }
        }
        for (int64_t r = 0; r < i1 - i0; r++) { /* 0 and -inf where no key is visible */
            real m = *row(t->m, r), l = *row(t->l, r);
            int seen = m != MINUS_INF;
            for (int64_t c = 0; c < x->dv; c++)
                row(x->O, i0 + r)[c] = seen ? 1 / l * row(t->O, r)[c] : 0;
            *row(x->lse, i0 + r) = seen ? m + log(l) : MINUS_INF;
        }
        TRACE(x, "tile.finish", i0, 0, ROWS("O", x->O, i0, i1, x->dv),
              ROWS("LSE", x->lse, i0, i1, 1));
    }
}

/* ---- backward: algorithm 2 ----------------------------------------------------------------- *
 *
 *  dQ = 0;  D_i = dO_i . O_i - dLSE_i                               tiled_delta
 *  for each tile J of keys:
 *      load K_J, V_J;  dK = 0, dV = 0 for the tile
 *      for each tile I of queries:
 *          load Q_I, dO_I;  S = score(Q_I K_J^T)                    tiled_scores
 *          P = exp(S - LSE_I);  dV += P^T dO_I                      tiled_gradient_row
 *          dP = dO_I V_J^T;  dS = P o (dP - D_I)                    (o: element by element)
 *          dX = dS o slope;  dQ_I += dX K_J;  dK += dX^T Q_I
 *      dK_J += dK, dV_J += dV                                       tiled_add_keys
 *
 * P is not stored but made again from LSE.  Tiles of keys are the outer loop, so dK and dV of a
 * tile are finished in one go; dQ adds up in slow memory. */

/* The share of query i, which is row r, in dQ_i and in the tile's dK and dV.  Each line quotes the
 * forward line that it differentiates. */
static void tiled_gradient_row(const struct attn_head *x, const struct attn_tiled_buffers *t,
                               int64_t r, int64_t i, int64_t j0, int64_t n)
{
    const real *S = row(t->S, r), *slope = row(t->slope, r), *q = row(t->Q, r), *dO = row(t->dO, r);
    real lse = *row(x->lse, i), D = row(t->D, 0)[i];
    for (int64_t j = 0; j < n; j++) {
        if (S[j] == MINUS_INF)
            continue;
        real P = exp(S[j] - lse);          /* forward was P_ij = exp(S_ij - LSE_i) */
        axpy(P, dO, row(t->dV, j), x->dv); /* forward was O_i = sum_j P_ij v_j     */
        real dP = dot(dO, row(t->V, j), x->dv);
        real dS = P * (dP - D); /* forward was P_i = softmax(S_i)       */
        dbias_add(x, i, j0 + j, dS);
        real dX = dS * slope[j];                     /* forward was S_ij = score(X_ij),      */
        axpy(dX, row(t->K, j), row(x->dQ, i), x->d); /*             X_ij = q_i . k_j         */
        axpy(dX, q, row(t->dK, j), x->d);
        TRACE(x, "dscore", i, j0 + j, NUMBER("P", P), NUMBER("dP", dP), NUMBER("dS", dS));
        TRACE(x, "dquery", i, j0 + j, NUMBER("dX", dX), ROW("k_j", row(t->K, j), x->d),
              ROW("dQ_i", row(x->dQ, i), x->d));
        TRACE(x, "dkey", i, j0 + j, NUMBER("dX", dX), ROW("q_i", q, x->d),
              ROW("dK_j", row(t->dK, j), x->d), NUMBER("P", P), ROW("dO_i", dO, x->dv),
              ROW("dV_j", row(t->dV, j), x->dv));
    }
}

/* D_i for queries that see a key; 0 for others, whose O and dO are not read.  With a sink these
 * have LSE = z. */
static void tiled_delta(const struct attn_head *x, real *D)
{
    for (int64_t i = 0; i < x->n_query; i++) {
        int seen = x->sink != NULL ? attn_problem_sees(x->problem, x->b, x->h, i)
                                   : *row(x->lse, i) != MINUS_INF;
        D[i] = seen ? delta(x, i) : 0;
        dsink_add(x, i, D[i], seen);
    }
}

/* The finished tile is added to dK and dV of keys [j0,j1): query heads may share them. */
static void tiled_add_keys(const struct attn_head *x, const struct attn_tiled_buffers *t,
                           int64_t j0, int64_t j1)
{
    for (int64_t j = j0; j < j1; j++) {
        axpy(1, row(t->dK, j - j0), row(x->dK, j), x->d);
        axpy(1, row(t->dV, j - j0), row(x->dV, j), x->dv);
    }
}

void tiled_backward(const struct attn_head *x, const struct attn_tiled_buffers *t)
{
    tiled_delta(x, row(t->D, 0));
    for (int64_t i = 0; i < x->n_query; i++)
        set_zero(row(x->dQ, i), x->d);
    for (int64_t j0 = 0; j0 < x->n_key; j0 += t->bc) {
        int64_t j1 = least(j0 + t->bc, x->n_key);
        tiled_load(x->K, j0, j1, x->d, t->K);
        tiled_load(x->V, j0, j1, x->dv, t->V);
        set_zero(row(t->dK, 0), t->bc * x->d);
        set_zero(row(t->dV, 0), t->bc * x->dv);
        for (int64_t i0 = 0; i0 < x->n_query; i0 += t->br) {
            int64_t i1 = least(i0 + t->br, x->n_query);
            const struct attn_tile_at at = {x->b, x->h, i0, i1, j0, j1};
            if (attn_problem_tile(x->problem, at) == ATTN_TILE_EMPTY)
                continue;
            tiled_load(x->Q, i0, i1, x->d, t->Q);
            tiled_load(x->dO, i0, i1, x->dv, t->dO);
            TRACE(x, "tile.again", i0, j0, MATRIX("Q_I", t->Q, i1 - i0, x->d),
                  MATRIX("dO_I", t->dO, i1 - i0, x->dv));
            tiled_scores(x, t, at);
            for (int64_t r = 0; r < i1 - i0; r++)
                tiled_gradient_row(x, t, r, i0 + r, j0, j1 - j0);
        }
        tiled_add_keys(x, t, j0, j1);
        TRACE(x, "tile.keys", 0, j0, ROWS("dK", x->dK, j0, j1, x->d),
              ROWS("dV", x->dV, j0, j1, x->dv));
    }
}
