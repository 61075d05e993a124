/* See document.h: a document as a page of HTML. */
#include <ctype.h>
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

enum attn_status attn_plots_read(const char *name, char **text, struct attn_error *err)
{
    static const char *const down[] = {"plots", "share/attnlab/plots"};
    char base[PATH_MAX] = ".", path[2 * PATH_MAX], *slash = NULL;
    for (int up = 0; up == 0 || slash != NULL; up++) {
        for (int d = 0; d < 2; d++) {
            (void)snprintf(path, sizeof path, "%s/%s/%s", base, down[d], name);
            if (access(path, R_OK) == 0)
                return attn_read_text(path, ATTN_READ_GIVEN, FILE_MOST, text, err);
        }
        if (up == 0) {
            ssize_t n = readlink("/proc/self/exe", base, sizeof base - 1);
            base[n > 0 ? n : 0] = '\0';
        }
        slash = strrchr(base, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    *text = NULL;
    return attn_fail(err, ATTN_EINTERNAL, "the folder plots is not beside the program");
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

/* Markdown as the inside of <body>: NULL when that fails.  To be freed. */
static char *body_of(const char *markdown)
{
    static const char *const argv[] = {"sh", "-c", "exec cmark-gfm --unsafe -e table", NULL};
    struct attn_process p = {0};
    FILE *in = tmpfile(), *out = tmpfile();
    char *body = NULL;
    pid_t pid;
    if (in != NULL && out != NULL && fputs(markdown, in) >= 0 && fflush(in) == 0) {
        const int fd[] = {fileno(in), fileno(out)};
        rewind(in);
        if (attn_process_start("/bin/sh", argv, NULL, fd, 2, 0, &pid) == 0 &&
            attn_process_reap(pid, 0, &p) == 1 && p.exit_status == 0) {
            long size = (fseek(out, 0, SEEK_END), ftell(out));
            body = attn_cli_need(calloc((size_t)size + 1, 1));
            rewind(out);
            if (fread(body, 1, (size_t)size, out) != (size_t)size)
                free(body), body = NULL;
        }
    }
    if (in != NULL)
        fclose(in);
    if (out != NULL)
        fclose(out);
    return body;
}

/* A heading's name for links, as GitHub makes it: small letters, digits, '-' for blanks. */
static void put_name(FILE *file, const char *text, size_t n)
{
    for (size_t c = 0; c < n; c++) {
        if (text[c] == '<') /* markup */
            while (c < n && text[c] != '>')
                c++;
        else if (isalnum((unsigned char)text[c]) || (unsigned char)text[c] >= 128 || text[c] == '-')
            fputc(tolower((unsigned char)text[c]), file);
        else if (text[c] == ' ')
            fputc('-', file);
    }
}

/* The attributes of an <svg> without those of namespaces, which HTML knows; behind them. */
static const char *put_attributes(FILE *file, const char *at)
{
    for (size_t n; *at != '\0' && *at != '>'; at += n) {
        at += strspn(at, " \n");
        n = strcspn(at, "\"");
        n += at[n] != '\0';
        n += strcspn(at + n, "\"");
        n += at[n] != '\0';
        if (strncmp(at, "xmlns", 5) != 0 && *at != '>')
            fprintf(file, " %.*s", (int)n, at);
        n = *at == '>' ? 0 : n;
    }
    return at;
}

/* A picture as it is, but for what only a file has above its root; its label. */
static enum attn_status put_picture(FILE *file, const char *path, const char *name, size_t n,
                                    const char *label, struct attn_error *err)
{
    const char *slash = strrchr(path, '/'), *svg;
    char *text = NULL,
         *picture = attn_cli_text("%.*s%.*s", slash != NULL ? (int)(slash + 1 - path) : 0, path,
                                  (int)n, name);
    enum attn_status status = attn_read_text(picture, ATTN_READ_GIVEN, FILE_MOST, &text, err);
    if (status == ATTN_OK && (svg = strstr(text, "<svg")) == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "%s is no SVG", picture);
    if (status == ATTN_OK)
        fprintf(file, "<svg role=\"img\" aria-label=\"%.*s\"", (int)strcspn(label, "\""), label),
            fputs(put_attributes(file, svg + 4), file);
    free(picture);
    free(text);
    return status;
}

/* The body, its headings with names, and the pictures that it names inside it. */
static enum attn_status put_body(FILE *file, const char *path, const char *body,
                                 struct attn_error *err)
{
    static const char tag[] = "<img src=\"", alt[] = "\" alt=\"";
    enum attn_status status = ATTN_OK;
    while (*body != '\0' && status == ATTN_OK) {
        size_t n = strcspn(body, "<"), name = strlen(tag);
        fwrite(body, 1, n, file);
        body += n;
        if (strncmp(body, tag, name) == 0) {
            n = strcspn(body + name, "\"");
            const char *label = body + name + n;
            int has_label = strncmp(label, alt, strlen(alt)) == 0;
            label = has_label ? label + strlen(alt) : "";
            status = put_picture(file, path, body + name, n, label, err);
            body += strcspn(body, ">");
            body += *body != '\0';
        } else if (body[0] == '<' && body[1] == 'h' && body[2] >= '1' && body[2] <= '6' &&
                   body[3] == '>') {
            const char *end = strstr(body, "</h");
            fprintf(file, "%.3s id=\"", body);
            put_name(file, body + 4, end != NULL ? (size_t)(end - body - 4) : 0);
            fputs("\">", file);
            body += 4;
        } else if (*body != '\0')
            fputc(*body++, file);
    }
    return status;
}

/* plots/page.html with these in its holes. */
static enum attn_status put_page(FILE *file, const char *path, const char *title, const char *body,
                                 struct attn_error *err)
{
    char *frame, *style = NULL;
    enum attn_status status = attn_plots_read("page.html", &frame, err);
    if (status == ATTN_OK)
        status = attn_plots_read("page.css", &style, err);
    for (const char *at = frame, *hole; status == ATTN_OK && *at != '\0'; at = hole) {
        hole = strstr(at, "{{");
        fprintf(file, "%.*s", hole != NULL ? (int)(hole - at) : (int)strlen(at), at);
        if (hole == NULL)
            break;
        if (strncmp(hole, "{{title}}", 9) == 0)
            attn_html_text(file, title);
        else if (strncmp(hole, "{{style}}", 9) == 0)
            fputs(style, file);
        else if (strncmp(hole, "{{body}}", 8) == 0)
            status = put_body(file, path, body, err);
        hole = strstr(hole, "}}") + 2;
    }
    free(frame);
    free(style);
    return status;
}

enum attn_status attn_page_save(const char *path, const char *title, const char *markdown,
                                struct attn_error *err)
{
    if (!is_html(path))
        return attn_cli_save(path, markdown, err);
    struct attn_error why = {ATTN_OK, ""};
    char *whole, *body = body_of(markdown);
    size_t size;
    if (body == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: cmark-gfm cannot make it", path);
    FILE *out = attn_cli_memory(&whole, &size);
    enum attn_status status = put_page(out, path, title, body, &why);
    fclose(out);
    attn_cli_need(whole);
    status = status == ATTN_OK ? attn_cli_save(path, whole, err)
                               : attn_fail(err, ATTN_ENOMEM, "%s", why.text);
    free(whole);
    free(body);
    return status;
}
