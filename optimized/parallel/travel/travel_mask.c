/* The bytes of a mask that a rank has (work_mask.h): made at home, brought to work, and shown to
 * the local implementation as a mask that reads them.  See travel.h. */
#include "optimized/parallel/travel/travel.h"

#include <string.h>

#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

/* Pads of keys are visible, and what they show is NaN (shard.h): who reads them is found. */
enum { PAD = 0xFF };

static void make_row(const struct attn_travel *x, enum attn_tag_kind kind, int64_t b, int64_t token,
                     char *row)
{
    const struct attn_problem *p = x->w.whole;
    if (kind == ATTN_TAG_MASK_KEYS)
        *row = (char)attn_mask_keys_allow(p->mask, b, token);
    else
        for (int64_t j = 0; j < p->n_key; j++)
            row[j] = (char)attn_mask_allows(p->mask, b, 0, token, j);
}

/* From the description: only here a rank reads it, for its own tokens. */
static void make_shard(struct attn_travel *x, const struct attn_mask_data *m)
{
    struct attn_buffer *shard = &x->buffer[ATTN_MASK_SHARD];
    int keys = attn_tag_is_of_keys(m->kind);
    struct attn_box box = attn_layout_box(&m->home, &m->whole, keys, x->w.rank);
    struct attn_box stored = attn_layout_stored_box(&m->home, &m->whole, keys, x->w.rank);
    int64_t width = m->whole.d_key, parts = attn_box_stretches(&box);
    if (shard->numbers == 0)
        return;
    memset(shard->data, PAD, (size_t)shard->numbers);
    for (int64_t b = 0; b < box.batches.n; b++)
        for (int64_t s = 0; s < parts; s++) {
            struct attn_stretch at = attn_box_stretch(&box, s);
            for (int64_t i = 0; i < at.tokens.n; i++)
                make_row(x, m->kind, box.batches.first + b, at.tokens.first + i * at.tokens.step,
                         shard->data + (b * stored.tokens + at.row + i * at.step) * width);
        }
    for (int64_t copy = 1; copy < shard->parts; copy++)
        memcpy(attn_buffer_at(shard, copy), shard->data, (size_t)shard->numbers);
}

enum attn_status attn_travel_bring_mask(struct attn_travel *x)
{
    struct attn_mask_data m = attn_work_mask(&x->w);
    struct attn_buffer *shard = &x->buffer[ATTN_MASK_SHARD];
    struct attn_placed *placed = &x->tensor[ATTN_TAG_MASK_KEYS];
    int counts = attn_transport_counts(x->rank->transport), moves = attn_work_mask_moves(&x->w);
    enum attn_status status = ATTN_OK;
    if (x->w.mask == ATTN_MASK_DESCRIBED)
        return ATTN_OK;
    if (!counts) {
        make_shard(x, &m);
        x->mask =
            attn_mask_over(x->buffer[ATTN_MASK_PARTS].data, x->w.whole->mask,
                           m.kind == ATTN_TAG_MASK_ROWS ? ATTN_MASK_OVER_ROWS : ATTN_MASK_OVER_KEYS,
                           &x->mask_bytes);
    }
    placed->own.view.data = moves ? x->buffer[ATTN_MASK_WORK].data : shard->data;
    if (moves) {
        struct attn_move move = {.whole = &m.whole,
                                 .kind = m.kind,
                                 .dtype = ATTN_U8,
                                 .from = {.layout = &m.home, .data = shard->data},
                                 .to = {.layout = &m.work, .data = placed->own.view.data},
                                 .apart = shard->parts > 1 ? shard->numbers : 0};
        status =
            attn_move(&move, x->rank->transport, x->buffer[ATTN_MESSAGES].data, x->rank->error);
    }
    return status;
}

void attn_travel_show_mask(struct attn_travel *x)
{
    struct attn_mask_data m = attn_work_mask(&x->w);
    int keys = attn_tag_is_of_keys(m.kind), rank = keys ? x->w.stop.key : x->w.stop.query;
    if (x->mask == NULL || rank < 0)
        return;
    struct attn_box box = attn_layout_box(&m.work, &m.whole, keys, rank);
    struct attn_box stored = attn_layout_stored_box(&m.work, &m.whole, keys, rank);
    x->mask_bytes = (struct attn_mask_bytes){.data = x->tensor[ATTN_TAG_MASK_KEYS].now.view.data,
                                             .batches = box.batches,
                                             .batch_bytes = stored.tokens * m.whole.d_key};
    for (int s = 0; s < box.stretches; s++)
        x->mask_bytes.stretch[s] = box.stretch[s];
}
