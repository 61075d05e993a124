/* The program prints words that others wrote, and they must not reach a terminal as control
 * characters: standard output and standard error become streams that write every byte through
 * attn_clean_part. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/process.h"

struct terminal {
    int fd;
    const char *kept; /* control characters of our own */
    size_t n_begun;   /* a character that a write has cut in two */
    char begun[4];
    char room[BUFSIZ]; /* of the stream, which would ask for one when it is late to be refused */
};

/* Marks of our own, which are no escapes: words of others can at most colour a line.  The stream
 * turns them into escapes. */
static const struct mark {
    const char *text, *escape;
} mark[] = {{"\1", "\033[31m"}, {"\2", "\033[32m"}, {"\3", "\033[m"}};
static const char with_marks[] = "\n\t\1\2\3";

static int has_colours;

const char *attn_cli_paint(FILE *out, int is_good)
{
    return has_colours && out == stdout ? mark[is_good < 0 ? 2 : is_good].text : "";
}

static int write_marked(int fd, const char *text, size_t n)
{
    int ok = 1;
    for (const char *end = text + n; ok && text < end;) {
        size_t plain = 0;
        while (text + plain < end && (text[plain] < 1 || text[plain] > 3))
            plain++;
        ok = attn_pipe_write(fd, text, plain);
        text += plain;
        if (ok && text < end) {
            const char *escape = mark[*text++ - 1].escape;
            ok = attn_pipe_write(fd, escape, strlen(escape));
        }
    }
    return ok;
}

static ssize_t write_clean(void *cookie, const char *data, size_t n)
{
    enum { AT_ONCE = 4096 };
    struct terminal *t = cookie;
    char text[sizeof t->begun + AT_ONCE + 1];
    for (size_t from = 0, size, done; from < n; from += size) {
        size = n - from < AT_ONCE ? n - from : AT_ONCE;
        memcpy(text, t->begun, t->n_begun);
        memcpy(text + t->n_begun, data + from, size);
        text[t->n_begun + size] = '\0';
        done = attn_clean_part(text, t->n_begun + size, t->kept, 0);
        t->n_begun += size - done;
        memcpy(t->begun, text + done, t->n_begun);
        if (!write_marked(t->fd, text, done))
            return 0;
    }
    return (ssize_t)n;
}

static FILE *open_clean(struct terminal *t, int buffering)
{
    FILE *file = attn_cli_need(fopencookie(t, "w", (cookie_io_functions_t){.write = write_clean}));
    setvbuf(file, t->room, buffering, sizeof t->room);
    return file;
}

void attn_cli_print_clean(void)
{
    /* As long as the streams, which are never closed.  A line of progress begins with \r. */
    static struct terminal out = {.fd = STDOUT_FILENO, .kept = "\n\t"},
                           err = {.fd = STDERR_FILENO, .kept = "\n\t\r"};
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    has_colours = isatty(STDOUT_FILENO) && (no == NULL || no[0] == '\0') && term != NULL &&
                  strcmp(term, "dumb") != 0;
    out.kept = has_colours ? with_marks : out.kept;
    stdout = open_clean(&out, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
    stderr = open_clean(&err, _IONBF);
}
