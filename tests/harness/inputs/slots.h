/* The tensors of a case: inputs, then outputs. */
#ifndef TESTS_HARNESS_INPUTS_SLOTS_H
#define TESTS_HARNESS_INPUTS_SLOTS_H

#include "tests/harness/inputs/case.h"

enum attn_slot {
    ATTN_T_Q,
    ATTN_T_K,
    ATTN_T_V,
    ATTN_T_BIAS,
    ATTN_T_SINK,
    ATTN_T_DO,
    ATTN_T_DLSE, /* inputs  */
    ATTN_T_O,
    ATTN_T_LSE,
    ATTN_T_DQ,
    ATTN_T_DK,
    ATTN_T_DV,
    ATTN_T_DBIAS,
    ATTN_T_DSINK, /* outputs */
    ATTN_SLOTS
};

/* mixed: the memory order under layout=mixed.  No two tensors that a careless kernel might confuse
 * (k and v, o and dO, dK and K) share one. */
enum attn_slot_rows { ATTN_SLOT_QUERIES, ATTN_SLOT_KEYS, ATTN_SLOT_HEADS };
enum attn_slot_width { ATTN_WIDTH_D, ATTN_WIDTH_DV, ATTN_WIDTH_ONE, ATTN_WIDTH_KEYS };
struct attn_slot_kind {
    const char *name, *mixed;
    enum attn_slot_rows rows;
    enum attn_slot_width width;
};
extern const struct attn_slot_kind attn_slot[ATTN_SLOTS];

/* Has the case this tensor?  With kv=shared V, and no dV. */
int attn_case_has(const struct attn_case *c, int slot);

/* [B, H or G, Lq or Lk, width]; of a sink [1, H, 1, 1]. */
void attn_slot_extents(const struct attn_case *c, int slot, int64_t extent[4]);

/* The case as one tensor sees it: layout and offset may be meant for another. */
struct attn_case attn_slot_case(const struct attn_case *c, int slot);

#endif
