/* Ledger = resident: what the ledger says the process held at its peak is what the kernel saw,
 * within 2 %, in a fresh process for each implementation and pass.  So every page that is on the
 * ledger is written, and nothing of size is held beside it. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/point/point.h"
#include "experiments/measure/preflight.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

SUITE(resident);

static const struct attn_stack one_call = {0, ATTN_SAVE_ROWS, 0, 0};

enum { LEAST_MIB = 34 };
static const double MIB = 1024 * 1024, LEAST_OF_RANKS_MIB = 16, MOST_FLOPS = 1.1e10,
                    TOLERANCE = 0.02;

/* From plain to special; the first that is large for the implementation and cheap to run is taken.
 * The second has many heads, so that shards and not a rank's tiles are what is held, and
 * keys everywhere, so that no block is skipped and its buffers left unwritten.  In the others
 * only the diagonal is seen: the long, wide accumulators of a tiled backward cost O(L) flops.
 * There 3 MiB of a workspace stay unwritten, which must be little of the whole. */
static const struct {
    const char *text;
    double least_mib; /* for one process */
} candidates[] = {
    {"h2q1600d64:none:f32:normal:s1", LEAST_MIB},
    {"h64q512d64:none:f32:normal:s1", LEAST_MIB},
    {"q9216d1024:window(0,0,tl):f32:normal:s1", 110},
    {"q18432d1024:window(0,0,tl):f32:normal:s1", LEAST_MIB},
};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

/* Simulated ranks have copies of their shards besides, on the process's ledger: as much again.
 * The case for an implementation and pass; 0 when there is none. */
static int choose(const struct attn_spec *spec, enum attn_pass pass, char text[ATTN_CASE_TEXT])
{
    for (int i = 0; i < CANDIDATES; i++) {
        struct attn_point point;
        int64_t need;
        double least = spec->impl->ranks != NULL ? LEAST_OF_RANKS_MIB : candidates[i].least_mib;
        attn_point_init(&point);
        point.c = case_of(candidates[i].text);
        point.c.pass = pass;
        if (attn_preflight_case(spec, &point.c, &point, &need, NULL) == ATTN_OK &&
            (double)point.price.peak * point.ranks > least * MIB &&
            point.price.flops < MOST_FLOPS) {
            attn_case_print(&point.c, text);
            return 1;
        }
    }
    return 0;
}

/* The price for this machine beyond inputs and outputs, which simulated ranks copy. */
static double priced_here(const struct attn_spec *spec, const char *text, enum attn_pass pass)
{
    struct attn_case c = case_of(text);
    struct attn_problem problem;
    struct attn_point point;
    struct attn_need need;
    int64_t bytes;
    ck_assert_int_eq(attn_preflight_open(&c, &problem, &point, &bytes, NULL), ATTN_OK);
    const struct attn_price_asked asked = {
        spec, &one_call, &c, pass == ATTN_BACKWARD ? ATTN_NEED_BOTH : ATTN_NEED_FORWARD, NULL};
    ck_assert_int_eq(attn_need_of(&asked, &problem, NULL, &need, NULL), ATTN_OK);
    attn_preflight_close(&problem);
    return attn_need_in(&need, &(struct attn_memory){0}) - need.beside;
}

/* `attnlab point` in a process of its own; of layers, or of one call. */
static void run_point(const char *spec, const char *text, struct attn_stack layers,
                      struct attn_point *point)
{
    static char out[1 << 16], command[1 << 14];
    const struct attn_point_how how = {.verify_all = 1, .unverified = 1};
    struct attn_error err = {0};
    attn_point_init(point);
    strcpy(point->spec, spec);
    strcpy(point->text, text);
    point->stack = layers;
    json_t *line = attn_point_ask(&how, point);
    char *asked = json_dumps(line, JSON_COMPACT);
    snprintf(command, sizeof command, "'%s/attnlab' point '%s'", test_build(), asked);
    free(asked);
    json_decref(line);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(out, 1, sizeof out - 1, pipe);
    ck_assert_msg(pclose(pipe) == 0, "%s", command);
    ck_assert_msg(attn_record_parse_point(out, n, point, &err) == ATTN_OK, "%s: %s", command,
                  err.text);
}

/* clang's OpenMP takes memory of its own when a point's first call begins. */
static int agrees(const struct attn_point *point)
{
    double ledger = (double)point->process_ledger_bytes, resident = (double)point->resident_bytes;
#ifdef __clang__
    const double runtime = 2 * MIB;
#else
    const double runtime = 0;
#endif
    return resident - ledger <= fmax(TOLERANCE * ledger, runtime) &&
           ledger - resident <= TOLERANCE * ledger;
}

/* Every implementation, those of ranks in one pass if not all are asked for, and then one that
 * saves a matrix between its passes. */
TEST_EACH(ledger_is_resident, 2 * (attn_impl_count() + 1))
{
    int saves = _i / 2 == attn_impl_count();
    const struct attn_impl *impl = saves ? attn_impl_find("gemm") : attn_impl_at(_i / 2);
    enum attn_pass pass = _i % 2 == 0 ? ATTN_FORWARD : ATTN_BACKWARD;
    char text[ATTN_CASE_TEXT];
    struct attn_spec spec;
    struct attn_point point;
#if defined(__SANITIZE_ADDRESS__)
    printf("resident: %s %s skipped: the sanitizer's own memory is resident too\n", impl->name,
           attn_pass_name(pass));
    return;
#endif
    if (impl->ranks != NULL && _i / 2 % 2 != _i % 2 && getenv("ATTN_FULL") == NULL)
        return; /* one engine for all: forward and backward by turns */
    char name[64];
    snprintf(name, sizeof name, "%s%s", impl->name,
             impl->ranks != NULL ? ":ranks=2"
             : saves             ? ":save=probs"
                                 : "");
    spec = spec_of(name);
    if (!choose(&spec, pass, text)) {
        printf("resident: %s %s skipped: no cheap case takes 32 MiB\n", impl->name,
               attn_pass_name(pass));
        return;
    }
    run_point(name, text, one_call, &point);
    ck_assert_msg(point.status == ATTN_POINT_OK, "%s %s: %s", name, text, point.message);
    ck_assert_int_gt(point.process_ledger_bytes, 32 << 20);
    if (!point.hwm_reset && point.resident_bytes < 0) {
        printf("resident: %s %s skipped: VmHWM cannot be reset here, and did not move\n",
               impl->name, attn_pass_name(pass));
        return;
    }
    /* Ranks need not be at their peaks in the same moment, and rarely are where no rank waits for
     * another at the last stop; more looks tell chance from bug, as many as a loaded machine may
     * need. */
    for (int look = 1; look < 40 && impl->ranks != NULL && !agrees(&point); look++)
        run_point(name, text, one_call, &point);
    ck_assert_msg(agrees(&point), "%s %s: resident %lld, ledger %lld", name, text,
                  (long long)point.resident_bytes, (long long)point.process_ledger_bytes);
    ck_assert_msg((double)point.process_ledger_bytes <=
                      (1 + TOLERANCE) * priced_here(&spec, text, pass),
                  "%s %s: ledger %lld, but %.0f are priced", name, text,
                  (long long)point.process_ledger_bytes, priced_here(&spec, text, pass));
}

/* docs/measuring.md, of points below 32 MiB: at most 2 MiB apart, either way.  Only this sees
 * 3 MiB that every call holds beside its ledger: in the points above they are less than 2 %
 * of a large case. */
TEST_EACH(small_points, 2 * attn_impl_count())
{
    const struct attn_impl *impl = attn_impl_at(_i / 2);
    const char *pass = _i % 2 == 0 ? "" : ":pass=bwd";
    char text[ATTN_CASE_TEXT];
    struct attn_point point;
#if defined(__SANITIZE_ADDRESS__)
    return; /* said above */
#endif
    for (int length = 64; length <= 1024 && impl->ranks == NULL; length *= 4) {
        snprintf(text, sizeof text, "q%dd64:none:f32:normal:s1%s", length, pass);
        run_point(impl->name, text, one_call, &point);
        if (!point.hwm_reset && point.resident_bytes < 0)
            return; /* unknown: said above */
        double off = (double)(point.resident_bytes - point.process_ledger_bytes);
        ck_assert_msg(point.status == ATTN_POINT_OK && off <= 2 * MIB && off >= -2 * MIB,
                      "%s %s: resident %lld, ledger %lld", impl->name, text,
                      (long long)point.resident_bytes, (long long)point.process_ledger_bytes);
    }
}

/* Stacks of layers: all that they hold is resident, and what they gave back is not. */
TEST(a_stack_is_resident)
{
    static const struct {
        const char *spec, *text;
        struct attn_stack layers;
    } stacks[] = {
        {"gemm:save=probs", "h2q900d64:none:f32:normal:s1:pass=bwd", {6, ATTN_SAVE_PROBS, 0, 0}},
        {"gemm:save=probs", "h2q1600d64:none:f32:normal:s1:pass=bwd", {6, ATTN_SAVE_INPUTS, 0, 0}},
        {"tiled", "h16q1024d64:window(63,0,tl):f32:normal:s1:pass=bwd", {6, ATTN_SAVE_ROWS, 0, 0}},
        {"tiled", "h16q1024d64:window(63,0,tl):f32:normal:s1", {6, ATTN_SAVE_INPUTS, 0, 0}},
        {"dense", "q2048d64:none:f32:normal:s1", {1, ATTN_SAVE_INPUTS, 1024, 0}},
        {"tiled",
         "h16q1024d64:window(63,0,tl):f32:normal:s1:pass=bwd",
         {2, ATTN_SAVE_ROWS, 256, 0}},
    };
    enum { STACKS = sizeof stacks / sizeof *stacks };
#if defined(__SANITIZE_ADDRESS__)
    printf("resident: stacks skipped: the sanitizer's own memory is resident too\n");
    return;
#endif
    for (int s = 0; s < STACKS; s++) {
        struct attn_point point;
        run_point(stacks[s].spec, stacks[s].text, stacks[s].layers, &point);
        ck_assert_msg(point.status == ATTN_POINT_OK, "%s: %s", stacks[s].text, point.message);
        ck_assert_int_gt(point.ledger_bytes, 32 << 20);
        ck_assert_int_eq(point.ledger_bytes, point.price.peak);
        ck_assert_msg(agrees(&point) || (!point.hwm_reset && point.resident_bytes < 0),
                      "%s %s, stack %d: resident %lld, ledger %lld", stacks[s].spec, stacks[s].text,
                      s, (long long)point.resident_bytes, (long long)point.process_ledger_bytes);
    }
}
