/* See rank_words.h. */
#include "optimized/parallel/transport/rank_words.h"

#include <stdio.h>
#include <string.h>

int attn_shape_difference(const struct attn_shape *in, const struct attn_shape *out)
{
    int n = 0;
    while (n < in->known && n < out->known &&
           memcmp(in->piece[n].extent, out->piece[n].extent, sizeof in->piece[n].extent) == 0 &&
           in->piece[n].row == out->piece[n].row &&
           attn_piece_is_pads(&in->piece[n]) == attn_piece_is_pads(&out->piece[n]))
        n++;
    return n;
}

/* "k (step 3, 1x2x4 rows of 8 bytes)"; of several pieces, the one that matters. */
struct shape_text {
    char text[160];
};
static struct shape_text shape_text(const struct attn_shape *x, int shown)
{
    struct shape_text t;
    int used = snprintf(t.text, sizeof t.text, "%s (step %d", attn_tag_name(x->tag),
                        attn_tag_step(x->tag));
    if (x->pieces != 1)
        used += snprintf(t.text + used, sizeof t.text - (size_t)used, ", %d pieces", x->pieces);
    if (x->pieces > 1 && shown < x->known)
        used += snprintf(t.text + used, sizeof t.text - (size_t)used, ", piece %d", shown);
    if (shown < x->known) {
        const int64_t *n = x->piece[shown].extent;
        used += snprintf(t.text + used, sizeof t.text - (size_t)used,
                         ", %lldx%lldx%lld rows of %lld bytes", (long long)n[0], (long long)n[1],
                         (long long)n[2], (long long)x->piece[shown].row);
    }
    snprintf(t.text + used, sizeof t.text - (size_t)used, ")");
    return t;
}

enum attn_status attn_say_mismatch(int receiver, const struct attn_shape *in, int sender,
                                   const struct attn_shape *out, struct attn_error *err)
{
    int shown = attn_shape_difference(in, out);
    if (shown == in->pieces && shown == out->pieces)
        shown = 0; /* only the tags differ */
    return attn_fail(err, ATTN_EPEER, "rank %d waits for %s from rank %d, which sends %s", receiver,
                     shape_text(in, shown).text, sender, shape_text(out, shown).text);
}

/* The first message of these that is not done (its post is not NULL); NULL when all are. */
static const struct attn_message *first_open(const struct attn_message *x, int n)
{
    for (int m = 0; m < n; m++)
        if (x[m].post != NULL)
            return &x[m];
    return NULL;
}

enum attn_status attn_say_left(int rank, const char *verb, const struct attn_message *x,
                               struct attn_error *err)
{
    return attn_fail(err, ATTN_EPEER, "rank %d waits to %s %s (step %d): rank %d has left", rank,
                     verb, attn_tag_name(x->tag), attn_tag_step(x->tag), x->peer);
}

void attn_say_wait(int rank, const struct attn_post *post, char *text, size_t size)
{
    const struct attn_message *in = first_open(post->receive, post->n_receives);
    const struct attn_message *x = in != NULL ? in : first_open(post->send, post->n_sends);
    snprintf(text, size, "rank %d waits to %s %s (step %d) %s rank %d", rank,
             in != NULL ? "receive" : "send", attn_tag_name(x->tag), attn_tag_step(x->tag),
             in != NULL ? "from" : "to", x->peer);
}

enum attn_status attn_say_stopped(int rank, struct attn_error *err)
{
    return attn_fail(err, ATTN_EPEER, "rank %d stopped: another rank failed", rank);
}
