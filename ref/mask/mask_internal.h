/* Private to ref/mask*.c: how a mask is kept.
 *
 * A mask is a tree of nodes in one array.  Leaves are the calls of the language; the two inner
 * kinds, ALL_OF (&) and ANY_OF (|), have any number of children, so `a|b|c|...` is flat however
 * long it is, and depth comes from parentheses only, which the parser limits.  Recursion over a
 * tree is therefore bounded.
 *
 *      mask_parse.c   the language: text to tree
 *      mask_call.c    the calls and their arguments; mask_grid_call.c those of grids
 *      mask_bind.c    arguments that are named tensors
 *      mask.c         meaning: the definition, and runs of visible keys
 *      mask_tile.c    blocks: all hidden, all visible, or in between
 *      mask_grid.c    rules on the coordinates of a grid: spatial, temporal, skiparse, ...
 *      mask_random.c  the keyed permutation of random(...) and blocks(...)
 *      mask_row.c     the keys of one row
 *      mask_count.c   how many pairs, in closed form or by rows
 */
#ifndef REF_MASK_MASK_INTERNAL_H
#define REF_MASK_MASK_INTERNAL_H

#include <string.h>

#include "ref/mask/mask.h"

enum mask_kind {
    MASK_NONE,
    MASK_CAUSAL,
    MASK_WINDOW,
    MASK_PREFIX,
    MASK_GLOBAL,
    MASK_LENGTHS,     /* keys(n1,n2,...)   */
    MASK_PATTERN,     /* keys(x0110,...)   */
    MASK_KEYS_TENSOR, /* keys(NAME)        */
    MASK_DOCUMENTS,
    MASK_RANDOM, /* random(...), blocks(...) */
    MASK_GRID,   /* spatial, temporal, ...   */
    MASK_CSR,
    MASK_DENSE,
    MASK_ALL_OF,
    MASK_ANY_OF
};

/* Numbers in the text and products of extents stay below these, so that no index arithmetic in
 * these files can overflow. */
#define MASK_NUMBER_MAX ((int64_t)1 << 60)
#define MASK_PAIRS_MAX  ((int64_t)1 << 61)

/* A band limit that does not limit: beyond every j - i, and safe to add extents to. */
#define MASK_FAR ((int64_t)1 << 62)

/* One coordinate of a token on a grid is token / stride % extent.  Key coordinate y is visible from
 * query coordinate x when least <= y - x <= most and step divides y - x, or, with cell > 0, when
 * both lie in one cell: (x + shift) / cell = (y + shift) / cell. */
struct mask_axis {
    int64_t extent, stride;
    int64_t least, most, step;
    int64_t cell, shift;
};
enum { MASK_AXES = 3 };

struct mask_node {
    enum mask_kind kind;
    int random; /* a random(...) or blocks(...) call is here or below */
    int by_batch, by_head;
    int64_t child, next; /* ALL_OF, ANY_OF: first child; any node: next sibling; -1 ends */
    int64_t offset;      /* CAUSAL, WINDOW: off, unless by_batch                             */
    int64_t left, right; /* WINDOW; -1 = unbounded                                         */
    int64_t count;       /* PREFIX, GLOBAL: n; RANDOM: blocks kept in each row               */
    int64_t list;        /* CAUSAL, WINDOW by_batch: offs; LENGTHS: lengths; PATTERN: begin, size
                          pairs (in the text); DOCUMENTS: n + 1 query starts, n + 1 key starts:
                          first of them in mask->number                                    */
    int64_t n_list;      /* LENGTHS, PATTERN: one, or one a batch; DOCUMENTS: documents      */
    uint64_t seed;       /* RANDOM */
    int64_t size;        /* RANDOM: tokens of a block, 1 for random(...)                     */
    int64_t columns;     /* RANDOM: blocks of keys, the last of which may be shorter         */
    int half_bits;       /* RANDOM: the permutation lives on 4^half_bits columns             */
    struct mask_axis axis[MASK_AXES]; /* GRID: outermost first, the last of stride 1         */
    int n_axes;                       /* all must see                                        */
    int norm;       /* GRID, with two axes: 1 or 2 = their distances together are below ... */
    int64_t radius; /* ... radius, in that norm; 0 = no such rule                           */
    struct attn_mask_tensor tensor, row_start; /* KEYS_TENSOR, DENSE, CSR (its columns)    */
};

struct attn_mask {
    struct attn_mask_shape shape;
    char *text;
    struct mask_node *node;
    int64_t n_nodes, room_nodes, root;
    int64_t *number; /* the lists of all calls, one after another */
    int64_t n_numbers, room_numbers;
};

/* A stretch of queries [q0, q1), and the stretch of keys [k0, k1) that it sees. */
struct mask_cell {
    int64_t q0, q1, k0, k1;
};

static inline int64_t mask_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mask_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- mask_parse.c ---- */

enum { MASK_CALLS = 20, MASK_PARTS = 3, MASK_NAME_ROOM = 256 };

/* A text on its way to a tree.  After the first failure the text is at its end: what is read from
 * there on is empty, and is not looked at. */
struct mask_parser {
    const char *at; /* what is read next, in mask->text */
    int depth;      /* open parentheses */
    int more;       /* an argument is to come: behind '(' or a comma */
    int parts;      /* nodes that the call stands for; more than one are joined by | */
    enum attn_status status;
    const struct mask_call *call; /* whose arguments are read */
    char name[MASK_NAME_ROOM];    /* of the tensor that it names, and where that stands */
    const char *name_at;
    struct attn_mask *mask;
    const struct attn_mask_source *source;
    struct attn_error *err;
};

/* The first failure: EINVAL, "mask, column N: ...", of the place `at` in the text; what was
 * expected here, and what was found; one whose message is written already. */
void attn_mask_fail_at(struct mask_parser *p, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void attn_mask_expected(struct mask_parser *p, const char *what);
void attn_mask_stop(struct mask_parser *p, enum attn_status status);

void attn_mask_push_number(struct mask_parser *p, int64_t number);

/* ---- mask_call.c ---- */

/* What reads the arguments of a call into its node, or into p->parts of them (at most MASK_PARTS,
 * all zero but for the kind of the first). */
typedef void mask_reader(struct mask_parser *p, struct mask_node *node);

struct mask_call {
    const char *name;
    enum mask_kind kind;
    mask_reader *read; /* NULL: no arguments */
    const char *needs; /* the end of "NAME needs ..." */
    const char *help;
};
extern const struct mask_call attn_mask_call[MASK_CALLS];

void attn_mask_skip_blanks(struct mask_parser *p);
int attn_mask_is_letter(char c);

/* A piece of the text; for messages, at most 40 bytes of it. */
struct mask_slice {
    const char *text;
    int64_t size;
};
#define MASK_SLICE(arg) (int)mask_min((arg).size, 40), (arg).text
int attn_mask_slice_is(struct mask_slice arg, const char *word);

/* Letters and digits, as many as there are. */
struct mask_slice attn_mask_word(struct mask_parser *p);

/* The next argument, and the comma or parenthesis behind it; a failure when there is none.  And a
 * failure when there is one more. */
struct mask_slice attn_mask_argument(struct mask_parser *p);
void attn_mask_no_more(struct mask_parser *p);

/* The last argument is the name of a tensor: into p->name. */
void attn_mask_name(struct mask_parser *p, struct mask_slice arg);

/* An argument, the next one, as a number; `says` is what is told of one that is less. */
struct mask_least {
    int64_t number;
    const char *says;
};
extern const struct mask_least mask_natural;
int64_t attn_mask_number_of(struct mask_parser *p, struct mask_slice arg,
                            const struct mask_least *least);
int64_t attn_mask_number(struct mask_parser *p, const struct mask_least *least);

/* ---- mask_grid_call.c ---- */

mask_reader attn_mask_read_spatial, attn_mask_read_temporal, attn_mask_read_skiparse,
    attn_mask_read_axial2d, attn_mask_read_local2d, attn_mask_read_local3d, attn_mask_read_dilated,
    attn_mask_read_swin;

/* |i / size - j / size| <= blocks: a window of whole blocks. */
void attn_mask_window_of_blocks(const struct mask_parser *p, struct mask_node *node, int64_t size,
                                int64_t blocks);

/* ---- mask_bind.c ---- */

/* Resolve and check the tensor p->name; csr and dense read the name themselves. */
mask_reader attn_mask_bind_ends, attn_mask_bind_keys, attn_mask_read_dense, attn_mask_read_csr;

/* ---- mask_grid.c ---- */

int attn_mask_grid_allows(const struct mask_node *node, int64_t i, int64_t j);

/* The first run at or after key `from`, as if the grid had no end; 0 when there is none. */
int attn_mask_grid_next(const struct mask_node *node, int64_t i, int64_t from, int64_t *lo,
                        int64_t *hi);

/* If row i is one run, which; it may reach beyond the last key. */
int attn_mask_grid_span(const struct mask_node *node, int64_t i, int64_t *lo, int64_t *hi);

/* Pairs in rows [i0,i1) by columns [j0,j1), O(1); with a norm, O(radius). */
int64_t attn_mask_grid_pairs(const struct mask_node *node, int64_t i0, int64_t i1, int64_t j0,
                             int64_t j1);

/* Whether a grid is stretches of adjacent tokens, each of which sees one stretch: its first axis
 * decides alone.  Then the stretch of query i. */
int attn_mask_grid_is_cells(const struct mask_node *node);
struct mask_cell attn_mask_grid_cell(const struct mask_node *node, int64_t i);

/* If visible means equal modulo some number, that number; else 0. */
int64_t attn_mask_grid_modulus(const struct mask_node *node);

/* ---- mask_count.c ---- */

/* sum over i in [i0,i1) of clamp(i + shift, 0, width): the pairs under a staircase. */
int64_t attn_mask_staircase(int64_t i0, int64_t i1, int64_t shift, int64_t width);

/* attn_mask_pairs of one node, or -1 where rows would have to be counted. */
int64_t attn_mask_node_pairs(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                             int64_t h, const struct attn_tokens *queries,
                             const struct attn_tokens *keys);

/* ---- mask.c ---- */

int attn_mask_node_allows(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                          int64_t h, int64_t i, int64_t j);

/* As attn_mask_next, for a run that starts before `until`. */
int attn_mask_node_next(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                        int64_t h, int64_t i, int64_t from, int64_t until, int64_t *lo,
                        int64_t *hi);

/* If the keys of a row are one run [*lo, *hi) in closed form, say which and return 1. */
int attn_mask_node_span(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                        int64_t i, int64_t *lo, int64_t *hi);

/* If visible in batch b means *least <= j - i <= *most, these bounds and 1: none, causal, window,
 * and what & makes of them. */
int attn_mask_node_band(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                        int64_t *least, int64_t *most);

/* off of causal and window in batch b; 0 for other kinds. */
static inline int64_t attn_mask_node_offset(const struct attn_mask *mask,
                                            const struct mask_node *node, int64_t b)
{
    int is_band = node->kind == MASK_CAUSAL || node->kind == MASK_WINDOW;
    return is_band && node->by_batch ? mask->number[node->list + b] : node->offset;
}

/* The document of query i: the last one that starts at or before it. */
struct mask_cell attn_mask_document(const struct attn_mask *mask, const struct mask_node *node,
                                    int64_t i);

/* Row (b, h, i) of a csr(...): entries [*first, *end) of its columns. */
void attn_mask_csr_row(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                       int64_t h, int64_t i, int64_t *first, int64_t *end);

/* The first entry in [first, end) whose column is at least j, or end. */
int64_t attn_mask_csr_find(const struct mask_node *node, int64_t first, int64_t end, int64_t j);

/* Element of a named tensor, widened.  Files do not promise alignment. */
static inline int64_t attn_mask_element(const struct attn_mask_tensor *tensor, int64_t index)
{
    const unsigned char *at = (const unsigned char *)tensor->data + index * tensor->width;
    int64_t wide;
    int32_t narrow;
    if (tensor->width == 1)
        return *at;
    if (tensor->width == 8) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

/* ---- mask_row.c ---- */

/* How many of these keys row i sees. */
int64_t attn_mask_node_count_keys(const struct attn_mask *mask, const struct mask_node *node,
                                  int64_t b, int64_t h, int64_t i, const struct attn_tokens *keys);

/* ---- mask_random.c ---- */

/* Smallest half with 4^half >= columns. */
int attn_mask_random_half(int64_t columns);

/* The key of the permutation of one row of tokens. */
uint64_t attn_mask_random_key(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                              int64_t h, int64_t i);

/* The permutation of [0, columns) and its inverse.  Block j is kept iff rank(j) < node->count. */
int64_t attn_mask_random_rank(const struct mask_node *node, uint64_t key, int64_t j);
int64_t attn_mask_random_column(const struct mask_node *node, uint64_t key, int64_t rank);

/* How many keys of kept blocks lie in [lo,hi), 0 <= lo: in as many steps as there are kept blocks,
 * blocks inside, or blocks outside, whichever are fewest. */
int64_t attn_mask_random_within(const struct mask_node *node, uint64_t key, int64_t lo, int64_t hi);

#endif
