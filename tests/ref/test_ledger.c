/* The ledger: its totals to the byte, the live set at the peak, its failures, and what it gives
 * back to the system. */
#include "tests/suites.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ref/ledger.h"
#include "tests/fixtures/refused.h"

SUITE(ledger);

static struct attn_ledger new_ledger(void)
{
    struct attn_ledger ledger;
    attn_ledger_init(&ledger, NULL);
    return ledger;
}

static void *take(struct attn_ledger *ledger, const char *name, int64_t bytes)
{
    struct attn_error err = {0};
    void *data = attn_ledger_take(ledger, name, bytes, 1, &err);
    ck_assert_msg(data != NULL, "%s", err.text);
    return data;
}

static int64_t at_peak(const struct attn_ledger *ledger, const char *name)
{
    for (int a = 0; a < ledger->n_at_peak; a++)
        if (strcmp(ledger->at_peak[a].name, name) == 0)
            return ledger->at_peak[a].bytes;
    return -1;
}

/* ---- totals --------------------------------------------------------------------------------- */

TEST(totals_and_peak)
{
    struct attn_ledger x = new_ledger();
    void *a = take(&x, "a", 100), *b = take(&x, "b", 50);
    ck_assert_int_eq(x.now, 150);
    ck_assert_int_eq(x.peak, 150);
    ck_assert_ptr_null(attn_ledger_give(&x, a));
    ck_assert_int_eq(x.now, 50);
    void *c = take(&x, "c", 99); /* 149: below the peak */
    ck_assert_int_eq(x.now, 149);
    ck_assert_int_eq(x.peak, 150);
    ck_assert_int_eq(x.n_at_peak, 2);
    ck_assert_int_eq(at_peak(&x, "a"), 100);
    ck_assert_int_eq(at_peak(&x, "b"), 50);
    void *d = take(&x, "d", 2); /* 151: a new peak, without a */
    ck_assert_int_eq(x.peak, 151);
    ck_assert_int_eq(x.n_at_peak, 3);
    ck_assert_int_eq(at_peak(&x, "a"), -1);
    ck_assert_int_eq(at_peak(&x, "c"), 99);
    ck_assert_int_eq(at_peak(&x, "d"), 2);
    attn_ledger_give(&x, b);
    attn_ledger_give(&x, c);
    attn_ledger_give(&x, d);
    ck_assert_int_eq(x.now, 0);
    ck_assert_int_eq(x.peak, 151);
    ck_assert_int_eq(x.takes, 4);
    ck_assert_int_eq(x.damaged, 0);
    ck_assert_int_eq(attn_ledger_clear(&x), 0);
}

/* Buffers of one name add up; of two equal peaks the first is remembered. */
TEST(names_add_up)
{
    struct attn_ledger x = new_ledger();
    char same[] = "kv";
    void *a = take(&x, "kv", 10), *b = take(&x, same, 30);
    ck_assert_int_eq(x.n_at_peak, 1);
    ck_assert_int_eq(at_peak(&x, "kv"), 40);
    attn_ledger_give(&x, a);
    attn_ledger_give(&x, b);
    void *c = take(&x, "late", 40);
    ck_assert_int_eq(x.peak, 40);
    ck_assert_int_eq(at_peak(&x, "kv"), 40);
    ck_assert_int_eq(at_peak(&x, "late"), -1);
    attn_ledger_give(&x, c);
}

TEST(zero_bytes)
{
    struct attn_ledger x = new_ledger();
    struct attn_error err = {0};
    void *a = attn_ledger_take(&x, "none", 0, 8, &err);
    void *b = attn_ledger_take(&x, "none", INT64_MAX, 0, &err);
    void *c = take(&x, "one", 1);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_ne(a, b);
    ck_assert_int_eq(x.now, 1);
    ck_assert_int_eq(x.n_at_peak, 1); /* what has no bytes is not in the live set */
    ck_assert_int_eq(at_peak(&x, "one"), 1);
    attn_ledger_give(&x, a);
    attn_ledger_give(&x, b);
    attn_ledger_give(&x, c);
    ck_assert_int_eq(x.now, 0);
    ck_assert_int_eq(x.damaged, 0);
}

/* NULL, an external implementation's pointer and a block that is gone already change nothing. */
TEST(give_what_is_not_there)
{
    struct attn_ledger x = new_ledger();
    char mine;
    void *a = take(&x, "a", 64);
    ck_assert_ptr_null(attn_ledger_give(&x, NULL));
    ck_assert_ptr_null(attn_ledger_give(&x, &mine));
    ck_assert_int_eq(x.now, 64);
    attn_ledger_give(&x, a);
    ck_assert_ptr_null(attn_ledger_give(&x, a));
    ck_assert_int_eq(x.now, 0);
    ck_assert_int_eq(x.account[0].bytes, 0);
}

TEST(clear_says_what_leaked)
{
    struct attn_ledger x = new_ledger();
    take(&x, "a", 1000);
    take(&x, "big", 1 << 20);
    take(&x, "nothing", 0);
    ck_assert_int_eq(attn_ledger_clear(&x), 1000 + (1 << 20));
    ck_assert_int_eq(x.now, 0);
    ck_assert_int_eq(attn_ledger_clear(&x), 0);
    take(&x, "again", 5); /* still of use */
    ck_assert_int_eq(x.now, 5);
    ck_assert_int_eq(attn_ledger_clear(&x), 5);
}

/* Without a block, and without a parent: peak and live set as if there were one. */
TEST(counted)
{
    struct attn_ledger parent = new_ledger(), x;
    struct attn_error err = {0};
    attn_ledger_init(&x, &parent);
    void *a = take(&x, "a", 8);
    ck_assert_int_eq(attn_ledger_count(&x, "paper", 3, 100, &err), ATTN_OK);
    ck_assert_int_eq(attn_ledger_count(&x, "paper", 1, 20, &err), ATTN_OK);
    attn_ledger_uncount(&x, "paper", 300);
    ck_assert_int_eq(x.now, 28);
    ck_assert_int_eq(x.peak, 328);
    ck_assert_int_eq(at_peak(&x, "paper"), 320);
    ck_assert_int_eq(attn_account_bytes(x.account, x.n_accounts, "paper"), 20);
    ck_assert_int_eq(attn_account_bytes(x.account, x.n_accounts, "none"), 0);
    ck_assert_int_eq(parent.now, 8);
    ck_assert_int_eq(attn_ledger_count(&x, "b", INT64_MAX - 28, 1, &err), ATTN_OK);
    ck_refusal(attn_ledger_count(&x, "c", 1, 1, &err), ATTN_EINVAL, &err,
               "'c' of 1 x 1 bytes exceeds 64 bits");
    ck_assert_int_eq(attn_ledger_count(&x, "c", -1, 1, &err), ATTN_EINVAL);
    attn_ledger_uncount(&x, "b", INT64_MAX - 28);
    attn_ledger_give(&x, a);
    ck_assert_int_eq(x.now, 20);
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Around the alignment, a page, what comes from mmap (262144), and a huge page. */
static const int64_t sizes[] = {0,     1,      7,      63,      64,      65,      127,
                                128,   4095,   4096,   4097,    65471,   65535,   65536,
                                65537, 131072, 262079, 1048575, 1048576, 1048577, 2097152};
enum { SIZES = sizeof sizes / sizeof *sizes };

TEST(aligned_and_whole)
{
    struct attn_ledger x = new_ledger();
    unsigned char *data[SIZES];
    for (int s = 0; s < SIZES; s++) {
        data[s] = take(&x, "block", sizes[s]);
        ck_assert_uint_eq((uintptr_t)data[s] % 64, 0);
        memset(data[s], s + 1, (size_t)sizes[s]);
    }
    for (int s = 0; s < SIZES; s++) /* no block lies in another one */
        for (int64_t i = 0; i < sizes[s]; i++)
            if (data[s][i] != s + 1)
                ck_abort_msg("block of %lld: byte %lld changed", (long long)sizes[s], (long long)i);
    attn_ledger_clear(&x);
    ck_assert_int_eq(x.damaged, 0);
}

TEST(poisoned_when_asked)
{
    struct attn_ledger x = new_ledger(), child;
    x.poison = 1;
    attn_ledger_init(&child, &x);
    ck_assert_int_eq(child.poison, 1);
    for (int s = 0; s < SIZES; s++) {
        const unsigned char *byte = take(s & 1 ? &x : &child, "fresh", sizes[s]);
        for (int64_t i = 0; i < sizes[s]; i++)
            if (byte[i] != 0xFF)
                ck_abort_msg("byte %lld of %lld is %d", (long long)i, (long long)sizes[s], byte[i]);
    }
    const float *f = take(&x, "float", 4);
    const double *d = take(&x, "double", 8);
    ck_assert(isnan(*f) && isnan(*d));
    attn_ledger_clear(&child);
    attn_ledger_clear(&x);
}

/* One byte past the end, the first or the last of the zone: found by give and by clear. */
TEST_EACH(damage_is_found, SIZES)
{
    for (int by_clear = 0; by_clear < 2; by_clear++) {
        struct attn_ledger x = new_ledger();
        unsigned char *data = take(&x, "block", sizes[_i]);
        volatile unsigned char *past = data + sizes[_i];
        past[by_clear ? 63 : 0] ^= 1;
        unsigned char *good = take(&x, "good", sizes[_i]);
        memset(good, 0, (size_t)sizes[_i]);
        if (by_clear)
            attn_ledger_clear(&x);
        else {
            attn_ledger_give(&x, good);
            ck_assert_int_eq(x.damaged, 0);
            attn_ledger_give(&x, data);
        }
        ck_assert_int_eq(x.damaged, 1);
    }
}

/* ---- failure -------------------------------------------------------------------------------- */

static void refused(struct attn_ledger *x, int64_t count, int64_t size, enum attn_status status,
                    const char *words)
{
    struct attn_error err = {0};
    int64_t now = x->now, peak = x->peak;
    ck_assert_ptr_null(attn_ledger_take(x, "wanted", count, size, &err));
    ck_refusal(err.status, status, &err, words);
    ck_assert_msg(strstr(err.text, "'wanted'") != NULL, "'%s' does not name the buffer", err.text);
    ck_assert_ptr_null(attn_ledger_take(x, "wanted", count, size, NULL)); /* err may be NULL */
    ck_assert_int_eq(x->now, now);
    ck_assert_int_eq(x->peak, peak);
}

TEST(overflow_is_refused)
{
    struct attn_ledger x = new_ledger();
    refused(&x, INT64_MAX, 2, ATTN_EINVAL, "9223372036854775807 x 2 bytes exceeds 64 bits");
    refused(&x, (int64_t)1 << 32, (int64_t)1 << 32, ATTN_EINVAL, "exceeds 64 bits");
    refused(&x, ((int64_t)1 << 61) + 1, 8, ATTN_EINVAL, "exceeds 64 bits");
    refused(&x, -1, 8, ATTN_EINVAL, "-1 x 8");
    refused(&x, 8, -1, ATTN_EINVAL, "8 x -1");
    ck_assert_int_eq(x.now, 0);
}

/* A size that is legal, but that no machine has. */
TEST(system_says_no)
{
    struct attn_ledger x = new_ledger();
    refused(&x, (int64_t)1 << 58, 1, ATTN_ENOMEM, "asked 288230376151711744 bytes, 0 are live");
    ck_assert_ptr_null(x.live.at); /* a list that no caller would free */
    take(&x, "here", 24);
    refused(&x, (int64_t)1 << 58, 1, ATTN_ENOMEM, "asked 288230376151711744 bytes, 24 are live");
    refused(&x, INT64_MAX - 24, 1, ATTN_ENOMEM, "asked 9223372036854775783 bytes");
    refused(&x, INT64_MAX - 23, 1, ATTN_EINVAL, "exceeds 64 bits"); /* of all that would be live */
    ck_assert_int_eq(attn_ledger_clear(&x), 24);
}

TEST(limit_holds)
{
    struct attn_ledger x = new_ledger(), child;
    x.limit = 100;
    void *a = take(&x, "a", 60);
    refused(&x, 41, 1, ATTN_ENOMEM, "asked 41 bytes, 60 are live");
    void *b = take(&x, "b", 40); /* exactly full */
    refused(&x, 1, 1, ATTN_ENOMEM, "100 are live");
    take(&x, "empty", 0);
    attn_ledger_give(&x, b);
    attn_ledger_init(&child, &x); /* a parent's limit binds its children */
    ck_assert_int_eq(child.limit, -1);
    refused(&child, 41, 1, ATTN_ENOMEM, "asked 41 bytes");
    void *c = take(&child, "c", 40);
    attn_ledger_give(&child, c);
    attn_ledger_give(&x, a);
    x.limit = 0;
    refused(&child, 1, 1, ATTN_ENOMEM, "asked 1 bytes");
    attn_ledger_clear(&x);
}

/* As many blocks as a stack of 1,000 layers has, given back from the first on. */
TEST(many_blocks)
{
    enum { MANY = 9000 };
    static void *data[MANY];
    struct attn_ledger x = new_ledger();
    for (int i = 0; i < MANY; i++)
        data[i] = take(&x, i % 2 ? "odd" : "even", i);
    ck_assert_int_eq(x.now, (int64_t)MANY * (MANY - 1) / 2);
    for (int i = 0; i < MANY; i++) {
        attn_ledger_give(&x, data[i]);
        ck_assert_int_eq(x.account[0].bytes + x.account[1].bytes, x.now);
    }
    ck_assert_int_eq(x.now, 0);
    ck_assert_int_eq(x.damaged, 0);
    ck_assert_int_eq(at_peak(&x, "odd"), (int64_t)MANY * MANY / 4);
}

TEST(more_names_than_places)
{
    struct attn_ledger x = new_ledger();
    static char name[ATTN_MAX_ACCOUNTS][16];
    for (int i = 0; i < ATTN_MAX_ACCOUNTS; i++) {
        snprintf(name[i], sizeof name[i], "n%d", i);
        attn_ledger_give(&x, take(&x, name[i], 1));
    }
    refused(&x, 1, 1, ATTN_EINTERNAL, "ledger full");
    attn_ledger_give(&x, take(&x, "n0", 1)); /* a name that is known has a place */
    ck_assert_int_eq(x.now, 0);
}

/* ---- parents -------------------------------------------------------------------------------- */

enum { ROUNDS = 20000, HELD = 3000 };
static pthread_barrier_t barrier;

static void *child_main(void *arg)
{
    struct attn_ledger *child = arg;
    for (int round = 0; round < ROUNDS; round++) {
        void *a = attn_ledger_take(child, "a", 1 + round % 40, 8, NULL);
        void *b = attn_ledger_take(child, "b", round % 7, 4, NULL);
        attn_ledger_give(child, a);
        attn_ledger_give(child, b);
    }
    void *lent = attn_ledger_take(child, "kept", HELD, 1, NULL);
    pthread_barrier_wait(&barrier); /* both hold theirs: this is the parent's peak */
    pthread_barrier_wait(&barrier);
    attn_ledger_give(child, lent);
    return NULL;
}

TEST(children_in_threads)
{
    struct attn_ledger parent = new_ledger(), child[2];
    pthread_t thread[2];
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 3), 0);
    for (int t = 0; t < 2; t++) {
        attn_ledger_init(&child[t], &parent);
        ck_assert_int_eq(pthread_create(&thread[t], NULL, child_main, &child[t]), 0);
    }
    pthread_barrier_wait(&barrier);
    ck_assert_int_eq(parent.now, 2 * HELD);
    pthread_barrier_wait(&barrier);
    for (int t = 0; t < 2; t++)
        pthread_join(thread[t], NULL);
    ck_assert_int_eq(parent.now, 0);
    ck_assert_int_eq(parent.peak, 2 * HELD);
    for (int t = 0; t < 2; t++) {
        ck_assert_int_eq(child[t].now, 0);
        ck_assert_int_eq(child[t].peak, HELD);
        ck_assert_int_eq(at_peak(&child[t], "kept"), HELD);
        ck_assert_int_eq(child[t].n_at_peak, 1);
        ck_assert_int_eq(child[t].takes, 2 * ROUNDS + 1);
    }
    pthread_barrier_destroy(&barrier);
}

TEST(grandparents_count_too)
{
    struct attn_ledger top = new_ledger(), middle, low;
    attn_ledger_init(&middle, &top);
    attn_ledger_init(&low, &middle);
    take(&top, "t", 1);
    take(&middle, "m", 10);
    take(&low, "l", 100);
    ck_assert_int_eq(low.now, 100);
    ck_assert_int_eq(middle.now, 110);
    ck_assert_int_eq(top.now, 111);
    ck_assert_int_eq(attn_ledger_clear(&middle), 10); /* its own; its child's remain */
    ck_assert_int_eq(top.now, 101);
    attn_ledger_clear(&low);
    attn_ledger_clear(&top);
    ck_assert_int_eq(top.now, 0);
    ck_assert_int_eq(middle.now, 0);
}

/* ---- resident memory ------------------------------------------------------------------------ */

static int64_t resident_bytes(void)
{
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%ld %ld", &all, &pages), 2);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

TEST(large_blocks_leave)
{
    static const int64_t large[] = {256 << 10, (256 << 10) + 1, 1 << 20, 48 << 20};
    struct attn_ledger x = new_ledger();
    for (size_t s = 0; s < sizeof large / sizeof *large; s++) {
        unsigned char seen[1];
        int64_t before = resident_bytes();
        unsigned char *data = take(&x, "large", large[s]);
        memset(data, 1, (size_t)large[s]);
        if (large[s] >= 32 << 20)
            ck_assert_int_ge(resident_bytes() - before, large[s] - (4 << 20));
        ck_assert_int_eq(mincore(data, 1, seen), 0);
        attn_ledger_give(&x, data);
        ck_assert_int_eq(mincore(data, 1, seen), -1); /* the address is no longer mapped */
        ck_assert_int_eq(errno, ENOMEM);
        ck_assert_int_le(resident_bytes() - before, 4 << 20);
    }
}

/* A ledger that keeps hands the same block out again for the same size, counts it once, as live
 * only while it is, and finds damage all the same; clear lets everything go. */
TEST(kept_blocks_return)
{
    enum { LARGE = 8 << 20, SMALL = 100 };
    unsigned char seen[1];
    struct attn_ledger x = new_ledger();
    x.keeps = 1, x.poison = 1;
    unsigned char *large = take(&x, "large", LARGE), *small = take(&x, "small", SMALL);
    memset(large, 1, LARGE);
    attn_ledger_give(&x, large);
    attn_ledger_give(&x, small);
    ck_assert_int_eq(x.now, 0);
    ck_assert_int_eq(mincore(large, 1, seen), 0); /* still ours */
    unsigned char *other = take(&x, "other", LARGE - 1);
    ck_assert_ptr_ne(other, large);
    ck_assert_ptr_eq(take(&x, "again", LARGE), large);
    ck_assert_int_eq(large[0], 0xFF); /* poisoned again */
    ck_assert_ptr_eq(take(&x, "again", SMALL), small);
    ck_assert_int_eq(x.now, 2 * LARGE - 1 + SMALL);
    small[SMALL] ^= 1;
    attn_ledger_give(&x, small);
    ck_assert_int_eq(x.damaged, 1);
    ck_assert_int_eq(attn_ledger_clear(&x), 2 * LARGE - 1);
    ck_assert_int_eq(x.now, 0);
    ck_assert_int_eq(mincore(large, 1, seen), -1);
}
