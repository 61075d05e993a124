/* The truth and its bounds for whole tensors: one pass over the query rows, which feeds O, LSE and
 * dQ directly and collects dK, dV and dBias.
 *
 * The rows of one kv head are worked out in order, by one thread; what other heads do does not
 * reach them.  So every sum has one order, and the bits are the same for any number of threads. */
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ref/impl.h"
#include "ref/problem.h"
#include "tests/harness/bound/classes.h"
#include "tests/harness/bound/kept.h"
#include "tests/harness/bound/truth_sum.h"

/* The type in which a problem stores an output. */
static enum attn_dtype storage_of(const struct attn_problem *p, enum attn_output output)
{
    if (output == ATTN_DBIAS || output == ATTN_DSINK)
        return output == ATTN_DBIAS ? p->bias.tensor.dtype : p->sink.tensor.dtype;
    return output == ATTN_LSE ? attn_lse_dtype(p) : attn_result_dtype(p);
}

/* ---- one row at a time -------------------------------------------------------------------- */

struct work {
    /* the same for all threads */
    const struct attn_problem *p;
    const struct attn_inputs *in;
    const struct attn_precision *a;
    const struct attn_sample *sample;
    struct attn_truth *truth;
    struct attn_sum dk, dv, dbias, dsink;
    int64_t *slot; /* [n_key]: where a key's gradients go; -1: not sampled */
    int64_t n_keys;
    /* a thread's own: rows of one head, which are worked out together */
    int64_t b, h, i[ATTN_ORACLE_ROWS], place_of[ATTN_ORACLE_ROWS]; /* as do_rows says */
    int n_rows, most_rows;
    struct attn_oracle_row own[ATTN_ORACLE_ROWS];
    const struct attn_oracle_row *row[ATTN_ORACLE_ROWS]; /* own, or kept */
    struct attn_row_bound bound[ATTN_ORACLE_ROWS];
    struct attn_row_kinds kinds;   /* of one row */
    int special[ATTN_ORACLE_ROWS]; /* its kinds matter */
    double *q, *d_o;               /* [most_rows][apart] [apart] */
    int64_t apart; /* and so in different sets of the cache, whatever power of two d is */
    int64_t *place, *place_of_bias; /* [most_rows][n_key] rows of an output that keys add to */
    struct attn_addends of_dk[ATTN_ORACLE_ROWS], of_dv[ATTN_ORACLE_ROWS];
    int n_addends;
    pthread_t thread;
    atomic_llong *next;
};

static void store_forward(struct work *w, int r)
{
    const struct attn_oracle_row *row = w->row[r];
    const struct attn_row_bound *bound = &w->bound[r];
    struct attn_truth_tensor *o = &w->truth->tensor[ATTN_O], *lse = &w->truth->tensor[ATTN_LSE];
    int64_t at = (w->b * o->extent[1] + w->h) * o->extent[2] + w->place_of[r];
    for (int64_t c = 0; c < w->p->d_value; c++) {
        o->want[at * w->p->d_value + c] = row->o[c];
        o->bound[at * w->p->d_value + c] = bound->e_o[c];
        o->gauge[at * w->p->d_value + c] = bound->gauge_o[c];
        if (w->kinds.special)
            attn_truth_set_right(o, at * w->p->d_value + c, w->kinds.o[c]);
    }
    lse->want[at] = row->lse;
    lse->bound[at] = bound->e_lse;
    lse->gauge[at] = isfinite(row->lse) ? 1 + bound->score_size + fabs(row->lse) : 0;
    if (w->kinds.special)
        attn_truth_set_right(lse, at, w->kinds.lse);
}

static void store_dq(struct work *w, int r)
{
    const struct attn_row_bound *bound = &w->bound[r];
    struct attn_truth_tensor *dq = &w->truth->tensor[ATTN_DQ];
    int64_t at = ((w->b * dq->extent[1] + w->h) * dq->extent[2] + w->place_of[r]) * w->p->d_key;
    for (int64_t c = 0; c < w->p->d_key; c++) {
        dq->want[at + c] = w->row[r]->dq[c];
        dq->bound[at + c] = bound->e_dq[c];
        dq->gauge[at + c] = bound->gauge_dq[c];
        if (w->kinds.special)
            attn_truth_set_right(dq, at + c, w->kinds.dq[c]);
        if (w->a->u_partial > 0 && isinf(bound->e_dq[c])) /* a partial result may overflow */
            attn_truth_set_right(dq, at + c, ATTN_KINDS_ANY);
    }
}

static void flush_keys(struct work *w)
{
    attn_sum_add(&w->dk, w->p->d_key, w->of_dk, w->n_addends);
    attn_sum_add(&w->dv, w->p->d_value, w->of_dv, w->n_addends);
    w->n_addends = 0;
}

/* dk_j += dS q_i and dv_j += P dO_i, for every sampled key that this row sees: flush_keys does it.
 * Values that are not finite are left to the kinds. */
static void collect_keys(struct work *w, int r)
{
    const struct attn_problem *p = w->p;
    const struct attn_oracle_row *row = w->row[r];
    const struct attn_row_bound *x = &w->bound[r];
    int64_t g = w->h / (p->heads / p->kv_heads), head = (w->b * p->kv_heads + g) * w->n_keys;
    int64_t *place = w->place + r * p->n_key;
    double *q = w->q + r * w->apart, *d_o = w->d_o + r * w->apart;
    const int64_t at_row[4] = {w->b, w->h, w->i[r], 0};
    attn_cview_row(&w->in->q, at_row, p->d_key, q);
    attn_cview_row(&w->in->d_o, at_row, p->d_value, d_o);
    for (int64_t c = 0; c < p->d_key; c++)
        q[c] = attn_finite_part(q[c]);
    for (int64_t c = 0; c < p->d_value; c++)
        d_o[c] = attn_finite_part(d_o[c]);
    for (int64_t n = 0; n < row->n; n++) {
        int64_t slot = w->slot[row->key[n]], at = head + slot;
        int adds = slot >= 0 && row->s[n] != -(double)INFINITY && isfinite(x->dsr[n]);
        if (slot >= 0 && w->kinds.special) {
            attn_sum_kinds(&w->dk, at * p->d_key, p->d_key, w->kinds.q, w->kinds.dsr[n]);
            attn_sum_kinds(&w->dv, at * p->d_value, p->d_value, w->kinds.d_o, w->kinds.p[n]);
        }
        place[n] = adds ? at : -1;
        if (adds)
            w->dk.terms[at]++, w->dv.terms[at]++;
    }
    int overflows = w->a->u_dp > 0 && row->n > 0 && (x->over[0] & ATTN_OVER_DP) != 0;
    if (overflows)
        flush_keys(w);                                             /* sets the sums so far aside */
    for (int64_t n = 0; n < w->n_keys * p->d_key * overflows; n++) /* 0 times infinity too */
        attn_truth_set_right(w->dk.out, head * p->d_key + n, ATTN_KINDS_ANY);
    w->of_dk[w->n_addends] = (struct attn_addends){
        place,
        row->n,
        q,
        x->dsr,
        x->e_dsr,
        x->gauge_ds,
        0,
        1,
        attn_term_tiny(w->a, p->scale) + attn_operand_tiny(w->a, w->a->u_q, p->scale)};
    w->of_dv[w->n_addends++] =
        (struct attn_addends){place,
                              row->n,
                              d_o,
                              row->p,
                              x->e_p,
                              row->p,
                              w->a->tiny,
                              1 + x->score_size,
                              w->a->tiny + attn_operand_tiny(w->a, w->a->u_v, 1)};
}

/* dbias_ij = dS_ij, summed along the axes on which the bias is broadcast (extent 1 there). */
static void collect_bias(struct work *w, int r)
{
    struct attn_truth_tensor *t = w->dbias.out;
    const struct attn_oracle_row *row = w->row[r];
    int64_t b = t->extent[0] == 1 ? 0 : w->b, h = t->extent[1] == 1 ? 0 : w->h;
    int64_t i = t->extent[2] == 1 ? 0 : w->i[r];
    int64_t to = (b * t->extent[1] + h) * t->extent[2] + i;
    w->dbias.terms[to] += t->extent[3] == 1 ? row->n : row->n > 0;
    for (int64_t n = 0; n < row->n; n++) {
        int64_t at = to * t->extent[3] + (t->extent[3] == 1 ? 0 : row->key[n]);
        if (w->kinds.special)
            attn_sum_kinds(&w->dbias, at, 1, &w->kinds.ds[n], ATTN_KIND_POSITIVE);
        w->place_of_bias[n] = isfinite(row->ds[n]) ? at : -1;
    }
    static const double one[1 + ATTN_LANES] = {1};
    const struct attn_addends of_bias = {
        w->place_of_bias, row->n, one, row->ds, w->bound[r].e_ds, w->bound[r].gauge_ds, 0, 1, 0};
    attn_sum_add(&w->dbias, 1, &of_bias, 1);
}

/* dz = the sum of the terms of all rows of a head; one without a sink has none. */
static void collect_sink(struct work *w, int r)
{
    static const double one[1 + ATTN_LANES] = {1};
    const struct attn_oracle_row *row = w->row[r];
    const struct attn_row_bound *x = &w->bound[r];
    if (row->z == -(double)INFINITY)
        return;
    if (w->kinds.special &&
        (row->n == 0 || row->max != -(double)INFINITY || w->kinds.sink & ATTN_KIND_NAN))
        attn_sum_kinds(&w->dsink, w->h, 1, &w->kinds.dz, ATTN_KIND_POSITIVE);
    const int64_t place = isfinite(row->dz) ? w->h : -1;
    const struct attn_addends of_sink = {&place, 1, one, &row->dz, &x->e_dz, &x->gauge_dz, 0, 1, 0};
    w->dsink.terms[w->h]++;
    attn_sum_add(&w->dsink, 1, &of_sink, 1);
}

/* The oracle's rows, computed unless they are kept. */
static void find_rows(struct work *w, int backward)
{
    const struct attn_inputs *in = w->in;
    int64_t i[ATTN_ORACLE_ROWS];
    int missing[ATTN_ORACLE_ROWS], n = 0, is_kept = in->kept != NULL && in->kept->n_rows > 0;
    for (int r = 0; r < w->n_rows; r++) {
        w->row[r] = attn_kept_row(in->kept, w->p, w->b, w->h, w->i[r], backward);
        if (w->row[r] != NULL)
            continue;
        w->row[r] = &w->own[n];
        w->own[n].without_dq = w->place_of[r] < 0 && !is_kept; /* a kept row is whole */
        i[n] = w->i[r];
        missing[n++] = r;
    }
    if (n == 0)
        return;
    attn_oracle_rows_forward(w->p, &in->q, &in->k, &in->v, w->b, w->h, i, n, w->own);
    if (backward)
        attn_oracle_rows_backward(w->p, &in->d_o, &in->d_lse, w->b, w->h, i, n, w->own);
    for (int r = 0; in->kept != NULL && r < n; r++)
        attn_kept_row_add(in->kept, w->p, w->b, w->h, i[r], backward, w->row[missing[r]]);
}

/* Nothing is known of n elements of an output. */
static void open_elements(struct attn_truth_tensor *t, int64_t from, int64_t n)
{
    for (int64_t e = 0; e < n; e++)
        attn_truth_set_right(t, from + e, ATTN_KINDS_ANY);
}

/* Nothing is known of a row, nor of what it adds to. */
static void open_row(struct work *w, int r, int backward)
{
    const struct attn_problem *p = w->p;
    struct attn_truth_tensor *t = w->truth->tensor;
    int64_t row = (w->b * p->heads + w->h) * t[ATTN_O].extent[2] + w->place_of[r];
    size_t keys = (size_t)w->n_keys, d = (size_t)p->d_key, dv = (size_t)p->d_value,
           head = (size_t)(w->b * p->kv_heads + w->h / (p->heads / p->kv_heads));
    if (w->place_of[r] >= 0) {
        open_elements(&t[ATTN_O], row * p->d_value, p->d_value);
        open_elements(&t[ATTN_LSE], row, 1);
        open_elements(&t[ATTN_DQ], row * p->d_key, backward ? p->d_key : 0);
    }
    if (!backward)
        return;
    memset(w->dk.kinds + head * keys * d, ATTN_KINDS_ANY, keys * d);
    memset(w->dv.kinds + head * keys * dv, ATTN_KINDS_ANY, keys * dv);
    if (w->dbias.out != NULL) {
        const int64_t *e = w->dbias.out->extent;
        row = ((e[0] > 1 ? w->b : 0) * e[1] + (e[1] > 1 ? w->h : 0)) * e[2] +
              (e[2] > 1 ? w->i[r] : 0);
        memset(w->dbias.kinds + row * e[3], ATTN_KINDS_ANY, (size_t)e[3]);
    }
    if (w->dsink.out != NULL)
        w->dsink.kinds[w->h] = ATTN_KINDS_ANY;
}

/* Rows i[] of head (b,h); place_of[r]: row r's place in O, LSE and dQ; -1: not sampled, it only
 * feeds dK and dV. */
static void work_out(struct work *w)
{
    int backward = w->in->d_o.data != NULL;
    attn_row_bounds_head(w->p, w->in, w->b, w->h, w->i, w->n_rows, w->bound);
    for (int r = 0; r < w->n_rows; r++)
        w->bound[r].without_dq = w->place_of[r] < 0;
    find_rows(w, backward);
    attn_row_bounds_forward(w->p, w->a, w->n_rows, w->row, w->bound);
    if (backward)
        attn_row_bounds_backward(w->p, w->in, w->b, w->h, w->i, w->a, w->n_rows, w->row, w->bound);
}

/* Rows that are worked out, of this head or, is_known, of one that is like it. */
static void store_rows(struct work *w, int is_known)
{
    int backward = w->in->d_o.data != NULL;
    for (int r = 0; r < w->n_rows; r++) {
        if (attn_row_bound_is_open(w->p, w->a, w->row[r], w->b, w->h, w->i[r], &w->bound[r])) {
            open_row(w, r, backward);
            continue;
        }
        w->kinds.special = 0;
        if (!is_known || w->special[r])
            attn_row_kinds(w->p, w->in, w->a, w->row[r], &w->bound[r], w->b, w->h, w->i[r],
                           &w->kinds);
        w->special[r] = w->kinds.special;
        if (w->place_of[r] >= 0)
            store_forward(w, r);
        if (backward && w->place_of[r] >= 0)
            store_dq(w, r);
        if (w->dsink.out != NULL)
            collect_sink(w, r);
        if (!backward || (w->row[r]->max == -(double)INFINITY && !w->kinds.special))
            continue;
        collect_keys(w, r);
        if (w->dbias.out != NULL)
            collect_bias(w, r);
    }
    flush_keys(w);
}

/* 1: row i of two heads has the same numbers, side by side in memory. */
static int is_equal(const struct attn_cview *x, int64_t b, int64_t h, int64_t other, int64_t i,
                    int64_t width)
{
    const int64_t size = (int64_t)attn_dtype_size(x->dtype);
    const char *data = x->data;
    return data == NULL ||
           (x->stride[3] == 1 &&
            memcmp(data + attn_offset(x->stride, b, h, i) * size,
                   data + attn_offset(x->stride, b, other, i) * size, (size_t)(width * size)) == 0);
}

/* 1: where the fill knows the keys, all heads have one mask, no bias and no sink: rows of another
 * head of the group that have the same q, dO and dLSE have the same truth. */
static int is_alike(const struct work *w, int64_t other)
{
    const struct attn_inputs *in = w->in;
    int is = in->keys != NULL;
    for (int r = 0; r < w->n_rows && is; r++)
        is = is_equal(&in->q, w->b, w->h, other, w->i[r], w->p->d_key) &&
             is_equal(&in->d_o, w->b, w->h, other, w->i[r], w->p->d_value) &&
             is_equal(&in->d_lse, w->b, w->h, other, w->i[r], 1);
    return is;
}

/* Of query heads [from, to), which share a kv head. */
static void do_rows(struct work *w, int64_t from, int64_t to)
{
    for (int64_t h = from; h < to && w->n_rows > 0; h++) {
        int is_known = h > from && is_alike(w, h);
        w->h = h;
        if (!is_known)
            work_out(w);
        store_rows(w, is_known);
    }
    w->n_rows = 0;
}

/* ---- set-up and sweep --------------------------------------------------------------------- */

static enum attn_status tensor_alloc(const struct work *w, enum attn_output output,
                                     const int64_t extent[4], const int64_t *sample,
                                     struct attn_error *err)
{
    const struct attn_precision *a = w->a;
    struct attn_truth_tensor *t = &w->truth->tensor[output];
    size_t n = 1;
    for (int axis = 0; axis < 4; axis++)
        n *= (size_t)(t->extent[axis] = extent[axis]);
    t->name = attn_output_name(output);
    t->sample = sample;
    t->storage = storage_of(w->p, output);
    t->stored = t->storage;
    t->u = output == ATTN_LSE ? a->u_lse : output == ATTN_DBIAS ? a->u_bias : a->u_storage;
    t->u = t->u > a->u ? t->u : a->u;
    t->want = calloc(n + 1, sizeof *t->want);
    t->bound = calloc(n + 1, sizeof *t->bound);
    t->gauge = calloc(n + 1, sizeof *t->gauge);
    t->right = calloc(n + 1, 1);
    if (t->want == NULL || t->bound == NULL || t->gauge == NULL || t->right == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the truth of %s (%zu elements)", t->name,
                         n);
    return ATTN_OK;
}

/* Allocates the memory that each thread needs for itself. */
static enum attn_status own_alloc(struct work *w, struct attn_error *err)
{
    const struct attn_problem *p = w->p;
    w->most_rows = attn_oracle_block(p);
    size_t most = (size_t)w->most_rows;
    enum attn_status status = attn_oracle_rows_alloc(p, w->most_rows, w->own, err);
    if (status == ATTN_OK)
        status = attn_row_bounds_alloc(p, w->most_rows, w->bound, err);
    for (int r = 0; r < w->most_rows; r++) {
        w->own[r].finite = 1; /* a result that is finite beside those has skipped them */
        w->own[r].keys = w->in->keys;
        w->own[r].keys_arg = w->in->keys_arg;
        w->bound[r].exact_scores = w->in->keys != NULL;
    }
    if (status == ATTN_OK)
        status = attn_row_kinds_alloc(p, &w->kinds, err);
    w->apart = (p->d_key > p->d_value ? p->d_key : p->d_value) + 2 * ATTN_LANES;
    w->q = calloc(2 * (size_t)w->apart * most, sizeof *w->q);
    w->d_o = w->q != NULL ? w->q + w->apart * w->most_rows : NULL;
    w->place = malloc(((size_t)p->n_key + 1) * (most + 1) * sizeof *w->place);
    w->place_of_bias = w->place != NULL ? w->place + p->n_key * w->most_rows : NULL;
    if (status == ATTN_OK && (w->q == NULL || w->place == NULL))
        status = attn_fail(err, ATTN_ENOMEM, "no memory for a row");
    return status;
}

static void own_free(struct work *w)
{
    free(w->q);
    free(w->place);
    attn_row_kinds_free(&w->kinds);
    attn_row_bounds_free(w->bound);
    attn_oracle_rows_free(w->own);
}

/* A sum over all rows, which a sample does not have. */
static int wants_sink(const struct work *w)
{
    return w->in->d_o.data != NULL && w->in->want_d_sink && w->sample->n_rows < 0;
}

static enum attn_status prepare(struct work *w, struct attn_error *err)
{
    const struct attn_problem *p = w->p;
    const struct attn_sample *sample = w->sample;
    int backward = w->in->d_o.data != NULL;
    int64_t n_rows = sample->n_rows < 0 ? p->n_query : sample->n_rows;
    const int64_t *rows = sample->n_rows < 0 ? NULL : sample->row;
    const int64_t *keys = sample->n_keys < 0 ? NULL : sample->key;
    const int64_t *stride = p->bias.tensor.stride;
    const int64_t extent[ATTN_OUTPUTS][4] = {
        {p->batch, p->heads, n_rows, p->d_value},
        {p->batch, p->heads, n_rows, 1},
        {p->batch, p->heads, n_rows, p->d_key},
        {p->batch, p->kv_heads, w->n_keys, p->d_key},
        {p->batch, p->kv_heads, w->n_keys, p->d_value},
        {stride[0] ? p->batch : p->batch > 0, stride[1] ? p->heads : p->heads > 0,
         stride[2] ? p->n_query : p->n_query > 0, stride[3] ? p->n_key : p->n_key > 0},
        {1, p->heads, 1, 1}};
    const int wants[ATTN_OUTPUTS] = {
        1, 1, backward, backward, backward, backward && w->in->want_d_bias, wants_sink(w)};
    enum attn_status status = ATTN_OK;
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        if (wants[o])
            status = tensor_alloc(w, (enum attn_output)o, extent[o],
                                  o <= ATTN_DQ      ? rows
                                  : o >= ATTN_DBIAS ? NULL
                                                    : keys,
                                  err);
    if (status == ATTN_OK && backward)
        status = attn_sum_open(w->in, w->truth, ATTN_DK, &w->dk, err);
    if (status == ATTN_OK && backward)
        status = attn_sum_open(w->in, w->truth, ATTN_DV, &w->dv, err);
    if (p->kv_shared) /* of dK alone nothing is kept */
        w->dk.known = w->dv.known = NULL;
    if (status == ATTN_OK && backward && w->in->want_d_bias)
        status = attn_sum_open(w->in, w->truth, ATTN_DBIAS, &w->dbias, err);
    if (status == ATTN_OK && wants[ATTN_DSINK])
        status = attn_sum_open(w->in, w->truth, ATTN_DSINK, &w->dsink, err);
    w->slot = malloc(((size_t)p->n_key + 1) * sizeof *w->slot);
    if (status == ATTN_OK && w->slot == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for %lld key slots", (long long)p->n_key);
    for (int64_t j = 0; status == ATTN_OK && j < p->n_key; j++)
        w->slot[j] = keys == NULL ? j : -1;
    for (int64_t s = 0; status == ATTN_OK && keys != NULL && s < w->n_keys; s++)
        w->slot[keys[s]] = s;
    return status;
}

/* dBias has its own storage, and no parts that are stored narrower. */
static void finish_sums(struct work *w)
{
    const int64_t group = w->p->kv_heads > 0 ? w->p->heads / w->p->kv_heads : 1;
    struct attn_precision own = *w->a, shared = own;
    if (group > 1 && own.u_head > own.u_partial) { /* each head's is a partial result */
        shared.u_partial = own.u_head;
        shared.sums = own.sums > group ? own.sums : group;
    }
    if (w->in->d_o.data != NULL) {
        attn_sum_finish(&w->dv, 1, own.u_v, &shared);
        attn_sum_finish(&w->dk, w->p->scale, own.u_q, &shared);
    }
    if (w->dsink.out != NULL) { /* stored as the sink is, and so are its parts */
        struct attn_precision sink = own;
        sink.u_storage = attn_dtype_roundoff(w->dsink.out->storage);
        sink.u = fmax(sink.u, sink.u_storage);
        sink.tiny_storage = attn_dtype_tiny(w->dsink.out->storage);
        sink.tiny = fmax(sink.tiny, sink.tiny_storage);
        sink.u_partial = 0;
        attn_sum_finish(&w->dsink, 1, 0, &sink);
    }
    if (w->dbias.out == NULL)
        return;
    own.u_partial = own.u_s > 0 ? own.u_partial : 0; /* frameworks store it as they store dS */
    own.u = fmax(own.u, own.u_bias);
    own.u_storage = own.u_bias;
    if (own.u_bias > 0x1p-53)
        own.tiny = fmax(own.tiny, 0x1p-150);
    own.tiny_storage = own.tiny;
    attn_sum_finish(&w->dbias, 1, 0, &own);
}

/* Does the row add to the gradients that are asked for?  To those of a sample of keys only a row
 * that sees one of them does; to dBias every row may. */
static int feeds(const struct work *w, int64_t b, int64_t h, int64_t i)
{
    const struct attn_sample *sample = w->sample;
    if (w->n_keys == 0)
        return 0;
    if (sample->n_keys < 0 || w->dbias.out != NULL)
        return 1;
    for (int64_t k = 0; k < sample->n_keys; k++)
        if (attn_problem_allows(w->p, b, h, i, sample->key[k]))
            return 1;
    return 0;
}

/* All rows of query heads [from, to) of a batch, which share a kv head: one head after the other,
 * or some rows of each where they may be alike. */
static void do_heads(struct work *w, int64_t b, int64_t from, int64_t to)
{
    const struct attn_sample *sample = w->sample;
    int backward = w->in->d_o.data != NULL, all = sample->n_rows < 0;
    int64_t step = w->in->keys != NULL ? to - from : 1;
    for (int64_t h = from; h < to; h += step) {
        w->b = b;
        for (int64_t i = 0, next = 0; i < w->p->n_query; i++) {
            int64_t slot = all ? i : -1;
            if (!all && next < sample->n_rows && sample->row[next] == i)
                slot = next++;
            if (slot < 0 && !(backward && feeds(w, b, h, i)))
                continue;
            w->i[w->n_rows] = i;
            w->place_of[w->n_rows++] = slot;
            if (w->n_rows == w->most_rows)
                do_rows(w, h, h + step);
        }
        do_rows(w, h, h + step);
    }
}

/* ---- threads ------------------------------------------------------------------------------ */

/* Threads of our own, not OpenMP's: those cannot be used in a child that the process forks later,
 * and keep the floating-point environment of their first user.  These are new each time, and begin
 * with the caller's. */
static void *do_share(void *arg)
{
    struct work *w = arg;
    int64_t kv_heads = w->p->kv_heads, n;
    while ((n = atomic_fetch_add(w->next, 1)) < w->p->batch * kv_heads) {
        int64_t g = n % kv_heads, group = w->p->heads / kv_heads;
        do_heads(w, n / kv_heads, g * group, (g + 1) * group);
    }
    return NULL;
}

/* One for each kv head, but no more than OpenMP would take; one where dBias may be a sum over
 * heads, or dsink is one over batches, and where the problem is so small that a thread costs more
 * than it saves. */
static int64_t threads_for(const struct work *w)
{
    const struct attn_problem *p = w->p;
    int64_t most = omp_get_max_threads(), units = p->batch * p->kv_heads;
    double pairs = (double)p->batch * (double)p->heads * (double)p->n_query * (double)p->n_key;
    int is_shared = w->dbias.out != NULL || (w->dsink.out != NULL && p->batch > 1);
    return is_shared || pairs < 0x1p17 ? 1 : units < most ? units : most;
}

/* Work all rows out.  Fewer threads do it as well: one that gets no memory, or cannot be started,
 * leaves its share to the others. */
static enum attn_status sweep(const struct work *shared, struct attn_error *err)
{
    atomic_llong next = 0; /* of the kv heads of all batches: the one that no thread has begun */
    int64_t wanted = threads_for(shared), begun = 0;
    struct work *crew = calloc((size_t)wanted + 1, sizeof *crew);
    enum attn_status status = ATTN_OK;
    if (crew == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for threads");
    for (; status == ATTN_OK && begun < wanted; begun += status == ATTN_OK) {
        struct work *w = &crew[begun];
        *w = *shared;
        w->next = &next;
        status = own_alloc(w, begun == 0 ? err : NULL);
        if (status == ATTN_OK && begun > 0 && pthread_create(&w->thread, NULL, do_share, w) != 0)
            status = ATTN_ENOMEM;
        if (status != ATTN_OK)
            own_free(w);
    }
    if (begun > 0)
        do_share(&crew[0]);
    for (int64_t t = 0; t < begun; t++) {
        if (t > 0)
            pthread_join(crew[t].thread, NULL);
        own_free(&crew[t]);
    }
    free(crew);
    return begun > 0 ? ATTN_OK : status;
}

enum attn_status attn_truth_compute(const struct attn_problem *p, const struct attn_inputs *in,
                                    const struct attn_precision *a,
                                    const struct attn_sample *sample, struct attn_truth *truth,
                                    struct attn_error *err)
{
    static const struct attn_sample everything = {-1, -1, NULL, NULL};
    if (sample == NULL)
        sample = &everything;
    struct work w = {.p = p, .in = in, .a = a, .sample = sample, .truth = truth};
    w.n_keys = sample->n_keys < 0 ? p->n_key : sample->n_keys;
    memset(truth, 0, sizeof *truth);
    enum attn_status status = prepare(&w, err);
    if (status == ATTN_OK)
        status = sweep(&w, err);
    if (status == ATTN_OK) {
        finish_sums(&w);
        if (p->kv_shared && in->d_o.data != NULL)
            attn_truth_share(a, &truth->tensor[ATTN_DK], &truth->tensor[ATTN_DV]);
        attn_truth_settle(truth, in);
    } else
        attn_truth_free(truth);
    free(w.slot);
    attn_sum_free(&w.dk);
    attn_sum_free(&w.dv);
    attn_sum_free(&w.dbias);
    attn_sum_free(&w.dsink);
    return status;
}

struct attn_kept_truth *attn_kept_truth(const struct attn_problem *p, const struct attn_inputs *in,
                                        const struct attn_precision *a,
                                        const struct attn_sample *sample, enum attn_status *status,
                                        struct attn_error *err)
{
    int backward = in->d_o.data != NULL;
    for (struct attn_kept_truth *x = in->kept->first; x != NULL; x = x->next)
        if (x->backward == backward && memcmp(&x->precision, a, sizeof *a) == 0)
            return x;
    struct attn_kept_truth *x = calloc(1, sizeof *x);
    *status = x == NULL ? attn_fail(err, ATTN_ENOMEM, "no memory to keep a truth")
                        : attn_truth_compute(p, in, a, sample, &x->truth, err);
    if (*status != ATTN_OK) {
        free(x);
        return NULL;
    }
    x->precision = *a, x->backward = backward;
    x->next = in->kept->first;
    return in->kept->first = x;
}
