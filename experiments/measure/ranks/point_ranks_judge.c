/* Judging results that no process has the whole of.  See point_ranks.h.
 *
 * A row of O needs all keys and values of its kv head, but those of no other; they are a function
 * of the case.  So the first process makes the inputs of one kv head after the other, and has rows
 * of results from the ranks: those of the sample, or all of a small problem.  Tensors of a head
 * have room for all rows, of which only those that are asked for are ever touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/ranks/point_ranks.h"
#include "ref/problem.h"

/* Rows of one output: [batch, heads, n, width] on the first process. */
struct rows {
    enum attn_tag_kind kind;
    int64_t n, heads, row_bytes;
    const int64_t *place; /* of a token among the n; -1: it is not asked for */
    char *data;           /* NULL on other processes */
};

/* Between rows and the rows that one rank has of them, in the order of its shard. */
struct carry {
    const struct rows *rows;
    char *buffer;
    int64_t n;
    enum { COUNT, PACK, UNPACK } what;
};

static void carry_row(void *arg, const int64_t at[3], void *row)
{
    struct carry *x = arg;
    const struct rows *rows = x->rows;
    if (rows->place[at[2]] < 0)
        return;
    char *here = x->buffer + x->n++ * rows->row_bytes;
    int64_t there = (at[0] * rows->heads + at[1]) * rows->n + rows->place[at[2]];
    if (x->what == PACK)
        memcpy(here, row, (size_t)rows->row_bytes);
    else if (x->what == UNPACK)
        memcpy(rows->data + there * rows->row_bytes, here, (size_t)rows->row_bytes);
}

/* What rank r has of these rows, to the first process. */
static enum attn_status fetch_from(struct attn_point_member *m, const struct rows *rows, int r)
{
    struct attn_shards s = m->tensor[rows->kind];
    struct carry x = {.rows = rows, .what = COUNT};
    char none[1];
    s.first = r;
    s.data = r == m->runner->rank ? s.data : NULL;
    x.buffer = none;
    attn_shards_each_row(&s, carry_row, &x);
    int64_t bytes = x.n * rows->row_bytes;
    x.buffer = malloc((size_t)bytes + 1);
    if (x.buffer == NULL)
        return attn_fail(m->err, ATTN_ENOMEM, "no memory for %lld rows", (long long)x.n);
    x.n = 0;
    x.what = PACK;
    if (r == m->runner->rank)
        attn_shards_each_row(&s, carry_row, &x);
    enum attn_status status = m->runner->share(m->runner->state, r, x.buffer, bytes, m->err);
    x.n = 0;
    x.what = UNPACK;
    s.data = NULL;
    if (rows->data != NULL && status == ATTN_OK)
        attn_shards_each_row(&s, carry_row, &x);
    free(x.buffer);
    return status;
}

/* The outputs of the pass, or fewer after a failure; places of queries and of keys. */
static enum attn_status fetch(struct attn_point_member *m, const int64_t n[2],
                              int64_t *const place[2], struct rows rows[ATTN_TAG_KINDS])
{
    const struct attn_problem *p = &m->setup.problem;
    enum attn_status status = ATTN_OK;
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_KINDS && status == ATTN_OK; kind++) {
        int keys = attn_tag_is_of_keys(kind);
        struct rows *x = &rows[kind];
        if (m->tensor[kind].role != ATTN_OUTPUT)
            continue;
        *x = (struct rows){kind, n[keys], keys ? p->kv_heads : p->heads, 0, place[keys], NULL};
        x->row_bytes = attn_tag_width(kind, p) * (int64_t)attn_dtype_size(attn_tag_dtype(kind, p));
        if (m->runner->rank == 0 &&
            (x->data = malloc((size_t)(p->batch * x->heads * x->n * x->row_bytes) + 1)) == NULL)
            status = attn_fail(m->err, ATTN_ENOMEM, "no memory for rows of results");
        status = attn_point_settle(m, status);
        for (int r = 0; r < m->point->ranks && status == ATTN_OK; r++)
            status = fetch_from(m, x, r);
    }
    return status;
}

/* ---- one kv head ----------------------------------------------------------------------------- */

/* The heads of kv head g of batch b, as a problem of their own. */
static struct attn_problem piece_of(const struct attn_problem *whole, int64_t b, int64_t g)
{
    struct attn_problem p = *whole;
    p.heads = whole->heads / whole->kv_heads;
    p.batch = p.kv_heads = 1;
    p.origin.batch = b;
    p.origin.head = g * p.heads;
    return p;
}

/* calloc leaves pages alone that nobody touches. */
static enum attn_status open_tensor(struct attn_point_member *m, const struct attn_problem *p,
                                    enum attn_tag_kind kind, struct attn_tensor *t)
{
    int keys = attn_tag_is_of_keys(kind);
    int64_t n = keys ? p->n_key : p->n_query, width = attn_tag_width(kind, p);
    enum attn_dtype dtype = attn_tag_dtype(kind, p);
    *t = (struct attn_tensor){.name = attn_tag_name((int)kind),
                              .dtype = dtype,
                              .stored = dtype,
                              .extent = {1, keys ? 1 : p->heads, n, width},
                              .stride = {(keys ? 1 : p->heads) * n * width, n * width, width, 1}};
    t->data = calloc((size_t)(t->stride[0]) + 1, attn_dtype_size(dtype));
    return t->data != NULL
               ? ATTN_OK
               : attn_fail(m->err, ATTN_ENOMEM, "no memory for %s of one head", t->name);
}

/* Rows of results that were fetched, or of inputs as the case has them; of queries only those that
 * are judged, where nothing but themselves needs them. */
static void fill_tensor(struct attn_point_member *m, const struct attn_problem *p,
                        const struct rows *rows, enum attn_tag_kind kind, struct attn_tensor *t)
{
    int keys = attn_tag_is_of_keys(kind), is_input = m->tensor[kind].role == ATTN_INPUT;
    int needs_all = is_input && (keys || m->point->c.pass == ATTN_BACKWARD);
    const struct rows *those = is_input ? &rows[ATTN_TAG_O] : &rows[kind];
    int64_t first = keys ? p->origin.head / p->heads : p->origin.head;
    const int64_t e = (int64_t)attn_dtype_size(t->dtype);
    for (int64_t h = 0; h < t->extent[1]; h++)
        for (int64_t i = 0; i < t->extent[2]; i++) {
            if (!needs_all && those->place[i] < 0)
                continue;
            if (!is_input)
                memcpy((char *)t->data + e * (h * t->stride[1] + i * t->stride[2]),
                       those->data + ((p->origin.batch * those->heads + first + h) * those->n +
                                      those->place[i]) *
                                         those->row_bytes,
                       (size_t)those->row_bytes);
            for (int64_t c = 0; c < t->extent[3] && is_input; c++) {
                const int64_t at[4] = {p->origin.batch, first + h, i, c};
                attn_tensor_set(t, 0, h, i, c,
                                attn_recipe_value(&m->recipe, attn_slot_of_kind(kind), at));
            }
        }
}

static enum attn_status judge_head(struct attn_point_member *m, const struct attn_problem *p,
                                   const struct attn_precision *precision,
                                   const struct attn_sample *sample, const struct rows *rows,
                                   struct attn_result *r)
{
    struct attn_setup s = {.given = m->point->c, .problem = *p, .unweighed = 1};
    enum attn_status status = ATTN_OK;
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_KINDS && status == ATTN_OK; kind++) {
        struct attn_tensor *t = &s.tensor[attn_slot_of_kind(kind)];
        if (m->tensor[kind].role == ATTN_ABSENT)
            continue;
        status = open_tensor(m, p, kind, t);
        if (status == ATTN_OK)
            fill_tensor(m, p, rows, kind, t);
    }
    memset(r, 0, sizeof *r);
    if (status == ATTN_OK)
        attn_judge(&s, precision, sample, m->point->c.pass, r);
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        free(s.tensor[slot].data);
    return status;
}

/* The worst of each output; the first head that is not right has the word. */
static void add_head(const struct attn_result *r, const struct attn_problem *p,
                     struct attn_result *all)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (r->output[o].n > 0 &&
            (all->output[o].n == 0 || r->output[o].ratio > all->output[o].ratio))
            all->output[o] = r->output[o];
    all->worst = r->worst > all->worst ? r->worst : all->worst;
    if (all->verdict != ATTN_PASS || r->verdict == ATTN_PASS)
        return;
    all->verdict = r->verdict;
    all->lacks_memory = r->lacks_memory;
    snprintf(all->text, sizeof all->text, "batch %lld, heads from %lld on: %.440s",
             (long long)p->origin.batch, (long long)p->origin.head, r->text);
}

static enum attn_status judge(struct attn_point_member *m, const struct attn_sample *sample,
                              const struct rows *rows)
{
    const struct attn_problem *whole = &m->setup.problem;
    struct attn_precision precision;
    struct attn_result all, r;
    enum attn_status status = ATTN_OK;
    memset(&all, 0, sizeof all);
    attn_precision_of(m->spec.impl, &m->spec.options, whole, &precision);
    for (int64_t n = 0; n < whole->batch * whole->kv_heads && status == ATTN_OK; n++) {
        struct attn_problem p = piece_of(whole, n / whole->kv_heads, n % whole->kv_heads);
        status = judge_head(m, &p, &precision, sample, rows, &r);
        if (status == ATTN_OK)
            add_head(&r, &p, &all);
    }
    if (status == ATTN_OK)
        attn_point_keep_verdict(m->point, &all);
    return status;
}

/* Where each of n tokens stands in a sample of them. */
static int64_t *places(int64_t n, int64_t n_sample, const int64_t *sample)
{
    int64_t *place = calloc((size_t)n + 1, sizeof *place);
    for (int64_t i = 0; i < n && place != NULL; i++)
        place[i] = n_sample < 0 ? i : -1;
    for (int64_t i = 0; i < n_sample && place != NULL; i++)
        place[sample[i]] = i;
    return place;
}

enum attn_status attn_point_judge_ranks(struct attn_point_member *m, int64_t verify_all)
{
    const struct attn_problem *p = &m->setup.problem;
    int64_t row[ATTN_SAMPLE_MOST], key[ATTN_SAMPLE_MOST];
    const struct attn_sample sample = attn_point_sample(m->point, verify_all, row, key);
    const int64_t n[2] = {sample.n_rows < 0 ? p->n_query : sample.n_rows,
                          sample.n_keys < 0 ? p->n_key : sample.n_keys};
    int64_t *place[2] = {places(p->n_query, sample.n_rows, row),
                         places(p->n_key, sample.n_keys, key)};
    struct rows rows[ATTN_TAG_KINDS] = {0};
    enum attn_status status = ATTN_OK;
    if (place[0] == NULL || place[1] == NULL)
        status = attn_fail(m->err, ATTN_ENOMEM, "no memory for the places of a sample");
    status = attn_point_settle(m, status);
    if (status == ATTN_OK)
        status = fetch(m, n, place, rows);
    if (status == ATTN_OK && m->runner->rank == 0)
        status = judge(m, &sample, rows);
    status = attn_point_settle(m, status);
    for (int kind = 0; kind < ATTN_TAG_KINDS; kind++)
        free(rows[kind].data);
    free(place[0]);
    free(place[1]);
    return status;
}
