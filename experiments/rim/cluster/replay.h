/* How long a call of a scheme takes on a cluster, by a model: its schedule is replayed with a clock
 * for each rank, and nothing is computed or sent.
 *
 * The model (Culler et al. 1993, LogP; Hockney 1994, alpha-beta):
 *
 *      product     flops / rate, at a lower rate where the mask cuts it, and a launch
 *      pass        merges and sums of partial results, a read or a write of memory for each number:
 *                  bytes / bandwidth, and a launch.  A tensor that changes layout is copied once
 *      exchange    posting costs the rank its own time, which is not hidden: more for a hop than
 *                  for a collective.  From when both sides have posted, latency for each message
 *                  and bytes / bandwidth, both ways at once, inside a node and between nodes at
 *                  once.  Links are not shared
 *      hidden      what a ring passes on travels while the stop is computed, as in travel.c
 *      barrier     a change of layout begins when the last rank is there
 *
 * Schedule, products and sizes are those that price.c and travel.c have: tests compare what is sent
 * here with the price.  Ranks whose shares are equal exchange alike, so one of them is asked for
 * its messages; of equal stops one is priced (attn_work_round).
 */
#ifndef EXPERIMENTS_RIM_CLUSTER_REPLAY_H
#define EXPERIMENTS_RIM_CLUSTER_REPLAY_H

#include "ref/impl.h"

enum attn_link { ATTN_INSIDE, ATTN_BETWEEN, ATTN_LINKS }; /* of a node; between nodes */

/* Seconds, bytes, and each by the second.  Ranks 0 to node-1 are in the first node, and so on. */
struct attn_cluster {
    int64_t node;
    double memory, memory_bandwidth; /* of a device, of which each rank has one */
    double launch;                   /* of a product or a pass            */
    double flops[ATTN_DTYPES];       /* by storage type; 0: not known     */
    double masked;                   /* of that rate, where the mask cuts a product: above 0 */
    double exchange, hop; /* posting: what changes a layout, a collective; between two stops */
    double latency[ATTN_LINKS], bandwidth[ATTN_LINKS]; /* of a message; of a rank, one way */
};

/* The parts of a rank's time. */
enum attn_spent {
    ATTN_SPENT_COMPUTING,
    ATTN_SPENT_PASSES,
    ATTN_SPENT_INSIDE,
    ATTN_SPENT_BETWEEN,
    ATTN_SPENT_WAITING, /* for a rank that has not posted yet */
    ATTN_SPENT
};
const char *attn_spent_name(enum attn_spent on); /* "compute", "memory", ... */

struct attn_replay {
    double seconds;           /* of the rank that ends last, the first of them in a tie */
    double spent[ATTN_SPENT]; /* its seconds */
    int rank;
    double ideal; /* seconds of all products, dealt out evenly, at the full rate */
    int counted;  /* pairs had no closed form */
};

/* sent: NULL, or room for what each rank sends in the replay.  EINVAL: the implementation has no
 * schedule, or the cluster no rate for this type; ENOTSUP, EINVAL: as attn_price. */
enum attn_status attn_replay(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, const struct attn_cluster *cluster,
                             struct attn_replay *replay, struct attn_rank_use *sent,
                             struct attn_error *err);

#endif
