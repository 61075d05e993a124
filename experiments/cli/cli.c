/* See cli.h. */
#include "experiments/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "optimized/integers.h"
#include "optimized/parallel/rank_runner.h"
#include "ref/impl.h"
#include "tests/harness/base/fileio.h"

/* How this process was started, which each message begins with, whether it leaves of its own will,
 * which a handler asks, and who runs ranks. */
static struct {
    char program[4096]; /* as words of a shell */
    const char *command;
    int is_leaving;
    const struct attn_runner *runner;
} process = {"attnlab", "", 0, NULL};

void attn_cli_set_runner(const struct attn_runner *runner)
{
    process.runner = runner;
}

const struct attn_runner *attn_cli_runner(void)
{
    return process.runner;
}

int attn_cli_is_first(void)
{
    return process.runner == NULL || process.runner->rank == 0;
}

enum attn_status attn_cli_run_by(int ranks, struct attn_options *options, struct attn_error *err)
{
    options->runner = process.runner;
    if (process.runner == NULL || ranks <= process.runner->size)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "%d ranks are as many processes, and there are %d: mpirun -n %d would work",
                     ranks, process.runner->size, ranks);
}

void attn_cli_started(const char *argv0, const char *command)
{
    char word[sizeof process.program - 128] = "attnlab";
    process.command = command;
    if (argv0 != NULL && argv0[0] != '\0')
        attn_cli_quote(argv0, word, sizeof word);
    if (process.runner == NULL)
        snprintf(process.program, sizeof process.program, "%s", word);
    else /* Open MPI wants to be told that root means it, and that cores may be shared */
        snprintf(process.program, sizeof process.program, "%smpirun --oversubscribe -n %d %s",
                 geteuid() == 0 ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " : "",
                 process.runner->size, word);
}

const char *attn_cli_program(void)
{
    return process.program;
}

const char *attn_cli_command(void)
{
    return process.command;
}

void attn_cli_quote(const char *text, char *to, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+./:=,%@";
    int bare = text[0] != '\0' && strspn(text, plain) == strlen(text);
    /* printf(1) writes the bytes that a terminal must not see, in octal. */
    attn_cleaned(text, to, size);
    int is_raw = strncmp(text, to, strlen(to)) != 0;
    const char *begin = bare     ? ""
                        : is_raw ? "\"$(printf '"
                                 : "'",
               *end = bare     ? ""
                      : is_raw ? "')\""
                               : "'";
    size_t n = (size_t)snprintf(to, size, "%s", begin);
    for (; *text != '\0' && n + 8 < size; text++)
        if (is_raw && !isalnum((unsigned char)*text) && *text != '/')
            n += (size_t)snprintf(to + n, size - n, "\\%03o", (unsigned char)*text);
        else if (*text == '\'')
            n += (size_t)snprintf(to + n, size - n, "'\\''");
        else
            to[n++] = *text;
    snprintf(to + n, size - n, "%s", end);
}

int attn_cli_fail(int status, const char *format, ...)
{
    char line[8192]; /* no memory is asked for: that there is none may be what is said */
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    attn_clean(line);
    fprintf(stderr, "attnlab%s%s: %s\n", process.command[0] != '\0' ? " " : "", process.command,
            line);
    return status;
}

int attn_cli_status(enum attn_status status)
{
    switch (status) {
    case ATTN_OK:
        return ATTN_EXIT_GOOD;
    case ATTN_EINVAL:
    case ATTN_ENOTSUP:
        return ATTN_EXIT_USAGE;
    case ATTN_ENOMEM:
        return ATTN_EXIT_LACKS;
    case ATTN_EPEER:
    case ATTN_EINTERNAL:
        break;
    }
    return ATTN_EXIT_INTERNAL;
}

int attn_cli_error(const struct attn_error *err)
{
    return attn_cli_fail(attn_cli_status(err->status), "%s", err->text);
}

void attn_cli_must(enum attn_status status, struct attn_error *err)
{
    if (status == ATTN_OK)
        return;
    err->status = status;
    exit(attn_cli_leave(attn_cli_error(err)));
}

void attn_cli_stop(enum attn_status status, const char *path, const char *format, ...)
{
    struct attn_error err = {.status = status};
    char what[sizeof err.text];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (path != NULL)
        attn_fault(&err, status, path, "%s", what);
    else
        attn_fail(&err, status, "%s", what);
    attn_cli_must(status, &err);
    abort();
}

/* ---- memory ---------------------------------------------------------------------------------- */

void attn_cli_lack(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("attnlab: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(ATTN_EXIT_LACKS);
}

void *attn_cli_need(void *data)
{
    if (data == NULL)
        attn_cli_lack("not enough memory");
    return data;
}

char *attn_cli_text(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return attn_cli_need(n >= 0 ? text : NULL);
}

struct memory {
    char *data, **text;
    size_t n, capacity, *size;
};

static ssize_t memory_write(void *cookie, const char *data, size_t n)
{
    struct memory *m = cookie;
    if (m->data != NULL && n >= m->capacity - m->n) {
        m->capacity = 2 * (m->capacity + n);
        char *more = realloc(m->data, m->capacity);
        if (more == NULL)
            free(m->data);
        m->data = more;
    }
    if (m->data == NULL)
        return 0;
    memcpy(m->data + m->n, data, n);
    m->n += n;
    return (ssize_t)n;
}

static int memory_close(void *cookie)
{
    struct memory *m = cookie;
    *m->text = m->data;
    *m->size = m->n;
    if (m->data != NULL)
        m->data[m->n] = '\0';
    free(m);
    return 0;
}

FILE *attn_cli_memory(char **text, size_t *size)
{
    enum { ROOM = 1 << 14 };
    struct memory *m = attn_cli_need(malloc(sizeof *m));
    *m = (struct memory){attn_cli_need(malloc(ROOM)), text, 0, ROOM, size};
    return attn_cli_need(
        fopencookie(m, "w", (cookie_io_functions_t){.write = memory_write, .close = memory_close}));
}

static void *json_memory(size_t size)
{
    return attn_cli_need(malloc(size > 0 ? size : 1));
}

static void on_leaving(int status, void *unused)
{
    (void)unused;
    if (!process.is_leaving && status == EXIT_FAILURE)
        _exit(ATTN_EXIT_LACKS);
}

void attn_cli_guard(void)
{
    json_set_alloc_funcs(json_memory, free);
    on_exit(on_leaving, NULL);
}

int attn_cli_leave(int status)
{
    process.is_leaving = 1;
    return status;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The reader of the pipe, such as `head -1`, has ended: a message would have no reader. */
static int reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

int attn_cli_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return ATTN_EXIT_GOOD;
    clearerr(stdout); /* it is said once */
    if (reader_left())
        return ATTN_EXIT_LACKS;
    return attn_cli_fail(ATTN_EXIT_LACKS, "cannot write the output: %s", strerror(errno));
}

int attn_cli_count(const char *text, int64_t least, int64_t most, int64_t *value)
{
    static const struct {
        const char *name;
        int64_t times;
    } unit[] = {{"", 1},         {"k", 1000},     {"M", 1000000}, {"G", 1000000000},
                {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}};
    char *end;
    errno = 0;
    long long x = strtoll(text, &end, 10);
    if (end == text || errno != 0)
        return 0;
    for (size_t u = 0; u < sizeof unit / sizeof *unit; u++)
        if (strcmp(end, unit[u].name) == 0) {
            int is_too_large = __builtin_mul_overflow(x, unit[u].times, value);
            return !is_too_large && *value >= least && (most == 0 || *value <= most);
        }
    return 0;
}

int attn_cli_int(const char *text, int64_t min, int64_t max, int64_t *value)
{
    return text[strspn(text, "+-0123456789")] == '\0' && attn_cli_count(text, min, max, value);
}

int attn_cli_double(const char *text, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && errno == 0;
}

int attn_cli_listed(const char *list, const char *between, const char *name)
{
    size_t length = strlen(name), n;
    for (const char *at = list; at != NULL && *(at += strspn(at, between)) != '\0'; at += n) {
        n = strcspn(at, between);
        if (n == length && memcmp(at, name, n) == 0)
            return 1;
    }
    return list == NULL;
}

int attn_cli_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

const char *attn_cli_grouped(int64_t n, char text[32])
{
    char digits[32];
    int size = snprintf(digits, sizeof digits, "%lld", (long long)n), to = 0;
    for (int c = 0; c < size; c++) {
        if (c > 0 && (size - c) % 3 == 0 && digits[c - 1] != '-')
            text[to++] = ',';
        text[to++] = digits[c];
    }
    text[to] = '\0';
    return text;
}

json_t *attn_cli_real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *attn_cli_words(const char *text)
{
    json_t *value = json_string(text);
    char *copy = value == NULL ? attn_cli_text("%s", text) : NULL;
    if (value == NULL)
        attn_clean(copy);
    value = value != NULL ? value : json_string(copy);
    free(copy);
    return value;
}

enum attn_status attn_cli_save(const char *path, const char *text, struct attn_error *err)
{
    struct attn_save save;
    if (attn_save_open(path, &save, err) != ATTN_OK)
        return ATTN_ENOMEM;
    fputs(text, save.stream);
    return attn_save_close(&save, ATTN_OK, err);
}

const char *attn_cli_bytes(int64_t bytes, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    int u = 0;
    for (; x >= 1024 && u < 6 && bytes >= 10 * 1024; u++)
        x /= 1024;
    if (bytes == INT64_MAX)
        snprintf(text, 32, "more than 8 EiB");
    else if (u == 0 && bytes >= 1000)
        snprintf(text, 32, "%lld,%03lld B", (long long)(bytes / 1000), (long long)(bytes % 1000));
    else
        snprintf(text, 32, "%.*f %s", u == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2, x, unit[u]);
    return text;
}

int attn_cli_kernel_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != ENOMEM))
        return fd;
    attn_cli_lack("%s cannot be read: %s", path, strerror(errno));
}

int attn_cli_kernel_text(const char *path, char *text, size_t size)
{
    size_t n = 0;
    ssize_t got;
    int fd = attn_cli_kernel_open(path, O_RDONLY);
    while (fd >= 0 && (got = read(fd, text + n, size - 1 - n)) > 0)
        n += (size_t)got;
    if (fd >= 0)
        close(fd);
    text[n] = '\0';
    return n > 0;
}

int64_t attn_cli_kernel_number(const char *path, const char *key)
{
    char text[8192], *end;
    const char *at = attn_cli_kernel_text(path, text, sizeof text) ? strstr(text, key) : NULL;
    if (at == NULL)
        return -1;
    at += strlen(key);
    int64_t value = strtoll(at, &end, 10);
    return end == at ? -1 : value;
}

/* Address space that this process may still map; INT64_MAX: no limit. */
static int64_t address_space_left(void)
{
    struct rlimit limit;
    int64_t mapped = attn_cli_kernel_number("/proc/self/status", "VmSize:");
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || mapped < 0)
        return INT64_MAX;
    return greater((int64_t)limit.rlim_cur - mapped * 1024, 0);
}

int64_t attn_cli_memory_available(void)
{
    int64_t available = attn_cli_kernel_number("/proc/meminfo", "MemAvailable:");
    available = available < 0 ? INT64_MAX : available * 1024;
    const char *const limit[] = {"/sys/fs/cgroup/memory.max",
                                 "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    const char *const used[] = {"/sys/fs/cgroup/memory.current",
                                "/sys/fs/cgroup/memory/memory.usage_in_bytes"};
    for (int v = 0; v < 2; v++) {
        int64_t max = attn_cli_kernel_number(limit[v], ""),
                now = attn_cli_kernel_number(used[v], "");
        if (max >= 0 && now >= 0 && max - now < available)
            available = max - now;
    }
    return less(available, address_space_left());
}
