/* A plug-in in a process of its own.
 *
 * The host starts this very program again (`attnlab guest FILE`) and sends it one question a line;
 * the guest loads the plug-in, runs and judges each with the same code that judges everybody, and
 * sends the result back.  A guest that dies or does not end costs one question: the next one gets
 * a fresh guest.
 *
 * A plug-in may fork, and both processes would serve the same pipes.  So every message carries the
 * number of its question and the process that sends it.  A process that is not the guest says what
 * was asked when it was forked, and leaves; the host then ends the guest's whole process group, and
 * every process that has become a child of the host meanwhile (orphans do: PR_SET_CHILD_SUBREAPER).
 * While a guest lives, the host starts no other process.
 */
#ifndef TESTS_HARNESS_EXTERNAL_WORKER_H
#define TESTS_HARNESS_EXTERNAL_WORKER_H

#include <sys/types.h>

#include "tests/harness/external/plugin.h"
#include "tests/harness/faults/diagnose.h"

/* What became of one case. */
struct attn_guest_reply {
    struct attn_result result; /* verdicts REFUSED, CRASH, TIMEOUT, ERROR among them          */
    unsigned needs;            /* the claims that the case asked for                          */
    int64_t hwm_bytes;         /* VmHWM of the guest so far; -1 unknown                       */
    char environment[96];      /* what a call did to the floating-point environment; "" good  */
    struct attn_diagnosis diagnosis; /* what a failure looks like                             */
    int not_reached; /* it was not asked                                            */
};

struct attn_guest {
    const char *path; /* borrowed */
    double timeout_s; /* for loading, and for every call of the plug-in; see attn_guest_ask */
    struct attn_claims claims;
    char load_environment[96];
    int restarts; /* guests that were lost                                               */
    int strays;   /* processes that the plug-in left behind, ended with their guest      */
    int unasked;  /* errno of a question that could not be put, or 0                     */
    int failures; /* questions without an end, and guests that did not start: after
                     ATTN_GUEST_FAILURES of them nothing is asked                        */
    /* A process that the plug-in forked spoke when the question was done: its number, 0 none, and
     * the question as it was asked, "" while it was loaded. */
    int fork_pid;
    char fork_question[ATTN_CASE_TEXT];
    /* private */
    pid_t pid;
    int to, from, noise; /* requests, messages, what the plug-in prints */
    unsigned number;     /* of the question                             */
    char last_line[200];
    int phase;
    char fault[160];
    int signal, exit_status;
    double allowed_s, whole_s; /* for one call, and for all of the question */
    double late_s;             /* the one of both that was not kept         */
    int alone;                 /* the host had no other child when it was opened */
};
enum { ATTN_GUEST_FAILURES = 3 };

/* Start a guest and load the plug-in.  EINVAL: it cannot be loaded, crashes or hangs while it is;
 * ENOMEM: no process could be started. */
enum attn_status attn_guest_open(const char *path, double timeout_s, struct attn_guest *guest,
                                 struct attn_error *err);

/* End it, and all that it started.  guest->strays and fork_pid may be other ones then. */
void attn_guest_close(struct attn_guest *guest);

/* End this one; the next question gets a fresh one. */
void attn_guest_renew(struct attn_guest *guest);

/* What is asked. */
enum attn_guest_ask {
    ATTN_GUEST_CASE = 'c',
    ATTN_GUEST_RELATION = 'r', /* relations.h; the text is its id                               */
    ATTN_GUEST_LEAK = 'l'      /* run the case a dozen times; PASS, or FAIL(memory) when memory is
                                  lost each time                                                */
};

/* Ask, for a case as often as `how` says (NULL: once).  Whatever happens is in the reply.  The
 * plug-in has timeout_s for each of its calls; all of them together have ten times as long in a
 * relation, else once for each run.  ERROR with not_reached: it failed too often before. */
void attn_guest_ask(struct attn_guest *guest, enum attn_guest_ask what, const char *text,
                    const struct attn_repetition *how, struct attn_guest_reply *reply);
void attn_guest_run(struct attn_guest *guest, const struct attn_case *c,
                    const struct attn_repetition *how, struct attn_guest_reply *reply);

/* The guest's own main; never returns before the host closes the pipe.  An exit status. */
int attn_guest_serve(const char *path);

/* ---- what goes over the pipe ----------------------------------------------------------------- */

enum attn_guest_kind {
    ATTN_GUEST_HELLO = 0x48454c4f, /* struct attn_guest_hello  */
    ATTN_GUEST_PHASE,              /* int                      */
    ATTN_GUEST_FAULT,              /* text                     */
    ATTN_GUEST_REPLY,              /* struct attn_guest_reply  */
    ATTN_GUEST_SORRY,              /* text: it cannot be loaded */
    ATTN_GUEST_FORKED              /* text: the question during which this process was forked */
};
struct attn_guest_message {
    uint32_t kind, bytes, number; /* number: of the question, 0 before the first */
    int32_t pid;                  /* of the process that sends                   */
};
/* What is written at once arrives in one piece, whoever else writes to the pipe. */
_Static_assert(sizeof(struct attn_guest_message) + sizeof(struct attn_guest_reply) <= 4096,
               "a reply must be smaller than PIPE_BUF");
struct attn_guest_hello {
    struct attn_claims claims;
    char load_environment[96];
};
/* Descriptors of the guest: it reads requests from one and writes messages to the other. */
enum { ATTN_GUEST_FD = 3, ATTN_GUEST_REQUESTS = 4 };

#endif
