/* The bytes of a mask that a rank has (work_mask.h): made at home, brought to work, and shown to
 * the local implementation as a mask that reads them.  See travel.h. */
#include "optimized/parallel/travel/travel.h"

#include <string.h>

#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

static void make_row(const struct attn_problem *p, int is_of_keys, int64_t b, int64_t token,
                     char *row)
{
    if (is_of_keys)
        *row = (char)attn_mask_keys_allow(p->mask, b, token);
    else
        for (int64_t j = 0; j < p->n_key; j++)
            row[j] = (char)attn_mask_allows(p->mask, b, 0, token, j);
}

/* The rank's own rows, from the description.  Pads are visible: keys there are NaN (shard.h), so
 * that who reads one is found. */
static void make_shard(const struct attn_travel *x, const struct attn_mask_data *m)
{
    const struct attn_buffer *shard = &x->buffer[ATTN_MASK_SHARD];
    struct attn_box box = attn_layout_box(&m->home, &m->whole, m->is_of_keys, x->w.rank);
    struct attn_box stored = attn_layout_stored_box(&m->home, &m->whole, m->is_of_keys, x->w.rank);
    int64_t one = attn_box_rows(&stored) * m->whole.d_key, all = attn_buffer_bytes(shard);
    if (all > 0)
        memset(shard->data, 1, (size_t)all);
    for (int64_t b = 0; b < box.batch; b++)
        for (int s = 0; s < box.stretches; s++) {
            struct attn_stretch at = attn_box_stretch(&box, s);
            for (int64_t i = 0; i < at.tokens.n; i++)
                make_row(x->w.whole, m->is_of_keys, b, at.tokens.first + i * at.tokens.step,
                         shard->data + (b * stored.tokens + at.row + i) * m->whole.d_key);
        }
    for (int64_t copy = one; copy < all; copy += one)
        memcpy(shard->data + copy, shard->data, (size_t)one);
}

enum attn_status attn_travel_bring_mask(struct attn_travel *x)
{
    struct attn_mask_data m = attn_work_mask(&x->w);
    const struct attn_buffer *shard = &x->buffer[ATTN_MASK_SHARD];
    char **own = (char **)&x->tensor[ATTN_TAG_MASK_KEYS].own.view.data;
    if (x->w.mask == ATTN_MASK_DESCRIBED)
        return ATTN_OK;
    if (!attn_transport_counts(x->rank->transport)) {
        make_shard(x, &m);
        x->mask = attn_mask_over(x->buffer[ATTN_MASK_PARTS].data, x->w.whole->mask, !m.is_of_keys,
                                 &x->mask_bytes);
    }
    *own = shard->data;
    if (!attn_work_mask_moves(&x->w))
        return ATTN_OK;
    *own = x->buffer[ATTN_MASK_WORK].data;
    const struct attn_move move = {.whole = &m.whole,
                                   .kind = m.kind,
                                   .dtype = ATTN_U8,
                                   .from = {.layout = &m.home, .data = shard->data},
                                   .to = {.layout = &m.work, .data = *own},
                                   .apart = x->w.mask == ATTN_MASK_REPEATED ? shard->numbers : 0};
    return attn_move(&move, x->rank->transport, x->buffer[ATTN_MESSAGES].data, x->rank->error);
}

struct attn_problem attn_travel_part(struct attn_travel *x, const struct attn_product *product)
{
    struct attn_problem part = product->part;
    struct attn_mask_data m = attn_work_mask(&x->w);
    if (x->mask == NULL)
        return part;
    int rank = m.is_of_keys ? x->w.stop.key : x->w.rank;
    const struct attn_positions *at = m.is_of_keys ? &part.origin.key : &part.origin.query;
    int64_t row = m.is_of_keys ? product->key_at : product->query_at;
    struct attn_box stored = attn_layout_stored_box(&m.work, &m.whole, m.is_of_keys, rank);
    x->mask_bytes = (struct attn_mask_bytes){
        (unsigned char *)x->tensor[ATTN_TAG_MASK_KEYS].now.view.data + row * m.whole.d_key,
        {at->first, 1 + at->skip, m.is_of_keys ? part.n_key : part.n_query},
        part.origin.batch,
        stored.tokens * m.whole.d_key};
    part.mask = x->mask;
    return part;
}
