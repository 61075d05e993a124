/* A plug-in in a process of its own.
 *
 * The host starts this very program again (`attnlab worker FILE`) and sends it one question a line;
 * the worker loads the plug-in, runs and judges each with the same code that judges everybody, and
 * sends the result back.  A worker that dies or does not end costs one question: the next one gets
 * a fresh worker.
 *
 * A plug-in may write to the worker's pipe too.  So every message carries the number of its
 * question, which the host draws, and the process that sends it; what does not is no message.
 *
 * A plug-in may fork, and both processes would serve the same pipes.  A process that is not the
 * worker says so, and leaves; the worker answers when it has left, or has not for
 * ATTN_WORKER_FORK_S.  With a worker the host ends its whole process group, and
 * every process that has become a child of the host meanwhile (orphans do: PR_SET_CHILD_SUBREAPER).
 * While a worker lives, the host starts no other process.
 */
#ifndef TESTS_HARNESS_EXTERNAL_WORKER_H
#define TESTS_HARNESS_EXTERNAL_WORKER_H

#include <sys/types.h>

#include "tests/harness/subject/external.h"
#include "tests/harness/subject/plugin.h"

struct attn_worker {
    const char *path; /* borrowed */
    double timeout_s; /* for loading, and for every call of the plug-in; see attn_worker_ask */
    double until;     /* on CLOCK_MONOTONIC: then nothing is asked, and what is at work is ended */
    struct attn_claims claims;
    char load_environment[96];
    int restarts; /* workers that were lost                                               */
    int strays;   /* processes that the plug-in left behind, ended with their worker      */
    int unasked;  /* errno of a question that could not be put, or 0                     */
    int failures; /* questions without an end, and workers that did not start: after
                     ATTN_WORKER_FAILURES of them nothing is asked                        */
    /* private */
    pid_t pid;
    int to, from, noise; /* requests, messages, what the plug-in prints */
    unsigned number;     /* of the question, 0 before the first         */
    char last_line[200];
    int phase;
    char fault[160];
    int signal, exit_status;
    double allowed_s, whole_s; /* for one call, and for all of the question */
    double late_s;             /* the one of both that was not kept         */
    int alone;                 /* the host had no other child when it was opened */
};
enum { ATTN_WORKER_FAILURES = 3, ATTN_WORKER_FORK_S = 1 };

/* Start a worker and load the plug-in, with timeout_s and until set.  EINVAL: it cannot be loaded,
 * crashes or hangs while it is; ENOMEM: no process could be started, or no time is left. */
enum attn_status attn_worker_open(const char *path, double timeout_s, double until,
                                  struct attn_worker *worker, struct attn_error *err);

/* End it, and all that it started; worker->strays is known then. */
void attn_worker_close(struct attn_worker *worker);

/* End this one; the next question gets a fresh one. */
void attn_worker_renew(struct attn_worker *worker);

/* What is asked. */
enum attn_worker_ask {
    ATTN_WORKER_CASE = 'c',
    ATTN_WORKER_RELATION = 'r', /* relations.h; the text is its id                               */
    ATTN_WORKER_LEAK = 'l'      /* run the case up to 40 times; PASS, or FAIL(memory) when memory is
                                  lost each time                                                */
};

/* Ask, for a case as often as `how` says (NULL: once).  Whatever happens is in the answer.  The
 * plug-in has timeout_s for each of its calls; all of them together have ten times as long in a
 * relation or a look for leaks, else once for each run.  ERROR with not_reached: it failed too
 * often before, or no time is left. */
void attn_worker_ask(struct attn_worker *worker, enum attn_worker_ask what, const char *text,
                     const struct attn_repetition *how, struct attn_answer *answer);

/* The worker's own main; never returns before the host closes the pipe.  An exit status. */
int attn_worker_serve(const char *path);

/* ---- what goes over the pipe ----------------------------------------------------------------- */

enum attn_worker_kind {
    ATTN_WORKER_HELLO = 0x48454c4f, /* struct attn_worker_hello  */
    ATTN_WORKER_PHASE,              /* int                      */
    ATTN_WORKER_FAULT,              /* text                     */
    ATTN_WORKER_REPLY,              /* struct attn_answer       */
    ATTN_WORKER_SORRY,              /* text: it cannot be loaded */
    ATTN_WORKER_FORKED              /* nothing: it comes from a process that was forked */
};
struct attn_worker_message {
    uint32_t kind, bytes, number; /* number: of the question, 0 before the first */
    int32_t pid;                  /* of the process that sends                   */
};
/* What is written at once arrives in one piece, whoever else writes to the pipe. */
_Static_assert(sizeof(struct attn_worker_message) + sizeof(struct attn_answer) <= 4096,
               "a reply must be smaller than PIPE_BUF");
struct attn_worker_hello {
    struct attn_claims claims;
    char load_environment[96];
};
/* Descriptors of the worker: it reads requests from one and writes messages to the other. */
enum { ATTN_WORKER_FD = 3, ATTN_WORKER_REQUESTS = 4 };

#endif
