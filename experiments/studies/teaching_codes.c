/* What well-known teaching codes say that they hold, and what they hold.
 *
 * Source: Stanford CS149 assignment 4 (its printout of memory: N = 1,024, H = 4, d = 32), and
 * karpathy/llm.c train_gpt2.c (arrays preatt and att of every layer). */
#include <math.h>

#include "experiments/studies/study.h"
#include "optimized/simple.h"

enum { N = 1024, CS149_HEADS = 4, CS149_DIM = 32, TENSOR = CS149_HEADS * N * CS149_DIM };

/* What a variant holds.  The printed number has neither the inputs nor the copies that the C++
 * functions make: each tensor into a std::vector first, and the result back. */
static int64_t cs149(struct attn_study_run *run, const char *name, double printed, int64_t extra,
                     const char *what)
{
    int is_whole = printed == 0;
    struct attn_tape tape = {.run = run};
    attn_tape_take(&tape, "output", "torch.zeros", TENSOR, 4);
    if (is_whole) {
        attn_tape_take(&tape, "inputs", "Q K V", 3 * TENSOR, 4);
        attn_tape_take(&tape, "copies", "four std::vector: Q K V O", 4 * TENSOR, 4);
    }
    if (extra > 0)
        attn_tape_take(&tape, "temporary", what, extra, 4);
    attn_study_place(run, name, 0);
    if (is_whole)
        attn_study_peak(&tape, name, ATTN_DERIVED, 8 * 524288.0 + 4.0 * (double)extra, 0);
    else
        attn_study_peak(&tape, name, ATTN_PUBLISHED, printed, 4);
    return tape.ledger.peak;
}

/* ---- llm.c ----------------------------------------------------------------------------------- */

struct gpt {
    int64_t layers, batch, heads, length, dim;
};

/* attention_forward of one layer, as llm.c computes it: both arrays stay for the backward pass. */
static void attention_forward(struct attn_tape *tape, const struct gpt *g, const float *q,
                              const float *k, const float *v, float *out)
{
    int64_t T = g->length, d = g->dim, pairs = g->batch * g->heads * T * T;
    float *preatt = attn_tape_take(tape, "preatt", "every layer: scores", g->layers * pairs, 4);
    float *att = attn_tape_take(tape, "att", "every layer: probabilities", g->layers * pairs, 4);
    for (int64_t row = 0; preatt != NULL && att != NULL && row < g->batch * g->heads * T; row++) {
        int64_t head = row / T * T, n = row % T + 1;
        attn_study_softmax(q + row * d, k + head * d, n, d, 1 / sqrtf((float)d), preatt + row * T,
                           att + row * T);
        attn_study_sum(att + row * T, v + head * d, n, d, out + row * d);
    }
}

static void llm_c_for_real(struct attn_study_run *run)
{
    enum { SMALL = 2 * 3 * 40 * 16 };
    static float q[SMALL], k[SMALL], v[SMALL], out[SMALL], o[SMALL], lse[2 * 3 * 40];
    static const struct gpt small = {1, 2, 3, 40, 16};
    const struct attn_simple shape = {2, 3, 3, 40, 40, 16, 16, 0};
    char error[ATTN_SIMPLE_ERROR];
    struct attn_pair pair;
    double worst = 0;
    attn_study_fill(q, SMALL, 7919);
    attn_study_fill(k, SMALL, 104729);
    attn_study_fill(v, SMALL, 1299709);
    attn_pair_open(&pair, run);
    attention_forward(&pair.real, &small, q, k, v, out);
    attention_forward(&pair.counted, &small, NULL, NULL, NULL, NULL);
    attn_study_same("llm.c's arrays for real: B=2, 3 heads, T=40, one layer", &pair);
    if (attn_simple_forward("tiled", "causal(br)", &shape, q, k, v, o, lse, error) != 0)
        worst = HUGE_VAL;
    for (int n = 0; n < SMALL; n++)
        worst = fmax(worst, fabs((double)out[n] - (double)o[n]));
    attn_study_quantity(run, "its output against tiled, largest difference", ATTN_DERIVED, 0, worst,
                        "", 2 * (40 + 16) * ldexp(1, -23));
    attn_pair_close(&pair);
}

static void llm_c(struct attn_study_run *run)
{
    static const struct gpt gpt2 = {12, 4, 12, 1024, 64};
    static const char TEXT[] = "b4h12q1024d64:causal(br):f32:normal:s1";
    struct attn_tape tape;
    attn_study_say(run, "llm.c keeps scores and probabilities of every layer in float32.  GPT-2 "
                        "(124M) with batch 4 and 1,024 tokens:");
    tape = (struct attn_tape){.run = run};
    attention_forward(&tape, &gpt2, NULL, NULL, NULL, NULL);
    attn_study_peak(&tape, "preatt and att of 12 layers", ATTN_DERIVED,
                    2.0 * 12 * 4 * 12 * 1024 * 1024 * 4, 0);
    attn_study_quantity(run, "att of one layer, as gemm:save=probs keeps it (rows are padded)",
                        ATTN_DERIVED, (double)tape.ledger.peak / 24,
                        (double)attn_study_price(run, "gemm:save=probs@portable", TEXT).saved_bytes,
                        "B", 0.02 * (double)tape.ledger.peak / 24);
    attn_study_quantity(run, "what tiled keeps in their place, beside o and lse", ATTN_DERIVED, 0,
                        (double)attn_study_price(run, "tiled", TEXT).saved_bytes, "B", 0);
    llm_c_for_real(run);
}

void attn_study_run_teaching_codes(struct attn_study_run *run)
{
    attn_study_say(run, "CS149 prints the bytes of the tensors that are passed in (less four):");
    cs149(run, "naive", 4718588, N * N, "the scores, N x N");
    cs149(run, "fused", 557052, 8 * N, "a row for each of 8 threads");
    cs149(run, "flash", 524284, 0, "");
    attn_study_say(run, "Q, K and V and copies into std::vector, four tensors, are not in it.  "
                        "With them:");
    double naive = (double)cs149(run, "naive, all of it", 0, N * N, "passed in");
    double flash = (double)cs149(run, "flash, all of it", 0, 0, "");
    double tensors = 4.0 * 4 * TENSOR;
    attn_study_say(run,
                   "So the printout says that flash needs a ninth of naive.  All that is held is "
                   "%.1f times less, and %.1f times less beside inputs and output.",
                   naive / flash, (naive - tensors) / (flash - tensors));
    llm_c(run);
}
