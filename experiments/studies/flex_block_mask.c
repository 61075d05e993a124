/* What FlexAttention's BlockMask costs at a million tokens.
 *
 * Source: torch/nn/attention/flex_attention.py (PyTorch 2.5): blocks of 128, int32 indices that are
 * dense in block space, and their transposes; pytorch issue 134756; attention-gym issues 32, 54. */
#include <stdio.h>

#include "experiments/cli/cli.h"
#include "experiments/price/storage.h"
#include "optimized/integers.h"

enum { BLOCK = 128, MILLION = 1000000 };

/* Blocks in a list of a real tape; -1 where there was no memory for it. */
static double count_listed(const struct attn_tape *tape, const char *name, int64_t rows)
{
    const int32_t *num = attn_tape_data(tape, name);
    double n = 0;
    for (int64_t r = 0; num != NULL && r < rows; r++)
        n += num[r];
    return num != NULL ? n : -1;
}

static void for_real(struct attn_study_run *run)
{
    enum { L = 500 }; /* four rows of blocks, the last one cut: padding makes it partial */
    static const struct attn_mask_shape shape = {1, 1, L, L};
    struct attn_pair pair;
    attn_study_store_both(run, &pair, "a BlockMask built for real, causal, L=500", "blocks",
                          "causal(br)", &shape);
    attn_study_quantity(run, "its partial blocks: the diagonal and the cut row", ATTN_DERIVED, 7,
                        count_listed(&pair.real, "kv_num_blocks", ceil_div(L, BLOCK)), "blocks", 0);
    attn_study_quantity(run, "its full blocks: below the diagonal", ATTN_DERIVED, 3,
                        count_listed(&pair.real, "full_kv_num_blocks", ceil_div(L, BLOCK)),
                        "blocks", 0);
    attn_pair_close(&pair);
}

/* bsr's lists in both directions: where each row and column of blocks begins, and the blocks. */
static void ours(struct attn_study_run *run, int64_t length)
{
    const double R = (double)ceil_div(length, BLOCK);
    const struct {
        const char *mask, *curve;
        double listed;
    } of[] = {{"causal(br)", "bsr: causal", R * (R + 1) / 2},
              {"causal(br)&window(511,0,br)", "bsr: causal, a window of 512", 5 * R - 10}};
    char grouped[32];
    for (int m = 0; m < 2; m++) {
        const char *text = attn_study_text(run, "q%lldd64:%s:f32:normal:s1:pass=bwd",
                                           (long long)length, of[m].mask);
        double bytes = (double)attn_study_buffer(run, "bsr", text, "bsr.");
        const char *name = attn_study_text(run, "bsr's lists, both directions, %s tokens under %s",
                                           attn_cli_grouped(length, grouped), of[m].mask);
        attn_study_place(run, of[m].curve, (double)length);
        attn_study_quantity(run, name, ATTN_DERIVED, 2 * (8 * (R + 1) + 4 * of[m].listed), bytes,
                            "B", 0);
    }
}

/* Four lists with room for all blocks of a row or column, and how many there are.  While they are
 * built: a byte for each pair of whole blocks, and an int64 sum for each block. */
static void block_mask(struct attn_study_run *run, int64_t length)
{
    const double R = (double)ceil_div(length, BLOCK);
    const struct attn_mask_shape shape = {1, 1, length, length};
    struct attn_tape tape = {.run = run};
    char grouped[32];
    tape.is_brief = length < MILLION;
    attn_study_store(&tape, "blocks", "causal(br)", &shape);
    attn_study_place(run, "BlockMask, any mask", (double)length);
    attn_study_live(
        &tape, attn_study_text(run, "a BlockMask of %s tokens", attn_cli_grouped(length, grouped)),
        ATTN_DERIVED, 16 * R * R + 16 * R, 0);
    attn_study_place(run, "BlockMask while it is built, not compiled", (double)length);
    attn_study_quantity(run, "while it is built, not compiled", ATTN_DERIVED,
                        (BLOCK * BLOCK + 8) * R * R, (double)tape.ledger.peak, "B", 0);
}

/* A million tokens, really computed under a window, with blocks and with tiles, and 64 rows of them
 * judged by the oracle. */
static void a_million(struct attn_study_run *run)
{
    static const char TEXT[] = "q1000000d64:causal(br)&window(511,0,br):f32:normal:s1";
    if (!run->is_long)
        attn_study_say(run, "--long also computes a million tokens under the window with bsr and "
                            "with tiled, in about half a minute, and has the oracle check 64 rows "
                            "of each.");
    attn_study_measure_long(run, "bsr", TEXT);
    attn_study_measure_long(run, "tiled", TEXT);
}

void attn_study_run_flex_block_mask(struct attn_study_run *run)
{
    static const int64_t length[] = {4096, 32768, 262144, MILLION};
    attn_study_say(run, "A BlockMask has four lists of blocks: partial and full ones, by row and "
                        "by column.  Each list has room for all blocks of its row, 4 bytes each, "
                        "whatever the mask leaves:");
    for (int l = 0; l < 4; l++)
        block_mask(run, length[l]);
    double blocks = (double)ceil_div(MILLION, BLOCK) * (double)ceil_div(MILLION, BLOCK);
    attn_study_quantity(run, "the blog's 60 MB are one byte for each block", ATTN_INFERRED, 60e6,
                        blocks, "B", 1.1e6);
    for_real(run);
    attn_study_say(run, "Lists that hold what there is and no more, as attnlab's bsr has them:");
    for (int l = 0; l < 4; l++)
        ours(run, length[l]);
    attn_study_measure(run, "bsr", "q500d64:causal(br):f32:normal:s1:pass=bwd", NULL);
    a_million(run);
}
