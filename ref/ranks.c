/* The code that every transport shares: pieces, counters, open posts.  See ranks.h. */
#include "ref/ranks.h"

#include <string.h>

const char *attn_tag_name(int tag)
{
    static const char *const name[ATTN_TAG_KINDS] = {
        "q", "k", "v", "o", "lse", "do", "delta", "dq", "dk", "dv", "mask", "mask", "dsink"};
    return tag >= 0 ? name[tag % ATTN_TAG_KINDS] : "?";
}

int attn_tag_step(int tag)
{
    return tag / ATTN_TAG_KINDS;
}

struct attn_piece attn_piece_packed(const struct attn_piece *shape, int64_t offset)
{
    const int64_t *n = shape->extent, row = shape->row;
    return (struct attn_piece){
        offset, {n[0], n[1], n[2]}, {n[1] * n[2] * row, n[2] * row, row}, row};
}

int64_t attn_piece_bytes(const struct attn_piece *piece)
{
    return piece->extent[0] * piece->extent[1] * piece->extent[2] * piece->row;
}

int64_t attn_pieces_bytes(const struct attn_piece *piece, int n)
{
    int64_t bytes = 0;
    for (int p = 0; p < n; p++)
        bytes += attn_piece_bytes(&piece[p]);
    return bytes;
}

struct attn_piece attn_piece_whole(int64_t bytes)
{
    return (struct attn_piece){0, {1, 1, 1}, {0, 0, 0}, bytes};
}

struct attn_piece attn_piece_pads(int64_t bytes)
{
    return (struct attn_piece){-1, {1, 1, 1}, {0, 0, 0}, bytes};
}

int attn_piece_is_pads(const struct attn_piece *piece)
{
    return piece->offset < 0;
}

void attn_piece_copy(void *to, const struct attn_piece *to_piece, const void *from,
                     const struct attn_piece *from_piece)
{
    const int64_t *n = to_piece->extent, *t = to_piece->stride, *f = from_piece->stride;
    int64_t row = to_piece->row;
    if (row == 0 || attn_piece_is_pads(to_piece))
        return;
    int adjacent = t[2] == row && f[2] == row; /* rows of the last axis form one run */
    for (int64_t x = 0; x < n[0]; x++)
        for (int64_t y = 0; y < n[1]; y++) {
            char *dst = (char *)to + to_piece->offset + x * t[0] + y * t[1];
            const char *src = (const char *)from + from_piece->offset + x * f[0] + y * f[1];
            if (adjacent)
                memcpy(dst, src, (size_t)(n[2] * row));
            else
                for (int64_t z = 0; z < n[2]; z++)
                    memcpy(dst + z * t[2], src + z * f[2], (size_t)row);
        }
}

/* The m-th of a post: sends first. */
static struct attn_message *message_at(const struct attn_post *post, int m)
{
    return m < post->n_sends ? &post->send[m] : &post->receive[m - post->n_sends];
}

static enum attn_status check_peers(const struct attn_transport *t, const struct attn_post *post,
                                    struct attn_error *err)
{
    for (int m = 0; m < post->n_sends + post->n_receives; m++) {
        int peer = message_at(post, m)->peer;
        if (peer < 0 || peer >= t->size || peer == t->rank)
            return attn_fail(err, ATTN_EINTERNAL,
                             "rank %d of %d addresses rank %d: only other ranks have messages",
                             t->rank, t->size, peer);
    }
    return ATTN_OK;
}

/* Where this post is noted down; for NULL, a free place.  NULL when there is none. */
static struct attn_open_post *place_of(struct attn_transport *t, const struct attn_post *post)
{
    for (int n = 0; n < ATTN_OPEN_POSTS; n++)
        if (t->open[n].post == post)
            return &t->open[n];
    return NULL;
}

static struct attn_open_post open_post(const struct attn_post *post)
{
    if (post->n_sends + post->n_receives == 0)
        return (struct attn_open_post){post, 0, 0, NULL};
    const struct attn_message *first = message_at(post, 0);
    return (struct attn_open_post){post, first->tag, first->peer,
                                   post->n_sends > 0 ? "send" : "receive"};
}

static enum attn_status has_ended(const struct attn_transport *t, struct attn_error *err)
{
    return attn_fail(err, ATTN_EPEER, "rank %d has ended: it has no more messages", t->rank);
}

static void note_sends(const struct attn_transport *t, const struct attn_post *post)
{
    for (int m = 0; m < post->n_sends && t->log != NULL; m++) {
        const struct attn_message *out = &post->send[m];
        const struct attn_note note = {.pass = t->pass,
                                       .step = attn_tag_step(out->tag),
                                       .tensor =
                                           t->tensor != NULL ? t->tensor : attn_tag_name(out->tag),
                                       .source = t->rank,
                                       .destination = out->peer,
                                       .bytes = attn_pieces_bytes(out->piece, out->pieces),
                                       .dtype = out->dtype};
        t->log->note(t->log->arg, &note);
    }
}

int attn_transport_counts(const struct attn_transport *t)
{
    return t->ops->counts;
}

enum attn_status attn_post(struct attn_transport *t, struct attn_post *post, struct attn_error *err)
{
    if (t->ended)
        return has_ended(t, err);
    struct attn_open_post *place = place_of(t, NULL);
    enum attn_status status = check_peers(t, post, err);
    if (status != ATTN_OK)
        return status;
    if (place_of(t, post) != NULL)
        return attn_fail(err, ATTN_EINTERNAL, "rank %d posts again what is still open", t->rank);
    if (place == NULL)
        return attn_fail(err, ATTN_EINTERNAL,
                         "rank %d has %d posts open: wait for one of them first", t->rank,
                         ATTN_OPEN_POSTS);
    post->undone = post->n_sends + post->n_receives;
    for (int m = 0; m < post->undone; m++) {
        message_at(post, m)->post = post;
        message_at(post, m)->next = NULL;
    }
    status = t->ops->post(t, post, err);
    if (status == ATTN_OK) {
        *place = open_post(post);
        note_sends(t, post);
    }
    return status;
}

enum attn_status attn_wait(struct attn_transport *t, struct attn_post *post, struct attn_error *err)
{
    struct attn_open_post *place = place_of(t, post);
    if (t->ended)
        return has_ended(t, err);
    if (place == NULL)
        return attn_fail(err, ATTN_EINTERNAL, "rank %d waits for what it did not post", t->rank);
    *place = (struct attn_open_post){0};
    enum attn_status status = t->ops->wait(t, post, err);
    for (int m = 0; m < post->n_sends && status == ATTN_OK; m++) {
        t->bytes_sent += attn_pieces_bytes(post->send[m].piece, post->send[m].pieces);
        t->messages++;
    }
    return status;
}

enum attn_status attn_exchange(struct attn_transport *t, struct attn_message *send, int n_sends,
                               struct attn_message *receive, int n_receives, struct attn_error *err)
{
    struct attn_post post = {send, n_sends, receive, n_receives, 0};
    enum attn_status status = attn_post(t, &post, err);
    return status == ATTN_OK ? attn_wait(t, &post, err) : status;
}

enum attn_status attn_transport_end(struct attn_transport *t, enum attn_status status,
                                    struct attn_error *err)
{
    for (int n = 0; n < ATTN_OPEN_POSTS && status == ATTN_OK; n++) {
        const struct attn_open_post *open = &t->open[n];
        if (open->post != NULL && open->verb == NULL)
            status = attn_fail(err, ATTN_EINTERNAL,
                               "rank %d ended without waiting for a post of no messages", t->rank);
        else if (open->post != NULL)
            status =
                attn_fail(err, ATTN_EINTERNAL,
                          "rank %d ended without waiting for its post to %s %s (step %d) %s "
                          "rank %d",
                          t->rank, open->verb, attn_tag_name(open->tag), attn_tag_step(open->tag),
                          open->verb[0] == 's' ? "to" : "from", open->peer);
    }
    memset(t->open, 0, sizeof t->open);
    t->ended = 1;
    t->ops->end(t, status);
    return status;
}
