/* See plugin.h: a plug-in that is one rank of several, on simulated ranks.
 *
 * Shards, threads, messages and their counts are those of every implementation over ranks
 * (optimized/parallel/rank.h).  Here a rank is only given its call in the plug-in's terms. */
#include <stdio.h>
#include <stdlib.h>

#include "optimized/parallel/rank.h"
#include "optimized/parallel/scheme.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/subject/plugin.h"

enum { MESSAGES = 8, STEPS = 10000 };
_Static_assert((int)ATTN_PLUGIN_OF_Q == ATTN_TAG_Q && (int)ATTN_PLUGIN_OF_DV == ATTN_TAG_DV, "");

/* Messages that a rank has posted and not waited for: the lists of ref/ranks.h. */
struct open_post {
    int is_open;
    struct attn_post post;
    struct attn_message send[MESSAGES], receive[MESSAGES];
    struct attn_piece piece[2 * MESSAGES];
};

/* One rank while it runs. */
struct end {
    struct attn_plugin_rank rank; /* as the plug-in sees it */
    struct attn_plugin_call call;
    struct attn_transport *transport;
    struct attn_error *error;
    int has_failed; /* error says why */
    struct open_post open[ATTN_OPEN_POSTS];
    char message[256];
};

/* A call of all ranks. */
struct team {
    struct attn_plugin_impl *plugin;
    enum attn_pass pass;
    const struct attn_plugin_call *call;
    struct attn_shards tensor[ATTN_TAG_KINDS];
    struct attn_rank_use *use; /* [ranks] */
};

/* ---- messages -------------------------------------------------------------------------------- */

static int fail(struct end *end, const char *format, int given)
{
    if (!end->has_failed)
        attn_fail(end->error, ATTN_EINTERNAL, format, end->rank.rank, given);
    end->has_failed = 1;
    return -1;
}

/* Theirs as ours; 0 where one is none. */
static int translate(const struct attn_plugin_message *from, int n, struct attn_message *to,
                     struct attn_piece *piece)
{
    for (int m = 0; m < n; m++) {
        if (from[m].bytes < 0 || from[m].step < 0 || from[m].step >= STEPS || from[m].tensor < 0 ||
            from[m].tensor >= ATTN_PLUGIN_TENSORS)
            return 0;
        piece[m] = attn_piece_whole(from[m].bytes);
        to[m] =
            (struct attn_message){.peer = from[m].peer,
                                  .tag = attn_tag((enum attn_tag_kind)from[m].tensor, from[m].step),
                                  .data = from[m].data,
                                  .piece = &piece[m],
                                  .pieces = 1,
                                  .dtype = ATTN_F32};
    }
    return 1;
}

static int post(const struct attn_plugin_rank *rank, const struct attn_plugin_message *send,
                int n_sends, const struct attn_plugin_message *receive, int n_receives)
{
    struct end *end = rank->transport;
    int n = 0;
    while (n < ATTN_OPEN_POSTS && end->open[n].is_open)
        n++;
    if (end->has_failed)
        return -1;
    if (n == ATTN_OPEN_POSTS)
        return fail(end, "rank %d has %d posts open: wait for one of them first", n);
    if (n_sends < 0 || n_receives < 0 || n_sends > MESSAGES || n_receives > MESSAGES)
        return fail(end, "rank %d posts %d messages: 0 to 8 sends, and as many receives",
                    n_sends > n_receives ? n_sends : n_receives);
    struct open_post *x = &end->open[n];
    if (!translate(send, n_sends, x->send, x->piece) ||
        !translate(receive, n_receives, x->receive, x->piece + MESSAGES))
        return fail(
            end, "rank %d posts bytes below 0, no such tensor, or a step that is not from 0 to %d",
            STEPS - 1);
    x->post = (struct attn_post){x->send, n_sends, x->receive, n_receives, 0};
    end->has_failed = attn_post(end->transport, &x->post, end->error) != ATTN_OK;
    x->is_open = !end->has_failed;
    return end->has_failed ? -1 : n;
}

static int wait_for(const struct attn_plugin_rank *rank, int n)
{
    struct end *end = rank->transport;
    if (end->has_failed)
        return -1;
    if (n < 0 || n >= ATTN_OPEN_POSTS || !end->open[n].is_open)
        return fail(end, "rank %d waits for post %d, which is not open", n);
    end->open[n].is_open = 0;
    end->has_failed = attn_wait(end->transport, &end->open[n].post, end->error) != ATTN_OK;
    return end->has_failed ? -1 : 0;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* Where a call has the tensor of a kind, as of a forward or a backward pass; both structs have the
 * same members. */
static void *place_of(struct attn_plugin_call *call, enum attn_tag_kind kind, enum attn_pass pass)
{
    void *const forward[ATTN_TAG_KINDS] = {&call->q, &call->k, &call->v, &call->o, &call->lse};
    void *const backward[ATTN_TAG_KINDS] = {&call->q,      &call->k,   &call->v,     &call->o_in,
                                            &call->lse_in, &call->d_o, &call->d_lse, &call->dq,
                                            &call->dk,     &call->dv};
    return pass == ATTN_FORWARD ? forward[kind] : backward[kind];
}

static int is_output(enum attn_tag_kind kind, enum attn_pass pass)
{
    return pass == ATTN_FORWARD ? kind >= ATTN_TAG_O : kind >= ATTN_TAG_DQ;
}

/* Its tokens in place of all. */
static void take_part(const struct team *team, struct end *end)
{
    struct attn_plugin_call *call = &end->call;
    const int ranks = end->rank.ranks;
    *call = *team->call;
    call->n_query /= ranks;
    call->n_key /= ranks;
    call->message = end->message;
    call->message_size = sizeof end->message;
    end->rank.first_query = end->rank.rank * call->n_query;
    end->rank.first_key = end->rank.rank * call->n_key;
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_KINDS; kind++) {
        struct attn_plugin_out *x = place_of(call, kind, team->pass);
        if (team->tensor[kind].role == ATTN_ABSENT)
            continue;
        struct attn_view view = attn_shards_view(&team->tensor[kind], end->rank.rank);
        x->data = view.data;
        x->extent[2] /= ranks;
        for (int a = 0; a < 4; a++)
            x->stride[a] = view.stride[a];
    }
}

/* The status that it returned, in our words. */
static enum attn_status outcome(struct end *end, int returned)
{
    end->message[sizeof end->message - 1] = '\0';
    attn_clean(end->message);
    if (end->has_failed)
        return end->error->status;
    if (returned == ATTN_PLUGIN_OK)
        return ATTN_OK;
    if (returned == ATTN_PLUGIN_REFUSED)
        return attn_fail(end->error, ATTN_ENOTSUP, "%s", end->message);
    return attn_fail(end->error, ATTN_EINTERNAL, "rank %d returned %d%s%s", end->rank.rank,
                     returned, end->message[0] != '\0' ? ": " : "", end->message);
}

static enum attn_status run_rank(void *arg, struct attn_rank *rank)
{
    const struct team *team = arg;
    const struct attn_plugin *plugin = team->plugin->plugin;
    struct attn_transport *t = rank->transport;
    struct end *end = calloc(1, sizeof *end);
    if (end == NULL)
        return attn_fail(rank->error, ATTN_ENOMEM, "no memory for the messages of a rank");
    end->transport = t;
    end->error = rank->error;
    end->rank = (struct attn_plugin_rank){.struct_size = sizeof end->rank,
                                          .rank = t->rank,
                                          .ranks = t->size,
                                          .call = &end->call,
                                          .post = post,
                                          .wait = wait_for,
                                          .transport = end};
    take_part(team, end);
    enum attn_status status =
        outcome(end, team->pass == ATTN_FORWARD ? plugin->rank_forward(&end->rank)
                                                : plugin->rank_backward(&end->rank));
    status = attn_transport_end(t, status, rank->error); /* before its lists go */
    attn_rank_report(&team->use[t->rank], rank, 0);
    free(end);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Shards of what the call has. */
static void deal(struct team *team, const struct attn_problem *p)
{
    struct attn_plugin_call call = *team->call;
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_KINDS; kind++) {
        const struct attn_plugin_out *x = place_of(&call, kind, team->pass);
        struct attn_shards *shards = &team->tensor[kind];
        if (x == NULL || x->data == NULL)
            continue;
        int is_row = kind == ATTN_TAG_LSE || kind == ATTN_TAG_DELTA;
        shards->role = is_output(kind, team->pass) ? ATTN_OUTPUT : ATTN_INPUT;
        shards->tensor = (struct attn_view){.data = x->data,
                                            .dtype = !is_row                ? p->dtype
                                                     : p->dtype == ATTN_F64 ? ATTN_F64
                                                                            : ATTN_F32};
        for (int a = 0; a < 4; a++)
            shards->tensor.stride[a] = x->stride[a];
    }
}

int attn_plugin_run_ranks(struct attn_plugin_impl *plugin, enum attn_pass pass,
                          const struct attn_seal *seal, const struct attn_plugin_call *call)
{
    const int ranks = plugin->claims.ranks;
    const struct attn_problem problem = {.batch = call->batch,
                                         .heads = call->heads,
                                         .kv_heads = call->kv_heads,
                                         .n_query = call->n_query,
                                         .n_key = call->n_key,
                                         .d_key = call->d_key,
                                         .d_value = call->d_value,
                                         .dtype = (enum attn_dtype)call->dtype,
                                         .scale = call->scale};
    const struct attn_problem *p = &problem;
    struct attn_plugin_notes *notes = &plugin->notes;
    struct team team = {.plugin = plugin, .pass = pass, .call = call};
    const struct attn_options options = {.impl = &plugin->impl,
                                         .value = {[ATTN_OPTION_RANKS] = ranks}};
    const struct attn_layout home = attn_layout_of_tokens(p, &options);
    struct attn_error err = {0};
    struct attn_ledger ledger; /* of shards, which are no rank's need */
    struct attn_ctx own = {.ledger = &ledger, .options = &options, .error = &err, .seal = seal};
    if (p->n_query % ranks != 0 || p->n_key % ranks != 0) {
        snprintf(call->message, call->message_size,
                 "%d ranks do not divide %lld queries and %lld keys", ranks, (long long)p->n_query,
                 (long long)p->n_key);
        return ATTN_PLUGIN_REFUSED;
    }
    attn_ledger_init(&ledger, NULL);
    ledger.poison = 1;
    team.use = calloc((size_t)ranks, sizeof *team.use);
    deal(&team, p);
    enum attn_status status =
        team.use != NULL ? attn_rank_call(&own, p, &home, team.tensor, run_rank, &team)
                         : attn_fail(&err, ATTN_ENOMEM, "no memory for the ledgers of the ranks");
    for (int r = 0; r < ranks && status == ATTN_OK; r++) {
        const struct attn_rank_use *use = &team.use[r];
        if (use->bytes_sent >= notes->sent[pass]) {
            notes->sent[pass] = use->bytes_sent;
            notes->messages[pass] = use->messages;
        }
    }
    free(team.use);
    if (ledger.damaged > 0 && notes->integrity[0] == '\0')
        snprintf(notes->integrity, sizeof notes->integrity,
                 "a rank wrote past the end of its part of a tensor");
    if (status != ATTN_OK)
        snprintf(call->message, call->message_size, "%s", err.text);
    return status == ATTN_OK        ? ATTN_PLUGIN_OK
           : status == ATTN_ENOTSUP ? ATTN_PLUGIN_REFUSED
                                    : ATTN_PLUGIN_FAILED;
}
