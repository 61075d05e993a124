/* See transport_count.h. */
#include "optimized/parallel/transport/transport_count.h"

/* Of all ranks together. */
struct count {
    int64_t sent, wanted; /* messages */
    int64_t bytes_sent, bytes_wanted;
};

static enum attn_status count_post(struct attn_transport *t, struct attn_post *post,
                                   struct attn_error *err)
{
    struct count *count = t->state;
    (void)err;
    for (int m = 0; m < post->n_sends; m++) {
        count->bytes_sent += attn_pieces_bytes(post->send[m].piece, post->send[m].pieces);
        post->send[m].post = NULL;
    }
    for (int m = 0; m < post->n_receives; m++) {
        count->bytes_wanted += attn_pieces_bytes(post->receive[m].piece, post->receive[m].pieces);
        post->receive[m].post = NULL;
    }
    count->sent += post->n_sends;
    count->wanted += post->n_receives;
    post->undone = 0;
    return ATTN_OK;
}

static enum attn_status count_wait(struct attn_transport *t, struct attn_post *post,
                                   struct attn_error *err)
{
    (void)t, (void)post, (void)err;
    return ATTN_OK;
}

static void count_end(struct attn_transport *t, enum attn_status status)
{
    (void)t, (void)status;
}

static const struct attn_transport_ops count_ops = {1, count_post, count_wait, count_end};

enum attn_status attn_count_run(int size, const struct attn_rank_code *code, struct attn_error *err)
{
    struct count count = {0};
    enum attn_status status = ATTN_OK;
    if (size < 1 || size > ATTN_MAX_RANKS)
        return attn_fail(err, ATTN_EINVAL, "%d ranks: 1 to %d would work", size, ATTN_MAX_RANKS);
    for (int r = 0; r < size && status == ATTN_OK; r++) {
        struct attn_transport t = {.ops = &count_ops, .state = &count, .rank = r, .size = size};
        status = attn_transport_end(&t, code->run(code->arg, &t, err), err);
    }
    if (status == ATTN_OK && (count.sent != count.wanted || count.bytes_sent != count.bytes_wanted))
        status =
            attn_fail(err, ATTN_EPEER,
                      "%lld messages of %lld bytes are sent, %lld of %lld bytes are waited for",
                      (long long)count.sent, (long long)count.bytes_sent, (long long)count.wanted,
                      (long long)count.bytes_wanted);
    return status;
}
