/* What a model mistakes by its indices: which pair the mask and the bias are asked about, and which
 * kv head, batch and key a query reads. */
#include <math.h>

#include "ref/problem.h"
#include "tests/harness/faults/fault_eval.h"

/* The mask's rows read for what they are not: counted, filled, in fours. */
static int sees_roughly(const struct fault_eval *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_mask *mask = x->t->mask;
    int64_t lo, hi, n = x->p->n_key, last = -1;
    switch (x->t->how) {
    case ATTN_MODEL_OLDEST:
        return attn_mask_allows(mask, b, h, i, j) &&
               (j == 0 || attn_mask_row_count(mask, b, h, i, 0, j) > 0);
    case ATTN_MODEL_KEYS_4_ON:
        return attn_mask_row_count(mask, b, h, i, j - j % 4, j + 1) > 0;
    case ATTN_MODEL_FULL_NONE:
        return attn_mask_allows(mask, b, h, i, j) && attn_mask_row_count(mask, b, h, i, 0, n) < n;
    case ATTN_MODEL_LENGTHS_8:
        return j < attn_mask_row_count(mask, b, h, i, 0, n) / 8 * 8;
    case ATTN_MODEL_LOOP_16:
        return i / 16 >= j / 16 && attn_mask_allows(mask, b, h, i, j);
    case ATTN_MODEL_LOOP_32:
        return i / 32 >= j / 32 && attn_mask_allows(mask, b, h, i, j);
    case ATTN_MODEL_LOOP_64:
        return i / 64 >= j / 64 && attn_mask_allows(mask, b, h, i, j);
    case ATTN_MODEL_COUNTED:
        return j < attn_mask_row_count(mask, b, h, i, 0, n);
    case ATTN_MODEL_FILLED:
        for (int64_t from = 0; attn_mask_next(mask, b, h, i, from, &lo, &hi); from = hi)
            last = hi;
        return j < last;
    case ATTN_MODEL_ROWS_GROUP:
        return attn_mask_allows(mask, b, h, i / (x->p->heads / x->p->kv_heads), j);
    case ATTN_MODEL_ROWS_4:
        return attn_mask_allows(mask, b, h, i - i % 4, j);
    default:
        return attn_mask_row_count(mask, b, h, i, j - j % 4,
                                   j - j % 4 + 4 < n ? j - j % 4 + 4 : n) > 0;
    }
}

/* Where a rank believes that the pair is. */
static void move(const struct fault_eval *x, int64_t *i, int64_t *j)
{
    if (x->t->ranks == 0)
        return;
    int64_t n_query = x->p->n_query / x->t->ranks, n_key = x->p->n_key / x->t->ranks;
    int64_t rank = *i / n_query, block = *j / n_key;
    if (x->t->place == ATTN_MODEL_PLACE_QUERY)
        *i = *i % n_query + block * n_query;
    if (x->t->place == ATTN_MODEL_PLACE_KEY)
        *j = *j % n_key + rank * n_key;
}

int64_t attn_eval_key(const struct fault_eval *x, int64_t i, int64_t j, enum attn_model_of of)
{
    int mistaken = x->t->place_of == ATTN_MODEL_K_AND_V || x->t->place_of == of;
    if (x->t->ranks > 0 && x->t->place == ATTN_MODEL_PLACE_STALE && mistaken) {
        int64_t n_query = x->p->n_query / x->t->ranks, n_key = x->p->n_key / x->t->ranks;
        return j % n_key + i / n_query * n_key;
    }
    return of == ATTN_MODEL_V && x->t->keys_repeated > 1 ? j / x->t->keys_repeated : j;
}

int attn_eval_sees(const struct fault_eval *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_problem *p = x->p;
    const struct attn_mask *mask = x->t->mask;
    int64_t at;
    move(x, &i, &j);
    switch (x->t->how) {
    case ATTN_MODEL_AS_IS:
        return attn_mask_allows(mask, b, h, i, j);
    case ATTN_MODEL_INVERTED:
        return !attn_mask_allows(mask, b, h, i, j);
    case ATTN_MODEL_TRANSPOSED:
        return j < p->n_query && i < p->n_key && attn_mask_allows(mask, b, h, j, i);
    case ATTN_MODEL_FLAT:
        at = j * p->n_query + i;
        return attn_mask_allows(mask, b, h, at / p->n_key, at % p->n_key);
    case ATTN_MODEL_BATCH_0:
        return attn_mask_allows(mask, 0, h, i, j);
    case ATTN_MODEL_BATCH_LAST:
        return attn_mask_allows(mask, p->batch - 1, h, i, j);
    case ATTN_MODEL_BATCH_STEP:
        return attn_mask_allows(mask, (b + h) / p->heads, (b + h) % p->heads, i, j);
    case ATTN_MODEL_HEAD_0:
        return attn_mask_allows(mask, b, 0, i, j);
    case ATTN_MODEL_KV_HEAD:
        return attn_mask_allows(mask, b, h / (p->heads / p->kv_heads), i, j);
    case ATTN_MODEL_OWN_2:
        return attn_mask_allows(mask, b, h % ((p->heads + 1) / 2), i, j);
    case ATTN_MODEL_OWN_4:
        return attn_mask_allows(mask, b, h % ((p->heads + 3) / 4), i, j);
    case ATTN_MODEL_SWAPPED:
        at = h * p->batch + b;
        return attn_mask_allows(mask, at / p->heads, at % p->heads, i, j);
    default:
        return sees_roughly(x, b, h, i, j);
    }
}

static int is_mistaken(const struct fault_eval *x, enum attn_model_of of)
{
    return x->t->of == ATTN_MODEL_K_AND_V || x->t->of == of;
}

int64_t attn_eval_kv_head(const struct fault_eval *x, int64_t h, enum attn_model_of of)
{
    int64_t H = x->p->heads, G = x->p->kv_heads, r = H / G, right = h / r;
    if (x->t->fixed && is_mistaken(x, of))
        return x->t->fixed_head;
    switch (is_mistaken(x, of) ? x->t->heads : ATTN_MODEL_GROUPED) {
    case ATTN_MODEL_MODULO:
        return h % G;
    case ATTN_MODEL_DIVIDED:
        return h / G % G;
    case ATTN_MODEL_FIRST:
        return 0;
    case ATTN_MODEL_NEXT:
        return (right + 1) % G;
    case ATTN_MODEL_CLIPPED:
        return h < G ? h : G - 1;
    case ATTN_MODEL_STRIDED:
        return (h % r * r + h / r) % G;
    default:
        return right;
    }
}

int64_t attn_eval_kv_batch(const struct fault_eval *x, int64_t b, enum attn_model_of of)
{
    if (x->t->fixed && is_mistaken(x, of))
        return x->t->fixed_batch;
    return x->t->kv_batch_0 && is_mistaken(x, of) ? 0 : b;
}

double attn_eval_bias(const struct fault_eval *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_bias *bias = &x->p->bias;
    move(x, &i, &j);
    if (x->t->ranks > 0 && x->t->place == ATTN_MODEL_PLACE_BIAS_KEY)
        j %= x->p->n_key / x->t->ranks;
    b = x->t->bias_plane || x->t->bias_no_batch ? 0 : b;
    h = x->t->bias_plane || x->t->bias_no_head ? 0 : h;
    i = x->t->bias_no_row ? 0 : i;
    if (x->t->bias_by_kv)
        h /= x->p->heads / x->p->kv_heads;
    if (x->t->bias_heads > 0)
        h %= x->t->bias_heads;
    if (x->t->bias_rows > 0)
        i %= x->t->bias_rows;
    if (bias->kind == ATTN_BIAS_TENSOR)
        return x->t->bias_factor * attn_cview_get(&x->view[ATTN_T_BIAS], b, h, i, j);
    if (bias->kind != ATTN_BIAS_ALIBI)
        return 0;
    double away = (double)(i + x->t->alibi_offset - j);
    return -x->t->bias_factor * bias->slope[h] *
           ((x->t->alibi_signed ? away : fabs(away)) + x->t->alibi_more);
}
