/* Lab 08, a solution: rows are taken one at a time, so that a rank has nothing but its pairs and
 * one row of scores.  TASK_LSE and TASK_CAUSAL are the conventions of a task (attnlab grade 08
 * --seed NAME). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/attn_plugin.h"

#ifndef TASK_LSE
#define TASK_LSE    ATTN_PLUGIN_LSE_E
#define TASK_CAUSAL ATTN_PLUGIN_CAUSAL_ANY
#endif

enum { RANKS = 4 };

/* LSE of the task is this many times the natural one. */
static const float lse_unit = TASK_LSE == ATTN_PLUGIN_LSE_2 ? 1.44269504f : 1;

/* K and V of one rank, [B,G,n,d] and [B,G,n,dv]; or their gradients. */
struct pair {
    float *k, *v;
};

/* One rank in a pass. */
struct ring {
    const struct attn_plugin_rank *rank;
    const struct attn_plugin_call *t;
    int64_t rows;         /* of K, and of V */
    struct pair space[4]; /* two for K, V of other ranks, two for the sums */
    float *s, *o;         /* one row: scores of a block [n_key], O of a block [dv] */
};

static int open_ring(struct ring *x, const struct attn_plugin_rank *rank, int pairs)
{
    const struct attn_plugin_call *t = rank->call;
    *x = (struct ring){.rank = rank, .t = t, .rows = t->batch * t->kv_heads * t->n_key};
    int64_t numbers = x->rows * (t->d_key + t->d_value);
    float *all = malloc((size_t)(pairs * numbers + t->n_key + t->d_value + 1) * sizeof *all);
    for (int n = 0; n < pairs && all != NULL; n++)
        x->space[n] = (struct pair){all + n * numbers, all + n * numbers + x->rows * t->d_key};
    x->s = all != NULL ? all + pairs * numbers : NULL;
    x->o = all != NULL ? x->s + t->n_key : NULL;
    return all != NULL;
}

static void close_ring(struct ring *x)
{
    free(x->space[0].k);
}

/* ---- a hop ----------------------------------------------------------------------------------- */

/* k: ATTN_PLUGIN_OF_K, or ATTN_PLUGIN_OF_DK of sums; that of V is the next. */
static int post_hop(const struct ring *x, int k, int s, struct pair leaves, struct pair comes)
{
    const struct attn_plugin_rank *r = x->rank;
    int32_t next = (r->rank + 1) % r->ranks, previous = (r->rank + r->ranks - 1) % r->ranks;
    int64_t k_bytes = x->rows * x->t->d_key * (int64_t)sizeof(float);
    int64_t v_bytes = x->rows * x->t->d_value * (int64_t)sizeof(float);
    const struct attn_plugin_message send[] = {{next, k, s, leaves.k, k_bytes},
                                               {next, k + 1, s, leaves.v, v_bytes}};
    const struct attn_plugin_message receive[] = {{previous, k, s, comes.k, k_bytes},
                                                  {previous, k + 1, s, comes.v, v_bytes}};
    return r->post(r, send, 2, receive, 2);
}

/* ---- one row and one block ------------------------------------------------------------------- */

static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

static void axpy(float a, const float *x, float *y, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] += a * x[c];
}

/* Places in the whole sequence: the mask speaks of those. */
static int sees(const struct ring *x, int J, int64_t i, int64_t j)
{
    const struct attn_plugin_call *t = x->t;
    int64_t query = x->rank->first_query + i, key = J * t->n_key + j;
    int64_t distance = key - query - t->offset;
    return !t->banded || ((t->window_left < 0 || distance >= -t->window_left) &&
                          (t->window_right < 0 || distance <= t->window_right));
}

/* Where kv head g of batch b begins in a pair. */
static struct pair head_of(const struct ring *x, struct pair all, int64_t b, int64_t h)
{
    const struct attn_plugin_call *t = x->t;
    int64_t g = b * t->kv_heads + h / (t->heads / t->kv_heads);
    return (struct pair){all.k + g * t->n_key * t->d_key, all.v + g * t->n_key * t->d_value};
}

/* Scores of row i against block J into x->s; -inf where the mask hides. */
static void score(const struct ring *x, int J, struct pair keys, const float *q, int64_t i)
{
    for (int64_t j = 0; j < x->t->n_key; j++)
        x->s[j] = sees(x, J, i, j)
                      ? (float)x->t->scale * dot(q, keys.k + j * x->t->d_key, x->t->d_key)
                      : -INFINITY;
}

/* O of this block into x->o, and its LSE: natural. */
static float attend(const struct ring *x, struct pair keys)
{
    const struct attn_plugin_call *t = x->t;
    float m = -INFINITY, l = 0;
    memset(x->o, 0, (size_t)t->d_value * sizeof *x->o);
    for (int64_t j = 0; j < t->n_key; j++)
        m = fmaxf(m, x->s[j]);
    if (m == -INFINITY)
        return m;
    for (int64_t j = 0; j < t->n_key; j++)
        l += x->s[j] = expf(x->s[j] - m);
    for (int64_t j = 0; j < t->n_key; j++)
        if (x->s[j] > 0)
            axpy(x->s[j] / l, keys.v + j * t->d_value, x->o, t->d_value);
    return m + logf(l);
}

/* (o, lse) with (part, part_lse).  The weights are divided by their sum. */
static void merge(float *o, float *lse, const float *part, float part_lse, int64_t dv)
{
    float m = fmaxf(*lse, part_lse);
    if (m == -INFINITY)
        return;
    float a = expf(*lse - m), b = expf(part_lse - m), sum = a + b;
    for (int64_t c = 0; c < dv; c++)
        o[c] = (a * o[c] + b * part[c]) / sum;
    *lse = m + logf(sum);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* All rows against block J. */
static void add_block(const struct ring *x, int J, struct pair keys)
{
    const struct attn_plugin_call *t = x->t;
    for (int64_t r = 0; r < t->batch * t->heads * t->n_query; r++) {
        int64_t b = r / t->n_query / t->heads, h = r / t->n_query % t->heads;
        struct pair head = head_of(x, keys, b, h);
        score(x, J, head, (const float *)t->q.data + r * t->d_key, r % t->n_query);
        float lse = attend(x, head);
        merge((float *)t->o.data + r * t->d_value, (float *)t->lse.data + r, x->o, lse, t->d_value);
    }
}

static struct pair own_keys(const struct ring *x)
{
    union { /* a message's data is not const; a send only reads it */
        const void *in;
        float *out;
    } k = {x->t->k.data}, v = {x->t->v.data};
    return (struct pair){k.out, v.out};
}

static int rank_forward(const struct attn_plugin_rank *rank)
{
    const struct attn_plugin_call *t = rank->call;
    struct ring x;
    int failed = !open_ring(&x, rank, 2);
    struct pair here = own_keys(&x);
    for (int64_t r = 0; r < t->batch * t->heads * t->n_query; r++)
        ((float *)t->lse.data)[r] = -INFINITY;
    memset(t->o.data, 0, (size_t)(t->batch * t->heads * t->n_query * t->d_value) * sizeof(float));
    for (int s = 0; s < rank->ranks && !failed; s++) {
        struct pair next = x.space[s % 2];
        int J = (rank->rank - s + rank->ranks) % rank->ranks, travels = s < rank->ranks - 1;
        int post = travels ? post_hop(&x, ATTN_PLUGIN_OF_K, s, here, next) : 0;
        if (post >= 0)
            add_block(&x, J, here);
        failed = post < 0 || (travels && rank->wait(rank, post) != 0);
        here = next;
    }
    for (int64_t r = 0; r < t->batch * t->heads * t->n_query; r++)
        ((float *)t->lse.data)[r] *= lse_unit;
    close_ring(&x);
    return failed ? ATTN_PLUGIN_FAILED : ATTN_PLUGIN_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Of row r against block J: its part of dQ, and what it adds to dK_J and dV_J.  LSE and D are those
 * of the whole row. */
static void add_gradients(const struct ring *x, int64_t r, int J, struct pair keys,
                          struct pair sums)
{
    const struct attn_plugin_call *t = x->t;
    int64_t d = t->d_key, dv = t->d_value;
    const float *q = (const float *)t->q.data + r * d, *o = (const float *)t->o_in.data + r * dv;
    const float *d_o = (const float *)t->d_o.data + r * dv;
    float *dq = (float *)t->dq.data + r * d, D = dot(d_o, o, dv);
    float lse = ((const float *)t->lse_in.data)[r] / lse_unit;
    score(x, J, keys, q, r % t->n_query);
    for (int64_t j = 0; j < t->n_key; j++) {
        if (x->s[j] == -INFINITY)
            continue;
        float p = expf(x->s[j] - lse), dp = dot(d_o, keys.v + j * dv, dv);
        float ds = (float)t->scale * p * (dp - D);
        axpy(ds, keys.k + j * d, dq, d);
        axpy(ds, q, sums.k + j * d, d);
        axpy(p, d_o, sums.v + j * dv, dv);
    }
}

static int rank_backward(const struct attn_plugin_rank *rank)
{
    const struct attn_plugin_call *t = rank->call;
    const int64_t rows = t->batch * t->heads * t->n_query;
    struct ring x;
    int failed = !open_ring(&x, rank, 4);
    const struct pair home = {t->dk.data, t->dv.data};
    struct pair here = own_keys(&x), sums = x.space[2];
    memset(t->dq.data, 0, (size_t)(rows * t->d_key) * sizeof(float));
    if (!failed)
        memset(sums.k, 0, (size_t)(x.rows * (t->d_key + t->d_value)) * sizeof(float));
    for (int s = 0; s < rank->ranks && !failed; s++) {
        int J = (rank->rank - s + rank->ranks) % rank->ranks, travels = s < rank->ranks - 1;
        struct pair next = x.space[s % 2], next_sums = travels ? x.space[3 - s % 2] : home;
        int post = travels ? post_hop(&x, ATTN_PLUGIN_OF_K, s, here, next) : 0;
        for (int64_t r = 0; r < rows && post >= 0; r++) {
            int64_t b = r / t->n_query / t->heads, h = r / t->n_query % t->heads;
            add_gradients(&x, r, J, head_of(&x, here, b, h), head_of(&x, sums, b, h));
        }
        failed = post < 0 || (travels && rank->wait(rank, post) != 0);
        if (!failed) /* the sums follow their keys; the last hop brings them home */
            failed = rank->wait(rank, post_hop(&x, ATTN_PLUGIN_OF_DK, s, sums, next_sums)) != 0;
        here = next;
        sums = next_sums;
    }
    close_ring(&x);
    return failed ? ATTN_PLUGIN_FAILED : ATTN_PLUGIN_OK;
}

const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin ring = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof ring,
        .name = "lab-08",
        .claims = ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV |
                  ATTN_CAP_SCALE | ATTN_CAP_CAUSAL,
        .lse = TASK_LSE,
        .causal = TASK_CAUSAL,
        .ranks = RANKS,
        .rank_forward = rank_forward,
        .rank_backward = rank_backward,
    };
    return &ring;
}
