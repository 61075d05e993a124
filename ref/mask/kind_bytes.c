/* Masks that read bytes, which are no calls.  See bytes.h. */
#include "ref/mask/bytes.h"
#include "ref/mask/mask_internal.h"

static int is_set(const struct mask_view *v, int64_t token, int64_t width, int64_t column)
{
    const struct attn_mask_bytes *x = v->node->own;
    int64_t at = token - x->tokens.first, step = x->tokens.step;
    if (at < 0 || at % step != 0 || at / step >= x->tokens.n)
        return 0;
    return x->data[(v->b - x->batch) * x->batch_bytes + at / step * width + column] != 0;
}

static int in_keys(const struct mask_view *v, int64_t i, int64_t j)
{
    (void)i;
    return is_set(v, j, 1, 0);
}

const struct mask_kind attn_mask_kind_bytes_of_keys = {.allows = in_keys, .keys_alone = 1};

static int in_rows(const struct mask_view *v, int64_t i, int64_t j)
{
    return is_set(v, i, v->mask->shape.n_key, j);
}

const struct mask_kind attn_mask_kind_bytes_of_rows = {.allows = in_rows};

/* The first keys(...) at or behind node `at`, or -1. */
static int64_t keys_from(const struct attn_mask *mask, int64_t at)
{
    for (; at < mask->n_nodes; at++) {
        int kind = mask->node[at].kind;
        if (kind == MASK_keys || kind == MASK_keys_pattern || kind == MASK_keys_tensor)
            return at;
    }
    return -1;
}

int attn_mask_keys_calls(const struct attn_mask *mask)
{
    int calls = 0;
    for (int64_t at = keys_from(mask, 0); at >= 0; at = keys_from(mask, at + 1))
        calls++;
    return calls;
}

int attn_mask_keys_allow(const struct attn_mask *mask, int64_t b, int64_t j)
{
    struct mask_view v = {mask, &mask->node[keys_from(mask, 0)], b, 0};
    return mask_allows(&v, 0, j);
}

int64_t attn_mask_over_size(const struct attn_mask *mask)
{
    return (int64_t)(sizeof *mask + (size_t)mask->n_nodes * sizeof *mask->node);
}

struct attn_mask *attn_mask_over(void *memory, const struct attn_mask *mask, int is_rows,
                                 const struct attn_mask_bytes *bytes)
{
    struct attn_mask *over = memory;
    *over = *mask;
    over->node = (struct mask_node *)(over + 1);
    memcpy(over->node, mask->node, (size_t)mask->n_nodes * sizeof *mask->node);
    if (is_rows)
        over->root = 0;
    struct mask_node *node = &over->node[is_rows ? 0 : keys_from(mask, 0)];
    if (is_rows)
        *node = (struct mask_node){
            .by_batch = mask->node[mask->root].by_batch, .child = -1, .next = -1};
    node->kind = is_rows ? MASK_bytes_of_rows : MASK_bytes_of_keys;
    node->own = bytes;
    return over;
}
