/* See exec.h: one start, on one case. */
#include "tests/harness/subject/exec.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"
#include "tests/harness/subject/vector_files.h"

/* ---- files ----------------------------------------------------------------------------------- */

static const char *part_of(const char *folder, const char *part, char text[4096])
{
    snprintf(text, 4096, "%.4000s/%s", folder, part);
    return text;
}

enum attn_status attn_exec_write(const char *folder, const struct attn_claims *claims,
                                 const struct attn_setup *setup, struct attn_error *err)
{
    struct attn_vector_files_writer writer;
    char cases[4096], out[4096];
    enum attn_status status = attn_folder_make(folder, err);
    if (status == ATTN_OK)
        status = attn_folder_make(part_of(folder, "out", out), err);
    if (status == ATTN_OK)
        status = attn_vector_files_begin(part_of(folder, "cases", cases), claims, &writer, err);
    if (status != ATTN_OK)
        return status;
    status = attn_vector_files_write(&writer, ATTN_EXEC_CASE, setup, err);
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
    part_of(folder, "out", out);
    if (attn_vector_files_words(out, ATTN_EXEC_CASE, words, sizeof words) == ATTN_WORDS_REFUSED)
        return attn_fail(err, ATTN_ENOTSUP, "%s", words);
    return attn_vector_files_read(out, ATTN_EXEC_CASE, claims, setup, err);
}

/* ---- one start ------------------------------------------------------------------------------- */

int attn_exec_run(const char *command, const char *folder, double timeout_s,
                  struct attn_process *ran)
{
    char cases[4096], out[4096];
    return attn_process_shell(command, part_of(folder, "cases", cases), part_of(folder, "out", out),
                              timeout_s > 0 ? timeout_s : (double)INFINITY, ran);
}

enum attn_verdict attn_exec_end(const struct attn_process *ran, double timeout_s, char *text,
                                size_t size)
{
    if (ran->is_caller)
        snprintf(text, size,
                 ran->timed_out          ? "the caller had not answered after %g s"
                 : ran->exit_status != 0 ? "the caller is gone"
                                         : "the caller ended well",
                 timeout_s);
    else if (ran->timed_out)
        snprintf(text, size, "the command had not ended after %g s", timeout_s);
    else if (ran->signal != 0)
        snprintf(text, size, "the command died (%s)", strsignal(ran->signal));
    else if (ran->exit_status != 0)
        snprintf(text, size, "the command ended with status %d", ran->exit_status);
    else
        snprintf(text, size, "the command ended well");
    if (ran->last_line[0] != '\0')
        attn_append(text, size, "; it said: %.150s", ran->last_line);
    attn_clean(text);
    return ran->timed_out                              ? ATTN_TIMEOUT
           : ran->signal != 0 || ran->exit_status != 0 ? ATTN_CRASH
                                                       : ATTN_PASS;
}

const char *attn_exec_missing(const struct attn_process *ran)
{
    if (ran->exit_status != 127 && ran->exit_status != 126)
        return NULL;
    return ran->last_line[0] != '\0' ? ran->last_line : "not found";
}

enum attn_status attn_exec_did(const struct attn_process *ran, const char *folder, double timeout_s,
                               struct attn_error *err)
{
    char out[4096], text[300];
    const char *missing = attn_exec_missing(ran);
    if (missing != NULL)
        return attn_fail(err, ATTN_EINVAL, "the command cannot be run: %s", missing);
    if (attn_exec_end(ran, timeout_s, text, sizeof text) != ATTN_PASS)
        return attn_fail(err, ATTN_EINVAL, "%s%s", text,
                         ran->signal == 9 ? " (out of memory looks like this)" : "");
    if (!attn_vector_files_has(part_of(folder, "out", out), ATTN_EXEC_CASE))
        return attn_fail(err, ATTN_EINVAL, "%s, but made no folder OUT/%s for its results", text,
                         ATTN_EXEC_CASE);
    return ATTN_OK;
}

static enum attn_status try_in(const char *folder, const struct attn_subject *x,
                               struct attn_error *err)
{
    const char *text =
        x->claims.bits & ATTN_CAP_F32 ? "q8d8:none:f32:normal:s1" : "q8d8:none:f64:normal:s1";
    struct attn_case c;
    struct attn_process ran = {0};
    enum attn_status status = attn_case_parse(text, &c, err);
    if (status == ATTN_OK)
        status = attn_exec_write_tiny(folder, &x->claims, &c, err);
    if (status != ATTN_OK)
        return status;
    if (attn_exec_run(x->source, folder, x->timeout_s, &ran) != 0)
        return attn_fail(err, ATTN_ENOMEM, "no shell can be started: %s", strerror(errno));
    return attn_exec_did(&ran, folder, x->timeout_s, err);
}

enum attn_status attn_exec_try(struct attn_subject *x, struct attn_error *err)
{
    char folder[4096];
    struct attn_error why = {0};
    enum attn_status status = attn_temporary_open(folder, &why);
    if (status == ATTN_OK) {
        status = try_in(folder, x, &why);
        attn_temporary_close(folder);
    }
    return status == ATTN_OK ? status
                             : attn_fail(err, why.status, "--exec '%.160s', on a tiny case: %.300s",
                                         x->source, why.text);
}
