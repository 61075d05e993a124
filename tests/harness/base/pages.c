/* See pages.h. */
#include "tests/harness/base/pages.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The pages of a process are shared or not, for all that take them. */
static struct attn_pages_shared *shared;

static size_t page_bytes(void)
{
    static size_t bytes; /* asked for each tensor: the system answers once */
    if (bytes == 0)
        bytes = (size_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

/* ---- a place among the shared ones --------------------------------------------------------- */

enum { APART = 1 << 20 }; /* bytes between blocks: an address past one is not near the next */

/* The lowest gap that is large enough; -1: there is none. */
static int find_gap(size_t bytes, unsigned char **at)
{
    unsigned char *from = shared->all + APART;
    if (shared->n == ATTN_PAGES_BLOCKS)
        return -1;
    for (int n = 0; n <= shared->n; n++) {
        const unsigned char *end =
            n < shared->n ? shared->block[n].at : shared->all + shared->bytes;
        *at = from;
        if (end - from >= (ptrdiff_t)(bytes + APART))
            return n;
        if (n < shared->n)
            from = shared->block[n].at + shared->block[n].bytes + APART;
    }
    return -1;
}

static void *take_shared(size_t bytes)
{
    unsigned char *at;
    int n = find_gap(bytes, &at);
    if (n < 0 || mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    memmove(&shared->block[n + 1], &shared->block[n],
            (size_t)(shared->n++ - n) * sizeof *shared->block);
    shared->block[n] = (struct attn_pages_block){at, bytes, PROT_READ | PROT_WRITE, 0};
    return at;
}

static struct attn_pages_block *find_block(const void *at)
{
    for (int n = 0; shared != NULL && n < shared->n; n++)
        if (shared->block[n].at == at)
            return &shared->block[n];
    return NULL;
}

/* ---- pages --------------------------------------------------------------------------------- */

/* Bytes up to which all pages are asked for at once, for they are written at once: one call instead
 * of a fault for each.  An older system refuses; no harm is done. */
enum { PREPARED = 1 << 26 };

void *attn_pages_take(size_t bytes, int is_sparse)
{
    const size_t page = page_bytes();
    if (shared != NULL && !is_sparse && bytes / page > (size_t)sysconf(_SC_PHYS_PAGES))
        return NULL;
    if (shared != NULL)
        return take_shared(bytes);
    unsigned char *map = mmap(NULL, bytes + 2 * page, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | (is_sparse ? MAP_NORESERVE : 0), -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    if (mprotect(map + page, bytes, PROT_READ | PROT_WRITE) == 0) {
#ifdef MADV_POPULATE_WRITE
        if (!is_sparse && bytes <= PREPARED)
            madvise(map + page, bytes, MADV_POPULATE_WRITE);
#endif
        return map + page;
    }
    munmap(map, bytes + 2 * page);
    return NULL;
}

void attn_pages_free(void *at, size_t bytes)
{
    const size_t page = page_bytes();
    struct attn_pages_block *block = find_block(at);
    if (block == NULL) {
        munmap((unsigned char *)at - page, bytes + 2 * page);
        return;
    }
    mprotect(at, bytes, PROT_READ | PROT_WRITE);
    madvise(at, bytes, MADV_REMOVE); /* given back, and zero when it is taken again */
    mprotect(at, bytes, PROT_NONE);
    size_t above = (size_t)(&shared->block[--shared->n] - block);
    memmove(block, block + 1, above * sizeof *block);
}

void attn_pages_protect(void *at, size_t bytes, int how, int is_guarded)
{
    struct attn_pages_block *block = find_block(at);
    mprotect(at, bytes, how);
    if (block != NULL) {
        block->how = how;
        block->is_guarded = is_guarded;
    }
}

/* ---- sharing ------------------------------------------------------------------------------- */

static size_t list_bytes(void)
{
    return (sizeof *shared + page_bytes() - 1) / page_bytes() * page_bytes();
}

/* Addresses cost nothing: as many as the system gives, from 256 GiB downward. */
enum attn_status attn_pages_share(struct attn_error *err)
{
    const size_t most = (size_t)1 << (sizeof(void *) == 8 ? 38 : 28);
    for (size_t bytes = most; bytes >= most >> 10; bytes /= 2) {
        unsigned char *all =
            mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED)
            continue;
        if (mprotect(all, list_bytes(), PROT_READ | PROT_WRITE) != 0) {
            munmap(all, bytes);
            break;
        }
        shared = (struct attn_pages_shared *)all;
        shared->all = all + list_bytes();
        shared->bytes = bytes - list_bytes();
        return ATTN_OK;
    }
    return attn_fail(err, ATTN_ENOMEM, "no addresses for memory that processes share");
}

void attn_pages_unshare(void)
{
    if (shared != NULL)
        munmap(shared, shared->bytes + list_bytes());
    shared = NULL;
}

struct attn_pages_shared *attn_pages_shared(void)
{
    return shared;
}

int attn_pages_hold(const void *at)
{
    const unsigned char *p = at;
    return shared != NULL && p >= shared->all && p < shared->all + shared->bytes;
}
