/* See wrap.h.  The linker turns a call of NAME into one of __wrap_NAME, and __real_NAME into
 * NAME. */
#include "tests/wrap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "ref/ledger.h"

static atomic_int watching, refusing = -1;
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

void wrap_fail_call(int k)
{
    refusing = k;
}

int wrap_call_failed(void)
{
    return refusing < 0;
}

/* Is it refused? */
static int see(const char *name, size_t size)
{
    if (watching && !in_ledger) {
        calls++;
        bytes += (int64_t)size;
        last = name;
    }
    return refusing >= 0 && atomic_fetch_sub(&refusing, 1) == 0;
}

#define WATCHED(type, name, parameters, arguments, size, none)    \
    type __real_##name parameters;                                \
    type __wrap_##name parameters;                                \
    type __wrap_##name parameters                                 \
    {                                                             \
        return see(#name, size) ? none : __real_##name arguments; \
    }

/* clang-format off */
WATCHED(void *, malloc, (size_t size), (size), size, NULL)
WATCHED(void *, calloc, (size_t n, size_t size), (n, size), n * size, NULL)
WATCHED(void *, realloc, (void *data, size_t size), (data, size), size, NULL)
WATCHED(char *, strdup, (const char *text), (text), strlen(text) + 1, NULL)
WATCHED(void *, aligned_alloc, (size_t align, size_t size), (align, size), size, NULL)
WATCHED(int, posix_memalign, (void **data, size_t align, size_t size), (data, align, size), size,
        ENOMEM)
WATCHED(void *, mmap, (void *at, size_t size, int prot, int flags, int fd, off_t offset),
        (at, size, prot, flags, fd, offset), size, MAP_FAILED)
/* clang-format on */

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
    static _Atomic uint64_t seen[PLACES]; /* ranks are threads */
    unsigned at = ((unsigned)(uintptr_t)file * 31 + (unsigned)line) % PLACES;
    uint64_t place = ((uint64_t)(uintptr_t)file << 16) ^ (uint64_t)line;
    if (seen[at] == place)
        return;
    seen[at] = place;
    __real__mark_point(file, line);
}
