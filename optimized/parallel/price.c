/* The price of a call for one rank: its buffers (work_buffers.c), beside them the largest of what
 * the local implementation takes for a product, the flops of all products and of all merges; and
 * what its scheme says that it sends.
 *
 * Of many stops that are equal, the first round is looked at and taken as often (attn_work_round):
 * tests/parallel/test_rounds.c compares that with a walk of all stops.  Of stops that differ in the
 * number of visible pairs alone, as under random(...), all pairs are counted at once. */
#include <string.h>

#include "optimized/parallel/parallel.h"
#include "optimized/parallel/rank_sink.h"
#include "optimized/parallel/travel/products.h"
#include "optimized/parallel/travel/work_buffers.h"
#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

/* The stops from n on that are priced by the first of them; returns how many. */
static int price_stops(struct attn_work *w, int n, struct attn_cost *sum, enum attn_status *status,
                       struct attn_error *err)
{
    struct attn_stop_cost x;
    int equal = attn_work_round(w, n), counted = 0;
    attn_work_go(w, n);
    *status = attn_work_stop_cost(w, &x, err);
    double all = equal * x.pairs, flops = equal * x.flops;
    /* Not where pairs are few: some blocks have none, and stops are not alike. */
    if (equal == 1 && x.largest.counted && x.pairs >= 64 &&
        attn_rank_local(w->options)->flops_by_pairs) {
        equal = attn_work_together(w, n, &all, &counted);
        flops = x.flops / x.pairs * all;
    }
    flops += sum->flops + equal * x.folds;
    all += sum->pairs;
    x.largest.counted |= sum->counted | counted;
    sum->counted = x.largest.counted;
    if (x.largest.peak_bytes > sum->peak_bytes)
        *sum = x.largest;
    sum->flops = flops;
    sum->pairs = all;
    return equal;
}

/* Local costs of all products of a rank: flops add up, and of the live sets the largest counts, the
 * first of them in a tie, as on a ledger. */
static enum attn_status price_products(struct attn_work *w, struct attn_cost *sum,
                                       struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    memset(sum, 0, sizeof *sum);
    for (int p = 0; p < attn_work_portions(w); p++) {
        attn_work_portion(w, p);
        for (int n = 0; n < w->stops && status == ATTN_OK;)
            n += price_stops(w, n, sum, &status, err);
    }
    attn_work_portion(w, 0);
    return status;
}

/* Beside the buffers of the whole call: in turn, what the local implementation takes, and the
 * gradients of copies of K, then of V.  The largest of these makes the peak, the first of them in a
 * tie. */
static enum attn_status price_beside(const struct attn_work *w, const struct attn_cost *local,
                                     struct attn_cost *cost, struct attn_error *err)
{
    struct attn_buffer copies[2] = {0};
    enum attn_status status = ATTN_OK;
    if (w->pass == ATTN_BACKWARD)
        cost->flops += (double)attn_work_largest_copies(w, copies);
    if (attn_buffer_bytes(&copies[0]) + attn_buffer_bytes(&copies[1]) > local->peak_bytes)
        return attn_buffers_price(copies, 2, cost, err);
    for (int i = 0; i < local->n_live && status == ATTN_OK; i++)
        status = attn_cost_join(cost, &local->live[i], err);
    return status;
}

/* Bytes of the rank's inputs and outputs, where they are at home. */
static double shard_bytes(const struct attn_work *w)
{
    struct attn_problem mine = *w->whole;
    struct attn_box queries = attn_layout_stored_box(&w->home, w->whole, 0, w->rank);
    struct attn_box keys = attn_layout_stored_box(&w->home, w->whole, 1, w->rank);
    mine.heads = queries.heads.n;
    mine.kv_heads = keys.heads.n;
    mine.n_query = queries.tokens;
    mine.n_key = keys.tokens;
    return attn_pass_bytes(&mine, w->pass);
}

enum attn_status attn_parallel_cost(const struct attn_problem *p,
                                    const struct attn_options *options, enum attn_pass pass,
                                    int rank, struct attn_cost *cost, struct attn_error *err)
{
    struct attn_work w = attn_work_of(p, options, pass, rank);
    struct attn_buffer buffer[ATTN_WORK_BUFFERS], of_sink[ATTN_SINK_BUFFERS];
    struct attn_cost local;
    enum attn_status status =
        pass == ATTN_BACKWARD ? attn_check_local_backward(options, err) : ATTN_OK;
    attn_work_buffers(&w, buffer);
    if (status == ATTN_OK)
        status = price_products(&w, &local, err);
    if (status == ATTN_OK)
        status = attn_buffers_price(buffer, ATTN_WORK_BUFFERS, cost, err);
    attn_rank_sink_buffers(p, &w.home, pass, rank, of_sink);
    if (status == ATTN_OK)
        status = attn_buffers_price(of_sink, ATTN_SINK_BUFFERS, cost, err);
    if (status != ATTN_OK)
        return status;
    cost->flops = local.flops;
    cost->pairs = local.pairs;
    cost->counted = local.counted;
    struct attn_box home = attn_layout_box(&w.home, p, 0, rank);
    if (pass == ATTN_BACKWARD) /* dO . O */
        cost->flops += 2.0 * (double)(attn_box_rows(&home) * p->d_value);
    cost->saved_bytes = attn_work_saved(&w);
    cost->saved_name = cost->saved_bytes > 0 ? ATTN_SAVED_NAME : NULL;
    struct attn_sent sent = attn_rank_sink_sent(p, pass, w.home.ranks);
    if (w.scheme->sent != NULL) {
        sent = attn_sent_both(sent, w.scheme->sent(&w));
        sent = attn_sent_both(sent, attn_work_mask_sent(&w));
    }
    cost->bytes_sent = sent.bytes;
    cost->messages = sent.messages;
    cost->shard_bytes = shard_bytes(&w);
    return price_beside(&w, &local, cost, err);
}
