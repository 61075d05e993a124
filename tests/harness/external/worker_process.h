/* The process of a guest, seen from the host: its start, its end, and that of what it started. */
#ifndef TESTS_HARNESS_EXTERNAL_WORKER_PROCESS_H
#define TESTS_HARNESS_EXTERNAL_WORKER_PROCESS_H

#include "tests/harness/external/worker.h"

/* Start a guest with its pipes, in a process group of its own.  0, or an error number. */
int attn_guest_start(struct attn_guest *guest);

/* End a guest that is dead, or is to be, with all that it started; guest->signal and exit_status
 * say how it had ended. */
void attn_guest_bury(struct attn_guest *guest);
void attn_guest_close_pipes(struct attn_guest *guest);

/* Send the children of this process and of the guest (0: none), but for the guest, a signal (0:
 * none); how many there were. */
int attn_guest_signal_children(pid_t guest, int number);

/* SIGINT, SIGTERM and SIGHUP, where they end the host, end the guest as well. */
void attn_guest_catch_endings(void);

#endif
