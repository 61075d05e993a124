/* The parts that the textbooks share: the type of their arithmetic, rows, and the score of a pair.
 *
 * A textbook is written once, for a type called `real`.  It is compiled as float, and once more as
 * double by ref/textbook_f64.c.  Its passes get a suffix for the type, so that both stand in one
 * library: dense_forward is attn_dense_forward_f32 or _f64.  exp, log and tanh are those
 * of the type (tgmath.h).
 */
#ifndef REF_REAL_H
#define REF_REAL_H

#include <tgmath.h>

#include "ref/problem.h"
#include "ref/trace_step.h"

#ifdef ATTN_REAL_F64
typedef double real;
#define REAL_NAME(name) attn_##name##_f64
#else
typedef float real;
#define REAL_NAME(name) attn_##name##_f32
#endif

#define MINUS_INF ((real)-INFINITY)

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static inline real *row(struct attn_matrix x, int64_t i)
{
    return (real *)x.data + i * x.ld;
}

static inline void set_zero(real *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        x[c] = 0;
}

/* x . y in sixteen partial sums.  Written so because a compiler may not reorder one sum by
 * itself; sixteen independent ones it can keep in vector registers, and their error grows with
 * n / 16. */
static inline real dot(const real *restrict x, const real *restrict y, int64_t n)
{
    real part[16] = {0}, sum = 0;
    int64_t c = 0;
    for (; c + 16 <= n; c += 16)
        for (int t = 0; t < 16; t++)
            part[t] += x[c + t] * y[c + t];
    for (; c < n; c++)
        sum += x[c] * y[c];
    for (int width = 8; width > 0; width /= 2)
        for (int t = 0; t < width; t++)
            part[t] += part[t + width];
    return part[0] + sum;
}

/* y += a x */
static inline void axpy(real a, const real *restrict x, real *restrict y, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] += a * x[c];
}

/* x *= a */
static inline void multiply(real a, real *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        x[c] *= a;
}

/* ---- one pair ------------------------------------------------------------------------------ */

/* S_ij = cap tanh(scale qk / cap) + bias_ij, where qk = q_i . k_j; no tanh where there is no cap.
 * *slope is the derivative of S_ij with respect to qk: scale (1 - tanh^2).  It may be NULL: the
 * forward pass needs none. */
static inline real score(const struct attn_head *x, int64_t i, int64_t j, real qk, real *slope)
{
    const struct attn_problem *p = x->problem;
    real s = (real)p->scale * qk, ds = (real)p->scale;
    TRACE(x, "product", i, j, NUMBER("X", qk));
    if (p->softcap > 0) {
        real t = tanh(s / (real)p->softcap);
        s = (real)p->softcap * t;
        ds *= 1 - t * t; /* d (c tanh(s / c)) / ds */
    }
    if (slope != NULL)
        *slope = ds;
    if (p->bias.kind != ATTN_BIAS_NONE)
        s += (real)attn_problem_bias(p, x->b, x->h, i, j);
    return s;
}

/* D_i = sum_j P_ij dP_ij - dLSE_i, where dP_ij = dO_i . v_j.  The sum is dO_i . O_i, because
 * O_i = sum_j P_ij v_j. */
static inline real delta(const struct attn_head *x, int64_t i)
{
    real D = dot(row(x->dO, i), row(x->O, i), x->dv);
    D = x->dlse.data != NULL ? D - *row(x->dlse, i) : D;
    TRACE(x, "delta", i, 0, ROW("dO", row(x->dO, i), x->dv), ROW("O", row(x->O, i), x->dv),
          NUMBER("D", D));
    return D;
}

/* z, the score of the key of value 0 that every query sees; -inf where there is none. */
static inline real sink(const struct attn_head *x)
{
    return x->sink != NULL ? (real)*x->sink : MINUS_INF;
}

/* Forward was l_i = sum_j exp(S_ij) + exp(z), so the sink's P is exp(z - LSE_i).  Its dP is
 * dO_i . 0, and dS = P (dP - D_i): dz -= exp(z - LSE_i) D_i.  Where no key has weight (seen is 0) O
 * is 0, dO is not read, and D_i is -dLSE_i. */
static inline void dsink_add(const struct attn_head *x, int64_t i, real D, int seen)
{
    if (x->dsink == NULL || sink(x) == MINUS_INF)
        return;
    D = seen ? D : 0;
    if (!seen && x->dlse.data != NULL)
        D = -*row(x->dlse, i);
    real P = exp(sink(x) - *row(x->lse, i));
    *x->dsink -= (double)(P * D);
    TRACE(x, "dsink", i, 0, NUMBER("z", sink(x)), NUMBER("P", P), NUMBER("D", D));
}

/* Forward was S_ij = ... + bias_ij: dbias_ij += dS_ij, where that is asked for. */
static inline void dbias_add(const struct attn_head *x, int64_t i, int64_t j, real dS)
{
    if (x->dbias != NULL)
        attn_view_add(x->dbias, x->b, x->h, i, j, (double)dS);
}

/* ---- the names ----------------------------------------------------------------------------- */

#define dense_forward    REAL_NAME(dense_forward)
#define dense_backward   REAL_NAME(dense_backward)
#define csr_forward      REAL_NAME(csr_forward)
#define csr_backward     REAL_NAME(csr_backward)
#define tiled_forward    REAL_NAME(tiled_forward)
#define tiled_backward   REAL_NAME(tiled_backward)
#define ring_forward     REAL_NAME(ring_forward)
#define ring_backward    REAL_NAME(ring_backward)
#define ulysses_forward  REAL_NAME(ulysses_forward)
#define ulysses_backward REAL_NAME(ulysses_backward)

#endif
