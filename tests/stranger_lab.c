/* See stranger_lab.h. */
#include "tests/stranger_lab.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/scratch.h"
#include "tests/suites.h"

int lab_shell(const char *format, ...)
{
    char command[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int lab_count(const char *output, const char *word)
{
    char pattern[32];
    snprintf(pattern, sizeof pattern, " %s,", word);
    const char *at = strstr(output, pattern); /* cases; relations are counted behind them */
    if (at == NULL)
        return -1;
    while (at > output && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return atoi(at);
}

const char *lab_build(const char *source, const char *flags)
{
    const char *path = scratch_path("plugin.so");
    ck_assert_msg(lab_shell("cc -std=c11 -D_GNU_SOURCE -O1 -w -shared -fPIC -I. %s -o '%s' %s -lm "
                            "2>'%s'",
                            flags, path, source, scratch_path("errors")) == 0,
                  "cc %s %s failed: see %s", flags, source, scratch_path("errors"));
    return path;
}
