/* See work_mask.h. */
#include "optimized/parallel/travel/work_mask.h"

#include <string.h>

#include "optimized/integers.h"
#include "optimized/parallel/travel/travel.h"
#include "ref/problem.h"

/* The mask as a tensor of one head, of keys or of queries: its problem, d_key being the bytes of a
 * row, and its layouts. */
struct mask_data {
    struct attn_problem whole;
    enum attn_tag_kind kind;
    int is_of_keys;
    struct attn_layout home, work;
};

static struct attn_layout without_heads(struct attn_layout layout)
{
    layout.heads = (struct attn_axis){0, 0};
    layout.kv_owners = 0;
    layout.padded.heads = layout.padded.kv_heads = layout.pads ? 1 : 0;
    return layout;
}

static struct mask_data mask_of(const struct attn_work *w)
{
    int keys = w->mask != ATTN_MASK_DENSE;
    struct mask_data m = {.whole = *w->whole,
                          .kind = keys ? ATTN_TAG_MASK_KEYS : ATTN_TAG_MASK_ROWS,
                          .is_of_keys = keys,
                          .home = without_heads(w->home),
                          .work = without_heads(w->work)};
    m.whole.heads = m.whole.kv_heads = 1;
    m.whole.d_key = keys ? 1 : w->whole->n_key;
    return m;
}

/* 1 if bytes change hands between home and work. */
static int mask_moves(const struct attn_work *w)
{
    struct mask_data m = mask_of(w);
    return w->mask != ATTN_MASK_DESCRIBED &&
           !attn_layout_same(&m.home, &m.work, &m.whole, m.is_of_keys);
}

int attn_work_mask_travels(const struct attn_work *w)
{
    return w->mask == ATTN_MASK_KEYS && w->stops > 1;
}

static int64_t stored_rows(const struct mask_data *m, const struct attn_layout *at, int rank)
{
    struct attn_box box = attn_layout_stored_box(at, &m->whole, m->is_of_keys, rank);
    return attn_box_rows(&box);
}

int64_t attn_work_mask_rows(const struct attn_work *w, int rank)
{
    struct mask_data m = mask_of(w);
    return stored_rows(&m, &m.work, rank);
}

/* In a ring, every block but the one that is held last. */
static struct attn_sent passed_on(const struct attn_work *w)
{
    const struct attn_problem *p = &w->stored.whole;
    if (!attn_work_mask_travels(w))
        return (struct attn_sent){0, 0};
    int last = attn_work_stop(w, w->stops - 1).key;
    return (struct attn_sent){p->batch * p->n_key - attn_work_mask_rows(w, last), w->stops - 1};
}

/* Its rows, to each other rank that has them at work. */
static struct attn_sent moved(const struct attn_work *w)
{
    struct mask_data m = mask_of(w);
    struct attn_problem stored;
    const struct attn_layout work = attn_layout_stored(&m.work, &m.whole, &stored);
    struct attn_box mine = attn_layout_stored_box(&m.home, &m.whole, m.is_of_keys, w->rank);
    int64_t rows = attn_box_rows(&mine), bytes = rows * m.whole.d_key;
    if (!mask_moves(w) || bytes == 0 || (m.is_of_keys && m.home.alike))
        return (struct attn_sent){0, 0};
    int64_t others = attn_layout_rows(&work, &stored, m.is_of_keys, &mine) / rows - 1;
    return (struct attn_sent){others * bytes, others};
}

struct attn_sent attn_work_mask_sent(const struct attn_work *w)
{
    return attn_sent_both(moved(w), passed_on(w));
}

void attn_work_mask_buffers(const struct attn_work *w, struct attn_buffer *buffer)
{
    struct mask_data m = mask_of(w);
    int64_t home = stored_rows(&m, &m.home, w->rank), work = stored_rows(&m, &m.work, w->rank);
    int64_t width = m.whole.d_key, slots = less(w->stops - 1, 2);
    if (w->mask == ATTN_MASK_DESCRIBED)
        return;
    buffer[ATTN_MASK_PARTS] =
        attn_buffer_of("mask.parts", 1, attn_mask_over_size(w->whole->mask), 1);
    buffer[ATTN_MASK_SHARD] = w->mask == ATTN_MASK_REPEATED
                                  ? attn_buffer_of("mask.repeated", w->home.ranks, home, 1)
                                  : attn_buffer_of("mask.shard", home, width, 1);
    if (mask_moves(w))
        buffer[ATTN_MASK_WORK] = attn_buffer_of("mask.work", work, width, 1);
    if (attn_work_mask_travels(w)) /* every batch is in every block */
        buffer[ATTN_MASK_TRAVEL] =
            attn_buffer_of("mask.travel", slots,
                           w->stored.whole.batch * attn_layout_most(&m.work, &m.whole, 1), 1);
}

/* Why not, and what would work; NULL: nothing is wrong. */
static const char *objection(const struct attn_problem *p, const struct attn_work *w,
                             const char **works)
{
    struct attn_mask_tensor row_start, column;
    int dense = w->mask == ATTN_MASK_DENSE, none = p->mask == NULL || attn_mask_is_none(p->mask);
    int exchanges = w->work.heads.parts > 0 && attn_axis_parts(&w->work.tokens) == 1;
    *works = "mask=described";
    if (!attn_problem_is_whole(p))
        return "a piece of a problem has no mask of its own to be dealt out";
    if (w->mask == ATTN_MASK_REPEATED && !exchanges)
        return *works = "mask=keys", "there is no all-to-all of all ranks to repeat it for";
    if (!dense && (none || attn_mask_keys_calls(p->mask) != 1))
        return *works = "a mask such as causal(br)&keys(NAME)",
               "the vector of one keys(...) is sent, and the mask does not have just one";
    if (!dense)
        return NULL;
    if (none)
        return *works = "a mask such as causal(br)", "there is no mask to be stored";
    if (attn_mask_varies_by_head(p->mask))
        return "rows of [B,1,Lq,Lk] are the same for all heads, and those of the mask are not";
    if (attn_mask_stored(p->mask, &row_start, &column))
        return *works = "dense(NAME)", "the arrays of csr(NAME) are read in place";
    return NULL;
}

enum attn_status attn_work_mask_accepts(const struct attn_problem *p,
                                        const struct attn_options *options, struct attn_error *err)
{
    static const char *const word[] = {"described", "keys", "repeated", "dense"};
    struct attn_work w = attn_work_of(p, options, ATTN_FORWARD, 0);
    const char *works, *why = w.mask == ATTN_MASK_DESCRIBED ? NULL : objection(p, &w, &works);
    if (why == NULL)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP, "%s:mask=%s under %.60s: %s; %s would work",
                     options->impl->name, word[w.mask],
                     p->mask != NULL ? attn_mask_text(p->mask) : "none", why, works);
}

/* ---- in a call: made at home, brought to work, and shown to the local implementation --------- */

static void make_row(const struct attn_problem *p, int is_of_keys, int64_t b, int64_t token,
                     char *row)
{
    if (is_of_keys)
        *row = (char)attn_mask_keys_allow(p->mask, b, token);
    else
        for (int64_t j = 0; j < p->n_key; j++)
            row[j] = (char)attn_mask_allows(p->mask, b, 0, token, j);
}

/* The rank's own rows, from the description.  Pads are visible: keys there are NaN (shard.h), so
 * that who reads one is found. */
static void make_shard(const struct attn_travel *x, const struct mask_data *m)
{
    const struct attn_buffer *shard = &x->buffer[ATTN_MASK_SHARD];
    struct attn_box box = attn_layout_box(&m->home, &m->whole, m->is_of_keys, x->w.rank);
    struct attn_box stored = attn_layout_stored_box(&m->home, &m->whole, m->is_of_keys, x->w.rank);
    int64_t one = attn_box_rows(&stored) * m->whole.d_key, all = attn_buffer_bytes(shard);
    if (all > 0)
        memset(shard->data, 1, (size_t)all);
    for (int64_t b = 0; b < box.batch; b++)
        for (int s = 0; s < box.stretches; s++) {
            struct attn_stretch at = attn_box_stretch(&box, s);
            for (int64_t i = 0; i < at.tokens.n; i++)
                make_row(x->w.whole, m->is_of_keys, b, at.tokens.first + i * at.tokens.step,
                         shard->data + (b * stored.tokens + at.row + i) * m->whole.d_key);
        }
    for (int64_t copy = one; copy < all; copy += one)
        memcpy(shard->data + copy, shard->data, (size_t)one);
}

enum attn_status attn_travel_bring_mask(struct attn_travel *x)
{
    struct mask_data m = mask_of(&x->w);
    const struct attn_buffer *shard = &x->buffer[ATTN_MASK_SHARD];
    char **own = (char **)&x->tensor[ATTN_TAG_MASK_KEYS].own.view.data;
    if (x->w.mask == ATTN_MASK_DESCRIBED)
        return ATTN_OK;
    if (!attn_transport_counts(x->rank->transport)) {
        make_shard(x, &m);
        x->mask = attn_mask_over(x->buffer[ATTN_MASK_PARTS].data, x->w.whole->mask, !m.is_of_keys,
                                 &x->mask_bytes);
    }
    *own = shard->data;
    if (!mask_moves(&x->w))
        return ATTN_OK;
    *own = x->buffer[ATTN_MASK_WORK].data;
    const struct attn_move move = {.whole = &m.whole,
                                   .kind = m.kind,
                                   .dtype = ATTN_U8,
                                   .from = {.layout = &m.home, .data = shard->data},
                                   .to = {.layout = &m.work, .data = *own},
                                   .apart = x->w.mask == ATTN_MASK_REPEATED ? shard->numbers : 0};
    return attn_move(&move, x->rank->transport, x->buffer[ATTN_MESSAGES].data, x->rank->error);
}

struct attn_problem attn_travel_part(struct attn_travel *x, const struct attn_product *product)
{
    struct attn_problem part = product->part;
    struct mask_data m = mask_of(&x->w);
    if (x->mask == NULL)
        return part;
    int rank = m.is_of_keys ? x->w.stop.key : x->w.rank;
    const struct attn_positions *at = m.is_of_keys ? &part.origin.key : &part.origin.query;
    int64_t row = m.is_of_keys ? product->key_at : product->query_at;
    struct attn_box stored = attn_layout_stored_box(&m.work, &m.whole, m.is_of_keys, rank);
    x->mask_bytes = (struct attn_mask_bytes){
        (unsigned char *)x->tensor[ATTN_TAG_MASK_KEYS].now.view.data + row * m.whole.d_key,
        {at->first, 1 + at->skip, m.is_of_keys ? part.n_key : part.n_query},
        part.origin.batch,
        stored.tokens * m.whole.d_key};
    part.mask = x->mask;
    return part;
}
