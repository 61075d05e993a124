/* The driver of simulated ranks, and what rank code calls.  See rank.h. */
#include "optimized/parallel/rank.h"

#include <string.h>

#include "optimized/parallel/shard.h"
#include "optimized/parallel/transport_count.h"
#include "optimized/parallel/transport_sim.h"
#include "optimized/parallel/work.h"
#include "ref/clock.h"
#include "ref/problem.h"

/* ---- the local implementation ---------------------------------------------------------------- */

const struct attn_option attn_parallel_options[] = {ATTN_OPTIONS_OF_ALL, {0}};

int attn_parallel_ranks(const struct attn_options *options)
{
    return (int)options->value[ATTN_OPTION_RANKS];
}

const struct attn_impl *attn_rank_local(const struct attn_options *options)
{
    return options->local != NULL ? options->local : &attn_impl_tiled;
}

/* Those of local=, for one thread. */
struct attn_options attn_rank_local_options(const struct attn_options *options)
{
    struct attn_options own;
    attn_options_preset(attn_rank_local(options), &own);
    if (options->local != NULL)
        memcpy(own.value, options->local_value, sizeof own.value);
    own.isa = options->isa;
    return own;
}

/* A rank that fails gives its buffers back, whatever it has posted. */
static enum attn_status end_if_failed(struct attn_rank *rank, enum attn_status status)
{
    return status == ATTN_OK ? status : attn_transport_end(rank->transport, status, rank->error);
}

enum attn_status attn_rank_forward(struct attn_rank *rank, const struct attn_problem *part,
                                   const struct attn_forward *t)
{
    const struct attn_options preset = attn_rank_local_options(rank->options);
    struct attn_ctx ctx = {.ledger = rank->ledger, .options = &preset, .error = rank->error};
    if (attn_transport_counts(rank->transport))
        return ATTN_OK;
    return end_if_failed(rank, attn_run_forward(attn_rank_local(rank->options), &ctx, part, t));
}

enum attn_status attn_rank_backward(struct attn_rank *rank, const struct attn_problem *part,
                                    const struct attn_backward *t)
{
    const struct attn_options preset = attn_rank_local_options(rank->options);
    struct attn_ctx ctx = {.ledger = rank->ledger, .options = &preset, .error = rank->error};
    if (attn_transport_counts(rank->transport))
        return ATTN_OK;
    return end_if_failed(rank, attn_run_backward(attn_rank_local(rank->options), &ctx, part, t));
}

/* ---- the driver ----------------------------------------------------------------------------- */

/* A tensor of the whole problem and its shards.  role NONE: this pass does not have it.  The
 * gradient of LSE has the kind of D, which is made of it. */
struct dealt {
    enum { NONE, INPUT, OUTPUT } role;
    struct attn_view whole; /* of an input, only read */
    struct attn_shards shards;
};

struct run {
    const struct attn_scheme *scheme;
    const struct attn_problem *problem;
    struct attn_ctx *ctx;
    enum attn_pass pass;
    struct dealt tensor[ATTN_TAG_KINDS];
    struct attn_rank_group group;
    char *saved; /* what all ranks save, one behind the other; NULL: nothing */
};

static struct dealt input(const struct attn_cview *v)
{
    return (struct dealt){.role = INPUT, .whole = attn_view_input(v)};
}

static struct dealt output(const struct attn_view *v)
{
    return (struct dealt){.role = OUTPUT, .whole = *v};
}

static enum attn_status deal(struct run *x)
{
    struct attn_layout layout =
        attn_work_of(x->scheme, x->problem, x->ctx->options, x->pass, 0).home;
    static const char *const name[ATTN_TAG_KINDS] = {
        "shard.q",  "shard.k",    "shard.v",  "shard.o",  "shard.lse",
        "shard.do", "shard.dlse", "shard.dq", "shard.dk", "shard.dv"};
    enum attn_status status = ATTN_OK;
    for (int t = 0; t < ATTN_TAG_KINDS && status == ATTN_OK; t++) {
        struct dealt *d = &x->tensor[t];
        if (d->role == NONE)
            continue;
        status = attn_shards_take(&d->shards, &x->group.ledger, name[t], x->problem,
                                  (enum attn_tag_kind)t, &layout, x->ctx->error);
        if (status == ATTN_OK && d->role == INPUT && !x->ctx->counts_only)
            attn_shards_scatter(&d->shards, &d->whole);
    }
    return status;
}

static struct attn_cview mine_in(const struct run *x, int t, int rank)
{
    if (x->tensor[t].role == NONE)
        return (struct attn_cview){0};
    struct attn_view mine = attn_shards_view(&x->tensor[t].shards, rank);
    return attn_view_const(&mine);
}

static struct attn_view mine_out(const struct run *x, int t, int rank)
{
    return attn_shards_view(&x->tensor[t].shards, rank);
}

static enum attn_status rank_pass(const struct run *x, struct attn_rank *rank)
{
    int r = rank->transport->rank;
    if (x->pass == ATTN_FORWARD) {
        struct attn_forward mine = {mine_in(x, ATTN_TAG_Q, r), mine_in(x, ATTN_TAG_K, r),
                                    mine_in(x, ATTN_TAG_V, r), mine_out(x, ATTN_TAG_O, r),
                                    mine_out(x, ATTN_TAG_LSE, r)};
        return attn_travel_forward(rank, x->scheme, x->problem, &mine);
    }
    struct attn_backward mine = {.q = mine_in(x, ATTN_TAG_Q, r),
                                 .k = mine_in(x, ATTN_TAG_K, r),
                                 .v = mine_in(x, ATTN_TAG_V, r),
                                 .o = mine_in(x, ATTN_TAG_O, r),
                                 .lse = mine_in(x, ATTN_TAG_LSE, r),
                                 .d_o = mine_in(x, ATTN_TAG_DO, r),
                                 .d_lse = mine_in(x, ATTN_TAG_DELTA, r),
                                 .dq = mine_out(x, ATTN_TAG_DQ, r),
                                 .dk = mine_out(x, ATTN_TAG_DK, r),
                                 .dv = mine_out(x, ATTN_TAG_DV, r)};
    return attn_travel_backward(rank, x->scheme, x->problem, &mine);
}

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

/* What ranks before this one save. */
static int64_t saved_before(const struct run *x, int rank)
{
    int64_t bytes = 0;
    for (int r = 0; r < rank && x->scheme->saves_keys != NULL; r++) {
        struct attn_work w = attn_work_of(x->scheme, x->problem, x->ctx->options, x->pass, r);
        bytes += attn_work_saved(&w);
    }
    return bytes;
}

/* What the forward pass saves is on the caller's ledger, and ranks borrow their parts of it.  Ranks
 * that only count messages count those of a backward pass to which something was saved. */
static enum attn_status begin_saving(struct run *x, int ranks)
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

static void end_saving(struct run *x, enum attn_status status, int ranks)
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

static enum attn_status rank_main(void *arg, struct attn_transport *t, struct attn_error *err)
{
    struct run *x = arg;
    struct attn_rank rank = {.transport = t,
                             .ledger = &x->group.rank_ledger[t->rank],
                             .options = x->ctx->options,
                             .error = err};
    if (x->saved != NULL)
        rank.saved = x->saved + saved_before(x, t->rank);
    rank.has_brought = x->pass == ATTN_BACKWARD &&
                       (x->saved != NULL || (x->ctx->counts_only && saved_before(x, t->size) > 0));
    double start = attn_seconds(CLOCK_THREAD_CPUTIME_ID);
    t->log = x->ctx->log;
    t->pass = x->pass;
    enum attn_status status = attn_transport_end(t, rank_pass(x, &rank), err);
    if (x->ctx->ranks != NULL)
        attn_rank_report(&x->ctx->ranks[t->rank], &rank,
                         attn_seconds(CLOCK_THREAD_CPUTIME_ID) - start);
    int64_t left = attn_ledger_clear(rank.ledger);
    if (status == ATTN_OK && left > 0)
        status = attn_fail(err, ATTN_EINTERNAL, "rank %d left %lld bytes behind", t->rank,
                           (long long)left);
    return status;
}

enum attn_status attn_rank_group_run(struct attn_rank_group *group, int ranks,
                                     const struct attn_rank_code *code)
{
    struct attn_ctx *ctx = group->ctx;
    struct attn_error own;
    group->rank_ledger =
        attn_ledger_take(&group->ledger, "rank.ledgers", ranks, sizeof *group->rank_ledger, &own);
    if (group->rank_ledger == NULL)
        return attn_fail(ctx->error, own.status, "%s", own.text);
    for (int r = 0; r < ranks; r++)
        attn_ledger_init(&group->rank_ledger[r], ctx->ledger);
    if (ctx->seal != NULL)
        ctx->seal->seal(ctx->seal->arg, 1);
    enum attn_status status = ctx->counts_only
                                  ? attn_count_run(ranks, code, ctx->error)
                                  : attn_sim_run(&group->ledger, ranks, code, ctx->error);
    if (ctx->seal != NULL)
        ctx->seal->seal(ctx->seal->arg, 0);
    for (int r = 0; r < ranks; r++)
        ctx->ledger->damaged += group->rank_ledger[r].damaged;
    return status;
}

static enum attn_status drive(struct run *x)
{
    int ranks = attn_parallel_ranks(x->ctx->options);
    const struct attn_rank_code code = {rank_main, x};
    x->group.ctx = x->ctx;
    attn_ledger_init(&x->group.ledger, x->ctx->ledger);
    enum attn_status status = deal(x);
    if (status == ATTN_OK)
        status = begin_saving(x, ranks);
    if (status == ATTN_OK)
        status = attn_rank_group_run(&x->group, ranks, &code);
    end_saving(x, status, ranks);
    for (int t = 0; t < ATTN_TAG_KINDS && status == ATTN_OK; t++)
        if (x->tensor[t].role == OUTPUT && !x->ctx->counts_only)
            attn_shards_gather(&x->tensor[t].shards, &x->tensor[t].whole);
    attn_ledger_clear(&x->group.ledger);
    x->ctx->ledger->damaged += x->group.ledger.damaged;
    return status;
}

enum attn_status attn_parallel_forward(const struct attn_scheme *scheme, struct attn_ctx *ctx,
                                       const struct attn_problem *problem,
                                       const struct attn_forward *t)
{
    struct run x = {.scheme = scheme, .problem = problem, .ctx = ctx, .pass = ATTN_FORWARD};
    x.tensor[ATTN_TAG_Q] = input(&t->q);
    x.tensor[ATTN_TAG_K] = input(&t->k);
    x.tensor[ATTN_TAG_V] = input(&t->v);
    x.tensor[ATTN_TAG_O] = output(&t->o);
    x.tensor[ATTN_TAG_LSE] = output(&t->lse);
    return drive(&x);
}

enum attn_status attn_parallel_backward(const struct attn_scheme *scheme, struct attn_ctx *ctx,
                                        const struct attn_problem *problem,
                                        const struct attn_backward *t)
{
    enum attn_status status = attn_check_local_backward(scheme, ctx->options, ctx->error);
    struct run x = {.scheme = scheme, .problem = problem, .ctx = ctx, .pass = ATTN_BACKWARD};
    x.tensor[ATTN_TAG_Q] = input(&t->q);
    x.tensor[ATTN_TAG_K] = input(&t->k);
    x.tensor[ATTN_TAG_V] = input(&t->v);
    x.tensor[ATTN_TAG_O] = input(&t->o);
    x.tensor[ATTN_TAG_LSE] = input(&t->lse);
    x.tensor[ATTN_TAG_DO] = input(&t->d_o);
    if (t->d_lse.data != NULL)
        x.tensor[ATTN_TAG_DELTA] = input(&t->d_lse);
    x.tensor[ATTN_TAG_DQ] = output(&t->dq);
    x.tensor[ATTN_TAG_DK] = output(&t->dk);
    x.tensor[ATTN_TAG_DV] = output(&t->dv);
    return status == ATTN_OK ? drive(&x) : status;
}
