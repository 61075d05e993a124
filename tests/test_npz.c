/* Archives of tensors: what numpy writes is read, and an archive that lies gets one line.  Whatever
 * a member claims or hides, no more is inflated than the header of its .npy asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/fixtures/scratch.h"
#include "tests/fixtures/zip_fixture.h"
#include "tests/harness/files/files.h"
#include "tests/harness/fill.h"
#include "tests/suites.h"

static struct attn_file file;
static struct attn_error err;

static void accept(const char *path)
{
    enum attn_status status = attn_file_open(path, &file, &err);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
}

static struct attn_file_tensor *load(const char *name)
{
    struct attn_file_tensor *t = attn_file_find(&file, name);
    ck_assert_msg(t != NULL, "no tensor '%s'", name);
    enum attn_status status = attn_file_load(&file, t, &err);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
    return t;
}

/* ---- good ones ------------------------------------------------------------------------------ */

/* Every type that .npy has, stored and deflated: the bytes of attn_npy_write as a member. */
START_TEST(every_type_returns)
{
    unsigned char data[24 * 8], all[1024];
    for (size_t d = 0; d < sizeof data; d++)
        data[d] = (unsigned char)attn_hash(7, 1, d);
    const struct attn_file_tensor t = {.name = "",
                                       .dtype = (enum attn_file_dtype)_i,
                                       .n_axes = 3,
                                       .extent = {2, 3, 4},
                                       .data = data};
    if (_i == ATTN_FILE_BF16)
        return; /* .npy has none */
    const char *path = scratch_path("t.npy");
    ck_assert_int_eq(attn_npy_write(path, &t, &err), ATTN_OK);
    FILE *stream = fopen(path, "rb");
    ck_assert_ptr_nonnull(stream);
    size_t n = fread(all, 1, sizeof all, stream);
    fclose(stream);
    struct zip_fixture fixture = {.n = 0};
    zip_fixture_add(&fixture, "stored.npy", 0, all, n);
    zip_fixture_add(&fixture, "deflated.npy", 1, all, n);
    zip_fixture_make(&fixture);
    accept(zip_fixture_put(&fixture, "t.npz"));
    ck_assert_int_eq(file.n_tensors, 2);
    for (int m = 0; m < 2; m++) {
        const struct attn_file_tensor *got = load(m == 0 ? "stored" : "deflated");
        ck_assert_int_eq((int)got->dtype, _i);
        ck_assert_int_eq(got->bytes, 24 * attn_file_dtype_size(got->dtype));
        ck_assert_uint_eq((uintptr_t)got->data % 64, 0);
        ck_assert_int_eq(memcmp(got->data, data, (size_t)got->bytes), 0);
    }
    attn_file_close(&file);
}
END_TEST

/* Archives that numpy wrote (tests/data/numpy_archives.py): stored, deflated, and to a pipe. */
START_TEST(numpy_archives)
{
    static const char *const path[] = {"tests/data/numpy-savez.npz",
                                       "tests/data/numpy-compressed.npz",
                                       "tests/data/numpy-piped.npz"};
    char shape[160];
    accept(path[_i]);
    ck_assert_int_eq(file.n_tensors, 6);
    const float *q = load("q")->data;
    const double *k = load("k")->data; /* was big-endian, in Fortran order */
    const unsigned char *mask = load("mask")->data;
    const int16_t *deep = load("deep/er")->data;
    for (int e = 0; e < 24; e++) {
        ck_assert(q[e] == (float)e);
        ck_assert(k[e] == e);
        ck_assert_int_eq(mask[e], e % 2);
        ck_assert_int_eq(deep[e], e);
    }
    ck_assert_int_eq(*(const int64_t *)load("n")->data, 7);
    ck_assert_str_eq(attn_file_shape(load("\xc3\xa9"), shape), "[0,3]");
    attn_file_close(&file);
}
END_TEST

/* ---- ones that lie -------------------------------------------------------------------------- */

#define DICTIONARY(shape) "{'descr': '|u1', 'fortran_order': False, 'shape': (" shape ",), }\n"

/* No archive may make us take memory: 64 MiB more must do. */
static void limit_memory(void)
{
#ifndef __SANITIZE_ADDRESS__
    struct rlimit limit;
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (statm == NULL)
        return;
    int read = fscanf(statm, "%ld", &pages);
    fclose(statm);
    ck_assert_int_eq(read, 1);
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64u << 20);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
#endif
}

static void check_line(const char *path, const char *what)
{
    const char *name = strrchr(path, '/') + 1;
    ck_assert_msg(strstr(err.text, name) != NULL, "'%s' does not name %s", err.text, name);
    ck_assert_msg(strstr(err.text, what) != NULL, "'%s' does not say '%s'", err.text, what);
    for (const char *c = err.text; *c != '\0'; c++)
        ck_assert_msg((unsigned char)*c >= 0x20 && *c != 0x7f, "control character in '%s'",
                      err.text);
}

/* Opening must fail, or, where load is 1, loading the first tensor. */
static void refuse(const char *path, int load_it, const char *what)
{
    err.text[0] = '\0';
    enum attn_status status = attn_file_open(path, &file, &err);
    if (load_it) {
        ck_assert_msg(status == ATTN_OK, "%s", err.text);
        status = attn_file_load(&file, &file.tensor[0], &err);
        ck_assert_ptr_null(file.tensor[0].data);
    }
    ck_assert_msg(status == ATTN_EINVAL, "%s was accepted (%s)", path, what);
    check_line(path, what);
    attn_file_close(&file);
}

/* One archive of two members "a.npy" and "b.npy", of 24 bytes each; then fields of the first. */
static const struct {
    int deflated, field, where;
    uint32_t value;
    int load;
    const char *says;
} lies[] = {
    {0, ZIP_LAB_FLAGS, ZIP_LAB_BOTH, 1, 0, "'a.npy': is encrypted"},
    {1, ZIP_LAB_METHOD, ZIP_LAB_BOTH, 12, 0, "compression method 12: stored (0) and deflated (8)"},
    {1, ZIP_LAB_METHOD, ZIP_LAB_BOTH, 0, 0, "bytes, which its"},
    {1, ZIP_LAB_METHOD, ZIP_LAB_CENTRAL, 0, 0, "inconsistent"},
    {0, ZIP_LAB_METHOD, ZIP_LAB_BOTH, 8, 0, "is damaged"},
    {0, ZIP_LAB_SIZE, ZIP_LAB_BOTH, 1u << 30, 0, "declares 1073741824 bytes, which its"},
    {1, ZIP_LAB_SIZE, ZIP_LAB_BOTH, 1u << 30, 0, "declares 1073741824 bytes, which its"},
    {1, ZIP_LAB_SIZE, ZIP_LAB_BOTH, 24 + 200, 0, "needs 24 bytes after the header, the file has"},
    {1, ZIP_LAB_SIZE, ZIP_LAB_BOTH, 11, 0, "cut off in the .npy header: 11 bytes"},
    {1, ZIP_LAB_SIZE, ZIP_LAB_BOTH, 0, 0, "does not begin as a .npy does"},
    {1, ZIP_LAB_SIZE, ZIP_LAB_BOTH, 13, 0, "claims a header of"},
    {1, ZIP_LAB_SIZE, ZIP_LAB_CENTRAL, 25, 0, "inconsistent"},
    {0, ZIP_LAB_COMP_SIZE, ZIP_LAB_BOTH, 0x7fffffff, 0, "begins as a .npz, but"},
    {0, ZIP_LAB_COMP_SIZE, ZIP_LAB_BOTH, 3, 0, "bytes, which its 3 stored"},
    {1, ZIP_LAB_COMP_SIZE, ZIP_LAB_BOTH, 3, 0, "'a.npy': "},
    {1, ZIP_LAB_CRC, ZIP_LAB_BOTH, 7, 1, "'a.npy': is damaged: CRC error"},
    {0, ZIP_LAB_CRC, ZIP_LAB_BOTH, 7, 1, "'a.npy': is damaged: CRC error"},
    {0, ZIP_LAB_NAME, ZIP_LAB_BOTH, 'b', 0, "two members have one name"},
    {0, ZIP_LAB_NAME, ZIP_LAB_BOTH, '/', 0, "begins with '/'"},
    {0, ZIP_LAB_NAME, ZIP_LAB_BOTH, 27, 0,
     "\xe2\x86\x90.npy': is encrypted"}, /* an escape, shown */
};

START_TEST(fields_that_lie)
{
    struct zip_fixture fixture = {.n = 0};
    zip_fixture_add_npy(&fixture, "a.npy", lies[_i].deflated, DICTIONARY("24"), 24);
    zip_fixture_add_npy(&fixture, "b.npy", lies[_i].deflated, DICTIONARY("24"), 24);
    zip_fixture_make(&fixture);
    limit_memory();
    zip_fixture_set(&fixture, 0, (enum zip_fixture_field)lies[_i].field, lies[_i].where,
                    lies[_i].value);
    if (lies[_i].value == 27)
        zip_fixture_set(&fixture, 0, ZIP_LAB_FLAGS, ZIP_LAB_BOTH, 1);
    refuse(zip_fixture_put(&fixture, "l.npz"), lies[_i].load, lies[_i].says);
}
END_TEST

static const struct {
    const char *name, *dictionary, *says;
} members[] = {
    {"q.txt", DICTIONARY("0"), "'q.txt': is not a .npy"},
    {"folder/", NULL, "'folder/': is not a .npy"},
    {"", DICTIONARY("0"), "'': is not a .npy"},
    {"../q.npy", DICTIONARY("0"), "climbs by '..'"},
    {"a/../q.npy", DICTIONARY("0"), "climbs by '..'"},
    {"..", DICTIONARY("0"), "climbs by '..'"},
    {"/q.npy", DICTIONARY("0"), "begins with '/'"},
    {"q.npy", "{'descr': '|O', 'fortran_order': False, 'shape': (0,), }", "never read"},
    {"q.npy", DICTIONARY("1"), "needs 1 bytes after the header, the file has 0"},
    {"q.npy", DICTIONARY("99999999999"), "needs 99999999999 bytes"},
    {"q.npy", "{}", "must all be there"},
    {"q.npy", NULL, "does not begin as a .npy does"},
};

START_TEST(members_that_lie)
{
    struct zip_fixture fixture = {.n = 0};
    if (members[_i].dictionary != NULL)
        zip_fixture_add_npy(&fixture, members[_i].name, 1, members[_i].dictionary, 0);
    else
        zip_fixture_add(&fixture, members[_i].name, 0, "tensors?",
                        members[_i].name[0] == 'q' ? 8 : 0);
    zip_fixture_make(&fixture);
    refuse(zip_fixture_put(&fixture, "m.npz"), 0, members[_i].says);
}
END_TEST

/* Bombs: 128 MiB of zeros in 128 KiB, behind a .npy header that asks for 24 bytes. */
START_TEST(bombs)
{
    enum { ZEROS = 128 << 20 };
    struct zip_fixture fixture = {.n = 0};
    uint32_t honest = 12 + sizeof DICTIONARY("24") - 1 + 24;
    zip_fixture_add_npy(&fixture, "a.npy", 1, DICTIONARY("24"), ZEROS);
    zip_fixture_make(&fixture);
    ck_assert_uint_lt(fixture.bytes, 150000);
    free(fixture.member[0].data); /* before memory is limited */
    fixture.member[0].data = NULL;
    limit_memory();
    if (_i == 0) { /* the truth about its size contradicts the header */
        refuse(zip_fixture_put(&fixture, "bomb.npz"), 0,
               "needs 24 bytes after the header, the file has 134");
        return;
    }
    zip_fixture_set(&fixture, 0, ZIP_LAB_SIZE, ZIP_LAB_BOTH, honest);
    refuse(zip_fixture_put(&fixture, "bomb.npz"), 1, "inflates to more than the ");
}
END_TEST

/* Headers of blanks: each within the limit of a .npy, all together not. */
START_TEST(many_headers)
{
    enum { BLANKS = 200000 };
    static const char *const name[] = {"a.npy", "b.npy", "c.npy", "d.npy", "e.npy", "f.npy"};
    static char text[BLANKS + 100];
    struct zip_fixture fixture = {.n = 0};
    memset(text, ' ', BLANKS);
    snprintf(text + BLANKS, 100, "%s", DICTIONARY("0"));
    for (int m = 0; m < 6; m++) {
        zip_fixture_add_npy(&fixture, name[m], 1, text, 0);
        if (m == 4) { /* five are good */
            struct zip_fixture five = fixture;
            zip_fixture_make(&five);
            accept(scratch_put("five.npz", five.all, five.bytes));
            ck_assert_int_eq(file.n_tensors, 5);
            attn_file_close(&file);
            free(five.all);
        }
    }
    zip_fixture_make(&fixture);
    refuse(zip_fixture_put(&fixture, "h.npz"), 0, "headers of all members are longer than 1048576");
}
END_TEST

/* No members; and an end record that promises 2^40 of them. */
START_TEST(lying_ends)
{
    static const unsigned char none[22] = "PK\5\6";
    unsigned char many[200] = "PK\3\4", *at = many + 40;
    limit_memory();
    refuse(scratch_put("e.npz", none, sizeof none), 0, "without members");
    memcpy(at, "PK\6\6\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0", 16); /* zip64: 44 bytes follow */
    at[24 + 5] = at[32 + 5] = 1;                            /* members here, and in all */
    at[40] = 40;                                            /* bytes of the directory, at 0 */
    memcpy(at + 56, "PK\6\7", 4);
    at[56 + 8] = 40; /* where the record is */
    at[56 + 16] = 1;
    memcpy(at + 76, "PK\5\6\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20);
    err.text[0] = '\0';
    const char *path = scratch_put("e.npz", many, 40 + 76 + 22);
    ck_assert_int_ne(attn_file_open(path, &file, &err), ATTN_OK);
    check_line(path, "e.npz: ");
    memset(many, 0, sizeof many);
    memcpy(many, "PK\3\4", 4);
    memcpy(many + 40, "PK\5\6\0\0\0\0\xff\xff\xff\xff", 12); /* 65,535 members in no bytes */
    refuse(scratch_put("e.npz", many, 62), 0, "begins as a .npz");
}
END_TEST

/* Any prefix of a good archive is a bad one; so is one with something behind it. */
START_TEST(prefixes)
{
    struct zip_fixture fixture = {.n = 0};
    zip_fixture_add_npy(&fixture, "a.npy", 1, DICTIONARY("24"), 24);
    zip_fixture_add_npy(&fixture, "b.npy", 0, DICTIONARY("24"), 24);
    zip_fixture_make(&fixture);
    for (size_t cut = 0; cut < fixture.bytes; cut++)
        refuse(scratch_put("cut.npz", fixture.all, cut), 0, "");
    fixture.all[fixture.bytes] = 0; /* the room for one more is there */
    refuse(scratch_put("cut.npz", fixture.all, fixture.bytes + 1), 0, "nconsistent");
    accept(zip_fixture_put(&fixture, "whole.npz"));
    attn_file_close(&file);
}
END_TEST

/* Shortened, or overwritten, between the check and the reading. */
START_TEST(changing_file)
{
    struct zip_fixture fixture = {.n = 0};
    zip_fixture_add_npy(&fixture, "a.npy", 0, DICTIONARY("90000"), 90000);
    zip_fixture_make(&fixture);
    const char *path = zip_fixture_put(&fixture, "c.npz");
    accept(path);
    if (_i == 0)
        ck_assert_int_eq(truncate(path, 20000), 0);
    else {
        FILE *stream = fopen(path, "r+b");
        ck_assert_ptr_nonnull(stream);
        ck_assert_int_eq(fseek(stream, 50000, SEEK_SET), 0);
        ck_assert_int_eq(fputc(1, stream), 1);
        fclose(stream);
    }
    ck_assert_int_eq(attn_file_load(&file, &file.tensor[0], &err), ATTN_EINVAL);
    check_line(path, _i == 0 ? "'a.npy': " : "is damaged: CRC error");
    ck_assert_ptr_null(file.tensor[0].data);
    attn_file_close(&file);
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

Suite *suite_npz(void)
{
    Suite *suite = suite_create("npz");
    TCase *tests = tcase_create("npz");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_loop_test(tests, every_type_returns, 0, ATTN_FILE_DTYPES);
    tcase_add_loop_test(tests, numpy_archives, 0, 3);
    tcase_add_loop_test(tests, fields_that_lie, 0, COUNT(lies));
    tcase_add_loop_test(tests, members_that_lie, 0, COUNT(members));
    tcase_add_loop_test(tests, bombs, 0, 2);
    tcase_add_test(tests, many_headers);
    tcase_add_test(tests, lying_ends);
    tcase_add_test(tests, prefixes);
    tcase_add_loop_test(tests, changing_file, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
