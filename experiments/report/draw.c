/* Figures on disk: scripts, which are not overwritten once a user edited them, and gnuplot. */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/report/figures.h"
#include "experiments/table/document.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/process.h"

enum { SCRIPT_MOST = 1 << 20 };

/* ---- scripts --------------------------------------------------------------------------------- */

/* The last line of a script says whose it is and what it was, so that an edit is seen. */
static const char seal[] = "# attnlab wrote ";

static void write_seal(const char *name, const char *text, size_t n, char line[PATH_MAX + 64])
{
    (void)snprintf(line, PATH_MAX + 64, "%s%s.gp: %016" PRIx64 "\n", seal, name,
                   attn_digest_bytes(ATTN_DIGEST_BEGIN, text, n));
}

/* The state of FOLDER/NAME.gp.  OTHERS: the file does not say that it was written as that. */
enum script { NO_SCRIPT, INTACT, EDITED, OTHERS };
static enum script look_at(const char *folder, const char *name)
{
    char path[2 * PATH_MAX], line[PATH_MAX + 64], *text = NULL, *last = NULL;
    (void)snprintf(path, sizeof path, "%s/%s.gp", folder, name);
    if (access(path, F_OK) != 0)
        return NO_SCRIPT;
    struct attn_error err;
    enum attn_status status = attn_read_text(path, ATTN_READ_GIVEN, SCRIPT_MOST, &text, &err);
    if (status == ATTN_ENOMEM) /* which says nothing of the script */
        attn_cli_lack("%s", err.text);
    if (status != ATTN_OK)
        return OTHERS;
    for (char *at = text; (at = strstr(at, seal)) != NULL; at++)
        last = at;
    write_seal(name, text, last != NULL ? (size_t)(last - text) : 0, line);
    size_t of_name = strcspn(line, ":") + 1;
    enum script is = last == NULL || strncmp(last, line, of_name) != 0 ? OTHERS
                     : strcmp(last, line) == 0                         ? INTACT
                                                                       : EDITED;
    free(text);
    return is;
}

static enum attn_status refuse(const char *folder, const char *name, struct attn_error *err)
{
    return attn_fail(err, ATTN_EINVAL,
                     "%.300s/%s.gp was edited and would be lost: gnuplot draws it as it is; with "
                     "--overwrite it is written anew",
                     folder, name);
}

enum attn_status attn_scripts_check(const char *folder, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    DIR *all = opendir(folder);
    if (all == NULL)
        return ATTN_OK; /* there are none yet */
    for (struct dirent *one; status == ATTN_OK && (one = readdir(all)) != NULL;) {
        size_t n = strlen(one->d_name);
        char name[256];
        if (n < 4 || strcmp(one->d_name + n - 3, ".gp") != 0)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)(n - 3), one->d_name);
        if (look_at(folder, name) == EDITED)
            status = refuse(folder, name, err);
    }
    closedir(all);
    return status;
}

/* May this script be written?  And FOLDER/NAME.END, of the words `ends`? */
static enum attn_status may_write(const char *folder, const char *name, const char *ends,
                                  int overwrite, struct attn_error *err)
{
    enum script is = overwrite ? NO_SCRIPT : look_at(folder, name);
    enum attn_status status = ATTN_OK;
    if (is == EDITED || is == OTHERS)
        return refuse(folder, name, err);
    for (size_t n; status == ATTN_OK && *ends != '\0'; ends += n + strspn(ends + n, " ")) {
        n = strcspn(ends, " ");
        char *path = attn_cli_text("%s/%s.%.*s", folder, name, (int)n, ends);
        status = attn_save_check(path, err);
        free(path);
    }
    return status;
}

enum attn_status attn_figure_check(const struct attn_figure *figure, const char *folder,
                                   struct attn_error *err)
{
    char ends[64];
    (void)snprintf(ends, sizeof ends, "csv gp %s", ATTN_FIGURE_FORMATS);
    enum attn_status status = may_write(folder, figure->name, ends, figure->overwrite, err);
    return status == ATTN_OK ? may_write(folder, "style", "gp", figure->overwrite, err) : status;
}

/* FOLDER/NAME.gp: these lines, then a script of plots.  An older one is replaced as a whole, or
 * stays. */
static enum attn_status write_script(const char *head, const char *script, const char *folder,
                                     const char *name, struct attn_error *err)
{
    char path[PATH_MAX], line[PATH_MAX + 64], *text;
    (void)snprintf(path, sizeof path, "%s.gp", script);
    enum attn_status status = attn_plots_read(path, &text, err);
    if (status != ATTN_OK)
        return status;
    char *body = attn_cli_text("%s%s", head, text);
    write_seal(name, body, strlen(body), line);
    char *whole = attn_cli_text("%s%s", body, line);
    (void)snprintf(path, sizeof path, "%s/%s.gp", folder, name);
    status = attn_cli_save(path, whole, err);
    free(whole);
    free(body);
    free(text);
    return status;
}

/* NAME.csv, NAME.gp and style.gp.  ENOMEM when one cannot be written, whole. */
static enum attn_status write_figure(const struct attn_figure *figure, const char *folder,
                                     struct attn_error *err)
{
    char path[PATH_MAX], *csv = attn_figure_csv(figure), *head = attn_figure_head(figure);
    (void)snprintf(path, sizeof path, "%s/%s.csv", folder, figure->name);
    enum attn_status status = attn_figure_check(figure, folder, err);
    if (status == ATTN_OK)
        status = attn_cli_save(path, csv, err);
    if (status == ATTN_OK)
        status = write_script(head, figure->script, folder, figure->name, err);
    free(csv);
    free(head);
    return status == ATTN_OK ? write_script("", "style", folder, "style", err) : status;
}

/* ---- pictures -------------------------------------------------------------------------------- */

enum { FORMATS = 3, WORDS = 4096 };

/* Run `gnuplot -d ARGUMENT` in a folder; returns the exit status (127: there is no such program),
 * -1 when it could not be started or was killed.  words receives the beginning of what it said.
 * -d: the user's own ~/.gnuplot stays out of it. */
static int run(const char *argument, const char *folder, char words[WORDS])
{
    struct attn_process end = {.folder = folder, .out = words, .capacity = WORDS};
    words[0] = '\0';
    if (attn_process_shell("f() { exec gnuplot -d \"$1\" 2>&1; }; f", argument, "",
                           (double)INFINITY, &end) != 0)
        return -1;
    attn_clean(words);
    return end.exit_status;
}

int attn_draw_possible(void)
{
    char words[WORDS];
    int status = run("--version", NULL, words);
    return status == 0 || status == 126 || status == -1; /* not started: drawing says why */
}

/* Of when a picture is; 0 where there is none. */
static struct timespec time_of(const char *folder, const char *name, const char *of)
{
    char path[PATH_MAX];
    struct stat facts;
    (void)snprintf(path, sizeof path, "%s/%s.%s", folder, name, of);
    if (stat(path, &facts) != 0 || facts.st_size == 0)
        return (struct timespec){0, 0};
    return facts.st_mtim;
}

/* Have gnuplot make NAME.svg and so on, whose formats are words, of FOLDER/NAME.gp; a NAME is
 * letters, digits, '_', '-' and '.'.  Old pictures stay where gnuplot cannot be started; where it
 * was, each must be newer. */
static enum attn_status draw_script(const char *folder, const char *name, const char *formats,
                                    struct attn_error *err)
{
    char script[PATH_MAX], words[WORDS], format[FORMATS][4];
    struct timespec before[FORMATS];
    int n_formats = sscanf(formats, "%3s %3s %3s", format[0], format[1], format[2]);
    for (int f = 0; f < n_formats; f++)
        before[f] = time_of(folder, name, format[f]);
    (void)snprintf(script, sizeof script, "./%s.gp", name);
    int status = run(script, folder, words);
    if (status == 127)
        return attn_fail(err, ATTN_ENOMEM, "gnuplot is not installed");
    if (status == 126 || status == -1)
        return attn_fail(err, ATTN_ENOMEM, "gnuplot cannot be started for figure %s", name);
    if (status != 0)
        return attn_fail(err, ATTN_ENOMEM, "gnuplot failed on figure %s: %.300s", name, words);
    for (int f = 0; f < n_formats; f++) {
        struct timespec is = time_of(folder, name, format[f]);
        if (is.tv_sec == before[f].tv_sec && is.tv_nsec == before[f].tv_nsec)
            return attn_fail(err, ATTN_ENOMEM, "gnuplot did not write %s.%s: %.300s", name,
                             format[f], words);
    }
    return ATTN_OK;
}

/* plots/page.sed on a picture. */
static enum attn_status make_titles(const char *folder, const char *name, struct attn_error *err)
{
    struct attn_process end = {.folder = folder};
    char *edit;
    enum attn_status status = attn_plots_read("page.sed", &edit, err);
    if (status == ATTN_OK &&
        (attn_process_shell("f() { LC_ALL=C sed -i -E \"$2\" \"./$1.svg\"; }; f", name, edit,
                            (double)INFINITY, &end) != 0 ||
         end.exit_status != 0))
        status = attn_fail(err, ATTN_ENOMEM, "%s/%s.svg: %s", folder, name, end.last_line);
    free(edit);
    return status;
}

enum attn_status attn_draw(const struct attn_figure *figure, const char *folder,
                           struct attn_error *err)
{
    enum attn_status status = write_figure(figure, folder, err);
    if (status == ATTN_OK)
        status = draw_script(folder, figure->name, ATTN_FIGURE_FORMATS, err);
    return status == ATTN_OK ? make_titles(folder, figure->name, err) : status;
}

/* ---- the picture of a mask ------------------------------------------------------------------- */

void attn_picture_row(const struct attn_mask *mask, int64_t i, char *row)
{
    int64_t n_key = attn_mask_shape(mask)->n_key;
    struct attn_run run = {0, 0};
    memset(row, '.', (size_t)n_key);
    row[n_key] = '\0';
    while (attn_mask_next(mask, 0, 0, i, &run))
        memset(row + run.lo, '#', (size_t)(run.hi - run.lo));
}

/* Runs that touch are one; gnuplot wants a line, so query 0 has an empty run. */
static void write_runs(FILE *file, const struct attn_mask *mask)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    fputs("$runs << END\n0 0 0\n", file);
    for (int64_t i = 0; i < s->n_query; i++) {
        int64_t begin = 0, end = 0;
        struct attn_run run = {0, 0};
        while (attn_mask_next(mask, 0, 0, i, &run)) {
            if (run.lo > end && end > begin)
                fprintf(file, "%lld %lld %lld\n", (long long)i, (long long)begin, (long long)end);
            begin = run.lo > end ? run.lo : begin;
            end = run.hi;
        }
        if (end > begin)
            fprintf(file, "%lld %lld %lld\n", (long long)i, (long long)begin, (long long)end);
    }
    fputs("END\n", file);
}

/* Writes the mask that the script draws; NAME without its folder.  A mask's text has no quotes. */
static void write_mask(FILE *file, const struct attn_mask *mask, const char *name)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    fprintf(file, "# Run `gnuplot %s.gp` in this folder.\nname = '%s'\ntitle = '%s'\n", name, name,
            attn_mask_text(mask));
    fprintf(file, "n_query = %lld\nn_key = %lld\n", (long long)s->n_query, (long long)s->n_key);
    write_runs(file, mask);
}

enum attn_status attn_picture_draw(const struct attn_mask *mask, const char *path, int overwrite,
                                   struct attn_error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    char folder[PATH_MAX], name[PATH_MAX], *head;
    size_t stem = strlen(path) >= 4 ? strlen(path) - 4 : 0, size;
    if (stem == 0 || stem >= sizeof folder - 8 || strcmp(path + stem, ".svg") != 0)
        return attn_fail(err, ATTN_EINVAL, "'%.200s': a name that ends in .svg would work", path);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)stem, path);
    char *slash = strrchr(folder, '/');
    (void)snprintf(name, sizeof name, "%s", slash == NULL ? folder : slash + 1);
    if (name[0] == '\0' || name[strspn(name, letters)] != '\0')
        return attn_fail(err, ATTN_EINVAL, "'%.200s': letters, digits, '_', '-' and '.' would work",
                         name);
    if (slash == NULL)
        (void)snprintf(folder, sizeof folder, ".");
    else
        slash[slash == folder] = '\0';
    enum attn_status status = may_write(folder, name, "gp svg", overwrite, err);
    if (status != ATTN_OK)
        return status;
    FILE *file = attn_cli_memory(&head, &size);
    write_mask(file, mask, name);
    fclose(file);
    status = write_script(attn_cli_need(head), "mask", folder, name, err);
    if (status == ATTN_OK)
        status = draw_script(folder, name, "svg", err);
    free(head);
    return status;
}
