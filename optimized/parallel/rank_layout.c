/* See rank_layout.h and rank_box.h. */
#include "optimized/parallel/layout/rank_box.h"

#include <string.h>

#include "optimized/integers.h"
#include "ref/problem.h"

int attn_tag_is_of_keys(enum attn_tag_kind kind)
{
    return kind == ATTN_TAG_K || kind == ATTN_TAG_V || kind == ATTN_TAG_DK || kind == ATTN_TAG_DV ||
           kind == ATTN_TAG_MASK_KEYS;
}

int64_t attn_tag_width(enum attn_tag_kind kind, const struct attn_problem *p)
{
    switch (kind) {
    case ATTN_TAG_LSE:
    case ATTN_TAG_DELTA:
        return 1;
    case ATTN_TAG_Q:
    case ATTN_TAG_K:
    case ATTN_TAG_DQ:
    case ATTN_TAG_DK:
    case ATTN_TAG_MASK_KEYS:
    case ATTN_TAG_MASK_ROWS:
        return p->d_key;
    case ATTN_TAG_V:
    case ATTN_TAG_DV:
        return p->kv_shared ? 0 : p->d_value;
    default:
        return p->d_value;
    }
}

enum attn_dtype attn_tag_dtype(enum attn_tag_kind kind, const struct attn_problem *p)
{
    if (kind >= ATTN_TAG_MASK_KEYS)
        return ATTN_U8;
    return kind == ATTN_TAG_LSE || kind == ATTN_TAG_DELTA ? attn_lse_dtype(p) : p->dtype;
}

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

/* ---- boxes ----------------------------------------------------------------------------------- */

int64_t attn_box_stretches(const struct attn_box *box)
{
    return box->stretches * box->repeats;
}

struct attn_stretch attn_box_stretch(const struct attn_box *box, int64_t s)
{
    int64_t n = s / box->repeats, before = n > 0 ? box->stretch[0].n * box->repeats : 0;
    struct attn_stretch x = {box->stretch[n], before + s % box->repeats * box->stretch[n].n};
    x.tokens.first += s % box->repeats * box->pitch;
    return x;
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

static struct attn_tokens kv_heads_of(const struct attn_layout *layout,
                                      const struct attn_problem *whole,
                                      const struct attn_tokens *heads)
{
    return layout->kv_owners ? owned_kv_heads(whole, heads) : attn_kv_heads(whole, heads);
}

/* Without pads. */
static struct attn_box deal(const struct attn_layout *layout, const struct attn_problem *whole,
                            int is_of_keys, int rank)
{
    int64_t n = is_of_keys ? whole->n_key : whole->n_query;
    int all = is_of_keys && layout->all_keys;
    struct attn_tokens heads = run_on(&layout->heads, whole->heads, rank);
    struct attn_box box = {.batch = whole->batch,
                           .heads = heads,
                           .stretches = place_stretches(layout, all),
                           .repeats = attn_layout_repeats(layout)};
    if (is_of_keys)
        box.heads = kv_heads_of(layout, whole, &heads);
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

/* ---- pads ------------------------------------------------------------------------------------ */

static int64_t next_multiple(int64_t n, int64_t of)
{
    return ceil_div(n, of) * of;
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t m = a;
    while (m % b != 0)
        m += a;
    return m;
}

/* The shortest run in which `parts` ranks can have equal numbers of heads and of kv heads. */
static int64_t even_heads(const struct attn_problem *p, int64_t parts)
{
    int64_t group = p->kv_heads > 0 ? p->heads / p->kv_heads : 1, n = ceil_div(p->heads, parts);
    while (n > 0 && n % group != 0 && (group % n != 0 || parts % (group / n) != 0))
        n++;
    return n;
}

/* Numbers that must divide tokens; of a video, its frames and its places. */
struct divisors {
    int64_t tokens, frames, places;
};

static void divide(const struct attn_layout *layout, struct divisors *by)
{
    int64_t parts = attn_axis_parts(&layout->tokens), runs = attn_axis_parts(&layout->runs);
    int64_t *of = layout->order == ATTN_FRAMES   ? &by->frames
                  : layout->order == ATTN_PLACES ? &by->places
                                                 : &by->tokens;
    *of = common_multiple(*of, parts * common_multiple(place_stretches(layout, 0), runs));
}

static int64_t padded_tokens(int64_t n, int64_t frames, const struct divisors *by)
{
    if (frames == 0)
        return next_multiple(n, by->tokens);
    return next_multiple(frames, by->frames) * next_multiple(n / frames, by->places);
}

void attn_layout_pad(struct attn_layout *home, struct attn_layout *work,
                     const struct attn_problem *whole)
{
    struct divisors by = {1, 1, 1};
    int64_t frames = greater(home->frames, work->frames);
    int64_t parts = greater(attn_axis_parts(&home->heads), attn_axis_parts(&work->heads));
    int64_t group = whole->kv_heads > 0 ? whole->heads / whole->kv_heads : 1;
    divide(home, &by);
    divide(work, &by);
    struct attn_extents padded = {.heads =
                                      parts > 1 ? even_heads(whole, parts) * parts : whole->heads,
                                  .n_query = padded_tokens(whole->n_query, frames, &by),
                                  .n_key = padded_tokens(whole->n_key, frames, &by),
                                  .frames = next_multiple(frames, by.frames)};
    padded.kv_heads = whole->heads > 0 ? padded.heads / group : whole->kv_heads;
    home->pads = work->pads = 1;
    home->padded = work->padded = padded;
}

struct attn_layout attn_layout_stored(const struct attn_layout *layout,
                                      const struct attn_problem *whole, struct attn_problem *stored)
{
    struct attn_layout even = *layout;
    *stored = *whole;
    if (!layout->pads)
        return even;
    even.pads = 0;
    even.frames = layout->frames > 0 ? layout->padded.frames : 0;
    memset(&even.padded, 0, sizeof even.padded);
    stored->heads = layout->padded.heads;
    stored->kv_heads = layout->padded.kv_heads;
    stored->n_query = layout->padded.n_query;
    stored->n_key = layout->padded.n_key;
    return even;
}

struct attn_box attn_layout_stored_box(const struct attn_layout *layout,
                                       const struct attn_problem *whole, int is_of_keys, int rank)
{
    struct attn_problem stored;
    if (!layout->pads)
        return deal(layout, whole, is_of_keys, rank);
    struct attn_layout even = attn_layout_stored(layout, whole, &stored);
    return deal(&even, &stored, is_of_keys, rank);
}

static void cut(struct attn_tokens *t, int64_t end)
{
    t->n = attn_tokens_below(t, end);
}

/* A stored stretch without its pads; frames and places have other numbers there. */
static void cut_stretch(const struct attn_layout *layout, int64_t n, struct attn_tokens *t,
                        int64_t padded)
{
    int64_t size = layout->frames > 0 ? n / layout->frames : 0; /* of a frame */
    int64_t stored = layout->frames > 0 ? at_least_1(padded / layout->padded.frames) : 0;
    if (layout->order == ATTN_FRAMES) {
        struct attn_tokens frames = {t->first / stored, 1, t->n / stored};
        cut(&frames, layout->frames);
        *t = (struct attn_tokens){frames.first * size, 1, frames.n * size};
    } else
        cut(t, layout->order == ATTN_PLACES ? size : n);
}

struct attn_box attn_layout_box(const struct attn_layout *layout, const struct attn_problem *whole,
                                int is_of_keys, int rank)
{
    struct attn_box box = attn_layout_stored_box(layout, whole, is_of_keys, rank);
    int64_t n = is_of_keys ? whole->n_key : whole->n_query;
    if (!layout->pads)
        return box;
    cut(&box.heads, is_of_keys ? whole->kv_heads : whole->heads);
    box.tokens = 0;
    box.repeats = attn_layout_repeats(layout);
    box.pitch = layout->order == ATTN_PLACES ? n / layout->frames : 0;
    for (int s = 0; s < box.stretches; s++) {
        cut_stretch(layout, n, &box.stretch[s],
                    is_of_keys ? layout->padded.n_key : layout->padded.n_query);
        box.tokens += box.stretch[s].n * box.repeats;
    }
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
    int64_t heads = layout->pads ? layout->padded.heads : whole->heads;
    int64_t kv_heads = layout->pads ? layout->padded.kv_heads : whole->kv_heads;
    int64_t parts = attn_axis_parts(&layout->heads), group = heads / at_least_1(kv_heads);
    if (layout->all_keys && attn_axis_parts(&layout->tokens) > 1)
        return 1;
    for (int64_t place = 1; place < less(parts, heads) && group > 1; place++)
        if (attn_run_of(heads, parts, place).first % group != 0) /* begins inside a group */
            return !layout->kv_owners;
    return 0;
}

int64_t attn_layout_rows(const struct attn_layout *layout, const struct attn_problem *whole,
                         int is_of_keys, const struct attn_box *box)
{
    int64_t parts = attn_axis_parts(&layout->heads), heads = 0;
    int64_t places = attn_axis_parts(&layout->tokens) * attn_axis_parts(&layout->runs);
    int64_t equal = layout->ranks / (parts * (is_of_keys && layout->all_keys ? 1 : places));
    for (int64_t place = 0; place < less(parts, whole->heads); place++) { /* others have none */
        struct attn_tokens run = attn_run_of(whole->heads, parts, place);
        if (is_of_keys)
            run = kv_heads_of(layout, whole, &run);
        heads += attn_tokens_common(&run, &box->heads).n;
    }
    return equal * box->batch * heads * box->tokens;
}

/* An axis of one part deals out nothing; and if that is the one of tokens, every rank has all of
 * them, in the order of the sequence. */
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
    if (x->tokens.parts == 0) {
        x->order = ATTN_CONTIGUOUS;
        x->frames = 0;
        x->all_keys = x->alike = 0;
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
        x.all_keys = y.all_keys = x.alike = y.alike = 0;
    return memcmp(&x, &y, sizeof x) == 0;
}

/* The first place or, where the longer runs of a zigzag reach into the second half, the last. */
int64_t attn_layout_most(const struct attn_layout *layout, const struct attn_problem *whole,
                         int is_of_keys)
{
    int last = (attn_axis_parts(&layout->tokens) - 1) * layout->tokens.stride;
    return greater(attn_layout_stored_box(layout, whole, is_of_keys, 0).tokens,
                   attn_layout_stored_box(layout, whole, is_of_keys, last).tokens);
}
