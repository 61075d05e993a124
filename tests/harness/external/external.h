/* An implementation that is not ours, however it is reached: ask it cases, get judged results.
 *
 *      open  ->  ask, ask, ...  ->  close
 *
 * Three routes answer: a plug-in in a process of its own (worker.h), a command that is started once
 * for all cases of a question (exec.h), and a folder of results that lies there already.  The
 * struct is filled by its owner, claims included, but for those of a plug-in, which says them.
 */
#ifndef TESTS_HARNESS_EXTERNAL_EXTERNAL_H
#define TESTS_HARNESS_EXTERNAL_EXTERNAL_H

#include "tests/harness/cases/claims.h"
#include "tests/harness/faults/diagnose.h"

/* What became of one case. */
struct attn_answer {
    struct attn_result result; /* verdicts REFUSED, CRASH, TIMEOUT, ERROR among them           */
    unsigned needs;            /* the claims that the case asked for                           */
    struct attn_diagnosis diagnosis; /* what a failure looks like                              */
    double seconds;       /* that calling and judging took, or judging files alone        */
    int not_reached;      /* nobody came to it, which is an ERROR                         */
    int64_t hwm_bytes;    /* of a plug-in: VmHWM of its process so far; -1 unknown         */
    char environment[96]; /* of a plug-in: what a call did to the floating-point environment */
};

struct attn_external_case {
    const char *name; /* of its folder, where it has one: no two of an external are the same */
    const struct attn_case *c;
};

enum attn_external_kind {
    ATTN_NOT_EXTERNAL, /* one of ours: it has a word and a route like the others, and no more */
    ATTN_EXTERNAL_PLUGIN,
    ATTN_EXTERNAL_COMMAND,
    ATTN_EXTERNAL_FOLDER
};

struct attn_external {
    enum attn_external_kind kind;
    const char *source; /* path of a plug-in, command line, or folder of results (borrowed)     */
    struct attn_claims claims;
    double timeout_s; /* of a plug-in: for loading, and each call; of a command: for all starts
                         of a question                                                          */
    const char
        *work; /* of a command: the folder of its files, which stays; NULL: none (borrowed) */
    void (*note)(const char *line); /* of a command: how its starts went; NULL: nobody asks     */
    int not_reached;                /* cases and relations so far                               */
    double diagnosed_s;             /* private: time spent on diagnoses                         */
    struct attn_worker *worker;     /* of a plug-in, for its notes (worker.h)                   */
    struct attn_exec *command;      /* private                                                  */
};

enum attn_route attn_external_route(enum attn_external_kind kind); /* of claims */
const char *attn_external_word(enum attn_external_kind kind);      /* "plug-in", "command" */

/* EINVAL: a plug-in does not load, a folder is none; ENOMEM: no process, no folder.  Nothing is to
 * be closed then. */
enum attn_status attn_external_open(struct attn_external *x, struct attn_error *err);

/* Ask n cases, each as often as `how` says where a plug-in answers, and fill answer[n].  fresh: in
 * a process that has not yet judged anything.  Whatever the cases do to the implementation is in
 * the answers.  EINVAL: a command cannot be run, or does not start; ENOMEM: we could not do our
 * part.  There are no answers then. */
enum attn_status attn_external_ask(struct attn_external *x, const struct attn_external_case *cases,
                                   int n, const struct attn_repetition *how, int fresh,
                                   struct attn_answer *answer, struct attn_error *err);

/* Of a plug-in: a relation (relations.h), and the case called up to 12 times more: PASS, or
 * FAIL(memory) when memory is lost each time. */
void attn_external_relation(struct attn_external *x, const char *id, struct attn_answer *answer);
void attn_external_leak(struct attn_external *x, const struct attn_case *c,
                        struct attn_answer *answer);

/* Of so many that were not reached: why, in one line. */
void attn_external_unreached(const struct attn_external *x, int n, char *text, size_t size);

/* End its process, remove its files.  x->worker is gone then. */
void attn_external_close(struct attn_external *x);

#endif
