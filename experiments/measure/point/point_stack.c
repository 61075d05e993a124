/* The schedule of a stack of layers (stack.h) with a ledger and calls.  All layers get the same
 * inputs, so their results must have the same bits: those of the layer that comes first go to the
 * point's tensors, where they are verified, and the others are compared with them.
 *
 * With a hidden width q k v and dO are what the layer makes of x and dy: these go to the point's
 * tensors as well, by an implementation in between that looks at each call of the real one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_work.h"
#include "experiments/price/stack.h"
#include "ref/clock.h"
#include "ref/problem.h"

struct layer {
    void *data[ATTN_STACK_TENSORS]; /* on the ledger; NULL: not live */
    struct attn_saved saved;
    struct attn_layer_saved kept; /* with a hidden width */
};

struct stack {
    struct attn_point_work *work;
    struct attn_stack layers;
    struct layer *layer;     /* [n + 1]: the last y and dy belong to none */
    struct attn_layer shape; /* with a hidden width */
    struct attn_impl between;
    unsigned seen;     /* 1 << tensor: the point has it */
    double s, again_s; /* seconds in calls, and of them in forward passes made again */
    double looking_s;  /* of the call that is made, seconds that were not its own   */
    double start;      /* of that call                                              */
    struct attn_error *err;
};

static struct stack running; /* the one: functions of an implementation have no argument of ours */

static const enum attn_slot slot_of[ATTN_STACK_DV + 1] = {
    ATTN_T_Q, ATTN_T_K, ATTN_T_V, ATTN_T_O, ATTN_T_LSE, ATTN_T_DO, ATTN_T_DQ, ATTN_T_DK, ATTN_T_DV};

static int64_t bytes_of(const struct stack *x, enum attn_stack_tensor tensor)
{
    return attn_stack_tensor_bytes(&x->work->setup.problem, x->layers.hidden, tensor);
}

/* ---- data of a layer ------------------------------------------------------------------------- */

/* The same in each layer: x and dy of variance 1, and weights that keep it. */
static void draw(const struct stack *x, int64_t layer, enum attn_stack_tensor tensor)
{
    void *data = x->layer[layer].data[tensor];
    int64_t inner = tensor == ATTN_STACK_WQKV ? x->shape.hidden
                    : tensor == ATTN_STACK_WO ? x->shape.heads * x->shape.d_value
                                              : 1;
    int64_t n = bytes_of(x, tensor) / (int64_t)attn_dtype_size(x->shape.dtype);
    uint64_t stream = attn_hash_stream(x->work->point->c.seed, (uint64_t)tensor);
    for (int64_t i = 0; i < n; i++) {
        double value = attn_hash_normal_of(stream, (uint64_t)i) / sqrt((double)inner);
        if (x->shape.dtype == ATTN_F64)
            ((double *)data)[i] = value;
        else
            ((float *)data)[i] = (float)value;
    }
}

static enum attn_status stack_take(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    struct stack *x = arg;
    int64_t bytes = bytes_of(x, tensor);
    void *data =
        attn_ledger_take(&x->work->ledger, attn_stack_tensor_name(tensor), bytes, 1, x->err);
    if (data == NULL)
        return ATTN_ENOMEM;
    x->layer[layer].data[tensor] = data;
    if (tensor == ATTN_STACK_WQKV || tensor == ATTN_STACK_WO)
        draw(x, layer, tensor);
    else if (tensor <= ATTN_STACK_DV && slot_of[tensor] < ATTN_T_O)
        memcpy(data, x->work->setup.tensor[slot_of[tensor]].data, (size_t)bytes);
    return ATTN_OK;
}

static void stack_give(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    struct stack *x = arg;
    void **data = &x->layer[layer].data[tensor];
    *data = attn_ledger_give(&x->work->ledger, *data);
}

static void stack_drop(void *arg, int64_t layer)
{
    struct stack *x = arg;
    attn_layer_drop(&x->layer[layer].kept, &x->work->ledger);
    attn_saved_drop(&x->layer[layer].saved, &x->work->ledger);
}

/* ---- looking at results ---------------------------------------------------------------------- */

/* Of the layer that comes first they go to the point; others must have their bits. */
static enum attn_status look(struct stack *x, enum attn_stack_tensor tensor, const void *data)
{
    void *kept = x->work->setup.tensor[slot_of[tensor]].data;
    size_t bytes = (size_t)bytes_of(x, tensor);
    if ((x->seen & 1U << tensor) == 0)
        memcpy(kept, data, bytes);
    else if (memcmp(kept, data, bytes) != 0)
        return attn_fail(x->err, ATTN_EINTERNAL,
                         "%s of a layer has other bits than that of the first layer, which has the "
                         "same inputs",
                         attn_stack_tensor_name(tensor));
    x->seen |= 1U << tensor;
    return ATTN_OK;
}

/* All of a call, data[tensor], from first to last. */
static enum attn_status look_at(struct stack *x, const void *const data[],
                                enum attn_stack_tensor first, enum attn_stack_tensor last)
{
    enum attn_status status = ATTN_OK;
    double start = attn_seconds(CLOCK_MONOTONIC);
    for (int t = (int)first; t <= (int)last && status == ATTN_OK; t++)
        status = look(x, (enum attn_stack_tensor)t, data[t]);
    x->looking_s += attn_seconds(CLOCK_MONOTONIC) - start;
    return status;
}

/* ---- calls of a layer with a hidden width ---------------------------------------------------- */

static enum attn_status between_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_forward *t)
{
    const void *const data[] = {t->q.data, t->k.data, t->v.data, t->o.data, t->lse.data};
    enum attn_status status = running.work->spec.impl->forward(ctx, p, t);
    return status == ATTN_OK ? look_at(&running, data, ATTN_STACK_Q, ATTN_STACK_LSE) : status;
}

/* Of a backward call all that came before is a forward pass made again, if there was one. */
static enum attn_status between_forward_again(struct attn_ctx *ctx, const struct attn_problem *p,
                                              const struct attn_forward *t)
{
    enum attn_status status = between_forward(ctx, p, t);
    running.again_s += attn_seconds(CLOCK_MONOTONIC) - running.start - running.looking_s;
    return status;
}

static enum attn_status between_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                         const struct attn_backward *t)
{
    const void *const data[] = {t->q.data,   t->k.data,  t->v.data,  t->o.data, t->lse.data,
                                t->d_o.data, t->dq.data, t->dk.data, t->dv.data};
    enum attn_status status = running.work->spec.impl->backward(ctx, p, t);
    return status == ATTN_OK ? look_at(&running, data, ATTN_STACK_Q, ATTN_STACK_DV) : status;
}

/* Gradients of weights, which stay, have the bits of those of the layer above. */
static enum attn_status compare_weights(const struct stack *x, int64_t layer)
{
    for (int t = ATTN_STACK_DWQKV; t <= (int)ATTN_STACK_DWO && layer + 1 < x->layers.n; t++)
        if (memcmp(x->layer[layer].data[t], x->layer[layer + 1].data[t],
                   (size_t)bytes_of(x, (enum attn_stack_tensor)t)) != 0)
            return attn_fail(x->err, ATTN_EINTERNAL,
                             "%s of layer %lld has other bits than that of the next layer, which "
                             "has the same inputs",
                             attn_stack_tensor_name((enum attn_stack_tensor)t), (long long)layer);
    return ATTN_OK;
}

/* The input from another layer is drawn anew, as a norm between the layers would make it. */
static enum attn_status call_layer(struct stack *x, int64_t i, enum attn_stack_call call,
                                   struct attn_ctx *ctx)
{
    void **t = x->layer[i].data, **above = x->layer[i + 1].data;
    struct attn_layer_saved *kept = &x->layer[i].kept;
    if (call != ATTN_STACK_Y)
        draw(x, call == ATTN_STACK_BACKWARD ? i + 1 : i,
             call == ATTN_STACK_BACKWARD ? ATTN_STACK_DX : ATTN_STACK_X);
    x->between.forward = call == ATTN_STACK_BACKWARD ? between_forward_again : between_forward;
    x->start = attn_seconds(CLOCK_MONOTONIC);
    x->looking_s = 0;
    const struct attn_layer_forward forward = {t[ATTN_STACK_X], t[ATTN_STACK_WQKV],
                                               t[ATTN_STACK_WO], above[ATTN_STACK_X]};
    if (call == ATTN_STACK_FORWARD)
        return attn_layer_attend(&x->between, ctx, &x->shape, &forward, kept);
    if (call == ATTN_STACK_Y) {
        attn_layer_write_y(&x->shape, &forward, kept);
        if (x->layers.save == ATTN_SAVE_INPUTS)
            attn_layer_drop(kept, ctx->ledger);
        return ATTN_OK;
    }
    const struct attn_layer_backward backward = {
        t[ATTN_STACK_X],  t[ATTN_STACK_WQKV],  t[ATTN_STACK_WO], above[ATTN_STACK_DX],
        t[ATTN_STACK_DX], t[ATTN_STACK_DWQKV], t[ATTN_STACK_DWO]};
    return attn_layer_run_backward(&x->between, ctx, &x->shape, &backward, kept);
}

/* ---- calls of attention alone ---------------------------------------------------------------- */

/* The point's tensors get the data of a layer, and back: all are contiguous, and of one shape. */
static void exchange(struct stack *x, int64_t layer)
{
    for (int t = 0; t <= (int)ATTN_STACK_DV; t++) {
        void **data = &x->work->setup.tensor[slot_of[t]].data, *own = *data;
        *data = x->layer[layer].data[t];
        x->layer[layer].data[t] = own;
    }
}

static enum attn_status call_attention(struct stack *x, int64_t layer, enum attn_stack_call call,
                                       struct attn_ctx *ctx)
{
    enum attn_pass pass = call == ATTN_STACK_BACKWARD ? ATTN_BACKWARD : ATTN_FORWARD;
    exchange(x, layer);
    x->start = attn_seconds(CLOCK_MONOTONIC);
    x->looking_s = 0;
    enum attn_status status = attn_setup_call(&x->work->setup, x->work->spec.impl, ctx, pass);
    exchange(x, layer);
    return status;
}

static enum attn_status stack_call(void *arg, int64_t layer, enum attn_stack_call call, int saves)
{
    struct stack *x = arg;
    int is_backward = call == ATTN_STACK_BACKWARD;
    struct attn_ctx ctx = {.ledger = &x->work->ledger,
                           .options = &x->work->spec.options,
                           .error = x->err,
                           .saved = saves || is_backward ? &x->layer[layer].saved : NULL};
    enum attn_status status = x->layers.hidden > 0 ? call_layer(x, layer, call, &ctx)
                                                   : call_attention(x, layer, call, &ctx);
    double s = attn_seconds(CLOCK_MONOTONIC) - x->start - x->looking_s;
    x->s += s;
    x->again_s += call == ATTN_STACK_AGAIN ? s : 0;
    if (status != ATTN_OK)
        return status;
    if (x->layers.hidden > 0)
        return is_backward ? compare_weights(x, layer) : ATTN_OK;
    return look_at(x, (const void *const *)x->layer[layer].data,
                   is_backward ? ATTN_STACK_DQ : ATTN_STACK_O,
                   is_backward ? ATTN_STACK_DV : ATTN_STACK_LSE);
}

/* ---- one half -------------------------------------------------------------------------------- */

void attn_point_stack_forget(struct attn_point_work *work)
{
    struct stack *x = &running;
    attn_ledger_clear(&work->ledger);
    memset(x->layer, 0, ((size_t)x->layers.n + 1) * sizeof *x->layer);
}

/* After the forward half the ledger holds what the price calls saved, and after the other one
 * nothing. */
enum attn_status attn_point_stack_half(struct attn_point_work *work, enum attn_pass half,
                                       double *seconds, struct attn_error *err)
{
    struct stack *x = &running;
    const struct attn_stack_reader reader = {x, stack_take, stack_give, stack_call, stack_drop};
    x->err = err;
    x->s = x->again_s = 0;
    enum attn_status status = attn_stack_read(&x->layers, half, &reader);
    int64_t left = half == ATTN_FORWARD ? work->point->saved_bytes : 0;
    if (status == ATTN_OK && work->ledger.now != left)
        status = attn_fail(err, ATTN_EINTERNAL,
                           "after the %s half the ledger holds %lld bytes, and should hold %lld",
                           half == ATTN_FORWARD ? "forward" : "backward",
                           (long long)work->ledger.now, (long long)left);
    *seconds = x->s;
    if (half == work->point->c.pass && isnan(work->point->again_s))
        work->point->again_s = x->again_s;
    return status;
}

/* Layers copy the point's tensors, and results into them, as blocks of bytes. */
static enum attn_status check_case(const struct attn_point_work *work, struct attn_error *err)
{
    const struct attn_case *c = &work->point->c;
    if (work->point->stack.hidden > 0 &&
        (c->fill != ATTN_FILL_NORMAL || c->poison != ATTN_POISON_NONE ||
         c->special != ATTN_SPECIAL_NONE || c->d_lse))
        return attn_fail(err, ATTN_ENOTSUP,
                         "a layer of a hidden width makes its own q k v and dO: a case of fill "
                         "normal, with nothing else about its data, would work");
    return c->layout == ATTN_LAYOUT_BHLD && c->offset == 0 && !c->wide
               ? ATTN_OK
               : attn_fail(err, ATTN_ENOTSUP,
                           "layers take contiguous [B,H,L,d] tensors: a case without layout, "
                           "offset and wide would work");
}

enum attn_status attn_point_stack_open(struct attn_point_work *work, struct attn_error *err)
{
    struct stack *x = &running;
    *x = (struct stack){.work = work, .layers = work->point->stack, .between = *work->spec.impl};
    x->between.backward = between_backward;
    enum attn_status status = check_case(work, err);
    if (status == ATTN_OK && x->layers.hidden > 0)
        status = attn_stack_layer(&x->layers, &work->setup.problem, &x->shape, err);
    if (status == ATTN_OK && x->layers.hidden > 0)
        status = attn_layer_check(&x->shape, err); /* some are priced only */
    if (status == ATTN_OK)
        x->layer = attn_cli_need(calloc((size_t)x->layers.n + 1, sizeof *x->layer));
    return status;
}

void attn_point_stack_close(struct attn_point_work *work)
{
    struct stack *x = &running;
    if (x->layer == NULL)
        return;
    attn_point_stack_forget(work);
    free(x->layer);
    for (int t = ATTN_STACK_Q; t <= (int)ATTN_STACK_DO && x->layers.hidden > 0; t++)
        if (slot_of[t] < ATTN_T_O && work->setup.tensor[slot_of[t]].data != NULL)
            attn_tensor_remember(&work->setup.tensor[slot_of[t]]);
}
