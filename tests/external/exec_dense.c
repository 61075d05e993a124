/* A command that computes attention, for tests of commands and of their curves: the library's
 * dense on the cases of CASES, f32 without a mask, in about as much C as it takes.  A word in the
 * environment's DOES chooses what else it does, which begins at 64 keys.
 */
#include <glob.h>
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
#include "tests/harness/base/files.h"

/* 1: DOES has this word; 0: it has not. */
static int does(const char *word)
{
    const char *wanted = getenv("DOES");
    return wanted != NULL && strcmp(wanted, word) == 0;
}

/* It frees nothing. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

/* Extents and strides of batch, head, token and feature where a file of layout bhld, blhd or sbhd
 * has these; TURNED reads and writes bhld whatever is said. */
static void place(const struct attn_file *file, const int64_t extent[4], int64_t n[4],
                  int64_t stride[4])
{
    static const char axes[] = "bhld";
    const char *said = attn_file_metadata(file, "layout");
    int64_t whole = 1;
    for (int a = 0; a < 4; a++)
        n[said[a] == 's' ? 2 : strchr(axes, said[a]) - axes] = extent[a];
    for (int a = 3; a >= 0; a--) {
        const char letter = does("TURNED") ? axes[a] : said[a];
        const int64_t axis = letter == 's' ? 2 : strchr(axes, letter) - axes;
        stride[axis] = whole;
        whole *= n[axis];
    }
}

static struct attn_cview in(const struct attn_file *file, const char *name, int64_t n[4])
{
    struct attn_file_tensor *t = attn_file_find(file, name);
    struct attn_cview view = {.dtype = ATTN_F32};
    if (t == NULL || attn_file_load(file, t, NULL) != ATTN_OK)
        exit(4);
    view.data = t->data;
    place(file, t->extent, n, view.stride);
    return view;
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
        usleep(999999);
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

/* One case; its results go to a folder.  0, or the exit status. */
static int compute(const char *inputs, const char *folder)
{
    static struct attn_ledger ledger;
    struct attn_error err = {ATTN_OK, ""};
    struct attn_file file;
    struct attn_spec spec;
    char path[4096];
    int64_t q[4], k[4], v[4], e[4], unused[4];
    if (attn_file_open(inputs, &file, &err) != ATTN_OK ||
        attn_spec_parse("dense", &spec, &err) != 0)
        return fprintf(stderr, "%s\n", err.text), 4;
    struct attn_forward t = {in(&file, "q", q), in(&file, "k", k), in(&file, "v", v), {0}, {0}};
    struct attn_problem p = {q[0], q[1], v[1], q[2], v[2], q[3], v[3]};
    p.scale = atof(attn_file_metadata(&file, "scale"));
    p.dtype = ATTN_F32;
    memcpy(e, attn_file_find(&file, "q")->extent, sizeof e);
    e[3] = v[3];
    int64_t rows = q[0] * q[1] * q[2];
    float *o = calloc((size_t)(rows * v[3]), 4), *lse = calloc((size_t)rows, 4);
    t.o = (struct attn_view){.data = o, .dtype = ATTN_F32};
    place(&file, e, unused, t.o.stride);
    t.lse = (struct attn_view){lse, ATTN_F32, {q[1] * q[2], q[2], 1, 0}};
    int large = v[2] >= 64;
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
                                             .extent = {e[0], e[1], e[2], e[3]},
                                             .data = o},
                                            {.name = "lse",
                                             .dtype = ATTN_FILE_F32,
                                             .n_axes = 3,
                                             .extent = {q[0], q[1], q[2]},
                                             .data = lse}};
    mkdir(folder, 0777);
    report(folder, seconds);
    snprintf(path, sizeof path, "%s/result.safetensors", folder);
    int n = large && does("MISSING") ? 1 : 2; /* no LSE */
    return attn_safetensors_write(path, out, n, NULL, 0, &err) == ATTN_OK ? 0 : 4;
}

int main(int argc, char **argv)
{
    char path[4096];
    glob_t all;
    int status = 0;
    snprintf(path, sizeof path, "%s/*/inputs.safetensors", argc == 3 ? argv[1] : "");
    if (glob(path, 0, NULL, &all) != 0)
        return 4;
    for (size_t n = 0; n < all.gl_pathc && status == 0; n++) {
        const char *name = all.gl_pathv[n] + strlen(argv[1]) + 1;
        snprintf(path, sizeof path, "%s/%.*s", argv[2], (int)strcspn(name, "/"), name);
        status = compute(all.gl_pathv[n], path);
    }
    return status;
}
