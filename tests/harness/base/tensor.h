/* Test tensors: a view into a mapping of its own, with everything around the elements poisoned.
 *
 * Layout, from low to high addresses: an inaccessible page, a red zone, the elements (with
 * gaps where the layout has some), a red zone up to an inaccessible page.  Red zones and gaps
 * hold a known NaN pattern; outputs are born with another.  So a read outside the strides meets
 * NaN or a fault, a write outside is found, and so is an element that was not written.  The
 * elements end as near to the upper page as their alignment allows, 16 bytes at least.  While an
 * implementation runs, its inputs can be made read-only (attn_tensor_protect).
 */
#ifndef TESTS_HARNESS_BASE_TENSOR_H
#define TESTS_HARNESS_BASE_TENSOR_H

#include "ref/attn.h"

struct attn_tensor {
    const char *name; /* "q", "dk", ... */
    enum attn_dtype dtype;
    enum attn_dtype stored; /* dtype, or where a result was kept before it came here: the bound
                               counts that rounding */
    int64_t extent[4];      /* logical; a broadcast axis keeps its logical extent, stride 0 */
    int64_t stride[4];
    void *data;    /* element [0,0,0,0] */
    int64_t first; /* element slot of the lowest address, counted from data: 0, or less where
                      strides are negative */
    void *map;     /* the mapping */
    size_t map_bytes;
    unsigned char *own; /* one byte an element slot of the span: 1 = belongs to the tensor;
                           NULL: every slot does                                           */
    int64_t span;       /* element slots between the first and the last element, inclusive */
    uint64_t digest;    /* of the whole interior, when sealed by attn_tensor_remember */
    int shared;         /* the mapping is another tensor's (packed q, k, v) */
    int read_only;      /* attn_tensor_protect */
    int sealed;         /* attn_tensor_seal */
};

/* axis order: the memory order of the axes b h i c from slow to fast, e.g. "bhic" or "bihc";
 * gap: unused elements after each row of the fastest axis; offset: elements between an address
 * aligned to 64 bytes and the first.  broadcast: bit a set = axis a has stride 0. */
enum attn_status attn_tensor_alloc(struct attn_tensor *t, const char *name, enum attn_dtype dtype,
                                   const int64_t extent[4], const char *order, int64_t gap,
                                   int offset, unsigned broadcast, struct attn_error *err);
void attn_tensor_free(struct attn_tensor *t);

/* Let axes (bits, as for broadcast) run from high to low addresses: element 0 changes places with
 * the last, the stride its sign.  Before the tensor is filled, and not for packed ones. */
void attn_tensor_flip(struct attn_tensor *t, unsigned axes);

/* q, k and v side by side in one buffer, token by token: [B, max(Lq,Lk), H d + G d + G dv], as a
 * fused projection leaves them.  q owns the mapping and answers for it; k and v are shared. */
enum attn_status attn_tensor_pack(struct attn_tensor *q, struct attn_tensor *k,
                                  struct attn_tensor *v, enum attn_dtype dtype,
                                  const int64_t q_extent[4], const int64_t k_extent[4],
                                  const int64_t v_extent[4], int offset, struct attn_error *err);

struct attn_view attn_tensor_view(const struct attn_tensor *t);
struct attn_cview attn_tensor_cview(const struct attn_tensor *t);

/* Store x rounded to the tensor's type, to nearest. */
void attn_tensor_set(struct attn_tensor *t, int64_t b, int64_t h, int64_t i, int64_t c, double x);
double attn_tensor_get(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i, int64_t c);

/* Every place of an extent, the last axis fastest: int64_t at[4] = ATTN_START; while
 * (attn_each(at, extent)) ... */
#define ATTN_START  \
    {               \
        0, 0, 0, -1 \
    }
static inline int attn_each(int64_t at[4], const int64_t extent[4])
{
    if (at[3] < 0 && (extent[0] <= 0 || extent[1] <= 0 || extent[2] <= 0 || extent[3] <= 0))
        return 0;
    for (int axis = 3; axis >= 0; at[axis--] = 0)
        if (++at[axis] < extent[axis])
            return 1;
    return 0;
}

void attn_tensor_poison(struct attn_tensor *t);   /* every element: "not written" */
void attn_tensor_remember(struct attn_tensor *t); /* digest of the whole interior */

/* NULL when all is well, else one line in text: red zone or gap overwritten (and where), an
 * input changed, an element not written.  Inputs must have been remembered. */
const char *attn_tensor_intact(const struct attn_tensor *t, char *text, size_t size);
const char *attn_tensor_unchanged(const struct attn_tensor *t, char *text, size_t size);
const char *attn_tensor_written(const struct attn_tensor *t, char *text, size_t size);

/* Inaccessible (1) or as before (0). */
void attn_tensor_seal(struct attn_tensor *t, int sealed);

/* Read-only (1) or ordinary again (0), red zones included. */
void attn_tensor_protect(struct attn_tensor *t, int read_only);

/* Does an address lie among the elements or in their red zones?  *slot: where, in elements from
 * the lowest. */
int attn_tensor_holds(const struct attn_tensor *t, const void *address, int64_t *slot);

/* FNV-1a over the elements of row at[0..2], on from `digest`. */
uint64_t attn_tensor_row_digest(const struct attn_tensor *t, const int64_t at[4], uint64_t digest);

#endif
