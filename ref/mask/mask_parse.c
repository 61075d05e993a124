/* The language of masks: text to tree.
 *
 *      either  =  both ("|" both)*
 *      both    =  item ("&" item)*
 *      item    =  "(" either ")"  |  NAME ["(" argument ("," argument)* ")"]
 *
 * Recursive descent.  Chains of any length are loops; only parentheses recurse, and DEPTH limits
 * them.  Blanks are allowed between all of these.  Every failure names a column of the text. */
#include "ref/mask/mask_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/nearest.h"

enum { DEPTH = 64 };

/* ---- failure ------------------------------------------------------------------------------ */

enum attn_status attn_mask_fail_at(struct mask_parser *p, int64_t at, const char *format, ...)
{
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return attn_fail(p->err, ATTN_EINVAL, "mask, column %lld: %s", (long long)at + 1, text);
}

const char *attn_mask_found(const struct mask_parser *p, char text[32])
{
    unsigned char c = (unsigned char)p->text[p->at];
    if (c == '\0')
        return "the end of the text";
    snprintf(text, 32, c >= 33 && c <= 126 ? "'%c'" : "byte 0x%02x", c);
    return text;
}

static enum attn_status no_memory(struct mask_parser *p, int64_t bytes)
{
    return attn_fail(p->err, ATTN_ENOMEM, "mask: no memory for a description of %lld bytes",
                     (long long)bytes);
}

/* ---- letters --------------------------------------------------------------------------- */

void attn_mask_skip_blanks(struct mask_parser *p)
{
    while (p->text[p->at] == ' ' || p->text[p->at] == '\t')
        p->at++;
}

int attn_mask_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int attn_mask_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* ---- growing arrays ----------------------------------------------------------------------- */

enum attn_status attn_mask_push_number(struct mask_parser *p, int64_t number)
{
    struct attn_mask *mask = p->mask;
    if (mask->n_numbers == mask->room_numbers) {
        int64_t room = 2 * mask->room_numbers + 16;
        int64_t *grown = realloc(mask->number, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return no_memory(p, room * (int64_t)sizeof *grown);
        mask->number = grown;
        mask->room_numbers = room;
    }
    mask->number[mask->n_numbers++] = number;
    return ATTN_OK;
}

static enum attn_status push_node(struct mask_parser *p, const struct mask_node *node,
                                  int64_t *index)
{
    struct attn_mask *mask = p->mask;
    if (mask->n_nodes == mask->room_nodes) {
        int64_t room = 2 * mask->room_nodes + 4;
        struct mask_node *grown = realloc(mask->node, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return no_memory(p, room * (int64_t)sizeof *grown);
        mask->node = grown;
        mask->room_nodes = room;
    }
    *index = mask->n_nodes;
    mask->node[mask->n_nodes++] = *node;
    return ATTN_OK;
}

/* ---- trees -------------------------------------------------------------------------------- */

/* Children on their way into a node.  Those with a random(...) are kept apart, behind the others:
 * a row of the others is a stream of runs, and is listed as one. */
struct chain {
    int64_t first, last, n;
};
struct family {
    enum mask_kind kind;
    struct chain plain, random;
};

static void chain_add(struct mask_parser *p, struct chain *chain, int64_t index)
{
    p->mask->node[index].next = -1;
    if (chain->n++ == 0)
        chain->first = index;
    else
        p->mask->node[chain->last].next = index;
    chain->last = index;
}

/* (a & b) & c is a & b & c. */
static void family_add(struct mask_parser *p, struct family *family, int64_t index)
{
    const struct mask_node *node = &p->mask->node[index];
    if (node->kind != family->kind) {
        chain_add(p, node->random ? &family->random : &family->plain, index);
        return;
    }
    int64_t next;
    for (int64_t c = node->child; c >= 0; c = next) {
        next = p->mask->node[c].next;
        family_add(p, family, c);
    }
}

/* A node above a chain; a chain of one needs none. */
static enum attn_status join(struct mask_parser *p, enum mask_kind kind, const struct chain *chain,
                             int64_t *index)
{
    struct mask_node node = {.kind = kind, .child = chain->first, .next = -1};
    *index = chain->first;
    if (chain->n == 1)
        return ATTN_OK;
    for (int64_t c = chain->first; c >= 0; c = p->mask->node[c].next) {
        node.random |= p->mask->node[c].random;
        node.by_batch |= p->mask->node[c].by_batch;
        node.by_head |= p->mask->node[c].by_head;
    }
    return push_node(p, &node, index);
}

static enum attn_status family_join(struct mask_parser *p, struct family *family, int64_t *index)
{
    if (family->random.n == 0)
        return join(p, family->kind, &family->plain, index);
    if (family->plain.n == 0)
        return join(p, family->kind, &family->random, index);
    struct chain both = {0};
    int64_t plain, next;
    enum attn_status status = join(p, family->kind, &family->plain, &plain);
    if (status != ATTN_OK)
        return status;
    chain_add(p, &both, plain);
    for (int64_t c = family->random.first; c >= 0; c = next) {
        next = p->mask->node[c].next;
        chain_add(p, &both, c);
    }
    return join(p, family->kind, &both, index);
}

/* ---- unknown words ------------------------------------------------------------------------ */

static enum attn_status unknown_call(struct mask_parser *p, int64_t at, int64_t size)
{
    char names[300] = "", meant[64];
    struct attn_nearest nearest = attn_nearest_begin(p->text + at, (size_t)size);
    for (int c = 0; c < MASK_CALLS; c++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, " %s", attn_mask_call[c].name);
        attn_nearest_offer(&nearest, attn_mask_call[c].name);
    }
    return attn_mask_fail_at(p, at, "no call is named '%.*s'%s; there are:%s",
                             (int)mask_min(size, 40), p->text + at,
                             attn_nearest_text(&nearest, meant), names);
}

/* ---- grammar ------------------------------------------------------------------------------ */

static enum attn_status either(struct mask_parser *p, int64_t *index);

static enum attn_status parentheses(struct mask_parser *p, int64_t *index)
{
    char seen[32];
    int64_t open = p->at++;
    if (p->depth == DEPTH)
        return attn_mask_fail_at(p, open, "parentheses are nested more than %d deep", DEPTH);
    p->depth++;
    enum attn_status status = either(p, index);
    p->depth--;
    if (status != ATTN_OK)
        return status;
    if (p->text[p->at] != ')')
        return attn_mask_fail_at(p, p->at,
                                 "'&', '|' or the ')' of column %lld was expected; found %s",
                                 (long long)open + 1, attn_mask_found(p, seen));
    p->at++;
    return ATTN_OK;
}

/* The nodes of one call, joined by | when there are several. */
static enum attn_status push_parts(struct mask_parser *p, struct mask_node *part, int64_t *index)
{
    struct family family = {.kind = MASK_ANY_OF};
    for (int n = 0; n < p->parts; n++) {
        part[n].child = part[n].next = -1;
        enum attn_status status = push_node(p, &part[n], index);
        if (status != ATTN_OK)
            return status;
        family_add(p, &family, *index);
    }
    return family_join(p, &family, index);
}

static enum attn_status call(struct mask_parser *p, int64_t *index)
{
    int64_t begin = p->at;
    while (attn_mask_is_letter(p->text[p->at]) || attn_mask_is_digit(p->text[p->at]))
        p->at++;
    int64_t size = p->at - begin;
    const struct mask_call *named = NULL;
    for (int c = 0; c < MASK_CALLS && named == NULL; c++)
        if ((int64_t)strlen(attn_mask_call[c].name) == size &&
            memcmp(attn_mask_call[c].name, p->text + begin, (size_t)size) == 0)
            named = &attn_mask_call[c];
    if (named == NULL)
        return unknown_call(p, begin, size);
    struct mask_node part[MASK_PARTS] = {{.kind = named->kind}};
    p->parts = 1;
    if (named->arguments != NULL) {
        attn_mask_skip_blanks(p);
        int64_t open = p->at;
        if (p->text[p->at] == '(') {
            p->at++;
            attn_mask_skip_blanks(p);
        }
        if (p->at == open || p->text[p->at] == ')')
            return attn_mask_fail_at(p, begin, "%s needs %s", named->name, named->needs);
        enum attn_status status = named->arguments(p, part);
        if (status != ATTN_OK)
            return status;
    }
    return push_parts(p, part, index);
}

static enum attn_status item(struct mask_parser *p, int64_t *index)
{
    char seen[32];
    enum attn_status status;
    attn_mask_skip_blanks(p);
    if (p->text[p->at] == '(')
        status = parentheses(p, index);
    else if (attn_mask_is_letter(p->text[p->at]))
        status = call(p, index);
    else
        status =
            attn_mask_fail_at(p, p->at, "a mask was expected, such as causal(br) or none; found %s",
                              attn_mask_found(p, seen));
    attn_mask_skip_blanks(p);
    return status;
}

static enum attn_status both(struct mask_parser *p, int64_t *index)
{
    struct family family = {.kind = MASK_ALL_OF};
    for (;;) {
        int64_t child = 0;
        enum attn_status status = item(p, &child);
        if (status != ATTN_OK)
            return status;
        family_add(p, &family, child);
        if (p->text[p->at] != '&')
            return family_join(p, &family, index);
        p->at++;
    }
}

static enum attn_status either(struct mask_parser *p, int64_t *index)
{
    struct family family = {.kind = MASK_ANY_OF};
    for (;;) {
        int64_t child = 0;
        enum attn_status status = both(p, &child);
        if (status != ATTN_OK)
            return status;
        family_add(p, &family, child);
        if (p->text[p->at] != '|')
            return family_join(p, &family, index);
        p->at++;
    }
}

/* ---- whole texts -------------------------------------------------------------------------- */

static enum attn_status check_shape(const struct attn_mask_shape *s, struct attn_error *err)
{
    if (s->batch < 0 || s->heads < 0 || s->n_query < 0 || s->n_key < 0)
        return attn_fail(err, ATTN_EINVAL, "mask for b%lldh%lldq%lldk%lld: extents start at 0",
                         (long long)s->batch, (long long)s->heads, (long long)s->n_query,
                         (long long)s->n_key);
    if (mask_max(mask_max(s->batch, s->heads), mask_max(s->n_query, s->n_key)) > MASK_NUMBER_MAX ||
        (s->n_key > 0 && s->n_query > MASK_PAIRS_MAX / s->n_key) ||
        (s->heads > 0 && s->batch > MASK_PAIRS_MAX / s->heads))
        return attn_fail(
            err, ATTN_EINVAL, "mask for b%lldh%lldq%lldk%lld: Lq * Lk and B * H go up to 2^61",
            (long long)s->batch, (long long)s->heads, (long long)s->n_query, (long long)s->n_key);
    return ATTN_OK;
}

static enum attn_status whole(struct mask_parser *p)
{
    char seen[32];
    for (const char *c = p->text; *c != '\0'; c++)
        if ((*c < ' ' && *c != '\t') || *c > '~')
            return attn_mask_fail_at(p, c - p->text,
                                     "byte 0x%02x; masks are written in printable ASCII",
                                     (unsigned char)*c);
    enum attn_status status = either(p, &p->mask->root);
    if (status == ATTN_OK && p->text[p->at] != '\0')
        status =
            attn_mask_fail_at(p, p->at, "'&', '|' or the end of the text was expected; found %s",
                              attn_mask_found(p, seen));
    return status;
}

enum attn_status attn_mask_parse(const char *text, const struct attn_mask_shape *shape,
                                 const struct attn_mask_source *source, struct attn_mask **mask,
                                 struct attn_error *err)
{
    *mask = NULL;
    enum attn_status status = check_shape(shape, err);
    if (status != ATTN_OK)
        return status;
    struct mask_parser parser = {.text = text, .source = source, .err = err};
    size_t bytes = strlen(text) + 1;
    parser.mask = calloc(1, sizeof *parser.mask);
    if (parser.mask == NULL)
        return no_memory(&parser, (int64_t)sizeof *parser.mask);
    parser.mask->shape = *shape;
    parser.mask->text = malloc(bytes);
    if (parser.mask->text == NULL)
        status = no_memory(&parser, (int64_t)bytes);
    else
        memcpy(parser.mask->text, text, bytes);
    if (status == ATTN_OK)
        status = whole(&parser);
    if (status == ATTN_OK)
        *mask = parser.mask;
    else
        attn_mask_free(parser.mask);
    return status;
}

void attn_mask_free(struct attn_mask *mask)
{
    if (mask == NULL)
        return;
    free(mask->text);
    free(mask->node);
    free(mask->number);
    free(mask);
}
