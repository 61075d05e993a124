/* A kind of mask, and how its call is read: all that a new mask needs.
 *
 * A kind is a name, the words about it, a function that reads the arguments of its call into a
 * node, and functions about one (batch, head) and one query or block.  Only allows() is needed: it
 * is the definition.  A function that is NULL is derived from it, slower.  Two make all the rest
 * fast where they can be given: band(), if j - i alone decides, and cell(), if the queries around i
 * see one stretch of keys.
 *
 * A kind is `const struct mask_kind attn_mask_kind_NAME`, at the end of its file, and a line in
 * kinds.def.
 */
#ifndef REF_MASK_KIND_H
#define REF_MASK_KIND_H

#include <string.h>

#include "ref/mask/mask.h"

/* Numbers in the text and products of extents stay below these, so that no index arithmetic can
 * overflow.  A band limit that does not limit is FAR: beyond every j - i, and safe to add extents
 * to. */
#define MASK_NUMBER_MAX ((int64_t)1 << 60)
#define MASK_PAIRS_MAX  ((int64_t)1 << 61)
#define MASK_FAR        ((int64_t)1 << 62)

static inline int64_t mask_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mask_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- a kind ------------------------------------------------------------------------------- */

/* MASK_none, MASK_causal, ...: a mask may be read by another copy of this library (a plug-in's)
 * than the one that made it, so a kind is known by its number. */
enum mask_number {
#define ATTN_MASK(name) MASK_##name,
#include "ref/mask/kinds.def"
#undef ATTN_MASK
    MASK_KINDS
};

/* One call of a text, or an & or | of several. */
struct mask_node {
    int kind;
    int counts_tokens;     /* it, or one below, says how many tokens or batches there are       */
    const void *own;       /* the kind's data, from the arguments (attn_mask_keep)              */
    int by_batch, by_head; /* it differs between batches, between heads                         */
    int64_t alike;         /* queries n alike, n alike + 1, ... (n + 1) alike - 1 see the same
                            * keys; 0 or 1: nothing is known                                    */
    int64_t modulus;       /* > 0: visible just where i = j modulo this                         */
    int64_t child, next;   /* of & and |: the first child; the next sibling; -1 ends            */
};

struct attn_mask {
    struct attn_mask_shape shape;
    char *text;
    struct mask_node *node;
    int64_t n_nodes, node_capacity, root;
    int64_t *number; /* the lists of all calls, one after another */
    int64_t n_numbers, number_capacity;
    struct mask_block *kept; /* the memory that nodes own */
};

/* A node as one (batch, head) sees it: what the functions of a kind are asked about. */
struct mask_view {
    const struct attn_mask *mask;
    const struct mask_node *node;
    int64_t b, h;
};

/* Queries [q0, q1) see just the keys [k0, k1). */
struct mask_cell {
    int64_t q0, q1, k0, k1;
};

/* Called with a run [lo, hi) of visible keys. */
typedef void mask_see(void *arg, int64_t lo, int64_t hi);

struct mask_parser;
struct mask_kind {
    const char *name; /* of the call; NULL: there is none */
    /* Reads the arguments into a node, or into p->parts of them (at most MASK_PARTS, joined by |),
     * all zero but for the kind of the first.  NULL: the call has no arguments. */
    void (*read)(struct mask_parser *p, struct mask_node *node);
    const char *needs; /* the end of "NAME needs ..." */
    const char *help;  /* one line: the call, and what it means from column 26 on */

    /* THE definition: query i sees key j.  NULL: the nodes of this call are of other kinds. */
    int (*allows)(const struct mask_view *v, int64_t i, int64_t j);

    /* Closed forms, each of which may decline (0).  Visible just where *least <= j - i <= *most. */
    int (*band)(const struct mask_view *v, int64_t *least, int64_t *most);
    /* Query i lies in this cell; q1, k0 and k1 may lie beyond the last query and key. */
    int (*cell)(const struct mask_view *v, int64_t i, struct mask_cell *cell);
    /* Where there is no cell: row i is this one run, within the keys. */
    int (*span)(const struct mask_view *v, int64_t i, int64_t *lo, int64_t *hi);

    /* The first run of row i at or after key `from` that starts before `until`, 0 <= from < until
     * <= Lk.  A run may be cut after MASK_RUN_CUT keys, so that a caller that asks for run after
     * run does not walk through a long one each time. */
    int (*next)(const struct mask_view *v, int64_t i, int64_t from, int64_t until, int64_t *lo,
                int64_t *hi);
    /* Visible keys of row i in [j0, j1), without a walk; 0 if j0 >= j1. */
    int64_t (*count)(const struct mask_view *v, int64_t i, int64_t j0, int64_t j1);
    /* The same keys as runs, j0 < j1, in any order. */
    void (*each)(const struct mask_view *v, int64_t i, int64_t j0, int64_t j1, mask_see *see,
                 void *arg);
    /* Visible pairs of these queries and keys (at least one of each) without a walk over rows;
     * -1: not of these. */
    int64_t (*pairs)(const struct mask_view *v, const struct attn_tokens *queries,
                     const struct attn_tokens *keys);

    int keys_alone; /* the key alone decides, whatever the query */

    /* The call in numbers; *call is of ATTN_CALL_OTHER before. */
    void (*numbers)(const struct mask_view *v, struct attn_mask_call *call);
};

/* The words of a kind that is a call, for its initialiser. */
#define MASK_CALL(name_, read_, needs_, help_) \
    .name = name_, .read = read_, .needs = needs_, .help = help_

enum { MASK_RUN_CUT = 64 };

extern const struct mask_kind *const attn_mask_kinds[];

/* ---- how a call is read ------------------------------------------------------------------- */

enum { MASK_PARTS = 2, MASK_NAME_ROOM = 256 };

/* A text on its way to a tree.  After the first failure the text is at its end, and whatever is
 * read is empty, or the least number that would be legal: readers go on without asking. */
struct mask_parser {
    const char *at;    /* the next character, in mask->text */
    int depth;         /* open parentheses */
    int more;          /* an argument is to come: behind '(' or a comma */
    int parts;         /* nodes that the call stands for */
    int counts_tokens; /* it says how many tokens or batches there are */
    enum attn_status status;
    const struct mask_kind *call; /* whose arguments are read */
    char name[MASK_NAME_ROOM];    /* of the tensor that it names, and where that stands */
    const char *name_at;
    struct attn_mask *mask; /* its shape is known */
    const struct attn_mask_source *source;
    struct attn_error *err;
};

/* A piece of the text; for messages, at most 40 bytes of it. */
struct mask_slice {
    const char *text;
    int64_t size;
};
#define MASK_SLICE(arg) (int)mask_min((arg).size, 40), (arg).text
int attn_mask_slice_is(struct mask_slice arg, const char *word);
int attn_mask_is_letter(char c);

/* The next argument; a failure when there is none.  As a whole number: `says` is what is told of
 * one that is less. */
struct mask_least {
    int64_t number;
    const char *says;
};
extern const struct mask_least mask_natural; /* 0 or more */
struct mask_slice attn_mask_argument(struct mask_parser *p);
int64_t attn_mask_number(struct mask_parser *p, const struct mask_least *least);
int64_t attn_mask_number_of(struct mask_parser *p, struct mask_slice arg,
                            const struct mask_least *least);

/* The first failure: EINVAL, "mask, column N: ...", of the place `at` in the text. */
void attn_mask_fail_at(struct mask_parser *p, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Copy what the kind keeps to node->own; the mask frees it. */
void attn_mask_keep(struct mask_parser *p, struct mask_node *node, const void *own, size_t size);

/* The same for a list of any length: what is pushed first stands at mask->number[n_numbers] of
 * before.  A list has one entry for each batch, or one for all: sets by_batch. */
void attn_mask_push_number(struct mask_parser *p, int64_t number);
void attn_mask_one_for_each(struct mask_parser *p, struct mask_node *node, int64_t n,
                            const char *begin);

/* A length of keys, at most Lk. */
int64_t attn_mask_length_of(struct mask_parser *p, struct mask_slice arg);

/* The alignment, which is the last argument of each call that compares positions: tl, br, +3 or
 * ends,n1,n2,...  Query i stands at key i + offset. */
struct mask_alignment {
    int64_t offset, list; /* by_batch: of batch b it is mask->number[list + b] */
    int is_ends;
};
struct mask_alignment attn_mask_alignment(struct mask_parser *p, struct mask_node *node);
int64_t attn_mask_offset(const struct mask_view *v, const struct mask_alignment *at);

#endif
