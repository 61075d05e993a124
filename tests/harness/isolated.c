/* See isolated.h.  The result is one struct in memory that parent and child share: what it points
 * to (names of outputs) is static, and stands at the same address in both. */
#include "tests/harness/isolated.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/harness/process.h"

struct judgement {
    void (*judge)(void *arg, struct attn_result *result);
    void *arg;
    int is_whole;
    struct attn_result result;
};

static void work(void *arg)
{
    struct judgement *shared = arg;
    shared->judge(shared->arg, &shared->result);
    shared->is_whole = 1;
}

/* What is said of a child that brought no result. */
static void explain(const struct attn_process *p, double seconds, struct attn_result *r)
{
    int lacks = p->exit_status == ATTN_PROCESS_LACKS;
    memset(r, 0, sizeof *r);
    r->verdict = p->timed_out ? ATTN_TIMEOUT : lacks ? ATTN_ERROR : ATTN_CRASH;
    r->lacks_memory = lacks;
    if (p->timed_out)
        snprintf(r->text, sizeof r->text, "did not end within %g s", seconds);
    else if (p->signal != 0)
        snprintf(r->text, sizeof r->text, "ended by signal %d (%s)", p->signal,
                 strsignal(p->signal));
    else if (lacks)
        snprintf(r->text, sizeof r->text, "no memory or no threads to judge with");
    else
        snprintf(r->text, sizeof r->text, "left with exit status %d and no result", p->exit_status);
}

void attn_isolated(void (*judge)(void *arg, struct attn_result *result), void *arg, double seconds,
                   struct attn_result *r)
{
    struct attn_process p = {0};
    char text[160];
    struct judgement *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED)
        *shared = (struct judgement){.judge = judge, .arg = arg};
    if (shared == MAP_FAILED ||
        attn_process_fork(work, shared, seconds > 0 ? seconds : (double)INFINITY, &p) != 0) {
        snprintf(text, sizeof text, "no process to judge in: %s", strerror(errno));
        memset(r, 0, sizeof *r);
        attn_result_error(r, ATTN_ENOMEM, text);
    } else if (shared->is_whole && p.exit_status == 0)
        *r = shared->result;
    else
        explain(&p, seconds, r);
    if (shared != MAP_FAILED)
        munmap(shared, sizeof *shared);
}
