/* See rank_steps.h: shards and truths out.
 *
 *      DIR/NAME/rank-R/inputs.safetensors   q k v [do] [dlse] of the rank's tokens, which are
 *                                           query_tokens and key_tokens; [mask], of its queries and
 *                                           all keys
 *      DIR/NAME/rank-R/truth.safetensors    what it must hold, step-S.o, step-S.lse, ..., and give,
 *                                           o, lse, ...: by the oracle, F64
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/base/folder.h"
#include "tests/harness/subject/rank_steps.h"

/* The tensors of a file. */
enum { MAX_TENSORS = (ATTN_MAX_RANKS + 1) * ATTN_OUTPUTS };
struct sheet {
    const struct attn_claims *claims;
    int n;
    struct attn_file_tensor tensor[MAX_TENSORS];
    char name[MAX_TENSORS][32];
};

static enum attn_status write_sheet(struct sheet *s, const char *path, const char *scheme,
                                    enum attn_status status, struct attn_error *err)
{
    const struct attn_file_pair pair = {"scheme", scheme};
    for (int n = 0; n < s->n; n++)
        s->tensor[n].name = s->name[n];
    if (status == ATTN_OK)
        status = attn_safetensors_write(path, s->tensor, s->n, &pair, 1, err);
    for (int n = 0; n < s->n; n++)
        free(s->tensor[n].data);
    s->n = 0;
    return status;
}

/* Everything that is held, from the whole's tensors; or from its truth, in which rows and keys are
 * those that are held. */
static enum attn_status put_piece(const struct attn_rank_steps *x,
                                  const struct attn_rank_held *held, const char *prefix,
                                  const struct attn_truth *truth, struct sheet *s,
                                  struct attn_error *err)
{
    struct attn_setup piece;
    enum attn_status status = attn_rank_piece_open(x, held, truth != NULL, &piece, err);
    for (int slot = 0; slot < ATTN_SLOTS && status == ATTN_OK; slot++) {
        struct attn_tensor *t = &piece.tensor[slot];
        int64_t w[4];
        if (t->map == NULL)
            continue;
        for (int64_t at[4] = ATTN_START; attn_each(at, t->extent);) {
            attn_rank_place(held, slot, at, w);
            double value = attn_tensor_get(&x->setup->tensor[slot], w[0], w[1], w[2], w[3]);
            if (truth != NULL) {
                const struct attn_truth_tensor *from = &truth->tensor[slot - ATTN_T_O];
                const int64_t *n = from->extent;
                value = from->want[((w[0] * n[1] + w[1]) * n[2] + at[2]) * n[3] + w[3]];
            }
            if (slot == ATTN_T_LSE)
                value = attn_claims_lse_out(s->claims, value);
            attn_tensor_set(t, at[0], at[1], at[2], at[3], value);
        }
        snprintf(s->name[s->n], sizeof s->name[0], "%s%s", prefix, t->name);
        status = attn_vector_files_gather(s->claims, NULL, t, slot, &s->tensor[s->n++], err);
    }
    attn_rank_piece_close(&piece);
    return status;
}

/* A tensor of this shape that is not one of attention; NULL without memory. */
static void *put_other(struct sheet *s, const char *name, struct attn_file_tensor shape)
{
    snprintf(s->name[s->n], sizeof s->name[0], "%s", name);
    s->tensor[s->n] = shape;
    return s->tensor[s->n++].data = malloc((size_t)shape.bytes + 1);
}

static enum attn_status put_tokens(struct sheet *s, const char *name, const struct attn_box *box,
                                   struct attn_error *err)
{
    int64_t *token = put_other(s, name,
                               (struct attn_file_tensor){.dtype = ATTN_FILE_I64,
                                                         .n_axes = 1,
                                                         .extent = {box->tokens},
                                                         .bytes = box->tokens * 8});
    for (int64_t n = 0; n < box->tokens && token != NULL; n++)
        token[n] = attn_rank_token(box, n);
    return token != NULL ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "no memory for %s", name);
}

static enum attn_status put_mask(const struct attn_rank_steps *x, const struct attn_box *rows,
                                 struct sheet *s, struct attn_error *err)
{
    const struct attn_problem *p = &x->setup->problem;
    const int64_t n[4] = {p->batch, p->heads, rows->tokens, p->n_key};
    const int hidden = s->claims->byte != ATTN_PLUGIN_ONE_IS_VISIBLE;
    unsigned char *byte = put_other(s, "mask",
                                    (struct attn_file_tensor){.dtype = ATTN_FILE_U8,
                                                              .n_axes = 4,
                                                              .extent = {n[0], n[1], n[2], n[3]},
                                                              .bytes = n[0] * n[1] * n[2] * n[3]});
    if (byte == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a mask");
    for (int64_t at[4] = ATTN_START; attn_each(at, n);) {
        int64_t row = (at[0] * p->heads + at[1]) * p->n_query + attn_rank_token(rows, at[2]);
        *byte++ = x->sees[row * p->n_key + at[3]] != hidden;
    }
    return ATTN_OK;
}

static enum attn_status put_inputs(const struct attn_rank_steps *x, int rank, struct sheet *s,
                                   struct attn_error *err)
{
    struct attn_rank_held held = attn_rank_held(x, rank, x->steps);
    struct attn_given_mask given;
    held.slots = (1u << ATTN_T_O) - 1; /* all inputs */
    enum attn_status status = put_piece(x, &held, "", NULL, s, err);
    if (status == ATTN_OK)
        status = put_tokens(s, "query_tokens", &held.box[0], err);
    if (status == ATTN_OK)
        status = put_tokens(s, "key_tokens", &held.box[1], err);
    if (status == ATTN_OK &&
        attn_claims_mask(s->claims, &x->setup->problem, &given) == ATTN_CLAIMS_BYTES)
        status = put_mask(x, &held.box[0], s, err);
    return status;
}

/* Outputs of one pass: O and LSE, or gradients. */
static enum attn_status put_truth(struct attn_rank_steps *x, struct attn_rank_held held,
                                  enum attn_pass pass, struct sheet *s, struct attn_error *err)
{
    struct attn_precision precision;
    struct attn_setup part;
    struct attn_sample sample;
    struct attn_truth truth;
    char prefix[24] = "";
    enum attn_status status = attn_rank_case(x, &held, pass, &part, &sample, err);
    if (status != ATTN_OK)
        return status;
    if (held.step < x->steps)
        snprintf(prefix, sizeof prefix, "step-%d.", held.step);
    const struct attn_inputs in = attn_setup_inputs(&part, pass);
    attn_rank_precision(x, s->claims, &precision);
    status = attn_truth_compute(&part.problem, &in, &precision, &sample, &truth, err);
    held.slots &= pass == ATTN_FORWARD ? (1u << ATTN_T_DQ) - 1 : ~0u << ATTN_T_DQ;
    if (status == ATTN_OK) {
        status = put_piece(x, &held, prefix, &truth, s, err);
        attn_truth_free(&truth);
    }
    attn_mask_free((struct attn_mask *)(uintptr_t)part.problem.mask);
    return status;
}

static enum attn_status put_truths(struct attn_rank_steps *x, int rank, struct sheet *s,
                                   struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int step = 0; step <= x->steps; step++)
        for (int pass = 0; pass <= (int)x->setup->given.pass && status == ATTN_OK; pass++) {
            const struct attn_rank_held held = attn_rank_held(x, rank, step);
            if (held.slots >> ATTN_T_O != 0) /* inputs are known */
                status = put_truth(x, held, (enum attn_pass)pass, s, err);
        }
    return status;
}

static enum attn_status write_rank(struct attn_rank_steps *x, int rank,
                                   const struct attn_vector_files_writer *w, const char *name,
                                   struct sheet *s, struct attn_error *err)
{
    char in[240], path[4096];
    snprintf(path, sizeof path, "%.3500s/%s", w->folder,
             attn_rank_folder(x, name, rank, x->steps, in));
    enum attn_status status = attn_folder_make(path, err);
    if (status != ATTN_OK)
        return status;
    snprintf(path, sizeof path, "%.3500s/%s/inputs.safetensors", w->folder, in);
    status = write_sheet(s, path, w->scheme, put_inputs(x, rank, s, err), err);
    if (status != ATTN_OK || w->has_no_truth)
        return status;
    snprintf(path, sizeof path, "%.3500s/%s/truth.safetensors", w->folder, in);
    return write_sheet(s, path, w->scheme, put_truths(x, rank, s, err), err);
}

enum attn_status attn_rank_cases_write(struct attn_vector_files_writer *w, const char *name,
                                       const struct attn_setup *setup, struct attn_error *err)
{
    struct attn_rank_steps x;
    char path[4096];
    enum attn_status status = attn_rank_steps_open(w->scheme, w->claims, setup, &x, err);
    if (status != ATTN_OK)
        return status;
    struct sheet *sheet = calloc(1, sizeof *sheet);
    if (sheet == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for the tensors of a rank");
    snprintf(path, sizeof path, "%.3500s/%.200s", w->folder, name);
    if (status == ATTN_OK)
        status = attn_folder_make(path, err);
    w->ranks = x.ranks;
    for (int r = 0; r < x.ranks && status == ATTN_OK; r++) {
        sheet->claims = w->claims;
        status = write_rank(&x, r, w, name, sheet, err);
    }
    free(sheet);
    attn_rank_steps_close(&x);
    return status;
}
