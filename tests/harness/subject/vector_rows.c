/* See vector_files.h: places of tokens, where no stride says them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/subject/vector_files.h"

/* ---- packed batches -------------------------------------------------------------------------- */

/* Documents one behind the other, as variable-length kernels take them.
 *
 *      q [Tq,H,d]   k [Tk,G,d]   v [Tk,G,dv]   o [Tq,H,dv]   lse [H,Tq]
 *      cu_seqlens_q, cu_seqlens_k [n+1]: document t has queries [q[t],q[t+1]), keys [k[t],k[t+1])
 *      cu_seqlens_q_padded, cu_seqlens_k_padded: where it begins, with padding between documents
 *
 * A case becomes such a batch by cutting it: every batch entry is a document, or, where the mask is
 * documents(...) (band.h), several of uneven length.  The mask that is left speaks of each document
 * by itself; bytes speak of all tokens, and hide what lies in other documents too. */

/* Document after document of one batch entry; returns how many there are.  q and k, where they are
 * not NULL, get the end of each, counted from q[0] and k[0]. */
static int64_t cut(const struct attn_documents *list, const struct attn_problem *p, int32_t *q,
                   int32_t *k)
{
    if (list->n == 0) {
        if (q != NULL) {
            q[1] = q[0] + (int32_t)p->n_query;
            k[1] = k[0] + (int32_t)p->n_key;
        }
        return 1;
    }
    for (int64_t t = 1; t <= list->n && q != NULL; t++) {
        q[t] = q[0] + (int32_t)list->query_start[t];
        k[t] = k[0] + (int32_t)list->key_start[t];
    }
    return list->n;
}

/* An I32 tensor of zeros, the next of rows->given; NULL without memory. */
static int32_t *give(struct attn_vector_rows *rows, const char *name, int64_t n, int64_t m)
{
    struct attn_file_tensor *t = &rows->given[rows->n_given++];
    *t = (struct attn_file_tensor){
        .name = name, .dtype = ATTN_FILE_I32, .n_axes = m > 0 ? 2 : 1, .extent = {n, m}};
    t->bytes = n * (m > 0 ? m : 1) * (int64_t)sizeof(int32_t);
    t->data = calloc((size_t)t->bytes + 1, 1);
    return t->data;
}

/* Between two documents are 0 to 7 tokens of padding, and 3 behind the last. */
static enum attn_status pad(struct attn_vector_rows *rows, uint64_t seed, const int32_t *start[2],
                            int64_t n, struct attn_error *err)
{
    static const char *const name[2] = {"cu_seqlens_q_padded", "cu_seqlens_k_padded"};
    for (int side = 0; side < 2; side++) {
        const int32_t *from = start[side];
        int32_t *to = give(rows, name[side], n + 1, 0);
        rows->at[side] = calloc((size_t)from[n] + 1, sizeof(int64_t));
        if (to == NULL || rows->at[side] == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for padded documents");
        for (int64_t t = 0; t < n; t++) {
            int32_t gap = t + 1 == n ? 3 : (int32_t)((seed + 5 * (uint64_t)t) % 8);
            for (int32_t i = from[t]; i < from[t + 1]; i++)
                rows->at[side][i] = to[t] + i - from[t];
            to[t + 1] = to[t] + from[t + 1] - from[t] + gap;
        }
        rows->tokens[side] = to[n];
    }
    return ATTN_OK;
}

static enum attn_status pack(const struct attn_claims *claims, const struct attn_vector_tokens *x,
                             struct attn_vector_rows *rows, struct attn_error *err)
{
    const struct attn_problem *p = x->problem;
    struct attn_given_mask given;
    attn_claims_mask(claims, p, &given);
    const struct attn_documents *list = &given.documents;
    if (p->n_query > INT32_MAX / (2 * p->batch + 2) || p->n_key > INT32_MAX / (2 * p->batch + 2))
        return attn_fail(err, ATTN_ENOTSUP,
                         "more tokens than cu_seqlens, which are i32, can count");
    int64_t each = cut(list, p, NULL, NULL), n = each * p->batch;
    int32_t *q = give(rows, "cu_seqlens_q", n + 1, 0), *k = give(rows, "cu_seqlens_k", n + 1, 0);
    if (q == NULL || k == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for where %lld documents begin",
                         (long long)n);
    for (int64_t b = 0; b < p->batch; b++)
        cut(list, p, q + b * each, k + b * each);
    return claims->layout == ATTN_PLUGIN_THD_PADDED
               ? pad(rows, x->seed, (const int32_t *[2]){q, k}, n, err)
               : ATTN_OK;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* K and V of all sequences in pages of one pool, as servers keep them.
 *
 *      k [pages,page,G,d]   v [pages,page,G,dv]   page_table [B,n]   lengths [B]
 *
 * Key j of sequence b is slot j % page of page page_table[b][j / page], where j < lengths[b].
 * Pages come in random order; those behind the length are one page of NaN, as all unused slots
 * are.  Where batches share K and V (layout=broadcast), pages that are full in both are one. */

enum { SPARE = 2 }; /* pages that hold no key: the first of them fills up the table */

static int64_t page_of(const struct attn_claims *claims, uint64_t seed)
{
    static const int64_t usual[3] = {16, 64, 256};
    return claims->page > 0 ? claims->page : usual[seed % 3];
}

static int is_shared(const struct attn_vector_tokens *x)
{
    return x->problem->batch > 1 && x->k_stride[0] == 0 &&
           (x->problem->kv_shared || x->v_stride[0] == 0);
}

/* Numbers pages in the order of their sequences; returns how many there are.  -1: unused. */
static int32_t number_pages(const struct attn_vector_tokens *x, const int32_t *lengths,
                            int64_t page, int64_t n, int32_t *table)
{
    int32_t used = 0;
    for (int64_t b = 0; b < x->problem->batch; b++)
        for (int64_t t = 0; t < n; t++) {
            int32_t *entry = &table[b * n + t];
            *entry = lengths[b] > t * page ? used : -1;
            for (int64_t other = 0; other < b && *entry == used && is_shared(x); other++)
                if (lengths[b] >= (t + 1) * page && lengths[other] >= (t + 1) * page)
                    *entry = table[other * n + t];
            used += *entry == used;
        }
    return used;
}

/* 0 to n - 1 in random order (Fisher and Yates). */
static void shuffle(int32_t *x, int32_t n, uint64_t seed)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = i;
    for (int32_t i = n; i > 1; i--) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int32_t j = (int32_t)((seed >> 33) % (uint64_t)i), last = x[i - 1];
        x[i - 1] = x[j];
        x[j] = last;
    }
}

static enum attn_status page(const struct attn_claims *claims, const struct attn_vector_tokens *x,
                             struct attn_vector_rows *rows, struct attn_error *err)
{
    const struct attn_problem *p = x->problem;
    struct attn_given_mask given;
    attn_claims_mask(claims, p, &given);
    const int64_t size = rows->page = page_of(claims, x->seed), n = p->n_key / size + 1;
    if (p->batch > (INT32_MAX - SPARE) / n || p->n_key > INT32_MAX)
        return attn_fail(err, ATTN_ENOTSUP, "more pages than a table of i32 can count");
    int32_t *table = give(rows, "page_table", p->batch, n);
    int32_t *lengths = give(rows, "lengths", p->batch, 0);
    int64_t *at = rows->at[1] = calloc((size_t)(p->batch * p->n_key) + 1, sizeof *at);
    if (table == NULL || lengths == NULL || at == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a table of pages");
    for (int64_t b = 0; b < p->batch; b++)
        lengths[b] = (int32_t)(given.has_lengths ? attn_mask_length(p->mask, b) : p->n_key);
    const int32_t pages = number_pages(x, lengths, size, n, table) + SPARE;
    int32_t *order = calloc((size_t)pages, sizeof *order);
    if (order == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the order of pages");
    shuffle(order, pages, x->seed);
    for (int64_t e = 0; e < p->batch * n; e++)
        table[e] = order[table[e] >= 0 ? table[e] : pages - SPARE];
    free(order);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t j = 0; j < p->n_key; j++)
            at[b * p->n_key + j] = j < lengths[b] ? table[b * n + j / size] * size + j % size : -1;
    rows->tokens[1] = pages * size;
    return ATTN_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

struct attn_vector_tokens attn_vector_tokens_of(const struct attn_setup *s)
{
    return (struct attn_vector_tokens){&s->problem, s->tensor[ATTN_T_K].stride,
                                       s->tensor[ATTN_T_V].stride, s->given.seed};
}

enum attn_status attn_vector_rows_open(const struct attn_claims *claims,
                                       const struct attn_vector_tokens *tokens,
                                       struct attn_vector_rows *rows, struct attn_error *err)
{
    *rows = (struct attn_vector_rows){0};
    enum attn_status status = attn_claims_are_packed(claims) ? pack(claims, tokens, rows, err)
                              : claims->layout == ATTN_PLUGIN_PAGED
                                  ? page(claims, tokens, rows, err)
                                  : ATTN_OK;
    if (status != ATTN_OK)
        attn_vector_rows_close(rows);
    return status;
}

void attn_vector_rows_close(struct attn_vector_rows *rows)
{
    for (int n = 0; n < rows->n_given; n++)
        free(rows->given[n].data);
    free(rows->at[0]);
    free(rows->at[1]);
    *rows = (struct attn_vector_rows){0};
}

void attn_vector_rows_diagnose(const struct attn_claims *claims, const struct attn_setup *s,
                               struct attn_result *r)
{
    const struct attn_case *c = &s->given;
    const struct attn_problem *p = &s->problem;
    const struct attn_agreement *o = &r->output[ATTN_O], *lse = &r->output[ATTN_LSE];
    /* `l > 0 ? acc / l : 0` makes such rows of a sum that is NaN. */
    const int is_empty = lse->n > 0 && lse->n_not_finite == lse->n_bad && o->n_not_finite == 0 &&
                         o->bad_rows == lse->bad_rows;
    const int is_paged = claims->layout == ATTN_PLUGIN_PAGED;
    if (claims->layout < ATTN_PLUGIN_THD_PADDED || r->failure != ATTN_F_FINITE ||
        c->poison != ATTN_POISON_NONE || c->special != ATTN_SPECIAL_NONE ||
        c->bias == ATTN_CASE_BIAS_INF || c->bias == ATTN_CASE_BIAS_NAN ||
        (r->diagnosis.fault != ATTN_FAULT_NONE && r->diagnosis.fault != ATTN_FAULT_FEATURE &&
         !is_empty) ||
        attn_mask_has_empty_rows(p->mask, p->batch, p->heads, p->n_query, p->n_key))
        return;
    r->diagnosis.fault = ATTN_FAULT_KEYS;
    snprintf(r->diagnosis.text, sizeof r->diagnosis.text, "%s%s",
             is_paged
                 ? "fits keys past the length read, or a wrong page: slots without a key are NaN"
                 : "fits padding read: cu_seqlens_*_padded say where a document begins",
             is_empty ? "; or rows with keys taken for empty ones" : "");
    snprintf(r->diagnosis.remedy, sizeof r->diagnosis.remedy, "%s",
             is_paged ? "read keys 0 to lengths[b] - 1 of a sequence, and no slot behind them"
                      : "read cu_seqlens[t + 1] - cu_seqlens[t] tokens of a document");
}
