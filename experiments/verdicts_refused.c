/* Why checks were refused: a count of refusals says nothing to whoever must do something about
 * them.  Cases are refused for want of a claim or several, or for what is declined; each word is
 * counted; relations
 * have reasons, and those of one reason are named together. */
#include <string.h>

#include "experiments/verdicts.h"
#include "tests/harness/claims.h"

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

static void print_words(FILE *out, const struct attn_verdict_list *list, const char *why,
                        const char *title, int n_words, const char *(*name)(int))
{
    int printed = 0;
    for (int bit = 0; bit < n_words; bit++) {
        int n = name(bit) != NULL ? refused_for(list, why, name(bit), 0) : 0;
        if (n > 0)
            fprintf(out, "%s %s %d (%d alone)", printed++ > 0 ? "," : title, name(bit), n,
                    refused_for(list, why, name(bit), 1));
    }
    if (printed > 0)
        fputc('\n', out);
}

/* ---- relations ------------------------------------------------------------------------------- */

static int same(const struct attn_verdict_entry *x, const struct attn_verdict_entry *y)
{
    return is_refused(x, "relation") && strcmp(x->result.text, y->result.text) == 0;
}

static void print_relations(FILE *out, const struct attn_verdict_list *list)
{
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        int first = is_refused(x, "relation");
        for (int before = 0; before < e && first; before++)
            first = !same(&list->entry[before], x);
        if (!first)
            continue;
        fprintf(out, "  refused relations");
        for (int after = e; after < list->n; after++)
            if (same(&list->entry[after], x))
                fprintf(out, " %s", list->entry[after].name);
        fprintf(out, ": %.300s\n", x->result.text);
    }
}

void attn_verdicts_refused(FILE *out, const struct attn_verdict_list *list)
{
    print_words(out, list,
                "not claimed: ", "  refused cases, by the claim that they want:", ATTN_CLAIMS,
                attn_claim_name);
    print_words(out, list, "declined: ", "  refused cases, by what was declined:", ATTN_DECLINES,
                attn_decline_name);
    print_relations(out, list);
}
