/* The tensors that calls name: found, and checked once, so that later calls need not check them. */
#include "ref/mask/mask_internal.h"

#include <stdio.h>

int attn_mask_find(struct mask_parser *p, const char *part, struct attn_mask_tensor *tensor)
{
    const char *call = p->call->name, *name = p->name;
    if (p->source == NULL)
        attn_mask_fail_at(p, p->name_at, "%s(%s) names a tensor, and no tensors were given here",
                          call, name);
    if (p->status != ATTN_OK)
        return 0;
    *tensor = (struct attn_mask_tensor){0};
    enum attn_status status = p->source->find(p->source->arg, name, part, tensor, p->err);
    int64_t least = 1;
    for (int a = 0; a < tensor->n_axes && a < 4; a++)
        least = mask_min(least, tensor->extent[a]);
    if (status != ATTN_OK)
        attn_mask_stop(p, status);
    else if (tensor->width != 1 && tensor->width != 4 && tensor->width != 8)
        MASK_FAIL_TENSOR(p, "%s(%s): elements of %d bytes; bool, u8, i32 and i64 would work", call,
                         name, tensor->width);
    else if (tensor->n_axes < 1 || tensor->n_axes > 4)
        MASK_FAIL_TENSOR(p, "%s(%s): %d axes; 1 to 4 would work", call, name, tensor->n_axes);
    else if (least < 0 || (least > 0 && tensor->data == NULL))
        MASK_FAIL_TENSOR(p, "%s(%s): the tensor has no data, or a negative extent", call, name);
    return p->status == ATTN_OK;
}

const char *attn_mask_extents(const struct attn_mask_tensor *t, char text[96])
{
    int used = 0;
    for (int a = 0; a < t->n_axes; a++)
        used += snprintf(text + used, 96 - (size_t)used, "%s%lld", a > 0 ? "," : "[",
                         (long long)t->extent[a]);
    snprintf(text + used, 96 - (size_t)used, "]");
    return text;
}
