/* Plans: the text is read line by line into a draft of groups, then the groups are multiplied out.
 *
 * A line holds statements separated by `;`; a comment is `#` at the start of a line, or `#` between
 * blanks, and what follows.
 *
 *      group NAME      KEY = WORDS      KEY += WORDS      limit SUBJECTS = LENGTH
 *      figure = NAME   title = TEXT     y-range memory = 1:9
 *      label SPEC = TEXT                 colour SPEC = #D55E00
 *
 * What is known to be wrong when a line is read is said then, with the line's number; what needs
 * a whole group (a mask needs its length) is said when the groups are multiplied out, with the
 * number of the group's line. */
#include "experiments/measure/plan.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "ref/mask/mask.h"
#include "tests/harness/files/fileio.h"

enum {
#define KEY(id, ...) id,
#include "experiments/measure/plan_keys.def"
#undef KEY
    KEYS,
    GROUP_KEYS = ROUNDS /* those before it are of a group */
};

#define POINT(member) offsetof(struct attn_plan_point, member)
#define PLAN(member)  offsetof(struct attn_plan, member)
static const struct key {
    const char *name, *preset;
    int is_list;
    enum { WORD, INTEGER, SECONDS } kind;
    size_t place;
    int64_t min, max;
} keys[KEYS] = {
#define KEY(id, ...) {__VA_ARGS__},
#include "experiments/measure/plan_keys.def"
#undef KEY
};

enum { PLAN_BYTES = 1 << 20 };

/* A plan while it is read.  A group, and what stands before all of them, is an object: KEY: TEXT,
 * "limits": [[LENGTH, SUBJECT, ...]], "wishes": {...}, and of a group "name" and "line". */
struct draft {
    struct attn_plan *plan;
    json_t *presets, *groups, *now; /* now: the one that is read (borrowed)            */
    json_t *met;                    /* subjects of limits that some point of a group has */
    int line;                       /* being read, or of the group being multiplied out  */
    const struct attn_external_specs *externals;
};

static const char *text_of(const json_t *group, const char *key)
{
    return json_string_value(json_object_get(group, key));
}

void attn_plan_free(struct attn_plan *plan)
{
    free(plan->point);
    json_decref(plan->figures);
    memset(plan, 0, sizeof *plan);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The next blank-separated word of *text, cut out in place; NULL after the last. */
static char *next_word(char **text)
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

static int find_key(const char *name)
{
    int key = 0;
    while (key < KEYS && strcmp(keys[key].name, name) != 0)
        key++;
    return key;
}

/* A number goes to its place in a point or the plan. */
static enum attn_status set_number(const struct key *k, const char *word, void *base,
                                   struct attn_error *err)
{
    void *to = (char *)base + k->place;
    double real;
    if (k->kind == INTEGER && !attn_cli_count(word, k->min, k->max, to))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not an integer from %lld to %lld",
                         k->name, word, (long long)k->min, (long long)k->max);
    if (k->kind == INTEGER)
        return ATTN_OK;
    if (!attn_cli_double(word, &real) || !(real >= 0 && real < 1e9))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not a number of seconds", k->name,
                         word);
    *(double *)to = real;
    return ATTN_OK;
}

static enum attn_status set_spec(const struct draft *draft, const char *word,
                                 struct attn_plan_point *point, struct attn_error *err)
{
    if (strlen(word) >= sizeof point->spec_text)
        return attn_fail(err, ATTN_EINVAL, "spec '%.40s...' is longer than 127 bytes", word);
    memset(&point->spec, 0, sizeof point->spec);
    strcpy(point->spec_text, word);
    point->external = attn_external_specs_find(draft->externals, word);
    if (point->external != NULL)
        return ATTN_OK;
    enum attn_status status = attn_spec_parse(word, &point->spec, err);
    if (status == ATTN_OK)
        attn_spec_print(&point->spec, point->spec_text, sizeof point->spec_text);
    return status;
}

/* A word of a group's key goes to a point. */
static enum attn_status set_word(const struct draft *draft, int key, const char *word,
                                 struct attn_plan_point *point, struct attn_error *err)
{
    struct attn_case *c = &point->c;
    int dtype = 0, fill;
    switch (key) {
    case SPEC:
        return set_spec(draft, word, point, err);
    case SAVE:
        return attn_stack_save_find(word, &point->layers.save, err);
    case PASS:
        c->pass = strcmp(word, "bwd") == 0 ? ATTN_BACKWARD : ATTN_FORWARD;
        return strcmp(word, attn_pass_name(c->pass)) == 0
                   ? ATTN_OK
                   : attn_fail(err, ATTN_EINVAL, "pass '%.40s': there are fwd, bwd and both", word);
    case MASK:
        if (strlen(word) >= sizeof c->mask)
            return attn_fail(err, ATTN_EINVAL, "mask '%.40s...' is longer than 255 bytes", word);
        strcpy(c->mask, word);
        return ATTN_OK;
    case DTYPE:
        while (dtype < ATTN_DTYPES && strcmp(word, attn_dtype_name((enum attn_dtype)dtype)) != 0)
            dtype++;
        c->dtype = (enum attn_dtype)dtype;
        return dtype < ATTN_DTYPES
                   ? ATTN_OK
                   : attn_fail(err, ATTN_EINVAL, "dtype '%.40s': there are f64, f32, bf16, f16",
                               word);
    case FILL:
        fill = attn_fill_find(word);
        c->fill = (enum attn_fill)fill;
        return fill >= 0 ? ATTN_OK
                         : attn_fail(err, ATTN_EINVAL,
                                     "fill '%.40s': attnlab list names those there are", word);
    default:
        return set_number(&keys[key], word, point, err);
    }
}

/* Are these words of that key?  Those of a plan's key are stored. */
static enum attn_status check_value(struct draft *draft, int key, const char *value,
                                    struct attn_error *err)
{
    struct attn_plan_point scratch = {.once = 0};
    enum attn_status status = ATTN_OK;
    int words = 0;
    char *copy = attn_cli_text("%s", value), *rest = copy;
    for (char *word; status == ATTN_OK && (word = next_word(&rest)) != NULL; words++)
        status = words > 0 && !keys[key].is_list
                     ? attn_fail(err, ATTN_EINVAL, "%s takes one value, got '%.60s'",
                                 keys[key].name, value)
                 : key >= GROUP_KEYS ? set_number(&keys[key], word, draft->plan, err)
                                     : set_word(draft, key, word, &scratch, err);
    free(copy);
    if (status == ATTN_OK && words == 0)
        status = attn_fail(err, ATTN_EINVAL, "%s = needs a value", keys[key].name);
    return status;
}

static enum attn_status unknown_key(const char *key, struct attn_error *err)
{
    char names[256] = "";
    for (int k = 0; k < KEYS; k++) {
        strcat(names, k == 0 ? "" : " "); /* all names together: 125 bytes */
        strcat(names, keys[k].name);
    }
    return attn_fail(err, ATTN_EINVAL,
                     "unknown key '%.40s'; there are %s, for figures figure title x-range y-range "
                     "label colour, and the lines `group NAME` and `limit SUBJECT... = LENGTH`",
                     key, names);
}

/* ---- statements ------------------------------------------------------------------------------ */

/* Set an item of an object, which takes it over. */
static enum attn_status keep(json_t *object, const char *key, json_t *item, struct attn_error *err)
{
    if (item != NULL && json_object_set_new(object, key, item) == 0)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOMEM, "no memory for a plan, or %.40s is no UTF-8", key);
}

/* KEY = VALUE, KEY += VALUE. */
static enum attn_status put(struct draft *draft, const char *name, const char *value, int append,
                            struct attn_error *err)
{
    int key = find_key(name);
    if (key == KEYS)
        return unknown_key(name, err);
    if (key >= GROUP_KEYS && draft->now != draft->presets)
        return attn_fail(err, ATTN_EINVAL, "%s is the plan's: it goes before the first group",
                         name);
    if (key == PASS && strcmp(value, "both") == 0)
        value = "fwd bwd";
    const char *old = text_of(draft->now, name);
    if (append && !keys[key].is_list)
        return attn_fail(err, ATTN_EINVAL, "%s takes one value: nothing can be added to it", name);
    if (old != NULL && !append)
        return attn_fail(err, ATTN_EINVAL, "%s is set twice%s", name,
                         keys[key].is_list ? "; `+=` adds to a list" : "");
    enum attn_status status = check_value(draft, key, value, err);
    json_t *text = json_sprintf("%s%s%s", old != NULL ? old : "", old != NULL ? " " : "", value);
    return status == ATTN_OK ? keep(draft->now, name, text, err) : (json_decref(text), status);
}

static enum attn_status begin_group(struct draft *draft, const char *name, struct attn_error *err)
{
    size_t n = strlen(name), index;
    json_t *other;
    if (n == 0 || n >= sizeof draft->plan->point->group || strpbrk(name, " \t\"'=,/") != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "a group needs a name of 1 to 31 letters, digits and -, got '%.60s'",
                         name);
    json_array_foreach(draft->groups, index, other)
    {
        if (strcmp(text_of(other, "name"), name) == 0)
            return attn_fail(err, ATTN_EINVAL, "there are two groups named %s", name);
    }
    draft->now = json_pack("{s:i, s:[], s:{}}", "line", draft->line, "limits", "wishes");
    json_array_append_new(draft->groups, draft->now);
    return keep(draft->now, "name", json_string(name), err);
}

/* Is it made of these characters, and of some? */
static int is_of(const char *text, const char *characters)
{
    return *text != '\0' && text[strspn(text, characters)] == '\0';
}

/* What a group says of its figures, and what stands between that word and `=`. */
static const struct wish {
    const char *word;
    enum { NOBODY, A_FIGURE, A_FIGURE_OR_ALL, A_CURVE } subject;
} wishes[] = {{"figure", NOBODY},           {"title", NOBODY},  {"y-range", A_FIGURE},
              {"x-range", A_FIGURE_OR_ALL}, {"label", A_CURVE}, {"colour", A_CURVE}};
enum { WISHES = sizeof wishes / sizeof *wishes };

static const char *what_is_wrong(const struct wish *wish, const char *subject, const char *value)
{
    int is_colour = strcmp(wish->word, "colour") == 0;
    if (*value == '\0')
        return "needs a value";
    if (wish->subject == A_CURVE && *subject == '\0')
        return "names no curve";
    if (wish->subject == NOBODY && *subject != '\0')
        return "has a word too many before =";
    if (wish->subject != NOBODY && wish->subject != A_CURVE &&
        !(wish->subject == A_FIGURE_OR_ALL && *subject == '\0') &&
        attn_figure_groups(subject)[0] == '\0')
        return "does not say of which figure: y-range memory = LOW:HIGH";
    if (is_colour)
        return strlen(value) == 6 && is_of(value, "0123456789abcdefABCDEF")
                   ? NULL
                   : "is not of the form #D55E00";
    if (wish->subject == A_FIGURE || wish->subject == A_FIGURE_OR_ALL)
        return is_of(value, "0123456789.eE+-:*") && strchr(value, ':') != NULL
                   ? NULL
                   : "is not of the form LOW:HIGH, where * is what the data give";
    if (strcmp(wish->word, "figure") != 0)
        return strlen(value) < 120 ? NULL : "is longer than 119 bytes";
    if (attn_group_kind_of(value) != ATTN_GROUP_OTHER &&
        strlen(value) < sizeof((struct attn_plan_point *)0)->group)
        return NULL;
    return "does not begin with the word of a group that has figures (docs/measuring.md)";
}

/* What figures of the group should look like: {"title": TEXT, "label": {SPEC: TEXT}, ...}; a range
 * of all figures has "" in the place of the figure's name. */
static enum attn_status set_wish(struct draft *draft, const struct wish *wish, const char *subject,
                                 const char *value, struct attn_error *err)
{
    const char *what = wish->word, *hash = "";
    if (draft->now == draft->presets)
        return attn_fail(err, ATTN_EINVAL, "%s is a group's: it goes after a `group NAME`", what);
    if (strcmp(what, "colour") == 0) {
        value += *value == '#';
        hash = "#";
    }
    const char *wrong = what_is_wrong(wish, subject, value);
    if (wrong != NULL)
        return attn_fail(err, ATTN_EINVAL, "%s = '%.60s' %s", what, value, wrong);
    json_t *to = json_object_get(draft->now, "wishes");
    if (wish->subject != NOBODY) {
        if (json_object_get(to, what) == NULL)
            json_object_set_new(to, what, json_object());
        to = json_object_get(to, what);
    }
    const char *key = wish->subject != NOBODY ? subject : what;
    return json_object_get(to, key) != NULL ? attn_fail(err, ATTN_EINVAL, "%s is set twice", what)
                                            : keep(to, key, json_sprintf("%s%s", hash, value), err);
}

/* subjects: blank-separated; cut up in place. */
static enum attn_status set_limit(struct draft *draft, char *subjects, const char *length,
                                  struct attn_error *err)
{
    int64_t n;
    json_t *limit = json_array();
    int is_length = attn_cli_count(length, 0, 1 << 30, &n);
    json_array_append_new(limit, json_integer(is_length ? n : 0));
    int is_good = is_length;
    for (char *word; (word = next_word(&subjects)) != NULL;)
        is_good &= json_array_append_new(limit, json_string(word)) == 0;
    is_good &= json_array_size(limit) > 1;
    json_array_append_new(json_object_get(draft->now, "limits"), limit);
    return is_good ? ATTN_OK
                   : attn_fail(err, ATTN_EINVAL,
                               "a limit reads `limit SUBJECT... = LENGTH`, where a subject is an "
                               "implementation, a spec, a pass or a mask");
}

/* The text without blanks around it; cut in place. */
static char *trim(char *text)
{
    static const char blanks[] = " \t\r";
    text += strspn(text, blanks);
    size_t n = strlen(text);
    while (n > 0 && strchr(blanks, text[n - 1]) != NULL)
        n--;
    text[n] = '\0';
    for (char *at = text; *at != '\0'; at++) /* one kind of blank inside */
        if (*at == '\t')
            *at = ' ';
    return text;
}

/* The first word is `word`; then what follows it, else NULL. */
static char *after_word(char *text, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(text, word, n) != 0 || strchr(" =", text[n]) == NULL) /* or its end */
        return NULL;
    return text + n + strspn(text + n, " ");
}

/* A limit and a curve have '=' inside: what stands after the last one is their value. */
static enum attn_status statement(struct draft *draft, char *text, struct attn_error *err)
{
    text = trim(text);
    if (*text == '\0')
        return ATTN_OK;
    char *rest = after_word(text, "group");
    if (rest != NULL)
        return begin_group(draft, rest, err);
    const struct wish *wish = NULL;
    int is_limit = after_word(text, "limit") != NULL;
    for (int w = 0; w < WISHES; w++)
        if (after_word(text, wishes[w].word) != NULL)
            wish = &wishes[w];
    int last = is_limit || (wish != NULL && wish->subject != NOBODY);
    char *equals = last ? strrchr(text, '=') : strchr(text, '=');
    if (equals == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "'%.60s' is neither `group NAME` nor `KEY = VALUE` nor "
                         "`limit SUBJECT... = LENGTH`",
                         text);
    char *value = trim(equals + 1);
    *equals = '\0';
    if (is_limit)
        return set_limit(draft, after_word(text, "limit"), value, err);
    if (wish != NULL)
        return set_wish(draft, wish, trim(after_word(text, wish->word)), value, err);
    int append = equals > text && equals[-1] == '+';
    if (append)
        equals[-1] = '\0';
    return put(draft, trim(text), value, append, err);
}

static void drop_comment(char *line)
{
    for (char *at = line; *at != '\0'; at++)
        if (*at == '#' && (at == line || (strchr(" \t", at[-1]) && strchr(" \t\r", at[1])))) {
            *at = '\0';
            return;
        }
}

/* ---- multiplied out -------------------------------------------------------------------------- */

static const char *value_of(const struct draft *draft, const json_t *group, int key)
{
    const char *own = text_of(group, keys[key].name);
    const char *preset = text_of(draft->presets, keys[key].name);
    return own != NULL ? own : preset != NULL ? preset : keys[key].preset;
}

/* Is the point within every limit?  Notes the subjects that were met. */
static int within(const struct draft *draft, const json_t *limits,
                  const struct attn_plan_point *point)
{
    const char *impl = point->external != NULL ? point->external->name : point->spec.impl->name;
    const char *const is[] = {impl, point->spec_text, attn_pass_name(point->c.pass), point->c.mask};
    int ok = 1;
    size_t l, s;
    json_t *limit, *subject;
    json_array_foreach(limits, l, limit)
    {
        int64_t length = json_integer_value(json_array_get(limit, 0));
        int all = 1;
        json_array_foreach(limit, s, subject)
        {
            int met = s == 0;
            for (int n = 0; n < 4 && !met; n++)
                met = strcmp(json_string_value(subject), is[n]) == 0;
            if (s > 0 && met)
                json_object_set_new(draft->met, json_string_value(subject), json_true());
            all &= met;
        }
        ok &= !all || point->c.n_query <= length;
    }
    return ok;
}

/* The shape, the mask and the text of a point whose words are in place. */
static enum attn_status complete(struct attn_plan_point *point, struct attn_error *err)
{
    struct attn_case *c = &point->c;
    c->n_key = c->n_query;
    c->scale = (double)NAN;
    if (c->kv_heads > c->heads || c->heads % c->kv_heads != 0)
        return attn_fail(err, ATTN_EINVAL, "kv-heads = %lld does not divide heads = %lld",
                         (long long)c->kv_heads, (long long)c->heads);
    struct attn_mask *mask = NULL;
    struct attn_mask_shape shape = {c->batch, c->heads, c->n_query, c->n_key};
    enum attn_status status = attn_mask_parse(c->mask, &shape, NULL, &mask, err);
    attn_mask_free(mask);
    if (status == ATTN_OK)
        attn_case_print(c, point->text);
    return status;
}

static enum attn_status append(struct attn_plan *plan, const struct attn_plan_point *point,
                               struct attn_error *err)
{
    if (plan->n == ATTN_PLAN_POINTS)
        return attn_fail(err, ATTN_EINVAL, "more than %d points: make plans of fewer",
                         ATTN_PLAN_POINTS);
    if ((plan->n & (plan->n - 1)) == 0) /* room doubles at every power of two */
        plan->point = attn_cli_need(
            realloc(plan->point, (plan->n == 0 ? 1 : 2 * (size_t)plan->n) * sizeof *plan->point));
    plan->point[plan->n++] = *point;
    return ATTN_OK;
}

/* External implementations that the group does not name come after its own specs; but not in groups
 * "ranks...", which vary what they do not have. */
static void add_externals(const struct draft *draft, json_t *group)
{
    const struct attn_external_specs *externals = draft->externals;
    int varies_ranks = attn_group_kind_of(text_of(group, "name")) == ATTN_GROUP_RANKS;
    for (int e = 0; externals != NULL && !varies_ranks && e < externals->n; e++) {
        const char *list = value_of(draft, group, SPEC);
        if (attn_cli_listed(list, " ", externals->one[e].name))
            continue;
        json_object_set_new(group, "spec", json_sprintf("%s %s", list, externals->one[e].name));
    }
}

/* A point whose words are all in place. */
static enum attn_status finish_point(const struct draft *draft, const json_t *group,
                                     struct attn_plan_point *point, struct attn_error *err)
{
    enum attn_status status = complete(point, err);
    /* every limit is looked at, so that those without a subject are found */
    int ok = within(draft, json_object_get(group, "limits"), point) &
             within(draft, json_object_get(draft->presets, "limits"), point);
    point->is_priced = !ok;
    point->is_once = ok && point->c.n_query > point->once;
    for (int key = SAVE; key <= HIDDEN; key++)
        if (point->layers.n == 0 && text_of(group, keys[key].name) != NULL)
            status = attn_fail(err, ATTN_EINVAL, "%s is of layers: `layers = N` is needed with it",
                               keys[key].name);
    /* an external implementation has no price, and no layers */
    int is_absent = point->external != NULL && (!ok || point->layers.n > 0);
    return status == ATTN_OK && !is_absent ? append(draft->plan, point, err) : status;
}

/* Every word of every key, the slowest first.  What is not said is that of another key. */
static enum attn_status multiply(const struct draft *draft, const json_t *group, int level,
                                 struct attn_plan_point *point, struct attn_error *err)
{
    static const int order[GROUP_KEYS] = {MASK,   PASS,   DTYPE,     BATCH, HEADS, KV_HEADS,
                                          DIM,    DV,     DATA_SEED, FILL,  ONCE,  SAVE,
                                          HIDDEN, LAYERS, SPEC,      LENGTH};
    enum attn_status status = ATTN_OK;
    if (level == GROUP_KEYS)
        return finish_point(draft, group, point, err);
    const char *value = value_of(draft, group, order[level]);
    if (*value == '\0') {
        point->c.kv_heads = order[level] == KV_HEADS ? point->c.heads : point->c.kv_heads;
        point->c.d_value = order[level] == DV ? point->c.d_key : point->c.d_value;
        point->once = order[level] == ONCE ? INT64_MAX : point->once;
        return multiply(draft, group, level + 1, point, err);
    }
    char *copy = attn_cli_text("%s", value), *rest = copy;
    for (char *word; status == ATTN_OK && (word = next_word(&rest)) != NULL;) {
        status = set_word(draft, order[level], word, point, err);
        if (status == ATTN_OK)
            status = multiply(draft, group, level + 1, point, err);
    }
    free(copy);
    return status;
}

/* The points from `first` on, which are those of one group, are all different. */
static enum attn_status check_different(const struct attn_plan *plan, int64_t first,
                                        struct attn_error *err)
{
    char name[ATTN_CASE_TEXT + 240], stack[ATTN_STACK_TEXT];
    json_t *seen = json_object();
    enum attn_status status = ATTN_OK;
    for (int64_t i = first; i < plan->n && status == ATTN_OK; i++) {
        const struct attn_plan_point *p = &plan->point[i];
        (void)snprintf(name, sizeof name, "%s %s%s%s", p->spec_text, p->text,
                       p->layers.n > 0 ? " of " : "", attn_stack_print(&p->layers, stack));
        if (json_object_get(seen, name) != NULL)
            status = attn_fail(err, ATTN_EINVAL, "%s is there twice", name);
        json_object_set_new_nocheck(seen, name, json_true());
    }
    json_decref(seen);
    return status;
}

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

/* Labels and colours are of curves of the group: "SPEC", "SPEC, MASK" or "SPEC (P=2)". */
static enum attn_status check_curves(const struct attn_plan *plan, int64_t first,
                                     const json_t *group, const char *what, struct attn_error *err)
{
    const char *curve;
    json_t *text;
    json_object_foreach(json_object_get(json_object_get(group, "wishes"), what), curve, text)
    {
        size_t n = attn_spec_length(curve);
        int found = 0;
        for (int64_t i = first; i < plan->n && !found; i++) {
            char short_form[128];
            const char *spec = plan->point[i].spec_text;
            attn_spec_without_ranks(spec, short_form);
            found = (strlen(spec) == n && strncmp(spec, curve, n) == 0) ||
                    (strlen(short_form) == n && strncmp(short_form, curve, n) == 0);
        }
        if (!found)
            return attn_fail(err, ATTN_EINVAL, "group %s: %s names '%.60s', which is no spec of it",
                             text_of(group, "name"), what, curve);
    }
    return ATTN_OK;
}

static enum attn_status check_limits(const struct draft *draft, const json_t *group,
                                     struct attn_error *err)
{
    size_t l, s;
    json_t *limit, *subject;
    json_array_foreach(json_object_get(group, "limits"), l, limit)
    {
        json_array_foreach(limit, s, subject)
        {
            const char *name = json_string_value(subject);
            if (s > 0 && json_object_get(draft->met, name) == NULL)
                return attn_fail(err, ATTN_EINVAL,
                                 "group %s: limit names '%.60s', which is no implementation, spec, "
                                 "pass or mask of the group",
                                 text_of(group, "name"), name);
        }
    }
    return ATTN_OK;
}

static enum attn_status expand(const struct draft *draft, json_t *group, struct attn_error *err)
{
    const char *name = text_of(group, "name");
    add_externals(draft, group);
    if (*value_of(draft, group, SPEC) == '\0' || *value_of(draft, group, LENGTH) == '\0')
        return attn_fail(err, ATTN_EINVAL, "group %s needs spec and length: it has no %s", name,
                         *value_of(draft, group, SPEC) == '\0' ? "spec" : "length");
    struct attn_plan_point *point = attn_cli_need(calloc(1, sizeof *point));
    strcpy(point->group, name);
    int64_t first = draft->plan->n;
    json_object_clear(draft->met);
    enum attn_status status = multiply(draft, group, 0, point, err);
    free(point);
    if (status == ATTN_OK)
        status = check_different(draft->plan, first, err);
    if (status == ATTN_OK)
        status = check_curves(draft->plan, first, group, "label", err);
    if (status == ATTN_OK)
        status = check_curves(draft->plan, first, group, "colour", err);
    return status == ATTN_OK ? check_limits(draft, group, err) : status;
}

/* The draft becomes the plan, unless something was wrong. */
static enum attn_status finish(struct draft *draft, enum attn_status status, struct attn_error *err)
{
    size_t g;
    json_t *group;
    if (status == ATTN_OK && json_array_size(draft->groups) == 0)
        status = attn_fail(err, ATTN_EINVAL, "there is no `group NAME`: nothing to measure");
    json_array_foreach(draft->groups, g, group)
    {
        json_t *wished = json_object_get(group, "wishes");
        if (status != ATTN_OK)
            break;
        draft->line = (int)json_integer_value(json_object_get(group, "line"));
        status = expand(draft, group, err);
        if (status == ATTN_OK && json_object_size(wished) > 0) {
            json_object_set(wished, "group", json_object_get(group, "name"));
            json_array_append(draft->plan->figures, wished);
        }
    }
    json_decref(draft->presets);
    json_decref(draft->groups);
    json_decref(draft->met);
    if (status != ATTN_OK)
        attn_plan_free(draft->plan);
    return status;
}

/* ---- from a file, from flags ----------------------------------------------------------------- */

static void begin(struct draft *draft, struct attn_plan *plan,
                  const struct attn_external_specs *externals)
{
    memset(plan, 0, sizeof *plan);
    *draft = (struct draft){.plan = plan,
                            .presets = attn_cli_need(json_pack("{s:[]}", "limits")),
                            .groups = attn_cli_need(json_array()),
                            .met = attn_cli_need(json_object()),
                            .externals = externals};
    draft->now = draft->presets;
    plan->figures = json_array();
    for (int key = GROUP_KEYS; key < KEYS; key++)
        (void)set_number(&keys[key], keys[key].preset, plan, NULL);
}

/* Put "NAME:LINE: " before a message. */
static void locate(struct attn_error *err, const char *name, int line)
{
    char text[sizeof err->text];
    if (err == NULL)
        return;
    memcpy(text, err->text, sizeof text);
    attn_fail(err, err->status, "%.120s:%d: %.380s", name, line, text);
}

enum attn_status attn_plan_parse(const char *name, const char *text,
                                 const struct attn_external_specs *externals,
                                 struct attn_plan *plan, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    struct draft draft;
    char *copy = attn_cli_text("%s", text), *rest = copy;
    begin(&draft, plan, externals);
    for (char *now; status == ATTN_OK && (now = strsep(&rest, "\n")) != NULL;) {
        draft.line++;
        drop_comment(now);
        for (char *part; status == ATTN_OK && (part = strsep(&now, ";")) != NULL;)
            status = statement(&draft, part, err);
    }
    free(copy);
    status = finish(&draft, status, err);
    if (status != ATTN_OK)
        locate(err, name, draft.line);
    return status;
}

enum attn_status attn_plan_read(const char *path, const struct attn_external_specs *externals,
                                struct attn_plan *plan, struct attn_error *err)
{
    memset(plan, 0, sizeof *plan);
    char *text;
    enum attn_status status = attn_read_text(path, ATTN_READ_GIVEN, PLAN_BYTES, &text, err);
    if (status == ATTN_OK)
        status = attn_plan_parse(path, text, externals, plan, err);
    free(text);
    return status;
}

int attn_plan_override(struct attn_plan *plan, const char *key, const char *value)
{
    int k = find_key(key);
    return k >= GROUP_KEYS && k < KEYS && set_number(&keys[k], value, plan, NULL) == ATTN_OK;
}

/* A line of a plan from a flag: its lists have blanks for commas, but for those of specs and masks,
 * which are flags of their own. */
static enum attn_status put_flag(struct draft *draft, const char *name, const char *value,
                                 struct attn_error *err)
{
    int key = find_key(name), is_append = key == SPEC || key == MASK;
    char *blanks = attn_cli_text("%s", value);
    enum attn_status status = ATTN_OK;
    if (!is_append && keys[key].is_list) {
        if (*value == ',' || strstr(value, ",,") != NULL || attn_cli_ends_with(value, ",") ||
            *value == '\0')
            status = attn_fail(err, ATTN_EINVAL, "--%s '%.60s': an item is empty", name, value);
        for (char *at = blanks; (at = strchr(at, ',')) != NULL;)
            *at = ' ';
    }
    if (status == ATTN_OK)
        status = put(draft, name, blanks, is_append, err);
    free(blanks);
    return status;
}

enum attn_status attn_plan_from_flags(const struct attn_cli_list *flags,
                                      const struct attn_external_specs *externals,
                                      struct attn_plan *plan, struct attn_error *err)
{
    struct draft draft;
    enum attn_status status = ATTN_OK;
    begin(&draft, plan, externals);
    for (int of_group = 0; of_group < 2 && status == ATTN_OK; of_group++) {
        if (of_group)
            status = begin_group(&draft, "length", err);
        for (int f = 0; f < flags->n && status == ATTN_OK; f++)
            if ((find_key(flags->at[f].flag) < GROUP_KEYS) == of_group)
                status = put_flag(&draft, flags->at[f].flag, flags->at[f].value, err);
    }
    return finish(&draft, status, err);
}
