/* See messages.h. */
#include "experiments/price/messages.h"

#include <stdlib.h>

#include "experiments/cli/cli.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"

/* Each source has its own list, and is one thread at a time. */
static void note_down(void *arg, const struct attn_note *note)
{
    struct attn_messages *messages = arg;
    struct attn_messages_of *of = &messages->of[note->source];
    if (of->n == of->capacity) {
        of->capacity = 2 * of->capacity + 16;
        of->note = attn_cli_need(realloc(of->note, (size_t)of->capacity * sizeof *of->note));
    }
    of->note[of->n++] = *note;
}

enum attn_status attn_messages_open(struct attn_messages *messages, const struct attn_spec *spec,
                                    struct attn_error *err)
{
    *messages = (struct attn_messages){0};
    if (spec->impl->ranks == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "--log: %s is one process, which sends no messages; an implementation "
                         "with ranks, such as ring:ranks=4, would work",
                         spec->impl->name);
    messages->ranks = attn_ranks(spec->impl, &spec->options);
    messages->of = attn_cli_need(calloc((size_t)messages->ranks, sizeof *messages->of));
    messages->log = (struct attn_log){.note = note_down, .arg = messages};
    return ATTN_OK;
}

void attn_messages_close(struct attn_messages *messages)
{
    for (int r = 0; r < messages->ranks; r++)
        free(messages->of[r].note);
    free(messages->of);
    *messages = (struct attn_messages){0};
}

/* ---- without tensors ------------------------------------------------------------------------- */

/* Counts on tensors that no rank reads or writes. */
static enum attn_status count(const struct attn_spec *spec, struct attn_ctx *ctx,
                              const struct attn_problem *p, enum attn_pass pass)
{
    char anything;
    const struct attn_view queries =
        attn_packed_view(&anything, p->dtype, p->heads, p->n_query, p->d_key);
    const struct attn_view keys =
        attn_packed_view(&anything, p->dtype, p->kv_heads, p->n_key, p->d_key);
    const struct attn_view values = attn_packed_view(&anything, p->dtype, p->kv_heads, p->n_key,
                                                     p->kv_shared ? p->d_key : p->d_value);
    const struct attn_view results =
        attn_packed_view(&anything, p->dtype, p->heads, p->n_query, p->d_value);
    const struct attn_view rows =
        attn_packed_view(&anything, attn_lse_dtype(p), p->heads, p->n_query, 1);
    const struct attn_forward forward = {.q = attn_view_const(&queries),
                                         .k = attn_view_const(&keys),
                                         .v = attn_view_const(&values),
                                         .o = results,
                                         .lse = rows};
    const struct attn_backward backward = {.q = forward.q,
                                           .k = forward.k,
                                           .v = forward.v,
                                           .o = attn_view_const(&results),
                                           .lse = attn_view_const(&rows),
                                           .d_o = attn_view_const(&results),
                                           .dq = queries,
                                           .dk = keys,
                                           .dv = values};
    return pass == ATTN_FORWARD ? attn_run_forward(spec->impl, ctx, p, &forward)
                                : attn_run_backward(spec->impl, ctx, p, &backward);
}

enum attn_status attn_messages_count(struct attn_messages *messages, const struct attn_spec *spec,
                                     const struct attn_problem *problem, enum attn_pass pass,
                                     struct attn_rank_use *use, struct attn_error *err)
{
    struct attn_ledger *ledger = attn_cli_need(malloc(sizeof *ledger));
    struct attn_ctx ctx = {.ledger = ledger,
                           .options = &spec->options,
                           .error = err,
                           .ranks = use,
                           .log = messages != NULL ? &messages->log : NULL,
                           .counts_only = 1};
    attn_ledger_init(ledger, NULL);
    enum attn_status status = count(spec, &ctx, problem, pass);
    attn_ledger_clear(ledger);
    free(ledger);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Words of ours and numbers: a line of JSON that needs no memory, which could be refused while the
 * file is half written. */
static void write_note(FILE *stream, const struct attn_note *note)
{
    fprintf(stream,
            "{\"pass\":\"%s\",\"step\":%d,\"tensor\":\"%s\",\"source\":%d,"
            "\"destination\":%d,\"bytes\":%lld,\"dtype\":\"%s\"}\n",
            attn_pass_name(note->pass), note->step, note->tensor, note->source, note->destination,
            (long long)note->bytes, attn_dtype_name(note->dtype));
}

enum attn_status attn_messages_save(const struct attn_messages *messages, const char *path,
                                    struct attn_error *err)
{
    struct attn_save save;
    enum attn_status status = attn_save_open(path, &save, err);
    if (status != ATTN_OK)
        return status;
    for (int r = 0; r < messages->ranks; r++)
        for (int64_t n = 0; n < messages->of[r].n; n++)
            write_note(save.stream, &messages->of[r].note[n]);
    return attn_save_close(&save, status, err);
}
