/* See external_specs.h. */
#include "experiments/measure/external_specs.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/measure/preflight.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/subject/exec.h"

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789_.+-";

/* ---- flags ----------------------------------------------------------------------------------- */

/* The value after "NAME=".  A command may begin with assignments to the environment: a word in
 * capitals is no name.  A path that exists is a path. */
static const char *cut_name(const char *value, char name[32])
{
    struct stat about;
    size_t n = strspn(value, name_letters), lower = 0;
    for (size_t i = 0; i < n; i++)
        lower += islower((unsigned char)value[i]) != 0;
    name[0] = '\0';
    if (n == 0 || n >= 32 || value[n] != '=' || lower == 0 || stat(value, &about) == 0)
        return value;
    memcpy(name, value, n);
    name[n] = '\0';
    return value + n + 1;
}

static enum attn_status take(struct attn_external_specs *externals, const char *flag,
                             const char *value, struct attn_error *err)
{
    struct attn_external_spec *last = externals->n > 0 ? &externals->one[externals->n - 1] : NULL;
    if (strcmp(flag, "claims") == 0) {
        if (last == NULL || last->kind != ATTN_EXTERNAL_COMMAND || last->claims_path != NULL)
            return attn_fail(err, ATTN_EINVAL,
                             "--claims '%.60s' has no --exec of its own before it: a plug-in says "
                             "itself what it claims",
                             value);
        last->claims_path = value;
        return ATTN_OK;
    }
    if (externals->n == ATTN_EXTERNAL_SPECS)
        return attn_fail(err, ATTN_EINVAL, "more than %d plug-ins and commands",
                         ATTN_EXTERNAL_SPECS);
    struct attn_external_spec *e = &externals->one[externals->n++];
    memset(e, 0, sizeof *e);
    e->kind = strcmp(flag, "plugin") == 0 ? ATTN_EXTERNAL_PLUGIN : ATTN_EXTERNAL_COMMAND;
    const char *source = cut_name(value, e->name);
    if (*source == '\0' || strlen(source) >= sizeof e->source)
        return attn_fail(err, ATTN_EINVAL, "--%s '%.60s': a text of 1 to %zu bytes is wanted", flag,
                         value, sizeof e->source - 1);
    strcpy(e->source, source);
    return ATTN_OK;
}

/* ---- digests --------------------------------------------------------------------------------- */

/* Words of the command that are files, such as the script after an interpreter's name.  Files
 * that such a script loads by itself are not seen. */
static void add_command(uint64_t *digest, const char *command)
{
    char copy[sizeof((struct attn_external_spec *)0)->source], *rest = copy, *word;
    strcpy(copy, command);
    *digest = attn_digest_bytes(*digest, command, strlen(command));
    while ((word = strsep(&rest, ATTN_EXEC_BLANKS)) != NULL)
        if (*word != '\0')
            attn_digest_file(digest, word);
}

static void find_digest(struct attn_external_spec *e)
{
    uint64_t digest = ATTN_DIGEST_BEGIN;
    if (e->kind == ATTN_EXTERNAL_PLUGIN)
        attn_digest_file(&digest, e->source);
    else {
        add_command(&digest, e->source);
        attn_digest_file(&digest, e->claims_path);
    }
    snprintf(e->digest, sizeof e->digest, "%016llx", (unsigned long long)digest);
}

/* ---- meeting them ---------------------------------------------------------------------------- */

static enum attn_status try_plugin(struct attn_external_spec *e, double timeout_s,
                                   struct attn_error *err)
{
    struct attn_external x = {.kind = e->kind, .source = e->source, .timeout_s = timeout_s};
    char path[4096];
    enum attn_status status = attn_external_route[e->kind]->open(&x, err);
    if (status != ATTN_OK)
        return status;
    e->claims = x.claims;
    attn_external_route[e->kind]->close(&x);
    if (realpath(e->source, path) == NULL)
        return attn_fault(err, ATTN_EINVAL, e->source, "%s", strerror(errno));
    if (strlen(path) >= sizeof e->source)
        return attn_fault(err, ATTN_EINVAL, e->source, "its full path is longer than %zu bytes",
                          sizeof e->source - 1);
    strcpy(e->source, path);
    return ATTN_OK;
}

static enum attn_status try_command(struct attn_external_spec *e, double timeout_s,
                                    struct attn_error *err)
{
    struct attn_error why;
    if (e->claims_path == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "--exec '%.200s' needs --claims FILE after it (docs/external.md)",
                         e->source);
    enum attn_status status = attn_claims_read(e->claims_path, &e->claims, err);
    if (status == ATTN_OK && attn_exec_try(e->source, &e->claims, timeout_s, &why) != ATTN_OK)
        status = attn_fail(err, why.status, "--exec '%.160s', on a tiny case: %.300s", e->source,
                           why.text);
    return status;
}

/* Its own name, in letters that a plan and a file name can hold. */
static void find_name(struct attn_external_spec *e)
{
    size_t n = 0;
    for (const char *c = e->claims.name; *c != '\0' && n < sizeof e->name - 1; c++)
        if (strchr(name_letters, *c) != NULL)
            e->name[n++] = *c;
        else if (n > 0 && e->name[n - 1] != '-')
            e->name[n++] = '-';
    e->name[n] = '\0';
}

static enum attn_status check_name(const struct attn_external_specs *externals, int which,
                                   struct attn_error *err)
{
    const struct attn_external_spec *e = &externals->one[which];
    const char *flag = e->kind == ATTN_EXTERNAL_PLUGIN ? "plugin" : "exec";
    if (e->name[0] == '\0')
        return attn_fail(err, ATTN_EINVAL, "%.200s has no name: say --%s NAME=...", e->source,
                         flag);
    if (attn_impl_find(e->name) != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "%.200s is called %s, as one of ours is: say --%s NAME=...", e->source,
                         e->name, flag);
    for (int other = 0; other < which; other++)
        if (strcmp(externals->one[other].name, e->name) == 0)
            return attn_fail(err, ATTN_EINVAL,
                             "%.150s and %.150s are both called %s: say --%s NAME=...",
                             externals->one[other].source, e->source, e->name, flag);
    return ATTN_OK;
}

enum attn_status attn_external_specs_open(struct attn_external_specs *externals,
                                          const struct attn_cli_list *given,
                                          const struct attn_cli_list *keys, struct attn_error *err)
{
    double patience = 60, timeout; /* s, to load a plug-in, or for a command on a tiny case */
    enum attn_status status = ATTN_OK;
    for (int k = 0; k < keys->n; k++)
        if (strcmp(keys->at[k].flag, "timeout") == 0 && (timeout = atof(keys->at[k].value)) > 0)
            patience = fmin(patience, timeout);
    for (int x = 0; x < given->n && status == ATTN_OK; x++)
        status = take(externals, given->at[x].flag, given->at[x].value, err);
    for (int i = 0; i < externals->n && status == ATTN_OK; i++) {
        struct attn_external_spec *e = &externals->one[i];
        status = e->kind == ATTN_EXTERNAL_PLUGIN ? try_plugin(e, patience, err)
                                                 : try_command(e, patience, err);
        if (status != ATTN_OK)
            break;
        if (e->name[0] == '\0')
            find_name(e);
        find_digest(e);
        status = check_name(externals, i, err);
    }
    return status;
}

const struct attn_external_spec *
attn_external_specs_find(const struct attn_external_specs *externals, const char *name)
{
    for (int i = 0; externals != NULL && i < externals->n; i++)
        if (strcmp(externals->one[i].name, name) == 0)
            return &externals->one[i];
    return NULL;
}

/* ---- what is known before it runs ------------------------------------------------------------ */

/* The mask of a command lies in a file, and is made in memory before it gets there. */
enum attn_status attn_external_spec_preflight(const struct attn_external_spec *e,
                                              const struct attn_case *c, struct attn_point *point,
                                              int64_t *need, struct attn_error *err)
{
    struct attn_problem problem;
    struct attn_given_mask given;
    snprintf(point->impl, sizeof point->impl, "%s", e->name);
    const char *route = attn_external_route[e->kind]->word;
    snprintf(point->family, sizeof point->family, "%s", route);
    snprintf(point->route, sizeof point->route, "%s", route);
    snprintf(point->source, sizeof point->source, "%s", e->source);
    snprintf(point->source_digest, sizeof point->source_digest, "%s", e->digest);
    point->ranks = 1;
    enum attn_status status = attn_preflight_open(c, &problem, point, need, err);
    attn_point_not_ours(point);
    if (status != ATTN_OK)
        return status;
    attn_preflight_pairs(&problem, point);
    double mask_bytes = 0, sum = (double)*need; /* of all pairs: may be beyond int64 */
    if (attn_claims_mask(&e->claims, &problem, &given) == ATTN_CLAIMS_BYTES)
        mask_bytes = (double)c->batch * (double)c->heads * (double)c->n_query * (double)c->n_key;
    sum += mask_bytes;
    if (e->kind == ATTN_EXTERNAL_COMMAND) /* theirs beside ours */
        sum += (double)point->floor_bytes + mask_bytes;
    *need = sum < 9.0e18 ? (int64_t)sum : INT64_MAX;
    attn_preflight_close(&problem);
    return ATTN_OK;
}
