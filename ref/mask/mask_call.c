/* The calls of the language and their arguments.
 *
 * Each call has a function that reads what stands between its parentheses into a node.  Numbers are
 * whole, at most 2^60 in size, and never silently cut; an alignment is never implied.  After a
 * failure whatever is read is empty, or the least number that would be legal (mask_parse.c). */
#include "ref/mask/mask_internal.h"

#include <math.h>
#include <string.h>

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
static const struct mask_least side = {-1, "a window reaches 0 or more keys, or -1 for all of a "
                                           "side"},
                               block = {1, "blocks have 1 token or more, such as 16 or 128"};

/* [+-]digits */
static int64_t whole(struct mask_parser *p, struct mask_slice arg)
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
    int64_t n = whole(p, arg);
    if (n < least->number)
        attn_mask_fail_at(p, arg.text, "'%.*s': %s", MASK_SLICE(arg), least->says);
    return p->status == ATTN_OK ? n : least->number;
}

int64_t attn_mask_number(struct mask_parser *p, const struct mask_least *least)
{
    return attn_mask_number_of(p, attn_mask_argument(p), least);
}

/* Keys of one batch. */
static int64_t length_of(struct mask_parser *p, struct mask_slice arg)
{
    int64_t length = attn_mask_number_of(p, arg, &mask_natural);
    if (length > p->mask->shape.n_key)
        attn_mask_fail_at(p, arg.text, "length %lld exceeds Lk = %lld", (long long)length,
                          (long long)p->mask->shape.n_key);
    return length;
}

/* The end of a list that has one entry for each batch. */
static void one_for_each(struct mask_parser *p, struct mask_node *node, const char *begin)
{
    if (node->n_list != 1 && node->n_list != p->mask->shape.batch)
        attn_mask_fail_at(p, begin,
                          "%lld of them for %lld batches: give one for each, or one for all",
                          (long long)node->n_list, (long long)p->mask->shape.batch);
    node->by_batch = node->n_list > 1;
}

/* ---- bands -------------------------------------------------------------------------------- */

/* ends,n1,n2,... or ends,NAME: in batch b the last query is at key n_b - 1. */
static void read_ends(struct mask_parser *p, struct mask_node *node)
{
    const char *begin = p->at;
    if (!p->more)
        attn_mask_fail_at(p, p->at - 1,
                          "ends needs the keys in use: ends,5,3 (one number for each batch, "
                          "or one for all), or a tensor of them: ends,NAME");
    node->list = p->mask->n_numbers;
    do {
        struct mask_slice arg = attn_mask_argument(p);
        if (node->n_list == 0 && attn_mask_is_letter(*arg.text)) {
            attn_mask_name(p, arg);
            attn_mask_bind_ends(p, node);
            return;
        }
        node->offset = length_of(p, arg) - p->mask->shape.n_query;
        attn_mask_push_number(p, node->offset);
        node->n_list++;
    } while (p->more);
    one_for_each(p, node, begin);
}

/* tl, br, +3, -2, or what read_ends reads. */
static void read_alignment(struct mask_parser *p, struct mask_node *node)
{
    struct mask_slice arg = attn_mask_argument(p);
    const struct attn_mask_shape *s = &p->mask->shape;
    if (attn_mask_slice_is(arg, "tl"))
        node->offset = 0;
    else if (attn_mask_slice_is(arg, "br"))
        node->offset = s->n_key - s->n_query;
    else if (attn_mask_slice_is(arg, "ends"))
        read_ends(p, node);
    else if (*arg.text == '+' || *arg.text == '-')
        node->offset = whole(p, arg);
    else
        attn_mask_fail_at(
            p, arg.text,
            "'%.*s' is not an alignment: tl (first query at first key), br (last query at "
            "last key), a signed offset such as +3, or ends,5,3 (last query at the last key in "
            "use, of each batch)",
            MASK_SLICE(arg));
}

static void read_window(struct mask_parser *p, struct mask_node *node)
{
    node->left = attn_mask_number(p, &side);
    node->right = attn_mask_number(p, &side);
    read_alignment(p, node);
}

/* ---- keys --------------------------------------------------------------------------------- */

static void read_count(struct mask_parser *p, struct mask_node *node)
{
    node->count = attn_mask_number(p, &mask_natural);
}

/* x and binary digits. */
static int is_pattern(struct mask_slice arg)
{
    return *arg.text == 'x' && arg.size > 1 && (int64_t)strspn(arg.text + 1, "01") == arg.size - 1;
}

static void push_pattern(struct mask_parser *p, struct mask_slice arg)
{
    if (!is_pattern(arg))
        attn_mask_fail_at(p, arg.text, "'%.*s' is not a pattern such as x0110", MASK_SLICE(arg));
    attn_mask_push_number(p, arg.text + 1 - p->mask->text);
    attn_mask_push_number(p, arg.size - 1);
}

static void read_keys(struct mask_parser *p, struct mask_node *node)
{
    struct mask_slice arg = attn_mask_argument(p);
    const char *begin = arg.text;
    if (!is_pattern(arg) && strchr(DIGITS "+-", *begin) == NULL) {
        attn_mask_name(p, arg);
        attn_mask_bind_keys(p, node);
        return;
    }
    node->kind = is_pattern(arg) ? MASK_PATTERN : MASK_LENGTHS;
    node->list = p->mask->n_numbers;
    for (;; arg = attn_mask_argument(p)) {
        if (node->kind == MASK_PATTERN)
            push_pattern(p, arg);
        else
            attn_mask_push_number(p, length_of(p, arg));
        node->n_list++;
        if (!p->more)
            break;
    }
    one_for_each(p, node, begin);
}

/* ---- documents ---------------------------------------------------------------------------- */

/* n, or qxk: the lengths of one document. */
static void push_document(struct mask_parser *p, struct mask_slice arg, int crossed)
{
    const char *x = memchr(arg.text, 'x', (size_t)arg.size);
    struct mask_slice left = {arg.text, x == NULL ? arg.size : x - arg.text};
    struct mask_slice right = {arg.text + left.size + 1, arg.size - left.size - 1};
    if (crossed != (x != NULL) || left.size == 0 || (crossed && right.size == 0))
        attn_mask_fail_at(p, arg.text,
                          "'%.*s': documents are given as n1,n2,... or as q1xk1,q2xk2,...",
                          MASK_SLICE(arg));
    if (p->status != ATTN_OK)
        return;
    attn_mask_push_number(p, attn_mask_number_of(p, left, &mask_natural));
    attn_mask_push_number(p, attn_mask_number_of(p, crossed ? right : left, &mask_natural));
}

/* Starts of documents from (query, key) lengths at `lengths`: side 0 queries, 1 keys. */
static void push_starts(struct mask_parser *p, int64_t lengths, int64_t n, int keys,
                        const char *begin)
{
    int64_t total = keys ? p->mask->shape.n_key : p->mask->shape.n_query, start = 0;
    attn_mask_push_number(p, 0);
    for (int64_t m = 0; m < n && p->status == ATTN_OK && start <= total; m++) {
        start += p->mask->number[lengths + 2 * m + keys];
        attn_mask_push_number(p, start);
    }
    if (start != total)
        attn_mask_fail_at(p, begin, "documents hold %s%lld %s, but %s = %lld",
                          start > total ? "at least " : "", (long long)start,
                          keys ? "keys" : "queries", keys ? "Lk" : "Lq", (long long)total);
}

static void read_documents(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    int64_t lengths = p->mask->n_numbers;
    const char *begin = p->at;
    int crossed = 0;
    do {
        struct mask_slice arg = attn_mask_argument(p);
        if (node->n_list++ == 0)
            crossed = memchr(arg.text, 'x', (size_t)arg.size) != NULL;
        push_document(p, arg, crossed);
    } while (p->more);
    if (!crossed && s->n_query != s->n_key)
        attn_mask_fail_at(
            p, begin,
            "documents(n1,...) is for Lq = Lk, here %lld and %lld: write documents(q1xk1,...)",
            (long long)s->n_query, (long long)s->n_key);
    node->list = p->mask->n_numbers;
    push_starts(p, lengths, node->n_list, 0, begin);
    push_starts(p, lengths, node->n_list, 1, begin);
}

/* ---- random ------------------------------------------------------------------------------- */

/* digits[.digits]: at most 15 digits, so that numerator and power of ten are exact doubles and
 * their quotient is the nearest double, whatever the locale and the libm. */
static double density(struct mask_parser *p)
{
    struct mask_slice arg = attn_mask_argument(p);
    double digits = 0, scale = 1;
    int n = 0, points = 0, others = 0;
    for (int64_t at = 0; at < arg.size; at++) {
        char c = arg.text[at];
        if (c >= '0' && c <= '9') {
            n++;
            digits = 10 * digits + (c - '0');
            scale = points ? 10 * scale : scale;
        } else if (c == '.')
            points++;
        else
            others++;
    }
    if (n == 0 || n > 15 || points > 1 || others > 0 || !(digits / scale <= 1))
        attn_mask_fail_at(p, arg.text,
                          "'%.*s' is not a density: a decimal number from 0 to 1 such as 0.25, "
                          "of at most 15 digits",
                          MASK_SLICE(arg));
    return p->status == ATTN_OK ? digits / scale : 0;
}

/* The permutation of blocks of so many keys. */
static void choose_blocks(const struct mask_parser *p, struct mask_node *node, int64_t size,
                          int64_t seed)
{
    int64_t n_key = p->mask->shape.n_key;
    node->kind = MASK_RANDOM;
    node->random = 1;
    node->seed = (uint64_t)seed;
    node->size = size;
    node->columns = n_key / size + (n_key % size > 0);
    node->half_bits = attn_mask_random_half(node->columns);
}

/* p,seed[,heads] */
static void read_draw(struct mask_parser *p, struct mask_node *node, int64_t size)
{
    double share = density(p);
    choose_blocks(p, node, size, attn_mask_number(p, &mask_natural));
    node->count = (int64_t)round(share * (double)node->columns);
    node->by_head = node->by_batch = p->more;
    if (!p->more)
        return;
    struct mask_slice arg = attn_mask_argument(p);
    if (!attn_mask_slice_is(arg, "heads"))
        attn_mask_fail_at(p, arg.text, "'%.*s': only the word heads may stand here",
                          MASK_SLICE(arg));
}

static void read_random(struct mask_parser *p, struct mask_node *node)
{
    read_draw(p, node, 1);
}

static void read_blocks(struct mask_parser *p, struct mask_node *node)
{
    read_draw(p, node, attn_mask_number(p, &block));
}

/* bigbird(size,global,window,random,seed) = global | window | random, in blocks. */
static void read_bigbird(struct mask_parser *p, struct mask_node *node)
{
    int64_t size = attn_mask_number(p, &block), global = attn_mask_number(p, &mask_natural);
    struct mask_slice arg = attn_mask_argument(p);
    int64_t window = attn_mask_number_of(p, arg, &mask_natural);
    int64_t random = attn_mask_number(p, &mask_natural);
    if (window % 2 == 0)
        attn_mask_fail_at(p, arg.text,
                          "a window of %lld blocks has no block in the middle: an odd "
                          "number such as 3 would work",
                          (long long)window);
    p->parts = random > 0 ? 3 : 2;
    node[0].count = size * mask_min(global, MASK_NUMBER_MAX / size);
    attn_mask_window_of_blocks(p, &node[1], size, window / 2);
    choose_blocks(p, &node[2], size, attn_mask_number(p, &mask_natural));
    node[2].count = mask_min(random, node[2].columns);
}

/* ---- the table ---------------------------------------------------------------------------- */

const struct mask_call attn_mask_call[MASK_CALLS] = {
    {"none", MASK_NONE, NULL, "", "none                     every pair"},
    {"causal", MASK_CAUSAL, read_alignment, "an alignment: causal(tl), causal(br) or causal(+3)",
     "causal(A)                no later keys: j <= i + off; A is tl, br, +3, or ends,n1,n2,..."},
    {"window", MASK_WINDOW, read_window,
     "two sides and an alignment: window(4,0,tl), window(4,0,br) or window(4,0,+3)",
     "window(l,r,A)            i + off - l <= j <= i + off + r; -1 = unbounded on that side"},
    {"prefix", MASK_PREFIX, read_count, "a number of keys: prefix(4)",
     "prefix(n)                the first n keys: j < n"},
    {"global", MASK_GLOBAL, read_count, "a number of tokens: global(2)",
     "global(n)                the first n tokens see and are seen: i < n or j < n"},
    {"keys", MASK_LENGTHS, read_keys,
     "lengths, patterns or a name: keys(5,8), keys(x0110) or keys(NAME)",
     "keys(n1,n2,...)          j < n of the batch; also keys(x0110,...) and keys(NAME)"},
    {"documents", MASK_DOCUMENTS, read_documents, "lengths: documents(3,5) or documents(3x4,5x4)",
     "documents(n1,n2,...)     same document only; documents(q1xk1,...) when Lq != Lk"},
    {"random", MASK_RANDOM, read_random, "a density and a seed: random(0.25,1)",
     "random(p,seed[,heads])   exactly round(p * Lk) keys in every row"},
    {"blocks", MASK_RANDOM, read_blocks, "a size, a density and a seed: blocks(16,0.25,1)",
     "blocks(size,p,seed[,heads])  random in blocks: round(p * blocks) of them in every row"},
    {"bigbird", MASK_GLOBAL, read_bigbird,
     "the size of a block, three numbers of blocks and a seed: bigbird(16,1,3,1,0)",
     "bigbird(size,g,w,r,seed) g global blocks, a window of w, r random ones in every row"},
    {"spatial", MASK_GRID, attn_mask_read_spatial, "a grid: spatial(16,30,40)",
     "spatial(T,H,W)           tokens (t,h,w) in that order: same frame t"},
    {"temporal", MASK_GRID, attn_mask_read_temporal, "a grid: temporal(16,30,40)",
     "temporal(T,H,W)          same place (h,w) in any frame"},
    {"skiparse", MASK_GRID, attn_mask_read_skiparse,
     "a mode and a number: skiparse(single,4) or skiparse(group,4)",
     "skiparse(single|group,k) i = j (mod k); group: i/k = j/k (mod k)"},
    {"dilated", MASK_GRID, attn_mask_read_dilated, "a grid and a number: dilated(30,40,2)",
     "dilated(H,W,k)           tokens (h,w): k divides both distances"},
    {"axial2d", MASK_GRID, attn_mask_read_axial2d, "a grid: axial2d(30,40)",
     "axial2d(H,W)             same row h or same column w"},
    {"local2d", MASK_GRID, attn_mask_read_local2d,
     "a grid and what is near: local2d(30,40,2,2) or local2d(30,40,3,l2)",
     "local2d(H,W,rh,rw)       |h| <= rh and |w| <= rw apart; (H,W,d,l1|l2): nearer than d"},
    {"local3d", MASK_GRID, attn_mask_read_local3d,
     "a grid and its reaches: local3d(16,30,40,1,2,2)",
     "local3d(T,H,W,rt,rh,rw)  the same in three directions; -1 = unbounded"},
    {"swin", MASK_GRID, attn_mask_read_swin, "a grid, a window and a shift: swin(32,32,8,4)",
     "swin(H,W,w,shift)        same w x w window of a grid cut at shift, shift + w, ..."},
    {"csr", MASK_CSR, attn_mask_read_csr, "a name: csr(NAME)",
     "csr(NAME)                row_start and column arrays by name"},
    {"dense", MASK_DENSE, attn_mask_read_dense, "a name: dense(NAME)",
     "dense(NAME)              [Lq,Lk] or [B|1,H|1,Lq,Lk] by name: non-zero = visible"},
};

const char *attn_mask_help(int line)
{
    return line >= 0 && line < MASK_CALLS ? attn_mask_call[line].help : NULL;
}
