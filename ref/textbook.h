/* What the readable implementations share besides textbook_tmpl.h: what they claim, and the bias
 * gradient. */
#ifndef REF_TEXTBOOK_H
#define REF_TEXTBOOK_H

#include "ref/impl.h"
#include "ref/problem.h"

/* Everything in the contract but 16-bit storage. */
#define ATTN_TEXTBOOK_CAPS                                                             \
    (ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_GQA | ATTN_CAP_CROSS | \
     ATTN_CAP_DV | ATTN_CAP_MASK | ATTN_CAP_HARD | ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI | \
     ATTN_CAP_BIAS | ATTN_CAP_DBIAS | ATTN_CAP_DLSE | ATTN_CAP_STRIDES)

/* dbias[b,h,i,j] += x: along an axis where the bias is broadcast (stride 0) gradients sum. */
void attn_view_add(const struct attn_view *view, int64_t b, int64_t h, int64_t i, int64_t j,
                   double x);

/* dbias = 0, where there is one. */
void attn_dbias_clear(const struct attn_problem *p, const struct attn_view *dbias);

extern const struct attn_impl attn_impl_dense, attn_impl_csr_textbook, attn_impl_tiled_textbook;

#endif
