/* Every call that a command of attnlab makes to take memory, to write, or to start a process or
 * thread is refused once, each by its stack, and what becomes of the command is judged.
 *
 *     attnlab-faults                   all commands of commands.def
 *     attnlab-faults NAME ...          these
 *     attnlab-faults -v NAME ...       and say what happens at each site
 *
 * The program is attnlab itself: main() is entered in a child of this process, in an empty folder,
 * once to see its sites, and then once for each of them.  Good is: status 3 with one line that says
 * why; or the status, the output and the files of the run that nothing disturbed.  Never good: a
 * signal, no end, another status, another output with the status of success, a block that stays
 * taken, a file that is lost, half written or left over.
 *
 * A call is refused the first time that it is made.  Commands that measure make the same calls in
 * calibration first and for the points later: there it is the last time, and a site that an earlier
 * one of these commands had, which is the same stack, is not refused again.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ref/clock.h"
#include "tests/faults/sites.h"
#include "tests/harness/base/folder.h"

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

enum { WORDS = 40, FILES = 512, TIMEOUT = 30, LACKS = 3, SHOWN = 12, WORKERS = 2 /* at once */ };

static const struct command {
    const char *name;
    int measured;              /* numbers are measurements: they differ from run to run */
    const char *before, *args; /* lines of attnlab; `before` may be several lines */
} commands[] = {
#define FAULT_COMMAND(name, measured, before, args) {#name, measured, before, args},
#include "tests/faults/commands.def"
#undef FAULT_COMMAND
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static char root[] = "/tmp/attn-faults-XXXXXX";
static char folder[64], work[128], build[512], program[600]; /* folder: of this worker */
static struct fault_table *table;
static int verbose;

static void stop(const char *what)
{
    fprintf(stderr, "faults: %s: %s\n", what, strerror(errno));
    exit(4);
}

/* ---- folders --------------------------------------------------------------------------------- */

struct file {
    char *path; /* below the folder */
    char *data;
    size_t size;
};

struct tree {
    int n;
    struct file file[FILES];
};

static struct tree *filling;
static size_t root_size;

static int see_file(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)at;
    if (type == FTW_D && strlen(path) <= root_size)
        return 0;
    if (filling->n == FILES) {
        errno = EMFILE;
        stop("too many files");
    }
    struct file *f = &filling->file[filling->n++];
    *f = (struct file){strdup(path + root_size + 1), NULL, 0};
    if (type != FTW_F)
        return 0;
    f->data = calloc(1, (size_t)info->st_size + 1);
    FILE *from = fopen(path, "rb");
    if (from == NULL || f->data == NULL)
        stop(path);
    f->size = fread(f->data, 1, (size_t)info->st_size, from);
    fclose(from);
    return 0;
}

static void tree_read(struct tree *tree)
{
    filling = tree;
    tree->n = 0;
    root_size = strlen(work);
    if (nftw(work, see_file, 16, FTW_PHYS) != 0)
        stop(work);
}

static void tree_free(struct tree *tree)
{
    for (int i = 0; i < tree->n; i++) {
        free(tree->file[i].path);
        free(tree->file[i].data);
    }
    tree->n = 0;
}

static const struct file *tree_find(const struct tree *tree, const char *path)
{
    for (int i = 0; i < tree->n; i++)
        if (strcmp(tree->file[i].path, path) == 0)
            return &tree->file[i];
    return NULL;
}

/* The folder of work with these files in it and nothing else. */
static void tree_write(const struct tree *tree)
{
    char path[4096];
    attn_folder_remove(work);
    if (mkdir(work, 0700) != 0)
        stop(work);
    for (int i = 0; i < tree->n; i++) {
        const struct file *f = &tree->file[i];
        snprintf(path, sizeof path, "%s/%s", work, f->path);
        if (f->data == NULL) {
            if (mkdir(path, 0700) != 0)
                stop(path);
            continue;
        }
        FILE *to = fopen(path, "wb");
        if (to == NULL || fwrite(f->data, 1, f->size, to) != f->size || fclose(to) != 0)
            stop(path);
    }
}

/* ---- one run --------------------------------------------------------------------------------- */

struct outcome {
    int status; /* of waitpid */
    int timed_out;
    char out[1 << 16], err[1 << 14];
    struct tree tree;
};

/* Words of a line, which is changed. */
static int split(char *line, char **argv, int n)
{
    for (char *word = strtok(line, " "); word != NULL && n < WORDS; word = strtok(NULL, " "))
        argv[n++] = word;
    argv[n] = NULL;
    return n;
}

static void redirect(const char *name, int to)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, to) != to)
        _exit(99);
    close(fd);
}

/* A line of commands.def, with BUILD in it. */
static void expand(const char *args, char line[4096])
{
    int n = 0;
    for (const char *at; (at = strstr(args, "BUILD")) != NULL; args = at + strlen("BUILD"))
        n += snprintf(line + n, 4096 - (size_t)n, "%.*s%s", (int)(at - args), args, build);
    snprintf(line + n, 4096 - (size_t)n, "%s", args);
}

static void enter(const char *args, int watched)
{
    char line[4096], path[4096], *argv[WORDS + 1] = {program};
    expand(args, line);
    snprintf(path, sizeof path, "%s/faults:%s", build, getenv("PATH"));
    int argc = split(line, argv, 1);
    setpgid(0, 0);
    if (chdir(work) != 0)
        _exit(99);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    close(null);
    redirect("stdout", STDOUT_FILENO);
    redirect("stderr", STDERR_FILENO);
    setenv("TMPDIR", ".", 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    setenv("PATH", path, 1);
    snprintf(path, sizeof path, "%s/table", folder);
    setenv(FAULT_TABLE, watched ? path : "", 1);
    setenv("TZ", "UTC0", 1);
    tzset(); /* what the C library keeps for it is not ours */
    if (watched)
        fault_start(table, 1);
    int status = __real_main(argc, argv);
    fault_stop();
    table->ended = 1;
    exit(status);
}

static void read_text(const char *name, char *to, size_t size)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    size_t n = file != NULL ? fread(to, 1, size - 1, file) : 0;
    to[n] = '\0';
    if (file != NULL)
        fclose(file);
}

/* Run a line in `work`, for so long at most. */
static void run(const char *args, int watched, struct outcome *x)
{
    fflush(NULL);
    double end = attn_seconds(CLOCK_MONOTONIC) + TIMEOUT;
    pid_t child = fork();
    if (child < 0)
        stop("fork");
    if (child == 0)
        enter(args, watched);
    setpgid(child, child);
    x->timed_out = 0;
    for (int ms = 0; waitpid(child, &x->status, WNOHANG) == 0; ms++) {
        const struct timespec pause = {0, ms < 20 ? 1000000 : 5000000};
        nanosleep(&pause, NULL);
        if (attn_seconds(CLOCK_MONOTONIC) > end) {
            x->timed_out = 1;
            break;
        }
    }
    kill(-child, SIGKILL);
    if (x->timed_out)
        waitpid(child, &x->status, 0);
    read_text("stdout", x->out, sizeof x->out);
    read_text("stderr", x->err, sizeof x->err);
    tree_read(&x->tree);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static int is_number(char c)
{
    return (c >= '0' && c <= '9') || c == '.';
}

/* How long the number is that begins here, or the digest of measurements; 0: none. */
static size_t number_size(const char *at)
{
    size_t n = strspn(at, "0123456789abcdef");
    if (n == 16)
        return n;
    n = 0;
    while (is_number(at[n]) ||
           (n > 0 && (at[n] == 'e' || ((at[n] == '-' || at[n] == '+') && at[n - 1] == 'e'))))
        n++;
    return n;
}

/* A copy without numbers: all of them, or those that are times ("0.12 s", time="0.12",
 * "seconds": 0.12). */
static char *without_times(const char *text, int all)
{
    char *copy = calloc(1, strlen(text) + 1), *to = copy;
    for (const char *at = text; copy != NULL && *at != '\0';) {
        size_t n = number_size(at);
        int time = n > 0 && ((strncmp(at + n, " s", 2) == 0 && !(at[n + 2] >= 'a')) ||
                             (at - text >= 6 && memcmp(at - 6, "time=\"", 6) == 0) ||
                             (at - text >= 11 && memcmp(at - 11, "\"seconds\": ", 11) == 0));
        if (all > 1 && strncmp(at, "null", 4) == 0)
            n = 4;
        if (n > 0 && (time || all))
            *to++ = '#';
        else if (n > 0) {
            memcpy(to, at, n);
            to += n;
        } else
            *to++ = *at;
        at += n > 0 ? n : 1;
    }
    return copy;
}

/* Where two texts part, in the last comparison of two that were not the same. */
static char difference[300];

static int same_text(const char *a, const char *b, int measured)
{
    char *x = without_times(a, measured), *y = without_times(b, measured);
    if (x == NULL || y == NULL)
        stop("comparison");
    int same = strcmp(x, y) == 0;
    size_t at = 0;
    while (x[at] != '\0' && x[at] == y[at])
        at++;
    size_t from = at > 60 ? at - 60 : 0;
    if (!same)
        snprintf(difference, sizeof difference, "\n      was ...%.100s\n      is  ...%.100s",
                 x + from, y + from);
    free(x);
    free(y);
    return same;
}

static int is_text(const struct file *f)
{
    return strlen(f->data) == f->size;
}

static const char *last_line(const char *text)
{
    const char *at = text + strlen(text);
    while (at > text && (at[0] == '\0' || at[-1] != '\n'))
        at--;
    return at;
}

static int same_file(const struct file *a, const struct file *b, int measured)
{
    if (a == NULL || b == NULL || (a->data == NULL) != (b->data == NULL))
        return 0;
    if (a->data == NULL)
        return 1;
    if (measured && strstr(a->path, "out/") != NULL) /* ticks, samples: as many as it took */
        return a->size > 0 && same_text(last_line(a->data), last_line(b->data), 1);
    if (is_text(a) && is_text(b))
        return same_text(a->data, b->data, measured);
    return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

/* Whether a file is still there: as it was, or with more records. */
static int is_kept(const struct file *was, const struct file *is)
{
    if (is == NULL || (is->data == NULL) != (was->data == NULL))
        return 0;
    int grows = strstr(was->path, ".jsonl") != NULL && is->size >= was->size;
    return was->data == NULL ||
           ((grows || is->size == was->size) && memcmp(is->data, was->data, was->size) == 0);
}

/* A file that tells of the failure, whole: the page of check, which must not say that all is well;
 * the table of records, of which some are errors. */
static int tells(const struct file *f, const struct file *good)
{
    size_t head = strcspn(good->data, "\n");
    if (strcmp(f->path, "page.md") == 0)
        return strstr(f->data, "PASS") == NULL;
    return strcmp(f->path, "r.csv") == 0 && f->size > head && f->data[f->size - 1] == '\n' &&
           memcmp(f->data, good->data, head) == 0;
}

/* A file that is lost, half written or left over; NULL: none.  Each is as it was before or as the
 * undisturbed run leaves it; after success it is the latter. */
static const char *tree_wrong(const struct tree *before, const struct tree *good,
                              const struct tree *after, int success, int measured)
{
    for (int i = 0; success && i < good->n; i++)
        if (!same_file(&good->file[i], tree_find(after, good->file[i].path), measured))
            return good->file[i].path;
    for (int i = 0; i < before->n; i++) {
        const struct file *was = &before->file[i], *is = tree_find(after, was->path);
        if (!is_kept(was, is) && !same_file(is, tree_find(good, was->path), measured))
            return was->path;
    }
    for (int i = 0; i < after->n; i++) {
        const struct file *f = &after->file[i], *as = tree_find(good, f->path);
        int records = as != NULL && strstr(f->path, ".jsonl") != NULL;
        if (tree_find(before, f->path) == NULL && !same_file(f, as, measured) && !records &&
            !(as != NULL && !success && tells(f, as)))
            return f->path;
    }
    return NULL;
}

/* Whether a line stands in a text, whatever its numbers are. */
static int is_known(const char *line, const char *text)
{
    char *x = without_times(line, 1), *y = without_times(text, 1);
    if (x == NULL || y == NULL)
        stop("comparison");
    int known = strstr(y, x) != NULL;
    free(x);
    free(y);
    return known;
}

/* How many lines of a text are not in another one; the first of them. */
static int count_lines(const char *text, const char *known, char *first, size_t size)
{
    int n = 0;
    first[0] = '\0';
    for (size_t length; *text != '\0'; text += length + (text[length] == '\n')) {
        char line[1024];
        length = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        if (length > 0 && !is_known(line, known) && n++ == 0)
            snprintf(first, size, "%.*s", (int)size - 1, line);
    }
    return n;
}

/* ---- judging --------------------------------------------------------------------------------- */

enum verdict { SAID, HARMLESS, NOT_REACHED, BAD, VERDICTS };

struct usual {
    struct tree before; /* the command begins with these files */
    struct outcome good;
    int live[FAULT_SITES], calls[FAULT_SITES];
};

/* The innermost address of a stack that is the program's own. */
static uintptr_t own_frame(const struct fault_site *x)
{
    for (int i = 0; i < x->depth; i++)
        if (x->frame[i] - table->base < 1U << 26)
            return x->frame[i];
    return 0;
}

/* Whether a library took a block and was refused another within one call of it: what it loses then
 * is not ours to give back. */
static int is_inside(int taken, int refused)
{
    const struct fault_site *x = &table->site[taken], *y = &table->site[refused];
    return x->frame[0] != own_frame(x) && y->frame[0] != own_frame(y) &&
           own_frame(x) == own_frame(y);
}

/* What is wrong with how it ended; "" when nothing is. */
static void find_wrong(const struct command *c, const struct usual *usual, const struct outcome *x,
                       int slot, char *why, size_t size)
{
    const char *path;
    char line[300];
    int lines = count_lines(x->err, usual->good.err, line, sizeof line);
    int status = WIFEXITED(x->status) ? WEXITSTATUS(x->status) : -1;
    int good = WEXITSTATUS(usual->good.status);
    why[0] = difference[0] = '\0';
    if (x->timed_out)
        snprintf(why, size, "did not end");
    else if (status < 0)
        snprintf(why, size, "ended by signal %d", WTERMSIG(x->status));
    else if (status != LACKS && status != good)
        snprintf(why, size, "status %d: %s", status, line);
    else if (status == LACKS && lines > 1)
        snprintf(why, size, "%d lines on stderr: %s", lines, line);
    else if (status == LACKS && lines == 0 && same_text(x->out, usual->good.out, c->measured))
        snprintf(why, size, "status 3 and not a word");
    else if (status == good && !same_text(x->out, usual->good.out, c->measured))
        snprintf(why, size, "status %d with another output", status);
    else if ((path = tree_wrong(&usual->before, &usual->good.tree, &x->tree, status == good,
                                c->measured)) != NULL)
        snprintf(why, size, "%s is lost, left over or another (status %d)%s", path, status,
                 difference);
    if (why[0] != '\0' || !table->ended)
        return;
    for (int s = 0; s < FAULT_SITES; s++)
        if (table->site[s].live > usual->live[s] && !(slot >= 0 && is_inside(s, slot))) {
            int n = snprintf(why, size, "a block stays taken (status %d), from", status);
            for (int i = 0; i < 8 && i < table->site[s].depth; i++)
                n += snprintf(why + n, size - (size_t)n, " %llx",
                              (unsigned long long)(table->site[s].frame[i] - table->base));
            return;
        }
}

/* The functions of a stack, the innermost first, as far as they are the program's own. */
static void print_stack(const uintptr_t *frame, int depth)
{
    char command[2048], line[512];
    int n = snprintf(command, sizeof command, "addr2line -s -f -p -e '%s'", program);
    for (int i = 0; i < depth && n < (int)sizeof command - 32; i++)
        if (frame[i] > table->base && frame[i] - table->base < 1U << 26)
            n += snprintf(command + n, sizeof command - (size_t)n, " %llx",
                          (unsigned long long)(frame[i] - table->base - 1));
    FILE *pipe = popen(command, "r");
    for (int i = 0; pipe != NULL && i < SHOWN && fgets(line, sizeof line, pipe) != NULL; i++)
        printf("        %s", line);
    if (pipe != NULL)
        pclose(pipe);
}

/* Forget what a run has counted, not what sites there are. */
static void clear_counts(void)
{
    table->fired = table->ended = 0;
    for (int s = 0; s < FAULT_SITES; s++)
        table->site[s].calls = table->site[s].live = 0;
}

static enum verdict refuse(const struct command *c, const struct usual *usual, int slot, char *why,
                           size_t size)
{
    static struct outcome x;
    clear_counts();
    table->fail_key = table->site[slot].key;
    table->fail_call = c->measured ? usual->calls[slot] : 1;
    tree_write(&usual->before);
    run(c->args, 1, &x);
    table->fail_key = 0;
    find_wrong(c, usual, &x, slot, why, size);
    int said = WIFEXITED(x.status) && WEXITSTATUS(x.status) == LACKS;
    if (verbose || why[0] != '\0') {
        char line[300];
        count_lines(x.err, usual->good.err, line, sizeof line);
        printf("  %s %-14s %s\n",
               why[0] != '\0' ? "BAD "
               : said         ? "said"
                              : "    ",
               table->site[slot].name, why[0] != '\0' ? why : line);
        print_stack(table->site[slot].frame, table->site[slot].depth);
    }
    tree_free(&x.tree);
    if (table->fired == 0)
        return NOT_REACHED;
    return why[0] != '\0' ? BAD : said ? SAID : HARMLESS;
}

/* ---- one command ----------------------------------------------------------------------------- */

/* Files that a command finds, made by the command lines `before`. */
static void prepare(const struct command *c, struct usual *usual)
{
    static struct outcome x;
    char lines[4096], *rest = lines;
    static const struct tree nothing;
    tree_write(&nothing);
    snprintf(lines, sizeof lines, "%s", c->before);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (line[strspn(line, " ")] == '\0')
            continue;
        run(line, 0, &x);
        tree_free(&x.tree);
        if (WIFEXITED(x.status) && WEXITSTATUS(x.status) == 0)
            continue;
        fprintf(stderr, "faults: %s: attnlab %s: %s\n", c->name, line, x.err);
        exit(4);
    }
    tree_read(&usual->before);
}

/* A worker has a folder and a table of its own. */
static void become(int worker)
{
    char path[128];
    struct fault_table *old = table;
    snprintf(folder, sizeof folder, "%s/%d", root, worker);
    snprintf(work, sizeof work, "%s/work", folder);
    snprintf(path, sizeof path, "%s/table", folder);
    if (mkdir(folder, 0700) != 0 || (table = fault_map(path)) == NULL)
        stop(folder);
    if (old != NULL)
        memcpy(table, old, sizeof *old);
}

/* What the workers share. */
struct tally {
    atomic_int next, count[VERDICTS];
};

static void refuse_all(const struct command *c, const struct usual *usual, const int *listed, int n,
                       struct tally *tally)
{
    char why[2048];
    fflush(stdout);
    for (int w = 1; w <= WORKERS; w++) {
        pid_t worker = fork();
        if (worker < 0)
            stop("fork");
        if (worker > 0)
            continue;
        become(w);
        for (int i; (i = tally->next++) < n; fflush(stdout))
            tally->count[refuse(c, usual, listed[i], why, sizeof why)]++;
        attn_folder_remove(folder);
        _exit(0);
    }
    for (int status; wait(&status) > 0;)
        if (status != 0)
            stop("a worker did not end well");
}

/* The sites to be refused, into listed[]. */
static int list_sites(const struct command *c, struct usual *usual, int *listed)
{
    static uint64_t seen[FAULT_SITES]; /* by commands that measure */
    static int n_seen;
    int n = 0, known = n_seen;
    for (int s = 0; s < FAULT_SITES; s++) {
        uint64_t key = table->site[s].key;
        int again = 0;
        usual->live[s] = table->site[s].live;
        usual->calls[s] = table->site[s].calls;
        for (int k = 0; k < known && key != 0 && c->measured; k++)
            again |= seen[k] == key;
        if (key == 0 || again)
            continue;
        if (c->measured && n_seen < FAULT_SITES)
            seen[n_seen++] = key;
        listed[n++] = s;
    }
    return n;
}

static int run_command(const struct command *c, struct tally *tally)
{
    static struct usual usual;
    static struct outcome again;
    static int listed[FAULT_SITES];
    char why[2048];
    double start = attn_seconds(CLOCK_MONOTONIC);
    memset(tally, 0, sizeof *tally);
    prepare(c, &usual);
    for (int s = 0; s < FAULT_SITES; s++)
        table->site[s].key = 0;
    clear_counts();
    table->haste = c->measured ? 16 : 1;
    tree_write(&usual.before);
    run(c->args, 1, &usual.good);
    int n = list_sites(c, &usual, listed);
    clear_counts();
    tree_write(&usual.before);
    run(c->args, 1, &again);
    find_wrong(c, &usual, &again, -1, why, sizeof why);
    if (!WIFEXITED(usual.good.status) || WEXITSTATUS(usual.good.status) >= 2 || why[0] != '\0') {
        printf("%-18s is refused, or not the same twice: %s\n%s%s%s", c->name, why, usual.good.err,
               usual.good.out, again.out);
        tally->count[BAD]++;
        n = 0;
    }
    tree_free(&again.tree);
    refuse_all(c, &usual, listed, n, tally);
    const atomic_int *count = tally->count;
    printf("%-18s %6d %6d %9d %12d %5d %8.1f\n", c->name, n, count[SAID], count[HARMLESS],
           count[NOT_REACHED], count[BAD], attn_seconds(CLOCK_MONOTONIC) - start);
    tree_free(&usual.before);
    tree_free(&usual.good.tree);
    return count[BAD];
}

static int is_asked(const char *name, int argc, char **argv)
{
    int named = 0;
    for (int a = 1; a < argc; a++)
        if (strcmp(argv[a], "-v") != 0) {
            named = 1;
            if (strcmp(argv[a], name) == 0)
                return 1;
        }
    return !named;
}

static const char small_machine[] = "MemTotal: 65536 kB\nMemAvailable: 65536 kB\nSwapTotal: 0 kB\n";

/* Where things are, and the table.  An address is the same in every process from here on. */
static void set_up(char **argv)
{
    int now_is = personality(0xffffffff);
    if (!(now_is & ADDR_NO_RANDOMIZE)) {
        personality((unsigned long)now_is | ADDR_NO_RANDOMIZE);
        execv("/proc/self/exe", argv);
        stop("/proc/self/exe");
    }
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0 || mkdtemp(root) == NULL)
        stop(root);
    program[n] = '\0';
    snprintf(build, sizeof build, "%.*s", (int)(strrchr(program, '/') - program), program);
    become(0);
    extern const char __executable_start;
    table->base = (uintptr_t)&__executable_start;
    snprintf(table->meminfo, sizeof table->meminfo, "%s/meminfo", root);
    FILE *file = fopen(table->meminfo, "w");
    if (file == NULL || fputs(small_machine, file) == EOF || fclose(file) != 0)
        stop(table->meminfo);
}

int __wrap_main(int argc, char **argv)
{
    const char *path = getenv(FAULT_TABLE);
    int bad = 0, sites = 0;
    if (path != NULL) { /* one of our own children has executed the program anew */
        struct fault_table *use = path[0] != '\0' ? fault_map(path) : NULL;
        if (use != NULL)
            fault_start(use, 0);
        return __real_main(argc, argv);
    }
    set_up(argv);
    for (int a = 1; a < argc; a++)
        verbose |= strcmp(argv[a], "-v") == 0;
    struct tally *tally =
        mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED)
        stop("mmap");
    printf("%-18s %6s %6s %9s %12s %5s %8s\n", "command", "sites", "said", "harmless",
           "not reached", "bad", "seconds");
    double start = attn_seconds(CLOCK_MONOTONIC);
    for (int c = 0; c < COMMANDS; c++)
        if (is_asked(commands[c].name, argc, argv)) {
            int n = run_command(&commands[c], tally);
            sites += tally->next > WORKERS ? tally->next - WORKERS : 0;
            bad += n;
        }
    attn_folder_remove(root);
    printf("%s: %d sites, %d bad, %.0f s\n", bad > 0 ? "FAIL" : "PASS", sites, bad,
           attn_seconds(CLOCK_MONOTONIC) - start);
    return bad > 0;
}
