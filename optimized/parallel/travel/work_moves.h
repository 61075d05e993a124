/* The moves of a rank from home to work and back, and the buffers that they need. */
#ifndef OPTIMIZED_PARALLEL_WORK_MOVES_H
#define OPTIMIZED_PARALLEL_WORK_MOVES_H

#include "optimized/parallel/layout/move.h"
#include "optimized/parallel/work.h"

/* The tensors of a pass that are exchanged: how many, the inputs first. */
int attn_work_tensors(enum attn_pass pass, const enum attn_tag_kind **kinds, int *inputs);

/* The move of a tensor from home to work, or of a result back.  Data is the caller's. */
struct attn_move attn_work_move(const struct attn_work *w, enum attn_tag_kind kind, int goes_home);

/* One buffer for each kind of tensor that is moved, and this.  `buffer` is the table of
 * work_buffers.h. */
enum { ATTN_MESSAGES = ATTN_TAG_KINDS, ATTN_MOVE_BUFFERS };
void attn_work_move_buffers(const struct attn_work *w, struct attn_buffer *buffer);

/* Bytes of K and V that live from a forward pass to its backward pass: these two are neighbours. */
int64_t attn_work_saved(const struct attn_work *w);
#define ATTN_SAVED_NAME "kv.saved"

/* Taken one after the other when everything is computed: of dk, then of dv.  copies[1]: the sum at
 * home, where it is wider than dk. */
void attn_work_copies(const struct attn_work *w, enum attn_tag_kind kind,
                      struct attn_buffer copies[2]);

/* The larger ones of these two; how many numbers are added in both. */
int64_t attn_work_largest_copies(const struct attn_work *w, struct attn_buffer largest[2]);

#endif
