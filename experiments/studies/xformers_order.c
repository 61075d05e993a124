/* Memory that seemed to depend on the density of a mask, and depended on the order of the runs.
 *
 * Source: facebookresearch/xformers issues 1086, 1054, 1124 and HOWTO.md, v0.0.26;
 * triton-lang/triton python/triton/testing.py (do_bench takes 256e6 bytes to flush the cache). */
#include <math.h>
#include <string.h>

#include "experiments/studies/study.h"

/* One call: q, k and v are one tensor of B matrices of L x L numbers (d = L in the published run),
 * the mask is what it is called, and is applied or not. */
struct call {
    int64_t batch, length, dim;
    int64_t flush;     /* bytes that a first call takes to tune its softmax; 0: tuned before  */
    int64_t workspace; /* of cuBLAS, made once                                                */
    int has_float_mask;
};

static const double MIB = 1024.0 * 1024;

static void softmax_row(const float *scores, float *probs, int64_t n)
{
    float most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        most = fmaxf(most, scores[j]);
    for (int64_t j = 0; j < n; j++)
        sum += probs[j] = expf(scores[j] - most);
    for (int64_t j = 0; j < n; j++)
        probs[j] /= sum;
}

/* out = x y^T (rows) or x y, one matrix of the batch after the other. */
static void multiply(float *out, const float *x, const float *y, int64_t batch, int64_t rows,
                     int64_t columns, int64_t inner, int y_is_transposed)
{
    for (int64_t n = 0; n < batch * rows * columns; n++) {
        int64_t b = n / (rows * columns), i = n / columns % rows, j = n % columns;
        float sum = 0;
        for (int64_t e = 0; e < inner; e++)
            sum += x[(b * rows + i) * inner + e] * (y_is_transposed
                                                        ? y[(b * columns + j) * inner + e]
                                                        : y[(b * inner + e) * columns + j]);
        out[n] = sum;
    }
}

/* `att = attention(q, k, v, mask=mask)`, where `mask=` goes into **kwargs and is not looked at. */
static void attention(struct attn_tape *tape, const struct call *c, const float *x)
{
    int64_t numbers = c->batch * c->length * c->dim, pairs = c->batch * c->length * c->length;
    if (c->has_float_mask)
        attn_tape_take(tape, "float mask", "AttentionMask.from_bool", c->length * c->length, 4);
    float *scaled = attn_tape_take(tape, "q scaled", "q / math.sqrt(q.size(-1))", numbers, 4);
    float *logits = attn_tape_take(tape, "logits", "torch.baddbmm(q, k^T)", pairs, 4);
    float *probs = attn_tape_take(tape, "probs", "softmax(logits)", pairs, 4);
    if (c->flush > 0) {
        attn_tape_take(tape, "flush", "triton.testing.do_bench, first call", c->flush, 1);
        attn_tape_give(tape, "flush");
    }
    if (probs != NULL && logits != NULL && scaled != NULL) {
        for (int64_t n = 0; n < numbers; n++)
            scaled[n] = x[n] / sqrtf((float)c->dim);
        multiply(logits, scaled, x, c->batch, c->length, c->length, c->dim, 1);
        for (int64_t row = 0; row < c->batch * c->length; row++)
            softmax_row(logits + row * c->length, probs + row * c->length, c->length);
    }
    attn_tape_give(tape, "logits");
    attn_tape_give(tape, "q scaled");
    if (c->has_float_mask)
        attn_tape_give(tape, "float mask");
    float *out = attn_tape_take(tape, "new att", "probs @ v", numbers, 4);
    if (out != NULL && probs != NULL)
        multiply(out, probs, x, c->batch, c->length, c->dim, c->length, 0);
    attn_tape_give(tape, "probs");
}

/* What is there before a run: inputs, the mask, and the result of the run before. */
static float *begin(struct attn_tape *tape, const struct call *c, int is_first)
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

static const int64_t FLUSH = 256000000, WORKSPACE = 8519680; /* 8.125 MiB */

/* The six dense numbers: none of these runs applied its mask, and none depends on it. */
static void published_runs(struct attn_study_run *run)
{
    static const struct {
        const char *name;
        double mib;
        int is_first, flushes, has_workspace, has_float_mask;
    } runs[] = {
        {"issue 1086, run 1 (10 % mask)", 509, 1, 1, 1, 0},
        {"issue 1086, runs 2 and 3 (90 %, 10 %)", 329, 0, 0, 1, 0},
        {"HOWTO.md, \"Dense\"", 501, 1, 1, 0, 0},
        {"HOWTO.md, \"Sparse\"", 321, 0, 0, 0, 0},
        {"issue 1054, att_mask=, any density", 513, 1, 1, 1, 1},
        {"the corrected run that an article tells of", 577, 0, 1, 1, 1},
    };
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        struct call c = {16,
                         1024,
                         1024,
                         runs[r].flushes ? FLUSH : 0,
                         runs[r].has_workspace ? WORKSPACE : 0,
                         runs[r].has_float_mask};
        struct attn_tape tape;
        attn_tape_open(&tape, run, NULL);
        begin(&tape, &c, runs[r].is_first);
        attention(&tape, &c, NULL);
        attn_study_peak(&tape, runs[r].name, ATTN_PUBLISHED, runs[r].mib * MIB, 0.5 * MIB);
    }
}

/* 17 bytes a pair for the matrix that all heads share, then scores and probabilities of the visible
 * pairs. */
static void sparse_blocks(struct attn_tape *tape, int64_t heads, int64_t nnz)
{
    attn_tape_take(tape, "csr columns", "SparseCS: int32", nnz, 4);
    attn_tape_take(tape, "csr transpose", "its columns int32 and permutation int64", nnz, 12);
    attn_tape_take(tape, "csr values", "bool", nnz, 1);
    attn_tape_take(tape, "logits", "sddmm", heads * nnz, 4);
    attn_tape_take(tape, "probs", "sparse softmax", heads * nnz, 4);
}

/* The two runs that really were sparse. */
static void sparse_runs(struct attn_study_run *run, double density, int is_first, double mib)
{
    int64_t numbers = 16 * 1024 * 1024, nnz = (int64_t)(density * 1024 * 1024);
    struct attn_tape tape;
    char name[64];
    attn_tape_open(&tape, run, NULL);
    attn_tape_take(&tape, "q = k = v", "torch.rand", numbers, 4);
    if (!is_first)
        attn_tape_take(&tape, "old att", "the result of the run before", numbers, 4);
    attn_tape_take(&tape, "q scaled", "q / math.sqrt(q.size(-1))", numbers, 4);
    sparse_blocks(&tape, 16, nnz);
    snprintf(name, sizeof name, "a CSR run at %.0f %%", density * 100);
    attn_study_peak(&tape, name, ATTN_PUBLISHED, mib * MIB, 0.55 * MIB);
}

/* The trap in this process: one function, three times, with a first call that tunes and a result
 * that stays.  The number goes with the place in the order, whatever the mask. */
static void trap(struct attn_study_run *run)
{
    static const char *const name[] = {"the first run, for real", "the second run, for real",
                                       "the third run, for real"};
    struct attn_ledger ledger;
    struct attn_tape real, counted;
    attn_ledger_init(&ledger, NULL);
    attn_tape_open(&real, run, &ledger);
    attn_tape_open(&counted, run, NULL);
    const struct call first = {2, 48, 32, 65536, 0, 0};
    const float *x = begin(&real, &first, 1);
    begin(&counted, &first, 1);
    for (int turn = 0; turn < 3; turn++) {
        struct call c = first;
        c.flush = turn == 0 ? first.flush : 0;
        attn_tape_restart(&real);
        attn_tape_restart(&counted);
        attention(&real, &c, x);
        attention(&counted, &c, NULL);
        attn_study_same(name[turn], &real, &counted);
        attn_tape_give(&real, "old att");
        attn_tape_give(&counted, "old att");
        attn_tape_rename(&real, "new att", "old att");
        attn_tape_rename(&counted, "new att", "old att");
    }
    attn_ledger_clear(&ledger);
}

/* Extra bytes of dense and sparse attention are both linear in what they hold: where they meet. */
static void break_even(struct attn_study_run *run)
{
    static const struct {
        int heads;
        double density;
    } xformers[] = {{1, 0.32}, {2, 0.48}, {8, 0.79}, {16, 0.88}, {64, 0.97}};
    char name[96], text[96];
    struct attn_point dense, csr;
    for (size_t h = 0; h < sizeof xformers / sizeof *xformers; h++) {
        double heads = xformers[h].heads;
        struct attn_tape dense_extra, sparse_extra; /* at density 1 */
        attn_tape_open(&dense_extra, run, NULL);
        attn_tape_open(&sparse_extra, run, NULL);
        sparse_blocks(&sparse_extra, xformers[h].heads, 1024 * 1024);
        attn_tape_take(&dense_extra, "logits", "torch.baddbmm(q, k^T)",
                       xformers[h].heads * 1024 * 1024, 4);
        attn_tape_take(&dense_extra, "probs", "softmax(logits)", xformers[h].heads * 1024 * 1024,
                       4);
        snprintf(name, sizeof name, "break-even density of xformers, B x H = %.0f", heads);
        attn_study_quantity(run, name, ATTN_DERIVED, xformers[h].density,
                            (double)dense_extra.peak / (double)sparse_extra.peak, "", 0.006);
    }
    for (int heads = 1; heads <= 4; heads++) {
        snprintf(text, sizeof text, "h%dq4096d64:causal(br):f32:normal:s1", heads);
        if (!attn_study_price(run, "dense", text, &dense) ||
            !attn_study_price(run, "csr-textbook", text, &csr))
            return;
        double starts = 4097 * 8, pairs = 4096.0 * 4097 / 2;
        double at = (double)dense.priced_bytes / ((double)csr.priced_bytes - starts) * pairs;
        snprintf(name, sizeof name, "ours, csr-textbook against dense, %d head%s%s", heads,
                 heads > 1 ? "s" : "", heads == 4 ? ": full, so there is none" : "");
        attn_study_quantity(run, name, ATTN_DERIVED, 9.0 * heads / (8.0 * heads + 4),
                            at / (4096.0 * 4096), "", 0.001);
    }
}

/* One head at L=1,024, below and above 0.75, each in a process of its own. */
static void measured_crossing(struct attn_study_run *run)
{
    static const char *const density[] = {"0.70", "0.80"};
    char text[96], name[96];
    struct attn_point dense, csr;
    for (int d = 0; d < 2; d++) {
        snprintf(text, sizeof text, "q1024d64:random(%s,1):f32:normal:s1", density[d]);
        if (!attn_study_measure(run, "dense", text, &dense) ||
            !attn_study_measure(run, "csr-textbook", text, &csr))
            continue;
        snprintf(name, sizeof name, "at density %s CSR takes less (1) or more (0) on the ledger",
                 density[d]);
        attn_study_quantity(run, name, ATTN_DERIVED, d == 0, csr.ledger_bytes < dense.ledger_bytes,
                            "", 0);
    }
}

/* Issue 1124: the list of visible pairs is cut to a multiple of four, from its end. */
static void last_row(struct attn_study_run *run)
{
    enum { L = 13 }; /* causal: 91 pairs */
    int64_t nnz = 0, kept, lost_rows[L] = {0}, lost = 0;
    struct attn_point point;
    nnz = L * (L + 1) / 2;
    kept = nnz / 4 * 4;
    for (int64_t i = 0, n = 0; i < L; i++)
        for (int64_t j = 0; j <= i; j++, n++)
            lost_rows[i] += n >= kept;
    for (int i = 0; i < L; i++)
        lost += lost_rows[i];
    attn_study_quantity(run, "pairs that _round_nnz loses of a causal mask of 13", ATTN_DERIVED, 3,
                        (double)lost, "pairs", 0);
    attn_study_quantity(run, "of these, in the last row", ATTN_DERIVED, (double)lost,
                        (double)lost_rows[L - 1], "pairs", 0);
    attn_study_measure(run, "csr", "q13d8:causal(br):f32:normal:s1", &point);
}

static void run_study(struct attn_study_run *run)
{
    attn_study_say(run, "Three runs in one process, after a reset of the peak each; the first has "
                        "more, so the mask of the others seems to save memory.  But `mask=` was "
                        "swallowed by **kwargs.  The difference is the scratch of an autotuner in "
                        "the first run, less the result that the others still hold:");
    published_runs(run);
    attn_study_say(run, "Runs that did use CSR:");
    sparse_runs(run, 0.1, 1, 142);
    sparse_runs(run, 0.9, 0, 323);
    attn_study_say(run, "The trap here, in C: one function three times in this process.");
    trap(run);
    attn_study_say(run, "What keeps attnlab out of it: each point is a process of its own, each "
                        "number comes with its live set, and an unknown option is refused.");
    attn_study_quantity(run, "dense:masks=int32 runs (1) or is refused (0)", ATTN_DERIVED, 0,
                        attn_study_accepts("dense:masks=int32", "q8d8:none:f32:normal:s1"), "", 0);
    break_even(run);
    measured_crossing(run);
    last_row(run);
}

const struct attn_study attn_study_xformers_order = {
    "xformers-order", "did the sparse mask save 180 MiB?", run_study};
