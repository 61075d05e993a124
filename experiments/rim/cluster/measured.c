/* See measured.h. */
#include "experiments/rim/cluster/measured.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/cli/cli.h"
#include "experiments/price/messages.h"
#include "experiments/rim/cluster/cluster.h"
#include "experiments/table/row_table.h"
#include "optimized/parallel/rank_runner.h"
#include "ref/ledger.h"
#include "ref/mask/mask.h"

enum { SAMPLES = 9, MESSAGES = 8, FEW = 64, MANY = 8 << 20 }; /* bytes of a message */

/* On a machine that others use too, the fastest is the most repeatable. */
static double fastest(const double x[SAMPLES])
{
    double least = x[0];
    for (int n = 1; n < SAMPLES; n++)
        least = fmin(least, x[n]);
    return least;
}

/* ---- the links ------------------------------------------------------------------------------- */

struct ping {
    const struct attn_runner *runner;
    int messages;
    int64_t bytes; /* of each */
    double seconds[SAMPLES];
};

/* Both ways at once, between blocks that are as new as those that a call takes. */
static enum attn_status exchange(const struct ping *x, struct attn_transport *t,
                                 struct attn_ledger *ledger, struct attn_error *err)
{
    const struct attn_piece piece = attn_piece_whole(x->bytes);
    struct attn_message send[MESSAGES], receive[MESSAGES];
    char *data = attn_ledger_take(ledger, "ping", 2 * x->messages, x->bytes, err);
    for (int m = 0; m < x->messages && data != NULL; m++) {
        send[m] = (struct attn_message){.peer = 1 - t->rank,
                                        .tag = attn_tag(ATTN_TAG_K, m),
                                        .data = data + m * x->bytes,
                                        .piece = &piece,
                                        .pieces = 1};
        receive[m] = send[m];
        receive[m].data = data + (x->messages + m) * x->bytes;
    }
    enum attn_status status =
        data == NULL ? err->status : attn_exchange(t, send, x->messages, receive, x->messages, err);
    attn_ledger_give(ledger, data);
    return status;
}

static enum attn_status ping(void *arg, struct attn_transport *t, struct attn_error *err)
{
    struct ping *x = arg;
    struct attn_ledger ledger;
    enum attn_status status = ATTN_OK;
    attn_ledger_init(&ledger, NULL);
    for (int n = -1; n < SAMPLES && status == ATTN_OK; n++) { /* the first one warms up */
        double start = x->runner->seconds();
        status = exchange(x, t, &ledger, err);
        x->seconds[n < 0 ? 0 : n] = x->runner->seconds() - start;
    }
    attn_ledger_clear(&ledger);
    return status;
}

static enum attn_status time_ping(const struct attn_runner *runner, int messages, int64_t bytes,
                                  double *seconds, struct attn_error *err)
{
    struct ping x = {.runner = runner, .messages = messages, .bytes = bytes};
    const struct attn_rank_code code = {ping, &x, 0};
    enum attn_status status = runner->run(runner->state, 2, &code, err);
    *seconds = fastest(x.seconds);
    return status == ATTN_OK ? runner->share(runner->state, 0, seconds, sizeof *seconds, err)
                             : status;
}

enum attn_status attn_measure_links(const struct attn_runner *runner, struct attn_cluster *here,
                                    struct attn_error *err)
{
    double one, several, large;
    enum attn_status status = time_ping(runner, 1, FEW, &one, err);
    if (status == ATTN_OK)
        status = time_ping(runner, MESSAGES, FEW, &several, err);
    if (status == ATTN_OK)
        status = time_ping(runner, 1, MANY, &large, err);
    if (status != ATTN_OK)
        return status;
    double latency = fmax(several - one, 0) / (MESSAGES - 1), post = fmax(one - latency, 0);
    double bandwidth = MANY / fmax(large - one, 1e-9);
    *here = (struct attn_cluster){.node = runner->size,
                                  .memory = (double)INFINITY,
                                  .memory_bandwidth = (double)INFINITY, /* what is not sent */
                                  .masked = 1,
                                  .exchange = post,
                                  .hop = post,
                                  .latency = {latency, latency},
                                  .bandwidth = {bandwidth, bandwidth}};
    for (int d = 0; d < ATTN_DTYPES; d++)
        here->flops[d] = (double)INFINITY;
    return ATTN_OK;
}

void attn_price_print_links(const struct attn_cluster *here)
{
    static const char *const key[] = {"exchange", "hop", "inside-latency", "inside-bandwidth"};
    const double value[] = {here->exchange, here->hop, here->latency[ATTN_INSIDE],
                            here->bandwidth[ATTN_INSIDE]};
    for (int k = 0; k < 4; k++)
        printf("%s = %.3g ; source %s = ranks 0 and 1 of %lld exchange blocks here\n", key[k],
               value[k], key[k], (long long)here->node);
}

/* ---- a call ---------------------------------------------------------------------------------- */

static enum attn_status nothing(void *arg, struct attn_transport *t, struct attn_error *err)
{
    (void)arg, (void)t, (void)err;
    return ATTN_OK;
}

/* The fastest of what the slowest process takes for a call without arithmetic, less that of ranks
 * which do nothing at all: to begin together, and to agree how all ended. */
static enum attn_status time_call(const struct attn_spec *spec, const struct attn_problem *p,
                                  enum attn_pass pass, double *seconds, struct attn_error *err)
{
    const struct attn_runner *runner = spec->options.runner;
    const struct attn_rank_code code = {nothing, NULL, 1};
    double took[2][SAMPLES];
    enum attn_status status = ATTN_OK;
    for (int n = -2; n < 2 * SAMPLES && status == ATTN_OK; n++) { /* in turn */
        double *x = &took[n & 1][n < 0 ? 0 : n / 2];
        *x = 0;
        status = runner->largest(runner->state, x, err);
        double start = runner->seconds();
        if (status == ATTN_OK)
            status = n & 1 ? attn_messages_count(NULL, spec, p, pass, NULL, err)
                           : runner->run(runner->state, attn_ranks(spec->impl, &spec->options),
                                         &code, err);
        *x = runner->seconds() - start;
        if (status == ATTN_OK)
            status = runner->largest(runner->state, x, err);
    }
    *seconds = status == ATTN_OK ? fmax(fastest(took[1]) - fastest(took[0]), 0) : (double)NAN;
    return status;
}

static enum attn_status compare(const struct attn_price_asked *asked,
                                const struct attn_cluster *here, double *measured,
                                struct attn_replay *model, struct attn_error *err)
{
    struct attn_problem p;
    struct attn_mask *mask = NULL;
    int both = asked->pass == ATTN_NEED_BOTH;
    int first = both ? ATTN_FORWARD : (int)asked->pass, last = both ? ATTN_BACKWARD : first;
    *measured = 0;
    enum attn_status status = attn_case_open(asked->c, NULL, &p, &mask, err);
    if (status == ATTN_OK)
        status = attn_cluster_replay(asked->spec, &p, asked->pass, here, model, err);
    for (int pass = first; pass <= last && status == ATTN_OK; pass++) {
        double seconds;
        status = time_call(asked->spec, &p, (enum attn_pass)pass, &seconds, err);
        *measured += seconds;
    }
    attn_mask_free(mask);
    return status;
}

int attn_price_measured(const struct attn_price_asked *asked, const struct attn_cluster *here,
                        json_t *all)
{
    struct attn_replay model;
    struct attn_error err;
    double measured;
    char times[2][32];
    enum attn_status status = compare(asked, here, &measured, &model, &err);
    if (status != ATTN_OK) {
        attn_price_show_refused(asked, err.text, all);
        return attn_cli_status(status);
    }
    if (all == NULL) {
        attn_price_print_asked(asked);
        printf("  messages alone: measured %s, by the model %s, ratio %.2f\n",
               attn_seconds_text(measured, times[0]), attn_seconds_text(model.seconds, times[1]),
               measured / model.seconds);
        return ATTN_EXIT_GOOD;
    }
    json_t *row = attn_price_asked_json(asked);
    json_object_set_new(row, "measured", attn_cli_real(measured));
    json_object_set_new(row, "model", attn_cli_real(model.seconds));
    json_object_set_new(row, "ratio", attn_cli_real(measured / model.seconds));
    json_array_append_new(all, row);
    return ATTN_EXIT_GOOD;
}
