/* Tables of others: CSV with one header line, or a JSON object a line.  A field of CSV may be
 * quoted as RFC 4180 has it, but ends in its line.  Blank lines and those that begin with # are
 * none. */
#ifndef EXPERIMENTS_RIM_STUDIES_TABLE_FILE_H
#define EXPERIMENTS_RIM_STUDIES_TABLE_FILE_H

#include <jansson.h>

#include "ref/attn.h"

/* The key of the number of its line, in each object. */
#define ATTN_TABLE_LINE "#"

/* The lines of a text, which is cut to pieces, as an array of objects; a field of CSV is a string.
 * needed: keys that each must have, NULL behind the last.  NULL: *line is the number of the line in
 * which something is wrong. */
json_t *attn_table_read(char *text, const char *const *needed, int *line, struct attn_error *err);

/* The string of that key; "" where there is none. */
const char *attn_table_field(const json_t *object, const char *key);

#endif
