/* Memory of test tensors: whole pages between two inaccessible ones.
 *
 * While it is shared, all of it lies in one mapping, which a process that is forked later sees at
 * the same addresses: what one writes the other reads.  Access is each process's own: the list of
 * blocks, which is shared too, says what the tensors' owner allows.
 */
#ifndef TESTS_HARNESS_INPUTS_PAGES_H
#define TESTS_HARNESS_INPUTS_PAGES_H

#include "ref/attn.h"

/* Zeroed bytes, a multiple of the page size, between two inaccessible pages; NULL without memory.
 * is_sparse: few of them will be used, they may be more than there is memory. */
void *attn_pages_take(size_t bytes, int is_sparse);
void attn_pages_free(void *at, size_t bytes);

/* How they may be used from now on (PROT_READ, ...).  is_guarded: a process that shares them notes
 * a write to what is read-only and lets it go on (tests/harness/subject/plugin_child.c). */
void attn_pages_protect(void *at, size_t bytes, int how, int is_guarded);

/* From now on pages are taken from memory that is shared with processes that are forked from now
 * on, until attn_pages_unshare(): all of them must be free again then.  ENOMEM. */
enum attn_status attn_pages_share(struct attn_error *err);
void attn_pages_unshare(void);

/* The shared pages that are taken. */
enum { ATTN_PAGES_BLOCKS = 96 };
struct attn_pages_shared {
    unsigned char *all;
    size_t bytes;
    int n; /* blocks, by address */
    struct attn_pages_block {
        unsigned char *at;
        size_t bytes;
        int how, is_guarded;
    } block[ATTN_PAGES_BLOCKS];
};

/* NULL: pages are not shared. */
struct attn_pages_shared *attn_pages_shared(void);

/* 1: an address lies among them. */
int attn_pages_hold(const void *at);

#endif
