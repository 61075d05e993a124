/* A fresh process of this very program, by exec: what it printed and how it ended. */
#ifndef EXPERIMENTS_MEASURE_CHILD_H
#define EXPERIMENTS_MEASURE_CHILD_H

#include <stddef.h>

enum { ATTN_CHILD_OUTPUT = 1 << 16 };

struct attn_child {
    char out[ATTN_CHILD_OUTPUT]; /* its standard output, cut at this size, ended by '\0' */
    size_t n_out;
    char note[256];             /* the last line of its standard error           */
    int exit_status;            /* -1: did not exit                              */
    int signal;                 /* that killed it; 0: none                       */
    int timed_out, interrupted; /* we killed it: time limit, attn_child_interrupted() */
    double wall_s;
};

/* Run `attnlab ARGS...` (args[0] is the subcommand, NULL ends them) for at most timeout_s seconds
 * (0: no limit).  Returns 0, or -1 with errno when it could not be started. */
int attn_child_run(const char *const args[], double timeout_s, struct attn_child *child);

/* From now on SIGINT, SIGTERM and SIGHUP do not end this process but make
 * attn_child_interrupted() true, and end the child that is running. */
void attn_child_catch_interrupts(void);
int attn_child_interrupted(void);

#endif
