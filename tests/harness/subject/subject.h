/* A subject: an implementation that is run, ours or not, however it is reached.
 *
 *      open  ->  ask, ask, ...  ->  close            cases, and judged results
 *      try                                           whether it runs, before it is measured
 *      load  ->  calls of x->spec                    measured in this process
 *
 * Five routes answer: a spec of ours (own.c), a plug-in in a process of its own (plugin_host.h), a
 * command that is started once for all cases of a question (exec.h), the process that started this
 * one (caller.h), and a folder of results that lies there already (routes.c).  The struct is filled
 * by its owner, claims included, but for those of a plug-in, which says them.
 */
#ifndef TESTS_HARNESS_SUBJECT_SUBJECT_H
#define TESTS_HARNESS_SUBJECT_SUBJECT_H

#include <stdio.h>

#include "tests/harness/cases/claims.h"
#include "tests/harness/judge/runner.h"

/* The outcome of one case. */
struct attn_answer {
    struct attn_result result; /* verdicts REFUSED, CRASH, TIMEOUT, ERROR among them           */
    struct attn_wants wants;   /* the claims that it asked for, and why it was refused by them */
    double seconds;            /* that calling and judging took, or judging files alone        */
    int not_reached;           /* it was not asked, which is an ERROR                          */
    int64_t hwm_bytes;         /* of a plug-in: VmHWM of its process so far; -1 unknown         */
    char environment[96];      /* of a plug-in: what a call did to the floating-point environment */
    int64_t sent[2], messages[2]; /* of a plug-in that is ranks: bytes and messages of that rank
                                     which sends most, in each pass */
};

/* A case that is asked. */
struct attn_asked {
    char name[200];                          /* of its folder too: no two of an external alike */
    const struct attn_battery_case *battery; /* NULL: it is none of it                         */
    struct attn_case c;
    /* of a command only, all 0 before it is asked: */
    int written;               /* it was among the cases of the first start           */
    int settled;               /* it has its results, or broke the command            */
    int not_reached;           /* the command died before it came to this one         */
    enum attn_verdict without; /* what a case without results is ...                  */
    char said[300];            /* ... and why; "": there was no command               */
};

struct attn_subject {
    const struct attn_subject_route *route;
    const char *source;      /* path of a plug-in, command line, folder of results, the words that
                           start the caller again; of ours its spec (borrowed)                 */
    const char *claims_path; /* the file that has its claims, or NULL (borrowed)                */
    char name[32];           /* where it is measured: in plans, records, legends                */
    char digest[24];         /* then too: of its files                                          */
    struct attn_claims claims;
    char scheme[256]; /* of files: results are those of its ranks (rank_steps.h); "".  Of a
                         command, claims.ranks says how many there are                          */
    double timeout_s; /* of ours: for each case or relation, 0: no limit; of a plug-in: for
                         loading, and each call; of a command: for all starts; of the caller:
                         for a batch of cases                                                  */
    double until;     /* when nothing more is asked of it, and what runs is ended; on
                         CLOCK_MONOTONIC; 0: never                                             */
    int not_reached;  /* cases and relations so far                                            */
    int strays;       /* processes that it left behind; of a plug-in: once it is closed         */
    /* of ours, of a plug-in and of the caller: */
    struct attn_repetition how; /* how often it is asked each case                             */
    /* of ours: */
    struct attn_spec spec;
    struct attn_subject *next; /* is asked together with this one, or NULL                     */
    int is_in_place;           /* in this process, which is a rank                             */
    int diagnoses;             /* a failure is to be diagnosed                                 */
    /* of a plug-in: */
    struct attn_plugin_host *host;   /* for its notes (plugin_host.h)                          */
    struct attn_plugin_impl *plugin; /* once it is loaded here                                 */
    /* of a command, and of the caller: */
    const char *work; /* the folder of its files, which stays; NULL: none (borrowed)           */
    FILE *notes;      /* how its starts went                                                   */
    void (*waits)(double s); /* called while it runs (process.h); or NULL */
    char meddled[200]; /* a file of its cases that it changed; ""                               */
    struct attn_exec *command; /* private                                                      */
    enum attn_verdict gone;    /* of the caller: CRASH or TIMEOUT, and it is asked nothing more  */
    double diagnosed_s;        /* private: time spent on diagnoses                             */
    int same_afresh;           /* private: cases that failed in a fresh process, too            */
};

/* How each is asked.  Functions that are NULL are not for it. */
struct attn_relation;
struct attn_subject_route {
    const char *word;      /* "plug-in", "command" */
    const char *flag;      /* of attnlab, before its source; of ours "" */
    enum attn_route route; /* of claims */
    int says_claims;       /* else a file has them */
    int at_once;           /* cases that are asked at a time; 0: all */
    int soak_calls;        /* of each random case; 1: it is asked many of them at once */
    double usual_s;        /* its timeout_s where no other is wanted */

    /* EINVAL: a plug-in does not load, a folder is none; ENOMEM: no process, no folder.  Nothing is
     * to be closed then. */
    enum attn_status (*open)(struct attn_subject *x, struct attn_error *err);

    /* Ask n cases, and fill answer[n]; where x has others next to it, [n][those].  An answer has
     * all that its case did to the implementation.  EINVAL: a command cannot be run, or does not
     * start; ENOMEM: we could not do our part.  There are no answers then. */
    enum attn_status (*ask)(struct attn_subject *x, struct attn_asked *asked, int n,
                            struct attn_answer *answer, struct attn_error *err);

    /* End its process, remove its files.  x->host is gone then. */
    void (*close)(struct attn_subject *x);

    /* Ask a relation (relations.h). */
    void (*relation)(struct attn_subject *x, const struct attn_relation *relation,
                     struct attn_answer *answer);

    /* Of x->not_reached: why, in one line.  NULL: every case is reached. */
    void (*unreached)(const struct attn_subject *x, char *text, size_t size);

    /* Call the case up to 40 times more.  PASS, or FAIL(memory) when memory is lost each time. */
    void (*leak)(struct attn_subject *x, const struct attn_case *c, struct attn_answer *answer);

    /* End its process; the next case gets a fresh one. */
    void (*renew)(struct attn_subject *x);

    /* Does it run at all?  Before it is measured, with its claims where it does not say them: as
     * open; EINVAL also where it does not do its part of a tiny case. */
    enum attn_status (*try)(struct attn_subject *x, struct attn_error *err);

    /* Take it into this process, to be called as x->spec.  NULL: it is started on a case (exec.h).
     * EINVAL: no such spec; it does not load, or cannot be called so that its time is its own. */
    enum attn_status (*load)(struct attn_subject *x, struct attn_error *err);

    /* Call see(arg, path) for each file that it is made of; a path may be of none. */
    void (*files)(const struct attn_subject *x, void (*see)(void *arg, const char *path),
                  void *arg);
};
extern const struct attn_subject_route attn_own_route, attn_plugin_route, attn_exec_route,
    attn_caller_route, attn_folder_route;

/* That of a flag or a word; NULL: none has it. */
const struct attn_subject_route *attn_subject_route_of(const char *name);

/* The files of one whose source is one, as its route has it. */
void attn_subject_one_file(const struct attn_subject *x, void (*see)(void *arg, const char *path),
                           void *arg);

/* Seconds up to x->until: 0 or less when it is past, INFINITY when there is no such time. */
double attn_subject_left(const struct attn_subject *x);

/* For one of ours: fork, let the child call judge(arg, i, result) for each i below n, and bring the
 * results back, with their seconds.  CRASH when the child was ended by a signal or left without a
 * result, TIMEOUT after x->timeout_s of one judgement, with one line in result->text; ERROR when no
 * child could be made, or when it left with ATTN_PROCESS_LACKS.  After any of these, and after a
 * bad result, another child goes on with the next.  The caller must be single-threaded. */
void attn_own_judge(const struct attn_subject *x,
                    void (*judge)(void *arg, int i, struct attn_result *result), void *arg, int n,
                    struct attn_answer *answer);

/* From now on a command is asked what each rank of a scheme holds at each step.  EINVAL: no
 * scheme. */
enum attn_status attn_subject_set_scheme(struct attn_subject *x, const char *scheme,
                                         struct attn_error *err);

/* Set up a case that is claimed: 1; 0 and its answer, REFUSED or ERROR, with nothing to close. */
int attn_subject_setup(const struct attn_subject *x, const struct attn_case *c,
                       struct attn_setup *setup, struct attn_answer *answer);

/* 1: everything that the case wants is in a folder of results, of each of its ranks where it
 * has some, or the program's own words why not. */
int attn_subject_done(const struct attn_subject *x, const char *results,
                      const struct attn_asked *asked);

/* Judge a case by the files in a folder of results. */
void attn_subject_judge(struct attn_subject *x, const struct attn_asked *asked, const char *results,
                        struct attn_answer *answer);

#endif
