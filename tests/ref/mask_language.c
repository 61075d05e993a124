/* What the language of masks accepts, and what it says when it does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

SUITE(mask_language, .seconds = 60);

/* ---- errors ------------------------------------------------------------------------------- */

struct error_text {
    const char *text;
    int column;       /* that is named; 0: none is */
    const char *says; /* a part of what is said    */
};

/* What is asked for by name; "column" when asked for that. */
struct two {
    struct attn_mask_tensor tensor, column;
};

static enum attn_status find_two(void *arg, const char *name, const char *part,
                                 struct attn_mask_tensor *tensor, struct attn_error *err)
{
    struct two *two = arg;
    if (strcmp(name, "lost") == 0)
        return attn_fail(err, ATTN_EINVAL, "nobody knows %s", name);
    *tensor = strcmp(part, "column") == 0 ? two->column : two->tensor;
    return ATTN_OK;
}

/* Refused, with and without a place for the message; tensors may be NULL. */
static void refuse(struct error_text want, struct attn_mask_shape shape, struct two *tensors)
{
    struct attn_mask_source source = {find_two, tensors}, *from = tensors ? &source : NULL;
    struct attn_error err = {0};
    struct attn_mask *mask = (struct attn_mask *)&shape;
    char begin[64] = "";
    if (want.column > 0)
        snprintf(begin, sizeof begin, "mask, column %d: ", want.column);
    ck_assert_int_eq(attn_mask_parse(want.text, &shape, from, &mask, &err), ATTN_EINVAL);
    ck_assert_int_eq(err.status, ATTN_EINVAL);
    ck_assert(mask == NULL);
    ck_assert_msg(strncmp(err.text, begin, strlen(begin)) == 0 &&
                      strstr(err.text, want.says) != NULL,
                  "%s: %s", want.text, err.text);
    ck_assert(strchr(err.text, '\n') == NULL);
    ck_assert_int_eq(attn_mask_parse(want.text, &shape, from, &mask, NULL), ATTN_EINVAL);
}

/* For b2h1q6k8. */
static const struct error_text ERRORS[] = {
    {"", 1, "a mask was expected, such as causal(br) or none; found the end of the text"},
    {"   ", 4, "found the end of the text"},
    {"causal", 1, "causal needs an alignment: causal(tl), causal(br) or causal(+3)"},
    {"none & causal ( )", 8, "causal needs an alignment: causal(tl), causal(br) or causal(+3)"},
    {"causal(3)", 8, "'3' is not an alignment"},
    {"causal(+)", 8, "'+' is not a whole number"},
    {"causal(tl,br)", 10, "too many arguments: causal needs an alignment"},
    {"causal(BR)", 8, "'BR' is not an alignment"},
    {"causal(ends)", 12, "ends needs the keys in use"},
    {"causal(ends,1,2,3)", 13, "3 of them for"},
    {"causal(ends,99)", 13, "length 99 exceeds Lk"},
    {"window(1,0,ends,-1)", 17, "'-1': 0 or more was expected"},
    {"causal(+9223372036854775808)", 8, "too large: numbers go up to 2^60"},
    {"causal(-99999999999999999999999999)", 8, "too large: numbers go up to 2^60"},
    {"causal(+1152921504606846977)", 8, "too large: numbers go up to 2^60"},
    {"window(4,0)", 11, "window needs two sides and an alignment: window(4,0,tl)"},
    {"window(4)", 9, "window needs two sides and an alignment"},
    {"window(-2,0,br)", 8, "a window reaches 0 or more keys, or -1 for all of a side"},
    {"window(1,0,br,3)", 14, "too many arguments: window needs two sides"},
    {"window(1,,br)", 10, "an argument was expected; found ','"},
    {"window(1 0,br)", 10, "',' or ')' was expected after an argument; found '0'"},
    {"prefix", 1, "prefix needs a number of keys"},
    {"prefix(-1)", 8, "'-1': 0 or more was expected"},
    {"prefix(2.5)", 8, "'2.5' is not a whole number"},
    {"global(1x)", 8, "'1x' is not a whole number"},
    {"keys(3,4,5)", 6, "3 of them for 2 batches: give one for each, or one for all"},
    {"keys(x01,x10,x11)", 6, "3 of them for 2 batches"},
    {"keys(9)", 6, "length 9 exceeds Lk = 8"},
    {"keys(3,-4)", 8, "'-4': 0 or more was expected"},
    {"keys(3,x01)", 8, "'x01' is not a whole number"},
    {"keys(x01,3)", 10, "'3' is not a pattern such as x0110"},
    {"keys(a,b)", 7, "too many arguments"},
    {"keys(pad)", 6, "keys(pad) names a tensor, and no tensors were given here"},
    {"csr(p)", 5, "csr(p) names a tensor, and no tensors were given here"},
    {"dense(p)", 7, "dense(p) names a tensor, and no tensors were given here"},
    {"documents(3,3)", 11,
     "documents(n1,...) is for Lq = Lk, here 6 and 8: write documents(q1xk1,...)"},
    {"documents(3x4,3x5)", 11, "documents hold at least 9 keys, but Lk = 8"},
    {"documents(3x4,2x4)", 11, "documents hold 5 queries, but Lq = 6"},
    {"documents(3x4,3)", 15, "documents are given as n1,n2,... or as q1xk1,q2xk2,..."},
    {"documents(3,3x4)", 13, "documents are given as n1,n2,... or as q1xk1,q2xk2,..."},
    {"documents(x4)", 11, "documents are given as"},
    {"documents(4x)", 11, "documents are given as"},
    {"documents(-3x4,9x4)", 11, "'-3': 0 or more was expected"},
    {"random(0.5)", 11, "random needs a density and a seed: random(0.25,1)"},
    {"random(1.5,1)", 8, "'1.5' is not a density: a decimal number from 0 to 1"},
    {"random(0.1.2,1)", 8, "'0.1.2' is not a density"},
    {"random(.,1)", 8, "'.' is not a density"},
    {"random(-0,1)", 8, "'-0' is not a density"},
    {"random(0.1234567890123456,1)", 8, "of at most 15 digits"},
    {"random(0.5,-1)", 12, "'-1': 0 or more was expected"},
    {"random(0.5,1,head)", 14, "only the word heads may stand here"},
    {"random(0.5,1,heads,2)", 19, "too many arguments"},
    {"blocks(0,0.5,1)", 8, "blocks have 1 token or more"},
    {"blocks(2)", 9, "blocks needs a size, a density and a seed: blocks(16,0.25,1)"},
    {"blocks(2,0.5)", 13, "blocks needs a size, a density and a seed"},
    {"bigbird(2,1,3,1)", 16, "three numbers of blocks and a seed: bigbird(16,1,3,1,0)"},
    {"bigbird(2,1,2,1,0)", 13, "a window of 2 blocks has no block in the middle: an odd number"},
    {"bigbird(2,1,1,1,0,0)", 18, "too many arguments: bigbird needs the size of a block"},
    {"spatial", 1, "spatial needs a grid: spatial(16,30,40)"},
    {"spatial(2,3)", 12, "spatial needs a grid: spatial(16,30,40)"},
    {"spatial(2,0,3)", 11, "extents of a grid start at 1"},
    {"spatial(2,2,2)", 9, "Lq = Lk would work; here 6 and 8"},
    {"skiparse(double,2)", 10, "'double' is neither single nor group"},
    {"skiparse(single)", 16, "skiparse needs a mode and a number: skiparse(single,4)"},
    {"skiparse(group,0)", 16, "k starts at 1, which hides nothing"},
    {"skiparse(group,2,2)", 17, "too many arguments"},
    {"none none", 6, "'&', '|' or the end of the text was expected; found 'n'"},
    {"none)", 5, "'&', '|' or the end of the text was expected; found ')'"},
    {"none()", 5, "found '('"},
    {"(none", 6, "'&', '|' or the ')' of column 1 was expected; found the end of the text"},
    {"none|((none)", 13, "the ')' of column 6 was expected; found the end of the text"},
    {"causal(tl", 10, "',' or ')' was expected after an argument; found the end of the text"},
    {"none &", 7, "found the end of the text"},
    {"& none", 1, "found '&'"},
    {"none && none", 7, "found '&'"},
    {"3", 1, "found '3'"},
    {"casual(tl)", 1,
     "no call is named 'casual' (did you mean causal?); there are: none causal window"},
    {"Causal(tl)", 1, "did you mean causal?"},
    {"document(3)", 1, "did you mean documents?"},
    {"triangle(3)", 1,
     "no call is named 'triangle'; there are: none causal window prefix global keys "
     "documents random blocks bigbird spatial temporal skiparse dilated axial2d local2d local3d "
     "swin "
     "csr dense"},
    {"caus\xc3\xa1l(tl)", 5, "byte 0xc3; masks are written in printable ASCII"},
    {"none\n", 5, "byte 0x0a; masks are written in printable ASCII"},
};
enum { N_ERRORS = sizeof ERRORS / sizeof *ERRORS };

TEST_EACH(errors_name_the_place_and_the_way_out, N_ERRORS)
{
    refuse(ERRORS[_i], (struct attn_mask_shape){2, 1, 6, 8}, NULL);
}

/* Grids that do not hold 24 tokens, and what is wrong with those that do. */
TEST(grids_say_what_would_fit)
{
    static const struct error_text want[] = {
        {"spatial(2,3,5)", 9,
         "a grid of 2*3*5 is not the 24 tokens that there are: 15 (1 for the first) or 30 (2) "
         "tokens would work"},
        {"none|temporal(3,3,4)", 15,
         "a grid of 3*3*4 is not the 24 tokens that there are: 2 for "
         "the first would work"},
        {"axial2d(1152921504606846976,1152921504606846976)", 9, "the sizes must multiply"},
        {"local3d(16,2,3,1,1,1)", 9, "4 for the first would work"},
        {"local3d(4,2,3,1,-2,1)", 17, "'-2': a reach is 0 or more, or -1 for no limit"},
        {"local3d(4,2,3,1,1)", 18, "local3d needs a grid and its reaches"},
        {"local2d(4,6,2,l3)", 15, "'l3' is neither a reach nor l1 nor l2"},
        {"local2d(4,6,0,l2)", 15, "tokens nearer than 0: 1 to 2^30 would work"},
        {"local2d(4,6,2)", 14,
         "local2d needs a grid and what is near: local2d(30,40,2,2) or local2d(30,40,3,l2)"},
        {"dilated(4,6,0)", 13, "k starts at 1"},
        {"dilated(4,6)", 12, "dilated needs a grid and a number: dilated(30,40,2)"},
        {"swin(4,6,4,0)", 10, "windows of 4 do not fill a grid of 4*6: a number that divides both"},
        {"swin(4,6,0,0)", 10, "windows of 0 do not fill"},
        {"swin(4,6,2,2)", 10, "a shift of 2; 0 to 1 would work"},
    };
    for (size_t n = 0; n < sizeof want / sizeof *want; n++)
        refuse(want[n], (struct attn_mask_shape){1, 1, 24, 24}, NULL);
}

TEST(help_has_a_line_for_each_call)
{
    static const char *const names[] = {"none",    "causal",    "window",   "prefix",  "global",
                                        "keys",    "documents", "random",   "blocks",  "bigbird",
                                        "spatial", "temporal",  "skiparse", "dilated", "axial2d",
                                        "local2d", "local3d",   "swin",     "csr",     "dense"};
    const int n = sizeof names / sizeof *names;
    int line = 0;
    for (; attn_mask_help(line) != NULL; line++) {
        ck_assert_int_lt(line, n);
        ck_assert(strncmp(attn_mask_help(line), names[line], strlen(names[line])) == 0);
    }
    ck_assert_int_eq(line, n);
    ck_assert(attn_mask_help(-1) == NULL);
}

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
        int64_t lo, hi, pairs = 0;
        int counted = 0;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                ck_assert_int_eq(attn_mask_allows(mask, 0, 0, i, j), j <= i);
                pairs += j <= i;
            }
        ck_assert_int_eq(attn_mask_next(mask, 0, 0, 1, 0, &lo, &hi), 1);
        ck_assert(lo == 0 && hi >= 1 && hi <= 2);
        ck_assert_int_eq(attn_mask_count(mask, 0, 0, 0, 4, 0, 4, &counted), pairs);
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
    ck_assert_int_eq(attn_mask_count(mask, 0, 0, 0, 4, 0, 4, &counted), 10);
    attn_mask_free(mask);
    free(open);
    free(legal);
}

/* ---- data that must be refused ------------------------------------------------------------ */

static const struct attn_mask_shape DATA_SHAPE = {2, 3, 2, 4};

TEST(tensors_of_the_wrong_shape_are_refused)
{
    static int64_t data[64];
    static const struct {
        struct error_text want;
        struct attn_mask_tensor tensor;
    } wrong[] = {
        {{"keys(lost)", 0, "nobody knows lost"}, {data, 1, 1, {4}}},
        {{"keys(t)", 0, "elements of 2 bytes"}, {data, 2, 1, {4}}},
        {{"keys(t)", 0, "5 axes"}, {data, 1, 5, {4}}},
        {{"keys(t)", 0, "no data"}, {NULL, 1, 1, {4}}},
        {{"keys(t)", 0, "[2,4] or [4] was expected; it has [5]"}, {data, 1, 1, {5}}},
        {{"keys(t)", 0, "[2,4] or [4] was expected; it has [3,4]"}, {data, 1, 2, {3, 4}}},
        {{"keys(t)", 0, "[2,4] or [4] was expected; it has [1,2,4]"}, {data, 1, 3, {1, 2, 4}}},
        {{"dense(t)", 0, "[2,4] or [1|2,1|3,2,4] was expected"}, {data, 1, 2, {4, 2}}},
        {{"dense(t)", 0, "[2,4] or [1|2,1|3,2,4] was expected"}, {data, 1, 3, {3, 2, 4}}},
        {{"dense(t)", 0, "[2,4] or [1|2,1|3,2,4] was expected"}, {data, 1, 4, {3, 3, 2, 4}}},
        {{"dense(t)", 0, "was expected; it has [2,2,2,4]"}, {data, 1, 4, {2, 2, 2, 4}}},
        {{"causal(ends,t)", 0, "[2] or [1], were expected; it has [3]"}, {data, 8, 1, {3}}},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++)
        refuse(wrong[n].want, DATA_SHAPE, &(struct two){.tensor = wrong[n].tensor});
}

TEST(broken_rows_are_refused)
{
    static const struct {
        int32_t start[4];
        int64_t n_start, column[6], n_column;
        const char *says;
    } broken[] = {
        {{0, 2, 3}, 2, {0, 1, 2}, 3, "row_start has 2 entries; Lq + 1 = 3"},
        {{1, 2, 3}, 3, {0, 1, 2}, 3, "row 0: row_start begins with 1"},
        {{0, 2, 1}, 3, {0, 1, 2}, 3, "row 1: starts at 2 and ends at 1"},
        {{0, 9, 9}, 3, {0, 1, 2}, 3, "row 0: starts at 0 and ends at 9"},
        {{0, -1, 3}, 3, {0, 1, 2}, 3, "row 0: starts at 0 and ends at -1"},
        {{0, 2, 3}, 3, {0, 1, 2, 3}, 4, "row 1: row_start ends with 3, but there are 4 columns"},
        {{0, 2, 3}, 3, {0, 4, 2}, 3, "row 0: column 4 is outside [0,4)"},
        {{0, 2, 3}, 3, {0, 1, -1}, 3, "row 1: column -1 is outside [0,4)"},
        {{0, 2, 3}, 3, {1, 1, 2}, 3, "row 0: column 1 after 1"},
        {{0, 1, 3}, 3, {1, 3, 2}, 3, "row 1: column 2 after 3"},
    };
    for (size_t n = 0; n < sizeof broken / sizeof *broken; n++)
        refuse((struct error_text){"csr(t)", 0, broken[n].says}, DATA_SHAPE,
               &(struct two){{broken[n].start, 4, 1, {broken[n].n_start}},
                             {broken[n].column, 8, 1, {broken[n].n_column}}});
    refuse((struct error_text){"csr(t)", 0, "must be i32 or i64 with one axis"}, DATA_SHAPE,
           &(struct two){{broken[0].start, 1, 1, {3}}, {broken[0].column, 8, 1, {3}}});
}
