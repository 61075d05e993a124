/* What a cache of keys and values costs while tokens are decoded one by one.
 *
 * Source: Kwon et al. 2023 (vLLM, arXiv 2309.06180), section 3: 800 KB a token and 1.6 GB for 2,048
 * tokens of OPT-13B.  Shapes of models are those of their papers or configuration files. */
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/studies/study.h"
#include "optimized/simple.h"

struct model {
    const char *name;
    int64_t layers, heads, kv_heads, dim, window; /* window 0: every token is kept */
};

static int64_t kept(const struct model *m, int64_t length)
{
    return m->window > 0 && m->window < length ? m->window : length;
}

static void take_cache(struct attn_tape *tape, const struct model *m, int64_t length, int64_t size)
{
    int64_t numbers = m->layers * m->kv_heads * kept(m, length) * m->dim;
    attn_tape_take(tape, "k cache", "every layer: k of each token", numbers, size);
    attn_tape_take(tape, "v cache", "every layer: v of each token", numbers, size);
}

static void published(struct attn_study_run *run)
{
    static const struct model opt = {"OPT-13B", 40, 40, 40, 128, 0};
    struct attn_tape tape;
    struct attn_point point;
    attn_tape_open(&tape, run, NULL);
    take_cache(&tape, &opt, 1, 2);
    attn_study_peak(&tape, "OPT-13B in 16 bits, one token", ATTN_PUBLISHED, 800 * 1024, 0);
    attn_tape_open(&tape, run, NULL);
    take_cache(&tape, &opt, 2048, 2);
    attn_study_peak(&tape, "OPT-13B in 16 bits, 2,048 tokens", ATTN_PUBLISHED, 1.6e9, 0.1e9);
    if (!attn_study_price(run, "tiled", "h40q1k2048d128:none:f16:normal:s1", &point))
        return;
    double q_o_lse = 40 * (2 * 128 * 2 + 4);
    attn_study_quantity(run, "inputs and outputs of one layer's call are its cache, q, o and lse",
                        ATTN_DERIVED, (double)tape.peak / 40 + q_o_lse, (double)point.floor_bytes,
                        "B", 0);
}

static void models(struct attn_study_run *run)
{
    static const struct model model[] = {
        {"GPT-3 175B, every head its own", 96, 96, 96, 128, 0},
        {"Llama 2 7B, every head its own", 32, 32, 32, 128, 0},
        {"Llama 2 70B, 8 for 64 heads (GQA)", 80, 64, 8, 128, 0},
        {"Llama 3 8B, 8 for 32 heads (GQA)", 32, 32, 8, 128, 0},
        {"Mistral 7B, GQA, window of 4,096", 32, 32, 8, 128, 4096},
        {"Falcon 7B, one for 71 heads (MQA)", 32, 71, 1, 64, 0},
    };
    char token[32], all[32];
    if (run->as_json)
        return;
    attn_study_say(run, "In 16 bits, at 32,768 tokens; every byte of it is read for each new token "
                        "of the sequence:");
    for (size_t m = 0; m < sizeof model / sizeof *model; m++) {
        struct attn_tape one, many;
        attn_tape_open(&one, run, NULL);
        attn_tape_open(&many, run, NULL);
        take_cache(&one, &model[m], 1, 2);
        take_cache(&many, &model[m], 32768, 2);
        fprintf(run->out, "    %-36s %10s a token %10s\n", model[m].name,
                attn_cli_bytes(one.peak, token), attn_cli_bytes(many.peak, all));
    }
    run->in_list = 1;
}

/* Decoding for real: tokens come one by one, their k and v are added to the cache, and one query of
 * each head meets what is there.  The same as causal attention over all tokens at once. */
enum {
    HEADS = 4,
    GROUPS = 2,
    LENGTH = 48,
    DIM = 16,
    Q = HEADS * LENGTH * DIM,
    KV = GROUPS * LENGTH * DIM
};

static void one_token(const float *q, const float *k, const float *v, int64_t n, double *o)
{
    double weight[LENGTH], sum = 0, most = -(double)INFINITY;
    for (int64_t j = 0; j < n; j++) {
        weight[j] = 0;
        for (int c = 0; c < DIM; c++)
            weight[j] += (double)q[c] * (double)k[j * DIM + c] / sqrt(DIM);
        most = fmax(most, weight[j]);
    }
    for (int64_t j = 0; j < n; j++)
        sum += weight[j] = exp(weight[j] - most);
    for (int c = 0; c < DIM; c++) {
        o[c] = 0;
        for (int64_t j = 0; j < n; j++)
            o[c] += weight[j] / sum * (double)v[j * DIM + c];
    }
}

static double decode(struct attn_tape *tape, const float *q, const float *k, const float *v,
                     const float *all_at_once)
{
    float *k_cache = attn_tape_take(tape, "k cache", "every layer: k of each token", KV, 4);
    float *v_cache = attn_tape_take(tape, "v cache", "every layer: v of each token", KV, 4);
    double worst = 0, o[DIM];
    for (int64_t i = 0; k_cache != NULL && v_cache != NULL && i < LENGTH; i++) {
        for (int64_t g = 0; g < GROUPS; g++) {
            memcpy(k_cache + (g * LENGTH + i) * DIM, k + (g * LENGTH + i) * DIM,
                   sizeof(float[DIM]));
            memcpy(v_cache + (g * LENGTH + i) * DIM, v + (g * LENGTH + i) * DIM,
                   sizeof(float[DIM]));
        }
        for (int64_t h = 0; h < HEADS; h++) {
            int64_t group = h / (HEADS / GROUPS) * LENGTH * DIM, row = (h * LENGTH + i) * DIM;
            one_token(q + row, k_cache + group, v_cache + group, i + 1, o);
            for (int c = 0; c < DIM; c++)
                worst = fmax(worst, fabs(o[c] - (double)all_at_once[row + c]));
        }
    }
    return worst;
}

static void for_real(struct attn_study_run *run)
{
    static float q[Q], k[KV], v[KV], o[Q], lse[HEADS * LENGTH];
    static const struct model small = {"", 1, HEADS, GROUPS, DIM, 0};
    const struct attn_simple shape = {1, HEADS, GROUPS, LENGTH, LENGTH, DIM, DIM, 0};
    char error[ATTN_SIMPLE_ERROR];
    struct attn_ledger ledger;
    struct attn_tape real, counted;
    for (int64_t n = 0; n < Q; n++)
        q[n] = (float)(n * 7919 % 101) / 50 - 1;
    for (int64_t n = 0; n < KV; n++) {
        k[n] = (float)(n * 104729 % 97) / 48 - 1;
        v[n] = (float)(n * 1299709 % 89) / 44 - 1;
    }
    attn_ledger_init(&ledger, NULL);
    attn_tape_open(&real, run, &ledger);
    attn_tape_open(&counted, run, NULL);
    int failed = attn_simple_forward("tiled", "causal(br)", &shape, q, k, v, o, lse, error) != 0;
    double worst = decode(&real, q, k, v, o);
    take_cache(&counted, &small, LENGTH, 4);
    attn_study_same("the cache of 48 tokens, filled for real", &real, &counted);
    /* |v| <= 1: each of 48 products and sums of float32 rounds by half a unit of 2^-24 at most */
    attn_study_quantity(run, "decoded one by one against causal attention at once, largest error",
                        ATTN_DERIVED, 0, failed ? HUGE_VAL : worst, "",
                        (LENGTH + DIM) * ldexp(1, -23));
    attn_ledger_clear(&ledger);
}

/* One query meets a cache, of many kv heads or of one.  Times are shown, and decide nothing. */
static void read_for_each_token(struct attn_study_run *run)
{
    static const struct {
        const char *text;
        double bytes;
    } call[] = {{"h8q1k16384d128:none:f32:normal:s1", 8.0 * 16384 * 128 * 2 * 4},
                {"h8g1q1k16384d128:none:f32:normal:s1", 1.0 * 16384 * 128 * 2 * 4},
                {"h8q1k16384d128:none:bf16:normal:s1", 8.0 * 16384 * 128 * 2 * 2}};
    char bytes[32];
    struct attn_point point;
    attn_study_say(run, "A new token does two multiplications for each number that it reads, so "
                        "its time follows the bytes, not the arithmetic:");
    for (size_t c = 0; c < sizeof call / sizeof *call; c++)
        if (attn_study_measure(run, "tiled", call[c].text, &point)) {
            double s =
                attn_point_call_s(&point, point.n_warm > 0 ? ATTN_CALL_WARM : ATTN_CALL_FIRST);
            attn_study_say(run, "    it reads %s in %.2g ms: %.3g GB/s",
                           attn_cli_bytes((int64_t)call[c].bytes, bytes), s * 1e3,
                           call[c].bytes / s / 1e9);
        }
}

static void run_study(struct attn_study_run *run)
{
    published(run);
    models(run);
    for_real(run);
    read_for_each_token(run);
}

const struct attn_study attn_study_kv_cache = {
    "kv-cache", "what does a cache of keys and values cost, and a token that reads it?", run_study};
