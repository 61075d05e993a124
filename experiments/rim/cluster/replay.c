/* See replay.h. */
#include "experiments/rim/cluster/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "optimized/integers.h"
#include "optimized/parallel/travel/products.h"
#include "optimized/parallel/travel/work_buffers.h"
#include "ref/problem.h"

const char *attn_spent_name(enum attn_spent on)
{
    static const char *const name[ATTN_SPENT] = {"compute", "memory", "inside", "between",
                                                 "waiting"};
    return name[on];
}

/* Tensors that travel round a ring: K and V; the sums of dK and dV.  Two messages each. */
enum bundle { KEYS, KEY_GRADIENTS, BUNDLES };
enum { BUNDLE_MESSAGES = 2 };

/* The traffic of one rank's exchange: messages and bytes of each link, one way. */
struct traffic {
    int64_t messages, bytes;
};

struct rank {
    struct attn_work w;
    struct attn_stop now, next;
    int64_t node;
    int before; /* whose keys were here at the stop before this one */
    double clock, spent[ATTN_SPENT];
    double posted;            /* when it posted the messages of this stop */
    double passed;            /* ... of the next one, where keys are passed on */
    int64_t bundle[BUNDLES];  /* bytes of its blocks that travel */
    int next_priced;          /* stop: until then, all are as the last priced one */
    double computing, passes; /* seconds of that one */
    struct traffic sent;
};

struct replay {
    const struct attn_cluster *cluster;
    struct rank *rank; /* [ranks] */
    int ranks;
    struct attn_replay *out;
    struct attn_error *err;
};

static enum attn_link link_of(const struct replay *x, int a, int b)
{
    return x->rank[a].node == x->rank[b].node ? ATTN_INSIDE : ATTN_BETWEEN;
}

static void spend(struct rank *r, enum attn_spent on, double seconds)
{
    r->clock += seconds;
    r->spent[on] += seconds;
}

/* The time of n kernels that read or write `bytes` of device memory. */
static double pass_time(const struct replay *x, double bytes, int kernels)
{
    return bytes / x->cluster->memory_bandwidth + kernels * x->cluster->launch;
}

static double travel_time(const struct replay *x, enum attn_link link, const struct traffic *t)
{
    return (double)t->messages * x->cluster->latency[link] +
           (double)t->bytes / x->cluster->bandwidth[link];
}

/* ---- products -------------------------------------------------------------------------------- */

/* w1 o, w2 o2 and their sum read four numbers and write three; a sum of gradients, two and one. */
static double fold_bytes(const struct attn_work *w, double flops)
{
    double numbers = w->pass == ATTN_FORWARD ? flops * 7 / 3 : flops * 3;
    return numbers * (double)attn_dtype_size(attn_lse_dtype(w->whole));
}

/* Stop n, and those behind it that are equal. */
static enum attn_status price_stops(struct replay *x, struct rank *r, int n)
{
    double rate = x->cluster->flops[r->w.whole->dtype], masked = x->cluster->masked;
    int equal = attn_work_round(&r->w, n);
    struct attn_stop_cost cost;
    attn_work_go(&r->w, n);
    enum attn_status status = attn_work_stop_cost(&r->w, &cost, x->err);
    double full = cost.flops - cost.masked_flops;
    r->computing = (full + cost.masked_flops / masked) / rate + cost.products * x->cluster->launch;
    r->passes = pass_time(x, fold_bytes(&r->w, cost.folds), cost.passes);
    r->next_priced = n + equal;
    x->out->ideal += equal * cost.flops / rate / x->ranks;
    x->out->counted |= cost.largest.counted;
    return status;
}

static enum attn_status multiply(struct replay *x, struct rank *r, int n)
{
    enum attn_status status = n == 0 || n == r->next_priced ? price_stops(x, r, n) : ATTN_OK;
    spend(r, ATTN_SPENT_COMPUTING, r->computing);
    spend(r, ATTN_SPENT_PASSES, r->passes);
    return status;
}

/* ---- between stops --------------------------------------------------------------------------- */

/* A bundle of rank `sends` goes to one rank, one of rank `gets` comes from one; -1: none. */
struct exchange {
    enum bundle bundle;
    int to, sends, from, gets;
};

/* As travel.c has it: the keys of this stop come, and go on to the next; so do the sums of
 * their gradients. */
static struct exchange arrival(const struct rank *r)
{
    return (struct exchange){KEYS, r->now.to, r->before, r->now.from, r->now.key};
}

static struct exchange passed_on(const struct rank *r)
{
    return (struct exchange){KEYS, r->next.to, r->now.key, r->next.from, r->next.key};
}

static struct exchange sums_passed_on(const struct rank *r)
{
    return (struct exchange){KEY_GRADIENTS, r->next.to, r->now.key, r->next.from, r->next.key};
}

/* Posting takes the rank's time. */
static void post(const struct replay *x, struct rank *r, const struct exchange *e)
{
    r->sent.bytes += x->rank[e->sends].bundle[e->bundle];
    r->sent.messages += BUNDLE_MESSAGES;
    spend(r, ATTN_SPENT_INSIDE + link_of(x, r->w.rank, e->to), x->cluster->hop);
}

/* One side is done: it began when both ranks had posted. */
static void wait_for(const struct replay *x, struct rank *r, int peer, enum bundle bundle,
                     int block)
{
    if (peer < 0)
        return;
    enum attn_link link = link_of(x, r->w.rank, peer);
    struct traffic t = {BUNDLE_MESSAGES, x->rank[block].bundle[bundle]};
    double begin = fmax(r->posted, x->rank[peer].posted), done = begin + travel_time(x, link, &t);
    if (done <= r->clock)
        return;
    spend(r, ATTN_SPENT_WAITING, fmax(begin - r->clock, 0));
    spend(r, ATTN_SPENT_INSIDE + link, done - r->clock);
}

/* The clocks of all ranks when they post, then what they wait for. */
static void post_all(struct replay *x, struct exchange (*of)(const struct rank *r))
{
    for (int i = 0; i < x->ranks; i++) {
        struct exchange e = of(&x->rank[i]);
        post(x, &x->rank[i], &e);
        x->rank[i].posted = x->rank[i].clock;
    }
}

static void wait_all(struct replay *x, struct exchange (*of)(const struct rank *r))
{
    for (int i = 0; i < x->ranks; i++) {
        struct exchange e = of(&x->rank[i]);
        wait_for(x, &x->rank[i], e.from, e.bundle, e.gets);
        wait_for(x, &x->rank[i], e.to, e.bundle, e.sends);
    }
}

/* Post and wait; what was posted before is still on its way. */
static void pass_sums_on(struct replay *x)
{
    for (int i = 0; i < x->ranks; i++)
        x->rank[i].passed = x->rank[i].posted;
    post_all(x, sums_passed_on);
    wait_all(x, sums_passed_on);
    for (int i = 0; i < x->ranks; i++)
        x->rank[i].posted = x->rank[i].passed;
}

static void go(struct replay *x, int n)
{
    for (int i = 0; i < x->ranks; i++) {
        struct rank *r = &x->rank[i];
        r->before = r->now.key;
        r->now = n == 0 ? attn_work_stop(&r->w, 0) : r->next;
        r->next = attn_work_stop(&r->w, n + 1);
    }
}

static enum attn_status replay_stops(struct replay *x)
{
    const struct attn_work *any = &x->rank[0].w;
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < any->stops && status == ATTN_OK; n++) {
        go(x, n);
        wait_all(x, arrival);
        if (n + 1 < any->stops)
            post_all(x, passed_on);
        for (int i = 0; i < x->ranks && status == ATTN_OK; i++)
            status = multiply(x, &x->rank[i], n);
        if (any->stops > 1 && any->pass == ATTN_BACKWARD)
            pass_sums_on(x);
    }
    return status;
}

/* ---- between home and work ------------------------------------------------------------------- */

/* A rank's part of a move, each way, by link. */
struct part {
    struct traffic out[ATTN_LINKS], in[ATTN_LINKS];
};

static void add_message(struct traffic *t, int64_t bytes)
{
    t->messages += bytes > 0;
    t->bytes += bytes;
}

static struct part part_of(const struct replay *x, const struct attn_move *m, int rank)
{
    struct part part = {0};
    for (int peer = 0; peer < x->ranks; peer++) {
        enum attn_link link = link_of(x, rank, peer);
        if (peer == rank)
            continue;
        add_message(&part.out[link], attn_move_message(m, rank, peer));
        add_message(&part.in[link], attn_move_message(m, peer, rank));
    }
    return part;
}

/* Post and wait: the slower link, of these the slower direction. */
static void take_part(const struct replay *x, struct rank *r, const struct part *part)
{
    double seconds[ATTN_LINKS] = {0};
    int64_t messages = 0;
    for (int link = 0; link < ATTN_LINKS; link++) {
        seconds[link] =
            fmax(travel_time(x, link, &part->out[link]), travel_time(x, link, &part->in[link]));
        messages += part->out[link].messages + part->in[link].messages;
        r->sent.bytes += part->out[link].bytes;
        r->sent.messages += part->out[link].messages;
    }
    enum attn_link slower = seconds[ATTN_BETWEEN] > seconds[ATTN_INSIDE];
    if (messages > 0)
        spend(r, ATTN_SPENT_INSIDE + slower, seconds[slower] + x->cluster->exchange);
}

/* Ranks that have as much of a tensor at both ends, and are at the same place of their node. */
static int are_alike(const struct replay *x, const struct attn_move *m, int a, int b)
{
    int keys = attn_tag_is_of_keys(m->kind), node = (int)x->cluster->node;
    const struct attn_layout *end[2] = {m->from.layout, m->to.layout};
    if (a % node != b % node)
        return 0;
    for (int e = 0; e < 2; e++) {
        struct attn_box of_a = attn_layout_stored_box(end[e], m->whole, keys, a);
        struct attn_box of_b = attn_layout_stored_box(end[e], m->whole, keys, b);
        if (of_a.heads.n != of_b.heads.n || of_a.tokens != of_b.tokens)
            return 0;
    }
    return 1;
}

/* Of ranks that are alike one is asked. */
static void exchange_all(struct replay *x, const struct attn_move *m)
{
    int *like = attn_cli_need(calloc((size_t)x->ranks, sizeof *like)), asked = 0;
    struct part *part = attn_cli_need(calloc((size_t)x->ranks, sizeof *part));
    double last = 0;
    for (int i = 0; i < x->ranks; i++)
        last = fmax(last, x->rank[i].clock);
    for (int i = 0; i < x->ranks; i++) {
        struct rank *r = &x->rank[i];
        int a = 0;
        while (a < asked && !are_alike(x, m, like[a], i))
            a++;
        if (a == asked) {
            like[asked] = i;
            part[asked++] = part_of(x, m, i);
        }
        spend(r, ATTN_SPENT_WAITING, last - r->clock);
        take_part(x, r, &part[a]);
    }
    free(like);
    free(part);
}

static void move(struct replay *x, enum attn_tag_kind kind, int goes_home)
{
    const struct attn_work *w = &x->rank[0].w;
    struct attn_move m = attn_work_move(w, kind, goes_home);
    exchange_all(x, &m);
    for (int i = 0; i < x->ranks; i++) {
        struct rank *r = &x->rank[i];
        int64_t bytes = attn_work_block(&r->w, kind, i) *
                        (int64_t)attn_dtype_size(attn_work_dtype(&r->w, kind));
        spend(r, ATTN_SPENT_PASSES, pass_time(x, 2.0 * (double)bytes, 1));
    }
}

/* K and V that the forward pass saved are there. */
static int is_there(const struct attn_work *w, enum attn_tag_kind kind)
{
    return w->pass == ATTN_BACKWARD && (kind == ATTN_TAG_K || kind == ATTN_TAG_V) &&
           attn_work_saved(w) > 0;
}

/* Inputs come, or results go home. */
static void move_all(struct replay *x, int goes_home)
{
    const enum attn_tag_kind *kinds;
    int inputs, tensors = attn_work_tensors(x->rank[0].w.pass, &kinds, &inputs);
    for (int t = goes_home ? inputs : 0; t < (goes_home ? tensors : inputs); t++) {
        if (attn_work_moves(&x->rank[0].w, kinds[t]) && !is_there(&x->rank[0].w, kinds[t]))
            move(x, kinds[t], goes_home);
    }
}

/* ---- a call ---------------------------------------------------------------------------------- */

static int64_t block_bytes(const struct attn_work *w, enum attn_tag_kind kind,
                           enum attn_dtype dtype)
{
    return attn_work_block(w, kind, w->rank) * (int64_t)attn_dtype_size(dtype);
}

static void begin_portion(struct replay *x, int portion)
{
    for (int i = 0; i < x->ranks; i++) {
        struct rank *r = &x->rank[i];
        attn_work_portion(&r->w, portion);
        attn_work_go(&r->w, 0);
        r->bundle[KEYS] = block_bytes(&r->w, ATTN_TAG_K, r->w.whole->dtype) +
                          block_bytes(&r->w, ATTN_TAG_V, r->w.whole->dtype);
        r->bundle[KEY_GRADIENTS] = block_bytes(&r->w, ATTN_TAG_DK, attn_lse_dtype(r->w.whole)) +
                                   block_bytes(&r->w, ATTN_TAG_DV, attn_lse_dtype(r->w.whole));
    }
}

static enum attn_status replay_call(struct replay *x)
{
    enum attn_status status = ATTN_OK;
    int portions = 1;
    for (int i = 0; i < x->ranks; i++)
        portions = (int)greater(portions, attn_work_portions(&x->rank[i].w));
    for (int n = 0; n < portions && status == ATTN_OK; n++) {
        begin_portion(x, n);
        move_all(x, 0);
        status = replay_stops(x);
        move_all(x, 1);
    }
    return status;
}

static void report(const struct replay *x, struct attn_rank_use *sent)
{
    struct attn_replay *out = x->out;
    out->seconds = -1;
    for (int i = 0; i < x->ranks; i++) {
        const struct rank *r = &x->rank[i];
        if (sent != NULL)
            sent[i] =
                (struct attn_rank_use){.bytes_sent = r->sent.bytes, .messages = r->sent.messages};
        if (r->clock <= out->seconds)
            continue;
        out->seconds = r->clock;
        out->rank = i;
        memcpy(out->spent, r->spent, sizeof out->spent);
    }
}

enum attn_status attn_replay(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, const struct attn_cluster *cluster,
                             struct attn_replay *replay, struct attn_rank_use *sent,
                             struct attn_error *err)
{
    const struct attn_impl *impl = options->impl;
    struct attn_cost cost;
    *replay = (struct attn_replay){0};
    if (impl->scheme == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "%s has no schedule of ranks to replay: ring or ulysses would work",
                         impl->name);
    if (attn_work_of(p, options, pass, 0).mask != ATTN_MASK_DESCRIBED)
        return attn_fail(err, ATTN_EINVAL,
                         "a mask as data has no time in the model: mask=described would work");
    if (!(cluster->flops[p->dtype] > 0))
        return attn_fail(err, ATTN_EINVAL, "the cluster has no flops-%s: a type that it has",
                         attn_dtype_name(p->dtype));
    enum attn_status status = attn_price(impl, options, p, pass, 0, &cost, err);
    if (status != ATTN_OK)
        return status;
    struct replay x = {cluster, NULL, attn_ranks(impl, options), replay, err};
    x.rank = attn_cli_need(calloc((size_t)x.ranks, sizeof *x.rank));
    for (int i = 0; i < x.ranks; i++) {
        x.rank[i].w = attn_work_of(p, options, pass, i);
        x.rank[i].node = i / cluster->node;
    }
    status = replay_call(&x);
    if (status == ATTN_OK)
        report(&x, sent);
    free(x.rank);
    return status;
}
