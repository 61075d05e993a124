/* See ledger.h.  Small blocks come from aligned_alloc, large ones from mmap: glibc keeps freed heap
 * memory for itself, and a recorder that reads resident memory would then see the past. */
#include "ref/ledger.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ALIGN = 64,
    ZONE = 64,              /* bytes after each block, never to be written  */
    BY_MAP = 256 << 10,     /* blocks from this size on come from mmap     */
    BY_HUGE_PAGE = 4 << 20, /* and from this size on ask for huge pages    */
    ZONE_BYTE = 0xA5
};

void attn_ledger_init(struct attn_ledger *ledger, struct attn_ledger *parent)
{
    memset(ledger, 0, sizeof *ledger);
    ledger->parent = parent;
    ledger->fail_at = -1;
    ledger->limit = -1;
    if (parent != NULL) {
        ledger->poison = parent->poison;
        ledger->tracer = parent->tracer;
    }
}

static size_t block_size(size_t bytes)
{
    return (bytes + ZONE + ALIGN - 1) / ALIGN * ALIGN;
}

/* Poisoned memory is judged, not recorded, and taken again at once: a heap has its pages still. */
static struct attn_ledger_block block_get(const struct attn_ledger *ledger, size_t bytes)
{
    struct attn_ledger_block block = {NULL, bytes, -1,
                                      bytes >= (ledger->poison ? BY_HUGE_PAGE : BY_MAP)};
    if (!block.is_map) {
        block.data = aligned_alloc(ALIGN, block_size(bytes));
        return block;
    }
    void *data =
        mmap(NULL, block_size(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return block;
    /* One fault for 2 MiB instead of 512; what does not fill a huge page keeps small ones, so that
     * no more becomes resident than the block.  A system without huge pages refuses; no harm
     * is done. */
    if (bytes >= BY_HUGE_PAGE)
        madvise(data, block_size(bytes), MADV_HUGEPAGE);
    block.data = data;
    return block;
}

static void block_drop(const struct attn_ledger_block *block)
{
    if (block->is_map)
        munmap(block->data, block_size(block->bytes));
    else
        free(block->data);
}

/* ---- the live set ---------------------------------------------------------------------------- */

/* Totals travel up to the parents, which other threads may be changing too. */
static void add_total(struct attn_ledger *ledger, int64_t bytes)
{
    for (; ledger != NULL; ledger = ledger->parent) {
        int64_t now = atomic_fetch_add(&ledger->now, bytes) + bytes;
        int64_t peak = atomic_load(&ledger->peak);
        while (now > peak && !atomic_compare_exchange_weak(&ledger->peak, &peak, now))
            ;
    }
}

static void trace_block(const struct attn_ledger *ledger, const char *name, int64_t bytes)
{
    if (ledger->tracer != NULL)
        ledger->tracer->on_block(ledger->tracer->arg, ledger, name, bytes);
}

static int find_account(struct attn_ledger *ledger, const char *name)
{
    for (int a = 0; a < ledger->n_accounts; a++)
        if (strcmp(ledger->account[a].name, name) == 0)
            return a;
    if (ledger->n_accounts == ATTN_MAX_ACCOUNTS)
        return -1;
    ledger->account[ledger->n_accounts] = (struct attn_account){.name = name};
    return ledger->n_accounts++;
}

static void remember_peak(struct attn_ledger *ledger)
{
    ledger->n_at_peak = 0;
    for (int a = 0; a < ledger->n_accounts; a++)
        if (ledger->account[a].bytes > 0)
            ledger->at_peak[ledger->n_at_peak++] = ledger->account[a];
}

/* Bytes and account of what is wanted. */
static enum attn_status enter(struct attn_ledger *ledger, const char *name, int64_t count,
                              int64_t size, int64_t *bytes, int *account, struct attn_error *err)
{
    int64_t sum;
    if (count < 0 || size < 0 || __builtin_mul_overflow(count, size, bytes) ||
        __builtin_add_overflow(*bytes, ledger->now, &sum))
        return attn_fail(err, ATTN_EINVAL, "buffer '%s' of %lld x %lld bytes exceeds 64 bits", name,
                         (long long)count, (long long)size);
    *account = find_account(ledger, name);
    return *account >= 0
               ? ATTN_OK
               : attn_fail(err, ATTN_EINTERNAL, "ledger full: no room for buffer '%s'", name);
}

/* ---- lists of blocks ------------------------------------------------------------------------- */

/* Room for one more; 0: there is no memory. */
static int reserve(struct attn_ledger_blocks *list)
{
    if (list->n < list->capacity)
        return 1;
    int capacity = list->capacity > 0 ? 2 * list->capacity : 16;
    struct attn_ledger_block *at = realloc(list->at, (size_t)capacity * sizeof *at);
    if (at == NULL)
        return 0;
    list->at = at;
    list->capacity = capacity;
    return 1;
}

/* A list without blocks has no memory either: a ledger that took nothing needs no clearing. */
static void trim(struct attn_ledger_blocks *list)
{
    if (list->n > 0)
        return;
    free(list->at);
    *list = (struct attn_ledger_blocks){0};
}

/* The last one moves into its place. */
static struct attn_ledger_block remove_block(struct attn_ledger_blocks *list, int b)
{
    struct attn_ledger_block block = list->at[b];
    list->at[b] = list->at[--list->n];
    trim(list);
    return block;
}

/* A block that was kept, or a fresh one. */
static struct attn_ledger_block find_block(struct attn_ledger *ledger, size_t bytes)
{
    for (int b = 0; b < ledger->kept.n; b++)
        if (ledger->kept.at[b].bytes == bytes)
            return remove_block(&ledger->kept, b);
    return block_get(ledger, bytes);
}

/* ---- taking and giving ----------------------------------------------------------------------- */

static int above_limit(const struct attn_ledger *ledger, int64_t bytes)
{
    for (; ledger != NULL; ledger = ledger->parent)
        if (ledger->limit >= 0 && bytes > ledger->limit - ledger->now)
            return 1;
    return 0;
}

void *attn_ledger_take(struct attn_ledger *ledger, const char *name, int64_t count, int64_t size,
                       struct attn_error *err)
{
    int64_t bytes = 0, own_peak = ledger->peak;
    int account = -1;
    struct attn_ledger_block block = {0};
    if (enter(ledger, name, count, size, &bytes, &account, err) != ATTN_OK)
        return NULL;
    if (ledger->takes++ != ledger->fail_at && !above_limit(ledger, bytes) && reserve(&ledger->live))
        block = find_block(ledger, (size_t)bytes);
    if (block.data == NULL) {
        trim(&ledger->live);
        attn_fail(err, ATTN_ENOMEM, "no memory for buffer '%s': asked %lld bytes, %lld are live",
                  name, (long long)bytes, (long long)ledger->now);
        return NULL;
    }
    if (ledger->poison)
        memset(block.data, 0xFF, (size_t)bytes);
    memset((char *)block.data + bytes, ZONE_BYTE, ZONE);
    block.account = account;
    ledger->live.at[ledger->live.n++] = block;
    ledger->account[account].bytes += bytes;
    add_total(ledger, bytes);
    if (ledger->peak > own_peak)
        remember_peak(ledger);
    trace_block(ledger, name, bytes);
    return block.data;
}

static int zone_is_whole(const struct attn_ledger_block *block)
{
    const unsigned char *zone = (const unsigned char *)block->data + block->bytes;
    for (int i = 0; i < ZONE; i++)
        if (zone[i] != ZONE_BYTE)
            return 0;
    return 1;
}

static void drop(struct attn_ledger *ledger, int b)
{
    const struct attn_ledger_block block = remove_block(&ledger->live, b);
    if (!zone_is_whole(&block))
        ledger->damaged++;
    ledger->account[block.account].bytes -= (int64_t)block.bytes;
    add_total(ledger, -(int64_t)block.bytes);
    trace_block(ledger, ledger->account[block.account].name, -(int64_t)block.bytes);
    if (ledger->keeps && reserve(&ledger->kept))
        ledger->kept.at[ledger->kept.n++] = block;
    else
        block_drop(&block);
}

void *attn_ledger_give(struct attn_ledger *ledger, void *data)
{
    int b = ledger->live.n - 1;
    while (b >= 0 && ledger->live.at[b].data != data)
        b--;
    if (b >= 0)
        drop(ledger, b);
    return NULL;
}

enum attn_status attn_ledger_count(struct attn_ledger *ledger, const char *name, int64_t count,
                                   int64_t size, struct attn_error *err)
{
    int64_t bytes = 0;
    int account = -1;
    enum attn_status status = enter(ledger, name, count, size, &bytes, &account, err);
    if (status != ATTN_OK)
        return status;
    ledger->account[account].bytes += bytes;
    atomic_fetch_add(&ledger->now, bytes);
    if (ledger->now > ledger->peak)
        attn_ledger_restart(ledger);
    trace_block(ledger, name, bytes);
    return ATTN_OK;
}

void attn_ledger_uncount(struct attn_ledger *ledger, const char *name, int64_t bytes)
{
    int account = find_account(ledger, name);
    if (account < 0)
        return;
    ledger->account[account].bytes -= bytes;
    atomic_fetch_sub(&ledger->now, bytes);
    trace_block(ledger, name, -bytes);
}

int64_t attn_account_bytes(const struct attn_account *account, int n, const char *name)
{
    for (int a = 0; a < n; a++)
        if (strcmp(account[a].name, name) == 0)
            return account[a].bytes;
    return 0;
}

void attn_ledger_restart(struct attn_ledger *ledger)
{
    atomic_store(&ledger->peak, atomic_load(&ledger->now));
    remember_peak(ledger);
}

int64_t attn_ledger_clear(struct attn_ledger *ledger)
{
    int64_t left = 0;
    while (ledger->live.n > 0) {
        left += (int64_t)ledger->live.at[ledger->live.n - 1].bytes;
        drop(ledger, ledger->live.n - 1);
    }
    while (ledger->kept.n > 0) {
        const struct attn_ledger_block block = remove_block(&ledger->kept, ledger->kept.n - 1);
        block_drop(&block);
    }
    return left;
}
