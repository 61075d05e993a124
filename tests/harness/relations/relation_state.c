/* Relations of repeats, threads, history and placement (bugs.md F14, F16, F7). */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/relations/relation_fixture.h"

static uint64_t digest(const struct attn_trial *t)
{
    return attn_setup_digest(&t->setup, t->setup.given.pass);
}

/* Equal digests, or a failure that says what was done. */
static void same_bits(struct attn_fixture *f, uint64_t got, uint64_t want, const char *what)
{
    if (!attn_fixture_repeats(f))
        return;
    f->compared++;
    if (got == want || f->result->verdict != ATTN_PASS)
        return;
    attn_fixture_fail(f, "%s: other bits (digest %016llx, before %016llx)", what,
                      (unsigned long long)got, (unsigned long long)want);
    f->result->failure = ATTN_F_EXACT;
}

/* ---- D1, D2 ---------------------------------------------------------------------------------- */

/* threads 0: one more in each run.  Every run is made: a difference seen once is a failure, and how
 * often it is seen tells a race from a state. */
static void again(struct attn_fixture *f, const struct attn_fixture_shape *shape, int runs,
                  int threads, const char *what)
{
    struct attn_trial x;
    int others = 0, first_other = 0, done = 1;
    uint64_t bits = 0;
    if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s1", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_call(f, &x, f->spec, NULL, 1)) {
        const uint64_t first = digest(&x);
        for (; done < runs &&
               attn_fixture_call(f, &x, f->spec, NULL, threads > 0 ? threads : done + 1);
             done++)
            if (digest(&x) != first && others++ == 0) {
                first_other = done + 1;
                bits = digest(&x);
            }
        if (done == runs || others > 0) {
            char words[160];
            snprintf(words, sizeof words, "%s: %d of %d, first run %d", what, others, done - 1,
                     first_other);
            same_bits(f, others > 0 ? bits : first, first, words);
        }
    }
    attn_fixture_close(&x);
}

void attn_relation_repeats(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    again(f, shape, 30, 1, "repeats in thirty runs");
}

void attn_relation_threads(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    again(f, shape, 4, 0, "with 2, 3 or 4 threads");
}

/* ---- D3 -------------------------------------------------------------------------------------- */

/* Calls that leave much, or something else, behind: sizes, heads, masks, types of problem. */
static const struct {
    struct attn_fixture_shape shape;
    const char *mask, *fill, *fields;
} call[] = {{{2, 8, 4, 16, 24, 8, 6}, "causal(br)", "normal:s1", ""},
            {{1, 4, 4, 8, 64, 16, 16}, "none", "offset+120:s2", ""},
            {{3, 12, 4, 12, 8, 4, 8}, "causal(br)", "hetero:s3", ":poison=nan"},
            {{2, 8, 8, 32, 32, 8, 8}, "window(5,0,br)", "stairs-up:s4", ":softcap=30"},
            {{1, 16, 4, 4, 4, 24, 4}, "keys(x0111)", "normal:s5", ":scale=-0.5"},
            {{2, 6, 3, 19, 37, 7, 5}, "random(0.4,3)", "normal:s6", ""},
            {{1, 4, 4, 4, 4, 4, 4}, "none", "ones:s7", ""}};
enum { CALLS = sizeof call / sizeof *call };

/* One call in a ledger; 0 when it is refused.  *bits: what came out. */
static int make_call(struct attn_fixture *f, int n, struct attn_ledger *ledger, uint64_t *bits)
{
    struct attn_trial x;
    if (!attn_fixture_open(f, &x, &call[n].shape, call[n].mask, call[n].fill, ATTN_BACKWARD,
                           call[n].fields))
        return 0;
    int ran = attn_fixture_call(f, &x, f->spec, ledger, 1);
    if (ran)
        *bits = digest(&x);
    attn_fixture_close(&x);
    return ran;
}

void attn_relation_history(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    uint64_t alone[CALLS], now;
    int ran[CALLS];
    struct attn_ledger ledger;
    if (shape->q != 16) /* the calls bring their own shapes: once is enough */
        return;
    for (int n = 0; n < CALLS; n++)
        ran[n] = make_call(f, n, NULL, &alone[n]);
    attn_ledger_init(&ledger, NULL);
    for (int step = 1; step < CALLS; step++) /* each after each other one */
        for (int k = 0, n = 0; k < CALLS; k++, n = (n + step) % CALLS)
            if (ran[n] && f->result->verdict == ATTN_PASS && make_call(f, n, &ledger, &now)) {
                char what[160];
                snprintf(what, sizeof what, "b%lldh%lldq%lldk%lld:%s after other calls",
                         (long long)call[n].shape.b, (long long)call[n].shape.h,
                         (long long)call[n].shape.q, (long long)call[n].shape.k, call[n].mask);
                same_bits(f, now, alone[n], what);
            }
    attn_ledger_clear(&ledger);
}

/* ---- P1 -------------------------------------------------------------------------------------- */

void attn_relation_alignment(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    static const int offset[] = {1, 2, 3, 7};
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s8", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_run(f, &x))
        for (int n = 0; n < 4; n++) {
            char field[32];
            snprintf(field, sizeof field, ":offset=%d", offset[n]);
            if (!attn_fixture_open(f, &y, shape, "causal(br)", "normal:s8", ATTN_BACKWARD, field))
                break;
            if (attn_fixture_run(f, &y))
                attn_fixture_compare_all(f, &x, &y, ATTN_FIXTURE_BOUNDS);
            attn_fixture_close(&y);
        }
    attn_fixture_close(&x);
}

/* ---- P2 -------------------------------------------------------------------------------------- */

/* A mapping whose elements touch an inaccessible page, at their end or at their beginning. */
struct fence {
    unsigned char *map;
    size_t bytes;
};

static int fence_in(struct attn_tensor *t, int at_end, struct fence *fence)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = (size_t)t->span * attn_dtype_size(t->dtype);
    size_t inside = (used + page - 1) / page * page;
    fence->bytes = inside + 2 * page;
    fence->map =
        mmap(NULL, fence->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fence->map == MAP_FAILED)
        return 0;
    mprotect(fence->map, page, PROT_NONE);
    mprotect(fence->map + page + inside, page, PROT_NONE);
    unsigned char *data = fence->map + page + (at_end ? inside - used : 0);
    memcpy(data, t->data, used);
    t->data = data;
    return 1;
}

/* The same tensors behind fences: what reads or writes one element too far is killed, as it should
 * be, by the system; the bits must be those of the run without. */
static void fenced(struct attn_fixture *f, const struct attn_fixture_shape *shape, int at_end)
{
    struct attn_trial x, y;
    struct fence fence[ATTN_SLOTS] = {{NULL, 0}};
    if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s9", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_run(f, &x) &&
        attn_fixture_open(f, &y, shape, "causal(br)", "normal:s9", ATTN_BACKWARD, "")) {
        struct attn_setup plain = y.setup; /* what belongs to the mappings of the set-up */
        int ok = 1;
        for (int slot = 0; slot < ATTN_SLOTS && ok; slot++)
            if (y.setup.tensor[slot].data != NULL && y.setup.tensor[slot].span > 0) {
                ok = fence_in(&y.setup.tensor[slot], at_end, &fence[slot]);
                y.setup.tensor[slot].map = NULL; /* no red zones here: nothing to look after */
            }
        if (ok && attn_fixture_run(f, &y))
            attn_fixture_compare_all(f, &x, &y, ATTN_FIXTURE_BOUNDS);
        for (int slot = 0; slot < ATTN_SLOTS; slot++)
            y.setup.tensor[slot] = plain.tensor[slot];
        attn_fixture_close(&y);
    }
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        if (fence[slot].map != NULL && fence[slot].map != MAP_FAILED)
            munmap(fence[slot].map, fence[slot].bytes);
    attn_fixture_close(&x);
}

void attn_relation_guard_pages(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape decode = *shape; /* few queries, many keys: where splits are */
    decode.q = 4;
    decode.k = shape->k + 240;
    fenced(f, shape, 0);
    fenced(f, shape, 1);
    fenced(f, &decode, 0);
    fenced(f, &decode, 1);
}
