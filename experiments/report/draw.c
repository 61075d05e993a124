#include "experiments/report/draw.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/process.h"

enum { FORMATS = 3, WORDS = 4096 };
static const char *const format[FORMATS] = {"svg", "png", "pdf"};

/* Run `COMMAND FOLDER` by the shell; returns the exit status (127: there is no such program), -1
 * when it could not be started or was killed.  words receives the beginning of what it said. */
static int run(const char *command, const char *folder, char words[WORDS])
{
    struct attn_process end = {.out = words, .room = WORDS};
    words[0] = '\0';
    return attn_process_shell(command, folder, "", (double)INFINITY, &end) == 0 ? end.exit_status
                                                                                : -1;
}

int attn_draw_possible(void)
{
    char words[WORDS];
    int status = run("gnuplot --version 2>&1; exit $?", "", words);
    return status == 0 || status == 126 || status == -1; /* not started: drawing says why */
}

int attn_draw_scripts(char *path, size_t size)
{
    char base[PATH_MAX], candidate[PATH_MAX + 32];
    if (realpath("plots/style.gp", candidate) != NULL) {
        *strrchr(candidate, '/') = '\0';
        return snprintf(path, size, "%s", candidate) < (int)size ? 0 : -1;
    }
    ssize_t n = readlink("/proc/self/exe", base, sizeof base - 1);
    base[n > 0 ? n : 0] = '\0';
    /* build/release/attnlab: the scripts are three steps up, and down into plots. */
    for (char *slash = strrchr(base, '/'); slash != NULL; slash = strrchr(base, '/')) {
        *slash = '\0';
        (void)snprintf(candidate, sizeof candidate, "%s/plots/style.gp", base);
        if (access(candidate, R_OK) == 0)
            return snprintf(path, size, "%s/plots", base) < (int)size ? 0 : -1;
        /* bin/attnlab: one step up, and down into share. */
        (void)snprintf(candidate, sizeof candidate, "%s/share/attnlab/plots/style.gp", base);
        if (access(candidate, R_OK) == 0)
            return snprintf(path, size, "%s/share/attnlab/plots", base) < (int)size ? 0 : -1;
    }
    return -1;
}

static int is_written(const char *folder, const char *name, const char *suffix)
{
    char path[PATH_MAX];
    struct stat facts;
    (void)snprintf(path, sizeof path, "%s/%s.%s", folder, name, suffix);
    return stat(path, &facts) == 0 && facts.st_size > 0;
}

/* A blank for every newline: messages are one line. */
static void flatten(char *text)
{
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
}

/* Old pictures go first, so that what is found afterwards is new.  A name is letters, digits and
 * '-'.  -d: the user's own ~/.gnuplot stays out of it. */
static enum attn_status draw_one(const char *name, const char *folder, struct attn_error *err)
{
    char command[4 * ATTN_FIGURE_NAME + 80], words[WORDS];
    (void)snprintf(
        command, sizeof command,
        "f() { cd \"$1\" && rm -f %s.svg %s.png %s.pdf && exec gnuplot -d %s.gp 2>&1; }; f", name,
        name, name, name);
    int status = run(command, folder, words);
    flatten(words);
    if (status == 127)
        return attn_fail(err, ATTN_EINTERNAL, "gnuplot is not installed");
    if (status == 126 || status == -1)
        return attn_fail(err, ATTN_ENOMEM, "gnuplot cannot be started for figure %s", name);
    if (status != 0)
        return attn_fail(err, ATTN_EINTERNAL, "gnuplot failed on figure %s: %.300s", name, words);
    for (int f = 0; f < FORMATS; f++)
        if (!is_written(folder, name, format[f]))
            return attn_fail(err, ATTN_EINTERNAL, "gnuplot did not write %s.%s: %.300s", name,
                             format[f], words);
    return ATTN_OK;
}

enum attn_status attn_draw(const struct attn_figure *figure, const char *scripts,
                           const char *folder, struct attn_error *err)
{
    if (attn_figure_write(figure, scripts, folder, err) != ATTN_OK)
        return ATTN_ENOMEM;
    return draw_one(figure->name, folder, err);
}
