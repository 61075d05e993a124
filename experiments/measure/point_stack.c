/* The schedule of a stack of layers (stack.h) with a ledger and calls.  All layers get the same
 * inputs, so their results must have the same bits: those of the layer that comes first go to the
 * point's outputs, where they are verified, and the others are compared with them. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/measure/point.h"
#include "experiments/measure/stack.h"
#include "ref/clock.h"
#include "ref/problem.h"

struct layer {
    void *data[ATTN_STACK_DV + 1]; /* on the ledger; NULL: not live */
    struct attn_saved saved;
};

struct stack {
    struct attn_work *work;
    struct attn_stack layers;
    struct layer *layer;
    double s, again_s; /* seconds in calls, and of them in forward passes made again */
    struct attn_error *err;
};

static const enum attn_slot slot_of[ATTN_STACK_DV + 1] = {
    ATTN_T_Q, ATTN_T_K, ATTN_T_V, ATTN_T_O, ATTN_T_LSE, ATTN_T_DO, ATTN_T_DQ, ATTN_T_DK, ATTN_T_DV};

static enum attn_status stack_take(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    struct stack *x = arg;
    const struct attn_tensor *given = &x->work->setup.tensor[slot_of[tensor]];
    int64_t bytes = attn_stack_tensor_bytes(&x->work->setup.problem, 0, tensor);
    void *data =
        attn_ledger_take(&x->work->ledger, attn_stack_tensor_name(tensor), bytes, 1, x->err);
    if (data == NULL)
        return ATTN_ENOMEM;
    if (slot_of[tensor] < ATTN_T_O)
        memcpy(data, given->data, (size_t)bytes);
    x->layer[layer].data[tensor] = data;
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
    attn_saved_drop(&x->layer[layer].saved, &x->work->ledger);
}

/* A tensor of the layer; all are contiguous, in the shape of the point's own. */
static struct attn_view view(const struct stack *x, int64_t layer, enum attn_stack_tensor tensor)
{
    struct attn_view view = attn_tensor_view(&x->work->setup.tensor[slot_of[tensor]]);
    view.data = x->layer[layer].data[tensor];
    return view;
}

static struct attn_cview input(const struct stack *x, int64_t layer, enum attn_stack_tensor tensor)
{
    struct attn_view v = view(x, layer, tensor);
    return attn_view_const(&v);
}

static enum attn_status run_call(const struct stack *x, int64_t layer, enum attn_stack_call call,
                                 int saves)
{
    struct attn_work *work = x->work;
    struct attn_ctx ctx = {
        .ledger = &work->ledger, .options = &work->spec.options, .error = x->err};
    if (saves || call == ATTN_STACK_BACKWARD)
        ctx.saved = &x->layer[layer].saved;
    if (call != ATTN_STACK_BACKWARD) {
        const struct attn_forward t = {.q = input(x, layer, ATTN_STACK_Q),
                                       .k = input(x, layer, ATTN_STACK_K),
                                       .v = input(x, layer, ATTN_STACK_V),
                                       .o = view(x, layer, ATTN_STACK_O),
                                       .lse = view(x, layer, ATTN_STACK_LSE)};
        return attn_run_forward(work->spec.impl, &ctx, &work->setup.problem, &t);
    }
    struct attn_backward t = attn_setup_backward(&work->setup);
    t.q = input(x, layer, ATTN_STACK_Q);
    t.k = input(x, layer, ATTN_STACK_K);
    t.v = input(x, layer, ATTN_STACK_V);
    t.o = input(x, layer, ATTN_STACK_O);
    t.lse = input(x, layer, ATTN_STACK_LSE);
    t.d_o = input(x, layer, ATTN_STACK_DO);
    t.dq = view(x, layer, ATTN_STACK_DQ);
    t.dk = view(x, layer, ATTN_STACK_DK);
    t.dv = view(x, layer, ATTN_STACK_DV);
    return attn_run_backward(work->spec.impl, &ctx, &work->setup.problem, &t);
}

/* Results of the layer that comes first go to the point's outputs; others must have their bits. */
static enum attn_status compare(const struct stack *x, int64_t layer, enum attn_stack_call call)
{
    int backward = call == ATTN_STACK_BACKWARD;
    int is_first = call == ATTN_STACK_FORWARD ? layer == 0 : layer == x->layers.n - 1;
    for (int t = backward ? ATTN_STACK_DQ : ATTN_STACK_O;
         t <= (int)(backward ? ATTN_STACK_DV : ATTN_STACK_LSE); t++) {
        const struct attn_problem *p = &x->work->setup.problem;
        void *kept = x->work->setup.tensor[slot_of[t]].data;
        size_t bytes = (size_t)attn_stack_tensor_bytes(p, 0, (enum attn_stack_tensor)t);
        if (is_first && call != ATTN_STACK_AGAIN)
            memcpy(kept, x->layer[layer].data[t], bytes);
        else if (memcmp(kept, x->layer[layer].data[t], bytes) != 0)
            return attn_fail(x->err, ATTN_EINTERNAL,
                             "%s of layer %lld has other bits than that of the first layer, which "
                             "has the same inputs",
                             attn_stack_tensor_name((enum attn_stack_tensor)t), (long long)layer);
    }
    return ATTN_OK;
}

static enum attn_status stack_call(void *arg, int64_t layer, enum attn_stack_call call, int saves)
{
    struct stack *x = arg;
    double start = attn_seconds(CLOCK_MONOTONIC);
    enum attn_status status = run_call(x, layer, call, saves);
    double s = attn_seconds(CLOCK_MONOTONIC) - start;
    x->s += s;
    x->again_s += call == ATTN_STACK_AGAIN ? s : 0;
    return status == ATTN_OK ? compare(x, layer, call) : status;
}

/* One half.  After the forward one the ledger holds what the price calls saved, and after the other
 * one nothing. */
static enum attn_status read_half(struct stack *x, enum attn_pass half)
{
    const struct attn_stack_reader reader = {x, stack_take, stack_give, stack_call, stack_drop};
    x->s = x->again_s = 0;
    enum attn_status status = attn_stack_read(&x->layers, half, &reader);
    int64_t left = half == ATTN_FORWARD ? x->work->point.saved_bytes : 0;
    if (status == ATTN_OK && x->work->ledger.now != left)
        status = attn_fail(x->err, ATTN_EINTERNAL,
                           "after the %s half the ledger holds %lld bytes, and should hold %lld",
                           half == ATTN_FORWARD ? "forward" : "backward",
                           (long long)x->work->ledger.now, (long long)left);
    return status;
}

static void forget(struct stack *x)
{
    attn_ledger_clear(&x->work->ledger);
    memset(x->layer, 0, (size_t)x->layers.n * sizeof *x->layer);
}

/* The half that is measured, after the other one where it is the backward half. */
static enum attn_status repeat_half(struct stack *x, enum attn_pass half)
{
    forget(x);
    enum attn_status status = half == ATTN_BACKWARD ? read_half(x, ATTN_FORWARD) : ATTN_OK;
    return status == ATTN_OK ? read_half(x, half) : status;
}

/* Memory is that of the first time alone: what comes before a later backward half would raise the
 * mark. */
static enum attn_status measure(struct stack *x, const struct attn_point_flags *flags)
{
    struct attn_work *work = x->work;
    struct attn_point *p = &work->point;
    struct attn_resident resident;
    struct rusage before, after;
    enum attn_status status = p->c.pass == ATTN_BACKWARD ? read_half(x, ATTN_FORWARD) : ATTN_OK;
    if (status != ATTN_OK)
        return status;
    attn_ledger_restart(&work->ledger);
    attn_resident_begin(&resident);
    if (resident.baseline >= 0) /* what layers hold is resident by now, and is to be seen */
        resident.baseline -= work->ledger.now;
    getrusage(RUSAGE_SELF, &before);
    status = read_half(x, p->c.pass);
    getrusage(RUSAGE_SELF, &after);
    attn_resident_end(&resident);
    if (status != ATTN_OK)
        return status;
    attn_point_take_resident(p, &resident);
    attn_point_take_ledger(work);
    p->minor_faults = after.ru_minflt - before.ru_minflt;
    p->major_faults = after.ru_majflt - before.ru_majflt;
    p->first_s = p->first_cpu_max_s = p->first_cpu_sum_s = x->s;
    p->again_s = x->again_s;
    for (double spent = 0; status == ATTN_OK && p->n_warm < flags->repeat &&
                           (p->n_warm == 0 || spent < flags->enough);
         spent += x->s) {
        status = repeat_half(x, p->c.pass);
        p->warm_s[p->n_warm++] = x->s;
    }
    return status;
}

/* Layers copy the point's tensors, and results into them, as blocks of bytes. */
static enum attn_status check_layout(const struct attn_work *work, struct attn_error *err)
{
    const struct attn_case *c = &work->point.c;
    return c->layout == ATTN_LAYOUT_BHLD && c->offset == 0 && !c->wide
               ? ATTN_OK
               : attn_fail(err, ATTN_ENOTSUP,
                           "layers take contiguous [B,H,L,d] tensors: a case without layout, "
                           "offset and wide would work");
}

enum attn_status attn_point_stack(struct attn_work *work, const struct attn_point_flags *flags,
                                  struct attn_error *err)
{
    struct attn_point *p = &work->point;
    struct stack x = {.work = work, .err = err};
    x.layers.n = p->layers;
    enum attn_status status = attn_stack_save_find(p->save, &x.layers.save, err);
    if (status == ATTN_OK)
        status = check_layout(work, err);
    if (status != ATTN_OK)
        return status;
    x.layer = attn_cli_need(calloc((size_t)x.layers.n, sizeof *x.layer));
    work->ledger.limit = attn_cli_memory_available();
    status = measure(&x, flags);
    forget(&x);
    free(x.layer);
    strcpy(p->time_source, "calls");
    return status;
}
