/* A table of numbers as text: labels of its rows, heads of its columns, and cells; printed as text
 * of 80 columns or as Markdown. */
#ifndef EXPERIMENTS_RIM_EXPLAIN_HANDOUT_H
#define EXPERIMENTS_RIM_EXPLAIN_HANDOUT_H

#include <stdint.h>

#include "experiments/table/document.h"

enum { ATTN_CELL = 32 }; /* bytes of a cell, and of a head */

/* Cell (r, c) stands at text[(r + 1) * columns + c]; row 0 has the heads. */
struct attn_table {
    int64_t rows, columns;
    int labels;          /* so many columns are labels: repeated where a table is cut */
    unsigned char *part; /* [columns] 1: a cut before this column is allowed */
    char (*text)[ATTN_CELL];
};

void attn_table_open(struct attn_table *t, int64_t rows, int64_t columns, int labels);
void attn_table_close(struct attn_table *t);
char *attn_table_cell(const struct attn_table *t, int64_t row, int64_t column); /* row -1: a head */

/* A number for a table whose largest is `most`: six digits of that one, so that what rounding
 * leaves of a 0 is 0; exact where it is whole. */
void attn_table_number(char *cell, double x, double most, int is_whole);

enum attn_handout_format { ATTN_HANDOUT_TEXT, ATTN_HANDOUT_MD };

/* A page to standard output in one of these formats. */
struct attn_handout {
    enum attn_handout_format format;
    struct attn_document document;
    int in_words; /* private: a heading needs a blank line before it */
};

void attn_handout_begin(struct attn_handout *handout, enum attn_handout_format format,
                        const char *title);
void attn_handout_heading(struct attn_handout *handout, const char *text);
void attn_handout_words(struct attn_handout *handout, const char *text);
void attn_handout_table(struct attn_handout *handout, const struct attn_table *t);

#endif
