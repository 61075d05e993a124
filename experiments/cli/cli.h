/* Functions that the commands of attnlab share.  Messages for people go to stderr as
 * "attnlab NAME: ...", results to stdout; cli/flags.h reads the command line. */
#ifndef EXPERIMENTS_CLI_CLI_H
#define EXPERIMENTS_CLI_CLI_H

#include <stdio.h>

#include "ref/attn.h"

struct attn_runner; /* optimized/parallel/rank_runner.h */

enum {
    ATTN_EXIT_GOOD = 0,
    ATTN_EXIT_DISAGREE = 1,
    ATTN_EXIT_USAGE = 2, /* wrong flag, bad file, refused request */
    ATTN_EXIT_LACKS = 3, /* the environment lacks something: memory, gnuplot, disk */
    ATTN_EXIT_INTERNAL = 4
};

/* main() says how this program was started, and which command it runs. */
void attn_cli_started(const char *argv0, const char *command);

/* The name of the program as a word of a shell, with which a line that repeats something begins;
 * "attnlab" before main(). */
const char *attn_cli_program(void);
const char *attn_cli_command(void); /* "check"; "" before main() */

/* attnlab-mpi says before its command which processes run ranks.  NULL: it is one process. */
void attn_cli_set_runner(const struct attn_runner *runner);
const struct attn_runner *attn_cli_runner(void);
int attn_cli_is_first(void); /* the process that writes */

/* Let them run a spec of this number of ranks.  ENOTSUP: there are too few processes. */
enum attn_status attn_cli_run_by(int ranks, struct attn_options *options, struct attn_error *err);

/* From now on no byte of a file, an argument or another program goes out raw (terminal.c). */
void attn_cli_print_clean(void);

/* Print "attnlab COMMAND: text", one harmless line, to stderr and return status. */
int attn_cli_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same of a library's error: returns the exit status that it deserves. */
int attn_cli_error(const struct attn_error *err);

/* For cmd_*.c, where a command can only end when something fails: print it and end the program with
 * the exit status that it deserves.  attn_cli_must returns when the status is ATTN_OK.  path: the
 * file that is at fault, which stands before the text, or NULL. */
void attn_cli_must(enum attn_status status, struct attn_error *err);
void attn_cli_stop(enum attn_status status, const char *path, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

/* Text as one word of a shell, in quotes where it needs them; cut off, but closed, where it is too
 * long for the room. */
void attn_cli_quote(const char *text, char *to, size_t size);

/* The exit status that a library status deserves. */
int attn_cli_status(enum attn_status status);

/* The machine refuses memory or files that the program itself needs, so that its output would not
 * be true: print one line on stderr and end the program with status 3. */
void attn_cli_lack(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Memory of the program's own: returns data, or attn_cli_lack when it is NULL.  Memory that grows
 * with a problem has a status instead. */
void *attn_cli_need(void *data) __attribute__((returns_nonnull));

/* The code of a colour, to be written in front of a text: bad (0), good (1), or back to normal
 * (-1); "" where `out` is no terminal or NO_COLOR is set. */
const char *attn_cli_paint(FILE *out, int is_good);

/* A file of the kernel, below /proc or /sys.  Opened as it is: only the kernel makes names there,
 * so that no FIFO waits and no link leads elsewhere.  -1, or no text, where this machine does not
 * have it; where it refuses files or memory, attn_cli_lack ends the program, because a fact that
 * exists must not be reported as missing. */
int attn_cli_kernel_open(const char *path, int flags);

/* As much of it as there is room for, as a string; takes no memory.  0 when there is none. */
int attn_cli_kernel_text(const char *path, char *text, size_t size);

/* The number after `key` in a file of "key number" lines, or its only number where key is ""; -1
 * when there is none. */
int64_t attn_cli_kernel_number(const char *path, const char *key);

/* printf into memory of the program's own; to be freed. */
char *attn_cli_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A stream into memory: at fclose *text holds what was written, as a string to be freed, and *size
 * its bytes.  A failed allocation leaves the mark of an error on it and *text NULL; open_memstream
 * alone would cut the text off and report nothing. */
FILE *attn_cli_memory(char **text, size_t *size) __attribute__((returns_nonnull));

/* From here on the same holds for jansson's memory, and code that calls exit(1) without
 * attn_cli_leave() ends the program with status 3: libgomp does so where it can start no thread or
 * has no memory. */
void attn_cli_guard(void);
int attn_cli_leave(int status); /* returns status */

/* A whole number with its unit, "200k", "64Ki"; 0 when it is none, is below `least`, or is above
 * `most` (0: no limit). */
int attn_cli_count(const char *text, int64_t least, int64_t most, int64_t *value);

/* Whole text to a number; 0 when it is not one, or is outside [min, max]. */
int attn_cli_int(const char *text, int64_t min, int64_t max, int64_t *value);
int attn_cli_double(const char *text, double *value);

/* Bytes of a sum or mean; what exceeds 64 bits is far above any memory. */
static inline int64_t attn_cli_to_bytes(double x)
{
    return x < 9.0e18 ? (int64_t)x : INT64_MAX;
}

/* Does a text end with this, and have something before it? */
int attn_cli_ends_with(const char *text, const char *end);

/* "16,384".  Returns text. */
const char *attn_cli_grouped(int64_t n, char text[32]);

/* JSON has no infinity and no NaN: null stands for them. */
struct json_t *attn_cli_real(double x);

/* Words from elsewhere as a string of JSON.  Where they are not UTF-8, attn_clean mends them. */
struct json_t *attn_cli_words(const char *text);

/* Write a file with this text, whole or not at all.  ENOMEM. */
enum attn_status attn_cli_save(const char *path, const char *text, struct attn_error *err);

/* 1: a name is in a list such as "o,lse", with any of these characters between names; 0: it is
 * not.  A list of NULL has every name. */
int attn_cli_listed(const char *list, const char *between, const char *name);

/* "1,024 B", "3.2 MiB", "1.16 TiB": exact below 10 KiB, three figures above.  Returns text. */
const char *attn_cli_bytes(int64_t bytes, char text[32]);

/* Memory this process can still get: MemAvailable of the machine, lowered by a cgroup's limit and
 * by its own limit of address space (ulimit -v) if there is one; INT64_MAX when nothing says. */
int64_t attn_cli_memory_available(void);

/* Flush stdout and say whether everything got there. */
int attn_cli_flush(void);

#endif
