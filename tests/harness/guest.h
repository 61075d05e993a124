/* A plug-in in a process of its own.
 *
 * The host starts this very program again (`attnlab guest FILE`) and sends it one case string a
 * line ("!CASE" looks for leaks, "?ID" is a relation); the guest loads the plug-in, runs and judges
 * each with the same code that judges everybody, and sends the result back.  A guest that dies or
 * does not end costs one case: the next one gets a fresh guest.
 */
#ifndef TESTS_HARNESS_GUEST_H
#define TESTS_HARNESS_GUEST_H

#include <sys/types.h>

#include "tests/harness/plugin.h"

/* What became of one case. */
struct attn_guest_reply {
    struct attn_result result; /* verdicts REFUSED, CRASH, TIMEOUT, ERROR among them          */
    unsigned needs;            /* the claims that the case asked for                          */
    int64_t hwm_bytes;         /* VmHWM of the guest so far; -1 unknown                       */
    char environment[96];      /* what a call did to the floating-point environment; "" good  */
    char diagnosis[256];       /* what a failure looks like; "" unknown                       */
};

struct attn_guest {
    const char *path; /* borrowed */
    double timeout_s; /* for loading, and for each case; a relation has ten times as long */
    struct attn_claims claims;
    char load_environment[96];
    int restarts; /* guests that were lost */
    /* private */
    pid_t pid;
    int to, from, noise; /* requests, messages, what the plug-in prints */
    char last_line[200];
    int phase;
    char fault[160];
    int signal, exit_status, timed_out;
    double allowed_s; /* for what is running now */
};

/* Start a guest and load the plug-in.  EINVAL: it cannot be loaded, crashes or hangs while it is;
 * ENOMEM: no process could be started. */
enum attn_status attn_guest_open(const char *path, double timeout_s, struct attn_guest *guest,
                                 struct attn_error *err);
void attn_guest_close(struct attn_guest *guest);

/* Run one case; whatever happens is in the reply. */
void attn_guest_run(struct attn_guest *guest, const struct attn_case *c,
                    struct attn_guest_reply *reply);

/* Run one relation (relations.h). */
void attn_guest_relation(struct attn_guest *guest, const char *id, struct attn_guest_reply *reply);

/* Run the case a dozen times and look for memory that is lost each time: PASS, or FAIL(memory). */
void attn_guest_leak(struct attn_guest *guest, const struct attn_case *c,
                     struct attn_guest_reply *reply);

/* The guest's own main; never returns before the host closes the pipe.  An exit status. */
int attn_guest_serve(const char *path);

/* ---- what goes over the pipe ----------------------------------------------------------------- */

enum attn_guest_kind {
    ATTN_GUEST_HELLO = 0x48454c4f, /* struct attn_guest_hello  */
    ATTN_GUEST_PHASE,              /* int                      */
    ATTN_GUEST_FAULT,              /* text                     */
    ATTN_GUEST_REPLY,              /* struct attn_guest_reply  */
    ATTN_GUEST_SORRY               /* text: it cannot be loaded */
};
struct attn_guest_message {
    uint32_t kind, bytes;
};
struct attn_guest_hello {
    struct attn_claims claims;
    char load_environment[96];
};
/* Descriptors of the guest: it reads requests from one and writes messages to the other. */
enum { ATTN_GUEST_FD = 3, ATTN_GUEST_REQUESTS = 4 };

#endif
