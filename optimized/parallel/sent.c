/* See sent.h. */
#include "optimized/parallel/sent.h"

#include "optimized/integers.h"
#include "optimized/parallel/travel/work_buffers.h"
#include "ref/problem.h"

int64_t attn_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind)
{
    return attn_tag_width(kind, p) * (int64_t)attn_dtype_size(attn_tag_dtype(kind, p));
}

int64_t attn_sum_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind)
{
    return attn_tag_width(kind, p) * (int64_t)attn_dtype_size(attn_lse_dtype(p));
}

void attn_sent_add(struct attn_sent *sent, int64_t messages, int64_t bytes)
{
    sent->bytes += bytes;
    sent->messages += bytes > 0 ? messages : 0;
}

/* ---- all-to-all ------------------------------------------------------------------------------ */

/* Rows that a rank sends to each other rank that needs some: rows of queries and of keys, on the
 * way to work and on the way home. */
struct rows {
    int64_t rows, ranks;
};
struct both_ways {
    struct rows there[2], back[2];
};

/* Each tensor of the pass is a message to each of them, unless it is empty. */
static struct attn_sent all_tensors(const struct attn_work *w, const struct both_ways *x)
{
    const enum attn_tag_kind *kinds;
    const struct attn_problem *p = &w->stored.whole;
    int inputs, tensors = attn_work_tensors(w->pass, &kinds, &inputs);
    int sums_keys = attn_layout_copies(&w->stored.work, p);
    struct attn_sent sent = {0, 0};
    for (int n = 0; n < tensors; n++) {
        enum attn_tag_kind kind = kinds[n];
        int keys = attn_tag_is_of_keys(kind), sums = n >= inputs && keys && sums_keys;
        const struct rows *of = n < inputs ? &x->there[keys] : &x->back[keys];
        attn_sent_add(&sent, of->ranks,
                      of->rows * (sums ? attn_sum_row_bytes(p, kind) : attn_row_bytes(p, kind)));
    }
    return sent;
}

/* Of n ranks from `first` on, those that have tokens: they come first. */
static int64_t with_tokens(const struct attn_layout *layout, const struct attn_problem *p, int keys,
                           int first, int n)
{
    int have = 0, may = n;
    while (have < may) {
        int half = (have + may) / 2;
        if (attn_layout_box(layout, p, keys, first + half).tokens > 0)
            have = half + 1;
        else
            may = half;
    }
    return have;
}

struct attn_sent attn_heads_for_tokens_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.home, *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    int parts = attn_axis_parts(&work->heads), first = w->rank / parts * parts;
    struct both_ways x;
    for (int keys = 0; keys < 2; keys++) {
        struct attn_box mine = attn_layout_box(home, p, keys, w->rank);
        struct attn_box place = attn_layout_box(work, p, keys, w->rank);
        int64_t heads = place.heads.n, own = p->batch * mine.tokens * heads;
        int64_t with_heads = less(parts, p->heads) - (heads > 0);
        int64_t tokens_at = with_tokens(home, p, keys, first, parts) - (mine.tokens > 0);
        x.there[keys] = (struct rows){attn_layout_rows(work, p, keys, &mine) - own, with_heads};
        x.back[keys] = (struct rows){p->batch * place.tokens * heads - own, tokens_at};
        if (keys && home->alike) {
            x.there[keys] = (struct rows){0, 0};
            x.back[keys] = (struct rows){(parts - 1) * own, parts - 1};
        }
    }
    return all_tensors(w, &x);
}

struct attn_sent attn_frames_for_places_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.home, *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    int64_t frames = home->frames, size = p->n_query / frames;
    int64_t at_home = home->order == ATTN_FRAMES ? frames : size;
    int64_t at_work = work->order == ATTN_FRAMES ? frames : size;
    int64_t mine = attn_run_of(at_home, home->ranks, w->rank).n;
    int64_t here = attn_run_of(at_work, home->ranks, w->rank).n;
    struct both_ways x;
    for (int keys = 0; keys < 2; keys++) {
        int64_t heads = p->batch * (keys ? p->kv_heads : p->heads);
        x.there[keys] =
            (struct rows){heads * mine * (at_work - here), less(home->ranks, at_work) - (here > 0)};
        x.back[keys] =
            (struct rows){heads * here * (at_home - mine), less(home->ranks, at_home) - (mine > 0)};
    }
    return all_tensors(w, &x);
}
