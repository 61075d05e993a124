/* The refusals, in the summary.  A count of refusals says nothing to a reader who must do something
 * about them: cases are refused for want of a claim or several, or for what is declined, and each
 * word is counted; or by the implementation itself, and its reasons are. */
#include <string.h>

#include "experiments/check/verdicts.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/claims.h"
#include "tests/harness/cases/factors.h"

/* ---- by the claims --------------------------------------------------------------------------- */

static int is_refused(const struct attn_verdict_entry *x, enum attn_check_kind kind)
{
    return x->result.verdict == ATTN_REFUSED && !x->result.by_it && x->kind == kind;
}

enum { BY_CLAIM, BY_DECLINED, BY_SHAPE };

static unsigned wanted(const struct attn_verdict_entry *x, int by)
{
    const struct attn_wants *w = &x->wants;
    return by == BY_CLAIM      ? w->missing
           : by == BY_DECLINED ? w->declined
           : w->missing == 0   ? w->shapes
                               : 0;
}

static const char *name_of(int by, int bit)
{
    return by == BY_CLAIM      ? attn_cap_name(bit)
           : by == BY_DECLINED ? attn_decline_name(bit)
                               : attn_factor[bit].name;
}

/* The family of a case, if it is not there yet. */
static void add_family(const char *name, char *families, size_t size)
{
    char family[40];
    snprintf(family, sizeof family, "%.*s", (int)strcspn(name, "-"), name);
    if (strstr(families, family) == NULL)
        attn_append(families, size, "%s%s", families[0] != '\0' ? " " : ": ", family);
}

/* Each word by name, with the cases that want it, and those that want nothing else: which these
 * are by their families. */
static void print_refused_cases(FILE *out, const struct attn_verdict_list *list, const char *title,
                                int by)
{
    int found = 0;
    for (int b = 0; b < 32; b++) {
        int n = 0, alone = 0;
        char families[120] = "";
        for (int e = 0; e < list->n; e++) {
            const struct attn_verdict_entry *x = &list->entry[e];
            unsigned want = wanted(x, by);
            if (!is_refused(x, ATTN_CHECK_CASE))
                continue;
            n += (want >> b & 1u) != 0;
            alone += want == 1u << b;
            if (want == 1u << b)
                add_family(x->name, families, sizeof families);
        }
        if (n > 0)
            fprintf(out, "%s %s %d (%d alone)%s", found++ > 0 ? "," : title, name_of(by, b), n,
                    alone, families);
    }
    fputs(found > 0 ? "\n" : "", out);
}

/* Relations of one reason are named together. */
static void print_refused_relations(FILE *out, const struct attn_verdict_list *list)
{
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e], *y = list->entry;
        while (y < x &&
               !(is_refused(y, ATTN_CHECK_RELATION) && strcmp(y->message, x->message) == 0))
            y++;
        if (!is_refused(x, ATTN_CHECK_RELATION) || y < x)
            continue;
        fputs("  refused relations", out);
        for (; y < list->entry + list->n; y++)
            if (is_refused(y, ATTN_CHECK_RELATION) && strcmp(y->message, x->message) == 0)
                fprintf(out, " %s", y->name);
        fprintf(out, ": %.300s\n", x->message);
    }
}

/* ---- by it ----------------------------------------------------------------------------------- */

/* Those of one reason; reasons that differ by their numbers alone are one. */
struct reason { /* a relation has no size: it is shown where no case has the reason */
    int n;
    double work; /* of the smallest */
    const struct attn_verdict_entry *smallest;
};

static void add_refusal(struct reason *r, const struct attn_verdict_entry *x)
{
    double work = attn_verdict_work(x);
    if (r->n++ > 0 && work >= r->work)
        return;
    r->work = work;
    r->smallest = x;
}

static void print_by_it(FILE *out, const struct attn_verdict_list *list)
{
    enum { MOST = 32 };
    struct reason reason[MOST] = {{0}};
    int n = 0, found = 0, others = 0;
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        int k = 0;
        if (x->result.verdict != ATTN_REFUSED || !x->result.by_it)
            continue;
        while (k < n && !attn_verdicts_alike(reason[k].smallest->message, x->message))
            k++;
        n += k == n && n < MOST;
        if (k < n)
            add_refusal(&reason[k], x);
        others += k == n;
        found++;
    }
    if (found > 0)
        fprintf(out, "  refused by it, %d in all, by its reason; the smallest case of each:\n",
                found);
    for (int k = 0; k < n; k++)
        fprintf(out, "    %d: %.300s; %s\n", reason[k].n, reason[k].smallest->message,
                reason[k].smallest->text);
    if (others > 0)
        fprintf(out, "    %d: for other reasons\n", others);
}

void attn_refusals_text(FILE *out, const struct attn_verdict_list *list)
{
    print_by_it(out, list);
    print_refused_cases(out, list, "  refused cases, by the claim that they want:", BY_CLAIM);
    print_refused_cases(out, list, "  refused cases, by what was declined:", BY_DECLINED);
    print_refused_cases(out, list, "  refused cases, by the shape that is not declared:", BY_SHAPE);
    print_refused_relations(out, list);
}
