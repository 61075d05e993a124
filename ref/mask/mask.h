/* Masks: which key a query may see.
 *
 * A mask is described, not stored: `causal(br)&window(32,0,br)` is two small records, whatever
 * L is.  attn_mask_allows() is THE definition; everything else in this header is derived from it
 * and tested against it.  Code that wants an L x L object builds it and pays on the ledger.
 *
 * The language.  A mask is a call, or calls joined by & (both) and | (either) with parentheses;
 * & binds tighter.  attn_mask_help() has a line for each call, docs/masks.md a picture, and the
 * head of its file (kind_*.c) what it means to the letter.
 */
#ifndef REF_MASK_MASK_H
#define REF_MASK_MASK_H

#include "ref/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The whole problem that a mask speaks of. */
struct attn_mask_shape {
    int64_t batch, heads, n_query, n_key;
};

/* Tensors that a mask names.  find() returns ATTN_OK and fills data, or fails with a message.
 * The data that it hands out must outlive the mask; the mask reads it in place. */
struct attn_mask_tensor {
    const void *data;
    int width; /* bytes of an element: 1 (bool, u8), 4 (i32) or 8 (i64) */
    int n_axes;
    int64_t extent[4];
};
struct attn_mask_source {
    enum attn_status (*find)(void *arg, const char *name, const char *part,
                             struct attn_mask_tensor *tensor, struct attn_error *err);
    void *arg; /* part: "" for keys and dense; "row_start" and "column" for csr */
};

/* Build a mask from its text.  source may be NULL when no call names a tensor.  On success
 * *mask is the caller's, to be freed; `none` gives a mask as well.  EINVAL: names the column of
 * the text, what was expected there, and the calls that exist.  Text of any length is safe;
 * parentheses nested more than 64 deep are refused.  Numbers go up to 2^60, Lq * Lk to 2^61. */
enum attn_status attn_mask_parse(const char *text, const struct attn_mask_shape *shape,
                                 const struct attn_mask_source *source, struct attn_mask **mask,
                                 struct attn_error *err);
void attn_mask_free(struct attn_mask *mask); /* NULL is legal */

const struct attn_mask_shape *attn_mask_shape(const struct attn_mask *mask);

/* The text, alignment resolved as it was written.  Owned by the mask. */
const char *attn_mask_text(const struct attn_mask *mask);

/* Help: one line for each call of the language, NULL after the last. */
const char *attn_mask_help(int line);

/* THE definition.  A NULL mask allows everything.  0 <= b < batch, and so on, in whole-problem
 * indices. */
int attn_mask_allows(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i, int64_t j);

/* Returns 1 if every pair is visible because nothing but `none` was written, and for NULL: the mask
 * need not be materialised. */
int attn_mask_is_none(const struct attn_mask *mask);

/* A call in numbers, as one batch has it. */
enum attn_call_kind { ATTN_CALL_OTHER, ATTN_CALL_BAND, ATTN_CALL_KEYS, ATTN_CALL_DOCUMENTS };
struct attn_mask_call {
    enum attn_call_kind kind;
    int64_t left, right, offset; /* causal, window: i + offset - left <= j <= i + offset + right;
                                  * -1: no end on that side                                     */
    int64_t length; /* of keys(n1,...), and where ends,n1,... aligns a band; -1: it says none    */
    int64_t n;      /* documents, each from its start to the next, in the mask's memory          */
    const int64_t *query_start, *key_start;
};

/* Call n, from 0, of those that & joins, as they were written.  Calls that | joins are one,
 * ATTN_CALL_OTHER.  0: there is none. */
int attn_mask_call(const struct attn_mask *mask, int64_t b, int64_t n, struct attn_mask_call *call);

/* Returns 1 if some call says how many tokens or batches there are: keys, ends, documents, a grid.
 * Of another number it would be another text. */
int attn_mask_counts_tokens(const struct attn_mask *mask);

/* Frames of equal size, one behind the other, are a video.  Is every visible pair certainly of one
 * frame (spatial), or of one place of all frames (temporal, skiparse(single,k))?  *frames: how many
 * there are.  An intersection is one where one of its parts is. */
enum attn_video { ATTN_NO_VIDEO, ATTN_SAME_FRAME, ATTN_SAME_PLACE };
enum attn_video attn_mask_video(const struct attn_mask *mask, int64_t *frames);

/* Returns 1 if the mask differs between batches, between heads. */
int attn_mask_varies_by_batch(const struct attn_mask *mask);
int attn_mask_varies_by_head(const struct attn_mask *mask);

/* A run of keys [lo, hi) that a query sees. */
struct attn_run {
    int64_t lo, hi;
};

/* The next run of query i: the first one at or after key run->hi, which *run becomes.  Keys between
 * the two are hidden.  Returns 0 when there is none; *run then means nothing.  The run need not be
 * maximal: the next one may start where it ends.  Constant memory.  All runs of a row:
 *
 *      struct attn_run run = {0, 0};
 *      while (attn_mask_next(mask, b, h, i, &run)) ...
 */
int attn_mask_next(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                   struct attn_run *run);

/* If the keys that query i sees are known to be one run, *run is that run (empty when lo >= hi) and
 * 1 is returned; 0 says nothing.  Constant time: single calls other than random, blocks, csr, dense
 * and keys by pattern, grids where a row is one run, and intersections of them. */
int attn_mask_span(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                   struct attn_run *run);

/* If query i of batch b sees key j just where *least <= j - i <= *most, these bounds and 1; 0 says
 * nothing.  none, causal, window, and what & makes of them. */
int attn_mask_band(const struct attn_mask *mask, int64_t b, int64_t *least, int64_t *most);

/* Every step-th token of a stretch: first, first + step, ..., n of them; step >= 1.  A shard of a
 * sequence is one: contiguous (step 1) or a stripe (step R). */
struct attn_tokens {
    int64_t first, step, n;
};

static inline struct attn_tokens attn_tokens_between(int64_t first, int64_t end)
{
    struct attn_tokens t = {first, 1, end > first ? end - first : 0};
    return t;
}

/* How many of them are below token x. */
static inline int64_t attn_tokens_below(const struct attn_tokens *t, int64_t x)
{
    int64_t n = x <= t->first ? 0 : (x - t->first - 1) / t->step + 1;
    return n < t->n ? n : t->n;
}

/* A tile: queries [i0,i1) by keys [j0,j1) of head h of batch b. */
struct attn_tile_at {
    int64_t b, h, i0, i1, j0, j1;
};

/* Is a tile all hidden, all visible, or in between?  Sound always (EMPTY and FULL are never wrong),
 * exact for single calls; a composition, and axial2d, which is one, may answer PARTIAL where the
 * truth is EMPTY or FULL.  A tile without a pair is EMPTY. */
enum attn_tile { ATTN_TILE_EMPTY, ATTN_TILE_PARTIAL, ATTN_TILE_FULL };
enum attn_tile attn_mask_tile(const struct attn_mask *mask, struct attn_tile_at at);

/* Which of these keys query i sees: how many; constant memory, time O(visible keys of the stretch).
 */
int64_t attn_mask_count_keys(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                             const struct attn_tokens *keys);

/* The same keys in increasing order, numbered within `keys` (the first of them is 0), into column[]
 * (room for count_keys); returns how many. */
int64_t attn_mask_list_keys(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                            const struct attn_tokens *keys, int32_t *column);

/* The count for all keys of [j0,j1). */
static inline int64_t attn_mask_row_count(const struct attn_mask *mask, int64_t b, int64_t h,
                                          int64_t i, int64_t j0, int64_t j1)
{
    struct attn_tokens keys = attn_tokens_between(j0, j1);
    return attn_mask_count_keys(mask, b, h, i, &keys);
}

/* If the mask is one call, csr(NAME), this is what it reads: 1, and the arrays as they are stored;
 * row_start has Lq + 1 entries when the mask differs neither by batch nor by head, else
 * B*H*Lq + 1.  0 for every other mask. */
int attn_mask_stored(const struct attn_mask *mask, struct attn_mask_tensor *row_start,
                     struct attn_mask_tensor *column);

/* Visible pairs of these queries and keys in one (batch, head): in closed form where the mask has
 * one (then *counted stays as it is), else by counting rows (*counted = 1).  Between two stretches
 * of the same step a band is again a band, and keeps its closed form. */
int64_t attn_mask_pairs(const struct attn_mask *mask, int64_t b, int64_t h,
                        const struct attn_tokens *queries, const struct attn_tokens *keys,
                        int *counted);

/* The same for a tile. */
static inline int64_t attn_mask_count(const struct attn_mask *mask, struct attn_tile_at at,
                                      int *counted)
{
    struct attn_tokens queries = attn_tokens_between(at.i0, at.i1);
    struct attn_tokens keys = attn_tokens_between(at.j0, at.j1);
    return attn_mask_pairs(mask, at.b, at.h, &queries, &keys, counted);
}

#ifdef __cplusplus
}
#endif
#endif
