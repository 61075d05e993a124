/* One case for a command that is measured: its files, its run, and what it says of its time.
 *
 *      FOLDER/cases/manifest.json, FOLDER/cases/point/inputs.safetensors, FOLDER/out/point/...
 *
 * are those of external/vector_files.h.  A command may leave FOLDER/out/point/seconds.txt beside
 * its results: seconds of each call that it timed, separated by white space, in order.
 */
#ifndef EXPERIMENTS_MEASURE_EXEC_CASE_H
#define EXPERIMENTS_MEASURE_EXEC_CASE_H

#include "tests/harness/cases/claims.h"
#include "tests/harness/process.h"

/* Write the files of a case, and make the folder for its results. */
enum attn_status attn_exec_write(const char *folder, const struct attn_claims *claims,
                                 const struct attn_setup *setup, struct attn_error *err);

/* The same of a case that takes no time and no memory, for what a command takes at all: 8 queries
 * and keys, one batch, no mask; heads, features, storage and pass are those of another one. */
enum attn_status attn_exec_write_tiny(const char *folder, const struct attn_claims *claims,
                                      const struct attn_case *like, struct attn_error *err);

/* Run the command on them: attn_process_shell; timeout_s 0: no limit. */
int attn_exec_run(const char *command, const char *folder, double timeout_s,
                  struct attn_process *ran);

/* EINVAL, with what became of it and its last words, when a command did not end well or left no
 * results. */
enum attn_status attn_exec_ended_well(const struct attn_process *ran, const char *folder,
                                      struct attn_error *err);

/* Its results, to the outputs of a set-up.  ENOTSUP: it has refused the case. */
enum attn_status attn_exec_read(const char *folder, const struct attn_claims *claims,
                                struct attn_setup *setup, struct attn_error *err);

/* The times that a command reports, at most `most`: how many; 0 when it reports none; -1 when the
 * file holds something else than positive numbers. */
int attn_exec_seconds(const char *folder, double *seconds, int most);

/* A new folder in TMPDIR; remove one with all that is in it. */
enum attn_status attn_exec_folder(char folder[4096], struct attn_error *err);
void attn_exec_remove(const char *folder);

/* Run the command on a tiny case.  The end of the program: it cannot be run, or does not do its
 * part. */
void attn_exec_try(const char *command, const struct attn_claims *claims, double timeout_s);

#endif
