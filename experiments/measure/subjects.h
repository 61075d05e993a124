/* Implementations that are not ours, entered in a sweep: plug-ins and commands.
 *
 *      --plugin [NAME=]FILE.so                 --exec [NAME=]COMMAND --claims FILE
 *
 * To a plan, a price or a record an external implementation is a name like any spec.
 * docs/measuring.md says what is measured of it.
 */
#ifndef EXPERIMENTS_MEASURE_SUBJECTS_H
#define EXPERIMENTS_MEASURE_SUBJECTS_H

#include "experiments/cli/flags.h"
#include "tests/harness/subject/subject.h"

enum { ATTN_SUBJECTS = 16 };

struct attn_subjects {
    int n;
    struct attn_subject one[ATTN_SUBJECTS]; /* route NULL: only stored records name it        */
    char source[ATTN_SUBJECTS][512]; /* the full path of a plug-in; a command as it was given */
};

/* Take --plugin, --exec and --claims as they were given, --claims for the --exec before it, and
 * meet all of them: load each plug-in in a process of its own, run each command on one tiny case,
 * within the --timeout among the keys, find out names and digests.  EINVAL and others where one
 * does not load, cannot be run, has no claims, or has the name of another. */
enum attn_status attn_subjects_open(struct attn_subjects *externals,
                                    const struct attn_cli_list *given,
                                    const struct attn_cli_list *keys, struct attn_error *err);

/* The one of that name; NULL: none, or externals is NULL. */
const struct attn_subject *attn_subjects_find(const struct attn_subjects *externals,
                                              const char *name);

#endif
