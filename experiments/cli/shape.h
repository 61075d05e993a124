/* Shapes of problems from flags: every length with every dim, mask and pass that were asked for. */
#ifndef EXPERIMENTS_CLI_SHAPE_H
#define EXPERIMENTS_CLI_SHAPE_H

#include "experiments/cli/flags.h"
#include "ref/attn.h"

struct attn_cli_shapes {
    struct attn_cli_counts lengths, dims;
    int64_t batch, heads, keys, kv_heads, dv; /* the last three: -1 when they were not given */
    struct attn_cli_list masks;
    const char *model; /* of which what was not given is; NULL */
    int dtype, pass;   /* words of their flags; the last one is all of them */
};
#define ATTN_CLI_SHAPES_OPEN                 \
    {                                        \
        .keys = -1, .kv_heads = -1, .dv = -1 \
    }

/* Lines of a command's list of flags; at: where its struct has the shapes. */
#define ATTN_CLI_SHAPE_FLAGS(at)                                                  \
    ATTN_TAKES(LENGTH, (at) + offsetof(struct attn_cli_shapes, lengths)),         \
        ATTN_TAKES(KEYS, (at) + offsetof(struct attn_cli_shapes, keys)),          \
        ATTN_TAKES(BATCH, (at) + offsetof(struct attn_cli_shapes, batch), "1"),   \
        ATTN_TAKES(HEADS, (at) + offsetof(struct attn_cli_shapes, heads), "1"),   \
        ATTN_TAKES(KV_HEADS, (at) + offsetof(struct attn_cli_shapes, kv_heads)),  \
        ATTN_TAKES(DIM, (at) + offsetof(struct attn_cli_shapes, dims), "64"),     \
        ATTN_TAKES(DV, (at) + offsetof(struct attn_cli_shapes, dv)),              \
        ATTN_TAKES(MASK, (at) + offsetof(struct attn_cli_shapes, masks), "none"), \
        ATTN_TAKES(MODEL, (at) + offsetof(struct attn_cli_shapes, model)),        \
        ATTN_TAKES(DTYPE, (at) + offsetof(struct attn_cli_shapes, dtype), "f32",  \
                   .value = "f64|f32|bf16|f16|all"),                              \
        ATTN_TAKES(PASS, (at) + offsetof(struct attn_cli_shapes, pass), "fwd")

struct attn_cli_shape {
    int64_t batch, heads, kv_heads, n_query, n_key, dim, dv;
    const char *mask;
    enum attn_dtype dtype;
    enum attn_pass pass;
};

int attn_cli_shape_count(const struct attn_cli_shapes *shapes);

/* From 0; the pass changes first, then the storage type, the mask, the dim, the length. */
struct attn_cli_shape attn_cli_shape_at(const struct attn_cli_shapes *shapes, int index);

/* A problem of these extents, scale 1 / sqrt(dim), with its mask, to be freed; NULL in it for none.
 * EINVAL: extents or mask. */
enum attn_status attn_cli_shape_open(const struct attn_cli_shape *shape,
                                     struct attn_problem *problem, struct attn_mask **mask,
                                     struct attn_error *err);

/* "b1h8g8q128k128d64v64:none:f32", as case strings have it. */
void attn_cli_shape_print(const struct attn_cli_shape *shape, char *text, size_t size);

#endif
