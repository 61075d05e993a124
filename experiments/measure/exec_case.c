/* See exec_case.h. */
#include "experiments/measure/exec_case.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "tests/harness/external/vector_files.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/files/folder.h"

static const char case_name[] = "point";

/* ---- files ----------------------------------------------------------------------------------- */

static void cases_of(const char *folder, char text[4096])
{
    snprintf(text, 4096, "%.4000s/cases", folder);
}

static void out_of(const char *folder, char text[4096])
{
    snprintf(text, 4096, "%.4000s/out", folder);
}

enum attn_status attn_exec_write(const char *folder, const struct attn_claims *claims,
                                 const struct attn_setup *setup, struct attn_error *err)
{
    struct attn_vector_files_writer writer;
    char cases[4096], out[4096];
    cases_of(folder, cases);
    out_of(folder, out);
    enum attn_status status = attn_folder_make(folder, err);
    if (status == ATTN_OK)
        status = attn_folder_make(out, err);
    if (status == ATTN_OK)
        status = attn_vector_files_begin(cases, claims, &writer, err);
    if (status != ATTN_OK)
        return status;
    status = attn_vector_files_write(&writer, case_name, setup, err);
    return attn_vector_files_end(&writer, status, err);
}

enum attn_status attn_exec_write_tiny(const char *folder, const struct attn_claims *claims,
                                      const struct attn_case *like, struct attn_error *err)
{
    struct attn_setup setup;
    struct attn_case tiny = *like;
    tiny.batch = 1;
    tiny.n_query = tiny.n_key = 8;
    tiny.fill = ATTN_FILL_NORMAL;
    strcpy(tiny.mask, "none");
    enum attn_status status = attn_setup_open(&tiny, &setup, err);
    if (status != ATTN_OK)
        return status;
    status = attn_exec_write(folder, claims, &setup, err);
    attn_setup_close(&setup);
    return status;
}

enum attn_status attn_exec_read(const char *folder, const struct attn_claims *claims,
                                struct attn_setup *setup, struct attn_error *err)
{
    char out[4096], words[300];
    out_of(folder, out);
    if (attn_vector_files_words(out, case_name, words, sizeof words) == ATTN_WORDS_REFUSED)
        return attn_fail(err, ATTN_ENOTSUP, "%s", words);
    return attn_vector_files_read(out, case_name, claims, setup, err);
}

/* ---- a folder for them, which goes with the program at the latest ---------------------------- */

static char kept[2][ATTN_FOLDER_PATH];
static pid_t keeper;

static void remove_kept(void)
{
    for (int n = 0; n < 2 && getpid() == keeper; n++)
        if (kept[n][0] != '\0')
            attn_folder_remove(kept[n]);
}

enum attn_status attn_exec_folder(char folder[ATTN_FOLDER_PATH], struct attn_error *err)
{
    enum attn_status status = attn_folder_temporary(folder, err);
    if (status != ATTN_OK)
        return status;
    if (keeper == 0)
        atexit(remove_kept);
    keeper = getpid();
    strcpy(kept[kept[0][0] != '\0'], folder);
    return status;
}

void attn_exec_remove(const char *folder)
{
    attn_folder_remove(folder);
    for (int n = 0; n < 2; n++)
        if (strcmp(kept[n], folder) == 0)
            kept[n][0] = '\0';
}

/* ---- what a command did ---------------------------------------------------------------------- */

int attn_exec_run(const char *command, const char *folder, double timeout_s,
                  struct attn_process *ran)
{
    char cases[4096], out[4096];
    cases_of(folder, cases);
    out_of(folder, out);
    return attn_process_shell(command, cases, out, timeout_s > 0 ? timeout_s : (double)INFINITY,
                              ran);
}

enum attn_status attn_exec_ended_well(const struct attn_process *ran, const char *folder,
                                      struct attn_error *err)
{
    char out[4096], said[256] = "";
    if (ran->last_line[0] != '\0')
        snprintf(said, sizeof said, "; it said: %.200s", ran->last_line);
    attn_clean(said);
    if (ran->timed_out)
        return attn_fail(err, ATTN_EINVAL, "the command did not end in time%s", said);
    if (ran->signal != 0)
        return attn_fail(err, ATTN_EINVAL, "the command died of signal %d (%s)%s%s", ran->signal,
                         strsignal(ran->signal),
                         ran->signal == 9 ? "; out of memory looks like this" : "", said);
    if (ran->exit_status != 0)
        return attn_fail(err, ATTN_EINVAL, "the command %s status %d%s",
                         ran->exit_status == 127 || ran->exit_status == 126 ? "cannot be run:"
                                                                            : "ended with",
                         ran->exit_status, said);
    out_of(folder, out);
    if (!attn_vector_files_has(out, case_name))
        return attn_fail(err, ATTN_EINVAL,
                         "the command ended well, but made no folder OUT/%s for its results%s",
                         case_name, said);
    return ATTN_OK;
}

int attn_exec_seconds(const char *folder, double *seconds, int most)
{
    char path[4096], word[64];
    int n = 0, bad = 0;
    snprintf(path, sizeof path, "%.4000s/out/%s/seconds.txt", folder, case_name);
    FILE *file = attn_read_stream(path, ATTN_READ_THEIRS, NULL);
    if (file == NULL)
        return access(path, F_OK) == 0 ? -1 : 0;
    while (n < most && !bad && fscanf(file, "%63s", word) == 1) {
        bad = !attn_cli_double(word, &seconds[n]) || !(seconds[n] > 0) || !isfinite(seconds[n]);
        n++;
    }
    fclose(file);
    return bad || n == 0 ? -1 : n;
}

/* ---- a trial --------------------------------------------------------------------------------- */

void attn_exec_try(const char *command, const struct attn_claims *claims, double timeout_s)
{
    char folder[4096];
    struct attn_case c;
    struct attn_process ran = {0};
    struct attn_error err;
    const char *text =
        claims->bits & ATTN_PLUGIN_F32 ? "q8d8:none:f32:normal:s1" : "q8d8:none:f64:normal:s1";
    attn_cli_must(attn_case_parse(text, &c, &err), &err);
    attn_cli_must(attn_exec_folder(folder, &err), &err);
    enum attn_status status = attn_exec_write_tiny(folder, claims, &c, &err);
    if (status == ATTN_OK && attn_exec_run(command, folder, timeout_s, &ran) != 0)
        status = attn_fail(&err, ATTN_ENOMEM, "no shell can be started: %s", strerror(errno));
    else if (status == ATTN_OK)
        status = attn_exec_ended_well(&ran, folder, &err);
    attn_exec_remove(folder);
    if (status != ATTN_OK)
        attn_cli_stop(status, NULL, "--exec '%.160s', on a tiny case: %.300s", command, err.text);
}
