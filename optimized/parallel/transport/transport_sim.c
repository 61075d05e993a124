/* Simulated ranks: threads, one lock, and a mailbox for each pair.  See transport_sim.h.
 *
 * One lock guards everything and is held while bytes are copied.  Simulated ranks share a machine,
 * so there is no parallel wall time to defend, and in return a rank that gives up can never free
 * a buffer that another one is reading.
 */
#include "optimized/parallel/transport/transport_sim.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "optimized/parallel/transport/rank_words.h"

/* Of a rank's stack, so that many ranks fit into a small address space.  Schemes with every local
 * implementation and instruction set run in 32 KiB, and in 64 KiB under the address sanitizer;
 * pages that are not touched cost nothing. */
enum { STACK_BYTES = 256 * 1024 };

/* From one rank to another: what was sent and not received, or was to be received and not sent, in
 * the order of posting.  At most one of the two queues has messages. */
struct queue {
    struct attn_message *first, *last;
};
struct mailbox {
    struct queue sent, wanted;
};

/* One rank, as the others see it. */
struct seat {
    struct sim *sim;
    struct attn_transport transport;
    const struct attn_post *asleep; /* the post that it waits for; NULL when it runs */
    int left;
    enum attn_status status;
    struct attn_error error;
    pthread_t thread;
    pthread_cond_t wake;
};

struct sim {
    pthread_mutex_t lock;
    int size, failed;
    int running;               /* ranks that neither sleep nor have left */
    struct attn_error finding; /* of the transport itself: mismatch, deadlock, peer gone */
    const struct attn_rank_code *code;
    struct seat *seat;    /* [size] */
    struct mailbox *mail; /* [size, size]: from, to */
};

/* ---- everything below runs under the lock -------------------------------------------------- */

static struct mailbox *mailbox(const struct sim *sim, int from, int to)
{
    return &sim->mail[(int64_t)from * sim->size + to];
}

static void wake(struct seat *s)
{
    if (s->asleep == NULL)
        return;
    s->asleep = NULL;
    s->sim->running++;
    pthread_cond_signal(&s->wake);
}

/* The end of the run: no rank looks into a mailbox any more. */
static void close_mail(struct sim *sim)
{
    sim->failed = 1;
    for (int r = 0; r < sim->size; r++)
        wake(&sim->seat[r]);
}

/* The caller has put the reason into sim->finding. */
static enum attn_status end_with_finding(struct sim *sim, struct attn_error *err)
{
    close_mail(sim);
    return attn_fail(err, ATTN_EPEER, "%s", sim->finding.text);
}

static enum attn_status find_mismatch(struct sim *sim, const struct attn_message *in,
                                      const struct attn_message *out, struct attn_error *err)
{
    const struct attn_shape wanted = attn_shape_of(in), sent = attn_shape_of(out);
    attn_say_mismatch(out->peer, &wanted, in->peer, &sent, &sim->finding);
    return end_with_finding(sim, err);
}

static int agree(const struct attn_message *in, const struct attn_message *out)
{
    const struct attn_shape wanted = attn_shape_of(in), sent = attn_shape_of(out);
    return in->tag == out->tag && in->pieces == out->pieces &&
           attn_shape_difference(&wanted, &sent) == in->pieces;
}

/* One message of this post less; its rank wakes up when that was the last one. */
static void count_done(struct sim *sim, int rank, struct attn_post *post)
{
    struct seat *s = &sim->seat[rank];
    if (--post->undone == 0 && s->asleep == post)
        wake(s);
}

/* Both sides of this message are there. */
static enum attn_status deliver(struct sim *sim, struct attn_message *in, struct attn_message *out,
                                struct attn_error *err)
{
    if (!agree(in, out))
        return find_mismatch(sim, in, out, err);
    for (int n = 0; n < in->pieces; n++)
        attn_piece_copy(in->data, &in->piece[n], out->data, &out->piece[n]);
    count_done(sim, in->peer, out->post);
    count_done(sim, out->peer, in->post);
    out->post = in->post = NULL;
    return ATTN_OK;
}

/* One side of a message is posted: the other one is there, or will find it in its queue. */
static enum attn_status post_one(struct sim *sim, int rank, struct attn_message *x, int sends,
                                 struct attn_error *err)
{
    struct mailbox *box = sends ? mailbox(sim, rank, x->peer) : mailbox(sim, x->peer, rank);
    struct queue *own = sends ? &box->sent : &box->wanted;
    struct queue *others = sends ? &box->wanted : &box->sent;
    struct attn_message *other = others->first;
    if (other != NULL) {
        others->first = other->next;
        return sends ? deliver(sim, other, x, err) : deliver(sim, x, other, err);
    }
    if (own->first == NULL)
        own->first = x;
    else
        own->last->next = x;
    own->last = x;
    return ATTN_OK;
}

/* EPEER when one of these, of a post that is waited for, needs a rank that has left. */
static enum attn_status check_gone(struct sim *sim, int rank, const struct attn_message *x, int n,
                                   const char *verb, struct attn_error *err)
{
    for (int m = 0; m < n; m++)
        if (x[m].post != NULL && sim->seat[x[m].peer].left) {
            attn_say_left(rank, verb, &x[m], &sim->finding);
            return end_with_finding(sim, err);
        }
    return ATTN_OK;
}

/* Everybody who still runs is asleep: say who waits for whom, as far as the line reaches. */
static enum attn_status find_deadlock(struct sim *sim, struct attn_error *err)
{
    char text[sizeof sim->finding.text] = "deadlock";
    for (int r = 0; r < sim->size && strlen(text) + 1 < sizeof text; r++) {
        const struct attn_post *post = sim->seat[r].asleep;
        if (post == NULL)
            continue;
        char wait[128];
        attn_say_wait(r, post, wait, sizeof wait);
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "; %s", wait);
    }
    attn_fail(&sim->finding, ATTN_EPEER, "%s", text);
    return end_with_finding(sim, err);
}

/* ---- a rank's own thread ------------------------------------------------------------------- */

static enum attn_status sim_post(struct attn_transport *t, struct attn_post *post,
                                 struct attn_error *err)
{
    struct seat *me = t->state;
    struct sim *sim = me->sim;
    pthread_mutex_lock(&sim->lock);
    enum attn_status status = sim->failed ? attn_say_stopped(me->transport.rank, err) : ATTN_OK;
    for (int m = 0; m < post->n_receives && status == ATTN_OK; m++)
        status = post_one(sim, t->rank, &post->receive[m], 0, err);
    for (int m = 0; m < post->n_sends && status == ATTN_OK; m++)
        status = post_one(sim, t->rank, &post->send[m], 1, err);
    pthread_mutex_unlock(&sim->lock);
    return status;
}

/* Until all messages of the post are done. */
static enum attn_status meet(struct sim *sim, struct seat *me, const struct attn_post *post,
                             struct attn_error *err)
{
    for (;;) {
        if (sim->failed)
            return attn_say_stopped(me->transport.rank, err);
        if (post->undone == 0)
            return ATTN_OK;
        int rank = me->transport.rank;
        enum attn_status status =
            check_gone(sim, rank, post->receive, post->n_receives, "receive", err);
        if (status == ATTN_OK)
            status = check_gone(sim, rank, post->send, post->n_sends, "send", err);
        if (status != ATTN_OK)
            return status;
        me->asleep = post;
        sim->running--;
        if (sim->running == 0)
            return find_deadlock(sim, err);
        while (me->asleep != NULL)
            pthread_cond_wait(&me->wake, &sim->lock);
    }
}

static enum attn_status sim_wait(struct attn_transport *t, struct attn_post *post,
                                 struct attn_error *err)
{
    struct seat *me = t->state;
    pthread_mutex_lock(&me->sim->lock);
    enum attn_status status = meet(me->sim, me, post, err);
    pthread_mutex_unlock(&me->sim->lock);
    return status;
}

/* A rank that waits for one that leaves must wake up to notice.  When all others sleep and wait,
 * the rank that leaves finds the deadlock. */
static void wake_those_who_wait_for(struct sim *sim, int rank)
{
    struct attn_error ignored;
    int asleep = 0;
    for (int r = 0; r < sim->size; r++) {
        if (mailbox(sim, r, rank)->sent.first != NULL ||
            mailbox(sim, rank, r)->wanted.first != NULL)
            wake(&sim->seat[r]);
        asleep += sim->seat[r].asleep != NULL;
    }
    if (sim->running == 0 && asleep > 0)
        find_deadlock(sim, &ignored);
}

static void sim_end(struct attn_transport *t, enum attn_status status)
{
    struct seat *me = t->state;
    struct sim *sim = me->sim;
    pthread_mutex_lock(&sim->lock);
    if (!me->left)
        sim->running--;
    int leaves = !me->left;
    me->left = 1;
    me->status = status;
    if (status != ATTN_OK)
        close_mail(sim);
    else if (leaves && !sim->failed)
        wake_those_who_wait_for(sim, t->rank);
    pthread_mutex_unlock(&sim->lock);
}

static const struct attn_transport_ops sim_ops = {0, sim_post, sim_wait, sim_end};

static void *rank_main(void *arg)
{
    struct seat *me = arg;
    const struct attn_rank_code *code = me->sim->code;
    enum attn_status status = code->run(code->arg, &me->transport, &me->error);
    attn_transport_end(&me->transport, status, &me->error);
    return NULL;
}

/* ---- the run ------------------------------------------------------------------------------- */

static enum attn_status open_sim(struct sim *sim, struct attn_ledger *ledger, int size,
                                 const struct attn_rank_code *code, struct attn_error *err)
{
    struct attn_error own;
    *sim = (struct sim){.size = size, .running = size, .code = code};
    sim->seat = attn_ledger_take(ledger, "sim", size, sizeof *sim->seat, &own);
    if (sim->seat != NULL)
        sim->mail =
            attn_ledger_take(ledger, "sim.mail", (int64_t)size * size, sizeof *sim->mail, &own);
    if (sim->mail == NULL) {
        attn_ledger_give(ledger, sim->seat);
        return attn_fail(err, own.status, "%s", own.text);
    }
    memset(sim->mail, 0, (size_t)size * (size_t)size * sizeof *sim->mail);
    pthread_mutex_init(&sim->lock, NULL);
    for (int r = 0; r < size; r++) {
        struct seat *s = &sim->seat[r];
        *s = (struct seat){.sim = sim};
        s->transport =
            (struct attn_transport){.ops = &sim_ops, .state = s, .rank = r, .size = size};
        pthread_cond_init(&s->wake, NULL);
    }
    return ATTN_OK;
}

static void close_sim(struct sim *sim, struct attn_ledger *ledger)
{
    for (int r = 0; r < sim->size; r++)
        pthread_cond_destroy(&sim->seat[r].wake);
    pthread_mutex_destroy(&sim->lock);
    attn_ledger_give(ledger, sim->mail);
    attn_ledger_give(ledger, sim->seat);
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

/* How many ranks have a thread; the others have ended with ENOMEM. */
static int start_threads(struct sim *sim)
{
    int started = 0;
    pthread_attr_t attr;
    int made = pthread_attr_init(&attr) == 0;
    if (made)
        pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (int r = 0; r < sim->size; r++) {
        struct seat *s = &sim->seat[r];
        if (made && started == r && pthread_create(&s->thread, &attr, rank_main, s) == 0)
            started++;
        else
            sim_end(&s->transport,
                    attn_fail(&s->error, ATTN_ENOMEM, "no thread for rank %d of %d", r, sim->size));
    }
    if (made)
        pthread_attr_destroy(&attr);
    return started;
}

enum attn_status attn_sim_run(struct attn_ledger *ledger, int size,
                              const struct attn_rank_code *code, struct attn_error *err)
{
    if (size < 1)
        return attn_fail(err, ATTN_EINVAL, "%d simulated ranks: 1 to %d would work", size,
                         ATTN_SIM_RANKS);
    if (size > ATTN_SIM_RANKS)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%d ranks are too many to simulate: 1 to %d would work; `attnlab price` "
                         "shows what up to %d need and send",
                         size, ATTN_SIM_RANKS, ATTN_MAX_RANKS);
    struct sim sim;
    enum attn_status status = open_sim(&sim, ledger, size, code, err);
    if (status != ATTN_OK)
        return status;
    int started = start_threads(&sim);
    for (int r = 0; r < started; r++)
        pthread_join(sim.seat[r].thread, NULL);
    status = verdict(&sim, err);
    close_sim(&sim, ledger);
    return status;
}
