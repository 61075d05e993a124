/* Plans: read line by line into a draft of groups, then multiplied out.
 *
 * What is known to be wrong when a line is read is said then, with the line's number; what needs
 * a whole group (a mask needs its length) is said when the groups are multiplied out, with the
 * number of the group's line. */
#include "experiments/measure/plan_draft.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "ref/mask/mask.h"

const struct attn_plan_key attn_plan_keys[KEYS] = {
    {"spec", "spec        implementations with options: dense ring:ranks=2", "", 0, 0, 1},
    {"length", "length      lengths: as many queries as keys", "", 0, 1 << 30, 1},
    {"mask", "mask        masks, each without blanks  [none]", "none", 0, 0, 1},
    {"pass", "pass        fwd, bwd, both  [fwd]", "fwd", 0, 0, 1},
    {"heads", "heads       query heads  [1]", "1", 1, 1 << 20, 0},
    {"kv-heads", "kv-heads    key/value heads  [as heads]", "", 1, 1 << 20, 0},
    {"dim", "dim         features of a query and of a key  [64]", "64", 0, 1 << 20, 0},
    {"dv", "dv          features of a value  [as dim]", "", 0, 1 << 20, 0},
    {"batch", "batch       batch  [1]", "1", 1, 1 << 20, 0},
    {"dtype", "dtype       storage type  [f32]", "f32", 0, 0, 0},
    {"fill", "fill        test data  [normal]", "normal", 0, 0, 0},
    {"data-seed", "data-seed   seed of the test data  [1]", "1", 0, INT64_MAX, 0},
    {"once", "once        lengths beyond are measured by one process and its first call", "", 0,
     1 << 30, 0},
    {"rounds", "rounds      fresh processes for each point  [5]", "5", 1, 1000, 0},
    {"repeat", "repeat      warm calls in a process, those after its first, at most  [10]", "10", 0,
     64, 0},
    {"enough", "enough      seconds of warm calls after which a process stops, one at least  [0.3]",
     "0.3", 0, 0, 0},
    {"budget", "budget      seconds for the whole session; 0: no limit  [0]", "0", 0, 0, 0},
    {"timeout", "timeout     seconds for one process  [300]", "300", 0, 0, 0},
    {"verify-all", "verify-all  longest length at which all elements are verified  [2048]", "2048",
     0, 1 << 30, 0},
    {"seed", "seed        seed of the order of points  [1]", "1", 0, INT64_MAX, 0},
};

const char *attn_plan_help(int line)
{
    return line >= 0 && line < KEYS ? attn_plan_keys[line].help : NULL;
}

struct attn_plan_draft *attn_plan_begin(void)
{
    struct attn_plan_draft *draft = calloc(1, sizeof *draft);
    if (draft != NULL)
        draft->now = &draft->presets;
    return draft;
}

void attn_plan_invite(struct attn_plan_draft *draft, const struct attn_external_specs *externals)
{
    draft->externals = externals;
}

void attn_plan_at(struct attn_plan_draft *draft, int line)
{
    draft->line = line;
}

static void group_clear(struct group *group)
{
    for (int key = 0; key < GROUP_KEYS; key++)
        free(group->value[key]);
    json_decref(group->wishes);
    while (group->limits != NULL) {
        struct limit *next = group->limits->next;
        free(group->limits);
        group->limits = next;
    }
}

void attn_plan_abandon(struct attn_plan_draft *draft)
{
    if (draft == NULL)
        return;
    while (draft->first != NULL) {
        struct group *next = draft->first->next;
        group_clear(draft->first);
        free(draft->first);
        draft->first = next;
    }
    group_clear(&draft->presets);
    for (int key = 0; key < KEYS; key++)
        free(draft->value[key]);
    free(draft);
}

enum attn_status attn_plan_group(struct attn_plan_draft *draft, const char *name,
                                 struct attn_error *err)
{
    struct group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    size_t length = strlen(name);
    if (length == 0 || length >= sizeof group->name || strpbrk(name, " \t\"'=,/") != NULL) {
        free(group);
        return attn_fail(err, ATTN_EINVAL,
                         "a group needs a name of 1 to 31 letters, digits and -, got '%.60s'",
                         name);
    }
    struct group **end = &draft->first;
    for (; *end != NULL; end = &(*end)->next)
        if (strcmp((*end)->name, name) == 0) {
            free(group);
            return attn_fail(err, ATTN_EINVAL, "there are two groups named %s", name);
        }
    memcpy(group->name, name, length + 1);
    group->line = draft->line;
    draft->now = *end = group;
    return ATTN_OK;
}

/* ---- one value ---------------------------------------------------------------------------- */

char *attn_plan_word(char **text)
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

static enum attn_status check_word(const struct attn_plan_draft *draft, int key, const char *word,
                                   struct attn_error *err)
{
    struct attn_spec spec;
    int64_t integer;
    double real;
    if (key == SPEC) {
        if (strlen(word) >= sizeof((struct attn_plan_point *)0)->spec_text)
            return attn_fail(err, ATTN_EINVAL, "spec '%.40s...' is longer than 127 bytes", word);
        return attn_external_specs_find(draft->externals, word) != NULL
                   ? ATTN_OK
                   : attn_spec_parse(word, &spec, err);
    }
    if (key == PASS && strcmp(word, "fwd") != 0 && strcmp(word, "bwd") != 0)
        return attn_fail(err, ATTN_EINVAL, "pass '%.40s': there are fwd, bwd and both", word);
    if (key == MASK && strlen(word) >= SUBJECT_TEXT)
        return attn_fail(err, ATTN_EINVAL, "mask '%.40s...' is longer than 255 bytes", word);
    if (attn_plan_keys[key].max > 0 &&
        !attn_cli_count(word, attn_plan_keys[key].min, attn_plan_keys[key].max, &integer))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not an integer from %lld to %lld",
                         attn_plan_keys[key].name, word, (long long)attn_plan_keys[key].min,
                         (long long)attn_plan_keys[key].max);
    if ((key == ENOUGH || key == BUDGET || key == TIMEOUT) &&
        !(attn_cli_double(word, &real) && real >= 0 && real < 1e9))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not a number of seconds",
                         attn_plan_keys[key].name, word);
    if (key == DTYPE) {
        for (int dtype = 0; dtype < ATTN_DTYPES; dtype++)
            if (strcmp(word, attn_dtype_name((enum attn_dtype)dtype)) == 0)
                return ATTN_OK;
        return attn_fail(err, ATTN_EINVAL, "dtype '%.40s': there are f64, f32, bf16, f16", word);
    }
    if (key == FILL && attn_fill_find(word) < 0)
        return attn_fail(err, ATTN_EINVAL, "fill '%.40s': attnlab list names those there are",
                         word);
    return ATTN_OK;
}

static enum attn_status check_value(const struct attn_plan_draft *draft, int key, const char *value,
                                    struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    int words = 0;
    char *copy = strdup(value), *rest = copy;
    if (copy == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    for (char *word; status == ATTN_OK && (word = attn_plan_word(&rest)) != NULL; words++)
        status = check_word(draft, key, word, err);
    free(copy);
    if (status == ATTN_OK && words == 0)
        status = attn_fail(err, ATTN_EINVAL, "%s = needs a value", attn_plan_keys[key].name);
    if (status == ATTN_OK && words > 1 && !attn_plan_keys[key].is_list)
        status = attn_fail(err, ATTN_EINVAL, "%s takes one value, got '%.60s'",
                           attn_plan_keys[key].name, value);
    return status;
}

static enum attn_status unknown_key(const char *key, struct attn_error *err)
{
    char names[256] = "";
    for (int k = 0; k < KEYS; k++) {
        strcat(names, k == 0 ? "" : " "); /* all names together: 125 bytes */
        strcat(names, attn_plan_keys[k].name);
    }
    return attn_fail(err, ATTN_EINVAL,
                     "unknown key '%.40s'; there are %s, and the lines `group NAME` and "
                     "`limit SUBJECT... = LENGTH`",
                     key, names);
}

static enum attn_status put(struct attn_plan_draft *draft, const char *name, const char *value,
                            int append, struct attn_error *err)
{
    int key = 0;
    while (key < KEYS && strcmp(attn_plan_keys[key].name, name) != 0)
        key++;
    if (key == KEYS)
        return unknown_key(name, err);
    if (key >= GROUP_KEYS && draft->now != &draft->presets && draft->line > 0)
        return attn_fail(err, ATTN_EINVAL, "%s is the plan's: it goes before the first group",
                         name);
    if (key == PASS && strcmp(value, "both") == 0)
        value = "fwd bwd";
    char **slot = key < GROUP_KEYS ? &draft->now->value[key] : &draft->value[key];
    if (append && !attn_plan_keys[key].is_list)
        return attn_fail(err, ATTN_EINVAL, "%s takes one value: nothing can be added to it", name);
    if (*slot != NULL && !append)
        return attn_fail(err, ATTN_EINVAL, "%s is set twice%s", name,
                         attn_plan_keys[key].is_list ? "; `+=` adds to a list" : "");
    enum attn_status status = check_value(draft, key, value, err);
    if (status != ATTN_OK)
        return status;
    char *joined = NULL;
    if (asprintf(&joined, "%s %s", *slot != NULL ? *slot : "", value) < 0)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    free(*slot);
    *slot = joined;
    return ATTN_OK;
}

enum attn_status attn_plan_set(struct attn_plan_draft *draft, const char *key, const char *value,
                               struct attn_error *err)
{
    return put(draft, key, value, 0, err);
}

enum attn_status attn_plan_add(struct attn_plan_draft *draft, const char *key, const char *value,
                               struct attn_error *err)
{
    return put(draft, key, value, 1, err);
}

/* Is it made of these characters, and of some? */
static int is_of(const char *text, const char *characters)
{
    return *text != '\0' && text[strspn(text, characters)] == '\0';
}

static const char *what_is_wrong(const char *what, const char *value)
{
    static const char *const words[] = {"length", "ranks", "density"};
    if (strcmp(what, "colour") == 0)
        return strlen(value) == 6 && is_of(value, "0123456789abcdefABCDEF")
                   ? NULL
                   : "is not of the form D55E00";
    if (strstr(what, "-range") != NULL)
        return is_of(value, "0123456789.eE+-:*") && strchr(value, ':') != NULL
                   ? NULL
                   : "is not of the form LOW:HIGH, where * is what the data give";
    if (strcmp(what, "figure") != 0)
        return strlen(value) < 120 ? NULL : "is longer than 119 bytes";
    for (int w = 0; w < 3; w++) {
        size_t n = strlen(words[w]);
        if (strncmp(value, words[w], n) == 0 && (value[n] == '-' || value[n] == '\0') &&
            strlen(value) < sizeof((struct group *)0)->name)
            return NULL;
    }
    return "does not begin with length-, ranks or density";
}

enum attn_status attn_plan_wish(struct attn_plan_draft *draft, const char *what, const char *curve,
                                const char *value, struct attn_error *err)
{
    if (draft->now == &draft->presets)
        return attn_fail(err, ATTN_EINVAL, "%s is a group's: it goes after a `group NAME`", what);
    const char *wrong = *value == '\0' ? "needs a value" : what_is_wrong(what, value);
    if (wrong != NULL || (curve != NULL && *curve == '\0'))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.60s' %s", what, value,
                         wrong != NULL ? wrong : "names no curve");
    if (draft->now->wishes == NULL)
        draft->now->wishes = json_object();
    json_t *to = draft->now->wishes,
           *text = json_sprintf("%s%s", strcmp(what, "colour") == 0 ? "#" : "", value);
    if (curve != NULL && json_object_get(to, what) == NULL)
        json_object_set_new(to, what, json_object());
    to = curve != NULL ? json_object_get(to, what) : to;
    if (json_object_get(to, curve != NULL ? curve : what) != NULL) {
        json_decref(text);
        return attn_fail(err, ATTN_EINVAL, "%s is set twice", what);
    }
    if (text == NULL || json_object_set_new(to, curve != NULL ? curve : what, text) != 0)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan, or %s is no UTF-8", what);
    return ATTN_OK;
}

enum attn_status attn_plan_limit(struct attn_plan_draft *draft, char *subjects, const char *length,
                                 struct attn_error *err)
{
    struct limit *limit = calloc(1, sizeof *limit);
    if (limit == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    limit->inherited = draft->now == &draft->presets;
    for (char *word; (word = attn_plan_word(&subjects)) != NULL; limit->n_subjects++) {
        if (limit->n_subjects == MAX_SUBJECTS || strlen(word) >= SUBJECT_TEXT) {
            free(limit);
            return attn_fail(err, ATTN_EINVAL, "limit: at most %d subjects of 255 bytes",
                             MAX_SUBJECTS);
        }
        strcpy(limit->subject[limit->n_subjects], word);
    }
    if (limit->n_subjects == 0 || !attn_cli_count(length, 0, 1 << 30, &limit->length)) {
        free(limit);
        return attn_fail(err, ATTN_EINVAL,
                         "a limit reads `limit SUBJECT... = LENGTH`, where a subject is an "
                         "implementation, a spec, a pass or a mask");
    }
    limit->next = draft->now->limits;
    draft->now->limits = limit;
    return ATTN_OK;
}
