/* Makes the golden vectors: `make golden` (needs libmpfr-dev; nothing else in the tree does).
 *
 *      make-golden FOLDER      writes FOLDER/NAME.safetensors, one for each problem of problems.c
 *
 * A file holds the inputs as attnlab reads them (q, k, v, do, dlse, bias; scale, softcap, alibi and
 * mask as metadata), `visible`, the mask cell by cell, and for every output three tensors:
 * NAME, the result rounded to f64; NAME.rest, what that rounding left (f64: together 106 bits); and
 * NAME.size, what rounding errors of honest double arithmetic are relative to (exact.c).
 */
#include "tests/golden/golden.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- safetensors: u64 length, JSON header, numbers ------------------------------------------ */

struct writer {
    char header[8192];
    int used;
    unsigned char *data;
    size_t bytes;
};

static void *add(struct writer *w, const char *name, const char *suffix, const char *dtype,
                 size_t size, const int64_t shape[4], int axes)
{
    size_t bytes = size, room = sizeof w->header;
    w->used += snprintf(w->header + w->used, room - (size_t)w->used,
                        ",\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", name, suffix, dtype);
    for (int a = 0; a < axes; a++) {
        bytes *= (size_t)shape[a];
        w->used += snprintf(w->header + w->used, room - (size_t)w->used, "%s%" PRId64,
                            a > 0 ? "," : "", shape[a]);
    }
    w->used += snprintf(w->header + w->used, room - (size_t)w->used,
                        "],\"data_offsets\":[%zu,%zu]}", w->bytes, w->bytes + bytes);
    w->data = realloc(w->data, w->bytes + bytes + 1);
    if (w->data == NULL || w->used >= (int)room)
        abort();
    w->bytes += bytes;
    return w->data + w->bytes - bytes;
}

static void add_input(struct writer *w, const struct golden *x, const char *name,
                      const double *from, const int64_t shape[4], int axes)
{
    if (from == NULL)
        return;
    size_t start = w->bytes;
    unsigned char *to = add(w, name, "", x->wide ? "F64" : "F32", x->wide ? 8 : 4, shape, axes);
    for (size_t i = 0; start + i * (x->wide ? 8 : 4) < w->bytes; i++) {
        float narrow = (float)from[i];
        if (x->wide)
            memcpy(to + 8 * i, &from[i], 8);
        else if (memcpy(to + 4 * i, &narrow, 4), (double)narrow != from[i])
            fprintf(stderr, "%s: %s[%zu] = %a is not exact in f32\n", x->name, name, i, from[i]),
                exit(1);
    }
}

static void add_output(struct writer *w, const struct golden *x, enum golden_output o,
                       const char *name, const int64_t shape[4], int axes)
{
    int64_t n = x->n[o];
    if (n == 0)
        return;
    memcpy(add(w, name, "", "F64", 8, shape, axes), x->hi[o], (size_t)n * 8);
    memcpy(add(w, name, ".rest", "F64", 8, shape, axes), x->rest[o], (size_t)n * 8);
    memcpy(add(w, name, ".size", "F64", 8, shape, axes), x->size[o], (size_t)n * 8);
}

static void add_metadata(struct writer *w, const struct golden *x)
{
    char *h = w->header;
    size_t room = sizeof w->header;
    w->used = snprintf(h, room,
                       "{\"__metadata__\":{\"note\":\"%s\",\"mask\":\"%s\",\"layout\":"
                       "\"B,H,L,d\",\"scale\":\"%.17g\"",
                       x->note, x->mask, x->scale);
    if (x->softcap > 0)
        w->used +=
            snprintf(h + w->used, room - (size_t)w->used, ",\"softcap\":\"%.17g\"", x->softcap);
    for (int64_t s = 0; x->has_alibi && s < x->H; s++)
        w->used += snprintf(h + w->used, room - (size_t)w->used, "%s%.17g",
                            s == 0 ? ",\"alibi\":\"" : ",", x->slope[s]);
    if (x->has_alibi)
        w->used += snprintf(h + w->used, room - (size_t)w->used, "\",\"alibi-align\":\"br\"");
    w->used += snprintf(h + w->used, room - (size_t)w->used,
                        ",\"made by\":\"tests/golden/make.c, MPFR, %d bits\"}", GOLDEN_BITS);
}

static int write_problem(const char *folder, const struct golden *x)
{
    static const char blanks[] = "       ";
    const int64_t q[4] = {x->B, x->H, x->Lq, x->d}, k[4] = {x->B, x->G, x->Lk, x->d},
                  v[4] = {x->B, x->G, x->Lk, x->dv}, o[4] = {x->B, x->H, x->Lq, x->dv},
                  s[4] = {x->B, x->H, x->Lq, x->Lk};
    struct writer w = {.data = NULL};
    char path[1024];
    add_metadata(&w, x);
    add_input(&w, x, "q", x->q, q, 4);
    add_input(&w, x, "k", x->k, k, 4);
    add_input(&w, x, "v", x->v, v, 4);
    add_input(&w, x, "do", x->d_o, o, 4);
    add_input(&w, x, "dlse", x->d_lse, q, 3);
    add_input(&w, x, "bias", x->bias, x->bias_axis, 4);
    add_output(&w, x, GOLDEN_O, "o", o, 4);
    add_output(&w, x, GOLDEN_LSE, "lse", q, 3);
    add_output(&w, x, GOLDEN_DQ, "dq", q, 4);
    add_output(&w, x, GOLDEN_DK, "dk", k, 4);
    add_output(&w, x, GOLDEN_DV, "dv", v, 4);
    add_output(&w, x, GOLDEN_DBIAS, "dbias", x->bias_axis, 4);
    memcpy(add(&w, "visible", "", "U8", 1, s, 4), x->visible, (size_t)(s[0] * s[1] * s[2] * s[3]));
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, x->name);
    FILE *file = fopen(path, "wb");
    size_t pad = (8 - (size_t)(w.used + 1) % 8) % 8;
    uint64_t length = (uint64_t)w.used + 1 + pad; /* little-endian, as this machine is */
    int bad = file == NULL || fwrite(&length, 8, 1, file) != 1 ||
              fwrite(w.header, (size_t)w.used, 1, file) != 1 || fputc('}', file) == EOF ||
              fwrite(blanks, 1, pad, file) != pad || fwrite(w.data, 1, w.bytes, file) != w.bytes;
    if (file == NULL || fclose(file) != 0 || bad) {
        perror(path);
        return 1;
    }
    printf("%-16s %6zu bytes  %s\n", x->name, 8 + (size_t)length + w.bytes, x->note);
    free(w.data);
    return 0;
}

int main(int argc, char **argv)
{
    int bad = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (int index = 0; index < golden_count(); index++) {
        struct golden x;
        golden_make(index, &x);
        bad |= write_problem(argv[1], &x);
    }
    return bad;
}
