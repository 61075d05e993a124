/* The language of masks: text to tree.
 *
 *      either  =  both ("|" both)*
 *      both    =  item ("&" item)*
 *      item    =  "(" either ")"  |  NAME ["(" argument ("," argument)* ")"]
 *
 * Recursive descent.  Chains of any length are loops; only parentheses recurse, and DEPTH limits
 * them.  Blanks are allowed between all of these.  Every failure names a column of the text.  The
 * first failure stays and ends the text, so that no caller asks after each step.  Numbers are
 * whole, at most 2^60 in size, and never silently cut. */
#include "ref/mask/mask_internal.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "ref/mask/nearest.h"

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

enum { DEPTH = 64 };

/* ---- the kinds ---------------------------------------------------------------------------- */

#define ATTN_MASK(name) extern const struct mask_kind attn_mask_kind_##name;
#include "ref/mask/kinds.def"
#undef ATTN_MASK

const struct mask_kind *const attn_mask_kinds[] = {
#define ATTN_MASK(name) &attn_mask_kind_##name,
#include "ref/mask/kinds.def"
#undef ATTN_MASK
};

/* ---- failure ------------------------------------------------------------------------------ */

void attn_mask_stop(struct mask_parser *p, enum attn_status status)
{
    p->status = status;
    p->at = p->mask->text + strlen(p->mask->text);
    p->more = 0;
}

void attn_mask_fail_at(struct mask_parser *p, const char *at, const char *format, ...)
{
    char text[400];
    va_list list;
    if (p->status != ATTN_OK)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    attn_mask_stop(p, attn_fail(p->err, ATTN_EINVAL, "mask, column %lld: %s",
                                (long long)(at - p->mask->text) + 1, text));
}

static void expected(struct mask_parser *p, const char *what)
{
    unsigned char c = (unsigned char)*p->at;
    if (c == '\0')
        attn_mask_fail_at(p, p->at, "%s; found the end of the text", what);
    else
        attn_mask_fail_at(p, p->at, "%s; found '%c'", what, c);
}

static enum attn_status no_memory(struct attn_error *err, size_t bytes)
{
    return attn_fail(err, ATTN_ENOMEM, "mask: no memory for a description of %zu bytes", bytes);
}

static void skip_blanks(struct mask_parser *p)
{
    p->at += strspn(p->at, " \t");
}

int attn_mask_is_letter(char c)
{
    return c != '\0' && strchr(LETTERS, c) != NULL;
}

int attn_mask_slice_is(struct mask_slice arg, const char *word)
{
    return (int64_t)strlen(word) == arg.size && memcmp(arg.text, word, (size_t)arg.size) == 0;
}

struct mask_slice attn_mask_argument(struct mask_parser *p)
{
    if (!p->more)
        attn_mask_fail_at(p, p->at - 1, "%s needs %s", p->call->name, p->call->needs);
    skip_blanks(p);
    struct mask_slice arg = {p->at, (int64_t)strspn(p->at, LETTERS DIGITS "+-./")};
    p->at += arg.size;
    if (arg.size == 0)
        expected(p, "an argument was expected");
    skip_blanks(p);
    p->more = *p->at == ',';
    if (p->more || *p->at == ')')
        p->at++;
    else
        expected(p, "',' or ')' was expected after an argument");
    return arg;
}

static void no_more(struct mask_parser *p)
{
    if (p->more)
        attn_mask_fail_at(p, p->at - 1, "too many arguments: %s needs %s", p->call->name,
                          p->call->needs);
}

void attn_mask_name(struct mask_parser *p, struct mask_slice arg)
{
    no_more(p);
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

/* ---- tensors: found, and checked once, so that later calls need not check them --------------- */

int attn_mask_find(struct mask_parser *p, const char *part, struct attn_mask_tensor *tensor)
{
    const char *call = p->call->name, *name = p->name;
    if (p->source == NULL)
        attn_mask_fail_at(p, p->name_at, "%s(%s) names a tensor, and no tensors were given here",
                          call, name);
    if (p->status != ATTN_OK)
        return 0;
    *tensor = (struct attn_mask_tensor){0};
    enum attn_status status = p->source->find(p->source->arg, name, part, tensor, p->err);
    int64_t least = 1;
    for (int a = 0; a < tensor->n_axes && a < 4; a++)
        least = mask_min(least, tensor->extent[a]);
    if (status != ATTN_OK)
        attn_mask_stop(p, status);
    else if (tensor->width != 1 && tensor->width != 4 && tensor->width != 8)
        MASK_FAIL_TENSOR(p, "%s(%s): elements of %d bytes; bool, u8, i32 and i64 would work", call,
                         name, tensor->width);
    else if (tensor->n_axes < 1 || tensor->n_axes > 4)
        MASK_FAIL_TENSOR(p, "%s(%s): %d axes; 1 to 4 would work", call, name, tensor->n_axes);
    else if (least < 0 || (least > 0 && tensor->data == NULL))
        MASK_FAIL_TENSOR(p, "%s(%s): the tensor has no data, or a negative extent", call, name);
    return p->status == ATTN_OK;
}

const char *attn_mask_extents(const struct attn_mask_tensor *t, char text[96])
{
    int used = 0;
    for (int a = 0; a < t->n_axes; a++)
        used += snprintf(text + used, 96 - (size_t)used, "%s%lld", a > 0 ? "," : "[",
                         (long long)t->extent[a]);
    snprintf(text + used, 96 - (size_t)used, "]");
    return text;
}

/* ---- growing arrays ----------------------------------------------------------------------- */

/* Room for one more of n elements of this size; NULL, and a failure, when there is none. */
static void *grow(struct mask_parser *p, void *array, int64_t n, int64_t *capacity, size_t size)
{
    if (p->status != ATTN_OK || n < *capacity)
        return array;
    void *grown = realloc(array, (size_t)(2 * *capacity + 16) * size);
    if (grown == NULL)
        attn_mask_stop(p, no_memory(p->err, (size_t)(2 * *capacity + 16) * size));
    else
        *capacity = 2 * *capacity + 16;
    return grown != NULL ? grown : array;
}

void attn_mask_push_number(struct mask_parser *p, int64_t number)
{
    struct attn_mask *mask = p->mask;
    mask->number =
        grow(p, mask->number, mask->n_numbers, &mask->number_capacity, sizeof *mask->number);
    if (p->status == ATTN_OK)
        mask->number[mask->n_numbers++] = number;
}

/* The memory that nodes own, in a chain. */
struct mask_block {
    struct mask_block *next;
    max_align_t data[];
};

void attn_mask_keep(struct mask_parser *p, struct mask_node *node, const void *own, size_t size)
{
    if (p->status != ATTN_OK)
        return;
    struct mask_block *block = malloc(sizeof *block + size);
    if (block == NULL) {
        attn_mask_stop(p, no_memory(p->err, sizeof *block + size));
        return;
    }
    block->next = p->mask->kept;
    p->mask->kept = block;
    node->own = memcpy(block->data, own, size);
}

/* Its index. */
static int64_t push_node(struct mask_parser *p, const struct mask_node *node)
{
    struct attn_mask *mask = p->mask;
    mask->node = grow(p, mask->node, mask->n_nodes, &mask->node_capacity, sizeof *mask->node);
    if (p->status != ATTN_OK)
        return -1;
    mask->node[mask->n_nodes] = *node;
    return mask->n_nodes++;
}

/* ---- trees -------------------------------------------------------------------------------- */

/* Children on their way into a node.  Kinds that list their keys stand behind the others, which are
 * asked first: they are cheap, and often decide.  -1: there is none. */
struct family {
    int kind;
    int64_t first, last, plain; /* plain: the last of those others */
};
/* (a & b) & c is a & b & c. */
static void family_add(struct mask_parser *p, struct family *family, int64_t index)
{
    struct mask_node *all = p->mask->node;
    if (p->status != ATTN_OK)
        return;
    if (all[index].kind == family->kind) {
        for (int64_t c = all[index].child, next; c >= 0; c = next) {
            next = all[c].next;
            family_add(p, family, c);
        }
        return;
    }
    int lists = attn_mask_kinds[all[index].kind]->each != NULL;
    int64_t before = lists ? family->last : family->plain;
    all[index].next = before >= 0 ? all[before].next : family->first;
    if (before >= 0)
        all[before].next = index;
    else
        family->first = index;
    if (!lists)
        family->plain = index;
    if (all[index].next < 0)
        family->last = index;
}

/* A node above the children; one of them needs none. */
static int64_t family_join(struct mask_parser *p, const struct family *family)
{
    struct mask_node node = {.kind = family->kind, .child = family->first, .next = -1};
    const struct mask_node *all = p->mask->node;
    if (p->status != ATTN_OK || family->first == family->last)
        return family->first;
    for (int64_t c = family->first; c >= 0; c = all[c].next) {
        node.counts_tokens |= all[c].counts_tokens;
        node.by_batch |= all[c].by_batch;
        node.by_head |= all[c].by_head;
    }
    return push_node(p, &node);
}

/* ---- calls -------------------------------------------------------------------------------- */

static void unknown_call(struct mask_parser *p, struct mask_slice word)
{
    char names[300] = "", meant[64];
    struct attn_nearest nearest = attn_nearest_begin(word.text, (size_t)word.size);
    for (int k = 0; k < MASK_KINDS; k++) {
        size_t used = strlen(names);
        const char *name = attn_mask_kinds[k]->name;
        if (name == NULL)
            continue;
        snprintf(names + used, sizeof names - used, " %s", name);
        attn_nearest_offer(&nearest, name);
    }
    attn_mask_fail_at(p, word.text, "no call is named '%.*s'%s; there are:%s", MASK_SLICE(word),
                      attn_nearest_text(&nearest, meant), names);
}

/* Reads the text between the parentheses of a call into its nodes. */
static void arguments(struct mask_parser *p, const char *begin, struct mask_node *part)
{
    skip_blanks(p);
    p->more = *p->at == '(';
    p->at += p->more;
    skip_blanks(p);
    if (!p->more || *p->at == ')')
        attn_mask_fail_at(p, begin, "%s needs %s", p->call->name, p->call->needs);
    p->call->read(p, part);
    no_more(p);
}

/* The nodes of one call are joined by | when there are several. */
static int64_t call(struct mask_parser *p)
{
    struct mask_slice word = {p->at, (int64_t)strspn(p->at, LETTERS DIGITS)};
    struct family family = {MASK_any_of, -1, -1, -1};
    int kind = 0;
    p->at += word.size;
    while (kind < MASK_KINDS && (attn_mask_kinds[kind]->name == NULL ||
                                 !attn_mask_slice_is(word, attn_mask_kinds[kind]->name)))
        kind++;
    if (kind == MASK_KINDS) {
        unknown_call(p, word);
        return -1;
    }
    struct mask_node part[MASK_PARTS] = {{.kind = kind}};
    p->call = attn_mask_kinds[kind];
    p->parts = 1;
    p->counts_tokens = 0;
    if (p->call->read != NULL)
        arguments(p, word.text, part);
    for (int n = 0; n < p->parts; n++) {
        part[n].child = part[n].next = -1;
        part[n].counts_tokens = p->counts_tokens;
        family_add(p, &family, push_node(p, &part[n]));
    }
    return family_join(p, &family);
}

/* ---- grammar ------------------------------------------------------------------------------ */

static int64_t chain(struct mask_parser *p, int kind);

static int64_t parentheses(struct mask_parser *p)
{
    const char *open = p->at++;
    char what[64];
    if (p->depth == DEPTH)
        attn_mask_fail_at(p, open, "parentheses are nested more than %d deep", DEPTH);
    p->depth++;
    int64_t index = chain(p, MASK_any_of);
    p->depth--;
    snprintf(what, sizeof what, "'&', '|' or the ')' of column %lld was expected",
             (long long)(open - p->mask->text) + 1);
    if (*p->at != ')')
        expected(p, what);
    else
        p->at++;
    return index;
}

static int64_t item(struct mask_parser *p)
{
    int64_t index = -1;
    skip_blanks(p);
    if (*p->at == '(')
        index = parentheses(p);
    else if (attn_mask_is_letter(*p->at))
        index = call(p);
    else
        expected(p, "a mask was expected, such as causal(br) or none");
    skip_blanks(p);
    return index;
}

/* Any of: `either` of the grammar; all of: `both`. */
static int64_t chain(struct mask_parser *p, int kind)
{
    struct family family = {kind, -1, -1, -1};
    char sign = kind == MASK_any_of ? '|' : '&';
    for (;; p->at++) {
        family_add(p, &family, kind == MASK_any_of ? chain(p, MASK_all_of) : item(p));
        if (*p->at != sign)
            return family_join(p, &family);
    }
}

/* ---- whole texts -------------------------------------------------------------------------- */

static enum attn_status check_shape(const struct attn_mask_shape *s, struct attn_error *err)
{
    const char *wrong = NULL;
    if (s->batch < 0 || s->heads < 0 || s->n_query < 0 || s->n_key < 0)
        wrong = "extents start at 0";
    else if (mask_max(mask_max(s->batch, s->heads), mask_max(s->n_query, s->n_key)) >
                 MASK_NUMBER_MAX ||
             (s->n_key > 0 && s->n_query > MASK_PAIRS_MAX / s->n_key) ||
             (s->heads > 0 && s->batch > MASK_PAIRS_MAX / s->heads))
        wrong = "Lq * Lk and B * H go up to 2^61";
    if (wrong == NULL)
        return ATTN_OK;
    return attn_fail(err, ATTN_EINVAL, "mask for b%lldh%lldq%lldk%lld: %s", (long long)s->batch,
                     (long long)s->heads, (long long)s->n_query, (long long)s->n_key, wrong);
}

static void whole(struct mask_parser *p)
{
    for (const char *c = p->at; *c != '\0'; c++)
        if ((*c < ' ' && *c != '\t') || *c > '~')
            attn_mask_fail_at(p, c, "byte 0x%02x; masks are written in printable ASCII",
                              (unsigned char)*c);
    if (p->status == ATTN_OK)
        p->mask->root = chain(p, MASK_any_of);
    if (*p->at != '\0')
        expected(p, "'&', '|' or the end of the text was expected");
}

enum attn_status attn_mask_parse(const char *text, const struct attn_mask_shape *shape,
                                 const struct attn_mask_source *source, struct attn_mask **mask,
                                 struct attn_error *err)
{
    struct mask_parser parser = {.source = source, .err = err};
    *mask = NULL;
    enum attn_status status = check_shape(shape, err);
    if (status != ATTN_OK)
        return status;
    struct attn_mask *made = parser.mask = calloc(1, sizeof *made);
    if (made == NULL || (made->text = strdup(text)) == NULL) {
        attn_mask_free(made);
        return no_memory(err, sizeof *made + strlen(text) + 1);
    }
    made->shape = *shape;
    parser.at = made->text;
    whole(&parser);
    if (parser.status == ATTN_OK)
        *mask = made;
    else
        attn_mask_free(made);
    return parser.status;
}

void attn_mask_free(struct attn_mask *mask)
{
    if (mask == NULL)
        return;
    for (struct mask_block *block = mask->kept, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(mask->text);
    free(mask->node);
    free(mask->number);
    free(mask);
}
