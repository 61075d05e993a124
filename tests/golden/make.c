/* Makes the golden vectors: `make golden` (needs libmpfr-dev; nothing else in the tree does).
 *
 *      make-golden FOLDER      writes FOLDER/NAME.safetensors, one for each problem of problems.c
 *
 * A file holds the inputs as attnlab reads them (q, k, v, do, dlse, bias, sink; scale, softcap,
 * alibi and mask as metadata), `visible`, the mask cell by cell, and for every output three
 * tensors: NAME, the result rounded to f64; NAME.rest, what that rounding left (f64: together 106
 * bits); and NAME.size, what rounding errors of honest double arithmetic are relative to (exact.c).
 */
#include "tests/golden/golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/files.h"

/* A file that is being made. */
struct writer {
    struct attn_file_tensor tensor[32];
    struct attn_file_pair said[8];
    int n, n_said;
};

static void say(struct writer *w, const char *key, const char *value)
{
    w->said[w->n_said++] = (struct attn_file_pair){key, value};
}

static void add(struct writer *w, const char *name, const char *suffix, enum attn_file_dtype dtype,
                const void *data, const int64_t *shape, int axes)
{
    char full[32];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    struct attn_file_tensor *t = &w->tensor[w->n++];
    *t = (struct attn_file_tensor){
        .name = strdup(full), .dtype = dtype, .n_axes = axes, .data = (void *)(uintptr_t)data};
    memcpy(t->extent, shape, (size_t)axes * sizeof *shape);
}

static void add_input(struct writer *w, const struct golden *x, const char *name,
                      const double *from, const int64_t *shape, int axes)
{
    int64_t n = 1;
    for (int a = 0; a < axes; a++)
        n *= shape[a];
    float *narrow = malloc((size_t)(n + 1) * sizeof *narrow);
    for (int64_t i = 0; i < n; i++) {
        narrow[i] = (float)from[i];
        if (!x->wide && (double)narrow[i] != from[i]) {
            fprintf(stderr, "%s: %s[%d] = %a is not exact in f32\n", x->name, name, (int)i,
                    from[i]);
            exit(1);
        }
    }
    if (x->wide)
        add(w, name, "", ATTN_FILE_F64, from, shape, axes);
    else
        add(w, name, "", ATTN_FILE_F32, narrow, shape, axes);
}

static void write_problem(const char *folder, const struct golden *x)
{
    const int64_t q[4] = {x->B, x->H, x->Lq, x->d}, k[4] = {x->B, x->G, x->Lk, x->d},
                  v[4] = {x->B, x->G, x->Lk, x->dv}, o[4] = {x->B, x->H, x->Lq, x->dv},
                  s[4] = {x->B, x->H, x->Lq, x->Lk}, z[1] = {x->H};
    const struct {
        const char *name;
        const double *from;
        const int64_t *shape;
        int axes;
    } input[] = {{"q", x->q, q, 4},        {"k", x->k, k, 4},
                 {"v", x->v, v, 4},        {"do", x->d_o, o, 4},
                 {"dlse", x->d_lse, q, 3}, {"bias", x->bias, x->bias_axis, 4},
                 {"sink", x->sink, z, 1}},
      output[] = {{"o", NULL, o, 4},    {"lse", NULL, q, 3}, {"dq", NULL, q, 4},
                  {"dk", NULL, k, 4},   {"dv", NULL, v, 4},  {"dbias", NULL, x->bias_axis, 4},
                  {"dsink", NULL, z, 1}};
    struct writer w = {.n = 0};
    struct attn_error err = {ATTN_OK, ""};
    char path[1024], made_by[64], scale[40], softcap[40], slopes[256] = "";
    snprintf(made_by, sizeof made_by, "tests/golden/make.c, MPFR, %d bits", GOLDEN_BITS);
    snprintf(scale, sizeof scale, "%.17g", x->scale);
    snprintf(softcap, sizeof softcap, "%.17g", x->softcap);
    for (int64_t h = 0, used = 0; h < x->H; h++)
        used += snprintf(slopes + used, sizeof slopes - (size_t)used, "%s%.17g", h > 0 ? "," : "",
                         x->slope[h]);
    say(&w, "note", x->note);
    say(&w, "mask", x->mask);
    say(&w, "layout", "B,H,L,d");
    say(&w, "scale", scale);
    if (x->softcap > 0)
        say(&w, "softcap", softcap);
    if (x->has_alibi) {
        say(&w, "alibi", slopes);
        say(&w, "alibi-align", "br");
    }
    say(&w, "made by", made_by);
    for (size_t n = 0; n < sizeof input / sizeof *input; n++)
        if (input[n].from != NULL)
            add_input(&w, x, input[n].name, input[n].from, input[n].shape, input[n].axes);
    for (int n = 0; n < GOLDEN_OUTPUTS; n++) {
        if (x->n[n] == 0)
            continue;
        add(&w, output[n].name, "", ATTN_FILE_F64, x->hi[n], output[n].shape, output[n].axes);
        add(&w, output[n].name, ".rest", ATTN_FILE_F64, x->rest[n], output[n].shape,
            output[n].axes);
        add(&w, output[n].name, ".size", ATTN_FILE_F64, x->size[n], output[n].shape,
            output[n].axes);
    }
    add(&w, "visible", "", ATTN_FILE_U8, x->visible, s, 4);
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, x->name);
    if (attn_safetensors_write(path, w.tensor, w.n, w.said, w.n_said, &err) != ATTN_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    printf("%-16s %s\n", x->name, x->note);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (int index = 0; index < golden_count(); index++) {
        struct golden x;
        golden_make(index, &x);
        write_problem(argv[1], &x);
    }
    return 0;
}
