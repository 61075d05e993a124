/* What FlexAttention's BlockMask costs at a million tokens.
 *
 * Source: torch/nn/attention/flex_attention.py (PyTorch 2.5): blocks of 128, int32 indices that are
 * dense in block space, and their transposes; pytorch issue 134756; attention-gym issues 32, 54. */
#include <string.h>

#include "experiments/studies/study.h"

enum { BLOCK = 128, MILLION = 1000000 };

static int64_t blocks_of(int64_t length)
{
    return (length + BLOCK - 1) / BLOCK;
}

/* create_block_mask(mask_mod, 1, 1, L, L), not compiled: the mask of every pair, what it says of
 * each block, and lists whose room is all blocks of a row.  A real tape computes a causal mask. */
struct lists {
    int32_t *num, *index; /* [R], [R][R]: ids first, the rest undefined */
};

static struct lists take_lists(struct attn_tape *tape, const char *num, const char *index,
                               int64_t R)
{
    struct lists x;
    x.num = attn_tape_take(tape, num, "BlockMask: blocks in a row", R, 4);
    x.index = attn_tape_take(tape, index, "BlockMask: which, room for all", R * R, 4);
    return x;
}

static void list_block(struct lists x, int64_t R, int64_t row, int64_t column)
{
    if (x.num != NULL && x.index != NULL)
        x.index[row * R + x.num[row]++] = (int32_t)column;
}

/* Pairs of a block that a causal mask leaves, of those that are inside. */
static int64_t count_pairs(const char *mask, int64_t L, int64_t row, int64_t column, int64_t *all)
{
    int64_t n = 0;
    *all = 0;
    for (int64_t i = row * BLOCK; i < (row + 1) * BLOCK && i < L; i++)
        for (int64_t j = column * BLOCK; j < (column + 1) * BLOCK && j < L; j++, ++*all)
            n += mask[i * L + j];
    return n;
}

/* Leaves the eight tensors of a BlockMask live.  partial and full are counted on a real tape. */
static void create_block_mask(struct attn_tape *tape, int64_t L, int64_t *partial, int64_t *full)
{
    static const char *const num[] = {"kv_num", "full_kv_num", "q_num", "full_q_num"};
    static const char *const index[] = {"kv_indices", "full_kv_indices", "q_indices",
                                        "full_q_indices"};
    struct lists list[4];
    int64_t R = blocks_of(L);
    char *mask = attn_tape_take(tape, "mask", "create_mask: every pair, bool", L * L, 1);
    for (int l = 0; l < 4; l++) {
        list[l] = take_lists(tape, num[l], index[l], R);
        if (list[l].num != NULL)
            memset(list[l].num, 0, (size_t)R * sizeof *list[l].num);
    }
    for (int64_t n = 0; mask != NULL && n < L * L; n++)
        mask[n] = n % L <= n / L;
    for (int64_t b = 0; mask != NULL && b < R * R; b++) {
        int64_t all, visible = count_pairs(mask, L, b / R, b % R, &all);
        int is_full = visible == all;
        if (visible == 0)
            continue;
        ++*(is_full ? full : partial);
        list_block(list[is_full], R, b / R, b % R);
        list_block(list[2 + is_full], R, b % R, b / R);
    }
    attn_tape_give(tape, "mask");
}

static void for_real(struct attn_study_run *run)
{
    enum { L = 500 }; /* four rows of blocks, the last one cut */
    struct attn_ledger ledger;
    struct attn_tape real, counted;
    int64_t partial = 0, full = 0;
    attn_ledger_init(&ledger, NULL);
    attn_tape_open(&real, run, &ledger);
    attn_tape_open(&counted, run, NULL);
    create_block_mask(&real, L, &partial, &full);
    create_block_mask(&counted, L, &partial, &full);
    attn_study_same("a BlockMask built for real, causal, L=500", &real, &counted);
    attn_study_quantity(run, "its partial blocks: the diagonal", ATTN_DERIVED, 4, (double)partial,
                        "blocks", 0);
    attn_study_quantity(run, "its full blocks: below it", ATTN_DERIVED, 6, (double)full, "blocks",
                        0);
    attn_ledger_clear(&ledger);
}

static void ours(struct attn_study_run *run)
{
    static const char *const mask[] = {"causal(br)", "causal(br)&window(511,0,br)"};
    static const char *const buffer[] = {"bsr.row_start", "bsr.column", "bsr.column_start",
                                         "bsr.row"};
    double R = (double)blocks_of(MILLION), listed[] = {R * (R + 1) / 2, 5 * R - 10};
    char text[96], name[128];
    struct attn_point point;
    for (int m = 0; m < 2; m++) {
        double bytes = 0;
        snprintf(text, sizeof text, "q1000000d64:%s:f32:normal:s1:pass=bwd", mask[m]);
        for (int b = 0; b < 4; b++)
            bytes += (double)attn_study_buffer(run, "bsr", text, buffer[b]);
        snprintf(name, sizeof name, "bsr's lists, both directions, under %s", mask[m]);
        attn_study_quantity(run, name, ATTN_DERIVED, 2 * (8 * (R + 1) + 4 * listed[m]), bytes, "B",
                            0);
    }
    attn_study_measure(run, "bsr", "q500d64:causal(br):f32:normal:s1:pass=bwd", &point);
}

static void run_study(struct attn_study_run *run)
{
    struct attn_tape tape;
    int64_t R = blocks_of(MILLION), unused = 0;
    attn_study_say(run, "A BlockMask has four lists of blocks: partial and full ones, by row and "
                        "by column.  Each list has room for all blocks of its row, 4 bytes each, "
                        "whatever the mask leaves.  At a million tokens:");
    attn_tape_open(&tape, run, NULL);
    create_block_mask(&tape, MILLION, &unused, &unused);
    int64_t built = tape.peak;
    attn_tape_restart(&tape);
    attn_study_peak(&tape, "a BlockMask of 1,000,000 tokens", ATTN_DERIVED, 976.7e6, 0.3e6);
    attn_study_quantity(run, "the blog's 60 MB are one byte for each block", ATTN_INFERRED, 60e6,
                        (double)(R * R), "B", 1.1e6);
    attn_study_quantity(run, "while it is built, not compiled: a byte for each pair too",
                        ATTN_DERIVED, 1e12 + (double)tape.now, (double)built, "B", 0);
    for_real(run);
    attn_study_say(run, "Lists that hold what there is and no more, as attnlab's bsr has them:");
    ours(run);
}

const struct attn_study attn_study_flex_block_mask = {
    "flex-block-mask", "how large is the index of a block mask at a million tokens?", run_study};
