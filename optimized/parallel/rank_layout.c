/* See rank_layout.h. */
#include "optimized/parallel/rank_layout.h"

#include <string.h>

#include "optimized/integers.h"

/* The first n % parts runs have one more. */
struct attn_tokens attn_run_of(int64_t n, int64_t parts, int64_t r)
{
    int64_t longer = n % parts;
    return (struct attn_tokens){r * (n / parts) + less(r, longer), 1, n / parts + (r < longer)};
}

struct attn_tokens attn_kv_heads(const struct attn_problem *p, const struct attn_tokens *heads)
{
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 1, first = heads->first / group;
    int64_t end = ceil_div(heads->first + heads->n, group);
    return (struct attn_tokens){first, 1, heads->n > 0 ? end - first : 0};
}

/* Those of which the first head that reads them is here. */
static struct attn_tokens owned_kv_heads(const struct attn_problem *p,
                                         const struct attn_tokens *heads)
{
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 1;
    int64_t first = ceil_div(heads->first, group), end = ceil_div(heads->first + heads->n, group);
    return (struct attn_tokens){first, 1, end - first};
}

static struct attn_tokens run_on(const struct attn_axis *axis, int64_t n, int rank)
{
    return attn_run_of(n, attn_axis_parts(axis), attn_axis_place(axis, rank));
}

static int place_stretches(const struct attn_layout *layout, int all)
{
    return layout->order == ATTN_ZIGZAG && !all ? 2 : 1;
}

/* Stretch s of what a place has of n tokens. */
static struct attn_tokens place_stretch(const struct attn_layout *layout, int64_t n, int rank,
                                        int s)
{
    int64_t parts = attn_axis_parts(&layout->tokens), r = attn_axis_place(&layout->tokens, rank);
    int64_t size = layout->frames > 0 ? n / layout->frames : n; /* of a frame */
    struct attn_tokens frames;
    switch (layout->order) {
    case ATTN_STRIPED:
        return (struct attn_tokens){r, parts, n > r ? ceil_div(n - r, parts) : 0};
    case ATTN_ZIGZAG:
        return attn_run_of(n, 2 * parts, s == 0 ? r : 2 * parts - 1 - r);
    case ATTN_FRAMES:
        frames = attn_run_of(layout->frames, parts, r);
        return (struct attn_tokens){frames.first * size, 1, frames.n * size};
    case ATTN_PLACES:
        return attn_run_of(size, parts, r);
    case ATTN_CONTIGUOUS:
        break;
    }
    return attn_run_of(n, parts, r);
}

/* Of a place's tokens, those of the rank's run. */
static void cut_run(const struct attn_layout *layout, struct attn_box *box, int rank)
{
    struct attn_tokens run = run_on(&layout->runs, box->tokens, rank);
    int64_t at = 0;
    for (int s = 0; s < box->stretches; s++) {
        struct attn_tokens *t = &box->stretch[s];
        int64_t lo = greater(run.first, at), hi = less(run.first + run.n, at + t->n);
        int64_t n = t->n;
        t->first += (lo - at) * t->step;
        t->n = greater(hi - lo, 0);
        at += n;
    }
    box->tokens = run.n;
}

struct attn_box attn_layout_box(const struct attn_layout *layout, const struct attn_problem *whole,
                                int is_of_keys, int rank)
{
    int64_t n = is_of_keys ? whole->n_key : whole->n_query;
    int all = is_of_keys && layout->all_keys;
    struct attn_tokens heads = run_on(&layout->heads, whole->heads, rank);
    struct attn_box box = {.batches = run_on(&layout->batches, whole->batch, rank),
                           .heads = heads,
                           .stretches = place_stretches(layout, all),
                           .repeats = attn_layout_repeats(layout)};
    if (is_of_keys)
        box.heads =
            layout->kv_owners ? owned_kv_heads(whole, &heads) : attn_kv_heads(whole, &heads);
    for (int s = 0; s < box.stretches; s++) {
        box.stretch[s] = all ? (struct attn_tokens){0, 1, n} : place_stretch(layout, n, rank, s);
        box.tokens += box.stretch[s].n * box.repeats;
    }
    if (layout->order == ATTN_PLACES)
        box.pitch = n / layout->frames;
    if (layout->runs.parts > 0 && !all)
        cut_run(layout, &box, rank);
    return box;
}

int64_t attn_layout_repeats(const struct attn_layout *layout)
{
    return layout->order == ATTN_PLACES ? layout->frames : 1;
}

int attn_layout_stretches(const struct attn_layout *layout, int is_of_keys)
{
    return place_stretches(layout, is_of_keys && layout->all_keys);
}

int attn_layout_copies(const struct attn_layout *layout, const struct attn_problem *whole)
{
    int parts = attn_axis_parts(&layout->heads);
    int64_t sum = 0;
    if (layout->all_keys && attn_axis_parts(&layout->tokens) > 1)
        return 1;
    for (int place = 0; place < parts && !layout->kv_owners; place++) {
        struct attn_tokens heads = attn_run_of(whole->heads, parts, place);
        sum += attn_kv_heads(whole, &heads).n;
    }
    return sum > whole->kv_heads;
}

/* An axis of one part deals out nothing; and if that is the one of tokens, every rank has all of
 * them in the order of the sequence. */
static void forget(struct attn_axis *axis)
{
    if (axis->parts <= 1)
        *axis = (struct attn_axis){0, 0};
}

static void forget_axes(struct attn_layout *x)
{
    forget(&x->tokens);
    forget(&x->runs);
    forget(&x->heads);
    forget(&x->batches);
    if (x->tokens.parts == 0) {
        x->order = ATTN_CONTIGUOUS;
        x->frames = 0;
        x->all_keys = 0;
    }
}

int attn_layout_same(const struct attn_layout *a, const struct attn_layout *b,
                     const struct attn_problem *whole, int is_of_keys)
{
    struct attn_layout x = *a, y = *b;
    struct attn_layout read = *a;
    read.kv_owners = 0;
    forget_axes(&x);
    forget_axes(&y);
    if (!is_of_keys || !attn_layout_copies(&read, whole)) /* every kv head is read on one rank */
        x.kv_owners = y.kv_owners = 0;
    if (!is_of_keys)
        x.all_keys = y.all_keys = 0;
    return memcmp(&x, &y, sizeof x) == 0;
}

/* The first place or, where the longer runs of a zigzag reach into the second half, the last. */
int64_t attn_layout_most(const struct attn_layout *layout, const struct attn_problem *whole,
                         int is_of_keys)
{
    int last = (attn_axis_parts(&layout->tokens) - 1) * layout->tokens.stride;
    return greater(attn_layout_box(layout, whole, is_of_keys, 0).tokens,
                   attn_layout_box(layout, whole, is_of_keys, last).tokens);
}
