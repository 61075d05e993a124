/* Storages of a mask: the bytes that they are known to take, the same bytes when they are made, and
 * what they say of every pair. */
#include "tests/suites.h"

#include <string.h>

#include "experiments/rim/storage/storage.h"
#include "optimized/registry.h"
#include "ref/mask/mask.h"
#include "tests/fixtures/refused.h"

SUITE(storage);

static void open_fixture(struct attn_stored_text *x, const struct attn_mask_shape *s,
                         const char *text)
{
    struct attn_error err = {0};
    ck_assert_msg(attn_stored_text_open(text, s, x, &err) == ATTN_OK, "%s", err.text);
}

/* ---- known numbers --------------------------------------------------------------------------- */

#define WINDOW  "causal(br)&window(511,0,br)"
#define CLIPS   5, 16, 196608, 196608
#define MILLION 1, 8, 1000000, 1000000
#define GIB     (INT64_C(1) << 30)
#define PLANE   INT64_C(829440000) /* 28,800 squared */
#define BLOCKS  INT64_C(61042969)  /* 7,813 squared  */

static const struct {
    const char *storage, *mask;
    struct attn_mask_shape shape;
    int64_t kept, peak;
} known[] = {
    /* Open-Sora's issue 70: 720 GiB, and two of them at once; 17 and 11 bytes a pair */
    {"int32", "keys(196608)", {CLIPS}, 720 * GIB, 1440 * GIB},
    {"float32", "keys(196608)", {CLIPS}, 720 * GIB, 17 * 180 * GIB},
    {"bf16", "keys(196608)", {CLIPS}, 360 * GIB, 11 * 180 * GIB},
    {"vectors", "keys(196608)", {CLIPS}, 7864320, 7864320},
    /* Open-Sora-Plan at 28,800 tokens; 8 bytes a pair of distances beside the positions */
    {"bool", "keys(20000)", {1, 24, 28800, 28800}, PLANE, 9 * PLANE},
    {"bool-heads", "keys(20000)", {1, 24, 28800, 28800}, 24 * PLANE, 25 * PLANE},
    /* a million tokens: 4 (L W - W (W - 1) / 2) of columns and 8 (L + 1); 7,813 rows of blocks */
    {"csr", WINDOW, {MILLION}, 2047476736 + 8000008, 2047476736 + 8000008},
    {"blocks", WINDOW, {MILLION}, 16 * BLOCKS + 16 * 7813, 16392 * BLOCKS},
    {"blocks", "none", {1, 1, 28000, 28000}, 16 * 219 * 219 + 16 * 219, 16392 * 219 * 219},
    /* 17 bytes a pair and 4 (2 m + 1 + 2 n + 1).  At the peak also the dense matrix, a byte of each
     * pair that there may be, and two more arrays of int32 */
    {"csr-transpose",
     "causal(tl)",
     {16, 1, 1024, 1024},
     17 * 524800 + 4 * 4098,
     1048576 + 25 * 524800 + 4 * 4098},
    {"segments", "documents(100000,300000,600000)", {MILLION}, 32, 32},
    {"none", WINDOW, {MILLION}, 0, 0}};

TEST_EACH(known_numbers, (int)(sizeof known / sizeof *known))
{
    struct attn_stored_text x;
    struct attn_tape tape;
    open_fixture(&x, &known[_i].shape, known[_i].mask);
    const struct attn_storage *storage = attn_storage_find(known[_i].storage);
    ck_assert(storage->refuses == NULL || storage->refuses(&x.stored) == NULL);
    tape = (struct attn_tape){.owner = NULL};
    storage->make(&tape, &x.stored);
    ck_assert_msg(tape.ledger.now == known[_i].kept && tape.ledger.peak == known[_i].peak,
                  "%s of %s: %lld B kept, %lld B at the peak", storage->name, known[_i].mask,
                  (long long)tape.ledger.now, (long long)tape.ledger.peak);
    attn_stored_text_close(&x);
}

/* ---- for real -------------------------------------------------------------------------------- */

static const struct attn_mask_shape small = {2, 2, 140, 260};
static const char *const masks[] = {"none",
                                    "causal(br)",
                                    "causal(tl)&window(30,0,tl)",
                                    "documents(100x200,0x10,40x50)",
                                    "keys(260,129)",
                                    "keys(x0110)",
                                    "random(0.1,3,heads)",
                                    "blocks(128,0.5,2)",
                                    "blocks(16,0.2,7)|global(16)|prefix(3)",
                                    "keys(0,260)&causal(br)"};

/* The storage on a ledger; *tape's ledger is to be cleared. */
static void make(const struct attn_storage *storage, const struct attn_stored_text *x,
                 struct attn_tape *tape)
{
    *tape = (struct attn_tape){.is_real = 1};
    attn_ledger_init(&tape->ledger, NULL);
    tape->ledger.poison = 1;
    storage->make(tape, &x->stored);
}

TEST_EACH(made_as_priced, COUNT(masks))
{
    struct attn_stored_text x;
    struct attn_cost csr = {0};
    struct attn_csr pattern;
    int made = 0;
    open_fixture(&x, &small, masks[_i]);
    ck_assert_int_eq(attn_csr_cost(&x.problem, &csr, &pattern, NULL), ATTN_OK);
    for (int s = 0; s < ATTN_STORAGES; s++) {
        const struct attn_storage *storage = &attn_storages[s];
        struct attn_tape counted, real;
        if (storage->refuses != NULL && storage->refuses(&x.stored) != NULL)
            continue;
        counted = (struct attn_tape){.owner = NULL};
        storage->make(&counted, &x.stored);
        make(storage, &x, &real);
        ck_assert_msg(real.ledger.now == counted.ledger.now &&
                          real.ledger.peak == counted.ledger.peak && real.n == counted.n,
                      "%s of %s: made with %lld B, priced at %lld B", storage->name, masks[_i],
                      (long long)real.ledger.peak, (long long)counted.ledger.peak);
        ck_assert_msg(attn_storage_wrong(storage, &real, &x.stored) == 0, "%s of %s: wrong pairs",
                      storage->name, masks[_i]);
        if (strcmp(storage->name, "csr") == 0) /* what the library's csr keeps */
            ck_assert_int_eq(counted.ledger.now, csr.peak_bytes);
        attn_ledger_clear(&real.ledger);
        ck_assert_int_eq(real.ledger.damaged, 0);
        made++;
    }
    ck_assert_int_ge(made, 3);
    attn_stored_text_close(&x);
}

/* A bit of each block that is kept, under one mask or another, must be seen, or the block is of no
 * use.  The order of rows is advice to a scheduler and says nothing of pairs; values are all 1. */
static void flip_bits(const struct attn_storage *storage, const char *text, int *seen)
{
    struct attn_stored_text x;
    struct attn_tape real;
    open_fixture(&x, &small, text);
    if (storage->refuses == NULL || storage->refuses(&x.stored) == NULL) {
        make(storage, &x, &real);
        for (int b = 0; b < real.n; b++) {
            unsigned char *byte = real.block[b].data;
            *byte ^= 1;
            seen[b] |= attn_storage_wrong(storage, &real, &x.stored) > 0 ||
                       strncmp(real.block[b].name, "row_indices", 11) == 0 ||
                       strcmp(real.block[b].name, "values") == 0;
            *byte ^= 1;
        }
        ck_assert_int_eq(attn_storage_wrong(storage, &real, &x.stored), 0);
        attn_ledger_clear(&real.ledger);
    }
    attn_stored_text_close(&x);
}

TEST_EACH(a_wrong_bit_is_seen, ATTN_STORAGES)
{
    const struct attn_storage *storage = &attn_storages[_i];
    int seen[ATTN_TAPE_BLOCKS] = {0};
    struct attn_stored_text x;
    struct attn_tape counted;
    flip_bits(storage, "documents(100x200,0x10,40x50)", seen);
    flip_bits(storage, "keys(260,129)", seen);
    flip_bits(storage, "none", seen);
    open_fixture(&x, &small,
                 strcmp(storage->name, "segments") == 0 ? "documents(140x260)" : "keys(260)");
    counted = (struct attn_tape){.owner = NULL};
    storage->make(&counted, &x.stored);
    for (int b = 0; b < counted.n; b++)
        ck_assert_msg(seen[b], "%s: no wrong bit of %s is seen", storage->name,
                      counted.block[b].name);
    attn_stored_text_close(&x);
}

TEST_EACH(memory_that_runs_out, ATTN_STORAGES)
{
    const struct attn_storage *storage = &attn_storages[_i];
    struct attn_stored_text x;
    open_fixture(&x, &small, "causal(br)");
    for (int64_t k = 0; storage->refuses == NULL || storage->refuses(&x.stored) == NULL; k++) {
        struct attn_tape real;
        real = (struct attn_tape){.is_real = 1};
        attn_ledger_init(&real.ledger, NULL);
        real.ledger.fail_at = k;
        storage->make(&real, &x.stored);
        attn_ledger_clear(&real.ledger);
        ck_assert_int_eq(real.ledger.damaged, 0);
        if (!real.is_cut)
            break;
        ck_assert_int_lt(k, 20);
    }
    attn_stored_text_close(&x);
}

TEST(sizes_beyond_64_bits_are_refused)
{
    const struct attn_mask_shape far = {1, 1, INT64_C(1) << 29, INT64_C(1) << 29};
    struct attn_stored_text x;
    struct attn_error err = {0};
    ck_refusal(attn_stored_text_open("none", &far, &x, &err), ATTN_EINVAL, &err, "exceed 64 bits");
    attn_stored_text_close(&x);
}
