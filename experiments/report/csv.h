/* The table derived from records: RFC 4180, one header line, one row for each record. */
#ifndef EXPERIMENTS_CSV_H
#define EXPERIMENTS_CSV_H

#include <stdio.h>

#include "experiments/measure/record.h"

/* One field, quoted where it must be. */
void attn_csv_text(FILE *file, const char *text);

/* Returns 0, or -1 with errno when the file could not be written. */
int attn_csv_write(FILE *file, const struct attn_point *points, int64_t n);

#endif
