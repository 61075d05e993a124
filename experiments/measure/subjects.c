/* See subjects.h. */
#include "experiments/measure/subjects.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "tests/harness/base/fileio.h"

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

static enum attn_status take(struct attn_subjects *externals, const char *flag, const char *value,
                             struct attn_error *err)
{
    struct attn_subject *last = externals->n > 0 ? &externals->one[externals->n - 1] : NULL;
    if (strcmp(flag, "claims") == 0) {
        if (last == NULL || last->route->says_claims || last->claims_path != NULL)
            return attn_fail(err, ATTN_EINVAL,
                             "--claims '%.60s' has no --exec of its own before it: a plug-in says "
                             "itself what it claims",
                             value);
        last->claims_path = value;
        return ATTN_OK;
    }
    if (externals->n == ATTN_SUBJECTS)
        return attn_fail(err, ATTN_EINVAL, "more than %d plug-ins and commands", ATTN_SUBJECTS);
    char *source = externals->source[externals->n];
    struct attn_subject *x = &externals->one[externals->n++];
    *x = (struct attn_subject){.route = attn_subject_route_of(flag), .source = source};
    const char *given = cut_name(value, x->name);
    if (*given == '\0' || strlen(given) >= sizeof *externals->source)
        return attn_fail(err, ATTN_EINVAL, "--%s '%.60s': a text of 1 to %zu bytes is wanted", flag,
                         value, sizeof *externals->source - 1);
    strcpy(source, given);
    return ATTN_OK;
}

/* ---- meeting them ---------------------------------------------------------------------------- */

static void add_file(void *digest, const char *path)
{
    attn_digest_file(digest, path);
}

static void find_digest(struct attn_subject *x)
{
    uint64_t digest = ATTN_DIGEST_BEGIN;
    if (x->claims_path != NULL)
        digest = attn_digest_bytes(digest, x->source, strlen(x->source));
    x->route->files(x, add_file, &digest);
    if (x->claims_path != NULL)
        add_file(&digest, x->claims_path);
    snprintf(x->digest, sizeof x->digest, "%016llx", (unsigned long long)digest);
}

/* The full path of what is loaded: a point may run in another folder. */
static enum attn_status find_path(char *source, size_t size, struct attn_error *err)
{
    char path[4096];
    if (realpath(source, path) == NULL)
        return attn_fault(err, ATTN_EINVAL, source, "%s", strerror(errno));
    if (strlen(path) >= size)
        return attn_fault(err, ATTN_EINVAL, source, "its full path is longer than %zu bytes",
                          size - 1);
    strcpy(source, path);
    return ATTN_OK;
}

static enum attn_status meet(struct attn_subjects *externals, int which, double timeout_s,
                             struct attn_error *err)
{
    struct attn_subject *x = &externals->one[which];
    enum attn_status status = ATTN_OK;
    x->timeout_s = timeout_s;
    if (x->claims_path != NULL)
        status = attn_claims_read(x->claims_path, &x->claims, err);
    else if (!x->route->says_claims)
        return attn_fail(err, ATTN_EINVAL,
                         "--exec '%.200s' needs --claims FILE after it (docs/external.md)",
                         x->source);
    if (status == ATTN_OK)
        status = x->route->try(x, err);
    if (status == ATTN_OK && x->route->load != NULL)
        status = find_path(externals->source[which], sizeof *externals->source, err);
    return status;
}

/* Its own name, in letters that a plan and a file name can hold. */
static void find_name(struct attn_subject *e)
{
    size_t n = 0;
    for (const char *c = e->claims.name; *c != '\0' && n < sizeof e->name - 1; c++)
        if (strchr(name_letters, *c) != NULL)
            e->name[n++] = *c;
        else if (n > 0 && e->name[n - 1] != '-')
            e->name[n++] = '-';
    e->name[n] = '\0';
}

static enum attn_status check_name(const struct attn_subjects *externals, int which,
                                   struct attn_error *err)
{
    const struct attn_subject *e = &externals->one[which];
    const char *flag = e->route->flag;
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

enum attn_status attn_subjects_open(struct attn_subjects *externals,
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
        struct attn_subject *e = &externals->one[i];
        status = meet(externals, i, patience, err);
        if (status != ATTN_OK)
            break;
        if (e->name[0] == '\0')
            find_name(e);
        find_digest(e);
        status = check_name(externals, i, err);
    }
    return status;
}

const struct attn_subject *attn_subjects_find(const struct attn_subjects *externals,
                                              const char *name)
{
    for (int i = 0; externals != NULL && i < externals->n; i++)
        if (strcmp(externals->one[i].name, name) == 0)
            return &externals->one[i];
    return NULL;
}
