/* The contract: what attention is, and how it is called.  The parts of an implementation stand in
 * ref/impl.h.
 *
 *      S   = bias(softcap(scale * Q K^T))         softcap(s) = cap tanh(s / cap)
 *      P   = softmax over the keys that the mask lets a query see
 *      O   = P V                                  LSE_i = ln sum_j exp S_ij
 *
 * in exactly this order: scale, softcap, bias, mask, softmax.  A query that sees no key has
 * O = 0, LSE = -inf and zero gradient; its q, o and dO are not read.  Masks hide hard: what is at a
 * hidden pair never matters, NaN and infinities included.
 *
 * Sink       A number z_h of each query head, learned: a key that every query sees, of score z_h
 *            and value 0.  P_ij = exp S_ij / l_i with l_i = sum_j exp S_ij + exp z_h, and
 *            LSE_i = ln l_i.  It is not scaled, capped or masked.  A query that sees no key has
 *            O = 0 and LSE = z_h; its dLSE is then read.  z_h = -inf is no sink, and has gradient
 *            0; +inf is refused; NaN propagates.
 *
 * Shared K   V may be a view of K: the first dv features of each key (DeepSeek's absorbed form has
 *            d = 576 and dv = 512; others have dv = d).  Then the gradient is one tensor too,
 *            dK[j] = scale sum_i dS_ij q_i, and in its first dv features + sum_i P_ij dO_i.
 *
 * Not finite IEEE arithmetic of the formulas, at visible pairs: where it gives NaN or an infinity,
 *            so does an implementation.  Open is, for each element that depends on it, what comes
 *            of
 *            - a value that is not finite and whose weight may underflow to 0: 0 * inf is NaN, and
 *              code that skips zeros has a finite result;
 *            - a score of +inf: O and the gradients of the row are NaN, its LSE is NaN or +inf;
 *            - scores that are all -inf, but not by a bias: NaN, or a row that sees no key.
 * Bias       A number that is added, after the softcap.  NaN propagates, +inf is refused, and -inf
 *            hides: the weight is exactly 0, and a query with nothing but -inf sees no key.  But a
 *            NaN or an infinity in q, k, v or dO that only a bias of -inf hides may show as NaN.
 * Domain     Below 2^126 (f64: 2^1022) stay |scale| sum|q_c| sum|k_c|, each factor taken as 1 where
 *            it is less; positive biases; 16 times the sum of the |v| that a query sees; sums of
 *            |dO_c v_c|; the sums behind dQ.  The largest numbers are 2^128 and 2^1024: the rest is
 *            for a factor of log2 e, partial sums, and weights that are not normalised yet.  The
 *            largest score of a row is above -2^126: a finite bias below that may be as good as
 *            -inf.  Nothing is promised of results that depend on more.
 *
 * Shapes     q [B,H,Lq,d]   k [B,G,Lk,d]   v [B,G,Lk,dv]   o [B,H,Lq,dv]   lse [B,H,Lq]
 *            Query head h reads kv head h / (H/G).  Any extent may be 0; with d = 0 every raw
 *            score is 0.
 * Letters    b batch, h head, i query, j key, c feature; m running max, l running sum.
 * Sources    Vaswani et al. 2017 (eq. 1); Dao, FlashAttention-2, 2023 (forward: alg. 1,
 *            backward: alg. 2); Gemma 2 report, 2024 (softcap); Press et al. 2022 (ALiBi).
 *
 * Nothing here allocates behind the caller's back, prints, exits or keeps mutable global state.
 */
#ifndef REF_ATTN_H
#define REF_ATTN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct attn_mask;     /* ref/mask/mask.h: which pairs are visible */
struct attn_ledger;   /* ref/ledger.h: where every byte comes from */
struct attn_impl;     /* ref/impl.h: an implementation, */
struct attn_options;  /* its options, */
struct attn_cost;     /* its cost, */
struct attn_rank_use; /* the use of one of its ranks, */
struct attn_seal;     /* the memory that ranks may read, */
struct attn_log;      /* the log of their messages, */
struct attn_tracer;   /* the tracer of steps, */
struct attn_saved;    /* and the data that a forward pass keeps for the backward one */

/* ---- failure ------------------------------------------------------------------------------ */

enum attn_status {
    ATTN_OK = 0,
    ATTN_EINVAL,   /* the request contradicts this contract                             */
    ATTN_ENOTSUP,  /* legal, but not claimed by the implementation                      */
    ATTN_ENOMEM,   /* the ledger could not, or was told not to, provide a buffer        */
    ATTN_EPEER,    /* sequence parallel: another rank failed, or none can make progress    */
    ATTN_EINTERNAL /* an invariant of the library was broken: a bug of ours             */
};

/* One line that says what was asked, why not, and what would work. */
struct attn_error {
    enum attn_status status;
    char text[512];
};

/* Record a failure and return its status; every failure of the library passes through here,
 * so one breakpoint catches them all.  err may be NULL. */
enum attn_status attn_fail(struct attn_error *err, enum attn_status status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;
const char *attn_status_name(enum attn_status status); /* "ok", "invalid", "refused", ... */

/* ---- tensors ------------------------------------------------------------------------------ */

/* Storage types.  Arithmetic is double for f64 and float for the others. */
enum attn_dtype { ATTN_F64, ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_U8 };
enum { ATTN_DTYPES = 4 }; /* of tensors; u8 is of a mask that ranks send */

const char *attn_dtype_name(enum attn_dtype dtype); /* "f64", "f32", "bf16", "f16", "u8" */
size_t attn_dtype_size(enum attn_dtype dtype);      /* bytes */
double attn_dtype_roundoff(enum attn_dtype dtype);  /* u = half the spacing at 1 */

/* A tensor that the caller owns.  Strides count elements, in the order batch, head, token,
 * feature; lse has no feature axis.  Any stride may be 0 on an input (broadcast); on an output
 * a stride of 0 over an extent above 1 is refused.  data == NULL: the tensor is absent. */
struct attn_view {
    void *data;
    enum attn_dtype dtype;
    int64_t stride[4];
};
struct attn_cview {
    const void *data;
    enum attn_dtype dtype;
    int64_t stride[4];
};

struct attn_forward {
    struct attn_cview q, k, v;
    struct attn_view o, lse; /* written, never read; lse is f64 for f64 problems, else f32.  o
                                may be f32 in a bf16 or f16 problem: then it is not rounded to
                                storage, which partial results need (ATTN_CAP_WIDE)        */
};

struct attn_backward {
    struct attn_cview q, k, v, o, lse, d_o; /* o and lse as the forward gave them; o may be
                                               f32, as above                                 */
    struct attn_cview d_lse;                /* optional: gradient with respect to LSE        */
    struct attn_view dq, dk, dv;            /* written, never read; each may be f32, as above */
    struct attn_view dbias;                 /* optional, [B,H,Lq,Lk] in the bias's own shape:
                                               stride 0 where the bias has stride 0, and there
                                               the gradient is summed                        */
    struct attn_view dsink;                 /* optional, [1,H,1,1]: summed over batches and
                                               queries; stored as the sink is                */
};

/* ---- the problem -------------------------------------------------------------------------- */

enum attn_bias_kind { ATTN_BIAS_NONE, ATTN_BIAS_TENSOR, ATTN_BIAS_ALIBI };

struct attn_bias {
    enum attn_bias_kind kind;
    struct attn_cview tensor; /* TENSOR: [B,H,Lq,Lk], stride 0 broadcasts; f32 or f64        */
    const double *slope;      /* ALIBI: [H]; bias = -slope[h] * |i + offset - j|             */
    int64_t offset;           /* ALIBI: key position of query 0 (Lk - Lq is "bottom right")   */
};

struct attn_sink {
    int given;
    struct attn_cview tensor; /* [1,H,1,1], f32 or f64 */
};

/* Where the tokens of a piece sit in the whole sequence: token i of batch b is number
 * first + (1 + skip) * i + by_batch * b.  Contiguous: skip 0.  A stripe of R ranks: skip R-1.  A
 * video [T,S] with a batch for each place of a frame (temporal attention): skip S-1, by_batch 1. */
struct attn_positions {
    int64_t first, skip, by_batch;
};

/* Which piece of the whole problem that mask and bias speak of this problem is.  All zero for a
 * whole problem; a rank of a sequence-parallel scheme sets it. */
struct attn_origin {
    int64_t batch, head; /* the first ones */
    struct attn_positions query, key;
    int64_t one_batch; /* 1: all batches of the piece lie in one batch of the whole */
};

struct attn_problem {
    int64_t batch, heads, kv_heads, n_query, n_key, d_key, d_value;
    double scale;
    double softcap; /* cap; 0 = none */
    enum attn_dtype dtype;
    const struct attn_mask *mask; /* NULL: every pair is visible */
    struct attn_bias bias;
    struct attn_sink sink;
    int kv_shared; /* 1: v is k, of which it has the first d_value features: same data, same
                      strides; and dv is dk, which gets the sum of both gradients */
    struct attn_origin origin;
    int scattered; /* the features of some tensor are not adjacent in memory.  For prices only: a
                      call finds it out from its tensors */
    int wide;      /* o, dq, dk, dv of a bf16 or f16 problem are f32.  For prices and bounds: a call
                      goes by the views of its tensors */
};

enum attn_pass { ATTN_FORWARD, ATTN_BACKWARD };
const char *attn_pass_name(enum attn_pass pass); /* "fwd", "bwd" */

/* ---- calling one -------------------------------------------------------------------------- */

/* The things that one call may use. */
struct attn_ctx {
    struct attn_ledger *ledger;
    const struct attn_options *options;
    struct attn_error *error;
    struct attn_rank_use *ranks;      /* NULL, or room for as many ranks as the spec has */
    const struct attn_seal *seal;     /* NULL: ranks may read everything */
    struct attn_saved *saved;         /* NULL: nothing outlives a call */
    const struct attn_log *log;       /* NULL, or where every message between ranks is noted */
    const struct attn_tracer *tracer; /* NULL, or is called when a textbook's step ends */
    int has_shards;  /* tensors are the shards of this process's rank (attn_options.runner), packed
                        [batches, heads, tokens, width], and not whole ones */
    int counts_only; /* ranks post their messages and give back their buffers, but compute nothing:
                        tensors are neither read nor written.  Ranks that are processes send what
                        their buffers happen to hold.  EINVAL for one process */
};

/* Every precondition of the contract, tested once, here; implementations rely on it. */
enum attn_status attn_problem_check(const struct attn_problem *problem, struct attn_error *err);

/* May this be asked of the implementation?  Problem, tensors, capabilities and accepts(): EINVAL
 * when it contradicts the contract, ENOTSUP when it is not claimed. */
enum attn_status attn_check_forward(const struct attn_impl *impl,
                                    const struct attn_options *options,
                                    const struct attn_problem *problem,
                                    const struct attn_forward *t, struct attn_error *err);
enum attn_status attn_check_backward(const struct attn_impl *impl,
                                     const struct attn_options *options,
                                     const struct attn_problem *problem,
                                     const struct attn_backward *t, struct attn_error *err);

/* The same checks, and that ctx->saved is empty before a forward pass, and before a backward one
 * empty or its own; then run.  The outputs are complete on ATTN_OK and unspecified otherwise. */
enum attn_status attn_run_forward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                  const struct attn_problem *problem, const struct attn_forward *t);
enum attn_status attn_run_backward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                   const struct attn_problem *problem,
                                   const struct attn_backward *t);

/* The same checks, but for the storage type, in which impl need not run (attn_cost.lacks); then
 * cost().  Allocates nothing, for problems of any size. */
enum attn_status attn_price(const struct attn_impl *impl, const struct attn_options *options,
                            const struct attn_problem *problem, enum attn_pass pass, int rank,
                            struct attn_cost *cost, struct attn_error *err);

#ifdef __cplusplus
}
#endif
#endif
