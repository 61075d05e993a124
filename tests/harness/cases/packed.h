/* Packed batches (THD): documents one behind the other, without padding, as variable-length kernels
 * take them.
 *
 *      q [Tq,H,d]   k [Tk,G,d]   v [Tk,G,dv]   o [Tq,H,dv]   lse [H,Tq]
 *      cu_seqlens_q, cu_seqlens_k [n+1]: document t has queries [q[t],q[t+1]), keys [k[t],k[t+1])
 *
 * A case becomes such a batch by cutting it: every batch entry is a document, or, where the mask is
 * documents(...) (band.h), several of uneven length.  The mask that is left speaks of each document
 * by itself; bytes speak of all tokens, and hide what lies in other documents too.
 */
#ifndef TESTS_HARNESS_CASES_PACKED_H
#define TESTS_HARNESS_CASES_PACKED_H

#include "tests/harness/cases/claims.h"
#include "tests/harness/files/files.h"

/* cu_seqlens_q and cu_seqlens_k of a case, I32, their data malloc'ed. */
enum attn_status attn_packed_starts(const struct attn_claims *claims,
                                    const struct attn_problem *problem,
                                    struct attn_file_tensor starts[2], struct attn_error *err);

/* The mask as bytes over all tokens, [1,H,Tq,Tk]: `visible`, or 1 - visible. */
enum attn_status attn_packed_bytes(const struct attn_problem *problem, unsigned char visible,
                                   struct attn_file_tensor *mask, struct attn_error *err);

/* Where things are in a file, in any layout.  n: the extents b, h, row, feature. */
enum attn_packed_kind { ATTN_PACKED_TOKENS, ATTN_PACKED_LSE, ATTN_PACKED_BIAS };
void attn_packed_extents(const struct attn_claims *claims, enum attn_packed_kind kind,
                         const int64_t n[4], struct attn_file_tensor *to);

/* Which row of features of the file is row i of head h of batch entry b. */
int64_t attn_packed_row(const struct attn_claims *claims, enum attn_packed_kind kind,
                        const int64_t n[4], int64_t b, int64_t h, int64_t i);

#endif
