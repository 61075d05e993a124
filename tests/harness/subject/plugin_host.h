/* A plug-in in a process of its own, which does nothing but call it.
 *
 * The host forks a starter before anything else, and the starter forks the process that loads the
 * plug-in, again whenever one was lost.  So no such process has seen a result of ours, and none is
 * forked from a process with threads: an OpenMP region would hang in it.  Tensors lie in memory
 * that all of them share (base/pages.h).  For each call the host puts it into the shared struct
 * below and writes a byte to a pipe; the process calls the plug-in and writes a byte back.  A
 * process that dies or does not end costs one question: the next one gets a fresh process.
 *
 * That is protection against accidents.  A plug-in that means harm can write what it likes to
 * the shared memory, as it can to its own outputs.
 */
#ifndef TESTS_HARNESS_SUBJECT_PLUGIN_HOST_H
#define TESTS_HARNESS_SUBJECT_PLUGIN_HOST_H

#include <sys/types.h>

#include "tests/harness/base/process.h"
#include "tests/harness/subject/plugin.h"
#include "tests/harness/subject/subject.h"

struct attn_plugin_host {
    const char *path; /* borrowed */
    double timeout_s; /* for loading, and for every call; see attn_plugin_host_begin */
    double until;     /* on CLOCK_MONOTONIC: then nothing is called, and what runs is ended */
    struct attn_plugin_impl plugin; /* as a runner calls it */
    int restarts;                   /* processes that were lost                             */
    int failures;  /* questions without an end, and processes that did not start: after
                     ATTN_PLUGIN_FAILURES of them nothing is asked                          */
    int64_t calls; /* of the process that runs now                         */
    struct attn_plugin_shared *shared; /* see below                                            */
    /* private */
    struct attn_helper starter; /* a byte to it starts one; a byte from it: that one has ended */
    int is_running;
    int to, from, noise; /* our ends of the pipes of the one that runs */
    char last_line[200];
    double whole_s, used_s; /* seconds of all calls of a question: allowed, and used */
    double late_s;          /* the limit that was not kept */
    int phase, arrival;     /* of the call that had no end */
    int is_lost;            /* the question has no answer */
};
enum { ATTN_PLUGIN_FAILURES = 3 };

/* Start a process and load the plug-in.  EINVAL: it cannot be loaded, crashes or hangs while it is;
 * ENOMEM: no process could be started, or no time is left.  One host at a time is open. */
enum attn_status attn_plugin_host_open(const char *path, double timeout_s, double until,
                                       struct attn_plugin_host *host, struct attn_error *err);

/* End everything that it started. */
void attn_plugin_host_close(struct attn_plugin_host *host);

/* End this process; the next question gets a fresh one. */
void attn_plugin_host_renew(struct attn_plugin_host *host);

/* Before a question: 1, or 0 with an answer, as it failed too often before, or no time is left.  A
 * call has timeout_s; all of a question together `times` as long. */
int attn_plugin_host_begin(struct attn_plugin_host *host, double times, struct attn_answer *answer);

/* After it: where its process was lost, the answer says how. */
void attn_plugin_host_end(struct attn_plugin_host *host, struct attn_answer *answer);

/* ---- what the processes share ---------------------------------------------------------------- */

struct attn_plugin_shared {
    /* of the process */
    volatile pid_t pid; /* -1: it could not be forked */
    int error;          /* errno, then                */
    struct attn_process end;
    int strays; /* processes that the plug-in left behind, ended with its own */
    /* of loading it */
    enum attn_status status;
    char text[600];
    struct attn_claims claims;
    char load_environment[96];
    /* of a call */
    volatile unsigned asked, answered; /* their numbers */
    enum attn_pass pass;
    int is_clean, returned;
    struct attn_plugin_call call;
    char message[256];
    struct attn_plugin_notes notes;
    void *volatile hit; /* an address in an input that it wrote to */
    char fault[160];    /* how it was about to end                */
    int64_t taken[2];   /* bytes of malloc, and mapped            */
};

/* The other process, from its start to its end (plugin_child.c). */
void attn_plugin_serve(const char *path, struct attn_plugin_shared *shared, int requests,
                       int answers) __attribute__((noreturn));

#endif
