/* The transport of simulated ranks: what arrives, what is counted, and that nothing ever hangs.
 * A hang would be ended by Check's time limit and fail. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "optimized/parallel/transport/transport_sim.h"
#include "ref/ledger.h"
#include "ref/ranks.h"
#include "tests/fixtures/refused.h"
#include "tests/harness/base/fill.h"
#include "tests/suites.h"

SUITE(transport);

/* Run a body on `size` ranks; a ledger that does not balance fails. */
static enum attn_status
run(int size, enum attn_status (*body)(void *, struct attn_transport *, struct attn_error *),
    void *arg, struct attn_error *err)
{
    struct attn_ledger ledger;
    attn_ledger_init(&ledger, NULL);
    struct attn_rank_code b = {body, arg, 0};
    enum attn_status status = attn_sim_run(&ledger, size, &b, err);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    ck_assert_int_eq(ledger.damaged, 0);
    return status;
}

/* A sent tensor is only read. */
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

/* The steps of ranks, one after the other: `RANK VERB PEER TENSOR STEP PIECES`, RANK * being all
 * and PIECES a number of rows x bytes, and bytes of a second piece.  A hop sends to the next rank
 * and receives from the one before. */
static const struct plan {
    int size;
    enum attn_status status;
    const char *script, *says;
} planted[] = {
    /* another tensor, the same of another hop, another size, and one that is equal in sum only */
    {2, ATTN_EPEER, "0 receive 1 k 0 1x8; 1 send 0 dk 0 1x8",
     "rank 0 waits for k (step 0, 1x1x1 rows of 8 bytes) from rank 1, which sends dk (step 0"},
    {2, ATTN_EPEER, "0 receive 1 k 0 1x8; 1 send 0 k 1 1x8", "which sends k (step 1"},
    {2, ATTN_EPEER, "0 receive 1 k 0 1x16; 1 send 0 k 0 1x8",
     "rows of 16 bytes) from rank 1, which sends k (step 0, 1x1x1 rows of 8"},
    {2, ATTN_EPEER, "0 receive 1 k 0 1x16; 1 send 0 k 0 2x8",
     "1x1x1 rows of 16 bytes) from rank 1, which sends k (step 0, 1x1x2"},
    {2, ATTN_EPEER, "0 receive 1 k 0 1x16; 1 send 0 k 0 1x8+8",
     "rank 0 waits for k (step 0, 1x1x1 rows of 16 bytes) from rank 1, which sends k (step 0, 2 "
     "pieces, piece 0, 1x1x1 rows of 8 bytes)"},
    {2, ATTN_EPEER, "0 receive 1 k 0 1x8+9; 1 send 0 k 0 1x8+8",
     "waits for k (step 0, 2 pieces, piece 1, 1x1x1 rows of 9 bytes) from rank 1, which sends k "
     "(step 0, 2 pieces, piece 1, 1x1x1 rows of 8 bytes)"},
    /* no rank sends; 0 waits for 1, 1 for 2, 2 for 0; a cycle beside one who ends well, later */
    {2, ATTN_EPEER, "0 receive 1 k 0 1x8; 1 receive 0 k 0 1x8",
     "deadlock; rank 0 waits to receive k (step 0) from rank 1; "
     "rank 1 waits to receive k (step 0) from rank 0"},
    {3, ATTN_EPEER, "0 receive 1 v 5 1x8; 1 receive 2 v 5 1x8; 2 receive 0 v 5 1x8",
     "rank 2 waits to receive v (step 5) from rank 0"},
    {3, ATTN_EPEER, "0 receive 1 q 0 1x8; 1 receive 0 q 0 1x8; 2 sleep",
     "deadlock; rank 0 waits to receive q (step 0) from rank 1; "
     "rank 1 waits to receive q (step 0) from rank 0"},
    /* one leaves out its last hop and is done (SP-21); one sends a message that no rank takes */
    {4, ATTN_EPEER, "* hop 0 k 0 1x8; 0 hop 0 k 1 1x8; 2 hop 0 k 1 1x8; 3 hop 0 k 1 1x8",
     "rank 1 has left"},
    {3, ATTN_EPEER, "0 send 2 q 0 1x8", "rank 0 waits to send q (step 0): rank 2 has left"},
    {2, ATTN_EINTERNAL, "0 send 0 k 0 1x8; 1 receive 0 k 0 1x8", "rank 0 of 2 addresses rank 0"},
    {2, ATTN_EINTERNAL, "* send 2 k 0 1x8", "addresses rank 2"},
    /* one has a reason of its own; and others do not need it for anything */
    {4, ATTN_ENOMEM, "2 fail; * hop 0 k 0 1x8; * hop 0 k 1 1x8", "out of luck"},
    {3, ATTN_ENOMEM, "2 fail; 0 play 1 q 0 1x8; 1 play 0 q 0 1x8", "out of luck"},
    /* one does not wait for what it posted: it is taken, or no rank sends it, and one waits */
    {2, ATTN_EINTERNAL, "0 receive 1 k 4 1x8; 1 post-send 0 k 4 1x8",
     "rank 1 ended without waiting for its post to send k (step 4) to rank 0"},
    {2, ATTN_EINTERNAL, "1 post-receive 0 dv 4 1x8",
     "rank 1 ended without waiting for its post to receive dv (step 4) from rank 0"},
    {2, ATTN_EINTERNAL, "0 receive 1 k 4 1x8; 1 post-receive 0 dv 4 1x8",
     "to receive dv (step 4) from rank 0"},
    /* posts what is open, more than there may be, and waits for what it did not post */
    {2, ATTN_EINTERNAL, "0 twice", "rank 0 posts again what is still open"},
    {2, ATTN_EINTERNAL, "0 many", "rank 0 has 16 posts open: wait for one of them first"},
    {2, ATTN_EINTERNAL, "0 wait", "rank 0 waits for what it did not post"},
};

static int tag_of(const char *name, int step)
{
    int kind = 0;
    while (kind < ATTN_TAG_KINDS && strcmp(attn_tag_name(kind), name) != 0)
        kind++;
    ck_assert_int_lt(kind, ATTN_TAG_KINDS);
    return attn_tag((enum attn_tag_kind)kind, step);
}

/* Posts of no messages, which would be good. */
static enum attn_status misuse(struct attn_transport *t, const char *verb, struct attn_error *err)
{
    static struct attn_post post[ATTN_OPEN_POSTS + 1];
    enum attn_status status = ATTN_OK;
    if (strcmp(verb, "wait") == 0)
        return attn_wait(t, &post[0], err);
    for (int n = 0; n <= ATTN_OPEN_POSTS && status == ATTN_OK; n++)
        status = attn_post(t, &post[strcmp(verb, "twice") == 0 ? 0 : n], err);
    return status;
}

/* Its lists and data outlive it, so that what is tested is what is said, not what is read. */
static enum attn_status leave_open(struct attn_transport *t, const struct attn_message *x,
                                   int is_send, struct attn_error *err)
{
    static struct attn_message message;
    static struct attn_post post;
    static struct attn_piece piece;
    static char bytes[32];
    message = *x;
    piece = *x->piece;
    message.piece = &piece;
    message.data = bytes;
    post = is_send ? post_of(&message, NULL) : post_of(NULL, &message);
    return attn_post(t, &post, err);
}

/* One line of a script. */
static enum attn_status act(struct attn_transport *t, const char *line, struct attn_error *err)
{
    char verb[16], name[8] = "k", bytes[32] = {0}, in[32];
    int peer = 0, step = 0, rows = 1, first = 8, second = 0;
    sscanf(line, "%*s %15[a-z-] %d %7s %d %dx%d+%d", verb, &peer, name, &step, &rows, &first,
           &second);
    const struct attn_piece piece[2] = {{0, {1, 1, rows}, {0, 0, first}, first},
                                        attn_piece_whole(second)};
    const int tag = tag_of(name, step), next = (t->rank + 1) % t->size;
    struct attn_message x = message_of(peer, tag, bytes, piece);
    enum attn_status status = ATTN_OK;
    x.pieces = second > 0 ? 2 : 1;
    if (strcmp(verb, "send") == 0)
        return attn_exchange(t, &x, 1, NULL, 0, err);
    if (strcmp(verb, "receive") == 0)
        return attn_exchange(t, NULL, 0, &x, 1, err);
    if (strncmp(verb, "post-", 5) == 0)
        return leave_open(t, &x, strcmp(verb, "post-send") == 0, err);
    if (strcmp(verb, "hop") == 0)
        return one_send_one_receive(t, next, (t->rank + t->size - 1) % t->size, tag, bytes, in, 8,
                                    err);
    if (strcmp(verb, "fail") == 0)
        return attn_fail(err, ATTN_ENOMEM, "out of luck");
    if (strcmp(verb, "sleep") == 0)
        return usleep(1000) == 0 ? ATTN_OK : ATTN_EINTERNAL;
    if (strcmp(verb, "play") != 0)
        return misuse(t, verb, err);
    while (status == ATTN_OK) /* they throw something to each other for as long as they may */
        status = one_send_one_receive(t, peer, peer, tag, bytes, in, 8, err);
    return status;
}

static enum attn_status follow(void *script, struct attn_transport *t, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (const char *line = script; line != NULL && status == ATTN_OK;) {
        if (*line == '*' || *line - '0' == t->rank)
            status = act(t, line, err);
        line = strchr(line, ';');
        line = line != NULL ? line + 2 : NULL;
    }
    return status;
}

/* Twenty times each, because threads arrive in any order. */
TEST_EACH(planted_faults_are_reported, COUNT(planted))
{
    const struct plan *plan = &planted[_i];
    for (int repeat = 0; repeat < 20; repeat++) {
        struct attn_error err = {0};
        ck_refusal(run(plan->size, follow, (void *)plan->script, &err), plan->status, &err,
                   plan->says);
    }
}

/* After a failure the transport stays closed, even for messages that would match. */
static enum attn_status deaf_to_stop(void *arg, struct attn_transport *t, struct attn_error *err)
{
    enum attn_status *second = arg;
    enum attn_status first = follow("0 receive 1 q 0 1x8; 1 receive 0 q 0 1x8", t, err);
    second[t->rank] = act(t, "* hop 0 k 0 1x8", err);
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
    struct attn_rank_code body = {follow, "0 sleep", 0};
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
