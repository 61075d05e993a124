/* Dealing out tensors to ranks, and collecting them.  See shard.h. */
#include "optimized/parallel/shard.h"

#include <stdio.h>
#include <string.h>

#include "optimized/parallel/transport.h"
#include "ref/problem.h"

enum { ALIGN = 64 }; /* shards start where a buffer of their own would */

struct attn_cview attn_packed_cview(const void *data, enum attn_dtype dtype, int64_t heads,
                                    int64_t tokens, int64_t width)
{
    return (struct attn_cview){data, dtype, {heads * tokens * width, tokens * width, width, 1}};
}

struct attn_view attn_packed_view(void *data, enum attn_dtype dtype, int64_t heads, int64_t tokens,
                                  int64_t width)
{
    return (struct attn_view){data, dtype, {heads * tokens * width, tokens * width, width, 1}};
}

struct attn_cview attn_view_const(const struct attn_view *view)
{
    const int64_t *s = view->stride;
    return (struct attn_cview){view->data, view->dtype, {s[0], s[1], s[2], s[3]}};
}

enum attn_status attn_shards_take(struct attn_shards *s, struct attn_ledger *ledger,
                                  const char *name, enum attn_dtype dtype, const int64_t whole[4],
                                  int ranks, struct attn_error *err)
{
    *s = (struct attn_shards){.dtype = dtype, .ranks = ranks};
    memcpy(s->extent, whole, sizeof s->extent);
    s->extent[2] /= ranks;
    int64_t bytes =
        s->extent[0] * s->extent[1] * s->extent[2] * s->extent[3] * (int64_t)attn_dtype_size(dtype);
    s->pitch = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    struct attn_error own;
    s->data = attn_ledger_take(ledger, name, ranks, s->pitch, &own);
    return s->data != NULL ? ATTN_OK : attn_fail(err, own.status, "%s", own.text);
}

struct attn_cview attn_shards_cview(const struct attn_shards *s, int rank)
{
    return attn_packed_cview(s->data + rank * s->pitch, s->dtype, s->extent[1], s->extent[2],
                             s->extent[3]);
}

struct attn_view attn_shards_view(const struct attn_shards *s, int rank)
{
    return attn_packed_view(s->data + rank * s->pitch, s->dtype, s->extent[1], s->extent[2],
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

static void copy_tokens(const int64_t extent[4], size_t size, char *to, const int64_t to_stride[4],
                        const char *from, const int64_t from_stride[4])
{
    int64_t e = (int64_t)size;
    if (extent[3] == 0)
        return;
    for (int64_t b = 0; b < extent[0]; b++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t i = 0; i < extent[2]; i++)
                copy_row(to + e * attn_offset(to_stride, b, h, i), e * to_stride[3],
                         from + e * attn_offset(from_stride, b, h, i), e * from_stride[3],
                         extent[3], size);
}

void attn_shards_scatter(const struct attn_shards *s, const struct attn_cview *whole)
{
    size_t size = attn_dtype_size(s->dtype);
    for (int r = 0; r < s->ranks; r++) {
        struct attn_view mine = attn_shards_view(s, r);
        int64_t first = r * s->extent[2] * whole->stride[2];
        if (s->extent[0] * s->extent[1] * s->extent[2] > 0)
            copy_tokens(s->extent, size, mine.data, mine.stride,
                        (const char *)whole->data + first * (int64_t)size, whole->stride);
    }
}

void attn_shards_gather(const struct attn_shards *s, const struct attn_view *whole)
{
    size_t size = attn_dtype_size(s->dtype);
    for (int r = 0; r < s->ranks; r++) {
        struct attn_cview mine = attn_shards_cview(s, r);
        int64_t first = r * s->extent[2] * whole->stride[2];
        if (s->extent[0] * s->extent[1] * s->extent[2] > 0)
            copy_tokens(s->extent, size, (char *)whole->data + first * (int64_t)size, whole->stride,
                        mine.data, mine.stride);
    }
}

/* ---- which rank counts work ---------------------------------------------------------------- */

static int divides_all(int ranks, const struct attn_divisible *of, int n)
{
    for (int e = 0; e < n; e++)
        if (of[e].value % ranks != 0)
            return 0;
    return 1;
}

enum attn_status attn_shards_check(const char *scheme, int ranks, const struct attn_divisible *of,
                                   int n, struct attn_error *err)
{
    if (divides_all(ranks, of, n))
        return ATTN_OK;
    char needs[200] = "", works[280] = "";
    for (int e = 0; e < n; e++)
        snprintf(needs + strlen(needs), sizeof needs - strlen(needs), "%s%s %lld",
                 e == 0       ? ""
                 : e == n - 1 ? " and "
                              : ", ",
                 of[e].name, (long long)of[e].value);
    for (int r = 1; r <= ATTN_MAX_RANKS; r++)
        if (divides_all(r, of, n))
            snprintf(works + strlen(works), sizeof works - strlen(works), "%s%d", r > 1 ? ", " : "",
                     r);
    return attn_fail(err, ATTN_ENOTSUP, "%s:ranks=%d needs ranks that divide %s: %s", scheme, ranks,
                     needs, works);
}
