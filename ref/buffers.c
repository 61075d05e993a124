/* See buffers.h. */
#include "ref/buffers.h"

#include "ref/problem.h"

enum attn_status attn_buffers_price(const struct attn_buffer *x, int n, struct attn_cost *cost,
                                    struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < n && status == ATTN_OK; i++)
        if (x[i].name != NULL)
            status = attn_cost_add(cost, x[i].name, x[i].parts, x[i].numbers, x[i].size, err);
    return status;
}

enum attn_status attn_buffers_take(struct attn_buffer *x, int n, struct attn_ledger *ledger,
                                   struct attn_error *err)
{
    struct attn_error own;
    for (int i = 0; i < n; i++) {
        if (x[i].name == NULL)
            continue;
        x[i].data = attn_ledger_take(ledger, x[i].name, attn_product(x[i].parts, x[i].numbers),
                                     x[i].size, &own);
        if (x[i].data == NULL)
            return attn_fail(err, own.status, "%s", own.text);
    }
    return ATTN_OK;
}

void attn_buffers_give(struct attn_buffer *x, int n, struct attn_ledger *ledger)
{
    for (int i = n - 1; i >= 0; i--)
        x[i].data = attn_ledger_give(ledger, x[i].data);
}
