/* See band.h.  Its calls say what the author meant, which pairs alone do not (a window as wide as
 * the keys is none). */
#include "tests/harness/cases/band.h"

#include "tests/harness/base/tensor.h"

static int64_t narrower(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

/* A band under the alignment of those before. */
static int add_band(struct attn_chain *x, const struct attn_mask_call *call)
{
    const struct attn_band other = {call->offset, call->left, call->right};
    const int is_ends = call->length >= 0;
    if (x->n_bands > 0 && (other.offset != x->band.offset || is_ends != x->is_ends))
        return 0;
    x->band = x->n_bands++ == 0
                  ? other
                  : (struct attn_band){other.offset, narrower(x->band.left, other.left),
                                       narrower(x->band.right, other.right)};
    x->is_ends = is_ends;
    return 1;
}

static int add_documents(struct attn_chain *x, const struct attn_mask_call *call)
{
    if (x->documents.n > 0)
        return 0;
    x->documents = (struct attn_documents){call->n, call->query_start, call->key_start};
    for (int64_t t = 1; t <= call->n; t++)
        x->is_self &= call->query_start[t] - call->query_start[t - 1] ==
                      call->key_start[t] - call->key_start[t - 1];
    return 1;
}

/* The chain of one batch. */
static int chain_of(const struct attn_mask *mask, int64_t b, struct attn_chain *x)
{
    struct attn_mask_call call;
    int has_keys = 0, is_chain = mask != NULL;
    *x = (struct attn_chain){.is_self = 1, .length = -1};
    for (int64_t n = 0; is_chain && attn_mask_call(mask, b, n, &call); n++) {
        is_chain = call.kind == ATTN_CALL_BAND        ? add_band(x, &call)
                   : call.kind == ATTN_CALL_DOCUMENTS ? add_documents(x, &call)
                                                      : call.kind == ATTN_CALL_KEYS;
        has_keys |= call.kind == ATTN_CALL_KEYS;
        is_chain &= call.length < 0 || x->length < 0 || call.length == x->length;
        x->length = call.length < 0 ? x->length : call.length;
    }
    /* A window may see behind the end that it is aligned to: then that is no length. */
    return is_chain && (!x->is_ends || has_keys || x->band.right == 0);
}

int attn_chain_of(const struct attn_mask *mask, struct attn_chain *x)
{
    struct attn_chain other;
    const int64_t batches = attn_mask_varies_by_batch(mask) ? attn_mask_shape(mask)->batch : 1;
    for (int64_t b = 1; b < batches; b++)
        if (!chain_of(mask, b, &other))
            return 0;
    return chain_of(mask, 0, x);
}

int64_t attn_mask_length(const struct attn_mask *mask, int64_t b)
{
    struct attn_chain chain;
    return chain_of(mask, b, &chain) ? chain.length : -1;
}

int attn_mask_has_empty_rows(const struct attn_mask *mask, int64_t batch, int64_t heads,
                             int64_t n_query, int64_t n_key)
{
    if (n_key == 0)
        return batch > 0 && heads > 0 && n_query > 0;
    if (mask == NULL)
        return 0;
    for (int64_t b = 0; b < (attn_mask_varies_by_batch(mask) ? batch : batch > 0); b++)
        for (int64_t h = 0; h < (attn_mask_varies_by_head(mask) ? heads : heads > 0); h++)
            for (int64_t i = 0; i < n_query; i++)
                if (!attn_mask_next(mask, b, h, i, &(struct attn_run){0, 0}))
                    return 1;
    return 0;
}

void attn_mask_bytes(const struct attn_mask *mask, const struct attn_mask_shape *shape,
                     unsigned char visible, unsigned char *byte)
{
    const int64_t pairs[4] = {shape->batch, shape->heads, shape->n_query, shape->n_key};
    for (int64_t at[4] = ATTN_START; attn_each(at, pairs);)
        *byte++ = attn_mask_allows(mask, at[0], at[1], at[2], at[3]) ? visible
                                                                     : (unsigned char)(1 - visible);
}
