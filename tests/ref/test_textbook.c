/* The steps of the textbooks, each called alone, on one head worked out by hand.
 *
 * Two queries, three keys, causal(br): query 0 does not see key 2.  q_0 = (1, 0), q_1 = (0, 1), so
 * row i of the scores is coordinate i of the keys:
 *
 *      S = 0  ln 2   -        P = 1/3  2/3   -      LSE = ln 3      O =  5
 *          0  ln 3  ln 4          1/8  3/8  1/2           ln 8          52.625
 *
 * With dO = (1, 2):  D = (5, 105.25), and dS_ij = P_ij (dO_i v_j - D_i). */
#include "tests/suites.h"

#include <stdlib.h>

#include "ref/mask/mask.h"
#include "ref/textbook.h"

/* The files themselves, with passes of other names than the library's. */
#define REAL_NAME(name) alone_##name
attn_head_pass alone_dense_forward, alone_dense_backward, alone_csr_forward, alone_csr_backward,
    alone_tiled_forward, alone_tiled_backward;
#include "ref/csr.c"
#include "ref/dense.c"
#include "ref/tiled.c"

enum { LQ = 2, LK = 3, D_KEY = 2 };
static float Q[LQ * D_KEY] = {1, 0, 0, 1}, K[LK * D_KEY], V[LK] = {3, 6, 100};
static float O[LQ], lse[LQ], dO[LQ] = {1, 2}, dlse[LQ], dQ[LQ * D_KEY], dK[LK * D_KEY], dV[LK];
static const float P_[LQ][LK] = {{1.F / 3, 2.F / 3, 0}, {0.125F, 0.375F, 0.5F}};
static const float dS_[LQ][LK] = {{-2.F / 3, 2.F / 3, 0}, {-12.40625F, -34.96875F, 47.375F}};
static const float O_[LQ] = {5, 52.625F};
static struct attn_mask *mask;
static struct attn_problem problem;
static struct attn_head x;

static void open_head(void)
{
    const struct attn_mask_shape shape = {1, 1, LQ, LK};
    const float k[LK * D_KEY] = {0, 0, logf(2), logf(3), 7, logf(4)};
    ck_assert(attn_mask_parse("causal(br)", &shape, NULL, &mask, NULL) == ATTN_OK);
    problem = (struct attn_problem){
        1, 1, 1, LQ, LK, D_KEY, 1, .scale = 1, .dtype = ATTN_F32, .mask = mask};
    memcpy(K, k, sizeof K);
    x = (struct attn_head){&problem, 0,          0,           LQ,          LK,      D_KEY,
                           1,        {Q, D_KEY}, {K, D_KEY},  {V, 1},      {O, 1},  {lse, 1},
                           {dO, 1},  {NULL, 0},  {dQ, D_KEY}, {dK, D_KEY}, {dV, 1}, NULL};
    for (int i = 0; i < LQ; i++) {
        O[i] = O_[i];
        lse[i] = i == 0 ? logf(3) : logf(8);
    }
    memset(dK, 0, sizeof dK);
    memset(dV, 0, sizeof dV);
}

static void close_head(void)
{
    attn_mask_free(mask);
}

SUITE(textbook, .seconds = 60, .open = open_head, .close = close_head);

static void near(const float *got, const float *want, int n)
{
    for (int j = 0; j < n; j++)
        ck_assert_msg(fabsf(got[j] - want[j]) <= 1e-5F * (1 + fabsf(want[j])), "%g at %d, not %g",
                      (double)got[j], j, (double)want[j]);
}

/* What all three give in the end. */
static void check_gradients(void)
{
    const float dq[LQ * D_KEY] = {2 * logf(2) / 3, 2 * logf(3) / 3,
                                  -34.96875F * logf(2) + 47.375F * 7,
                                  -34.96875F * logf(3) + 47.375F * logf(4)};
    const float dk[LK * D_KEY] = {dS_[0][0], dS_[1][0], dS_[0][1], dS_[1][1], 0, dS_[1][2]};
    const float dv[LK] = {1.F / 3 + 0.25F, 2.F / 3 + 0.75F, 1};
    near(dQ, dq, LQ * D_KEY);
    near(dK, dk, LK * D_KEY);
    near(dV, dv, LK);
}

TEST(score_and_its_slope)
{
    const float b[LQ * LK] = {0, 0, 0, 0, 0.5F, 0};
    float slope = 0, h = 1e-2F;
    problem.scale = 0.5, problem.softcap = 2;
    problem.bias =
        (struct attn_bias){.kind = ATTN_BIAS_TENSOR, .tensor = {b, ATTN_F32, {0, 0, LK, 1}}};
    float s = score(&x, 1, 1, 3, &slope), t = tanhf(0.75F);
    ck_assert(fabsf(s - (2 * t + 0.5F)) < 1e-6F);
    ck_assert(fabsf(slope - 0.5F * (1 - t * t)) < 1e-6F);
    float up = score(&x, 1, 1, 3 + h, NULL), down = score(&x, 1, 1, 3 - h, NULL);
    ck_assert(fabsf(slope - (up - down) / (2 * h)) < 1e-3F);
    ck_assert(fabsf(delta(&x, 1) - 105.25F) < 1e-3F);
    x.dlse = (struct attn_rows){dlse, 1};
    dlse[1] = 0.25F;
    ck_assert(fabsf(delta(&x, 1) - 105) < 1e-3F);
}

TEST(dense_steps)
{
    char cells[LQ * LK] = {1, 1, 0, 1, 1, 1};
    const struct attn_dense_mask stored = {cells, LK, 1, {1}, {0}};
    float S[LQ * LK], P[LQ * LK], dS[LQ * LK], slope[LK];
    for (int i = 0; i < LQ; i++) {
        float *s = S + i * LK, *p = P + i * LK, *ds = dS + i * LK;
        dense_score_row(&x, &stored, i, s, slope);
        ck_assert(i == 1 || (s[2] == -INFINITY && slope[2] == 0));
        near(slope, (const float[]){1, 1}, 2);
        float l = dense_softmax_row(s, p, LK);
        near(&l, &lse[i], 1);
        near(p, P_[i], LK);
        O[i] = NAN;
        dense_output_row(&x, i, p);
        near(&O[i], &O_[i], 1);
        dense_probability_row(s, lse[i], LK);
        near(s, P_[i], LK);
        dense_dscore_row(&x, i, p, ds);
        near(ds, dS_[i], LK);
        dense_dquery_row(&x, i, ds);
    }
    for (int j = 0; j < LK; j++)
        dense_dkey_row(&x, j, (struct attn_rows){P, LK}, (struct attn_rows){dS, LK});
    check_gradients();
    dense_dproduct_row(dS, (const float[]){2, 3, 0}, LK);
    near(dS, (const float[]){-4.F / 3, 2, 0}, LK);
}

TEST(csr_steps)
{
    const int32_t key[] = {0, 1, 2};
    float S[LK], P[LK], dS[LK], slope[LK];
    for (int i = 0; i < LQ; i++) {
        int n = i == 0 ? 2 : 3;
        csr_score_row(&x, i, key, n, S, slope);
        near(slope, (const float[]){1, 1, 1}, n);
        float l = csr_softmax_row(S, P, n);
        near(&l, &lse[i], 1);
        near(P, P_[i], n);
        O[i] = NAN;
        csr_output_row(&x, i, key, n, P);
        near(&O[i], &O_[i], 1);
        csr_probability_row(S, lse[i], n);
        near(S, P_[i], n);
        csr_dscore_row(&x, i, key, n, P, dS);
        near(dS, dS_[i], n);
        csr_gradient_row(&x, i, key, n, P, dS);
    }
    check_gradients();
    ck_assert(csr_softmax_row(NULL, NULL, 0) == -INFINITY);
    csr_dproduct_row(dS, (const float[]){2, 0, 4}, LK);
    near(dS, (const float[]){-24.8125F, 0, 189.5F}, LK);
}

/* Tiles of two queries and two keys: the second tile of keys holds key 2 alone. */
TEST(tiled_steps)
{
    float q[4], k[4], v[2], o[2], s[4], slope[4], m[2], l[2], d_o[2], dk[4], dv[2], D[LQ];
    struct attn_work t = {.br = 2, .bc = 2, .Q = {q, 2}, .K = {k, 2}, .V = {v, 1}, .O = {o, 1}};
    t.S = (struct attn_rows){s, 2}, t.slope = (struct attn_rows){slope, 2};
    t.m = (struct attn_rows){m, 1}, t.l = (struct attn_rows){l, 1};
    t.dO = (struct attn_rows){d_o, 1}, t.D = (struct attn_rows){D, 1};
    t.dK = (struct attn_rows){dk, 2}, t.dV = (struct attn_rows){dv, 1};
    /* after the first tile, and after the second: row 0 is left alone there */
    const float m_[2][2] = {{logf(2), logf(3)}, {logf(2), logf(4)}};
    const float l_[2][2] = {{1.5F, 4.F / 3}, {1.5F, 2}}, o_[2][2] = {{7.5F, 7}, {7.5F, 105.25F}};
    tiled_load(x.Q, 0, 2, D_KEY, t.Q);
    tiled_load(x.dO, 0, 2, 1, t.dO);
    tiled_begin(&x, &t, 2);
    tiled_delta(&x, D);
    near(D, (const float[]){5, 105.25F}, 2);
    memset(dQ, 0, sizeof dQ);
    for (int tile = 0; tile < 2; tile++) {
        int j0 = 2 * tile, n = tile == 0 ? 2 : 1;
        memset(dk, 0, sizeof dk), memset(dv, 0, sizeof dv);
        tiled_load(x.K, j0, j0 + n, D_KEY, t.K);
        tiled_load(x.V, j0, j0 + n, 1, t.V);
        tiled_scores(&x, &t, 0, 2, j0, j0 + n);
        ck_assert(tile == 0 || s[0] == -INFINITY);
        for (int r = 0; r < 2; r++) {
            tiled_update_row(&x, &t, r, n);
            tiled_gradient_row(&x, &t, r, r, j0, n);
        }
        near(m, m_[tile], 2);
        near(l, l_[tile], 2);
        near(o, o_[tile], 2);
        tiled_add_keys(&x, &t, j0, j0 + n);
    }
    for (int r = 0; r < 2; r++) {
        float seen = lse[r];
        O[r] = lse[r] = NAN;
        tiled_finish_row(&x, &t, r, r);
        near(&lse[r], &seen, 1);
    }
    near(O, O_, 2);
    check_gradients();
}
