/* Implementations that are not ours, entered in a sweep: plug-ins and commands.
 *
 *      --plugin [NAME=]FILE.so                 --exec [NAME=]COMMAND --claims FILE
 *
 * To a plan, a price or a record an external implementation is a name like any spec.
 * docs/measuring.md says what is measured of it.
 */
#ifndef EXPERIMENTS_MEASURE_EXTERNAL_SPECS_H
#define EXPERIMENTS_MEASURE_EXTERNAL_SPECS_H

#include "experiments/cli/flags.h"
#include "experiments/measure/record.h"
#include "tests/harness/subject/external.h"

enum { ATTN_EXTERNAL_SPECS = 16 };

struct attn_external_spec {
    enum attn_external_kind kind; /* a plug-in or a command                                */
    char name[32];                /* in records, legends, pages, and as a word of `spec`        */
    char source[512];             /* the full path of a plug-in; a command as it was given      */
    char digest[24];              /* of the plug-in; of command, claims and the files it names  */
    const char *claims_path;      /* of a command (borrowed)                                    */
    struct attn_claims claims;
};

struct attn_external_specs {
    int n;
    struct attn_external_spec one[ATTN_EXTERNAL_SPECS];
};

/* Take --plugin, --exec and --claims as they were given, --claims for the --exec before it, and
 * meet all of them: load each plug-in in a process of its own, run each command on one tiny case,
 * within the --timeout among the keys, find out names and digests.  EINVAL and others where one
 * does not load, cannot be run, has no claims, or has the name of another. */
enum attn_status attn_external_specs_open(struct attn_external_specs *externals,
                                          const struct attn_cli_list *given,
                                          const struct attn_cli_list *keys, struct attn_error *err);

/* The one of that name; NULL: none, or externals is NULL. */
const struct attn_external_spec *
attn_external_specs_find(const struct attn_external_specs *externals, const char *name);

/* The facts before it runs: writes pairs, density and inputs and outputs to the point, takes
 * away what only prices know, and gives the bytes that a process needs at least. */
enum attn_status attn_external_spec_preflight(const struct attn_external_spec *external,
                                              const struct attn_case *c, struct attn_point *point,
                                              int64_t *need, struct attn_error *err);

#endif
