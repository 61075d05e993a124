/* The memory of PyTorch's attention on a GPU, row by row of
 * experiments/rim/studies/data/pytorch_h200_memory.csv: PyTorch 2.11 on one H200,
 * torch.cuda.max_memory_allocated less the inputs, four back ends.
 *
 * The model is a list of tensors, each with its shape and the operator that makes it, that are live
 * together at the peak.  It was read from PyTorch's sources, not fitted: aten/src/ATen/native/
 * transformers/attention.cpp (math), cuda/attention_backward.cu, cuda/SoftMax.cu, and autograd. */
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/studies/cuda_cache.h"
#include "experiments/rim/studies/study.h"
#include "experiments/rim/studies/table_file.h"
#include "optimized/integers.h"

ATTN_STUDY_DATA(pytorch_h200_memory, "studies/data/pytorch_h200_memory.csv")

/* Which rows an entry is in. */
enum {
    MATH = 1,
    EFFICIENT = 2,
    FLASH = 4,
    CUDNN = 8,
    FUSED = EFFICIENT | FLASH | CUDNN,
    EVERY = MATH | FUSED
};
enum { F32 = 1, BF16 = 2, BOTH = F32 | BF16 };
enum { NONE = 1, CAUSAL = 2, BOOL4D = 4, ANY = NONE | CAUSAL | BOOL4D };
enum { FWD = 1, BWD = 2 }; /* the peak of a forward call alone, or of forward and backward */

/* Its shape; H heads, L tokens, d features; w: d, as wide as the kernel's tiles; R: queries that a
 * block of `efficient` has. */
enum shape {
    TOKENS, /* H L d */
    SUMS,   /* H L w */
    PAIRS,  /* H L L */
    SQUARE, /* L L   */
    ROWS,   /* H L   */
    BLOCKS, /* H L/R */
    SCALARS
};

enum { STORED = 0 }; /* bytes of the storage type */

static const struct entry {
    const char *name, *maker;
    int backend, dtype, mask, pass;
    enum shape shape;
    int64_t bytes; /* of an element, or of all SCALARS */
} entries[] = {
    {"o", "the result", FUSED, BOTH, ANY, FWD, TOKENS, STORED},
    {"q f32", "query.to(torch.float)", MATH, BF16, ANY, FWD, TOKENS, 4},
    {"k f32", "key.to(torch.float)", MATH, BF16, ANY, FWD, TOKENS, 4},
    {"v f32", "value.to(torch.float)", MATH, BF16, ANY, FWD, TOKENS, 4},
    {"q scaled", "query * sqrt(scale)", MATH, BOTH, ANY, FWD, TOKENS, 4},
    {"scores", "matmul(q, k), until softmax returns", MATH, BOTH, ANY, FWD, PAIRS, 4},
    {"softmax", "softmax(scores)", MATH, BOTH, ANY, FWD, PAIRS, 4},
    {"is -inf", "isneginf(scores), for rows without a key", MATH, BOTH, ANY, FWD, PAIRS, 1},
    {"empty rows", "all(is -inf)", MATH, BOTH, ANY, FWD, ROWS, 1},
    {"zero", "a scalar", MATH, BOTH, ANY, FWD, SCALARS, 512},
    {"causal mask", "ones.tril() as float", MATH, BOTH, CAUSAL, FWD, SQUARE, 4},
    {"bool mask", "given, made after the inputs", EVERY, BOTH, BOOL4D, FWD | BWD, PAIRS, 1},
    {"float mask", "zeros.masked_fill(~mask, -inf)", MATH, BOTH, BOOL4D, FWD, PAIRS, STORED},
    {"float mask", "zeros.masked_fill(~mask, -inf)", EFFICIENT, BOTH, BOOL4D, FWD | BWD, PAIRS,
     STORED},
    {"lse", "kept for the backward pass", FLASH, BOTH, ANY, FWD, ROWS, 4},
    {"random state", "of dropout, unused", FLASH, BOTH, ANY, FWD, SCALARS, 1024},
    {"random state", "of dropout, and a scalar", CUDNN, BOTH, ANY, FWD, SCALARS, 1536},

    {"o", "the result", EVERY, BOTH, ANY, BWD, TOKENS, STORED},
    {"q scaled", "saved by matmul", MATH, BOTH, ANY, BWD, TOKENS, 4},
    {"k scaled", "saved by matmul", MATH, BOTH, ANY, BWD, TOKENS, 4},
    {"dv", "matmul's backward", MATH, BOTH, ANY, BWD, TOKENS, 4},
    {"probs", "saved by matmul and softmax", MATH, BOTH, ANY, BWD, PAIRS, 4},
    {"dP", "matmul's backward", MATH, BOTH, ANY, BWD, PAIRS, 4},
    {"dP * P", "softmax_backward_cuda_out: grad * output", MATH, BOTH, ANY, BWD, PAIRS, 4},
    {"dS", "softmax's backward", MATH, BOTH, ANY, BWD, PAIRS, 4},
    {"dq", "the kernel's output", FUSED, BOTH, ANY, BWD, TOKENS, STORED},
    {"dk", "the kernel's output", FUSED, BOTH, ANY, BWD, TOKENS, STORED},
    {"dv", "the kernel's output", FUSED, BOTH, ANY, BWD, TOKENS, STORED},
    {"dO", "o.sum()'s gradient, made contiguous", FUSED, BOTH, ANY, BWD, TOKENS, STORED},
    {"o contiguous", "out.contiguous() of the transposed view", FLASH, BOTH, ANY, BWD, TOKENS,
     STORED},
    {"dq sum", "float32, to add up in", FUSED, BF16, ANY, BWD, SUMS, 4},
    {"counters", "of each block of queries, behind dq sum", EFFICIENT, BF16, ANY, BWD, BLOCKS, 16},
    {"dO * O", "grad_out * out, summed to D", EFFICIENT, F32, ANY, BWD, TOKENS, 4},
    {"lse", "saved by the forward pass", FUSED, BOTH, ANY, BWD, ROWS, 4},
    {"D", "sum(dO * O)", FUSED, BOTH, ANY, BWD, ROWS, 4},
    {"D contiguous", "its transposed copy", EFFICIENT, F32, ANY, BWD, ROWS, 4},
    {"loss", "o.sum(), and its gradient 1", EVERY, BOTH, ANY, BWD, SCALARS, 1024},
    {"random state", "of dropout, unused", FLASH, BOTH, ANY, BWD, SCALARS, 1024},
    {"random state", "of dropout, and a scalar", CUDNN, BOTH, ANY, BWD, SCALARS, 1536},
};

/* A line of the file, as bits of the table. */
struct row {
    int backend, dtype, mask, pass;
    int64_t H, L, d;
    double bytes;
};

static int64_t elements(enum shape shape, const struct row *r)
{
    int64_t tile = r->backend == EFFICIENT ? 64 : r->backend == FLASH ? 32 : 1;
    switch (shape) {
    case TOKENS:
        return r->H * r->L * r->d;
    case SUMS:
        return r->H * r->L * ceil_div(r->d, tile) * tile;
    case PAIRS:
        return r->H * r->L * r->L;
    case SQUARE:
        return r->L * r->L;
    case ROWS:
        return r->H * r->L;
    case BLOCKS:
        return r->H * ceil_div(r->L, r->d <= 64 ? 64 : 128);
    case SCALARS:
        break;
    }
    return 1;
}

static const char *const columns[] = {
    "backend", "dtype", "B", "H", "L", "d", "mask", "dir", "peak_extra_bytes", NULL};

static struct row read_row(struct attn_study_run *run, const json_t *line)
{
    enum { WIDE = 1024, LONG = 1 << 19 };
    (void)attn_study_number(run, line, "B", 1, 1);
    return (struct row){
        1 << attn_study_word(run, line, "backend", "math|efficient|flash|cudnn"),
        1 << attn_study_word(run, line, "dtype", "float32|bfloat16"),
        1 << attn_study_word(run, line, "mask", "none|causal|bool4d"),
        1 << attn_study_word(run, line, "dir", "fwd|fwd+bwd"),
        attn_study_number(run, line, "H", 1, WIDE),
        attn_study_number(run, line, "L", 1, LONG),
        attn_study_number(run, line, "d", 1, WIDE),
        (double)attn_study_number(run, line, "peak_extra_bytes", 1, INT64_C(1) << 50)};
}

/* Each entry is the block that PyTorch's allocator gives it. */
static void predict(struct attn_study_run *run, struct attn_tape *tape, const struct row *row)
{
    static struct attn_cuda_cache cache;
    int64_t stored = row->dtype == F32 ? 4 : 2;
    attn_cuda_open(&cache);
    *tape = (struct attn_tape){.owner = &run->owner};
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++) {
        const struct entry *entry = &entries[e];
        if ((entry->backend & row->backend) && (entry->dtype & row->dtype) &&
            (entry->mask & row->mask) && (entry->pass & row->pass)) {
            int64_t bytes =
                elements(entry->shape, row) * (entry->bytes == STORED ? stored : entry->bytes);
            const struct attn_cuda_block *block =
                attn_cli_need(attn_cuda_take(&cache, entry->name, bytes));
            attn_tape_take(tape, entry->name, entry->maker, block->bytes, 1);
        }
    }
}

/* Curves of the figure, forward and backward: how they grow where P or the mask decides. */
static const struct curve {
    const char *name;
    int backend, dtype, mask, power;
} curves[] = {{"math, float32", MATH, F32, NONE, 2},
              {"math, bfloat16", MATH, BF16, NONE, 2},
              {"efficient, bfloat16, with a mask", EFFICIENT, BF16, BOOL4D, 2},
              {"flash, bfloat16", FLASH, BF16, NONE, 1},
              {"efficient, bfloat16", EFFICIENT, BF16, NONE, 1}};

static const struct curve *curve_of(const struct row *row)
{
    for (size_t c = 0; c < sizeof curves / sizeof *curves; c++)
        if (row->backend == curves[c].backend && row->dtype == curves[c].dtype &&
            row->mask == curves[c].mask && row->pass == BWD)
            return &curves[c];
    return NULL;
}

/* From 2,048 tokens on: below, workspaces that are made once show in some rows. */
static void every_row(struct attn_study_run *run, const json_t *table)
{
    const json_t *line;
    size_t l;
    int rows = 0, exact = 0;
    double worst = 0;
    json_array_foreach(table, l, line)
    {
        struct row row = read_row(run, line);
        const struct curve *curve = curve_of(&row);
        struct attn_tape tape;
        if (run->bad.status != ATTN_OK)
            return;
        if (row.L < 2048)
            continue;
        predict(run, &tape, &row);
        tape.is_brief = row.L < 8192;
        if (curve != NULL && run->data == NULL)
            attn_study_place(run, curve->name, (double)row.L);
        attn_study_peak(
            &tape,
            attn_study_text(run, "%s %s %s %s L=%lld", attn_table_field(line, "backend"),
                            attn_table_field(line, "dtype"), attn_table_field(line, "mask"),
                            attn_table_field(line, "dir"), (long long)row.L),
            ATTN_PUBLISHED, row.bytes, 0.01 * row.bytes);
        double off = ((double)tape.ledger.peak - row.bytes) / row.bytes;
        worst = off * off > worst * worst ? off : worst;
        exact += off == 0;
        rows++;
    }
    if (rows == 0)
        attn_fail(&run->bad, ATTN_EINVAL,
                  "%s: a row of L >= 2048 would work: below, workspaces that "
                  "are made once show",
                  run->data);
    attn_study_quantity(run, "rows that are predicted to the byte", ATTN_INFERRED, rows, exact,
                        "rows", 0);
    attn_study_say(run, "Furthest from a measured row: %.2g of it.", worst);
}

/* The row of the file at 8,192 tokens, to 65,536 by its power of the length, against the table. */
static void beyond_the_file(struct attn_study_run *run, const json_t *table)
{
    enum { KNOWN = 8192, BEYOND = 65536, TIMES = BEYOND / KNOWN };
    const json_t *line;
    size_t l;
    attn_study_say(run,
                   "At 65,536 tokens, forward and backward, against what was measured at 8,192 "
                   "times 8 or, where P or a mask decides, times 64:");
    json_array_foreach(table, l, line)
    {
        struct row row = read_row(run, line);
        const struct curve *curve = curve_of(&row);
        struct attn_tape tape;
        if (curve == NULL || row.L != KNOWN)
            continue;
        double expected = row.bytes * (curve->power == 2 ? TIMES * TIMES : TIMES);
        row.L = BEYOND;
        predict(run, &tape, &row);
        tape.is_brief = 1;
        attn_study_place(run, curve->name, BEYOND);
        attn_study_peak(&tape, attn_study_text(run, "%s, 65,536 tokens", curve->name), ATTN_DERIVED,
                        expected, 0.05 * expected);
    }
    attn_study_say(run, "A materialised mask makes the \"memory-efficient\" back end quadratic "
                        "again: two objects of heads x L x L.  tiled has the mask as a word:");
    const struct attn_point known = attn_study_price(run, "tiled@portable",
                                                     "h8q8192d64:causal(br):bf16:normal:s1"),
                            point = attn_study_price(run, "tiled@portable",
                                                     "h8q65536d64:causal(br):bf16:normal:s1");
    attn_study_quantity(run, "tiled beyond o, 65,536 tokens and 8,192", ATTN_DERIVED,
                        (double)known.price.peak, (double)point.price.peak, "B", 0);
    attn_study_measure(run, "tiled", "h8q512d64:causal(br):bf16:normal:s1", NULL);
}

void attn_study_run_pytorch_h200(struct attn_study_run *run)
{
    attn_study_say(run, "B=1%s.  Live sets are shown at 8,192 tokens.",
                   run->data == NULL ? ", H=8, d=64" : "");
    json_t *table = attn_study_rows(run, attn_study_data_pytorch_h200_memory, columns);
    if (table != NULL)
        every_row(run, table);
    if (run->data == NULL)
        beyond_the_file(run, table);
    json_decref(table);
}
