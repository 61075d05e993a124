/* A small process that starts commands, so that what they hold can be told from what we hold.
 *
 * The kernel's peak of a child (ru_maxrss) is never below the peak of the process that started it,
 * even after exec: a point with gigabytes of tensors would see its own.  So a launcher is
 * forked before there are any; it holds about a megabyte, less than any program.  It also outlives
 * a point that is killed by just long enough to end the command, with all its processes.
 */
#ifndef EXPERIMENTS_MEASURE_LAUNCHER_H
#define EXPERIMENTS_MEASURE_LAUNCHER_H

#include "tests/harness/process.h"

struct attn_launcher {
    pid_t pid;
    int to, from;
};

/* Fork one.  0, or -1 with errno. */
int attn_launcher_open(struct attn_launcher *launcher);

/* attn_process_shell() in the launcher, without a time limit.  0, or -1 with errno. */
int attn_launcher_run(struct attn_launcher *launcher, const char *command, const char *cases,
                      const char *out, struct attn_process *result);

void attn_launcher_close(struct attn_launcher *launcher);

#endif
