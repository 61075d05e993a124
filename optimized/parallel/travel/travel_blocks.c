/* Blocks in memory.  See travel.h. */
#include "optimized/parallel/travel/travel.h"
#include "ref/problem.h"

struct attn_block attn_block_at(const struct attn_work *w, enum attn_tag_kind kind,
                                enum attn_dtype dtype, int rank, void *data)
{
    int keys = attn_tag_is_of_keys(kind);
    struct attn_box stored = attn_work_stored_box(w, keys, rank);
    return (struct attn_block){attn_packed_view(data, dtype, stored.heads.n, stored.tokens,
                                                attn_tag_width(kind, w->whole)),
                               keys ? w->kv_heads.first : w->heads.first};
}

struct attn_rows attn_block_rows(const struct attn_work *w, enum attn_tag_kind kind, int rank)
{
    int keys = attn_tag_is_of_keys(kind);
    struct attn_box box = attn_work_box(w, keys, rank);
    return (struct attn_rows){box.batch, keys ? w->kv_heads.n : w->heads.n, box.tokens,
                              attn_tag_width(kind, w->whole)};
}

struct attn_view attn_block_from(const struct attn_block *block, int64_t head, int64_t token)
{
    struct attn_view view = block->view;
    int64_t offset = (head - block->head) * view.stride[1] + token * view.stride[2];
    view.data = (char *)view.data + offset * (int64_t)attn_dtype_size(view.dtype);
    return view;
}

struct attn_view attn_block_portion(const struct attn_work *w, enum attn_tag_kind kind,
                                    const struct attn_block *block)
{
    int keys = attn_tag_is_of_keys(kind);
    return attn_block_from(block, keys ? w->kv_heads.first : w->heads.first, 0);
}
