/* The keys of plans, and what their words may be. */
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/plan_draft.h"

#define POINT(member) offsetof(struct attn_plan_point, member)
#define PLAN(member)  offsetof(struct attn_plan, member)
const struct attn_plan_key attn_plan_keys[KEYS] = {
#define KEY(id, ...) {__VA_ARGS__},
#include "experiments/measure/plan_keys.def"
#undef KEY
};

int attn_plan_key_find(const char *name)
{
    int key = 0;
    while (key < KEYS && strcmp(attn_plan_keys[key].name, name) != 0)
        key++;
    return key;
}

char *attn_plan_next_word(char **text)
{
    *text += strspn(*text, " \t");
    if (**text == '\0')
        return NULL;
    char *word = *text;
    *text += strcspn(*text, " \t");
    if (**text != '\0')
        *(*text)++ = '\0';
    return word;
}

void *attn_plan_reserve(void *array, int64_t n, size_t size)
{
    int is_full = (n & (n - 1)) == 0;
    return is_full ? attn_cli_need(realloc(array, (n == 0 ? 1 : 2 * (size_t)n) * size)) : array;
}

enum attn_status attn_plan_set_number(const struct attn_plan_key *k, const char *word, void *base,
                                      struct attn_error *err)
{
    void *to = (char *)base + k->place;
    double real;
    if (k->kind == INTEGER && !attn_cli_count(word, k->min, k->max, to))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not an integer from %lld to %lld%s",
                         k->name, word, (long long)k->min, (long long)k->max,
                         k->max > 1 << 20 ? ", such as 200000, 200k or 64Ki" : "");
    if (k->kind == INTEGER)
        return ATTN_OK;
    if (!attn_cli_double(word, &real) || !(real >= 0 && real < 1e9))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not a number of seconds", k->name,
                         word);
    *(double *)to = real;
    return ATTN_OK;
}

static enum attn_status set_spec(const struct attn_subjects *externals, const char *word,
                                 struct attn_plan_point *point, struct attn_error *err)
{
    if (strlen(word) >= sizeof point->spec_text)
        return attn_fail(err, ATTN_EINVAL, "spec '%.40s...' is longer than 127 bytes", word);
    memset(&point->spec, 0, sizeof point->spec);
    strcpy(point->spec_text, word);
    point->external = attn_subjects_find(externals, word);
    if (point->external != NULL)
        return ATTN_OK;
    enum attn_status status = attn_spec_parse(word, &point->spec, err);
    if (status == ATTN_OK)
        attn_spec_print(&point->spec, point->spec_text, sizeof point->spec_text);
    return status;
}

/* A storage type, and behind it the fields that a case of it has: bf16:sink=normal:kv=shared. */
static enum attn_status set_dtype(const char *word, struct attn_case *c, struct attn_error *err)
{
    const char *fields = strchr(word, ':'), *at = fields;
    int dtype = 0;
    for (size_t n = strcspn(word, ":"); dtype < ATTN_DTYPES; dtype++) {
        const char *name = attn_dtype_name((enum attn_dtype)dtype);
        if (strlen(name) == n && strncmp(word, name, n) == 0)
            break;
    }
    for (; at != NULL; at = strchr(at + 1, ':'))
        if (strncmp(at, ":sink=", 6) != 0 && strncmp(at, ":kv=", 4) != 0)
            dtype = ATTN_DTYPES;
    if (dtype == ATTN_DTYPES)
        return attn_fail(err, ATTN_EINVAL,
                         "dtype '%.40s': there are f64, f32, bf16, f16, and behind them "
                         ":sink=normal and :kv=shared",
                         word);
    c->dtype = (enum attn_dtype)dtype;
    c->sink = ATTN_CASE_SINK_NONE;
    c->kv_shared = 0;
    return fields != NULL ? attn_case_fields(fields, c, err) : ATTN_OK;
}

enum attn_status attn_plan_set_word(const struct attn_subjects *externals, int key,
                                    const char *word, struct attn_plan_point *point,
                                    struct attn_error *err)
{
    struct attn_case *c = &point->c;
    int fill;
    int64_t threads;
    switch (key) {
    case SPEC:
        return set_spec(externals, word, point, err);
    case SAVE:
        return attn_stack_save_find(word, &point->layers.save, err);
    case PASS:
        c->pass = strcmp(word, "bwd") == 0 ? ATTN_BACKWARD : ATTN_FORWARD;
        return strcmp(word, attn_pass_name(c->pass)) == 0
                   ? ATTN_OK
                   : attn_fail(err, ATTN_EINVAL, "pass '%.40s': there are fwd, bwd and both", word);
    case MASK:
        if (strlen(word) >= ATTN_CASE_MASK)
            return attn_fail(err, ATTN_EINVAL, "mask '%.40s...' is longer than %d bytes", word,
                             ATTN_CASE_MASK - 1);
        strcpy(c->mask, word);
        return ATTN_OK;
    case DTYPE:
        return set_dtype(word, c, err);
    case SCALE:
    case SOFTCAP:
        return attn_cli_double(word, key == SCALE ? &c->scale : &c->softcap)
                   ? ATTN_OK
                   : attn_fail(err, ATTN_EINVAL, "%s '%.40s' is not a number",
                               attn_plan_keys[key].name, word);
    case THREADS:
        if (!attn_cli_int(word, 1, 64, &threads))
            return attn_fail(err, ATTN_EINVAL, "threads '%.40s' is not a number from 1 to 64",
                             word);
        c->threads = (int)threads;
        return ATTN_OK;
    case FILL:
        fill = attn_fill_find(word);
        c->fill = (enum attn_fill)fill;
        return fill >= 0 ? ATTN_OK
                         : attn_fail(err, ATTN_EINVAL,
                                     "fill '%.40s': attnlab list names those there are", word);
    default:
        return attn_plan_set_number(&attn_plan_keys[key], word, point, err);
    }
}

/* ---- specs in legends ------------------------------------------------------------------------ */

void attn_spec_without_ranks(const char *spec, char text[128])
{
    size_t n = strcspn(spec, ":");
    char join = ':';
    (void)snprintf(text, 128, "%.*s", (int)n, spec);
    for (const char *option = spec + n; *option != '\0'; option += strcspn(option, ",")) {
        int size = (int)strcspn(++option, ",");
        if (strncmp(option, "ranks=", 6) == 0)
            continue;
        n = strlen(text);
        (void)snprintf(text + n, 128 - n, "%c%.*s", join, size, option);
        join = ',';
    }
}

size_t attn_spec_length(const char *label)
{
    const char *comma = strstr(label, ", "), *open = strstr(label, " (");
    const char *end = comma == NULL || (open != NULL && open < comma) ? open : comma;
    return end != NULL ? (size_t)(end - label) : strlen(label);
}

int attn_spec_is_named(const char *spec, const char *curve)
{
    char without_ranks[128];
    size_t n = attn_spec_length(curve);
    attn_spec_without_ranks(spec, without_ranks);
    return (strlen(spec) == n && strncmp(spec, curve, n) == 0) ||
           (strlen(without_ranks) == n && strncmp(without_ranks, curve, n) == 0);
}
