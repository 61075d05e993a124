/* See rank_steps.h: shards and truths out.
 *
 *      DIR/NAME/rank-R/inputs.safetensors   q k v [do] [dlse] of the rank's tokens; query_tokens and
 *                                           key_tokens, which these are; [mask], of its queries and
 *                                           all keys
 *      DIR/NAME/rank-R/truth.safetensors    step-S.o, step-S.lse, ..., and the results o lse ... of
 *                                           the oracle, F64
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/external/rank_steps.h"
#include "tests/harness/files/folder.h"

/* A file being made. */
struct sheet {
    int n;
    struct attn_file_tensor *tensor;
    char (*name)[32];
};

static enum attn_status sheet_open(int most, struct sheet *s, struct attn_error *err)
{
    *s = (struct sheet){0, calloc((size_t)most, sizeof *s->tensor), calloc((size_t)most, 32)};
    return s->tensor != NULL && s->name != NULL ? ATTN_OK
                                                : attn_fail(err, ATTN_ENOMEM, "no memory for a file");
}

static enum attn_status sheet_close(struct sheet *s, const char *path, const char *scheme,
                                    enum attn_status status, struct attn_error *err)
{
    const struct attn_file_pair pair = {"scheme", scheme};
    for (int n = 0; n < s->n; n++)
        s->tensor[n].name = s->name[n];
    if (status == ATTN_OK)
        status = attn_safetensors_write(path, s->tensor, s->n, &pair, 1, err);
    for (int n = 0; n < s->n; n++)
        free(s->tensor[n].data);
    free(s->tensor);
    free(s->name);
    return status;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static enum attn_status put_tokens(struct sheet *s, const char *name, const struct attn_box *box,
                                   struct attn_error *err)
{
    int64_t *token = malloc(((size_t)box->tokens + 1) * sizeof *token);
    if (token == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %s", name);
    for (int64_t n = 0; n < box->tokens; n++)
        token[n] = attn_rank_token(box, n);
    snprintf(s->name[s->n], sizeof s->name[0], "%s", name);
    s->tensor[s->n++] = (struct attn_file_tensor){.dtype = ATTN_FILE_I64,
                                                  .n_axes = 1,
                                                  .extent = {box->tokens},
                                                  .bytes = box->tokens * (int64_t)sizeof *token,
                                                  .data = token};
    return ATTN_OK;
}

/* [B,H,queries of the rank,Lk] */
static enum attn_status put_mask(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                                 const struct attn_claims *claims, struct sheet *s,
                                 struct attn_error *err)
{
    const struct attn_problem *p = &x->setup->problem;
    const int64_t n[4] = {p->batch, p->heads, held->queries.tokens, p->n_key};
    const int hidden = claims->byte != ATTN_PLUGIN_ONE_IS_VISIBLE;
    struct attn_file_tensor *to = &s->tensor[s->n];
    *to = (struct attn_file_tensor){.dtype = ATTN_FILE_U8, .n_axes = 4};
    memcpy(to->extent, n, sizeof n);
    to->bytes = n[0] * n[1] * n[2] * n[3];
    unsigned char *byte = to->data = malloc((size_t)to->bytes + 1);
    if (byte == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a mask");
    snprintf(s->name[s->n++], sizeof s->name[0], "mask");
    for (int64_t at[4] = ATTN_START; attn_each(at, n);) {
        int64_t i = attn_rank_token(&held->queries, at[2]);
        int64_t pair = ((at[0] * p->heads + at[1]) * p->n_query + i) * p->n_key + at[3];
        *byte++ = x->sees[pair] != hidden;
    }
    return ATTN_OK;
}

static enum attn_status write_inputs(const struct attn_rank_steps *x, int rank, const char *path,
                                     const char *scheme, const struct attn_claims *claims,
                                     struct attn_error *err)
{
    const struct attn_rank_held held = attn_rank_given(x, rank);
    struct attn_given_mask given;
    struct attn_setup piece;
    struct sheet s = {0};
    enum attn_status status = attn_rank_piece_open(x, &held, &piece, err);
    if (status != ATTN_OK)
        return status;
    status = sheet_open(ATTN_SLOTS + 3, &s, err);
    for (int slot = 0; slot < ATTN_SLOTS && status == ATTN_OK; slot++) {
        struct attn_tensor *t = &piece.tensor[slot];
        if (t->map == NULL)
            continue;
        int64_t whole[4];
        for (int64_t at[4] = ATTN_START; attn_each(at, t->extent);) {
            attn_rank_place(&held, slot, at, whole);
            attn_tensor_set(t, at[0], at[1], at[2], at[3],
                            attn_tensor_get(&x->setup->tensor[slot], whole[0], whole[1], whole[2],
                                            whole[3]));
        }
        snprintf(s.name[s.n], sizeof s.name[0], "%s", t->name);
        status = attn_vector_files_gather(claims, t, slot, &s.tensor[s.n++], err);
    }
    if (status == ATTN_OK)
        status = put_tokens(&s, "query_tokens", &held.queries, err);
    if (status == ATTN_OK)
        status = put_tokens(&s, "key_tokens", &held.keys, err);
    if (status == ATTN_OK &&
        attn_claims_mask(claims, &x->setup->problem, &given) == ATTN_CLAIMS_BYTES)
        status = put_mask(x, &held, claims, &s, err);
    attn_rank_piece_close(&piece);
    return sheet_close(&s, path, scheme, status, err);
}

/* ---- truths ---------------------------------------------------------------------------------- */

/* One tensor that is held, as float64 in the layout and the LSE of the claims. */
static enum attn_status put_truth(const struct attn_rank_steps *x, int step, int slot,
                                  const struct attn_truth_tensor *truth,
                                  const struct attn_claims *claims, struct sheet *s,
                                  struct attn_error *err)
{
    struct attn_tensor t;
    int64_t n = 0;
    enum attn_status status = attn_tensor_alloc(&t, truth->name, ATTN_F64, truth->extent, "bhic", 0,
                                                0, 0, err);
    if (status != ATTN_OK)
        return status;
    for (int64_t at[4] = ATTN_START; attn_each(at, t.extent); n++)
        attn_tensor_set(&t, at[0], at[1], at[2], at[3],
                        slot == ATTN_T_LSE ? attn_claims_lse_out(claims, truth->want[n])
                                           : truth->want[n]);
    if (step < x->steps)
        snprintf(s->name[s->n], sizeof s->name[0], "step-%d.%s", step, truth->name);
    else
        snprintf(s->name[s->n], sizeof s->name[0], "%s", truth->name);
    status = attn_vector_files_gather(claims, &t, slot, &s->tensor[s->n++], err);
    attn_tensor_free(&t);
    return status;
}

static enum attn_status write_truths(struct attn_rank_steps *x, int rank, const char *path,
                                     const char *scheme, const struct attn_claims *claims,
                                     struct attn_error *err)
{
    struct attn_precision precision;
    struct sheet s;
    enum attn_status status = sheet_open((x->steps + 1) * ATTN_OUTPUTS, &s, err);
    attn_rank_precision(x, claims, &precision);
    for (int step = 0; step <= x->steps; step++)
        for (int pass = 0; pass <= (int)x->pass && status == ATTN_OK; pass++) {
            const struct attn_rank_held held = attn_rank_held(x, rank, step);
            struct attn_truth truth;
            if (held.slots >> ATTN_T_O == 0) /* inputs, which are known */
                continue;
            status = attn_rank_truth(x, &held, (enum attn_pass)pass, &precision, NULL, &truth, err);
            if (status != ATTN_OK)
                break;
            for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
                if (attn_rank_judges(&held, (enum attn_pass)pass, o))
                    status = put_truth(x, step, ATTN_T_O + o, &truth.tensor[o], claims, &s, err);
            attn_truth_free(&truth);
        }
    return sheet_close(&s, path, scheme, status, err);
}

enum attn_status attn_rank_cases_write(struct attn_vector_files_writer *w, const char *name,
                                       const struct attn_setup *setup, struct attn_error *err)
{
    struct attn_rank_steps x;
    char rank_name[240], path[4096];
    enum attn_status status = attn_rank_steps_open(w->scheme, setup, &x, err);
    if (status != ATTN_OK)
        return status;
    w->ranks = x.ranks;
    snprintf(path, sizeof path, "%.3500s/%.200s", w->folder, name);
    status = attn_folder_make(path, err);
    for (int r = 0; r < x.ranks && status == ATTN_OK; r++) {
        attn_rank_folder(&x, name, r, x.steps, rank_name);
        snprintf(path, sizeof path, "%.3500s/%s", w->folder, rank_name);
        status = attn_folder_make(path, err);
        snprintf(path, sizeof path, "%.3500s/%s/inputs.safetensors", w->folder, rank_name);
        if (status == ATTN_OK)
            status = write_inputs(&x, r, path, w->scheme, w->claims, err);
        snprintf(path, sizeof path, "%.3500s/%s/truth.safetensors", w->folder, rank_name);
        if (status == ATTN_OK)
            status = write_truths(&x, r, path, w->scheme, w->claims, err);
    }
    attn_rank_steps_close(&x);
    return status;
}
