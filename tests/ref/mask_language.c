/* Texts of any length that the language of masks accepts, and the shapes and tensors that it
 * refuses (texts that it refuses: tests/checker/refused.def). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/refused.h"
#include "tests/suites.h"
#include "tests/wrap.h"

SUITE(mask_language);

TEST(shapes_are_checked)
{
    static const struct attn_mask_shape bad[] = {{-1, 1, 2, 2},
                                                 {1, -1, 2, 2},
                                                 {1, 1, -2, 2},
                                                 {1, 1, 2, -2},
                                                 {1, 1, INT64_C(1) << 31, INT64_C(1) << 31},
                                                 {INT64_C(1) << 40, INT64_C(1) << 40, 2, 2},
                                                 {1, 1, INT64_MAX, 1}};
    struct attn_mask *mask;
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        struct attn_error err = {0};
        ck_assert_int_eq(attn_mask_parse("none", &bad[n], NULL, &mask, &err), ATTN_EINVAL);
        ck_assert(strlen(err.text) > 0 && mask == NULL);
    }
    attn_mask_free(NULL);
}

/* ---- any text is safe --------------------------------------------------------------------- */

/* unit, n times, between begin and end. */
static char *repeat(const char *begin, const char *unit, size_t n, const char *end)
{
    size_t a = strlen(begin), u = strlen(unit);
    char *text = malloc(a + n * u + strlen(end) + 1);
    memcpy(text, begin, a);
    for (size_t k = 0; k < n; k++)
        memcpy(text + a + k * u, unit, u);
    strcpy(text + a + n * u, end);
    return text;
}

TEST(long_chains_are_masks)
{
    const char *units[] = {"causal(tl)|", "none&", "causal(tl)&prefix(3)|", "(none|prefix(2))&"};
    for (int n = 0; n < 4; n++) {
        char *text = repeat("", units[n], 100000, "causal(tl)");
        struct attn_mask *mask = mask_of(text, (struct attn_mask_shape){1, 1, 4, 4});
        const struct attn_tile_at all = {0, 0, 0, 4, 0, 4};
        struct attn_run run = {0, 0};
        int64_t pairs = 0;
        int counted = 0;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                ck_assert_int_eq(attn_mask_allows(mask, 0, 0, i, j), j <= i);
                pairs += j <= i;
            }
        ck_assert_int_eq(attn_mask_next(mask, 0, 0, 1, &run), 1);
        ck_assert(run.lo == 0 && run.hi >= 1 && run.hi <= 2);
        ck_assert_int_eq(attn_mask_count(mask, all, &counted), pairs);
        ck_assert_str_eq(attn_mask_text(mask), text);
        attn_mask_free(mask);
        free(text);
    }
}

TEST(deep_nesting_is_refused_not_followed)
{
    struct attn_mask_shape shape = {1, 1, 4, 4};
    struct attn_error err = {0};
    struct attn_mask *mask;
    char *deep = repeat("", "(", 1000000, "none");
    ck_assert_int_eq(attn_mask_parse(deep, &shape, NULL, &mask, &err), ATTN_EINVAL);
    ck_assert_str_eq(err.text, "mask, column 65: parentheses are nested more than 64 deep");
    free(deep);
    /* As deep as allowed, alternating, so that no level can be flattened. */
    char *open = repeat("", "prefix(1)|(causal(tl)&(", 32, "none");
    char *legal = repeat(open, "))", 32, "");
    mask = mask_of(legal, shape);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            ck_assert_int_eq(attn_mask_allows(mask, 0, 0, i, j), j == 0 || j <= i);
    ck_assert_int_eq(attn_mask_row_count(mask, 0, 0, 2, 0, 4), 3);
    int counted = 0;
    ck_assert_int_eq(attn_mask_count(mask, (struct attn_tile_at){0, 0, 0, 4, 0, 4}, &counted), 10);
    attn_mask_free(mask);
    free(open);
    free(legal);
}

/* Each allocation refused once; the sanitizers see what stays. */
TEST(no_memory_is_an_error)
{
    static const char *const text[] = {"causal(br)&window(2,1,br)",
                                       "(prefix(1)|documents(1,3))&causal(tl)",
                                       "keys(3)&blocks(2,0.5,1)|random(0.3,7)"};
    struct attn_mask_shape shape = {1, 1, 4, 4};
    for (int n = 0; n < COUNT(text); n++)
        for (int k = 0, is_reached = 1; is_reached; k++) {
            struct attn_error err = {0};
            struct attn_mask *mask;
            wrap_fail_call(k);
            enum attn_status status = attn_mask_parse(text[n], &shape, NULL, &mask, &err);
            is_reached = wrap_call_failed();
            wrap_fail_call(-1);
            ck_assert_int_eq(status, is_reached ? ATTN_ENOMEM : ATTN_OK);
            ck_assert((mask == NULL) == is_reached && (strlen(err.text) > 0) == is_reached);
            ck_assert(is_reached || k > 2);
            attn_mask_free(mask);
        }
}

/* ---- data that must be refused ------------------------------------------------------------ */

/* The tensor of a name, and that of its part "column". */
struct two {
    struct attn_mask_tensor tensor, column;
};

static enum attn_status find_two(void *arg, const char *name, const char *part,
                                 struct attn_mask_tensor *tensor, struct attn_error *err)
{
    struct two *two = arg;
    if (strcmp(name, "lost") == 0)
        return attn_fail(err, ATTN_EINVAL, "no tensor is called %s", name);
    *tensor = strcmp(part, "column") == 0 ? two->column : two->tensor;
    return ATTN_OK;
}

static void refuse(const char *text, const char *words, struct two two)
{
    const struct attn_mask_shape shape = {2, 3, 2, 4};
    const struct attn_mask_source source = {find_two, &two};
    struct attn_error err = {0};
    struct attn_mask *mask = NULL;
    ck_refusal(attn_mask_parse(text, &shape, &source, &mask, &err), ATTN_EINVAL, &err, words);
    ck_assert_ptr_null(mask);
}

TEST(tensors_of_the_wrong_shape_are_refused)
{
    static int64_t data[64];
    static const struct {
        const char *text, *words;
        struct attn_mask_tensor tensor;
    } wrong[] = {
        {"keys(lost)", "no tensor is called lost", {data, 1, 1, {4}}},
        {"keys(t)", "elements of 2 bytes", {data, 2, 1, {4}}},
        {"keys(t)", "5 axes", {data, 1, 5, {4}}},
        {"keys(t)", "no data", {NULL, 1, 1, {4}}},
        {"keys(t)",
         "[2,4] or [4] was expected, or lengths [2] in i32 or i64; it has [5]",
         {data, 1, 1, {5}}},
        {"keys(t)",
         "[2,4] or [4] was expected, or lengths [2] in i32 or i64; it has [3,4]",
         {data, 1, 2, {3, 4}}},
        {"keys(t)",
         "[2,4] or [4] was expected, or lengths [2] in i32 or i64; it has [1,2,4]",
         {data, 1, 3, {1, 2, 4}}},
        {"dense(t)", "before the last, was expected; it has", {data, 1, 2, {4, 2}}},
        {"dense(t)", "before the last, was expected; it has", {data, 1, 3, {5, 2, 4}}},
        {"dense(t)", "before the last, was expected; it has", {data, 1, 4, {3, 3, 2, 4}}},
        {"dense(t)", "was expected; it has [2,2,2,4]", {data, 1, 4, {2, 2, 2, 4}}},
        {"causal(ends,t)", "[2] or [1], were expected; it has [3]", {data, 8, 1, {3}}},
    };
    for (int n = 0; n < COUNT(wrong); n++)
        refuse(wrong[n].text, wrong[n].words, (struct two){.tensor = wrong[n].tensor});
}

TEST(broken_rows_are_refused)
{
    static const struct {
        int32_t start[4];
        int64_t n_start, column[6], n_column;
        const char *words;
        int bytes; /* of a start */
    } broken[] = {
        {{0, 2, 3}, 2, {0, 1, 2}, 3, "row_start has 2 entries; Lq + 1 = 3", 4},
        {{1, 2, 3}, 3, {0, 1, 2}, 3, "row 0: row_start begins with 1", 4},
        {{0, 2, 1}, 3, {0, 1, 2}, 3, "row 1: starts at 2 and ends at 1", 4},
        {{0, 9, 9}, 3, {0, 1, 2}, 3, "row 0: starts at 0 and ends at 9", 4},
        {{0, -1, 3}, 3, {0, 1, 2}, 3, "row 0: starts at 0 and ends at -1", 4},
        {{0, 2, 3}, 3, {0, 1, 2, 3}, 4, "row 1: row_start ends with 3, but there are 4 columns", 4},
        {{0, 2, 3}, 3, {0, 4, 2}, 3, "row 0: column 4 is outside [0,4)", 4},
        {{0, 2, 3}, 3, {0, 1, -1}, 3, "row 1: column -1 is outside [0,4)", 4},
        {{0, 2, 3}, 3, {1, 1, 2}, 3, "row 0: column 1 after 1", 4},
        {{0, 1, 3}, 3, {1, 3, 2}, 3, "row 1: column 2 after 3", 4},
        {{0, 2, 3}, 3, {0, 1, 2}, 3, "must be i32 or i64 with one axis", 1},
    };
    for (int n = 0; n < COUNT(broken); n++)
        refuse("csr(t)", broken[n].words,
               (struct two){{broken[n].start, broken[n].bytes, 1, {broken[n].n_start}},
                            {broken[n].column, 8, 1, {broken[n].n_column}}});
}
