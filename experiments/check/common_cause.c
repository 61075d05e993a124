/* See common_cause.h. */
#include "experiments/check/common_cause.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/diagnose.h"

/* Past a number, or a list of them. */
static const char *past_numbers(const char *at)
{
    return at + strspn(at, "0123456789 ,.+-");
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int attn_verdicts_alike(const char *a, const char *b)
{
    while (*a != '\0' && (*a == *b || (is_digit(*a) && is_digit(*b)))) {
        int number = is_digit(*a);
        a = number ? past_numbers(a) : a + 1;
        b = number ? past_numbers(b) : b + 1;
    }
    return *a == *b;
}

/* Kinds in n[]: the kinds of faults, and PRECISION by type behind them. */
static int kind_of(const struct attn_result *r)
{
    return r->diagnosis.fault == ATTN_FAULT_PRECISION ? ATTN_FAULTS + (int)r->dtype
                                                      : (int)r->diagnosis.fault;
}

static int is_backward(const struct attn_result *r)
{
    return r->failure != ATTN_F_EXACT && r->output[ATTN_O].n_bad == 0 &&
           r->output[ATTN_LSE].n_bad == 0;
}

void attn_common_cause_count(struct attn_common_cause *causes, const struct attn_result *r)
{
    const struct attn_diagnosis *d = &r->diagnosis;
    int n = 0, kind = kind_of(r), backward = is_backward(r);
    if (r->output[ATTN_O].n > 0) {
        causes->passes[r->dtype] += r->verdict == ATTN_PASS;
        causes->fails[r->dtype] += r->verdict == ATTN_FAILED;
    }
    causes->asked += d->text[0] != '\0';
    if (d->text[0] == '\0' || d->fault <= ATTN_FAULT_NONE || d->fault >= ATTN_FAULTS)
        return;
    causes->diagnosed++;
    causes->n[kind]++;
    causes->backward[kind] += backward;
    while (n < ATTN_CAUSES && causes->of[n].n > 0 &&
           !(causes->of[n].kind == kind && causes->of[n].backward == backward &&
             (kind == ATTN_FAULT_FACTOR && strchr(d->text, '(') == NULL
                  ? strcmp(causes->of[n].text, d->text) == 0
                  : attn_verdicts_alike(causes->of[n].text, d->text))))
        n++;
    if (n == ATTN_CAUSES)
        return;
    if (causes->of[n].n++ > 0)
        return;
    causes->of[n].kind = kind;
    causes->of[n].backward = backward;
    memcpy(causes->of[n].text, d->text, sizeof d->text);
    memcpy(causes->of[n].remedy, d->remedy, sizeof d->remedy);
}

/* How many failures say it: of a factor those of one number, or of one origin, for any factor fits
 * some case. */
static int votes_of(const struct attn_common_cause *causes, int kind)
{
    int most = 0;
    for (int n = 0; n < ATTN_CAUSES && kind == ATTN_FAULT_FACTOR; n++)
        if (causes->of[n].kind == kind && causes->of[n].n > most)
            most = causes->of[n].n;
    return kind == ATTN_FAULT_FACTOR ? most : causes->n[kind];
}

/* A kind that says no more than digits or a feature is no second cause. */
static int is_vague(int kind)
{
    return kind >= ATTN_FAULTS || kind == ATTN_FAULT_FEATURE;
}

/* The commonest kind of fault; a second one beside the first (0: that is asked). */
static int commonest(const struct attn_common_cause *causes, int first)
{
    int kind = 0, most = 0;
    for (int n = 1; n < ATTN_FAULTS + ATTN_DTYPES; n++) {
        int votes = first > 0 ? votes_of(causes, n) : causes->n[n];
        if (n != first && !(first > 0 && is_vague(n)) && votes > most)
            kind = n, most = votes;
    }
    return kind;
}

/* The words of a kind that most have, of one pass (backward 0 or 1) or of both (-1); its number is
 * that of the kind. */
static struct attn_cause most_of(const struct attn_common_cause *causes, int kind, int backward)
{
    struct attn_cause cause = {.kind = kind}; /* where no place was left for its words */
    for (int n = 0; n < ATTN_CAUSES; n++)
        if (causes->of[n].kind == kind && (backward < 0 || causes->of[n].backward == backward) &&
            causes->of[n].n > cause.n)
            cause = causes->of[n];
    cause.n = causes->n[kind];
    if (cause.remedy[0] == '\0')
        snprintf(
            cause.remedy, sizeof cause.remedy, "%s",
            attn_fault_remedy(kind < ATTN_FAULTS ? (enum attn_fault)kind : ATTN_FAULT_PRECISION));
    return cause;
}

int attn_common_causes(const struct attn_common_cause *causes, struct attn_cause named[2])
{
    const int first = commonest(causes, 0), agree = causes->n[first];
    int second = commonest(causes, first), others = votes_of(causes, second), pass = -1;
    if (agree < 2 || 3 * agree < causes->diagnosed || 4 * agree < causes->asked)
        return 0;
    named[0] = most_of(causes, first, -1);
    const int apart = named[0].backward ? agree - causes->backward[first] : causes->backward[first];
    if (!is_vague(first) && first != ATTN_FAULT_FACTOR && apart >= others)
        second = first, others = apart, pass = !named[0].backward;
    if (others < 3 || 10 * others < causes->diagnosed)
        return 1;
    named[0].n -= pass < 0 ? 0 : others;
    named[1] = most_of(causes, second, pass);
    named[1].n = others;
    return 2;
}

int attn_cause_fits(const struct attn_cause *cause, const struct attn_result *r)
{
    return cause->kind < 0 || (r->diagnosis.text[0] != '\0' && kind_of(r) == cause->kind);
}

void attn_common_cause_types(const struct attn_common_cause *causes, char text[80])
{
    char fails[32] = "", passes[32] = "";
    double failed = 0, asked = 0;
    for (int t = 0; t < ATTN_DTYPES; t++)
        if (causes->fails[t] > 0) {
            failed += causes->fails[t];
            asked += causes->fails[t] + causes->passes[t];
        }
    for (int t = 0; t < ATTN_DTYPES; t++) {
        char *to = causes->fails[t] > 0 ? fails : passes;
        int is_chance = to == passes && pow(1 - failed / asked, causes->passes[t]) >= 0.05;
        if (causes->fails[t] + causes->passes[t] > 0 && !is_chance)
            attn_append(to, sizeof fails, "%s%s", to[0] != '\0' ? " and " : "",
                        attn_dtype_name((enum attn_dtype)t));
    }
    text[0] = '\0';
    if (fails[0] != '\0' && passes[0] != '\0')
        snprintf(text, 80, "in %s, not in %s", fails, passes);
}
