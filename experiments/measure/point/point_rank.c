/* The work of a process on its own rank's tensors, and on the findings of all ranks.  See
 * point_work.h. */
#include "experiments/measure/point/point_work.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "optimized/integers.h"
#include "optimized/parallel/work.h"

/* ---- the tensors of a rank ------------------------------------------------------------------- */

static int is_of_keys(int slot)
{
    return slot == ATTN_T_K || slot == ATTN_T_V || slot == ATTN_T_DK || slot == ATTN_T_DV;
}

static void extent_of(const struct attn_setup_part *part, int slot, int64_t extent[4])
{
    const struct attn_rank_home *x = (const struct attn_rank_home *)part;
    struct attn_box box = attn_layout_stored_box(&x->home, x->problem, is_of_keys(slot), x->rank);
    extent[0] = box.batch;
    extent[1] = box.heads.n;
    extent[2] = box.tokens;
}

/* The elements of a box come first on every axis; the rest is pads. */
static void whole_of(const struct attn_setup_part *part, int slot, int64_t at[4])
{
    const struct attn_rank_home *x = (const struct attn_rank_home *)part;
    struct attn_box box = attn_layout_box(&x->home, x->problem, is_of_keys(slot), x->rank);
    int64_t b = at[0], row = at[2];
    at[0] = -1;
    if (b >= box.batch || at[1] >= box.heads.n)
        return;
    for (int64_t n = 0; n < attn_box_stretches(&box) && at[0] < 0; n++) {
        struct attn_stretch s = attn_box_stretch(&box, n);
        int64_t i = row - s.row;
        if (i < 0 || i >= s.tokens.n)
            continue;
        at[0] = b;
        at[1] += box.heads.first;
        at[2] = s.tokens.first + i * s.tokens.step;
    }
}

struct attn_rank_home attn_rank_home_of(const struct attn_spec *spec,
                                        const struct attn_problem *problem, int rank)
{
    struct attn_rank_home x = {.part = {extent_of, whole_of}, .problem = problem, .rank = rank};
    x.home = spec->impl->scheme != NULL
                 ? attn_work_of(problem, &spec->options, ATTN_FORWARD, 0).home
                 : attn_layout_of_tokens(problem, &spec->options); /* a textbook */
    return x;
}

/* Pads of results are neither written nor read. */
static void write_pads(struct attn_setup *s, const struct attn_rank_home *part)
{
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS && part->home.pads; slot++) {
        struct attn_tensor *t = &s->tensor[slot];
        for (int64_t at[4] = ATTN_START; t->data != NULL && attn_each(at, t->extent);) {
            int64_t whole[4] = {at[0], at[1], at[2], 0};
            whole_of(&part->part, slot, whole);
            if (whole[0] < 0)
                attn_tensor_set(t, at[0], at[1], at[2], at[3], 0);
        }
    }
}

/* Where tokens are at home may depend on the mask (video), so the whole problem is opened, without
 * tensors.  A process that is no rank has as much as rank 0, and does nothing with it. */
enum attn_status attn_point_open_rank(struct attn_point_work *work, struct attn_error *err)
{
    const struct attn_runner *runner = work->x.spec.options.runner;
    int ranks = attn_ranks(work->x.spec.impl, &work->x.spec.options);
    struct attn_setup whole = {0};
    enum attn_status status = attn_setup_describe(&work->point->c, &whole, err);
    if (status == ATTN_OK) {
        struct attn_rank_home own = attn_rank_home_of(&work->x.spec, &whole.problem,
                                                      runner->rank < ranks ? runner->rank : 0);
        status = attn_setup_open_part(&work->point->c, &own.part, &work->setup, err);
        if (status == ATTN_OK)
            write_pads(&work->setup, &own);
    }
    attn_setup_close(&whole);
    enum attn_status all = attn_point_settle(runner, status, err);
    if (status == ATTN_OK && all != ATTN_OK)
        attn_setup_close(&work->setup);
    return all;
}

/* ---- together -------------------------------------------------------------------------------- */

enum attn_status attn_point_settle(const struct attn_runner *runner, enum attn_status status,
                                   struct attn_error *err)
{
    struct attn_error own = *err, theirs;
    enum attn_status first = ATTN_OK, shared = ATTN_OK;
    own.status = status;
    for (int r = 0; r < runner->size && shared == ATTN_OK; r++) {
        theirs = own;
        shared = runner->share(runner->state, r, &theirs, sizeof theirs, err);
        if (shared == ATTN_OK && first == ATTN_OK && theirs.status != ATTN_OK)
            first = attn_fail(err, theirs.status, "%s", theirs.text);
    }
    return shared != ATTN_OK ? shared : first;
}

uint64_t attn_point_rank_digest(struct attn_point_work *work)
{
    const struct attn_runner *runner = work->x.spec.options.runner;
    uint64_t digest = 0, theirs;
    struct attn_error err;
    for (int r = 0; r < work->point->ranks; r++) {
        struct attn_rank_home x = attn_rank_home_of(&work->x.spec, &work->setup.problem, r);
        theirs =
            r == runner->rank ? attn_setup_digest(&work->setup, &x.part, work->point->c.pass) : 0;
        if (runner->share(runner->state, r, &theirs, sizeof theirs, &err) == ATTN_OK)
            digest += theirs;
    }
    return digest;
}

int attn_point_all_intact(struct attn_point_work *work, int intact)
{
    const struct attn_runner *runner = work->x.spec.options.runner;
    struct attn_point *p = work->point;
    struct attn_error err = {0};
    snprintf(err.text, sizeof err.text, "rank %d: %.400s", runner->rank, p->message);
    intact |= runner->rank >= p->ranks; /* no rank, and its results are none */
    enum attn_status status = attn_point_settle(runner, intact ? ATTN_OK : ATTN_EINTERNAL, &err);
    for (int r = 0; r < p->ranks && r < ATTN_RECORD_RANKS && status == ATTN_OK; r++) {
        struct attn_cost cost;
        status = attn_price(work->x.spec.impl, &work->x.spec.options, &work->setup.problem,
                            p->c.pass, r, &cost, &err);
        p->rank_priced[r] = cost.peak_bytes;
    }
    snprintf(p->message, sizeof p->message, "%s", status != ATTN_OK ? err.text : "");
    return status == ATTN_OK;
}

/* ---- the numbers of all ranks ---------------------------------------------------------------- */

/* A rank knows this of itself: resident in the calls, and of all the point; where it runs. */
struct own {
    int64_t resident, most, cores;
    char machine[64];
};

/* Ranks by the cores of their machine, of which they use the first ones only. */
static double ranks_per_core(const struct own *own, int ranks)
{
    double most = 0;
    for (int r = 0; r < ranks; r++) {
        int here = 0;
        for (int s = 0; s < ranks; s++)
            here += strcmp(own[s].machine, own[r].machine) == 0;
        most = fmax(most, (double)here / (double)own[r].cores);
    }
    return most;
}

void attn_point_share_numbers(struct attn_point_work *work, const struct attn_resident *all)
{
    const struct attn_runner *runner = work->x.spec.options.runner;
    struct attn_point *p = work->point;
    struct attn_error err;
    int ranks = attn_ranks(work->x.spec.impl, &work->x.spec.options);
    struct own *own = attn_cli_need(calloc((size_t)ranks, sizeof *own));
    const struct own mine = {.resident = p->resident_bytes,
                             .most = greater(work->highest, all->hwm) - all->baseline,
                             .cores = sysconf(_SC_NPROCESSORS_ONLN)};
    p->n_processes = (int)less(ranks, ATTN_RECORD_RANKS);
    p->resident_bytes = -1;
    for (int r = 0; r < ranks; r++) {
        own[r] = mine;
        gethostname(own[r].machine, sizeof own[r].machine - 1);
        runner->share(runner->state, r, &own[r], sizeof own[r], &err);
        p->resident_bytes = greater(p->resident_bytes, own[r].resident);
        if (r >= p->n_processes)
            continue;
        p->rank_resident[r] = own[r].resident;
        p->rank_process[r] = own[r].most;
    }
    p->ranks_per_core = ranks_per_core(own, ranks);
    free(own);
}
