/* See layer_work.h. */
#include "experiments/rim/layer/schemes/layer_work.h"

#include "optimized/integers.h"

/* ---- layouts --------------------------------------------------------------------------------- */

static struct attn_layout tokens_of(struct attn_layout layout)
{
    layout.heads = (struct attn_axis){0, 0};
    layout.kv_owners = 0;
    return layout;
}

static struct attn_layout heads_of(const struct attn_layout *layout)
{
    return (struct attn_layout){
        .ranks = layout->ranks, .heads = layout->heads, .kv_owners = layout->kv_owners};
}

static int deals_heads(const struct attn_layout *layout)
{
    return attn_axis_parts(&layout->heads) > 1;
}

struct attn_layer_work attn_layer_work_of(const struct attn_layer_spec *spec,
                                          const struct attn_layer *layer, int rank)
{
    const struct attn_options *options = &spec->spec.options;
    struct attn_layer_work w = {.spec = spec,
                                .layer = layer,
                                .rank = rank,
                                .ranks = attn_layer_ranks(spec),
                                .attention = attn_layer_problem(layer)};
    int merges_at_home = spec->scheme != NULL && spec->scheme->merges_at_home;
    w.tokens = (struct attn_problem){.batch = layer->batch,
                                     .heads = 1,
                                     .kv_heads = 1,
                                     .n_query = layer->length,
                                     .n_key = layer->length,
                                     .d_key = layer->hidden,
                                     .d_value = layer->hidden,
                                     .dtype = layer->dtype};
    w.all = (struct attn_layout){.ranks = w.ranks};
    w.made = spec->spec.impl->scheme->home(&w.attention, options);
    w.in = tokens_of(w.made);
    w.home = spec->scheme != NULL ? spec->scheme->home(&w.attention, options) : w.in;
    w.merged = merges_at_home ? w.home : w.made;
    w.moves_x = !attn_layout_same(&w.home, &w.in, &w.tokens, 0);
    w.gathers_x = w.moves_x && attn_layout_same(&w.in, &w.all, &w.tokens, 0);
    w.moves_o = merges_at_home && !attn_layout_same(&w.made, &w.home, &w.attention, 0);
    w.moves_y = !merges_at_home && w.moves_x;
    return w;
}

struct attn_layer_weight attn_layer_weight_of(const struct attn_layer_work *w, int weight)
{
    static const enum attn_tag_kind kind[] = {ATTN_TAG_Q, ATTN_TAG_K, ATTN_TAG_V, ATTN_TAG_Q};
    const struct attn_layer *l = w->layer;
    int64_t rows = weight == ATTN_WEIGHT_O ? l->d_value : l->hidden;
    struct attn_layer_weight x = {.whole = {.batch = 1,
                                            .heads = l->heads,
                                            .kv_heads = l->kv_heads,
                                            .n_query = rows,
                                            .n_key = rows,
                                            .d_key = weight == ATTN_WEIGHT_O ? l->hidden : l->d_key,
                                            .d_value = l->d_value,
                                            .dtype = l->dtype},
                                  .kind = kind[weight],
                                  .layout =
                                      heads_of(weight == ATTN_WEIGHT_O ? &w->merged : &w->made)};
    x.summed = x.layout;
    if (!deals_heads(&x.layout)) {
        x.summed = (struct attn_layout){.ranks = w->ranks, .tokens = {w->ranks, 1}};
        x.sums = w->ranks > 1;
    } else if (attn_tag_is_of_keys(x.kind)) {
        x.summed.kv_owners = 1;
        x.sums = attn_layout_copies(&x.layout, &x.whole);
    }
    return x;
}

int64_t attn_layer_weight_numbers(const struct attn_layer_weight *weight,
                                  const struct attn_layout *layout, int rank)
{
    struct attn_box box =
        attn_layout_box(layout, &weight->whole, attn_tag_is_of_keys(weight->kind), rank);
    return attn_box_rows(&box) * attn_tag_width(weight->kind, &weight->whole);
}

struct attn_buffer attn_layer_weight_sum(const struct attn_layer_weight *weight, int rank)
{
    return attn_buffer_of("dw.sum", 1, attn_layer_weight_numbers(weight, &weight->summed, rank),
                          (int64_t)attn_dtype_size(weight->whole.dtype));
}

struct attn_layer_part attn_layer_part_of(const struct attn_layer_work *w,
                                          const struct attn_layout *layout)
{
    struct attn_box queries = attn_layout_box(layout, &w->attention, 0, w->rank);
    struct attn_box keys = attn_layout_box(layout, &w->attention, 1, w->rank);
    return (struct attn_layer_part){queries.batch,    queries.heads.n,  keys.heads.n,
                                    queries.tokens,   w->layer->hidden, w->layer->d_key,
                                    w->layer->d_value};
}

/* ---- moves ----------------------------------------------------------------------------------- */

struct attn_move attn_layer_tokens_move(const struct attn_layer_work *w,
                                        const struct attn_layout *from,
                                        const struct attn_layout *to)
{
    return (struct attn_move){.whole = &w->tokens,
                              .kind = ATTN_TAG_Q,
                              .dtype = w->layer->dtype,
                              .from = {.layout = from},
                              .to = {.layout = to}};
}

struct attn_move attn_layer_o_move(const struct attn_layer_work *w, int goes_home)
{
    return (struct attn_move){.whole = &w->attention,
                              .kind = ATTN_TAG_O,
                              .dtype = w->layer->dtype,
                              .from = {.layout = goes_home ? &w->made : &w->home},
                              .to = {.layout = goes_home ? &w->home : &w->made}};
}

struct attn_move attn_layer_weight_move(const struct attn_layer_weight *weight, int back)
{
    return (struct attn_move){.whole = &weight->whole,
                              .kind = weight->kind,
                              .dtype = weight->whole.dtype,
                              .from = {.layout = back ? &weight->summed : &weight->layout},
                              .to = {.layout = back ? &weight->layout : &weight->summed}};
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void add(struct attn_buffer buffer[ATTN_LAYER_BUFFERS], int which, const char *name,
                const struct attn_layer_part *n, int64_t heads, int64_t width,
                enum attn_dtype dtype)
{
    buffer[which] =
        attn_buffer_of(name, n->batch * heads, n->tokens * width, (int64_t)attn_dtype_size(dtype));
}

/* For every move there may be; weights fall into one piece for each rank, as y or less. */
static struct attn_buffer lists_of(const struct attn_layer_work *w)
{
    int64_t x = attn_move_lists(&w->home, &w->in).numbers;
    int64_t o = attn_move_lists(&w->made, &w->home).numbers;
    int64_t all = attn_move_lists(&w->all, &w->home).numbers;
    return attn_buffer_of("layer.messages", 1, greater(greater(x, o), all), 1);
}

static void pass_buffers(const struct attn_layer_work *w, enum attn_pass pass,
                         struct attn_buffer *buffer)
{
    const struct attn_layer_part made = attn_layer_part_of(w, &w->made);
    const struct attn_layer_part in = attn_layer_part_of(w, &w->in);
    const struct attn_layer_part home = attn_layer_part_of(w, &w->home);
    enum attn_dtype t = w->layer->dtype;
    int64_t c = w->layer->hidden, d = made.d_key, dv = made.d_value;
    int boundary = w->spec->boundary != ATTN_BOUNDARY_NONE;
    if (pass == ATTN_FORWARD) {
        if (boundary)
            add(buffer, ATTN_PASS_Y, "y.own", &home, 1, c, t);
        if (w->moves_y)
            add(buffer, ATTN_MOMENT_Y, "y.exchanged", &in, 1, c, t);
        return;
    }
    if (boundary) {
        add(buffer, ATTN_PASS_DY, "dy.own", &home, 1, c, t);
        add(buffer, ATTN_PASS_DX, "dx.own", &home, 1, c, t);
    }
    add(buffer, ATTN_PASS_DQ, "layer.dq", &made, made.heads, d, t);
    add(buffer, ATTN_PASS_DK, "layer.dk", &made, made.kv_heads, d, t);
    add(buffer, ATTN_PASS_DV, "layer.dv", &made, made.kv_heads, dv, t);
    add(buffer, ATTN_PASS_DO, "layer.do", &made, made.heads, dv, t);
    if (w->moves_y)
        add(buffer, ATTN_MOMENT_DY, "dy.exchanged", &in, 1, c, t);
    if (w->moves_o)
        add(buffer, ATTN_MOMENT_DO, "do.home", &home, w->layer->heads, dv, t);
    if (w->moves_x)
        add(buffer, ATTN_MOMENT_DX, w->gathers_x ? "dx.partial" : "dx.exchanged", &in, 1, c, t);
}

void attn_layer_buffers(const struct attn_layer_work *w, enum attn_pass pass,
                        struct attn_buffer buffer[ATTN_LAYER_BUFFERS])
{
    const struct attn_layer_part made = attn_layer_part_of(w, &w->made);
    const struct attn_layer_part in = attn_layer_part_of(w, &w->in);
    const struct attn_layer_part home = attn_layer_part_of(w, &w->home);
    enum attn_dtype t = w->layer->dtype;
    int64_t c = w->layer->hidden;
    for (int b = 0; b < ATTN_LAYER_BUFFERS; b++)
        buffer[b] = (struct attn_buffer){0};
    add(buffer, ATTN_LAYER_Q, "layer.q", &made, made.heads, made.d_key, t);
    add(buffer, ATTN_LAYER_K, "layer.k", &made, made.kv_heads, made.d_key, t);
    add(buffer, ATTN_LAYER_V, "layer.v", &made, made.kv_heads, made.d_value, t);
    add(buffer, ATTN_LAYER_O, "layer.o", &made, made.heads, made.d_value, t);
    add(buffer, ATTN_LAYER_LSE, "layer.lse", &made, made.heads, 1,
        t == ATTN_F64 ? ATTN_F64 : ATTN_F32);
    buffer[ATTN_PASS_LISTS] = lists_of(w);
    if (w->spec->boundary != ATTN_BOUNDARY_NONE)
        add(buffer, ATTN_KEPT_X, "x.own", &home, 1, c, t);
    if (w->gathers_x)
        add(buffer, ATTN_MOMENT_X, "x.gathered", &in, 1, c, t);
    else if (w->moves_x)
        add(buffer, ATTN_KEPT_X_IN, "x.exchanged", &in, 1, c, t);
    if (w->moves_o)
        add(buffer, ATTN_KEPT_O, "o.home", &home, w->layer->heads, made.d_value, t);
    pass_buffers(w, pass, buffer);
}
