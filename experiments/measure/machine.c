/* Facts, each from where the kernel or the compiler publishes it.  Nothing is guessed: a fact that
 * is not there reads "not available" (virtual machines have no governor, for one). */
#include "experiments/measure/machine.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "optimized/simd/isa.h"
#include "tests/harness/base/fileio.h"
#include "version.h"

#ifndef ATTN_BUILD_FLAGS
#define ATTN_BUILD_FLAGS "not available"
#endif

extern char **environ;

/* ---- small readers ------------------------------------------------------------------------ */

/* The first line of a file, cut at the newline; 0 when it cannot be read. */
static int first_line(const char *path, char *text, size_t size)
{
    int ok = attn_cli_kernel_text(path, text, size);
    text[strcspn(text, "\n")] = '\0';
    return ok;
}

/* The text after "FIELD" and ":" on the first such line, which is within the first processor
 * where there are many; 0 when there is none. */
static int field_of(const char *path, const char *field, char *text, size_t size)
{
    char all[16384];
    size_t n = strlen(field);
    if (!attn_cli_kernel_text(path, all, sizeof all))
        return 0;
    for (const char *line = all; *line != '\0'; line += strspn(line, "\n")) {
        size_t length = strcspn(line, "\n");
        const char *at = line + n + (length > n ? strspn(line + n, " \t") : 0);
        if (strncmp(line, field, n) == 0 && *at == ':') {
            at += 1 + strspn(at + 1, " \t");
            snprintf(text, size, "%.*s", (int)strcspn(at, "\n"), at);
            return 1;
        }
        line += length;
    }
    return 0;
}

/* "VmHWM:" and the like of a file such as /proc/self/status, in bytes; -1 when absent. */
static int64_t bytes_in(const char *path, const char *field)
{
    int64_t kib = attn_cli_kernel_number(path, field);
    return kib >= 0 ? kib * 1024 : -1;
}

double attn_machine_load(void)
{
    double load;
    return getloadavg(&load, 1) == 1 ? load : (double)NAN;
}

double attn_machine_steal(void)
{
    char line[512];
    long long t[8];
    if (!first_line("/proc/stat", line, sizeof line) ||
        sscanf(line, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &t[0], &t[1], &t[2], &t[3],
               &t[4], &t[5], &t[6], &t[7]) != 8)
        return (double)NAN;
    return (double)t[7] / (double)sysconf(_SC_CLK_TCK);
}

/* ---- digests ------------------------------------------------------------------------------ */

uint64_t attn_digest_bytes(uint64_t digest, const void *data, size_t n)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < n; i++)
        digest = (digest ^ byte[i]) * UINT64_C(0x100000001b3);
    return digest;
}

int attn_digest_file(uint64_t *digest, const char *path)
{
    static char part[1 << 16];
    struct attn_error err = {ATTN_OK, ""};
    FILE *file = attn_read_stream(path, ATTN_READ_GIVEN, &err);
    if (file == NULL && err.status == ATTN_ENOMEM)
        attn_cli_lack("%s", err.text);
    if (file == NULL)
        return 0;
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        *digest = attn_digest_bytes(*digest, part, n);
    fclose(file);
    return 1;
}

void attn_machine_build(char text[ATTN_BUILD_TEXT])
{
    uint64_t digest = ATTN_DIGEST_BEGIN;
    int n = snprintf(text, ATTN_BUILD_TEXT, "%.48s", ATTN_VERSION);
    if (attn_digest_file(&digest, "/proc/self/exe"))
        snprintf(text + n, (size_t)(ATTN_BUILD_TEXT - n), "+%012" PRIx64,
                 digest & UINT64_C(0xffffffffffff));
}

/* ---- facts -------------------------------------------------------------------------------- */

/* Of no text, and of a number that is none, jansson makes NULL. */
static void put(json_t *facts, const char *key, json_t *value)
{
    json_object_set_new(facts, key, value != NULL ? value : json_string("not available"));
}

static json_t *first_line_of(const char *path)
{
    char text[256];
    return first_line(path, text, sizeof text) ? json_string(text) : NULL;
}

/* Facts that are the first line of a file of the kernel. */
static void put_files(json_t *facts)
{
    static const char *const file[][2] = {
        {"numa_nodes_online", "/sys/devices/system/node/online"},
        {"governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"},
        {"boost", "/sys/devices/system/cpu/cpufreq/boost"},
        {"clock_source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"},
        {"transparent_huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled"},
        {"overcommit_memory", "/proc/sys/vm/overcommit_memory"}};
    for (size_t f = 0; f < sizeof file / sizeof *file; f++)
        put(facts, file[f][0], first_line_of(file[f][1]));
}

static json_t *bytes_of(int64_t bytes)
{
    return bytes >= 0 ? json_integer(bytes) : NULL;
}

static void put_processor(json_t *facts)
{
    char text[256];
    const char *info = "/proc/cpuinfo";
    int found = field_of(info, "model name", text, sizeof text) ||
                field_of(info, "CPU implementer", text, sizeof text);
    put(facts, "cpu", found ? json_string(text) : NULL);
    put(facts, "cores_online", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    char flags[4096];
    int virtual = field_of(info, "flags", flags, sizeof flags) && strstr(flags, "hypervisor");
    put(facts, "virtual_machine", json_boolean(virtual));
}

static void put_caches(json_t *facts)
{
    json_t *caches = json_object();
    static const char *const part[] = {"level", "type", "size"};
    for (int index = 0, ok = 1; ok && index < 8; index++) {
        char path[128], text[3][32], name[80];
        for (int p = 0; p < 3; p++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
                     part[p]);
            ok = ok && first_line(path, text[p], sizeof text[p]);
        }
        snprintf(name, sizeof name, "L%s %s", text[0], text[1]);
        if (ok)
            put(caches, name, json_string(text[2]));
    }
    put(facts, "caches", caches);
}

static void put_memory(json_t *facts)
{
    put(facts, "memory_total_bytes", bytes_of(bytes_in("/proc/meminfo", "MemTotal:")));
    put(facts, "memory_available_bytes", bytes_of(attn_cli_memory_available()));
    put(facts, "swap_total_bytes", bytes_of(bytes_in("/proc/meminfo", "SwapTotal:")));
    put(facts, "page_bytes", json_integer(sysconf(_SC_PAGESIZE)));
    char limit[64];
    int found = first_line("/sys/fs/cgroup/memory.max", limit, sizeof limit) ||
                first_line("/sys/fs/cgroup/memory/memory.limit_in_bytes", limit, sizeof limit);
    if (found && strtoull(limit, NULL, 10) >> 60 != 0) /* v1 says "none" with a huge number */
        strcpy(limit, "max");
    put(facts, "cgroup_memory_limit", found ? json_string(limit) : NULL);
}

static void put_system(json_t *facts)
{
    struct utsname name;
    char text[256] = "";
    if (uname(&name) == 0)
        put(facts, "kernel", json_sprintf("%s %s %s", name.sysname, name.release, name.machine));
    put(facts, "libc", json_string(gnu_get_libc_version()));
    struct timespec step;
    int known = clock_getres(CLOCK_MONOTONIC, &step) == 0;
    put(facts, "clock_resolution_s",
        known ? json_real((double)step.tv_sec + 1e-9 * (double)step.tv_nsec) : NULL);
    put(facts, "load", json_real(attn_machine_load()));
    put(facts, "steal_s", json_real(attn_machine_steal()));
    cpu_set_t set;
    size_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE && n + 8 < sizeof text; cpu++)
            if (CPU_ISSET(cpu, &set))
                n += (size_t)snprintf(text + n, sizeof text - n, n > 0 ? ",%d" : "%d", cpu);
    put(facts, "affinity", n > 0 ? json_string(text) : NULL);
}

/* Rounding mode, flush-to-zero and denormals-are-zero, as arithmetic will meet them; the low six
 * bits of MXCSR only say what has happened so far. */
static void put_float_control(json_t *facts)
{
#if defined(__x86_64__)
    put(facts, "mxcsr", json_sprintf("0x%04x", __builtin_ia32_stmxcsr() & ~0x3fu));
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    put(facts, "fpcr", json_sprintf("0x%08" PRIx64, fpcr));
#else
    put(facts, "mxcsr", NULL);
#endif
}

/* The instruction sets that the kernels can use, and the one that they use by default. */
static void put_instruction_sets(json_t *facts)
{
    struct attn_error err;
    json_t *sets = json_object();
    for (int n = 0; n < attn_isa_count(); n++) {
        const struct attn_isa *isa = attn_isa_at(n);
        put(sets, isa->name,
            json_sprintf("%s (%s)%s%s", isa->present() ? "present" : "absent", isa->needs,
                         isa->unit != NULL ? "; " : "", isa->unit != NULL ? isa->unit : ""));
    }
    put(facts, "instruction_sets", sets);
    const struct attn_isa *best = attn_isa_best(&err);
    put(facts, "instruction_set_in_use", json_string(best != NULL ? best->name : err.text));
}

static void put_environment(json_t *facts)
{
    static const char *const prefix[] = {"OMP_",    "GOMP_",          "KMP_",      "ATTN_",
                                         "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"};
    json_t *set = json_object();
    for (char **at = environ; *at != NULL; at++)
        for (size_t p = 0; p < sizeof prefix / sizeof prefix[0]; p++) {
            const char *equals = strchr(*at, '=');
            char name[64];
            if (equals == NULL || strncmp(*at, prefix[p], strlen(prefix[p])) != 0)
                continue;
            snprintf(name, sizeof name, "%.*s", (int)(equals - *at), *at);
            put(set, name, attn_cli_words(equals + 1));
        }
    put(facts, "environment", set);
}

static void put_build(json_t *facts)
{
    char build[ATTN_BUILD_TEXT];
    attn_machine_build(build);
    put(facts, "version", json_string(ATTN_VERSION));
    put(facts, "build", json_string(build));
#ifdef __clang__
    put(facts, "compiler", json_string(__VERSION__));
#else
    put(facts, "compiler", json_string("gcc " __VERSION__));
#endif
    put(facts, "flags", json_string(ATTN_BUILD_FLAGS));
}

json_t *attn_machine_facts(void)
{
    json_t *facts = json_object();
    char text[64];
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0)
        put(facts, "date", json_string(text));
    put_build(facts);
    put_processor(facts);
    put_caches(facts);
    put_files(facts);
    put_memory(facts);
    put_system(facts);
    put_float_control(facts);
    put_instruction_sets(facts);
    put_environment(facts);
    return facts;
}

/* ---- resident memory ---------------------------------------------------------------------- */

/* VmHWM is a high-water mark of the whole life of a process.  Writing 5 to clear_refs takes it down
 * to what is resident now; that needs a kernel with CONFIG_PROC_PAGE_MONITOR and a writable
 * /proc, which containers do not always have.  Without it the mark still tells the truth when it
 * moves during the work; when it does not, all that is known is that the peak was lower than an
 * earlier one, and the answer is "unknown". */
static int reset_mark(void)
{
    int fd = attn_cli_kernel_open("/proc/self/clear_refs", O_WRONLY);
    if (fd < 0)
        return 0;
    int ok = write(fd, "5", 1) == 1;
    close(fd);
    return ok;
}

void attn_resident_begin(struct attn_resident *resident)
{
    static const char status[] = "/proc/self/status";
    resident->hwm = resident->bytes = -1;
    resident->before = bytes_in(status, "VmHWM:");
    resident->reset = reset_mark();
    resident->mark = bytes_in(status, "VmHWM:");
    resident->baseline = resident->reset ? resident->mark : bytes_in(status, "VmRSS:");
}

void attn_resident_end(struct attn_resident *resident)
{
    resident->hwm = bytes_in("/proc/self/status", "VmHWM:");
    int known = resident->baseline >= 0 && (resident->reset || resident->hwm > resident->mark);
    resident->bytes = known ? resident->hwm - resident->baseline : -1;
}
