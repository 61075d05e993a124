/* Files may lie: whatever one claims, opening it ends with one line that names it; it never
 * crashes, never takes memory that the file does not have, and is never believed.  Of a member of
 * an archive no more is inflated than the header of its .npy asks for. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fixtures/refused.h"
#include "tests/fixtures/scratch.h"
#include "tests/fixtures/zip_fixture.h"
#include "tests/harness/base/files.h"
#include "tests/suites.h"

SUITE(hostile_files, .open = scratch_open, .close = scratch_close);

#define DICTIONARY(shape) "{'descr': '|u1', 'fortran_order': False, 'shape': (" shape ",), }\n"

static struct attn_file file;
static struct attn_error err;

static void accept(const char *path)
{
    enum attn_status status = attn_file_open(path, &file, &err);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
}

/* The line names the file. */
static void check_line(enum attn_status got, const char *path, const char *what)
{
    const char *name = strrchr(path, '/') + 1;
    ck_refusal(got, ATTN_EINVAL, &err, what);
    ck_assert_msg(strstr(err.text, name) != NULL, "'%s' does not name %s", err.text, name);
}

/* Opening must fail with such a line. */
static void refuse(const char *path, const char *what)
{
    check_line(attn_file_open(path, &file, &err), path, what);
    attn_file_close(&file); /* legal, and does nothing */
}

/* Loading the first tensor must. */
static void refuse_to_load(const char *path, const char *what)
{
    check_line(attn_file_load(&file, &file.tensor[0], &err), path, what);
    ck_assert_ptr_null(file.tensor[0].data);
    attn_file_close(&file);
}

/* No hostile file may make us take memory that it does not itself have: 64 MiB more must do.
 * (The address sanitizer needs terabytes of addresses for itself.) */
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

/* The bytes of a file; returns how many. */
static size_t read_all(const char *path, unsigned char *to, size_t size)
{
    FILE *stream = fopen(path, "rb");
    ck_assert_ptr_nonnull(stream);
    size_t n = fread(to, 1, size, stream);
    fclose(stream);
    return n;
}

/* ---- hostile safetensors ------------------------------------------------------------------ */

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data;
    const char *what;
} hostile[] = {
    {"[]", 0, "does not begin with '{'"},
    {"{", 0, "header byte"},
    {"{}x", 0, "header byte"},
    {"{\"a\":\"\xff\xfe\"}", 0, "header byte"},
    {"{\"\xc0\x80\":1}", 0, "header byte"},
    {"{\"a\\u0000b\":1}", 0, "header byte"},
    {"{" T("q", "U8", "[1]", "[0,1]") "," T("q", "U8", "[1]", "[0,1]") "}", 1, "duplicate"},
    {"{\"q\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "duplicate"},
    {"{\"q\":7}", 0, "Expected object"},
    {"{\"q\":{}}", 0, "not found: dtype"},
    {"{\"q\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "Expected string, got integer"},
    {"{\"q\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "not found: shape"},
    {"{\"q\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "not found: data_offsets"},
    {"{\"q\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1,
     "left unpacked: x"},
    {"{" T("q", "F8_E4M3", "[1]", "[0,1]") "}", 1, "'F8_E4M3' is not read"},
    {"{" T("q", "f32", "[1]", "[0,4]") "}", 4, "'f32' is not read"},
    {"{" T("q", "U8", "1", "[0,1]") "}", 1, "its shape is no array"},
    {"{" T("q", "U8", "[1.0]", "[0,1]") "}", 1, "not an integer"},
    {"{" T("q", "U8", "[true]", "[0,1]") "}", 1, "not an integer"},
    {"{" T("q", "U8", "[-1]", "[0,1]") "}", 1, "extent -1"},
    {"{" T("q", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "9 axes"},
    {"{" T("q", "U8", "[9223372036854775808]", "[0,1]") "}", 1, "header byte"},
    {"{" T("q", "U8", "[9223372036854775807,2]", "[0,1]") "}", 1, "64 bits"},
    {"{" T("q", "F64", "[1152921504606846976]", "[0,0]") "}", 0, "64 bits"},
    {"{" T("q", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "64 bits"},
    {"{" T("q", "F32", "[0,4294967296,4294967296]", "[0,0]") "}", 0, "64 bits"},
    {"{" T("q", "U8", "[1152921504606846976]", "[0,1152921504606846976]") "}", 1, "cut off"},
    {"{" T("q", "U8", "[1099511627776]", "[0,1]") "}", 1, "needs 1099511627776 bytes"},
    {"{" T("q", "F32", "[2]", "[0,4]") "}", 4, "F32 [2] needs 8 bytes, data_offsets give 4"},
    {"{" T("q", "U8", "[4]", "[4,0]") "}", 4, "data_offsets [4,0]"},
    {"{" T("q", "U8", "[4]", "[-4,0]") "}", 4, "data_offsets [-4,0]"},
    {"{" T("q", "U8", "[4]", "[1,5]") "}", 4, "data_offsets [1,5]"},
    {"{" T("q", "U8", "[4]", "[0]") "}", 4, "index 1 out of range"},
    {"{" T("q", "U8", "[4]", "[0,4,4]") "}", 4, "1 array item(s) left"},
    {"{" T("q", "U8", "[4]", "[\"0\",4]") "}", 4, "Expected integer"},
    {"{" T("q", "U8", "[4]", "{}") "}", 4, "Expected array"},
    {"{" T("q", "U8", "[4]", "[0,4]") "," T("k", "U8", "[4]", "[3,7]") "}", 7, "overlap"},
    {"{" T("q", "U8", "[4]", "[0,4]") "," T("k", "U8", "[4]", "[0,4]") "}", 4, "overlap"},
    {"{" T("q", "U8", "[4]", "[5,9]") "," T("k", "U8", "[4]", "[0,4]") "}", 9, "1 bytes before"},
    {"{" T("q", "U8", "[4]", "[1,5]") "}", 5, "1 bytes before"},
    {"{" T("q", "U8", "[4]", "[0,4]") "}", 5, "1 bytes after"},
    {"{}", 3, "3 bytes after"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"scale\":0.5}}", 0, "'scale' is not a string"},
    {"{\"\\u001b[31m\\n\":0}", 0, "?[31m?"},
};
#undef T

TEST_EACH(hostile_safetensors, COUNT(hostile))
{
    limit_memory();
    refuse(scratch_safetensors("h.safetensors", hostile[_i].header, hostile[_i].data),
           hostile[_i].what);
}

/* ---- hostile .npy ------------------------------------------------------------------------- */

static const struct {
    const char *header;
    size_t data;
    const char *what;
} dictionary[] = {
    {"", 0, "expected '{'"},
    {"{", 0, "expected a key"},
    {"{}", 0, "must all be there"},
    {"{'descr':'<f4','fortran_order':False}", 4, "must all be there"},
    {"{'descr':'<f4','fortran_order':False,'shape':(1,),'shape':(1,)}", 4, "there before"},
    {"{'descr':'<f4','fortran_order':False,'shape':(1,),'x':1}", 4, "unknown key"},
    {"{'descr' '<f4','fortran_order':False,'shape':(1,)}", 4, "expected ':'"},
    {"{'descr':'<f4' 'fortran_order':False,'shape':(1,)}", 4, "expected ',' or '}'"},
    {"{'descr':'<f4','fortran_order':False,'shape':(1,)} pass", 4, "after the dictionary"},
    {"{'descr':'|O','fortran_order':False,'shape':(1,)}", 8, "Python objects"},
    {"{'descr':[('a','<f4')],'fortran_order':False,'shape':(1,)}", 4, "structured"},
    {"{'descr':'<U4','fortran_order':False,'shape':(1,)}", 16, "'<U4' is not read"},
    {"{'descr':'<u4','fortran_order':False,'shape':(1,)}", 4, "'<u4' is not read"},
    {"{'descr':'=f4','fortran_order':False,'shape':(1,)}", 4, "'=f4' is not read"},
    {"{'descr':'','fortran_order':False,'shape':(1,)}", 4, "'' is not read"},
    {"{'descr':f4,'fortran_order':False,'shape':(1,)}", 4, "expected a type"},
    {"{'descr':'\\x3cf4','fortran_order':False,'shape':(1,)}", 4, "expected a type"},
    {"{'descr':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','shape':(1,)}", 4,
     "a type"},
    {"{'descr':'<f4','fortran_order':0,'shape':(1,)}", 4, "True or False"},
    {"{'descr':'<f4','fortran_order':False,'shape':[1]}", 4, "expected a shape"},
    {"{'descr':'<f4','fortran_order':False,'shape':(1)}", 4, "(n,)"},
    {"{'descr':'<f4','fortran_order':False,'shape':(,)}", 4, "expected an extent"},
    {"{'descr':'<f4','fortran_order':False,'shape':(1 1)}", 4, "',' or ')'"},
    {"{'descr':'<f4','fortran_order':False,'shape':(-1,)}", 4, "negative"},
    {"{'descr':'<f4','fortran_order':False,'shape':(1.0,)}", 4, "',' or ')'"},
    {"{'descr':'<f4','fortran_order':False,'shape':(9223372036854775808,)}", 4, "64 bits"},
    {"{'descr':'<f4','fortran_order':False,'shape':(4294967296,4294967296)}", 4, "64 bits"},
    {"{'descr':'<f4','fortran_order':False,'shape':(0,4294967296,4294967296)}", 0, "64 bits"},
    {"{'descr':'<f4','fortran_order':True,'shape':(1152921504606846976,)}", 4, "needs 46116860184"},
    {"{'descr':'<f4','fortran_order':False,'shape':(1,1,1,1,1,1,1,1,1)}", 4, "8 axes"},
    {"{'descr':'<f4','fortran_order':False,'shape':(2,)}", 4, "needs 8 bytes"},
    {"{'descr':'<f4','fortran_order':False,'shape':(1,)}", 5, "the file has 5"},
};

TEST_EACH(hostile_npy, COUNT(dictionary))
{
    limit_memory();
    refuse(scratch_npy("h.npy", dictionary[_i].header, "01234567890123456789", dictionary[_i].data),
           dictionary[_i].what);
}

/* ---- hostile bytes, whatever the format --------------------------------------------------- */

TEST(hostile_lengths)
{
    unsigned char bytes[64] = {0};
    limit_memory();
    refuse(scratch_put("e", bytes, 0), "empty");
    refuse(scratch_put("e", bytes, 1), "has 1 bytes");
    refuse(scratch_put("e", bytes, 7), "has 7 bytes");
    refuse(scratch_put("e", bytes, 8), "does not begin");
    bytes[7] = 0x10; /* a header of 2^60 bytes */
    refuse(scratch_put("e", bytes, 64), "claims a header of 1152921504606846976 bytes");
    memset(bytes, 0xff, 8); /* 2^64 - 1: adding 8 would wrap */
    refuse(scratch_put("e", bytes, 64), "claims a header of 18446744073709551615 bytes");
    memset(bytes, 0, 8);
    bytes[0] = 57; /* one more than there are */
    refuse(scratch_put("e", bytes, 64), "claims a header of 57 bytes, the file has 64");
    bytes[0] = 0, bytes[3] = 0x40; /* 1 GiB of header in a file (of holes) that has it */
    const char *path = scratch_put("e", bytes, 64);
    ck_assert_int_eq(truncate(path, (off_t)3 << 30), 0);
    refuse(path, "at most 1048576 are read");
    memcpy(bytes, "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
    refuse(scratch_put("e", bytes, 64), "claims a header of 4294967295 bytes");
    refuse(scratch_put("e", bytes, 11), "cut off");
    refuse(scratch_put("e", "\x93NUMPY", 6), "cut off");
    refuse(scratch_put("e", "\x93NUMPY\x04\x00............", 20), "version 4.0");
    refuse(scratch_put("e", "\x93NUMPY\x01\x01............", 20), "version 1.1");
    refuse(scratch_put("e", "\x93NUMPY\x00\x00............", 20), "version 0.0");
}

/* Any prefix of a good file is a bad one, and so is a good file with a byte more. */
TEST_EACH(prefixes, 3)
{
    static const char *const says[] = {"needs 24 bytes", "belong to no tensor", "nconsistent"};
    unsigned char data[24] = "every byte has its place", all[1024];
    const struct attn_file_tensor t = {
        .name = "q", .dtype = ATTN_FILE_U8, .n_axes = 2, .extent = {4, 6}, .data = data};
    const char *path = scratch_path("good");
    if (_i < 2)
        ck_assert_int_eq(_i == 0 ? attn_npy_write(path, &t, &err)
                                 : attn_safetensors_write(path, &t, 1, NULL, 0, &err),
                         ATTN_OK);
    else {
        struct zip_fixture fixture = {.n = 0};
        zip_fixture_add_npy(&fixture, "a.npy", 1, DICTIONARY("24"), 24);
        zip_fixture_add_npy(&fixture, "b.npy", 0, DICTIONARY("24"), 24);
        zip_fixture_make(&fixture);
        path = zip_fixture_put(&fixture, "good");
    }
    accept(path);
    attn_file_close(&file);
    size_t n = read_all(path, all, sizeof all - 1);
    ck_assert_uint_gt(n, 64);
    for (size_t cut = 0; cut < n; cut++)
        refuse(scratch_put("cut", all, cut), "");
    all[n] = 0;
    refuse(scratch_put("cut", all, n + 1), says[_i]);
}

TEST(not_a_file)
{
    refuse(scratch_path("absent"), "No such file");
    refuse(scratch_path(""), "is a directory");
    const char *path = scratch_path("fifo");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refuse(path, "not a regular file");
    refuse("/dev/null", "not a regular file");
    path = scratch_put("secret", "x", 1);
    ck_assert_int_eq(chmod(path, 0), 0);
    int root = geteuid() == 0;
    if (root) /* whom no permission stops */
        ck_assert_int_eq(seteuid(65534), 0);
    refuse(path, "Permission denied");
    if (root)
        ck_assert_int_eq(seteuid(0), 0);
}

/* ---- archives that lie ---------------------------------------------------------------------- */

/* Newer versions of libzip compare the two sizes of a member that is stored before we do. */
static const char sizes_differ[] = "inconsistent: entry 0: compressed and uncompressed sizes don't";

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

TEST_EACH(fields_that_lie, COUNT(lies))
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
    const char *path = zip_fixture_put(&fixture, "l.npz");
    if (!lies[_i].load) {
        int compares =
            attn_file_open(path, &file, &err) != ATTN_OK && strstr(err.text, sizes_differ) != NULL;
        attn_file_close(&file);
        refuse(path, compares ? sizes_differ : lies[_i].says);
        return;
    }
    accept(path);
    refuse_to_load(path, lies[_i].says);
}

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

TEST_EACH(members_that_lie, COUNT(members))
{
    struct zip_fixture fixture = {.n = 0};
    if (members[_i].dictionary != NULL)
        zip_fixture_add_npy(&fixture, members[_i].name, 1, members[_i].dictionary, 0);
    else
        zip_fixture_add(&fixture, members[_i].name, 0, "tensors?",
                        members[_i].name[0] == 'q' ? 8 : 0);
    zip_fixture_make(&fixture);
    refuse(zip_fixture_put(&fixture, "m.npz"), members[_i].says);
}

/* Bombs: 128 MiB of zeros in 128 KiB, behind a .npy header that asks for 24 bytes. */
TEST_EACH(bombs, 2)
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
        refuse(zip_fixture_put(&fixture, "bomb.npz"),
               "needs 24 bytes after the header, the file has 134");
        return;
    }
    zip_fixture_set(&fixture, 0, ZIP_LAB_SIZE, ZIP_LAB_BOTH, honest);
    const char *path = zip_fixture_put(&fixture, "bomb.npz");
    accept(path);
    refuse_to_load(path, "inflates to more than the ");
}

/* Headers of blanks: each within the limit of a .npy, all together not. */
TEST(many_headers)
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
    refuse(zip_fixture_put(&fixture, "h.npz"),
           "all headers of a file together are longer than 1048576");
}

/* No members; and an end record that promises 2^40 of them. */
TEST(lying_ends)
{
    static const unsigned char none[22] = "PK\5\6";
    unsigned char many[200] = "PK\3\4", *at = many + 40;
    limit_memory();
    refuse(scratch_put("e.npz", none, sizeof none), "without members");
    memcpy(at, "PK\6\6\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0", 16); /* zip64: 44 bytes follow */
    at[24 + 5] = at[32 + 5] = 1;                            /* members here, and in all */
    at[40] = 40;                                            /* bytes of the directory, at 0 */
    memcpy(at + 56, "PK\6\7", 4);
    at[56 + 8] = 40; /* where the record is */
    at[56 + 16] = 1;
    memcpy(at + 76, "PK\5\6\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20);
    refuse(scratch_put("e.npz", many, 40 + 76 + 22), "e.npz: ");
    memset(many, 0, sizeof many);
    memcpy(many, "PK\3\4", 4);
    memcpy(many + 40, "PK\5\6\0\0\0\0\xff\xff\xff\xff", 12); /* 65,535 members in no bytes */
    refuse(scratch_put("e.npz", many, 62), "begins as a .npz");
}

/* Shortened, or overwritten, between the check and the reading: an error, not SIGBUS, and no
 * made-up numbers. */
TEST_EACH(changing_file, 3)
{
    static const char *const says[] = {"became shorter", "'a.npy': ", "is damaged: CRC error"};
    struct zip_fixture fixture = {.n = 0};
    const char *path = scratch_safetensors(
        "c", "{\"q\":{\"dtype\":\"U8\",\"shape\":[90000],\"data_offsets\":[0,90000]}}", 90000);
    if (_i > 0) {
        zip_fixture_add_npy(&fixture, "a.npy", 0, DICTIONARY("90000"), 90000);
        zip_fixture_make(&fixture);
        path = zip_fixture_put(&fixture, "c");
    }
    accept(path);
    int fd = open(path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(_i < 2 ? ftruncate(fd, 20000) : pwrite(fd, "\1", 1, 50000) - 1, 0);
    close(fd);
    refuse_to_load(path, says[_i]);
}
