/* See move.h. */
#include "optimized/parallel/layout/move.h"

#include <stddef.h>

#include "optimized/integers.h"
#include "optimized/parallel/layout/shard_rows.h"

static struct attn_box cut_heads(const struct attn_end *end, enum attn_tag_kind kind,
                                 struct attn_box box)
{
    if (end->is_cut && attn_tag_is_of_keys(kind))
        box.heads = attn_tokens_common(&box.heads, &end->heads);
    return box;
}

static struct attn_box end_box(const struct attn_end *end, const struct attn_problem *whole,
                               enum attn_tag_kind kind, int rank)
{
    return cut_heads(end, kind,
                     attn_layout_box(end->layout, whole, attn_tag_is_of_keys(kind), rank));
}

static struct attn_box end_stored_box(const struct attn_end *end, const struct attn_problem *whole,
                                      enum attn_tag_kind kind, int rank)
{
    return cut_heads(end, kind,
                     attn_layout_stored_box(end->layout, whole, attn_tag_is_of_keys(kind), rank));
}

/* ---- where two boxes meet -------------------------------------------------------------------- */

/* Tokens that both stretches have, numbered in each.  Their steps are equal, or one of them is 1:
 * layouts give no others. */
struct meeting {
    struct attn_tokens in_a, in_b; /* n is the same */
};

static struct meeting meet(const struct attn_tokens *a, const struct attn_tokens *b)
{
    int64_t i0 = attn_tokens_below(a, b->first);
    int64_t last = b->n > 0 ? b->first + (b->n - 1) * b->step : b->first - 1;
    int64_t i1 = attn_tokens_below(a, last + 1);
    if (a->step < b->step) {
        struct meeting turned = meet(b, a);
        return (struct meeting){turned.in_b, turned.in_a};
    }
    int64_t token = a->first + i0 * a->step - b->first; /* after b's first */
    if (i0 >= i1 || token % b->step != 0)
        return (struct meeting){{0, 1, 0}, {0, 1, 0}};
    return (struct meeting){{i0, 1, i1 - i0}, {token / b->step, a->step / b->step, i1 - i0}};
}

/* These heads and rows of what a rank stores, in its memory. */
static struct attn_piece piece_of(const struct attn_box *stored, const struct attn_tokens *heads,
                                  const struct attn_tokens *rows, int64_t row)
{
    int64_t head = stored->tokens * row, batch = stored->heads.n * head;
    return (struct attn_piece){.offset =
                                   (heads->first - stored->heads.first) * head + rows->first * row,
                               .extent = {stored->batch, heads->n, rows->n},
                               .stride = {batch, head, rows->step * row},
                               .row = row};
}

/* Where these tokens of a stretch lie. */
static struct attn_tokens rows_at(const struct attn_stretch *stretch,
                                  const struct attn_tokens *tokens)
{
    return (struct attn_tokens){stretch->row + tokens->first, tokens->step, tokens->n};
}

static int64_t row_bytes(const struct attn_move *m)
{
    return attn_tag_width(m->kind, m->whole) * (int64_t)attn_dtype_size(m->dtype);
}

/* A rank's box at one end, and its stored box there. */
struct side {
    int rank;
    struct attn_box box, stored;
};

static struct side side_of(const struct attn_move *m, const struct attn_end *end, int rank)
{
    return (struct side){rank, end_box(end, m->whole, m->kind, rank),
                         end_stored_box(end, m->whole, m->kind, rank)};
}

/* The common part of rank a's box of `from` and rank b's box of `to`, as pieces of a's memory and
 * of b's; returns how many, and their bytes.  Pieces may be NULL.  A rank takes from itself all
 * that the ranks have alike. */
static int meet_sides(const struct attn_move *m, const struct side *a, const struct side *b,
                      struct attn_piece *in_from, struct attn_piece *in_to, int64_t *bytes)
{
    int64_t batch = a->box.batch;
    struct attn_tokens heads = attn_tokens_common(&a->box.heads, &b->box.heads);
    int64_t row = row_bytes(m), all_a = attn_box_stretches(&a->box);
    int64_t all_b = attn_box_stretches(&b->box);
    int n = 0;
    *bytes = 0;
    if (batch * heads.n * row == 0 ||
        (a->rank != b->rank && m->from.layout->alike && attn_tag_is_of_keys(m->kind)))
        return 0;
    for (int64_t s = 0; s < all_a; s++) {
        struct attn_stretch of_a = attn_box_stretch(&a->box, s);
        for (int64_t t = 0; t < all_b; t++) {
            struct attn_stretch of_b = attn_box_stretch(&b->box, t);
            struct meeting x = meet(&of_a.tokens, &of_b.tokens);
            if (x.in_a.n == 0)
                continue;
            if (in_from != NULL) {
                struct attn_tokens rows_a = rows_at(&of_a, &x.in_a);
                struct attn_tokens rows_b = rows_at(&of_b, &x.in_b);
                in_from[n] = piece_of(&a->stored, &heads, &rows_a, row);
                in_to[n] = piece_of(&b->stored, &heads, &rows_b, row);
            }
            *bytes += batch * heads.n * x.in_a.n * row;
            n++;
        }
    }
    return n;
}

static int meet_boxes(const struct attn_move *m, int p, int q, struct attn_piece *in_from,
                      struct attn_piece *in_to, int64_t *bytes)
{
    struct side a = side_of(m, &m->from, p), b = side_of(m, &m->to, q);
    return meet_sides(m, &a, &b, in_from, in_to, bytes);
}

/* The same move of what is stored: its boxes are the stored ones of this one. */
struct stored {
    struct attn_problem whole;
    struct attn_layout from, to;
};

static struct attn_move stored_move(const struct attn_move *m, struct stored *x)
{
    struct attn_move even = *m;
    x->from = attn_layout_stored(m->from.layout, m->whole, &x->whole);
    x->to = attn_layout_stored(m->to.layout, m->whole, &x->whole);
    even.whole = &x->whole;
    even.from.layout = &x->from;
    even.to.layout = &x->to;
    return even;
}

int64_t attn_move_message(const struct attn_move *m, int p, int q)
{
    struct stored x;
    struct attn_move even = stored_move(m, &x);
    int64_t bytes;
    meet_boxes(&even, p, q, NULL, NULL, &bytes);
    return bytes;
}

/* Bytes that the rank has at one end, and all ranks at the other: what it has for itself, too. */
static int64_t bytes_with_all(const struct attn_move *m, int rank, const struct attn_end *mine,
                              const struct attn_end *theirs)
{
    struct attn_box box = cut_heads(theirs, m->kind, end_box(mine, m->whole, m->kind, rank));
    return attn_layout_rows(theirs->layout, m->whole, attn_tag_is_of_keys(m->kind), &box) *
           row_bytes(m);
}

/* ---- the exchange ---------------------------------------------------------------------------- */

/* A list of sends, one of receives, `pieces` pieces of each of them, and as many of one rank more,
 * which the other side has or which do not travel. */
struct lists {
    struct attn_piece *out, *in, *here, *there;
    struct attn_message *send, *receive;
    int64_t pieces;
};

/* Into how many pieces a message may fall. */
static int64_t pieces_of(const struct attn_layout *from, const struct attn_layout *to)
{
    int64_t repeats = greater(attn_layout_repeats(from), attn_layout_repeats(to));
    int queries = attn_layout_stretches(from, 0) * attn_layout_stretches(to, 0);
    int keys = attn_layout_stretches(from, 1) * attn_layout_stretches(to, 1);
    return greater(queries, keys) * repeats + (from->pads != 0); /* one for all pads */
}

struct attn_buffer attn_move_lists(const struct attn_layout *from, const struct attn_layout *to)
{
    int64_t pieces = 2 * pieces_of(from, to) * (int64_t)sizeof(struct attn_piece);
    int64_t messages = 2 * (int64_t)sizeof(struct attn_message);
    return attn_buffer_of("messages", 1, (from->ranks + 1) * pieces + from->ranks * messages, 1);
}

static struct lists lists_in(const struct attn_move *m, void *data, int ranks)
{
    struct lists x = {.pieces = pieces_of(m->from.layout, m->to.layout)};
    x.out = data;
    x.in = x.out + ranks * x.pieces;
    x.here = x.in + ranks * x.pieces;
    x.there = x.here + x.pieces;
    x.send = (struct attn_message *)(void *)(x.there + x.pieces);
    x.receive = x.send + ranks;
    return x;
}

/* Behind the n pieces of a message from p to q, its pads, if it has any. */
static int add_pads(const struct attn_move *m, int p, int q, struct attn_piece *piece, int n)
{
    int64_t pads = 0;
    if (m->from.layout->pads)
        pads = attn_move_message(m, p, q) - attn_pieces_bytes(piece, n);
    if (pads > 0)
        piece[n++] = attn_piece_pads(pads);
    return n;
}

/* The data for rank q. */
static void *from_data(const struct attn_move *m, int q)
{
    return (char *)m->from.data + q * m->apart;
}

static struct attn_message message(const struct attn_move *m, int peer, void *data,
                                   const struct attn_piece *piece, int pieces)
{
    return (struct attn_message){.peer = peer,
                                 .tag = attn_tag(m->kind, m->step),
                                 .data = data,
                                 .piece = piece,
                                 .pieces = pieces,
                                 .dtype = m->dtype};
}

/* Send what meets; receive it where it belongs, or, where copies are to be summed, one rank's
 * behind the other's.  A rank's own does not travel. */
static enum attn_status exchange(const struct attn_move *m, struct attn_transport *t,
                                 const struct lists *x, char *copies, struct attn_error *err)
{
    int sends = 0, receives = 0;
    int64_t used = 0, bytes; /* of the copies */
    const struct side from_here = side_of(m, &m->from, t->rank),
                      to_here = side_of(m, &m->to, t->rank);
    for (int r = 0; r < t->size; r++) {
        struct attn_piece *from = x->out + r * x->pieces, *to = x->in + r * x->pieces;
        if (r == t->rank)
            continue;
        const struct side from_there = side_of(m, &m->from, r), to_there = side_of(m, &m->to, r);
        int out = meet_sides(m, &from_here, &to_there, from, x->there, &bytes);
        int in = meet_sides(m, &from_there, &to_here, x->there, to, &bytes);
        for (int64_t n = 0, at = used; n < in && copies != NULL; n++) {
            to[n] = attn_piece_packed(&to[n], at);
            at += attn_piece_bytes(&to[n]);
        }
        out = add_pads(m, t->rank, r, from, out);
        in = add_pads(m, r, t->rank, to, in);
        used += attn_pieces_bytes(to, in);
        if (out > 0)
            x->send[sends++] = message(m, r, from_data(m, r), from, out);
        if (in > 0)
            x->receive[receives++] = message(m, r, copies != NULL ? copies : m->to.data, to, in);
    }
    return attn_exchange(t, x->send, sends, x->receive, receives, err);
}

void attn_move_own(const struct attn_move *move, int rank, void *memory)
{
    struct lists x = lists_in(move, memory, move->from.layout->ranks);
    int64_t bytes;
    int own = meet_boxes(move, rank, rank, x.here, x.there, &bytes);
    for (int n = 0; n < own; n++)
        attn_piece_copy(move->to.data, &x.there[n], from_data(move, rank), &x.here[n]);
}

enum attn_status attn_move(const struct attn_move *move, struct attn_transport *t, void *memory,
                           struct attn_error *err)
{
    struct lists x = lists_in(move, memory, t->size);
    attn_move_own(move, t->rank, memory);
    return exchange(move, t, &x, NULL, err);
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct attn_buffer attn_move_copies(const struct attn_move *move, int rank)
{
    struct stored x;
    struct attn_move even = stored_move(move, &x);
    int64_t all = bytes_with_all(&even, rank, &even.to, &even.from);
    return attn_buffer_of("copies", 1, all - attn_move_message(move, rank, rank), 1);
}

int64_t attn_move_additions(const struct attn_move *move, int rank)
{
    int64_t all = bytes_with_all(move, rank, &move->to, &move->from), own;
    meet_boxes(move, rank, rank, NULL, NULL, &own);
    return (all - own) / (int64_t)attn_dtype_size(move->dtype);
}

/* A piece as a tensor [., ., ., width]. */
static struct attn_view view_of(void *data, const struct attn_piece *piece, enum attn_dtype dtype)
{
    int64_t size = (int64_t)attn_dtype_size(dtype);
    return (struct attn_view){
        (char *)data + piece->offset,
        dtype,
        {piece->stride[0] / size, piece->stride[1] / size, piece->stride[2] / size, 1}};
}

static struct attn_rows rows_of(const struct attn_piece *piece, enum attn_dtype dtype)
{
    return (struct attn_rows){piece->extent[0], piece->extent[1], piece->extent[2],
                              piece->row / (int64_t)attn_dtype_size(dtype)};
}

/* The heads that are brought, of all that the rank has at home, are 0. */
static void clear(const struct attn_move *move, int rank)
{
    struct attn_box box = end_box(&move->to, move->whole, move->kind, rank);
    struct attn_box stored = end_stored_box(&move->to, move->whole, move->kind, rank);
    struct attn_tokens heads =
        move->from.is_cut ? attn_tokens_common(&box.heads, &move->from.heads) : box.heads;
    struct attn_tokens rows = {0, 1, box.tokens};
    struct attn_piece piece = piece_of(&stored, &heads, &rows, row_bytes(move));
    struct attn_rows n = rows_of(&piece, move->dtype);
    struct attn_view view = view_of(move->to.data, &piece, move->dtype);
    attn_rows_clear(&n, &view);
}

/* Add rank r's part of this rank's box: from its own memory, or from the copies. */
static int64_t add_from(const struct attn_move *move, const struct lists *x, int r, int rank,
                        char *copies)
{
    int64_t bytes;
    int n = meet_boxes(move, r, rank, x->here, x->there, &bytes);
    for (int64_t i = 0, used = 0; i < n; i++) {
        const struct attn_piece *to = &x->there[i];
        struct attn_piece packed = attn_piece_packed(to, used);
        struct attn_rows rows = rows_of(to, move->dtype);
        struct attn_view sum = view_of(move->to.data, to, move->dtype);
        struct attn_view part = r == rank ? view_of(move->from.data, &x->here[i], move->dtype)
                                          : view_of(copies, &packed, move->dtype);
        attn_rows_add(&rows, &sum, &part);
        used += attn_piece_bytes(to);
    }
    return r == rank ? 0 : attn_move_message(move, r, rank);
}

enum attn_status attn_move_sum(const struct attn_move *move, struct attn_transport *t, void *memory,
                               void *copies, struct attn_error *err)
{
    struct lists x = lists_in(move, memory, t->size);
    char *at = copies;
    enum attn_status status = exchange(move, t, &x, copies, err);
    if (status != ATTN_OK)
        return status;
    clear(move, t->rank);
    for (int r = 0; r < t->size; r++)
        at += add_from(move, &x, r, t->rank, at);
    return ATTN_OK;
}
