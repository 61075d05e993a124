/* attnlab check: judge implementations on the battery, or on one case. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/cli.h"
#include "tests/harness/runner.h"

static const char help[] =
    "attnlab check [SPEC ...] [--case STRING|NAME] [--strict] [--verbose]\n\n"
    "Judge implementations against the oracle.  Without SPEC: every registered one.  Without\n"
    "--case: the whole quick battery (attnlab list cases).\n\n"
    "  --case C     one case: a case string, or the name of a battery case\n"
    "  --strict     a WEAK case, which could not have failed, is a failure\n"
    "  --verbose    a line for every case, not only for those that fail\n\n"
    "  attnlab check tiled-textbook\n"
    "  attnlab check ring:ranks=4 --case 'b1h2q128d32:causal(br):f32:stairs-up:s1:pass=bwd'\n\n"
    "Exit status 1 when any case fails.\n";

struct tally {
    int count[ATTN_ERROR + 1];
    double worst;
    char worst_case[128];
    double seconds;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_reason(const struct attn_battery_case *battery)
{
    if (battery != NULL)
        printf("  case %s (%s): %s\n", battery->name, battery->ids, battery->why);
}

static void run_one(const struct attn_spec *spec, const struct attn_case *c,
                    const struct attn_battery_case *battery, int details, int strict,
                    struct tally *tally)
{
    struct attn_result r;
    char text[4096];
    double start = now();
    attn_run_case(spec, c, &r);
    tally->seconds += now() - start;
    tally->count[r.verdict]++;
    int bad =
        r.verdict != ATTN_PASS && r.verdict != ATTN_REFUSED && (strict || r.verdict != ATTN_WEAK);
    if (bad || details) {
        attn_result_print(spec, c, &r, text, sizeof text);
        fputs(text, stdout);
        print_reason(battery);
    }
    if (r.verdict == ATTN_PASS && r.worst >= tally->worst) {
        tally->worst = r.worst;
        snprintf(tally->worst_case, sizeof tally->worst_case, "%s",
                 battery != NULL ? battery->name : "this case");
    }
}

static void print_line(const struct attn_battery_case *battery, const struct tally *before,
                       const struct tally *after)
{
    for (int v = 0; v <= ATTN_ERROR; v++)
        if (after->count[v] != before->count[v])
            printf("  %-8s %-28s %s\n", attn_verdict_name((enum attn_verdict)v), battery->name,
                   battery->text);
}

/* Run the battery (or one case) on one spec; returns an exit status.  A case that cannot even be
 * set up is a mistake of whoever wrote it. */
static int run_spec(const struct attn_spec *spec, const struct attn_case *one,
                    const struct attn_battery_case *named, int strict, int verbose)
{
    struct tally tally = {0};
    char name[256];
    attn_spec_print(spec, name, sizeof name);
    if (one != NULL)
        run_one(spec, one, named, 1, strict, &tally);
    for (int i = 0; one == NULL && i < attn_battery_count(); i++) {
        const struct attn_battery_case *battery = attn_battery_at(i);
        struct attn_case c;
        struct attn_error err = {0};
        struct tally before = tally;
        if (attn_case_parse(battery->text, &c, &err) != ATTN_OK) {
            printf("ERROR  %s: %s\n", battery->name, err.text);
            tally.count[ATTN_ERROR]++;
            continue;
        }
        run_one(spec, &c, battery, 0, strict, &tally);
        if (verbose)
            print_line(battery, &before, &tally);
    }
    int failed =
        tally.count[ATTN_FAILED] + tally.count[ATTN_ERROR] + (strict ? tally.count[ATTN_WEAK] : 0);
    printf("%-28s %s: %d pass, %d fail, %d refused, %d weak, %d error", name,
           failed > 0                   ? "FAIL"
           : tally.count[ATTN_PASS] > 0 ? "PASS"
                                        : "REFUSED",
           tally.count[ATTN_PASS], tally.count[ATTN_FAILED], tally.count[ATTN_REFUSED],
           tally.count[ATTN_WEAK], tally.count[ATTN_ERROR]);
    if (tally.count[ATTN_PASS] > 0)
        printf("; worst error/bound %.3g (%s)", tally.worst, tally.worst_case);
    printf("; %.2f s\n", tally.seconds);
    if (one != NULL && tally.count[ATTN_ERROR] > 0)
        return ATTN_EXIT_USAGE;
    return failed == 0 ? ATTN_EXIT_GOOD : ATTN_EXIT_DISAGREE;
}

int attn_cmd_check(int argc, char **argv)
{
    static const struct option longs[] = {{"case", required_argument, NULL, 'c'},
                                          {"strict", no_argument, NULL, 's'},
                                          {"verbose", no_argument, NULL, 'v'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    const char *text = NULL;
    int strict = 0, verbose = 0, worst = ATTN_EXIT_GOOD;
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (o) {
        case 'c':
            text = optarg;
            break;
        case 's':
            strict = 1;
            break;
        case 'v':
            verbose = 1;
            break;
        case 'h':
            return attn_cli_help(help);
        default:
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "see attnlab check --help");
        }
    struct attn_case c;
    struct attn_error err = {0};
    const struct attn_battery_case *named = text != NULL ? attn_battery_find(text) : NULL;
    if (text != NULL && attn_case_parse(named != NULL ? named->text : text, &c, &err) != ATTN_OK)
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "%s", err.text);
    int n = optind < argc ? argc - optind : attn_impl_count();
    struct attn_spec *spec = calloc((size_t)n, sizeof *spec);
    if (spec == NULL)
        return attn_cli_fail("check", ATTN_EXIT_LACKS, "no memory");
    for (int i = 0; i < n; i++) {
        const char *name = optind < argc ? argv[optind + i] : attn_impl_at(i)->name;
        if (attn_spec_parse(name, &spec[i], &err) != ATTN_OK) {
            free(spec);
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "%s", err.text);
        }
    }
    for (int i = 0; i < n; i++) {
        int status = run_spec(&spec[i], text != NULL ? &c : NULL, named, strict, verbose);
        worst = status > worst ? status : worst;
        fflush(stdout);
    }
    free(spec);
    int flushed = attn_cli_flush("check");
    return flushed != ATTN_EXIT_GOOD ? flushed : worst;
}
