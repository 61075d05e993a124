/* The table derived from records: RFC 4180, one header line, one row for each record. */
#ifndef EXPERIMENTS_REPORT_CSV_H
#define EXPERIMENTS_REPORT_CSV_H

#include <stdio.h>

#include "experiments/measure/record.h"

/* One field, quoted where it must be. */
void attn_csv_text(FILE *file, const char *text);

/* What cannot be written leaves its mark on the stream. */
void attn_csv_write(FILE *file, const struct attn_point *points, int64_t n);

/* A whole file or none (attn_save_open).  ENOMEM. */
enum attn_status attn_csv_save(const char *path, const struct attn_point *points, int64_t n,
                               struct attn_error *err);

#endif
