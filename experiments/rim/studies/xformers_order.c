/* Memory that seemed to depend on the density of a mask, and depended on the order of the runs.
 *
 * Source: facebookresearch/xformers issues 1086, 1054, 1124 and HOWTO.md, v0.0.26;
 * triton-lang/triton python/triton/testing.py (do_bench takes 256e6 bytes to flush the cache). */
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/studies/study.h"
#include "experiments/rim/studies/xformers_order.h"
#include "optimized/simple.h"

static const double MIB = 1024.0 * 1024;

/* `att = attention(q, k, v, mask=mask)`, where `mask=` goes into **kwargs and is not looked at. */
static void attention(struct attn_tape *tape, const struct attn_xformers_call *c, const float *x)
{
    int64_t numbers = c->batch * c->length * c->dim, pairs = c->batch * c->length * c->length;
    if (c->has_float_mask)
        attn_tape_take(tape, "float mask", "AttentionMask.from_bool", c->length * c->length, 4);
    float *scaled = attn_tape_take(tape, "q scaled", "q / math.sqrt(q.size(-1))", numbers, 4);
    float *logits = attn_tape_take(tape, "logits", "torch.baddbmm(q, k^T)", pairs, 4);
    float *probs = attn_tape_take(tape, "probs", "softmax(logits)", pairs, 4);
    if (c->flush > 0) {
        void *flush =
            attn_tape_take(tape, "flush", "triton.testing.do_bench, first call", c->flush, 1);
        if (flush != NULL)
            memset(flush, 0, (size_t)c->flush);
        attn_tape_give(tape, "flush");
    }
    for (int64_t n = 0; probs != NULL && n < numbers; n++)
        scaled[n] = x[n] / sqrtf((float)c->dim);
    for (int64_t row = 0; probs != NULL && row < c->batch * c->length; row++)
        attn_study_softmax(scaled + row * c->dim, x + row / c->length * c->length * c->dim,
                           c->length, c->dim, 1, logits + row * c->length, probs + row * c->length);
    attn_tape_give(tape, "logits");
    attn_tape_give(tape, "q scaled");
    if (c->has_float_mask)
        attn_tape_give(tape, "float mask");
    float *out = attn_tape_take(tape, "new att", "probs @ v", numbers, 4);
    for (int64_t row = 0; out != NULL && row < c->batch * c->length; row++)
        attn_study_sum(probs + row * c->length, x + row / c->length * c->length * c->dim, c->length,
                       c->dim, out + row * c->dim);
    attn_tape_give(tape, "probs");
}

/* The tensors before a run: inputs, the mask, and the result of the run before. */
static float *begin(struct attn_tape *tape, const struct attn_xformers_call *c, int is_first)
{
    int64_t numbers = c->batch * c->length * c->dim;
    float *x = attn_tape_take(tape, "q = k = v", "torch.rand", numbers, 4);
    for (int64_t n = 0; x != NULL && n < numbers; n++)
        x[n] = (float)(n * 7919 % 1000) / 1000;
    attn_tape_take(tape, "bool mask", "torch.rand(L, L) < density", c->length * c->length, 1);
    if (c->workspace > 0)
        attn_tape_take(tape, "workspace", "cuBLAS", c->workspace, 1);
    if (!is_first)
        attn_tape_take(tape, "old att", "the result of the run before", numbers, 4);
    return x;
}

void attn_study_xformers_call(struct attn_tape *tape, const struct attn_xformers_call *call,
                              int is_first)
{
    attention(tape, call, begin(tape, call, is_first));
}

enum { FLUSH = 256000000, WORKSPACE = 8519680 /* 8.125 MiB */ };

/* The six dense numbers: none of these runs applied its mask, and none depends on it. */
static void published_runs(struct attn_study_run *run)
{
    static const struct {
        const char *name, *bar;
        double mib;
        int is_first;
        struct attn_xformers_call call;
    } runs[] = {
        {"issue 1086, run 1 (10 % mask)", NULL, 509, 1, {16, 1024, 1024, FLUSH, WORKSPACE, 0}},
        {"issue 1086, runs 2 and 3 (90 %, 10 %)", NULL, 329, 0, {16, 1024, 1024, 0, WORKSPACE, 0}},
        {"HOWTO.md, \"Dense\"", "manual: dense", 501, 1, {16, 1024, 1024, FLUSH, 0, 0}},
        {"HOWTO.md, \"Sparse\"", "manual: sparse", 321, 0, {16, 1024, 1024, 0, 0, 0}},
        {"issue 1054, att_mask=, any density", NULL, 513, 1, {16, 1024, 1024, FLUSH, WORKSPACE, 1}},
        {"the corrected run that an article tells of",
         NULL,
         577,
         0,
         {16, 1024, 1024, FLUSH, WORKSPACE, 1}},
    };
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        struct attn_tape tape = {.owner = &run->owner};
        begin(&tape, &runs[r].call, runs[r].is_first);
        attention(&tape, &runs[r].call, NULL);
        attn_study_place(run, runs[r].bar, 0);
        attn_study_peak(&tape, runs[r].name, ATTN_PUBLISHED, runs[r].mib * MIB, 0.5 * MIB);
    }
}

/* The matrix that all heads share, as SparseCS makes and keeps it (storage.c), then scores and
 * probabilities of the visible pairs. */
static void sparse_blocks(struct attn_tape *tape, int64_t heads, const char *mask)
{
    static const struct attn_mask_shape shape = {1, 1, 1024, 1024};
    int64_t nnz = attn_study_store(tape, "csr-transpose", mask, &shape);
    attn_tape_take(tape, "logits", "sddmm", heads * nnz, 4);
    attn_tape_take(tape, "probs", "sparse softmax", heads * nnz, 4);
}

/* The two runs that really were sparse. */
static void sparse_runs(struct attn_study_run *run)
{
    static const struct {
        const char *name, *bar, *mask;
        int is_first;
        double mib, tolerance;
    } runs[] = {{"a CSR run at 10 % (142, of which the fraction is not printed)",
                 "CSR, density 0.1", "random(0.1,1)", 1, 142.5, 0.5},
                {"a CSR run at 90 %", "CSR, density 0.9", "random(0.9,1)", 0, 323, 0.6}};
    const int64_t numbers = 16 * 1024 * 1024;
    for (int r = 0; r < 2; r++) {
        struct attn_tape tape = {.owner = &run->owner};
        attn_tape_take(&tape, "q = k = v", "torch.rand", numbers, 4);
        if (!runs[r].is_first)
            attn_tape_take(&tape, "old att", "the result of the run before", numbers, 4);
        attn_tape_take(&tape, "q scaled", "q / math.sqrt(q.size(-1))", numbers, 4);
        sparse_blocks(&tape, 16, runs[r].mask);
        attn_study_place(run, runs[r].bar, 0);
        attn_study_peak(&tape, runs[r].name, ATTN_PUBLISHED, runs[r].mib * MIB,
                        runs[r].tolerance * MIB);
    }
    attn_study_quantity(run, "scores of csr-textbook at 10 %, 16 heads", ATTN_DERIVED, 6.4 * MIB,
                        (double)attn_study_buffer(run, "csr-textbook",
                                                  "h16q1024d64:random(0.1,1):f32:normal:s1",
                                                  "scores"),
                        "B", 0.05 * MIB);
}

/* A mask of this percentage, which attention() does not read. */
static void fill_mask(struct attn_tape *tape, const struct attn_xformers_call *c, int percent)
{
    char *mask = attn_tape_data(tape, "bool mask");
    for (int64_t n = 0; mask != NULL && n < c->length * c->length; n++)
        mask[n] = n * 7919 % 100 < percent;
}

/* Elements in which the new result is not the old one. */
static double changed(const struct attn_tape *tape, const struct attn_xformers_call *c)
{
    const float *now = attn_tape_data(tape, "new att"), *old = attn_tape_data(tape, "old att");
    double n = 0;
    for (int64_t e = 0; now != NULL && old != NULL && e < c->batch * c->length * c->dim; e++)
        n += now[e] != old[e];
    return n;
}

/* The trap in this process: one function, three times, with a first call that tunes and a result
 * that stays.  The number goes with the place in the order, whatever the mask. */
static void trap(struct attn_study_run *run)
{
    static const struct {
        const char *peak, *same;
        int percent;
    } turn[] = {
        {"first run, a mask of 10 %", "the first run, for real", 10},
        {"second run, a mask of 90 %", "the second run, for real", 90},
        {"third run, a mask of 10 % again", "the third run, for real", 10},
    };
    const struct attn_xformers_call small = {2, 48, 32, 65536, 0, 0}, /* of a test, many times */
        large = {4, 512, 64, 64 << 20, 0, 0};                         /* for the system to notice */
    struct attn_xformers_call c = run->leave_out < 0 ? large : small;
    struct attn_pair pair;
    char bytes[32];
    attn_pair_open(&pair, &run->owner);
    const float *x = begin(&pair.real, &c, 1);
    begin(&pair.counted, &c, 1);
    for (int t = 0; t < 3; t++) {
        attn_tape_restart(&pair.real);
        attn_tape_restart(&pair.counted);
        fill_mask(&pair.real, &c, turn[t].percent);
        attention(&pair.real, &c, x);
        attention(&pair.counted, &c, NULL);
        attn_study_peak(&pair.counted, turn[t].peak, ATTN_DERIVED, (double)pair.real.ledger.peak,
                        0);
        attn_study_same(turn[t].same, &pair);
        if (t > 0 && !pair.real.is_cut)
            attn_study_quantity(run, "elements of the result that the other mask changes",
                                ATTN_DERIVED, 0, changed(&pair.real, &c), "elements", 0);
        attn_study_say(
            run, "The system says that this process never held more than %s.",
            attn_cli_bytes(1024 * attn_cli_kernel_number("/proc/self/status", "VmHWM:"), bytes));
        attn_tape_give(&pair.real, "old att");
        attn_tape_give(&pair.counted, "old att");
        attn_tape_rename(&pair.real, "new att", "old att");
        attn_tape_rename(&pair.counted, "new att", "old att");
        c.flush = 0;
    }
    attn_pair_close(&pair);
}

/* Extra bytes of dense and sparse attention are both linear in what they hold: where they meet. */
static void break_even(struct attn_study_run *run)
{
    static const struct {
        int heads;
        double density;
    } xformers[] = {{1, 0.32}, {2, 0.48}, {8, 0.79}, {16, 0.88}, {64, 0.97}};
    for (size_t h = 0; h < sizeof xformers / sizeof *xformers; h++) {
        int64_t pairs = (int64_t)xformers[h].heads * 1024 * 1024;
        struct attn_tape dense_extra, sparse_extra; /* at density 1 */
        dense_extra = (struct attn_tape){.owner = &run->owner};
        sparse_extra = (struct attn_tape){.owner = &run->owner};
        sparse_blocks(&sparse_extra, xformers[h].heads, "none");
        attn_tape_take(&dense_extra, "logits", "torch.baddbmm(q, k^T)", pairs, 4);
        attn_tape_take(&dense_extra, "probs", "softmax(logits)", pairs, 4);
        attn_study_quantity(
            run,
            attn_study_text(run, "break-even density of xformers, B x H = %d", xformers[h].heads),
            ATTN_DERIVED, xformers[h].density,
            (double)dense_extra.ledger.now / (double)sparse_extra.ledger.now, "", 0.006);
    }
    for (int heads = 1; heads <= 5; heads++) {
        const char *text = attn_study_text(run, "h%dq4096d64:causal(br):f32:normal:s1", heads);
        double dense = (double)attn_study_price(run, "dense", text).price.peak;
        double shared = (double)attn_study_price(run, "dense:mask=bool2d", text).price.peak;
        double csr = (double)attn_study_price(run, "csr-textbook", text).price.peak;
        double starts = 4097 * 8, pairs = 4096.0 * 4097 / 2;
        double at = pairs / (csr - starts) / (4096.0 * 4096); /* a density for each byte */
        const char *name = attn_study_text(run, "ours, csr-textbook against dense, %d head%s",
                                           heads, heads > 1 ? "s" : "");
        attn_study_quantity(run, name, ATTN_DERIVED, 9.0 * heads / (8.0 * heads + 4), dense * at,
                            "", 0.001);
        attn_study_quantity(run, attn_study_text(run, "%s, whose mask all share", name),
                            ATTN_DERIVED, (8.0 * heads + 1) / (8.0 * heads + 4), shared * at, "",
                            0.001);
    }
}

/* Below and above the break-even, each in a process of its own.  Both ledgers are linear in the
 * density, so that two points of each say where they cross. */
static void measured_crossing(struct attn_study_run *run)
{
    static const struct {
        int heads;
        const char *density[2];
        double crossing;
    } of[] = {{1, {"0.70", "0.80"}, 0.75}, {2, {"0.85", "0.95"}, 0.9}};
    for (int h = 0; h < 2; h++) {
        struct attn_point dense[2], csr[2];
        int done = 0;
        for (int d = 0; d < 2; d++) {
            const char *text = attn_study_text(run, "h%dq512d64:random(%s,1):f32:normal:s1",
                                               of[h].heads, of[h].density[d]);
            done += attn_study_measure(run, "dense", text, &dense[d]) &&
                    attn_study_measure(run, "csr-textbook", text, &csr[d]);
        }
        if (done < 2)
            continue;
        double below = (double)(dense[0].ledger_bytes - csr[0].ledger_bytes);
        double above = (double)(csr[1].ledger_bytes - dense[1].ledger_bytes);
        double crossing = (csr[0].density * above + csr[1].density * below) / (below + above);
        const char *name = attn_study_text(run, "the measured ledgers cross at, %d head%s",
                                           of[h].heads, h > 0 ? "s" : "");
        attn_study_quantity(run, name, ATTN_DERIVED, of[h].crossing, crossing, "", 0.002);
    }
}

/* Issue 1124: the list of visible pairs is cut to a multiple of four, from its end.  Each row of a
 * causal mask of 13, with what is left of its keys, against the whole mask. */
static void last_row(struct attn_study_run *run)
{
    enum { L = 13, D = 8, PAIRS = L * (L + 1) / 2, KEPT = PAIRS / 4 * 4 };
    const struct attn_simple whole = {1, 1, 1, L, L, D, D, 0};
    float q[L * D], k[L * D], v[L * D], o[L * D], cut[D], lse[L];
    char error[ATTN_SIMPLE_ERROR];
    int wrong = 0, last = -1, failed;
    double worst = 0;
    attn_study_fill(q, L * D, 7919);
    attn_study_fill(k, L * D, 7879);
    attn_study_fill(v, L * D, 7907);
    failed = attn_simple_forward("csr", "causal(br)", &whole, q, k, v, o, lse, error) != 0;
    for (int i = 0, before = 0; i < L; before += ++i) {
        int keys = KEPT - before < i + 1 ? KEPT - before : i + 1;
        const struct attn_simple row = {1, 1, 1, 1, keys, D, D, 0};
        double off = 0;
        failed |= attn_simple_forward("csr", "none", &row, q + (ptrdiff_t)i * D, k, v, cut, lse,
                                      error) != 0;
        for (int c = 0; c < D; c++)
            off = fmax(off, fabs((double)cut[c] - (double)o[i * D + c]));
        wrong += off > 1e-5;
        last = off > 1e-5 ? i : last;
        worst = fmax(worst, off);
    }
    attn_study_quantity(run, "pairs that _round_nnz loses of a causal mask of 13", ATTN_DERIVED, 3,
                        PAIRS - KEPT, "pairs", 0);
    attn_study_quantity(run, "rows that come out wrong", ATTN_DERIVED, 1, failed ? -1 : wrong,
                        "rows", 0);
    attn_study_quantity(run, "which: the last one", ATTN_DERIVED, L - 1, last, "", 0);
    attn_study_say(run, "It is off by %.2g; another row by less than 1e-5.", worst);
    attn_study_measure(run, "csr", "q13d8:causal(br):f32:normal:s1", NULL);
}

void attn_study_run_xformers_order(struct attn_study_run *run)
{
    attn_study_say(run, "Three runs in one process, after a reset of the peak each; the first has "
                        "more, so the mask of the others seems to save memory.  But `mask=` was "
                        "swallowed by **kwargs.  The difference is the scratch of an autotuner in "
                        "the first run, less the result that the others still hold:");
    published_runs(run);
    attn_study_say(run, "Runs that did use CSR:");
    sparse_runs(run);
    attn_study_say(
        run,
        "The trap here, in C: one function three times in this process; only the order and the "
        "masks differ, and no mask is read.");
    trap(run);
    attn_study_say(run, "attnlab stays out of it: each point is a process of its own, each "
                        "number comes with its live set, and an unknown option is refused.");
    attn_study_quantity(run, "dense:masks=int32 runs (1) or is refused (0)", ATTN_DERIVED, 0,
                        attn_study_accepts("dense:masks=int32", "q8d8:none:f32:normal:s1"), "", 0);
    break_even(run);
    measured_crossing(run);
    last_row(run);
}
