/* Words, numbers and names: what the readers of calls are made of.
 *
 * Numbers are whole, at most 2^60 in size, and never silently cut. */
#include "ref/mask/mask_internal.h"

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

/* ---- letters and words -------------------------------------------------------------------- */

void attn_mask_skip_blanks(struct mask_parser *p)
{
    p->at += strspn(p->at, " \t");
}

int attn_mask_is_letter(char c)
{
    return c != '\0' && strchr(LETTERS, c) != NULL;
}

struct mask_slice attn_mask_word(struct mask_parser *p)
{
    struct mask_slice word = {p->at, (int64_t)strspn(p->at, LETTERS DIGITS)};
    p->at += word.size;
    return word;
}

int attn_mask_slice_is(struct mask_slice arg, const char *word)
{
    return (int64_t)strlen(word) == arg.size && memcmp(arg.text, word, (size_t)arg.size) == 0;
}

struct mask_slice attn_mask_argument(struct mask_parser *p)
{
    if (!p->more)
        attn_mask_fail_at(p, p->at - 1, "%s needs %s", p->call->name, p->call->needs);
    attn_mask_skip_blanks(p);
    struct mask_slice arg = {p->at, (int64_t)strspn(p->at, LETTERS DIGITS "+-./")};
    p->at += arg.size;
    if (arg.size == 0)
        attn_mask_expected(p, "an argument was expected");
    attn_mask_skip_blanks(p);
    p->more = *p->at == ',';
    if (p->more || *p->at == ')')
        p->at++;
    else
        attn_mask_expected(p, "',' or ')' was expected after an argument");
    return arg;
}

void attn_mask_no_more(struct mask_parser *p)
{
    if (p->more)
        attn_mask_fail_at(p, p->at - 1, "too many arguments: %s needs %s", p->call->name,
                          p->call->needs);
}

void attn_mask_name(struct mask_parser *p, struct mask_slice arg)
{
    attn_mask_no_more(p);
    if (arg.size >= MASK_NAME_ROOM)
        attn_mask_fail_at(p, arg.text, "a name of %lld bytes; up to %d would work",
                          (long long)arg.size, MASK_NAME_ROOM - 1);
    if (p->status != ATTN_OK)
        return;
    memcpy(p->name, arg.text, (size_t)arg.size);
    p->name[arg.size] = '\0';
    p->name_at = arg.text;
}

/* ---- numbers ------------------------------------------------------------------------------ */

const struct mask_least mask_natural = {0, "0 or more was expected"};

int64_t attn_mask_whole(struct mask_parser *p, struct mask_slice arg)
{
    const char *c = arg.text + (*arg.text == '+' || *arg.text == '-');
    const char *end = arg.text + arg.size;
    int64_t n = 0;
    if (c >= end || (int64_t)strspn(c, DIGITS) < end - c)
        attn_mask_fail_at(p, arg.text, "'%.*s' is not a whole number", MASK_SLICE(arg));
    for (; c < end && p->status == ATTN_OK; c++) {
        if (n <= (MASK_NUMBER_MAX - (*c - '0')) / 10)
            n = 10 * n + (*c - '0');
        else
            attn_mask_fail_at(p, arg.text, "'%.*s' is too large: numbers go up to 2^60",
                              MASK_SLICE(arg));
    }
    return *arg.text == '-' ? -n : n;
}

int64_t attn_mask_number_of(struct mask_parser *p, struct mask_slice arg,
                            const struct mask_least *least)
{
    int64_t n = attn_mask_whole(p, arg);
    if (n < least->number)
        attn_mask_fail_at(p, arg.text, "'%.*s': %s", MASK_SLICE(arg), least->says);
    return p->status == ATTN_OK ? n : least->number;
}

int64_t attn_mask_number(struct mask_parser *p, const struct mask_least *least)
{
    return attn_mask_number_of(p, attn_mask_argument(p), least);
}

int64_t attn_mask_length_of(struct mask_parser *p, struct mask_slice arg)
{
    int64_t length = attn_mask_number_of(p, arg, &mask_natural);
    if (length > p->mask->shape.n_key)
        attn_mask_fail_at(p, arg.text, "length %lld exceeds Lk = %lld", (long long)length,
                          (long long)p->mask->shape.n_key);
    return length;
}

void attn_mask_one_for_each(struct mask_parser *p, struct mask_node *node, int64_t n,
                            const char *begin)
{
    if (n != 1 && n != p->mask->shape.batch)
        attn_mask_fail_at(p, begin,
                          "%lld of them for %lld batches: give one for each, or one for all",
                          (long long)n, (long long)p->mask->shape.batch);
    node->by_batch = n > 1;
}
