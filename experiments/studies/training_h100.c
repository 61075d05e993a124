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
#include "experiments/studies/study.h"
#include "optimized/integers.h"

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
    int64_t seen[MOMENTS]; /* bytes above the file's base */
};

static const char *const columns[] = {
    "backend", "dtype", "mask",          "checkpoint",   "layers",        "B", "H", "d",
    "L",       "base",  "after_forward", "peak_forward", "peak_backward", NULL};

static struct row read_row(struct attn_study_run *run, const json_t *line)
{
    enum { WIDE = 1024, LONG = 1 << 19 };
    static const char *const moment[MOMENTS] = {"after_forward", "peak_forward", "peak_backward"};
    const int64_t bytes = INT64_C(1) << 50;
    struct row row = {.backend = (enum backend)attn_study_word(run, line, "backend",
                                                               "math|efficient|flash|cudnn"),
                      .mask = (enum mask)attn_study_word(run, line, "mask", "none|causal|bool"),
                      .is_f32 = attn_study_word(run, line, "dtype", "bf16|f32"),
                      .checkpoint = (int)attn_study_number(run, line, "checkpoint", 0, 1),
                      .layers = attn_study_number(run, line, "layers", 1, MOST_LAYERS),
                      .B = attn_study_number(run, line, "B", 1, WIDE),
                      .H = attn_study_number(run, line, "H", 1, WIDE),
                      .d = attn_study_number(run, line, "d", 1, WIDE),
                      .L = attn_study_number(run, line, "L", 1, LONG)};
    int64_t base = attn_study_number(run, line, "base", 0, bytes);
    for (int m = 0; m < MOMENTS; m++)
        row.seen[m] = attn_study_number(run, line, moment[m], base + 1, bytes) - base;
    return row;
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
        wide += ceil_div(r->L, r->is_f32 || r->d <= 64 ? 64 : 128) * r->B * r->H * 16;
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
    int64_t held[MOST_LAYERS][TENSORS]; /* 1 + its address; 0: not there    */
    struct attn_ledger forward;         /* as it was after the forward pass */
};

static void take(struct play *x, int64_t layer, enum tensor tensor)
{
    int64_t bytes = bytes_of(x->row, tensor);
    if (bytes == 0 || x->entry[tensor] == x->run->leave_out)
        return;
    const struct attn_cuda_block *block =
        attn_cli_need(attn_cuda_take(&x->cache, tensor_table[tensor].name, bytes));
    x->held[layer][tensor] = 1 + block->address;
}

static void give(struct play *x, int64_t layer, enum tensor tensor)
{
    int64_t *held = &x->held[layer][tensor];
    if (*held > 0)
        attn_cuda_give(&x->cache, *held - 1);
    *held = 0;
}

/* What a layer takes, and with ~ gives back, in this order; what a row does not have is nothing. */
static void steps(struct play *x, int64_t layer, const int *step)
{
    for (; *step != (int)TENSORS; step++)
        if (*step >= 0)
            take(x, layer, (enum tensor) * step);
        else
            give(x, layer, (enum tensor) ~*step);
}
#define STEPS(...) steps(x, i, (const int[]){__VA_ARGS__, TENSORS})

/* efficient, flash, cudnn: one kernel.  saves: for the backward pass. */
static void fused_forward(struct play *x, int64_t i, int saves)
{
    STEPS(QKV, BIAS, O, LSE, SEED, OFFSET, LSE_PARTS, O_PARTS, ~LSE_PARTS, ~O_PARTS);
    if (!saves)
        STEPS(~BIAS, ~LSE, ~SEED, ~OFFSET);
}

/* math: one operator after the other, in float32.  More than one batch: bmm copies what it cannot
 * see as one axis, and saves the copies. */
static void math_forward(struct play *x, int64_t i, int saves)
{
    int originals = saves && x->row->B == 1;
    STEPS(QKV, BIAS, Q_F, K_F, V_F);
    STEPS(Q_S, ONES, TRIL, ~ONES, CAUSAL_BIAS, ~TRIL, K_S, Q_COPY, K_COPY, SCORES);
    if (!originals)
        STEPS(~K_S);
    if (!saves)
        STEPS(~Q_COPY, ~K_COPY);
    STEPS(P, ZERO, HIDDEN, HIDDEN_ROWS, ~HIDDEN, ~HIDDEN_ROWS, ~ZERO, ~SCORES, V_COPY, PV);
    if (!saves)
        STEPS(~V_COPY);
    if (!x->row->is_f32)
        STEPS(PV_E, ~PV);
    STEPS(~BIAS, ~CAUSAL_BIAS);
    if (!originals)
        STEPS(~Q_S);
    STEPS(~Q_F, ~K_F);
    if (!originals)
        STEPS(~V_F);
    if (!saves)
        STEPS(~P);
    STEPS(O, ~PV, ~PV_E);
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
    STEPS(WO_O, Y, ~WO_O);
    if (r->checkpoint || !saves_qkv(r))
        STEPS(~QKV);
    if (r->checkpoint)
        STEPS(~O);
}

/* Give back what the attention of a layer saved. */
static void drop_saved(struct play *x, int64_t i)
{
    for (int t = QKV; t <= (int)O; t++)
        give(x, i, (enum tensor)t);
}

static void fused_backward(struct play *x, int64_t i)
{
    STEPS(DQ, DK, DV, DELTA, DQ_WIDE, ~DQ_WIDE, ~DELTA);
    drop_saved(x, i);
    STEPS(~DO);
}

/* P V is done first, with what it saved; P is the softmax's too. */
static void math_backward(struct play *x, int64_t i)
{
    int is_f32 = x->row->is_f32;
    if (!saves_qkv(x->row))
        STEPS(~QKV);
    STEPS(~O);
    if (!is_f32)
        STEPS(DO_F, ~DO);
    if (x->row->B > 1)
        STEPS(DO_COPY, is_f32 ? ~DO : ~DO_F);
    STEPS(DV_F, DP, ~V_F, ~V_COPY, ~QKV, ~DO_COPY, ~DO_F, ~DO);
    STEPS(DP_P, DS, ~DP_P, ~DP, ~P, DK_F, DQ_F, ~DS);
    drop_saved(x, i);
    if (!is_f32)
        STEPS(DV, ~DV_F);
    STEPS(DK, ~DK_F, DQ, ~DQ_F);
}

/* G is the gradient of y of the last layer, which its caller holds; DY that of a lower layer. */
static void layer_backward(struct play *x, int64_t i)
{
    const struct row *r = x->row;
    if (r->checkpoint)
        attention_forward(x, i, 1);
    STEPS(DWO, DO);
    if (r->backend == MATH)
        math_backward(x, i);
    else
        fused_backward(x, i);
    STEPS(DQKV_STACK, ~DQ, ~DK, ~DV, ~DV_F); /* float32 keeps DV_F to the end */
    STEPS(DQKV, ~DQKV_STACK, DWQKV, DX, ~DQKV);
    if (i > 0)
        give(x, i - 1, Y);
    if (i == r->layers - 1)
        take(x, 0, DY); /* G + DX; below, DX is added to DY in place */
    STEPS(~DX);
}

/* Predicted bytes above base. */
static void play_row(struct play *x, const struct row *row, int64_t got[MOMENTS])
{
    int64_t n = row->layers, i = 0;
    x->row = row;
    attn_cuda_open(&x->cache);
    memset(x->held, 0, sizeof x->held);
    STEPS(LIBRARIES);
    for (; i < n; i++)
        STEPS(WQKV, WO);
    i = 0;
    STEPS(X, MASK_ONES, MASK, ~MASK_ONES);
    struct attn_ledger *live = &x->cache.live;
    int64_t base = live->now;
    attn_ledger_restart(live);
    for (i = 0; i < n; i++)
        layer_forward(x, i);
    got[AFTER_FORWARD] = live->now - base;
    got[PEAK_FORWARD] = live->peak - base;
    x->forward = *live;
    attn_ledger_restart(live);
    take(x, 0, G);
    for (i = n - 1; i >= 0; i--)
        layer_backward(x, i);
    got[PEAK_BACKWARD] = live->peak - base;
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
static void mark(struct play *x, struct attn_study_run *run, const struct attn_account *live, int n,
                 int64_t seen)
{
    for (int t = QKV; t < (int)TENSORS; t++)
        if ((double)attn_account_bytes(live, n, tensor_table[t].name) > tolerance_of((double)seen))
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

/* One layer of 8 heads of 128 without a mask is in the figure. */
static const struct curve {
    const char *name;
    enum backend backend;
    int is_f32, checkpoint;
} curves[] = {{"math, float32", MATH, 1, 0},
              {"math, float32, checkpointed", MATH, 1, 1},
              {"flash, bfloat16", FLASH, 0, 0},
              {"flash, bfloat16, checkpointed", FLASH, 0, 1}};
enum { CURVES = sizeof curves / sizeof *curves };

static const struct curve *curve_of(const struct row *r)
{
    for (int c = 0; c < CURVES; c++)
        if (r->layers == 1 && r->B == 1 && r->H == 8 && r->d == 128 && r->mask == NONE &&
            r->backend == curves[c].backend && r->is_f32 == curves[c].is_f32 &&
            r->checkpoint == curves[c].checkpoint)
            return &curves[c];
    return NULL;
}

/* The rows of the file that are in it. */
static void one_layer(struct attn_study_run *run, struct play *x, const json_t *table)
{
    const json_t *line;
    size_t l;
    int64_t got[MOMENTS];
    attn_study_say(run, "Other lengths, beside what was measured:");
    json_array_foreach(table, l, line)
    {
        struct row row = read_row(run, line);
        const struct curve *curve = curve_of(&row);
        double seen = (double)row.seen[AFTER_FORWARD];
        if (curve == NULL)
            continue;
        play_row(x, &row, got);
        attn_study_place(run, curve->name, (double)row.L);
        attn_study_quantity(
            run, attn_study_text(run, "one layer saves, %s, L=%lld", curve->name, (long long)row.L),
            ATTN_PUBLISHED, seen, (double)got[AFTER_FORWARD], "B", tolerance_of(seen));
    }
}

static void all_rows(struct attn_study_run *run, struct play *x, const json_t *table,
                     struct tally *tally)
{
    const json_t *line;
    size_t l;
    int64_t got[MOMENTS];
    json_array_foreach(table, l, line)
    {
        struct row row = read_row(run, line);
        if (run->bad.status != ATTN_OK)
            return;
        play_row(x, &row, got);
        const struct attn_ledger *forward = &x->forward, *backward = &x->cache.live;
        mark(x, run, forward->account, forward->n_accounts, row.seen[AFTER_FORWARD]);
        mark(x, run, forward->at_peak, forward->n_at_peak, row.seen[PEAK_FORWARD]);
        mark(x, run, backward->at_peak, backward->n_at_peak, row.seen[PEAK_BACKWARD]);
        compare(run, tally, &row, got);
    }
}

static void say_tally(struct attn_study_run *run, const struct tally *tally)
{
    for (int k = 0; k < KINDS; k++)
        for (int m = 0; m < MOMENTS; m++) {
            const struct worst *worst = &tally->worst[k][m];
            if (worst->rows == 0)
                continue;
            const char *name =
                attn_study_text(run, "%s %s%s, %s, worst of %lld rows", backend_name[k / 4],
                                k / 2 % 2 ? "f32" : "bf16", k % 2 ? ", checkpointed" : "",
                                moment_name[m], (long long)worst->rows);
            attn_study_quantity(run, name, ATTN_PUBLISHED, worst->seen, worst->got, "B",
                                tolerance_of(worst->seen));
        }
    attn_study_quantity(run, "values that are more than 1 % off", ATTN_INFERRED, 0,
                        (double)(tally->values - tally->within), "values", 0);
    attn_study_quantity(run, "values that are predicted to the byte", ATTN_INFERRED,
                        (double)tally->values, (double)tally->exact, "values", 0);
}

/* ---- why checkpointing changes one back end forty-fold, and another five-fold -------------- */

/* What one layer saves; x->forward has it by tensor. */
static double saved_by_one(struct play *x, const struct curve *curve, int64_t L)
{
    const struct row row = {.backend = curve->backend,
                            .is_f32 = curve->is_f32,
                            .checkpoint = curve->checkpoint,
                            .layers = 1,
                            .B = 1,
                            .H = 8,
                            .d = 128,
                            .L = L};
    int64_t got[MOMENTS];
    play_row(x, &row, got);
    return (double)got[AFTER_FORWARD];
}

/* The live set after the forward pass of one layer. */
static void list_saved(struct attn_study_run *run, struct play *x, const struct curve *curve)
{
    char bytes[32];
    saved_by_one(x, curve, 4096);
    attn_study_say(run, "One layer of %s in %s saves, at L=4,096 with 8 heads of 128:",
                   backend_name[curve->backend], curve->is_f32 ? "float32" : "bfloat16");
    for (int t = QKV; t < (int)TENSORS && !run->as_json; t++) {
        int64_t saved =
            attn_account_bytes(x->forward.account, x->forward.n_accounts, tensor_table[t].name);
        if (saved > 0)
            fprintf(run->out, "    %-12s %10s  %s\n", tensor_table[t].name,
                    attn_cli_bytes(saved, bytes), tensor_table[t].maker);
    }
    run->in_list = 1;
}

/* Seven tensors of the size of x, and P, in float32; five in 16 bits, and LSE; one of either. */
static double known(const struct curve *curve, int64_t L)
{
    double x = (double)L * 1024 * (curve->is_f32 ? 4 : 2), rows = 8.0 * (double)L;
    if (curve->checkpoint)
        return x;
    return curve->backend == MATH ? 7 * x + rows * (double)L * 4 : 5 * x + rows * 4;
}

static void why(struct attn_study_run *run, struct play *x, const json_t *table)
{
    list_saved(run, x, &curves[0]);
    list_saved(run, x, &curves[2]);
    one_layer(run, x, table);
    attn_study_say(run, "Beyond the file, against 7 L C + H L L numbers (math), 5 L C and LSE "
                        "(flash), and L C (checkpointed):");
    for (int64_t L = 16384; L <= 65536; L *= 4)
        for (int c = 0; c < CURVES; c++) {
            attn_study_place(run, curves[c].name, (double)L);
            attn_study_quantity(
                run,
                attn_study_text(run, "one layer saves, %s, L=%lld", curves[c].name, (long long)L),
                ATTN_DERIVED, known(&curves[c], L), saved_by_one(x, &curves[c], L), "B", 1024);
        }
    attn_study_say(run,
                   "Checkpointing keeps the input of a layer and nothing else, whatever the back "
                   "end does. math holds P: L/d times as much as one of q, k and v, so what is "
                   "gained grows with the length. flash holds five tensors of L C and one number "
                   "a row: never more than five-fold is to be gained, at any length.");
    for (int64_t L = 4096; L <= 65536 && !run->as_json; L *= 4)
        fprintf(run->out, "    L=%-6lld  math %6.1f-fold   flash %5.2f-fold\n", (long long)L,
                saved_by_one(x, &curves[0], L) / saved_by_one(x, &curves[1], L),
                saved_by_one(x, &curves[2], L) / saved_by_one(x, &curves[3], L));
    run->in_list = 1;
}

void attn_study_run_training_h100(struct attn_study_run *run)
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
    json_t *table = attn_study_rows(run, attn_study_data_training_h100_memory, columns);
    all_rows(run, &play, table, &tally);
    if (run->bad.status != ATTN_OK) {
        json_decref(table);
        return;
    }
    attn_study_say(run, "Of each kind the row that is predicted worst, beside what was measured:");
    say_tally(run, &tally);
    if (run->data == NULL)
        why(run, &play, table);
    json_decref(table);
}
