/* What a layer over ranks refuses, and what it costs one rank.  See layer_scheme.h. */
#include <string.h>

#include "optimized/layer/layer_work.h"
#include "optimized/parallel/rank.h"

static enum attn_status check(const struct attn_layer_spec *spec, const struct attn_layer *layer,
                              enum attn_pass pass, struct attn_error *err)
{
    const struct attn_options *options = &spec->spec.options;
    const struct attn_problem p = attn_layer_problem(layer);
    enum attn_status status = attn_layer_check(layer, err);
    if (status == ATTN_OK && options->value[ATTN_OPTION_SIZES] == ATTN_SIZES_PAD)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:sizes=pad: a layer has no pads; sizes=uneven would work",
                         spec->spec.impl->name);
    if (status == ATTN_OK && spec->attention->saves_keys != NULL &&
        spec->attention->saves_keys(options))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:save=kv: a layer keeps its own k and v, not those that were gathered; "
                         "save=nothing would work",
                         spec->spec.impl->name);
    if (status == ATTN_OK)
        status = attn_parallel_accepts(spec->attention, &p, options, err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = attn_check_local_backward(spec->attention, options, err);
    if (status != ATTN_OK || spec->scheme != NULL)
        return status;
    const struct attn_layout home = spec->attention->home(&p, options);
    if (attn_axis_parts(&home.heads) > 1)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s: ranks have shards of heads, not of the sequence; as a layer that is "
                         "megatron-sp",
                         spec->spec.impl->name);
    if (home.alike)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:keys=whole: a layer makes k and v of the tokens that a rank has; "
                         "keys=dealt would work",
                         spec->spec.impl->name);
    return ATTN_OK;
}

/* One moment of a pass: what is held throughout, and what is there besides. */
struct moments {
    const struct attn_cost *held;
    struct attn_cost *most; /* the fullest so far, the first of them in a tie */
};

static enum attn_status moment(struct moments *x, const struct attn_buffer *buffer, int n,
                               const struct attn_cost *inside, struct attn_error *err)
{
    struct attn_cost now = *x->held;
    enum attn_status status = attn_buffers_price(buffer, n, &now, err);
    for (int i = 0; inside != NULL && i < inside->n_live && status == ATTN_OK; i++)
        status = attn_cost_add(&now, inside->live[i].name, inside->live[i].bytes, 1, err);
    if (status == ATTN_OK && (x->most->n_live == 0 || now.peak_bytes > x->most->peak_bytes))
        *x->most = now;
    return status;
}

/* A tensor that leaves for home, with the copies that are added where it arrives. */
static enum attn_status departure(struct moments *x, const struct attn_layer_work *w,
                                  const struct attn_buffer *buffer, int sums,
                                  struct attn_error *err)
{
    const struct attn_move home = attn_layer_tokens_move(w, &w->in, &w->home);
    const struct attn_buffer at[2] = {*buffer, sums ? attn_move_copies(&home, w->rank)
                                                    : (struct attn_buffer){0}};
    return moment(x, at, 2, NULL, err);
}

/* The sum of one weight's gradients, and what is added. */
static enum attn_status completion(struct moments *x, const struct attn_layer_work *w, int weight,
                                   struct attn_error *err)
{
    const struct attn_layer_weight t = attn_layer_weight_of(w, weight);
    const struct attn_move move = attn_layer_weight_move(&t, 0);
    struct attn_box box = attn_end_box(&move.to, &t.whole, t.kind, w->rank);
    const struct attn_buffer at[2] = {attn_buffer_of("dw.sum", box.heads.n,
                                                     box.tokens * attn_tag_width(t.kind, &t.whole),
                                                     (int64_t)attn_dtype_size(t.whole.dtype)),
                                      attn_move_copies(&move, w->rank)};
    return t.sums ? moment(x, at, 2, NULL, err) : ATTN_OK;
}

static enum attn_status price_moments(const struct attn_layer_work *w, enum attn_pass pass,
                                      const struct attn_buffer *buffer,
                                      const struct attn_cost *attention, struct moments *x,
                                      struct attn_error *err)
{
    int back = pass == ATTN_BACKWARD;
    enum attn_status status =
        back ? moment(x, buffer + ATTN_MOMENT_DY, 2, NULL, err) /* dy, and dO at home */
             : moment(x, buffer + ATTN_MOMENT_X, 1, NULL, err);
    if (status == ATTN_OK)
        status = moment(x, NULL, 0, attention, err);
    if (status == ATTN_OK && back)
        status = moment(x, buffer + ATTN_MOMENT_X, 1, NULL, err);
    if (status == ATTN_OK)
        status = departure(x, w, buffer + (back ? ATTN_MOMENT_DX : ATTN_MOMENT_Y),
                           back ? w->gathers_x : w->sums_y, err);
    for (int t = 0; t < ATTN_WEIGHTS && status == ATTN_OK && back; t++)
        status = completion(x, w, t, err);
    return status;
}

/* x y and the rank's weights; backward x dy dx and weights twice. */
static double shards(const struct attn_layer_work *w, enum attn_pass pass)
{
    const struct attn_layer *l = w->layer;
    const struct attn_layer_part made = attn_layer_part_of(w, &w->made);
    const struct attn_layer_part merged = attn_layer_part_of(w, &w->merged);
    const struct attn_layer_part x =
        attn_layer_part_of(w, w->spec->boundary != ATTN_BOUNDARY_NONE ? &w->all : &w->home);
    double tokens = (double)(x.batch * x.tokens), c = (double)l->hidden;
    double columns = (double)(made.heads * l->d_key + made.kv_heads * (l->d_key + l->d_value) +
                              merged.heads * l->d_value);
    double each = pass == ATTN_FORWARD ? 2 * tokens + columns : 3 * tokens + 2 * columns;
    return each * c * (double)attn_dtype_size(l->dtype);
}

/* A multiply and an add for each token and weight of the rank; backward for dX and for dW. */
static double projection_flops(const struct attn_layer_work *w, enum attn_pass pass)
{
    const struct attn_layer_part made = attn_layer_part_of(w, &w->made);
    const struct attn_layer_part merged = attn_layer_part_of(w, &w->merged);
    double c = (double)w->layer->hidden;
    double in = (double)(made.batch * made.tokens) *
                (double)(made.heads * made.d_key + made.kv_heads * (made.d_key + made.d_value));
    double out = (double)(merged.batch * merged.tokens) * (double)(merged.heads * merged.d_value);
    return (pass == ATTN_FORWARD ? 2 : 4) * c * (in + out);
}

/* What the layer sends beside its attention. */
static struct attn_sent layer_sent(const struct attn_layer_work *w, enum attn_pass pass)
{
    const struct attn_layer_spec *spec = w->spec;
    struct attn_sent sent = {0, 0};
    if (spec->scheme != NULL)
        sent = spec->scheme->sent(w->layer, &spec->spec.options, pass, w->rank);
    else if (pass == ATTN_BACKWARD)
        attn_layer_all_reduce_sent(&sent, w->layer, w->ranks, w->rank, 1, 1);
    if (spec->boundary != ATTN_BOUNDARY_NONE) /* y, or dX */
        attn_layer_gather_sent(&sent, w->layer, &w->home, w->rank);
    return sent;
}

enum attn_status attn_layer_ranks_cost(const struct attn_layer_spec *spec,
                                       const struct attn_layer *layer, enum attn_pass pass,
                                       int rank, struct attn_cost *cost, struct attn_error *err)
{
    struct attn_cost attention = {0}, held = {0};
    struct attn_buffer buffer[ATTN_LAYER_BUFFERS];
    enum attn_status status = check(spec, layer, pass, err);
    *cost = (struct attn_cost){0};
    if (status != ATTN_OK)
        return status;
    const struct attn_layer_work w = attn_layer_work_of(spec, layer, rank);
    struct moments x = {&held, cost};
    attn_layer_buffers(&w, pass, buffer);
    status = attn_parallel_cost(spec->attention, &w.attention, &spec->spec.options, pass, rank,
                                &attention, err);
    if (status == ATTN_OK)
        status = attn_buffers_price(buffer, ATTN_KEPT_BUFFERS, &held, err);
    int64_t kept = held.peak_bytes;
    if (status == ATTN_OK)
        status = attn_buffers_price(buffer + ATTN_KEPT_BUFFERS,
                                    ATTN_HELD_BUFFERS - ATTN_KEPT_BUFFERS, &held, err);
    if (status == ATTN_OK)
        status = price_moments(&w, pass, buffer, &attention, &x, err);
    struct attn_sent sent = layer_sent(&w, pass);
    cost->saved_bytes = kept;
    cost->shard_bytes = shards(&w, pass);
    cost->flops = attention.flops + projection_flops(&w, pass);
    cost->counted = attention.counted;
    cost->bytes_sent = attention.bytes_sent + sent.bytes;
    cost->messages = attention.messages + sent.messages;
    return status;
}
