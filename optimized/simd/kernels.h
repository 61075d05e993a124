/* The kernels: what is compiled once for each instruction set and each arithmetic type.
 *
 * A kernel does one unit of work of one (batch, head) on the calling thread and touches nothing
 * else: who calls it deals the units out, owns the memory and knows the plan (tiled_forward.c,
 * csr.c, gemm.c, chunked.c).  Workspace is handed in; simd/workspace.h says how much of it.
 *
 * Letters  P queries in a panel (three vectors), KB keys in a block, d = d_key, dv = d_value.
 * Source   the online softmax of Milakov & Gimelshein 2018 and the loops of Dao 2023
 *          (FlashAttention-2), turned by 90 degrees: vectors run over queries (docs/kernel.md).
 */
#ifndef OPTIMIZED_SIMD_KERNELS_H
#define OPTIMIZED_SIMD_KERNELS_H

#include "optimized/simd/mask_cursor.h"
#include "ref/attn.h"

/* Bytes of K and V that stay in the second-level cache beside a block of queries: half of 1 MiB,
 * with which the kernels were measured. */
enum { ATTN_NEAR_BYTES = 512 * 1024 };

/* The workspace of one thread, for blocks of `panels` panels, in numbers of the arithmetic type. */
enum {
    ATTN_WORK_Q,    /* [panels][d][panel]: Q, transposed and scaled                       */
    ATTN_WORK_O,    /* [panels][dv][panel]: O, transposed, not yet divided by l           */
    ATTN_WORK_S,    /* [ATTN_KEY_BLOCK + 8][panel]: scores, then probabilities            */
    ATTN_WORK_ML,   /* [2][panels][panel]: running maximum and sum                        */
    ATTN_WORK_KV,   /* [ATTN_KEY_BLOCK][d + dv]: K and V widened, if storage asks for it  */
    ATTN_WORK_ROWS, /* [lanes][d or dv, in whole vectors]: rows on their way in and out   */
    ATTN_WORKSPACES
};

/* The queries of a tile against its keys.  With parts (o_part, lse_part) the result is
 * one part of several, to be merged: row r of o_part is [dv] of arithmetic type, with o
 * normalised and lse in natural logarithms; else it goes to t. */
struct attn_tile_forward {
    const struct attn_problem *p;
    const struct attn_forward *t;
    struct attn_runs runs; /* which keys the queries see */
    struct attn_tile_at at;
    int saves;               /* gemm: what is left of S at the end is P, for the backward pass */
    double rescale_at;       /* a score may exceed m by so much, in units of log2 e: 0 to 4 */
    int in_cache;            /* K and V are in the second-level cache: do not prefetch them */
    void *o_part, *lse_part; /* NULL, or [i1 - i0][dv] and [i1 - i0] */
    void *ws[ATTN_WORKSPACES];
};

/* A pair: query i and key j of head h of batch b. */
struct attn_pair_at {
    int64_t b, h, i, j;
};

/* Rows [i0,i1) of head h of batch b of a tensor, n numbers each. */
struct attn_tensor_rows {
    const struct attn_cview *x;
    int64_t b, h, i0, i1, n;
};

/* The backward pass: the state that a query head keeps from one block of keys to the next, in
 * numbers a panel; and the workspace of a thread, in numbers, for blocks of `keys` keys. */
enum {
    ATTN_STATE_Q,     /* [panels of Lq][d][panel]: Q, transposed and scaled                */
    ATTN_STATE_DO,    /* [panels of Lq][dv][panel]                                         */
    ATTN_STATE_DQ,    /* [panels of Lq][d][panel]: sum of dS K so far                      */
    ATTN_STATE_LSE,   /* [panels of Lq][panel]: to base 2; +inf where nothing is seen      */
    ATTN_STATE_DELTA, /* [panels of Lq][panel]: D = dO . O - dLSE                          */
    ATTN_STATES
};
enum {
    ATTN_BACK_S,     /* [keys + 8][panel]: scores, then P                                 */
    ATTN_BACK_DP,    /* the same: dP, then dS                                             */
    ATTN_BACK_SLOPE, /* the same, with a softcap: its slope                               */
    ATTN_BACK_KV,    /* [keys][d + dv]: K and V widened, where storage asks for it        */
    ATTN_BACK_DKV,   /* [keys + 1][d], [dv] in whole vectors: dK, dV, and a row of waste  */
    ATTN_BACK_ROWS,  /* [panel + 1][d + dv in whole vectors]: Q and dO as rows, and zeros */
    ATTN_BACK
};

/* Query head h, which reads kv head g.  Calls for one g:
 *      pack    queries [i0,i1), i0 at a panel of the head state: before any key meets them
 *      begin   keys [j0,j1), at most `keys`
 *      step    them and queries [i0,i1) of every head of the group: dQ of these grows
 *      end     keys [j0,j1): dK and dV are complete, and are written
 *      unpack  queries [i0,i1), when all keys have met them: dQ is written
 * begin, step ..., end belong to one workspace. */
struct attn_tile_backward {
    const struct attn_problem *p;
    const struct attn_backward *t;
    struct attn_runs runs;
    int64_t keys; /* at most ATTN_KEY_BLOCK: what the workspace was made for            */
    int64_t
        state_from; /* the query that panel of the head state 0 begins with                       */
    int resume;     /* begin: dK and dV go on from what the workspace holds, not from 0   */
    int prefetch;   /* step: the queries before these come next, fetch them          */
    int saved;      /* gemm: the workspace for S holds P already                          */
    int64_t g;
    struct attn_tile_at at;
    void *state[ATTN_STATES]; /* of head h */
    void *ws[ATTN_BACK];
};

/* Rows of a tensor: queries [i0,i1) of the job's head; its keys. */
static inline struct attn_tensor_rows attn_job_queries(const struct attn_tile_backward *job,
                                                       const struct attn_cview *x, int64_t i0,
                                                       int64_t i1, int64_t n)
{
    return (struct attn_tensor_rows){x, job->at.b, job->at.h, i0, i1, n};
}

static inline struct attn_tensor_rows attn_job_keys(const struct attn_tile_backward *job,
                                                    const struct attn_cview *x, int64_t n)
{
    return (struct attn_tensor_rows){x, job->at.b, job->g, job->at.j0, job->at.j1, n};
}

/* ---- the row kernels (rows_tmpl.h): vectors run over features ------------------------------- */

enum {
    ATTN_SPLIT_KEYS = 64, /* keys that all queries of a job meet at a time */
    ATTN_SPLIT_ROWS = 64  /* (head, query) pairs in a job, at most         */
};

/* Memory of a thread for jobs of `rows` (head, query) pairs, in numbers of the arithmetic type. */
enum {
    ATTN_SPLIT_Q,  /* [rows][d, in whole vectors]: Q, scaled                              */
    ATTN_SPLIT_O,  /* [rows][dv, in whole vectors]: O, not yet divided by l               */
    ATTN_SPLIT_S,  /* [rows][ATTN_SPLIT_KEYS]: scores, then probabilities                 */
    ATTN_SPLIT_KV, /* [ATTN_SPLIT_KEYS][d + dv, in whole vectors]: K and V widened        */
    ATTN_SPLIT_WORKSPACES
};

/* A block of queries against the keys that are stored for them.  k and v are copies of the rows of
 * their kv head, widened and padded to whole vectors: [Lk][d], [Lk][dv]; NULL where the tensors'
 * own rows are that already, or may be fetched one at a time (a stride between features). */
enum {
    ATTN_ROW_KEYS = 1024,     /* keys in a step, at most                                          */
    ATTN_ROW_STEPS = 288,     /* steps in a batch, at most                                        */
    ATTN_ROW_STEP_BYTES = 32, /* bytes to remember one                                            */
    ATTN_ROW_BATCH = 24064    /* numbers for the scores of a batch, those of a step in whole 16's */
};
struct attn_row_forward {
    const struct attn_problem *p;
    const struct attn_forward *t;
    const struct attn_csr *csr;
    const void *k, *v;
    int64_t b, h, i0, i1;
    int64_t chunk; /* keys that all queries meet at a time */
    void *values;  /* of the head, in the order of its pattern: row_sddmm, row_softmax, row_spmm */
    void *ws;      /* attn_row_numbers(), aligned to 64 */
};

/* The backward pass: the queries [i0,i1) of head h, which reads kv head g, and the keys [j0,j1), a
 * chunk.  Calls for one g:
 *      start   queries, before any key meets them
 *      begin   keys
 *      step    both, of every head of the group, in one order of queries; chunks in order
 *      end     keys, when all queries have met them: dK and dV are written
 *      finish  queries, when all keys have met them: dQ is written
 * begin, step ..., end belong to one workspace.  Head h keeps lse to done between chunks. */
enum { ATTN_BACK_STEP = 64 }; /* keys that a query meets at a time, at most */
struct attn_row_backward {
    const struct attn_problem *p;
    const struct attn_backward *t;
    const struct attn_csr *csr;
    int64_t b, g, h, i0, i1, j0, j1;
    void *lse, *delta; /* [Lq]: LSE to base 2 (+inf where nothing is seen), D           */
    void *dq;          /* [Lq][d in whole vectors]: sum of dS k so far                  */
    int32_t *done;     /* [Lq]: stored pairs of a row that are behind us                */
    void *ws;          /* attn_row_backward_numbers() of the chunk, aligned to 64         */
};

/* Decoding: the queries [i0,i1) of heads [h0,h1), which share a kv head, against keys [j0,j1), in
 * one pass over them.  Gives one part of several, to be merged: (h, i) is row
 * (h - h0) * part_step + (i - i0) of o_part and lse_part; o is normalised, lse in natural
 * logarithms. */
struct attn_row_split {
    const struct attn_problem *p;
    const struct attn_forward *t; /* q, k and v are read */
    struct attn_runs runs;
    int64_t b, h0, h1, i0, i1, j0, j1;
    void *o_part, *lse_part;
    int64_t part_step;
    void *ws[ATTN_SPLIT_WORKSPACES];
};

/* The limits of a machine, for attnlab measure --peak (limits_tmpl.h). */
enum attn_limit {
    ATTN_LIMIT_FMA,  /* flops: multiply-adds on registers, two each; or products on tiles */
    ATTN_LIMIT_READ, /* bytes read                                  */
    ATTN_LIMITS
};

struct attn_kernels {
    int bytes; /* of a number: 4 or 8      */
    int lanes; /* numbers in a vector      */
    int panel; /* queries in a panel: 3 vectors */

    /* Those whose tiles multiply bf16 numbers (matrix_tmpl.h), and that of arrays, decoding and
     * storage alone besides; NULL in double and in these themselves. */
    const struct attn_kernels *matrix;
    int is_matrix;

    /* ---- arrays (convert_tmpl.h, math_tmpl.h): n numbers next to each other ---- */
    /* From a storage type to the arithmetic type, and back, rounded to nearest even. */
    void (*widen)(enum attn_dtype dtype, const void *from, int64_t n, void *to);
    void (*narrow)(enum attn_dtype dtype, const void *from, int64_t n, void *to);
    int (*has_nan)(enum attn_dtype dtype, const void *from, int64_t n);
    void (*exp2)(int64_t n, const void *x, void *y); /* y = 2^x    */
    void (*tanh)(int64_t n, const void *x, void *y); /* y = tanh x */
    void (*transpose)(void *square);                 /* [lanes][lanes], in place */

    /* ---- the tile kernels (tile_tmpl.h, forward_tmpl.h, backward_tmpl.h) ---- */
    void (*forward)(const struct attn_tile_forward *job);
    void (*backward_pack)(const struct attn_tile_backward *job);
    void (*backward_begin)(const struct attn_tile_backward *job);
    void (*backward_step)(const struct attn_tile_backward *job);
    void (*backward_end)(const struct attn_tile_backward *job);
    void (*backward_unpack)(const struct attn_tile_backward *job);

    /* ---- materialised (gemm_tmpl.h): the workspaces for S and dP hold all keys of the queries
     * from i0 (state_from) on, [panels][n_key + 8][panel] ----
     *      forward, queries   one panel, all keys: P, o, lse; P, dS, dbias, dq
     *      keys               between begin and end, when queries [i0,i1) are done: dK, dV grow */
    void (*gemm_forward)(const struct attn_tile_forward *job);
    void (*gemm_queries)(const struct attn_tile_backward *job);
    void (*gemm_keys)(const struct attn_tile_backward *job);

    /* ---- the row kernels (rows_forward_tmpl.h, rows_backward_tmpl.h, split_tmpl.h) ---- */
    void (*split)(const struct attn_row_split *job);
    void (*row_forward)(const struct attn_row_forward *job);
    void (*row_sddmm)(const struct attn_row_forward *job); /* or in three steps: */
    void (*row_softmax)(const struct attn_row_forward *job);
    void (*row_spmm)(const struct attn_row_forward *job);
    void (*row_backward_start)(const struct attn_row_backward *job);
    void (*row_backward_begin)(const struct attn_row_backward *job);
    void (*row_backward_step)(const struct attn_row_backward *job);
    void (*row_backward_end)(const struct attn_row_backward *job);
    void (*row_backward_finish)(const struct attn_row_backward *job);

    /* ---- storage (rows_io_tmpl.h) ---- */
    /* y[b,h,i,:] = row of n numbers of the arithmetic type, rounded to y's. */
    void (*store_row)(const struct attn_view *y, int64_t b, int64_t h, int64_t i, int64_t n,
                      const void *row);
    /* The way back: x[b,h,i,:] widened, and padded by zeros to whole vectors. */
    void (*load_row)(const struct attn_cview *x, int64_t b, int64_t h, int64_t i, int64_t n,
                     void *row);

    /* ---- loops of known work (limits_tmpl.h): what was done, in units of enum attn_limit ---- */
    double (*limit[ATTN_LIMITS])(void *x, int64_t n, int64_t rounds);
};

/* Those that this library was built with; see isa.c for which the machine has. */
#if defined __x86_64__
extern const struct attn_kernels attn_kernels_amx_f32, attn_kernels_amx_f64;
extern const struct attn_kernels attn_kernels_avx512_f32, attn_kernels_avx512_f64;
extern const struct attn_kernels attn_kernels_avx2_f32, attn_kernels_avx2_f64;
#elif defined __aarch64__
extern const struct attn_kernels attn_kernels_neon_f32, attn_kernels_neon_f64;
#endif
extern const struct attn_kernels attn_kernels_portable_f32, attn_kernels_portable_f64;

#endif
