/* See point_ranks.h.  The order is that of point.c:
 *
 *      shards, price  ->  (bwd: the forward)  ->  VmHWM  ->  first call, timed  ->  more calls
 *      ->  VmHWM, ledger  ->  verify
 *
 * A time is that of the process that took longest. */
#include "experiments/measure/ranks/point_ranks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/need.h"
#include "experiments/measure/stats.h"
#include "optimized/integers.h"
#include "optimized/parallel/work.h"
#include "ref/clock.h"
#include "ref/problem.h"

/* What the first process tells the others to do. */
struct ask {
    int is_over;
    char spec[128], text[ATTN_CASE_TEXT];
    int64_t repeat, verify_all;
    double enough;
};

/* ---- the rank's tensors ---------------------------------------------------------------------- */

static enum attn_role role_of(const struct attn_point_member *m, enum attn_tag_kind kind)
{
    int backward = m->point->c.pass == ATTN_BACKWARD;
    switch (kind) {
    case ATTN_TAG_Q:
    case ATTN_TAG_K:
    case ATTN_TAG_V:
        return ATTN_INPUT;
    case ATTN_TAG_O:
    case ATTN_TAG_LSE:
        return ATTN_OUTPUT;
    case ATTN_TAG_DO:
        return backward ? ATTN_INPUT : ATTN_ABSENT;
    case ATTN_TAG_DELTA:
        return backward && m->point->c.d_lse ? ATTN_INPUT : ATTN_ABSENT;
    default:
        return backward ? ATTN_OUTPUT : ATTN_ABSENT;
    }
}

struct filling {
    struct attn_point_member *m;
    const struct attn_shards *s;
};

static void fill_row(void *arg, const int64_t at[3], void *row)
{
    const struct filling *x = arg;
    const struct attn_problem *p = &x->m->setup.problem;
    const struct attn_view to = {row, attn_tag_dtype(x->s->kind, p), {0, 0, 0, 1}};
    int64_t place[4] = {at[0], at[1], at[2], 0}, width = attn_tag_width(x->s->kind, p);
    for (; place[3] < width; place[3]++)
        attn_view_set(&to, 0, 0, 0, place[3],
                      attn_recipe_value(&x->m->recipe, attn_slot_of_kind(x->s->kind), place));
}

/* Inputs are filled, outputs get a pattern that no result has; pads keep it. */
static enum attn_status make_shards(struct attn_point_member *m)
{
    const struct attn_work w =
        attn_work_of(&m->setup.problem, &m->spec.options, m->point->c.pass, 0);
    enum attn_status status = ATTN_OK;
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_KINDS && status == ATTN_OK; kind++) {
        struct attn_shards *s = &m->tensor[kind];
        *s = (struct attn_shards){.role = role_of(m, kind),
                                  .name = "shard",
                                  .whole = m->setup.problem,
                                  .kind = kind,
                                  .layout = w.home,
                                  .first = m->runner->rank,
                                  .n = 1};
        if (s->role == ATTN_ABSENT || m->runner->rank >= w.home.ranks)
            continue;
        status = attn_shards_take(s, &m->shards, m->err);
        if (status != ATTN_OK)
            return status;
        memset(s->data, 0xFF, (size_t)attn_shards_bytes(s, s->first));
        if (s->role == ATTN_INPUT)
            attn_shards_each_row(s, fill_row, &(struct filling){m, s});
    }
    return status;
}

struct looking {
    const struct attn_shards *s;
    int64_t row_bytes, unwritten[3], n_unwritten;
    uint64_t digest;
};

static void look_at_row(void *arg, const int64_t at[3], void *row)
{
    struct looking *x = arg;
    const unsigned char *byte = row;
    int64_t n = 0;
    while (n < x->row_bytes && byte[n] == 0xFF)
        n++;
    x->digest = attn_digest_bytes(x->digest, row, (size_t)x->row_bytes);
    if (n == x->row_bytes && n > 0 && x->n_unwritten++ == 0)
        memcpy(x->unwritten, at, sizeof x->unwritten);
}

/* A digest of these tensors' rows; of outputs, EINTERNAL when one was never written. */
static enum attn_status look(struct attn_point_member *m, enum attn_role role, uint64_t *digest)
{
    const struct attn_problem *p = &m->setup.problem;
    *digest = ATTN_DIGEST_BEGIN;
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_KINDS; kind++) {
        const struct attn_shards *s = &m->tensor[kind];
        struct looking x = {.s = s, .digest = *digest};
        if (s->role != role || s->data == NULL)
            continue;
        x.row_bytes = attn_tag_width(kind, p) * (int64_t)attn_dtype_size(attn_tag_dtype(kind, p));
        attn_shards_each_row(s, look_at_row, &x);
        *digest = x.digest;
        if (role == ATTN_OUTPUT && x.n_unwritten > 0)
            return attn_fail(m->err, ATTN_EINTERNAL,
                             "rank %d: %lld rows of %s were never written, the first [%lld,%lld,"
                             "%lld]",
                             m->runner->rank, (long long)x.n_unwritten, attn_tag_name((int)kind),
                             (long long)x.unwritten[0], (long long)x.unwritten[1],
                             (long long)x.unwritten[2]);
    }
    return ATTN_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Strides of an empty shard mean nothing, and may not be 0. */
static struct attn_view view_of(const struct attn_point_member *m, enum attn_tag_kind kind)
{
    const struct attn_shards *s = &m->tensor[kind];
    enum attn_dtype dtype = attn_tag_dtype(kind, &m->setup.problem);
    if (s->role == ATTN_ABSENT)
        return (struct attn_view){0};
    if (s->data == NULL) /* a process that is no rank */
        return (struct attn_view){(void *)m, dtype, {1, 1, 1, 1}};
    struct attn_view v = attn_shards_view(s, s->first);
    for (int a = 0; a < 4; a++)
        v.stride[a] = at_least_1(v.stride[a]);
    return v;
}

static struct attn_cview cview_of(const struct attn_point_member *m, enum attn_tag_kind kind)
{
    struct attn_view v = view_of(m, kind);
    return attn_view_const(&v);
}

static enum attn_status call(struct attn_point_member *m, enum attn_pass pass)
{
    struct attn_ctx ctx = {.ledger = &m->ledger,
                           .options = &m->spec.options,
                           .error = m->err,
                           .ranks = m->use,
                           .saved = &m->saved,
                           .has_shards = 1};
    struct attn_forward f = {.q = cview_of(m, ATTN_TAG_Q),
                             .k = cview_of(m, ATTN_TAG_K),
                             .v = cview_of(m, ATTN_TAG_V),
                             .o = view_of(m, ATTN_TAG_O),
                             .lse = view_of(m, ATTN_TAG_LSE)};
    if (pass == ATTN_FORWARD)
        return attn_run_forward(m->spec.impl, &ctx, &m->setup.problem, &f);
    struct attn_backward b = {.q = f.q,
                              .k = f.k,
                              .v = f.v,
                              .o = attn_view_const(&f.o),
                              .lse = attn_view_const(&f.lse),
                              .d_o = cview_of(m, ATTN_TAG_DO),
                              .d_lse = cview_of(m, ATTN_TAG_DELTA),
                              .dq = view_of(m, ATTN_TAG_DQ),
                              .dk = view_of(m, ATTN_TAG_DK),
                              .dv = view_of(m, ATTN_TAG_DV)};
    return attn_run_backward(m->spec.impl, &ctx, &m->setup.problem, &b);
}

/* A message layer takes memory of its own when it has its first messages, which is nobody's price:
 * some go round before anything is measured. */
static enum attn_status first_messages(void *arg, struct attn_transport *t, struct attn_error *err)
{
    enum { ROWS = 1 << 12, ROW = 1 << 7 };
    struct attn_ledger *ledger = arg;
    const struct attn_piece every_other = {0, {1, 1, ROWS}, {0, 0, 2 * ROW}, ROW};
    char *out = attn_ledger_take(ledger, "first.messages", 4 * ROWS, ROW, err), *in = out + ROW;
    if (out == NULL)
        return attn_transport_end(t, ATTN_ENOMEM, err);
    memset(out, 0, 4 * ROWS * ROW);
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < 4 && status == ATTN_OK && t->size > 1; n++) {
        struct attn_message send[2], receive[2];
        for (int m = 0; m < 2; m++) {
            send[m] = receive[m] = (struct attn_message){
                .tag = attn_tag(m == 0 ? ATTN_TAG_K : ATTN_TAG_V, n), .piece = &every_other};
            send[m].pieces = receive[m].pieces = 1;
            send[m].data = out + 2 * m * ROWS * ROW;
            receive[m].data = in + 2 * m * ROWS * ROW;
            send[m].peer = (t->rank + 1) % t->size;
            receive[m].peer = (t->rank + t->size - 1) % t->size;
        }
        status = attn_exchange(t, send, 2, receive, 2, err);
    }
    attn_ledger_give(ledger, out);
    return attn_transport_end(t, status, err);
}

/* All begin together; the seconds of the slowest. */
static enum attn_status timed_call(struct attn_point_member *m, double *seconds)
{
    const struct attn_runner *runner = m->runner;
    enum attn_pass pass = m->point->c.pass;
    *seconds = 0;
    enum attn_status status = runner->largest(runner->state, seconds, m->err);
    double start = runner->seconds();
    if (status == ATTN_OK)
        status = call(m, pass);
    *seconds = runner->seconds() - start;
    if (pass == ATTN_FORWARD)
        attn_saved_drop(&m->saved, &m->ledger);
    return status == ATTN_OK ? runner->largest(runner->state, seconds, m->err) : status;
}

/* CPU seconds of the slowest rank, and of all. */
static void read_cpu(const struct attn_point_member *m, double *most, double *sum)
{
    *most = *sum = 0;
    for (int r = 0; r < m->point->ranks; r++) {
        *most = fmax(*most, m->use[r].cpu_seconds);
        *sum += m->use[r].cpu_seconds;
    }
}

static enum attn_status measure(struct attn_point_member *m, const struct ask *ask)
{
    struct attn_point *p = m->point;
    double spent = 0, most[ATTN_RECORD_TIMES], sum[ATTN_RECORD_TIMES];
    struct attn_spread spread;
    enum attn_status status = timed_call(m, &p->first_s);
    read_cpu(m, &p->first_cpu_max_s, &p->first_cpu_sum_s);
    while (status == ATTN_OK && p->n_warm < ask->repeat && p->n_warm < ATTN_RECORD_TIMES &&
           (p->n_warm == 0 || spent < ask->enough)) {
        status = timed_call(m, &p->warm_s[p->n_warm]);
        read_cpu(m, &most[p->n_warm], &sum[p->n_warm]);
        spent += p->warm_s[p->n_warm++];
    }
    attn_stats_spread(most, p->n_warm, &spread);
    p->warm_cpu_max_s = spread.median;
    attn_stats_spread(sum, p->n_warm, &spread);
    p->warm_cpu_sum_s = spread.median;
    strcpy(p->time_source, "MPI_Wtime");
    return status;
}

/* ---- what each rank knows -------------------------------------------------------------------- */

static enum attn_status share_numbers(struct attn_point_member *m, int64_t resident,
                                      int64_t process)
{
    struct attn_point *p = m->point;
    enum attn_status status = ATTN_OK;
    p->n_processes = p->ranks < ATTN_RECORD_RANKS ? p->ranks : ATTN_RECORD_RANKS;
    for (int r = 0; r < p->n_processes && status == ATTN_OK; r++) {
        struct attn_cost cost;
        int64_t own[2] = {resident, process};
        status = attn_price(m->spec.impl, &m->spec.options, &m->setup.problem, p->c.pass, r, &cost,
                            m->err);
        if (status == ATTN_OK)
            status = m->runner->share(m->runner->state, r, own, sizeof own, m->err);
        p->rank_priced[r] = cost.peak_bytes;
        p->rank_resident[r] = own[0];
        p->rank_process[r] = own[1];
    }
    return status;
}

static void keep_ledger(struct attn_point_member *m)
{
    struct attn_point *p = m->point;
    const struct attn_rank_use *most = &m->use[0];
    for (int r = 1; r < p->ranks; r++)
        most = m->use[r].peak_bytes > most->peak_bytes ? &m->use[r] : most;
    p->ledger_bytes = most->peak_bytes;
    p->resident_bytes = -1;
    for (int r = 0; r < p->n_processes; r++)
        p->resident_bytes = greater(p->resident_bytes, p->rank_resident[r]);
    for (p->n_live = 0; p->n_live < most->n_live; p->n_live++) {
        snprintf(p->live_name[p->n_live], sizeof p->live_name[0], "%s", most->live[p->n_live].name);
        p->live_bytes[p->n_live] = most->live[p->n_live].bytes;
    }
}

/* ---- the point ------------------------------------------------------------------------------- */

static enum attn_status open_member(struct attn_point_member *m, const struct ask *ask)
{
    struct attn_point *p = m->point;
    enum attn_status status = attn_case_parse(ask->text, &p->c, m->err);
    if (status == ATTN_OK)
        status = attn_spec_parse(ask->spec, &m->spec, m->err);
    if (status == ATTN_OK)
        status =
            attn_cli_run_by(attn_ranks(m->spec.impl, &m->spec.options), &m->spec.options, m->err);
    if (status == ATTN_OK && (p->c.special != ATTN_SPECIAL_NONE || p->c.poison != ATTN_POISON_NONE))
        status =
            attn_fail(m->err, ATTN_ENOTSUP, "special= and poison= are not measured on processes");
    if (status == ATTN_OK)
        status = attn_setup_describe(&p->c, &m->setup, m->err);
    if (status == ATTN_OK)
        status = attn_recipe_open(&p->c, &m->setup.problem, &m->recipe, m->err);
    if (status == ATTN_OK)
        status = attn_preflight_price(&m->spec, &m->setup.problem, p, m->err);
    if (status != ATTN_OK)
        return status;
    m->use = calloc((size_t)p->ranks, sizeof *m->use);
    if (m->use == NULL)
        return attn_fail(m->err, ATTN_ENOMEM, "no memory for %d ranks", p->ranks);
    return make_shards(m);
}

/* Two marks are kept apart: of the call, and of all the time. */
static enum attn_status run(struct attn_point_member *m, const struct ask *ask)
{
    struct attn_resident all, of_call;
    uint64_t before = 0, after = 0, digest = 0;
    attn_resident_begin(&all);
    double start = m->runner->seconds();
    enum attn_status status = attn_point_settle(m, open_member(m, ask));
    m->point->setup_s = m->runner->seconds() - start;
    look(m, ATTN_INPUT, &before);
    const struct attn_rank_code first = {first_messages, &m->shards};
    if (status == ATTN_OK)
        status = m->runner->run(m->runner->state, m->point->ranks, &first, m->err);
    if (status == ATTN_OK && m->point->c.pass == ATTN_BACKWARD)
        status = call(m, ATTN_FORWARD);
    attn_resident_end(&all);
    int64_t highest = all.bytes;
    attn_resident_begin(&of_call);
    of_call.baseline -= m->ledger.now; /* what was saved is resident by now, and is to be seen */
    if (status == ATTN_OK)
        status = measure(m, ask);
    attn_resident_end(&of_call);
    attn_saved_drop(&m->saved, &m->ledger);
    if (status != ATTN_OK)
        return status;
    m->point->hwm_reset = of_call.reset;
    status = look(m, ATTN_OUTPUT, &digest);
    look(m, ATTN_INPUT, &after);
    if (status == ATTN_OK && before != after)
        status =
            attn_fail(m->err, ATTN_EINTERNAL, "rank %d: an input was changed", m->runner->rank);
    status = attn_point_settle(m, status);
    start = m->runner->seconds();
    if (status == ATTN_OK)
        status = attn_point_judge_ranks(m, ask->verify_all);
    m->point->verify_s = m->runner->seconds() - start;
    for (int r = 0; r < m->point->ranks && status == ATTN_OK; r++) {
        uint64_t theirs = digest;
        status = m->runner->share(m->runner->state, r, &theirs, sizeof theirs, m->err);
        after = attn_digest_bytes(r == 0 ? ATTN_DIGEST_BEGIN : after, &theirs, sizeof theirs);
    }
    snprintf(m->point->digest, sizeof m->point->digest, "%016" PRIx64, after);
    int64_t rest = all.baseline;
    attn_resident_end(&all); /* from the mark of the call on */
    highest = greater(highest, greater(of_call.hwm, all.hwm) - rest);
    return status == ATTN_OK ? share_numbers(m, of_call.bytes, highest) : status;
}

static void do_point(const struct attn_runner *runner, const struct ask *ask,
                     struct attn_point *point)
{
    struct attn_error err = {ATTN_OK, ""};
    struct attn_point_member m = {.runner = runner, .point = point, .err = &err};
    attn_ledger_init(&m.shards, NULL);
    attn_ledger_init(&m.ledger, NULL);
    enum attn_status status = run(&m, ask);
    if (status == ATTN_OK)
        keep_ledger(&m);
    else if (status == ATTN_EINTERNAL) {
        point->status = ATTN_POINT_WRONG;
        snprintf(point->message, sizeof point->message, "%s", err.text);
    } else
        attn_point_fail(point, &err);
    if (status == ATTN_ENOMEM)
        point->status = ATTN_POINT_OUT_OF_MEMORY;
    if (point->status != ATTN_POINT_OK)
        attn_point_untimed(point);
    attn_ledger_clear(&m.ledger);
    attn_ledger_clear(&m.shards);
    free(m.use);
    attn_setup_close(&m.setup);
}

int attn_point_ranks(const struct attn_point_request *asked, struct attn_point *point)
{
    const struct attn_runner *runner = attn_cli_runner();
    struct attn_error err;
    struct ask ask = {.repeat = asked->of->is_once ? 0 : asked->plan->repeat,
                      .verify_all = asked->plan->verify_all,
                      .enough = asked->plan->enough_s};
    double start = attn_seconds(CLOCK_MONOTONIC);
    snprintf(ask.spec, sizeof ask.spec, "%s", point->spec);
    snprintf(ask.text, sizeof ask.text, "%s", point->text);
    point->load = attn_machine_load();
    double steal = attn_machine_steal();
    if (runner->share(runner->state, 0, &ask, sizeof ask, &err) == ATTN_OK)
        do_point(runner, &ask, point);
    else
        attn_point_fail(point, &err);
    point->steal_s = attn_machine_steal() - steal;
    point->wall_s = attn_seconds(CLOCK_MONOTONIC) - start;
    return 1;
}

void attn_point_ranks_serve(const struct attn_runner *runner)
{
    struct attn_error err;
    struct ask ask = {0};
    struct attn_point *point = attn_cli_need(calloc(1, sizeof *point));
    while (runner->share(runner->state, 0, &ask, sizeof ask, &err) == ATTN_OK && !ask.is_over) {
        attn_point_init(point);
        do_point(runner, &ask, point);
    }
    free(point);
}

void attn_point_ranks_over(const struct attn_runner *runner)
{
    struct attn_error err;
    struct ask ask = {.is_over = 1};
    runner->share(runner->state, 0, &ask, sizeof ask, &err);
}
