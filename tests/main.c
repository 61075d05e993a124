/* The test program: every suite of suites.def, as many at a time as there are processors, those
 * that take longest first: else a long one that begins last has the machine to itself.
 *
 * A suite is a process of its own, whose output is shown when it ends.  ATTN_JOBS=1 runs one after
 * the other; CK_RUN_SUITE=mask runs one suite, CK_VERBOSITY=verbose names each test, CK_FORK=no
 * keeps it in one process for a debugger.  Nothing here may start an OpenMP region: Check forks
 * each test, and libgomp does not survive a fork (its threads stay behind). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ref/clock.h"
#include "tests/suites.h"

static const struct {
    const char *name;
    Suite *(*make)(void);
} suites[] = {
#define TEST_SUITE(name) {#name, suite_##name},
#include "tests/suites.def"
#undef TEST_SUITE
};
enum { SUITES = sizeof suites / sizeof *suites };

/* Begin in this order; the others follow in that of suites.def. */
static const char *const longest[] = {"battery",  "external",      "vectors",       "vector_files",
                                      "resident", "mutants",       "program",       "packed",
                                      "run",      "plugin_curves", "command_curves"};
enum { LONGEST = sizeof longest / sizeof *longest };

/* Of one suite; in memory that its process shares with this one. */
struct outcome {
    int run, failed, ended;
};

struct job {
    pid_t process;
    int suite;
    FILE *said;
    double start;
};

const char *test_build(void)
{
    const char *build = getenv("ATTN_BUILD");
    return build != NULL ? build : "build/release";
}

static void run_suite(int n, struct outcome *outcome)
{
    SRunner *runner = srunner_create(suites[n].make());
    srunner_run_all(runner, CK_ENV);
    outcome->run = srunner_ntests_run(runner);
    outcome->failed = srunner_ntests_failed(runner);
    outcome->ended = 1;
    srunner_free(runner);
}

static int start(struct job *job, int suite, struct outcome *outcome)
{
    fflush(NULL);
    *job = (struct job){-1, suite, tmpfile(), attn_seconds(CLOCK_MONOTONIC)};
    if (job->said == NULL || fcntl(fileno(job->said), F_SETFD, FD_CLOEXEC) != 0)
        return 0;
    job->process = fork();
    if (job->process == 0) {
        dup2(fileno(job->said), STDOUT_FILENO);
        dup2(fileno(job->said), STDERR_FILENO);
        run_suite(suite, outcome);
        fflush(NULL);
        _exit(0);
    }
    return job->process > 0;
}

static void show(struct job *job, const struct outcome *outcome)
{
    char text[4096];
    size_t n;
    rewind(job->said);
    while ((n = fread(text, 1, sizeof text, job->said)) > 0)
        fwrite(text, 1, n, stdout);
    fclose(job->said);
    printf("%-15s %4d checks, %d failures, %.1f s%s\n", suites[job->suite].name, outcome->run,
           outcome->failed, attn_seconds(CLOCK_MONOTONIC) - job->start,
           outcome->ended ? "" : ": ended before its end");
    fflush(stdout);
}

static long jobs_at_once(void)
{
    const char *given = getenv("ATTN_JOBS");
    long n = given != NULL ? strtol(given, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > SUITES ? SUITES : n;
}

static int is_long(const char *name)
{
    for (int n = 0; n < LONGEST; n++)
        if (strcmp(longest[n], name) == 0)
            return 1;
    return 0;
}

static void put_in_order(int order[SUITES])
{
    int at = 0;
    for (int n = 0; n < LONGEST; n++)
        for (int suite = 0; suite < SUITES; suite++)
            if (strcmp(longest[n], suites[suite].name) == 0)
                order[at++] = suite;
    for (int suite = 0; suite < SUITES; suite++)
        if (!is_long(suites[suite].name))
            order[at++] = suite;
}

/* Returns how many suites could not be started. */
static int run_all(struct outcome *outcome)
{
    int order[SUITES];
    static struct job job[SUITES];
    long most = jobs_at_once(), running = 0;
    int next = 0, lost = 0;
    put_in_order(order);
    while (next < SUITES || running > 0) {
        int status;
        if (next < SUITES && running < most) {
            if (start(&job[running], order[next], &outcome[order[next]]))
                running++;
            else
                lost++, printf("%s: cannot be started\n", suites[order[next]].name);
            next++;
            continue;
        }
        pid_t ended = waitpid(-1, &status, 0);
        for (long n = 0; n < running; n++)
            if (job[n].process == ended) {
                show(&job[n], &outcome[job[n].suite]);
                job[n] = job[--running];
                break;
            }
        if (ended < 0)
            return lost + (int)running;
    }
    return lost;
}

/* Tests make and remove 50,000 small files: in memory, where there is room and programs run. */
static void use_memory_for_files(void)
{
    static const char *const memory = "/dev/shm";
    struct statvfs about;
    if (statvfs(memory, &about) == 0 && access(memory, W_OK) == 0 &&
        (double)about.f_bavail * (double)about.f_frsize > 0x1p30 && !(about.f_flag & ST_NOEXEC))
        setenv("TMPDIR", memory, 0);
}

int main(void)
{
    const char *only = getenv("CK_RUN_SUITE"), *fork_mode = getenv("CK_FORK");
    struct outcome total = {0, 0, 1};
    struct outcome *outcome = mmap(NULL, SUITES * sizeof *outcome, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcome == MAP_FAILED)
        return EXIT_FAILURE;
    use_memory_for_files();
    int lost = 0, one_process = only != NULL || (fork_mode != NULL && strcmp(fork_mode, "no") == 0);
    for (int n = 0; n < SUITES && one_process; n++)
        if (only == NULL || strcmp(only, suites[n].name) == 0)
            run_suite(n, &outcome[n]);
        else
            outcome[n].ended = 1;
    if (!one_process)
        lost = run_all(outcome);
    for (int n = 0; n < SUITES; n++) {
        total.run += outcome[n].run;
        total.failed += outcome[n].failed;
        total.ended &= outcome[n].ended;
    }
    printf("all: %d checks, %d failures\n", total.run, total.failed);
    return total.failed == 0 && total.run > 0 && total.ended && lost == 0 ? EXIT_SUCCESS
                                                                          : EXIT_FAILURE;
}
