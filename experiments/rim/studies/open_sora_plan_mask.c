/* A padding mask that is repeated for sequence parallelism, and what it becomes inside attention.
 *
 * Source: PKU-YuanGroup/Open-Sora-Plan issue 373, opensora/utils/communications.py v1.2.0
 * (prepare_parallel_data) and get_attention_mask of its NPU path. */
#include "experiments/cli/cli.h"
#include "experiments/rim/studies/study.h"

/* A video of 93 frames of 480 x 640 behind a causal VAE that divides by 4, 8, 8. */
enum { T = (93 - 1) / 4 + 1, H = 480 / 8, W = 640 / 8, ELEMENTS = T * H * W };
enum { TOKENS = T * (H / 2) * (W / 2) }; /* max_pool3d(1, 2, 2) */

/* One rank's mask of so many elements on its way to all ranks.  On real tapes, the part for each
 * rank is filled as repeat() would, and the masks of all ranks arrive with their labels. */
static void prepare_parallel_data(struct attn_tape *tape, int64_t elements, int64_t ranks)
{
    float *repeated =
        attn_tape_take(tape, "repeated", "mask.repeat(1, R, 1, 1)", ranks * elements, 4);
    for (int64_t n = 0; repeated != NULL && n < ranks * elements; n++)
        repeated[n] = (float)(n % elements);
    float *received =
        attn_tape_take(tape, "received", "all_to_all: R masks, all of each", ranks * elements, 4);
    for (int64_t n = 0; received != NULL && repeated != NULL && n < ranks * elements; n++)
        received[n] = (float)(n / elements) * 1000 + repeated[n % elements]; /* rank's label */
}

/* The exchange run for real: what arrives is every rank's whole mask, which is an all-gather. */
static void at_small_size(struct attn_study_run *run)
{
    enum { RANKS = 4, SMALL = 96 };
    struct attn_pair pair;
    int64_t wrong = RANKS * SMALL;
    attn_pair_open(&pair, &run->owner);
    prepare_parallel_data(&pair.real, SMALL, RANKS);
    prepare_parallel_data(&pair.counted, SMALL, RANKS);
    attn_study_same("the exchange run for real, 4 ranks, 96 elements", &pair);
    const float *received = pair.real.n == 2 ? pair.real.block[1].data : NULL;
    for (int64_t n = 0; received != NULL && n < RANKS * SMALL; n++)
        wrong -= received[n] == (float)(n / SMALL * 1000 + n % SMALL);
    attn_study_quantity(run, "elements that an all-gather would have given otherwise", ATTN_DERIVED,
                        0, (double)wrong, "elements", 0);
    attn_pair_close(&pair);
}

/* The same for videos of other lengths, and the boolean [L, L] that it becomes. */
static void other_lengths(struct attn_study_run *run)
{
    char grouped[32];
    for (int64_t L = TOKENS / 16; L <= 4 * TOKENS; L *= 4) {
        struct attn_tape tape = {.owner = &run->owner};
        tape.is_brief = 1;
        prepare_parallel_data(&tape, 4 * L, 8);
        attn_study_place(run, "repeated and exchanged, 8 ranks", (double)L);
        attn_study_peak(
            &tape, attn_study_text(run, "%s tokens: the exchange", attn_cli_grouped(L, grouped)),
            ATTN_DERIVED, 2.0 * 8 * 4 * 4 * (double)L, 0);
        attn_study_place(run, "an all-gather, 8 ranks", (double)L);
        attn_study_quantity(run, "buffers of an all-gather", ATTN_DERIVED,
                            (double)tape.ledger.peak * 9 / 16, (1 + 8) * 4 * 4 * (double)L, "B", 0);
        const char *text = attn_study_text(run, "q%lldd64:keys(%lld):f32:normal:s1", (long long)L,
                                           (long long)(L / 2));
        attn_study_place(run, "boolean [L, L] of one sample", (double)L);
        attn_study_quantity(run, "the boolean [L, L]", ATTN_DERIVED, (double)L * (double)L,
                            (double)attn_study_buffer(run, "dense:mask=bool2d", text, "mask"), "B",
                            0);
    }
}

void attn_study_run_open_sora_plan_mask(struct attn_study_run *run)
{
    struct attn_tape tape;
    attn_study_quantity(run, "elements of the mask on the latent grid (1, 24, 60, 80)",
                        ATTN_PUBLISHED, 115200, ELEMENTS, "elements", 0);
    attn_study_quantity(run, "tokens after pooling by (1, 2, 2)", ATTN_DERIVED, 28800, TOKENS,
                        "tokens", 0);
    attn_study_say(run, "The all-to-all that cuts latents into frames would cut the mask too, but "
                        "inside attention a rank sees all tokens and needs all of the mask.  So "
                        "the mask is repeated R times before.  That is an all-gather written as an "
                        "all-to-all: the send buffer is R times what it need be.  It does not "
                        "avoid full masks on the ranks, as an article says; it makes them.");
    tape = (struct attn_tape){.owner = &run->owner};
    prepare_parallel_data(&tape, ELEMENTS, 8);
    attn_study_peak(&tape, "buffers of the exchange, 8 ranks, float32", ATTN_DERIVED,
                    2 * 8 * 115200 * 4, 0);
    attn_study_quantity(run, "of it, to send", ATTN_DERIVED, 3.69e6, 8.0 * ELEMENTS * 4, "B", 5e3);
    attn_study_quantity(run, "what an all-gather sends from", ATTN_DERIVED, 460800, ELEMENTS * 4.0,
                        "B", 0);
    attn_study_quantity(run, "buffers of an all-gather", ATTN_DERIVED, 9 * 460800,
                        ELEMENTS * 4.0 + 8 * ELEMENTS * 4.0, "B", 0);
    at_small_size(run);
    attn_study_say(run, "Expanded over queries to a boolean [L, L], the same mask is quadratic:");
    attn_study_quantity(run, "the dense boolean mask of one sample, L=28,800", ATTN_DERIVED,
                        829440000,
                        (double)attn_study_buffer(run, "dense:mask=bool2d",
                                                  "q28800d64:keys(20000):f32:normal:s1", "mask"),
                        "B", 0);
    attn_study_quantity(
        run, "what tiled holds of it: its word keys(20000) and no object", ATTN_DERIVED, 0,
        (double)attn_study_buffer(run, "tiled", "q28800d64:keys(20000):f32:normal:s1", "mask"), "B",
        0);
    other_lengths(run);
    attn_study_measure(run, "dense:mask=bool2d", "q288d64:keys(200):f32:normal:s1", NULL);
    attn_study_measure(run, "tiled", "q288d64:keys(200):f32:normal:s1", NULL);
}
