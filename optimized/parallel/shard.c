/* Dealing out tensors to ranks, and collecting them.  See shard.h. */
#include "optimized/parallel/shard.h"

#include <string.h>

#include "optimized/integers.h"
#include "ref/problem.h"

enum { ALIGN = 64 }; /* shards start where a buffer of their own would */

static struct attn_box box_of(const struct attn_shards *s, int rank)
{
    return attn_layout_box(&s->layout, s->whole, attn_tag_is_of_keys(s->kind), rank);
}

static struct attn_box room_of(const struct attn_shards *s, int rank)
{
    return attn_layout_room(&s->layout, s->whole, attn_tag_is_of_keys(s->kind), rank);
}

static int64_t bytes_of(const struct attn_shards *s, int rank)
{
    struct attn_box box = room_of(s, rank);
    int64_t row = attn_tag_width(s->kind, s->whole) *
                  (int64_t)attn_dtype_size(attn_tag_dtype(s->kind, s->whole));
    return ceil_div(box.batches.n * box.heads.n * box.tokens * row, ALIGN) * ALIGN;
}

/* Bytes of the shards before this rank's. */
static int64_t offset_of(const struct attn_shards *s, int rank)
{
    int64_t sum = 0;
    for (int r = 0; r < rank; r++)
        sum += bytes_of(s, r);
    return sum;
}

enum attn_status attn_shards_take(struct attn_shards *s, struct attn_ledger *ledger,
                                  const char *name, const struct attn_problem *whole,
                                  enum attn_tag_kind kind, const struct attn_layout *layout,
                                  struct attn_error *err)
{
    struct attn_error own;
    *s = (struct attn_shards){.whole = whole, .kind = kind, .layout = *layout};
    s->data = attn_ledger_take(ledger, name, 1, offset_of(s, layout->ranks), &own);
    return s->data != NULL ? ATTN_OK : attn_fail(err, own.status, "%s", own.text);
}

struct attn_view attn_shards_view(const struct attn_shards *s, int rank)
{
    struct attn_box room = room_of(s, rank);
    return attn_packed_view(s->data + offset_of(s, rank), attn_tag_dtype(s->kind, s->whole),
                            room.heads.n, room.tokens, attn_tag_width(s->kind, s->whole));
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

/* A stretch of a shard, to or from its place in the whole. */
static void copy_stretch(const struct attn_view *mine, const struct attn_box *box,
                         const struct attn_stretch *stretch, int64_t width,
                         const struct attn_view *whole, int to_whole)
{
    const struct attn_tokens *tokens = &stretch->tokens;
    const int64_t e = (int64_t)attn_dtype_size(mine->dtype);
    int64_t step = e * whole->stride[3], one = e * mine->stride[3];
    for (int64_t b = 0; b < box->batches.n; b++)
        for (int64_t h = 0; h < box->heads.n; h++)
            for (int64_t i = 0; i < tokens->n; i++) {
                char *there =
                    (char *)whole->data + e * attn_offset(whole->stride, box->batches.first + b,
                                                          box->heads.first + h,
                                                          tokens->first + i * tokens->step);
                char *here = (char *)mine->data +
                             e * attn_offset(mine->stride, b, h, stretch->row + i * stretch->step);
                if (to_whole)
                    copy_row(there, step, here, one, width, (size_t)e);
                else
                    copy_row(here, one, there, step, width, (size_t)e);
            }
}

static void copy_shards(const struct attn_shards *s, const struct attn_view *whole, int to_whole)
{
    int64_t width = attn_tag_width(s->kind, s->whole);
    for (int r = 0; r < s->layout.ranks && width > 0; r++) {
        struct attn_box box = box_of(s, r);
        struct attn_view mine = attn_shards_view(s, r);
        for (int64_t part = 0; part < attn_box_stretches(&box); part++) {
            struct attn_stretch stretch = attn_box_stretch(&box, part);
            copy_stretch(&mine, &box, &stretch, width, whole, to_whole);
        }
    }
}

void attn_shards_scatter(const struct attn_shards *s, const struct attn_view *whole)
{
    if (s->layout.pads)
        memset(s->data, 0xFF, (size_t)offset_of(s, s->layout.ranks)); /* NaN in every type */
    copy_shards(s, whole, 0);
}

void attn_shards_gather(const struct attn_shards *s, const struct attn_view *whole)
{
    copy_shards(s, whole, 1);
}
