/* Plans: the text is read line by line into a draft of groups (plan_draft.h).
 *
 * A line holds statements separated by `;`; a comment is `#` at the start of a line, or `#` between
 * blanks, and what follows.
 *
 *      group NAME      KEY = WORDS      KEY += WORDS      limit SUBJECTS = LENGTH
 *      label SPEC = TEXT
 *
 * A mistake that shows when a line is read is reported then.  A mistake that needs a whole group (a
 * mask needs its length) is reported when the groups are multiplied out.  Both have the number of
 * the line where the mistake stands. */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/statements.h"
#include "experiments/measure/group_words.h"
#include "experiments/measure/plan_draft.h"
#include "ref/mask/nearest.h"
#include "tests/harness/base/fileio.h"

enum { PLAN_BYTES = 1 << 20 };

void attn_plan_free(struct attn_plan *plan)
{
    free(plan->point);
    json_decref(plan->labels);
    memset(plan, 0, sizeof *plan);
}

/* ---- statements ------------------------------------------------------------------------------ */

/* Are these words of that key?  Those of a plan's key are stored. */
static enum attn_status check_value(struct attn_plan_draft *draft, int key, const char *value,
                                    struct attn_error *err)
{
    struct attn_plan_point scratch = {.once = 0};
    enum attn_status status = ATTN_OK;
    int words = 0;
    char *copy = attn_cli_text("%s", value), *rest = copy;
    for (char *word; status == ATTN_OK && (word = attn_plan_next_word(&rest)) != NULL; words++)
        status = words > 0 && !attn_plan_keys[key].is_list
                     ? attn_fail(err, ATTN_EINVAL, "%s takes one value, got '%.60s'",
                                 attn_plan_keys[key].name, value)
                 : key >= GROUP_KEYS
                     ? attn_plan_set_number(&attn_plan_keys[key], word, draft->plan, err)
                     : attn_plan_set_word(draft->externals, key, word, &scratch, err);
    free(copy);
    if (status == ATTN_OK && words == 0)
        status = attn_fail(err, ATTN_EINVAL, "%s = needs a value", attn_plan_keys[key].name);
    return status;
}

static struct attn_plan_group *last_group(struct attn_plan_draft *draft)
{
    return &draft->group[draft->n - 1];
}

static enum attn_status unknown_key(const char *key, struct attn_error *err);

/* KEY = VALUE, KEY += VALUE. */
static enum attn_status put(struct attn_plan_draft *draft, const char *name, const char *value,
                            int append, struct attn_error *err)
{
    int key = attn_plan_key_find(name);
    if (key == KEYS)
        return unknown_key(name, err);
    if (key >= GROUP_KEYS && draft->n > 1)
        return attn_fail(err, ATTN_EINVAL, "%s is the plan's: it goes before the first group",
                         name);
    if (key == PASS && strcmp(value, "both") == 0)
        value = "fwd bwd";
    if (key == DTYPE && strcmp(value, "all") == 0)
        value = "f64 f32 bf16 f16";
    char **to = &last_group(draft)->value[key], *old = *to;
    if (append && !attn_plan_keys[key].is_list)
        return attn_fail(err, ATTN_EINVAL, "%s takes one value: nothing can be added to it", name);
    if (old != NULL && !append)
        return attn_fail(err, ATTN_EINVAL, "%s is set twice%s", name,
                         attn_plan_keys[key].is_list ? "; `+=` adds to a list" : "");
    enum attn_status status = check_value(draft, key, value, err);
    if (status != ATTN_OK)
        return status;
    last_group(draft)->line_of[key] = draft->line;
    *to = attn_cli_text("%s%s%s", old != NULL ? old : "", old != NULL ? " " : "", value);
    free(old);
    return ATTN_OK;
}

/* The first word decides which figures a group has; `table` has none. */
static enum attn_status check_word(const char *name, struct attn_error *err)
{
    char meant[64];
    struct attn_nearest nearest = attn_nearest_begin(name, strcspn(name, "-"));
    for (int kind = 0; kind < ATTN_GROUP_OTHER; kind++)
        attn_nearest_offer(&nearest, attn_group_words[kind].word);
    if (attn_group_kind_of(name) != ATTN_GROUP_OTHER ||
        (strncmp(name, "table", 5) == 0 && strchr("-", name[5]) != NULL))
        return ATTN_OK;
    return attn_fail(err, ATTN_EINVAL,
                     "group %s%s: figures go by the first word, of%s; `table` has none", name,
                     attn_nearest_text(&nearest, meant), attn_group_word_list);
}

static enum attn_status begin_group(struct attn_plan_draft *draft, const char *name,
                                    struct attn_error *err)
{
    size_t n = strlen(name);
    if (n == 0 || n >= sizeof draft->plan->point->group || strpbrk(name, " \t\"'=,/") != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "a group needs a name of 1 to 31 letters, digits and -, got '%.60s'",
                         name);
    for (int g = 1; g < draft->n; g++)
        if (strcmp(draft->group[g].name, name) == 0)
            return attn_fail(err, ATTN_EINVAL, "there are two groups named %s", name);
    enum attn_status status = check_word(name, err);
    if (status != ATTN_OK)
        return status;
    draft->group = attn_plan_reserve(draft->group, draft->n, sizeof *draft->group);
    draft->group[draft->n] = (struct attn_plan_group){.line = draft->line};
    memcpy(draft->group[draft->n++].name, name, n + 1);
    return ATTN_OK;
}

static enum attn_status unknown_key(const char *key, struct attn_error *err)
{
    char names[256] = "", meant[64];
    struct attn_nearest nearest = attn_nearest_begin(key, strcspn(key, " "));
    for (int k = 0; k < KEYS; k++) {
        attn_nearest_offer(&nearest, attn_plan_keys[k].name);
        strcat(names, k == 0 ? "" : " "); /* all names together: 125 bytes */
        strcat(names, attn_plan_keys[k].name);
    }
    attn_nearest_offer(&nearest, "label");
    return attn_fail(err, ATTN_EINVAL,
                     "unknown key '%.40s'%s; there are %s, and `group NAME`, `label SPEC = TEXT`, "
                     "`limit SUBJECT = LENGTH`",
                     key, attn_nearest_text(&nearest, meant), names);
}

/* The name of a curve in the legend. */
static enum attn_status set_label(struct attn_plan_draft *draft, const char *subject,
                                  const char *value, struct attn_error *err)
{
    struct attn_plan_group *group = last_group(draft);
    const char *wrong = *value == '\0'         ? "needs a value"
                        : *subject == '\0'     ? "names no curve"
                        : strlen(value) >= 120 ? "is longer than 119 bytes"
                                               : NULL;
    if (draft->n == 1)
        return attn_fail(err, ATTN_EINVAL, "label is a group's: it goes after a `group NAME`");
    if (wrong != NULL)
        return attn_fail(err, ATTN_EINVAL, "label = '%.60s' %s", value, wrong);
    for (int l = 0; l < group->n_labels; l++)
        if (strcmp(group->label[l].subject, subject) == 0)
            return attn_fail(err, ATTN_EINVAL, "the label of %.60s is set twice", subject);
    group->label = attn_plan_reserve(group->label, group->n_labels, sizeof *group->label);
    group->label[group->n_labels++] = (struct attn_plan_label){subject, value, draft->line};
    return ATTN_OK;
}

/* subjects: blank-separated; cut up in place. */
static enum attn_status set_limit(struct attn_plan_draft *draft, char *subjects, const char *length,
                                  struct attn_error *err)
{
    struct attn_plan_group *group = last_group(draft);
    struct attn_plan_limit limit = {.line = draft->line};
    char *word = NULL;
    int is_length = attn_cli_count(length, 0, 1 << 30, &limit.length);
    while (limit.n < ATTN_PLAN_SUBJECTS && (word = attn_plan_next_word(&subjects)) != NULL)
        limit.subject[limit.n++] = word;
    if (!is_length || limit.n == 0 || attn_plan_next_word(&subjects) != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "a limit reads `limit SUBJECT... = LENGTH`, where a subject is an "
                         "implementation, a spec, a pass or a mask");
    group->limit = attn_plan_reserve(group->limit, group->n_limits, sizeof *group->limit);
    group->limit[group->n_limits++] = limit;
    return ATTN_OK;
}

/* A limit and a label have '=' inside: what stands after the last one is their value. */
static enum attn_status statement(void *arg, char *text, struct attn_error *err)
{
    struct attn_plan_draft *draft = arg;
    char *rest = attn_after_word(text, "group");
    if (rest != NULL)
        return begin_group(draft, rest, err);
    int is_limit = attn_after_word(text, "limit") != NULL;
    int is_label = attn_after_word(text, "label") != NULL;
    char *equals = is_limit || is_label ? strrchr(text, '=') : strchr(text, '=');
    if (equals == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "'%.60s' is neither `group NAME` nor `KEY = VALUE` nor "
                         "`limit SUBJECT... = LENGTH`",
                         text);
    char *value = attn_trim(equals + 1);
    *equals = '\0';
    if (is_limit)
        return set_limit(draft, attn_after_word(text, "limit"), value, err);
    if (is_label)
        return set_label(draft, attn_trim(attn_after_word(text, "label")), value, err);
    int append = equals > text && equals[-1] == '+';
    if (append)
        equals[-1] = '\0';
    return put(draft, attn_trim(text), value, append, err);
}

/* ---- from a file, from flags ----------------------------------------------------------------- */

static void begin(struct attn_plan_draft *draft, struct attn_plan *plan,
                  const struct attn_subjects *externals)
{
    memset(plan, 0, sizeof *plan);
    *draft = (struct attn_plan_draft){.plan = plan, .n = 1, .externals = externals};
    draft->group = attn_cli_need(calloc(1, sizeof *draft->group));
    plan->labels = json_array();
    for (int key = GROUP_KEYS; key < KEYS; key++)
        (void)attn_plan_set_number(&attn_plan_keys[key], attn_plan_keys[key].preset, plan, NULL);
}

static void drop_group(struct attn_plan_group *group)
{
    for (int key = 0; key < KEYS; key++)
        free(group->value[key]);
    free(group->limit);
    free(group->label);
}

static void drop_draft(struct attn_plan_draft *draft)
{
    for (int g = 0; g < draft->n; g++)
        drop_group(&draft->group[g]);
    drop_group(&draft->flags);
    free(draft->group);
}

/* The draft becomes the plan, unless something was wrong. */
static enum attn_status finish(struct attn_plan_draft *draft, enum attn_status status,
                               struct attn_error *err)
{
    if (status == ATTN_OK && draft->n == 1)
        status = attn_fail(err, ATTN_EINVAL, "there is no `group NAME`: nothing to measure");
    for (int g = 1; g < draft->n && status == ATTN_OK; g++) {
        status = attn_plan_expand(draft, &draft->group[g], err);
        draft->line = draft->group[g].line;
    }
    if (status != ATTN_OK)
        attn_plan_free(draft->plan);
    drop_draft(draft);
    return status;
}

/* A line of a plan from a flag: its lists have blanks for commas, but for those of specs and masks,
 * which are flags of their own. */
static enum attn_status put_flag(struct attn_plan_draft *draft, const char *name, const char *value,
                                 struct attn_error *err)
{
    int key = attn_plan_key_find(name), is_append = key == SPEC || key == MASK;
    char *blanks = attn_cli_text("%s", value);
    enum attn_status status = ATTN_OK;
    if (!is_append && attn_plan_keys[key].is_list) {
        for (const char *at = value; status == ATTN_OK && at != NULL; at = strchr(at, ',')) {
            at += at > value; /* 200,000 is meant as one number */
            if (*at == ',' || *at == '\0' || (at > value && *at == '0' && isdigit(at[1])))
                status = attn_fail(err, ATTN_EINVAL,
                                   "--%s '%.60s': a comma ends an item, and one is empty or "
                                   "begins with 0; 200000, 200k and 64Ki are numbers",
                                   name, value);
        }
        for (char *at = blanks; (at = strchr(at, ',')) != NULL;)
            *at = ' ';
    }
    if (status == ATTN_OK)
        status = put(draft, name, blanks, is_append, err);
    free(blanks);
    return status;
}

/* Flags beside a text, as what stands before all groups, and then out of the way of what does. */
static enum attn_status take_flags(struct attn_plan_draft *draft, const struct attn_cli_list *flags,
                                   struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int f = 0; f < flags->n && status == ATTN_OK; f++) {
        const char *name = flags->at[f].flag, *value = flags->at[f].value;
        int key = attn_plan_key_find(name);
        status = key == LENGTH || key == MASK || key >= GROUP_KEYS
                     ? put_flag(draft, name, value, err)
                     : attn_fail(err, ATTN_EINVAL,
                                 "cannot use %s%s '%.60s' beside --plan, which says it for each "
                                 "group: --length and --mask replace what it says",
                                 key == SPEC ? "" : "--", name, value);
    }
    draft->flags = draft->group[0];
    draft->group[0] = (struct attn_plan_group){.line = 0};
    return status;
}

/* A file's name, or another; flags as in attn_plan_read. */
static enum attn_status parse(const char *name, const char *text, const struct attn_cli_list *flags,
                              const struct attn_subjects *externals, struct attn_plan *plan,
                              struct attn_error *err)
{
    struct attn_plan_draft draft;
    char *copy = attn_cli_text("%s", text);
    begin(&draft, plan, externals);
    enum attn_status status = take_flags(&draft, flags, err);
    if (status == ATTN_OK)
        status = attn_statements(copy, &draft.line, statement, &draft, err);
    for (int key = GROUP_KEYS; key < KEYS && status == ATTN_OK; key++)
        if (draft.flags.value[key] != NULL)
            status = check_value(&draft, key, draft.flags.value[key], err);
    status = finish(&draft, status, err);
    free(copy);
    if (status != ATTN_OK && draft.line > 0) /* no flag's */
        attn_statement_locate(err, name, draft.line);
    return status;
}

enum attn_status attn_plan_parse(const char *name, const char *text,
                                 const struct attn_subjects *externals, struct attn_plan *plan,
                                 struct attn_error *err)
{
    return parse(name, text, &(const struct attn_cli_list){.n = 0}, externals, plan, err);
}

enum attn_status attn_plan_read(const char *path, const struct attn_cli_list *flags,
                                const struct attn_subjects *externals, struct attn_plan *plan,
                                struct attn_error *err)
{
    memset(plan, 0, sizeof *plan);
    char *text;
    enum attn_status status = attn_read_text(path, ATTN_READ_GIVEN, PLAN_BYTES, &text, err);
    if (status == ATTN_OK)
        status = parse(path, text, flags, externals, plan, err);
    free(text);
    return status;
}

/* Keys of the plan stand before its group. */
static enum attn_status take_keys(struct attn_plan_draft *draft, const struct attn_cli_list *flags,
                                  struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int of_group = 0; of_group < 2 && status == ATTN_OK; of_group++) {
        if (of_group)
            status = begin_group(draft, "length", err);
        for (int f = 0; f < flags->n && status == ATTN_OK; f++)
            if ((attn_plan_key_find(flags->at[f].flag) < GROUP_KEYS) == of_group)
                status = put_flag(draft, flags->at[f].flag, flags->at[f].value, err);
    }
    return finish(draft, status, err);
}

enum attn_status attn_plan_from_flags(const struct attn_cli_list *flags,
                                      const struct attn_subjects *externals, struct attn_plan *plan,
                                      struct attn_error *err)
{
    struct attn_plan_draft draft;
    begin(&draft, plan, externals);
    return take_keys(&draft, flags, err);
}

enum attn_status attn_plan_of_shapes(const struct attn_cli_list *keys, struct attn_plan *plan,
                                     struct attn_error *err)
{
    struct attn_plan_draft draft;
    begin(&draft, plan, NULL);
    draft.is_of_shapes = 1;
    return take_keys(&draft, keys, err);
}

int attn_plan_has_key(const struct attn_cli_list *keys, const char *name)
{
    int n = 0;
    while (n < keys->n && strcmp(keys->at[n].flag, name) != 0)
        n++;
    return n < keys->n;
}
