/* A command that computes attention, for tests of the curves of commands: the library's dense on
 * the one case of CASES, in about as much C as it takes.  What it does beside is told by a word in
 * the environment's DOES, and begins at 64 keys.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "optimized/registry.h"
#include "ref/clock.h"
#include "ref/ledger.h"
#include "tests/harness/files/files.h"

/* Whether it was told to. */
static int does(const char *word)
{
    const char *told = getenv("DOES");
    return told != NULL && strcmp(told, word) == 0;
}

/* It frees nothing. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

static struct attn_cview in(const struct attn_file *file, const char *name)
{
    struct attn_file_tensor *t = attn_file_find(file, name);
    if (t == NULL || attn_file_load(file, t, NULL) != ATTN_OK)
        exit(4);
    return (struct attn_cview){
        t->data,
        ATTN_F32,
        {t->extent[1] * t->extent[2] * t->extent[3], t->extent[2] * t->extent[3], t->extent[3], 1}};
}

/* For ever; its process id is in $PID_FILE. */
static void hang(void)
{
    FILE *file = fopen(getenv("PID_FILE"), "w");
    if (file != NULL) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
    for (;;)
        usleep(1000);
}

static void misbehave(float *o)
{
    if (does("WRONG"))
        o[0] += 0.5f;
    if (does("CRASH")) { /* a sanitizer would turn it into an exit */
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (does("HANG") || (does("CHILD") && fork() == 0))
        hang();
    while (does("CHILD"))
        pause();
    if (does("SLEEP"))
        usleep(300000);
    if (does("FAIL")) {
        fprintf(stderr, "no more of this\n");
        exit(3);
    }
}

/* How long its calls took: truly, far too long, or not in seconds. */
static void report(const char *folder, double seconds)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/seconds.txt", folder);
    FILE *file = does("REPORT") || does("BOAST") || does("GARBAGE") ? fopen(path, "w") : NULL;
    if (file == NULL)
        return;
    if (does("GARBAGE"))
        fprintf(file, "0.1 a while\n");
    else
        fprintf(file, "%.9f\n", does("BOAST") ? 1000 : seconds);
    fclose(file);
}

int main(int argc, char **argv)
{
    static struct attn_ledger ledger;
    struct attn_error err = {ATTN_OK, ""};
    struct attn_file file;
    struct attn_spec spec;
    char path[4096];
    snprintf(path, sizeof path, "%s/point/inputs.safetensors", argc == 3 ? argv[1] : "");
    if (attn_file_open(path, &file, &err) != ATTN_OK || attn_spec_parse("dense", &spec, &err) != 0)
        return fprintf(stderr, "%s\n", err.text), 4;
    struct attn_forward t = {.q = in(&file, "q"), .k = in(&file, "k"), .v = in(&file, "v")};
    const int64_t *e = attn_file_find(&file, "q")->extent, *x = attn_file_find(&file, "v")->extent;
    struct attn_problem p = {e[0], e[1], x[1], e[2], x[2], e[3], x[3]};
    p.scale = atof(attn_file_metadata(&file, "scale"));
    p.dtype = ATTN_F32;
    int64_t rows = e[0] * e[1] * e[2];
    float *o = calloc((size_t)(rows * x[3]), 4), *lse = calloc((size_t)rows, 4);
    t.o = (struct attn_view){o, ATTN_F32, {e[1] * e[2] * x[3], e[2] * x[3], x[3], 1}};
    t.lse = (struct attn_view){lse, ATTN_F32, {e[1] * e[2], e[2], 1, 0}};
    int large = x[2] >= 64;
    volatile char *extra = large && does("EXTRA") ? malloc(64 << 20) : NULL; /* while it computes */
    for (int at = 0; extra != NULL && at < 64 << 20; at += 1024)
        extra[at] = 1; /* each page; a memset may be optimised away */
    attn_ledger_init(&ledger, NULL);
    struct attn_ctx ctx = {.ledger = &ledger, .options = &spec.options, .error = &err};
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (attn_run_forward(spec.impl, &ctx, &p, &t) != ATTN_OK)
        return fprintf(stderr, "%s\n", err.text), 4;
    double seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    if (large)
        misbehave(o);
    const struct attn_file_tensor out[2] = {{.name = "o",
                                             .dtype = ATTN_FILE_F32,
                                             .n_axes = 4,
                                             .extent = {e[0], e[1], e[2], x[3]},
                                             .data = o},
                                            {.name = "lse",
                                             .dtype = ATTN_FILE_F32,
                                             .n_axes = 3,
                                             .extent = {e[0], e[1], e[2]},
                                             .data = lse}};
    snprintf(path, sizeof path, "%s/point", argv[2]);
    mkdir(path, 0777);
    report(path, seconds);
    strcat(path, "/result.safetensors");
    int n = large && does("MISSING") ? 1 : 2; /* no LSE */
    return attn_safetensors_write(path, out, n, NULL, 0, &err) == ATTN_OK ? 0 : 4;
}
