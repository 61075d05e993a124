/* See work_mask.h. */
#include "optimized/parallel/travel/work_mask.h"

#include "optimized/integers.h"
#include "optimized/parallel/travel/work_buffers.h"
#include "ref/mask/bytes.h"
#include "ref/problem.h"

static struct attn_layout without_heads(struct attn_layout layout)
{
    layout.heads = (struct attn_axis){0, 0};
    layout.kv_owners = 0;
    layout.padded.heads = layout.padded.kv_heads = layout.pads ? 1 : 0;
    return layout;
}

struct attn_mask_data attn_work_mask(const struct attn_work *w)
{
    int dense = w->mask == ATTN_MASK_DENSE;
    struct attn_mask_data m = {.whole = *w->whole,
                               .kind = dense ? ATTN_TAG_MASK_ROWS : ATTN_TAG_MASK_KEYS,
                               .home = without_heads(w->home),
                               .work = without_heads(w->work)};
    m.whole.heads = m.whole.kv_heads = 1;
    m.whole.d_key = dense ? w->whole->n_key : 1;
    return m;
}

int attn_work_mask_moves(const struct attn_work *w)
{
    struct attn_mask_data m = attn_work_mask(w);
    return w->mask != ATTN_MASK_DESCRIBED &&
           !attn_layout_same(&m.home, &m.work, &m.whole, attn_tag_is_of_keys(m.kind));
}

int attn_work_mask_travels(const struct attn_work *w)
{
    return w->mask == ATTN_MASK_KEYS && w->stops > 1;
}

static int64_t bytes_of(const struct attn_mask_data *m, const struct attn_layout *layout, int rank)
{
    struct attn_box box =
        attn_layout_stored_box(layout, &m->whole, attn_tag_is_of_keys(m->kind), rank);
    return attn_box_rows(&box) * m->whole.d_key;
}

int64_t attn_work_mask_block(const struct attn_work *w, int rank)
{
    struct attn_mask_data m = attn_work_mask(w);
    return bytes_of(&m, &m.work, rank);
}

/* In a ring every block but the one that is held last, one after the other. */
static struct attn_sent passed_on(const struct attn_work *w)
{
    const struct attn_problem *p = &w->stored.whole;
    int64_t hops = w->stops - 1;
    if (!w->passes_on || !attn_work_mask_travels(w))
        return (struct attn_sent){0, 0};
    int64_t last = attn_work_mask_block(w, attn_work_stop(w, w->stops - 1).key);
    return (struct attn_sent){p->batch * p->n_key - last, hops};
}

/* Its rows, to each other rank that has them at work. */
static struct attn_sent moved(const struct attn_work *w)
{
    struct attn_mask_data m = attn_work_mask(w);
    int keys = attn_tag_is_of_keys(m.kind);
    struct attn_problem stored;
    const struct attn_layout home = attn_layout_stored(&m.home, &m.whole, &stored);
    const struct attn_layout work = attn_layout_stored(&m.work, &m.whole, &stored);
    struct attn_box mine = attn_layout_box(&home, &stored, keys, w->rank);
    int64_t rows = attn_box_rows(&mine);
    if (!attn_work_mask_moves(w) || rows * m.whole.d_key == 0 || (keys && home.alike))
        return (struct attn_sent){0, 0};
    int64_t others = attn_layout_rows(&work, &stored, keys, &mine) / rows - 1;
    return (struct attn_sent){others * rows * m.whole.d_key, others};
}

struct attn_sent attn_work_mask_sent(const struct attn_work *w)
{
    return attn_sent_both(moved(w), passed_on(w));
}

void attn_work_mask_buffers(const struct attn_work *w, struct attn_buffer *buffer)
{
    struct attn_mask_data m = attn_work_mask(w);
    int64_t home = bytes_of(&m, &m.home, w->rank), most = attn_layout_most(&m.work, &m.whole, 1);
    int copies = w->mask == ATTN_MASK_REPEATED ? w->home.ranks : 1;
    if (w->mask == ATTN_MASK_DESCRIBED)
        return;
    buffer[ATTN_MASK_PARTS] =
        attn_buffer_of("mask.parts", 1, attn_mask_over_size(w->whole->mask), 1);
    buffer[ATTN_MASK_SHARD] =
        attn_buffer_of(copies > 1 ? "mask.repeated" : "mask.shard", copies, home, 1);
    if (attn_work_mask_moves(w))
        buffer[ATTN_MASK_WORK] =
            attn_buffer_of("mask.work", 1, attn_work_mask_block(w, w->rank), 1);
    if (attn_work_mask_travels(w))
        buffer[ATTN_MASK_TRAVEL] = attn_buffer_of(
            "mask.travel", w->passes_on ? less(w->stops - 1, 2) : 1,
            attn_layout_stored_box(&m.work, &m.whole, 1, w->rank).batches.n * most, 1);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const char *const words[] = {"described", "keys", "repeated", "dense"};

static enum attn_status accepts_keys(const struct attn_problem *p, const struct attn_work *w,
                                     struct attn_error *err)
{
    const char *name = w->options->impl->name, *word = words[w->mask];
    int calls = p->mask != NULL ? attn_mask_keys_calls(p->mask) : 0;
    if (calls != 1)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:mask=%s: the mask '%.60s' has %d calls keys(...), and a vector of one "
                         "is sent; mask=described would work, or a mask such as "
                         "causal(br)&keys(NAME)",
                         name, word, p->mask != NULL ? attn_mask_text(p->mask) : "none", calls);
    if (w->mask == ATTN_MASK_REPEATED &&
        (w->work.heads.parts == 0 || attn_axis_parts(&w->work.tokens) > 1))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:mask=repeated: no all-to-all of all ranks takes tokens to heads here, "
                         "so nothing is to be repeated for one; mask=keys would work",
                         name);
    return ATTN_OK;
}

static enum attn_status accepts_dense(const struct attn_problem *p, const struct attn_work *w,
                                      struct attn_error *err)
{
    const char *name = w->options->impl->name;
    struct attn_mask_tensor row_start, column;
    if (w->scheme->has_visitors != NULL)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:mask=dense: queries travel here, and rows of the mask do not go with "
                         "them; mask=keys would work, or ring:mask=dense",
                         name);
    if (p->mask == NULL || attn_mask_is_none(p->mask))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:mask=dense: there is no mask to be stored; mask=described would work, "
                         "or a mask such as causal(br)",
                         name);
    if (attn_mask_varies_by_head(p->mask))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:mask=dense: rows of [B,1,Lq,Lk] are the same for all heads, and those "
                         "of '%.60s' are not; mask=described would work",
                         name, attn_mask_text(p->mask));
    if (attn_mask_stored(p->mask, &row_start, &column))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:mask=dense: '%.60s' is stored, and its arrays are read in place; "
                         "mask=described would work, or dense(NAME)",
                         name, attn_mask_text(p->mask));
    if (attn_product(attn_product(p->batch, p->n_query), p->n_key) < 0)
        return attn_fail(err, ATTN_EINVAL, "%s:mask=dense: B Lq Lk bytes are more than 2^63", name);
    return ATTN_OK;
}

enum attn_status attn_work_mask_accepts(const struct attn_problem *p,
                                        const struct attn_options *options, struct attn_error *err)
{
    struct attn_work w = attn_work_of(p, options, ATTN_FORWARD, 0);
    if (w.mask == ATTN_MASK_DESCRIBED)
        return ATTN_OK;
    if (!attn_problem_is_whole(p))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:mask=%s: a piece of a problem has no mask of its own to be dealt out; "
                         "mask=described would work",
                         options->impl->name, words[w.mask]);
    if (w.home.order >= ATTN_PLACES || w.work.order >= ATTN_PLACES)
        return attn_fail(err, ATTN_EINTERNAL, "%s: bytes of a mask are of one or two stretches",
                         options->impl->name);
    return w.mask == ATTN_MASK_DENSE ? accepts_dense(p, &w, err) : accepts_keys(p, &w, err);
}
