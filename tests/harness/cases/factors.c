/* The table of factors, and what a choice of values means. */
#include "tests/harness/cases/factors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/files/fileio.h"

const struct attn_factor attn_factor[ATTN_FACTORS] = {
#define ATTN_FACTOR(id, name, says, ...) \
    {name, says, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), {__VA_ARGS__}},
#include "tests/harness/cases/factors.def"
#undef ATTN_FACTOR
};

static const char *value_of(const struct attn_choice *choice, int factor)
{
    return attn_factor[factor].value[choice->value[factor]];
}

int64_t attn_choice_number(const struct attn_choice *choice, int factor)
{
    const char *text = value_of(choice, factor);
    if (factor == ATTN_FACTOR_DV && *text == '=')
        return attn_choice_number(choice, ATTN_FACTOR_D);
    return strtoll(text, NULL, 10);
}

double attn_case_work(const struct attn_case *c)
{
    double queries = (double)c->n_query, keys = (double)c->n_key;
    double width = 0.5 * (double)(c->d_key + c->d_value);
    return (double)c->batch * (double)c->heads *
           (queries * keys * (16 + width) + 12 * (queries + keys) * width);
}

static void make_shape(const struct attn_choice *choice, struct attn_case *c)
{
    c->batch = attn_choice_number(choice, ATTN_FACTOR_BATCH);
    c->heads = attn_choice_number(choice, ATTN_FACTOR_HEADS);
    c->kv_heads = c->heads / attn_choice_number(choice, ATTN_FACTOR_GROUP);
    c->n_query = attn_choice_number(choice, ATTN_FACTOR_QUERIES);
    c->n_key = attn_choice_number(choice, ATTN_FACTOR_KEYS);
    c->d_key = attn_choice_number(choice, ATTN_FACTOR_D);
    c->d_value = attn_choice_number(choice, ATTN_FACTOR_DV);
}

double attn_choice_work(const struct attn_choice *choice)
{
    struct attn_case c = {0};
    make_shape(choice, &c);
    return attn_case_work(&c);
}

static int is(const struct attn_choice *choice, int factor, const char *value)
{
    return strcmp(value_of(choice, factor), value) == 0;
}

/* A mask over few cells, or beside another call, may leave nothing to be seen; one that goes by
 * position does beside a window unless there are as many keys as queries. */
static int shows_something(const struct attn_choice *choice)
{
    int64_t queries = attn_choice_number(choice, ATTN_FACTOR_QUERIES);
    int64_t keys = attn_choice_number(choice, ATTN_FACTOR_KEYS);
    int is_window = choice->value[ATTN_FACTOR_WINDOW] != 0;
    int is_cut = choice->value[ATTN_FACTOR_CAUSAL] != 0 || is_window;
    int by_place = is(choice, ATTN_FACTOR_MASK, "prefix") ||
                   is(choice, ATTN_FACTOR_MASK, "lengths") ||
                   is(choice, ATTN_FACTOR_MASK, "documents");
    if (choice->value[ATTN_FACTOR_MASK] == 0)
        return !is_window || !is(choice, ATTN_FACTOR_CAUSAL, "+3") || keys >= 15;
    if (by_place && is_window && queries != keys)
        return 0;
    if (is(choice, ATTN_FACTOR_MASK, "keys(bk90)") && keys == 1)
        return 0; /* by chance */
    return is_cut ? queries >= 15 && keys >= 15 : queries >= 15 || keys >= 15;
}

int attn_choice_is_possible(const struct attn_choice *choice)
{
    int names_d = choice->value[ATTN_FACTOR_DV] != 0 &&
                  is(choice, ATTN_FACTOR_DV, value_of(choice, ATTN_FACTOR_D));
    int is_tensor = choice->value[ATTN_FACTOR_BIAS] != 0 && !is(choice, ATTN_FACTOR_BIAS, "alibi");
    int is_forward = is(choice, ATTN_FACTOR_PASS, "fwd");
    int names_usual = choice->value[ATTN_FACTOR_SCALE] != 0 && is(choice, ATTN_FACTOR_SCALE, "1") &&
                      is(choice, ATTN_FACTOR_D, "1"); /* 1/sqrt(1) */
    return !names_d && !names_usual && shows_something(choice) &&
           attn_choice_number(choice, ATTN_FACTOR_HEADS) %
                   attn_choice_number(choice, ATTN_FACTOR_GROUP) ==
               0 &&
           !(choice->value[ATTN_FACTOR_DBIAS] && (!is_tensor || is_forward)) &&
           !(choice->value[ATTN_FACTOR_DLSE] && is_forward);
}

/* ---- the mask -------------------------------------------------------------------------------- */

/* Padding: each batch has a length of its own, the first is full, none is empty. */
static void lengths(const struct attn_case *c, char *mask)
{
    attn_append(mask, ATTN_CASE_MASK, "keys(");
    for (int64_t b = 0; b < c->batch; b++)
        attn_append(mask, ATTN_CASE_MASK, "%s%lld", b > 0 ? "," : "",
                    (long long)(c->n_key - b * c->n_key / (c->batch + 1)));
    attn_append(mask, ATTN_CASE_MASK, ")");
}

/* Three sequences in a batch; of few tokens, the last has all. */
static void documents(const struct attn_case *c, char *mask)
{
    long long q = c->n_query < 5 || c->n_key < 5 ? 0 : (long long)c->n_query / 5;
    long long k = q == 0 ? 0 : (long long)c->n_key / 5;
    attn_append(mask, ATTN_CASE_MASK, "documents(%lldx%lld,%lldx%lld,%lldx%lld)", q, k, 2 * q, k,
                (long long)c->n_query - 3 * q, (long long)c->n_key - 2 * k);
}

static void make_mask(const struct attn_choice *choice, struct attn_case *c)
{
    const char *causal = value_of(choice, ATTN_FACTOR_CAUSAL), *and = "";
    const char *mask = value_of(choice, ATTN_FACTOR_MASK);
    c->mask[0] = '\0';
    if (choice->value[ATTN_FACTOR_CAUSAL] != 0) {
        attn_append(c->mask, ATTN_CASE_MASK, "causal(%s)", causal);
        and = "&";
    }
    if (choice->value[ATTN_FACTOR_WINDOW] != 0) {
        const char *reach = value_of(choice, ATTN_FACTOR_WINDOW);
        attn_append(c->mask, ATTN_CASE_MASK, "%swindow(%s,%s,%s)", and, reach,
                    *and != '\0' ? "-1" : reach, *and != '\0' ? causal : "br");
        and = "&";
    }
    if (choice->value[ATTN_FACTOR_MASK] == 0 && *and != '\0')
        return;
    attn_append(c->mask, ATTN_CASE_MASK, "%s", and);
    if (strcmp(mask, "lengths") == 0)
        lengths(c, c->mask);
    else if (strcmp(mask, "documents") == 0)
        documents(c, c->mask);
    else if (strcmp(mask, "prefix") == 0)
        attn_append(c->mask, ATTN_CASE_MASK, "prefix(%lld)", (long long)(c->n_key - c->n_key / 3));
    else
        attn_append(c->mask, ATTN_CASE_MASK, "%s", mask);
}

/* ---- the case -------------------------------------------------------------------------------- */

/* Written down as a case string and read: values are spelled as its fields are. */
void attn_choice_case(const struct attn_choice *choice, uint64_t seed, struct attn_case *c)
{
    static const int fields[] = {ATTN_FACTOR_PASS, ATTN_FACTOR_SCALE, ATTN_FACTOR_SOFTCAP,
                                 ATTN_FACTOR_BIAS, ATTN_FACTOR_DBIAS, ATTN_FACTOR_DLSE};
    char text[ATTN_CASE_TEXT];
    make_shape(choice, c);
    make_mask(choice, c);
    snprintf(text, sizeof text,
             "b%" PRId64 "h%" PRId64 "g%" PRId64 "q%" PRId64 "k%" PRId64 "d%" PRId64 "v%" PRId64
             ":%.*s:%s:normal:s%" PRIu64,
             c->batch, c->heads, c->kv_heads, c->n_query, c->n_key, c->d_key, c->d_value,
             ATTN_CASE_MASK, c->mask, value_of(choice, ATTN_FACTOR_DTYPE), seed);
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        if (choice->value[fields[f]] != 0)
            attn_append(text, sizeof text, ":%s=%s", attn_factor[fields[f]].name,
                        value_of(choice, fields[f]));
    if (is(choice, ATTN_FACTOR_BIAS, "alibi"))
        attn_append(text, sizeof text, ":slopes=press");
    attn_case_parse(text, c, NULL);
}

void attn_choice_print(const struct attn_choice *choice, char *text, size_t size)
{
    text[0] = '\0';
    for (int f = 0; f < ATTN_FACTORS; f++)
        if (choice->value[f] != 0)
            attn_append(text, size, "%s%s=%s", text[0] != '\0' ? ", " : "", attn_factor[f].name,
                        value_of(choice, f));
}
