/* The golden problems: what each of them is made of, and why it is hard. */
#include "tests/golden/golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- data: xorshift64*, so that nothing is shared with the fills of the harness ------------- */

static uint64_t state;

static double uniform(void) /* in (-1, 1), a multiple of 2^-20: exact in f32 */
{
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return ldexp((double)(int64_t)((state * 0x2545F4914F6CDD1Du) >> 43) - 0x1p20, -20);
}

static double draw(const struct golden *x) /* bell-shaped, variance 1 */
{
    double y = uniform() + uniform() + uniform();
    if (x->wide)
        y += ldexp(uniform(), -22) + ldexp(uniform(), -32); /* all of a double's bits */
    return x->wide ? y : (double)(float)y;
}

static double *fill(const struct golden *x, int64_t n)
{
    double *to = malloc((size_t)(n + 1) * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        to[i] = draw(x);
    return to;
}

/* What a value becomes when it is stored. */
static double kept(const struct golden *x, double y)
{
    return x->wide ? y : (double)(float)y;
}

/* Feature 0 carries a score: q_0 = a for all queries, k_0[j] = value / (scale a). */
static void steer(struct golden *x, double a, double (*value)(int64_t g, int64_t j))
{
    for (int64_t i = 0; i < x->B * x->H * x->Lq; i++)
        x->q[i * x->d] = a;
    for (int64_t j = 0; j < x->B * x->G * x->Lk; j++)
        x->k[j * x->d] = kept(x, value(j / x->Lk % x->G, j % x->Lk) / (x->scale * a));
}

static double minus_3e5(int64_t g, int64_t j)
{
    return -3e5 - (double)(j % 4) - (double)g;
}
static double plus_30000(int64_t g, int64_t j)
{
    return 30000 + (double)(j % 3) / 4 + (double)g;
}
static double stairs(int64_t g, int64_t j) /* up for one head, down for the other */
{
    return g == 0 ? 8 * (double)j : -8 * (double)j;
}
static double spike(int64_t g, int64_t j)
{
    return j == 3 + 2 * g ? 200 : 0;
}
static double gap_95(int64_t g, int64_t j)
{
    return j == g ? 0 : -95 - (double)(j % 3);
}
static double gap_720(int64_t g, int64_t j)
{
    return j == g ? 0 : -720 - (double)(j % 3);
}

static void offset_minus(struct golden *x)
{
    steer(x, 512, minus_3e5);
}
static void offset_plus(struct golden *x)
{
    steer(x, 256, plus_30000);
}
static void climb(struct golden *x)
{
    steer(x, 8, stairs);
}
static void peak(struct golden *x)
{
    steer(x, 16, spike);
}

/* The winner's V is 0 in feature 0: what is left there comes from subnormal probabilities. */
static void sink(struct golden *x, double (*value)(int64_t g, int64_t j))
{
    steer(x, 4, value);
    for (int64_t g = 0; g < x->G; g++)
        x->v[(g * x->Lk + g) * x->dv] = 0;
}
static void sink_f32(struct golden *x)
{
    sink(x, gap_95);
}
static void sink_f64(struct golden *x)
{
    sink(x, gap_720);
}

/* Keys come in equal pairs, their values +-1e4 and a little: O is the little. */
static void cancel_values(struct golden *x)
{
    for (int64_t j = 1; j < x->B * x->G * x->Lk; j += 2) {
        memcpy(x->k + j * x->d, x->k + (j - 1) * x->d, (size_t)x->d * sizeof(double));
        for (int64_t c = 0; c < x->dv; c++) {
            double big = kept(x, 1e4 * x->v[(j - 1) * x->dv + c]);
            x->v[(j - 1) * x->dv + c] = big;
            x->v[j * x->dv + c] = kept(x, x->v[j * x->dv + c] / 64 - big);
        }
    }
}

/* Features come in pairs whose products cancel: |q||k| is some 10^8, q.k is near 1. */
static void cancel_scores(struct golden *x)
{
    for (int64_t c = 0; c + 2 < x->d; c += 2) {
        for (int64_t i = 0; i < x->B * x->H * x->Lq; i++) {
            x->q[i * x->d + c] *= 0x1p13;
            x->q[i * x->d + c + 1] = x->q[i * x->d + c];
        }
        for (int64_t j = 0; j < x->B * x->G * x->Lk; j++) {
            x->k[j * x->d + c] *= 0x1p13;
            x->k[j * x->d + c + 1] = -x->k[j * x->d + c];
        }
    }
}

/* Small integers, every third key the same: exactly equal maxima. */
static void tie(struct golden *x)
{
    for (int64_t n = 0; n < x->B * x->H * x->Lq * x->d; n++)
        x->q[n] = 1 + (double)(n % 3);
    for (int64_t n = 0; n < x->B * x->G * x->Lk * x->d; n++)
        x->k[n] = n / x->d % 3 == 1 ? 8 : (double)(n / x->d % 5) - 6;
    for (int64_t n = 0; n < x->B * x->G * x->Lk * x->dv; n++)
        x->v[n] = fabs(x->v[n]);
}

static void flat(struct golden *x)
{
    for (int64_t n = 0; n < x->B * x->H * x->Lq * x->d; n++)
        x->q[n] = 0;
    for (int64_t n = 0; n < x->B * x->G * x->Lk * x->dv; n++)
        x->v[n] = kept(x, 0.1);
}

static void parallel_keys(struct golden *x)
{
    for (int64_t n = 0; n < x->B * x->G * x->Lk * x->d; n++)
        x->k[n] = kept(x, x->k[n] * 1e-4 + 1 + (double)(n % x->d) / 4);
}

/* A few cells of a shared bias are -inf: hidden, as arithmetic has it. */
static void minus_inf_bias(struct golden *x)
{
    for (int64_t n = 2; n < x->bias_axis[1] * x->bias_axis[3]; n += 5)
        x->bias[n] = -(double)INFINITY;
}

/* ---- masks, each a loop of its own ---------------------------------------------------------- */

static int causal_br(const struct golden *x, int64_t i, int64_t j)
{
    return j - (x->Lk - 1) <= i - (x->Lq - 1);
}
static int causal_tl(const struct golden *x, int64_t i, int64_t j)
{
    return x->Lk > 0 && j <= i;
}
static int window_2_0(const struct golden *x, int64_t i, int64_t j) /* itself and two before */
{
    int64_t own = i + x->Lk - x->Lq;
    return j == own || j == own - 1 || j == own - 2;
}
static int prefix_lm(const struct golden *x, int64_t i, int64_t j)
{
    return j < 3 || causal_br(x, i, j);
}

/* ---- the problems --------------------------------------------------------------------------- */

struct recipe {
    struct golden problem;
    void (*shape)(struct golden *x); /* changes the drawn data; NULL: none */
    int (*sees)(const struct golden *x, int64_t i, int64_t j); /* NULL: all, or drawn cells */
};

static const struct recipe recipes[] = {
    {{.name = "plain",
      .note = "nothing special, every extent another",
      .B = 2,
      .H = 2,
      .G = 2,
      .Lq = 7,
      .Lk = 9,
      .d = 5,
      .dv = 4,
      .wide = 1,
      .scale = 0.45,
      .mask = "none"},
     NULL,
     NULL},
    {{.name = "grouped-causal",
      .note = "six query heads on two kv heads, gradient through LSE",
      .B = 1,
      .H = 6,
      .G = 2,
      .Lq = 5,
      .Lk = 11,
      .d = 8,
      .dv = 6,
      .scale = 0.35,
      .mask = "causal(br)",
      .has_d_lse = 1},
     NULL,
     causal_br},
    {{.name = "offset-minus",
      .note = "every score near -3e5",
      .B = 1,
      .H = 2,
      .G = 2,
      .Lq = 6,
      .Lk = 13,
      .d = 4,
      .dv = 5,
      .scale = 1,
      .mask = "none"},
     offset_minus,
     NULL},
    {{.name = "offset-plus",
      .note = "every score near 30000: exp(s) overflows",
      .B = 1,
      .H = 4,
      .G = 2,
      .Lq = 5,
      .Lk = 9,
      .d = 4,
      .dv = 4,
      .wide = 1,
      .scale = 0.5,
      .mask = "none"},
     offset_plus,
     NULL},
    {{.name = "cancel-values",
      .note = "sums of +-1e4 that leave hundredths",
      .B = 1,
      .H = 2,
      .G = 1,
      .Lq = 6,
      .Lk = 12,
      .d = 6,
      .dv = 5,
      .scale = 0.4,
      .mask = "none"},
     cancel_values,
     NULL},
    {{.name = "cancel-scores",
      .note = "|q||k| some 1e8, q.k near 1",
      .B = 1,
      .H = 2,
      .G = 2,
      .Lq = 5,
      .Lk = 8,
      .d = 7,
      .dv = 3,
      .wide = 1,
      .scale = 1,
      .mask = "none"},
     cancel_scores,
     NULL},
    {{.name = "ties",
      .note = "exactly equal maxima",
      .B = 1,
      .H = 2,
      .G = 2,
      .Lq = 4,
      .Lk = 14,
      .d = 3,
      .dv = 4,
      .scale = 0.5,
      .mask = "none"},
     tie,
     NULL},
    {{.name = "stairs",
      .note = "scores climb, and for the second head fall, by 8 a key",
      .B = 1,
      .H = 2,
      .G = 2,
      .Lq = 4,
      .Lk = 36,
      .d = 3,
      .dv = 3,
      .scale = 1,
      .mask = "none"},
     climb,
     NULL},
    {{.name = "softcap",
      .note = "raw scores from 0 to ten times the cap",
      .B = 1,
      .H = 2,
      .G = 2,
      .Lq = 6,
      .Lk = 10,
      .d = 6,
      .dv = 4,
      .scale = 9,
      .softcap = 12,
      .mask = "none",
      .has_d_lse = 1},
     NULL,
     NULL},
    {{.name = "softcap-bias",
      .note = "softcap, then a full bias, its gradient, causal from the top "
              "left",
      .B = 2,
      .H = 2,
      .G = 1,
      .Lq = 7,
      .Lk = 6,
      .d = 4,
      .dv = 3,
      .scale = 0.9,
      .softcap = 2.5,
      .mask = "causal(tl)",
      .bias_axis = {2, 2, 7, 6}},
     NULL,
     causal_tl},
    {{.name = "alibi",
      .note = "fewer queries than keys, slopes that no short binary holds",
      .B = 1,
      .H = 4,
      .G = 4,
      .Lq = 5,
      .Lk = 9,
      .d = 4,
      .dv = 4,
      .scale = 0.5,
      .has_alibi = 1,
      .slope = {0.7, 0.3, 0.1, 2.3},
      .mask = "causal(br)"},
     NULL,
     causal_br},
    {{.name = "bias-shared",
      .note = "one bias for all batches and queries, cells of -inf, its "
              "gradient is a sum",
      .B = 2,
      .H = 2,
      .G = 2,
      .Lq = 6,
      .Lk = 8,
      .d = 4,
      .dv = 4,
      .wide = 1,
      .scale = 0.5,
      .mask = "none",
      .bias_axis = {1, 2, 1, 8},
      .has_d_lse = 1},
     minus_inf_bias,
     NULL},
    {{.name = "empty-rows",
      .note = "the first five queries see no key",
      .B = 1,
      .H = 2,
      .G = 1,
      .Lq = 12,
      .Lk = 7,
      .d = 5,
      .dv = 4,
      .scale = 0.5,
      .mask = "window(2,0,br)",
      .has_d_lse = 1},
     NULL,
     window_2_0},
    {{.name = "spike",
      .note = "one key at +200: gradients of what is left",
      .B = 1,
      .H = 2,
      .G = 2,
      .Lq = 5,
      .Lk = 9,
      .d = 4,
      .dv = 4,
      .wide = 1,
      .scale = 1,
      .mask = "none"},
     peak,
     NULL},
    {{.name = "flat",
      .note = "257 equal weights and values: the length of the sum",
      .B = 1,
      .H = 1,
      .G = 1,
      .Lq = 2,
      .Lk = 257,
      .d = 1,
      .dv = 1,
      .scale = 1,
      .mask = "none"},
     flat,
     NULL},
    {{.name = "subnormal-f32",
      .note = "O is made of probabilities near e^-95",
      .B = 1,
      .H = 2,
      .G = 2,
      .Lq = 4,
      .Lk = 7,
      .d = 3,
      .dv = 3,
      .scale = 1,
      .mask = "none"},
     sink_f32,
     NULL},
    {{.name = "subnormal-f64",
      .note = "O is made of probabilities near e^-720",
      .B = 1,
      .H = 2,
      .G = 2,
      .Lq = 4,
      .Lk = 7,
      .d = 3,
      .dv = 3,
      .wide = 1,
      .scale = 1,
      .mask = "none"},
     sink_f64,
     NULL},
    {{.name = "parallel-keys",
      .note = "keys that differ by 1e-4: dQ cancels",
      .B = 1,
      .H = 4,
      .G = 2,
      .Lq = 6,
      .Lk = 9,
      .d = 5,
      .dv = 4,
      .scale = 0.45,
      .mask = "causal(br)|prefix(3)"},
     parallel_keys,
     prefix_lm},
    {{.name = "cells",
      .note = "a mask drawn cell by cell, another for each batch and head",
      .B = 2,
      .H = 2,
      .G = 1,
      .Lq = 6,
      .Lk = 10,
      .d = 4,
      .dv = 3,
      .scale = 0.5,
      .mask = "dense(visible)"},
     NULL,
     NULL},
};

static void make_visible(struct golden *x, const struct recipe *r)
{
    int64_t n = 0;
    int drawn = strncmp(x->mask, "dense", 5) == 0;
    x->visible = malloc((size_t)(x->B * x->H * x->Lq * x->Lk + 1));
    for (int64_t bh = 0; bh < x->B * x->H; bh++)
        for (int64_t i = 0; i < x->Lq; i++)
            for (int64_t j = 0; j < x->Lk; j++)
                x->visible[n++] = drawn ? uniform() < 0.1 : r->sees == NULL || r->sees(x, i, j);
}

int golden_count(void)
{
    return (int)(sizeof recipes / sizeof *recipes);
}

void golden_make(int index, struct golden *x)
{
    const struct recipe *r = &recipes[index];
    const int64_t *n = r->problem.bias_axis;
    *x = r->problem;
    state = 0x9E3779B97F4A7C15u;
    for (const char *c = x->name; *c != '\0'; c++)
        state = (state ^ (unsigned char)*c) * 0x100000001B3u;
    x->q = fill(x, x->B * x->H * x->Lq * x->d);
    x->k = fill(x, x->B * x->G * x->Lk * x->d);
    x->v = fill(x, x->B * x->G * x->Lk * x->dv);
    x->d_o = fill(x, x->B * x->H * x->Lq * x->dv);
    x->d_lse = x->has_d_lse ? fill(x, x->B * x->H * x->Lq) : NULL;
    x->bias = n[0] > 0 ? fill(x, n[0] * n[1] * n[2] * n[3]) : NULL;
    x->alibi_offset = x->Lk - x->Lq; /* aligned at the last query and the last key */
    make_visible(x, r);
    if (r->shape != NULL)
        r->shape(x);
    golden_compute(x);
}
