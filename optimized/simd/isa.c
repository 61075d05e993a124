/* See isa.h. */
#include "optimized/simd/isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/simd/kernels.h"
#include "ref/precision.h"

/* ---- what the machine has --------------------------------------------------------------------
 *
 * A set counts only when the operating system saves its registers as well: the compiler's
 * __builtin_cpu_supports asks XGETBV for that; the kernel of an arm64 reports what may be used. */

static int always(void)
{
    return 1;
}

#if defined __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static int has_f16c(void)
{
#ifdef __clang__ /* clang 14 cannot be asked */
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
#else
    return __builtin_cpu_supports("f16c") != 0;
#endif
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static int has_tiles(void)
{
#ifdef __clang__ /* leaf 7, edx: bit 22 is AMX-BF16, bit 24 AMX-TILE */
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & d >> 24 & 1) != 0;
#else
    return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
#endif
}

/* Linux lets a process use the registers of the unit when it asks. */
static int has_amx(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && has_tiles() &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#elif defined __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>

static int has_neon(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
}
#endif

static const struct attn_isa list[] = {
#if defined __x86_64__
    {"amx",
     "AVX-512 F, BW, DQ, VL, BF16, AMX-BF16, and Linux's leave to use its tiles (5.16 or later)",
     has_amx,
     {&attn_kernels_amx_f32, &attn_kernels_amx_f64},
     "AMX, for the products of tiled:p=bf16"},
    {"avx512",
     "AVX-512 F, BW, DQ, VL",
     has_avx512,
     {&attn_kernels_avx512_f32, &attn_kernels_avx512_f64},
     NULL},
    {"avx2", "AVX2, FMA, F16C", has_avx2, {&attn_kernels_avx2_f32, &attn_kernels_avx2_f64}, NULL},
#elif defined __aarch64__
    {"neon", "Advanced SIMD", has_neon, {&attn_kernels_neon_f32, &attn_kernels_neon_f64}, NULL},
#endif
    {"portable",
     "any machine",
     always,
     {&attn_kernels_portable_f32, &attn_kernels_portable_f64},
     NULL},
};

int attn_isa_count(void)
{
    return (int)(sizeof list / sizeof *list);
}

const struct attn_isa *attn_isa_at(int n)
{
    return &list[n];
}

/* ---- by name --------------------------------------------------------------------------------- */

/* find(), the message beginning with who asked: "ATTN_ISA=" or "@". */
static const struct attn_isa *find(const char *asked, const char *name, size_t length,
                                   struct attn_error *err)
{
    char there[100] = "";
    const struct attn_isa *known = NULL;
    for (int n = 0; n < attn_isa_count(); n++) {
        const struct attn_isa *isa = &list[n];
        if (strlen(isa->name) == length && memcmp(isa->name, name, length) == 0)
            known = isa;
        if (!isa->present())
            continue;
        if (known == isa)
            return isa;
        size_t used = strlen(there);
        snprintf(there + used, sizeof there - used, "%s%s", used > 0 ? ", " : "", isa->name);
    }
    if (known != NULL)
        attn_fail(err, ATTN_ENOTSUP, "%s%s needs %s, which this machine does not have; it has: %s",
                  asked, known->name, known->needs, there);
    else
        attn_fail(err, ATTN_EINVAL, "%s%.*s: no instruction set is called so; this machine has: %s",
                  asked, length < 40 ? (int)length : 40, name, there);
    return NULL;
}

const struct attn_isa *attn_isa_find(const char *name, size_t length, struct attn_error *err)
{
    return find("@", name, length, err);
}

const struct attn_isa *attn_isa_best(struct attn_error *err)
{
    const char *narrowed = getenv("ATTN_ISA");
    if (narrowed != NULL && narrowed[0] != '\0')
        return find("ATTN_ISA=", narrowed, strlen(narrowed), err);
    for (int n = 0;; n++) /* the last is always there */
        if (list[n].present())
            return &list[n];
}

const struct attn_kernels *attn_kernels_for(const struct attn_problem *p,
                                            const struct attn_options *options,
                                            struct attn_error *err)
{
    const struct attn_isa *isa = options->isa;
    if (isa == NULL)
        isa = attn_isa_best(err);
    else if (!isa->present() && !options->priced_only)
        isa = attn_isa_find(isa->name, strlen(isa->name), err);
    return isa == NULL ? NULL : isa->kernels[p->dtype == ATTN_F64];
}

void attn_kernels_precision(const struct attn_problem *p, const struct attn_options *options,
                            struct attn_precision *precision)
{
    (void)options;
    precision->tiny = p->dtype == ATTN_F64 ? 0x1p-1022 : 0x1p-126;
    precision->exp_ulps = 5;
}
