/* Who of those that are called "ring" really holds O(L/R) on a rank.
 *
 * Source: Liu et al. 2023 (arXiv 2310.01889); zhuzilin/ring-flash-attention; Llama Team 2024,
 * section 3.3.2; and implementations that keep a buffer for each block that they receive. */
#include "experiments/studies/study.h"

enum { LENGTH = 1 << 20 };
static const char TEXT[] = "q1048576d64:causal(br):f32:normal:s1";

static int64_t buffer_bytes(struct attn_study_run *run, const char *scheme, int ranks,
                            const char *buffer)
{
    return attn_study_buffer(run, attn_study_text(run, "%s:ranks=%d", scheme, ranks), TEXT, buffer);
}

/* A ring that receives into fresh buffers and gives none back.  As a price does, it leaves out the
 * rank's own block. */
static void ring_of_receives(struct attn_tape *tape, int64_t block, int ranks)
{
    for (int r = 1; r < ranks; r++)
        attn_tape_take(tape, "received k v", "torch.empty_like for each hop", 2 * block, 4);
}

void attn_study_run_ring_buffers(struct attn_study_run *run)
{
    struct attn_tape tape;
    attn_study_say(run, "One head of 64 features, 1,048,576 tokens, float32: K and V together are "
                        "512 MiB.  Counted is what a rank has of them beside its own block.  A "
                        "ring passes them on through two buffers of a block each:");
    for (int ranks = 4; ranks <= 64; ranks *= 4) {
        attn_study_place(run, "ring: two buffers", ranks);
        attn_study_quantity(
            run, attn_study_text(run, "ring on %d ranks: two buffers for K, V on a rank", ranks),
            ATTN_DERIVED, 2.0 * 2 * LENGTH / ranks * 64 * 4,
            (double)buffer_bytes(run, "ring", ranks, "kv.travel"), "B", 0);
    }
    attn_study_say(run,
                   "All-gather holds all of them on every rank, whatever R is.  Some code that "
                   "is called \"ring\" or \"context parallel\" does this:");
    for (int ranks = 4; ranks <= 64; ranks *= 4) {
        attn_study_place(run, "all-gather", ranks);
        attn_study_quantity(run,
                            attn_study_text(run, "allgather on %d ranks: K, V on a rank", ranks),
                            ATTN_DERIVED, 2.0 * LENGTH * 64 * 4,
                            (double)(buffer_bytes(run, "allgather", ranks, "k.all") +
                                     buffer_bytes(run, "allgather", ranks, "v.all")),
                            "B", 0);
    }
    attn_study_say(
        run,
        "A ring with a fresh buffer for each hop holds all of them but that block in the end:");
    for (int ranks = 4; ranks <= 64; ranks *= 4) {
        tape = (struct attn_tape){.run = run};
        tape.is_brief = ranks > 4;
        ring_of_receives(&tape, (int64_t)LENGTH / ranks * 64, ranks);
        attn_study_place(run, "ring: a buffer for each hop", ranks);
        attn_study_peak(
            &tape, attn_study_text(run, "ring with a receive buffer for each hop, %d ranks", ranks),
            ATTN_DERIVED, 2.0 * (LENGTH - LENGTH / ranks) * 64 * 4, 0);
    }
    attn_study_say(run, "Both run for real, small:");
    attn_study_measure(run, "ring:ranks=4", "q256d64:causal(br):f32:normal:s1", NULL);
    attn_study_measure(run, "allgather:ranks=4", "q256d64:causal(br):f32:normal:s1", NULL);
}
