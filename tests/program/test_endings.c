/* INT, TERM and HUP end all that was started, in sessions of its own too, and leave no folder. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixtures/curve_fixture.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/process.h"
#include "tests/suites.h"

/* Every started process has this environment, by which it is found. */
static void prepare(void)
{
    static const char leave[] = "(setsid sh -c 'echo $$ >\"$PID_FILE\"; exec sleep 1000' &)\n"
                                "while [ ! -s \"$PID_FILE\" ]; do :; done\n";
    scratch_open();
    scratch_put("leave", leave, sizeof leave - 1);
    fixture_build_command("dense", "NOTHING");
    fixture_build_command("hang", "HANG"); /* not on a tiny case */
    fixture_plugin("bad.so", "bad", "DAEMON HANG FROM=1");
    fixture_shell("mkdir '%s'", scratch_path("tmp"));
    setenv("folder", scratch_path(""), 1);
    setenv("TMPDIR", scratch_path("tmp"), 1);
    setenv("PID_FILE", scratch_path("pid"), 1);
    setenv("BAD_DAEMON", scratch_path("pid"), 1);
}

SUITE(endings, .open = prepare, .close = scratch_close);

/* Until there is something in it; the program has not ended before.  It may have by then, and is
 * left to be waited for. */
static void await(const char *name, pid_t pid)
{
    struct stat info = {.st_size = 0};
    siginfo_t ended = {.si_pid = 0};
    while (ended.si_pid == 0 && info.st_size == 0) {
        usleep(2000);
        ck_assert_int_eq(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        stat(scratch_path(name), &info);
    }
    ck_assert_msg(info.st_size > 0, "%s", scratch_read(scratch_path("said")));
}

/* Returns when it has started what hangs. */
static pid_t start(const char *before, const char *arguments)
{
    char line[2000];
    pid_t pid = -1;
    snprintf(line, sizeof line, "exec %s '%s/attnlab' %s >'%s' 2>&1", before, test_build(),
             arguments, scratch_path("said"));
    const char *const argv[] = {"sh", "-c", line, NULL};
    ck_assert_int_eq(attn_process_start("/bin/sh", argv, NULL, NULL, 0, 0, &pid), 0);
    await("pid", pid);
    return pid;
}

static int end(pid_t pid)
{
    int status = -1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void expect_nothing_left(void)
{
    char mark[600];
    snprintf(mark, sizeof mark, "TMPDIR=%s", getenv("TMPDIR"));
    unsetenv("TMPDIR");  /* of the shell that looks */
    scratch_shell(0, "", /* what was ended may take a moment to be gone */
                  "for n in $(seq 100); do "
                  "grep -qszxF '%s' /proc/[0-9]*/environ || exit 0; sleep 0.3; done; exit 1",
                  mark);
    scratch_shell(0, "", "ls -A '%s'; rmdir '%s'", mark + 7, mark + 7);
}

#define EXEC(command) "--exec \"" command "\" --claims \"$folder/claims.json\" "
#define AT_ONCE       EXEC("sh $folder/leave; sleep 1000; :")
#define APART         EXEC("setsid -w $folder/hang")
#define DAEMON        EXEC("sh $folder/leave; $folder/dense")
static const struct {
    const char *arguments;
    int status;  /* 0: ends by the signal */
    int is_slow; /* one signal is enough  */
} interrupted[] = {
    {"check " AT_ONCE "--case length-15-17", 0, 0},
    {"check --plugin \"$folder/bad.so\" --case length-15-17", 0, 0},
    {"measure " AT_ONCE "--length 8 --out \"$folder/r.jsonl\"", 0, 0},
    {"check " AT_ONCE "--soak 100", 0, 1},
    {"measure " APART "--length 64 --out \"$folder/r.jsonl\"", 3, 1},
};
static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

/* The second one comes while the first one is cleaning up. */
TEST_EACH(nothing_is_left, COUNT(interrupted) * COUNT(signals))
{
    int row = _i / COUNT(signals), number = signals[_i % COUNT(signals)];
    if (interrupted[row].is_slow && _i % COUNT(signals) != row % COUNT(signals))
        return;
    signal(number, SIG_DFL);
    pid_t pid = start("", interrupted[row].arguments);
    kill(pid, number);
    kill(pid, number);
    ck_assert_int_eq(end(pid), interrupted[row].status == 0 ? -number : interrupted[row].status);
    expect_nothing_left();
}

/* Under nohup: it goes on, and comes to its end. */
TEST(what_is_ignored_stays_ignored)
{
    signal(SIGHUP, SIG_IGN);
    pid_t pid = start("", "measure " DAEMON "--length 64 --rounds 1 --out \"$folder/r.jsonl\"");
    await("r.jsonl", pid);
    kill(pid, SIGHUP);
    ck_assert_int_eq(end(pid), 0);
    expect_nothing_left();
}

/* A process that the shell started before it became the program is not the program's. */
TEST(what_was_there_stays)
{
    pid_t pid = -1;
    char line[3000];
    snprintf(line, sizeof line,
             "env -u TMPDIR sleep 1000 & echo $! >'%s'; exec '%s/attnlab' check " EXEC(
                 "echo $$ >$folder/pid; sleep 1000; :") "--case length-15-17 >'%s' 2>&1",
             scratch_path("theirs"), test_build(), scratch_path("said"));
    const char *const argv[] = {"sh", "-c", line, NULL};
    ck_assert_int_eq(attn_process_start("/bin/sh", argv, NULL, NULL, 0, 0, &pid), 0);
    await("pid", pid);
    kill(pid, SIGTERM);
    ck_assert_int_eq(end(pid), -SIGTERM);
    expect_nothing_left();
    scratch_shell(0, "", "kill $(cat '%s')", scratch_path("theirs")); /* it is alive */
}

/* Children that are forgotten at once, as daemons want them, would leave no status. */
TEST(children_are_waited_for)
{
    pid_t pid = start("env --ignore-signal=CHLD", "check " DAEMON "--case q8d8:none:f32:normal:s1");
    ck_assert_int_eq(end(pid), 0);
}

/* A daemon of a command that ended well. */
TEST(nothing_outlives_the_run)
{
    scratch_expect(0, "1 pass", "check " DAEMON "--case q8d8:none:f32:normal:s1");
    scratch_has("processes that it had left behind were ended");
    expect_nothing_left();
}
