/* Why checks were refused: a count of refusals says nothing to whoever must do something about
 * them.  Cases are refused for want of a claim or several, or for what is declined; each word is
 * counted.  Relations have reasons, and those of one reason are named together. */
#include <string.h>

#include "experiments/check/verdicts.h"
#include "tests/harness/cases/claims.h"

static int is_refused(const struct attn_verdict_entry *x, const char *kind)
{
    return x->result.verdict == ATTN_REFUSED && strcmp(x->kind, kind) == 0;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Whether the list "backward, empty" has this word. */
static int lists(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; at != NULL; at = strstr(at, ", "), at = at != NULL ? at + 2 : at)
        if (strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return 1;
    return 0;
}

/* Cases that were refused for this word; alone: for no other. */
static int refused_for(const struct attn_verdict_list *list, const char *why, const char *word,
                       int alone)
{
    int n = 0;
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        const char *said = x->result.text + strlen(why);
        if (is_refused(x, "case") && strncmp(x->result.text, why, strlen(why)) == 0)
            n += alone ? strcmp(said, word) == 0 : lists(said, word);
    }
    return n;
}

/* Refusal number *n of cases, for a word of a list; *n counts those that are passed over. */
static int find_word(const struct attn_verdict_list *list, const char *why, int n_words,
                     const char *(*name)(int), int *n, struct attn_refusal *r)
{
    for (int bit = 0; bit < n_words; bit++) {
        r->n = name(bit) != NULL ? refused_for(list, why, name(bit), 0) : 0;
        if (r->n == 0 || (*n)-- > 0)
            continue;
        r->alone = refused_for(list, why, name(bit), 1);
        snprintf(r->what, sizeof r->what, "%s", name(bit));
        return 1;
    }
    return 0;
}

/* ---- relations ------------------------------------------------------------------------------- */

static int same(const struct attn_verdict_entry *x, const struct attn_verdict_entry *y)
{
    return is_refused(x, "relation") && strcmp(x->result.text, y->result.text) == 0;
}

/* The same of relations, for a reason. */
static int find_relations(const struct attn_verdict_list *list, int n, struct attn_refusal *r)
{
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        int first = is_refused(x, "relation");
        for (int before = 0; before < e && first; before++)
            first = !same(&list->entry[before], x);
        if (!first || n-- > 0)
            continue;
        r->n = 0;
        r->what[0] = '\0';
        r->why = x->result.text;
        for (int after = e; after < list->n; after++)
            if (same(&list->entry[after], x)) {
                size_t used = strlen(r->what);
                snprintf(r->what + used, sizeof r->what - used, "%s%s", r->n++ > 0 ? " " : "",
                         list->entry[after].name);
            }
        return 1;
    }
    return 0;
}

/* ---- the interface --------------------------------------------------------------------------- */

int attn_verdicts_refusal(const struct attn_verdict_list *list, int n, struct attn_refusal *r)
{
    r->sort = ATTN_REFUSED_CLAIM;
    if (find_word(list, "not claimed: ", ATTN_CLAIMS, attn_claim_name, &n, r))
        return 1;
    r->sort = ATTN_REFUSED_DECLINED;
    if (find_word(list, "declined: ", ATTN_DECLINES, attn_decline_name, &n, r))
        return 1;
    r->sort = ATTN_REFUSED_RELATIONS;
    return find_relations(list, n, r);
}

void attn_verdicts_refused(FILE *out, const struct attn_verdict_list *list)
{
    static const char *const title[] = {"  refused cases, by the claim that they want:",
                                        "  refused cases, by what was declined:"};
    struct attn_refusal r;
    int last = -1;
    for (int n = 0; attn_verdicts_refusal(list, n, &r); n++) {
        int same_line = (int)r.sort == last && r.sort != ATTN_REFUSED_RELATIONS;
        fputs(same_line ? "," : n > 0 ? "\n" : "", out);
        if (r.sort == ATTN_REFUSED_RELATIONS)
            fprintf(out, "  refused relations %s: %.300s", r.what, r.why);
        else
            fprintf(out, "%s %s %d (%d alone)", same_line ? "" : title[r.sort], r.what, r.n,
                    r.alone);
        last = (int)r.sort;
    }
    fputs(last >= 0 ? "\n" : "", out);
}
