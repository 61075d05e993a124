/* Mappings with poisoned surroundings. */
#include "tests/harness/base/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ref/problem.h"
#include "tests/harness/base/pages.h"

enum {
    ALIGN = 64,       /* what offset counts from: a cache line, the widest vector */
    RED_BEFORE = 256, /* the least number of poisoned bytes before the elements   */
    RED_AFTER = 16    /* and after: two elements of the widest type               */
};

/* Quiet NaNs that no arithmetic makes by itself, told apart by their payload. */
static const uint32_t red_f32 = 0x7fedc0deu, unwritten_f32 = 0x7fdeadbeu;
static const uint64_t red_f64 = 0x7ffedc0dedc0de5au, unwritten_f64 = 0x7ffdeadbeefdead5u;
static const uint16_t red_16 = 0x7fed, unwritten_16 = 0x7fde; /* a NaN as bf16 and as f16 */

enum pattern { RED, UNWRITTEN };

static size_t page_bytes(void)
{
    static size_t bytes; /* asked for each slot: the system answers once */
    if (bytes == 0)
        bytes = (size_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

static unsigned char *interior(const struct attn_tensor *t)
{
    return (unsigned char *)t->map + page_bytes();
}

static size_t interior_bytes(const struct attn_tensor *t)
{
    return t->map_bytes - 2 * page_bytes();
}

/* The element at the lowest address; slots of the mapping are counted from it. */
static unsigned char *lowest(const struct attn_tensor *t)
{
    return (unsigned char *)t->data + t->first * (int64_t)attn_dtype_size(t->dtype);
}

/* Element slots of the red zone before the first element, and after the last. */
static int64_t slots_before(const struct attn_tensor *t)
{
    return (lowest(t) - interior(t)) / (int64_t)attn_dtype_size(t->dtype);
}

static int64_t slots_after(const struct attn_tensor *t)
{
    int64_t all = (int64_t)(interior_bytes(t) / attn_dtype_size(t->dtype));
    return all - slots_before(t) - t->span;
}

static const void *bits_of(enum pattern pattern, enum attn_dtype dtype)
{
    if (dtype == ATTN_F64)
        return pattern == RED ? &red_f64 : &unwritten_f64;
    if (dtype == ATTN_F32)
        return pattern == RED ? &red_f32 : &unwritten_f32;
    return pattern == RED ? &red_16 : &unwritten_16;
}

/* n slots from `slot` on, `step` apart; sizes that the compiler knows make moves of the copies. */
static void write_pattern(const struct attn_tensor *t, int64_t slot, int64_t n, int64_t step,
                          enum pattern pattern)
{
    const unsigned char *bits = bits_of(pattern, t->dtype);
    int64_t size = (int64_t)attn_dtype_size(t->dtype);
    unsigned char *to = lowest(t) + slot * size;
    for (int64_t at = 0; at < n; at++, to += step * size)
        if (size == 8)
            memcpy(to, bits, 8);
        else if (size == 4)
            memcpy(to, bits, 4);
        else
            memcpy(to, bits, 2);
}

/* The same, how many slots hold it. */
static int64_t count_pattern(const struct attn_tensor *t, int64_t slot, int64_t n, int64_t step,
                             enum pattern pattern)
{
    const unsigned char *bits = bits_of(pattern, t->dtype);
    int64_t size = (int64_t)attn_dtype_size(t->dtype), found = 0;
    const unsigned char *from = lowest(t) + slot * size;
    for (int64_t at = 0; at < n; at++, from += step * size)
        found += size == 8   ? memcmp(from, bits, 8) == 0
                 : size == 4 ? memcmp(from, bits, 4) == 0
                             : memcmp(from, bits, 2) == 0;
    return found;
}

static int has_pattern(const struct attn_tensor *t, int64_t slot, enum pattern pattern)
{
    return count_pattern(t, slot, 1, 1, pattern) == 1;
}

static int64_t slot_of(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return attn_offset(t->stride, b, h, i) + c * t->stride[3] - t->first;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Strides of the memory order, and the span, in elements; -1 when it overflows.  A stride of 0 says
 * "broadcast" and nothing else: where an extent is 0, the strides are those of an extent of 1. */
static int64_t lay_out(struct attn_tensor *t, const char *order, int64_t gap, unsigned broadcast)
{
    int64_t step = 1;
    for (int place = 3; place >= 0; place--) {
        int axis = (int)(strchr("bhic", order[place]) - "bhic");
        int64_t extent = broadcast & 1u << axis ? 1 : t->extent[axis];
        t->stride[axis] = broadcast & 1u << axis ? 0 : step;
        step = attn_product(step, extent > 0 ? extent : 1);
        if (step < 0)
            return -1;
        if (place == 3 && extent > 0)
            step += gap;
    }
    int64_t span = 1;
    for (int axis = 0; axis < 4; axis++) {
        if (t->extent[axis] == 0)
            return 0;
        span += (t->extent[axis] - 1) * t->stride[axis];
    }
    return span;
}

/* Map t->span elements between two inaccessible pages and fill what is around them. */
static enum attn_status map_span(struct attn_tensor *t, int offset, struct attn_error *err)
{
    size_t size = attn_dtype_size(t->dtype), page = page_bytes();
    int64_t bytes = t->span < 0 ? -1 : attn_product(t->span, (int64_t)size);
    if (bytes < 0 || bytes > INT64_MAX / 2)
        return attn_fail(err, ATTN_EINVAL, "tensor %s: its elements exceed 64 bits", t->name);
    size_t inside = RED_BEFORE + (size_t)bytes + ALIGN + RED_AFTER;
    inside = (inside + page - 1) / page * page;
    t->map_bytes = inside + 2 * page;
    unsigned char *pages = attn_pages_take(inside, 0);
    if (pages == NULL)
        return attn_fail(err, ATTN_ENOMEM, "tensor %s: the system gave no %lld bytes", t->name,
                         (long long)t->map_bytes);
    t->map = pages - page;
    unsigned char *end = (unsigned char *)t->map + page + inside;
    unsigned char *data = end - RED_AFTER - bytes;
    data -= ((uintptr_t)data - (size_t)offset * size) % ALIGN;
    t->data = data;
    write_pattern(t, -slots_before(t), slots_before(t), 1, RED);
    write_pattern(t, t->span, slots_after(t), 1, RED);
    return ATTN_OK;
}

/* Mark in `own` (of the owner of the mapping) the slots that t's elements fill. */
static void mark_own(const struct attn_tensor *t, unsigned char *own)
{
    for (int64_t at[4] = ATTN_START; attn_each(at, t->extent);)
        own[slot_of(t, at[0], at[1], at[2], at[3])] = 1;
}

/* Everything in the span that belongs to no element is a gap. */
static void poison_gaps(struct attn_tensor *t)
{
    for (int64_t s = 0; s < t->span; s++)
        if (!t->own[s])
            write_pattern(t, s, 1, 1, RED);
}

static enum attn_status start_tensor(struct attn_tensor *t, const char *name, enum attn_dtype dtype,
                                     const int64_t extent[4], struct attn_error *err)
{
    memset(t, 0, sizeof *t);
    t->name = name;
    t->dtype = t->stored = dtype;
    for (int axis = 0; axis < 4; axis++) {
        t->extent[axis] = extent[axis];
        if (extent[axis] < 0)
            return attn_fail(err, ATTN_EINVAL, "tensor %s: extent %lld of axis %d is negative",
                             name, (long long)extent[axis], axis);
    }
    return ATTN_OK;
}

enum attn_status attn_tensor_alloc(struct attn_tensor *t, const char *name, enum attn_dtype dtype,
                                   const int64_t extent[4], const char *order, int64_t gap,
                                   int offset, unsigned broadcast, struct attn_error *err)
{
    enum attn_status status = start_tensor(t, name, dtype, extent, err);
    if (status != ATTN_OK)
        return status;
    int seen = 0;
    for (const char *p = order; *p != '\0'; p++)
        seen |= strchr("bhic", *p) != NULL ? 1 << (strchr("bhic", *p) - "bhic") : 0;
    if (strlen(order) != 4 || seen != 15 || gap < 0 || offset < 0)
        return attn_fail(err, ATTN_EINVAL,
                         "tensor %s: order '%s', gap %lld, offset %d: the order is the four "
                         "letters b h i c, the others start at 0",
                         name, order, (long long)gap, offset);
    t->span = lay_out(t, order, gap, broadcast);
    status = map_span(t, offset, err);
    if (status != ATTN_OK)
        return status;
    int64_t elements = 1;
    for (int axis = 0; axis < 4; axis++)
        elements *= broadcast & 1u << axis && extent[axis] > 0 ? 1 : extent[axis];
    if (elements == t->span)
        return ATTN_OK;
    t->own = calloc((size_t)t->span, 1);
    if (t->own == NULL) {
        attn_tensor_free(t);
        return attn_fail(err, ATTN_ENOMEM, "tensor %s: no memory for its map of gaps", name);
    }
    mark_own(t, t->own);
    poison_gaps(t);
    return ATTN_OK;
}

enum attn_status attn_tensor_pack(struct attn_tensor *q, struct attn_tensor *k,
                                  struct attn_tensor *v, enum attn_dtype dtype,
                                  const int64_t q_extent[4], const int64_t k_extent[4],
                                  const int64_t v_extent[4], int offset, struct attn_error *err)
{
    struct attn_tensor *part[3] = {q, k, v};
    const int64_t *extent[3] = {q_extent, k_extent, v_extent};
    static const char *const name[3] = {"q", "k", "v"};
    int64_t at[3], token = 0, tokens = q_extent[2] > k_extent[2] ? q_extent[2] : k_extent[2];
    for (int p = 0; p < 3; p++) {
        enum attn_status status = start_tensor(part[p], name[p], dtype, extent[p], err);
        if (status != ATTN_OK)
            return status;
        at[p] = token;
        token += extent[p][1] * extent[p][3];
    }
    q->span = attn_product(q_extent[0], attn_product(tokens, token));
    enum attn_status status = map_span(q, offset, err);
    if (status != ATTN_OK)
        return status;
    q->own = calloc((size_t)q->span + 1, 1);
    if (q->own == NULL) {
        attn_tensor_free(q);
        return attn_fail(err, ATTN_ENOMEM, "packed q, k, v: no memory for their map of gaps");
    }
    for (int p = 0; p < 3; p++) {
        struct attn_tensor *t = part[p];
        t->shared = p > 0;
        t->map = q->map;
        t->map_bytes = q->map_bytes;
        t->data = (unsigned char *)q->data + (size_t)at[p] * attn_dtype_size(dtype);
        t->stride[0] = tokens * token;
        t->stride[1] = extent[p][3];
        t->stride[2] = token;
        t->stride[3] = 1;
        mark_own(t, q->own + at[p]);
    }
    poison_gaps(q);
    return ATTN_OK;
}

void attn_tensor_flip(struct attn_tensor *t, unsigned axes)
{
    for (int axis = 0; axis < 4 && t->span > 0; axis++) {
        if (!(axes & 1u << axis))
            continue;
        int64_t far = (t->extent[axis] - 1) * t->stride[axis];
        t->data = (unsigned char *)t->data + far * (int64_t)attn_dtype_size(t->dtype);
        t->first -= far;
        t->stride[axis] = -t->stride[axis];
    }
}

void attn_tensor_free(struct attn_tensor *t)
{
    if (t->map != NULL && !t->shared)
        attn_pages_free(interior(t), interior_bytes(t));
    free(t->own);
    memset(t, 0, sizeof *t);
}

/* ---- using ----------------------------------------------------------------------------------- */

struct attn_view attn_tensor_view(const struct attn_tensor *t)
{
    struct attn_view view = {t->data, t->dtype, {0, 0, 0, 0}};
    memcpy(view.stride, t->stride, sizeof view.stride);
    return view;
}

struct attn_cview attn_tensor_cview(const struct attn_tensor *t)
{
    struct attn_cview view = {t->data, t->dtype, {0, 0, 0, 0}};
    memcpy(view.stride, t->stride, sizeof view.stride);
    return view;
}

void attn_tensor_set(struct attn_tensor *t, int64_t b, int64_t h, int64_t i, int64_t c, double x)
{
    struct attn_view view = attn_tensor_view(t);
    attn_view_set(&view, b, h, i, c, x);
}

double attn_tensor_get(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i, int64_t c)
{
    struct attn_cview view = attn_tensor_cview(t);
    return attn_cview_get(&view, b, h, i, c);
}

/* 1: the span is elements and nothing else. */
static int is_dense(const struct attn_tensor *t)
{
    return t->own == NULL && !t->shared;
}

void attn_tensor_poison(struct attn_tensor *t)
{
    const int64_t rows[4] = {t->extent[0], t->extent[1], t->extent[2], 1};
    if (is_dense(t)) {
        write_pattern(t, 0, t->span, 1, UNWRITTEN);
        return;
    }
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);)
        write_pattern(t, slot_of(t, at[0], at[1], at[2], 0), t->extent[3], t->stride[3], UNWRITTEN);
}

/* FNV-1a, eight bytes a step and four lanes, as a step takes four times as long as it may repeat;
 * the shift carries high bits down, without it two changed signs would cancel. */
static uint64_t interior_digest(const struct attn_tensor *t)
{
    uint64_t lane[4] = {0xcbf29ce484222325u, 1, 2, 3}, word[4];
    const unsigned char *p = interior(t);
    for (size_t at = 0; at < interior_bytes(t); at += sizeof word) { /* whole pages */
        memcpy(word, p + at, sizeof word);
        for (int n = 0; n < 4; n++) {
            lane[n] = (lane[n] ^ word[n]) * 0x100000001b3u;
            lane[n] ^= lane[n] >> 32;
        }
    }
    for (int n = 1; n < 4; n++)
        lane[0] = (lane[0] ^ lane[n]) * 0x100000001b3u;
    return lane[0];
}

/* Eight bytes a step, as above. */
uint64_t attn_tensor_row_digest(const struct attn_tensor *t, const int64_t at[4], uint64_t digest)
{
    const int64_t size = (int64_t)attn_dtype_size(t->dtype), step = t->stride[3] * size;
    const int64_t n = t->extent[3], some = (int64_t)sizeof digest / size;
    const unsigned char *p =
        (const unsigned char *)t->data + attn_offset(t->stride, at[0], at[1], at[2]) * size;
    for (int64_t c = 0; c < n; c += some) {
        uint64_t word = 0;
        if (step == size && c + some <= n)
            memcpy(&word, p + c * size, sizeof word);
        else
            for (int64_t e = 0; e < some && c + e < n; e++)
                memcpy((unsigned char *)&word + e * size, p + (c + e) * step, (size_t)size);
        digest = (digest ^ word) * 0x100000001b3u;
        digest ^= digest >> 32;
    }
    return digest;
}

void attn_tensor_remember(struct attn_tensor *t)
{
    if (!t->shared && t->map != NULL)
        t->digest = interior_digest(t);
}

void attn_tensor_seal(struct attn_tensor *t, int sealed)
{
    t->sealed = sealed;
    if (!t->shared && t->map != NULL)
        attn_pages_protect(interior(t), interior_bytes(t),
                           sealed         ? PROT_NONE
                           : t->read_only ? PROT_READ
                                          : PROT_READ | PROT_WRITE,
                           t->read_only);
}

void attn_tensor_protect(struct attn_tensor *t, int read_only)
{
    t->read_only = read_only;
    attn_tensor_seal(t, 0);
}

int attn_tensor_holds(const struct attn_tensor *t, const void *address, int64_t *slot)
{
    const unsigned char *at = address;
    if (t->map == NULL || at < interior(t) || at >= interior(t) + interior_bytes(t))
        return 0;
    int64_t size = (int64_t)attn_dtype_size(t->dtype), bytes = at - lowest(t);
    *slot = bytes < 0 ? (bytes - size + 1) / size : bytes / size;
    return 1;
}

/* ---- checking -------------------------------------------------------------------------------- */

/* Overwritten slots of [from, to): how many, and the one nearest to the elements. */
static int64_t damage(const struct attn_tensor *t, int64_t from, int64_t to, int64_t step,
                      int64_t *nearest)
{
    int64_t slots = (to - from) * step, n = 0;
    if (count_pattern(t, from, slots, step, RED) == slots)
        return 0;
    for (int64_t s = from; s != to; s += step)
        if (!has_pattern(t, s, RED) && n++ == 0)
            *nearest = s;
    return n;
}

const char *attn_tensor_intact(const struct attn_tensor *t, char *text, size_t size)
{
    if (t->shared || t->map == NULL)
        return NULL;
    int64_t at = 0, n = damage(t, t->span, t->span + slots_after(t), 1, &at);
    int is_after = n > 0;
    if (!is_after)
        n = damage(t, -1, -slots_before(t) - 1, -1, &at);
    if (n > 0) {
        snprintf(text, size, "%s: %lld elements of the red zone overwritten, the nearest %lld %s",
                 t->name, (long long)n, (long long)(is_after ? at - t->span + 1 : -at),
                 is_after ? "past the end" : "before the start");
        return text;
    }
    for (int64_t s = 0; t->own != NULL && s < t->span; s++)
        if (!t->own[s] && !has_pattern(t, s, RED)) {
            snprintf(text, size,
                     "%s: a gap between rows overwritten, %lld elements after the first "
                     "element",
                     t->name, (long long)s);
            return text;
        }
    return NULL;
}

const char *attn_tensor_unchanged(const struct attn_tensor *t, char *text, size_t size)
{
    if (t->shared || t->map == NULL || interior_digest(t) == t->digest)
        return NULL;
    snprintf(text, size, "%s: an input, or what lies around it, was changed", t->name);
    return text;
}

const char *attn_tensor_written(const struct attn_tensor *t, char *text, size_t size)
{
    const int64_t rows[4] = {t->extent[0], t->extent[1], t->extent[2], 1};
    int64_t n = 0, first[4] = {0, 0, 0, 0};
    if (is_dense(t) && count_pattern(t, 0, t->span, 1, UNWRITTEN) == 0)
        return NULL;
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);) {
        int64_t slot = slot_of(t, at[0], at[1], at[2], 0), step = t->stride[3], c = 0;
        int64_t left = count_pattern(t, slot, t->extent[3], step, UNWRITTEN);
        while (left > 0 && n == 0 && !has_pattern(t, slot + c * step, UNWRITTEN))
            c++;
        if (left > 0 && n == 0)
            memcpy(first, (int64_t[4]){at[0], at[1], at[2], c}, sizeof first);
        n += left;
    }
    if (n == 0)
        return NULL;
    snprintf(text, size, "%s: %lld elements not written, the first at [%lld,%lld,%lld,%lld]",
             t->name, (long long)n, (long long)first[0], (long long)first[1], (long long)first[2],
             (long long)first[3]);
    return text;
}
