#include "experiments/rim/studies/table_file.h"

#include <string.h>

#include "experiments/cli/cli.h"

enum { COLUMNS = 64 };

/* RFC 4180: a field in quotes may hold commas, and a quote as two.  *line is then behind its comma,
 * or NULL.  NULL: the quotes do not close, or more follows them. */
static const char *next_field(char **line)
{
    char *from = *line, *to = from;
    const char *field = from;
    int is_closed = 0;
    if (*from != '"')
        return strsep(line, ",");
    for (from++; *from != '\0' && !is_closed; from++) {
        is_closed = from[0] == '"' && from[1] != '"';
        if (!is_closed) {
            from += *from == '"';
            *to++ = *from;
        }
    }
    if (!is_closed || (*from != '\0' && *from != ','))
        return NULL;
    *line = *from == ',' ? from + 1 : NULL;
    *to = '\0';
    return field;
}

/* How many fields a line has; 0: it is no line of CSV. */
static int cut(char *line, const char *field[COLUMNS + 1], struct attn_error *err)
{
    int n = 0;
    for (; line != NULL; n++) {
        field[n] = n < COLUMNS ? next_field(&line) : NULL;
        if (field[n] == NULL) {
            attn_fail(err, ATTN_EINVAL,
                      n == COLUMNS ? "more than %d fields"
                                   : "field %d: its quotes do not close in this line, or more "
                                     "follows them; a quote inside is written \"\"",
                      n == COLUMNS ? COLUMNS : n + 1);
            return 0;
        }
    }
    return n;
}

/* The names of the columns; *n receives how many. */
static enum attn_status read_names(char *line, const char *const *needed,
                                   const char *name[COLUMNS + 1], int *n, struct attn_error *err)
{
    *n = cut(line, name, err);
    if (*n == 0)
        return ATTN_EINVAL;
    for (int f = 0; f < *n; f++)
        for (int g = 0; g < f; g++)
            if (name[f][0] != '\0' && strcmp(name[f], name[g]) == 0)
                return attn_fail(err, ATTN_EINVAL, "column %s is there twice", name[f]);
    for (; *needed != NULL; needed++) {
        int f = 0;
        while (f < *n && strcmp(name[f], *needed) != 0)
            f++;
        if (f == *n)
            return attn_fail(err, ATTN_EINVAL, "column %s is missing", *needed);
    }
    return ATTN_OK;
}

static json_t *read_fields(char *line, const char *const *name, int n, struct attn_error *err)
{
    const char *field[COLUMNS + 1];
    json_t *object = json_object();
    int found = cut(line, field, err);
    for (int f = 0; f < n && found == n; f++)
        json_object_set_new_nocheck(object, name[f], json_string_nocheck(field[f]));
    if (found == n)
        return object;
    if (found > 0)
        attn_fail(err, ATTN_EINVAL, "%d fields; the header has %d", found, n);
    json_decref(object);
    return NULL;
}

static json_t *read_object(const char *line, const char *const *needed, struct attn_error *err)
{
    json_error_t where;
    json_t *object = json_loads(line, 0, &where);
    if (!json_is_object(object))
        attn_fail(err, ATTN_EINVAL, "no JSON object: %s", where.text);
    for (; json_is_object(object) && *needed != NULL; needed++)
        if (json_object_get(object, *needed) == NULL)
            attn_fail(err, ATTN_EINVAL, "%s is missing", *needed);
    return object;
}

json_t *attn_table_read(char *text, const char *const *needed, int *line, struct attn_error *err)
{
    struct attn_error why = {ATTN_OK, ""};
    json_t *lines = json_array();
    const char *name[COLUMNS + 1];
    int n_names = 0, is_json = text[strspn(text, " \t\r\n")] == '{';
    *line = 0;
    for (char *now; why.status == ATTN_OK && (now = strsep(&text, "\n")) != NULL;) {
        json_t *object = NULL;
        ++*line;
        now[strcspn(now, "\r")] = '\0';
        if (now[0] == '\0' || now[0] == '#')
            continue;
        if (is_json)
            object = read_object(now, needed, &why);
        else if (n_names > 0)
            object = read_fields(now, name, n_names, &why);
        else
            (void)read_names(now, needed, name, &n_names, &why);
        if (json_is_object(object))
            json_object_set_new(object, ATTN_TABLE_LINE, json_integer(*line));
        if (object != NULL)
            json_array_append_new(lines, object);
    }
    if (why.status == ATTN_OK && json_array_size(lines) == 0)
        attn_fail(&why, ATTN_EINVAL, "there is no record in this file");
    if (why.status == ATTN_OK)
        return lines;
    json_decref(lines);
    attn_fail(err, why.status, "%s", why.text);
    return NULL;
}

const char *attn_table_field(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}
