/* Advice: known orders, each price that of the command which is named, and nothing that is
 * refused. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/rim/advice/advice.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(advice, .open = scratch_open, .close = scratch_close);

/* Three situations of the studies.  first: changes in the order in which they stand, among others;
 * those of another result after a '|'.  args: the same for the command. */
static const struct situation {
    const char *spec, *args;
    struct attn_stack stack;
    struct attn_case c;
    enum attn_need_pass pass;
    double memory;
    const char *first;
} situation[] = {
    /* Open-Sora's mask of int32: all that does not keep pairs is far ahead; ring shares the pairs
     * of both sides among ranks, Ulysses only heads; another mask alone helps little */
    {"dense:mask=int32",
     "--length 196608 --batch 5 --heads 16 --dim 72 --mask 'causal(tl)'",
     {0, ATTN_SAVE_ROWS, 0, 0},
     {.batch = 5,
      .heads = 16,
      .kv_heads = 16,
      .n_query = 196608,
      .n_key = 196608,
      .d_key = 72,
      .d_value = 72,
      .mask = "causal(tl)",
      .dtype = ATTN_F32},
     ATTN_NEED_FORWARD,
     80.0 * (1 << 30),
     "tiled csr 'ring on 8 ranks' 'ring on 4 ranks' 'ulysses on 8 ranks' 'one of the batch' "
     "'ring on 2 ranks' 'ulysses on 4 ranks' gemm 'ulysses on 2 ranks' mask=bool2d | bf16"},
    /* 28 layers of tiles: what is kept between the passes is the peak */
    {"tiled@portable",
     "--length 16Ki --heads 16 --dim 72 --pass both --layers 28",
     {28, ATTN_SAVE_ROWS, 0, 0},
     {.batch = 1,
      .heads = 16,
      .kv_heads = 16,
      .n_query = 16384,
      .n_key = 16384,
      .d_key = 72,
      .d_value = 72,
      .mask = "none",
      .dtype = ATTN_F32},
     ATTN_NEED_BOTH,
     8.0 * (1 << 30),
     "'save inputs' tiled-textbook | bf16 '14 layers'"},
    /* one pair in ten as CSR: an index that tiles do not have */
    {"csr@portable",
     "--length 4096 --heads 8 --mask 'random(0.1,1)'",
     {0, ATTN_SAVE_ROWS, 0, 0},
     {.batch = 1,
      .heads = 8,
      .kv_heads = 8,
      .n_query = 4096,
      .n_key = 4096,
      .d_key = 64,
      .d_value = 64,
      .mask = "random(0.1,1)",
      .dtype = ATTN_F32},
     ATTN_NEED_FORWARD,
     1 << 30,
     "tiled-textbook tiled bsr | bf16"},
};

static struct attn_advices *advices_of(const struct situation *s)
{
    const struct attn_spec spec = spec_of(s->spec);
    const struct attn_memory memory = {.bytes = s->memory, .is_device = 1};
    const struct attn_price_asked asked = {&spec, &s->stack, &s->c, s->pass, &memory};
    struct attn_advices *advices = calloc(1, sizeof *advices);
    struct attn_error err = {0};
    ck_assert_ptr_nonnull(advices);
    ck_assert_msg(attn_price_advices(&asked, advices, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_gt(advices->n, 10);
    ck_assert_int_lt(advices->n, ATTN_ADVICE_MOST);
    return advices;
}

/* The first from place `from` on that begins with this, or has it after "stored as "; n: none. */
static int find(const struct attn_advices *advices, int from, const char *what, size_t length)
{
    int at = from;
    for (; at < advices->n; at++) {
        const char *is = advices->at[at].what;
        is += strncmp(is, "stored as ", 10) == 0 ? 10 : 0;
        if (strncmp(is, what, length) == 0 && strncmp(is + length, "-textbook", 9) != 0)
            break;
    }
    return at;
}

TEST_EACH(known_order, COUNT(situation))
{
    struct attn_advices *advices = advices_of(&situation[_i]);
    const char *word = situation[_i].first;
    int at = -1, changes_result = 0;
    for (size_t length; *word != '\0'; word += length) {
        int quoted = *word == '\'';
        word += quoted;
        length = strcspn(word, quoted ? "'" : " ");
        if (*word == '|')
            changes_result = 1;
        else {
            at = find(advices, at + 1, word, length);
            ck_assert_msg(at < advices->n, "%.*s", (int)length, word);
            ck_assert_int_eq(advices->at[at].changes_result, changes_result);
            ck_assert(advices->at[at].refused.status == ATTN_OK && advices->at[at].brings > 0);
        }
        length += quoted;
        length += strspn(word + length, " ");
    }
    for (int i = 1; i < advices->n; i++) {
        const struct attn_advice *a = &advices->at[i - 1], *b = &advices->at[i];
        ck_assert(a->brings >= b->brings || a->changes_result < b->changes_result ||
                  b->refused.status != ATTN_OK);
    }
    free(advices);
}

/* By hand: one mask [L,L] of bytes for five of int32; and 27 layers' O and LSE that are made again,
 * where one layer's are there anyway. */
TEST(known_bytes)
{
    const double L = 196608, rows = 16384.0 * 16;
    struct attn_advices *advices = advices_of(&situation[0]);
    int at = find(advices, 0, "mask=bool2d", 11);
    ck_assert(at < advices->n && advices->at[at].brings == (5 * 4 - 1) * L * L);
    free(advices);
    advices = advices_of(&situation[1]);
    at = find(advices, 0, "save inputs", 11);
    ck_assert(at < advices->n && advices->at[at].brings == 27 * rows * (72 + 1) * 4);
    free(advices);
}

/* {"needed_bytes"} of the last price of a command, which must end well; or -1, "refused". */
static double priced_by(const char *command)
{
    double bytes;
    const char *arguments = strchr(command, ' ');
    ck_assert_ptr_nonnull(arguments);
    scratch_shell(0, "", "'%s/attnlab'%s --format json", test_build(), arguments);
    json_t *all = json_loads(scratch_output, 0, NULL);
    ck_assert_msg(json_array_size(all) > 0, "%s", scratch_output);
    bytes = json_real_value(
        json_object_get(json_array_get(all, json_array_size(all) - 1), "needed_bytes"));
    json_decref(all);
    return bytes;
}

/* Each is the price of its command, to the byte, which refuses nothing; L fits, L + 1 does not. */
TEST_EACH(each_price_is_its_commands, COUNT(situation))
{
    const struct situation *s = &situation[_i];
    const struct attn_memory memory = {.bytes = s->memory, .is_device = 1};
    struct attn_advices *advices = advices_of(s);
    int compared = 0;
    for (int i = 0; i < advices->n; i++) {
        struct attn_advice *x = &advices->at[i];
        const struct attn_price_asked changed = {&x->spec, &x->stack, &x->c, s->pass, &memory};
        char command[2048];
        if (x->refused.status != ATTN_OK) {
            ck_assert_msg(x->refused.text[0] != '\0', "%s", x->what);
            continue;
        }
        attn_price_command(&changed, command, sizeof command);
        ck_assert_msg(priced_by(command) == x->bytes, "%s", command);
        ck_assert(x->brings == advices->bytes - x->bytes);
        for (int more = 0; more < 2 && x->longest >= 0; more++) {
            struct attn_need need;
            struct attn_case so_long = x->c;
            so_long.n_query = so_long.n_key = x->longest + more;
            const struct attn_price_asked longer = {&x->spec, &x->stack, &so_long, s->pass,
                                                    &memory};
            ck_assert_int_eq(attn_need_of_case(&longer, &need, NULL), ATTN_OK);
            ck_assert_msg((attn_need_in(&need, &memory) <= memory.bytes) == !more, "%s", x->what);
        }
        compared++;
    }
    ck_assert_int_gt(compared, 10);
    free(advices);
}

/* The command says the same: as JSON each of them, as text each part; and reasons of refusals. */
TEST(as_users_meet_it)
{
    const struct situation *s = &situation[1];
    struct attn_advices *advices = advices_of(s);
    scratch_expect(0, "", "advise %s %s --memory 8GiB --format json", s->spec, s->args);
    json_t *all = json_loads(scratch_output, 0, NULL), *one = json_array_get(all, 0);
    json_t *list = json_object_get(one, "advice");
    ck_assert_int_eq((int)json_array_size(list), advices->n);
    for (int i = 0; i < advices->n; i++) {
        const struct attn_advice *x = &advices->at[i];
        json_t *shown = json_array_get(list, (size_t)i);
        ck_assert_str_eq(json_string_value(json_object_get(shown, "change")), x->what);
        ck_assert_int_eq(json_object_get(shown, "refused") != NULL, x->refused.status != ATTN_OK);
        ck_assert(x->refused.status != ATTN_OK ||
                  json_real_value(json_object_get(shown, "brings_bytes")) == x->brings);
    }
    json_decref(all);
    free(advices);
    scratch_expect(0, "does not fit in a device of 8.00 GiB", "advise %s %s --memory 8GiB", s->spec,
                   s->args);
    scratch_has("\n1.92 GiB  6.27 GiB  yes ");
    scratch_has("--save inputs --memory 8589934592");
    scratch_has("\nwith another result:\n");
    scratch_has("\n4.08 GiB ");
    scratch_has("ulysses has ranks, and a stack of layers is of one process: "
                "tiled would work");
    ck_assert_ptr_null(strstr(scratch_output, " on 4 ranks")); /* said once */
    scratch_has("tiled leaves no P");
}

#define SCORES "--length 33654 --heads 56 --dtype bf16 --memory 300GB"
#define LAYERS "--length 4096 --heads 16 --dim 72 --layers 2 --hidden 1152 "
#define PARAMS "tiled --length 4096 --heads 16 --layers 4 --memory 80GB "
static const struct scratch_row words[] = {
    {"advise dense --length 4096 --batch 2 --mask 'keys(1000,4096)'", 0,
     "dense:mask=bool2d holds one [Lq,Lk] mask"},
    /* scores of 16 bits are rounded: another result */
    {"advise dense " SCORES " | grep -A99 'another result'", 0, "  scores=storage\n"},
    {"advise dense csr --length 64", 2, "'csr' is left over"},
    {"advise ring:ranks=4,local=gemm --length 64 --layers 2", 2,
     "of one process: gemm would work, or ring without layers"},
    {"advise dense --length 64,128", 2, "advice is for one shape"},
    {"advise ring:ranks=3,sizes=strict --length 8", 2,
     "refused: ring:ranks=3,sizes=strict needs ranks that divide"},
    /* where a layer with projections does not run, it is priced, which is said; so its changes */
    {"price tiled " LAYERS "--dtype bf16", 0, "priced only: a layer does not run in bf16"},
    {"price tiled " LAYERS "--dtype f16 --format json", 0,
     "\"priced_only\": \"a layer does not run in f16\""},
    {"advise tiled " LAYERS, 0, "a layer does not run in bf16"},
    {"advise tiled " LAYERS "--dtype bf16 --pass both", 0, "a layer does not run in bf16"},
    {"advise tiled " LAYERS "--format json", 0,
     "\"priced_only\": \"a layer does not run in bf16\""},
    /* what a price does not know of is named, and what is said of it is added */
    {"price " PARAMS, 0, "not in it: projections, MLP, norms and embeddings, their weights"},
    {"price " PARAMS, 0, "needs 257 MiB of the device's 74.5 GiB"},
    {"price " PARAMS "--params 1G", 0, "needed too: 1,000,000,000 parameters of 16 B, 14.9 GiB"},
    {"price " PARAMS "--params 10G,10", 0, "does not fit: needs 93.4 GiB of the device's 74.5 GiB"},
    {"advise " PARAMS "--params 1G,2", 0, "--memory 80000000000 --params 1000000000,2"},
    {"price " PARAMS "--params 1G,0", 2, "params '1G,0': a number such as 7G"},
    {"price " PARAMS "--params x", 2, "params 'x'"},
    {"price " PARAMS "--params 6.74G,2", 0, "needed too: 6,740,000,000 parameters of 2 B"},
    {"price " PARAMS "--params 7e9", 0, "needed too: 7,000,000,000 parameters of 16 B"},
    {"price " PARAMS "--params 6.7.4G", 2, "6.74G or 7e9"},
    {"price " PARAMS "--params 1e99", 2, "params '1e99'"},
    {"price " PARAMS "--params 6.74Gi", 2, "params '6.74Gi'"},
    /* weights of a hidden width are parameters, and count once: 2 layers of 1152 * 4 * 1152 floats
     * are 42,467,328 bytes */
    {"price tiled --pass fwd " LAYERS "--memory 80GB --params 10616832,4", 0,
     "40.5 MiB of these parameters stand above"},
    {"price tiled --pass fwd " LAYERS "--memory 80GB --params 10616832,4 --format json", 0,
     "\"params_bytes\": 0.0"},
};

TEST(words_and_status)
{
    scratch_rows(words, COUNT(words));
}

/* Where no single change fits, two do: P is dropped by another implementation, which is refused
 * until something else is saved.  Where one fits there are none. */
TEST(pairs)
{
    static const char args[] = "gemm:save=probs --heads 32 --dim 128 --layers 32 --save probs "
                               "--pass both --memory 80GB";
    scratch_expect(0, "25.3 GiB  yes ", "advise %s --length 16384", args);
    scratch_has("  tiled, and save inputs (checkpointing)\n");
    scratch_has("price tiled --length 16384 --heads 32 --dim 128 --pass both --layers 32 --save "
                "inputs --memory 80000000000");
    ck_assert_int_eq(fixture_shell("'%s/attnlab' advise %s --length 4096 --dtype bf16 | "
                                   "grep -q ', and save'",
                                   test_build(), args),
                     1);
}
