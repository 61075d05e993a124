/* attnlab check --exec and --results: cases and answers as files (tests/harness/exchange.h). */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli.h"
#include "experiments/command.h"
#include "experiments/stranger.h"
#include "tests/harness/diagnose.h"
#include "tests/harness/exchange.h"
#include "tests/harness/fileio.h"

static const double enough_s = 10; /* of diagnoses: the next one says nothing new */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- cases out ------------------------------------------------------------------------------- */

enum attn_status attn_question_write(const struct attn_question *question, const char *folder,
                                     const struct attn_claims *claims, int *written,
                                     struct attn_error *err)
{
    struct attn_exchange_writer writer;
    *written = 0;
    enum attn_status status = attn_exchange_begin(folder, claims, &writer, err);
    for (int i = 0; i < question->n && status == ATTN_OK; i++) {
        const struct attn_asked *asked = &question->asked[i];
        struct attn_setup setup;
        struct attn_error why = {0};
        unsigned needs;
        if (attn_setup_open(&asked->c, &setup, &why) != ATTN_OK)
            continue; /* has its verdict when it is judged */
        if (attn_claims_allow(claims, &setup, ATTN_ROUTE_FILES, &needs, &why) == ATTN_OK) {
            status = attn_exchange_write(&writer, asked->name, &setup, err);
            ++*written;
        }
        attn_setup_close(&setup);
    }
    if (writer.cases == NULL)
        return status;
    struct attn_error end = {0};
    enum attn_status ended = attn_exchange_end(&writer, status == ATTN_OK, &end);
    if (status == ATTN_OK && ended != ATTN_OK)
        status = attn_fail(err, ended, "%.500s", end.text);
    return status;
}

/* ---- results in ------------------------------------------------------------------------------ */

/* How a case without a result is judged: by what became of the command, if there was one. */
struct absence {
    enum attn_verdict verdict;
    char text[300];
};

static void judge(struct attn_stranger *s, const struct attn_asked *asked, const char *results,
                  const struct absence *absence)
{
    struct attn_setup setup;
    struct attn_error err = {0};
    struct attn_result r;
    char diagnosis[256] = "";
    unsigned needs = 0;
    double start = now();
    memset(&r, 0, sizeof r);
    enum attn_status status = attn_setup_open(&asked->c, &setup, &err);
    int opened = status == ATTN_OK;
    if (opened)
        status = attn_claims_allow(&s->claims, &setup, ATTN_ROUTE_FILES, &needs, &err);
    if (status != ATTN_OK) {
        r.verdict = status == ATTN_ENOTSUP ? ATTN_REFUSED : ATTN_ERROR;
        snprintf(r.text, sizeof r.text, "%s", err.text);
    } else if (!attn_exchange_has(results, asked->name)) {
        r.verdict = absence->verdict;
        r.failure = ATTN_F_STATUS;
        snprintf(r.text, sizeof r.text, "%s", absence->text);
    } else if (attn_exchange_read(results, asked->name, &s->claims, &setup, &err) != ATTN_OK) {
        r.verdict = ATTN_FAILED;
        r.failure = ATTN_F_STATUS;
        snprintf(r.text, sizeof r.text, "%s", err.text);
    } else {
        attn_exchange_judge(&s->claims, &setup, &r);
        double before = now();
        if (r.verdict == ATTN_FAILED && s->diagnosed_s < enough_s)
            attn_diagnose(&setup, &r, diagnosis, sizeof diagnosis);
        s->diagnosed_s += now() - before;
    }
    attn_stranger_file(s, asked, &r, diagnosis, needs, now() - start);
    if (opened)
        attn_setup_close(&setup);
}

static int judge_all(struct attn_stranger *s, const char *results, const struct absence *absence)
{
    char words[400];
    snprintf(s->label, sizeof s->label, "%.60s", s->claims.name);
    fprintf(stderr, "%s: %s\n", s->label, attn_stranger_words(&s->claims, words, sizeof words));
    attn_verdicts_begin(&s->verdicts, s->label);
    for (int i = 0; i < s->question.n; i++)
        judge(s, &s->question.asked[i], results, absence);
    return attn_stranger_end(s);
}

int attn_stranger_results(struct attn_stranger *s, const char *results)
{
    struct absence absence = {ATTN_FAILED, ""};
    struct stat info;
    if (stat(results, &info) != 0 || !S_ISDIR(info.st_mode))
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "%.3000s is not a folder", results);
    snprintf(absence.text, sizeof absence.text, "no folder of results for this case");
    return judge_all(s, results, &absence);
}

/* ---- a command ------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    remove(path);
    return 0;
}

static void describe(const struct attn_command *command, double timeout_s, struct absence *absence)
{
    size_t size = sizeof absence->text;
    const char *said = command->last_line[0] != '\0' ? "; it said: " : "";
    absence->verdict = ATTN_FAILED;
    if (command->timed_out) {
        absence->verdict = ATTN_TIMEOUT;
        snprintf(absence->text, size, "no result: the command had not ended after %g s%s%.150s",
                 timeout_s, said, command->last_line);
    } else if (command->signal != 0) {
        absence->verdict = ATTN_CRASH;
        snprintf(absence->text, size, "no result: the command died (%s)%s%.150s",
                 strsignal(command->signal), said, command->last_line);
    } else if (command->exit_status != 0) {
        absence->verdict = ATTN_CRASH;
        snprintf(absence->text, size, "no result: the command ended with status %d%s%.150s",
                 command->exit_status, said, command->last_line);
    } else
        snprintf(absence->text, size, "no result, although the command ended well%s%.150s", said,
                 command->last_line);
}

static int run(struct attn_stranger *s, const char *command, const char *cases, const char *out)
{
    struct attn_error err = {0};
    struct attn_command ran;
    struct absence absence;
    int written;
    enum attn_status status = attn_question_write(&s->question, cases, &s->claims, &written, &err);
    if (status != ATTN_OK)
        return attn_cli_fail("check", ATTN_EXIT_LACKS, "%s", err.text);
    if (mkdir(out, 0777) != 0 && errno != EEXIST)
        return attn_cli_fail("check", ATTN_EXIT_LACKS, "%s: %s", out, strerror(errno));
    if (attn_command_run(command, cases, out, s->timeout_s, &ran) != 0)
        return attn_cli_fail("check", ATTN_EXIT_LACKS, "'%.200s' cannot be started: %s", command,
                             strerror(errno));
    describe(&ran, s->timeout_s, &absence);
    attn_clean(absence.text);
    if (ran.timed_out || ran.signal != 0 || ran.exit_status != 0)
        fprintf(stderr, "note: %s\n", absence.text + strlen("no result: "));
    fprintf(stderr, "note: %d cases written; the command took %.2f s\n", written, ran.wall_s);
    if (ran.exit_status == 127 || ran.exit_status == 126)
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "'%.200s' cannot be run: %s", command,
                             ran.last_line[0] != '\0' ? ran.last_line : "not found");
    return judge_all(s, out, &absence);
}

int attn_stranger_exec(struct attn_stranger *s, const char *command, const char *work)
{
    char folder[PATH_MAX], cases[PATH_MAX + 16], out[PATH_MAX + 16];
    const char *root = getenv("TMPDIR");
    if (work != NULL) {
        if (mkdir(work, 0777) != 0 && errno != EEXIST)
            return attn_cli_fail("check", ATTN_EXIT_LACKS, "%s: %s", work, strerror(errno));
        if (realpath(work, folder) == NULL)
            return attn_cli_fail("check", ATTN_EXIT_LACKS, "%s: %s", work, strerror(errno));
    } else {
        snprintf(folder, sizeof folder, "%.4000s/attnlab-XXXXXX", root != NULL ? root : "/tmp");
        if (mkdtemp(folder) == NULL)
            return attn_cli_fail("check", ATTN_EXIT_LACKS, "%s: %s", folder, strerror(errno));
    }
    snprintf(cases, sizeof cases, "%s/cases", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    attn_stranger_route(s, "--exec", command);
    attn_stranger_route(s, "--claims", s->claims_path);
    int status = run(s, command, cases, out);
    if (work == NULL)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}
