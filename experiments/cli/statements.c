/* See statements.h. */
#include "experiments/cli/statements.h"

#include <jansson.h>
#include <string.h>

char *attn_trim(char *text)
{
    static const char blanks[] = " \t\r";
    text += strspn(text, blanks);
    size_t n = strlen(text);
    while (n > 0 && strchr(blanks, text[n - 1]) != NULL)
        n--;
    text[n] = '\0';
    for (char *at = text; *at != '\0'; at++)
        if (*at == '\t')
            *at = ' ';
    return text;
}

char *attn_after_word(char *text, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(text, word, n) != 0 || strchr(" =", text[n]) == NULL) /* or its end */
        return NULL;
    return text + n + strspn(text + n, " ");
}

static int is_utf8(const char *text)
{
    json_t *string = json_string(text);
    json_decref(string);
    return string != NULL;
}

static void drop_comment(char *line)
{
    for (char *at = line; *at != '\0'; at++)
        if (*at == '#' && (at == line || (strchr(" \t", at[-1]) && strchr(" \t\r", at[1])))) {
            *at = '\0';
            return;
        }
}

enum attn_status attn_statements(char *text, int *line,
                                 enum attn_status (*take)(void *arg, char *statement,
                                                          struct attn_error *err),
                                 void *arg, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    *line = 0;
    for (char *now; status == ATTN_OK && (now = strsep(&text, "\n")) != NULL;) {
        ++*line;
        drop_comment(now);
        for (char *part; status == ATTN_OK && (part = strsep(&now, ";")) != NULL;) {
            part = attn_trim(part);
            if (*part != '\0')
                status = is_utf8(part) ? take(arg, part, err)
                                       : attn_fail(err, ATTN_EINVAL, "'%.40s' is no UTF-8", part);
        }
    }
    return status;
}

void attn_statement_locate(struct attn_error *err, const char *name, int line)
{
    char text[sizeof err->text];
    if (err == NULL)
        return;
    memcpy(text, err->text, sizeof text);
    attn_fail(err, err->status, "%.120s:%d: %.380s", name, line, text);
}
