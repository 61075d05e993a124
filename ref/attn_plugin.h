/* The plug-in interface: how attnlab calls an implementation that it knows nothing about.
 *
 * A plug-in is a shared object with one function, attn_plugin_get(), that returns a constant of
 * struct attn_plugin.  This header is all it needs: C11 or C++, nothing to link.
 *
 *      gcc -O2 -shared -fPIC -o mine.so mine.c -lm          attnlab check --plugin ./mine.so
 *
 * A plug-in computes (ref/attn.h is the contract in full):
 *
 *      S = bias(softcap(scale * Q K^T)),   P = softmax over the visible keys,   O = P V,
 *      LSE_i = ln sum_j exp S_ij           softcap(s) = c tanh(s / c)
 *
 * With a sink z of each head, exp z is one more term of the sum: in LSE and in the softmax's
 * divisor, not in O.
 *
 * Shapes     q [B,H,Lq,d]   k [B,G,Lk,d]   v [B,G,Lk,dv]   o [B,H,Lq,dv]   lse [B,H,Lq]
 *            Query head h reads kv head h / (H/G).
 *
 * The plug-in says what it claims.  Each claim is tested, and a claim that no case tests is an
 * error; what is not claimed is never asked.  Conventions that differ from attnlab's are declared,
 * not converted by hand.  docs/external.md says what the verdicts mean.
 *
 * It runs in a process of its own, one call at a time, on one thread.  It may print, allocate and
 * start threads; it must not write to its inputs or outside its outputs.  Outputs are written
 * whole and never read: they are born as NaN.
 */
#ifndef REF_ATTN_PLUGIN_H
#define REF_ATTN_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_PLUGIN_ABI 2 /* grows when a plug-in built against an older header must be rebuilt */

/* The claims, of plug-ins and of attnlab's own implementations.  A plug-in that claims F32 alone is
 * asked for plain O and LSE of square f32 problems with d = dv, scale 1/sqrt(d), no mask, in
 * [B,H,L,d]. */
enum attn_cap {
    ATTN_CAP_F64 = 1 << 0, /* storage types: f64 is computed in f64, others in f32   */
    ATTN_CAP_F32 = 1 << 1,
    ATTN_CAP_BF16 = 1 << 2,
    ATTN_CAP_F16 = 1 << 3,
    ATTN_CAP_BACKWARD = 1 << 4, /* backward() is there                                    */
    ATTN_CAP_GQA = 1 << 5,      /* G < H                                                  */
    ATTN_CAP_CROSS = 1 << 6,    /* Lq and Lk differ                                       */
    ATTN_CAP_DV = 1 << 7,       /* d and dv differ                                        */
    ATTN_CAP_MASK = 1 << 8,     /* attnlab's own alone: any mask                          */
    ATTN_CAP_HARD = 1 << 9,     /* K and V rows that no query sees may be NaN             */
    ATTN_CAP_SOFTCAP = 1 << 10,
    ATTN_CAP_ALIBI = 1 << 11,
    ATTN_CAP_BIAS = 1 << 12,     /* a bias tensor, broadcast by strides of 0; -inf hides   */
    ATTN_CAP_DBIAS = 1 << 13,    /* and its gradient, summed where the bias is broadcast   */
    ATTN_CAP_DLSE = 1 << 14,     /* a gradient that arrives through LSE                    */
    ATTN_CAP_STRIDES = 1 << 15,  /* any strides; without it contiguous in `layout`         */
    ATTN_CAP_SCALE = 1 << 16,    /* any scale; without it 1/sqrt(d)                        */
    ATTN_CAP_EMPTY = 1 << 17,    /* rows that see no key (O = 0), and extents of 0         */
    ATTN_CAP_BAND = 1 << 18,     /* causal and window masks, as three numbers; implies CAUSAL */
    ATTN_CAP_DENSE = 1 << 19,    /* masks that come as no numbers: a byte for each pair    */
    ATTN_CAP_REPEATS = 1 << 20,  /* the same call gives the same bits, whatever ran before */
    ATTN_CAP_CAUSAL = 1 << 21,   /* causal masks, as numbers; offset 0 where Lq = Lk       */
    ATTN_CAP_WIDE = 1 << 22,     /* attnlab's own alone: bf16 and f16 with o, dq, dk, dv as f32 */
    ATTN_CAP_SINK = 1 << 23,     /* a learned sink, and with BACKWARD its gradient         */
    ATTN_CAP_KV_SHARED = 1 << 24 /* v is a view of k, and dk the gradient of both         */
};

/* Inputs that may be declined although the claims above ask for them (attn_plugin.declines). */
enum attn_plugin_decline {
    ATTN_PLUGIN_NAN_BIAS = 1 << 0,  /* NaN in a bias                      (BIAS and HARD)     */
    ATTN_PLUGIN_NAN_Q = 1 << 1,     /* NaN in q of rows that see no key   (EMPTY and HARD)    */
    ATTN_PLUGIN_NAN_DO = 1 << 2,    /* NaN in dO of rows that see no key  (EMPTY and HARD)    */
    ATTN_PLUGIN_SCALE_0 = 1 << 3,   /* a scale of 0 or below              (SCALE)             */
    ATTN_PLUGIN_NONFINITE = 1 << 4, /* NaN or infinities in q, k, v, dO that are seen        */
    ATTN_PLUGIN_UNMASKED = 1 << 5,  /* no mask: cases without one are asked causal           */
    ATTN_PLUGIN_CAUSAL_BACKWARD = 1 << 6, /* gradients of masks that come as numbers         */
    ATTN_PLUGIN_FEW_SHAPES = 1 << 7       /* more than 40 different shapes in a tier         */
};

/* Conventions; 0 is attnlab's own. */
enum attn_plugin_lse { ATTN_PLUGIN_LSE_E, ATTN_PLUGIN_LSE_2, ATTN_PLUGIN_LSE_ABSENT };
enum attn_plugin_empty_lse {
    ATTN_PLUGIN_EMPTY_MINUS_INF,
    ATTN_PLUGIN_EMPTY_PLUS_INF,
    ATTN_PLUGIN_EMPTY_0
};
enum attn_plugin_causal {
    ATTN_PLUGIN_CAUSAL_ANY,
    ATTN_PLUGIN_CAUSAL_TL,
    ATTN_PLUGIN_CAUSAL_BR,
    ATTN_PLUGIN_CAUSAL_SQUARE /* only where Lq = Lk, so that both ends are one */
};
enum attn_plugin_window { ATTN_PLUGIN_WINDOW_BESIDE, ATTN_PLUGIN_WINDOW_WITH_SELF };
enum attn_plugin_layout {
    ATTN_PLUGIN_BHLD,
    ATTN_PLUGIN_BLHD,
    ATTN_PLUGIN_SBHD, /* [L,B,H,d] */
    /* Documents one behind the other, [T,H,d], lse [H,T]; the same with padding between them, which
     * is NaN; and K and V in pages, q and o as BLHD, forward alone.  See the call's last fields. */
    ATTN_PLUGIN_THD,
    ATTN_PLUGIN_THD_PADDED,
    ATTN_PLUGIN_PAGED
};
enum attn_plugin_byte { ATTN_PLUGIN_ONE_IS_VISIBLE, ATTN_PLUGIN_ONE_IS_HIDDEN };
enum attn_plugin_subnormals { ATTN_PLUGIN_KEPT, ATTN_PLUGIN_FLUSHED, ATTN_PLUGIN_FLUSHED_16 };

/* A tensor.  extent and stride run over batch, head, token, feature, whatever the layout; strides
 * count elements.  data == NULL: there is no such tensor in this call. */
struct attn_plugin_in {
    const void *data;
    int64_t extent[4], stride[4];
};
struct attn_plugin_out {
    void *data;
    int64_t extent[4], stride[4];
};

/* Storage of q, k, v, o, dO, dQ, dK, dV.  lse, dlse, bias and dbias are f64 for f64, else f32. */
enum attn_plugin_dtype {
    ATTN_PLUGIN_IS_F64,
    ATTN_PLUGIN_IS_F32,
    ATTN_PLUGIN_IS_BF16,
    ATTN_PLUGIN_IS_F16
};

/* One call. */
struct attn_plugin_call {
    uint32_t struct_size; /* of this struct as attnlab knows it: later versions append    */
    int32_t dtype;        /* enum attn_plugin_dtype                                       */
    int64_t batch, heads, kv_heads, n_query, n_key, d_key, d_value;
    double scale, softcap; /* softcap 0: none                                             */

    /* CAUSAL and BAND, when banded is 1: query i sees key j if
     *     i + offset - window_left <= j <= i + offset + window_right      (-1: no end there)
     * causal is 1 where window_right ends at the query.  offset: 0 is top left, Lk - Lq bottom
     * right; if only one of them is declared, only that one comes, and without BAND no other.
     * WINDOW_WITH_SELF: both counts are one larger. */
    int32_t banded, causal;
    int64_t offset, window_left, window_right;

    /* DENSE: bytes [B,H,Lq,Lk], contiguous.  With data == NULL and banded == 0 there is no mask. */
    struct attn_plugin_in mask;

    const double *alibi_slope; /* [H] or NULL: add -slope[h] * |i + alibi_offset - j| to S */
    int64_t alibi_offset;

    struct attn_plugin_in q, k, v, bias; /* bias: added to S after softcap                */
    struct attn_plugin_out o, lse;       /* forward writes them; lse NULL when absent     */

    struct attn_plugin_in o_in, lse_in, d_o, d_lse; /* backward: what forward wrote ...   */
    struct attn_plugin_out dq, dk, dv, dbias;       /* ... and what backward writes       */

    char *message; /* room for one line of message_size bytes that says why not           */
    size_t message_size;

    struct attn_plugin_in sink;   /* SINK: [1,H,1,1], of LSE's type; without data where none is */
    struct attn_plugin_out dsink; /* and its gradient, summed over batches and queries    */

    /* KV_SHARED: 1 where v has the data and strides of k, of which it is the first d_value
     * features; d_value <= d_key.  Backward then writes dk, with the gradient of v added to these
     * features; dv is without data. */
    int32_t kv_shared;

    /* THD: tensors of tokens are one batch entry of all tokens: extents are 1, H, T, d.  batch,
     * n_query and n_key remain those of the case.  Document t has queries cu_seqlens_q[t] up to
     * [t + 1], and keys likewise; band and ALiBi count inside each, mask is [1,H,Tq,Tk].
     * THD_PADDED: it begins at cu_seqlens_q_padded[t] and has as many tokens.  [n_documents + 1] */
    int64_t n_documents;
    const int32_t *cu_seqlens_q, *cu_seqlens_k, *cu_seqlens_q_padded, *cu_seqlens_k_padded;

    /* PAGED: k and v are pages, [pages,page,G,d]: extent[0] counts them, extent[2] their slots.
     * Key j < lengths[b] <= n_key of sequence b is slot j % page of page
     * page_table[b * table_pages + j / page].  Other slots are NaN; two sequences may share a page.
     * A band stands at the end of each sequence: its offset is offset + lengths[b] - n_key. */
    int64_t table_pages;
    const int32_t *page_table, *lengths; /* [B, table_pages], [B] */
};

/* The results of forward and backward.  REFUSED, with a message: this case is claimed, but there is
 * no code for it, and why.  It is counted and listed by its reason, and is never a pass. */
enum {
    ATTN_PLUGIN_OK = 0,
    ATTN_PLUGIN_FAILED = 1, /* a verdict: FAIL(status) */
    ATTN_PLUGIN_REFUSED = 2
};

/* ---- ranks ------------------------------------------------------------------------------------
 *
 * A plug-in may be one rank of `ranks` that share the sequence (docs/parallel.md).  Rank r has
 * the r-th of as many equal runs of queries and of keys, and talks by messages: post() begins to
 * send and receive and returns at once; wait() returns when that is done (MPI_Isend and MPI_Irecv,
 * then MPI_Waitall).  Nothing is buffered: data stay until wait, and a send is done when its
 * receiver is there.  Two ranks match their messages in the order of posting, by tensor, step and
 * bytes. */
enum attn_plugin_tensor {
    ATTN_PLUGIN_OF_Q,
    ATTN_PLUGIN_OF_K,
    ATTN_PLUGIN_OF_V,
    ATTN_PLUGIN_OF_O,
    ATTN_PLUGIN_OF_LSE,
    ATTN_PLUGIN_OF_DO,
    ATTN_PLUGIN_OF_DELTA,
    ATTN_PLUGIN_OF_DQ,
    ATTN_PLUGIN_OF_DK,
    ATTN_PLUGIN_OF_DV,
    ATTN_PLUGIN_TENSORS
};
struct attn_plugin_message {
    int32_t peer;         /* the other rank */
    int32_t tensor, step; /* enum attn_plugin_tensor; the hop, from 0 to 9,999 */
    void *data;           /* of a send, only read */
    int64_t bytes;
};

struct attn_plugin_rank {
    uint32_t struct_size;
    int32_t rank, ranks;
    int64_t first_query, first_key; /* where its tokens begin in the whole */

    /* Its part: n_query and n_key are its own, tensors are contiguous [B,H,tokens,width].  Mask and
     * ALiBi speak of the tokens of the whole: `mask`, where there is one, is that of all pairs. */
    const struct attn_plugin_call *call;

    /* A post's number from 0, to be waited for; -1, or not 0 from wait: it failed, and so does the
     * call.  At most 16 posts of 8 messages are open at a time. */
    int (*post)(const struct attn_plugin_rank *rank, const struct attn_plugin_message *send,
                int n_sends, const struct attn_plugin_message *receive, int n_receives);
    int (*wait)(const struct attn_plugin_rank *rank, int post);
    void *transport; /* attnlab's */
};

struct attn_plugin {
    uint32_t abi;         /* ATTN_PLUGIN_ABI                                              */
    uint32_t struct_size; /* sizeof(struct attn_plugin)                                   */
    const char *name;
    uint32_t claims; /* enum attn_cap, or-ed                                     */

    int32_t lse, empty_lse, causal, window, layout, byte; /* conventions, see above       */

    /* Declared precisions: all that the error bound knows about the arithmetic.  0 everywhere is
     * plain f32 (f64 for f64) throughout, with every row summed in one go. */
    double u;        /* unit roundoff of sums for f32 and narrower; 0: 2^-24              */
    double u_p;      /* of probabilities, if they are rounded on the way; 0: they are not */
    double exp_ulps; /* error of exp and log, in u; 0: 4                                  */
    int64_t block;   /* keys between two rescalings of a running sum; 0: no running sum   */

    int (*forward)(const struct attn_plugin_call *call);
    int (*backward)(const struct attn_plugin_call *call); /* NULL without BACKWARD */

    int32_t subnormals; /* FLUSHED: they may count as 0, read or written (-ffast-math);
                           FLUSHED_16: those of f16 too                                   */
    uint32_t declines;  /* enum attn_plugin_decline, or-ed                                */

    /* Conditions on shapes, by extent: d, dv, heads, group, batch, queries, keys and window, such
     * as "d: 8..256 step 8; group: 1 2 4 8".  NULL: none. */
    const char *shapes;
    const char *arithmetic; /* "f32", "fused-16", "fa4", "unfused-16", "tf32"; NULL: the numbers */

    /* Above 0: forward and backward are not called, but these, on `ranks` ranks at once, each in a
     * thread of its own.  Layout BHLD, no bias tensor; queries and keys come in multiples of ranks.
     * A merge for each rank but one is in the bound. */
    int32_t ranks;
    int (*rank_forward)(const struct attn_plugin_rank *rank);
    int (*rank_backward)(const struct attn_plugin_rank *rank); /* NULL without BACKWARD */

    /* More of what is rounded, as u_p above; 0: it is not, or as `arithmetic` has it. */
    double u_sum;     /* of sums of products                                                  */
    double u_q, u_v;  /* of q and k, of v and dO, as products take them                       */
    double u_s, u_dp; /* of stored scores and dP; u_dp 0: as u_s                              */
    double u_ds;      /* of dS; 0: as u_p                                                     */
    double u_partial; /* of partial results of splits, and partial gradients                  */
    double u_head;    /* of dK and dV of each query head, before a group's are summed         */
    int64_t splits;   /* parts of the keys that are merged by their LSE; 0: none              */

    /* Masks are additive: a hidden score is a number, so much below what it would be (as 32768);
     * 0: it is -inf.  Rows that see no key are then not judged. */
    double hidden;

    int64_t page; /* PAGED: tokens of a page; 0: 16, 64 and 256 */
};

/* The one symbol of a plug-in.  Its result must stay valid. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct attn_plugin *
attn_plugin_get(void);

#ifdef __cplusplus
}
#endif
#endif
