/* What the parts of a point on processes share.  See point_ranks.h. */
#include "experiments/measure/ranks/point_ranks.h"

enum attn_slot attn_slot_of_kind(enum attn_tag_kind kind)
{
    static const enum attn_slot slot[ATTN_TAG_KINDS] = {
        [ATTN_TAG_Q] = ATTN_T_Q,        [ATTN_TAG_K] = ATTN_T_K,     [ATTN_TAG_V] = ATTN_T_V,
        [ATTN_TAG_O] = ATTN_T_O,        [ATTN_TAG_LSE] = ATTN_T_LSE, [ATTN_TAG_DO] = ATTN_T_DO,
        [ATTN_TAG_DELTA] = ATTN_T_DLSE, [ATTN_TAG_DQ] = ATTN_T_DQ,   [ATTN_TAG_DK] = ATTN_T_DK,
        [ATTN_TAG_DV] = ATTN_T_DV};
    return slot[kind];
}

enum attn_status attn_point_settle(struct attn_point_member *m, enum attn_status status)
{
    struct attn_error own = *m->err, theirs;
    own.status = status;
    enum attn_status first = ATTN_OK, shared = ATTN_OK;
    for (int r = 0; r < m->runner->size && shared == ATTN_OK; r++) {
        theirs = own;
        shared = m->runner->share(m->runner->state, r, &theirs, sizeof theirs, m->err);
        if (shared == ATTN_OK && first == ATTN_OK && theirs.status != ATTN_OK)
            first = attn_fail(m->err, theirs.status, "%s", theirs.text);
    }
    return shared != ATTN_OK ? shared : first;
}
