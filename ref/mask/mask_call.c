/* The calls of the language and their arguments.
 *
 * Each call has a function that reads what stands between its parentheses into a node.  Numbers are
 * whole, at most 2^60 in size, and never silently cut; an alignment is never implied. */
#include "ref/mask/mask_internal.h"

#include <math.h>
#include <string.h>

enum { NAME_ROOM = 256 };

/* ---- arguments ---------------------------------------------------------------------------- */

enum attn_status attn_mask_argument(struct mask_parser *p, struct mask_slice *arg)
{
    char seen[32];
    attn_mask_skip_blanks(p);
    arg->at = p->at;
    for (char c = p->text[p->at]; attn_mask_is_letter(c) || attn_mask_is_digit(c) ||
                                  (c != '\0' && strchr("+-./", c) != NULL);
         c = p->text[p->at])
        p->at++;
    arg->size = p->at - arg->at;
    if (arg->size == 0)
        return attn_mask_fail_at(p, p->at, "an argument was expected; found %s",
                                 attn_mask_found(p, seen));
    attn_mask_skip_blanks(p);
    if (p->text[p->at] != ',' && p->text[p->at] != ')')
        return attn_mask_fail_at(p, p->at, "',' or ')' was expected after an argument; found %s",
                                 attn_mask_found(p, seen));
    p->more = p->text[p->at++] == ',';
    return ATTN_OK;
}

int attn_mask_slice_is(const struct mask_parser *p, struct mask_slice arg, const char *word)
{
    return (int64_t)strlen(word) == arg.size &&
           memcmp(p->text + arg.at, word, (size_t)arg.size) == 0;
}

enum attn_status attn_mask_whole(struct mask_parser *p, struct mask_slice arg, int64_t *value)
{
    const char *text = p->text + arg.at;
    int64_t n = 0, at = text[0] == '+' || text[0] == '-';
    if (at == arg.size)
        return attn_mask_fail_at(p, arg.at, "'%.*s' is not a whole number", MASK_SLICE(p, arg));
    for (; at < arg.size; at++) {
        if (!attn_mask_is_digit(text[at]))
            return attn_mask_fail_at(p, arg.at, "'%.*s' is not a whole number", MASK_SLICE(p, arg));
        if (n > (MASK_NUMBER_MAX - (text[at] - '0')) / 10)
            return attn_mask_fail_at(p, arg.at, "'%.*s' is too large: numbers go up to 2^60",
                                     MASK_SLICE(p, arg));
        n = 10 * n + (text[at] - '0');
    }
    *value = text[0] == '-' ? -n : n;
    return ATTN_OK;
}

enum attn_status attn_mask_natural(struct mask_parser *p, struct mask_slice arg, int64_t *value)
{
    enum attn_status status = attn_mask_whole(p, arg, value);
    if (status == ATTN_OK && *value < 0)
        return attn_mask_fail_at(p, arg.at, "'%.*s' is negative: 0 or more was expected",
                                 MASK_SLICE(p, arg));
    return status;
}

enum attn_status attn_mask_next_natural(struct mask_parser *p, int64_t *value)
{
    struct mask_slice arg;
    enum attn_status status = attn_mask_argument(p, &arg);
    return status == ATTN_OK ? attn_mask_natural(p, arg, value) : status;
}

enum attn_status attn_mask_no_more(struct mask_parser *p, const char *usage)
{
    if (p->more)
        return attn_mask_fail_at(p, p->at - 1, "too many arguments: %s", usage);
    return ATTN_OK;
}

/* A name as a string of its own. */
static enum attn_status name_of(struct mask_parser *p, struct mask_slice arg, char name[NAME_ROOM])
{
    if (arg.size >= NAME_ROOM)
        return attn_mask_fail_at(p, arg.at, "a name of %lld bytes; up to %d would work",
                                 (long long)arg.size, NAME_ROOM - 1);
    memcpy(name, p->text + arg.at, (size_t)arg.size);
    name[arg.size] = '\0';
    return ATTN_OK;
}

/* Keys of one batch. */
static enum attn_status length_of(struct mask_parser *p, struct mask_slice arg, int64_t *length)
{
    enum attn_status status = attn_mask_natural(p, arg, length);
    if (status == ATTN_OK && *length > p->mask->shape.n_key)
        return attn_mask_fail_at(p, arg.at, "length %lld exceeds Lk = %lld", (long long)*length,
                                 (long long)p->mask->shape.n_key);
    return status;
}

/* The end of a list that has one entry for each batch. */
static enum attn_status one_for_each(struct mask_parser *p, struct mask_node *node, int64_t begin)
{
    if (node->n_list != 1 && node->n_list != p->mask->shape.batch)
        return attn_mask_fail_at(p, begin,
                                 "%lld of them for %lld batches: give one for each, or one for all",
                                 (long long)node->n_list, (long long)p->mask->shape.batch);
    node->by_batch = node->n_list > 1;
    return ATTN_OK;
}

/* ends,n1,n2,... or ends,NAME: in batch b the last query is at key n_b - 1. */
static enum attn_status ends(struct mask_parser *p, struct mask_node *node)
{
    struct mask_slice arg;
    char name[NAME_ROOM];
    int64_t begin = p->at, length;
    if (!p->more)
        return attn_mask_fail_at(p, p->at - 1,
                                 "ends needs the keys in use: ends,5,3 (one number for each batch, "
                                 "or one for all), or a tensor of them: ends,NAME");
    node->list = p->mask->n_numbers;
    do {
        enum attn_status status = attn_mask_argument(p, &arg);
        if (status == ATTN_OK && node->n_list == 0 && attn_mask_is_letter(p->text[arg.at])) {
            status = name_of(p, arg, name);
            return status == ATTN_OK ? attn_mask_bind_ends(p, node, name, arg.at) : status;
        }
        if (status == ATTN_OK)
            status = length_of(p, arg, &length);
        if (status == ATTN_OK)
            status = attn_mask_push_number(p, length - p->mask->shape.n_query);
        if (status != ATTN_OK)
            return status;
        node->n_list++;
    } while (p->more);
    node->offset = p->mask->number[node->list];
    return one_for_each(p, node, begin);
}

/* tl, br, +3, -2, or what ends() reads. */
static enum attn_status alignment(struct mask_parser *p, struct mask_node *node)
{
    struct mask_slice arg;
    enum attn_status status = attn_mask_argument(p, &arg);
    if (status != ATTN_OK)
        return status;
    const struct attn_mask_shape *s = &p->mask->shape;
    int64_t *offset = &node->offset;
    if (attn_mask_slice_is(p, arg, "tl"))
        *offset = 0;
    else if (attn_mask_slice_is(p, arg, "br"))
        *offset = s->n_key - s->n_query;
    else if (attn_mask_slice_is(p, arg, "ends"))
        return ends(p, node);
    else if (p->text[arg.at] != '+' && p->text[arg.at] != '-')
        return attn_mask_fail_at(
            p, arg.at,
            "'%.*s' is not an alignment: tl (first query at first key), br (last query at "
            "last key), a signed offset such as +3, or ends,5,3 (last query at the last key in "
            "use, of each batch)",
            MASK_SLICE(p, arg));
    else
        status = attn_mask_whole(p, arg, offset);
    return status;
}

/* ---- calls -------------------------------------------------------------------------------- */

static enum attn_status args_causal(struct mask_parser *p, struct mask_node *node)
{
    enum attn_status status = alignment(p, node);
    return status == ATTN_OK ? attn_mask_no_more(p, "causal(A)") : status;
}

static enum attn_status reach(struct mask_parser *p, int64_t *value)
{
    struct mask_slice arg;
    enum attn_status status = attn_mask_argument(p, &arg);
    if (status == ATTN_OK)
        status = attn_mask_whole(p, arg, value);
    if (status == ATTN_OK && *value < -1)
        return attn_mask_fail_at(p, arg.at,
                                 "'%.*s': a window reaches 0 or more keys, or -1 for all of a side",
                                 MASK_SLICE(p, arg));
    if (status == ATTN_OK && !p->more)
        return attn_mask_fail_at(
            p, p->at - 1,
            "window needs two sides and an alignment: window(4,0,tl), window(4,0,br) or "
            "window(4,0,+3)");
    return status;
}

static enum attn_status args_window(struct mask_parser *p, struct mask_node *node)
{
    enum attn_status status = reach(p, &node->left);
    if (status == ATTN_OK)
        status = reach(p, &node->right);
    if (status == ATTN_OK)
        status = alignment(p, node);
    return status == ATTN_OK ? attn_mask_no_more(p, "window(l,r,A)") : status;
}

static enum attn_status args_count(struct mask_parser *p, struct mask_node *node)
{
    enum attn_status status = attn_mask_next_natural(p, &node->count);
    return status == ATTN_OK ? attn_mask_no_more(p, "one number") : status;
}

/* x and binary digits. */
static int is_pattern(const struct mask_parser *p, struct mask_slice arg)
{
    return p->text[arg.at] == 'x' && arg.size > 1 &&
           (int64_t)strspn(p->text + arg.at + 1, "01") == arg.size - 1;
}

static enum attn_status push_pattern(struct mask_parser *p, struct mask_slice arg)
{
    if (!is_pattern(p, arg))
        return attn_mask_fail_at(p, arg.at, "'%.*s' is not a pattern such as x0110",
                                 MASK_SLICE(p, arg));
    enum attn_status status = attn_mask_push_number(p, arg.at + 1);
    return status == ATTN_OK ? attn_mask_push_number(p, arg.size - 1) : status;
}

static enum attn_status push_length(struct mask_parser *p, struct mask_slice arg)
{
    int64_t length = 0;
    enum attn_status status = length_of(p, arg, &length);
    return status == ATTN_OK ? attn_mask_push_number(p, length) : status;
}

static enum attn_status args_keys(struct mask_parser *p, struct mask_node *node)
{
    struct mask_slice arg;
    char name[NAME_ROOM];
    enum attn_status status = attn_mask_argument(p, &arg);
    if (status != ATTN_OK)
        return status;
    int64_t begin = arg.at;
    char first = p->text[arg.at];
    if (!is_pattern(p, arg) && !attn_mask_is_digit(first) && first != '+' && first != '-') {
        status = name_of(p, arg, name);
        if (status == ATTN_OK)
            status = attn_mask_no_more(p, "keys(NAME) takes one name");
        return status == ATTN_OK ? attn_mask_bind_keys(p, node, name, arg.at) : status;
    }
    node->kind = is_pattern(p, arg) ? MASK_PATTERN : MASK_LENGTHS;
    node->list = p->mask->n_numbers;
    for (;;) {
        status = node->kind == MASK_PATTERN ? push_pattern(p, arg) : push_length(p, arg);
        node->n_list++;
        if (status != ATTN_OK || !p->more)
            break;
        status = attn_mask_argument(p, &arg);
        if (status != ATTN_OK)
            break;
    }
    return status == ATTN_OK ? one_for_each(p, node, begin) : status;
}

/* n, or qxk: the lengths of one document. */
static enum attn_status document(struct mask_parser *p, struct mask_slice arg, int crossed)
{
    const char *text = p->text + arg.at;
    const char *x = memchr(text, 'x', (size_t)arg.size);
    struct mask_slice left = {arg.at, x == NULL ? arg.size : x - text};
    struct mask_slice right = {arg.at + left.size + 1, arg.size - left.size - 1};
    int64_t n_query = 0, n_key = 0;
    if (crossed != (x != NULL) || left.size == 0 || (crossed && right.size == 0))
        return attn_mask_fail_at(p, arg.at,
                                 "'%.*s': documents are given as n1,n2,... or as q1xk1,q2xk2,...",
                                 MASK_SLICE(p, arg));
    enum attn_status status = attn_mask_natural(p, left, &n_query);
    n_key = n_query;
    if (status == ATTN_OK && crossed)
        status = attn_mask_natural(p, right, &n_key);
    if (status == ATTN_OK)
        status = attn_mask_push_number(p, n_query);
    return status == ATTN_OK ? attn_mask_push_number(p, n_key) : status;
}

/* Starts of documents from (query, key) lengths at `lengths`: side 0 queries, 1 keys. */
static enum attn_status push_starts(struct mask_parser *p, int64_t lengths, int64_t n, int side,
                                    int64_t begin)
{
    int64_t total = side == 0 ? p->mask->shape.n_query : p->mask->shape.n_key, start = 0;
    enum attn_status status = attn_mask_push_number(p, 0);
    for (int64_t m = 0; m < n && status == ATTN_OK && start <= total; m++) {
        start += p->mask->number[lengths + 2 * m + side];
        status = attn_mask_push_number(p, start);
    }
    if (status == ATTN_OK && start != total)
        return attn_mask_fail_at(p, begin, "documents hold %s%lld %s, but %s = %lld",
                                 start > total ? "at least " : "", (long long)start,
                                 side == 0 ? "queries" : "keys", side == 0 ? "Lq" : "Lk",
                                 (long long)total);
    return status;
}

static enum attn_status args_documents(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    int64_t lengths = p->mask->n_numbers, begin = p->at;
    int crossed = 0;
    do {
        struct mask_slice arg;
        enum attn_status status = attn_mask_argument(p, &arg);
        if (status == ATTN_OK && node->n_list == 0)
            crossed = memchr(p->text + arg.at, 'x', (size_t)arg.size) != NULL;
        if (status == ATTN_OK)
            status = document(p, arg, crossed);
        if (status != ATTN_OK)
            return status;
        node->n_list++;
    } while (p->more);
    if (!crossed && s->n_query != s->n_key)
        return attn_mask_fail_at(
            p, begin,
            "documents(n1,...) is for Lq = Lk, here %lld and %lld: write documents(q1xk1,...)",
            (long long)s->n_query, (long long)s->n_key);
    node->list = p->mask->n_numbers;
    enum attn_status status = push_starts(p, lengths, node->n_list, 0, begin);
    return status == ATTN_OK ? push_starts(p, lengths, node->n_list, 1, begin) : status;
}

/* digits[.digits]: at most 15 digits, so that numerator and power of ten are exact doubles and
 * their quotient is the nearest double, whatever the locale and the libm. */
static enum attn_status density(struct mask_parser *p, struct mask_slice arg, double *value)
{
    const char *text = p->text + arg.at;
    double digits = 0, scale = 1;
    int n = 0, point = 0;
    for (int64_t at = 0; at < arg.size; at++) {
        if (text[at] == '.' && !point) {
            point = 1;
        } else if (attn_mask_is_digit(text[at]) && n < 15) {
            digits = 10 * digits + (text[at] - '0');
            scale = point ? 10 * scale : scale;
            n++;
        } else {
            n = 0;
            break;
        }
    }
    *value = digits / scale;
    if (n == 0 || !(*value <= 1))
        return attn_mask_fail_at(
            p, arg.at,
            "'%.*s' is not a density: a decimal number from 0 to 1 such as 0.25, "
            "of at most 15 digits",
            MASK_SLICE(p, arg));
    return ATTN_OK;
}

/* The permutation of blocks of node->size keys. */
static void choose_blocks(const struct mask_parser *p, struct mask_node *node, int64_t seed)
{
    int64_t n_key = p->mask->shape.n_key;
    node->random = 1;
    node->seed = (uint64_t)seed;
    node->columns = n_key / node->size + (n_key % node->size > 0);
    node->half_bits = attn_mask_random_half(node->columns);
}

/* p,seed[,heads], when node->size is known. */
static enum attn_status draw(struct mask_parser *p, struct mask_node *node, const char *usage,
                             const char *example)
{
    struct mask_slice arg;
    double share = 0;
    int64_t seed = 0;
    enum attn_status status = attn_mask_argument(p, &arg);
    if (status == ATTN_OK)
        status = density(p, arg, &share);
    if (status == ATTN_OK && !p->more)
        return attn_mask_fail_at(p, p->at - 1, "%s", example);
    if (status == ATTN_OK)
        status = attn_mask_next_natural(p, &seed);
    if (status == ATTN_OK && p->more) {
        status = attn_mask_argument(p, &arg);
        if (status == ATTN_OK && !attn_mask_slice_is(p, arg, "heads"))
            return attn_mask_fail_at(p, arg.at, "'%.*s': only the word heads may stand here",
                                     MASK_SLICE(p, arg));
        node->by_head = 1;
        node->by_batch = 1;
    }
    choose_blocks(p, node, seed);
    node->count = (int64_t)round(share * (double)node->columns);
    return status == ATTN_OK ? attn_mask_no_more(p, usage) : status;
}

static enum attn_status args_random(struct mask_parser *p, struct mask_node *node)
{
    node->size = 1;
    return draw(p, node, "random(p,seed) or random(p,seed,heads)",
                "random needs a seed as well: random(0.25,1)");
}

static enum attn_status block_size(struct mask_parser *p, int64_t *size)
{
    struct mask_slice arg;
    enum attn_status status = attn_mask_argument(p, &arg);
    if (status == ATTN_OK)
        status = attn_mask_natural(p, arg, size);
    if (status == ATTN_OK && *size == 0)
        return attn_mask_fail_at(p, arg.at, "blocks have 1 token or more, such as 16 or 128");
    return status;
}

static enum attn_status args_blocks(struct mask_parser *p, struct mask_node *node)
{
    enum attn_status status = block_size(p, &node->size);
    if (status == ATTN_OK && !p->more)
        return attn_mask_fail_at(p, p->at - 1,
                                 "blocks needs a density and a seed as well: blocks(16,0.25,1)");
    return status == ATTN_OK ? draw(p, node, "blocks(size,p,seed) or blocks(size,p,seed,heads)",
                                    "blocks needs a seed as well: blocks(16,0.25,1)")
                             : status;
}

/* bigbird(size,global,window,random,seed) = global | window | random, in blocks. */
static enum attn_status args_bigbird(struct mask_parser *p, struct mask_node *node)
{
    struct mask_node *global = &node[0], *window = &node[1], *random = &node[2];
    int64_t size = 0, n[4] = {0}, at = 0;
    enum attn_status status = block_size(p, &size);
    for (int a = 0; a < 4 && status == ATTN_OK; a++) {
        if (!p->more)
            return attn_mask_fail_at(p, p->at - 1,
                                     "bigbird needs the size of a block, three numbers of blocks "
                                     "and a seed: bigbird(16,1,3,1,0)");
        at = a == 1 ? p->at : at;
        status = attn_mask_next_natural(p, &n[a]);
    }
    if (status == ATTN_OK && n[1] % 2 == 0)
        return attn_mask_fail_at(p, at,
                                 "a window of %lld blocks has no block in the middle: an odd "
                                 "number such as 3 would work",
                                 (long long)n[1]);
    if (status != ATTN_OK)
        return status;
    p->parts = n[2] > 0 ? 3 : 2;
    random->kind = MASK_RANDOM;
    random->size = size;
    choose_blocks(p, random, n[3]);
    random->count = mask_min(n[2], random->columns);
    global->kind = MASK_GLOBAL;
    global->count = size * mask_min(n[0], MASK_NUMBER_MAX / size);
    attn_mask_window_of_blocks(p, window, size, n[1] / 2);
    return attn_mask_no_more(p, "bigbird(size,global,window,random,seed)");
}

/* One name, for csr and dense. */
static enum attn_status args_name(struct mask_parser *p, struct mask_node *node)
{
    struct mask_slice arg;
    char name[NAME_ROOM];
    enum attn_status status = attn_mask_argument(p, &arg);
    if (status == ATTN_OK)
        status = name_of(p, arg, name);
    if (status == ATTN_OK)
        status = attn_mask_no_more(p, "one name");
    if (status != ATTN_OK)
        return status;
    attn_mask_bind *bind = node->kind == MASK_CSR ? attn_mask_bind_csr : attn_mask_bind_dense;
    return bind(p, node, name, arg.at);
}

const struct mask_call attn_mask_call[MASK_CALLS] = {
    {"none", MASK_NONE, NULL, "", "none                     every pair"},
    {"causal", MASK_CAUSAL, args_causal, "an alignment: causal(tl), causal(br) or causal(+3)",
     "causal(A)                no later keys: j <= i + off; A is tl, br, +3, or ends,n1,n2,..."},
    {"window", MASK_WINDOW, args_window,
     "two sides and an alignment: window(4,0,tl), window(4,0,br) or window(4,0,+3)",
     "window(l,r,A)            i + off - l <= j <= i + off + r; -1 = unbounded on that side"},
    {"prefix", MASK_PREFIX, args_count, "a number of keys: prefix(4)",
     "prefix(n)                the first n keys: j < n"},
    {"global", MASK_GLOBAL, args_count, "a number of tokens: global(2)",
     "global(n)                the first n tokens see and are seen: i < n or j < n"},
    {"keys", MASK_LENGTHS, args_keys,
     "lengths, patterns or a name: keys(5,8), keys(x0110) or keys(NAME)",
     "keys(n1,n2,...)          j < n of the batch; also keys(x0110,...) and keys(NAME)"},
    {"documents", MASK_DOCUMENTS, args_documents, "lengths: documents(3,5) or documents(3x4,5x4)",
     "documents(n1,n2,...)     same document only; documents(q1xk1,...) when Lq != Lk"},
    {"random", MASK_RANDOM, args_random, "a density and a seed: random(0.25,1)",
     "random(p,seed[,heads])   exactly round(p * Lk) keys in every row"},
    {"blocks", MASK_RANDOM, args_blocks, "a size, a density and a seed: blocks(16,0.25,1)",
     "blocks(size,p,seed[,heads])  random in blocks: round(p * blocks) of them in every row"},
    {"bigbird", MASK_GLOBAL, args_bigbird,
     "the size of a block, three numbers of blocks and a seed: bigbird(16,1,3,1,0)",
     "bigbird(size,g,w,r,seed) g global blocks, a window of w, r random ones in every row"},
    {"spatial", MASK_GRID, attn_mask_args_spatial, "a grid: spatial(16,30,40)",
     "spatial(T,H,W)           tokens (t,h,w) in that order: same frame t"},
    {"temporal", MASK_GRID, attn_mask_args_temporal, "a grid: temporal(16,30,40)",
     "temporal(T,H,W)          same place (h,w) in any frame"},
    {"skiparse", MASK_GRID, attn_mask_args_skiparse,
     "a mode and a number: skiparse(single,4) or skiparse(group,4)",
     "skiparse(single|group,k) i = j (mod k); group: i/k = j/k (mod k)"},
    {"dilated", MASK_GRID, attn_mask_args_dilated, "a grid and a number: dilated(30,40,2)",
     "dilated(H,W,k)           tokens (h,w): k divides both distances"},
    {"axial2d", MASK_GRID, attn_mask_args_axial2d, "a grid: axial2d(30,40)",
     "axial2d(H,W)             same row h or same column w"},
    {"local2d", MASK_GRID, attn_mask_args_local2d,
     "a grid and what is near: local2d(30,40,2,2) or local2d(30,40,3,l2)",
     "local2d(H,W,rh,rw)       |h| <= rh and |w| <= rw apart; (H,W,d,l1|l2): nearer than d"},
    {"local3d", MASK_GRID, attn_mask_args_local3d,
     "a grid and its reaches: local3d(16,30,40,1,2,2)",
     "local3d(T,H,W,rt,rh,rw)  the same in three directions; -1 = unbounded"},
    {"swin", MASK_GRID, attn_mask_args_swin, "a grid, a window and a shift: swin(32,32,8,4)",
     "swin(H,W,w,shift)        same w x w window of a grid cut at shift, shift + w, ..."},
    {"csr", MASK_CSR, args_name, "a name: csr(NAME)",
     "csr(NAME)                row_start and column arrays by name"},
    {"dense", MASK_DENSE, args_name, "a name: dense(NAME)",
     "dense(NAME)              [Lq,Lk] or [B|1,H|1,Lq,Lk] by name: non-zero = visible"},
};

const char *attn_mask_help(int line)
{
    return line >= 0 && line < MASK_CALLS ? attn_mask_call[line].help : NULL;
}
