/* See votes.h. */
#include "experiments/votes.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/diagnose.h"

static const char mark[] = "; looks like: ";

void attn_votes_append(struct attn_result *r, const char *diagnosis)
{
    size_t used = strlen(r->text);
    if (diagnosis[0] != '\0')
        snprintf(r->text + used, sizeof r->text - used, "%s%s",
                 attn_diagnosis_is_bare(diagnosis) ? "; " : mark, diagnosis);
}

void attn_votes_count(struct attn_votes *votes, const struct attn_result *r)
{
    const char *said = strstr(r->text, mark);
    char text[sizeof votes->of[0].text];
    int n = 0;
    if (said == NULL)
        return;
    snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, said + strlen(mark));
    votes->diagnosed++;
    while (n < ATTN_VOTES && votes->of[n].n > 0 && strcmp(votes->of[n].text, text) != 0)
        n++;
    if (n == ATTN_VOTES)
        return;
    memcpy(votes->of[n].text, text, sizeof text);
    votes->of[n].n++;
}

const char *attn_votes_cause(const struct attn_votes *votes, int *agree)
{
    int best = 0;
    for (int n = 1; n < ATTN_VOTES; n++)
        best = votes->of[n].n > votes->of[best].n ? n : best;
    *agree = votes->of[best].n;
    return *agree > 1 ? votes->of[best].text : NULL;
}
