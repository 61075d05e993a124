/* A plug-in as a struct attn_impl like any other: in the process that loaded it, or in another one
 * (plugin_host.h), as code that may crash, hang or write anywhere should be.
 */
#ifndef TESTS_HARNESS_SUBJECT_PLUGIN_H
#define TESTS_HARNESS_SUBJECT_PLUGIN_H

#include "optimized/registry.h"
#include "tests/harness/cases/claims.h"

/* The work of the plug-in at this moment, for the report of a crash. */
enum attn_plugin_phase {
    ATTN_PHASE_LOADING,
    ATTN_PHASE_JUDGING, /* our own code is running */
    ATTN_PHASE_FORWARD,
    ATTN_PHASE_BACKWARD
};

/* Facts about calls, beside their results. */
struct attn_plugin_notes {
    char environment[96];         /* what one of them changed                                   */
    char integrity[256];          /* what is wrong with tensors that were made for it           */
    int64_t sent[2], messages[2]; /* of ranks, in each pass: the most that one of them sends */
};

struct attn_plugin_impl {
    struct attn_impl impl; /* first: options.local points here */
    struct attn_spec spec; /* to hand to attn_run_case */
    struct attn_claims claims;
    const struct attn_plugin *plugin; /* NULL: another process has it */
    struct attn_plugin_host *host;    /* NULL: this process has it; else */
    int (*call_apart)(struct attn_plugin_host *host, enum attn_pass pass, int is_clean,
                      struct attn_plugin_call *call); /* calls it there */
    char load_environment[96];                        /* what loading changed, "" nothing */
    uint64_t seed;     /* of the case, for the order of pages and gaps between documents */
    int leave_lse;     /* an absent LSE is left unwritten: it will not be read */
    char message[256]; /* of the last call: the plug-in's own words; of a refusal nothing else */
    struct attn_plugin_notes notes;
    void (*tell)(void *arg, enum attn_plugin_phase phase); /* or NULL */
    void *tell_arg;
};

/* A shared object, as dlopen has it; NULL and EINVAL for what is none. */
void *attn_plugin_open(const char *path, struct attn_error *err);

/* Load.  EINVAL with one line: no such file, not a shared object, no attn_plugin_get, another ABI,
 * a declaration that makes no sense.  The struct points into itself: it stays where it is.
 * There is no unload: code that ran may have left threads. */
enum attn_status attn_plugin_load(const char *path, struct attn_plugin_impl *plugin,
                                  struct attn_error *err);

/* Its struct attn_impl, from its claims. */
void attn_plugin_make_impl(struct attn_plugin_impl *plugin);

/* One call, here, the environment put back behind it.  seal: for ranks, or NULL.  Gives
 * what it returned, and the message; plugin->notes. */
int attn_plugin_call(struct attn_plugin_impl *plugin, enum attn_pass pass,
                     const struct attn_seal *seal, struct attn_plugin_call *call);

/* A pass of a plug-in that is ranks, on simulated ones: shards of what is in the call are dealt out
 * and collected.  Gives what a plug-in's pass returns, and the message. */
int attn_plugin_run_ranks(struct attn_plugin_impl *plugin, enum attn_pass pass,
                          const struct attn_seal *seal, const struct attn_plugin_call *call);

#endif
