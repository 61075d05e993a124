/* See wrap.h.  The linker turns a call of NAME into one of __wrap_NAME, and __real_NAME into
 * NAME. */
#include "tests/wrap.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "ref/ledger.h"

static atomic_int watching;
static _Atomic int64_t calls, bytes, takes, fail_at = -1;
static const char *_Atomic last;
static _Thread_local int in_ledger;

void wrap_watch(void)
{
    calls = bytes = 0;
    last = NULL;
    watching = 1;
}

struct wrap_count wrap_stop(void)
{
    watching = 0;
    return (struct wrap_count){calls, bytes, last};
}

void wrap_fail_take(int64_t k)
{
    takes = 0;
    fail_at = k;
}

int64_t wrap_takes(void)
{
    return takes;
}

static void see(const char *name, size_t size)
{
    if (!watching || in_ledger)
        return;
    calls++;
    bytes += (int64_t)size;
    last = name;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    see("malloc", size);
    return __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    see("calloc", n * size);
    return __real_calloc(n, size);
}

void *__real_realloc(void *data, size_t size);
void *__wrap_realloc(void *data, size_t size);
void *__wrap_realloc(void *data, size_t size)
{
    see("realloc", size);
    return __real_realloc(data, size);
}

void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size)
{
    see("aligned_alloc", size);
    return __real_aligned_alloc(align, size);
}

int __real_posix_memalign(void **data, size_t align, size_t size);
int __wrap_posix_memalign(void **data, size_t align, size_t size);
int __wrap_posix_memalign(void **data, size_t align, size_t size)
{
    see("posix_memalign", size);
    return __real_posix_memalign(data, align, size);
}

void *__real_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    see("mmap", size);
    return __real_mmap(at, size, prot, flags, fd, offset);
}

void *__real_attn_ledger_take(struct attn_ledger *ledger, const char *name, int64_t count,
                              int64_t size, struct attn_error *err);
void *__wrap_attn_ledger_take(struct attn_ledger *ledger, const char *name, int64_t count,
                              int64_t size, struct attn_error *err);
void *__wrap_attn_ledger_take(struct attn_ledger *ledger, const char *name, int64_t count,
                              int64_t size, struct attn_error *err)
{
    int64_t was = ledger->fail_at;
    if (takes++ == fail_at)
        ledger->fail_at = ledger->takes;
    in_ledger++;
    void *data = __real_attn_ledger_take(ledger, name, count, size, err);
    in_ledger--;
    ledger->fail_at = was;
    return data;
}

/* Check writes every assertion that holds to a file, to say after a crash where the test was: these
 * are millions of writes.  Here each place is written once: what is told is the last new one. */
void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line)
{
    enum { PLACES = 4096 };
    static struct {
        const char *file;
        int line;
    } seen[PLACES];
    unsigned at = ((unsigned)(uintptr_t)file * 31 + (unsigned)line) % PLACES;
    if (seen[at].file == file && seen[at].line == line)
        return;
    seen[at].file = file;
    seen[at].line = line;
    __real__mark_point(file, line);
}
