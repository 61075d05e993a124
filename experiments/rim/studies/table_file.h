/* Tables of others: CSV with one header line, or a JSON object a line.  A field of CSV may be
 * quoted as RFC 4180 has it, but ends in its line.  Blank lines and those that begin with # are
 * none. */
#ifndef EXPERIMENTS_RIM_STUDIES_TABLE_FILE_H
#define EXPERIMENTS_RIM_STUDIES_TABLE_FILE_H

#include <jansson.h>

#include "experiments/rim/studies/study.h"

/* The key of the number of its line, in each object. */
#define ATTN_TABLE_LINE "#"

/* The string of that key; "" where there is none. */
const char *attn_table_field(const json_t *object, const char *key);

/* ---- as rows of a study----------------------------------------------------------------------- */

/* The text of a file of experiments/rim/studies/data, inside the program, so that a study runs
 * wherever the program is: makes attn_study_data_NAME of a file of the rim. */
#define ATTN_STUDY_DATA(NAME, FILE)                  \
    extern const char attn_study_data_##NAME[];      \
    __asm__(".pushsection .rodata\n"                 \
            "attn_study_data_" #NAME ":\n"           \
            ".incbin \"experiments/rim/" FILE "\"\n" \
            ".byte 0\n"                              \
            ".popsection\n");

/* Its rows, or those of run->data, which must have these columns (NULL behind the last); to be
 * given to json_decref().  NULL: run->bad says why. */
json_t *attn_study_rows(struct attn_study_run *run, const char *csv, const char *const *columns);

/* A field of a row: a whole number in a range, a number above 0, or the place of a word among
 * "a|b|c".  Any other text is in run->bad, and `least`, 1 or 0 comes back. */
int64_t attn_study_number(struct attn_study_run *run, const json_t *row, const char *column,
                          int64_t least, int64_t most);
double attn_study_real(struct attn_study_run *run, const json_t *row, const char *column);
int attn_study_word(struct attn_study_run *run, const json_t *row, const char *column,
                    const char *words);

#endif
