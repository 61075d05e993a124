/* The cost of a cache of keys and values while tokens are decoded one by one.
 *
 * Source: Kwon et al. 2023 (vLLM, arXiv 2309.06180), section 3: 800 KB a token and 1.6 GB for 2,048
 * tokens of OPT-13B.  Shapes of models are those of their papers or configuration files. */
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/studies/study.h"
#include "optimized/simple.h"

struct model {
    const char *name, *curve;
    int64_t layers, heads, kv_heads, dim, window; /* window 0: every token is kept */
    const char *dtype;
    int64_t size; /* bytes of a number */
};

static int64_t kept(const struct model *m, int64_t length)
{
    return m->window > 0 && m->window < length ? m->window : length;
}

static int64_t numbers(const struct model *m, int64_t length)
{
    return m->layers * m->kv_heads * kept(m, length) * m->dim;
}

static void take_cache(struct attn_tape *tape, const struct model *m, int64_t length)
{
    attn_tape_take(tape, "k cache", "every layer: k of each token", numbers(m, length), m->size);
    attn_tape_take(tape, "v cache", "every layer: v of each token", numbers(m, length), m->size);
}

/* The bytes of one layer that one query of each head reads, by the price of its call: the inputs
 * and outputs but for q, o and lse. */
static double read_by_price(struct attn_study_run *run, const struct model *m, int64_t length)
{
    const char *text = attn_study_text(run, "h%lldg%lldq1k%lldd%lld:none:%s:normal:s1",
                                       (long long)m->heads, (long long)m->kv_heads,
                                       (long long)kept(m, length), (long long)m->dim, m->dtype);
    return (double)(attn_study_price(run, "tiled@portable", text).floor_bytes -
                    m->heads * (2 * m->dim * m->size + 4));
}

static void published(struct attn_study_run *run)
{
    static const struct model opt = {"OPT-13B", "", 40, 40, 40, 128, 0, "f16", 2};
    struct attn_tape tape = {.owner = &run->owner};
    take_cache(&tape, &opt, 1);
    attn_study_peak(&tape, "OPT-13B in 16 bits, one token", ATTN_PUBLISHED, 800 * 1024, 0);
    tape = (struct attn_tape){.owner = &run->owner};
    take_cache(&tape, &opt, 2048);
    /* its KB is 1,024 bytes, so its GB is a GiB */
    attn_study_peak(&tape, "OPT-13B in 16 bits, 2,048 tokens", ATTN_PUBLISHED, ldexp(1.6, 30),
                    ldexp(0.05, 30));
    /* a layer: Wq, Wk, Wv, Wo, and C to 4 C and back: 12 C C */
    attn_study_quantity(run, "OPT-13B: weights of its layers, which a token reads too",
                        ATTN_DERIVED, 30720.0 * 800 * 1024, 40 * 12.0 * 5120 * 5120 * 2, "B", 0);
}

/* Published shapes.  The formula against the price of one layer's call, which reads all of it. */
static void models(struct attn_study_run *run)
{
    static const struct model model[] = {
        {"GPT-3 175B, every head its own", "GPT-3 175B (MHA)", 96, 96, 96, 128, 0, "f16", 2},
        {"Llama 2 7B, every head its own", "Llama 2 7B (MHA)", 32, 32, 32, 128, 0, "f16", 2},
        {"Llama 2 70B, 8 for 64 heads (GQA)", "Llama 2 70B (GQA)", 80, 64, 8, 128, 0, "f16", 2},
        {"Llama 3 8B, 8 for 32 heads (GQA)", "Llama 3 8B (GQA)", 32, 32, 8, 128, 0, "f16", 2},
        {"Llama 3 8B in float32", "Llama 3 8B, float32", 32, 32, 8, 128, 0, "f32", 4},
        {"Mistral 7B, GQA, window of 4,096", "Mistral 7B (window)", 32, 32, 8, 128, 4096, "f16", 2},
        {"Falcon 7B, one for 71 heads (MQA)", "Falcon 7B (MQA)", 32, 71, 1, 64, 0, "f16", 2},
    };
    static const int64_t length[] = {1024, 4096, 32768, 131072};
    char tokens[32];
    attn_study_say(run, "Published shapes, in 16 bits where nothing else is said.  Every byte is "
                        "read for each new token of the sequence:");
    for (size_t m = 0; m < sizeof model / sizeof *model; m++)
        for (size_t l = 0; l < sizeof length / sizeof *length; l++) {
            const char *name = attn_study_text(run, "%s, %s tokens", model[m].name,
                                               attn_cli_grouped(length[l], tokens));
            attn_study_place(run, model[m].curve, (double)length[l]);
            attn_study_quantity(run, name, ATTN_DERIVED,
                                2.0 * (double)(numbers(&model[m], length[l]) * model[m].size),
                                (double)model[m].layers * read_by_price(run, &model[m], length[l]),
                                "B", 0);
        }
}

/* Decoding for real: tokens come one by one, their k and v are added to the cache, in a window at
 * the place of the oldest, and one query of each head meets what is there.  The same as causal
 * attention over all tokens at once. */
enum { HEADS = 4, LENGTH = 48, DIM = 16, Q = HEADS * LENGTH * DIM };

static double decode(struct attn_tape *tape, const struct model *m, const float *q, const float *k,
                     const float *v, const float *all_at_once)
{
    int64_t slots = kept(m, LENGTH);
    take_cache(tape, m, LENGTH);
    float *k_cache = attn_tape_data(tape, "k cache"), *v_cache = attn_tape_data(tape, "v cache");
    float scores[LENGTH], probs[LENGTH], o[DIM];
    double worst = 0;
    for (int64_t i = 0; k_cache != NULL && v_cache != NULL && i < LENGTH; i++) {
        for (int64_t g = 0; g < m->kv_heads; g++) {
            int64_t slot = (g * slots + i % slots) * DIM, from = (g * LENGTH + i) * DIM;
            memcpy(k_cache + slot, k + from, sizeof(float[DIM]));
            memcpy(v_cache + slot, v + from, sizeof(float[DIM]));
        }
        for (int64_t h = 0; h < HEADS; h++) {
            int64_t group = h / (HEADS / m->kv_heads) * slots * DIM, row = (h * LENGTH + i) * DIM;
            int64_t n = i < slots ? i + 1 : slots;
            attn_study_softmax(q + row, k_cache + group, n, DIM, 1 / sqrtf(DIM), scores, probs);
            attn_study_sum(probs, v_cache + group, n, DIM, o);
            for (int c = 0; c < DIM; c++)
                worst = fmax(worst, fabs((double)(o[c] - all_at_once[row + c])));
        }
    }
    return worst;
}

static void for_real(struct attn_study_run *run)
{
    static const struct model small[] = {
        {"MHA, 48 tokens, filled for real", "", 1, HEADS, 4, DIM, 0, "f32", 4},
        {"GQA", "", 1, HEADS, 2, DIM, 0, "f32", 4},
        {"MQA", "", 1, HEADS, 1, DIM, 0, "f32", 4},
        {"GQA, window of 16", "", 1, HEADS, 2, DIM, 16, "f32", 4}};
    static float q[Q], k[Q], v[Q], o[Q], lse[HEADS * LENGTH];
    char error[ATTN_SIMPLE_ERROR];
    attn_study_fill(q, Q, 7919);
    attn_study_fill(k, Q, 104729);
    attn_study_fill(v, Q, 1299709);
    for (size_t s = 0; s < sizeof small / sizeof *small; s++) {
        const struct model *m = &small[s];
        const struct attn_simple shape = {1, HEADS, m->kv_heads, LENGTH, LENGTH, DIM, DIM, 0};
        struct attn_pair pair;
        attn_pair_open(&pair, &run->owner);
        int failed = attn_simple_forward(
                         "tiled", m->window > 0 ? "causal(br)&window(15,0,br)" : "causal(br)",
                         &shape, q, k, v, o, lse, error) != 0;
        double worst = decode(&pair.real, m, q, k, v, o);
        take_cache(&pair.counted, m, LENGTH);
        attn_study_same(m->name, &pair);
        /* |v| <= 1: each of 48 products and sums of float32 rounds by half a unit of 2^-24 */
        attn_study_quantity(run, "decoded one by one against attention at once, largest error",
                            ATTN_DERIVED, 0, failed ? HUGE_VAL : worst, "",
                            (LENGTH + DIM) * ldexp(1, -23));
        attn_pair_close(&pair);
    }
}

/* One query meets a cache, of many kv heads or of one.  A time is printed with the rate of reading
 * that it amounts to; it is compared with nothing, for it belongs to this machine. */
static void read_for_each_token(struct attn_study_run *run)
{
    static const struct model call[] = {
        {"8 kv heads, float32", "h8q1k16384d128:none:f32:normal:s1", 1, 8, 8, 128, 0, "f32", 4},
        {"8 kv heads, bfloat16", "h8q1k16384d128:none:bf16:normal:s1", 1, 8, 8, 128, 0, "bf16", 2},
        {"one kv head, float32", "h8g1q1k16384d128:none:f32:normal:s1", 1, 8, 1, 128, 0, "f32", 4}};
    attn_study_say(run,
                   "A new token does one multiplication and one addition for each number of the "
                   "cache that it reads: the more a machine computes while it reads a byte, the "
                   "nearer its time is to that of the bytes alone.  16,384 keys:");
    for (size_t c = 0; c < sizeof call / sizeof *call; c++) {
        struct attn_point point;
        double bytes = read_by_price(run, &call[c], 16384);
        attn_study_quantity(
            run, attn_study_text(run, "%s: bytes that one token reads", call[c].name), ATTN_DERIVED,
            2.0 * (double)(numbers(&call[c], 16384) * call[c].size), bytes, "B", 0);
        if (!attn_study_measure(run, "tiled", call[c].curve, &point))
            continue;
        double s = attn_point_call_s(&point, point.n_warm > 0 ? ATTN_CALL_WARM : ATTN_CALL_FIRST);
        attn_study_say(run, "  on this machine: %.3g ms, %.3g GB of the cache a second", s * 1e3,
                       bytes / s / 1e9);
    }
}

void attn_study_run_kv_cache(struct attn_study_run *run)
{
    published(run);
    models(run);
    for_real(run);
    read_for_each_token(run);
}
