#include "experiments/report/slices.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/plot.h"

const char *attn_pass_word(enum attn_pass pass)
{
    return pass == ATTN_FORWARD ? "forward" : "backward";
}

const char *attn_status_phrase(enum attn_point_status status)
{
    switch (status) {
    case ATTN_POINT_OK:
        return "measured";
    case ATTN_POINT_WRONG:
        return "wrong result";
    case ATTN_POINT_REFUSED:
        return "refused by the implementation";
    case ATTN_POINT_TOO_BIG:
        return "too big for this machine";
    case ATTN_POINT_DROPPED:
        return "dropped by the time budget";
    case ATTN_POINT_TIMEOUT:
        return "stopped by the time limit";
    case ATTN_POINT_KILLED:
        return "killed";
    case ATTN_POINT_ERROR:
        break;
    }
    return "failed";
}

/* Append to text; what does not fit is cut. */
static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

/* ---- slicing ------------------------------------------------------------------------------- */

static enum attn_slice_kind kind_of(const char *group)
{
    if (attn_group_is(group, "length"))
        return ATTN_SLICE_LENGTH;
    if (attn_group_is(group, "ranks"))
        return ATTN_SLICE_RANKS;
    return attn_group_is(group, "density") ? ATTN_SLICE_DENSITY : ATTN_SLICE_OTHER;
}

/* Do the masks of a length group each stand at several lengths?  If not (documents(...) changes
 * with L), they are one family and make one slice. */
static int splits_by_mask(const struct attn_summary *all, const char *group)
{
    for (int64_t s = 0; s < all->n; s++) {
        const struct attn_point *p = all->row[s].point;
        int lengths = 0;
        if (strcmp(p->group, group) != 0)
            continue;
        for (int64_t t = 0; t < all->n; t++) {
            const struct attn_point *q = all->row[t].point;
            lengths += strcmp(q->group, group) == 0 && strcmp(q->c.mask, p->c.mask) == 0 &&
                       q->c.n_query != p->c.n_query;
        }
        if (lengths == 0)
            return 0;
    }
    return 1;
}

/* The group's name after its first word, fit for a file. */
static void make_tag(const char *group, int nth, char tag[40])
{
    const char *rest = strchr(group, '-');
    size_t n = 0;
    for (const char *c = rest != NULL ? rest + 1 : ""; *c != '\0' && n < 30; c++)
        tag[n++] = isalnum((unsigned char)*c) ? *c : '-';
    tag[n] = '\0';
    if (nth > 0)
        append(tag, 40, "%s%d", n > 0 ? "-" : "", nth + 1);
}

/* What the rows have in common, in words; what varies is left out. */
static void describe(struct attn_slice *slice)
{
    char *text = slice->problem;
    size_t size = sizeof slice->problem;
    const struct attn_case *c = &slice->row[0]->point->c;
    int one_length = 1, one_mask = 1;
    for (int64_t s = 1; s < slice->n; s++) {
        const struct attn_case *other = &slice->row[s]->point->c;
        one_length &= other->n_query == c->n_query;
        one_mask &= strcmp(other->mask, c->mask) == 0;
    }
    text[0] = '\0';
    append(text, size, "B=%lld, H=%lld, G=%lld, d=%lld", (long long)c->batch, (long long)c->heads,
           (long long)c->kv_heads, (long long)c->d_key);
    if (c->d_value != c->d_key)
        append(text, size, ", dv=%lld", (long long)c->d_value);
    append(text, size, ", %s", attn_dtype_name(c->dtype));
    if (one_length)
        append(text, size, ", L=%lld", (long long)c->n_query);
    const char *last = slice->row[slice->n - 1]->point->c.mask;
    append(text, size, "; mask%s %.200s%s%.200s; %s data", one_mask ? "" : "s", c->mask,
           one_mask ? "" : " to ", one_mask ? "" : last, attn_fill_name(c->fill));
}

/* What must be equal within a slice, beside the group. */
struct key {
    int mask, length;
};

static struct key key_of(const struct attn_summary *all, const char *group)
{
    switch (kind_of(group)) {
    case ATTN_SLICE_LENGTH:
        return (struct key){splits_by_mask(all, group), 0};
    case ATTN_SLICE_RANKS:
        return (struct key){1, 1};
    case ATTN_SLICE_DENSITY:
        return (struct key){0, 1};
    case ATTN_SLICE_OTHER:
        break;
    }
    return (struct key){0, 0};
}

static int belongs(const struct attn_point *p, const struct attn_point *first, struct key key)
{
    return strcmp(p->group, first->group) == 0 &&
           (!key.mask || strcmp(p->c.mask, first->c.mask) == 0) &&
           (!key.length || p->c.n_query == first->c.n_query);
}

static enum attn_status take_slice(const struct attn_summary *all, int64_t first, struct key key,
                                   struct attn_slice *slice, struct attn_error *err)
{
    const struct attn_point *p = all->row[first].point;
    memset(slice, 0, sizeof *slice);
    slice->row = malloc((size_t)all->n * sizeof(const struct attn_row *));
    if (slice->row == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the rows of group %s", p->group);
    memcpy(slice->group, p->group, sizeof slice->group);
    slice->kind = kind_of(p->group);
    for (int64_t s = 0; s < all->n; s++)
        if (belongs(all->row[s].point, p, key))
            slice->row[slice->n++] = &all->row[s];
    describe(slice);
    return ATTN_OK;
}

/* Slices before this one that would have the same tag: by tag, since two groups may have equal
 * tags once they are clean. */
static int count_tags(const struct attn_slices *slices, const struct attn_slice *slice)
{
    int n = 0;
    char tag[40], other[40];
    make_tag(slice->group, 0, tag);
    for (int s = 0; s < slices->n; s++) {
        make_tag(slices->slice[s].group, 0, other);
        n += slices->slice[s].kind == slice->kind && strcmp(tag, other) == 0;
    }
    return n;
}

enum attn_status attn_slices_make(const struct attn_summary *summary, struct attn_slices *slices,
                                  struct attn_error *err)
{
    *slices = (struct attn_slices){NULL, 0};
    slices->slice = calloc((size_t)summary->n + 1, sizeof *slices->slice);
    if (slices->slice == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the groups of %lld rows",
                         (long long)summary->n);
    for (int64_t s = 0; s < summary->n; s++) {
        const struct attn_point *p = summary->row[s].point;
        struct key key = key_of(summary, p->group);
        int64_t before = 0;
        while (!belongs(summary->row[before].point, p, key))
            before++;
        if (before < s)
            continue;
        struct attn_slice *slice = &slices->slice[slices->n];
        enum attn_status status = take_slice(summary, s, key, slice, err);
        if (status != ATTN_OK) {
            attn_slices_free(slices);
            return status;
        }
        make_tag(p->group, count_tags(slices, slice), slice->tag);
        slices->n++;
    }
    return ATTN_OK;
}

void attn_slices_free(struct attn_slices *slices)
{
    for (int s = 0; s < slices->n; s++)
        free(slices->slice[s].row);
    free(slices->slice);
    *slices = (struct attn_slices){NULL, 0};
}

void attn_row_label(const struct attn_row *row, char text[160])
{
    const struct attn_point *p = row->point;
    /* A preset number of ranks is not in the spec. */
    if (p->ranks > 1 && strstr(p->spec, "ranks=") == NULL)
        (void)snprintf(text, 160, "%s (P=%d)", p->spec, p->ranks);
    else
        (void)snprintf(text, 160, "%s", p->spec);
}

/* ---- questions ----------------------------------------------------------------------------- */

int attn_slice_has_pass(const struct attn_slice *slice, enum attn_pass pass)
{
    for (int64_t s = 0; s < slice->n; s++)
        if (slice->row[s]->point->c.pass == pass)
            return 1;
    return 0;
}

const struct attn_row *attn_slice_find(const struct attn_slice *slice, const char *spec,
                                       enum attn_pass pass, int64_t n_query)
{
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_point *p = slice->row[s]->point;
        if (p->c.pass == pass && p->c.n_query == n_query && strcmp(p->spec, spec) == 0)
            return slice->row[s];
    }
    return NULL;
}

static int is_good(const struct attn_row *row)
{
    return row != NULL && row->status == ATTN_POINT_OK;
}

static int has_good(const struct attn_slice *slice, const char *spec, enum attn_pass pass)
{
    for (int64_t s = 0; s < slice->n; s++)
        if (is_good(slice->row[s]) && slice->row[s]->point->c.pass == pass &&
            strcmp(slice->row[s]->point->spec, spec) == 0)
            return 1;
    return 0;
}

int64_t attn_slice_common_length(const struct attn_slice *slice, enum attn_pass pass)
{
    int64_t best = 0;
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_point *p = slice->row[s]->point;
        int all = p->c.pass == pass && is_good(slice->row[s]) && p->c.n_query > best;
        for (int64_t t = 0; all && t < slice->n; t++) {
            const char *spec = slice->row[t]->point->spec;
            all = !has_good(slice, spec, pass) ||
                  is_good(attn_slice_find(slice, spec, pass, p->c.n_query));
        }
        best = all ? p->c.n_query : best;
    }
    return best;
}

/* ---- what was not run ---------------------------------------------------------------------- */

/* How notes call a row's implementation: against P, its ranks are said apart. */
static const char *name_of(const struct attn_slice *slice, const struct attn_row *row,
                           char text[128])
{
    if (slice->kind == ATTN_SLICE_RANKS)
        attn_spec_without_ranks(row->point->spec, text);
    else
        (void)snprintf(text, 128, "%s", row->point->spec);
    return text;
}

static int is_such(const struct attn_slice *slice, const struct attn_row *row, const char *name,
                   enum attn_point_status status)
{
    char own[128];
    return row->status == status && strcmp(name_of(slice, row, own), name) == 0;
}

/* The first row of its name that ended so? */
static int begins(const struct attn_slice *slice, int64_t s, enum attn_point_status status)
{
    char name[128];
    (void)name_of(slice, slice->row[s], name);
    for (int64_t t = 0; t < s; t++)
        if (is_such(slice, slice->row[t], name, status))
            return 0;
    return slice->row[s]->status == status;
}

static void append_where(const struct attn_slice *slice, const struct attn_row *row, char *text,
                         size_t size)
{
    char number[32];
    const struct attn_point *p = row->point;
    int64_t floor = p->floor_bytes > 0 ? p->floor_bytes : 0;
    if (slice->kind == ATTN_SLICE_DENSITY)
        append(text, size, " %s", p->c.mask);
    else if (slice->kind == ATTN_SLICE_RANKS)
        append(text, size, " P=%d", p->ranks);
    else
        append(text, size, " %s", attn_axis_text(ATTN_AXIS_LENGTH, (double)p->c.n_query, number));
    if (row->status == ATTN_POINT_TOO_BIG && row->priced > 0)
        append(text, size, " needs %s",
               attn_axis_text(ATTN_AXIS_BYTES, (double)(row->priced * p->ranks + floor), number));
}

/* " 8,192, 16,384 (forward), 4,096 (backward)": where an implementation ended so. */
static void append_places(const struct attn_slice *slice, const char *name,
                          enum attn_point_status status, char *text, size_t size)
{
    const char *between = "";
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        int n = 0;
        for (int64_t s = 0; s < slice->n; s++) {
            const struct attn_row *row = slice->row[s];
            if (!is_such(slice, row, name, status) || (int)row->point->c.pass != pass)
                continue;
            append(text, size, "%s", between);
            append_where(slice, row, text, size);
            between = ",";
            n++;
        }
        if (n > 0)
            append(text, size, " (%s)", attn_pass_word((enum attn_pass)pass));
    }
}

void attn_slice_not_run(const struct attn_slice *slice, char *text, size_t size)
{
    static const enum attn_point_status reasons[] = {ATTN_POINT_TOO_BIG, ATTN_POINT_DROPPED,
                                                     ATTN_POINT_REFUSED, ATTN_POINT_TIMEOUT,
                                                     ATTN_POINT_KILLED,  ATTN_POINT_ERROR};
    text[0] = '\0';
    for (size_t r = 0; r < sizeof reasons / sizeof reasons[0]; r++) {
        const char *between = "";
        for (int64_t s = 0; s < slice->n; s++) {
            if (!begins(slice, s, reasons[r]))
                continue;
            if (between[0] == '\0')
                append(text, size, "%sNot measured, %s: ", text[0] != '\0' ? "\n" : "",
                       attn_status_phrase(reasons[r]));
            char name[128];
            append(text, size, "%s%s", between, name_of(slice, slice->row[s], name));
            append_places(slice, name, reasons[r], text, size);
            between = "; ";
        }
    }
}

/* The longest length of this row's spec and pass, whatever became of it? */
static int is_last(const struct attn_slice *slice, const struct attn_point *p)
{
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_point *q = slice->row[s]->point;
        if (q->c.pass == p->c.pass && strcmp(q->spec, p->spec) == 0 && q->c.n_query > p->c.n_query)
            return 0;
    }
    return 1;
}

void attn_slice_not_planned(const struct attn_slice *slice, char *text, size_t size)
{
    int64_t longest = 0;
    text[0] = '\0';
    if (slice->kind != ATTN_SLICE_LENGTH)
        return;
    for (int64_t s = 0; s < slice->n; s++)
        if (slice->row[s]->point->c.n_query > longest)
            longest = slice->row[s]->point->c.n_query;
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_point *p = slice->row[s]->point;
        int first = p->c.n_query < longest && is_last(slice, p);
        for (int64_t t = 0; first && t < s; t++) {
            const struct attn_point *q = slice->row[t]->point;
            first = !(q->c.pass == p->c.pass && q->c.n_query == p->c.n_query && is_last(slice, q));
        }
        if (!first)
            continue;
        /* All that end where this one does, together. */
        char number[32];
        const char *between = ":";
        append(text, size, "%sNot in the plan, %s beyond %s", text[0] != '\0' ? "\n" : "",
               attn_pass_word(p->c.pass),
               attn_axis_text(ATTN_AXIS_LENGTH, (double)p->c.n_query, number));
        for (int64_t t = s; t < slice->n; t++) {
            const struct attn_point *q = slice->row[t]->point;
            if (q->c.pass != p->c.pass || q->c.n_query != p->c.n_query || !is_last(slice, q))
                continue;
            append(text, size, "%s %s", between, q->spec);
            between = ",";
        }
    }
}
