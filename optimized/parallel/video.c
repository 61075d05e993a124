/* video: how Open-Sora shards the tokens of a video, T frames of S places, T outer.  Its blocks
 * alternate between attention inside a frame (mask spatial) and at one place of all frames (mask
 * temporal), and what a rank has at home may be enough for one of the two:
 *
 *      home=frames   T/R frames of S places: enough for spatial attention
 *      home=space    S/R places of T frames: enough for temporal attention
 *
 * The exchange that is then needed is exchange=:
 *
 *      always        tokens for heads in every block, as ulysses       Open-Sora v1.0 (home=frames)
 *      needed        that only where home is not enough                Open-Sora v1.2 (home=space)
 *      axis          the other axis is sharded for the call: frames    DSP (home=space)
 *                    for places; no head is divided
 *
 * The mask says what is needed (attn_mask_video).  Under any other mask, tokens are exchanged for
 * heads in each of the three.  With places, every place is a batch of its own for the local
 * implementation: S/R batches of T queries and T keys.
 *
 * Nothing has to divide.  The frameworks assert that R divides T (v1.0) or S (v1.2), and the heads.
 *
 * Memory   q k v o lse (backward more, as in ulysses) of what is exchanged; else nothing.
 * Sent     of what is exchanged as much as ulysses, whichever exchange it is.  DSP itself exchanges
 *          x before q, k, v are made of it: experiments/rim/layer/schemes/dsp.c.
 * Caveats  Without a video in the mask both homes are runs of tokens.
 * Source   hpcaitech/Open-Sora v1.0 to v1.2, issue 270; Zhao et al. 2024 (DSP).
 */
#include "optimized/parallel/sent.h"
#include "ref/problem.h"

enum { OPTION_HOME = ATTN_PARALLEL_OPTIONS, OPTION_EXCHANGE };
enum { FRAMES, SPACE };
enum { ALWAYS, NEEDED, AXIS };

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL,
    [OPTION_HOME] = {"home", SPACE, 0, 1, "frames space", "which axis of the video is sharded"},
    [OPTION_EXCHANGE] = {"exchange", NEEDED, 0, 2, "always needed axis",
                         "tokens for heads always, or where the mask needs it; or the other axis"},
    {0}};

static enum attn_video video_of(const struct attn_problem *whole, int64_t *frames)
{
    *frames = 1;
    return attn_problem_is_whole(whole) ? attn_mask_video(whole->mask, frames) : ATTN_NO_VIDEO;
}

/* This axis of the video is sharded; without a video, tokens are. */
static struct attn_layout sharded(const struct attn_problem *whole,
                                  const struct attn_options *options, int axis)
{
    int64_t frames;
    int ranks = attn_parallel_ranks(options);
    if (video_of(whole, &frames) == ATTN_NO_VIDEO)
        return (struct attn_layout){.ranks = ranks, .tokens = {ranks, 1}};
    return (struct attn_layout){.ranks = ranks,
                                .order = axis == FRAMES ? ATTN_FRAMES : ATTN_PLACES,
                                .tokens = {ranks, 1},
                                .frames = frames};
}

static struct attn_layout home(const struct attn_problem *whole, const struct attn_options *options)
{
    return sharded(whole, options, (int)options->value[OPTION_HOME]);
}

/* The axis along which a rank needs no other's tokens; -1: none. */
static int free_axis(const struct attn_problem *whole)
{
    int64_t frames;
    enum attn_video video = video_of(whole, &frames);
    return video == ATTN_SAME_FRAME ? FRAMES : video == ATTN_SAME_PLACE ? SPACE : -1;
}

static struct attn_layout work(const struct attn_problem *whole, const struct attn_options *options)
{
    int axis = free_axis(whole);
    int64_t exchange = options->value[OPTION_EXCHANGE];
    if (exchange != ALWAYS && axis == (int)options->value[OPTION_HOME])
        return home(whole, options);
    if (exchange == AXIS && axis >= 0)
        return sharded(whole, options, axis);
    return attn_layout_of_heads(whole, options);
}

static struct attn_sent sent(const struct attn_work *w)
{
    if (w->work.heads.parts > 0)
        return attn_heads_for_tokens_sent(w);
    if (w->work.order == w->home.order)
        return (struct attn_sent){0, 0};
    return attn_frames_for_places_sent(w);
}

static const struct attn_scheme video = {.home = home, .work = work, .sent = sent};

ATTN_SCHEME(video, video, options_of, "frames or places of a video on each rank (Open-Sora, DSP)")
