/* See shapes.h. */
#include "tests/harness/cases/shapes.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"

int64_t attn_shapes_nearest(const struct attn_shapes *shapes, int extent, int64_t n)
{
    int64_t best = -1;
    for (int r = 0; r < shapes->of[extent].n; r++) {
        const struct attn_range *x = &shapes->of[extent].range[r];
        int64_t last = x->to - (x->to - x->from) % x->step;
        int64_t below = n < x->from ? x->from : n > last ? last : n - (n - x->from) % x->step;
        int64_t above = below < n && below + x->step <= last ? below + x->step : below;
        int64_t near = above - n < n - below ? above : below;
        if (best < 0 || llabs(near - n) < llabs(best - n))
            best = near;
    }
    return best < 0 ? n : best;
}

int attn_shapes_have(const struct attn_shapes *shapes, int extent, int64_t n)
{
    return attn_shapes_nearest(shapes, extent, n) == n;
}

/* The extents are the first factors. */
static const char *const extent_name[] = {
#define ATTN_FACTOR(id, name, ...) name,
#include "tests/harness/cases/factors.def"
#undef ATTN_FACTOR
};

/* ---- texts ----------------------------------------------------------------------------------- */

/* A whole number from 0 up that fits; 0: there is none. */
static int read_number(const char **at, int32_t *n)
{
    char *end;
    long long value = **at >= '0' && **at <= '9' ? strtoll(*at, &end, 10) : -1;
    if (value < 0 || value >= ATTN_RANGE_OPEN)
        return 0;
    *n = (int32_t)value;
    *at = end;
    return 1;
}

static void skip(const char **at)
{
    *at += strspn(*at, " ,\t");
}

/* N, N.., N..M, and "step S" behind a range. */
static int read_range(const char **at, struct attn_range *x)
{
    *x = (struct attn_range){.step = 1};
    if (!read_number(at, &x->from))
        return 0;
    x->to = x->from;
    if (strncmp(*at, "..", 2) == 0) {
        *at += 2;
        x->to = ATTN_RANGE_OPEN;
        if (**at >= '0' && **at <= '9' && !read_number(at, &x->to))
            return 0;
        skip(at);
        if (strncmp(*at, "step ", 5) == 0) {
            *at += 5;
            skip(at);
            if (!read_number(at, &x->step) || x->step == 0)
                return 0;
        }
    }
    return x->to >= x->from;
}

enum attn_status attn_shapes_declare(struct attn_shapes *shapes, const char *name, const char *text,
                                     struct attn_error *err)
{
    char known[128] = "";
    int extent = 0, n = 0;
    for (int x = 0; x < ATTN_EXTENTS; x++)
        attn_append(known, sizeof known, " %s", extent_name[x]);
    while (extent < ATTN_EXTENTS && strcmp(extent_name[extent], name) != 0)
        extent++;
    if (extent == ATTN_EXTENTS)
        return attn_fail(err, ATTN_EINVAL, "shape \"%.40s\" does not exist; there are:%s", name,
                         known);
    if (shapes->of[extent].n > 0)
        return attn_fail(err, ATTN_EINVAL, "shape \"%s\" is declared twice", name);
    const char *at = text;
    for (skip(&at); *at != '\0'; skip(&at), n++)
        if (n == ATTN_RANGES || !read_range(&at, &shapes->of[extent].range[n]))
            return attn_fail(err, ATTN_EINVAL,
                             "shape \"%s\" is \"%.80s\": at most %d whole numbers and ranges, "
                             "such as \"8..256 step 8\", \"1 2 4 8\" or \"1..\"",
                             name, text, ATTN_RANGES);
    shapes->of[extent].n = n;
    return n > 0 ? ATTN_OK
                 : attn_fail(err, ATTN_EINVAL,
                             "shape \"%s\" is empty: leave it out, or say \"1..\"", name);
}

enum attn_status attn_shapes_parse(const char *text, struct attn_shapes *shapes,
                                   struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    memset(shapes, 0, sizeof *shapes);
    for (const char *at = text + strspn(text, "; "); *at != '\0' && status == ATTN_OK;) {
        char name[16], ranges[256];
        size_t n = strcspn(at, ":;"), end = strcspn(at, ";");
        if (n == end || n >= sizeof name || end - n > sizeof ranges)
            return attn_fail(err, ATTN_EINVAL,
                             "shapes \"%.80s\": such as \"d: 8..256 step 8; group: 1 2 4 8\"",
                             text);
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        snprintf(ranges, sizeof ranges, "%.*s", (int)(end - n - 1), at + n + 1);
        status = attn_shapes_declare(shapes, name, ranges, err);
        at += end;
        at += strspn(at, "; ");
    }
    return status;
}

void attn_shapes_print(const struct attn_shapes *shapes, int extent, char *text, size_t size)
{
    text[0] = '\0';
    for (int r = 0; r < shapes->of[extent].n; r++) {
        const struct attn_range *x = &shapes->of[extent].range[r];
        attn_append(text, size, "%s%d", r > 0 ? " " : "", (int)x->from);
        if (x->to != x->from)
            attn_append(text, size, "..");
        if (x->to != x->from && x->to != ATTN_RANGE_OPEN)
            attn_append(text, size, "%d", (int)x->to);
        if (x->step != 1)
            attn_append(text, size, " step %d", (int)x->step);
    }
}
