/* The driver of ranks: any code's, and a call of a scheme.  See rank.h, parallel.h. */
#include "optimized/parallel/rank.h"

#include <stdio.h>
#include <string.h>

#include "optimized/parallel/parallel.h"
#include "optimized/parallel/rank_runner.h"
#include "optimized/parallel/rank_sink.h"
#include "optimized/parallel/transport/transport_count.h"
#include "optimized/parallel/transport/transport_sim.h"
#include "optimized/parallel/travel/work_buffers.h"
#include "ref/clock.h"
#include "ref/problem.h"

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
        status = ctx->counts_only ? attn_count_run(ranks, &code, ctx->error)
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

void attn_rank_forward(const struct attn_forward *t, struct attn_shards tensor[ATTN_TAG_KINDS])
{
    tensor[ATTN_TAG_Q] = input(&t->q);
    tensor[ATTN_TAG_K] = input(&t->k);
    tensor[ATTN_TAG_V] = input(&t->v);
    tensor[ATTN_TAG_O] = output(&t->o);
    tensor[ATTN_TAG_LSE] = output(&t->lse);
}

void attn_rank_backward(const struct attn_backward *t, struct attn_shards tensor[ATTN_TAG_KINDS])
{
    tensor[ATTN_TAG_Q] = input(&t->q);
    tensor[ATTN_TAG_K] = input(&t->k);
    tensor[ATTN_TAG_V] = input(&t->v);
    tensor[ATTN_TAG_O] = input(&t->o);
    tensor[ATTN_TAG_LSE] = input(&t->lse);
    tensor[ATTN_TAG_DO] = input(&t->d_o);
    tensor[ATTN_TAG_DELTA] = input(&t->d_lse);
    tensor[ATTN_TAG_DQ] = output(&t->dq);
    tensor[ATTN_TAG_DK] = output(&t->dk);
    tensor[ATTN_TAG_DV] = output(&t->dv);
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

/* ---- a call of a scheme ---------------------------------------------------------------------- */

struct call {
    const struct attn_problem *problem;
    struct attn_ctx *ctx;
    enum attn_pass pass;
    struct attn_shards tensor[ATTN_TAG_KINDS];
    struct attn_view dsink;
    char *saved; /* saved data of all ranks, one behind the other; NULL: none */
};

/* Bytes that ranks before this one save. */
static int64_t saved_before(const struct call *x, int rank)
{
    const struct attn_options *options = x->ctx->options;
    int64_t bytes = 0;
    for (int r = 0; r < rank && options->impl->scheme->saves_keys != NULL; r++) {
        struct attn_work w = attn_work_of(x->problem, options, x->pass, r);
        bytes += attn_work_saved(&w);
    }
    return bytes;
}

/* The block that a forward pass saves is on the caller's ledger, and ranks borrow their parts of
 * it.  Ranks that only count messages count those of a backward pass for which something is
 * saved. */
static enum attn_status begin_saving(struct call *x, int ranks)
{
    struct attn_ctx *ctx = x->ctx;
    struct attn_error own;
    int64_t bytes = saved_before(x, ranks);
    if (ctx->saved == NULL || ctx->counts_only || bytes == 0)
        return ATTN_OK;
    if (x->pass == ATTN_BACKWARD) {
        x->saved = ctx->saved->data;
        return ATTN_OK;
    }
    x->saved = attn_ledger_take(ctx->ledger, ATTN_SAVED_NAME, bytes, 1, &own);
    return x->saved != NULL ? ATTN_OK : attn_fail(ctx->error, own.status, "%s", own.text);
}

static void end_saving(struct call *x, enum attn_status status, int ranks)
{
    if (x->pass == ATTN_BACKWARD || x->saved == NULL)
        return;
    if (status != ATTN_OK) {
        attn_ledger_give(x->ctx->ledger, x->saved);
        return;
    }
    x->ctx->saved->data = x->saved;
    x->ctx->saved->bytes = saved_before(x, ranks);
}

/* A rank's part of the call, with the sink around it. */
static enum attn_status travel(const struct call *x, struct attn_rank *rank,
                               struct attn_view mine[ATTN_TAG_KINDS])
{
    const struct attn_layout home = attn_work_of(x->problem, x->ctx->options, x->pass, 0).home;
    struct attn_buffer buffer[ATTN_SINK_BUFFERS];
    attn_rank_sink_buffers(x->problem, &home, x->pass, rank->transport->rank, buffer);
    enum attn_status status =
        attn_buffers_take(buffer, ATTN_SINK_BUFFERS, rank->ledger, rank->error);
    if (status == ATTN_OK && x->pass == ATTN_BACKWARD)
        status = attn_rank_sink_backward(rank, x->problem, &home, buffer, mine, &x->dsink);
    if (status == ATTN_OK)
        status = attn_travel(rank, x->problem, x->pass, mine);
    if (status == ATTN_OK && x->pass == ATTN_FORWARD)
        attn_rank_sink_forward(rank, x->problem, &home, mine);
    if (status == ATTN_OK)
        attn_buffers_give(buffer, ATTN_SINK_BUFFERS, rank->ledger); /* else when messages end */
    return status;
}

static enum attn_status run_rank(void *arg, struct attn_rank *rank)
{
    struct call *x = arg;
    int r = rank->transport->rank, ranks = rank->transport->size;
    double start = attn_seconds(CLOCK_THREAD_CPUTIME_ID);
    struct attn_view mine[ATTN_TAG_KINDS] = {0};
    for (int t = 0; t < ATTN_TAG_KINDS; t++)
        if (x->tensor[t].role != ATTN_ABSENT)
            mine[t] = attn_shards_view(&x->tensor[t], r);
    if (x->saved != NULL)
        rank->saved = x->saved + saved_before(x, r);
    rank->has_brought = x->pass == ATTN_BACKWARD &&
                        (x->saved != NULL || (x->ctx->counts_only && saved_before(x, ranks) > 0));
    rank->transport->pass = x->pass;
    enum attn_status status = travel(x, rank, mine);
    if (x->ctx->ranks != NULL)
        attn_rank_report(&x->ctx->ranks[r], rank, attn_seconds(CLOCK_THREAD_CPUTIME_ID) - start);
    return status;
}

static enum attn_status drive(struct call *x)
{
    const struct attn_options *options = x->ctx->options;
    const struct attn_layout home = attn_work_of(x->problem, options, x->pass, 0).home;
    int ranks = attn_parallel_ranks(options);
    enum attn_status status = begin_saving(x, ranks);
    if (status == ATTN_OK)
        status = attn_rank_call(x->ctx, x->problem, &home, x->tensor, run_rank, x);
    end_saving(x, status, ranks);
    return status;
}

enum attn_status attn_parallel_forward(struct attn_ctx *ctx, const struct attn_problem *problem,
                                       const struct attn_forward *t)
{
    struct call x = {.problem = problem, .ctx = ctx, .pass = ATTN_FORWARD};
    attn_rank_forward(t, x.tensor);
    return drive(&x);
}

enum attn_status attn_parallel_backward(struct attn_ctx *ctx, const struct attn_problem *problem,
                                        const struct attn_backward *t)
{
    enum attn_status status = attn_check_local_backward(ctx->options, ctx->error);
    struct call x = {.problem = problem, .ctx = ctx, .pass = ATTN_BACKWARD, .dsink = t->dsink};
    attn_rank_backward(t, x.tensor);
    if (status == ATTN_OK)
        status = drive(&x);
    return status == ATTN_OK ? attn_rank_sink_share(ctx, problem, &t->dsink) : status;
}
