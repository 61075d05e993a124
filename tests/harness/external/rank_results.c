/* See rank_steps.h: results in.
 *
 *      OUT/NAME/rank-R/step-S/   what the rank holds after a step: result.safetensors, result.npz, or
 *                                o.npy, lse.npy, ...; or refused.txt, which says why it is not given
 *      OUT/NAME/rank-R/          what it has at the end, in the same way
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/external/rank_steps.h"
#include "tests/harness/faults/diagnose.h"

/* Everything that was given: [ranks][steps + 1], the results last. */
struct given {
    struct attn_rank_steps *x;
    const struct attn_claims *claims;
    struct attn_precision precision;
    struct attn_setup *piece;
    int left_out;   /* steps that refused.txt stands for */
    char why[512];  /* of the first */
};

static struct attn_setup *piece_of(const struct given *g, int rank, int step)
{
    return &g->piece[rank * (g->x->steps + 1) + step];
}

/* "rank 1, step 2: ", "rank 1, results: " in front of what is said. */
static void say_where(const struct given *g, int rank, int step, char *text, size_t size)
{
    char words[512];
    snprintf(words, sizeof words, "%s", text);
    if (step < g->x->steps)
        snprintf(text, size, "rank %d, step %d: %.470s", rank, step, words);
    else
        snprintf(text, size, "rank %d, results: %.470s", rank, words);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_piece(struct given *g, const char *folder, const char *name, int rank, int step,
                       struct attn_result *r)
{
    const struct attn_rank_held held = attn_rank_held(g->x, rank, step);
    struct attn_error err = {0};
    struct attn_setup *piece = piece_of(g, rank, step);
    char in[240], words[sizeof err.text];
    attn_rank_folder(g->x, name, rank, step, in);
    int says = attn_vector_files_words(folder, in, words, sizeof words);
    if (says == ATTN_WORDS_REFUSED && step < g->x->steps && words[0] != '\0') {
        if (g->left_out++ == 0) {
            snprintf(g->why, sizeof g->why, "%.200s", words);
            say_where(g, rank, step, g->why, sizeof g->why);
        }
        return;
    }
    if (says != ATTN_WORDS_NONE)
        snprintf(err.text, sizeof err.text, "%s",
                 says == ATTN_WORDS_ERROR ? words
                 : words[0] == '\0'       ? "it is refused, and refused.txt does not say why"
                                          : "steps may be left out, results may not");
    else if (!attn_vector_files_has(folder, in))
        snprintf(err.text, sizeof err.text,
                 step < g->x->steps ? "there is no folder %.200s (what is left out on purpose has "
                                      "refused.txt in it)"
                                    : "there is no folder %.200s",
                 in);
    else if (attn_rank_piece_open(g->x, &held, piece, &err) == ATTN_OK &&
             attn_vector_files_take(folder, in, g->claims, held.slots, piece, &err) == ATTN_OK)
        return;
    if (err.status == ATTN_ENOMEM)
        attn_result_error(r, err.status, err.text);
    else
        attn_result_fail(r, ATTN_F_STATUS, "%s", err.text);
    say_where(g, rank, step, r->text, sizeof r->text);
}

/* One rank, or one step of a rank, more than the scheme has. */
static void look_for_more(const struct given *g, const char *folder, const char *name,
                          struct attn_result *r)
{
    char in[240];
    for (int rank = 0; rank <= g->x->ranks && r->verdict == ATTN_PASS; rank++) {
        snprintf(in, sizeof in, "%.190s/rank-%d/step-%d", name, rank, g->x->steps);
        if (rank == g->x->ranks)
            snprintf(in, sizeof in, "%.190s/rank-%d", name, rank);
        if (attn_vector_files_has(folder, in))
            attn_result_fail(r, ATTN_F_STATUS,
                             "%.200s is given: %s has ranks 0 to %d and steps 0 to %d", in,
                             g->x->spec.impl->name, g->x->ranks - 1, g->x->steps - 1);
    }
}

static void read_all(struct given *g, const char *folder, const char *name, struct attn_result *r)
{
    for (int step = 0; step <= g->x->steps; step++)
        for (int rank = 0; rank < g->x->ranks && r->verdict == ATTN_PASS; rank++)
            read_piece(g, folder, name, rank, step, r);
    look_for_more(g, folder, name, r);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Inputs that have only changed hands are the same numbers. */
static void judge_moved(struct given *g, const struct attn_rank_held *held,
                        const struct attn_setup *piece, struct attn_result *r)
{
    for (int slot = 0; slot < ATTN_T_O; slot++) {
        const struct attn_tensor *t = &piece->tensor[slot];
        int64_t whole[4];
        for (int64_t at[4] = ATTN_START; t->map != NULL && attn_each(at, t->extent);) {
            attn_rank_place(held, slot, at, whole);
            double got = attn_tensor_get(t, at[0], at[1], at[2], at[3]);
            double want = attn_tensor_get(&g->x->setup->tensor[slot], whole[0], whole[1], whole[2],
                                          whole[3]);
            if (got == want || (got != got && want != want))
                continue;
            attn_result_fail(r, ATTN_F_EXACT,
                             "%s[%lld,%lld,%lld,%lld] = %.9g: it should be %.9g, element "
                             "[%lld,%lld,%lld,%lld] of the whole",
                             t->name, (long long)at[0], (long long)at[1], (long long)at[2],
                             (long long)at[3], got, want, (long long)whole[0], (long long)whole[1],
                             (long long)whole[2], (long long)whole[3]);
            return;
        }
    }
}

/* What is held in this pass, against its truth; what a failure looks like. */
static void judge_outputs(struct given *g, const struct attn_rank_held *held, enum attn_pass pass,
                          const struct attn_setup *piece, struct attn_result *r)
{
    struct attn_truth truth;
    struct attn_error err = {0};
    enum attn_status status = attn_rank_truth(g->x, held, pass, &g->precision, piece, &truth, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        struct attn_cview got = attn_tensor_cview(&piece->tensor[ATTN_T_O + o]);
        if (!attn_rank_judges(held, pass, o))
            continue;
        attn_agree(&got, &truth.tensor[o], g->precision.u, &r->output[o]);
        if (r->output[o].ratio > r->worst)
            r->worst = r->output[o].ratio;
        if (r->output[o].n_no_bound > 0)
            attn_result_error(r, ATTN_EINTERNAL, "a bound is no number");
    }
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        attn_result_judge(r, &r->output[o], ATTN_F_FINITE);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        attn_result_judge(r, &r->output[o], ATTN_F_BOUND);
    if (r->verdict == ATTN_FAILED)
        attn_rank_diagnose(g->x, held, pass, piece, &truth, &r->diagnosis);
    attn_truth_free(&truth);
}

/* In the order in which things go wrong: what is wrong later follows from the first. */
static void judge_steps(struct given *g, struct attn_result *r)
{
    double worst = 0;
    for (int pass = 0; pass <= (int)g->x->pass; pass++)
        for (int step = 0; step <= g->x->steps; step++)
            for (int rank = 0; rank < g->x->ranks; rank++) {
                const struct attn_rank_held held = attn_rank_held(g->x, rank, step);
                const struct attn_setup *piece = piece_of(g, rank, step);
                if (piece->tensor[ATTN_T_O].map == NULL && piece->tensor[ATTN_T_Q].map == NULL)
                    continue; /* left out */
                *r = (struct attn_result){.dtype = g->x->setup->problem.dtype,
                                          .precision = g->precision};
                if (held.slots >> ATTN_T_O == 0)
                    judge_moved(g, &held, piece, r);
                else
                    judge_outputs(g, &held, (enum attn_pass)pass, piece, r);
                worst = r->worst > worst ? r->worst : worst;
                if (r->verdict != ATTN_PASS) {
                    say_where(g, rank, step, r->text, sizeof r->text);
                    return;
                }
            }
    r->worst = worst;
}

/* All ranks' results as those of one call, for whatever is judged of a whole. */
static void judge_whole(struct given *g, struct attn_setup *setup, struct attn_result *r)
{
    double worst = r->worst;
    for (int rank = 0; rank < g->x->ranks; rank++) {
        const struct attn_rank_held held = attn_rank_held(g->x, rank, g->x->steps);
        for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++) {
            const struct attn_tensor *t = &piece_of(g, rank, g->x->steps)->tensor[slot];
            int64_t whole[4];
            for (int64_t at[4] = ATTN_START; t->map != NULL && attn_each(at, t->extent);) {
                attn_rank_place(&held, slot, at, whole);
                attn_tensor_set(&setup->tensor[slot], whole[0], whole[1], whole[2], whole[3],
                                attn_tensor_get(t, at[0], at[1], at[2], at[3]));
            }
            if (t->map != NULL)
                setup->tensor[slot].stored = t->stored;
        }
    }
    *r = (struct attn_result){0};
    attn_judge(setup, &g->precision, NULL, g->x->pass, r);
    if (r->verdict == ATTN_FAILED)
        attn_diagnose(setup, r, &r->diagnosis);
    r->worst = worst > r->worst ? worst : r->worst;
    if (r->verdict == ATTN_PASS && g->left_out > 0) {
        r->verdict = ATTN_WEAK;
        snprintf(r->text, sizeof r->text,
                 "the results agree, and %d of %d steps of ranks were not judged, being left out: %.400s",
                 g->left_out, g->x->ranks * g->x->steps, g->why);
    }
}

void attn_rank_results_judge(const char *scheme, const char *folder, const char *name,
                             const struct attn_claims *claims, struct attn_setup *setup,
                             struct attn_result *r)
{
    struct attn_rank_steps x;
    struct attn_error err = {0};
    enum attn_status status = attn_rank_steps_open(scheme, setup, &x, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    int pieces = x.ranks * (x.steps + 1);
    struct given g = {.x = &x, .claims = claims, .piece = calloc((size_t)pieces, sizeof *g.piece)};
    if (g.piece == NULL)
        attn_result_error(r, ATTN_ENOMEM, "no memory for what ranks hold");
    else {
        attn_rank_precision(&x, claims, &g.precision);
        read_all(&g, folder, name, r);
        if (r->verdict == ATTN_PASS)
            judge_steps(&g, r);
        if (r->verdict == ATTN_PASS)
            judge_whole(&g, setup, r);
    }
    for (int n = 0; g.piece != NULL && n < pieces; n++)
        attn_rank_piece_close(&g.piece[n]);
    free(g.piece);
    attn_rank_steps_close(&x);
}
