/* Rows as a table: text for people, Markdown, CSV, JSON.  Nothing else prints results.
 *
 * A row is an object of JSON: what was found, by the names that it has in files.  JSON prints all
 * of it.  The other formats print the fields that columns name, each in its unit.
 *
 * A value may also be {"good": text} or {"bad": text}, which is what a reader looks for, or an
 * array, whose elements stand in one cell; the values of an element that is an object stand side by
 * side.  null is what is not known.  A field that a row lacks is an empty cell.
 */
#ifndef EXPERIMENTS_TABLE_ROW_TABLE_H
#define EXPERIMENTS_TABLE_ROW_TABLE_H

#include <jansson.h>
#include <stdio.h>

enum attn_table_format {
    ATTN_TABLE_TEXT,
    ATTN_TABLE_INDENTED, /* text, each line behind two blanks                              */
    ATTN_TABLE_MD,
    ATTN_TABLE_JSON,    /* one array                                                         */
    ATTN_TABLE_LINES,   /* of JSON: an object a line                                         */
    ATTN_TABLE_CSV,     /* a line of keys first; whole numbers, and reals of nine figures    */
    ATTN_TABLE_CSV_MORE /* more rows of the same                                           */
};

/* How people read a value.  Numbers stand at the right. */
enum attn_unit {
    ATTN_UNIT_WORDS,     /* markup in it is text */
    ATTN_UNIT_MD,        /* Markdown of ours */
    ATTN_UNIT_CODE,      /* of another program or file, or what a reader would type         */
    ATTN_UNIT_PLAIN,     /* 16384                                                           */
    ATTN_UNIT_GROUPED,   /* 16,384                                                          */
    ATTN_UNIT_BYTES,     /* 16.0 KiB                                                        */
    ATTN_UNIT_SECONDS,   /* 1.24 ms                                                         */
    ATTN_UNIT_REAL,      /* three figures                                                   */
    ATTN_UNIT_BELOW = 16 /* or-ed; in text: in a line of its own under the row, behind its head;
                            none where it is empty */
};

struct attn_column {
    const char *key, *head; /* key NULL: behind the last one; head: Markdown of ours */
    int unit;
};

/* Text has the line of heads where one of these is a word; a column that no row has is left out. */
void attn_table_print(FILE *out, enum attn_table_format format, const struct attn_column *column,
                      const json_t *rows);

/* "1.24 ms"; a dash for NaN. */
const char *attn_seconds_text(double seconds, char text[32]);

/* A field of CSV, in quotes where it needs them. */
void attn_csv_text(FILE *file, const char *text);

/* ---- Markdown -------------------------------------------------------------------------------- */

/* One line of it: words as they are, no markup; a span of code.  is_cell: of a table. */
void attn_md_words(FILE *out, const char *text);
void attn_md_code(FILE *out, const char *text, int is_cell);

#endif
