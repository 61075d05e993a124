/* Starting processes, watching them, and how they ended: the one module that does.
 *
 * Programs are started by posix_spawn, not by fork: glibc makes it a vfork, so that nothing of the
 * parent is copied, and a parent that once ran OpenMP does no harm.  A fork is for what needs the
 * parent's memory; its parent must be single-threaded.
 */
#ifndef TESTS_HARNESS_PROCESS_H
#define TESTS_HARNESS_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ATTN_PROCESS_LACKS = 3 }; /* exit status of ours: no memory, or no threads */

/* A process that was run.  out and capacity are set before: where its standard output goes, cut at
 * that size and ended by '\0' (NULL: where its standard error goes); and folder: where it runs
 * (NULL: here).  A shell that is told to cd there asks CDPATH, and has folders of its own: "-". */
struct attn_process {
    const char *folder;
    char *out;
    size_t capacity, n_out;
    char last_line[256];        /* of its standard error                                     */
    int exit_status;            /* -1: did not exit                                          */
    int signal;                 /* that ended it; 0: none                                    */
    int timed_out, interrupted; /* we ended it: time limit, attn_process_interrupted()       */
    int is_caller;              /* it is the process that started this one (caller.h)         */
    double wall_s;              /* from before it was started until it had ended             */
    int64_t peak_bytes;         /* peak resident set of the largest of its processes, by wait4; not
                                   below that of the process that started it; -1 unknown     */
    pid_t group;                /* its process group while it runs and has its own, else 0   */
    void (*waits)(double s);    /* set before: called ten times a second while it runs; or NULL */
};

/* Run `attnlab ARGS...` of this very program (args[0] is the subcommand, NULL ends them) for at
 * most `seconds` (INFINITY: no limit).  0, or -1 with errno when it could not be started. */
int attn_process_attnlab(const char *const args[], double seconds, struct attn_process *p);

/* Run `COMMAND FIRST SECOND` by the shell in the same way, in a process group of its own: whatever
 * it has left behind when it ends is ended too. */
int attn_process_shell(const char *command, const char *first, const char *second, double seconds,
                       struct attn_process *p);

/* Run work(arg) in a fork in the same way; it then exits with status 0.  Only the parent prints
 * what it has in its buffers. */
int attn_process_fork(void (*work)(void *arg), void *arg, double seconds, struct attn_process *p);

/* A helper is a fork that serves us: we write requests to `to`, and it writes answers that we read
 * in `from`.  What serve(arg, from, to) starts has not seen what this process does from now on: our
 * memory does not count for it, and no thread of ours is missing in it.  It gets the signal `death`
 * when we die.  0, or -1 with errno. */
struct attn_helper {
    pid_t pid; /* 0: none */
    int to, from;
};
int attn_helper_open(struct attn_helper *h, void (*serve)(void *arg, int from, int to), void *arg,
                     int death);

/* Close the pipes, send the signal (0: none; it leaves where it reads), wait for its end. */
void attn_helper_close(struct attn_helper *h, int number);

/* Memory that is shared with all forks, of zeros, for munmap; NULL with errno. */
void *attn_process_share(size_t bytes);

/* ---- for those who talk with a process while it runs ----------------------------------------- */

/* Start a program ("/proc/self/exe": this one) in a folder (NULL: here); its descriptors 0 to n - 1
 * are these, -1: it reads nothing there.  0, or an error number. */
int attn_process_start(const char *program, const char *const argv[], const char *folder,
                       const int fd[], int n, int own_group, pid_t *pid);

/* Wait for its end, or, with WNOHANG, look for it: 1 and how it ended, 0 not yet, -1 no child. */
int attn_process_reap(pid_t pid, int flags, struct attn_process *p);

/* A pipe that no program inherits, with descriptors from 10, out of the way of others.  0, or -1
 * with errno and both -1. */
int attn_pipe(int end[2]);

/* Exactly `bytes` bytes, in as many parts as the pipe takes: 1, or 0 at its end. */
int attn_pipe_read(int fd, void *to, size_t bytes);
int attn_pipe_write(int fd, const void *from, size_t bytes);

/* Keep the last of lines that arrive in parts, or the one before it where it has just ended. */
void attn_keep_last_line(char *line, size_t size, const char *part, size_t n);

#endif
