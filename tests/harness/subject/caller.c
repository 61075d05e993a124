/* See caller.h: the transport. */
#include "tests/harness/subject/caller.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ref/clock.h"
#include "tests/harness/base/fileio.h"

/* The line for a batch, whole or not at all. */
static int say(const char *cases, const char *out)
{
    json_t *batch = json_pack("{s:s, s:s}", "cases", cases, "out", out);
    char *text = batch != NULL ? json_dumps(batch, JSON_PRESERVE_ORDER) : NULL;
    int said = text != NULL && attn_pipe_write(STDOUT_FILENO, text, strlen(text)) &&
               attn_pipe_write(STDOUT_FILENO, "\n", 1);
    free(text);
    json_decref(batch);
    return said;
}

/* A line of standard input, cut at its size: 1; 0 at the end; -1 when the time is up. */
static int hear(double until, char *line, size_t size)
{
    size_t n = 0;
    char c;
    for (;;) {
        double left = until - attn_seconds(CLOCK_MONOTONIC);
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = poll(&in, 1, left < 1 ? (int)ceil(fmax(left, 0) * 1000) : 1000);
        if (ready == 0 && !(left > 0))
            return -1;
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        if (ready < 0 || read(STDIN_FILENO, &c, 1) != 1)
            return 0;
        if (c == '\n')
            break;
        if (n + 1 < size)
            line[n++] = c;
    }
    line[n] = '\0';
    attn_clean(line);
    return 1;
}

void attn_caller_hand(const char *cases, const char *out, double seconds, struct attn_process *ran)
{
    const double start = attn_seconds(CLOCK_MONOTONIC);
    *ran = (struct attn_process){.is_caller = 1, .exit_status = -1, .peak_bytes = -1};
    int heard = say(cases, out) ? hear(start + seconds, ran->last_line, sizeof ran->last_line) : 0;
    ran->timed_out = heard < 0;
    if (heard > 0 && strcmp(ran->last_line, "done") == 0) {
        ran->exit_status = 0;
        ran->last_line[0] = '\0';
    }
    ran->wall_s = attn_seconds(CLOCK_MONOTONIC) - start;
}
