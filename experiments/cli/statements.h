/* Small files of ours that people write, plans and clusters: what a line is.
 *
 *      KEY = VALUE ; KEY = VALUE      # a comment: # at the start of a line, or between blanks
 */
#ifndef EXPERIMENTS_CLI_STATEMENTS_H
#define EXPERIMENTS_CLI_STATEMENTS_H

#include "ref/attn.h"

/* The text without blanks around it, and one kind of blank inside; cut in place. */
char *attn_trim(char *text);

/* The first word is `word`; then what follows it, else NULL. */
char *attn_after_word(char *text, const char *word);

/* Each statement of a text that is not empty, trimmed, with the number of its line; the text is cut
 * to pieces, which live as long as it does.  The first that fails ends it; its line is in *line. */
enum attn_status attn_statements(char *text, int *line,
                                 enum attn_status (*take)(void *arg, char *statement,
                                                          struct attn_error *err),
                                 void *arg, struct attn_error *err);

/* Put "NAME:LINE: " before a message. */
void attn_statement_locate(struct attn_error *err, const char *name, int line);

#endif
