#include "experiments/rim/studies/table_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

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

/* The lines of a text, which is cut to pieces, as an array of objects; a field of CSV is a string.
 * needed: keys that each must have, NULL behind the last.  NULL: *line is the number of the line in
 * which something is wrong. */
static json_t *read_table(char *text, const char *const *needed, int *line, struct attn_error *err)
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

/* ---- as rows of a study----------------------------------------------------------------------- */

json_t *attn_study_rows(struct attn_study_run *run, const char *csv, const char *const *columns)
{
    enum { BYTES_MOST = 64 << 20 };
    struct attn_error why = {ATTN_OK, ""};
    int line;
    char *text = NULL;
    if (run->data == NULL)
        text = attn_cli_need(strdup(csv));
    else if (attn_read_text(run->data, ATTN_READ_GIVEN, BYTES_MOST, &text, &run->bad) != ATTN_OK)
        return NULL;
    json_t *rows = read_table(text, columns, &line, &why);
    if (rows == NULL)
        attn_fail(&run->bad, why.status, "%s:%d: %s", run->data, line, why.text);
    free(text);
    return rows;
}

/* Of several bad fields the first is said. */
static void say_bad(struct attn_study_run *run, const json_t *row, const char *column,
                    const char *would_work)
{
    if (run->bad.status == ATTN_OK)
        attn_fail(&run->bad, ATTN_EINVAL, "%s:%d: %s '%.40s': %s would work",
                  run->data != NULL ? run->data : run->study->name,
                  (int)json_integer_value(json_object_get(row, ATTN_TABLE_LINE)), column,
                  attn_table_field(row, column), would_work);
}

int64_t attn_study_number(struct attn_study_run *run, const json_t *row, const char *column,
                          int64_t least, int64_t most)
{
    int64_t x;
    if (attn_cli_int(attn_table_field(row, column), least, most, &x))
        return x;
    say_bad(run, row, column,
            attn_study_text(run, "a whole number from %lld to %lld", (long long)least,
                            (long long)most));
    return least;
}

double attn_study_real(struct attn_study_run *run, const json_t *row, const char *column)
{
    double x;
    if (attn_cli_double(attn_table_field(row, column), &x) && x > 0 && isfinite(x))
        return x;
    say_bad(run, row, column, "a number above 0, such as 1.5e-3,");
    return 1;
}

int attn_study_word(struct attn_study_run *run, const json_t *row, const char *column,
                    const char *words)
{
    const char *word = attn_table_field(row, column);
    size_t n = strlen(word);
    int place = 0;
    for (const char *at = words; *at != '\0'; place++) {
        size_t length = strcspn(at, "|");
        if (length == n && strncmp(at, word, n) == 0)
            return place;
        at += length + (at[length] == '|');
    }
    say_bad(run, row, column, words);
    return 0;
}
