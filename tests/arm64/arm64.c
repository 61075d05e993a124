/* The tests of the kernels where neither Check nor GSL is at hand: `make test-arm64` cross-compiles
 * this, the library and the part of the harness that needs the C library only, and runs it under
 * qemu-user (on an arm64, as it is).  One line for each thing tested, status 1 when any fails.
 *
 *      arm64-tests [STEP]      every STEPth float (default 9973; 1: all of them)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/isa_fixture.h"
#include "tests/harness/judge/runner.h"

static int failures;

static void say(const char *isa, const char *what, int ok, const char *text)
{
    printf("%s  %-9s %s%s%s\n", ok ? "ok  " : "FAIL", isa, what, text[0] != '\0' ? ": " : "", text);
    fflush(stdout);
    failures += !ok;
}

static void numbers(const struct attn_isa *isa, int is_double, uint64_t step)
{
    for (int n = 0; n < ISA_CHECKS; n++) {
        char what[80], text[ISA_FIXTURE_TEXT] = "";
        snprintf(what, sizeof what, "%s %s", is_double ? "f64" : "f32", isa_checks[n].name);
        int holds = isa_checks[n].holds(isa->kernels[is_double], step, text);
        say(isa->name, what, holds, text);
    }
}

/* The quick battery in one storage type. */
static void battery(const char *text, const struct attn_isa *isa, enum attn_dtype dtype)
{
    struct attn_spec spec;
    struct attn_error err = {0};
    char name[200], line[2000] = "";
    int passed = 0, failed = 0;
    snprintf(name, sizeof name, "%s@%s", text, isa->name);
    if (attn_spec_parse(name, &spec, &err) != ATTN_OK) {
        say(isa->name, name, 0, err.text);
        return;
    }
    for (int n = 0; n < attn_battery_count(ATTN_TIER_QUICK); n++) {
        struct attn_case c;
        struct attn_result r;
        if (attn_case_parse(attn_battery_at(n)->text, &c, &err) != ATTN_OK)
            continue;
        c.dtype = dtype;
        attn_run_case(&spec, &c, &r);
        passed += r.verdict == ATTN_PASS;
        if (r.verdict == ATTN_FAILED && failed++ == 0)
            snprintf(line, sizeof line, "%s: %s", attn_battery_at(n)->text, r.text);
    }
    snprintf(name, sizeof name, "%s@%s, %s: %d cases of the battery pass, %d fail", text, isa->name,
             attn_dtype_name(dtype), passed, failed);
    say(isa->name, name, failed == 0 && passed >= 40, line);
}

int main(int argc, char **argv)
{
    uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 9973;
    for (int n = 0; n < attn_isa_count(); n++) {
        const struct attn_isa *isa = attn_isa_at(n);
        if (!isa->present()) {
            say(isa->name, "is not there", strcmp(isa->name, "neon") != 0, "");
            continue;
        }
        for (int is_double = 0; is_double < 2; is_double++)
            numbers(isa, is_double, step > 0 ? step : 1);
        for (int i = 0; i < attn_impl_count(); i++)
            for (int t = 0; t < ATTN_DTYPES; t++)
                if (attn_impl_at(i)->simd && attn_impl_at(i)->caps & 1u << t)
                    battery(attn_impl_at(i)->name, isa, (enum attn_dtype)t);
    }
    printf("%d failed\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
