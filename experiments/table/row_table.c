/* See row_table.h. */
#include "experiments/table/row_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

/* ---- a cell ---------------------------------------------------------------------------------- */

static int is_below(const struct attn_column *column)
{
    return (column->unit & ATTN_UNIT_BELOW) != 0;
}

/* Numbers. */
static int is_right(const struct attn_column *column)
{
    return (column->unit & ~ATTN_UNIT_BELOW) >= ATTN_UNIT_PLAIN;
}

const char *attn_seconds_text(double seconds, char text[32])
{
    static const char *const unit[] = {"s", "ms", "us", "ns"};
    int u = 0;
    double x = seconds;
    for (; x < 1 && x > 0 && u < 3; u++)
        x *= 1000;
    if (isnan(seconds))
        snprintf(text, 32, "–");
    else
        snprintf(text, 32, "%.3g %s", x, unit[u]);
    return text;
}

static void put_number(FILE *out, const json_t *value, int unit)
{
    char text[32];
    double x = json_number_value(value);
    if (unit == ATTN_UNIT_SECONDS)
        fputs(attn_seconds_text(x, text), out);
    else if (unit == ATTN_UNIT_BYTES)
        fputs(attn_cli_bytes(attn_cli_to_bytes(x), text), out);
    else if (unit == ATTN_UNIT_GROUPED && x < 9e18)
        fputs(attn_cli_grouped(attn_cli_to_bytes(x), text), out);
    else if (json_is_integer(value))
        fprintf(out, "%lld", (long long)json_integer_value(value));
    else
        fprintf(out, unit == ATTN_UNIT_REAL ? "%.3g" : "%.9g", x);
}

/* The key of a fact that readers look for; NULL: it is none of those. */
static const char *verdict_key(const json_t *value)
{
    return json_object_get(value, "good") != NULL  ? "good"
           : json_object_get(value, "bad") != NULL ? "bad"
                                                   : NULL;
}

static void put_value(FILE *out, const json_t *value, int unit)
{
    const char *key, *verdict = verdict_key(value), *between = "";
    size_t n;
    json_t *element;
    if (verdict != NULL)
        put_value(out, json_object_get(value, verdict), unit);
    else if (json_is_string(value))
        fputs(json_string_value(value), out);
    else if (json_is_number(value))
        put_number(out, value, unit);
    else if (json_is_null(value))
        fputs("–", out);
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "yes" : "no", out);
    json_array_foreach((json_t *)(uintptr_t)value, n, element)
    {
        fputs(n > 0 ? ", " : "", out);
        put_value(out, element, unit);
    }
    if (verdict == NULL)
        json_object_foreach((json_t *)(uintptr_t)value, key, element)
        {
            fputs(between, out);
            put_value(out, element, unit);
            between = " ";
        }
}

/* A value in its unit, as text; to be freed. */
static char *cell_text(const json_t *value, int unit)
{
    char *text;
    size_t size;
    FILE *out = attn_cli_memory(&text, &size);
    put_value(out, value, unit & ~ATTN_UNIT_BELOW);
    fclose(out);
    return attn_cli_need(text);
}

/* ---- CSV and Markdown ------------------------------------------------------------------------ */

void attn_csv_text(FILE *file, const char *text)
{
    if (strpbrk(text, "\",\r\n") == NULL) {
        fputs(text, file);
        return;
    }
    putc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            putc('"', file);
        putc(*text, file);
    }
    putc('"', file);
}

void attn_md_words(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fprintf(out, strchr("\\`*_<>[]|#~&", *text) != NULL ? "\\%c" : "%c", *text);
}

void attn_md_code(FILE *out, const char *text, int is_cell)
{
    size_t longest = 0, size = strlen(text);
    for (const char *p = text; *p != '\0'; p++) {
        size_t n = strspn(p, "`");
        longest = n > longest ? n : longest;
    }
    const char *pad = longest > 0 || text[0] == ' ' || text[size - 1] == ' ' ? " " : "";
    const char *fence = attn_cli_text("%*s", (int)longest + 1, "");
    memset((char *)(uintptr_t)fence, '`', longest + 1);
    fprintf(out, "%s%s", fence, pad);
    for (; *text != '\0'; text++)
        fprintf(out, *text == '|' && is_cell ? "\\%c" : "%c", *text);
    fprintf(out, "%s%s", pad, fence);
    free((char *)(uintptr_t)fence);
}

static void print_csv(FILE *out, const struct attn_column *column, const json_t *row)
{
    for (const struct attn_column *c = column; c->key != NULL; c++) {
        const json_t *value = json_object_get(row, c->key);
        char *text = cell_text(json_is_null(value) ? NULL : value, ATTN_UNIT_PLAIN);
        fputs(c > column ? "," : "", out);
        attn_csv_text(out, row != NULL ? text : c->key);
        free(text);
    }
    fputc('\n', out);
}

/* Markdown of ours in a cell. */
static void put_md(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

/* Good verdicts are in italics, bad ones in bold italics: plots/page.css has colours for them. */
static void print_md_cell(FILE *out, const struct attn_column *column, const json_t *value)
{
    const char *verdict = verdict_key(value);
    const char *mark = verdict == NULL ? "" : *verdict == 'b' ? "***" : "*";
    char *text = cell_text(value, column->unit);
    for (char *at = text; (at = strpbrk(at, "\n\t")) != NULL;)
        *at = ' ';
    attn_clean(text);
    fprintf(out, " %s", mark);
    if ((column->unit & ~ATTN_UNIT_BELOW) == ATTN_UNIT_MD)
        put_md(out, text);
    else if ((column->unit & ~ATTN_UNIT_BELOW) == ATTN_UNIT_CODE && text[0] != '\0')
        attn_md_code(out, text, 1);
    else
        attn_md_words(out, text);
    fprintf(out, "%s |", mark);
    free(text);
}

static void print_md_head(FILE *out, const struct attn_column *column)
{
    fputc('|', out);
    for (const struct attn_column *c = column; c->key != NULL; c++)
        fprintf(out, " %s |", c->head);
    fputs("\n|", out);
    for (const struct attn_column *c = column; c->key != NULL; c++)
        fputs(is_right(c) ? " ---: |" : " --- |", out);
    fputc('\n', out);
}

static void print_md(FILE *out, const struct attn_column *column, const json_t *row)
{
    fputc('|', out);
    for (const struct attn_column *c = column; c->key != NULL; c++)
        print_md_cell(out, c, json_object_get(row, c->key));
    fputc('\n', out);
}

/* ---- text ------------------------------------------------------------------------------------ */

enum { COLUMNS = 40 };

/* Characters of UTF-8. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* The cells of a line, each as wide as its column, after `blank` blanks; no blanks at its end. row:
 * NULL for the heads. */
static void print_cells(FILE *out, const struct attn_column *column, const int *width,
                        char *const *text, const json_t *row, int blank)
{
    for (int c = 0; column[c].key != NULL; c++) {
        if (is_below(&column[c]) || width[c] == 0)
            continue;
        int rest = width[c] - width_of(text[c]), is_number = is_right(&column[c]);
        blank += is_number ? rest : 0;
        const char *verdict = verdict_key(json_object_get(row, column[c].key));
        const char *colour = verdict != NULL ? attn_cli_paint(out, *verdict == 'g') : "";
        if (text[c][0] != '\0')
            fprintf(out, "%*s%s%s%s", blank, "", colour, text[c],
                    colour[0] != '\0' ? attn_cli_paint(out, -1) : "");
        blank = (text[c][0] != '\0' ? 0 : blank + width_of(text[c])) + (is_number ? 0 : rest) + 2;
    }
    fputc('\n', out);
}

static void print_below(FILE *out, const struct attn_column *column, char *const *text)
{
    for (int c = 0; column[c].key != NULL; c++)
        if (is_below(&column[c]) && text[c][0] != '\0')
            fprintf(out, "    %s%s%s\n", column[c].head,
                    column[c].head[0] == '\0' ? ""
                    : text[c][0] == '\n'      ? ":"
                                              : ": ",
                    text[c]);
}

static void print_text(FILE *out, const struct attn_column *column, const json_t *rows, int indent)
{
    size_t n = json_array_size(rows);
    char *head[COLUMNS], **cell = attn_cli_need(calloc((n + 1) * COLUMNS, sizeof *cell));
    int width[COLUMNS] = {0}, has_head = 0, columns = 0;
    for (; column[columns].key != NULL && columns < COLUMNS; columns++) {
        int c = columns;
        head[c] = (char *)(uintptr_t)column[c].head;
        has_head |= head[c][0] != '\0' && !is_below(&column[c]);
        for (size_t r = 0; r < n; r++) {
            const json_t *row = json_array_get(rows, r);
            char *text = cell_text(json_object_get(row, column[c].key), column[c].unit);
            for (char *at = text; !is_below(&column[c]) && (at = strpbrk(at, "\n\t")) != NULL;)
                *at = ' '; /* a name of another file begins no line */
            cell[r * COLUMNS + (size_t)c] = text;
            width[c] = width_of(text) > width[c] ? width_of(text) : width[c];
        }
    }
    for (int c = 0; c < columns && has_head; c++)
        if (width[c] > 0)
            width[c] = width_of(head[c]) > width[c] ? width_of(head[c]) : width[c];
    if (has_head)
        print_cells(out, column, width, head, NULL, indent);
    for (size_t r = 0; r < n; r++) {
        print_cells(out, column, width, &cell[r * COLUMNS], json_array_get(rows, r), indent);
        print_below(out, column, &cell[r * COLUMNS]);
        for (int c = 0; c < columns; c++)
            free(cell[r * COLUMNS + (size_t)c]);
    }
    free(cell);
}

/* ---- all formats ----------------------------------------------------------------------------- */

void attn_table_print(FILE *out, enum attn_table_format format, const struct attn_column *column,
                      const json_t *rows)
{
    if (format == ATTN_TABLE_TEXT || format == ATTN_TABLE_INDENTED)
        print_text(out, column, rows, format == ATTN_TABLE_INDENTED ? 2 : 0);
    if (format == ATTN_TABLE_MD)
        print_md_head(out, column);
    if (format == ATTN_TABLE_CSV)
        print_csv(out, column, NULL);
    if (format == ATTN_TABLE_JSON) {
        json_dumpf(rows, out, JSON_INDENT(1));
        fputc('\n', out);
    }
    for (size_t r = 0; r < json_array_size(rows); r++) {
        const json_t *row = json_array_get(rows, r);
        if (format == ATTN_TABLE_MD)
            print_md(out, column, row);
        if (format == ATTN_TABLE_CSV || format == ATTN_TABLE_CSV_MORE)
            print_csv(out, column, row);
        if (format == ATTN_TABLE_LINES) {
            json_dumpf(row, out, JSON_COMPACT);
            fputc('\n', out);
        }
    }
}
