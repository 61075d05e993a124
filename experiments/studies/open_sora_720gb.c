/* expand_mask_4d of Open-Sora's first code, which is said to ask for 720 GB.
 *
 * Source: hpcaitech/Open-Sora issue 70 (2024-03-15), open_sora/utils/data.py and
 * open_sora/modeling/dit/dit.py at commit 0a4a0918.  The issue gives no configuration: batch 5 and
 * length 196,608 are the only whole numbers near "200k" that give 720 GiB exactly. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/studies/study.h"

static const double GIB = 1024.0 * 1024 * 1024;

struct size {
    int64_t batch, length;
};

/* Padding masks, 1 where a token is real: those of a batch whose samples get shorter. */
static int32_t *padding(const struct size *s)
{
    int32_t *mask = attn_cli_need(calloc((size_t)(s->batch * s->length), sizeof *mask));
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->length - b * s->length / (2 * s->batch); i++)
            mask[b * s->length + i] = 1;
    return mask;
}

/* expand_mask_4d(q_mask, kv_mask) -> [B, 1, L, L], int32.  Leaves the product live. */
static void expand_mask_4d(struct attn_tape *tape, const struct size *s, const int32_t *mask)
{
    int64_t L = s->length, pairs = s->batch * L * L;
    int32_t *repeated =
        attn_tape_take(tape, "repeated", "kv_mask.unsqueeze(1).repeat(1, Sq, 1)", pairs, 4);
    for (int64_t n = 0; repeated != NULL && n < s->batch * L; n++)
        memcpy(repeated + n * L, mask + n / L * L, (size_t)L * sizeof *mask);
    int32_t *product = attn_tape_take(tape, "product", "q_mask.unsqueeze(-1) * repeated", pairs, 4);
    for (int64_t n = 0; product != NULL && repeated != NULL && n < pairs; n++)
        product[n] = mask[n / L] * repeated[n];
    attn_tape_give(tape, "repeated");
}

/* What attention does with it: 0 where a pair is visible, the least finite number elsewhere.  The
 * batch still holds the product.  A real tape computes in float32. */
static void prepare_mask(struct attn_tape *tape, const struct size *s, int64_t element,
                         const int32_t *product)
{
    int64_t pairs = s->batch * s->length * s->length;
    float *cast = attn_tape_take(tape, "cast", "mask.to(dtype)", pairs, element);
    float *inverse = attn_tape_take(tape, "inverse", "1.0 - mask", pairs, element);
    char *hidden = attn_tape_take(tape, "hidden", "inverse.to(torch.bool)", pairs, 1);
    float *filled =
        attn_tape_take(tape, "filled", "inverse.masked_fill(hidden, min)", pairs, element);
    for (int64_t n = 0; filled != NULL && n < pairs; n++) {
        cast[n] = (float)product[n];
        inverse[n] = 1 - cast[n];
        hidden[n] = inverse[n] != 0;
        filled[n] = hidden[n] ? -FLT_MAX : inverse[n];
    }
}

/* Both, for real: the bytes on a ledger are those of a counted tape, and the values are right. */
static void at_small_size(struct attn_study_run *run)
{
    const struct size s = {3, 96};
    int64_t pairs = s.batch * s.length * s.length, wrong = 0;
    struct attn_ledger ledger;
    struct attn_tape real, counted;
    int32_t *mask = padding(&s);
    attn_ledger_init(&ledger, NULL);
    attn_tape_open(&real, run, &ledger);
    attn_tape_open(&counted, run, NULL);
    expand_mask_4d(&real, &s, mask);
    expand_mask_4d(&counted, &s, NULL);
    attn_study_same("expand_mask_4d run for real, B=3, L=96", &real, &counted);
    const int32_t *product = real.n > 0 ? real.block[0].data : NULL;
    for (int64_t n = 0; product != NULL && n < pairs; n++) {
        int64_t b = n / (s.length * s.length), i = n / s.length % s.length, j = n % s.length;
        wrong += product[n] != mask[b * s.length + i] * mask[b * s.length + j];
    }
    attn_study_quantity(run, "its elements that are not q_mask x kv_mask", ATTN_DERIVED, 0,
                        product != NULL ? (double)wrong : -1, "elements", 0);
    attn_tape_restart(&real);
    attn_tape_restart(&counted);
    if (product != NULL)
        prepare_mask(&real, &s, 4, product);
    prepare_mask(&counted, &s, 4, NULL);
    attn_study_same("_prepare_mask run for real in float32", &real, &counted);
    attn_ledger_clear(&ledger);
    free(mask);
}

static void mask_at_full_size(struct attn_study_run *run)
{
    const struct size s = {5, 196608};
    const double survivor = 720 * GIB, each = (double)s.batch * 196608 * 196608;
    struct attn_tape tape;
    attn_study_say(run, "The mask is int32 and has one head: [B, 1, L, L].  At batch 5 and length "
                        "196,608 the function holds two such objects at once.");
    attn_tape_open(&tape, run, NULL);
    expand_mask_4d(&tape, &s, NULL);
    attn_study_peak(&tape, "peak of expand_mask_4d, B=5, L=196,608", ATTN_DERIVED, 2 * survivor, 0);
    attn_study_quantity(run, "what it returns, against the 720 GB of issue 70", ATTN_INFERRED,
                        survivor, (double)tape.now, "B", 0);
    for (int64_t element = 2; element <= 4; element += 2) {
        attn_tape_restart(&tape);
        prepare_mask(&tape, &s, element, NULL);
        attn_study_peak(&tape,
                        element == 2 ? "peak of _prepare_mask in 16 bits: 11 B a pair"
                                     : "peak of _prepare_mask in float32: 17 B a pair",
                        ATTN_DERIVED, (element == 2 ? 11 : 17) * each, 0);
        for (int b = tape.n - 1; b > 0; b--)
            attn_tape_give(&tape, tape.block[b].name);
    }
    attn_study_say(run, "The same information in two vectors, multiplied where a pair is needed:");
    attn_tape_open(&tape, run, NULL);
    attn_tape_take(&tape, "q_mask", "pad_sequences()", s.batch * s.length, 4);
    attn_tape_take(&tape, "kv_mask", "pad_sequences()", s.batch * s.length, 4);
    attn_study_peak(&tape, "two vectors instead of the mask", ATTN_DERIVED, 7864320, 0);
}

/* The estimate that circulates: 8 heads, float32, L = 200,000. */
static void heads_that_are_not_there(struct attn_study_run *run)
{
    const struct size s = {1, 200000};
    struct attn_tape tape;
    struct attn_point point;
    attn_study_say(run,
                   "Articles say 8 heads x 200,000 x 200,000 x 4 B = 1.28 TB.  The mask has no "
                   "axis of heads, so the code keeps an eighth of that.  1.28 TB are the "
                   "scores that naive attention would hold, which is another object: this "
                   "code had scaled_dot_product_attention and never made it.");
    attn_tape_open(&tape, run, NULL);
    expand_mask_4d(&tape, &s, NULL);
    attn_study_quantity(run, "the mask that is kept at B=1, L=200,000", ATTN_DERIVED, 1.28e12 / 8,
                        (double)tape.now, "B", 0);
    if (attn_study_price(run, "gemm:save=probs@portable", "h8q200000d64:none:f32:normal:s1",
                         &point))
        attn_study_quantity(run, "P that training with naive attention keeps, 8 heads",
                            ATTN_PUBLISHED, 1.28e12, (double)point.saved_bytes, "B", 1e9);
}

/* What the article recommends, each by its spec, at the shape of STDiT-XL/2. */
static void remedies(struct attn_study_run *run)
{
    static const struct {
        const char *what, *spec, *mask, *dtype;
    } remedy[] = {
        {"none: every score at once", "dense", "none", "f32"},
        {"16-bit storage alone", "dense", "none", "bf16"},
        {"chunks of queries and keys", "chunked", "none", "f32"},
        {"tiles and online softmax", "tiled@portable", "none", "f32"},
        {"a window of 512 keys, as CSR", "csr@portable", "causal(br)&window(511,0,br)", "f32"},
        {"a window of 512 keys, tiled", "tiled@portable", "causal(br)&window(511,0,br)", "f32"},
    };
    char text[128], bytes[32];
    struct attn_point point;
    if (!run->as_json)
        fprintf(run->out, "What each remedy leaves at L=200,000, 16 heads of 72, forward, beside "
                          "inputs and outputs:\n\n");
    for (size_t r = 0; r < sizeof remedy / sizeof *remedy; r++) {
        snprintf(text, sizeof text, "h16q200000d72:%s:%s:normal:s1", remedy[r].mask,
                 remedy[r].dtype);
        if (attn_study_price(run, remedy[r].spec, text, &point) && !run->as_json)
            fprintf(run->out, "    %-32s %12s   (attnlab price %s)\n", remedy[r].what,
                    attn_cli_bytes(point.priced_bytes, bytes), remedy[r].spec);
    }
    run->in_list = 1;
    attn_study_say(run, "What Open-Sora did is none of these: its next model has no mask between "
                        "video tokens at all (commit 2f87a9a, the day of the issue).");
}

/* 200,000 tokens, computed, and checked on sampled rows. */
static void really_computed(struct attn_study_run *run)
{
    static const struct {
        const char *spec, *mask;
    } one[] = {{"tiled", "none"}, {"csr", "causal(br)&window(511,0,br)"}};
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
    really_computed(run);
}

const struct attn_study attn_study_open_sora_720gb = {
    "open-sora-720gb", "why did a mask ask for 720 GB at 200,000 tokens?", run_study};
