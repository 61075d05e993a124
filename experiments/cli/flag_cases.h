/* Cases from flags: every length with every dim, mask, storage type and pass that were asked for.
 * Fill and seed are no matter here. */
#ifndef EXPERIMENTS_CLI_FLAG_CASES_H
#define EXPERIMENTS_CLI_FLAG_CASES_H

#include "experiments/cli/flags.h"
#include "tests/harness/inputs/case.h"

struct attn_cli_cases {
    struct attn_cli_counts lengths, dims;
    int64_t batch, heads, keys, kv_heads, dv; /* the last three: -1 when they were not given */
    struct attn_cli_list masks;
    const char *model; /* of which what was not given is; NULL */
    int dtype, pass;   /* words of their flags; the last one is all of them */
};
#define ATTN_CLI_CASES_OPEN                  \
    {                                        \
        .keys = -1, .kv_heads = -1, .dv = -1 \
    }

/* Lines of a command's list of flags; at: where its struct has the cases. */
#define ATTN_CLI_CASE_FLAGS(at)                                                  \
    ATTN_TAKES(LENGTH, (at) + offsetof(struct attn_cli_cases, lengths)),         \
        ATTN_TAKES(KEYS, (at) + offsetof(struct attn_cli_cases, keys)),          \
        ATTN_TAKES(BATCH, (at) + offsetof(struct attn_cli_cases, batch), "1"),   \
        ATTN_TAKES(HEADS, (at) + offsetof(struct attn_cli_cases, heads), "1"),   \
        ATTN_TAKES(KV_HEADS, (at) + offsetof(struct attn_cli_cases, kv_heads)),  \
        ATTN_TAKES(DIM, (at) + offsetof(struct attn_cli_cases, dims), "64"),     \
        ATTN_TAKES(DV, (at) + offsetof(struct attn_cli_cases, dv)),              \
        ATTN_TAKES(MASK, (at) + offsetof(struct attn_cli_cases, masks), "none"), \
        ATTN_TAKES(MODEL, (at) + offsetof(struct attn_cli_cases, model)),        \
        ATTN_TAKES(DTYPE, (at) + offsetof(struct attn_cli_cases, dtype), "f32",  \
                   .value = "f64|f32|bf16|f16|all"),                             \
        ATTN_TAKES(PASS, (at) + offsetof(struct attn_cli_cases, pass), "fwd")

int attn_cli_case_count(const struct attn_cli_cases *cases);

/* From 0; the pass changes first, then the storage type, the mask, the dim, the length. */
struct attn_case attn_cli_case_at(const struct attn_cli_cases *cases, int index);

#endif
