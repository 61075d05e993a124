/* `attnlab cluster FILE SPEC --ranks 8:4096:x2`: time, efficiency, what limits it and the
 * longest sequence, by the model of replay.h with the numbers of a file.
 *
 *      name = H200
 *      node = 8 ; source node = data sheet      # each number with where it comes from
 *      flops-bf16 = 3.5e14
 *      source flops-bf16 = measured, one rank
 *
 * A key that is unknown, missing, set twice or without its source is refused. */
#ifndef EXPERIMENTS_RIM_CLUSTER_CLUSTER_H
#define EXPERIMENTS_RIM_CLUSTER_CLUSTER_H

#include "experiments/cli/flags.h"
#include "experiments/price/show.h"
#include "experiments/rim/cluster/replay.h"

enum {
#define CLUSTER_KEY(id, ...) ATTN_CLUSTER_##id,
#include "experiments/rim/cluster/cluster_keys.def"
#undef CLUSTER_KEY
    ATTN_CLUSTER_KEYS
};

struct attn_cluster_file {
    char name[64];
    double value[ATTN_CLUSTER_KEYS];     /* 0: not there */
    char source[ATTN_CLUSTER_KEYS][160]; /* "": not said yet */
    struct attn_cluster cluster;         /* the values */
};

/* A whole text, or a whole file.  Messages begin with "NAME:LINE: ".  EINVAL. */
enum attn_status attn_cluster_parse(const char *name, const char *text,
                                    struct attn_cluster_file *file, struct attn_error *err);
enum attn_status attn_cluster_read(const char *path, struct attn_cluster_file *file,
                                   struct attn_error *err);

struct attn_cluster_counts {
    int n;
    int64_t at[64];
};

/* "8", or "8:4096:x2": 8, 16, ... 4096.  EINVAL. */
enum attn_status attn_cluster_ranks(const char *text, struct attn_cluster_counts *ranks,
                                    struct attn_error *err);

/* Set the number of ranks of a scheme; EINVAL: it has none, or cannot have this number. */
enum attn_status attn_cluster_set_ranks(struct attn_spec *spec, int64_t ranks,
                                        struct attn_error *err);

/* Of one pass or both.  EINVAL, ENOTSUP: as attn_replay. */
enum attn_status attn_cluster_replay(const struct attn_spec *spec, const struct attn_problem *p,
                                     enum attn_need_pass pass, const struct attn_cluster *cluster,
                                     struct attn_replay *replay, struct attn_error *err);

/* A row for each number of ranks; then what it assumes.  ranks->n = 0: the spec's own.  all: NULL
 * for text.  An exit status. */
int attn_price_cluster(const struct attn_price_asked *asked, const struct attn_cluster_file *file,
                       const struct attn_cluster_counts *ranks, json_t *all);

#endif
