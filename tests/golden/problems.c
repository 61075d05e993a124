/* The golden problems: what each of them is made of, and why it is hard. */
#include "tests/golden/golden.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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

/* The stored value. */
static double kept(const struct golden *x, double y)
{
    return x->wide ? y : (double)(float)y;
}

/* Feature 0 carries a score: q_0 = a for all queries, k_0[j] = score / (scale a). */
static void steer(struct golden *x, double a, double (*score)(int64_t g, int64_t j))
{
    for (int64_t i = 0; i < x->B * x->H * x->Lq; i++)
        x->q[i * x->d] = a;
    for (int64_t j = 0; j < x->B * x->G * x->Lk; j++)
        x->k[j * x->d] = kept(x, score(j / x->Lk % x->G, j % x->Lk) / (x->scale * a));
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

/* The winner's V is 0 in feature 0: what is left there comes from subnormal probabilities. */
static void sink(struct golden *x)
{
    for (int64_t g = 0; g < x->G; g++)
        x->v[(g * x->Lk + g) * x->dv] = 0;
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

/* Of extents: b2h2g2q7k9d5v4, as in a case string. */
struct recipe {
    const char *name, *extents, *note;
    double scale;
    const char *mask;
    int (*sees)(const struct golden *x, int64_t i, int64_t j); /* NULL: all, or drawn cells */
    void (*shape)(struct golden *x);       /* changes the drawn data; NULL: none */
    double (*score)(int64_t g, int64_t j); /* carried by feature 0, ... */
    double query;                          /* ... where queries hold this */
    int wide, has_d_lse;
    double softcap, slope[8];
    int64_t bias_axis[4];
    double sink[8];
};

static const struct recipe recipes[] = {
    {"plain", "b2h2g2q7k9d5v4", "nothing special, every extent another", 0.45, "none", .wide = 1},
    {"grouped-causal", "b1h6g2q5k11d8v6", "six query heads on two kv heads, gradient through LSE",
     0.35, "causal(br)", .sees = causal_br, .has_d_lse = 1},
    {"offset-minus", "b1h2g2q6k13d4v5", "every score near -3e5", 1, "none", .score = minus_3e5,
     .query = 512},
    {"offset-plus", "b1h4g2q5k9d4v4", "every score near 30000: exp(s) overflows", 0.5, "none",
     .score = plus_30000, .query = 256, .wide = 1},
    {"cancel-values", "b1h2g1q6k12d6v5", "sums of +-1e4 that leave hundredths", 0.4, "none",
     .shape = cancel_values},
    {"cancel-scores", "b1h2g2q5k8d7v3", "|q||k| some 1e8, q.k near 1", 1, "none",
     .shape = cancel_scores, .wide = 1},
    {"ties", "b1h2g2q4k14d3v4", "exactly equal maxima", 0.5, "none", .shape = tie},
    {"stairs", "b1h2g2q4k36d3v3", "scores climb, and for the second head fall, by 8 a key", 1,
     "none", .score = stairs, .query = 8},
    {"softcap", "b1h2g2q6k10d6v4", "raw scores from 0 to ten times the cap", 9, "none",
     .has_d_lse = 1, .softcap = 12},
    {"softcap-bias", "b2h2g1q7k6d4v3",
     "softcap, then a full bias, its gradient, causal from the top left", 0.9, "causal(tl)",
     .sees = causal_tl, .softcap = 2.5, .bias_axis = {2, 2, 7, 6}},
    {"alibi", "b1h4g4q5k9d4v4", "fewer queries than keys, slopes that no short binary holds", 0.5,
     "causal(br)", .sees = causal_br, .slope = {0.7, 0.3, 0.1, 2.3}},
    {"bias-shared", "b2h2g2q6k8d4v4",
     "one bias for all batches and queries, cells of -inf, its gradient is a sum", 0.5, "none",
     .shape = minus_inf_bias, .wide = 1, .has_d_lse = 1, .bias_axis = {1, 2, 1, 8}},
    {"empty-rows", "b1h2g1q12k7d5v4", "the first five queries see no key", 0.5, "window(2,0,br)",
     .sees = window_2_0, .has_d_lse = 1},
    {"spike", "b1h2g2q5k9d4v4", "one key at +200: gradients of what is left", 1, "none",
     .score = spike, .query = 16, .wide = 1},
    {"flat", "b1h1g1q2k257d1v1", "257 equal weights and values: the length of the sum", 1, "none",
     .shape = flat},
    {"subnormal-f32", "b1h2g2q4k7d3v3", "O is made of probabilities near e^-95", 1, "none",
     .score = gap_95, .query = 4, .shape = sink},
    {"subnormal-f64", "b1h2g2q4k7d3v3", "O is made of probabilities near e^-720", 1, "none",
     .score = gap_720, .query = 4, .shape = sink, .wide = 1},
    {"parallel-keys", "b1h4g2q6k9d5v4", "keys that differ by 1e-4: dQ cancels", 0.45,
     "causal(br)|prefix(3)", .sees = prefix_lm, .shape = parallel_keys},
    {"cells", "b2h2g1q6k10d4v3", "a mask drawn cell by cell, another for each batch and head", 0.5,
     "dense(visible)", .sees = NULL},
    {"learned-sinks", "b2h4g2q8k6d5v4",
     "sinks among the scores, far above, below, none; the first two queries see no key", 0.5,
     "causal(br)", .sees = causal_br, .has_d_lse = 1, .sink = {0.75, 95, -3.5, -(double)INFINITY}},
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
    const int64_t *n = x->bias_axis;
    *x = (struct golden){.name = r->name,
                         .note = r->note,
                         .wide = r->wide,
                         .scale = r->scale,
                         .softcap = r->softcap,
                         .mask = r->mask,
                         .has_alibi = r->slope[0] != 0,
                         .has_d_lse = r->has_d_lse};
    if (sscanf(r->extents,
               "b%" SCNd64 "h%" SCNd64 "g%" SCNd64 "q%" SCNd64 "k%" SCNd64 "d%" SCNd64 "v%" SCNd64,
               &x->B, &x->H, &x->G, &x->Lq, &x->Lk, &x->d, &x->dv) != 7)
        abort();
    memcpy(x->slope, r->slope, sizeof x->slope);
    memcpy(x->bias_axis, r->bias_axis, sizeof x->bias_axis);
    state = 0x9E3779B97F4A7C15u;
    for (const char *c = x->name; *c != '\0'; c++)
        state = (state ^ (unsigned char)*c) * 0x100000001B3u;
    x->q = fill(x, x->B * x->H * x->Lq * x->d);
    x->k = fill(x, x->B * x->G * x->Lk * x->d);
    x->v = fill(x, x->B * x->G * x->Lk * x->dv);
    x->d_o = fill(x, x->B * x->H * x->Lq * x->dv);
    x->d_lse = x->has_d_lse ? fill(x, x->B * x->H * x->Lq) : NULL;
    x->bias = n[0] > 0 ? fill(x, n[0] * n[1] * n[2] * n[3]) : NULL;
    x->sink = r->sink[0] != 0 ? calloc((size_t)x->H, sizeof *x->sink) : NULL;
    for (int64_t h = 0; h < x->H && x->sink != NULL; h++)
        x->sink[h] = r->sink[h];
    x->alibi_offset = x->Lk - x->Lq; /* aligned at the last query and the last key */
    make_visible(x, r);
    if (r->score != NULL)
        steer(x, r->query, r->score);
    if (r->shape != NULL)
        r->shape(x);
    golden_compute(x);
}
