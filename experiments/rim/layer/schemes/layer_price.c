/* Layers that are refused, and the price of a layer for one rank.  See layer_scheme.h. */
#include <string.h>

#include "experiments/rim/layer/schemes/layer_work.h"
#include "optimized/parallel/parallel.h"

static enum attn_status check(const struct attn_layer_spec *spec, const struct attn_layer *layer,
                              enum attn_pass pass, struct attn_error *err)
{
    const struct attn_options *options = &spec->spec.options;
    const struct attn_scheme *attention = spec->spec.impl->scheme;
    const struct attn_problem p = attn_layer_problem(layer);
    enum attn_status status = attn_layer_check(layer, err);
    if (status == ATTN_OK && options->value[ATTN_OPTION_SIZES] == ATTN_SIZES_PAD)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:sizes=pad: a layer has no pads; sizes=uneven would work",
                         spec->spec.impl->name);
    if (status == ATTN_OK && attention->saves_keys != NULL && attention->saves_keys(options))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:save=kv: a layer keeps its own k and v, not those that were gathered; "
                         "save=nothing would work",
                         spec->spec.impl->name);
    if (status == ATTN_OK && attention->mask > 0 &&
        options->value[attention->mask] != ATTN_MASK_DESCRIBED)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s: the ranks of a layer read one described mask; mask=described would "
                         "work",
                         spec->spec.impl->name);
    if (status == ATTN_OK)
        status = attn_parallel_accepts(&p, options, err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = attn_check_local_backward(options, err);
    if (status != ATTN_OK || spec->scheme != NULL)
        return status;
    const struct attn_layout home = attention->home(&p, options);
    if (attn_axis_parts(&home.heads) > 1)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s: ranks have shards of heads, not of the sequence; as a layer that is "
                         "fastseq",
                         spec->spec.impl->name);
    if (home.alike)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:keys=whole: a layer makes k and v of the tokens that a rank has; "
                         "keys=dealt would work",
                         spec->spec.impl->name);
    return ATTN_OK;
}

/* Buffers that are there for a moment, beside those of a whole pass. */
struct moment {
    struct attn_buffer buffer[2];
    int attends; /* the buffers of attention, too */
};

/* In the order of layer_ranks.c: a tensor that leaves for home has the copies with it that are
 * added where it arrives, a weight's gradient the sum that it makes. */
enum { MOMENTS = 4 + ATTN_WEIGHTS };
static int list_moments(const struct attn_layer_work *w, enum attn_pass pass,
                        const struct attn_buffer *buffer, struct moment moment[MOMENTS])
{
    const struct attn_move home = attn_layer_tokens_move(w, &w->in, &w->home);
    const struct attn_buffer copies = attn_move_copies(&home, w->rank), none = {0};
    const struct moment forward[] = {
        {.buffer = {buffer[ATTN_MOMENT_X]}}, {.attends = 1}, {.buffer = {buffer[ATTN_MOMENT_Y]}}};
    const struct moment backward[] = {
        {.buffer = {buffer[ATTN_MOMENT_DY], buffer[ATTN_MOMENT_DO]}},
        {.attends = 1},
        {.buffer = {buffer[ATTN_MOMENT_X]}},
        {.buffer = {buffer[ATTN_MOMENT_DX], w->gathers_x ? copies : none}}};
    int back = pass == ATTN_BACKWARD, n = back ? 4 : 3;
    memcpy(moment, back ? backward : forward, (size_t)n * sizeof *moment);
    for (int t = 0; t < ATTN_WEIGHTS && back; t++) {
        const struct attn_layer_weight weight = attn_layer_weight_of(w, t);
        const struct attn_move move = attn_layer_weight_move(&weight, 0);
        if (weight.sums)
            moment[n++] = (struct moment){.buffer = {attn_layer_weight_sum(&weight, w->rank),
                                                     attn_move_copies(&move, w->rank)}};
    }
    return n;
}

/* The fullest moment, the first of them in a tie. */
static enum attn_status price_moments(const struct attn_layer_work *w, enum attn_pass pass,
                                      const struct attn_buffer *buffer,
                                      const struct attn_cost *base,
                                      const struct attn_cost *attention, struct attn_cost *most,
                                      struct attn_error *err)
{
    struct moment moment[MOMENTS];
    int moments = list_moments(w, pass, buffer, moment);
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < moments && status == ATTN_OK; n++) {
        struct attn_cost now = *base;
        status = attn_buffers_price(moment[n].buffer, 2, &now, err);
        for (int i = 0; moment[n].attends && i < attention->n_live && status == ATTN_OK; i++)
            status = attn_cost_join(&now, &attention->live[i], err);
        if (status == ATTN_OK && (most->n_live == 0 || now.peak_bytes > most->peak_bytes))
            *most = now;
    }
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

/* Messages of the layer beside those of its attention. */
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
    struct attn_cost attention = {0}, base = {0};
    struct attn_buffer buffer[ATTN_LAYER_BUFFERS];
    enum attn_status status = check(spec, layer, pass, err);
    *cost = (struct attn_cost){0};
    if (status != ATTN_OK)
        return status;
    const struct attn_layer_work w = attn_layer_work_of(spec, layer, rank);
    attn_layer_buffers(&w, pass, buffer);
    status = attn_parallel_cost(&w.attention, &spec->spec.options, pass, rank, &attention, err);
    if (status == ATTN_OK)
        status = attn_buffers_price(buffer, ATTN_KEPT_BUFFERS, &base, err);
    int64_t kept = base.peak_bytes;
    if (status == ATTN_OK)
        status = attn_buffers_price(buffer + ATTN_KEPT_BUFFERS,
                                    ATTN_PASS_BUFFERS - ATTN_KEPT_BUFFERS, &base, err);
    if (status == ATTN_OK)
        status = price_moments(&w, pass, buffer, &base, &attention, cost, err);
    struct attn_sent sent = layer_sent(&w, pass);
    cost->saved_bytes = kept;
    cost->shard_bytes = shards(&w, pass);
    cost->flops = attention.flops + projection_flops(&w, pass);
    cost->counted = attention.counted;
    cost->bytes_sent = attention.bytes_sent + sent.bytes;
    cost->messages = attention.messages + sent.messages;
    return status;
}
