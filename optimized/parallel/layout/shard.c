/* Dealing out tensors to ranks, and collecting them.  See shard.h. */
#include "optimized/parallel/layout/shard.h"

#include <string.h>

#include "optimized/integers.h"
#include "ref/problem.h"

enum { ALIGN = 64 }; /* shards start where a buffer of their own would */

static struct attn_box stored_box(const struct attn_shards *s, int rank)
{
    return attn_layout_stored_box(&s->layout, &s->whole, attn_tag_is_of_keys(s->kind), rank);
}

int64_t attn_shards_bytes(const struct attn_shards *s, int rank)
{
    struct attn_box box = stored_box(s, rank);
    int64_t row = attn_tag_width(s->kind, &s->whole) *
                  (int64_t)attn_dtype_size(attn_tag_dtype(s->kind, &s->whole));
    return ceil_div(attn_box_rows(&box) * row, ALIGN) * ALIGN;
}

/* The rank behind the last whose shard is here. */
static int end_of(const struct attn_shards *s)
{
    return s->n > 0 ? s->first + s->n : s->layout.ranks;
}

/* Bytes of the shards before this rank's. */
static int64_t offset_of(const struct attn_shards *s, int rank)
{
    int64_t sum = 0;
    for (int r = s->first; r < rank; r++)
        sum += attn_shards_bytes(s, r);
    return sum;
}

enum attn_status attn_shards_take(struct attn_shards *s, struct attn_ledger *ledger,
                                  struct attn_error *err)
{
    struct attn_error own;
    s->data = attn_ledger_take(ledger, s->name, 1, offset_of(s, end_of(s)), &own);
    return s->data != NULL ? ATTN_OK : attn_fail(err, own.status, "%s", own.text);
}

struct attn_view attn_shards_view(const struct attn_shards *s, int rank)
{
    struct attn_box stored = stored_box(s, rank);
    return attn_packed_view(s->data + offset_of(s, rank), attn_tag_dtype(s->kind, &s->whole),
                            stored.heads.n, stored.tokens, attn_tag_width(s->kind, &s->whole));
}

enum way { FROM_WHOLE, TO_WHOLE, COMPARE };

static int element(char *whole, char *mine, size_t size, enum way way)
{
    if (way == COMPARE)
        return memcmp(whole, mine, size) != 0;
    memcpy(way == TO_WHOLE ? whole : mine, way == TO_WHOLE ? mine : whole, size);
    return 0;
}

/* Feature after feature, because a whole tensor may have any strides.  lse has no feature axis:
 * its one element a row needs no stride there.  Returns 1 if something differs. */
static int do_row(char *whole, int64_t whole_step, char *mine, int64_t n, int64_t size,
                  enum way way)
{
    int differs = 0;
    if (n == 1 || whole_step == size)
        return element(whole, mine, (size_t)(n * size), way);
    for (int64_t c = 0; c < n; c++)
        differs |= element(whole + c * whole_step, mine + c * size, (size_t)size, way);
    return differs;
}

/* A stretch of a shard, to or from its place in the whole. */
static int do_stretch(const struct attn_view *mine, const struct attn_box *box,
                      const struct attn_stretch *stretch, int64_t width,
                      const struct attn_view *whole, enum way way)
{
    const struct attn_tokens *tokens = &stretch->tokens;
    const int64_t e = (int64_t)attn_dtype_size(mine->dtype);
    int differs = 0;
    for (int64_t b = 0; b < box->batch; b++)
        for (int64_t h = 0; h < box->heads.n; h++)
            for (int64_t i = 0; i < tokens->n; i++) {
                char *there =
                    (char *)whole->data + e * attn_offset(whole->stride, b, box->heads.first + h,
                                                          tokens->first + i * tokens->step);
                char *here =
                    (char *)mine->data + e * attn_offset(mine->stride, b, h, stretch->row + i);
                differs |= do_row(there, e * whole->stride[3], here, width, e, way);
            }
    return differs;
}

/* How many ranks differ. */
static int do_shards(const struct attn_shards *s, enum way way)
{
    int64_t width = attn_tag_width(s->kind, &s->whole);
    int ranks = 0;
    for (int r = s->first; r < end_of(s) && width > 0; r++) {
        struct attn_box box =
            attn_layout_box(&s->layout, &s->whole, attn_tag_is_of_keys(s->kind), r);
        struct attn_view mine = attn_shards_view(s, r);
        int differs = 0;
        for (int64_t part = 0; part < attn_box_stretches(&box); part++) {
            struct attn_stretch stretch = attn_box_stretch(&box, part);
            differs |= do_stretch(&mine, &box, &stretch, width, &s->tensor, way);
        }
        ranks += differs;
    }
    return ranks;
}

void attn_shards_scatter(const struct attn_shards *s)
{
    if (s->layout.pads)
        memset(s->data, 0xFF, (size_t)offset_of(s, end_of(s))); /* NaN in every type */
    do_shards(s, FROM_WHOLE);
}

void attn_shards_gather(const struct attn_shards *s)
{
    do_shards(s, TO_WHOLE);
}

int attn_shards_differ(const struct attn_shards *s)
{
    return do_shards(s, COMPARE);
}
