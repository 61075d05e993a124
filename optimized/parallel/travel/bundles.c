/* See bundles.h. */
#include "optimized/parallel/travel/bundles.h"

#include "ref/problem.h"

int attn_bundle_kinds(enum attn_pass pass, enum attn_bundle what, const enum attn_tag_kind **kinds)
{
    static const enum attn_tag_kind kind[2][4][4] = {
        {{ATTN_TAG_K, ATTN_TAG_V}, {0}, {ATTN_TAG_Q}, {ATTN_TAG_O, ATTN_TAG_LSE}},
        {{ATTN_TAG_K, ATTN_TAG_V},
         {ATTN_TAG_DK, ATTN_TAG_DV},
         {ATTN_TAG_LSE, ATTN_TAG_DELTA, ATTN_TAG_DO, ATTN_TAG_Q},
         {ATTN_TAG_DQ}}};
    static const int count[2][4] = {{2, 0, 1, 2}, {2, 2, 4, 1}};
    *kinds = kind[pass][what];
    return count[pass][what];
}

enum attn_dtype attn_work_travel_dtype(const struct attn_work *w, enum attn_tag_kind kind)
{
    int is_sum = w->passes_on && attn_tag_is_of_keys(kind);
    switch (kind) {
    case ATTN_TAG_O:
    case ATTN_TAG_DQ:
    case ATTN_TAG_DK:
    case ATTN_TAG_DV:
        return is_sum ? attn_lse_dtype(w->whole) : attn_work_partial_dtype(w, kind);
    default:
        return attn_tag_dtype(kind, w->whole);
    }
}
