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

static inline int64_t mask_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mask_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- mask_parse.c ---- */

/* A text on its way to a tree. */
struct mask_parser {
    const char *text;
    int64_t at; /* byte that is read next */
    int depth;  /* open parentheses */
    int more;   /* a comma followed the last argument */
    int parts;  /* nodes that the call stands for; more than one are joined by | */
    struct attn_mask *mask;
    const struct attn_mask_source *source;
    struct attn_error *err;
};

/* EINVAL, "mask, column N: ..." */
enum attn_status attn_mask_fail_at(struct mask_parser *p, int64_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What stands at the position, for messages. */
const char *attn_mask_found(const struct mask_parser *p, char text[32]);

void attn_mask_skip_blanks(struct mask_parser *p);
int attn_mask_is_letter(char c);
int attn_mask_is_digit(char c);

enum attn_status attn_mask_push_number(struct mask_parser *p, int64_t number);

/* ---- mask_call.c ---- */

/* What reads the arguments of a call into its node, or into p->parts of them (at most MASK_PARTS,
 * all zero but for the kind of the first). */
enum { MASK_PARTS = 3 };
typedef enum attn_status mask_arguments(struct mask_parser *p, struct mask_node *node);

struct mask_call {
    const char *name;
    enum mask_kind kind;
    mask_arguments *arguments; /* NULL: none */
    const char *needs;         /* the end of "NAME needs ..." */
    const char *help;
};
enum { MASK_CALLS = 20 };
extern const struct mask_call attn_mask_call[MASK_CALLS];

/* A piece of the text; for messages, at most 40 bytes of it. */
struct mask_slice {
    int64_t at, size;
};
#define MASK_SLICE(p, arg) (int)mask_min((arg).size, 40), (p)->text + (arg).at

/* The next argument, and the comma or parenthesis behind it. */
enum attn_status attn_mask_argument(struct mask_parser *p, struct mask_slice *arg);
int attn_mask_slice_is(const struct mask_parser *p, struct mask_slice arg, const char *word);

/* [+-]digits; without a minus; the same of the next argument. */
enum attn_status attn_mask_whole(struct mask_parser *p, struct mask_slice arg, int64_t *value);
enum attn_status attn_mask_natural(struct mask_parser *p, struct mask_slice arg, int64_t *value);
enum attn_status attn_mask_next_natural(struct mask_parser *p, int64_t *value);
enum attn_status attn_mask_no_more(struct mask_parser *p, const char *usage);

/* ---- mask_grid_call.c ---- */

mask_arguments attn_mask_args_spatial, attn_mask_args_temporal, attn_mask_args_skiparse,
    attn_mask_args_axial2d, attn_mask_args_local2d, attn_mask_args_local3d, attn_mask_args_dilated,
    attn_mask_args_swin;

/* |i / size - j / size| <= reach: a window of whole blocks. */
void attn_mask_window_of_blocks(const struct mask_parser *p, struct mask_node *node, int64_t size,
                                int64_t reach);

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
 * decides alone.  Stretch m has tokens m * axis[0].stride and on, and sees keys [*lo, *hi). */
int attn_mask_grid_is_cells(const struct mask_node *node);
void attn_mask_grid_cell(const struct mask_node *node, int64_t m, int64_t *lo, int64_t *hi);

/* If visible means equal modulo some number, that number; else 0. */
int64_t attn_mask_grid_modulus(const struct mask_node *node);

/* ---- mask_count.c ---- */

/* sum over i in [i0,i1) of clamp(i + shift, 0, width): the pairs under a staircase. */
int64_t attn_mask_staircase(int64_t i0, int64_t i1, int64_t shift, int64_t width);

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

/* causal and window: visible in batch b iff *least <= j - i <= *most.  Other kinds: returns 0. */
int attn_mask_node_band(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                        int64_t *least, int64_t *most);

/* off of causal and window in batch b; 0 for other kinds. */
static inline int64_t attn_mask_node_offset(const struct attn_mask *mask,
                                            const struct mask_node *node, int64_t b)
{
    int is_band = node->kind == MASK_CAUSAL || node->kind == MASK_WINDOW;
    return is_band && node->by_batch ? mask->number[node->list + b] : node->offset;
}

/* The document of a token: the last one that starts at or before it. */
int64_t attn_mask_document(const int64_t *start, int64_t n_documents, int64_t token);

/* Row (b, h, i) of a csr(...): entries [*first, *end) of its columns. */
void attn_mask_csr_row(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                       int64_t h, int64_t i, int64_t *first, int64_t *end);

/* The first entry in [first, end) whose column is at least j, or end. */
int64_t attn_mask_csr_find(const struct mask_node *node, int64_t first, int64_t end, int64_t j);

/* Element of a named tensor, widened. */
int64_t attn_mask_element(const struct attn_mask_tensor *tensor, int64_t index);

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

/* ---- mask_bind.c ---- */

/* Resolve and check what a node names.  `at` is the column in the text for messages. */
typedef enum attn_status attn_mask_bind(struct mask_parser *p, struct mask_node *node,
                                        const char *name, int64_t at);
attn_mask_bind attn_mask_bind_ends, attn_mask_bind_keys, attn_mask_bind_dense, attn_mask_bind_csr;

#endif
