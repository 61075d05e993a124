/* See small_input.h. */
#include "tests/small_input.h"

#include <check.h>
#include <string.h>

#include "tests/harness/fill.h"
#include "tests/scratch.h"

struct attn_file_tensor *small_add(struct small *s, const char *name, int n_axes, int64_t b,
                                   int64_t h, int64_t i, int64_t c)
{
    const int64_t extent[4] = {b, h, i, c};
    struct attn_file_tensor *t = &s->t[s->n];
    *t = (struct attn_file_tensor){.name = name, .dtype = ATTN_FILE_F32, .n_axes = n_axes};
    t->data = s->room[s->n++];
    int64_t n = 1;
    for (int a = 0; a < n_axes; a++)
        n *= t->extent[a] = extent[4 - n_axes + a];
    for (int64_t e = 0; e < n; e++)
        ((float *)t->data)[e] = (float)attn_hash_normal(3, (uint64_t)(name[0] * 256 + name[1]), e);
    return t;
}

void small_make(struct small *s, int64_t n_query)
{
    memset(s, 0, sizeof *s);
    small_add(s, "q", 4, 1, 2, n_query, 4);
    small_add(s, "k", 4, 1, 2, 6, 4);
    small_add(s, "v", 4, 1, 2, 6, 4);
    small_add(s, "do", 4, 1, 2, n_query, 4);
}

void small_say(struct small *s, const char *key, const char *value)
{
    s->pair[s->n_pairs++] = (struct attn_file_pair){key, value};
}

const char *small_save(const struct small *s)
{
    const char *path = scratch_path("in.safetensors");
    struct attn_error err;
    enum attn_status status = attn_safetensors_write(path, s->t, s->n, s->pair, s->n_pairs, &err);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
    return path;
}
