/* See kinds.def: which cases a selection has, and the hidden numbers of one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/rim/grade/grading.h"

/* The keys of a selection: the text that each looks at, and the match of one of its words. */
static int begins(const char *text, const char *word, size_t n)
{
    return strncmp(text, word, n) == 0;
}

static int contains(const char *text, const char *word, size_t n)
{
    for (; *text != '\0'; text++)
        if (strncmp(text, word, n) == 0)
            return 1;
    return 0;
}

static int at_least(const char *text, const char *word, size_t n)
{
    (void)n;
    return atoll(text) >= atoll(word);
}

static const struct key {
    const char *name;
    int (*matches)(const char *text, const char *word, size_t n);
} key[] = {{"fill=", begins},
           {"mask=", contains},
           {"name=", begins},
           {"ids=", contains},
           {"keys=", at_least}};

enum { KEYS = sizeof key / sizeof *key };

static const struct key *key_of(const char *word)
{
    int k = 0;
    while (k < KEYS && strncmp(word, key[k].name, strlen(key[k].name)) != 0)
        k++;
    return k < KEYS ? &key[k] : NULL;
}

static const char *text_of(const struct key *k, const struct attn_asked *asked, char number[24])
{
    snprintf(number, 24, "%lld", (long long)asked->c.n_key);
    return k == &key[0]             ? attn_fill_name(asked->c.fill)
           : k == &key[1]           ? asked->c.mask
           : k == &key[2]           ? asked->name
           : k == &key[4]           ? number
           : asked->battery != NULL ? asked->battery->ids
                                    : "";
}

static int has_one(const struct key *k, const char *words, const char *text)
{
    for (words += strlen(k->name); *words != '\0'; words += *words == ',') {
        size_t n = strcspn(words, ",");
        if (k->matches(text, words, n))
            return 1;
        words += n;
    }
    return 0;
}

static int claim_of(const char *word)
{
    int bit = 0;
    while (bit < ATTN_CAPS && (1u << bit & ATTN_CAPS_OWN || strcmp(attn_cap_name(bit), word) != 0))
        bit++;
    return bit < ATTN_CAPS ? bit : -1;
}

static int holds(const char *word, const struct attn_asked *asked, unsigned needs)
{
    const struct key *k = key_of(word);
    char number[24];
    if (strcmp(word, "*") == 0)
        return 1;
    if (k != NULL)
        return has_one(k, word, text_of(k, asked, number));
    return (needs >> claim_of(word) & 1u) != 0;
}

int attn_selection_has(const char *selection, const struct attn_asked *asked, unsigned needs)
{
    char word[200];
    int used;
    for (; sscanf(selection, " %199s%n", word, &used) == 1; selection += used)
        if (holds(word + (word[0] == '!'), asked, needs) == (word[0] == '!'))
            return 0;
    return 1;
}

enum attn_status attn_selection_check(const char *selection, struct attn_error *err)
{
    char word[200];
    int used;
    for (; sscanf(selection, " %199s%n", word, &used) == 1; selection += used) {
        const char *bare = word + (word[0] == '!');
        if (strcmp(bare, "*") != 0 && key_of(bare) == NULL && claim_of(bare) < 0)
            return attn_fail(
                err, ATTN_EINVAL,
                "'%s' selects no cases: a claim, fill=, mask=, name=, ids=, keys= or * does", word);
    }
    return ATTN_OK;
}

/* ---- the numbers that are asked -------------------------------------------------------------- */

void attn_task_hide(const struct attn_task *task, struct attn_case *c)
{
    char text[ATTN_CASE_TEXT];
    uint64_t hash = attn_digest_bytes(ATTN_DIGEST_BEGIN, task->hidden, strlen(task->hidden));
    if (task->hidden[0] == '\0')
        return;
    attn_case_print(c, text);
    hash = attn_digest_bytes(hash, text, strlen(text));
    c->seed = 1 + (hash >> 33) % 1000000000;
}
