/* Simulated ranks: threads, one lock, and a rendezvous for every message.  See transport_sim.h.
 *
 * One lock guards everything and is held while bytes are copied.  Simulated ranks share a machine,
 * so there is no parallel wall time to defend, and in return a rank that gives up can never free
 * a buffer that another one is reading.
 */
#include "optimized/parallel/transport_sim.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* One rank, as the others see it.  send and receive lie on the rank's stack while it is inside
 * exchange(), and are empty otherwise. */
struct seat {
    struct sim *sim;
    struct attn_transport transport;
    struct attn_send *send;
    struct attn_receive *receive;
    int n_sends, n_receives;
    int waiting; /* asleep, and nothing has happened for it since */
    int left;
    enum attn_status status;
    struct attn_error error;
    pthread_t thread;
    pthread_cond_t wake;
};

struct sim {
    pthread_mutex_t lock;
    int size, failed;
    struct attn_error finding; /* of the transport itself: mismatch, deadlock, peer gone */
    const struct attn_sim_body *body;
    struct seat seat[ATTN_MAX_RANKS];
};

/* ---- everything below runs under the lock -------------------------------------------------- */

static void stir(struct seat *s)
{
    s->waiting = 0;
    pthread_cond_signal(&s->wake);
}

static void stir_all(struct sim *sim)
{
    for (int r = 0; r < sim->size; r++)
        stir(&sim->seat[r]);
}

/* The end of the run; the caller has put the reason into sim->finding. */
static enum attn_status end_with_finding(struct sim *sim, struct attn_error *err)
{
    sim->failed = 1;
    stir_all(sim);
    return attn_fail(err, ATTN_EPEER, "%s", sim->finding.text);
}

static enum attn_status find_gone(struct sim *sim, const char *verb, int rank, int peer, int tag,
                                  struct attn_error *err)
{
    attn_fail(&sim->finding, ATTN_EPEER, "rank %d waits to %s %s (step %d): rank %d has left", rank,
              verb, attn_tag_name(tag), attn_tag_step(tag), peer);
    return end_with_finding(sim, err);
}

static int same_shape(const struct attn_piece *a, const struct attn_piece *b)
{
    return memcmp(a->extent, b->extent, sizeof a->extent) == 0 && a->row == b->row;
}

static enum attn_status find_mismatch(struct sim *sim, int rank, const struct attn_receive *in,
                                      const struct attn_send *out, struct attn_error *err)
{
    attn_fail(&sim->finding, ATTN_EPEER,
              "rank %d waits for %s (step %d, %lldx%lldx%lld rows of %lld bytes) from rank %d, "
              "which sends %s (step %d, %lldx%lldx%lld rows of %lld bytes)",
              rank, attn_tag_name(in->tag), attn_tag_step(in->tag), (long long)in->piece.extent[0],
              (long long)in->piece.extent[1], (long long)in->piece.extent[2],
              (long long)in->piece.row, in->peer, attn_tag_name(out->tag), attn_tag_step(out->tag),
              (long long)out->piece.extent[0], (long long)out->piece.extent[1],
              (long long)out->piece.extent[2], (long long)out->piece.row);
    return end_with_finding(sim, err);
}

/* The oldest message that `from` has for `rank` and that was not taken; NULL when none. */
static struct attn_send *next_send(const struct seat *from, int rank)
{
    for (int m = 0; m < from->n_sends; m++)
        if (from->send[m].peer == rank && !from->send[m].done)
            return &from->send[m];
    return NULL;
}

/* Take what is there for this rank. */
static enum attn_status take_messages(struct sim *sim, struct seat *me, struct attn_error *err)
{
    int rank = me->transport.rank;
    for (int m = 0; m < me->n_receives; m++) {
        struct attn_receive *in = &me->receive[m];
        struct seat *from = &sim->seat[in->peer];
        struct attn_send *out = in->done ? NULL : next_send(from, rank);
        if (out == NULL)
            continue;
        if (in->tag != out->tag || !same_shape(&in->piece, &out->piece))
            return find_mismatch(sim, rank, in, out, err);
        attn_piece_copy(in->data, &in->piece, out->data, &out->piece);
        in->done = out->done = 1;
        stir(from);
    }
    return ATTN_OK;
}

/* What this rank still waits for: NULL and NULL when nothing. */
static void first_open(const struct seat *s, const struct attn_receive **in,
                       const struct attn_send **out)
{
    *in = NULL;
    *out = NULL;
    for (int m = 0; m < s->n_receives && *in == NULL; m++)
        if (!s->receive[m].done)
            *in = &s->receive[m];
    for (int m = 0; m < s->n_sends && *out == NULL; m++)
        if (!s->send[m].done)
            *out = &s->send[m];
}

/* Everybody who still runs is asleep: say who waits for whom, as far as the line reaches. */
static enum attn_status find_deadlock(struct sim *sim, struct attn_error *err)
{
    char text[sizeof sim->finding.text] = "deadlock";
    for (int r = 0; r < sim->size; r++) {
        const struct attn_receive *in;
        const struct attn_send *out;
        first_open(&sim->seat[r], &in, &out);
        if (sim->seat[r].left || (in == NULL && out == NULL))
            continue;
        size_t used = strlen(text);
        int tag = in != NULL ? in->tag : out->tag;
        snprintf(text + used, sizeof text - used, "; rank %d waits to %s %s (step %d) %s rank %d",
                 r, in != NULL ? "receive" : "send", attn_tag_name(tag), attn_tag_step(tag),
                 in != NULL ? "from" : "to", in != NULL ? in->peer : out->peer);
    }
    attn_fail(&sim->finding, ATTN_EPEER, "%s", text);
    return end_with_finding(sim, err);
}

static int all_asleep(const struct sim *sim)
{
    for (int r = 0; r < sim->size; r++)
        if (!sim->seat[r].left && !sim->seat[r].waiting)
            return 0;
    return 1;
}

/* Until all messages of this rank are done. */
static enum attn_status meet(struct sim *sim, struct seat *me, struct attn_error *err)
{
    int rank = me->transport.rank;
    for (;;) {
        if (sim->failed)
            return attn_fail(err, ATTN_EPEER, "rank %d stopped: another rank failed", rank);
        enum attn_status status = take_messages(sim, me, err);
        if (status != ATTN_OK)
            return status;
        const struct attn_receive *in;
        const struct attn_send *out;
        first_open(me, &in, &out);
        if (in == NULL && out == NULL)
            return ATTN_OK;
        if (in != NULL && sim->seat[in->peer].left)
            return find_gone(sim, "receive", rank, in->peer, in->tag, err);
        if (out != NULL && sim->seat[out->peer].left)
            return find_gone(sim, "send", rank, out->peer, out->tag, err);
        me->waiting = 1;
        if (all_asleep(sim))
            return find_deadlock(sim, err);
        while (me->waiting)
            pthread_cond_wait(&me->wake, &sim->lock);
    }
}

/* ---- a rank's own thread ------------------------------------------------------------------- */

static enum attn_status exchange(struct attn_transport *t, struct attn_send *send, int n_sends,
                                 struct attn_receive *receive, int n_receives,
                                 struct attn_error *err)
{
    struct seat *me = t->state;
    struct sim *sim = me->sim;
    pthread_mutex_lock(&sim->lock);
    me->send = send;
    me->receive = receive;
    me->n_sends = n_sends;
    me->n_receives = n_receives;
    for (int m = 0; m < n_sends; m++) {
        send[m].done = 0;
        stir(&sim->seat[send[m].peer]);
    }
    for (int m = 0; m < n_receives; m++)
        receive[m].done = 0;
    enum attn_status status = meet(sim, me, err);
    me->n_sends = me->n_receives = 0;
    me->waiting = 0;
    pthread_mutex_unlock(&sim->lock);
    return status;
}

static const struct attn_transport_ops sim_ops = {"simulated", exchange};

/* Who waits for somebody that leaves must wake up to notice. */
static void leave(struct seat *me, enum attn_status status)
{
    struct sim *sim = me->sim;
    pthread_mutex_lock(&sim->lock);
    me->status = status;
    me->left = 1;
    if (status != ATTN_OK)
        sim->failed = 1;
    stir_all(sim);
    pthread_mutex_unlock(&sim->lock);
}

static void *rank_main(void *arg)
{
    struct seat *me = arg;
    const struct attn_sim_body *body = me->sim->body;
    leave(me, body->run(body->arg, &me->transport, &me->error));
    return NULL;
}

/* ---- the run ------------------------------------------------------------------------------- */

static void open_sim(struct sim *sim, int size, const struct attn_sim_body *body)
{
    memset(sim, 0, sizeof *sim);
    sim->size = size;
    sim->body = body;
    pthread_mutex_init(&sim->lock, NULL);
    for (int r = 0; r < size; r++) {
        struct seat *s = &sim->seat[r];
        s->sim = sim;
        s->transport = (struct attn_transport){&sim_ops, s, r, size, 0, 0};
        pthread_cond_init(&s->wake, NULL);
    }
}

static void close_sim(struct sim *sim)
{
    for (int r = 0; r < sim->size; r++)
        pthread_cond_destroy(&sim->seat[r].wake);
    pthread_mutex_destroy(&sim->lock);
}

/* The cause, not a consequence of it: of the lowest rank that failed by itself, else of the
 * transport. */
static enum attn_status verdict(const struct sim *sim, struct attn_error *err)
{
    const struct seat *lost = NULL;
    for (int r = 0; r < sim->size; r++) {
        const struct seat *s = &sim->seat[r];
        if (s->status != ATTN_OK && s->status != ATTN_EPEER)
            return attn_fail(err, s->status, "%s", s->error.text);
        if (s->status != ATTN_OK && lost == NULL)
            lost = s;
    }
    if (lost == NULL)
        return ATTN_OK;
    const struct attn_error *cause = sim->finding.status != ATTN_OK ? &sim->finding : &lost->error;
    return attn_fail(err, ATTN_EPEER, "%s", cause->text);
}

enum attn_status attn_sim_run(struct attn_ledger *ledger, int size,
                              const struct attn_sim_body *body, struct attn_error *err)
{
    if (size < 1 || size > ATTN_MAX_RANKS)
        return attn_fail(err, ATTN_EINVAL, "%d simulated ranks: 1 to %d would work", size,
                         ATTN_MAX_RANKS);
    struct attn_error own;
    struct sim *sim = attn_ledger_take(ledger, "sim", 1, sizeof *sim, &own);
    if (sim == NULL)
        return attn_fail(err, own.status, "%s", own.text);
    open_sim(sim, size, body);
    int started = 0;
    for (int r = 0; r < size; r++) {
        struct seat *s = &sim->seat[r];
        if (started == r && pthread_create(&s->thread, NULL, rank_main, s) == 0)
            started++;
        else
            leave(s, attn_fail(&s->error, ATTN_ENOMEM, "no thread for rank %d of %d", r, size));
    }
    for (int r = 0; r < started; r++)
        pthread_join(sim->seat[r].thread, NULL);
    enum attn_status status = verdict(sim, err);
    close_sim(sim);
    attn_ledger_give(ledger, sim);
    return status;
}
