#include "experiments/studies/data.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

/* Cut a line at its commas; the number of fields. */
static int cut(char *line, const char *field[ATTN_STUDY_FIELDS])
{
    int n = 0;
    while (line != NULL && n < ATTN_STUDY_FIELDS) {
        field[n++] = line;
        line = strchr(line, ',');
        if (line != NULL)
            *line++ = '\0';
    }
    return n;
}

void attn_study_open(struct attn_study_table *table, const char *csv)
{
    char *at, *rest;
    int lines = 0;
    memset(table, 0, sizeof *table);
    table->text = attn_cli_need(strdup(csv));
    for (const char *c = csv; *c != '\0'; c++)
        lines += *c == '\n';
    table->line = attn_cli_need(calloc((size_t)lines + 1, sizeof *table->line));
    at = strtok_r(table->text, "\r\n", &rest);
    while (at != NULL && *at == '#')
        at = strtok_r(NULL, "\r\n", &rest);
    table->n_names = cut(at, table->name);
    while ((at = strtok_r(NULL, "\r\n", &rest)) != NULL) {
        struct attn_study_line *line = &table->line[table->n++];
        line->name = table->name;
        line->n = cut(at, line->field);
    }
}

void attn_study_close(struct attn_study_table *table)
{
    free(table->line);
    free(table->text);
}

const char *attn_study_field(const struct attn_study_line *line, const char *name)
{
    for (int f = 0; f < line->n; f++)
        if (strcmp(line->name[f], name) == 0)
            return line->field[f];
    return "";
}
