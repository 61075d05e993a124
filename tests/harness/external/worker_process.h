/* The process of a worker, seen from the host: its start, its end, and that of what it started. */
#ifndef TESTS_HARNESS_EXTERNAL_WORKER_PROCESS_H
#define TESTS_HARNESS_EXTERNAL_WORKER_PROCESS_H

#include "tests/harness/external/worker.h"

/* Start a worker with its pipes, in a process group of its own.  0, or an error number. */
int attn_worker_start(struct attn_worker *worker);

/* End a worker that is dead, or is to be, with all that it started; worker->signal and exit_status
 * say how it had ended. */
void attn_worker_bury(struct attn_worker *worker);
void attn_worker_close_pipes(struct attn_worker *worker);

/* Send the children of this process and of the worker (0: none), but for the worker, a signal (0:
 * none); how many there were. */
int attn_worker_signal_children(pid_t worker, int number);

/* SIGINT, SIGTERM and SIGHUP, where they end the host, end the worker as well. */
void attn_worker_catch_endings(void);

#endif
