/* See rank_steps.h: results in.
 *
 *      OUT/NAME/rank-R/step-S/   what the rank holds after a step, as results are given elsewhere
 *                                (vector_files.h); or refused.txt, which says why it is not given
 *      OUT/NAME/rank-R/          what it has at the end
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/subject/rank_steps.h"

/* Everything that was given: [ranks][steps + 1], the results last. */
struct given {
    struct attn_rank_steps x;
    const struct attn_claims *claims;
    struct attn_setup *whole; /* its outputs, F64, show one piece at a time */
    struct attn_precision precision;
    struct attn_setup *piece;
    int left_out;  /* steps that refused.txt stands for */
    char why[300]; /* of the first */
};

static struct attn_setup *piece_of(const struct given *g, int rank, int step)
{
    return &g->piece[rank * (g->x.steps + 1) + step];
}

/* Put "rank 1, step 2: " in front of what is said. */
static void say_where(const struct given *g, int rank, int step, char *text, size_t size)
{
    char words[512], where[64];
    snprintf(words, sizeof words, "%s", text);
    snprintf(where, sizeof where, step < g->x.steps ? "rank %d, step %d" : "rank %d, results", rank,
             step);
    snprintf(text, size, "%s: %.*s", where, (int)size - 70, words);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_piece(struct given *g, const char *folder, const char *name, int rank, int step,
                       struct attn_result *r)
{
    const struct attn_rank_held held = attn_rank_held(&g->x, rank, step);
    struct attn_error err = {0};
    struct attn_setup *piece = piece_of(g, rank, step);
    char in[240], words[300];
    attn_rank_folder(&g->x, name, rank, step, in);
    int says = attn_vector_files_words(folder, in, words, sizeof words);
    if (says == ATTN_WORDS_REFUSED && step < g->x.steps && words[0] != '\0') {
        say_where(g, rank, step, words, sizeof words);
        if (g->left_out++ == 0)
            memcpy(g->why, words, sizeof words);
        return;
    }
    if (says == ATTN_WORDS_ERROR || says == ATTN_WORDS_CHANGED)
        attn_result_fail(r, says == ATTN_WORDS_CHANGED ? ATTN_F_INTEGRITY : ATTN_F_STATUS, "%s",
                         words);
    else if (says == ATTN_WORDS_REFUSED)
        attn_result_fail(r, ATTN_F_STATUS, "refused.txt leaves out a step, and says why");
    else if (!attn_vector_files_has(folder, in))
        attn_result_fail(r, ATTN_F_STATUS, "no folder %.200s%s", in,
                         step < g->x.steps ? " (refused.txt in it would leave the step out)" : "");
    else if (attn_rank_piece_open(&g->x, &held, 0, piece, &err) != ATTN_OK)
        attn_result_error(r, err.status, err.text);
    else if (attn_vector_files_take(folder, in, g->claims, held.slots, piece, &err) != ATTN_OK)
        attn_result_fail(r, ATTN_F_STATUS, "%s", err.text);
    if (r->verdict != ATTN_PASS)
        say_where(g, rank, step, r->text, sizeof r->text);
}

/* One rank, or one step of a rank, more than the scheme has. */
static void look_for_more(const struct given *g, const char *folder, const char *name,
                          struct attn_result *r)
{
    char in[240];
    for (int rank = 0; rank <= g->x.ranks && r->verdict == ATTN_PASS; rank++) {
        snprintf(in, sizeof in, "%.190s/rank-%d/step-%d", name, rank, g->x.steps);
        if (rank == g->x.ranks)
            snprintf(in, sizeof in, "%.190s/rank-%d", name, rank);
        if (attn_vector_files_has(folder, in))
            attn_result_fail(r, ATTN_F_STATUS,
                             "%.200s is given: there are ranks 0 to %d, steps 0 "
                             "to %d",
                             in, g->x.ranks - 1, g->x.steps - 1);
    }
}

/* ---- judging --------------------------------------------------------------------------------- */

/* 1: some input here is not that of another place, which *text says: of the heads of the rank n
 * further on, or of the tokens that begin with those of rank n.  n 0: of the place where it is. */
static int is_other(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                    const struct attn_setup *piece, int by_tokens, int n, char text[200])
{
    const struct attn_rank_held from =
        attn_rank_held(x, by_tokens ? held->rank : (held->rank + n) % x->ranks, held->step);
    for (int slot = 0; slot < ATTN_T_O; slot++) {
        const struct attn_tensor *t = &piece->tensor[slot], *whole = &x->setup->tensor[slot];
        const int is_keys = slot == ATTN_T_K || slot == ATTN_T_V;
        const struct attn_box home = attn_rank_held(x, n, x->steps).box[is_keys];
        int64_t w[4];
        if (from.box[is_keys].heads.n != held->box[is_keys].heads.n)
            return 1;
        for (int64_t at[4] = ATTN_START; t->map != NULL && attn_each(at, t->extent);) {
            attn_rank_place(&from, slot, at, w);
            w[2] = by_tokens ? (w[2] + attn_rank_token(&home, 0)) % whole->extent[2] : w[2];
            double got = attn_tensor_get(t, at[0], at[1], at[2], at[3]);
            double want = attn_tensor_get(whole, w[0], w[1], w[2], w[3]);
            if (got == want || (isnan(got) && isnan(want)))
                continue;
            snprintf(text, 200, "%s[%lld,%lld,%lld,%lld] of the whole is %.9g, and here %.9g",
                     t->name, (long long)w[0], (long long)w[1], (long long)w[2], (long long)w[3],
                     want, got);
            return 1;
        }
    }
    return 0;
}

/* Inputs that have only changed hands are the same numbers. */
static void judge_inputs(const struct given *g, const struct attn_rank_held *held,
                         const struct attn_setup *piece, struct attn_result *r)
{
    char text[200], unsaid[200];
    struct attn_diagnosis *d = &r->diagnosis;
    if (!is_other(&g->x, held, piece, 0, 0, text))
        return;
    attn_result_fail(r, ATTN_F_EXACT, "%s", text);
    for (int n = 2; n < 2 * g->x.ranks && d->text[0] == '\0'; n++) {
        if (is_other(&g->x, held, piece, n % 2, n / 2, unsaid))
            continue;
        d->fault = ATTN_FAULT_RANKS;
        snprintf(d->text, sizeof d->text,
                 n % 2 ? "fits tokens rotated: those of rank %d come first"
                       : "fits heads rotated: those that belong %d rank further on",
                 n / 2);
    }
}

/* F64 outputs of heads that see nothing, which other ranks have. */
static enum attn_status clear(struct attn_setup *whole, struct attn_error *err)
{
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++) {
        struct attn_tensor wide, *t = &whole->tensor[slot];
        if (t->map == NULL)
            continue;
        if (t->dtype != ATTN_F64) {
            enum attn_status status =
                attn_tensor_alloc(&wide, t->name, ATTN_F64, t->extent, "bhic", 0, 0, 0, err);
            if (status != ATTN_OK)
                return status;
            attn_tensor_free(t);
            *t = wide;
        }
        for (int64_t at[4] = ATTN_START; attn_each(at, t->extent);)
            attn_tensor_set(t, at[0], at[1], at[2], at[3],
                            slot == ATTN_T_LSE ? -(double)INFINITY : 0);
    }
    return ATTN_OK;
}

/* A pass of what is held, in the outputs of the whole. */
static void judge_held(struct attn_rank_steps *x, const struct attn_rank_held *held,
                       enum attn_pass pass, const struct attn_precision *precision,
                       struct attn_result *r)
{
    struct attn_setup part;
    struct attn_sample sample;
    struct attn_error err = {0};
    enum attn_status status = attn_rank_case(x, held, pass, &part, &sample, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    attn_judge(&part, precision, &sample, pass, r);
    if (r->verdict == ATTN_WEAK) /* a rank may well have met no key yet that it sees */
        r->verdict = ATTN_PASS;
    if (r->verdict == ATTN_FAILED)
        attn_rank_diagnose(x, held, pass, &part, &sample, precision, &r->diagnosis);
    attn_mask_free((struct attn_mask *)(uintptr_t)part.problem.mask);
}

static void judge_outputs(struct given *g, const struct attn_rank_held *held, enum attn_pass pass,
                          struct attn_setup *piece, struct attn_result *r)
{
    struct attn_error err = {0};
    enum attn_status status = clear(g->whole, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    attn_rank_piece_copy(held, piece, g->whole, 1);
    judge_held(&g->x, held, pass, &g->precision, r);
}

/* A rank that has seen nothing but hidden keys fits several mistakes: the one counts that most
 * ranks of its step fit (Boyer and Moore's vote). */
static void ask_others(struct given *g, enum attn_pass pass, int step, int rank,
                       struct attn_diagnosis *diagnosis)
{
    int ahead = 1;
    while (++rank < g->x.ranks && diagnosis->fault != ATTN_FAULT_NONE) {
        const struct attn_rank_held held = attn_rank_held(&g->x, rank, step);
        struct attn_setup *piece = piece_of(g, rank, step);
        struct attn_result r = {0};
        if (piece->tensor[ATTN_T_O].map != NULL && held.slots >> ATTN_T_O != 0)
            judge_outputs(g, &held, pass, piece, &r);
        if (r.diagnosis.fault == ATTN_FAULT_NONE)
            continue;
        ahead += strcmp(r.diagnosis.text, diagnosis->text) == 0 ? 1 : -1;
        if (ahead < 0) {
            *diagnosis = r.diagnosis;
            ahead = 1;
        }
    }
}

/* In the order in which things go wrong: what is wrong later may follow from the first. */
static void judge_steps(struct given *g, struct attn_result *r)
{
    double worst = 0;
    for (int pass = 0; pass <= (int)g->whole->given.pass; pass++)
        for (int step = 0; step <= g->x.steps; step++)
            for (int rank = 0; rank < g->x.ranks; rank++) {
                const struct attn_rank_held held = attn_rank_held(&g->x, rank, step);
                struct attn_setup *piece = piece_of(g, rank, step);
                *r = (struct attn_result){0};
                if (piece->tensor[ATTN_T_O].map == NULL &&
                    piece->tensor[ATTN_T_Q].map == NULL) /* left out */
                    continue;
                if (held.slots >> ATTN_T_O == 0)
                    judge_inputs(g, &held, piece, r);
                else
                    judge_outputs(g, &held, (enum attn_pass)pass, piece, r);
                worst = fmax(worst, r->worst);
                if (r->verdict != ATTN_PASS) {
                    ask_others(g, (enum attn_pass)pass, step, rank, &r->diagnosis);
                    say_where(g, rank, step, r->text, sizeof r->text);
                    return;
                }
            }
    r->worst = worst;
}

/* All ranks' results as those of one call: what is asked of a whole (grade, bias, exactness). */
static void judge_whole(struct given *g, struct attn_result *r)
{
    double worst = r->worst;
    char words[400];
    for (int rank = 0; rank < g->x.ranks; rank++) {
        const struct attn_rank_held held = attn_rank_held(&g->x, rank, g->x.steps);
        attn_rank_piece_copy(&held, piece_of(g, rank, g->x.steps), g->whole, 1);
    }
    *r = (struct attn_result){0};
    attn_judge(g->whole, &g->precision, NULL, g->whole->given.pass, r);
    r->worst = fmax(worst, r->worst);
    if (r->verdict == ATTN_FAILED)
        attn_diagnose(g->whole, r, &r->diagnosis);
    if (r->verdict != ATTN_PASS || g->left_out == 0)
        return;
    snprintf(words, sizeof words, "the results agree, but %d of %d steps are left out: %.300s",
             g->left_out, g->x.ranks * g->x.steps, g->why);
    attn_result_refuse(r, words);
}

void attn_rank_results_judge(const char *scheme, const char *folder, const char *name,
                             const struct attn_claims *claims, struct attn_setup *setup,
                             struct attn_result *r)
{
    struct given g = {.claims = claims, .whole = setup};
    struct attn_error err = {0};
    enum attn_status status = attn_rank_steps_open(scheme, claims, setup, &g.x, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    const int pieces = g.x.ranks * (g.x.steps + 1);
    g.piece = calloc((size_t)pieces, sizeof *g.piece);
    if (g.piece == NULL)
        attn_result_error(r, ATTN_ENOMEM, "no memory for what ranks hold");
    attn_rank_precision(&g.x, claims, &g.precision);
    for (int n = 0; n < pieces && r->verdict == ATTN_PASS; n++)
        read_piece(&g, folder, name, n % g.x.ranks, n / g.x.ranks, r);
    if (r->verdict == ATTN_PASS)
        look_for_more(&g, folder, name, r);
    if (r->verdict == ATTN_PASS)
        judge_steps(&g, r);
    if (r->verdict == ATTN_PASS)
        judge_whole(&g, r);
    for (int n = 0; n < pieces && g.piece != NULL; n++)
        attn_rank_piece_close(&g.piece[n]);
    free(g.piece);
    attn_rank_steps_close(&g.x);
}

/* The pass of one rank's results, if it is wrong. */
static int diagnose_rank(struct attn_rank_steps *x, int rank, enum attn_pass pass,
                         const struct attn_precision *precision, struct attn_diagnosis *diagnosis)
{
    const struct attn_rank_held held = attn_rank_held(x, rank, x->steps);
    struct attn_result r = {0};
    judge_held(x, &held, pass, precision, &r);
    if (r.diagnosis.text[0] == '\0')
        return 0;
    *diagnosis = r.diagnosis;
    snprintf(diagnosis->text, sizeof diagnosis->text, "rank %d %.*s", rank,
             (int)sizeof diagnosis->text - 20, r.diagnosis.text);
    return 1;
}

int attn_rank_results_diagnose(int ranks, const struct attn_claims *claims,
                               struct attn_setup *setup, struct attn_diagnosis *diagnosis)
{
    struct attn_rank_steps x;
    struct attn_precision precision;
    struct attn_error err = {0};
    char scheme[32];
    int found = 0;
    snprintf(scheme, sizeof scheme, "ring:ranks=%d", ranks);
    if (attn_rank_steps_open(scheme, claims, setup, &x, &err) != ATTN_OK)
        return 0;
    attn_rank_precision(&x, claims, &precision);
    for (int n = 0; n <= (int)setup->given.pass * ranks + ranks - 1 && !found; n++)
        found = diagnose_rank(&x, n % ranks, (enum attn_pass)(n / ranks), &precision, diagnosis);
    attn_rank_steps_close(&x);
    return found;
}
