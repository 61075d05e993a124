/* expand_mask_4d of Open-Sora's first code, which is said to ask for 720 GB.
 *
 * Source: hpcaitech/Open-Sora issue 70 (2024-03-15), open_sora/utils/data.py and
 * open_sora/modeling/dit/dit.py at commit 0a4a0918.  The issue gives no configuration: batch 5 and
 * length 196,608 are the only whole numbers near "200k" that give 720 GiB exactly. */
#include <stdio.h>

#include "experiments/cli/cli.h"
#include "experiments/studies/storage.h"

static const double GIB = 1024.0 * 1024 * 1024;

/* Padding of so many clips: the mask as attnlab says it.  Each of these storages is played as the
 * code makes it (storage.c). */
static void open_padding(struct attn_stored_text *x, int64_t batch, int64_t length,
                         const char *text)
{
    const struct attn_mask_shape shape = {batch, 16, length, length};
    struct attn_error err = {ATTN_OK, ""};
    if (attn_stored_text_open(text, &shape, x, &err) != ATTN_OK)
        attn_cli_need(NULL);
}

static void play(struct attn_tape *tape, const struct attn_stored_text *x, const char *storage)
{
    attn_storage_find(storage)->make(tape, &x->stored);
}

/* All of them, for real: the bytes on a ledger are those of a counted tape, and the values are
 * right. */
static void at_small_size(struct attn_study_run *run)
{
    static const char *const storage[][2] = {{"int32", "expand_mask_4d run for real, B=3, L=96"},
                                             {"float32", "_prepare_mask run for real in float32"},
                                             {"bf16", "_prepare_mask run for real in 16 bits"},
                                             {"vectors", "two vectors"}};
    struct attn_stored_text x;
    open_padding(&x, 3, 96, "keys(96,80,64)");
    for (int s = 0; s < 4; s++) {
        struct attn_ledger ledger;
        struct attn_tape real, counted;
        attn_ledger_init(&ledger, NULL);
        attn_tape_open(&real, run, &ledger);
        attn_tape_open(&counted, run, NULL);
        play(&real, &x, storage[s][0]);
        play(&counted, &x, storage[s][0]);
        attn_study_same(storage[s][1], &real, &counted);
        if (!real.is_cut)
            attn_study_quantity(
                run, "its elements that are not what the padding says", ATTN_DERIVED, 0,
                (double)attn_storage_wrong(attn_storage_find(storage[s][0]), &real, &x.stored),
                "elements", 0);
        attn_ledger_clear(&ledger);
    }
    attn_stored_text_close(&x);
}

static void mask_at_full_size(struct attn_study_run *run)
{
    const double survivor = 720 * GIB, each = 5.0 * 196608 * 196608;
    struct attn_stored_text x;
    struct attn_tape tape;
    open_padding(&x, 5, 196608, "keys(196608)");
    attn_study_say(run, "The mask is int32 and has one head: [B, 1, L, L].  At batch 5 and length "
                        "196,608 the function holds two such objects at once.");
    attn_tape_open(&tape, run, NULL);
    play(&tape, &x, "int32");
    attn_study_place(run, "expand_mask_4d", 0);
    attn_study_peak(&tape, "peak of expand_mask_4d, B=5, L=196,608", ATTN_DERIVED, 2 * survivor, 0);
    attn_study_quantity(run, "what it returns, against the 720 GB of issue 70", ATTN_INFERRED,
                        survivor, (double)tape.now, "B", 0);
    attn_tape_open(&tape, run, NULL);
    play(&tape, &x, "bf16");
    attn_study_place(run, "_prepare_mask, 16 bits", 0);
    attn_study_peak(&tape, "peak of _prepare_mask in 16 bits: 11 B a pair", ATTN_DERIVED, 11 * each,
                    0);
    attn_tape_open(&tape, run, NULL);
    play(&tape, &x, "float32");
    attn_study_place(run, "_prepare_mask, float32", 0);
    attn_study_peak(&tape, "peak of _prepare_mask in float32: 17 B a pair", ATTN_DERIVED, 17 * each,
                    0);
    attn_study_say(run, "The same information in two vectors, multiplied where a pair is needed:");
    attn_tape_open(&tape, run, NULL);
    play(&tape, &x, "vectors");
    attn_study_place(run, "two vectors", 0);
    attn_study_peak(&tape, "two vectors instead of the mask", ATTN_DERIVED, 7864320, 0);
    attn_stored_text_close(&x);
}

/* The estimate that circulates: 8 heads, float32, L = 200,000. */
static void heads_that_are_not_there(struct attn_study_run *run)
{
    struct attn_stored_text x;
    struct attn_tape tape;
    struct attn_point point;
    attn_study_say(run,
                   "Articles say 8 heads x 200,000 x 200,000 x 4 B = 1.28 TB.  The mask has no "
                   "axis of heads, so the code keeps an eighth of that.  1.28 TB are the "
                   "scores that naive attention would hold, which is another object: this "
                   "code had scaled_dot_product_attention and never made it.");
    open_padding(&x, 1, 200000, "keys(200000)");
    attn_tape_open(&tape, run, NULL);
    play(&tape, &x, "int32");
    attn_stored_text_close(&x);
    attn_study_live(&tape, "the mask that is kept at B=1, L=200,000", ATTN_DERIVED, 1.28e12 / 8, 0);
    if (attn_study_price(run, "gemm:save=probs@portable", "h8q200000d64:none:f32:normal:s1",
                         &point))
        attn_study_quantity(run, "P that training with naive attention keeps, 8 heads",
                            ATTN_PUBLISHED, 1.28e12, (double)point.saved_bytes, "B", 1e9);
}

/* What the article recommends, each by its spec, at the shape of STDiT-XL/2: what it leaves beside
 * inputs and outputs.  Where that is at most linear, it is on the line through its prices at half
 * and at a quarter of the length; else it is known in closed form. */
static const char WINDOW[] = "causal(br)&window(511,0,br)";

static double left(struct attn_study_run *run, const char *spec, const char *mask,
                   const char *dtype, int64_t length)
{
    struct attn_point point;
    char text[128];
    snprintf(text, sizeof text, "h16q%lldd72:%s:%s:normal:s1", (long long)length, mask, dtype);
    return attn_study_price(run, spec, text, &point) ? (double)point.priced_bytes : -1;
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
    char name[128];
    double none = 0;
    attn_study_say(run, "What each remedy leaves at L=200,000, 16 heads of 72, forward, beside "
                        "inputs and outputs:");
    for (size_t r = 0; r < sizeof remedy / sizeof *remedy; r++) {
        double at[3], must = remedy[r].must;
        for (int n = 0; n < 3; n++)
            at[n] = left(run, remedy[r].spec, remedy[r].mask, remedy[r].dtype, 50000 << n);
        if (must == 0)
            must = at[1] + 2 * (at[1] - at[0]);
        none = r == 0 ? at[2] : none;
        snprintf(name, sizeof name, "%s (%s), %.3g times less", remedy[r].what, remedy[r].spec,
                 none / at[2]);
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
    attn_study_say(run, "What Open-Sora did is none of these: its next model has no mask between "
                        "video tokens at all (commit 2f87a9a, the day of the issue).");
}

/* 200,000 tokens, computed, and checked on sampled rows. */
static void really_computed(struct attn_study_run *run)
{
    static const struct {
        const char *spec, *mask;
    } one[] = {{"tiled", "none"}, {"csr", WINDOW}};
    char text[128], bytes[32];
    struct attn_point point;
    for (int r = 0; r < 2; r++) {
        snprintf(text, sizeof text, "q8192d64:%s:f32:normal:s1", one[r].mask);
        if (!attn_study_measure(run, one[r].spec, text, &point))
            continue;
        double scale = 200000.0 / 8192;
        attn_study_say(run, "%s at L=200,000, one head%s: about %.0f s here.", one[r].spec,
                       r == 1 ? " under a window of 512" : "",
                       point.first_s * scale * (r == 0 ? scale : 1) + 5);
        if (!run->is_long)
            continue;
        fflush(run->out);
        snprintf(text, sizeof text, "q200000d64:%s:f32:normal:s1", one[r].mask);
        if (attn_study_measure(run, one[r].spec, text, &point))
            attn_study_say(run, "It took %.1f s, and its resident set grew by %s.", point.first_s,
                           attn_cli_bytes(point.resident_bytes, bytes));
    }
    if (!run->is_long)
        attn_study_say(run, "--long computes both.");
}

static void run_study(struct attn_study_run *run)
{
    mask_at_full_size(run);
    at_small_size(run);
    heads_that_are_not_there(run);
    remedies(run);
    checkpointing(run);
    really_computed(run);
}

const struct attn_study attn_study_open_sora_720gb = {
    .name = "open-sora-720gb",
    .question = "why did a mask ask for 720 GB at 200,000 tokens?",
    .run = run_study,
    .figure = {.title = "A mask of 5 clips of 196,608 tokens, while it is made and used",
               .remark = "int32, one head; the vectors that say the same are 7.5 MiB"}};
