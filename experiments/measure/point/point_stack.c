/* The schedule of a stack of layers (stack.h) with a ledger and calls.  All layers get the same
 * inputs, so their results must have the same bits: those of the layer that comes first go to the
 * point's tensors, where they are verified, and the others are compared with them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_work.h"
#include "experiments/price/stack.h"
#include "ref/clock.h"
#include "ref/problem.h"

struct layer {
    void *data[ATTN_STACK_DV + 1]; /* on the ledger; NULL: not live */
    struct attn_saved saved;
};

struct attn_point_stack {
    struct attn_point_work *work;
    struct layer *layer; /* [n] */
    unsigned seen;       /* 1 << tensor: the point has it */
    double s, again_s;   /* seconds in calls, and of them in forward passes made again */
    struct attn_error *err;
};

static const enum attn_slot slot_of[ATTN_STACK_DV + 1] = {
    ATTN_T_Q, ATTN_T_K, ATTN_T_V, ATTN_T_O, ATTN_T_LSE, ATTN_T_DO, ATTN_T_DQ, ATTN_T_DK, ATTN_T_DV};

static int64_t bytes_of(const struct attn_point_stack *x, enum attn_stack_tensor tensor)
{
    return attn_stack_tensor_bytes(&x->work->setup.problem, 0, tensor);
}

/* ---- data of a layer ------------------------------------------------------------------------- */

static enum attn_status stack_take(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    struct attn_point_stack *x = arg;
    int64_t bytes = bytes_of(x, tensor);
    void *data =
        attn_ledger_take(&x->work->ledger, attn_stack_tensor_name(tensor), bytes, 1, x->err);
    if (data == NULL)
        return ATTN_ENOMEM;
    x->layer[layer].data[tensor] = data;
    if (slot_of[tensor] < ATTN_T_O)
        memcpy(data, x->work->setup.tensor[slot_of[tensor]].data, (size_t)bytes);
    return ATTN_OK;
}

static void stack_give(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    struct attn_point_stack *x = arg;
    void **data = &x->layer[layer].data[tensor];
    *data = attn_ledger_give(&x->work->ledger, *data);
}

static void stack_drop(void *arg, int64_t layer)
{
    struct attn_point_stack *x = arg;
    attn_saved_drop(&x->layer[layer].saved, &x->work->ledger);
}

/* ---- looking at results ---------------------------------------------------------------------- */

/* Of the layer that comes first they go to the point; others must have their bits. */
static enum attn_status look(struct attn_point_stack *x, enum attn_stack_tensor tensor,
                             const void *data)
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

/* All of a call, from first to last. */
static enum attn_status look_at(struct attn_point_stack *x, int64_t layer,
                                enum attn_stack_tensor first, enum attn_stack_tensor last)
{
    enum attn_status status = ATTN_OK;
    for (int t = (int)first; t <= (int)last && status == ATTN_OK; t++)
        status = look(x, (enum attn_stack_tensor)t, x->layer[layer].data[t]);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The point's tensors get the data of a layer, and back: all are contiguous, and of one shape. */
static void exchange(struct attn_point_stack *x, int64_t layer)
{
    for (int t = 0; t <= (int)ATTN_STACK_DV; t++) {
        void **data = &x->work->setup.tensor[slot_of[t]].data, *own = *data;
        *data = x->layer[layer].data[t];
        x->layer[layer].data[t] = own;
    }
}

static enum attn_status stack_call(void *arg, int64_t layer, enum attn_stack_call call, int saves)
{
    struct attn_point_stack *x = arg;
    int is_backward = call == ATTN_STACK_BACKWARD;
    struct attn_ctx ctx = {.ledger = &x->work->ledger,
                           .options = &x->work->x.spec.options,
                           .error = x->err,
                           .saved = saves || is_backward ? &x->layer[layer].saved : NULL};
    exchange(x, layer);
    double start = attn_seconds(CLOCK_MONOTONIC);
    enum attn_status status = attn_setup_call(&x->work->setup, x->work->x.spec.impl, &ctx,
                                              is_backward ? ATTN_BACKWARD : ATTN_FORWARD);
    double s = attn_seconds(CLOCK_MONOTONIC) - start;
    exchange(x, layer);
    x->s += s;
    x->again_s += call == ATTN_STACK_AGAIN ? s : 0;
    if (status != ATTN_OK)
        return status;
    return look_at(x, layer, is_backward ? ATTN_STACK_DQ : ATTN_STACK_O,
                   is_backward ? ATTN_STACK_DV : ATTN_STACK_LSE);
}

/* ---- one half -------------------------------------------------------------------------------- */

void attn_point_stack_forget(struct attn_point_work *work)
{
    struct attn_point_stack *x = work->stack;
    attn_ledger_clear(&work->ledger);
    memset(x->layer, 0, (size_t)work->point->stack.n * sizeof *x->layer);
}

/* After the forward half the ledger holds what the price calls saved, and after the other one
 * nothing. */
enum attn_status attn_point_stack_half(struct attn_point_work *work, enum attn_pass half,
                                       double *seconds, struct attn_error *err)
{
    struct attn_point_stack *x = work->stack;
    const struct attn_stack_reader reader = {x, stack_take, stack_give, stack_call, stack_drop};
    x->err = err;
    x->s = x->again_s = 0;
    enum attn_status status = attn_stack_read(&work->point->stack, half, &reader);
    int64_t left = half == ATTN_FORWARD ? work->point->price.saved : 0;
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
    return c->layout == ATTN_LAYOUT_BHLD && c->offset == 0 && !c->wide
               ? ATTN_OK
               : attn_fail(err, ATTN_ENOTSUP,
                           "layers take contiguous [B,H,L,d] tensors: a case without layout, "
                           "offset and wide would work");
}

enum attn_status attn_point_stack_open(struct attn_point_work *work, struct attn_error *err)
{
    enum attn_status status = check_case(work, err);
    if (status != ATTN_OK)
        return status;
    work->stack = attn_cli_need(calloc(1, sizeof *work->stack));
    *work->stack = (struct attn_point_stack){
        .work = work,
        .layer = attn_cli_need(calloc((size_t)work->point->stack.n, sizeof *work->stack->layer))};
    return ATTN_OK;
}

void attn_point_stack_close(struct attn_point_work *work)
{
    if (work->stack == NULL)
        return;
    attn_point_stack_forget(work);
    free(work->stack->layer);
    free(work->stack);
    work->stack = NULL;
}
