/* Relations that attention obeys whatever the numbers are, asked of the oracle.  First to a few
 * roundings of double, which is 2^29 times sharper than what float implementations are held to:
 * derivatives by differences (G8), identities of gradients (G1 to G4), changes of the inputs (R1,
 * R2, R5, R8).  Then all that implementations must meet, under their own bounds. */

#include <math.h>
#include <string.h>

#include "ref/textbook.h"
#include "tests/fixtures/oracle_fixture.h"
#include "tests/harness/fill.h"
#include "tests/harness/relations/relations.h"
#include "tests/suites.h"

SUITE(oracle, .seconds = 120);

static const double U = 0x1p-53; /* of double */

static const struct fixture_shape shapes[] = {
    {2, 4, 2, 7, 11, 6, 5, NULL, 0.4, 0, ATTN_BIAS_NONE, 0},
    {1, 4, 2, 12, 9, 5, 8, "causal(br)", 0.5, 0, ATTN_BIAS_NONE, 0},
    {2, 2, 2, 10, 14, 4, 4, "window(4,2,br)", 0.9, 0, ATTN_BIAS_NONE, 0},
    {1, 2, 1, 9, 12, 8, 3, "random(0.5,3,heads)", 0.3, 0, ATTN_BIAS_TENSOR, 0},
    {1, 4, 4, 8, 13, 4, 6, "causal(tl)", 0.6, 0, ATTN_BIAS_ALIBI, 0},
};

static double sum_of(const double *x, const double *y, int64_t n)
{
    long double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (long double)x[i] * (long double)y[i];
    return (double)sum;
}

static double size_of(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += fabs(x[i] * y[i]);
    return sum;
}

static const double *gauge(const struct fixture *x, enum attn_output output)
{
    return x->truth.tensor[output].gauge;
}

/* ---- G8: derivatives ------------------------------------------------------------------------ */

enum input { AT_Q, AT_K, AT_V, AT_BIAS, INPUTS };

static double *input_of(struct fixture *x, enum input at)
{
    double *const list[INPUTS] = {x->q, x->k, x->v, x->bias};
    return list[at];
}

/* L = <dO, O> + <dLSE, LSE>, at input + step * direction. */
static double loss(struct fixture *x, enum input at, const double *direction, double step,
                   int64_t n)
{
    double *in = input_of(x, at), kept[LAB_MOST];
    memcpy(kept, in, (size_t)n * sizeof *in);
    for (int64_t i = 0; i < n; i++)
        in[i] += step * direction[i];
    fixture_run(x, ATTN_F64);
    memcpy(in, kept, (size_t)n * sizeof *in);
    long double sum = (long double)sum_of(x->d_o, x->o, fixture_size(x, ATTN_O));
    for (int64_t r = 0; r < fixture_size(x, ATTN_LSE) && x->has_d_lse; r++)
        if (isfinite(x->lse[r]))
            sum += (long double)x->d_lse[r] * (long double)x->lse[r];
    return (double)sum;
}

/* The derivative of L along five seeded directions for each input is <gradient, direction>.  The
 * four-point difference errs by h^4 L'''''/30 and by u |L| / h: 1e-9 of the sizes covers both. */
TEST_EACH(derivatives, COUNT(shapes))
{
    static const enum attn_output gradient[INPUTS] = {ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DBIAS};
    static const double softcap[] = {0, 2};
    const double h = 0x1p-10;
    struct fixture_shape s = shapes[_i];
    s.d_lse = 1;
    for (int cap = 0; cap < 2; cap++) {
        s.softcap = softcap[cap];
        struct fixture *x = fixture_open(&s, 100 + (uint64_t)_i);
        for (int at = 0; at < INPUTS; at++) {
            double grad[LAB_MOST], v[LAB_MOST];
            fixture_run(x, ATTN_F64);
            int64_t n = fixture_size(x, gradient[at]);
            ck_assert(n > 0 || (at == AT_BIAS && s.bias != ATTN_BIAS_TENSOR));
            if (n > 0)
                memcpy(grad, x->truth.tensor[gradient[at]].want, (size_t)n * sizeof *grad);
            for (uint64_t direction = 0; direction < 5 && n > 0; direction++) {
                for (int64_t i = 0; i < n; i++)
                    v[i] = attn_hash_normal(200 + direction, (uint64_t)at, (uint64_t)i);
                enum input in = (enum input)at;
                double near = loss(x, in, v, h, n) - loss(x, in, v, -h, n);
                double far = loss(x, in, v, 2 * h, n) - loss(x, in, v, -2 * h, n);
                fixture_near("derivative", at, (8 * near - far) / (12 * h), sum_of(grad, v, n),
                             1e-9 * (1 + size_of(grad, v, n)));
            }
        }
        fixture_close(x);
    }
}

/* ---- G1 to G4 ------------------------------------------------------------------------------- */

/* G1: sum_j dS_ij = 0, so dK sums to 0 over the keys, and dBias over a row.
 * G2: sum_j dV_j = sum_i dO_i over the rows that see a key.
 * G3: <dO, O> = <V, dV>, because O is linear in V.
 * G4: <q, dQ> = <k, dK> = sum of dS times the raw score, without bias and with one. */
TEST_EACH(identities, COUNT(shapes))
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct fixture *x = fixture_open(&shapes[_i], 300 + seed);
        fixture_run(x, seed % 2 ? ATTN_F32 : ATTN_F64);
        const struct attn_problem *p = &x->p;
        int64_t d = p->d_key, dv = p->d_value, k = p->n_key, group = p->heads / p->kv_heads;
        for (int64_t kv = 0; kv < p->batch * p->kv_heads; kv++) {
            for (int64_t c = 0; c < d; c++) {
                double sum = 0, size = 0;
                for (int64_t j = 0; j < k; j++) {
                    sum += x->dk[(kv * k + j) * d + c];
                    size += gauge(x, ATTN_DK)[(kv * k + j) * d + c];
                }
                fixture_near("G1", c, sum, 0, 32 * U * size);
            }
            for (int64_t c = 0; c < dv; c++) {
                double left = 0, right = 0, size = 0;
                for (int64_t j = 0; j < k; j++) {
                    left += x->dv[(kv * k + j) * dv + c];
                    size += gauge(x, ATTN_DV)[(kv * k + j) * dv + c];
                }
                for (int64_t r = kv * group * p->n_query; r < (kv + 1) * group * p->n_query; r++)
                    if (isfinite(x->lse[r]))
                        right += x->d_o[r * dv + c];
                fixture_near("G2", c, left, right, 32 * U * size);
            }
        }
        for (int64_t r = 0; r < fixture_size(x, ATTN_DBIAS) / k; r++) {
            double sum = 0, size = 0;
            for (int64_t j = 0; j < k; j++) {
                sum += x->d_bias[r * k + j];
                size += gauge(x, ATTN_DBIAS)[r * k + j];
            }
            fixture_near("G1 of dbias", r, sum, 0, 32 * U * size);
        }
        fixture_near("G3", 0, sum_of(x->d_o, x->o, fixture_size(x, ATTN_O)),
                     sum_of(x->v, x->dv, fixture_size(x, ATTN_DV)),
                     32 * U * size_of(x->v, gauge(x, ATTN_DV), fixture_size(x, ATTN_DV)));
        fixture_near("G4", 0, sum_of(x->q, x->dq, fixture_size(x, ATTN_DQ)),
                     sum_of(x->k, x->dk, fixture_size(x, ATTN_DK)),
                     32 * U * size_of(x->q, gauge(x, ATTN_DQ), fixture_size(x, ATTN_DQ)));
        fixture_close(x);
    }
}

/* ---- R1, far away --------------------------------------------------------------------------- */

/* R1: a constant added to all scores of a row moves its LSE and nothing else. */
TEST_EACH(shifted_rows, 2)
{
    const struct fixture_shape s = {2, 2, 1, 6, 10, 4, 3, "causal(br)", 0.5, 0, ATTN_BIAS_TENSOR,
                                    1};
    static const double shift[] = {1, -7, 100, -3e4, 3e5};
    for (size_t n = 0; n < sizeof shift / sizeof *shift; n++) {
        struct fixture *x = fixture_open(&s, 400), *y = fixture_open(&s, 400);
        for (int64_t i = 0; i < 2 * 2 * 6 * 10; i++)
            y->bias[i] += shift[n];
        fixture_run(x, _i ? ATTN_F64 : ATTN_F32);
        fixture_run(y, _i ? ATTN_F64 : ATTN_F32);
        double grown = 64 * U * (1 + fabs(shift[n]));
        for (int64_t r = 0; r < fixture_size(x, ATTN_LSE); r++)
            fixture_near("lse", r, y->lse[r], x->lse[r] + shift[n], grown);
        for (int o = 0; o < ATTN_OUTPUTS; o++)
            for (int64_t i = 0; i < fixture_size(x, (enum attn_output)o) && o != ATTN_LSE; i++)
                fixture_near(attn_output_name((enum attn_output)o), i, y->truth.tensor[o].want[i],
                             x->truth.tensor[o].want[i], grown * gauge(x, (enum attn_output)o)[i]);
        fixture_close(x);
        fixture_close(y);
    }
}

/* ---- R2, R5, R8: to a few roundings of double ------------------------------------------------ */

/* R2: keys in another order, with their V and their columns of the bias. */
TEST_EACH(permuted_keys, 2)
{
    const struct fixture_shape s = {1, 2, 1, 7, 13, 5, 4, NULL, 0.7, 0, ATTN_BIAS_TENSOR, 0};
    struct fixture *x = fixture_open(&s, 410), *y = fixture_open(&s, 410);
    int64_t to[13];
    for (int64_t j = 0; j < 13; j++) {
        to[j] = (5 * j + 3) % 13;
        memcpy(y->k + to[j] * 5, x->k + j * 5, 5 * sizeof *x->k);
        memcpy(y->v + to[j] * 4, x->v + j * 4, 4 * sizeof *x->v);
        for (int64_t r = 0; r < 2 * 7; r++)
            y->bias[r * 13 + to[j]] = x->bias[r * 13 + j];
    }
    fixture_run(x, _i ? ATTN_F64 : ATTN_F32);
    fixture_run(y, _i ? ATTN_F64 : ATTN_F32);
    for (int64_t n = 0; n < fixture_size(x, ATTN_O); n++)
        fixture_near("o", n, y->o[n], x->o[n], 8 * U * gauge(x, ATTN_O)[n]);
    for (int64_t n = 0; n < fixture_size(x, ATTN_DQ); n++)
        fixture_near("dq", n, y->dq[n], x->dq[n], 8 * U * gauge(x, ATTN_DQ)[n]);
    for (int64_t n = 0; n < fixture_size(x, ATTN_LSE); n++)
        fixture_near("lse", n, y->lse[n], x->lse[n], 8 * U * gauge(x, ATTN_LSE)[n]);
    for (int64_t n = 0; n < 13 * 5; n++)
        fixture_near("dk", n, y->dk[to[n / 5] * 5 + n % 5], x->dk[n], 8 * U * gauge(x, ATTN_DK)[n]);
    for (int64_t n = 0; n < 13 * 4; n++)
        fixture_near("dv", n, y->dv[to[n / 4] * 4 + n % 4], x->dv[n], 8 * U * gauge(x, ATTN_DV)[n]);
    fixture_close(x);
    fixture_close(y);
}

/* R5: every key twice: O and dQ stay, LSE gains ln 2, and each twin has half the gradient. */
TEST_EACH(doubled_keys, 2)
{
    const struct fixture_shape s = {1, 3, 3, 6, 8, 5, 4, NULL, 0.7, 3, ATTN_BIAS_NONE, 1};
    struct fixture_shape doubled = s;
    doubled.k = 16;
    struct fixture *x = fixture_open(&s, 420), *y = fixture_open(&doubled, 420);
    for (int64_t kv = 0; kv < 3; kv++)
        for (int64_t j = 0; j < 16; j++) {
            memcpy(y->k + (kv * 16 + j) * 5, x->k + (kv * 8 + j / 2) * 5, 5 * sizeof *x->k);
            memcpy(y->v + (kv * 16 + j) * 4, x->v + (kv * 8 + j / 2) * 4, 4 * sizeof *x->v);
        }
    fixture_run(x, _i ? ATTN_F64 : ATTN_F32);
    fixture_run(y, _i ? ATTN_F64 : ATTN_F32);
    for (int64_t n = 0; n < fixture_size(x, ATTN_LSE); n++)
        fixture_near("lse", n, y->lse[n], x->lse[n] + log(2), 8 * U * gauge(x, ATTN_LSE)[n]);
    for (int64_t n = 0; n < fixture_size(x, ATTN_O); n++)
        fixture_near("o", n, y->o[n], x->o[n], 8 * U * gauge(x, ATTN_O)[n]);
    for (int64_t n = 0; n < fixture_size(x, ATTN_DQ); n++)
        fixture_near("dq", n, y->dq[n], x->dq[n], 8 * U * gauge(x, ATTN_DQ)[n]);
    for (int64_t kv = 0; kv < 3; kv++)
        for (int64_t j = 0; j < 16; j++)
            for (int64_t c = 0; c < 4; c++) {
                int64_t n = (kv * 8 + j / 2) * 4 + c;
                fixture_near("dv", n, y->dv[(kv * 16 + j) * 4 + c], x->dv[n] / 2,
                             8 * U * gauge(x, ATTN_DV)[n]);
            }
    fixture_close(x);
    fixture_close(y);
}

/* R8: O(a V + b W) = a O(V) + b O(W); for a power of two alone, bit for bit. */
TEST_EACH(linear_in_v, 2)
{
    const struct fixture_shape s = {2, 2, 1, 6, 9, 4, 5, "causal(br)", 0.8, 0, ATTN_BIAS_ALIBI, 0};
    struct fixture *x = fixture_open(&s, 430), *w = fixture_open(&s, 430),
                   *both = fixture_open(&s, 430);
    struct fixture *scaled = fixture_open(&s, 430);
    for (int64_t n = 0; n < 2 * 9 * 5; n++) {
        w->v[n] = (double)(float)attn_hash_normal(431, 0, (uint64_t)n);
        both->v[n] = _i ? 0.75 * x->v[n] - 3 * w->v[n] : x->v[n] / 4 + w->v[n] / 8;
        scaled->v[n] = x->v[n] * 0x1p-20;
    }
    fixture_run(x, ATTN_F64);
    fixture_run(w, ATTN_F64);
    fixture_run(both, ATTN_F64);
    fixture_run(scaled, _i ? ATTN_F64 : ATTN_F32);
    double a = _i ? 0.75 : 0.25, b = _i ? -3 : 0.125;
    for (int64_t n = 0; n < fixture_size(x, ATTN_O); n++)
        fixture_near("o", n, both->o[n], a * x->o[n] + b * w->o[n],
                     8 * U * (gauge(x, ATTN_O)[n] + 3 * gauge(w, ATTN_O)[n]));
    fixture_run(x, _i ? ATTN_F64 : ATTN_F32);
    for (int64_t n = 0; n < fixture_size(x, ATTN_O); n++)
        ck_assert(scaled->o[n] == x->o[n] * 0x1p-20);
    for (int64_t n = 0; n < fixture_size(x, ATTN_LSE); n++)
        ck_assert(scaled->lse[n] == x->lse[n]);
    fixture_close(x);
    fixture_close(w);
    fixture_close(both);
    fixture_close(scaled);
}

/* ---- all relations --------------------------------------------------------------------------- */

/* The oracle as an implementation: its answers, rounded to the type of the problem. */
static enum attn_status answer(struct attn_ctx *ctx, const struct attn_problem *p,
                               const struct attn_inputs *in,
                               const struct attn_view *const output[ATTN_OUTPUTS])
{
    const struct attn_options options = {.threads = 1};
    struct attn_precision precision;
    struct attn_truth truth;
    attn_precision_of(&attn_impl_dense, &options, p, &precision);
    enum attn_status status = attn_truth_compute(p, in, &precision, NULL, &truth, ctx->error);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++) {
        if (output[o] == NULL || output[o]->data == NULL)
            continue;
        struct attn_tensor to = {.dtype = output[o]->dtype, .data = output[o]->data};
        memcpy(to.stride, output[o]->stride, sizeof to.stride);
        int64_t at[4] = ATTN_START;
        for (int64_t n = 0; attn_each(at, truth.tensor[o].extent); n++)
            attn_tensor_set(&to, at[0], at[1], at[2], at[3], truth.tensor[o].want[n]);
    }
    attn_truth_free(&truth);
    return status;
}

static enum attn_status oracle_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_forward *t)
{
    const struct attn_inputs in = {.q = t->q, .k = t->k, .v = t->v};
    return answer(ctx, p, &in, (const struct attn_view *const[ATTN_OUTPUTS]){&t->o, &t->lse});
}

static enum attn_status oracle_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_backward *t)
{
    const struct attn_inputs in = {.q = t->q,
                                   .k = t->k,
                                   .v = t->v,
                                   .d_o = t->d_o,
                                   .d_lse = t->d_lse,
                                   .want_d_bias = t->dbias.data != NULL};
    return answer(ctx, p, &in,
                  (const struct attn_view *const[ATTN_OUTPUTS]){NULL, NULL, &t->dq, &t->dk, &t->dv,
                                                                &t->dbias});
}

static enum attn_status oracle_cost(const struct attn_problem *p,
                                    const struct attn_options *options, enum attn_pass pass,
                                    int rank, struct attn_cost *cost, struct attn_error *err)
{
    (void)p, (void)options, (void)pass, (void)rank, (void)cost, (void)err;
    return ATTN_OK; /* nothing of the ledger's */
}

/* Each relation that implementations must meet (tests/harness/relations), in double (f32) and in
 * long double (f64). */
TEST_EACH(relations, 2)
{
    enum { ALL = (ATTN_CAP_STRIDES << 1) - 1 };
    struct attn_impl oracle = {.name = "oracle",
                               .summary = "the oracle itself",
                               .family = "test",
                               .caps = ALL & ~(_i ? ATTN_CAP_F32 : ATTN_CAP_F64),
                               .cost = oracle_cost,
                               .forward = oracle_forward,
                               .backward = oracle_backward};
    const struct attn_spec spec = {.impl = &oracle, .options = {.threads = 1}};
    for (int n = 0; n < attn_relation_count(); n++) {
        const struct attn_relation *relation = attn_relation_at(n);
        const char *id = relation->id;
        struct attn_result r;
        attn_relation_run(relation, &spec, &r);
        int no_options = strcmp(id, "R17") == 0, no_f64 = strcmp(id, "G8") == 0 && !_i;
        ck_assert_msg(r.verdict == (no_options || no_f64 ? ATTN_REFUSED : ATTN_PASS), "%s: %s", id,
                      r.text);
    }
}
