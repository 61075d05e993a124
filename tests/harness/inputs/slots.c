/* See slots.h. */
#include "tests/harness/inputs/slots.h"

const struct attn_slot_kind attn_slot[ATTN_SLOTS] = {
    [ATTN_T_Q] = {"q", "bhic", ATTN_SLOT_QUERIES, ATTN_WIDTH_D},
    [ATTN_T_K] = {"k", "bihc", ATTN_SLOT_KEYS, ATTN_WIDTH_D},
    [ATTN_T_V] = {"v", "ibhc", ATTN_SLOT_KEYS, ATTN_WIDTH_DV},
    [ATTN_T_BIAS] = {"bias", "bhci", ATTN_SLOT_QUERIES, ATTN_WIDTH_KEYS},
    [ATTN_T_SINK] = {"sink", "bhic", ATTN_SLOT_HEADS, ATTN_WIDTH_ONE},
    [ATTN_T_DO] = {"do", "bhci", ATTN_SLOT_QUERIES, ATTN_WIDTH_DV},
    [ATTN_T_DLSE] = {"dlse", "ihbc", ATTN_SLOT_QUERIES, ATTN_WIDTH_ONE},
    [ATTN_T_O] = {"o", "hbic", ATTN_SLOT_QUERIES, ATTN_WIDTH_DV},
    [ATTN_T_LSE] = {"lse", "bihc", ATTN_SLOT_QUERIES, ATTN_WIDTH_ONE},
    [ATTN_T_DQ] = {"dq", "ibhc", ATTN_SLOT_QUERIES, ATTN_WIDTH_D},
    [ATTN_T_DK] = {"dk", "bhci", ATTN_SLOT_KEYS, ATTN_WIDTH_D},
    [ATTN_T_DV] = {"dv", "hibc", ATTN_SLOT_KEYS, ATTN_WIDTH_DV},
    [ATTN_T_DBIAS] = {"dbias", "ihbc", ATTN_SLOT_QUERIES, ATTN_WIDTH_KEYS},
    [ATTN_T_DSINK] = {"dsink", "bhic", ATTN_SLOT_HEADS, ATTN_WIDTH_ONE},
};

int attn_case_has(const struct attn_case *c, int slot)
{
    const int is_backward = c->pass == ATTN_BACKWARD;
    switch ((enum attn_slot)slot) {
    case ATTN_T_BIAS:
        return c->bias > ATTN_CASE_BIAS_ALIBI;
    case ATTN_T_SINK:
        return c->sink != ATTN_CASE_SINK_NONE;
    case ATTN_T_DLSE:
        return c->d_lse;
    case ATTN_T_DO:
    case ATTN_T_DQ:
    case ATTN_T_DK:
        return is_backward;
    case ATTN_T_DV:
        return is_backward && !c->kv_shared;
    case ATTN_T_DBIAS:
        return c->d_bias;
    case ATTN_T_DSINK:
        return is_backward && c->sink != ATTN_CASE_SINK_NONE;
    default:
        return 1;
    }
}

void attn_slot_extents(const struct attn_case *c, int slot, int64_t extent[4])
{
    const int64_t width[] = {[ATTN_WIDTH_D] = c->d_key,
                             [ATTN_WIDTH_DV] = c->d_value,
                             [ATTN_WIDTH_ONE] = 1,
                             [ATTN_WIDTH_KEYS] = c->n_key};
    const int keys = attn_slot[slot].rows == ATTN_SLOT_KEYS;
    const int heads = attn_slot[slot].rows == ATTN_SLOT_HEADS;
    extent[0] = heads ? 1 : c->batch;
    extent[1] = keys ? c->kv_heads : c->heads;
    extent[2] = heads ? 1 : keys ? c->n_key : c->n_query;
    extent[3] = width[attn_slot[slot].width];
}

struct attn_case attn_slot_case(const struct attn_case *c, int slot)
{
    struct attn_case own = *c;
    if (c->only != 0 && c->only != slot + 1) {
        own.layout = ATTN_LAYOUT_BHLD;
        own.offset = 0;
    }
    return own;
}
