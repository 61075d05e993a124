/* expand_mask_4d of Open-Sora's first code, which is said to ask for 720 GB.
 *
 * Source: hpcaitech/Open-Sora issue 70 (2024-03-15), open_sora/utils/data.py and
 * open_sora/modeling/dit/dit.py at commit 0a4a0918.  The issue gives no configuration: batch 5 and
 * length 196,608 are the only whole numbers near "200k" that give 720 GiB exactly. */
#include <stdio.h>

#include "experiments/rim/studies/study.h"

static const double GIB = 1024.0 * 1024 * 1024;

/* Of five clips of 196,608 tokens, each as the code makes it (storage.c). */
static void mask_at_full_size(struct attn_study_run *run)
{
    static const struct attn_mask_shape shape = {5, 16, 196608, 196608};
    static const double PAIRS = 5.0 * 196608 * 196608;
    static const struct {
        const char *storage, *bar, *name;
        double bytes;
    } of[] = {
        {"int32", "expand_mask_4d", "peak of expand_mask_4d, B=5, L=196,608", 2 * 4 * PAIRS},
        {"bf16", "_prepare_mask, 16 bits", "peak of _prepare_mask in 16 bits: 11 B a pair",
         11 * PAIRS},
        {"float32", "_prepare_mask, float32", "peak of _prepare_mask in float32: 17 B a pair",
         17 * PAIRS},
        {"vectors", "two vectors", "two vectors that say the same", 7864320},
    };
    attn_study_say(run, "The mask is int32 and has one head: [B, 1, L, L].  At batch 5 and length "
                        "196,608 the function holds two such objects at once.");
    for (int s = 0; s < 4; s++) {
        struct attn_tape tape = {.owner = &run->owner};
        attn_study_store(&tape, of[s].storage, "keys(196608)", &shape);
        attn_study_place(run, of[s].bar, 0);
        attn_study_peak(&tape, of[s].name, ATTN_DERIVED, of[s].bytes, 0);
        if (s == 0)
            attn_study_quantity(run, "what it returns, against the 720 GB of issue 70",
                                ATTN_INFERRED, 720 * GIB, (double)tape.ledger.now, "B", 0);
    }
}

/* All of them, for real: the bytes on a ledger are those of a counted tape, and the values are
 * right. */
static void at_small_size(struct attn_study_run *run)
{
    static const struct attn_mask_shape shape = {3, 16, 96, 96};
    static const char *const of[][2] = {{"int32", "expand_mask_4d run for real, B=3, L=96"},
                                        {"float32", "_prepare_mask run for real in float32"},
                                        {"bf16", "_prepare_mask run for real in 16 bits"},
                                        {"vectors", "two vectors"}};
    for (int s = 0; s < 4; s++) {
        struct attn_pair pair;
        attn_study_store_both(run, &pair, of[s][1], of[s][0], "keys(96,80,64)", &shape);
        attn_pair_close(&pair);
    }
}

/* The estimate that circulates: 8 heads, float32, L = 200,000. */
static void heads_that_are_not_there(struct attn_study_run *run)
{
    static const struct attn_mask_shape shape = {1, 8, 200000, 200000};
    struct attn_tape tape;
    const struct attn_point point =
        attn_study_price(run, "gemm:save=probs@portable", "h8q200000d64:none:f32:normal:s1");
    attn_study_say(run,
                   "Articles say 8 heads x 200,000 x 200,000 x 4 B = 1.28 TB.  The mask has no "
                   "axis of heads, so the code keeps an eighth of that.  1.28 TB are the "
                   "scores that naive attention would hold, which is another object: this "
                   "code had scaled_dot_product_attention and never made it.");
    tape = (struct attn_tape){.owner = &run->owner};
    attn_study_store(&tape, "int32", "keys(200000)", &shape);
    attn_study_live(&tape, "the mask that is kept at B=1, L=200,000", ATTN_DERIVED, 1.28e12 / 8, 0);
    attn_study_quantity(run, "P that training with naive attention keeps, 8 heads", ATTN_PUBLISHED,
                        1.28e12, (double)point.price.saved, "B", 1e9);
}

/* The article's recommendations, each by its spec, at the shape of STDiT-XL/2: the bytes beside
 * inputs and outputs.  Where that is at most linear, it is on the line through its prices at half
 * and at a quarter of the length; else it is known in closed form. */
static const char WINDOW[] = "causal(br)&window(511,0,br)";

static double left(struct attn_study_run *run, const char *spec, const char *mask,
                   const char *dtype, int64_t length)
{
    const char *text =
        attn_study_text(run, "h16q%lldd72:%s:%s:normal:s1", (long long)length, mask, dtype);
    return (double)attn_study_price(run, spec, text).price.peak;
}

static void remedies(struct attn_study_run *run)
{
    static const struct {
        const char *what, *spec, *mask, *dtype;
        double must; /* 0: the line */
    } remedy[] = {
        {"none: every score, and P", "dense", "none", "f32", 8 * 16 * 4e10},
        {"16-bit storage: scores stay float32", "dense", "none", "bf16", 8 * 16 * 4e10},
        {"chunks of queries and keys", "chunked@portable", "none", "f32", 0},
        {"tiles and online softmax", "tiled@portable", "none", "f32", 0},
        {"a window of 512 keys, as CSR", "csr@portable", WINDOW, "f32", 0},
        {"a window of 512 keys, tiled", "tiled@portable", WINDOW, "f32", 0},
    };
    double none = 0;
    attn_study_say(run, "Left by each remedy at L=200,000, 16 heads of 72, forward, beyond "
                        "inputs and outputs:");
    for (size_t r = 0; r < sizeof remedy / sizeof *remedy; r++) {
        double at[3], must = remedy[r].must;
        for (int n = 0; n < 3; n++)
            at[n] = left(run, remedy[r].spec, remedy[r].mask, remedy[r].dtype, 50000 << n);
        if (must == 0)
            must = at[1] + 2 * (at[1] - at[0]);
        none = r == 0 ? at[2] : none;
        const char *name = attn_study_text(run, "%s (%s), %.3g times less", remedy[r].what,
                                           remedy[r].spec, none / at[2]);
        attn_study_quantity(run, name, ATTN_DERIVED, must, at[2], "B", 0.001 * must);
    }
}

/* The fifth remedy changes what 28 layers keep between the passes, and not what one call holds. */
static void checkpointing(struct attn_study_run *run)
{
    static const char TEXT[] = "h16q200000d72:none:f32:normal:s1";
    const double P = 4 * 16 * 4e10, tensor = 4 * 16 * 72 * 2e5, lse = 4 * 16 * 2e5;
    attn_study_say(run, "Checkpointing changes what 28 layers keep between the passes:");
    attn_study_quantity(run, "all of it: P, q k v o and LSE of 28 layers", ATTN_DERIVED,
                        28 * (P + 4 * tensor + lse),
                        attn_study_saved(run, "gemm:save=probs@portable", TEXT, 28, "probs"), "B",
                        0.001 * 28 * P);
    attn_study_quantity(run, "checkpointed: q k v of 28 layers", ATTN_DERIVED, 28 * 3 * tensor,
                        attn_study_saved(run, "gemm:save=probs@portable", TEXT, 28, "inputs"), "B",
                        0);
    attn_study_quantity(run, "tiled without checkpointing: q k v o and LSE of 28 layers",
                        ATTN_DERIVED, 28 * (4 * tensor + lse),
                        attn_study_saved(run, "tiled@portable", TEXT, 28, "rows"), "B", 0);
    attn_study_say(run, "But while it computes one layer it still holds that layer's P, 2.33 TiB.  "
                        "And none of the five touches the mask, which is what was too large.");
    attn_study_say(run, "Open-Sora did none of these: its next model has no mask between "
                        "video tokens at all (commit 2f87a9a, the day of the issue).");
}

/* 200,000 tokens, computed, and checked on sampled rows. */
static void really_computed(struct attn_study_run *run)
{
    static const struct {
        const char *spec, *mask;
    } one[] = {{"tiled", "none"}, {"csr", WINDOW}};
    struct attn_point point;
    for (int r = 0; r < 2; r++) {
        if (!attn_study_measure(run, one[r].spec,
                                attn_study_text(run, "q8192d64:%s:f32:normal:s1", one[r].mask),
                                &point))
            continue;
        double scale = 200000.0 / 8192;
        attn_study_say(run, "%s at L=200,000, one head%s: about %.0f s here.", one[r].spec,
                       r == 1 ? " under a window of 512" : "",
                       point.first_s * scale * (r == 0 ? scale : 1) + 5);
        attn_study_measure_long(run, one[r].spec,
                                attn_study_text(run, "q200000d64:%s:f32:normal:s1", one[r].mask));
    }
    if (!run->is_long)
        attn_study_say(run, "--long computes both.");
}

void attn_study_run_open_sora_720gb(struct attn_study_run *run)
{
    mask_at_full_size(run);
    at_small_size(run);
    heads_that_are_not_there(run);
    remedies(run);
    checkpointing(run);
    really_computed(run);
}
