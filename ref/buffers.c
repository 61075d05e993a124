/* See buffers.h. */
#include "ref/buffers.h"

#include <string.h>

#include "ref/problem.h"

enum attn_status attn_cost_join(struct attn_cost *cost, const struct attn_account *buffer,
                                struct attn_error *err)
{
    int64_t sum, size = buffer->size > 0 ? buffer->size : 1;
    if (__builtin_add_overflow(cost->peak_bytes, buffer->bytes, &sum))
        return attn_fail(err, ATTN_EINVAL, "buffer '%s' of %lld x %lld bytes exceeds 64 bits",
                         buffer->name, (long long)(buffer->bytes / size), (long long)size);
    cost->peak_bytes = sum;
    if (buffer->bytes == 0) /* the ledger's live set does not list what has no bytes either */
        return ATTN_OK;
    for (int a = 0; a < cost->n_live; a++) {
        struct attn_account *there = &cost->live[a];
        if (strcmp(there->name, buffer->name) != 0)
            continue;
        int is_alike = there->size == buffer->size && there->parts > 0 && buffer->parts > 0 &&
                       there->bytes / there->parts == buffer->bytes / buffer->parts;
        there->parts = is_alike ? there->parts + buffer->parts : 0;
        there->bytes += buffer->bytes;
        return ATTN_OK;
    }
    if (cost->n_live == ATTN_MAX_ACCOUNTS)
        return attn_fail(err, ATTN_EINTERNAL, "more than %d named buffers", ATTN_MAX_ACCOUNTS);
    cost->live[cost->n_live++] = *buffer;
    return ATTN_OK;
}

enum attn_status attn_cost_add(struct attn_cost *cost, const char *name, int64_t parts,
                               int64_t numbers, int64_t size, struct attn_error *err)
{
    int64_t bytes = attn_product(attn_product(parts, numbers), size);
    if (bytes < 0)
        return attn_fail(err, ATTN_EINVAL, "buffer '%s' of %lld x %lld bytes exceeds 64 bits", name,
                         (long long)attn_product(parts, numbers), (long long)size);
    return attn_cost_join(cost, &(const struct attn_account){name, bytes, parts, size}, err);
}

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
