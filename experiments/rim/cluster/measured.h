/* `attnlab-mpi cluster here SPEC`: what messages take on this machine, beside the model of
 * replay.h with numbers of the same machine.  Ranks 0 and 1 exchange blocks through the transport
 * that all calls have; from these times come the numbers of a .cluster file.  Then ranks post what
 * the call posts and compute nothing (attn_ctx.counts_only). */
#ifndef EXPERIMENTS_RIM_CLUSTER_MEASURED_H
#define EXPERIMENTS_RIM_CLUSTER_MEASURED_H

#include "experiments/price/show.h"
#include "experiments/rim/cluster/replay.h"

/* Seconds of an exchange of two ranks: post + messages latency + bytes / bandwidth, each way.
 * ENOTSUP: there is no second process; EPEER: as attn_wait. */
enum attn_status attn_measure_links(const struct attn_runner *runner, struct attn_cluster *here,
                                    struct attn_error *err);

/* The lines of a .cluster file that it has measured. */
void attn_price_print_links(const struct attn_cluster *here);

/* One shape of one SPEC, in one pass or both.  all: NULL for text.  An exit status. */
int attn_price_measured(const struct attn_price_asked *asked, const struct attn_cluster *here,
                        json_t *all);

#endif
