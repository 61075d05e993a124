/* See caller.h: the caller as a struct attn_impl, for relations and for repeats.
 *
 * A pass is a batch of one case, named as those of exec.h are.  Its inputs are the tensors that are
 * given; a backward pass asks for o and lse too, and leaves them. */
#include "tests/harness/subject/caller.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/clock.h"
#include "ref/problem.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/relations/relations.h"
#include "tests/harness/subject/exec.h"
#include "tests/harness/subject/vector_files.h"

/* The calls of a question. */
struct calls {
    struct attn_impl impl; /* first: options.local points here */
    struct attn_spec spec;
    struct attn_subject *x;
    char folder[ATTN_FOLDER_PATH];
    char what[ATTN_CASE_TEXT]; /* the case string, or the relation */
    char integrity[300];       /* inputs that it changed, in its own words; "" */
    char refusal[280];         /* of the last call that was refused, in its own words; "" */
};

/* ---- one call -------------------------------------------------------------------------------- */

/* A case of which such a problem could be: for the manifest. */
static void name_case(const struct attn_problem *p, enum attn_pass pass, struct attn_case *c)
{
    *c = (struct attn_case){.batch = p->batch,
                            .heads = p->heads,
                            .kv_heads = p->kv_heads,
                            .n_query = p->n_query,
                            .n_key = p->n_key,
                            .d_key = p->d_key,
                            .d_value = p->d_value,
                            .dtype = p->dtype,
                            .fill = ATTN_FILL_NORMAL,
                            .pass = pass,
                            .scale = p->scale,
                            .softcap = p->softcap,
                            .kv_shared = p->kv_shared};
    snprintf(c->mask, sizeof c->mask, "%s", p->mask != NULL ? attn_mask_text(p->mask) : "none");
}

/* Extents of the tensor of a slot. */
static void extents(const struct attn_problem *p, int slot, int64_t n[4])
{
    static const enum attn_slot like[ATTN_SLOTS] = {
        [ATTN_T_DQ] = ATTN_T_Q,    [ATTN_T_DK] = ATTN_T_K,     [ATTN_T_DV] = ATTN_T_V,
        [ATTN_T_DO] = ATTN_T_O,    [ATTN_T_DLSE] = ATTN_T_LSE, [ATTN_T_DBIAS] = ATTN_T_BIAS,
        [ATTN_T_K] = ATTN_T_K,     [ATTN_T_V] = ATTN_T_V,      [ATTN_T_O] = ATTN_T_O,
        [ATTN_T_LSE] = ATTN_T_LSE, [ATTN_T_BIAS] = ATTN_T_BIAS};
    const enum attn_slot s = like[slot];
    int of_keys = s == ATTN_T_K || s == ATTN_T_V;
    n[0] = p->batch;
    n[1] = of_keys ? p->kv_heads : p->heads;
    n[2] = of_keys ? p->n_key : p->n_query;
    if (slot == ATTN_T_SINK || slot == ATTN_T_DSINK) {
        n[0] = n[2] = n[3] = 1;
        n[1] = p->heads;
        return;
    }
    n[3] = s == ATTN_T_LSE                  ? 1
           : s == ATTN_T_BIAS               ? p->n_key
           : s == ATTN_T_V || s == ATTN_T_O ? p->d_value
                                            : p->d_key;
}

/* A tensor that is given: read, and not to be freed. */
static void borrow(struct attn_setup *s, int slot, const char *name, const struct attn_cview *view)
{
    struct attn_tensor *t = &s->tensor[slot];
    if (view->data == NULL)
        return;
    *t = (struct attn_tensor){.name = name,
                              .dtype = view->dtype,
                              .stored = view->dtype,
                              .data = (void *)(uintptr_t)view->data,
                              .map = (void *)(uintptr_t)view->data};
    memcpy(t->stride, view->stride, sizeof view->stride);
    extents(&s->problem, slot, t->extent);
}

/* An output, for results as they are read: another storage type makes it wide. */
static enum attn_status make(struct attn_setup *s, enum attn_output o, enum attn_dtype dtype,
                             struct attn_error *err)
{
    int64_t n[4];
    unsigned broadcast = 0;
    const int64_t *bias = s->problem.bias.tensor.stride;
    extents(&s->problem, attn_slot_of(o), n);
    for (int axis = 0; axis < 4 && o == ATTN_DBIAS; axis++)
        broadcast |= (unsigned)(bias[axis] == 0 && n[axis] > 1) << axis;
    return attn_tensor_alloc(&s->tensor[attn_slot_of(o)], attn_output_name(o), dtype, n, "bhic", 0,
                             0, broadcast, err);
}

/* Results to where they are wanted. */
static void give_back(const struct attn_setup *s, enum attn_output o, const struct attn_view *view)
{
    const struct attn_tensor *t = &s->tensor[attn_slot_of(o)];
    for (int64_t at[4] = ATTN_START; view->data != NULL && attn_each(at, t->extent);)
        attn_view_set(view, at[0], at[1], at[2], at[3],
                      attn_tensor_get(t, at[0], at[1], at[2], at[3]));
}

/* Write, hand over, read. */
static enum attn_status exchange(struct calls *k, struct attn_setup *s, struct attn_error *err)
{
    struct attn_subject *x = k->x;
    char cases[ATTN_FOLDER_PATH + 16], out[ATTN_FOLDER_PATH + 16], words[280];
    struct attn_process ran;
    if (x->gone != ATTN_PASS)
        return attn_fail(err, ATTN_EINTERNAL, "the caller is gone");
    snprintf(cases, sizeof cases, "%s/cases", k->folder);
    snprintf(out, sizeof out, "%s/out", k->folder);
    attn_folder_remove(out);
    enum attn_status status = attn_exec_write(k->folder, &x->claims, s, err);
    if (status != ATTN_OK)
        return status;
    attn_caller_hand(cases, out, fmin(x->timeout_s, attn_subject_left(x)), &ran);
    const enum attn_verdict end = attn_exec_end(&ran, x->timeout_s, words, sizeof words);
    if (end != ATTN_PASS) {
        x->gone = end;
        fprintf(x->notes, "attnlab: %s in '%s': %s\n", attn_verdict_name(end), k->what, words);
        return attn_fail(err, ATTN_EINTERNAL, "%s", words);
    }
    switch (attn_vector_files_words(out, ATTN_EXEC_CASE, words, sizeof words)) {
    case ATTN_WORDS_CHANGED:
        snprintf(k->integrity, sizeof k->integrity, "%s", words);
        return attn_fail(err, ATTN_EINTERNAL, "%s", words);
    case ATTN_WORDS_ERROR:
        return attn_fail(err, ATTN_EINTERNAL, "%s", words);
    case ATTN_WORDS_REFUSED:
        snprintf(k->refusal, sizeof k->refusal, "%s", words);
        return attn_fail(err, ATTN_ENOTSUP, "%s", words);
    default:
        return attn_exec_read(k->folder, &x->claims, s, err);
    }
}

static struct calls *calls_of(const struct attn_options *options)
{
    return (struct calls *)(uintptr_t)options->local;
}

static void begin(const struct attn_problem *p, enum attn_pass pass, const struct attn_cview *q,
                  const struct attn_cview *k, const struct attn_cview *v, struct attn_setup *s)
{
    *s = (struct attn_setup){.problem = *p};
    name_case(p, pass, &s->given);
    borrow(s, ATTN_T_Q, "q", q);
    borrow(s, ATTN_T_K, "k", k);
    borrow(s, ATTN_T_V, "v", v);
    if (p->bias.kind == ATTN_BIAS_TENSOR)
        borrow(s, ATTN_T_BIAS, "bias", &p->bias.tensor);
    if (p->sink.given)
        borrow(s, ATTN_T_SINK, "sink", &p->sink.tensor);
}

static void end(struct attn_setup *s)
{
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++)
        attn_tensor_free(&s->tensor[slot]);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct attn_setup s;
    begin(p, ATTN_FORWARD, &t->q, &t->k, &t->v, &s);
    enum attn_status status = make(&s, ATTN_O, t->o.dtype, ctx->error);
    if (status == ATTN_OK)
        status = make(&s, ATTN_LSE, t->lse.dtype, ctx->error);
    if (status == ATTN_OK)
        status = exchange(calls_of(ctx->options), &s, ctx->error);
    if (status == ATTN_OK) {
        give_back(&s, ATTN_O, &t->o);
        give_back(&s, ATTN_LSE, &t->lse);
    }
    end(&s);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    const struct attn_view *const out[ATTN_OUTPUTS] = {[ATTN_DQ] = &t->dq,
                                                       [ATTN_DK] = &t->dk,
                                                       [ATTN_DV] = &t->dv,
                                                       [ATTN_DBIAS] = &t->dbias,
                                                       [ATTN_DSINK] = &t->dsink};
    struct attn_setup s;
    enum attn_status status = ATTN_OK;
    begin(p, ATTN_BACKWARD, &t->q, &t->k, &t->v, &s);
    borrow(&s, ATTN_T_DO, "do", &t->d_o);
    borrow(&s, ATTN_T_DLSE, "dlse", &t->d_lse);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++) {
        int is_forward = o == ATTN_O || o == ATTN_LSE;
        enum attn_dtype dtype = o == ATTN_O     ? t->o.dtype
                                : o == ATTN_LSE ? t->lse.dtype
                                                : out[o]->dtype;
        if (is_forward || (out[o]->data != NULL && !(o == ATTN_DV && p->kv_shared)))
            status = make(&s, (enum attn_output)o, dtype, ctx->error);
    }
    if (status == ATTN_OK)
        status = exchange(calls_of(ctx->options), &s, ctx->error);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        if (out[o] != NULL)
            give_back(&s, (enum attn_output)o, out[o]);
    end(&s);
    return status;
}

static void precision(const struct attn_problem *p, const struct attn_options *options,
                      struct attn_precision *to)
{
    attn_claims_precision(&calls_of(options)->x->claims, p, to);
}

/* ---- questions ------------------------------------------------------------------------------- */

static enum attn_status open_calls(struct attn_subject *x, double bytes, struct calls *k,
                                   struct attn_error *err)
{
    *k = (struct calls){.x = x};
    k->impl = attn_claims_impl(&x->claims, "a caller", "caller");
    k->impl.forward = forward;
    k->impl.backward = backward;
    k->impl.precision = precision;
    k->spec = (struct attn_spec){.impl = &k->impl, .options.local = &k->impl};
    return attn_temporary_open_for(3 * bytes + (16 << 20), k->folder, err);
}

/* How the question ended counts for more than the runner knows of it. */
static void add_end(const struct calls *k, struct attn_result *r)
{
    if (k->integrity[0] != '\0') {
        r->verdict = ATTN_FAILED;
        r->failure = ATTN_F_INTEGRITY;
        r->by_it = 0;
        snprintf(r->text, sizeof r->text, "%s", k->integrity);
    }
    if (k->x->gone != ATTN_PASS) {
        r->verdict = k->x->gone;
        r->failure = ATTN_F_NONE;
    }
}

/* One case again and again. */
static void repeat(struct attn_subject *x, const struct attn_case *c, struct attn_answer *answer)
{
    struct attn_result *r = &answer->result;
    struct attn_setup setup;
    struct attn_error err = {0};
    struct calls k;
    struct attn_repetition how = x->how;
    const double start = attn_seconds(CLOCK_MONOTONIC);
    memset(answer, 0, sizeof *answer);
    if (!attn_subject_setup(x, c, &setup, answer)) {
        answer->seconds = attn_seconds(CLOCK_MONOTONIC) - start;
        return;
    }
    enum attn_status status = open_calls(x, attn_case_bytes(c), &k, &err);
    if (status == ATTN_OK) {
        attn_case_print(c, k.what);
        how.same_bits = (x->claims.bits & ATTN_CAP_REPEATS) != 0;
        attn_run_setup(&k.spec, &setup, &how, r);
        if (r->by_it && r->verdict == ATTN_FAILED)
            attn_result_refuse(r, k.refusal);
        add_end(&k, r);
        if (x->claims.lse == ATTN_PLUGIN_LSE_ABSENT)
            attn_result_drop_lse(r);
        if (r->verdict == ATTN_FAILED && r->failure >= ATTN_F_FINITE && x->diagnoses)
            attn_diagnose(&setup, r, &r->diagnosis);
        attn_temporary_close(k.folder);
    } else
        attn_result_error(r, status, err.text);
    attn_setup_close(&setup);
    answer->seconds = attn_seconds(CLOCK_MONOTONIC) - start;
}

static enum attn_status ask(struct attn_subject *x, struct attn_asked *asked, int n,
                            struct attn_answer *answer, struct attn_error *err)
{
    if (x->how.calls <= 1 || x->gone != ATTN_PASS)
        return attn_exec_ask(x, asked, n, answer, err);
    for (int i = 0; i < n; i++)
        repeat(x, &asked[i].c, &answer[i]);
    return ATTN_OK;
}

static void ask_relation(struct attn_subject *x, const struct attn_relation *relation,
                         struct attn_answer *answer)
{
    const double start = attn_seconds(CLOCK_MONOTONIC);
    struct attn_error err = {0};
    struct calls k;
    memset(answer, 0, sizeof *answer);
    answer->not_reached = x->gone != ATTN_PASS || !(attn_subject_left(x) > 0);
    x->not_reached += answer->not_reached;
    if (answer->not_reached)
        return;
    if (attn_claims_are_packed(&x->claims)) {
        answer->result.verdict = ATTN_REFUSED;
        snprintf(answer->result.text, sizeof answer->result.text,
                 "relations are not asked of packed batches");
        return;
    }
    enum attn_status status = open_calls(x, 0, &k, &err);
    if (status != ATTN_OK) {
        attn_result_error(&answer->result, status, err.text);
        return;
    }
    snprintf(k.what, sizeof k.what, "relation %s", relation->id);
    answer->wants.needs = attn_relation_run(relation, &k.spec, &x->claims, &answer->result);
    add_end(&k, &answer->result);
    attn_temporary_close(k.folder);
    answer->seconds = attn_seconds(CLOCK_MONOTONIC) - start;
}

const struct attn_subject_route attn_caller_route = {.word = "caller",
                                                     .flag = "serve",
                                                     .route = ATTN_ROUTE_FILES,
                                                     .at_once = ATTN_CALLER_BATCH,
                                                     .soak_calls = 2,
                                                     .usual_s = 600,
                                                     .open = attn_exec_open,
                                                     .ask = ask,
                                                     .close = attn_exec_close,
                                                     .relation = ask_relation,
                                                     .unreached = attn_exec_unreached};
