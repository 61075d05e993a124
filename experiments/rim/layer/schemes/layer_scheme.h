/* A layer around attention (layer.h) over ranks: who has which tokens of x and y, which
 * heads of Wqkv and Wo, and what is exchanged where.
 *
 *      x at home --> x in --project--> q k v --attention--> o (--> home) --merge--> y --> y at home
 *
 *      home       tokens of x and y that a rank has before and after
 *      in         tokens that it projects; its heads of Wqkv are those of the attention's home,
 *                 whose tokens these are.  Where `in` is all tokens, x is gathered; else it is
 *                 exchanged
 *      attention  any scheme of optimized/parallel, on q, k, v as they were projected
 *      merge      with all of Wo; if the scheme says so, o goes home first, else y does
 *
 * The backward pass does the adjoint of each line, from the last to the first: what was gathered is
 * reduced and scattered.  Gradients of weights that
 * several ranks have are added over them.
 *
 * A scheme is one file and one line in layers.def.  Every sequence-parallel SPEC whose ranks have
 * all heads of their tokens is a layer too: projections are local, only attention exchanges.
 *
 * Source   hpcaitech/Open-Sora, FastSeq and acceleration/communications.py; Zhao et al. 2024
 *          (DSP).
 */
#ifndef EXPERIMENTS_RIM_LAYER_SCHEMES_LAYER_SCHEME_H
#define EXPERIMENTS_RIM_LAYER_SCHEMES_LAYER_SCHEME_H

#include "experiments/rim/layer/schemes/layer.h"
#include "optimized/parallel/scheme.h"
#include "optimized/registry.h"

/* Before and after a stack of layers every rank may have all of x and y.  Going in a rank keeps its
 * own tokens of x, and the gradients of these are gathered (split_forward_gather_backward); coming
 * out y is gathered, and a rank keeps its own tokens of dY (gather_forward_split_backward).  Every
 * rank computes the same loss, and gradients of weights are averaged over the ranks, which makes
 * them 1/R of what they should be.  SCALED: coming out, dY is multiplied by R, which the average
 * undoes, and going in dX is divided by R again.  UNSCALED leaves both out: dW is wrong. */
enum attn_boundary { ATTN_BOUNDARY_NONE, ATTN_BOUNDARY_SCALED, ATTN_BOUNDARY_UNSCALED };

struct attn_layer_scheme {
    struct attn_impl record; /* name, summary, options: for specs and lists; and the scheme of its
                                attention.  It cannot be called */

    /* NULL: the tokens of the attention's home. */
    struct attn_layout (*home)(const struct attn_problem *attention,
                               const struct attn_options *options);
    int merges_at_home; /* o goes home before it is multiplied with Wo */

    /* Beside what the attention sends; written from sizes alone. */
    struct attn_sent (*sent)(const struct attn_layer *layer, const struct attn_options *options,
                             enum attn_pass pass, int rank);
};

struct attn_layer_spec {
    struct attn_spec spec;
    const struct attn_layer_scheme *scheme; /* NULL: a sequence-parallel SPEC as a layer */
    enum attn_boundary boundary;
};

/* Layer schemes, in the order of layers.def. */
int attn_layer_scheme_count(void);
const struct attn_layer_scheme *attn_layer_scheme_at(int index);

/* EINVAL with the names that there are.  The boundary is none. */
enum attn_status attn_layer_spec_parse(const char *text, struct attn_layer_spec *spec,
                                       struct attn_error *err);

static inline int attn_layer_ranks(const struct attn_layer_spec *spec)
{
    return attn_ranks(spec->spec.impl, &spec->spec.options);
}

/* The price of a pass for a rank: the live set at its peak beside its shards of x, y, weights and
 * gradients (shard_bytes), flops, bytes and messages sent.  Tensors that a forward pass keeps are
 * live in the backward one too.  ENOTSUP with what would work. */
enum attn_status attn_layer_ranks_cost(const struct attn_layer_spec *spec,
                                       const struct attn_layer *layer, enum attn_pass pass,
                                       int rank, struct attn_cost *cost, struct attn_error *err);

/* Run simulated ranks: forward, and, unless backward is NULL, backward with what was kept.
 * use[pass]: NULL, or room for as many ranks as there are.  With ctx->counts_only tensors are not
 * read.  *differ: how many ranks have other bits than the last in what all should have alike, added
 * up over the results; 0 if all is well. */
struct attn_layer_call {
    const struct attn_layer *layer;
    const struct attn_layer_forward *forward;
    const struct attn_layer_backward *backward;
    struct attn_rank_use *use[2];
    int differ;
};
enum attn_status attn_layer_ranks_run(const struct attn_layer_spec *spec, struct attn_ctx *ctx,
                                      struct attn_layer_call *call);

/* ---- closed forms ---------------------------------------------------------------------------- */

/* x of a rank, in this layout, to every other rank; what it has of x of the others, to each. */
void attn_layer_gather_sent(struct attn_sent *sent, const struct attn_layer *layer,
                            const struct attn_layout *layout, int rank);
void attn_layer_scatter_sent(struct attn_sent *sent, const struct attn_layer *layer,
                             const struct attn_layout *layout, int rank);

/* Gradients of weights that every rank has, added over the ranks: runs of rows are reduced and
 * scattered, then gathered. */
void attn_layer_all_reduce_sent(struct attn_sent *sent, const struct attn_layer *layer, int ranks,
                                int rank, int qkv, int o);

/* Gradients of Wk and Wv of kv heads that several ranks read: to the first of them, and back. */
void attn_layer_shared_heads_sent(struct attn_sent *sent, const struct attn_layer *layer,
                                  const struct attn_layout *heads, int rank);

#endif
