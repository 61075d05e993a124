/* What PyTorch holds of a stack of attention layers, and what checkpointing changes.
 *
 * Source: experiments/data/training_h100_memory.csv (PyTorch 2.11 on an NVIDIA H100; the README
 * beside it says how it was measured).  A layer is x + Wo attention(Wqkv x), without biases.
 *
 * The model is a list of tensors (shape and type, who makes it) and the order in which they are
 * taken and given back.  It has no number from the file: widths, lengths and rules alone.  Which
 * operators make the tensors is in PyTorch's sources (aten/src/ATen/native/transformers, autograd's
 * derivatives.yaml, torch/utils/checkpoint.py).
 *
 * u = B L C e bytes, C = H d, e of an element; f the same in float32; S = 4 B H L L. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/studies/cuda_cache.h"
#include "experiments/studies/data.h"
#include "experiments/studies/study.h"

ATTN_STUDY_DATA(training_h100_memory)

/* ---- a row of the file ----------------------------------------------------------------------- */

enum backend { MATH, EFFICIENT, FLASH, CUDNN, BACKENDS };
static const char *const backend_name[BACKENDS] = {"math", "efficient", "flash", "cudnn"};
enum mask { NONE, CAUSAL, BOOLEAN, MASKS };
static const char *const mask_name[MASKS] = {"none", "causal", "bool"};
enum moment { AFTER_FORWARD, PEAK_FORWARD, PEAK_BACKWARD, MOMENTS };

enum { MOST_LAYERS = 8 };
struct row {
    enum backend backend;
    enum mask mask;
    int is_f32, checkpoint;
    int64_t layers, B, H, d, L;
    int64_t base, seen[MOMENTS]; /* bytes; seen are above base */
};

static int find_word(const char *const *words, int n, const char *word)
{
    int w = 0;
    while (w < n && strcmp(words[w], word) != 0)
        w++;
    return w;
}

/* The line at *text, which is moved on: 1 a row; 0 something else; -1 the end. */
static int next_row(const char **text, struct row *row)
{
    char backend[16], dtype[16], mask[16];
    long long n[9];
    if (**text == '\0')
        return -1;
    int found = sscanf(*text,
                       "%15[a-z],%15[a-z0-9],%15[a-z],%d,%lld,%lld,%lld,%lld,%lld,%lld,%lld,"
                       "%lld,%lld",
                       backend, dtype, mask, &row->checkpoint, &n[0], &n[1], &n[2], &n[3], &n[4],
                       &n[5], &n[6], &n[7], &n[8]);
    *text += strcspn(*text, "\n");
    *text += **text == '\n';
    if (found != 13)
        return 0;
    row->backend = (enum backend)find_word(backend_name, BACKENDS, backend);
    row->mask = (enum mask)find_word(mask_name, MASKS, mask);
    row->is_f32 = strcmp(dtype, "f32") == 0;
    row->layers = n[0], row->B = n[1], row->H = n[2], row->d = n[3], row->L = n[4];
    row->base = n[5];
    for (int m = 0; m < MOMENTS; m++)
        row->seen[m] = n[6 + m] - row->base;
    return row->backend < BACKENDS && row->mask < MASKS && row->layers <= MOST_LAYERS;
}

/* ---- tensors --------------------------------------------------------------------------------- */

enum tensor {
#define ATTN_TENSOR(id, name, maker, bytes) id,
#include "experiments/studies/training_h100.def"
#undef ATTN_TENSOR
    TENSORS
};

static const struct {
    const char *name, *maker;
} tensor_table[TENSORS] = {
#define ATTN_TENSOR(id, name, maker, bytes) {name, maker},
#include "experiments/studies/training_h100.def"
#undef ATTN_TENSOR
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Parts that flash cuts the keys of a head into, where heads and blocks of 64 queries are too few
 * for the 132 multiprocessors: the fewest parts within 15 % of the best load (flash_api.cpp). */
static int64_t flash_splits(const struct row *r)
{
    int64_t width = r->d <= 64 ? 256 : r->d <= 128 ? 128 : 64;
    int64_t blocks = ceil_div(r->L, width), slots = 2 * 132;
    int64_t tasks = r->B * r->H * ceil_div(r->L, 64), most = blocks < 128 ? blocks : 128;
    double load[128], best = 0;
    if (r->backend != FLASH || (double)tasks >= 0.8 * (double)slots)
        return 1;
    for (int64_t n = 1; n <= most; n++) {
        int fewer = n > 1 && ceil_div(blocks, n) == ceil_div(blocks, n - 1);
        double waves = (double)(tasks * n) / (double)slots;
        load[n - 1] = fewer ? 0 : waves / ceil(waves);
        best = load[n - 1] > best ? load[n - 1] : best;
    }
    int64_t n = 1;
    while (load[n - 1] < 0.85 * best)
        n++;
    return n;
}

/* Features of a head in the accumulators of a kernel: its tiles are so wide. */
static int64_t accumulator_width(const struct row *r)
{
    int64_t tile = r->backend == EFFICIENT ? 64 : r->backend == FLASH ? 32 : 1;
    return ceil_div(r->d, tile) * tile;
}

static int64_t bytes_of(const struct row *r, enum tensor tensor)
{
    int64_t e = r->is_f32 ? 4 : 2, C = r->H * r->d, L2 = r->L * r->L;
    int64_t u = r->B * r->L * C * e, f = r->B * r->L * C * 4, S = 4 * r->B * r->H * L2;
    int64_t rows = r->B * r->H * r->L, splits = flash_splits(r);
    int64_t wide = rows * accumulator_width(r) * 4;
    if (r->backend == EFFICIENT) /* 16 B of counters for each block of queries */
        wide += ceil_div(r->L, r->is_f32 ? 64 : 128) * r->B * r->H * 16;
    switch (tensor) {
#define ATTN_TENSOR(id, name, maker, bytes) \
    case id:                                \
        return bytes;
#include "experiments/studies/training_h100.def"
#undef ATTN_TENSOR
    case TENSORS:
        break;
    }
    return 0;
}

/* ---- the order of taking and giving ---------------------------------------------------------- */

/* One row being played.  Tensors are held by layer; those of no layer by layer 0. */
struct play {
    const struct row *row;
    const struct attn_study_run *run;
    const int *entry; /* [TENSORS] of the run */
    struct attn_cuda_cache cache;
    int held[MOST_LAYERS][TENSORS];           /* 1 + block; 0: not there */
    int64_t saved[TENSORS], forward[TENSORS]; /* live after the forward pass, and at its peak */
};

static void take(struct play *x, int64_t layer, enum tensor tensor)
{
    int64_t bytes = bytes_of(x->row, tensor);
    if (bytes == 0 || x->entry[tensor] == x->run->leave_out)
        return;
    int block = attn_cuda_take(&x->cache, bytes, (int)tensor);
    if (block < 0)
        attn_cli_need(NULL);
    x->held[layer][tensor] = 1 + block;
}

static void give(struct play *x, int64_t layer, enum tensor tensor)
{
    int *held = &x->held[layer][tensor];
    if (*held > 0)
        attn_cuda_give(&x->cache, *held - 1);
    *held = 0;
}

static void take_then_give(struct play *x, int64_t layer, enum tensor taken, enum tensor given)
{
    take(x, layer, taken);
    give(x, layer, given);
}

/* efficient, flash, cudnn: one kernel.  saves: for the backward pass. */
static void fused_forward(struct play *x, int64_t i, int saves)
{
    take(x, i, QKV);
    take(x, i, BIAS);
    take(x, i, O);
    take(x, i, LSE);
    take(x, i, SEED);
    take(x, i, OFFSET);
    take(x, i, LSE_PARTS);
    take(x, i, O_PARTS);
    give(x, i, LSE_PARTS);
    give(x, i, O_PARTS);
    for (int t = BIAS; t <= (int)OFFSET && !saves; t++)
        give(x, i, (enum tensor)t);
}

/* Scores, and P from them.  More than one batch: bmm copies what it cannot see as one axis. */
static void math_scores(struct play *x, int64_t i, int saves)
{
    take(x, i, Q_S);
    take(x, i, ONES);
    take(x, i, TRIL);
    give(x, i, ONES);
    take_then_give(x, i, CAUSAL_BIAS, TRIL);
    take(x, i, K_S);
    take(x, i, Q_COPY);
    take(x, i, K_COPY);
    take(x, i, SCORES);
    if (x->row->B > 1 || !saves)
        give(x, i, K_S);
    if (!saves) {
        give(x, i, Q_COPY);
        give(x, i, K_COPY);
    }
    take(x, i, P);
    take(x, i, ZERO);
    take(x, i, HIDDEN);
    take(x, i, HIDDEN_ROWS);
    give(x, i, HIDDEN);
    give(x, i, HIDDEN_ROWS);
    give(x, i, ZERO);
    give(x, i, SCORES);
}

/* math: one operator after the other, in float32. */
static void math_forward(struct play *x, int64_t i, int saves)
{
    take(x, i, QKV);
    take(x, i, BIAS);
    take(x, i, Q_F);
    take(x, i, K_F);
    take(x, i, V_F);
    math_scores(x, i, saves);
    take(x, i, V_COPY);
    take(x, i, PV);
    if (!saves)
        give(x, i, V_COPY);
    if (!x->row->is_f32)
        take_then_give(x, i, PV_E, PV);
    give(x, i, BIAS);
    give(x, i, CAUSAL_BIAS);
    if (x->row->B > 1 || !saves)
        give(x, i, Q_S);
    give(x, i, Q_F);
    give(x, i, K_F);
    if (x->row->B > 1 || !saves)
        give(x, i, V_F);
    if (!saves)
        give(x, i, P);
    take(x, i, O);
    give(x, i, PV);
    give(x, i, PV_E);
}

static void attention_forward(struct play *x, int64_t i, int saves)
{
    if (x->row->backend == MATH)
        math_forward(x, i, saves);
    else
        fused_forward(x, i, saves);
}

/* math saves scaled and copied tensors; q k v themselves only where v is a view of them. */
static int saves_qkv(const struct row *r)
{
    return r->backend != MATH || (r->is_f32 && r->B == 1);
}

static void layer_forward(struct play *x, int64_t i)
{
    const struct row *r = x->row;
    attention_forward(x, i, !r->checkpoint);
    take(x, i, WO_O);
    take_then_give(x, i, Y, WO_O);
    if (r->checkpoint || !saves_qkv(r))
        give(x, i, QKV);
    if (r->checkpoint)
        give(x, i, O);
}

/* Give back what the attention of a layer saved. */
static void drop_saved(struct play *x, int64_t i)
{
    for (int t = QKV; t <= (int)O; t++)
        give(x, i, (enum tensor)t);
}

static void fused_backward(struct play *x, int64_t i)
{
    take(x, i, DQ);
    take(x, i, DK);
    take(x, i, DV);
    take(x, i, DELTA);
    take(x, i, DQ_WIDE);
    give(x, i, DQ_WIDE);
    give(x, i, DELTA);
    drop_saved(x, i);
    give(x, i, DO);
}

static void math_backward(struct play *x, int64_t i)
{
    if (!saves_qkv(x->row))
        give(x, i, QKV);
    give(x, i, O);
    if (!x->row->is_f32)
        take_then_give(x, i, DO_F, DO);
    if (x->row->B > 1)
        take_then_give(x, i, DO_COPY, x->row->is_f32 ? DO : DO_F);
    take(x, i, DV_F);
    take(x, i, DP);
    give(x, i, V_F); /* P V is done, with what it saved; P is the softmax's too */
    give(x, i, V_COPY);
    give(x, i, QKV);
    give(x, i, DO_COPY);
    give(x, i, DO_F);
    give(x, i, DO);
    take(x, i, DP_P);
    take_then_give(x, i, DS, DP_P);
    give(x, i, DP);
    give(x, i, P);
    take(x, i, DK_F);
    take_then_give(x, i, DQ_F, DS);
    drop_saved(x, i);
    if (!x->row->is_f32)
        take_then_give(x, i, DV, DV_F);
    take_then_give(x, i, DK, DK_F);
    take_then_give(x, i, DQ, DQ_F);
}

/* G is the gradient of y of the last layer, which its caller holds; DY that of a lower layer. */
static void layer_backward(struct play *x, int64_t i)
{
    const struct row *r = x->row;
    int is_last = i == r->layers - 1;
    if (r->checkpoint)
        attention_forward(x, i, 1);
    take(x, i, DWO);
    take(x, i, DO);
    if (r->backend == MATH)
        math_backward(x, i);
    else
        fused_backward(x, i);
    take(x, i, DQKV_STACK);
    give(x, i, DQ);
    give(x, i, DK);
    give(x, i, DV);
    give(x, i, DV_F); /* float32 keeps this name to the end */
    take_then_give(x, i, DQKV, DQKV_STACK);
    take(x, i, DWQKV);
    take_then_give(x, i, DX, DQKV);
    if (i > 0)
        give(x, i - 1, Y);
    if (is_last)
        take(x, 0, DY); /* G + DX; below, DX is added to DY in place */
    give(x, i, DX);
}

/* Predicted bytes above base. */
static void play_row(struct play *x, int64_t got[MOMENTS])
{
    int64_t n = x->row->layers;
    attn_cuda_open(&x->cache);
    memset(x->held, 0, sizeof x->held);
    take(x, 0, LIBRARIES);
    for (int64_t i = 0; i < n; i++) {
        take(x, i, WQKV);
        take(x, i, WO);
    }
    take(x, 0, X);
    take(x, 0, MASK_ONES);
    take_then_give(x, 0, MASK, MASK_ONES);
    int64_t base = x->cache.now;
    attn_cuda_restart(&x->cache);
    for (int64_t i = 0; i < n; i++)
        layer_forward(x, i);
    got[AFTER_FORWARD] = x->cache.now - base;
    got[PEAK_FORWARD] = x->cache.peak - base;
    memcpy(x->saved, x->cache.live, sizeof x->saved);
    memcpy(x->forward, x->cache.at_peak, sizeof x->forward);
    attn_cuda_restart(&x->cache);
    take(x, 0, G);
    for (int64_t i = n - 1; i >= 0; i--)
        layer_backward(x, i);
    got[PEAK_BACKWARD] = x->cache.peak - base;
}

/* ---- all rows -------------------------------------------------------------------------------- */

static const char *const moment_name[MOMENTS] = {
    "saved by the forward pass", "peak of the forward pass", "peak of the backward pass"};

/* 1 %; but a block keeps a rest of up to 1 MiB, and where it does is a matter of luck. */
static double tolerance_of(double bytes)
{
    return fmax(0.01 * bytes, 1 << 20);
}

/* The row of a kind (back end, type, checkpointed or not) that is predicted worst, for a moment. */
struct worst {
    int64_t rows;
    double seen, got;
};
enum { KINDS = BACKENDS * 2 * 2 };
struct tally {
    struct worst worst[KINDS][MOMENTS];
    int64_t values, within, exact;
};

static int kind_of(const struct row *r)
{
    return ((int)r->backend * 2 + r->is_f32) * 2 + (r->checkpoint != 0);
}

/* Entries that are larger than the tolerance of a value that they are part of. */
static void mark(struct play *x, struct attn_study_run *run, const int64_t live[], int64_t seen)
{
    for (int t = QKV; t < (int)TENSORS; t++)
        if ((double)live[t] > tolerance_of((double)seen))
            run->entry[x->entry[t]].matters = 1;
}

/* A value that is more than 1 % off. */
static void say_off(struct attn_study_run *run, const struct row *r, enum moment m, double got)
{
    double seen = (double)r->seen[m];
    if (run->as_json)
        return;
    fprintf(run->out,
            "  %+.2f %%: %s %s %s%s, %lld layers, B=%lld H=%lld d=%lld L=%lld, %s: %.0f B, "
            "measured %.0f B\n",
            100 * (got / seen - 1), backend_name[r->backend], r->is_f32 ? "f32" : "bf16",
            mask_name[r->mask], r->checkpoint ? ", checkpointed" : "", (long long)r->layers,
            (long long)r->B, (long long)r->H, (long long)r->d, (long long)r->L, moment_name[m], got,
            seen);
    run->in_list = 1;
}

static void compare(struct attn_study_run *run, struct tally *tally, const struct row *r,
                    const int64_t got[MOMENTS])
{
    for (int m = 0; m < MOMENTS; m++) {
        struct worst *worst = &tally->worst[kind_of(r)][m];
        double seen = (double)r->seen[m], off = fabs((double)got[m] - seen);
        worst->rows++;
        tally->values++;
        tally->exact += got[m] == r->seen[m];
        tally->within += off <= 0.01 * seen;
        if (off > 0.01 * seen)
            say_off(run, r, (enum moment)m, (double)got[m]);
        if (worst->rows == 1 ||
            off / tolerance_of(seen) > fabs(worst->got - worst->seen) / tolerance_of(worst->seen)) {
            worst->seen = seen;
            worst->got = (double)got[m];
        }
    }
}

static void all_rows(struct attn_study_run *run, struct play *x, struct tally *tally)
{
    const char *text = attn_study_data_training_h100_memory;
    struct row row;
    int64_t got[MOMENTS];
    for (int found; (found = next_row(&text, &row)) >= 0;) {
        if (found == 0)
            continue;
        x->row = &row;
        play_row(x, got);
        mark(x, run, x->saved, row.seen[AFTER_FORWARD]);
        mark(x, run, x->forward, row.seen[PEAK_FORWARD]);
        mark(x, run, x->cache.at_peak, row.seen[PEAK_BACKWARD]);
        compare(run, tally, &row, got);
    }
}

static void say_tally(struct attn_study_run *run, const struct tally *tally)
{
    char name[160];
    for (int k = 0; k < KINDS; k++)
        for (int m = 0; m < MOMENTS; m++) {
            const struct worst *worst = &tally->worst[k][m];
            if (worst->rows == 0)
                continue;
            snprintf(name, sizeof name, "%s %s%s, %s, worst of %lld rows", backend_name[k / 4],
                     k / 2 % 2 ? "f32" : "bf16", k % 2 ? ", checkpointed" : "", moment_name[m],
                     (long long)worst->rows);
            attn_study_quantity(run, name, ATTN_PUBLISHED, worst->seen, worst->got, "B",
                                tolerance_of(worst->seen));
        }
    attn_study_quantity(run, "values that are more than 1 % off", ATTN_INFERRED, 0,
                        (double)(tally->values - tally->within), "values", 0);
    attn_study_quantity(run, "values that are predicted to the byte", ATTN_INFERRED,
                        (double)tally->values, (double)tally->exact, "values", 0);
}

/* ---- why checkpointing changes one back end forty-fold, and another five-fold -------------- */

/* What one layer saves. */
static double saved_by_one(struct play *x, enum backend backend, int is_f32, int checkpoint,
                           int64_t L)
{
    const struct row row = {.backend = backend,
                            .is_f32 = is_f32,
                            .checkpoint = checkpoint,
                            .layers = 1,
                            .B = 1,
                            .H = 8,
                            .d = 128,
                            .L = L};
    int64_t got[MOMENTS];
    x->row = &row;
    play_row(x, got);
    return (double)got[AFTER_FORWARD];
}

/* The live set after the forward pass of one layer. */
static void list_saved(struct attn_study_run *run, struct play *x, enum backend backend, int is_f32)
{
    const struct row row = {
        .backend = backend, .is_f32 = is_f32, .layers = 1, .B = 1, .H = 8, .d = 128, .L = 4096};
    char bytes[32];
    int64_t got[MOMENTS];
    x->row = &row;
    play_row(x, got);
    attn_study_say(run, "One layer of %s in %s saves, at L=4,096 with 8 heads of 128:",
                   backend_name[backend], is_f32 ? "float32" : "bfloat16");
    for (int t = QKV; t < (int)TENSORS && !run->as_json; t++)
        if (x->saved[t] > 0)
            fprintf(run->out, "    %-12s %10s  %s\n", tensor_table[t].name,
                    attn_cli_bytes(x->saved[t], bytes), tensor_table[t].maker);
    run->in_list = 1;
}

static void why(struct attn_study_run *run, struct play *x)
{
    const double u = 4096.0 * 1024 * 4, h = u / 2;
    list_saved(run, x, MATH, 1);
    list_saved(run, x, FLASH, 0);
    attn_study_quantity(run, "math keeps 39 L C 4 bytes a layer", ATTN_PUBLISHED, 39 * u,
                        saved_by_one(x, MATH, 1, 0, 4096), "B", 0);
    attn_study_quantity(run, "flash keeps 5 L C 2 bytes and its LSE a layer", ATTN_PUBLISHED,
                        5 * h + 8 * 4096 * 4, saved_by_one(x, FLASH, 0, 0, 4096), "B", 1024);
    attn_study_quantity(run, "checkpointed, each keeps L C e: math", ATTN_PUBLISHED, u,
                        saved_by_one(x, MATH, 1, 1, 4096), "B", 0);
    attn_study_quantity(run, "checkpointed, each keeps L C e: flash", ATTN_PUBLISHED, h,
                        saved_by_one(x, FLASH, 0, 1, 4096), "B", 0);
    attn_study_say(run,
                   "Checkpointing keeps the input of a layer and nothing else, whatever the back "
                   "end does. math holds P: L/d times as much as one of q, k and v, so what is "
                   "gained grows with the length. flash holds five tensors of L C and one number "
                   "a row: never more than five-fold is to be gained, at any length.");
    for (int64_t L = 4096; L <= 65536 && !run->as_json; L *= 4)
        fprintf(run->out, "    L=%-6lld  math %6.1f-fold   flash %5.2f-fold\n", (long long)L,
                saved_by_one(x, MATH, 1, 0, L) / saved_by_one(x, MATH, 1, 1, L),
                saved_by_one(x, FLASH, 0, 0, L) / saved_by_one(x, FLASH, 0, 1, L));
    run->in_list = 1;
}

static void carry_out(struct attn_study_run *run)
{
    static struct play play;
    struct tally tally = {0};
    int entry[TENSORS];
    for (int t = 0; t < (int)TENSORS; t++)
        entry[t] = attn_study_entry_of(run, tensor_table[t].name);
    play.run = run;
    play.entry = entry;
    attn_study_say(run, "Stacks of 1 to 8 layers x + Wo attention(Wqkv x) on an H100. Bytes are "
                        "above those of parameters, x and libraries. What is more than 1 %% off:");
    all_rows(run, &play, &tally);
    attn_study_say(run, "Of each kind the row that is predicted worst, beside what was measured:");
    say_tally(run, &tally);
    why(run, &play);
}

const struct attn_study attn_study_training_h100 = {
    .name = "training-h100",
    .question = "what does a stack of layers hold, and what does checkpointing change?",
    .run = carry_out,
};
