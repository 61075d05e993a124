/* One rank: its end of the transport, its ledger, and its part of a call; and all ranks of a call,
 * simulated.
 *
 * Two ledgers keep apart what a rank is given and what it needs.  Shards of q k v o lse do dlse
 * dq dk dv are inputs and outputs: a ledger of the driver holds them ("shard.q", ...).  A rank's
 * own ledger holds what the scheme and the local implementation take, and that is the rank's price.
 */
#ifndef OPTIMIZED_PARALLEL_RANK_H
#define OPTIMIZED_PARALLEL_RANK_H

#include "optimized/parallel/layout/shard.h"
#include "optimized/parallel/scheme.h"
#include "ref/ranks.h"

struct attn_rank {
    struct attn_transport *transport;
    struct attn_ledger *ledger;
    const struct attn_options *options; /* of the scheme */
    struct attn_error *error;
    char *saved;     /* K, V of all heads as they are brought, which outlive the call; or NULL */
    int has_brought; /* a backward pass has them; where messages are only counted, it would */
};

/* The code of one rank. */
typedef enum attn_status attn_rank_run(void *arg, struct attn_rank *rank);

/* Ranks of one call: each with a ledger of its own, whole tensors out of bounds while they run.
 * Inputs are dealt out before, outputs are collected after that.  Where each rank is a process
 * (attn_options.runner), it deals out its own shard, and all get all outputs. */
struct attn_rank_group {
    struct attn_ctx *ctx;
    const struct attn_options *options; /* of the scheme */
    attn_rank_run *run;
    void *arg;
    struct attn_shards *tensor;   /* [tensors] */
    struct attn_rank_use *use[2]; /* [ranks], what ranks report: all of it is known in the end */
    int tensors, compares;        /* compares: outputs that several ranks have */
    int differ; /* with compares: the number of ranks whose bits differ from the last rank's */

    struct attn_ledger ledger;       /* the group's own, for shards and book-keeping */
    struct attn_ledger *rank_ledger; /* [ranks] */
};
enum attn_status attn_rank_group_run(struct attn_rank_group *group);

/* The group of a call of attention: its tensors by their kinds, with all of them in one layout at
 * home.  The gradient of LSE has the kind of D. */
enum attn_status attn_rank_call(struct attn_ctx *ctx, const struct attn_problem *problem,
                                const struct attn_layout *home,
                                struct attn_shards tensor[ATTN_TAG_KINDS], attn_rank_run *run,
                                void *arg);

/* A pass of a call, with the sink around each rank's part (rank_sink.h).  The first lines are the
 * caller's; mine: the rank's shards of the tensors of the pass. */
struct attn_rank_job {
    struct attn_ctx *ctx;
    const struct attn_problem *problem;
    struct attn_layout home;
    enum attn_status (*part)(const struct attn_rank_job *job, struct attn_rank *rank,
                             struct attn_view mine[ATTN_TAG_KINDS]);
    char *saved; /* saved data of all ranks, one behind the other; NULL: none */

    enum attn_pass pass;
    struct attn_shards tensor[ATTN_TAG_KINDS];
    struct attn_view dsink;
};
enum attn_status attn_rank_forward(struct attn_rank_job *job, const struct attn_forward *t);
enum attn_status attn_rank_backward(struct attn_rank_job *job, const struct attn_backward *t);

/* The memory that a rank has used since its ledger began or was restarted; bytes since the
 * transport began. */
void attn_rank_report(struct attn_rank_use *use, const struct attn_rank *rank, double seconds);

/* A rank's part of a call.  mine: its shards of the tensors of this pass, boxes of the home layout.
 * The gradient of LSE, if there is one, has the kind of D, which is made of it. */
enum attn_status attn_travel(struct attn_rank *rank, const struct attn_problem *whole,
                             enum attn_pass pass, const struct attn_view mine[ATTN_TAG_KINDS]);

#endif
