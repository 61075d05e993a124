/* Bytes that collectives around a layer send, from the sizes of shards.  See layer_scheme.h. */
#include "experiments/rim/layer/schemes/layer_scheme.h"
#include "optimized/parallel/sent.h"

static int64_t x_bytes(const struct attn_layer *layer, const struct attn_layout *layout, int rank)
{
    const struct attn_problem p = attn_layer_problem(layer);
    struct attn_box box = attn_layout_box(layout, &p, 0, rank);
    return box.batch * box.tokens * layer->hidden * (int64_t)attn_dtype_size(layer->dtype);
}

void attn_layer_gather_sent(struct attn_sent *sent, const struct attn_layer *layer,
                            const struct attn_layout *layout, int rank)
{
    for (int r = 1; r < layout->ranks; r++)
        attn_sent_add(sent, 1, x_bytes(layer, layout, rank));
}

void attn_layer_scatter_sent(struct attn_sent *sent, const struct attn_layer *layer,
                             const struct attn_layout *layout, int rank)
{
    for (int r = 0; r < layout->ranks; r++)
        if (r != rank)
            attn_sent_add(sent, 1, x_bytes(layer, layout, r));
}

/* A matrix of `rows` rows for each head; ranks reduce a run of rows. */
static void matrix_sent(struct attn_sent *sent, int64_t rows, int64_t row_bytes, int ranks,
                        int rank)
{
    for (int r = 0; r < ranks; r++)
        if (r != rank) {
            attn_sent_add(sent, 1, attn_run_of(rows, ranks, r).n * row_bytes);
            attn_sent_add(sent, 1, attn_run_of(rows, ranks, rank).n * row_bytes);
        }
}

void attn_layer_all_reduce_sent(struct attn_sent *sent, const struct attn_layer *l, int ranks,
                                int rank, int qkv, int o)
{
    int64_t e = (int64_t)attn_dtype_size(l->dtype);
    if (qkv) {
        matrix_sent(sent, l->hidden, e * l->heads * l->d_key, ranks, rank);
        matrix_sent(sent, l->hidden, e * l->kv_heads * l->d_key, ranks, rank);
        matrix_sent(sent, l->hidden, e * l->kv_heads * l->d_value, ranks, rank);
    }
    if (o)
        matrix_sent(sent, l->d_value, e * l->heads * l->hidden, ranks, rank);
}

void attn_layer_shared_heads_sent(struct attn_sent *sent, const struct attn_layer *layer,
                                  const struct attn_layout *heads, int rank)
{
    const struct attn_problem p = attn_layer_problem(layer);
    struct attn_layout owned = *heads;
    owned.kv_owners = 1;
    struct attn_tokens mine = attn_layout_box(&owned, &p, 1, rank).heads;
    struct attn_tokens here = attn_layout_box(heads, &p, 1, rank).heads;
    int64_t column = layer->hidden * (int64_t)attn_dtype_size(layer->dtype);
    for (int r = 0; r < heads->ranks; r++) {
        struct attn_tokens theirs = attn_layout_box(&owned, &p, 1, r).heads;
        struct attn_tokens there = attn_layout_box(heads, &p, 1, r).heads;
        int64_t moved[2] = {attn_tokens_common(&here, &theirs).n,
                            attn_tokens_common(&mine, &there).n};
        for (int way = 0; way < 2 && r != rank; way++) {
            attn_sent_add(sent, 1, moved[way] * layer->d_key * column);
            attn_sent_add(sent, 1, moved[way] * layer->d_value * column);
        }
    }
}
