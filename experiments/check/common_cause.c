/* See common_cause.h. */
#include "experiments/check/common_cause.h"

#include <stdio.h>
#include <string.h>

static const char mark[] = "; looks like: ";

void attn_common_cause_append(struct attn_result *r, const struct attn_diagnosis *diagnosis)
{
    size_t used = strlen(r->text);
    if (diagnosis == NULL || diagnosis->text[0] == '\0')
        return;
    r->fault = diagnosis->fault;
    snprintf(r->text + used, sizeof r->text - used, "%s%s%s%s",
             diagnosis->where[0] != '\0' ? "; shows in " : "", diagnosis->where,
             diagnosis->fault == ATTN_FAULT_NONE ? "; " : mark, diagnosis->text);
}

/* Past a number, or a list of them. */
static const char *past_numbers(const char *at)
{
    return at + strspn(at, "0123456789 ,.+-");
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int attn_says_the_same(const char *a, const char *b)
{
    while (*a != '\0' && (*a == *b || (is_digit(*a) && is_digit(*b)))) {
        int number = is_digit(*a);
        a = number ? past_numbers(a) : a + 1;
        b = number ? past_numbers(b) : b + 1;
    }
    return *a == *b;
}

void attn_common_cause_count(struct attn_common_cause *causes, const struct attn_result *r)
{
    const char *said = strstr(r->text, mark);
    int n = 0;
    if (said == NULL || r->fault <= ATTN_FAULT_NONE || r->fault >= ATTN_FAULTS)
        return;
    said += strlen(mark);
    causes->diagnosed++;
    causes->n[r->fault]++;
    while (n < ATTN_CAUSES && causes->of[n].n > 0 && !attn_says_the_same(causes->of[n].text, said))
        n++;
    if (n == ATTN_CAUSES)
        return;
    if (causes->of[n].n++ == 0)
        snprintf(causes->of[n].text, sizeof causes->of[n].text, "%s", said);
    causes->of[n].fault = r->fault;
}

const char *attn_common_cause_name(const struct attn_common_cause *causes, int *agree)
{
    int fault = 0, best = -1;
    for (int n = 1; n < ATTN_FAULTS; n++)
        fault = causes->n[n] > causes->n[fault] ? n : fault;
    for (int n = 0; n < ATTN_CAUSES; n++)
        if (causes->of[n].fault == fault && (best < 0 || causes->of[n].n > causes->of[best].n))
            best = n;
    *agree = causes->n[fault];
    return *agree > 1 && best >= 0 ? causes->of[best].text : NULL;
}
