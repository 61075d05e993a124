/* See document.h: a document as a page of HTML. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/table/document.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/process.h"

enum { FILE_MOST = 64 << 20 };
static const char no_plots[] = "the folder plots is not beside the program";

/* The path of a file of the folder plots; "": there is none. */
static void find(const char *name, char path[2 * PATH_MAX])
{
    static const char *const down[] = {"plots", "share/attnlab/plots"};
    char base[PATH_MAX] = ".", *slash = NULL;
    for (int up = 0; up == 0 || slash != NULL; up++) {
        for (int d = 0; d < 2; d++) {
            (void)snprintf(path, 2 * PATH_MAX, "%s/%s/%s", base, down[d], name);
            if (access(path, R_OK) == 0)
                return;
        }
        if (up == 0) {
            ssize_t n = readlink("/proc/self/exe", base, sizeof base - 1);
            base[n > 0 ? n : 0] = '\0';
        }
        slash = strrchr(base, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    path[0] = '\0';
}

enum attn_status attn_plots_read(const char *name, char **text, struct attn_error *err)
{
    char path[2 * PATH_MAX];
    *text = NULL;
    find(name, path);
    return path[0] != '\0'
               ? attn_read_text(path, ATTN_READ_GIVEN, FILE_MOST, text, err)
               : attn_fail(err, ATTN_EINTERNAL, "the folder plots is not beside the program");
}

static int is_html(const char *path)
{
    return attn_cli_ends_with(path, ".html") || attn_cli_ends_with(path, ".htm");
}

char *attn_page_path(const char *path)
{
    const double patience = 60;
    char out[8];
    struct attn_process p = {.out = out, .capacity = sizeof out};
    int has_command =
        attn_process_shell("f() { cmark-gfm --version 2>&1; }; f", "", "", patience, &p) == 0 &&
        p.exit_status == 0;
    if (!is_html(path) || has_command)
        return attn_cli_text("%s", path);
    char *other = attn_cli_text("%.*s.md", (int)(strrchr(path, '.') - path), path);
    (void)attn_cli_fail(0,
                        "%s, and no HTML: there is no cmark-gfm here (Debian: apt-get install "
                        "cmark-gfm)",
                        other);
    return other;
}

/* ---- HTML ------------------------------------------------------------------------------------ */

void attn_html_text(FILE *file, const char *text)
{
    static const char *const entity[256] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    char *copy = attn_cli_text("%s", text);
    for (char *at = copy; (at = strpbrk(at, "\n\t")) != NULL;)
        *at = ' ';
    attn_clean(copy);
    for (const unsigned char *p = (const unsigned char *)copy; *p != '\0'; p++)
        if (entity[*p] != NULL)
            fputs(entity[*p], file);
        else
            fputc(*p, file);
    free(copy);
}

/* The file that a shell's command makes of this one, from its beginning; NULL: it fails. */
static FILE *filtered(const char *const argv[], FILE *in)
{
    struct attn_process p = {0};
    FILE *out = tmpfile();
    pid_t pid;
    const int fd[] = {in != NULL ? fileno(in) : -1, out != NULL ? fileno(out) : -1};
    int is_done = in != NULL && out != NULL && fflush(in) == 0 && !ferror(in) &&
                  fseek(in, 0, SEEK_SET) == 0 &&
                  attn_process_start("/bin/sh", argv, NULL, fd, 2, 0, &pid) == 0 &&
                  attn_process_reap(pid, 0, &p) == 1 && p.exit_status == 0;
    if (in != NULL)
        fclose(in);
    if (out != NULL && (!is_done || fseek(out, 0, SEEK_END) != 0)) {
        fclose(out);
        out = NULL;
    }
    return out;
}

/* Markdown as a page in this frame (plots/page.awk), to be freed; NULL when that fails. */
static char *page_of(const char *frame, const char *path, const char *title, const char *markdown)
{
    static const char make[] = "exec env title=\"$1\" pictures=\"$2\" nav= LC_ALL=C "
                               "awk -f \"${0%html}awk\" \"$0\"";
    const char *slash = strrchr(path, '/');
    char *page = NULL,
         *folder = attn_cli_text("%.*s./", slash != NULL ? (int)(slash + 1 - path) : 0, path);
    FILE *file = tmpfile();
    if (file != NULL)
        fputs(markdown, file);
    file = filtered((const char *[]){"sh", "-c", "exec cmark-gfm --unsafe -e table", NULL}, file);
    file = filtered((const char *[]){"sh", "-c", make, frame, title, folder, NULL}, file);
    long size = file != NULL ? ftell(file) : 0;
    if (size > 0) {
        page = attn_cli_need(calloc((size_t)size + 1, 1));
        rewind(file);
        if (fread(page, 1, (size_t)size, file) != (size_t)size)
            free(page), page = NULL;
    }
    if (file != NULL)
        fclose(file);
    free(folder);
    return page;
}

enum attn_status attn_page_save(const char *path, const char *title, const char *markdown,
                                struct attn_error *err)
{
    if (!is_html(path))
        return attn_cli_save(path, markdown, err);
    char frame[2 * PATH_MAX];
    find("page.html", frame);
    if (frame[0] == '\0')
        return attn_fail(err, ATTN_ENOMEM, no_plots);
    char *page = page_of(frame, path, title, markdown);
    if (page == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: cmark-gfm and awk cannot make it", path);
    enum attn_status status = attn_cli_save(path, page, err);
    free(page);
    return status;
}
