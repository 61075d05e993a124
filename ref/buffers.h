/* The buffers of a call, as a table of names and sizes: cost() prices the table, and the call takes
 * what it says, so that what is priced is what is taken.
 *
 * A buffer is made of equal parts, for threads, panels or heads: parts * numbers numbers of `size`
 * bytes each.  Tables are arrays of the caller's; a name of NULL stands for no buffer.
 */
#ifndef REF_BUFFERS_H
#define REF_BUFFERS_H

#include "ref/impl.h"

struct attn_buffer {
    const char *name; /* static storage */
    int64_t parts, numbers, size;
    char *data; /* NULL before attn_buffers_take, and after attn_buffers_give */
};

/* Add n buffers to the live set; EINVAL when a product exceeds int64. */
enum attn_status attn_buffers_price(const struct attn_buffer *x, int n, struct attn_cost *cost,
                                    struct attn_error *err);

/* Take n buffers from the ledger.  On a failure those before it are taken: give them all back. */
enum attn_status attn_buffers_take(struct attn_buffer *x, int n, struct attn_ledger *ledger,
                                   struct attn_error *err);
void attn_buffers_give(struct attn_buffer *x, int n, struct attn_ledger *ledger);

static inline struct attn_buffer attn_buffer_of(const char *name, int64_t parts, int64_t numbers,
                                                int64_t size)
{
    return (struct attn_buffer){name, parts, numbers, size, NULL};
}

static inline int64_t attn_buffer_bytes(const struct attn_buffer *x)
{
    return x->parts * x->numbers * x->size;
}

/* Where a part begins. */
static inline void *attn_buffer_at(const struct attn_buffer *x, int64_t part)
{
    return x->data + part * x->numbers * x->size;
}

#endif
