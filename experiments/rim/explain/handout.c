/* See handout.h. */
#include "experiments/rim/explain/handout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

enum { WIDTH = 80, INDENT = 2 };

/* ---- a table --------------------------------------------------------------------------------- */

void attn_table_open(struct attn_table *t, int64_t rows, int64_t columns, int labels)
{
    *t = (struct attn_table){.rows = rows, .columns = columns, .labels = labels};
    t->part = attn_cli_need(calloc((size_t)columns + 1, 1));
    t->text = attn_cli_need(calloc((size_t)((rows + 1) * columns) + 1, sizeof *t->text));
}

void attn_table_close(struct attn_table *t)
{
    free(t->part);
    free(t->text);
    *t = (struct attn_table){0};
}

char *attn_table_cell(const struct attn_table *t, int64_t row, int64_t column)
{
    return t->text[(row + 1) * t->columns + column];
}

void attn_table_number(char *cell, double x, double most, int is_whole)
{
    int whole_digits = most > 0 ? (int)floor(log10(most)) + 1 : 1;
    int decimals = whole_digits > 6 ? 0 : 6 - (whole_digits > 0 ? whole_digits : 0);
    if (isnan(x) || isinf(x))
        snprintf(cell, ATTN_CELL, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
    else if (is_whole)
        snprintf(cell, ATTN_CELL, "%.0f", x);
    else if (most >= 1e9 || (most > 0 && most < 1e-3))
        snprintf(cell, ATTN_CELL, "%.5e", x);
    else {
        snprintf(cell, ATTN_CELL, "%.*f", decimals, x);
        char *end = cell + strlen(cell);
        while (decimals > 0 && (end[-1] == '0' || end[-1] == '.')) { /* 0.50000 is 0.5 */
            int is_point = *--end == '.';
            *end = '\0';
            if (is_point)
                break;
        }
    }
    if (strcmp(cell, "-0") == 0)
        strcpy(cell, "0");
}

/* ---- text ------------------------------------------------------------------------------------ */

static int width_of(const struct attn_table *t, int64_t column)
{
    size_t most = 0;
    for (int64_t r = -1; r < t->rows; r++) {
        size_t n = strlen(attn_table_cell(t, r, column));
        most = n > most ? n : most;
    }
    return (int)most + 2;
}

/* Columns from `from` on that stand beside the labels in a line: whole parts where one fits. */
static int64_t fit(const struct attn_table *t, int64_t from)
{
    int width = INDENT;
    int64_t cut = from;
    for (int c = 0; c < t->labels; c++)
        width += width_of(t, c);
    for (int64_t c = from; c < t->columns; c++) {
        width += width_of(t, c);
        if (c > from && t->part[c])
            cut = c;
        if (width > WIDTH)
            return cut > from ? cut : c > from ? c : from + 1;
    }
    return t->columns;
}

/* A paragraph in lines of WIDTH. */
static void print_words(const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        if (column > 0 && column + 1 + n > WIDTH)
            column = (putchar('\n'), 0);
        column += (size_t)printf("%s%.*s", column > 0 ? " " : "", (int)n, text);
        text += n + strspn(text + n, " ");
    }
    putchar('\n');
}

/* ---- a handout ------------------------------------------------------------------------------- */

void attn_handout_begin(struct attn_handout *handout, enum attn_handout_format format,
                        const char *title)
{
    *handout = (struct attn_handout){.format = format};
    if (format == ATTN_HANDOUT_MD)
        attn_document_begin(&handout->document, stdout, title);
    else
        printf("%s\n\n", title);
}

void attn_handout_heading(struct attn_handout *handout, const char *text)
{
    if (handout->format == ATTN_HANDOUT_MD)
        attn_document_heading(&handout->document, 2, text);
    else
        printf("%s== %s\n\n", handout->in_words ? "\n" : "", text);
    handout->in_words = 0;
}

void attn_handout_words(struct attn_handout *handout, const char *text)
{
    if (handout->format == ATTN_HANDOUT_MD)
        attn_document_text(&handout->document, "%s", text);
    else
        print_words(text);
    handout->in_words = 1;
}

/* Heads may be equal: keys are the places of their columns. */
static void put_table(struct attn_handout *handout, const struct attn_table *t, int64_t from,
                      int64_t to)
{
    enum { MOST = WIDTH };
    char key[MOST][12];
    struct attn_column column[MOST + 1] = {{.key = NULL}};
    json_t *rows = json_array();
    for (int64_t r = -1; r < t->rows; r++) {
        json_t *row = json_object();
        int n = 0;
        for (int64_t c = 0; c < to && n < MOST; c = c + 1 == t->labels ? from : c + 1, n++) {
            const char *cell = attn_table_cell(t, r, c);
            snprintf(key[n], sizeof key[n], "%d", n);
            if (r < 0)
                column[n] = (struct attn_column){key[n], cell, ATTN_UNIT_REAL};
            else
                json_object_set_new(row, key[n], json_string(cell));
        }
        if (r >= 0)
            json_array_append(rows, row);
        json_decref(row);
    }
    if (handout->format == ATTN_HANDOUT_MD)
        attn_document_table(&handout->document, column, json_incref(rows));
    else {
        attn_table_print(stdout, ATTN_TABLE_INDENTED, column, rows);
        putchar('\n');
    }
    json_decref(rows);
}

void attn_handout_table(struct attn_handout *handout, const struct attn_table *t)
{
    handout->in_words = 0;
    for (int64_t from = t->labels, to; from < t->columns; from = to) {
        to = fit(t, from);
        put_table(handout, t, from, to);
    }
}
