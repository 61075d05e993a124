#include "experiments/report/draw.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORMATS = 3, WORDS = 4096 };
static const char *const format[FORMATS] = {"svg", "png", "pdf"};

/* In the child: become gnuplot, in the folder, with its words going to fd.  Old pictures of the
 * figure (NULL: none) go first, so that what is found afterwards is new. */
static void become_gnuplot(char *const argv[], const char *folder, const char *figure, int fd)
{
    char old[ATTN_FIGURE_NAME + 8];
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 || chdir(folder) != 0)
        _exit(126);
    for (int f = 0; figure != NULL && f < FORMATS; f++) {
        (void)snprintf(old, sizeof old, "%s.%s", figure, format[f]);
        (void)unlink(old);
    }
    execvp(argv[0], argv);
    _exit(errno == ENOENT ? 127 : 126);
}

/* Run it; returns the exit status (127: there is no such program), -1 when it could not be
 * started or was killed.  words receives the end of what it said. */
static int run(char *const argv[], const char *folder, const char *figure, char words[WORDS])
{
    int fd[2], status;
    words[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0)
        become_gnuplot(argv, folder, figure, fd[1]);
    close(fd[1]);
    size_t used = 0;
    ssize_t got;
    while (child > 0 && (got = read(fd[0], words + used, WORDS - 1 - used)) != 0) {
        if (got < 0 && errno != EINTR)
            break;
        used += got > 0 ? (size_t)got : 0;
        used = used > WORDS / 2 && used == WORDS - 1 ? WORDS / 2 : used; /* drain the rest */
    }
    words[used] = '\0';
    close(fd[0]);
    if (child < 0)
        return -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int attn_draw_possible(void)
{
    char words[WORDS], program[] = "gnuplot", version[] = "--version";
    char *argv[] = {program, version, NULL};
    int status = run(argv, "/", NULL, words);
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

static enum attn_status draw_one(const char *name, const char *folder, struct attn_error *err)
{
    char script[ATTN_FIGURE_NAME + 8], words[WORDS], program[] = "gnuplot", plain[] = "-d";
    /* -d: the user's own ~/.gnuplot stays out of it. */
    char *argv[] = {program, plain, script, NULL};
    (void)snprintf(script, sizeof script, "%s.gp", name);
    int status = run(argv, folder, name, words);
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
