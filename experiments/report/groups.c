#include "experiments/report/groups.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "optimized/integers.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/band.h"

const char *attn_pass_word(enum attn_pass pass)
{
    return pass == ATTN_FORWARD ? "forward" : "backward";
}

const char *attn_status_phrase(enum attn_point_status status)
{
    static const char *const phrase[] = {[ATTN_POINT_OK] = "measured",
                                         [ATTN_POINT_WRONG] = "wrong result",
                                         [ATTN_POINT_REFUSED] = "refused by the implementation",
                                         [ATTN_POINT_TOO_BIG] = "too big for this machine",
                                         [ATTN_POINT_DROPPED] = "dropped by the time budget",
                                         [ATTN_POINT_TIMEOUT] = "stopped by the time limit",
                                         [ATTN_POINT_KILLED] = "killed",
                                         [ATTN_POINT_OUT_OF_MEMORY] = "out of memory",
                                         [ATTN_POINT_ERROR] = "failed",
                                         [ATTN_POINT_PRICED] = "only priced"};
    return phrase[status];
}

/* ---- words ----------------------------------------------------------------------------------- */

void attn_mask_words(const struct attn_case *c, char text[80])
{
    struct attn_problem p;
    struct attn_mask *mask;
    struct attn_chain x;
    int is_open = attn_case_open(c, NULL, &p, &mask, NULL) == ATTN_OK;
    int is_chain = attn_chain_of(mask, &x) && x.length < 0;
    int is_band = is_chain && x.documents.n == 0 && x.band.offset == p.n_key - p.n_query;
    text[0] = '\0';
    if (is_open && attn_mask_is_none(mask))
        attn_append(text, 80, "no mask");
    else if (is_band && x.band.left >= 0 && x.band.right >= 0)
        attn_append(text, 80, "window of %lld", (long long)(x.band.left + x.band.right + 1));
    else if (is_band && x.band.left < 0 && x.band.right == 0)
        attn_append(text, 80, "causal mask");
    else if (is_chain && x.n_bands == 0)
        attn_append(text, 80, "documents");
    else
        attn_append(text, 80, "mask %.70s", attn_case_mask(c));
    attn_mask_free(mask);
}

/* Sizes of a problem, in the order in which they are named. */
static const struct size {
    const char *name;
    size_t place;
    int alike;                 /* left out where it equals that one everywhere */
    enum attn_group_kind axis; /* of which it is the x */
} sizes[] = {{"B=", offsetof(struct attn_case, batch), -1, ATTN_GROUP_BATCH},
             {"H=", offsetof(struct attn_case, heads), -1, ATTN_GROUP_HEADS},
             {"G=", offsetof(struct attn_case, kv_heads), 1, ATTN_GROUP_OTHER},
             {"d=", offsetof(struct attn_case, d_key), -1, ATTN_GROUP_DIM},
             {"dv=", offsetof(struct attn_case, d_value), 3, ATTN_GROUP_OTHER}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static int64_t size_of(const struct attn_row *row, int k)
{
    return *(const int64_t *)((const char *)&row->point->c + sizes[k].place);
}

/* The facts that the rows of a group have in common, and those in which they differ. */
struct facts {
    int differ_in_length, differ_in_mask, differ_in_dtype, differ_in_fill;
    struct {
        int64_t least, most;
        int is_new; /* not that of another one everywhere */
    } size[SIZES];
};

static struct facts facts_of(const struct attn_figure_group *group)
{
    struct facts facts = {0};
    const struct attn_case *c = &group->row[0]->point->c;
    for (int k = 0; k < SIZES; k++) {
        facts.size[k].least = facts.size[k].most = size_of(group->row[0], k);
        facts.size[k].is_new = sizes[k].alike < 0;
    }
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_case *other = &group->row[s]->point->c;
        facts.differ_in_length |= other->n_query != c->n_query;
        facts.differ_in_mask |= strcmp(other->mask, c->mask) != 0;
        facts.differ_in_dtype |= other->dtype != c->dtype;
        facts.differ_in_fill |= other->fill != c->fill;
        for (int k = 0; k < SIZES; k++) {
            int64_t value = size_of(group->row[s], k);
            facts.size[k].least = less(facts.size[k].least, value);
            facts.size[k].most = greater(facts.size[k].most, value);
            facts.size[k].is_new |= value != size_of(group->row[s], abs(sizes[k].alike));
        }
    }
    return facts;
}

/* The common facts of the rows, in words; a mask or length that varies is left out. */
static void describe(struct attn_figure_group *group, const struct facts *facts)
{
    char *text = group->problem, mask[80], number[32];
    size_t size = sizeof group->problem;
    const struct attn_case *c = &group->row[0]->point->c;
    for (int k = 0; k < SIZES; k++) {
        if (k == SIZES - 1 && !facts->size[k].is_new)
            continue; /* dv is d */
        attn_append(text, size, "%s%s%lld", k > 0 ? ", " : "", sizes[k].name,
                    (long long)facts->size[k].least);
        if (facts->size[k].most > facts->size[k].least)
            attn_append(text, size, " to %lld", (long long)facts->size[k].most);
    }
    attn_append(text, size, ", %s, %s data",
                facts->differ_in_dtype ? "several types" : attn_dtype_name(c->dtype),
                facts->differ_in_fill ? "several kinds of" : attn_fill_name(c->fill));
    attn_mask_words(c, mask);
    if (!facts->differ_in_mask || strcmp(mask, "documents") == 0)
        attn_append(group->special, sizeof group->special, "%s", mask);
    if (!facts->differ_in_length)
        attn_append(group->special, sizeof group->special, "%sL = %s",
                    facts->differ_in_mask ? "" : ", ", attn_cli_grouped(c->n_query, number));
    if (group->special[0] == '\0')
        attn_append(group->special, sizeof group->special, "%s", group->name);
}

/* The label of a row's curve: the rows of a curve differ in nothing but the x of their group. */
static void write_label(const struct attn_figure_group *group, const struct attn_row *row,
                        const struct facts *facts, char text[ATTN_LABEL_TEXT])
{
    const struct attn_point *p = row->point;
    char spec[128];
    attn_spec_without_ranks(p->spec, spec);
    (void)snprintf(text, ATTN_LABEL_TEXT, "%s", group->kind == ATTN_GROUP_RANKS ? spec : p->spec);
    /* A preset number of ranks is not in the spec. */
    if (group->kind != ATTN_GROUP_RANKS && p->ranks > 1 && strstr(p->spec, "ranks=") == NULL)
        attn_append(text, ATTN_LABEL_TEXT, " (R=%d)", p->ranks);
    if (p->stack.n > 0 && group->kind != ATTN_GROUP_LAYERS)
        attn_append(text, ATTN_LABEL_TEXT, " (%lld layers, %s)", (long long)p->stack.n,
                    attn_stack_save_name(p->stack.save));
    else if (p->stack.n > 0)
        attn_append(text, ATTN_LABEL_TEXT, " (%s)", attn_stack_save_name(p->stack.save));
    if (p->c.threads > 1)
        attn_append(text, ATTN_LABEL_TEXT, " (%d threads)", p->c.threads);
    for (int k = 0; k < SIZES; k++)
        if (facts->size[k].is_new && facts->size[k].most > facts->size[k].least &&
            sizes[k].axis != group->kind)
            attn_append(text, ATTN_LABEL_TEXT, ", %s%lld", sizes[k].name,
                        (long long)size_of(row, k));
    if (facts->differ_in_dtype)
        attn_append(text, ATTN_LABEL_TEXT, ", %s", attn_dtype_name(p->c.dtype));
}

/* "q=64 k=256" of "chunked:q=64,k=256"; of a bare name the name. */
static void write_option(const char *impl, const char *label, char option[ATTN_LABEL_TEXT])
{
    size_t n = strncmp(label, impl, strlen(impl)) == 0 ? strlen(impl) : 0, end = 0;
    n += strspn(label + n, ":, ");
    for (const char *c = label[n] != '\0' ? label + n : label; *c != '\0'; c++)
        if (c[0] != ',' || c[1] != ' ')
            option[end++] = *c == ',' ? ' ' : *c;
    option[end] = '\0';
}

/* ---- grouping -------------------------------------------------------------------------------- */

/* The labels of the last line that the records have of a plan's group; NULL: none. */
static const json_t *labels_of(const json_t *labels, const char *group)
{
    for (size_t i = json_array_size(labels); i > 0; i--) {
        const json_t *line = json_array_get(labels, i - 1);
        const char *name = json_string_value(json_object_get(line, "group"));
        if (name != NULL && strcmp(name, group) == 0)
            return json_object_get(line, "label");
    }
    return NULL;
}

/* Do the masks of a length group each stand at several lengths?  If not (documents(...) changes
 * with L), they are one family and make one figure. */
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

/* The facts that must be equal within a figure group, beside its name. */
struct key {
    int mask, length;
};

static struct key key_of(const struct attn_summary *all, const char *group)
{
    enum attn_group_kind kind = attn_group_kind_of(group);
    const char *apart = kind != ATTN_GROUP_OTHER ? attn_group_words[kind].apart : "";
    return (struct key){.length = strchr(apart, 'l') != NULL,
                        .mask = strchr(apart, 'm') != NULL &&
                                (kind != ATTN_GROUP_LENGTH || splits_by_mask(all, group))};
}

static int belongs(const struct attn_point *p, const struct attn_point *first,
                   const struct key *key)
{
    return strcmp(p->group, first->group) == 0 &&
           (!key->mask || strcmp(p->c.mask, first->c.mask) == 0) &&
           (!key->length || p->c.n_query == first->c.n_query);
}

static int compare_rows(const void *a, const void *b)
{
    const struct attn_row *p = *(struct attn_row *const *)a, *q = *(struct attn_row *const *)b;
    int pass = (int)p->point->c.pass - (int)q->point->c.pass;
    return p->first != q->first ? (p->first > q->first) - (p->first < q->first)
           : pass != 0          ? pass
           : p->x != q->x       ? (p->x > q->x) - (p->x < q->x)
                                : (p > q) - (p < q);
}

/* Labels and options of the rows, which come to stand by label, pass and x. */
static void place_rows(struct attn_figure_group *group, const struct facts *facts)
{
    for (int64_t s = 0; s < group->n; s++) {
        struct attn_row *row = group->row[s];
        write_label(group, row, facts, row->label);
        write_option(row->point->impl, row->label, row->option);
        row->x = attn_group_x(group->kind, row->point);
        for (row->first = 0; strcmp(group->row[row->first]->label, row->label) != 0;)
            row->first++;
    }
    qsort(group->row, (size_t)group->n, sizeof *group->row, compare_rows);
}

static void take_rows(const struct attn_summary *all, const json_t *labels, int64_t first,
                      const struct key *key, struct attn_figure_group *group)
{
    const struct attn_point *p = all->row[first].point;
    memset(group, 0, sizeof *group);
    group->row = attn_cli_need(malloc((size_t)all->n * sizeof *group->row));
    (void)snprintf(group->name, sizeof group->name, "%s", p->group);
    group->kind = attn_group_kind_of(p->group);
    group->labels = labels_of(labels, p->group);
    for (int64_t s = 0; s < all->n; s++) {
        const struct attn_point *q = all->row[s].point;
        if (belongs(q, p, key))
            group->row[group->n++] = &all->row[s];
    }
    struct facts facts = facts_of(group);
    describe(group, &facts);
    place_rows(group, &facts);
}

/* The group's name after its first word, fit for a file; numbered where several would be equal. */
static void make_tag(struct attn_figure_groups *groups, struct attn_figure_group *group)
{
    const char *rest = strchr(group->name, '-');
    int nth = 1, taken = 1;
    for (; taken; nth++) {
        size_t n = 0;
        for (const char *c = rest != NULL ? rest + 1 : ""; *c != '\0' && n < 30; c++)
            group->tag[n++] = isalnum((unsigned char)*c) ? *c : '-';
        group->tag[n] = '\0';
        if (nth > 1)
            attn_append(group->tag, sizeof group->tag, "%s%d", n > 0 ? "-" : "", nth);
        taken = 0;
        for (int s = 0; s < groups->n; s++)
            taken |= groups->group[s].kind == group->kind &&
                     strcmp(groups->group[s].tag, group->tag) == 0;
    }
}

void attn_groups_make(const struct attn_summary *summary, const json_t *labels,
                      struct attn_figure_groups *groups)
{
    groups->n = 0;
    groups->group = attn_cli_need(calloc((size_t)summary->n + 1, sizeof *groups->group));
    for (int64_t s = 0; s < summary->n; s++) {
        const struct attn_point *p = summary->row[s].point;
        struct key key = key_of(summary, p->group);
        int64_t before = 0;
        while (!belongs(summary->row[before].point, p, &key))
            before++;
        if (before < s)
            continue;
        struct attn_figure_group *group = &groups->group[groups->n];
        take_rows(summary, labels, s, &key, group);
        make_tag(groups, group);
        groups->n++;
    }
}

void attn_groups_free(struct attn_figure_groups *groups)
{
    for (int s = 0; s < groups->n; s++)
        free(groups->group[s].row);
    free(groups->group);
    *groups = (struct attn_figure_groups){NULL, 0};
}

/* ---- questions ------------------------------------------------------------------------------- */

const char *attn_group_label(const struct attn_figure_group *group, const char *key)
{
    const json_t *labels = group != NULL ? group->labels : NULL;
    const char *text = json_string_value(json_object_get(labels, key));
    char spec[ATTN_LABEL_TEXT];
    (void)snprintf(spec, sizeof spec, "%.*s", (int)attn_spec_length(key), key);
    return text != NULL ? text : json_string_value(json_object_get(labels, spec));
}

const char *attn_group_legend(const struct attn_figure_group *group, const struct attn_row *row)
{
    const char *setting = attn_group_label(group, row->label);
    return setting != NULL ? setting : row->label;
}

int64_t attn_group_curve_end(const struct attn_figure_group *group, int64_t s)
{
    const struct attn_row *row = group->row[s];
    while (++s < group->n && group->row[s]->first == row->first &&
           group->row[s]->point->c.pass == row->point->c.pass)
        ;
    return s;
}

int attn_group_is_first(const struct attn_figure_group *group, int64_t s)
{
    return s == 0 || group->row[s - 1]->first != group->row[s]->first;
}

int attn_group_has_pass(const struct attn_figure_group *group, enum attn_pass pass)
{
    for (int64_t s = 0; s < group->n; s++)
        if (group->row[s]->point->c.pass == pass)
            return 1;
    return 0;
}

const struct attn_row *attn_group_find(const struct attn_figure_group *group, const char *label,
                                       enum attn_pass pass, int64_t n_query)
{
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_case *c = &group->row[s]->point->c;
        if (c->pass == pass && c->n_query == n_query && strcmp(group->row[s]->label, label) == 0)
            return group->row[s];
    }
    return NULL;
}

int64_t attn_group_common_length(const struct attn_figure_group *group, enum attn_pass pass)
{
    int64_t best = 0;
    for (int64_t s = 0; s < group->n; s++) {
        int64_t length = group->row[s]->point->c.n_query;
        for (int64_t t = 0; t < group->n && length > best; t++) {
            const struct attn_row *row = group->row[t], *there;
            if (row->point->c.pass != pass || row->status != ATTN_POINT_OK)
                continue;
            there = attn_group_find(group, group->row[t]->label, pass, length);
            if (there == NULL || there->status != ATTN_POINT_OK)
                length = 0;
        }
        int is_good =
            group->row[s]->point->c.pass == pass && group->row[s]->status == ATTN_POINT_OK;
        best = is_good && length > best ? length : best;
    }
    return best;
}
