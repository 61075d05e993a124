/* The contract: what attention is, what an implementation promises, what a caller owes.
 *
 *      S   = bias(softcap(scale * Q K^T))         softcap(s) = c tanh(s / c)
 *      P   = softmax over the keys that the mask lets a query see
 *      O   = P V                                  LSE_i = ln sum_j exp S_ij
 *
 * in exactly this order: scale, softcap, bias, mask, softmax.  A query that sees no key has
 * O = 0, LSE = -inf and zero gradient; its q, o and dO are not read.  Masks hide hard: what is at a
 * hidden pair never matters, NaN and infinities included.
 *
 * Not finite IEEE arithmetic of the formulas, at visible pairs: where it gives NaN or an infinity,
 *            so does an implementation.  Open is, for each element that depends on it, what comes
 *            of
 *            - a value that is not finite and whose weight may underflow to 0: 0 * inf is NaN, and
 *              who skips zeros has a finite result;
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

struct attn_mask;   /* ref/mask.h: which pairs are visible */
struct attn_ledger; /* ref/ledger.h: where every byte comes from */

/* ---- failure ------------------------------------------------------------------------------ */

enum attn_status {
    ATTN_OK = 0,
    ATTN_EINVAL,   /* the request contradicts this contract                             */
    ATTN_ENOTSUP,  /* legal, but not claimed by the implementation                      */
    ATTN_ENOMEM,   /* the ledger could not, or was told not to, provide a buffer        */
    ATTN_EPEER,    /* sequence parallel: another rank failed, or nobody can make progress */
    ATTN_EINTERNAL /* a promise inside the library was broken: a bug of ours            */
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
enum attn_dtype { ATTN_F64, ATTN_F32, ATTN_BF16, ATTN_F16 };
enum { ATTN_DTYPES = 4 };

const char *attn_dtype_name(enum attn_dtype dtype); /* "f64", "f32", "bf16", "f16" */
size_t attn_dtype_size(enum attn_dtype dtype);      /* bytes */
double attn_dtype_roundoff(enum attn_dtype dtype);  /* u = half the spacing at 1 */

/* A tensor somebody else owns.  Strides count elements, in the order batch, head, token,
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
    struct attn_view o, lse; /* written, never read; lse is f64 for f64 problems, else f32 */
};

struct attn_backward {
    struct attn_cview q, k, v, o, lse, d_o; /* o and lse as the forward gave them            */
    struct attn_cview d_lse;                /* optional: gradient with respect to LSE        */
    struct attn_view dq, dk, dv;            /* written, never read                           */
    struct attn_view dbias;                 /* optional, [B,H,Lq,Lk] in the bias's own shape:
                                               stride 0 where the bias has stride 0, and there
                                               the gradient is summed                        */
};

/* ---- the problem -------------------------------------------------------------------------- */

enum attn_bias_kind { ATTN_BIAS_NONE, ATTN_BIAS_TENSOR, ATTN_BIAS_ALIBI };

struct attn_bias {
    enum attn_bias_kind kind;
    struct attn_cview tensor; /* TENSOR: [B,H,Lq,Lk], stride 0 broadcasts; f32 or f64        */
    const double *slope;      /* ALIBI: [H]; bias = -slope[h] * |i + offset - j|             */
    int64_t offset;           /* ALIBI: key position of query 0 (Lk - Lq is "bottom right")   */
};

/* Where this problem's first batch, head, query and key sit in the whole one that mask and bias
 * speak of.  All zero for a whole problem; a rank of a sequence-parallel scheme, which holds a
 * piece, sets it. */
struct attn_origin {
    int64_t batch, head, query, key;
};

struct attn_problem {
    int64_t batch, heads, kv_heads, n_query, n_key, d_key, d_value;
    double scale;
    double softcap; /* c; 0 = none */
    enum attn_dtype dtype;
    const struct attn_mask *mask; /* NULL: every pair is visible */
    struct attn_bias bias;
    struct attn_origin origin;
};

enum attn_pass { ATTN_FORWARD, ATTN_BACKWARD };
const char *attn_pass_name(enum attn_pass pass); /* "fwd", "bwd" */

/* ---- what an implementation may promise --------------------------------------------------- */

enum attn_cap {
    ATTN_CAP_F64 = 1u << ATTN_F64,
    ATTN_CAP_F32 = 1u << ATTN_F32,
    ATTN_CAP_BF16 = 1u << ATTN_BF16,
    ATTN_CAP_F16 = 1u << ATTN_F16,
    ATTN_CAP_BACKWARD = 1u << 4,
    ATTN_CAP_GQA = 1u << 5,   /* kv_heads != heads                                         */
    ATTN_CAP_CROSS = 1u << 6, /* n_query != n_key                                          */
    ATTN_CAP_DV = 1u << 7,    /* d_value != d_key                                          */
    ATTN_CAP_MASK = 1u << 8,  /* any structural mask                                       */
    ATTN_CAP_HARD = 1u << 9,  /* hidden values never matter, NaN included                  */
    ATTN_CAP_SOFTCAP = 1u << 10,
    ATTN_CAP_ALIBI = 1u << 11,
    ATTN_CAP_BIAS = 1u << 12,   /* a bias tensor                                             */
    ATTN_CAP_DBIAS = 1u << 13,  /* and its gradient                                          */
    ATTN_CAP_DLSE = 1u << 14,   /* a gradient that arrives through LSE                       */
    ATTN_CAP_STRIDES = 1u << 15 /* any layout; without it [B,H,L,d] contiguous               */
};
enum { ATTN_CAPS = 16 };
const char *attn_cap_name(enum attn_cap cap); /* "f32", "backward", "gqa", ... */

/* ---- memory is a contract ----------------------------------------------------------------- */

/* One named buffer (or several of one name) and its bytes. */
struct attn_account {
    const char *name; /* static storage */
    int64_t bytes;
};

enum { ATTN_MAX_ACCOUNTS = 32 };

/* What a pass costs one rank, in closed form: nothing is allocated to find it out.  bytes exclude
 * inputs and outputs.  flops count a multiply and an add as two and an exp as none. */
struct attn_cost {
    int n_live;
    struct attn_account live[ATTN_MAX_ACCOUNTS]; /* the live set at the peak, by name */
    int64_t peak_bytes;                          /* its sum                           */
    int64_t saved_bytes; /* of it, what a forward pass saves for the backward one when it may */
    double flops;
    int64_t bytes_sent; /* to other ranks */
    int64_t messages;   /* of which there are so many */
    int counted;        /* nnz had no closed form: pairs were counted one row at a time */
};

/* Add count * size bytes under a name to the live set; EINVAL when the product overflows. */
enum attn_status attn_cost_add(struct attn_cost *cost, const char *name, int64_t count,
                               int64_t size, struct attn_error *err);

/* ---- an implementation -------------------------------------------------------------------- */

struct attn_impl;
struct attn_isa;       /* optimized/simd/isa.h */
struct attn_precision; /* ref/precision.h */

/* One option of a spec such as "tiled-textbook:br=16,bc=64".  A table of them ends with a NULL
 * name. */
struct attn_option {
    const char *name;
    int64_t preset, min, max; /* integers; for a choice the preset is an index          */
    const char *choices;      /* NULL: an integer; else the legal words, blank-separated;
                                 "@NAME": another implementation, NAME by default       */
    const char *help;
};

enum { ATTN_MAX_OPTIONS = 8 };

/* How an implementation is to work.  Values are in the order of its table.  Results do not depend
 * on threads, bit for bit; memory may. */
struct attn_options {
    int64_t value[ATTN_MAX_OPTIONS];
    const struct attn_impl *local; /* of an "@NAME" option */
    const struct attn_isa *isa;    /* SPEC@ISA (optimized/simd/isa.h); NULL: the machine's best */
    int threads;                   /* at most so many; 1 by default */
};

/* One step of an implementation that works in steps, and its time by the clock on the wall. */
enum { ATTN_MAX_STEPS = 8 };
struct attn_step {
    const char *name; /* static storage */
    double seconds;
};

/* What one rank used; filled in by sequence-parallel implementations.  Others may fill in the steps
 * of rank 0, and nothing else. */
struct attn_rank_use {
    int n_live;
    struct attn_account live[ATTN_MAX_ACCOUNTS];
    int64_t peak_bytes, bytes_sent, messages;
    double cpu_seconds;
    int n_steps;
    struct attn_step step[ATTN_MAX_STEPS];
};

/* How a caller lets simulated ranks prove that they read their own shards only: seal(arg, 1)
 * makes the whole tensors unreadable while ranks run, seal(arg, 0) readable again. */
struct attn_seal {
    void (*seal)(void *arg, int sealed);
    void *arg;
};

/* What a forward pass leaves to the backward pass of the same problem, tensors and options;
 * autograd calls it saved for backward.  Who zeroes one and puts it into the contexts of both calls
 * allows it.  data is a block on the ledger of the forward call, until attn_saved_drop; a backward
 * pass reads it as often as it is asked to, and computes again what it was not given. */
struct attn_saved {
    void *data; /* NULL: nothing; its layout is the implementation's own */
    int64_t bytes;
    const struct attn_impl *impl; /* who saved it, and for what: a backward pass of anybody or
                                     anything else is refused */
    struct attn_options options;
    struct attn_problem problem;
};

/* What one call may use. */
struct attn_ctx {
    struct attn_ledger *ledger;
    const struct attn_options *options;
    struct attn_error *error;
    struct attn_rank_use *ranks;  /* NULL, or room for as many ranks as the spec has */
    const struct attn_seal *seal; /* NULL: nobody watches */
    struct attn_saved *saved;     /* NULL: nothing outlives a call */
};

/* One constant of this type in one file, and one line in optimized/impls.def. */
struct attn_impl {
    const char *name;    /* the word in specs, records, legends and docs */
    const char *summary; /* one line */
    const char *family;  /* "dense", "csr", "tiled", "sequence-parallel" */
    unsigned caps;       /* enum attn_cap; every bit is a promise and is tested */
    const struct attn_option *options;

    /* Ranks of this spec; NULL means 1. */
    int (*ranks)(const struct attn_options *options);

    /* All that the error bound (docs/bounds.md) needs to know about the order of summation: at
     * most so many times is the partial sum of one row rescaled because its maximum grew, and so
     * many times are partial results merged by their LSE.  NULL means 0. */
    int64_t (*rescales)(const struct attn_problem *problem, const struct attn_options *options);
    int64_t (*merges)(const struct attn_problem *problem, const struct attn_options *options);

    /* Refuse (ENOTSUP, with what would work) what capabilities cannot express, such as extents
     * that the ranks do not divide.  NULL: nothing beyond the capabilities. */
    enum attn_status (*accepts)(const struct attn_problem *problem,
                                const struct attn_options *options, struct attn_error *err);

    enum attn_status (*cost)(const struct attn_problem *problem, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err);
    enum attn_status (*forward)(struct attn_ctx *ctx, const struct attn_problem *problem,
                                const struct attn_forward *t);
    enum attn_status (*backward)(struct attn_ctx *ctx, const struct attn_problem *problem,
                                 const struct attn_backward *t);

    /* Arithmetic other than its storage type's: changes what the bound is told.  NULL: nothing to
     * change. */
    void (*precision)(const struct attn_problem *problem, const struct attn_options *options,
                      struct attn_precision *precision);

    int simd; /* runs on the kernels of optimized/simd/: only then does SPEC@ISA mean something */
};

/* ---- calling one -------------------------------------------------------------------------- */

/* Every precondition of the contract, tested once, here; implementations rely on it. */
enum attn_status attn_problem_check(const struct attn_problem *problem, struct attn_error *err);

/* The capability bits that a problem asks for, tensors aside. */
unsigned attn_problem_needs(const struct attn_problem *problem);

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

/* The same checks, then cost().  Allocates nothing, for problems of any size. */
enum attn_status attn_price(const struct attn_impl *impl, const struct attn_options *options,
                            const struct attn_problem *problem, enum attn_pass pass, int rank,
                            struct attn_cost *cost, struct attn_error *err);

/* Give back to the ledger what a forward pass saved there; nothing to do when it is empty. */
void attn_saved_drop(struct attn_saved *saved, struct attn_ledger *ledger);

void attn_options_preset(const struct attn_impl *impl, struct attn_options *options);
int attn_ranks(const struct attn_impl *impl, const struct attn_options *options);

#ifdef __cplusplus
}
#endif
#endif
