/* The driver of ranks: any code's, and a call of a scheme.  See rank.h, parallel.h. */
#include "optimized/parallel/rank.h"

#include <stdio.h>
#include <string.h>

#include "optimized/parallel/parallel.h"
#include "optimized/parallel/rank_runner.h"
#include "optimized/parallel/rank_sink.h"
#include "optimized/parallel/transport/transport_sim.h"
#include "optimized/parallel/travel/work_buffers.h"
#include "ref/clock.h"
#include "ref/problem.h"

/* ---- a transport that counts messages, for prices and logs: no threads and no data -------------
 *
 * One rank after another runs its whole code.  A message is done when it is posted, and nothing
 * arrives, so what a rank sends and when can be known for thousands of ranks: prices are compared
 * with it, and logs for pictures are made of it.  Buffers are taken as always, and those that the
 * rank code fills are filled.  A schedule that would deadlock is not found here. */

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

/* It ends with the first rank that fails; with EPEER when the messages or bytes that all ranks
 * together send are not those that they wait for. */
static enum attn_status count_run(int size, const struct attn_rank_code *code,
                                  struct attn_error *err)
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

/* ---- ranks ----------------------------------------------------------------------------------- */

void attn_rank_report(struct attn_rank_use *use, const struct attn_rank *rank, double seconds)
{
    const struct attn_ledger *ledger = rank->ledger;
    use->n_live = ledger->n_at_peak;
    memcpy(use->live, ledger->at_peak, sizeof use->live);
    use->peak_bytes = ledger->peak;
    use->bytes_sent = rank->transport->bytes_sent;
    use->messages = rank->transport->messages;
    use->cpu_seconds = seconds;
}

/* A process that is no rank of this call has no shards. */
static int has_rank(const struct attn_rank_group *group)
{
    const struct attn_runner *runner = group->options->runner;
    return runner == NULL || runner->rank < attn_parallel_ranks(group->options);
}

static enum attn_status deal(struct attn_rank_group *group)
{
    const struct attn_runner *runner = group->options->runner;
    enum attn_status status = ATTN_OK;
    for (int t = 0; t < group->tensors && status == ATTN_OK && has_rank(group); t++) {
        struct attn_shards *s = &group->tensor[t];
        if (s->role == ATTN_ABSENT)
            continue;
        if (runner != NULL)
            s->first = runner->rank, s->n = 1;
        if (group->ctx->has_shards) {
            s->data = s->tensor.data;
            continue;
        }
        status = attn_shards_take(s, &group->ledger, group->ctx->error);
        if (s->role == ATTN_INPUT && status == ATTN_OK && !group->ctx->counts_only)
            attn_shards_scatter(s);
    }
    return status;
}

/* Of an output, the shards of all processes, one after the other. */
static enum attn_status gather(struct attn_rank_group *group, const struct attn_shards *own)
{
    const struct attn_runner *runner = group->options->runner;
    struct attn_error *err = group->ctx->error;
    enum attn_status status = ATTN_OK;
    for (int r = 0; r < own->layout.ranks && status == ATTN_OK; r++) {
        struct attn_shards one = *own;
        one.first = r, one.n = 1;
        if (r != runner->rank)
            status = attn_shards_take(&one, &group->ledger, err);
        if (status == ATTN_OK)
            status = runner->share(runner->state, r, one.data, attn_shards_bytes(&one, r), err);
        if (status == ATTN_OK)
            attn_shards_gather(&one);
        if (r != runner->rank)
            attn_ledger_give(&group->ledger, one.data);
    }
    return status;
}

/* How many ranks have other copies of an output, where all of it has been collected. */
static enum attn_status compare(struct attn_rank_group *group, const struct attn_shards *s)
{
    const struct attn_runner *runner = group->options->runner;
    enum attn_status status = ATTN_OK;
    int own = has_rank(group) ? attn_shards_differ(s) : 0;
    for (int r = 0; runner != NULL && r < s->layout.ranks && status == ATTN_OK; r++) {
        int differ = own;
        status = runner->share(runner->state, r, &differ, sizeof differ, group->ctx->error);
        group->differ += differ;
    }
    group->differ += runner == NULL ? own : 0;
    return status;
}

static enum attn_status collect(struct attn_rank_group *group)
{
    enum attn_status status = ATTN_OK;
    int is_asked = !group->ctx->counts_only && !group->ctx->has_shards;
    for (int t = 0; t < group->tensors && is_asked && status == ATTN_OK; t++) {
        const struct attn_shards *s = &group->tensor[t];
        if (s->role != ATTN_OUTPUT)
            continue;
        if (group->options->runner == NULL)
            attn_shards_gather(s);
        else
            status = gather(group, s);
        if (group->compares && status == ATTN_OK)
            status = compare(group, s);
    }
    return status;
}

/* The use of each process's rank, to all. */
static enum attn_status share_use(const struct attn_runner *runner, int rank,
                                  struct attn_rank_use *use, struct attn_error *err)
{
    char name[ATTN_MAX_ACCOUNTS][40] = {{0}};
    for (int a = 0; a < use->n_live && rank == runner->rank; a++)
        snprintf(name[a], sizeof name[a], "%s", use->live[a].name);
    enum attn_status status = runner->share(runner->state, rank, use, sizeof *use, err);
    if (status == ATTN_OK)
        status = runner->share(runner->state, rank, name, sizeof name, err);
    use->n_steps = 0;
    for (int a = 0; a < use->n_live && status == ATTN_OK && rank != runner->rank; a++)
        use->live[a].name = runner->name(runner->state, name[a]);
    return status;
}

static enum attn_status rank_main(void *arg, struct attn_transport *t, struct attn_error *err)
{
    struct attn_rank_group *group = arg;
    struct attn_rank rank = {.transport = t,
                             .ledger = &group->rank_ledger[t->rank],
                             .options = group->options,
                             .error = err};
    t->log = group->ctx->log;
    enum attn_status status = attn_transport_end(t, group->run(group->arg, &rank), err);
    int64_t left = attn_ledger_clear(rank.ledger);
    if (status == ATTN_OK && left > 0)
        status = attn_fail(err, ATTN_EINTERNAL, "rank %d left %lld bytes behind", t->rank,
                           (long long)left);
    return status;
}

static enum attn_status take_ledgers(struct attn_rank_group *group)
{
    struct attn_error own;
    int ranks = attn_parallel_ranks(group->options);
    group->rank_ledger =
        attn_ledger_take(&group->ledger, "rank.ledgers", ranks, sizeof *group->rank_ledger, &own);
    if (group->rank_ledger == NULL)
        return attn_fail(group->ctx->error, own.status, "%s", own.text);
    for (int r = 0; r < ranks; r++) {
        attn_ledger_init(&group->rank_ledger[r], group->ctx->ledger);
        group->rank_ledger[r].owner = 1 + r;
    }
    return ATTN_OK;
}

static enum attn_status run_ranks(struct attn_rank_group *group)
{
    struct attn_ctx *ctx = group->ctx;
    const struct attn_runner *runner = group->options->runner;
    const struct attn_rank_code code = {rank_main, group, ctx->counts_only};
    int ranks = attn_parallel_ranks(group->options);
    enum attn_status status;
    if (ctx->seal != NULL)
        ctx->seal->seal(ctx->seal->arg, 1);
    if (runner != NULL)
        status = runner->run(runner->state, ranks, &code, ctx->error);
    else
        status = ctx->counts_only ? count_run(ranks, &code, ctx->error)
                                  : attn_sim_run(&group->ledger, ranks, &code, ctx->error);
    if (ctx->seal != NULL)
        ctx->seal->seal(ctx->seal->arg, 0);
    for (int r = 0; r < ranks; r++)
        ctx->ledger->damaged += group->rank_ledger[r].damaged;
    for (int n = 0; n < 2 * ranks && runner != NULL && status == ATTN_OK; n++)
        if (group->use[n / ranks] != NULL)
            status = share_use(runner, n % ranks, &group->use[n / ranks][n % ranks], ctx->error);
    return status;
}

/* The code of a process that could not begin: others must not wait for it. */
static enum attn_status fail_at_once(void *arg, struct attn_transport *t, struct attn_error *err)
{
    const struct attn_error *why = ((struct attn_rank_group *)arg)->ctx->error;
    return attn_transport_end(t, attn_fail(err, why->status, "%s", why->text), err);
}

enum attn_status attn_rank_group_run(struct attn_rank_group *group)
{
    const struct attn_runner *runner = group->options->runner;
    const struct attn_rank_code fails = {fail_at_once, group, 0};
    attn_ledger_init(&group->ledger, group->ctx->ledger);
    group->ledger.owner = -1;
    enum attn_status status = deal(group);
    if (status == ATTN_OK)
        status = take_ledgers(group);
    if (status == ATTN_OK)
        status = run_ranks(group);
    else if (runner != NULL)
        status = runner->run(runner->state, attn_parallel_ranks(group->options), &fails,
                             group->ctx->error);
    if (status == ATTN_OK)
        status = collect(group);
    attn_ledger_clear(&group->ledger);
    group->ctx->ledger->damaged += group->ledger.damaged;
    return status;
}

/* ---- the tensors of a call ------------------------------------------------------------------- */

static struct attn_shards input(const struct attn_cview *v)
{
    return (struct attn_shards){.role = v->data != NULL ? ATTN_INPUT : ATTN_ABSENT,
                                .tensor = attn_view_input(v)};
}

static struct attn_shards output(const struct attn_view *v)
{
    return (struct attn_shards){.role = ATTN_OUTPUT, .tensor = *v};
}

enum attn_status attn_rank_call(struct attn_ctx *ctx, const struct attn_problem *problem,
                                const struct attn_layout *home,
                                struct attn_shards tensor[ATTN_TAG_KINDS], attn_rank_run *run,
                                void *arg)
{
    static const char *const name[ATTN_TAG_KINDS] = {
        "shard.q",  "shard.k",    "shard.v",  "shard.o",  "shard.lse",
        "shard.do", "shard.dlse", "shard.dq", "shard.dk", "shard.dv"};
    struct attn_rank_group group = {.ctx = ctx,
                                    .options = ctx->options,
                                    .run = run,
                                    .arg = arg,
                                    .tensor = tensor,
                                    .tensors = ATTN_TAG_KINDS,
                                    .use = {ctx->ranks}};
    for (int t = 0; t < ATTN_TAG_KINDS; t++) {
        tensor[t].name = name[t];
        tensor[t].whole = *problem;
        tensor[t].kind = (enum attn_tag_kind)t;
        tensor[t].layout = *home;
    }
    return attn_rank_group_run(&group);
}

/* ---- a pass, with the sink ------------------------------------------------------------------- */

static enum attn_status run_part(void *arg, struct attn_rank *rank)
{
    const struct attn_rank_job *x = arg;
    int r = rank->transport->rank;
    double start = attn_seconds(CLOCK_THREAD_CPUTIME_ID);
    struct attn_view mine[ATTN_TAG_KINDS] = {0};
    struct attn_buffer buffer[ATTN_SINK_BUFFERS];
    for (int t = 0; t < ATTN_TAG_KINDS; t++)
        if (x->tensor[t].role != ATTN_ABSENT)
            mine[t] = attn_shards_view(&x->tensor[t], r);
    rank->transport->pass = x->pass;
    attn_rank_sink_buffers(x->problem, &x->home, x->pass, r, buffer);
    enum attn_status status =
        attn_buffers_take(buffer, ATTN_SINK_BUFFERS, rank->ledger, rank->error);
    if (status == ATTN_OK && x->pass == ATTN_BACKWARD)
        status = attn_rank_sink_backward(rank, x->problem, &x->home, buffer, mine, &x->dsink);
    if (status == ATTN_OK)
        status = x->part(x, rank, mine);
    if (status == ATTN_OK)
        attn_buffers_give(buffer, ATTN_SINK_BUFFERS, rank->ledger); /* else when messages end */
    if (x->ctx->ranks != NULL)
        attn_rank_report(&x->ctx->ranks[r], rank, attn_seconds(CLOCK_THREAD_CPUTIME_ID) - start);
    return status;
}

static enum attn_status run_job(struct attn_rank_job *x)
{
    return attn_rank_call(x->ctx, x->problem, &x->home, x->tensor, run_part, x);
}

enum attn_status attn_rank_forward(struct attn_rank_job *x, const struct attn_forward *t)
{
    x->pass = ATTN_FORWARD;
    x->tensor[ATTN_TAG_Q] = input(&t->q);
    x->tensor[ATTN_TAG_K] = input(&t->k);
    x->tensor[ATTN_TAG_V] = input(&t->v);
    x->tensor[ATTN_TAG_O] = output(&t->o);
    x->tensor[ATTN_TAG_LSE] = output(&t->lse);
    return run_job(x);
}

enum attn_status attn_rank_backward(struct attn_rank_job *x, const struct attn_backward *t)
{
    x->pass = ATTN_BACKWARD;
    x->dsink = t->dsink;
    x->tensor[ATTN_TAG_Q] = input(&t->q);
    x->tensor[ATTN_TAG_K] = input(&t->k);
    x->tensor[ATTN_TAG_V] = input(&t->v);
    x->tensor[ATTN_TAG_O] = input(&t->o);
    x->tensor[ATTN_TAG_LSE] = input(&t->lse);
    x->tensor[ATTN_TAG_DO] = input(&t->d_o);
    x->tensor[ATTN_TAG_DELTA] = input(&t->d_lse);
    x->tensor[ATTN_TAG_DQ] = output(&t->dq);
    x->tensor[ATTN_TAG_DK] = output(&t->dk);
    x->tensor[ATTN_TAG_DV] = output(&t->dv);
    enum attn_status status = run_job(x);
    return status == ATTN_OK ? attn_rank_sink_share(x->ctx, x->problem, &t->dsink) : status;
}

/* ---- a call of a scheme ---------------------------------------------------------------------- */

/* Bytes that ranks before this one save. */
static int64_t saved_before(const struct attn_rank_job *x, int rank)
{
    const struct attn_options *options = x->ctx->options;
    int64_t bytes = 0;
    for (int r = 0; r < rank && options->impl->scheme->saves_keys != NULL; r++) {
        struct attn_work w = attn_work_of(x->problem, options, x->pass, r);
        bytes += attn_work_saved(&w);
    }
    return bytes;
}

/* Of all ranks; 0 where the caller keeps nothing. */
static int64_t saved_bytes(const struct attn_rank_job *x)
{
    const struct attn_ctx *ctx = x->ctx;
    int is_kept = ctx->saved != NULL && !ctx->counts_only;
    return is_kept ? saved_before(x, attn_parallel_ranks(ctx->options)) : 0;
}

/* Ranks that only count messages count those of a backward pass for which something is saved. */
static enum attn_status travel(const struct attn_rank_job *x, struct attn_rank *rank,
                               struct attn_view mine[ATTN_TAG_KINDS])
{
    int ranks = rank->transport->size;
    if (x->saved != NULL)
        rank->saved = x->saved + saved_before(x, rank->transport->rank);
    rank->has_brought = x->pass == ATTN_BACKWARD &&
                        (x->saved != NULL || (x->ctx->counts_only && saved_before(x, ranks) > 0));
    enum attn_status status = attn_travel(rank, x->problem, x->pass, mine);
    if (status == ATTN_OK && x->pass == ATTN_FORWARD)
        attn_rank_sink_forward(rank, x->problem, &x->home, mine);
    return status;
}

static struct attn_rank_job job_of(struct attn_ctx *ctx, const struct attn_problem *problem,
                                   enum attn_pass pass)
{
    return (struct attn_rank_job){.ctx = ctx,
                                  .problem = problem,
                                  .home = attn_work_of(problem, ctx->options, pass, 0).home,
                                  .part = travel,
                                  .pass = pass};
}

/* The block that a forward pass saves is on the caller's ledger, and ranks borrow their parts of
 * it. */
enum attn_status attn_parallel_forward(struct attn_ctx *ctx, const struct attn_problem *problem,
                                       const struct attn_forward *t)
{
    struct attn_rank_job x = job_of(ctx, problem, ATTN_FORWARD);
    struct attn_error own;
    int64_t bytes = saved_bytes(&x);
    if (bytes > 0) {
        x.saved = attn_ledger_take(ctx->ledger, ATTN_SAVED_NAME, bytes, 1, &own);
        if (x.saved == NULL)
            return attn_fail(ctx->error, own.status, "%s", own.text);
    }
    enum attn_status status = attn_rank_forward(&x, t);
    if (status != ATTN_OK)
        attn_ledger_give(ctx->ledger, x.saved);
    else if (bytes > 0)
        ctx->saved->data = x.saved, ctx->saved->bytes = bytes;
    return status;
}

enum attn_status attn_parallel_backward(struct attn_ctx *ctx, const struct attn_problem *problem,
                                        const struct attn_backward *t)
{
    enum attn_status status = attn_check_local_backward(ctx->options, ctx->error);
    struct attn_rank_job x = job_of(ctx, problem, ATTN_BACKWARD);
    if (saved_bytes(&x) > 0)
        x.saved = ctx->saved->data;
    return status == ATTN_OK ? attn_rank_backward(&x, t) : status;
}
