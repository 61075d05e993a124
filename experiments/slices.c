#include "experiments/slices.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/plot.h"

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
    append(text, size, "; mask %s; %s data", one_mask ? c->mask : "varies",
           attn_fill_name(c->fill));
}

static int belongs(const struct attn_point *p, const struct attn_point *first, int by_mask)
{
    return strcmp(p->group, first->group) == 0 &&
           (!by_mask || strcmp(p->c.mask, first->c.mask) == 0);
}

static enum attn_status take_slice(const struct attn_summary *all, int64_t first, int by_mask,
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
        if (belongs(all->row[s].point, p, by_mask))
            slice->row[slice->n++] = &all->row[s];
    describe(slice);
    return ATTN_OK;
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
        int by_mask = kind_of(p->group) == ATTN_SLICE_LENGTH && splits_by_mask(summary, p->group);
        int64_t before = 0;
        while (!belongs(summary->row[before].point, p, by_mask))
            before++;
        if (before < s)
            continue;
        struct attn_slice *slice = &slices->slice[slices->n];
        enum attn_status status = take_slice(summary, s, by_mask, slice, err);
        if (status != ATTN_OK) {
            attn_slices_free(slices);
            return status;
        }
        /* Two tags may be equal after cleaning, too: number them by tag, not by mask. */
        int nth = 0;
        make_tag(p->group, 0, slice->tag);
        for (int t = 0; t < slices->n; t++) {
            char tag[40];
            make_tag(slices->slice[t].group, 0, tag);
            nth += slices->slice[t].kind == slice->kind && strcmp(tag, slice->tag) == 0;
        }
        make_tag(p->group, nth, slice->tag);
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

static int same_reason(const struct attn_row *a, const struct attn_row *b)
{
    return a->status == b->status && a->point->c.pass == b->point->c.pass &&
           strcmp(a->point->spec, b->point->spec) == 0;
}

static void append_where(const struct attn_slice *slice, const struct attn_row *row, char *text,
                         size_t size)
{
    char number[32];
    if (slice->kind == ATTN_SLICE_DENSITY)
        append(text, size, " density %s",
               attn_axis_text(ATTN_AXIS_DENSITY, row->point->density, number));
    else
        append(text, size, " %s",
               attn_axis_text(ATTN_AXIS_LENGTH, (double)row->point->c.n_query, number));
}

void attn_slice_not_run(const struct attn_slice *slice, char *text, size_t size)
{
    text[0] = '\0';
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        int64_t before = 0;
        while (!same_reason(slice->row[before], row))
            before++;
        if (row->status == ATTN_POINT_OK || row->status == ATTN_POINT_WRONG || before < s)
            continue;
        append(text, size, "%s%s", text[0] != '\0' ? "; " : "", row->point->spec);
        const char *comma = "";
        for (int64_t t = s; t < slice->n; t++) {
            if (!same_reason(slice->row[t], row))
                continue;
            append(text, size, "%s", comma);
            append_where(slice, slice->row[t], text, size);
            comma = ",";
        }
        append(text, size, " (%s): %s", attn_pass_word(row->point->c.pass),
               attn_status_phrase(row->status));
        char bytes[32];
        if (row->status == ATTN_POINT_TOO_BIG && row->priced > 0)
            append(text, size, ", needs %s",
                   attn_axis_text(
                       ATTN_AXIS_BYTES,
                       (double)(row->priced * row->point->ranks +
                                (row->point->floor_bytes > 0 ? row->point->floor_bytes : 0)),
                       bytes));
    }
}

void attn_slice_not_planned(const struct attn_slice *slice, char *text, size_t size)
{
    int64_t longest = 0;
    text[0] = '\0';
    for (int64_t s = 0; s < slice->n; s++)
        if (slice->row[s]->point->c.n_query > longest)
            longest = slice->row[s]->point->c.n_query;
    for (int64_t s = 0; slice->kind == ATTN_SLICE_LENGTH && s < slice->n; s++) {
        const struct attn_point *p = slice->row[s]->point;
        int last = p->c.n_query < longest;
        for (int64_t t = 0; last && t < slice->n; t++) {
            const struct attn_point *q = slice->row[t]->point;
            last = q->c.pass != p->c.pass || strcmp(q->spec, p->spec) != 0 ||
                   q->c.n_query <= p->c.n_query;
        }
        char number[32];
        if (last)
            append(text, size, "%s%s beyond %s (%s)", text[0] != '\0' ? "; " : "", p->spec,
                   attn_axis_text(ATTN_AXIS_LENGTH, (double)p->c.n_query, number),
                   attn_pass_word(p->c.pass));
    }
}
