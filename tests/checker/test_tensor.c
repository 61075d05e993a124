/* Every trap of the test tensors is sprung here on purpose: a trap that never fires proves
 * nothing. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ref/problem.h"
#include "tests/harness/base/tensor.h"
#include "tests/suites.h"

SUITE(tensor);

static const int64_t shape[4] = {2, 3, 5, 7};
static struct attn_tensor t; /* of the test that runs, and the last complaint about it */
static char text[200];

static void open_tensor(enum attn_dtype dtype, const char *order, int64_t gap, int offset,
                        unsigned broadcast)
{
    struct attn_error err;
    ck_assert_int_eq(attn_tensor_alloc(&t, "t", dtype, shape, order, gap, offset, broadcast, &err),
                     ATTN_OK);
}

static const char *intact(void)
{
    return attn_tensor_intact(&t, text, sizeof text);
}

static const char *unchanged(void)
{
    return attn_tensor_unchanged(&t, text, sizeof text);
}

static const char *written(void)
{
    return attn_tensor_written(&t, text, sizeof text);
}

/* There is a complaint, and it says this. */
static void check_says(const char *complaint, const char *words)
{
    ck_assert_ptr_nonnull(complaint);
    ck_assert_msg(strstr(complaint, words) != NULL, "'%s' does not say '%s'", complaint, words);
}

static unsigned char *slot_at(int64_t slot)
{
    return (unsigned char *)t.data + slot * (int64_t)attn_dtype_size(t.dtype);
}

/* Overwrite one element slot, counted from element [0,0,0,0], with other bits than any pattern. */
static void smear(int64_t slot)
{
    memset(slot_at(slot), 1, attn_dtype_size(t.dtype));
}

static double look(int64_t slot)
{
    const struct attn_cview one = {slot_at(slot), t.dtype, {0, 0, 0, 0}};
    return attn_cview_get(&one, 0, 0, 0, 0);
}

/* Every element holds its own number, from n + 1 on. */
static void number(struct attn_tensor *of, double n)
{
    int64_t at[4] = ATTN_START;
    while (attn_each(at, of->extent))
        attn_tensor_set(of, at[0], at[1], at[2], at[3], ++n);
}

static void check_numbers(const struct attn_tensor *of, double n)
{
    int64_t at[4] = ATTN_START;
    while (attn_each(at, of->extent))
        ck_assert(attn_tensor_get(of, at[0], at[1], at[2], at[3]) == ++n);
}

/* ---- values and strides ---------------------------------------------------------------------- */

static const char *const orders[] = {"bhic", "bihc", "ibhc", "bhci", "hbic", "ihbc", "hibc"};

/* Every element holds its own value, whatever the order, gap and type. */
TEST_EACH(elements_do_not_overlap, COUNT(orders))
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F16; dtype++)
        for (int gap = 0; gap < 6; gap += 5) {
            open_tensor((enum attn_dtype)dtype, orders[_i], gap, 0, 0);
            number(&t, 0);
            check_numbers(&t, 0);
            ck_assert_ptr_null(intact());
            attn_tensor_free(&t);
        }
}

TEST(strides_follow_the_order)
{
    open_tensor(ATTN_F32, "bihc", 0, 0, 0);
    const int64_t token_major[4] = {5 * 3 * 7, 7, 3 * 7, 1};
    ck_assert_mem_eq(t.stride, token_major, sizeof token_major);
    ck_assert_int_eq(t.span, 2 * 3 * 5 * 7);
    ck_assert_ptr_null(t.own);
    attn_tensor_free(&t);

    open_tensor(ATTN_F32, "bhic", 4, 0, 0);
    const int64_t padded[4] = {3 * 5 * 11, 5 * 11, 11, 1};
    ck_assert_mem_eq(t.stride, padded, sizeof padded);
    ck_assert_int_eq(t.span, 2 * 3 * 5 * 11 - 4);
    struct attn_view view = attn_tensor_view(&t);
    ck_assert_mem_eq(view.stride, padded, sizeof padded);
    ck_assert_ptr_eq(view.data, t.data);
    attn_tensor_free(&t);

    open_tensor(ATTN_F32, "bhic", 0, 0, 1 | 2);
    const int64_t shared[4] = {0, 0, 7, 1};
    ck_assert_mem_eq(t.stride, shared, sizeof shared);
    ck_assert_int_eq(t.extent[0], 2);
    attn_tensor_set(&t, 0, 0, 3, 2, 9);
    ck_assert(attn_tensor_get(&t, 1, 2, 3, 2) == 9);
    attn_tensor_free(&t);
}

TEST_EACH(offset_is_counted_from_an_aligned_address, 20)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F16; dtype++) {
        open_tensor((enum attn_dtype)dtype, "bhic", 0, _i, 0);
        size_t bytes = (size_t)_i * attn_dtype_size((enum attn_dtype)dtype);
        ck_assert_int_eq((uintptr_t)t.data % 64, bytes % 64);
        attn_tensor_free(&t);
    }
}

TEST(empty_tensors_are_real)
{
    const int64_t empty[4] = {2, 3, 0, 7};
    struct attn_error err;
    for (unsigned broadcast = 0; broadcast < 16; broadcast++) {
        ck_assert_int_eq(attn_tensor_alloc(&t, "t", ATTN_F32, empty, "bhic", 5, 1, broadcast, &err),
                         ATTN_OK);
        ck_assert_ptr_nonnull(t.data);
        ck_assert_int_eq(t.span, 0);
        for (int axis = 0; axis < 4; axis++) /* 0 says broadcast, and never "empty" */
            ck_assert_int_eq(t.stride[axis] == 0, broadcast >> axis & 1);
        attn_tensor_poison(&t);
        ck_assert_ptr_null(written());
        ck_assert_ptr_null(intact());
        smear(0);
        ck_assert_ptr_nonnull(intact());
        attn_tensor_free(&t);
    }
}

TEST(bad_requests_are_refused)
{
    struct attn_error err;
    static const struct {
        const char *order;
        int64_t extent[4];
    } wrong[] = {{"bhi", {2, 3, 5, 7}},
                 {"bhii", {2, 3, 5, 7}},
                 {"bhicc", {2, 3, 5, 7}},
                 {"bhix", {2, 3, 5, 7}},
                 {"", {2, 3, 5, 7}},
                 {"bhic", {1, 1, -1, 1}},
                 {"bhic", {1 << 30, 1 << 30, 1 << 30, 1}},
                 {"bhic", {1, 1, 1, INT64_MAX / 4}}};
    for (int w = 0; w < COUNT(wrong); w++)
        ck_assert_int_eq(
            attn_tensor_alloc(&t, "k", ATTN_F32, wrong[w].extent, wrong[w].order, 0, 0, 0, &err),
            ATTN_EINVAL);
}

/* ---- traps ----------------------------------------------------------------------------------- */

/* Each slot of the red zones, one at a time, up to the inaccessible pages. */
TEST_EACH(red_zones_fire, 17)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F16; dtype++) {
        int64_t size = (int64_t)attn_dtype_size((enum attn_dtype)dtype);
        for (int64_t past = -256 / size; past < 16 / size; past++) {
            char want[40];
            open_tensor((enum attn_dtype)dtype, "bhic", 0, _i, 0);
            int64_t slot = past < 0 ? past : t.span + past;
            ck_assert_ptr_null(intact());
            ck_assert(isnan(look(slot)));
            smear(slot);
            snprintf(want, sizeof want, "nearest %d %s", (int)(past < 0 ? -past : past + 1),
                     past < 0 ? "before the start" : "past the end");
            check_says(intact(), want);
            attn_tensor_free(&t);
        }
    }
}

/* With gap 5, the slots 7..11 of every row of 12 hold no element. */
TEST(gaps_fire)
{
    for (int64_t slot = 0; slot < 2 * 3 * 5 * 12 - 5; slot++) {
        open_tensor(ATTN_F32, "bhic", 5, 0, 0);
        int gap = slot % 12 >= 7;
        ck_assert(gap == !t.own[slot]);
        ck_assert(!gap || isnan(look(slot)));
        smear(slot);
        ck_assert(gap == (intact() != NULL));
        if (gap)
            check_says(text, "gap");
        attn_tensor_free(&t);
    }
}

TEST(changed_inputs_fire)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F16; dtype++) {
        open_tensor((enum attn_dtype)dtype, "bhic", 5, 0, 0);
        attn_tensor_set(&t, 1, 2, 4, 6, 0.5);
        attn_tensor_remember(&t);
        ck_assert_ptr_null(unchanged());
        attn_tensor_set(&t, 1, 2, 4, 6, 0.25);
        ck_assert_ptr_nonnull(unchanged());
        ck_assert_msg(strstr(text, "t: ") == text, "%s", text);
        attn_tensor_set(&t, 1, 2, 4, 6, 0.5);
        ck_assert_ptr_null(unchanged());
        attn_tensor_set(&t, 1, 2, 4, 6, -0.5); /* two signs must not cancel */
        attn_tensor_set(&t, 0, 0, 0, 1, -attn_tensor_get(&t, 0, 0, 0, 1));
        ck_assert_ptr_nonnull(unchanged());
        attn_tensor_set(&t, 1, 2, 4, 6, 0.5);
        attn_tensor_set(&t, 0, 0, 0, 1, -attn_tensor_get(&t, 0, 0, 0, 1));
        ck_assert_ptr_null(unchanged());
        smear(t.span); /* what lies around counts as well */
        ck_assert_ptr_nonnull(unchanged());
        attn_tensor_free(&t);
    }
}

TEST_EACH(unwritten_elements_fire, COUNT(orders))
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F16; dtype++) {
        open_tensor((enum attn_dtype)dtype, orders[_i], 5, 0, 0);
        attn_tensor_poison(&t);
        ck_assert(isnan(attn_tensor_get(&t, 0, 0, 0, 0)));
        ck_assert_ptr_null(intact());
        check_says(written(), "210 elements not written");
        int64_t at[4] = ATTN_START;
        while (attn_each(at, shape))
            if (at[0] != 1 || at[1] != 2 || at[2] != 0 || at[3] != 6)
                attn_tensor_set(&t, at[0], at[1], at[2], at[3], (double)NAN);
        check_says(written(), "1 elements not written, the first at [1,2,0,6]");
        attn_tensor_set(&t, 1, 2, 0, 6, 0);
        ck_assert_ptr_null(written());
        attn_tensor_free(&t);
    }
}

/* Does reading (or writing) one byte kill a child? */
static int faults(volatile unsigned char *at, int write)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        unsigned char byte = *at;
        if (write)
            *at = byte;
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

TEST_EACH(guard_pages_fire, 17)
{
    open_tensor(ATTN_F32, "bhic", 0, _i, 0);
    long page = sysconf(_SC_PAGESIZE);
    unsigned char *map = t.map, *end = map + t.map_bytes - page;
    unsigned char *last = (unsigned char *)t.data + 4 * t.span;
    ck_assert_int_le(end - last, 16 + 63);
    ck_assert_int_ge(end - last, 16);
    ck_assert_int_ge((unsigned char *)t.data - (map + page), 256);
    for (int write = 0; write < 2; write++) {
        ck_assert(!faults(end - 1, write));
        ck_assert(faults(end, write));
        ck_assert(faults(end + page - 1, write));
        ck_assert(!faults(map + page, write));
        ck_assert(faults(map + page - 1, write));
        ck_assert(faults(map, write));
    }
    attn_tensor_free(&t);
}

TEST(sealed_memory_fires)
{
    open_tensor(ATTN_F64, "bhic", 0, 0, 0);
    attn_tensor_set(&t, 1, 1, 1, 1, 42);
    unsigned char *first = t.data, *last = first + 8 * t.span - 1;
    attn_tensor_seal(&t, 1);
    ck_assert(faults(first, 0));
    ck_assert(faults(last, 0));
    attn_tensor_seal(&t, 0);
    ck_assert(!faults(first, 1));
    ck_assert(!faults(last, 1));
    ck_assert(attn_tensor_get(&t, 1, 1, 1, 1) == 42);
    attn_tensor_free(&t);
}

/* ---- packed ---------------------------------------------------------------------------------- */

/* q [2,4,3,5], k [2,2,6,5], v [2,2,6,7]: tokens of 4*5 + 2*5 + 2*7 = 44 elements, 6 a batch. */
TEST(packed_tensors_share_a_buffer)
{
    const int64_t q_extent[4] = {2, 4, 3, 5}, k_extent[4] = {2, 2, 6, 5},
                  v_extent[4] = {2, 2, 6, 7};
    struct attn_tensor part[3];
    struct attn_error err;
    ck_assert_int_eq(attn_tensor_pack(&part[0], &part[1], &part[2], ATTN_F32, q_extent, k_extent,
                                      v_extent, 3, &err),
                     ATTN_OK);
    ck_assert(!part[0].shared && part[1].shared && part[2].shared);
    ck_assert_ptr_eq(part[1].data, (float *)part[0].data + 20);
    ck_assert_ptr_eq(part[2].data, (float *)part[0].data + 30);
    const int64_t q_stride[4] = {6 * 44, 5, 44, 1}, v_stride[4] = {6 * 44, 7, 44, 1};
    ck_assert_mem_eq(part[0].stride, q_stride, sizeof q_stride);
    ck_assert_mem_eq(part[2].stride, v_stride, sizeof v_stride);
    for (int p = 0; p < 3; p++)
        number(&part[p], 1000 * p);
    for (int p = 0; p < 3; p++)
        check_numbers(&part[p], 1000 * p);
    for (int p = 0; p < 3; p++) {
        attn_tensor_remember(&part[p]);
        ck_assert_ptr_null(attn_tensor_intact(&part[p], text, sizeof text));
        ck_assert_ptr_null(attn_tensor_unchanged(&part[p], text, sizeof text));
    }
    attn_tensor_set(&part[2], 1, 1, 5, 6, 0);
    t = part[0]; /* the owner answers for all three */
    ck_assert_ptr_nonnull(unchanged());
    ck_assert_ptr_null(intact());
    smear(3 * 44); /* q has no token 3: a gap */
    ck_assert_ptr_nonnull(intact());
    for (int p = 2; p >= 0; p--)
        attn_tensor_free(&part[p]);
}

/* Negative strides: the same elements, the red zones where they were. */
TEST_EACH(flipped_axes_run_backwards, 8)
{
    int64_t n = 0, slot;
    open_tensor((enum attn_dtype)(_i % ATTN_DTYPES), "bihc", _i < 4 ? 0 : 3, 1, 0);
    const unsigned char *before = t.data;
    attn_tensor_flip(&t, 15);
    ck_assert(t.stride[0] < 0 && t.stride[1] < 0 && t.stride[2] < 0 && t.stride[3] == -1);
    ck_assert_int_eq(-t.first, t.span - 1);
    ck_assert(attn_tensor_holds(&t, t.data, &slot) && slot == t.span - 1);
    ck_assert(attn_tensor_holds(&t, before, &slot) && slot == 0);
    attn_tensor_poison(&t);
    ck_assert_ptr_nonnull(written());
    for (int64_t e = 0; e < 210; e++)
        attn_tensor_set(&t, e / 105, e / 35 % 3, e / 7 % 5, e % 7, (double)++n);
    for (int64_t e = 210; e > 0; e--, n--)
        ck_assert(attn_tensor_get(&t, (e - 1) / 105, (e - 1) / 35 % 3, (e - 1) / 7 % 5,
                                  (e - 1) % 7) == (double)n);
    ck_assert(look(t.first) == 210);
    ck_assert_ptr_null(written());
    ck_assert_ptr_null(intact());
    smear(1);
    check_says(intact(), "1 past the end");
    attn_tensor_free(&t);
    open_tensor(ATTN_F32, "bhic", 0, 0, 0);
    attn_tensor_flip(&t, 4); /* tokens alone */
    ck_assert(t.stride[2] == -7 && t.stride[3] == 1 && t.first == -28);
    smear(-29);
    check_says(intact(), "1 before the start");
    attn_tensor_free(&t);
}
