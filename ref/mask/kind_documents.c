/* documents(n1,n2,...): token i and j lie in the same document; lengths sum to Lq = Lk, and a
 * document may be empty.  documents(q1xk1,...), for cross attention: query and key lengths. */
#include "ref/mask/kind.h"

/* n + 1 starts of queries, then n + 1 starts of keys, in mask->number. */
struct documents {
    int64_t first, n;
};

/* The document of query i: the last one that starts at or before it. */
static struct mask_cell document(const struct mask_view *v, int64_t i)
{
    const struct documents *x = v->node->own;
    const int64_t *query_start = v->mask->number + x->first;
    const int64_t *key_start = query_start + x->n + 1;
    int64_t m = 0, beyond = x->n;
    while (beyond - m > 1) {
        int64_t middle = m + (beyond - m) / 2;
        if (query_start[middle] <= i)
            m = middle;
        else
            beyond = middle;
    }
    return (struct mask_cell){query_start[m], query_start[m + 1], key_start[m], key_start[m + 1]};
}

static int in_documents(const struct mask_view *v, int64_t i, int64_t j)
{
    struct mask_cell cell = document(v, i);
    return cell.k0 <= j && j < cell.k1;
}

static int cell_of_documents(const struct mask_view *v, int64_t i, struct mask_cell *cell)
{
    *cell = document(v, i);
    return 1;
}

static void numbers_of_documents(const struct mask_view *v, struct attn_mask_call *call)
{
    const struct documents *x = v->node->own;
    call->kind = ATTN_CALL_DOCUMENTS;
    call->n = x->n;
    call->query_start = v->mask->number + x->first;
    call->key_start = call->query_start + x->n + 1;
}

/* ---- arguments ---------------------------------------------------------------------------- */

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
    struct documents x = {0};
    int crossed = 0;
    p->counts_tokens = 1;
    do {
        struct mask_slice arg = attn_mask_argument(p);
        if (x.n++ == 0)
            crossed = memchr(arg.text, 'x', (size_t)arg.size) != NULL;
        push_document(p, arg, crossed);
    } while (p->more);
    if (!crossed && s->n_query != s->n_key)
        attn_mask_fail_at(
            p, begin,
            "documents(n1,...) is for Lq = Lk, here %lld and %lld: write documents(q1xk1,...)",
            (long long)s->n_query, (long long)s->n_key);
    x.first = p->mask->n_numbers;
    push_starts(p, lengths, x.n, 0, begin);
    push_starts(p, lengths, x.n, 1, begin);
    attn_mask_keep(p, node, &x, sizeof x);
}

const struct mask_kind attn_mask_kind_documents = {
    MASK_CALL("documents", read_documents, "lengths: documents(3,5) or documents(3x4,5x4)",
              "documents(n1,n2,...)     same document only; documents(q1xk1,...) when Lq != Lk"),
    .allows = in_documents, .cell = cell_of_documents, .numbers = numbers_of_documents};
