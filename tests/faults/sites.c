/* See sites.h.  The functions below stand before those of the C library for everything that is
 * linked: attnlab, jansson, libzip, GSL and libgomp, and the C library's own strdup, getline and
 * the like, which take their memory from malloc as everybody does. */
#include "tests/faults/sites.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

static struct fault_table *table;
static int follows;         /* this is the main process */
static uintptr_t linker;    /* the dynamic linker, whose memory is its own affair */
static uintptr_t outermost; /* where the frame of who called fault_start begins */
static _Thread_local int inside;

struct fault_table *fault_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *data = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof *table) == 0)
        data = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return data == MAP_FAILED ? NULL : data;
}

__attribute__((noinline)) void fault_start(struct fault_table *use, int main_process)
{
    table = use;
    follows = main_process;
    linker = getauxval(AT_BASE);
    outermost = (uintptr_t)__builtin_frame_address(0);
}

void fault_stop(void)
{
    table = NULL;
    follows = 0;
}

/* ---- sites --------------------------------------------------------------------------------- */

enum { LINKER_BYTES = 1 << 19 }; /* more than it has; above it is only the stack */

struct stack {
    int skip, depth;
    uintptr_t frame[FAULT_DEPTH];
};

static _Unwind_Reason_Code see_frame(struct _Unwind_Context *context, void *arg)
{
    struct stack *s = arg;
    if (s->skip-- > 0)
        return _URC_NO_REASON;
    if (_Unwind_GetCFA(context) >= outermost) /* the driver's own, or the start of the process */
        return _URC_END_OF_STACK;
    s->frame[s->depth++] = _Unwind_GetIP(context);
    return s->depth < FAULT_DEPTH ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* The slot of this stack; -1 when the table is full. */
static int find_site(const char *name, const struct stack *s)
{
    uint64_t key = 1469598103934665603U;
    for (int i = 0; i < s->depth; i++)
        key = (key ^ s->frame[i]) * 1099511628211U;
    for (const char *at = name; *at != '\0'; at++)
        key = (key ^ (unsigned char)*at) * 1099511628211U;
    key |= 1;
    for (int n = 0; n < FAULT_SITES; n++) {
        int slot = (int)(((key >> 20) + (uint64_t)n) % FAULT_SITES);
        struct fault_site *x = &table->site[slot];
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&x->key, &none, key)) {
            x->name = name;
            memcpy(x->frame, s->frame, sizeof x->frame);
            x->depth = s->depth;
            return slot;
        }
        if (none == key)
            return slot;
    }
    return -1;
}

/* Count a call; 1 when it is to fail.  Keeps errno. */
static int refused(const char *name, int *slot) __attribute__((noinline));
static int refused(const char *name, int *slot)
{
    struct stack s = {.skip = 2};
    int error = errno, fails = 0;
    *slot = -1;
    if (table == NULL || inside)
        return 0;
    inside = 1;
    _Unwind_Backtrace(see_frame, &s);
    if (s.depth > 0 && s.frame[0] - linker >= LINKER_BYTES)
        *slot = find_site(name, &s);
    if (*slot >= 0) {
        struct fault_site *x = &table->site[*slot];
        int call = atomic_fetch_add(&x->calls, 1) + 1;
        fails = x->key == table->fail_key && call == table->fail_call;
        if (fails)
            table->fired = 1;
    }
    inside = 0;
    errno = error;
    return fails;
}

#define FAILS(name, slot, error) (refused(name, slot) ? (errno = (error), 1) : 0)
#define fails_with(name, error)  FAILS(name, &(int){0}, error)

/* ---- memory: the last eight bytes of a block say where it was taken -------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *data, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *data);

static const uint64_t MARK = 0xFA17B10C00000000U;

static uint64_t *mark_of(void *data)
{
    return (uint64_t *)((char *)data + malloc_usable_size(data) - sizeof(uint64_t));
}

static void *taken(void *data, int slot)
{
    if (data == NULL)
        return NULL;
    *mark_of(data) = follows && slot >= 0 ? MARK | (uint64_t)slot : 0;
    if (follows && slot >= 0)
        table->site[slot].live++;
    return data;
}

static void given(void *data)
{
    if (data == NULL || !follows || table == NULL)
        return;
    uint64_t mark = *mark_of(data);
    if ((mark & 0xFFFFFFFF00000000U) == MARK && (uint32_t)mark < FAULT_SITES)
        table->site[(uint32_t)mark].live--;
}

static size_t with_mark(size_t size)
{
    return size <= SIZE_MAX - sizeof(uint64_t) ? size + sizeof(uint64_t) : size;
}

void *malloc(size_t size)
{
    int slot;
    return FAILS("malloc", &slot, ENOMEM) ? NULL : taken(__libc_malloc(with_mark(size)), slot);
}

void *calloc(size_t n, size_t size)
{
    int slot;
    size_t bytes;
    if (FAILS("calloc", &slot, ENOMEM) || __builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return taken(__libc_calloc(1, with_mark(bytes)), slot);
}

void *realloc(void *data, size_t size)
{
    int slot;
    if (FAILS("realloc", &slot, ENOMEM))
        return NULL;
    given(data);
    return taken(__libc_realloc(data, with_mark(size)), slot);
}

void *aligned_alloc(size_t align, size_t size)
{
    int slot;
    return FAILS("aligned_alloc", &slot, ENOMEM)
               ? NULL
               : taken(__libc_memalign(align, with_mark(size)), slot);
}

void *memalign(size_t align, size_t size)
{
    int slot;
    return FAILS("memalign", &slot, ENOMEM) ? NULL
                                            : taken(__libc_memalign(align, with_mark(size)), slot);
}

int posix_memalign(void **data, size_t align, size_t size)
{
    int slot;
    if (FAILS("posix_memalign", &slot, ENOMEM))
        return ENOMEM;
    *data = taken(__libc_memalign(align, with_mark(size)), slot);
    return *data != NULL ? 0 : ENOMEM;
}

void free(void *data)
{
    given(data);
    __libc_free(data);
}

/* ---- the rest: the real one is the next of that name ----------------------------------------- */

#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (real == NULL)              \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

#define REFUSE(type, name, parameters, arguments, refused, failure) \
    type name parameters                                            \
    {                                                               \
        REAL(name);                                                 \
        return (refused) ? (failure) : real arguments;              \
    }

/* clang-format off */
REFUSE(void *, mmap, (void *at, size_t size, int prot, int flags, int fd, off_t offset),
       (at, size, prot, flags, fd, offset), fails_with("mmap", ENOMEM), MAP_FAILED)
REFUSE(int, pthread_create,
       (pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
       (thread, attr, run, arg), fails_with("pthread_create", 0), EAGAIN)
REFUSE(int, posix_spawn,
       (pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
        const posix_spawnattr_t *attr, char *const argv[], char *const env[]),
       (pid, path, actions, attr, argv, env), fails_with("posix_spawn", 0), EAGAIN)
REFUSE(int, pipe, (int ends[2]), (ends), fails_with("pipe", EMFILE), -1)
REFUSE(int, pipe2, (int ends[2], int flags), (ends, flags), fails_with("pipe2", EMFILE), -1)
REFUSE(int, mkdir, (const char *path, mode_t mode), (path, mode), fails_with("mkdir", ENOSPC), -1)
REFUSE(char *, mkdtemp, (char *path), (path), fails_with("mkdtemp", ENOSPC), NULL)
REFUSE(int, rename, (const char *from, const char *to), (from, to),
       fails_with("rename", ENOSPC), -1)
REFUSE(ssize_t, write, (int fd, const void *data, size_t bytes), (fd, data, bytes),
       fd != STDERR_FILENO && fails_with("write", ENOSPC), -1)
REFUSE(int, ftruncate, (int fd, off_t size), (fd, size), fails_with("ftruncate", EIO), -1)
REFUSE(int, fsync, (int fd), (fd), fails_with("fsync", EIO), -1)
REFUSE(FILE *, fdopen, (int fd, const char *mode), (fd, mode), fails_with("fdopen", ENOMEM), NULL)
REFUSE(FILE *, fopen, (const char *path, const char *mode), (path, mode),
       fails_with("fopen", mode[0] == 'r' ? EMFILE : ENOSPC), NULL)
REFUSE(FILE *, fopen64, (const char *path, const char *mode), (path, mode),
       fails_with("fopen64", mode[0] == 'r' ? EMFILE : ENOSPC), NULL)
/* clang-format on */

pid_t fork(void)
{
    REAL(fork);
    if (fails_with("fork", EAGAIN))
        return -1;
    pid_t child = real();
    if (child == 0)
        follows = 0;
    return child;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    static struct timespec start;
    REAL(clock_gettime);
    int status = real(clock, t);
    if (table == NULL || table->haste <= 1 || clock != CLOCK_MONOTONIC || status != 0)
        return status;
    if (start.tv_sec == 0)
        start = *t;
    int64_t ns = (t->tv_sec - start.tv_sec) * 1000000000LL + t->tv_nsec - start.tv_nsec;
    ns = ns * table->haste + start.tv_nsec;
    *t = (struct timespec){start.tv_sec + ns / 1000000000, ns % 1000000000};
    return 0;
}

/* A mode that open() was not given is a word of garbage that nobody looks at. */
#define OPENS(name)                                               \
    int name(const char *path, int flags, ...)                    \
    {                                                             \
        va_list args;                                             \
        REAL(name);                                               \
        if (fails_with(#name, flags & O_CREAT ? ENOSPC : EMFILE)) \
            return -1;                                            \
        if (table != NULL && strcmp(path, "/proc/meminfo") == 0)  \
            path = table->meminfo;                                \
        va_start(args, flags);                                    \
        mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0; \
        va_end(args);                                             \
        return real(path, flags, mode);                           \
    }
OPENS(open)
OPENS(open64)

/* ---- streams --------------------------------------------------------------------------------- */

/* What a full disk does to a stream that writes to a descriptor: what it holds is lost, and the
 * mark of an error stays on it. */
static int stream_fails(FILE *stream, const char *name) __attribute__((always_inline));
static inline int stream_fails(FILE *stream, const char *name)
{
    if (stream == NULL || stream == stderr || table == NULL || fileno(stream) < 0 ||
        (fcntl(fileno(stream), F_GETFL) & O_ACCMODE) == O_RDONLY || !fails_with(name, ENOSPC))
        return 0;
    stream->_flags |= 0x20; /* _IO_ERR_SEEN of glibc */
    return 1;
}

/* clang-format off */
REFUSE(int, fflush, (FILE *stream), (stream), stream_fails(stream, "fflush"), EOF)
REFUSE(size_t, fwrite, (const void *data, size_t size, size_t n, FILE *stream),
       (data, size, n, stream), stream_fails(stream, "fwrite"), 0)
REFUSE(int, fputs, (const char *text, FILE *stream), (text, stream),
       stream_fails(stream, "fputs"), EOF)
REFUSE(int, fputc, (int c, FILE *stream), (c, stream), stream_fails(stream, "fputc"), EOF)
REFUSE(int, putc, (int c, FILE *stream), (c, stream), stream_fails(stream, "putc"), EOF)
REFUSE(int, puts, (const char *text), (text), stream_fails(stdout, "puts"), EOF)
REFUSE(int, putchar, (int c), (c), stream_fails(stdout, "putchar"), EOF)
/* clang-format on */

int fclose(FILE *stream)
{
    REAL(fclose);
    int fails = stream_fails(stream, "fclose");
    return real(stream) != 0 || fails ? EOF : 0;
}

#define PRINTS(name, stream)                \
    va_list args;                           \
    if (stream_fails(stream, name))         \
        return -1;                          \
    va_start(args, format);                 \
    int n = vfprintf(stream, format, args); \
    va_end(args);                           \
    return n

int fprintf(FILE *stream, const char *format, ...)
{
    PRINTS("fprintf", stream);
}

int printf(const char *format, ...)
{
    PRINTS("printf", stdout);
}
