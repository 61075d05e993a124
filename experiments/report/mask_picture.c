/* See mask_picture.h. */
#include "experiments/report/mask_picture.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/report/figures.h"

void attn_picture_row(const struct attn_mask *mask, int64_t i, char *row)
{
    int64_t n_key = attn_mask_shape(mask)->n_key, lo, hi;
    memset(row, '.', (size_t)n_key);
    row[n_key] = '\0';
    for (int64_t from = 0; attn_mask_next(mask, 0, 0, i, from, &lo, &hi); from = hi)
        memset(row + lo, '#', (size_t)(hi - lo));
}

/* Runs that touch are one; gnuplot wants a line, so query 0 has an empty run. */
static void write_runs(FILE *file, const struct attn_mask *mask)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    fputs("$runs << END\n0 0 0\n", file);
    for (int64_t i = 0; i < s->n_query; i++) {
        int64_t begin = 0, end = 0, lo, hi;
        while (attn_mask_next(mask, 0, 0, i, end, &lo, &hi)) {
            if (lo > end && end > begin)
                fprintf(file, "%lld %lld %lld\n", (long long)i, (long long)begin, (long long)end);
            begin = lo > end ? lo : begin;
            end = hi;
        }
        if (end > begin)
            fprintf(file, "%lld %lld %lld\n", (long long)i, (long long)begin, (long long)end);
    }
    fputs("END\n", file);
}

/* What the script draws; NAME without its folder.  A mask's text has no quotes. */
static void write_head(FILE *file, const struct attn_mask *mask, const char *name)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    fprintf(file, "# Run `gnuplot %s.gp` in this folder.\nname = '%s'\ntitle = '%s'\n", name, name,
            attn_mask_text(mask));
    fprintf(file, "n_query = %lld\nn_key = %lld\n", (long long)s->n_query, (long long)s->n_key);
    write_runs(file, mask);
}

enum attn_status attn_picture_draw(const struct attn_mask *mask, const char *path,
                                   struct attn_error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    char folder[PATH_MAX], name[PATH_MAX], scripts[PATH_MAX], *head;
    size_t stem = strlen(path) >= 4 ? strlen(path) - 4 : 0, size;
    if (stem == 0 || stem >= sizeof folder - 8 || strcmp(path + stem, ".svg") != 0)
        return attn_fail(err, ATTN_EINVAL, "'%.200s': a name that ends in .svg would work", path);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)stem, path);
    char *slash = strrchr(folder, '/');
    (void)snprintf(name, sizeof name, "%s", slash == NULL ? folder : slash + 1);
    if (name[0] == '\0' || strspn(name, letters) != strlen(name))
        return attn_fail(err, ATTN_EINVAL, "'%.200s': letters, digits, '_', '-' and '.' would work",
                         name);
    if (slash == NULL)
        (void)snprintf(folder, sizeof folder, ".");
    else
        slash[slash == folder] = '\0';
    if (attn_draw_scripts(scripts, sizeof scripts) != 0)
        return attn_fail(err, ATTN_EINTERNAL, "the folder plots is not beside the program");
    FILE *file = attn_cli_memory(&head, &size);
    write_head(file, mask, name);
    fclose(file);
    enum attn_status status =
        attn_script_write(attn_cli_need(head), scripts, "mask", folder, name, err);
    free(head);
    return status == ATTN_OK ? attn_script_draw(folder, name, 1, err) : status;
}
