#include "experiments/measure/stack.h"

#include <string.h>

#include "ref/problem.h"

const char attn_stack_save_names[] = "probs|rows|inputs";
static const char *const save_name[ATTN_SAVES] = {"probs", "rows", "inputs"};

const char *attn_stack_save_name(enum attn_stack_save save)
{
    return save_name[save];
}

enum attn_status attn_stack_save_find(const char *name, enum attn_stack_save *save,
                                      struct attn_error *err)
{
    for (int s = 0; s < ATTN_SAVES; s++)
        if (strcmp(name, save_name[s]) == 0) {
            *save = (enum attn_stack_save)s;
            return ATTN_OK;
        }
    return attn_fail(err, ATTN_EINVAL, "save '%.40s': there are %s", name, attn_stack_save_names);
}

/* ---- tensors --------------------------------------------------------------------------------- */

const char *attn_stack_tensor_name(enum attn_stack_tensor tensor)
{
    static const char *const name[ATTN_STACK_TENSORS] = {"layer.q",  "layer.k",   "layer.v",
                                                         "layer.o",  "layer.lse", "layer.do",
                                                         "layer.dq", "layer.dk",  "layer.dv"};
    return name[tensor];
}

int64_t attn_stack_tensor_bytes(const struct attn_problem *p, enum attn_stack_tensor tensor)
{
    int of_keys = tensor == ATTN_STACK_K || tensor == ATTN_STACK_V || tensor == ATTN_STACK_DK ||
                  tensor == ATTN_STACK_DV;
    int of_scores = tensor == ATTN_STACK_Q || tensor == ATTN_STACK_K || tensor == ATTN_STACK_DQ ||
                    tensor == ATTN_STACK_DK;
    int is_result = tensor == ATTN_STACK_O || tensor >= ATTN_STACK_DQ;
    enum attn_dtype dtype = is_result ? attn_result_dtype(p) : p->dtype;
    int64_t width = of_scores ? p->d_key : p->d_value;
    if (tensor == ATTN_STACK_LSE) {
        dtype = attn_lse_dtype(p);
        width = 1;
    }
    int64_t rows =
        of_keys ? attn_product(p->kv_heads, p->n_key) : attn_product(p->heads, p->n_query);
    return attn_product(attn_product(attn_product(p->batch, rows), width),
                        (int64_t)attn_dtype_size(dtype));
}

/* ---- the schedule ---------------------------------------------------------------------------- */

/* Tensors first to last, of one layer. */
static enum attn_status take(const struct attn_stack_reader *reader, int64_t layer,
                             enum attn_stack_tensor first, enum attn_stack_tensor last)
{
    enum attn_status status = ATTN_OK;
    for (int t = (int)first; t <= (int)last && status == ATTN_OK; t++)
        status = reader->take(reader->arg, layer, (enum attn_stack_tensor)t);
    return status;
}

static void give(const struct attn_stack_reader *reader, int64_t layer,
                 enum attn_stack_tensor first, enum attn_stack_tensor last)
{
    for (int t = (int)first; t <= (int)last; t++)
        reader->give(reader->arg, layer, (enum attn_stack_tensor)t);
}

static enum attn_status read_forward(const struct attn_stack *layers, int64_t layer,
                                     const struct attn_stack_reader *reader)
{
    enum attn_status status = take(reader, layer, ATTN_STACK_Q, ATTN_STACK_LSE);
    if (status == ATTN_OK)
        status =
            reader->call(reader->arg, layer, ATTN_STACK_FORWARD, layers->save == ATTN_SAVE_PROBS);
    if (status == ATTN_OK && layers->save == ATTN_SAVE_INPUTS)
        give(reader, layer, ATTN_STACK_O, ATTN_STACK_LSE);
    return status;
}

static enum attn_status read_backward(const struct attn_stack *layers, int64_t layer,
                                      const struct attn_stack_reader *reader)
{
    enum attn_status status = take(reader, layer, ATTN_STACK_DO, ATTN_STACK_DO);
    if (status == ATTN_OK && layers->save == ATTN_SAVE_INPUTS) {
        status = take(reader, layer, ATTN_STACK_O, ATTN_STACK_LSE);
        if (status == ATTN_OK)
            status = reader->call(reader->arg, layer, ATTN_STACK_AGAIN, 1);
    }
    if (status == ATTN_OK)
        status = take(reader, layer, ATTN_STACK_DQ, ATTN_STACK_DV);
    if (status == ATTN_OK)
        status = reader->call(reader->arg, layer, ATTN_STACK_BACKWARD, 0);
    if (status == ATTN_OK) {
        reader->drop(reader->arg, layer);
        give(reader, layer, ATTN_STACK_Q, ATTN_STACK_DV);
    }
    return status;
}

enum attn_status attn_stack_read(const struct attn_stack *layers, enum attn_pass half,
                                 const struct attn_stack_reader *reader)
{
    enum attn_status status = ATTN_OK;
    for (int64_t i = 0; i < layers->n && status == ATTN_OK; i++)
        status = half == ATTN_FORWARD ? read_forward(layers, i, reader)
                                      : read_backward(layers, layers->n - 1 - i, reader);
    return status;
}

/* ---- the price ------------------------------------------------------------------------------- */

/* The schedule on paper: what is live now, and what was at the peak. */
struct paper {
    const struct attn_problem *p;
    const struct attn_cost *pass[2]; /* of one call */
    struct attn_cost now;            /* peak_bytes: its bytes */
    int holds_p;                     /* the layer that is called has a P to read */
    struct attn_stack_cost *to;
    struct attn_error *err;
};

/* The live set without names of no bytes. */
static void remember(struct paper *x, const struct attn_cost *live)
{
    struct attn_cost *peak = &x->to->cost;
    if (live->peak_bytes <= peak->peak_bytes)
        return;
    peak->peak_bytes = live->peak_bytes;
    peak->n_live = 0;
    for (int a = 0; a < live->n_live; a++)
        if (live->live[a].bytes > 0)
            peak->live[peak->n_live++] = live->live[a];
}

static void subtract(struct attn_cost *live, const char *name, int64_t bytes)
{
    for (int a = 0; a < live->n_live; a++)
        if (strcmp(live->live[a].name, name) == 0) {
            live->live[a].bytes -= bytes;
            live->peak_bytes -= bytes;
        }
}

static enum attn_status paper_take(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    (void)layer;
    struct paper *x = arg;
    int64_t bytes = attn_stack_tensor_bytes(x->p, tensor);
    enum attn_status status =
        attn_cost_add(&x->now, attn_stack_tensor_name(tensor), bytes, 1, x->err);
    remember(x, &x->now);
    return status;
}

static void paper_give(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    (void)layer;
    struct paper *x = arg;
    subtract(&x->now, attn_stack_tensor_name(tensor), attn_stack_tensor_bytes(x->p, tensor));
}

static enum attn_status paper_call(void *arg, int64_t layer, enum attn_stack_call call, int saves)
{
    (void)layer;
    struct paper *x = arg;
    const struct attn_cost *cost = x->pass[call == ATTN_STACK_BACKWARD];
    struct attn_cost during = x->now;
    enum attn_status status = ATTN_OK;
    for (int a = 0; a < cost->n_live && status == ATTN_OK; a++)
        status = attn_cost_add(&during, cost->live[a].name, cost->live[a].bytes, 1, x->err);
    if (call == ATTN_STACK_BACKWARD && x->holds_p) /* it is there already */
        subtract(&during, cost->saved_name, cost->saved_bytes);
    remember(x, &during);
    x->to->cost.flops += cost->flops;
    x->to->cost.counted |= cost->counted;
    if (call == ATTN_STACK_AGAIN)
        x->to->again_flops += cost->flops;
    if (status == ATTN_OK && saves && cost->saved_bytes > 0) {
        x->holds_p = 1;
        status = attn_cost_add(&x->now, cost->saved_name, cost->saved_bytes, 1, x->err);
    }
    return status;
}

static void paper_drop(void *arg, int64_t layer)
{
    (void)layer;
    struct paper *x = arg;
    const struct attn_cost *cost = x->pass[ATTN_BACKWARD];
    if (x->holds_p)
        subtract(&x->now, cost->saved_name, cost->saved_bytes);
}

/* What the implementation cannot do for such a stack. */
static enum attn_status check(const struct attn_stack *layers, const struct attn_spec *spec,
                              int64_t saves, struct attn_error *err)
{
    const char *name = spec->impl->name;
    if (layers->save == ATTN_SAVE_PROBS && saves == 0)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s leaves no P for the backward pass, which save=probs keeps: save=rows "
                         "or inputs would work, or gemm:save=probs",
                         name);
    if (layers->save == ATTN_SAVE_ROWS && saves > 0)
        return attn_fail(err, ATTN_ENOTSUP,
                         "this %s leaves P, which save=rows does not keep: save=probs or inputs "
                         "would work, or %s without its option",
                         name, name);
    return ATTN_OK;
}

enum attn_status attn_stack_price(const struct attn_stack *layers, const struct attn_spec *spec,
                                  const struct attn_problem *p, enum attn_pass half,
                                  struct attn_stack_cost *cost, struct attn_error *err)
{
    struct attn_cost pass[2];
    struct paper x = {.p = p, .pass = {&pass[0], &pass[1]}, .to = cost, .err = err};
    const struct attn_stack_reader reader = {&x, paper_take, paper_give, paper_call, paper_drop};
    memset(cost, 0, sizeof *cost);
    if (spec->impl->ranks != NULL)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s has ranks: a stack of layers is of one process, such as tiled",
                         spec->impl->name);
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < 2 && status == ATTN_OK; n++)
        status = attn_price(spec->impl, &spec->options, p, (enum attn_pass)n, 0, &pass[n], err);
    if (status == ATTN_OK)
        status = check(layers, spec, pass[ATTN_FORWARD].saved_bytes, err);
    if (status == ATTN_OK)
        status = attn_stack_read(layers, ATTN_FORWARD, &reader);
    int64_t saved = x.now.peak_bytes;
    if (status == ATTN_OK && half == ATTN_BACKWARD) {
        memset(cost, 0, sizeof *cost);
        remember(&x, &x.now);
        status = attn_stack_read(layers, ATTN_BACKWARD, &reader);
    }
    cost->cost.saved_bytes = saved;
    return status;
}
