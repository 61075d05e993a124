/* A command that reads a folder of cases and writes a folder of results: one start of it.  The
 * caller (caller.h) is handed the same folders.
 *
 *      FOLDER/cases/manifest.json, FOLDER/cases/NAME/inputs.safetensors, FOLDER/out/NAME/...
 *
 * are those of vector_files.h.  exec_cases.c asks one many cases, and starts it again on those
 * that it did not come to.
 */
#ifndef TESTS_HARNESS_SUBJECT_EXEC_H
#define TESTS_HARNESS_SUBJECT_EXEC_H

#include "tests/harness/base/process.h"
#include "tests/harness/subject/subject.h"

#define ATTN_EXEC_CASE "point"

/* Write one case under the name of ATTN_EXEC_CASE, and make the folder for its results. */
enum attn_status attn_exec_write(const char *folder, const struct attn_claims *claims,
                                 const struct attn_setup *setup, struct attn_error *err);

/* The same of a case that takes no time and no memory, for what a command takes at all: 8 queries
 * and keys, one batch, no mask; heads, features, storage and pass are those of another one. */
enum attn_status attn_exec_write_tiny(const char *folder, const struct attn_claims *claims,
                                      const struct attn_case *like, struct attn_error *err);

/* Run the command on the cases of a folder: attn_process_shell; timeout_s 0: no limit. */
int attn_exec_run(const char *command, const char *folder, double timeout_s,
                  struct attn_process *ran);

/* How it ended, "the command died (Killed); it said: ...": PASS, it ended well; CRASH; TIMEOUT. */
enum attn_verdict attn_exec_end(const struct attn_process *ran, double timeout_s, char *text,
                                size_t size);

/* The shell's words for it when it could not be run at all, else NULL. */
const char *attn_exec_missing(const struct attn_process *ran);

/* EINVAL, with how it ended, when it did not end well or left no results of the case. */
enum attn_status attn_exec_did(const struct attn_process *ran, const char *folder, double timeout_s,
                               struct attn_error *err);

/* Its results, to the outputs of a set-up.  ENOTSUP: it has refused the case. */
enum attn_status attn_exec_read(const char *folder, const struct attn_claims *claims,
                                struct attn_setup *setup, struct attn_error *err);

/* Run the command on a tiny case.  EINVAL: it cannot be run, or does not do its part; whether it
 * does it well is not asked. */
enum attn_status attn_exec_try(struct attn_subject *x, struct attn_error *err);

/* The part of their routes that a command and the caller share (exec_cases.c). */
enum attn_status attn_exec_open(struct attn_subject *x, struct attn_error *err);
enum attn_status attn_exec_ask(struct attn_subject *x, struct attn_asked *asked, int n,
                               struct attn_answer *answer, struct attn_error *err);
void attn_exec_unreached(const struct attn_subject *x, char *text, size_t size);
void attn_exec_close(struct attn_subject *x);

#endif
