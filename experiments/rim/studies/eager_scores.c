/* The largest tensor that programs asked for: scores of attention, stored in the type of q.
 *
 * Sources: antirez/h3.c issue 67 (56 heads, bfloat16; both lengths and sizes are printed);
 * Tencent-Hunyuan/HunyuanVideo-I2V issue 66 (float16) and modelscope/DiffSynth-Studio issue 300
 * (float32), 24 heads, 118,800 tokens of a video of 129 frames and those of a text, of which only
 * one number gives the size that is printed; huggingface/diffusers issue 9972 ("10TB" of
 * [2,48,247726,64]).  Two of them call 2^30 bytes a GB. */
#include <string.h>

#include "experiments/rim/studies/study.h"

struct report {
    const char *name;
    int64_t heads, tokens; /* heads of all batches */
    const char *dtype;
    int64_t size;
    double published, tolerance;
    int is_drawn;
};

static const struct report reports[] = {
    {"h3.c 67: 26,358 tokens, 56 heads, bf16", 56, 26358, "bf16", 2, 78e9, 0.5e9, 1},
    {"h3.c 67: 33,654 tokens, 56 heads, bf16", 56, 33654, "bf16", 2, 127e9, 0.5e9, 1},
    {"HunyuanVideo-I2V 66: 119,196 tokens, 24 heads, f16", 24, 119196, "f16", 2, 635.13 * 0x1p30,
     0.005 * 0x1p30, 1},
    {"DiffSynth-Studio 300: 118,871 tokens, 24 heads, f32", 24, 118871, "f32", 4, 1263.35 * 0x1p30,
     0.005 * 0x1p30, 1},
    {"diffusers 9972: 247,726 tokens, 2 x 48 heads, bf16", 96, 247726, "bf16", 2, 10 * 0x1p40,
     0x1p40, 0},
};

static void account(struct attn_study_run *run, const struct report *x)
{
    const char *text = attn_study_text(run, "h%lldq%lldd64:none:%s:normal:s1", (long long)x->heads,
                                       (long long)x->tokens, x->dtype);
    struct attn_tape tape = {.owner = &run->owner};
    attn_tape_take(&tape, "scores", "q k^T, stored", x->heads * x->tokens * x->tokens, x->size);
    if (x->is_drawn)
        attn_study_place(run, strchr(x->name, ':') + 2, 0);
    attn_study_peak(&tape, x->name, ATTN_PUBLISHED, x->published, x->tolerance);
    attn_study_quantity(run, "  the same in attnlab price dense:scores=storage", ATTN_DERIVED,
                        (double)tape.ledger.peak,
                        (double)attn_study_buffer(run, "dense:scores=storage", text, "scores"), "B",
                        0);
    attn_study_say(run, "  tiles need %lld bytes in the place of it",
                   (long long)attn_study_price(run, "tiled@portable", text).price.peak);
}

void attn_study_run_eager_scores(struct attn_study_run *run)
{
    for (size_t r = 0; r < sizeof reports / sizeof *reports; r++)
        account(run, &reports[r]);
    attn_study_measure(run, "dense:scores=storage", "h4q384d64:none:bf16:normal:s1", NULL);
}
