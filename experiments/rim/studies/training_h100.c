/* The memory of a stack of attention layers in PyTorch, and the effect of checkpointing.
 *
 * Source: experiments/rim/studies/data/training_h100_memory.csv (PyTorch 2.11 on an NVIDIA H100;
 * the README beside it says how it was measured).  A layer is x + Wo attention(Wqkv x), without
 * biases. */
#include <math.h>
#include <stdio.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/studies/table_file.h"
#include "experiments/rim/studies/torch_layers.h"

ATTN_STUDY_DATA(training_h100_memory, "studies/data/training_h100_memory.csv")

/* ---- a row of the file ----------------------------------------------------------------------- */

static const char *const backend_name[BACKENDS] = {"math", "efficient", "flash", "cudnn"};
static const char *const mask_name[MASKS] = {"none", "causal", "bool"};

static const char *const columns[] = {
    "backend", "dtype", "mask",          "checkpoint",   "layers",        "B", "H", "d",
    "L",       "base",  "after_forward", "peak_forward", "peak_backward", NULL};

static struct attn_torch_row read_row(struct attn_study_run *run, const json_t *line)
{
    enum { WIDE = 1024, LONG = 1 << 19 };
    static const char *const moment[MOMENTS] = {"after_forward", "peak_forward", "peak_backward"};
    const int64_t bytes = INT64_C(1) << 50;
    struct attn_torch_row row = {
        .backend = (enum attn_torch_backend)attn_study_word(run, line, "backend",
                                                            "math|efficient|flash|cudnn"),
        .mask = (enum attn_torch_mask)attn_study_word(run, line, "mask", "none|causal|bool"),
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

static int kind_of(const struct attn_torch_row *r)
{
    return ((int)r->backend * 2 + r->is_f32) * 2 + (r->checkpoint != 0);
}

/* Entries that are larger than the tolerance of a value that they are part of. */
static void mark(struct attn_torch_play *x, struct attn_study_run *run,
                 const struct attn_account *live, int n, int64_t seen)
{
    for (int t = QKV; t < (int)TENSORS; t++)
        if ((double)attn_account_bytes(live, n, attn_torch_tensors[t].name) >
            tolerance_of((double)seen))
            run->entry[x->entry[t]].matters = 1;
}

/* A value that is more than 1 % off. */
static void say_off(struct attn_study_run *run, const struct attn_torch_row *r,
                    enum attn_torch_moment m, double got)
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

static void compare(struct attn_study_run *run, struct tally *tally, const struct attn_torch_row *r,
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
            say_off(run, r, (enum attn_torch_moment)m, (double)got[m]);
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
    enum attn_torch_backend backend;
    int is_f32, checkpoint;
} curves[] = {{"math, float32", MATH, 1, 0},
              {"math, float32, checkpointed", MATH, 1, 1},
              {"flash, bfloat16", FLASH, 0, 0},
              {"flash, bfloat16, checkpointed", FLASH, 0, 1}};
enum { CURVES = sizeof curves / sizeof *curves };

static const struct curve *curve_of(const struct attn_torch_row *r)
{
    for (int c = 0; c < CURVES; c++)
        if (r->layers == 1 && r->B == 1 && r->H == 8 && r->d == 128 && r->mask == NONE &&
            r->backend == curves[c].backend && r->is_f32 == curves[c].is_f32 &&
            r->checkpoint == curves[c].checkpoint)
            return &curves[c];
    return NULL;
}

/* The rows of the file that are in it. */
static void one_layer(struct attn_study_run *run, struct attn_torch_play *x, const json_t *table)
{
    const json_t *line;
    size_t l;
    int64_t got[MOMENTS];
    attn_study_say(run, "Other lengths, beside what was measured:");
    json_array_foreach(table, l, line)
    {
        struct attn_torch_row row = read_row(run, line);
        const struct curve *curve = curve_of(&row);
        double seen = (double)row.seen[AFTER_FORWARD];
        if (curve == NULL)
            continue;
        attn_torch_play_row(x, &row, got);
        attn_study_place(run, curve->name, (double)row.L);
        attn_study_quantity(
            run, attn_study_text(run, "one layer saves, %s, L=%lld", curve->name, (long long)row.L),
            ATTN_PUBLISHED, seen, (double)got[AFTER_FORWARD], "B", tolerance_of(seen));
    }
}

static void all_rows(struct attn_study_run *run, struct attn_torch_play *x, const json_t *table,
                     struct tally *tally)
{
    const json_t *line;
    size_t l;
    int64_t got[MOMENTS];
    json_array_foreach(table, l, line)
    {
        struct attn_torch_row row = read_row(run, line);
        if (run->bad.status != ATTN_OK)
            return;
        attn_torch_play_row(x, &row, got);
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

/* The bytes that one layer saves; x->forward has them by tensor. */
static double saved_by_one(struct attn_torch_play *x, const struct curve *curve, int64_t L)
{
    const struct attn_torch_row row = {.backend = curve->backend,
                                       .is_f32 = curve->is_f32,
                                       .checkpoint = curve->checkpoint,
                                       .layers = 1,
                                       .B = 1,
                                       .H = 8,
                                       .d = 128,
                                       .L = L};
    int64_t got[MOMENTS];
    attn_torch_play_row(x, &row, got);
    return (double)got[AFTER_FORWARD];
}

/* The live set after the forward pass of one layer. */
static void list_saved(struct attn_study_run *run, struct attn_torch_play *x,
                       const struct curve *curve)
{
    char bytes[32];
    saved_by_one(x, curve, 4096);
    attn_study_say(run, "One layer of %s in %s saves, at L=4,096 with 8 heads of 128:",
                   backend_name[curve->backend], curve->is_f32 ? "float32" : "bfloat16");
    for (int t = QKV; t < (int)TENSORS && !run->as_json; t++) {
        int64_t saved = attn_account_bytes(x->forward.account, x->forward.n_accounts,
                                           attn_torch_tensors[t].name);
        if (saved > 0)
            fprintf(run->out, "    %-12s %10s  %s\n", attn_torch_tensors[t].name,
                    attn_cli_bytes(saved, bytes), attn_torch_tensors[t].maker);
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

static void why(struct attn_study_run *run, struct attn_torch_play *x, const json_t *table)
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
                   "gained grows with the length. flash holds five tensors of L C and one float32 "
                   "for each query and head: 5 + 2/d times the input in 16 bits, at any length.");
    for (int64_t L = 4096; L <= 65536 && !run->as_json; L *= 4)
        fprintf(run->out, "    L=%-6lld  math %6.1f-fold   flash %5.2f-fold\n", (long long)L,
                saved_by_one(x, &curves[0], L) / saved_by_one(x, &curves[1], L),
                saved_by_one(x, &curves[2], L) / saved_by_one(x, &curves[3], L));
    run->in_list = 1;
}

void attn_study_run_training_h100(struct attn_study_run *run)
{
    static struct attn_torch_play play;
    struct tally tally = {0};
    int entry[TENSORS];
    for (int t = 0; t < (int)TENSORS; t++)
        entry[t] = attn_study_entry_of(run, attn_torch_tensors[t].name);
    play.run = run;
    play.entry = entry;
    attn_study_say(run,
                   "Stacks of 1 to 8 layers x + Wo attention(Wqkv x) on an H100. Bytes are "
                   "above those of parameters, x and libraries. Rows that are more than 1 %% off:");
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
