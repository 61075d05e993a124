/* A declaration of claims as JSON, for those without a plug-in struct (docs/external.md).  Unknown
 * words are refused: a misspelt claim would silently not be tested. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/cases/claims.h"
#include "tests/harness/files/fileio.h"

enum { MAX_FILE = 1 << 16 };

/* A convention: its key, its words in the order of attn_plugin.h, where it is kept. */
struct convention {
    const char *key, *word[3];
    int *value;
};

enum { CONVENTIONS = 7 };

static void conventions_of(struct attn_claims *c, struct convention list[CONVENTIONS])
{
    list[0] = (struct convention){"lse", {"e", "2", "absent"}, &c->lse};
    list[1] = (struct convention){"empty_lse", {"-inf", "+inf", NULL}, &c->empty_lse};
    list[2] = (struct convention){"causal", {"any", "tl", "br"}, &c->causal};
    list[3] = (struct convention){"window", {"beside", "with-self", NULL}, &c->window};
    list[4] = (struct convention){"layout", {"bhld", "blhd", "thd"}, &c->layout};
    list[5] = (struct convention){"mask_one", {"visible", "hidden", NULL}, &c->byte};
    list[6] = (struct convention){"subnormals", {"kept", "flushed", NULL}, &c->subnormals};
}

/* A list of words, "claims" or "declines", each of which stands for a bit. */
struct bits {
    const char *key, *one, *example;
    int n;
    const char *(*name)(int);
};
static const struct bits claims_list = {"claims", "claim", "[\"f32\", \"cross\"]", ATTN_CLAIMS,
                                        attn_claim_name};
static const struct bits declines_list = {"declines", "declined word", "[\"nan-bias\"]",
                                          ATTN_DECLINES, attn_decline_name};

static enum attn_status read_bits(const char *path, const struct bits *list, const json_t *array,
                                  unsigned *bits, struct attn_error *err)
{
    size_t n;
    json_t *item;
    char known[256] = "";
    for (int bit = 0; bit < list->n; bit++)
        if (list->name(bit) != NULL)
            snprintf(known + strlen(known), sizeof known - strlen(known), " %s", list->name(bit));
    if (!json_is_array(array))
        return attn_fault(err, ATTN_EINVAL, path, "\"%s\" must be an array of words, such as %s",
                          list->key, list->example);
    json_array_foreach(array, n, item)
    {
        int bit = 0;
        const char *word = json_is_string(item) ? json_string_value(item) : "(not a word)";
        while (bit < list->n && (list->name(bit) == NULL || strcmp(list->name(bit), word) != 0))
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
                                  struct attn_error *err)
{
    const char *word = json_is_string(value) ? json_string_value(value) : "(not a word)";
    for (int n = 0; n < 3 && x->word[n] != NULL; n++)
        if (strcmp(word, x->word[n]) == 0) {
            *x->value = n;
            return ATTN_OK;
        }
    return attn_fault(err, ATTN_EINVAL, path, "\"%s\" is \"%.40s\": \"%s\", \"%s\"%s%s%s exist",
                      x->key, word, x->word[0], x->word[1], x->word[2] != NULL ? ", \"" : "",
                      x->word[2] != NULL ? x->word[2] : "", x->word[2] != NULL ? "\"" : "");
}

static enum attn_status read_number(const char *path, const char *key, const json_t *value,
                                    double max, double *x, struct attn_error *err)
{
    *x = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (*x >= 0 && *x < max)
        return ATTN_OK;
    return attn_fault(err, ATTN_EINVAL, path, "\"%s\" must be a number from 0, below %g", key, max);
}

static enum attn_status read_entry(const char *path, const char *key, const json_t *value,
                                   struct attn_claims *c, struct attn_error *err)
{
    struct convention list[CONVENTIONS];
    double block = (double)c->block;
    conventions_of(c, list);
    for (int n = 0; n < CONVENTIONS; n++)
        if (strcmp(key, list[n].key) == 0)
            return read_word(path, &list[n], value, err);
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
    if (strcmp(key, "u") == 0)
        return read_number(path, key, value, 0.5, &c->u, err);
    if (strcmp(key, "u_p") == 0)
        return read_number(path, key, value, 0.5, &c->u_p, err);
    if (strcmp(key, "exp_ulps") == 0)
        return read_number(path, key, value, 1e6, &c->exp_ulps, err);
    if (strcmp(key, "block") == 0) {
        enum attn_status status = read_number(path, key, value, 0x1p53, &block, err);
        c->block = status == ATTN_OK ? (int64_t)block : 0;
        return status;
    }
    return attn_fault(err, ATTN_EINVAL, path,
                      "key \"%.40s\" does not exist; there are: name claims declines lse empty_lse "
                      "causal window layout mask_one subnormals u u_p exp_ulps block",
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
    if (claims->bits & ATTN_PLUGIN_BAND)
        claims->bits |= ATTN_PLUGIN_CAUSAL;
    if (status == ATTN_OK && (claims->bits & 15u) == 0)
        status = attn_fault(err, ATTN_EINVAL, path,
                            "\"claims\" names no storage type: \"f32\" is the usual one");
    if (status == ATTN_OK && claims->layout == ATTN_CLAIMS_THD &&
        claims->bits & (ATTN_PLUGIN_BIAS | ATTN_PLUGIN_DBIAS))
        status = attn_fault(err, ATTN_EINVAL, path,
                            "layout \"thd\" has no bias tensor: do not claim bias and dbias");
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
    struct convention list[CONVENTIONS];
    conventions_of(&copy, list);
    for (int n = 0; n < CONVENTIONS; n++)
        json_object_set_new(object, list[n].key, json_string(list[n].word[*list[n].value]));
}

char *attn_claims_print(const struct attn_claims *claims)
{
    json_t *root = json_object();
    json_object_set_new(root, "name", json_string(claims->name));
    json_object_set_new(root, "claims", write_bits(&claims_list, claims->bits));
    json_object_set_new(root, "declines", write_bits(&declines_list, claims->declines));
    attn_claims_conventions(claims, root);
    json_object_set_new(root, "u", json_real(claims->u));
    json_object_set_new(root, "u_p", json_real(claims->u_p));
    json_object_set_new(root, "exp_ulps", json_real(claims->exp_ulps));
    json_object_set_new(root, "block", json_integer(claims->block));
    char *text = json_dumps(root, 0);
    json_decref(root);
    return text;
}
