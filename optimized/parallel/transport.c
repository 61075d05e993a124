/* What every transport shares: shapes of messages, counters, the all-to-all.  See transport.h. */
#include "optimized/parallel/transport.h"

#include <string.h>

#include "ref/problem.h"

const char *attn_tag_name(int tag)
{
    static const char *const name[ATTN_TAG_KINDS] = {"q",  "k",     "v",  "o",  "lse",
                                                     "do", "delta", "dq", "dk", "dv"};
    return tag >= 0 ? name[tag % ATTN_TAG_KINDS] : "?";
}

void attn_tag_extent(enum attn_tag_kind kind, const struct attn_problem *p, int64_t extent[3])
{
    static const struct {
        int of_keys, of_rows, of_features;
    } is[ATTN_TAG_KINDS] = {
        [ATTN_TAG_Q] = {.of_features = 1},
        [ATTN_TAG_K] = {.of_keys = 1, .of_features = 1},
        [ATTN_TAG_V] = {.of_keys = 1},
        [ATTN_TAG_LSE] = {.of_rows = 1},
        [ATTN_TAG_DELTA] = {.of_rows = 1},
        [ATTN_TAG_DQ] = {.of_features = 1},
        [ATTN_TAG_DK] = {.of_keys = 1, .of_features = 1},
        [ATTN_TAG_DV] = {.of_keys = 1},
    };
    extent[0] = is[kind].of_keys ? p->kv_heads : p->heads;
    extent[1] = is[kind].of_keys ? p->n_key : p->n_query;
    extent[2] = is[kind].of_rows ? 1 : is[kind].of_features ? p->d_key : p->d_value;
}

enum attn_dtype attn_tag_dtype(enum attn_tag_kind kind, const struct attn_problem *p)
{
    return kind == ATTN_TAG_LSE || kind == ATTN_TAG_DELTA ? attn_lse_dtype(p) : p->dtype;
}

int attn_tag_step(int tag)
{
    return tag / ATTN_TAG_KINDS;
}

int64_t attn_piece_bytes(const struct attn_piece *piece)
{
    return piece->extent[0] * piece->extent[1] * piece->extent[2] * piece->row;
}

struct attn_piece attn_piece_whole(int64_t bytes)
{
    return (struct attn_piece){{1, 1, 1}, {0, 0, 0}, bytes};
}

void attn_piece_copy(void *to, const struct attn_piece *to_piece, const void *from,
                     const struct attn_piece *from_piece)
{
    const int64_t *n = to_piece->extent, *t = to_piece->stride, *f = from_piece->stride;
    int64_t row = to_piece->row;
    if (row == 0)
        return;
    int adjacent = t[2] == row && f[2] == row; /* rows of the last axis form one run */
    for (int64_t x = 0; x < n[0]; x++)
        for (int64_t y = 0; y < n[1]; y++) {
            char *dst = (char *)to + x * t[0] + y * t[1];
            const char *src = (const char *)from + x * f[0] + y * f[1];
            if (adjacent)
                memcpy(dst, src, (size_t)(n[2] * row));
            else
                for (int64_t z = 0; z < n[2]; z++)
                    memcpy(dst + z * t[2], src + z * f[2], (size_t)row);
        }
}

enum attn_status attn_exchange(struct attn_transport *t, struct attn_send *send, int n_sends,
                               struct attn_receive *receive, int n_receives, struct attn_error *err)
{
    for (int m = 0; m < n_sends + n_receives; m++) {
        int peer = m < n_sends ? send[m].peer : receive[m - n_sends].peer;
        if (peer < 0 || peer >= t->size || peer == t->rank)
            return attn_fail(err, ATTN_EINTERNAL,
                             "rank %d of %d addresses rank %d: only other ranks have messages",
                             t->rank, t->size, peer);
    }
    enum attn_status status = t->ops->exchange(t, send, n_sends, receive, n_receives, err);
    for (int m = 0; m < n_sends && status == ATTN_OK; m++) {
        t->bytes_sent += attn_piece_bytes(&send[m].piece);
        t->messages++;
    }
    return status;
}

enum attn_status attn_all_to_all(struct attn_transport *t, int tag, const struct attn_a2a *x,
                                 struct attn_error *err)
{
    struct attn_send send[ATTN_MAX_RANKS];
    struct attn_receive receive[ATTN_MAX_RANKS];
    int n = 0;
    for (int r = 0; r < t->size; r++) {
        struct attn_place out = x->out(x->arg, r), in = x->in(x->arg, r);
        const char *from = (const char *)x->from + out.offset;
        char *to = (char *)x->to + in.offset;
        if (r == t->rank) {
            attn_piece_copy(to, &in.piece, from, &out.piece);
            continue;
        }
        send[n] = (struct attn_send){r, tag, from, out.piece, 0};
        receive[n] = (struct attn_receive){r, tag, to, in.piece, 0};
        n++;
    }
    return attn_exchange(t, send, n, receive, n, err);
}
