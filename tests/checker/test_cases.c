/* The case language, and the coverage of the battery. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/refused.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/cases/soak.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"

SUITE(cases);

/* ---- the language ---------------------------------------------------------------------------- */

/* A written case, and its canonical form. */
static const struct {
    const char *text, *canonical;
} spellings[] = {
    {"q3d4:none:f32:normal:s1", "q3d4:none:f32:normal:s1"},
    {"b2h4g2q127k129d64v64:causal(br)&window(32,0,br):f32:normal:s42:softcap=30:pass=bwd",
     "b2h4g2q127k129d64:causal(br)&window(32,0,br):f32:normal:s42:pass=bwd:softcap=30"},
    {"d4q3:none:f32:normal:s1", "q3d4:none:f32:normal:s1"},
    {"v4d4k3q3g1h1b1:none:f32:normal:s1", "q3d4:none:f32:normal:s1"},
    {"h4g4q3d4:none:f32:normal:s1", "h4q3d4:none:f32:normal:s1"},
    {"g1h4q3d4:none:f64:normal:s1", "h4g1q3d4:none:f64:normal:s1"},
    {"b0h0q0k0d0v0:none:bf16:normal:s0", "b0h0q0d0:none:bf16:normal:s0"},
    {"h0q1d1:none:f16:ties:s007", "h0q1d1:none:f16:ties:s7"},
    {"q3d4: causal( br ) | prefix( 3 ) :f32:normal:s1", "q3d4:causal(br)|prefix(3):f32:normal:s1"},
    {"q3d4:none:f32:normal:s18446744073709551615", "q3d4:none:f32:normal:s18446744073709551615"},
    {"q9223372036854775807d1:none:f32:normal:s1", "q9223372036854775807d1:none:f32:normal:s1"},
    {"q3d4:none:f32:offset-120:s1:dlse=1:pass=bwd", "q3d4:none:f32:offset-120:s1:pass=bwd:dlse=1"},
    {"q3d4:none:f32:normal:s1:pass=fwd:bias=none:layout=bhld:offset=0:poison=none:dlse=0:dbias=0:"
     "softcap=0",
     "q3d4:none:f32:normal:s1"},
    {"q3d4:none:f32:normal:s1:scale=0.1", "q3d4:none:f32:normal:s1:scale=0.1"},
    {"q3d4:none:f32:normal:s1:scale=1e-1", "q3d4:none:f32:normal:s1:scale=0.1"},
    {"q3d4:none:f32:normal:s1:scale=-.25", "q3d4:none:f32:normal:s1:scale=-0.25"},
    {"q3d4:none:f32:normal:s1:scale=0", "q3d4:none:f32:normal:s1:scale=0"},
    {"q3d4:none:f32:normal:s1:scale=0.33333333333333331483",
     "q3d4:none:f32:normal:s1:scale=0.3333333333333333"},
    {"q3d4:none:f32:normal:s1:scale=1.7976931348623157e308",
     "q3d4:none:f32:normal:s1:scale=1.7976931348623157e+308"},
    {"q3d4:none:f32:normal:s1:dbias=1:layout=mixed:bias=key:offset=63:poison=big:pass=bwd",
     "q3d4:none:f32:normal:s1:pass=bwd:bias=key:layout=mixed:offset=63:poison=big:dbias=1"},
};

TEST_EACH(strings_have_one_canonical_form, COUNT(spellings))
{
    char text[ATTN_CASE_TEXT];
    struct attn_case c = case_of(spellings[_i].text);
    attn_case_print(&c, text);
    ck_assert_str_eq(text, spellings[_i].canonical);
    struct attn_case again = case_of(text);
    ck_assert_mem_eq(&c, &again, sizeof c);
    attn_case_print(&again, text);
    ck_assert_str_eq(text, spellings[_i].canonical);
}

/* The longest of everything still fits, and reads back. */
TEST(the_longest_case_fits)
{
    char text[ATTN_CASE_TEXT];
    struct attn_case c =
        case_of("q3d4:none:bf16:stairs-down:s18446744073709551615:pass=bwd:bias=head:"
                "layout=broadcast:offset=63:poison=none:dlse=1:dbias=1");
    c.batch = c.heads = c.kv_heads = c.n_query = c.n_key = c.d_key = INT64_MAX;
    c.kv_heads = c.n_key = c.d_value = INT64_MAX - 1;
    c.scale = -1.2345678901234567e-300;
    c.softcap = 1.2345678901234567e-300;
    c.poison = ATTN_POISON_BIG;
    memset(c.mask, 'a', ATTN_CASE_MASK - 1);
    c.mask[ATTN_CASE_MASK - 1] = '\0';
    attn_case_print(&c, text);
    struct attn_case again = case_of(text);
    ck_assert_mem_eq(&c, &again, sizeof c);
}

TEST(long_strings_are_refused)
{
    struct attn_case c;
    struct attn_error err = {ATTN_OK, ""};
    char text[2 * ATTN_CASE_TEXT];
    for (size_t digits = 400; digits < 1800; digits += 7) {
        size_t n = (size_t)snprintf(text, sizeof text, "q3d4:keys(x");
        memset(text + n, '1', digits);
        snprintf(text + n + digits, sizeof text - n - digits, "):f32:normal:s1");
        int fits = digits + 7 < ATTN_CASE_MASK;
        ck_assert_int_eq(attn_case_parse(text, &c, &err), fits ? ATTN_OK : ATTN_EINVAL);
        if (!fits)
            ck_refusal(err.status, ATTN_EINVAL, &err,
                       strlen(text) < ATTN_CASE_TEXT ? "mask" : "at most 1023");
    }
    memset(text, '0', 300);
    text[0] = 'q';
    snprintf(text + 300, 50, "d4:none:f32:normal:s1");
    ck_refusal(attn_case_parse(text, &c, &err), ATTN_EINVAL, &err, "too long");
}

/* ---- the battery ----------------------------------------------------------------------------- */

static int divides(int64_t n, int64_t ranks)
{
    return n > 0 && n % ranks == 0;
}

/* At least n cases of the battery, c each, have this. */
#define AT_LEAST(n, has)                                                         \
    do {                                                                         \
        int least = (n);                                                         \
        found = 0;                                                               \
        for (int i = 0; i < cases; i++) {                                        \
            const struct attn_case *c = &all[i];                                 \
            found += (has) != 0;                                                 \
        }                                                                        \
        ck_assert_msg(found >= least, "%d cases have %s; k=%d", found, #has, k); \
    } while (0)

/* test_factors.c plants a fault under each type, mask, bias and scale; this asks for the rest. */
TEST(battery_covers_the_language)
{
    static struct attn_case all[1000];
    int cases = attn_battery_count(ATTN_TIER_QUICK), found, k = -1;
    ck_assert(cases >= 80 && cases <= COUNT(all));
    for (int n = 0; n < cases; n++)
        all[n] = case_of(attn_battery_at(n)->text);
    AT_LEAST(30, c->pass == ATTN_FORWARD);
    AT_LEAST(60, c->pass == ATTN_BACKWARD);
    AT_LEAST(40, strstr(c->mask, "causal") != NULL);
    AT_LEAST((found + 1) / 2, c->n_query != c->n_key && strstr(c->mask, "causal") != NULL);
    AT_LEAST(cases / 2 + 1, c->n_query != c->n_key);
    AT_LEAST(cases / 2 + 1, c->batch >= 2);
    AT_LEAST(20, divides(c->heads, 4) && divides(c->kv_heads, 4) && divides(c->n_query, 4) &&
                     divides(c->n_key, 4));
    AT_LEAST(2, c->offset != 0);
    for (k = 0; k < ATTN_FILL_POWERS; k++) /* which is for people to read */
        AT_LEAST(1, (int)c->fill == k);
    for (k = 0; k <= ATTN_CASE_BIAS_NAN; k++)
        AT_LEAST(2, (int)c->bias == k);
    for (k = 0; k <= ATTN_LAYOUT_FLIP; k++)
        AT_LEAST(1, (int)c->layout == k);
    for (k = 0; k <= ATTN_POISON_BIG; k++)
        AT_LEAST(3, (int)c->poison == k);
}

/* Every call of the mask language, as its own help lists it, and every alignment and operator. */
TEST(battery_covers_the_masks)
{
    static const char *const also[] = {
        "(tl)",   "(br)",    "(+",      "(-",      "&",     "|",     ",heads", "keys(x",
        "keys(b", "dense(b", "dense(h", "dense(q", "csr(q", "csr(b", "x0,",    "window(-1,"};
    int line = 0;
    for (; line < COUNT(also) || attn_mask_help(line - COUNT(also)) != NULL; line++) {
        const char *text = line < COUNT(also) ? also[line] : attn_mask_help(line - COUNT(also));
        char part[40];
        int used = 0;
        snprintf(part, sizeof part, "%.*s", line < COUNT(also) ? 39 : (int)strcspn(text, " ("),
                 text);
        for (int n = 0; n < attn_battery_count(ATTN_TIER_QUICK); n++)
            used += strstr(attn_battery_at(n)->text, part) != NULL;
        ck_assert_msg(used > 0, "no case has '%s' in its mask", part);
    }
    ck_assert_int_ge(line, COUNT(also) + 10);
}

static int tests(const char *text, const struct attn_claims *claims, unsigned claim)
{
    struct attn_setup setup;
    struct attn_case c = case_of(text);
    unsigned needs = 0;
    ck_assert(attn_setup_describe(&c, &setup, NULL) == ATTN_OK);
    int found = attn_claims_allow(claims, &setup, ATTN_ROUTE_PLUGIN, &needs, NULL) == ATTN_OK &&
                (needs & claim) == claim;
    attn_setup_close(&setup);
    return found;
}

/* A case by hand, or, where there is none, one that the tier makes. */
static int is_tested(const struct attn_claims *claims, unsigned claim)
{
    struct attn_tier_list list;
    int found = 0;
    for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK) && !found; i++) {
        struct attn_case c;
        char text[ATTN_CASE_TEXT];
        if (attn_case_within(attn_battery_at(i), claims, ATTN_ROUTE_PLUGIN, &c, NULL) != ATTN_OK)
            continue;
        attn_case_print(&c, text);
        found = tests(text, claims, claim);
    }
    if (found)
        return 1;
    ck_assert(attn_tier_open(ATTN_TIER_QUICK, claims, ATTN_ROUTE_PLUGIN, 1, &list, NULL) ==
              ATTN_OK);
    for (int i = 0; i < list.n && !found; i++)
        found = tests(list.at[i].battery.text, claims, claim);
    attn_tier_close(&list);
    return found;
}

/* An implementation that claims one thing beside a type, and the claims that it needs, has a case
 * for it: a claim that no case tests is an error, and an honest declaration must not meet it. */
TEST(every_claim_alone_is_tested)
{
    static const struct {
        unsigned claim, with;
    } alone[] = {
        {0, 0},
        {ATTN_CAP_BACKWARD, 0},
        {ATTN_CAP_GQA, 0},
        {ATTN_CAP_CROSS, 0},
        {ATTN_CAP_DV, 0},
        {ATTN_CAP_HARD, ATTN_CAP_DENSE},
        {ATTN_CAP_SOFTCAP, 0},
        {ATTN_CAP_ALIBI, 0},
        {ATTN_CAP_BIAS, 0},
        {ATTN_CAP_DBIAS, ATTN_CAP_BIAS | ATTN_CAP_BACKWARD},
        {ATTN_CAP_DLSE, ATTN_CAP_BACKWARD},
        {ATTN_CAP_STRIDES, 0},
        {ATTN_CAP_SCALE, 0},
        {ATTN_CAP_EMPTY, 0},
        {ATTN_CAP_EMPTY, ATTN_CAP_DENSE},
        {ATTN_CAP_CAUSAL, 0},
        {ATTN_CAP_CAUSAL, ATTN_CAP_BACKWARD},
        {ATTN_CAP_BAND, ATTN_CAP_CAUSAL},
        {ATTN_CAP_DENSE, 0},
    };
    for (int type = 0; type < 4; type++)
        for (int n = 0; n < COUNT(alone); n++) {
            const struct attn_claims claims = {.bits = 1u << type | alone[n].claim | alone[n].with};
            ck_assert_msg(is_tested(&claims, alone[n].claim),
                          "type %d, claim 0x%x with 0x%x: no case", type, alone[n].claim,
                          alone[n].with);
        }
}
