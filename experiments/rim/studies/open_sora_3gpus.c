/* Sizes that do not divide: 16 frames and 16 heads on 3 and on 6 ranks.
 *
 * Source: hpcaitech/Open-Sora issues 270 (the assertion d_t % sp_size), 904 (six ranks), and
 * opensora/acceleration/communications.py v1.2.0. */
#include <string.h>

#include "experiments/rim/studies/study.h"

/* torch.tensor_split(n, parts)[which]: the first n % parts are larger by one. */
static int64_t tensor_split(int64_t n, int parts, int which)
{
    return n / parts + (which < n % parts);
}

enum { HEADS = 16, DIM = 72, ROWS = 30 * 600 };

/* Heads of all receive buffers on a rank: each is made like the first chunk. */
static int64_t heads_received(int ranks)
{
    int64_t heads = 0;
    for (int r = 0; r < ranks; r++)
        heads += tensor_split(HEADS, ranks, 0); /* torch.empty_like(chunks[0]) */
    return heads;
}

static int64_t heads_sent(int ranks)
{
    int64_t heads = 0;
    for (int r = 0; r < ranks; r++)
        heads += tensor_split(HEADS, ranks, r);
    return heads;
}

/* A head count that six ranks do not divide: what all_to_all of [30, 600, 16 heads of 72] gives. */
static void issue_904(struct attn_study_run *run)
{
    attn_study_say(run, "Six ranks share 16 heads as 3 3 3 3 2 2, but every receive buffer is made "
                        "like the first chunk: 6 x 3 = 18 heads arrive, two of them garbage, and "
                        "the reshape to 16 x 72 = 1152 channels fails.");
    attn_study_quantity(run, "elements after the exchange (the message of issue 904)",
                        ATTN_PUBLISHED, 23328000, (double)(ROWS * heads_received(6) * DIM),
                        "elements", 0);
    attn_study_quantity(run, "elements that [30, 600, 1152] has", ATTN_PUBLISHED, 30 * 600 * 1152,
                        (double)(ROWS * heads_sent(6) * DIM), "elements", 0);
    for (int R = 1; R <= HEADS; R++) {
        attn_study_place(run, "heads that arrive", R);
        attn_study_quantity(run, attn_study_text(run, "heads that arrive on each of %d ranks", R),
                            ATTN_DERIVED, (HEADS + R - 1) / R * R, (double)heads_received(R),
                            "heads", 0);
        attn_study_place(run, "heads that there are", R);
        attn_study_quantity(run, "heads that were sent", ATTN_DERIVED, HEADS, (double)heads_sent(R),
                            "heads", 0);
    }
}

/* The list form of all_to_all holds four times the local tensor. */
static void list_form(struct attn_study_run *run)
{
    enum { RANKS = 4, LOCAL = 600 * 1152, ELEMENT = 2 };
    struct attn_tape tape = {.owner = &run->owner};
    attn_tape_take(&tape, "input", "the local tensor", LOCAL, ELEMENT);
    for (int r = 0; r < RANKS; r++)
        attn_tape_take(&tape, "chunk", "tensor_split(...).contiguous()", LOCAL / RANKS, ELEMENT);
    for (int r = 0; r < RANKS; r++)
        attn_tape_take(&tape, "received", "empty_like(chunks[0])", LOCAL / RANKS, ELEMENT);
    attn_tape_take(&tape, "output", "torch.cat(received)", LOCAL, ELEMENT);
    attn_study_peak(&tape, "memory of all_to_all as a list: four times the local tensor",
                    ATTN_DERIVED, 4.0 * LOCAL * ELEMENT, 0);
}

/* Which numbers of ranks the framework's rule allows, asked of our strict form of its scheme. */
static void which_ranks(struct attn_study_run *run, int frames)
{
    char list[64] = "";
    const char *text =
        attn_study_text(run, "h16q%dd8:spatial(%d,4,4):f32:normal:s1", frames * 16, frames);
    int differ = 0;
    for (int ranks = 2; ranks <= 16; ranks++) {
        char spec[96];
        snprintf(spec, sizeof spec, "video:ranks=%d,home=frames,exchange=always,sizes=strict",
                 ranks);
        int runs = attn_study_accepts(spec, text);
        differ += runs != (frames % ranks == 0 && HEADS % ranks == 0);
        if (runs)
            snprintf(list + strlen(list), sizeof list - strlen(list), " %d", ranks);
    }
    attn_study_quantity(
        run,
        attn_study_text(run, "of 2 to 16 ranks run%s; ranks where the code's rule differs",
                        list[0] != '\0' ? list : " none"),
        ATTN_DERIVED, 0, differ, "", 0);
}

void attn_study_run_open_sora_3gpus(struct attn_study_run *run)
{
    attn_study_say(run, "Three ranks stop at the assertion d_t %% sp_size == 0.  \"Use an even "
                        "number\" does not help: 6, 10, 12 and 14 are even, and divide neither 16 "
                        "frames nor 16 heads.");
    which_ranks(run, 16);
    attn_study_say(run,
                   "\"Use 15 frames\" passes the assertion on 3 ranks, and fails at the heads: "
                   "of 15 frames and 16 heads no number of ranks but 1 divides both.");
    which_ranks(run, 15);
    issue_904(run);
    list_form(run);
    attn_study_say(run, "Nothing forbids sizes that differ by one.  The same scheme on 3 and on 6 "
                        "ranks, dealt out unevenly:");
    attn_study_measure(run, "video:ranks=3,home=frames,exchange=always",
                       "h16q256d8:spatial(16,4,4):f32:normal:s1", NULL);
    attn_study_measure(run, "ulysses:ranks=6", "h16q600d72:none:f32:normal:s1", NULL);
}
