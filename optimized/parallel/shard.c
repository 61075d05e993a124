/* Dealing out tensors to ranks, and collecting them.  See shard.h. */
#include "optimized/parallel/shard.h"

#include <string.h>

#include "ref/problem.h"

enum { ALIGN = 64 }; /* shards start where a buffer of their own would */

enum attn_status attn_shards_take(struct attn_shards *s, struct attn_ledger *ledger,
                                  const char *name, enum attn_dtype dtype, const int64_t whole[4],
                                  const struct attn_layout *layout, struct attn_error *err)
{
    *s = (struct attn_shards){.dtype = dtype, .layout = *layout};
    memcpy(s->extent, whole, sizeof s->extent);
    int64_t bytes = whole[0] * whole[1] * attn_layout_most(layout, whole[2]) * whole[3] *
                    (int64_t)attn_dtype_size(dtype);
    s->pitch = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    struct attn_error own;
    s->data = attn_ledger_take(ledger, name, layout->ranks, s->pitch, &own);
    return s->data != NULL ? ATTN_OK : attn_fail(err, own.status, "%s", own.text);
}

struct attn_view attn_shards_view(const struct attn_shards *s, int rank)
{
    int64_t tokens = attn_layout_tokens(&s->layout, s->extent[2], rank);
    return attn_packed_view(s->data + rank * s->pitch, s->dtype, s->extent[1], tokens,
                            s->extent[3]);
}

/* Feature after feature, because a whole tensor may have any strides.  lse has no feature axis:
 * its one element a row needs no stride there. */
static void copy_row(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,
                     size_t size)
{
    if (n == 1 || (to_step == (int64_t)size && from_step == (int64_t)size)) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t c = 0; c < n; c++)
        memcpy(to + c * to_step, from + c * from_step, size);
}

/* One stretch of a shard, whose rows begin at row `at` there, to or from its tokens. */
static void copy_stretch(const struct attn_shards *s, const struct attn_view *mine, int64_t at,
                         const struct attn_tokens *tokens, const struct attn_view *whole,
                         int to_whole)
{
    const int64_t *n = s->extent, e = (int64_t)attn_dtype_size(s->dtype);
    int64_t step = e * whole->stride[3], one = e * mine->stride[3];
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < tokens->n; i++) {
                int64_t token = tokens->first + i * tokens->step;
                char *there = (char *)whole->data + e * attn_offset(whole->stride, b, h, token);
                char *here = (char *)mine->data + e * attn_offset(mine->stride, b, h, at + i);
                if (to_whole)
                    copy_row(there, step, here, one, n[3], (size_t)e);
                else
                    copy_row(here, one, there, step, n[3], (size_t)e);
            }
}

static void copy_shards(const struct attn_shards *s, const struct attn_view *whole, int to_whole)
{
    for (int r = 0; r < s->layout.ranks && s->extent[3] > 0; r++) {
        struct attn_view mine = attn_shards_view(s, r);
        int64_t at = 0;
        for (int part = 0; part < attn_layout_stretches(&s->layout); part++) {
            struct attn_tokens t = attn_layout_stretch(&s->layout, s->extent[2], r, part);
            copy_stretch(s, &mine, at, &t, whole, to_whole);
            at += t.n;
        }
    }
}

void attn_shards_scatter(const struct attn_shards *s, const struct attn_view *whole)
{
    copy_shards(s, whole, 0);
}

void attn_shards_gather(const struct attn_shards *s, const struct attn_view *whole)
{
    copy_shards(s, whole, 1);
}
