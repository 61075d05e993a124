/* attnlab library: one of the ten libraries of lab 09, as a command that check can judge. */
#include <stdio.h>
#include <stdlib.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/grade/hunt.h"
#include "tests/harness/base/folder.h"
#include "tests/harness/subject/vector_files.h"

static int library(void *values, int n, char **operand);

static const struct attn_flag_use flags[] = {{.flag = ATTN_FLAG_END}};

const struct attn_cli_command attn_cmd_library = {
    .name = "library",
    .summary = "a library that may be wrong, for lab 09 (docs/labs/09-hunt)",
    .usage = "library SEED NUMBER CASES OUT",
    .about = "Compute the cases of a folder by library 1 to 10 of a seed.  It is a command for\n"
             "check: attnlab check --exec 'attnlab library ann 3' --claims FILE.",
    .flags = flags,
    .more = "",
    .operands_least = 4,
    .operands_most = 4,
    .run = library};

/* One case, a file for each output. */
static enum attn_status compute(const struct attn_hunt_fault *fault,
                                const struct attn_claims *claims, const char *text,
                                const char *folder, struct attn_error *err)
{
    struct attn_case c;
    struct attn_setup setup;
    char path[4096 + 300];
    enum attn_status status = attn_case_parse(text, &c, err);
    if (status == ATTN_OK)
        status = attn_setup_open(&c, &setup, err);
    if (status != ATTN_OK)
        return status;
    status = attn_hunt_compute(fault, &setup, err);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++) {
        const struct attn_tensor *t = &setup.tensor[attn_slot_of((enum attn_output)o)];
        struct attn_file_tensor file = {0};
        if (!attn_vector_files_wants(claims, &setup, (enum attn_output)o))
            continue;
        status =
            attn_vector_files_gather(claims, t, (int)attn_slot_of((enum attn_output)o), &file, err);
        snprintf(path, sizeof path, "%s/%s.npy", folder, file.name);
        file.name = "";
        if (status == ATTN_OK)
            status = attn_npy_write(path, &file, err);
        free(file.data);
    }
    attn_setup_close(&setup);
    return status;
}

static int library(void *values, int n, char **operand)
{
    struct attn_vector_files cases;
    struct attn_error err = {0};
    char folder[4096];
    int64_t number;
    (void)values, (void)n;
    if (!attn_cli_int(operand[1], 1, ATTN_LIBRARIES, &number))
        attn_cli_stop(ATTN_EINVAL, NULL, "there are libraries 1 to %d, and no '%s'", ATTN_LIBRARIES,
                      operand[1]);
    attn_cli_must(attn_vector_files_open(operand[2], &cases, &err), &err);
    for (int i = 0; i < cases.n; i++) {
        snprintf(folder, sizeof folder, "%.3500s/%.200s", operand[3], cases.entry[i].name);
        attn_cli_must(attn_folder_make(folder, &err), &err);
        attn_cli_must(compute(attn_hunt_fault(operand[0], (int)number), &cases.claims,
                              cases.entry[i].text, folder, &err),
                      &err);
    }
    attn_vector_files_close(&cases);
    return 0;
}
