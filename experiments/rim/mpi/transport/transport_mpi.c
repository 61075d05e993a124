/* See transport_mpi.h. */
#include "experiments/rim/mpi/transport/transport_mpi.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/rim/mpi/transport/mpi_type.h"
#include "optimized/parallel/transport/rank_words.h"

enum {
    SHOWN = 4,         /* pieces of a message that its header has */
    CHUNK = 1 << 30,   /* bytes of one broadcast */
    TAGS = 1 << 14,    /* a call of ranks has a tag of its own, and above these one of notes */
    YIELDS = 200,      /* before the first sleep */
    FIRST_NAP = 20000, /* ns */
    LAST_NAP = 1000000
};
static const double GRACE_LEFT =
                        0.5, /* seconds for what a rank that has left still has on its way */
    GRACE_LOST = 3;          /* and for the note of a rank after another one's has failed */

/* The head of a message: equal on both sides, because offsets and strides are left out.  Words are
 * of one byte order and size on all machines of a run. */
struct header {
    int64_t tag, pieces;
    uint64_t shapes;                /* a hash of all */
    struct attn_piece piece[SHOWN]; /* the first; offset -1: pads */
};

/* How a rank has ended.  wait has the post that it waited for when it ended. */
enum end { NO_NOTE, ENDED, FAILED_ITSELF, FOUND, WAITED, STOPPED };
struct note {
    int32_t how, status;
    char text[sizeof((struct attn_error *)0)->text], wait[128];
};

struct attn_mpi {
    MPI_Comm comm;
    int rank, size;
    int tag; /* of this call of ranks */
    double limit;
    void (*give_up)(const char *line);
    struct note *note; /* [size], of this call */
    MPI_Request *sent; /* [size]: of our own note */
    char **name;       /* [n_names]: of buffers, by other processes */
    int n_names;
};

/* A post of ours.  Messages stand in its order, sends first. */
struct open {
    const struct attn_post *post; /* NULL: this place is free */
    int n, left;
    MPI_Request *request;
    struct header *header;
};

/* This process's rank, in one call. */
struct member {
    struct attn_mpi *mpi;
    int ranks;
    struct note note; /* its own */
    struct open open[ATTN_OPEN_POSTS];
};

static enum attn_status mpi_failed(int code, const char *what, struct attn_error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return attn_fail(err, code == MPI_ERR_NO_MEM ? ATTN_ENOMEM : ATTN_EINTERNAL, "MPI, %s: %.300s",
                     what, text);
}

/* Between two looks without progress. */
static void rest(int *looks)
{
    long nap = FIRST_NAP;
    if (++*looks <= YIELDS) {
        sched_yield();
        return;
    }
    for (int n = YIELDS; n < *looks && nap < LAST_NAP; n += 20)
        nap *= 2;
    nanosleep(&(struct timespec){0, nap < LAST_NAP ? nap : LAST_NAP}, NULL);
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* Take in what notes there are; whether one of a failure is among all that came. */
static int read_notes(struct attn_mpi *mpi)
{
    int there = 0, failed = 0;
    MPI_Status from;
    while (MPI_Iprobe(MPI_ANY_SOURCE, TAGS + mpi->tag, mpi->comm, &there, &from) == MPI_SUCCESS &&
           there)
        MPI_Recv(&mpi->note[from.MPI_SOURCE], sizeof *mpi->note, MPI_BYTE, from.MPI_SOURCE,
                 TAGS + mpi->tag, mpi->comm, MPI_STATUS_IGNORE);
    for (int r = 0; r < mpi->size; r++)
        failed |= mpi->note[r].how > ENDED;
    return failed;
}

static void send_note(struct attn_mpi *mpi, const struct note *note)
{
    mpi->note[mpi->rank] = *note;
    for (int r = 0; r < mpi->size; r++) {
        mpi->sent[r] = MPI_REQUEST_NULL;
        if (r != mpi->rank)
            MPI_Isend(&mpi->note[mpi->rank], sizeof *note, MPI_BYTE, r, TAGS + mpi->tag, mpi->comm,
                      &mpi->sent[r]);
    }
}

static int lacking(const struct attn_mpi *mpi, int ranks)
{
    int n = 0;
    for (int r = 0; r < ranks; r++)
        n += mpi->note[r].how == NO_NOTE;
    return n;
}

/* The line that names the ranks without a note, the first eight of them; its bytes. */
static int name_lacking(const struct attn_mpi *mpi, int ranks, char *text, size_t size)
{
    int lost = lacking(mpi, ranks), named = 0;
    int used = snprintf(text, size, "%d of %d ranks give no answer for %g s: rank", lost, ranks,
                        mpi->limit);
    for (int r = 0; r < ranks && named < 8; r++)
        if (mpi->note[r].how == NO_NOTE)
            used += snprintf(text + used, size - (size_t)used, "%s %d", named++ > 0 ? "," : "", r);
    return used + snprintf(text + used, size - (size_t)used, "%s", named < lost ? ", ..." : "");
}

/* As a simulation decides: the lowest rank that failed by itself; else the transport's finding;
 * else no rank made progress. */
static enum attn_status verdict(const struct attn_mpi *mpi, int ranks, struct attn_error *err)
{
    const struct note *found = NULL, *waited = NULL;
    char text[sizeof err->text];
    for (int r = 0; r < ranks; r++) {
        const struct note *x = &mpi->note[r];
        if (x->how == FAILED_ITSELF)
            return attn_fail(err, (enum attn_status)x->status, "%s", x->text);
        found = found == NULL && x->how == FOUND ? x : found;
        waited = waited == NULL && x->how >= WAITED ? x : waited;
    }
    if (found != NULL)
        return attn_fail(err, ATTN_EPEER, "%s", found->text);
    if (waited == NULL)
        return ATTN_OK;
    int lost = lacking(mpi, ranks);
    int used = lost > 0 ? name_lacking(mpi, ranks, text, sizeof text)
                        : snprintf(text, sizeof text, "deadlock");
    for (int r = 0; r < ranks && (size_t)used < sizeof text; r++)
        if (mpi->note[r].wait[0] != '\0')
            used += snprintf(text + used, sizeof text - (size_t)used, "; %s", mpi->note[r].wait);
    return attn_fail(err, ATTN_EPEER, "%s", text);
}

/* Until the notes of all ranks are here and ours is everywhere. */
static void collect_notes(struct attn_mpi *mpi, int ranks)
{
    double since = MPI_Wtime();
    int looks = 0, seen = -1, is_sent = 0;
    struct attn_error err;
    for (;;) {
        int failed = read_notes(mpi), lost = lacking(mpi, ranks);
        MPI_Testall(mpi->size, mpi->sent, &is_sent, MPI_STATUSES_IGNORE);
        if (lost == 0 && is_sent)
            return;
        if (seen != lost + mpi->size * failed)
            since = MPI_Wtime();
        seen = lost + mpi->size * failed;
        double patience = GRACE_LOST + 0.2 * mpi->rank + (failed ? 0 : mpi->limit);
        if (MPI_Wtime() - since > patience) {
            if (verdict(mpi, ranks, &err) == ATTN_OK)
                name_lacking(mpi, ranks, err.text, sizeof err.text);
            mpi->give_up(err.text);
        }
        rest(&looks);
    }
}

/* ---- posts ----------------------------------------------------------------------------------- */

static struct header header_of(const struct attn_message *x)
{
    struct header h = {.tag = x->tag, .pieces = x->pieces, .shapes = 0xcbf29ce484222325u};
    for (int p = 0; p < x->pieces; p++) {
        const struct attn_piece *piece = &x->piece[p];
        const int64_t *n = piece->extent, pads = attn_piece_is_pads(piece) ? -1 : 0;
        const int64_t word[] = {n[0], n[1], n[2], piece->row, pads};
        for (size_t w = 0; w < sizeof word / sizeof *word; w++)
            h.shapes = (h.shapes ^ (uint64_t)word[w]) * 0x100000001b3u;
        if (p < SHOWN)
            h.piece[p] = (struct attn_piece){pads, {n[0], n[1], n[2]}, {0}, piece->row};
    }
    return h;
}

static struct attn_message *message_of(const struct attn_post *post, int m)
{
    return m < post->n_sends ? &post->send[m] : &post->receive[m - post->n_sends];
}

/* EPEER when what came is not what is waited for. */
static enum attn_status check_header(struct member *me, const struct attn_message *x,
                                     const struct header *came, struct attn_error *err)
{
    const struct header wanted = header_of(x);
    if (memcmp(&wanted, came, sizeof wanted) == 0)
        return ATTN_OK;
    const struct attn_shape in = attn_shape_of(x);
    const struct attn_shape out = {(int)came->tag, (int)came->pieces,
                                   (int)(came->pieces < SHOWN ? came->pieces : SHOWN), came->piece};
    me->note.how = FOUND;
    return attn_say_mismatch(me->mpi->rank, &in, x->peer, &out, err);
}

static void close_open(struct open *x)
{
    free(x->request);
    free(x->header);
    *x = (struct open){0};
}

static struct open *open_of(struct member *me, const struct attn_post *post)
{
    struct open *x = me->open;
    while (x->post != post)
        x++;
    return x;
}

static int start(struct member *me, struct open *x, int m)
{
    struct attn_message *message = message_of(x->post, m);
    int sends = m < x->post->n_sends;
    MPI_Datatype type;
    if (sends)
        x->header[m] = header_of(message);
    int failed = attn_mpi_type(&x->header[m], sizeof x->header[m], message, &type);
    if (failed)
        return failed;
    failed = sends ? MPI_Issend(MPI_BOTTOM, 1, type, message->peer, me->mpi->tag, me->mpi->comm,
                                &x->request[m])
                   : MPI_Irecv(MPI_BOTTOM, 1, type, message->peer, me->mpi->tag, me->mpi->comm,
                               &x->request[m]);
    MPI_Type_free(&type);
    return failed;
}

static enum attn_status mpi_post(struct attn_transport *t, struct attn_post *post,
                                 struct attn_error *err)
{
    struct member *me = t->state;
    struct open *x = open_of(me, NULL);
    size_t n = (size_t)(post->n_sends + post->n_receives);
    if (read_notes(me->mpi)) {
        me->note.how = STOPPED;
        return attn_say_stopped(t->rank, err);
    }
    *x = (struct open){post, (int)n, (int)n, calloc(n + 1, sizeof *x->request),
                       calloc(n + 1, sizeof *x->header)};
    if (x->request == NULL || x->header == NULL) {
        close_open(x);
        return attn_fail(err, ATTN_ENOMEM, "no memory for a list of %zu messages", n);
    }
    for (size_t m = 0; m < n; m++)
        x->request[m] = MPI_REQUEST_NULL;
    int failed = MPI_SUCCESS;
    for (int m = post->n_sends; m < (int)n && !failed; m++)
        failed = start(me, x, m);
    for (int m = 0; m < post->n_sends && !failed; m++)
        failed = start(me, x, m);
    return failed ? mpi_failed(failed, "a post", err) : ATTN_OK;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Take in what is done; how many that was. */
static enum attn_status look(struct member *me, struct open *x, int *done, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    *done = 0;
    for (int m = 0; m < x->n && status == ATTN_OK; m++) {
        struct attn_message *message = message_of(x->post, m);
        int is_done = 0, code = MPI_SUCCESS;
        if (message->post != NULL)
            code = MPI_Test(&x->request[m], &is_done, MPI_STATUS_IGNORE);
        if (is_done || code != MPI_SUCCESS) {
            message->post = NULL;
            x->left--;
            ++*done;
            if (m >= x->post->n_sends) /* first: a message of another size is an error too */
                status = check_header(me, message, &x->header[m], err);
        }
        if (status == ATTN_OK && code != MPI_SUCCESS)
            status = mpi_failed(code, "a message", err);
    }
    return status;
}

/* Nothing has come for `seconds`: is there a reason to give up? */
static enum attn_status give_up_waiting(struct member *me, const struct attn_post *post,
                                        double seconds, struct attn_error *err)
{
    int failed = read_notes(me->mpi), rank = me->mpi->rank;
    for (int m = 0, n = post->n_sends + post->n_receives; m < n && !failed; m++) {
        int of = (m + post->n_sends) % n; /* receives first */
        const struct attn_message *x = message_of(post, of);
        if (x->post == NULL || me->mpi->note[x->peer].how != ENDED || seconds <= GRACE_LEFT)
            continue;
        me->note.how = FOUND;
        return attn_say_left(rank, of < post->n_sends ? "send" : "receive", x, err);
    }
    if (!failed && seconds <= me->mpi->limit)
        return ATTN_OK;
    me->note.how = failed ? STOPPED : WAITED;
    attn_say_wait(rank, post, me->note.wait, sizeof me->note.wait);
    return attn_say_stopped(rank, err);
}

static enum attn_status mpi_wait(struct attn_transport *t, struct attn_post *post,
                                 struct attn_error *err)
{
    struct member *me = t->state;
    struct open *x = open_of(me, post);
    enum attn_status status = ATTN_OK;
    double since = MPI_Wtime();
    int looks = 0, done = 0;
    while (x->left > 0 && status == ATTN_OK) {
        status = look(me, x, &done, err);
        if (status == ATTN_OK && done > 0) {
            since = MPI_Wtime();
            looks = 0;
        } else if (status == ATTN_OK) {
            status = give_up_waiting(me, post, MPI_Wtime() - since, err);
            rest(&looks);
        }
    }
    if (status == ATTN_OK)
        close_open(x);
    return status;
}

/* Open posts are not waited for.  A header belongs to MPI until its message is done; a message
 * without a receiver never is. */
static void mpi_end(struct attn_transport *t, enum attn_status status)
{
    struct member *me = t->state;
    (void)status;
    for (struct open *x = me->open; x < me->open + ATTN_OPEN_POSTS; x++) {
        if (x->post == NULL)
            continue;
        for (int m = 0; m < x->n; m++)
            if (x->request[m] != MPI_REQUEST_NULL) {
                if (m >= x->post->n_sends)
                    MPI_Cancel(&x->request[m]);
                MPI_Request_free(&x->request[m]);
            }
        x->header = NULL;
        close_open(x);
    }
}

static const struct attn_transport_ops mpi_ops[] = {{0, mpi_post, mpi_wait, mpi_end},
                                                    {1, mpi_post, mpi_wait, mpi_end}};

/* ---- the run --------------------------------------------------------------------------------- */

static enum attn_status mpi_run(void *state, int ranks, const struct attn_rank_code *code,
                                struct attn_error *err)
{
    struct attn_mpi *mpi = state;
    struct attn_error own = {0};
    struct member me = {.mpi = mpi, .ranks = ranks};
    if (ranks < 1 || ranks > mpi->size)
        return attn_fail(
            err, ATTN_ENOTSUP,
            "%d ranks are as many processes, and there are %d: mpirun -n %d would work", ranks,
            mpi->size, ranks);
    memset(mpi->note, 0, (size_t)mpi->size * sizeof *mpi->note);
    mpi->tag = (mpi->tag + 1) % TAGS;
    me.note.how = ENDED;
    if (mpi->rank < ranks) {
        struct attn_transport t = {
            .ops = &mpi_ops[code->counts], .state = &me, .rank = mpi->rank, .size = ranks};
        me.note.status = attn_transport_end(&t, code->run(code->arg, &t, &own), &own);
        if (me.note.status == ATTN_OK)
            me.note.how = ENDED;
        else if (me.note.how == ENDED)
            me.note.how = me.note.status == ATTN_EPEER ? FOUND : FAILED_ITSELF;
        memcpy(me.note.text, own.text, sizeof me.note.text);
        send_note(mpi, &me.note);
    }
    collect_notes(mpi, ranks);
    return verdict(mpi, ranks, err);
}

static enum attn_status mpi_share(void *state, int from, void *data, int64_t bytes,
                                  struct attn_error *err)
{
    struct attn_mpi *mpi = state;
    int code = MPI_SUCCESS, looks = 0;
    double since = MPI_Wtime();
    for (int64_t at = 0; at < bytes && code == MPI_SUCCESS; at += CHUNK) {
        MPI_Request request;
        int done = 0, n = (int)(bytes - at < CHUNK ? bytes - at : CHUNK);
        code = MPI_Ibcast((char *)data + at, n, MPI_BYTE, from, mpi->comm, &request);
        while (code == MPI_SUCCESS && !done) {
            code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (!done)
                rest(&looks);
            if (!done && MPI_Wtime() - since > mpi->limit + GRACE_LOST)
                mpi->give_up("some process is not where the others are");
        }
    }
    return code == MPI_SUCCESS ? ATTN_OK : mpi_failed(code, "a broadcast", err);
}

static enum attn_status mpi_largest(void *state, double *x, struct attn_error *err)
{
    struct attn_mpi *mpi = state;
    double own = *x;
    enum attn_status status = ATTN_OK;
    for (int r = 0; r < mpi->size && status == ATTN_OK; r++) {
        double theirs = own;
        status = mpi_share(mpi, r, &theirs, sizeof theirs, err);
        *x = theirs > *x ? theirs : *x;
    }
    return status;
}

static const char *mpi_name(void *state, const char *text)
{
    struct attn_mpi *mpi = state;
    for (int n = 0; n < mpi->n_names; n++)
        if (strcmp(mpi->name[n], text) == 0)
            return mpi->name[n];
    char **more = realloc(mpi->name, ((size_t)mpi->n_names + 1) * sizeof *more);
    char *copy = strdup(text);
    if (more != NULL)
        mpi->name = more;
    if (more == NULL || copy == NULL) {
        free(copy);
        return "?";
    }
    return mpi->name[mpi->n_names++] = copy;
}

/* MPI takes memory of its own when it has its first messages, which no price has: these are the
 * first. */
static int first_messages(const struct attn_mpi *mpi)
{
    enum { ROWS = 1 << 12, ROW = 1 << 7 };
    int next = (mpi->rank + 1) % mpi->size, last = (mpi->rank + mpi->size - 1) % mpi->size;
    char *x = calloc(4 * ROWS, ROW);
    MPI_Datatype rows;
    int code = x == NULL ? MPI_ERR_NO_MEM : MPI_Type_vector(ROWS, ROW, 2 * ROW, MPI_BYTE, &rows);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(&rows);
    for (int n = 0; n < 4 && code == MPI_SUCCESS; n++)
        code = MPI_Sendrecv(x, 1, rows, next, 0, x + 2 * ROWS * ROW, 1, rows, last, 0, mpi->comm,
                            MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS)
        code = MPI_Type_free(&rows);
    free(x);
    return code;
}

enum attn_status attn_mpi_open(double limit, void (*give_up)(const char *line),
                               struct attn_runner *runner, struct attn_error *err)
{
    struct attn_mpi *mpi = calloc(1, sizeof *mpi);
    *runner = (struct attn_runner){mpi, 0, 0, mpi_run, mpi_share, mpi_largest, MPI_Wtime, mpi_name};
    if (mpi == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for MPI");
    mpi->limit = limit;
    mpi->give_up = give_up;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi->size);
    mpi->note = calloc((size_t)mpi->size, sizeof *mpi->note);
    mpi->sent = calloc((size_t)mpi->size, sizeof *mpi->sent);
    int code = mpi->note == NULL || mpi->sent == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    for (int r = 0; r < mpi->size && mpi->sent != NULL; r++)
        mpi->sent[r] = MPI_REQUEST_NULL;
    if (code == MPI_SUCCESS)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi->comm);
    if (code == MPI_SUCCESS)
        code = first_messages(mpi);
    runner->rank = mpi->rank;
    runner->size = mpi->size;
    return code == MPI_SUCCESS ? ATTN_OK : mpi_failed(code, "a communicator", err);
}

void attn_mpi_close(struct attn_runner *runner)
{
    struct attn_mpi *mpi = runner->state;
    for (int n = 0; n < mpi->n_names; n++)
        free(mpi->name[n]);
    free(mpi->name);
    free(mpi->note);
    free(mpi->sent);
    free(mpi);
}
