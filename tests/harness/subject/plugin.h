/* A plug-in inside the process that loaded it: a struct attn_impl like any other.
 *
 * Everything of this header runs in the worker process (worker.h); nobody else should load code
 * that may crash, hang or write anywhere.
 */
#ifndef TESTS_HARNESS_EXTERNAL_PLUGIN_H
#define TESTS_HARNESS_EXTERNAL_PLUGIN_H

#include "optimized/registry.h"
#include "tests/harness/cases/claims.h"

/* What the plug-in is doing, for the report of a crash. */
enum attn_plugin_phase {
    ATTN_PHASE_LOADING,
    ATTN_PHASE_JUDGING, /* our own code is running */
    ATTN_PHASE_FORWARD,
    ATTN_PHASE_BACKWARD
};

struct attn_plugin_impl {
    struct attn_impl impl; /* first: options.local points here */
    struct attn_spec spec; /* to hand to attn_run_case */
    struct attn_claims claims;
    const struct attn_plugin *plugin;
    char load_environment[96]; /* what loading changed, "" nothing */
    int leave_lse;             /* an absent LSE is left unwritten: nobody will read it */
    /* of the last case: */
    char environment[96];         /* what a call changed                                        */
    char integrity[256];          /* what is wrong with tensors that were made for the call     */
    char message[256];            /* the plug-in's own words; of a refusal nothing else         */
    int64_t sent[2], messages[2]; /* of ranks, in each pass: the most that one of them sends */
    const struct attn_plugin_call *volatile call; /* that is running, for a signal handler  */
    void (*tell)(void *arg, enum attn_plugin_phase phase); /* NULL: nobody asks */
    void *tell_arg;
};

/* A shared object, as dlopen has it; NULL and EINVAL for what is none. */
void *attn_plugin_open(const char *path, struct attn_error *err);

/* Load.  EINVAL with one line: no such file, not a shared object, no attn_plugin_get, another ABI,
 * a declaration that makes no sense.  The struct points into itself: it stays where it is.
 * There is no unload: code that ran may have left threads. */
enum attn_status attn_plugin_load(const char *path, struct attn_plugin_impl *plugin,
                                  struct attn_error *err);

/* A pass of a plug-in that is ranks, on simulated ones: shards of what is in the call are dealt out
 * and collected.  ctx has its seal, if any.  What a plug-in's pass returns, and the message. */
int attn_plugin_run_ranks(struct attn_plugin_impl *plugin, const struct attn_ctx *ctx,
                          const struct attn_problem *problem, enum attn_pass pass,
                          const struct attn_plugin_call *call);

#endif
