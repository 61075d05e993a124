/* See environment.h. */
#include "tests/harness/base/environment.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { X86_DAZ = 0x0040, X86_FTZ = 0x8000, X86_ROUNDING = 0x6000, X86_MASKS = 0x1f80 };

static uint64_t control_word(void)
{
#if defined(__x86_64__)
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (uint64_t)x87 << 32 | (_mm_getcsr() & (X86_DAZ | X86_FTZ | X86_ROUNDING | X86_MASKS));
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return (uint64_t)fegetround();
#endif
}

void attn_environment_save(struct attn_environment *e)
{
    fegetenv(&e->whole);
    e->control = control_word();
}

static void describe(uint64_t was, uint64_t is, char *text, size_t size)
{
#if defined(__x86_64__)
    uint64_t changed = was ^ is;
    snprintf(text, size, "%s%s%s%s%s", changed & is & X86_FTZ ? ", flush-to-zero on" : "",
             changed & is & X86_DAZ ? ", denormals-are-zero on" : "",
             changed & X86_ROUNDING ? ", another rounding" : "",
             changed & X86_MASKS ? ", exceptions trap" : "",
             changed >> 32 ? ", x87 control word" : "");
    if (text[0] == '\0')
        snprintf(text, size, ", a mode switched off");
    memmove(text, text + 2, strlen(text + 2) + 1);
#else
    snprintf(text, size, "control word %llx, was %llx", (unsigned long long)is,
             (unsigned long long)was);
#endif
}

int attn_environment_restore(const struct attn_environment *e, char *text, size_t size)
{
    uint64_t now = control_word();
    int changed = now != e->control;
    if (changed)
        describe(e->control, now, text, size);
    fesetenv(&e->whole);
    return changed;
}
