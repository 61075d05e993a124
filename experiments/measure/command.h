/* An external implementation's command: started once, watched, and killed with all its children
 * when it is late. */
#ifndef EXPERIMENTS_MEASURE_COMMAND_H
#define EXPERIMENTS_MEASURE_COMMAND_H

#include <stdint.h>
#include <sys/types.h>

struct attn_command {
    char last_line[200];     /* of what it printed to stdout and stderr together */
    int exit_status, signal; /* -1: did not exit; 0: no signal                   */
    int timed_out;
    double wall_s;        /* from before it was started until it had ended                  */
    int64_t peak_bytes;   /* peak resident set of the largest of its processes, by wait4; not below
                           that of the process that started it (launcher.h); -1 unknown   */
    volatile pid_t group; /* its process group while it runs, else 0 */
};

/* Run `COMMAND CASES OUT` by the shell, for at most timeout_s seconds; what it prints, megabytes of
 * it if it likes, is read and dropped.  0, or -1 with errno when no shell could be started. */
int attn_command_run(const char *command, const char *cases, const char *out, double timeout_s,
                     struct attn_command *result);

#endif
