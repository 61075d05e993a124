/* Masks for tests: shapes, texts of the whole language, and the tensors that they name. */
#ifndef TESTS_MASK_DATA_H
#define TESTS_MASK_DATA_H

#include <check.h>

#include "ref/mask.h"

enum { MASK_MOST = 16 }; /* queries and keys of a shape stay below this; at most 8 (batch, head)s */

/* Deterministic data for one shape; bytes(seed, i) decide. */
struct mask_data {
    struct attn_mask_shape shape;
    int8_t pad[8 * MASK_MOST];                  /* keys(pad)    [B,Lk]  u8  */
    int64_t pad_all[MASK_MOST];                 /* keys(pad_all) [Lk]   i64 */
    int32_t flat[MASK_MOST * MASK_MOST];        /* dense(flat)  [Lq,Lk] i32 */
    int8_t by_batch[4 * MASK_MOST * MASK_MOST]; /* dense(by_batch) [B,1,Lq,Lk] u8 */
    int8_t by_head[4 * MASK_MOST * MASK_MOST];  /* dense(by_head) [1,H,Lq,Lk] u8 */
    int8_t full[8 * MASK_MOST * MASK_MOST];     /* dense(full)  [B,H,Lq,Lk] u8 */
    int64_t start[8 * MASK_MOST + 1];           /* csr(each): one pattern a head */
    int32_t column[8 * MASK_MOST * MASK_MOST];
    int32_t start_all[MASK_MOST + 1]; /* csr(all): one pattern */
    int64_t column_all[MASK_MOST * MASK_MOST];
    int32_t used[4]; /* ends,used: keys in use of each batch */
};

void mask_data_fill(struct mask_data *d, const struct attn_mask_shape *shape);

/* Parse with these tensors; a failure fails the test. */
struct attn_mask *mask_data_parse(const char *text, struct mask_data *d);

/* Small shapes, and texts with blanks to fill in (mask_data_expand). */
extern const struct attn_mask_shape mask_shapes[];
extern const int mask_n_shapes;
extern const char *const mask_singles[], *const mask_compositions[];
extern const int mask_n_singles, mask_n_compositions;

/* %n half of Lk; %B a length for each batch; %P a pattern for each batch; %D and %E documents of
 * the shape, with empty ones among them. */
void mask_data_expand(char *text, size_t size, const char *pattern,
                      const struct attn_mask_shape *shape);

/* Append a random formula: a call, or two to four parts joined by one operator, `depth` levels. */
void mask_data_draw(char *text, size_t size, const struct attn_mask_shape *shape, uint64_t *draws,
                    int depth);

/* The tests of mask_language.c: texts, their errors, and data that must be refused. */
TCase *mask_language_tests(void);
TCase *mask_count_tests(void); /* of mask_counts.c */

#endif
