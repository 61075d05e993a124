/* Storages of a mask that list something: visible pairs in rows, in rows and columns, or blocks.
 * They are rows of the table in storage.c; no other file includes this. */
#ifndef EXPERIMENTS_RIM_STORAGE_STORAGE_LISTS_H
#define EXPERIMENTS_RIM_STORAGE_STORAGE_LISTS_H

#include "experiments/rim/storage/storage.h"

void attn_storage_make_csr(struct attn_tape *tape, const struct attn_stored_mask *mask);
int attn_storage_allows_csr(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                            struct attn_pair_place at);

/* Both ways; it refuses a mask of several patterns. */
const char *attn_storage_one_for_all(const struct attn_stored_mask *mask);
void attn_storage_make_xformers(struct attn_tape *tape, const struct attn_stored_mask *mask);
int attn_storage_allows_xformers(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                                 struct attn_pair_place at);

/* torch.nn.attention.flex_attention.BlockMask */
void attn_storage_make_flex(struct attn_tape *tape, const struct attn_stored_mask *mask);
int attn_storage_allows_flex(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                             struct attn_pair_place at);

#endif
