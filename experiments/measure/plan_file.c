/* The text of a plan.  A line holds statements separated by `;`; `#` at the start of a line or
 * after a blank begins a comment.
 *
 *      group NAME      KEY = WORDS      KEY += WORDS      limit SUBJECTS = LENGTH
 *      figure = NAME   title = TEXT     x-range = 1:9     label SPEC = TEXT   colour SPEC = D55E00
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/plan.h"
#include "tests/harness/files/fileio.h"

enum { PLAN_BYTES = 1 << 20 };

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
    if (strncmp(text, word, n) != 0 || (text[n] != ' ' && text[n] != '\0'))
        return NULL;
    return trim(text + n);
}

static enum attn_status statement(struct attn_plan_draft *draft, char *text, struct attn_error *err)
{
    static const char *const curve_words[] = {"label", "colour"};
    static const char *const figure_words[] = {"figure", "title", "x-range", "y-range"};
    char *curve = NULL;
    text = trim(text);
    if (*text == '\0')
        return ATTN_OK;
    char *rest = after_word(text, "group");
    if (rest != NULL)
        return attn_plan_group(draft, rest, err);
    char *equals = strchr(text, '=');
    rest = after_word(text, "limit");
    if (rest != NULL) /* a spec has '=' inside: the last one counts */
        equals = strrchr(text, '=');
    if (equals == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "'%.60s' is neither `group NAME` nor `KEY = VALUE` nor "
                         "`limit SUBJECT... = LENGTH`",
                         text);
    const char *of_curve = NULL;
    for (int w = 0; w < 2 && rest == NULL && of_curve == NULL; w++)
        if ((curve = after_word(text, curve_words[w])) != NULL) {
            of_curve = curve_words[w];
            equals = strrchr(text, '='); /* as in a limit */
        }
    char *value = trim(equals + 1);
    *equals = '\0';
    if (rest != NULL)
        return attn_plan_limit(draft, rest, value, err);
    if (of_curve != NULL)
        return attn_plan_wish(draft, of_curve, trim(curve), value, err);
    for (int w = 0; w < 4; w++)
        if (strcmp(trim(text), figure_words[w]) == 0)
            return attn_plan_wish(draft, figure_words[w], NULL, value, err);
    int append = equals > text && equals[-1] == '+';
    if (append)
        equals[-1] = '\0';
    char *key = trim(text);
    return append ? attn_plan_add(draft, key, value, err) : attn_plan_set(draft, key, value, err);
}

static void drop_comment(char *line)
{
    for (char *at = line; *at != '\0'; at++)
        if (*at == '#' && (at == line || at[-1] == ' ' || at[-1] == '\t')) {
            *at = '\0';
            return;
        }
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
    memset(plan, 0, sizeof *plan);
    enum attn_status status = ATTN_OK;
    char *copy = strdup(text), *rest = copy;
    struct attn_plan_draft *draft = attn_plan_begin();
    if (copy == NULL || draft == NULL) {
        status = attn_fail(err, ATTN_ENOMEM, "no memory for plan %s", name);
        rest = NULL;
    } else
        attn_plan_invite(draft, externals);
    int line = 0;
    for (char *now; status == ATTN_OK && (now = strsep(&rest, "\n")) != NULL;) {
        attn_plan_at(draft, ++line);
        drop_comment(now);
        for (char *part; status == ATTN_OK && (part = strsep(&now, ";")) != NULL;)
            status = statement(draft, part, err);
    }
    free(copy);
    if (draft != NULL && status != ATTN_OK)
        attn_plan_abandon(draft);
    else if (draft != NULL)
        status = attn_plan_finish(draft, plan, &line, err);
    if (status != ATTN_OK)
        locate(err, name, line);
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
