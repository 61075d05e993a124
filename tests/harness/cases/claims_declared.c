/* Declarations of claims: a plug-in's struct, or JSON for those without one (docs/external.md).
 * Unknown words are refused: a misspelt claim would silently not be tested. */
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/claims.h"

enum { MAX_FILE = 1 << 16, MAX_PAGE = 4096, WORDS = 6 };

/* A convention: its key and its words in JSON, in the order of attn_plugin.h; the name and place of
 * its member in a plug-in's struct; its place in the claims. */
#define CONVENTION(key, member, ...)                                       \
    {                                                                      \
        key, #member, {__VA_ARGS__}, offsetof(struct attn_plugin, member), \
            offsetof(struct attn_claims, member)                           \
    }
static const struct convention {
    const char *key, *name, *word[WORDS];
    size_t of_plugin, at;
} conventions[] = {
    CONVENTION("lse", lse, "e", "2", "absent"),
    CONVENTION("empty_lse", empty_lse, "-inf", "+inf", "0"),
    CONVENTION("causal", causal, "any", "tl", "br", "square"),
    CONVENTION("window", window, "beside", "with-self"),
    CONVENTION("layout", layout, "bhld", "blhd", "sbhd", "thd", "thd-padded", "paged"),
    CONVENTION("mask_one", byte, "visible", "hidden"),
    CONVENTION("subnormals", subnormals, "kept", "flushed", "flushed-16")};
enum { CONVENTIONS = sizeof conventions / sizeof *conventions };

static int *value_of(struct attn_claims *claims, const struct convention *x)
{
    return (int *)((char *)claims + x->at);
}

/* Of one d and the same dv: "dv" is claimed, and no case can ask for it. */
static int has_one_width(const struct attn_shapes *x)
{
    const struct attn_range *d = x->of[ATTN_FACTOR_D].range, *dv = x->of[ATTN_FACTOR_DV].range;
    return x->of[ATTN_FACTOR_D].n == 1 && x->of[ATTN_FACTOR_DV].n == 1 && d->from == d->to &&
           dv->from == d->from && dv->to == d->to;
}

/* Claims and a page that the layout does not have. */
static enum attn_status check_layout(const struct attn_claims *c, struct attn_error *err)
{
    const int is_paged = c->layout == ATTN_PLUGIN_PAGED;
    if (attn_claims_are_packed(c) && c->bits & (ATTN_CAP_BIAS | ATTN_CAP_DBIAS))
        return attn_fail(err, ATTN_EINVAL,
                         "layout \"thd\" has no bias tensor: do not claim bias and dbias");
    if (is_paged && c->bits & ATTN_CAP_BACKWARD)
        return attn_fail(err, ATTN_EINVAL,
                         "layout \"paged\" has no gradients: do not claim backward");
    if (c->page < 0 || c->page > MAX_PAGE)
        return attn_fail(err, ATTN_EINVAL, "\"page\" is %lld: up to %d", (long long)c->page,
                         MAX_PAGE);
    if (c->page > 0 && !is_paged)
        return attn_fail(err, ATTN_EINVAL, "\"page\" belongs to layout \"paged\"");
    return c->layout < ATTN_PLUGIN_THD || !(c->bits & ATTN_CAP_STRIDES)
               ? ATTN_OK
               : attn_fail(err, ATTN_EINVAL,
                           "layouts \"thd\" and \"paged\" have one order: do not claim strides");
}

/* Words that contradict: an extent is declared that nothing claims, or groups that divide no number
 * of heads. */
static enum attn_status check_shapes(struct attn_claims *c, struct attn_error *err)
{
    static const struct {
        int extent;
        unsigned claim;
        const char *else_it;
    } needs[] = {{ATTN_FACTOR_DV, ATTN_CAP_DV, "dv is d"},
                 {ATTN_FACTOR_GROUP, ATTN_CAP_GQA, "a group is 1"},
                 {ATTN_FACTOR_KEYS, ATTN_CAP_CROSS, "there are as many keys as queries"},
                 {ATTN_FACTOR_WINDOW, ATTN_CAP_BAND, "no window comes as numbers"}};
    for (int n = 0; n < 4; n++)
        for (int bit = 0; bit < ATTN_CAPS; bit++)
            if (needs[n].claim == 1u << bit && c->shapes.of[needs[n].extent].n > 0 &&
                !(c->bits & needs[n].claim))
                return attn_fail(err, ATTN_EINVAL,
                                 "shape \"%s\" is declared, but \"%s\" is not claimed: without "
                                 "it %s",
                                 attn_factor[needs[n].extent].name, attn_cap_name(bit),
                                 needs[n].else_it);
    if (has_one_width(&c->shapes))
        c->bits &= ~(unsigned)ATTN_CAP_DV;
    for (int64_t heads = 1; heads <= 4096; heads++)
        for (int64_t group = 1; group <= heads && group <= 256; group++)
            if (heads % group == 0 && attn_shapes_have(&c->shapes, ATTN_FACTOR_HEADS, heads) &&
                attn_shapes_have(&c->shapes, ATTN_FACTOR_GROUP, group))
                return ATTN_OK;
    return attn_fail(err, ATTN_EINVAL,
                     "shapes \"heads\" and \"group\" contradict: no group divides any number of "
                     "heads");
}

/* ---- a plug-in's declaration ----------------------------------------------------------------- */

enum { MAX_RANKS = 64 };

/* path NULL: a plug-in's. */
static enum attn_status no_such_arithmetic(const char *path, const char *word,
                                           struct attn_error *err)
{
    char known[200] = "";
    for (int n = 0; n < attn_arithmetic_count; n++)
        attn_append(known, sizeof known, " %s", attn_arithmetic[n].word);
    if (path == NULL)
        return attn_fail(err, ATTN_EINVAL, "arithmetic \"%.40s\" does not exist; there are:%s",
                         word, known);
    return attn_fault(err, ATTN_EINVAL, path, "arithmetic \"%.40s\" does not exist; there are:%s",
                      word, known);
}

/* It must have a function of each pass that it claims. */
static enum attn_status check_passes(const struct attn_plugin *p, struct attn_error *err)
{
    if (p->ranks < 0 || p->ranks > MAX_RANKS)
        return attn_fail(err, ATTN_EINVAL, "its ranks are %d: 0 to %d", p->ranks, MAX_RANKS);
    const char *rank = p->ranks > 0 ? "rank_" : "";
    if (p->ranks > 0 ? p->rank_forward == NULL : p->forward == NULL)
        return attn_fail(err, ATTN_EINVAL, "it has no %sforward()", rank);
    if (p->claims & ATTN_CAP_BACKWARD &&
        (p->ranks > 0 ? p->rank_backward == NULL : p->backward == NULL))
        return attn_fail(err, ATTN_EINVAL, "it claims BACKWARD, but %sbackward is NULL", rank);
    if (p->ranks > 0 && p->layout != ATTN_PLUGIN_BHLD)
        return attn_fail(err, ATTN_EINVAL, "ranks have their tensors in layout BHLD alone");
    if (p->ranks > 0 &&
        p->claims & (ATTN_CAP_BIAS | ATTN_CAP_DBIAS | ATTN_CAP_SINK | ATTN_CAP_KV_SHARED))
        return attn_fail(err, ATTN_EINVAL,
                         "ranks are given no bias tensor, no sink and a V beside K: BIAS, SINK and "
                         "KV_SHARED cannot be claimed");
    return ATTN_OK;
}

/* Its shapes; of ranks that say nothing of them, what ranks divide. */
static enum attn_status shapes_of_plugin(const struct attn_plugin *p, struct attn_shapes *shapes,
                                         struct attn_error *err)
{
    char text[80];
    int n = snprintf(text, sizeof text, "queries: %d.. step %d", p->ranks, p->ranks);
    if (p->claims & ATTN_CAP_CROSS)
        snprintf(text + n, sizeof text - (size_t)n, "; keys: %d.. step %d", p->ranks, p->ranks);
    const char *given = p->shapes != NULL ? p->shapes : p->ranks > 0 ? text : NULL;
    return given != NULL ? attn_shapes_parse(given, shapes, err) : ATTN_OK;
}

static enum attn_status numbers_of_plugin(const struct attn_plugin *p, struct attn_claims *claims,
                                          struct attn_error *err)
{
    for (int n = 0; n < ATTN_CLAIMS_NUMBERS; n++) {
        const struct attn_claims_number *number = &attn_claims_number[n];
        double x;
        memcpy(&x, (const char *)p + number->of_plugin, sizeof x);
        if (!(x >= 0 && x < number->limit))
            return attn_fail(err, ATTN_EINVAL, "it declares %s = %g: from 0, below %g", number->key,
                             x, number->limit);
        memcpy((char *)claims + number->at, &x, sizeof x);
    }
    claims->block = p->block;
    claims->splits = p->splits;
    claims->page = p->page;
    return p->block >= 0 && p->splits >= 0
               ? ATTN_OK
               : attn_fail(err, ATTN_EINVAL, "it declares block = %lld, splits = %lld: from 0",
                           (long long)p->block, (long long)p->splits);
}

enum attn_status attn_claims_of_plugin(const struct attn_plugin *p, struct attn_claims *claims,
                                       struct attn_error *err)
{
    memset(claims, 0, sizeof *claims);
    for (int bit = 0; bit < 32; bit++)
        if (p->claims & 1u << bit && (bit >= ATTN_CAPS || 1u << bit & ATTN_CAPS_OWN))
            return attn_fail(err, ATTN_EINVAL, "it claims bit %d, which ABI %d does not have", bit,
                             ATTN_PLUGIN_ABI);
    if (p->declines >> ATTN_DECLINES != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "it declines 0x%x, of which ABI %d has the lowest %d bits", p->declines,
                         ATTN_PLUGIN_ABI, ATTN_DECLINES);
    if ((p->claims & 15u) == 0)
        return attn_fail(err, ATTN_EINVAL, "it claims no storage type: F32 is the usual one");
    if (check_passes(p, err) != ATTN_OK)
        return err->status;
    if (numbers_of_plugin(p, claims, err) != ATTN_OK)
        return err->status;
    for (int n = 0; n < CONVENTIONS; n++) {
        int32_t value;
        memcpy(&value, (const char *)p + conventions[n].of_plugin, sizeof value);
        if (value < 0 || value >= WORDS || conventions[n].word[value] == NULL)
            return attn_fail(err, ATTN_EINVAL, "its convention %s is %d, which does not exist",
                             conventions[n].name, value);
        *value_of(claims, &conventions[n]) = value;
    }
    snprintf(claims->name, sizeof claims->name, "%.60s", p->name != NULL ? p->name : "plug-in");
    claims->bits = p->claims | (p->claims & ATTN_CAP_BAND ? ATTN_CAP_CAUSAL : 0u);
    claims->declines = p->declines;
    if (p->arithmetic != NULL && (claims->arithmetic = attn_arithmetic_find(p->arithmetic)) < 0)
        return no_such_arithmetic(NULL, p->arithmetic, err);
    claims->ranks = p->ranks;
    enum attn_status status = shapes_of_plugin(p, &claims->shapes, err);
    status = status == ATTN_OK ? check_layout(claims, err) : status;
    return status == ATTN_OK ? check_shapes(claims, err) : status;
}

/* ---- JSON --------------------------------------------------------------------------------- */

/* A list of words, "claims" or "declines", each of which stands for a bit. */
struct bits {
    const char *key, *one, *example;
    const char *(*name)(int bit);
    int n;
    unsigned not_these; /* bits that are no word of the list */
};
static const struct bits claims_list = {"claims",      "claim",   "[\"f32\", \"cross\"]",
                                        attn_cap_name, ATTN_CAPS, ATTN_CAPS_OWN};
static const struct bits declines_list = {"declines",        "declined word", "[\"nan-bias\"]",
                                          attn_decline_name, ATTN_DECLINES,   0};

static enum attn_status read_bits(const char *path, const struct bits *list, const json_t *array,
                                  unsigned *bits, struct attn_error *err)
{
    size_t n;
    json_t *item;
    char known[256] = "";
    for (int bit = 0; bit < list->n; bit++)
        if (!(list->not_these & 1u << bit))
            attn_append(known, sizeof known, " %s", list->name(bit));
    if (!json_is_array(array))
        return attn_fault(err, ATTN_EINVAL, path, "\"%s\" must be an array of words, such as %s",
                          list->key, list->example);
    json_array_foreach(array, n, item)
    {
        int bit = 0;
        const char *word = json_is_string(item) ? json_string_value(item) : "(not a word)";
        while (bit < list->n && (list->not_these & 1u << bit || strcmp(list->name(bit), word) != 0))
            bit++;
        if (bit == list->n)
            return attn_fault(err, ATTN_EINVAL, path, "%s \"%.40s\" does not exist; there are:%s",
                              list->one, word, known);
        *bits |= 1u << bit;
    }
    return ATTN_OK;
}

static json_t *write_bits(const struct bits *list, unsigned bits)
{
    json_t *words = json_array();
    for (int bit = 0; bit < list->n; bit++)
        if (bits & 1u << bit)
            json_array_append_new(words, json_string(list->name(bit)));
    return words;
}

static enum attn_status read_word(const char *path, const struct convention *x, const json_t *value,
                                  int *to, struct attn_error *err)
{
    const char *word = json_is_string(value) ? json_string_value(value) : "(not a word)";
    char known[80] = "";
    for (int n = 0; n < WORDS && x->word[n] != NULL; n++) {
        if (strcmp(word, x->word[n]) == 0) {
            *to = n;
            return ATTN_OK;
        }
        attn_append(known, sizeof known, "%s\"%s\"", n > 0 ? ", " : "", x->word[n]);
    }
    return attn_fault(err, ATTN_EINVAL, path, "\"%s\" is \"%.40s\": %s exist", x->key, word, known);
}

static enum attn_status read_number(const char *path, const char *key, const json_t *value,
                                    double max, double *x, struct attn_error *err)
{
    *x = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (*x >= 0 && *x < max)
        return ATTN_OK;
    return attn_fault(err, ATTN_EINVAL, path, "\"%s\" must be a number from 0, below %g", key, max);
}

static enum attn_status read_shapes(const char *path, const json_t *object,
                                    struct attn_shapes *shapes, struct attn_error *err)
{
    const char *key;
    json_t *value;
    struct attn_error why = {0};
    enum attn_status status = ATTN_OK;
    if (!json_is_object(object))
        return attn_fault(err, ATTN_EINVAL, path,
                          "\"shapes\" must be an object of texts: {\"d\": \"8..256 step 8\"}");
    json_object_foreach((json_t *)object, key, value)
    {
        const char *text = json_is_string(value) ? json_string_value(value) : "(not a text)";
        if (status == ATTN_OK)
            status = attn_shapes_declare(shapes, key, text, &why);
    }
    return status == ATTN_OK ? ATTN_OK : attn_fault(err, status, path, "%.300s", why.text);
}

static enum attn_status read_entry(const char *path, const char *key, const json_t *value,
                                   struct attn_claims *c, struct attn_error *err)
{
    double whole = 0;
    int64_t *integer = strcmp(key, "block") == 0    ? &c->block
                       : strcmp(key, "page") == 0   ? &c->page
                       : strcmp(key, "splits") == 0 ? &c->splits
                                                    : NULL;
    for (int n = 0; n < CONVENTIONS; n++)
        if (strcmp(key, conventions[n].key) == 0)
            return read_word(path, &conventions[n], value, value_of(c, &conventions[n]), err);
    if (strcmp(key, "name") == 0) {
        const char *name = json_is_string(value) ? json_string_value(value) : "external";
        snprintf(c->name, sizeof c->name, "%.60s", name);
        attn_clean(c->name);
        return ATTN_OK;
    }
    if (strcmp(key, "claims") == 0)
        return read_bits(path, &claims_list, value, &c->bits, err);
    if (strcmp(key, "declines") == 0)
        return read_bits(path, &declines_list, value, &c->declines, err);
    if (strcmp(key, "shapes") == 0)
        return read_shapes(path, value, &c->shapes, err);
    for (int n = 0; n < ATTN_CLAIMS_NUMBERS; n++)
        if (strcmp(key, attn_claims_number[n].key) == 0)
            return read_number(path, key, value, attn_claims_number[n].limit,
                               (double *)((char *)c + attn_claims_number[n].at), err);
    if (strcmp(key, "arithmetic") == 0) {
        const char *word = json_is_string(value) ? json_string_value(value) : "(not a word)";
        c->arithmetic = attn_arithmetic_find(word);
        return c->arithmetic < 0 ? no_such_arithmetic(path, word, err) : ATTN_OK;
    }
    if (integer != NULL) {
        enum attn_status status = read_number(path, key, value, 0x1p53, &whole, err);
        *integer = status == ATTN_OK ? (int64_t)whole : 0;
        return status;
    }
    return attn_fault(
        err, ATTN_EINVAL, path,
        "key \"%.40s\" does not exist; there are: name claims declines lse empty_lse "
        "causal window layout mask_one subnormals shapes arithmetic u u_sum u_q u_v u_s "
        "u_dp u_p u_ds u_partial u_head exp_ulps hidden block splits page",
        key);
}

enum attn_status attn_claims_parse(const char *path, const char *text, struct attn_claims *claims,
                                   struct attn_error *err)
{
    json_error_t why;
    const char *key;
    json_t *value, *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    enum attn_status status = ATTN_OK;
    memset(claims, 0, sizeof *claims);
    snprintf(claims->name, sizeof claims->name, "external");
    if (root == NULL)
        return attn_fault(err, ATTN_EINVAL, path, "line %d is not JSON: %.160s", why.line,
                          why.text);
    if (!json_is_object(root))
        status = attn_fault(err, ATTN_EINVAL, path,
                            "must be an object: {\"name\": ..., \"claims\": [...]}");
    else
        json_object_foreach(root, key, value)
        {
            if (status == ATTN_OK)
                status = read_entry(path, key, value, claims, err);
        }
    json_decref(root);
    if (claims->bits & ATTN_CAP_BAND)
        claims->bits |= ATTN_CAP_CAUSAL;
    if (status == ATTN_OK && (claims->bits & 15u) == 0)
        status = attn_fault(err, ATTN_EINVAL, path,
                            "\"claims\" names no storage type: \"f32\" is the usual one");
    struct attn_error clash = {0};
    if (status == ATTN_OK &&
        (check_layout(claims, &clash) != ATTN_OK || check_shapes(claims, &clash) != ATTN_OK))
        status = attn_fault(err, ATTN_EINVAL, path, "%.300s", clash.text);
    return status;
}

enum attn_status attn_claims_read(const char *path, struct attn_claims *claims,
                                  struct attn_error *err)
{
    char *text;
    enum attn_status status = attn_read_text(path, ATTN_READ_GIVEN, MAX_FILE, &text, err);
    if (status == ATTN_OK)
        status = attn_claims_parse(path, text, claims, err);
    free(text);
    return status;
}

void attn_claims_conventions(const struct attn_claims *claims, void *object)
{
    struct attn_claims copy = *claims;
    for (int n = 0; n < CONVENTIONS; n++)
        json_object_set_new(object, conventions[n].key,
                            json_string(conventions[n].word[*value_of(&copy, &conventions[n])]));
}

char *attn_claims_print(const struct attn_claims *claims)
{
    json_t *root = json_pack("{s:s, s:o, s:o}", "name", claims->name, "claims",
                             write_bits(&claims_list, claims->bits), "declines",
                             write_bits(&declines_list, claims->declines));
    json_t *numbers =
        json_pack("{s:s, s:I, s:I, s:I}", "arithmetic", attn_arithmetic[claims->arithmetic].word,
                  "block", (json_int_t)claims->block, "splits", (json_int_t)claims->splits, "page",
                  (json_int_t)claims->page);
    for (int n = 0; n < ATTN_CLAIMS_NUMBERS; n++) {
        double x;
        memcpy(&x, (const char *)claims + attn_claims_number[n].at, sizeof x);
        json_object_set_new(numbers, attn_claims_number[n].key, json_real(x));
    }
    attn_claims_conventions(claims, root);
    json_t *shapes = json_object();
    for (int x = 0; x < ATTN_EXTENTS; x++) {
        char text[400];
        attn_shapes_print(&claims->shapes, x, text, sizeof text);
        if (claims->shapes.of[x].n > 0)
            json_object_set_new(shapes, attn_factor[x].name, json_string(text));
    }
    json_object_set_new(root, "shapes", shapes);
    json_object_update(root, numbers);
    json_decref(numbers);
    char *text = json_dumps(root, 0);
    json_decref(root);
    return text;
}
