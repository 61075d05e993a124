/* How a model reads memory: every tensor by its own strides, or by wrong ones.  What would leave a
 * tensor's memory is no model that can be told. */
#include <stdint.h>

#include "tests/harness/faults/fault_eval.h"

/* The same memory, token-major where it is head-major and the reverse. */
static void turn(struct attn_cview *view, const struct attn_tensor *t)
{
    int64_t width = t->extent[3], heads = t->extent[1], rows = t->extent[2];
    int token_major = heads > 1 && rows > 1 && view->stride[2] > view->stride[1];
    view->stride[3] = 1;
    view->stride[0] = heads * rows * width;
    view->stride[1] = token_major ? rows * width : width;
    view->stride[2] = token_major ? width : heads * width;
}

static int is_broadcast(const struct attn_tensor *t, int axis)
{
    return t->extent[axis] > 1 && t->stride[axis] == 0;
}

/* As if packed; axes that are broadcast stay so. */
static void pack(struct attn_cview *view, const struct attn_tensor *t)
{
    int64_t room = 1;
    for (int axis = 3; axis >= 0; axis--) {
        if (is_broadcast(t, axis))
            continue;
        view->stride[axis] = room;
        room *= t->extent[axis];
    }
}

static int is_inside(const struct attn_cview *view, const struct attn_tensor *t)
{
    int64_t lowest = 0, highest = 0;
    for (int axis = 0; axis < 4; axis++) {
        if (t->extent[axis] == 0)
            return 1;
        int64_t reach = (t->extent[axis] - 1) * view->stride[axis];
        lowest += reach < 0 ? reach : 0;
        highest += reach > 0 ? reach : 0;
    }
    return lowest >= t->first && highest < t->first + t->span;
}

static void take_strides(struct attn_cview *view, const struct attn_cview *of)
{
    for (int axis = 0; axis < 4; axis++)
        view->stride[axis] = of->stride[axis];
}

static void mistake_one(struct fault_eval *x, int slot)
{
    const struct attn_fault_model *t = x->t;
    const struct attn_tensor *tensor = &x->q->setup->tensor[slot];
    struct attn_cview *view = &x->view[slot];
    int is_bias = slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS;
    int all = slot >= ATTN_T_O ? t->outputs_turned : t->inputs_turned;
    if ((all && tensor->extent[3] > 1 && !is_bias) || t->turned & 1u << slot)
        turn(view, tensor);
    if (t->packed & 1u << slot)
        pack(view, tensor);
    if (t->rows_packed & 1u << slot && !is_broadcast(tensor, 2))
        view->stride[2] = tensor->extent[3] * view->stride[3];
    if (t->adjacent & 1u << slot && !is_broadcast(tensor, 3))
        view->stride[3] = 1;
    if (t->rounded > 0 && slot < ATTN_T_O)
        view->data = (const void *)((uintptr_t)view->data & ~((uintptr_t)t->rounded - 1));
}

int attn_eval_views(struct fault_eval *x)
{
    const struct attn_fault_model *t = x->t;
    const struct attn_tensor *tensor = x->q->setup->tensor;
    int inside = 1;
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        x->view[slot] = attn_tensor_cview(&tensor[slot]);
        if (tensor[slot].data != NULL)
            mistake_one(x, slot);
    }
    if (t->v_like_k)
        take_strides(&x->view[ATTN_T_V], &x->view[ATTN_T_K]);
    if (t->do_like_o)
        take_strides(&x->view[ATTN_T_DO], &x->view[ATTN_T_O]);
    if (t->dlse_like_lse)
        take_strides(&x->view[ATTN_T_DLSE], &x->view[ATTN_T_LSE]);
    if (t->dbias_like_bias)
        take_strides(&x->view[ATTN_T_DBIAS], &x->view[ATTN_T_BIAS]);
    if (t->k_exchanged) {
        x->view[ATTN_T_K].stride[1] = tensor[ATTN_T_K].stride[2];
        x->view[ATTN_T_K].stride[2] = tensor[ATTN_T_K].stride[1];
    }
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        if (tensor[slot].data != NULL && tensor[slot].map != NULL)
            inside &= is_inside(&x->view[slot], &tensor[slot]);
    return inside;
}
