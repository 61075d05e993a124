/* The parts of an implementation: one constant of struct attn_impl, and the types that its
 * functions are given.  A caller meets them as pointers (ref/attn.h); docs/adding.md is the way in.
 */
#ifndef REF_IMPL_H
#define REF_IMPL_H

#include "ref/attn.h"
#include "ref/attn_plugin.h"
#include "ref/ledger.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what an implementation may claim ----------------------------------------------------- */

/* Sets of the bits of enum attn_cap, which plug-ins claim too.  Our own implementations take all
 * masks or none: ATTN_CAP_MASK. */
enum {
    ATTN_CAPS = 25, /* their bits */
    ATTN_CAPS_STORAGE = ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BF16 | ATTN_CAP_F16,
    ATTN_CAPS_OWN = ATTN_CAP_MASK | ATTN_CAP_WIDE, /* which no plug-in can claim */
    ATTN_CAPS_SHARED = ((ATTN_CAP_STRIDES | (ATTN_CAP_STRIDES - 1)) & ~ATTN_CAP_MASK) |
                       ATTN_CAP_SINK | ATTN_CAP_KV_SHARED,
    ATTN_CAPS_ALL = ATTN_CAPS_SHARED | ATTN_CAPS_OWN /* of an implementation of ours */
};
const char *attn_cap_name(int bit); /* "f64", "f32", ... */

/* ---- memory is a contract ----------------------------------------------------------------- */

/* The cost of a pass for one rank, in closed form: nothing is allocated to find it out.  bytes
 * exclude inputs and outputs.  flops count a multiply and an add as two and an exp as none. */
struct attn_cost {
    int n_live;
    struct attn_account live[ATTN_MAX_ACCOUNTS]; /* the live set at the peak, by name */
    int64_t peak_bytes;                          /* its sum                           */
    int64_t saved_bytes;    /* of it, what a forward pass saves for the backward one when it may */
    const char *saved_name; /* and its name in the live set; static storage */
    double flops,
        pairs;          /* pairs: of a query and a key, that are multiplied; visible ones, or all */
    int64_t bytes_sent; /* to other ranks */
    int64_t messages;   /* that carry them */
    int counted;        /* nnz had no closed form: pairs were counted one row at a time */
    const char *lacks; /* an implementation that has no such storage type: it is priced, without the
                           cost of a conversion, and cannot run; NULL: all run; static storage */
    double
        shard_bytes; /* inputs and outputs that this rank has, which peak_bytes leave out; double,
                           because they may exceed 64 bits where the peak does not */
};

/* Add parts of `numbers` numbers of size bytes under a name to the live set; EINVAL when the
 * product overflows.  attn_cost_join: a buffer of another price. */
enum attn_status attn_cost_add(struct attn_cost *cost, const char *name, int64_t parts,
                               int64_t numbers, int64_t size, struct attn_error *err);
enum attn_status attn_cost_join(struct attn_cost *cost, const struct attn_account *buffer,
                                struct attn_error *err);

/* ---- an implementation -------------------------------------------------------------------- */

struct attn_isa;       /* an instruction set; only implementations that choose one know more */
struct attn_runner;    /* processes that are ranks; only implementations over ranks know more */
struct attn_precision; /* ref/precision.h */
struct attn_scheme;    /* the parts of all ranks; only implementations over ranks know more */

/* One option of a spec such as "tiled-textbook:br=16,bc=64".  A table of them ends with a NULL
 * name. */
struct attn_option {
    const char *name;
    int64_t preset, min, max; /* integers; for a choice the preset is an index          */
    const char *choices;      /* NULL: an integer; else the legal words, blank-separated;
                                 "@NAME": another implementation and its options, NAME by
                                 default; one at most, which does a rank's work         */
    const char *help;
};

enum { ATTN_MAX_OPTIONS = 12 };

/* How an implementation is to work.  Values are in the order of its table.  Results do not depend
 * on threads, bit for bit; memory may. */
struct attn_options {
    const struct attn_impl *impl; /* that has these options */
    int64_t value[ATTN_MAX_OPTIONS];
    const struct attn_impl *local;         /* of an "@NAME" option; NULL: NAME, at its presets */
    int64_t local_value[ATTN_MAX_OPTIONS]; /* its own values, in the order of its table */
    const struct attn_isa *isa;            /* SPEC@ISA; NULL: the machine's best */
    int priced_only;                       /* that set is not on this machine: no call is made */
    int threads;                           /* at most; 1 by default */
    const struct attn_runner *runner; /* optimized/parallel/rank_runner.h: each of its processes is
                                              a rank; NULL: ranks are threads of this one */
};

/* One step of an implementation that works in steps, and its time by the clock on the wall. */
enum { ATTN_MAX_STEPS = 8 };
struct attn_step {
    const char *name; /* static storage */
    double seconds;
};

/* The use of one rank.  Sequence-parallel implementations fill it in; others may fill in the steps
 * of rank 0, and nothing else. */
struct attn_rank_use {
    int n_live;
    struct attn_account live[ATTN_MAX_ACCOUNTS];
    int64_t peak_bytes, bytes_sent, messages;
    double cpu_seconds;
    int n_steps;
    struct attn_step step[ATTN_MAX_STEPS];
};

/* One message from a rank to another. */
struct attn_note {
    enum attn_pass pass;
    int step;           /* the hop, as its scheme counts */
    const char *tensor; /* "k", "dq", ...; static storage */
    int source, destination;
    int64_t bytes;
    enum attn_dtype dtype;
};

struct attn_holding {
    int rank, step;
    const char *tensor; /* static storage */
    struct attn_view view;
    int64_t extent[4]; /* batches, heads, tokens, width */
};

/* note() is called when a message is posted: for each source in the order of posting, but for
 * several sources at once, each in a thread of its own. */
struct attn_log {
    void (*note)(void *arg, const struct attn_note *note);
    void *arg;

    /* NULL; or called, in the rank's thread, with what a rank of a ring has computed when a stop is
     * done: "o" and "lse" of its queries so far, "dk" and "dv" of the block that is there. */
    void (*held)(void *arg, const struct attn_holding *holding);
};

/* How a caller lets simulated ranks prove that they read their own shards only: seal(arg, 1)
 * makes the whole tensors unreadable while ranks run, seal(arg, 0) readable again. */
struct attn_seal {
    void (*seal)(void *arg, int sealed);
    void *arg;
};

/* The data that a forward pass keeps for the backward pass of the same problem, tensors and
 * options; autograd calls them saved for backward.  A caller that wants them zeroes one struct and
 * puts it into the contexts of both calls.  data is a block on the ledger of the forward call,
 * until attn_saved_drop; a backward pass may read it several times, and computes again what it was
 * not given. */
struct attn_saved {
    void *data; /* NULL: nothing; its layout is the implementation's own */
    int64_t bytes;
    const struct attn_impl *impl; /* the implementation, options and problem that it belongs to: the
                                     backward pass of another one is refused */
    struct attn_options options;
    struct attn_problem problem;
};

/* One constant of this type in one file, and one line in the registry. */
struct attn_impl {
    const char *name;    /* the word in specs, records, legends and docs */
    const char *summary; /* one line */
    const char *family;  /* "dense", "csr", "tiled", "sequence-parallel" */
    unsigned caps;       /* enum attn_cap; every bit is a claim and is tested */
    const struct attn_option *options;

    /* Ranks of this spec; NULL means 1. */
    int (*ranks)(const struct attn_options *options);

    /* All that the error bound (docs/bounds.md) needs to know about the order of summation: how
     * many times, at most, the partial sum of one row is rescaled because its maximum grew, and how
     * many times partial results are merged by their LSE.  NULL means 0. */
    int64_t (*rescales)(const struct attn_problem *problem, const struct attn_options *options);
    int64_t (*merges)(const struct attn_problem *problem, const struct attn_options *options);

    /* Refuse (ENOTSUP, with what would work) what capabilities cannot express, such as extents
     * that the ranks do not divide.  NULL: nothing beyond the capabilities. */
    enum attn_status (*accepts)(const struct attn_problem *problem,
                                const struct attn_options *options, struct attn_error *err);

    /* Conditions on extents behind such refusals, as external implementations declare theirs
     * (docs/external.md): cases are made within them.  NULL: none. */
    void (*shapes)(const struct attn_options *options, char *text, size_t size);

    enum attn_status (*cost)(const struct attn_problem *problem, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err);
    enum attn_status (*forward)(struct attn_ctx *ctx, const struct attn_problem *problem,
                                const struct attn_forward *t);
    enum attn_status (*backward)(struct attn_ctx *ctx, const struct attn_problem *problem,
                                 const struct attn_backward *t);

    /* Changes the precision that the bound takes, where the arithmetic is another than the storage
     * type's.  NULL: it is not. */
    void (*precision)(const struct attn_problem *problem, const struct attn_options *options,
                      struct attn_precision *precision);

    /* How a sink comes in (ref/sink.h).  AROUND: the implementation never meets one.  Then weigh is
     * called for each row of the data that a forward pass saved: they are to be multiplied by
     * `weight`.  NULL: nothing that is saved depends on the sum of a row. */
    enum attn_sinks {
        ATTN_SINKS_AROUND,   /* ref/run.c does it, around a call */
        ATTN_SINKS_BY_RANKS, /* each rank does, as one more partial result */
        ATTN_SINKS_IN_SUM    /* it is a term of the sum of a row */
    } sinks;
    void (*weigh)(const struct attn_saved *saved, int64_t b, int64_t h, int64_t i, double weight);

    int adds_dv; /* where V is a view of K (attn_problem.kv_shared): it adds dV to dK.  0: ref/run.c
                    does, and the implementation meets two tensors */

    const struct attn_scheme *scheme; /* of ranks: optimized/parallel/scheme.h; NULL: none */

    int traces; /* its steps, to a tracer (ref/trace.h) */

    int flops_by_pairs; /* of a mask its price reads the number of visible pairs alone, and flops
                           are in proportion to it */

    int simd; /* has kernels for several instruction sets: only then has SPEC@ISA a meaning */
};

/* The capability bits that a problem asks for, tensors aside. */
unsigned attn_problem_needs(const struct attn_problem *problem);

/* Give the saved data of a forward pass back to the ledger; an empty one is legal. */
void attn_saved_drop(struct attn_saved *saved, struct attn_ledger *ledger);

void attn_options_preset(const struct attn_impl *impl, struct attn_options *options);

/* An "@NAME" option: this implementation, at its presets. */
void attn_options_set_local(struct attn_options *options, const struct attn_impl *local);

int attn_ranks(const struct attn_impl *impl, const struct attn_options *options);

#ifdef __cplusplus
}
#endif
#endif
