/* Blocks in memory, and the sums of a rank's own results.  See travel.h. */
#include "optimized/parallel/travel/travel.h"
#include "ref/problem.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

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
    return (struct attn_rows){box.batches.n, keys ? w->kv_heads.n : w->heads.n, box.tokens,
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

/* ---- sums ------------------------------------------------------------------------------------ */

/* O and LSE of the rank's own queries, all heads of this portion. */
struct own_results {
    struct attn_rows rows, numbers;
    struct attn_view o, lse;
};

static struct own_results own_results(const struct attn_travel *x)
{
    const struct attn_work *w = &x->w;
    return (struct own_results){
        .rows = attn_block_rows(w, ATTN_TAG_O, w->rank),
        .numbers = attn_block_rows(w, ATTN_TAG_LSE, w->rank),
        .o = attn_block_portion(w, ATTN_TAG_O, &x->tensor[ATTN_TAG_O].sum),
        .lse = attn_block_portion(w, ATTN_TAG_LSE, &x->tensor[ATTN_TAG_LSE].sum)};
}

static void merge(struct attn_travel *x, const struct attn_block *o_part,
                  const struct attn_block *lse_part)
{
    struct own_results own = own_results(x);
    attn_rows_merge(&own.rows, &own.o, &own.lse,
                    x->w.merging == ATTN_RUNNING ? NULL : &x->denominator.view, &o_part->view,
                    &lse_part->view);
}

struct attn_block attn_travel_kept(const struct attn_travel *x, enum attn_tag_kind kind, int64_t n)
{
    const struct attn_buffer *kept = &x->buffer[kind == ATTN_TAG_O ? ATTN_O_KEPT : ATTN_LSE_KEPT];
    enum attn_dtype dtype =
        kind == ATTN_TAG_O ? attn_work_partial_dtype(&x->w, kind) : attn_lse_dtype(x->w.whole);
    return attn_block_at(&x->w, kind, dtype, x->w.rank, attn_buffer_at(kept, n));
}

void attn_travel_begin_sums(struct attn_travel *x)
{
    struct own_results own = own_results(x);
    x->kept = 0;
    if (x->w.merging == ATTN_RUNNING)
        return;
    x->denominator = attn_block_at(&x->w, ATTN_TAG_LSE, attn_lse_dtype(x->w.whole), x->w.rank,
                                   x->buffer[ATTN_DENOMINATOR].data);
    attn_rows_neutral(&own.rows, &own.o, &own.lse);
    attn_rows_clear(&own.numbers, &x->denominator.view);
    for (int64_t n = 0; n < x->buffer[ATTN_LSE_KEPT].parts; n++) {
        struct attn_block kept = attn_travel_kept(x, ATTN_TAG_LSE, n);
        attn_rows_neutral(&own.numbers, NULL, &kept.view);
    }
}

/* What was kept is merged by the largest LSE of all.  With the maximum in its place before the
 * first is added, no sum is ever rescaled. */
void attn_travel_finish_sums(struct attn_travel *x)
{
    struct own_results own = own_results(x);
    if (x->w.merging == ATTN_RUNNING)
        return;
    for (int64_t n = 0; n < x->buffer[ATTN_LSE_KEPT].parts; n++) {
        struct attn_block part = attn_travel_kept(x, ATTN_TAG_LSE, n);
        attn_rows_max(&own.numbers, &own.lse, &part.view);
    }
    for (int64_t n = 0; n < x->buffer[ATTN_O_KEPT].parts; n++) {
        struct attn_block o_part = attn_travel_kept(x, ATTN_TAG_O, n);
        struct attn_block lse_part = attn_travel_kept(x, ATTN_TAG_LSE, n);
        merge(x, &o_part, &lse_part);
    }
    attn_rows_normalise(&own.rows, &own.o, &own.lse, &x->denominator.view);
}
