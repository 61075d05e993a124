/* The transport of simulated ranks: what arrives, what is counted, and that nothing ever hangs.
 * A hang would be ended by Check's time limit and fail. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "optimized/parallel/transport.h"
#include "optimized/parallel/transport_sim.h"
#include "ref/ledger.h"
#include "tests/harness/fill.h"
#include "tests/suites.h"

SUITE(transport, .seconds = 60);

/* Run a body on `size` ranks; a ledger that does not balance fails. */
static enum attn_status
run(int size, enum attn_status (*body)(void *, struct attn_transport *, struct attn_error *),
    void *arg, struct attn_error *err)
{
    struct attn_ledger ledger;
    attn_ledger_init(&ledger, NULL);
    struct attn_rank_code b = {body, arg};
    enum attn_status status = attn_sim_run(&ledger, size, &b, err);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    ck_assert_int_eq(ledger.damaged, 0);
    return status;
}

/* What is sent is only read. */
static struct attn_message message_of(int peer, int tag, const void *data,
                                      const struct attn_piece *piece)
{
    return (struct attn_message){
        .peer = peer, .tag = tag, .data = (void *)data, .piece = piece, .pieces = 1};
}

static enum attn_status one_send_one_receive(struct attn_transport *t, int to, int from, int tag,
                                             const void *out, void *in, int64_t bytes,
                                             struct attn_error *err)
{
    struct attn_piece whole = attn_piece_whole(bytes);
    struct attn_message send = message_of(to, tag, out, &whole);
    struct attn_message receive = message_of(from, tag, in, &whole);
    return attn_exchange(t, &send, 1, &receive, 1, err);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

/* Many exchanges of different sizes, none included, with partners that change every round: rank
 * r meets r + shift and r - shift, two messages each way, matched in order. */
static enum attn_status crowd(void *arg, struct attn_transport *t, struct attn_error *err)
{
    (void)arg;
    int64_t sent = 0;
    for (int round = 0; round < 200; round++) {
        int shift = 1 + (int)(attn_hash(1, 1, (uint64_t)round) % (uint64_t)(t->size - 1));
        int64_t n = (int64_t)(attn_hash(1, 2, (uint64_t)round) % 40);
        int to = (t->rank + shift) % t->size, from = (t->rank - shift + t->size) % t->size;
        unsigned char out[80], in[80];
        memset(out, t->rank * 3 + round, sizeof out);
        int q = attn_tag(ATTN_TAG_Q, round), o = attn_tag(ATTN_TAG_O, round);
        struct attn_piece piece[] = {attn_piece_whole(n), attn_piece_whole(40)};
        struct attn_message send[] = {message_of(to, q, out, &piece[0]),
                                      message_of(to, o, out, &piece[1])};
        struct attn_message receive[] = {message_of(from, q, in, &piece[0]),
                                         message_of(from, o, in + 40, &piece[1])};
        enum attn_status status = attn_exchange(t, send, 2, receive, 2, err);
        if (status != ATTN_OK)
            return status;
        for (int64_t b = 0; b < 80; b++)
            if ((b < n || b >= 40) && in[b] != (unsigned char)(from * 3 + round))
                return attn_fail(err, ATTN_EINTERNAL, "wrong byte");
        sent += n + 40;
    }
    return t->bytes_sent == sent && t->messages == 400 ? ATTN_OK
                                                       : attn_fail(err, ATTN_EINTERNAL, "count");
}

TEST_EACH(crowds_are_served, 7)
{
    struct attn_error err = {0};
    ck_assert_msg(run(2 + _i, crowd, NULL, &err) == ATTN_OK, "%s", err.text);
}

static struct attn_post post_of(struct attn_message *send, struct attn_message *receive)
{
    return (struct attn_post){send, send != NULL, receive, receive != NULL, 0};
}

/* Both post three hops at once and wait for them in another order: each message arrives in its own
 * place, and only what was waited for is counted. */
static enum attn_status hops_at_once(void *arg, struct attn_transport *t, struct attn_error *err)
{
    static const int order[3] = {2, 0, 1};
    int next = (t->rank + 1) % t->size, previous = (t->rank + t->size - 1) % t->size;
    struct attn_piece number = attn_piece_whole(4);
    struct attn_message send[3];
    struct attn_message receive[3];
    struct attn_post post[3];
    int32_t out[3], in[3] = {0};
    enum attn_status status = ATTN_OK;
    (void)arg;
    for (int hop = 0; hop < 3 && status == ATTN_OK; hop++) {
        out[hop] = 100 * t->rank + hop;
        send[hop] = message_of(next, attn_tag(ATTN_TAG_K, 0), &out[hop], &number);
        receive[hop] = message_of(previous, attn_tag(ATTN_TAG_K, 0), &in[hop], &number);
        post[hop] = post_of(&send[hop], &receive[hop]);
        status = attn_post(t, &post[hop], err);
    }
    for (int n = 0; n < 3 && status == ATTN_OK; n++) {
        if (t->messages != n || t->bytes_sent != 4 * n)
            return attn_fail(err, ATTN_EINTERNAL, "counted too early or not at all");
        status = attn_wait(t, &post[order[n]], err);
        if (status == ATTN_OK && in[order[n]] != 100 * previous + order[n])
            return attn_fail(err, ATTN_EINTERNAL, "hop %d brings %d", order[n], in[order[n]]);
    }
    return status;
}

/* Rank 1 answers only when it has rank 0's message, for which rank 0 does not wait yet. */
static enum attn_status answer(void *arg, struct attn_transport *t, struct attn_error *err)
{
    struct attn_piece number = attn_piece_whole(4);
    int32_t out = 7, in = 0;
    struct attn_message send =
        message_of(1 - t->rank, attn_tag(ATTN_TAG_Q, t->rank), &out, &number);
    struct attn_message receive =
        message_of(1 - t->rank, attn_tag(ATTN_TAG_Q, 1 - t->rank), &in, &number);
    struct attn_post going = post_of(&send, NULL), coming = post_of(NULL, &receive);
    (void)arg;
    enum attn_status status = attn_post(t, t->rank == 0 ? &going : &coming, err);
    if (status == ATTN_OK && t->rank == 1)
        status = attn_wait(t, &coming, err);
    out = status == ATTN_OK && t->rank == 1 ? in + 1 : out;
    if (status == ATTN_OK)
        status = attn_post(t, t->rank == 0 ? &coming : &going, err);
    if (status == ATTN_OK && t->rank == 0)
        status = attn_wait(t, &coming, err);
    if (status == ATTN_OK)
        status = attn_wait(t, &going, err);
    if (status == ATTN_OK && in != (t->rank == 0 ? 8 : 7))
        status = attn_fail(err, ATTN_EINTERNAL, "rank %d: %d", t->rank, in);
    return status;
}

TEST(posts_are_open_together)
{
    struct attn_error err = {0};
    for (int size = 2; size <= ATTN_SIM_RANKS; size = size < 8 ? size + 1 : 8 * size)
        ck_assert_msg(run(size, hops_at_once, NULL, &err) == ATTN_OK, "%s", err.text);
    for (int repeat = 0; repeat < 20; repeat++)
        ck_assert_msg(run(2, answer, NULL, &err) == ATTN_OK, "%s", err.text);
}

/* A 4 x 6 grid goes as three pieces: two columns, an empty piece, and the other four columns.  They
 * arrive as rows, in another order.  Nothing beside them is written. */
static enum attn_status in_pieces(void *arg, struct attn_transport *t, struct attn_error *err)
{
    static const struct attn_piece from[3] = {{4, {1, 2, 4}, {0, 1, 6}, 1},
                                              {0, {0, 3, 1}, {0, 0, 0}, 5},
                                              {0, {1, 4, 4}, {0, 1, 6}, 1}},
                                   to[3] = {{17, {1, 2, 4}, {0, 4, 1}, 1},
                                            {99, {0, 3, 1}, {0, 0, 0}, 5},
                                            {1, {1, 4, 4}, {0, 4, 1}, 1}};
    unsigned char grid[24], in[26];
    (void)arg;
    for (int n = 0; n < 24; n++)
        grid[n] = (unsigned char)(100 * t->rank + n);
    memset(in, 77, sizeof in);
    struct attn_message send = {
        .peer = 1 - t->rank, .tag = attn_tag(ATTN_TAG_V, 2), .data = grid, .piece = from};
    struct attn_message receive = {
        .peer = 1 - t->rank, .tag = attn_tag(ATTN_TAG_V, 2), .data = in, .piece = to};
    send.pieces = receive.pieces = 3;
    enum attn_status status = attn_exchange(t, &send, 1, &receive, 1, err);
    for (int x = 0; x < 6 && status == ATTN_OK; x++)
        for (int y = 0; y < 4; y++)
            if (in[1 + 4 * x + y] != 100 * (1 - t->rank) + 6 * y + x)
                return attn_fail(err, ATTN_EINTERNAL, "column %d, row %d", x, y);
    if (status == ATTN_OK && (in[0] != 77 || in[25] != 77 || t->bytes_sent != 24))
        return attn_fail(err, ATTN_EINTERNAL, "beside the pieces, or miscounted");
    return status;
}

TEST(pieces_make_a_message)
{
    struct attn_error err = {0};
    ck_assert_msg(run(2, in_pieces, NULL, &err) == ATTN_OK, "%s", err.text);
}

/* ---- what must be found ---------------------------------------------------------------------- */

enum plan {
    OTHER_TAG,    /* rank 1 sends dk where rank 0 waits for k                 */
    OTHER_STEP,   /* the right tensor of the wrong hop                        */
    OTHER_SIZE,   /* 8 bytes for 16                                           */
    OTHER_SHAPE,  /* 2 x 8 bytes for 16: equal in sum only                    */
    BOTH_RECEIVE, /* nobody sends                                             */
    CYCLE,        /* 0 waits for 1, 1 for 2, 2 for 0                          */
    ONE_SKIPS,    /* rank 1 leaves out its last hop and is done (SP-21)       */
    ONE_SENDS,    /* rank 0 sends what nobody takes                           */
    SELF,         /* a message to oneself                                     */
    NO_SUCH_RANK,
    ONE_FAILS,     /* rank 2 has a reason of its own                           */
    OTHERS_BUSY,   /* so it has, and ranks 0 and 1 do not need it for anything */
    OTHER_PIECES,  /* the same bytes in one piece and in two          */
    OTHER_PIECE,   /* the second of two differs                       */
    LATE_CYCLE,    /* 0 and 1 wait for each other, 2 has other things to do and ends well */
    OPEN_SEND,     /* rank 1 does not wait for what it posted, which is taken */
    OPEN_RECEIVE,  /* the same, and nobody sends it                            */
    OPEN_AND_GONE, /* the same, and somebody waits for rank 1                  */
    TWICE,         /* posts what is open                                       */
    TOO_MANY,
    NOT_POSTED,
    PLANS
};
static const struct {
    int size;
    enum attn_status status;
    const char *says;
} planted[PLANS] = {
    [OTHER_TAG] = {2, ATTN_EPEER,
                   "rank 0 waits for k (step 0, 1x1x1 rows of 8 bytes) from rank 1, "
                   "which sends dk (step 0"},
    [OTHER_STEP] = {2, ATTN_EPEER, "which sends k (step 1"},
    [OTHER_SIZE] = {2, ATTN_EPEER,
                    "rows of 16 bytes) from rank 1, which sends k (step 0, 1x1x1 rows of 8"},
    [OTHER_SHAPE] = {2, ATTN_EPEER,
                     "1x1x1 rows of 16 bytes) from rank 1, which sends k (step 0, 1x1x2"},
    [BOTH_RECEIVE] = {2, ATTN_EPEER,
                      "deadlock; rank 0 waits to receive k (step 0) from rank 1; "
                      "rank 1 waits to receive k (step 0) from rank 0"},
    [CYCLE] = {3, ATTN_EPEER, "rank 2 waits to receive v (step 5) from rank 0"},
    [ONE_SKIPS] = {4, ATTN_EPEER, "rank 1 has left"},
    [ONE_SENDS] = {3, ATTN_EPEER, "rank 0 waits to send q (step 0): rank 2 has left"},
    [SELF] = {2, ATTN_EINTERNAL, "rank 0 of 2 addresses rank 0"},
    [NO_SUCH_RANK] = {2, ATTN_EINTERNAL, "addresses rank 2"},
    [ONE_FAILS] = {4, ATTN_ENOMEM, "rank 2 is out of luck"},
    [OTHERS_BUSY] = {3, ATTN_ENOMEM, "rank 2 is out of luck"},
    [OTHER_PIECES] = {2, ATTN_EPEER,
                      "rank 0 waits for k (step 0, 1x1x1 rows of 16 bytes) from rank 1, which "
                      "sends k (step 0, 2 pieces, piece 0, 1x1x1 rows of 8 bytes)"},
    [OTHER_PIECE] = {2, ATTN_EPEER,
                     "waits for k (step 0, 2 pieces, piece 1, 1x1x1 rows of 9 bytes) from rank 1, "
                     "which sends k (step 0, 2 pieces, piece 1, 1x1x1 rows of 8 bytes)"},
    [LATE_CYCLE] = {3, ATTN_EPEER,
                    "deadlock; rank 0 waits to receive q (step 0) from rank 1; "
                    "rank 1 waits to receive q (step 0) from rank 0"},
    [OPEN_SEND] = {2, ATTN_EINTERNAL,
                   "rank 1 ended without waiting for its post to send k (step 4) to rank 0"},
    [OPEN_RECEIVE] = {2, ATTN_EINTERNAL,
                      "rank 1 ended without waiting for its post to receive dv (step 4) from "
                      "rank 0"},
    [OPEN_AND_GONE] = {2, ATTN_EINTERNAL, "to receive dv (step 4) from rank 0"},
    [TWICE] = {2, ATTN_EINTERNAL, "rank 0 posts again what is still open"},
    [TOO_MANY] = {2, ATTN_EINTERNAL, "rank 0 has 16 posts open: wait for one of them first"},
    [NOT_POSTED] = {2, ATTN_EINTERNAL, "rank 0 waits for what it did not post"},
};

/* Rank 0 waits for `want` bytes of k, step 0; rank 1 sends what it is told to. */
static enum attn_status disagree(struct attn_transport *t, int tag, struct attn_piece piece,
                                 int64_t want, struct attn_error *err)
{
    char bytes[32] = {0};
    struct attn_piece whole = attn_piece_whole(want);
    struct attn_message send = message_of(0, tag, bytes, &piece);
    struct attn_message receive = message_of(1, attn_tag(ATTN_TAG_K, 0), bytes, &whole);
    return t->rank == 1 ? attn_exchange(t, &send, 1, NULL, 0, err)
                        : attn_exchange(t, NULL, 0, &receive, 1, err);
}

static enum attn_status receive_only(struct attn_transport *t, int from, int tag,
                                     struct attn_error *err)
{
    char bytes[8];
    struct attn_piece whole = attn_piece_whole(8);
    struct attn_message receive = message_of(from, tag, bytes, &whole);
    return attn_exchange(t, NULL, 0, &receive, 1, err);
}

static enum attn_status send_only(struct attn_transport *t, int to, int tag, struct attn_error *err)
{
    char bytes[8] = {0};
    struct attn_piece whole = attn_piece_whole(8);
    struct attn_message send = message_of(to, tag, bytes, &whole);
    return attn_exchange(t, &send, 1, NULL, 0, err);
}

static enum attn_status hops(struct attn_transport *t, int n, struct attn_error *err)
{
    char out[8] = {0}, in[8];
    enum attn_status status = ATTN_OK;
    for (int hop = 0; hop < n && status == ATTN_OK; hop++)
        status = one_send_one_receive(t, (t->rank + 1) % t->size, (t->rank + t->size - 1) % t->size,
                                      attn_tag(ATTN_TAG_K, hop), out, in, 8, err);
    return status;
}

/* Ranks 0 and 1 throw something to each other for as long as they may. */
static enum attn_status play_ball(struct attn_transport *t, struct attn_error *err)
{
    char out[8] = {0}, in[8];
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK)
        status = one_send_one_receive(t, 1 - t->rank, 1 - t->rank, 0, out, in, 8, err);
    return status;
}

/* Rank 0 wants two pieces of 8 and `last` bytes, or one of 16; rank 1 sends two of 8. */
static enum attn_status disagree_in_pieces(struct attn_transport *t, int pieces, int64_t last,
                                           struct attn_error *err)
{
    char bytes[32] = {0};
    struct attn_piece two[2] = {attn_piece_whole(8), attn_piece_whole(last)},
                      one = attn_piece_whole(16);
    struct attn_message send = message_of(0, attn_tag(ATTN_TAG_K, 0), bytes, two);
    struct attn_message receive =
        message_of(1, attn_tag(ATTN_TAG_K, 0), bytes, pieces == 1 ? &one : two);
    send.pieces = 2;
    receive.pieces = pieces;
    return t->rank == 1 ? attn_exchange(t, &send, 1, NULL, 0, err)
                        : attn_exchange(t, NULL, 0, &receive, 1, err);
}

/* Rank 1 leaves a post open.  Its lists and data outlive it, so that what is tested is what is
 * said, not what is read. */
static enum attn_status leave_open(struct attn_transport *t, enum plan plan, struct attn_error *err)
{
    static struct attn_message send;
    static struct attn_message receive;
    static struct attn_post post;
    static struct attn_piece whole;
    static char bytes[8];
    int k = attn_tag(ATTN_TAG_K, 4);
    if (t->rank == 0 && plan == OPEN_RECEIVE)
        return ATTN_OK;
    if (t->rank == 0)
        return receive_only(t, 1, k, err);
    whole = attn_piece_whole(8);
    send = message_of(0, k, bytes, &whole);
    receive = message_of(0, attn_tag(ATTN_TAG_DV, 4), bytes, &whole);
    post = plan == OPEN_SEND ? post_of(&send, NULL) : post_of(NULL, &receive);
    return attn_post(t, &post, err);
}

/* Rank 0 misuses posts that would be good. */
static enum attn_status misuse(struct attn_transport *t, enum plan plan, struct attn_error *err)
{
    static struct attn_post post[ATTN_OPEN_POSTS + 1]; /* of no messages */
    enum attn_status status = ATTN_OK;
    if (t->rank == 1)
        return ATTN_OK;
    if (plan == NOT_POSTED)
        return attn_wait(t, &post[0], err);
    for (int n = 0; n <= ATTN_OPEN_POSTS && status == ATTN_OK; n++)
        status = attn_post(t, &post[plan == TWICE ? 0 : n], err);
    return status;
}

static enum attn_status planted_body(void *arg, struct attn_transport *t, struct attn_error *err)
{
    int k = attn_tag(ATTN_TAG_K, 0);
    struct attn_piece two_rows = {0, {1, 1, 2}, {0, 0, 8}, 8};
    enum plan plan = *(const enum plan *)arg;
    switch (plan) {
    case OTHER_TAG:
        return disagree(t, attn_tag(ATTN_TAG_DK, 0), attn_piece_whole(8), 8, err);
    case OTHER_STEP:
        return disagree(t, attn_tag(ATTN_TAG_K, 1), attn_piece_whole(8), 8, err);
    case OTHER_SIZE:
        return disagree(t, k, attn_piece_whole(8), 16, err);
    case OTHER_SHAPE:
        return disagree(t, k, two_rows, 16, err);
    case BOTH_RECEIVE:
        return receive_only(t, 1 - t->rank, k, err);
    case CYCLE:
        return receive_only(t, (t->rank + 1) % 3, attn_tag(ATTN_TAG_V, 5), err);
    case ONE_SKIPS:
        return hops(t, t->rank == 1 ? 2 : 3, err);
    case ONE_SENDS:
        return t->rank == 0 ? send_only(t, 2, attn_tag(ATTN_TAG_Q, 0), err) : ATTN_OK;
    case SELF:
        return t->rank == 0 ? send_only(t, 0, k, err) : receive_only(t, 0, k, err);
    case NO_SUCH_RANK:
        return send_only(t, 2, k, err);
    case ONE_FAILS:
        if (t->rank == 2)
            return attn_fail(err, ATTN_ENOMEM, "rank 2 is out of luck");
        return hops(t, 3, err);
    case OTHERS_BUSY:
        if (t->rank == 2)
            return attn_fail(err, ATTN_ENOMEM, "rank 2 is out of luck");
        return play_ball(t, err);
    case OTHER_PIECES:
        return disagree_in_pieces(t, 1, 8, err);
    case OTHER_PIECE:
        return disagree_in_pieces(t, 2, t->rank == 0 ? 9 : 8, err);
    case LATE_CYCLE:
        if (t->rank < 2)
            return receive_only(t, 1 - t->rank, attn_tag(ATTN_TAG_Q, 0), err);
        usleep(1000);
        return ATTN_OK;
    case OPEN_SEND:
    case OPEN_RECEIVE:
    case OPEN_AND_GONE:
        return leave_open(t, plan, err);
    case TWICE:
    case TOO_MANY:
    case NOT_POSTED:
        return misuse(t, plan, err);
    case PLANS:
        break;
    }
    return ATTN_OK;
}

/* Twenty times each, because threads arrive in any order. */
TEST_EACH(planted_faults_are_reported, PLANS)
{
    enum plan plan = (enum plan)_i;
    for (int repeat = 0; repeat < 20; repeat++) {
        struct attn_error err = {0};
        enum attn_status status = run(planted[plan].size, planted_body, &plan, &err);
        ck_assert_int_eq(status, planted[plan].status);
        ck_assert_int_eq(err.status, status);
        ck_assert_msg(strstr(err.text, planted[plan].says) != NULL, "'%s' lacks '%s'", err.text,
                      planted[plan].says);
    }
}

/* After a failure the transport stays closed, even for messages that would match. */
static enum attn_status deaf_to_stop(void *arg, struct attn_transport *t, struct attn_error *err)
{
    enum attn_status *second = arg;
    enum attn_status first = receive_only(t, 1 - t->rank, 0, err);
    second[t->rank] = hops(t, 1, err);
    return first;
}

TEST(failed_is_failed)
{
    enum attn_status second[2] = {ATTN_OK, ATTN_OK};
    struct attn_error err = {0};
    ck_assert_int_eq(run(2, deaf_to_stop, second, &err), ATTN_EPEER);
    ck_assert_int_eq(second[0], ATTN_EPEER);
    ck_assert_int_eq(second[1], ATTN_EPEER);
}

TEST(refusals)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_rank_code body = {planted_body, NULL};
    attn_ledger_init(&ledger, NULL);
    ck_assert_int_eq(attn_sim_run(&ledger, 0, &body, &err), ATTN_EINVAL);
    ck_assert_int_eq(attn_sim_run(&ledger, -1, &body, &err), ATTN_EINVAL);
    ck_assert_int_eq(attn_sim_run(&ledger, 513, &body, &err), ATTN_ENOTSUP);
    ck_assert(strstr(err.text, "1 to 512 would work") != NULL);
    ledger.fail_at = 0;
    ck_assert_int_eq(attn_sim_run(&ledger, 2, &body, &err), ATTN_ENOMEM);
    ck_assert(strstr(err.text, "'sim'") != NULL);
    ck_assert_int_eq(ledger.now, 0);
}

TEST(tags_have_names)
{
    for (int kind = 0; kind < ATTN_TAG_KINDS; kind++)
        for (int step = 0; step < 3; step++) {
            int tag = attn_tag((enum attn_tag_kind)kind, step);
            ck_assert_int_eq(attn_tag_step(tag), step);
            ck_assert_str_eq(attn_tag_name(tag), attn_tag_name(kind));
        }
    ck_assert_str_eq(attn_tag_name(ATTN_TAG_DV), "dv");
    ck_assert_str_eq(attn_tag_name(ATTN_TAG_LSE), "lse");
}
