/* The plan of `csr`: how its work is cut into units, and their memory.  csr.c, csr_panels.c and
 * csr_backward.c share it. */
#ifndef OPTIMIZED_CSR_PLAN_H
#define OPTIMIZED_CSR_PLAN_H

#include "optimized/simd/isa.h"
#include "optimized/simd/workspace.h"
#include "ref/mask/pattern.h"

enum { ATTN_CSR_PASSES, ATTN_CSR_CHUNK }; /* options, in the order of the table */

/* Everything below is a function of problem, spec and pattern; threads only share units out. */
struct attn_csr_plan {
    const struct attn_kernels *kernels;
    int threads;
    int copies;           /* rows are copied: 16 bits wide, or not whole vectors              */
    int64_t wide, wide_v; /* d and dv in whole vectors                                        */
    int64_t most, block;  /* queries in a unit: workspace is made for the first, the work cut into
                              the second                                                        */
    int64_t panels;       /* panels that one tile job takes, at most                          */
};

enum attn_status attn_csr_plan_make(const struct attn_problem *p, const struct attn_options *opt,
                                    struct attn_csr_plan *plan, struct attn_error *err);

/* Panel n of a pattern is dense[n]: the tile kernel takes it.  seen: workspace for n_key bits a
 * thread, in words. */
void attn_csr_panels_find(const struct attn_csr *csr, const struct attn_csr_plan *plan,
                          int64_t n_key, uint64_t *seen, uint8_t *dense);
int64_t attn_csr_panels_of(const struct attn_problem *p,
                           const struct attn_csr_plan *plan); /* of one pattern */

/* A stored pattern as runs of visible keys, for queries [i0,i1) of one (batch, head), at most a
 * tile job of them. */
struct attn_csr_runs {
    const struct attn_csr *csr;
    int64_t i0;
    int32_t *at; /* behind, which only grows: no more than a memory of the last answer */
    int32_t behind[ATTN_MAX_PANELS * ATTN_MAX_PANEL]; /* stored pairs of a row */
};
struct attn_runs attn_csr_runs_start(struct attn_csr_runs *x, const struct attn_csr *csr,
                                     int64_t i0, int64_t i1);

/* Seconds of a step, added up under its name where the caller wants to know (attn_ctx.ranks). */
void attn_csr_step_add(struct attn_ctx *ctx, const char *name, double seconds);

/* csr_backward.c */
enum attn_status attn_csr_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                   const struct attn_backward *t);
enum attn_status attn_csr_cost_backward(const struct attn_problem *p,
                                        const struct attn_options *opt, struct attn_cost *cost,
                                        struct attn_error *err);

#endif
