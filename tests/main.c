/* The test program: every suite (suites.h), as many at a time as there are processors, those
 * that take longest first: else a long one that begins last has the machine to itself.
 *
 * A suite is a process of its own, whose output is shown when it ends, or last of all when it
 * failed.  ATTN_JOBS=1 runs one after the other; CK_RUN_SUITE=mask runs one suite,
 * CK_VERBOSITY=verbose names each test, CK_FORK=no keeps it in one process for a debugger.  Nothing
 * here may start an OpenMP region: Check forks each test, and libgomp does not survive a fork (its
 * threads stay behind). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ref/clock.h"
#include "tests/suites.h"

/* By name, in the order of their first tests; every group of tests belongs to one. */
enum { MOST = 128 };
static const char *suites[MOST];
static int n_suites;
static struct test_group *first_group, **last_group = &first_group;

void test_add(struct test_group *group, struct test *test)
{
    int known = 0;
    if (group->first != NULL) {
        group->last = group->last->next = test;
        return;
    }
    group->first = group->last = test;
    *last_group = group;
    last_group = &group->next;
    for (int n = 0; n < n_suites; n++)
        known |= strcmp(suites[n], group->suite) == 0;
    if (!known && n_suites == MOST)
        abort();
    if (!known)
        suites[n_suites++] = group->suite;
}

/* Begin in this order: the curves and isolated wait for what hangs, which costs no processor. */
static const char *const longest[] = {
    "external",       "manual",    "battery", "factors",       "labs",    "vector_files",
    "command_curves", "mutants",   "program", "plugin_curves", "tiers",   "vectors",
    "isolated",       "studies",   "python",  "resident",      "packed",  "endings",
    "subsets",        "relations", "run",     "memory",        "measure", "half"};
enum { LONGEST = sizeof longest / sizeof *longest };

/* Only a test that hangs takes so long: no timing decides a test. */
enum { HANGS_S = 3600 };

/* Of one suite; in memory that its process shares with this one. */
struct outcome {
    int run, failed, ended;
    FILE *said; /* of one that is not well: shown at the end, where all of a log is cut last */
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

void *test_shared(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED)
        return at;
    perror("memory that tests share");
    exit(EXIT_FAILURE);
}

static Suite *make_suite(const char *name)
{
    Suite *suite = suite_create(name);
    for (struct test_group *group = first_group; group != NULL; group = group->next) {
        if (strcmp(group->suite, name) != 0)
            continue;
        TCase *cases = tcase_create(name);
        if (group->prepare != NULL)
            tcase_add_unchecked_fixture(cases, group->prepare, NULL);
        tcase_set_timeout(cases, HANGS_S);
        if (group->open != NULL)
            tcase_add_checked_fixture(cases, group->open, group->close);
        for (struct test *test = group->first; test != NULL; test = test->next)
            tcase_add_loop_test(cases, &test->check, 0, test->count());
        suite_add_tcase(suite, cases);
    }
    return suite;
}

static void run_suite(int n, struct outcome *outcome)
{
    SRunner *runner = srunner_create(make_suite(suites[n]));
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

static int is_well(const struct outcome *outcome)
{
    return outcome->failed == 0 && outcome->ended;
}

static void copy_out(FILE *said)
{
    char text[4096];
    size_t n;
    rewind(said);
    while ((n = fread(text, 1, sizeof text, said)) > 0)
        fwrite(text, 1, n, stdout);
    fclose(said);
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Seconds of processors are those of all that the suite started and waited for. */
static void show(const struct job *job, struct outcome *outcome, const struct rusage *used)
{
    if (is_well(outcome))
        copy_out(job->said);
    else
        outcome->said = job->said;
    printf("%-15s %4d checks, %d failures, %.1f s: user %.1f, system %.1f%s\n", suites[job->suite],
           outcome->run, outcome->failed, attn_seconds(CLOCK_MONOTONIC) - job->start,
           seconds_of(used->ru_utime), seconds_of(used->ru_stime),
           outcome->ended ? "" : ": ended before its end");
    fflush(stdout);
}

/* One more than there are cores: a suite that starts other programs mostly waits for them. */
static long jobs_at_once(void)
{
    const char *given = getenv("ATTN_JOBS");
    long n = given != NULL ? strtol(given, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN) + 1;
    return n < 1 ? 1 : n > n_suites ? n_suites : n;
}

static void put_in_order(int order[MOST])
{
    char placed[MOST] = {0};
    int at = 0;
    for (int n = 0; n <= LONGEST; n++)
        for (int suite = 0; suite < n_suites; suite++)
            if (!placed[suite] && (n == LONGEST || strcmp(longest[n], suites[suite]) == 0)) {
                placed[suite] = 1;
                order[at++] = suite;
            }
}

/* Returns how many suites could not be started. */
static int run_all(struct outcome *outcome)
{
    int order[MOST];
    static struct job job[MOST];
    long most = jobs_at_once(), running = 0;
    int next = 0, lost = 0;
    put_in_order(order);
    while (next < n_suites || running > 0) {
        struct rusage used;
        int status;
        if (next < n_suites && running < most) {
            if (start(&job[running], order[next], &outcome[order[next]]))
                running++;
            else
                lost++, printf("%s: cannot be started\n", suites[order[next]]);
            next++;
            continue;
        }
        pid_t ended = wait4(-1, &status, 0, &used);
        for (long n = 0; n < running; n++)
            if (job[n].process == ended) {
                show(&job[n], &outcome[job[n].suite], &used);
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

/* tests/bin has the programs that tests start instead of those of their names. */
static void use_programs_of_tests(void)
{
    const char *path = getenv("PATH");
    char *bin = realpath("tests/bin", NULL), *both = NULL;
    if (bin != NULL && path != NULL && asprintf(&both, "%s:%s", bin, path) > 0)
        setenv("PATH", both, 1);
    free(both);
    free(bin);
}

int main(void)
{
    const char *only = getenv("CK_RUN_SUITE"), *fork_mode = getenv("CK_FORK");
    struct outcome *outcome = test_shared((size_t)n_suites * sizeof *outcome);
    use_memory_for_files();
    use_programs_of_tests();
    setenv("OPENBLAS_NUM_THREADS", "1", 0); /* of numpy in examples: their matrices are small */
    int lost = 0, one_process = only != NULL || (fork_mode != NULL && strcmp(fork_mode, "no") == 0);
    for (int n = 0; n < n_suites && one_process; n++)
        if (only == NULL || strcmp(only, suites[n]) == 0)
            run_suite(n, &outcome[n]);
        else
            outcome[n].ended = 1;
    if (!one_process)
        lost = run_all(outcome);
    int run = 0, failures = 0, is_good = lost == 0;
    for (int n = 0; n < n_suites; n++) {
        if (outcome[n].said != NULL)
            copy_out(outcome[n].said);
        run += outcome[n].run;
        failures += outcome[n].failed;
        is_good &= is_well(&outcome[n]);
    }
    printf("all: %d checks, %d failures", run, failures);
    for (int n = 0; n < n_suites; n++)
        if (!is_well(&outcome[n]))
            printf(" %s", suites[n]);
    putchar('\n');
    return is_good && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
