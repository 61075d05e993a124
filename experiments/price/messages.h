/* The messages between the ranks of a sequence-parallel run: noted down, and written as JSON lines.
 *
 * A line is one message: pass, step (the hop, as the scheme counts), tensor, source, destination,
 * bytes, dtype.  Lines are in the order of their source rank, and of one rank in the order of
 * posting, so that two runs write the same file.
 */
#ifndef EXPERIMENTS_PRICE_MESSAGES_H
#define EXPERIMENTS_PRICE_MESSAGES_H

#include "optimized/registry.h"

struct attn_messages_of {
    struct attn_note *note; /* [n] */
    int64_t n, capacity;
};

struct attn_messages {
    int ranks;
    struct attn_messages_of *of; /* [ranks] */
    struct attn_log log;         /* give it to a context; it points to this struct */
};

/* EINVAL when the spec is one process: it sends none. */
enum attn_status attn_messages_open(struct attn_messages *messages, const struct attn_spec *spec,
                                    struct attn_error *err);
void attn_messages_close(struct attn_messages *messages);

/* The messages of one pass, without tensors: ranks count only (attn_ctx.counts_only). use: NULL, or
 * room for what each rank sent; its memory is without that of the local implementation. */
enum attn_status attn_messages_count(struct attn_messages *messages, const struct attn_spec *spec,
                                     const struct attn_problem *problem, enum attn_pass pass,
                                     struct attn_rank_use *use, struct attn_error *err);

/* A whole file or none (attn_save_open).  ENOMEM. */
enum attn_status attn_messages_save(const struct attn_messages *messages, const char *path,
                                    struct attn_error *err);

#endif
