/* A small problem in a file, for tests of `attnlab run`: B=1 H=2 Lk=6 d=4.  The values of a tensor
 * come from its name, so that no two tensors, heads or rows are alike. */
#ifndef TESTS_SMALL_INPUT_H
#define TESTS_SMALL_INPUT_H

#include "tests/harness/files.h"

struct small {
    struct attn_file_tensor t[12];
    struct attn_file_pair pair[4];
    double room[12][64]; /* what the tensors' data point to: not to be copied */
    int n, n_pairs;
};

/* q, k, v, do with so many queries; no metadata. */
void small_make(struct small *s, int64_t n_query);

/* One more tensor, f32, with the last n_axes of the extents. */
struct attn_file_tensor *small_add(struct small *s, const char *name, int n_axes, int64_t b,
                                   int64_t h, int64_t i, int64_t c);

/* Metadata. */
void small_say(struct small *s, const char *key, const char *value);

/* Write in.safetensors of the scratch folder; returns its path. */
const char *small_save(const struct small *s);

#endif
