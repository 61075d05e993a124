/* dsp: a video's other axis is sharded for the whole layer.  At home a rank has S/R places of all T
 * frames, which is all that temporal attention needs.  For spatial attention x goes to T/R whole
 * frames, and y comes back; q, k, v and o stay where they are, and no head is divided:
 *
 *      x [B, T, S/R, C]  --all-to-all-->  [B, T/R, S, C]
 *      y [B, T/R, S, C]  --all-to-all-->  [B, T, S/R, C]
 *
 * Two tensors are exchanged, where ulysses exchanges four (q, k, v, o).  The x that has arrived is
 * kept for the backward.  Nothing has to divide: no padding (the published code pads and cuts off).
 *
 * Memory   x once more, while it is kept.
 * Sent     under a temporal mask nothing; under a spatial one forward and backward 2 B T S C
 *          (R-1)/R^2; backward gradients of weights too, which every rank has.
 * Source   Zhao et al. 2024; VideoSys, videosys/core/distributed/comm.py.
 */
#include "experiments/rim/layer/schemes/layer_scheme.h"
#include "optimized/parallel/sent.h"

static struct attn_layout axis(const struct attn_problem *p, const struct attn_options *options,
                               enum attn_order order)
{
    int64_t frames = 1;
    int ranks = attn_parallel_ranks(options);
    attn_mask_video(p->mask, &frames);
    return (struct attn_layout){
        .ranks = ranks, .order = order, .tokens = {ranks, 1}, .frames = frames};
}

static struct attn_layout home(const struct attn_problem *p, const struct attn_options *options)
{
    return axis(p, options, ATTN_PLACES);
}

static struct attn_layout work(const struct attn_problem *p, const struct attn_options *options)
{
    int64_t frames;
    return axis(p, options,
                attn_mask_video(p->mask, &frames) == ATTN_SAME_FRAME ? ATTN_FRAMES : ATTN_PLACES);
}

static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *options,
                                struct attn_error *err)
{
    int64_t frames;
    (void)options;
    if (p->mask != NULL && attn_mask_video(p->mask, &frames) != ATTN_NO_VIDEO)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "dsp shards the axes of a video: a mask such as spatial(T,S,1) or "
                     "temporal(T,S,1) would work");
}

static const struct attn_scheme attention = {.home = work, .work = work, .accepts = accepts};

static struct attn_sent sent(const struct attn_layer *layer, const struct attn_options *options,
                             enum attn_pass pass, int rank)
{
    const struct attn_problem p = attn_layer_problem(layer);
    struct attn_layout here = home(&p, options), there = work(&p, options);
    int64_t frames = here.frames, places = frames > 0 ? layer->length / frames : 0;
    int64_t one = layer->batch * layer->hidden * (int64_t)attn_dtype_size(layer->dtype);
    struct attn_sent sum = {0, 0};
    for (int r = 0; r < here.ranks && there.order == ATTN_FRAMES; r++)
        if (r != rank) {
            int64_t my_places = attn_run_of(places, here.ranks, rank).n;
            int64_t my_frames = attn_run_of(frames, here.ranks, rank).n;
            attn_sent_add(&sum, 1, one * my_places * attn_run_of(frames, here.ranks, r).n);
            attn_sent_add(&sum, 1, one * my_frames * attn_run_of(places, here.ranks, r).n);
        }
    if (pass == ATTN_BACKWARD)
        attn_layer_all_reduce_sent(&sum, layer, here.ranks, rank, 1, 1);
    return sum;
}

const struct attn_layer_scheme attn_layer_scheme_dsp = {
    .record = {.name = "dsp",
               .summary = "x of a video exchanged between places and frames (Open-Sora, DSP)",
               .family = "layer",
               .options = attn_parallel_options,
               .ranks = attn_parallel_ranks,
               .scheme = &attention},
    .home = home,
    .sent = sent};
