/* One rank's part of a call while it runs: where its tensors are, and what travel.c's parts do with
 * them.
 *
 *      travel.c           brings what the rank computes with, goes from stop to stop, takes home
 *      work_mask.c        makes and brings the bytes of a mask
 *      travel_products.c  blocks in memory, and their products
 */
#ifndef OPTIMIZED_PARALLEL_TRAVEL_H
#define OPTIMIZED_PARALLEL_TRAVEL_H

#include "optimized/parallel/layout/shard_rows.h"
#include "optimized/parallel/rank.h"
#include "optimized/parallel/travel/products.h"
#include "optimized/parallel/travel/work_buffers.h"
#include "ref/mask/bytes.h"

/* A tensor from head `head` on. */
struct attn_block {
    struct attn_view view;
    int64_t head;
};

/* A tensor in the places where a rank has it. */
struct attn_placed {
    struct attn_block home; /* the shard that the call was given */
    struct attn_block own; /* where the rank computes with it: home, or the buffer it is moved to */
    struct attn_block sum; /* own; or, of a result that is narrower than its sum, a wider buffer */
    struct attn_block now; /* of this stop: sum, or what another rank's block is received into */
};

/* Tensors of a rank's block travel together: K and V, with the mask of these keys, or their
 * gradients. */
enum { ATTN_TRAVELLERS = 3 };

/* Messages to one rank and from another. */
struct attn_hop {
    struct attn_post post;
    struct attn_message send[ATTN_TRAVELLERS], receive[ATTN_TRAVELLERS];
    struct attn_piece sent[ATTN_TRAVELLERS], got[ATTN_TRAVELLERS];
};

struct attn_travel {
    struct attn_rank *rank;
    struct attn_options local; /* of the local implementation */
    struct attn_work w;
    struct attn_buffer buffer[ATTN_WORK_BUFFERS];
    struct attn_placed tensor[ATTN_TAG_KINDS];
    struct attn_mask *mask; /* that reads the rank's bytes; NULL: the described one */
    struct attn_mask_bytes mask_bytes;
    struct attn_hop keys; /* that are on their way behind this stop's products */
};

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A rank's block at data, as it is stored; its rows, of all heads of this portion. */
struct attn_block attn_block_at(const struct attn_work *w, enum attn_tag_kind kind,
                                enum attn_dtype dtype, int rank, void *data);
struct attn_rows attn_block_rows(const struct attn_work *w, enum attn_tag_kind kind, int rank);

/* Of a block, from this head and token on. */
struct attn_view attn_block_from(const struct attn_block *block, int64_t head, int64_t token);

/* ---- the mask as data ------------------------------------------------------------------------ */

/* To work, before the first stop; and the problem of a product, with the mask that the rank has. */
enum attn_status attn_travel_bring_mask(struct attn_travel *x);
struct attn_problem attn_travel_part(struct attn_travel *x, const struct attn_product *product);

/* ---- stops ----------------------------------------------------------------------------------- */

/* All products of this stop, whose blocks are where `now` says. */
enum attn_status attn_travel_multiply(struct attn_travel *x);

#endif
