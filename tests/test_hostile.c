/* Files that lie.  Whatever a file claims, opening it ends with one line that names it; it never
 * crashes, never takes memory that the file does not have, and is never believed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fixtures/scratch.h"
#include "tests/harness/files/files.h"
#include "tests/suites.h"

static struct attn_file file;
static struct attn_error err;

/* Opening must fail with a line that names the file and says `what`. */
static void refuse(const char *path, const char *what)
{
    err.text[0] = '\0';
    ck_assert_msg(attn_file_open(path, &file, &err) == ATTN_EINVAL, "%s was accepted (%s)", path,
                  what);
    const char *name = strrchr(path, '/') + 1;
    ck_assert_msg(strstr(err.text, name) != NULL, "'%s' does not name %s", err.text, name);
    ck_assert_msg(strstr(err.text, what) != NULL, "'%s' does not say '%s'", err.text, what);
    for (const char *c = err.text; *c != '\0'; c++)
        ck_assert_msg((unsigned char)*c >= 0x20 && *c != 0x7f, "control character in '%s'",
                      err.text);
    attn_file_close(&file); /* legal, and does nothing */
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

/* ---- hostile safetensors ------------------------------------------------------------------ */

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data;
    const char *what;
} hostile[] = {
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"{", 0, "header byte"},
    {"{}x", 0, "header byte"},
    {"{\"a\":\"\xff\xfe\"}", 0, "header byte"},
    {"{\"\xc0\x80\":1}", 0, "header byte"},
    {"{\"a\\u0000b\":1}", 0, "header byte"},
    {"{" T("q", "U8", "[1]", "[0,1]") "," T("q", "U8", "[1]", "[0,1]") "}", 1, "duplicate"},
    {"{\"q\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "duplicate"},
    {"{\"q\":7}", 0, "not an object"},
    {"{\"q\":{}}", 0, "no dtype"},
    {"{\"q\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype"},
    {"{\"q\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "no shape"},
    {"{\"q\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "no data_offsets"},
    {"{\"q\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1, "besides"},
    {"{" T("q", "F8_E4M3", "[1]", "[0,1]") "}", 1, "'F8_E4M3' is not read"},
    {"{" T("q", "f32", "[1]", "[0,4]") "}", 4, "'f32' is not read"},
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
    {"{" T("q", "U8", "[4]", "[0]") "}", 4, "no data_offsets"},
    {"{" T("q", "U8", "[4]", "[0,4,4]") "}", 4, "no data_offsets"},
    {"{" T("q", "U8", "[4]", "[\"0\",4]") "}", 4, "no data_offsets"},
    {"{" T("q", "U8", "[4]", "{}") "}", 4, "no data_offsets"},
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

START_TEST(hostile_safetensors)
{
    limit_memory();
    refuse(scratch_safetensors("h.safetensors", hostile[_i].header, hostile[_i].data),
           hostile[_i].what);
}
END_TEST

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
    {"{'descr':'|S4','fortran_order':False,'shape':(1,)}", 4, "'|S4' is not read"},
    {"{'descr':'|V2','fortran_order':False,'shape':(1,)}", 2, "'|V2' is not read"},
    {"{'descr':'<c8','fortran_order':False,'shape':(1,)}", 8, "'<c8' is not read"},
    {"{'descr':'<f16','fortran_order':False,'shape':(1,)}", 16, "'<f16' is not read"},
    {"{'descr':'<u4','fortran_order':False,'shape':(1,)}", 4, "'<u4' is not read"},
    {"{'descr':'|f4','fortran_order':False,'shape':(1,)}", 4, "'|f4' is not read"},
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

START_TEST(hostile_npy)
{
    limit_memory();
    refuse(scratch_npy("h.npy", dictionary[_i].header, "01234567890123456789", dictionary[_i].data),
           dictionary[_i].what);
}
END_TEST

/* ---- hostile bytes, whatever the format --------------------------------------------------- */

START_TEST(hostile_lengths)
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
END_TEST

/* Any prefix of a good file is a bad one, and so is a good file with a byte more. */
START_TEST(hostile_prefixes)
{
    unsigned char data[24] = "every byte has its place", all[1024];
    const struct attn_file_tensor t = {
        .name = "q", .dtype = ATTN_FILE_U8, .n_axes = 2, .extent = {4, 6}, .data = data};
    const char *path = scratch_path("good");
    ck_assert_int_eq(_i == 0 ? attn_npy_write(path, &t, &err)
                             : attn_safetensors_write(path, &t, 1, NULL, 0, &err),
                     ATTN_OK);
    FILE *stream = fopen(path, "rb");
    ck_assert_ptr_nonnull(stream);
    size_t n = fread(all, 1, sizeof all - 1, stream);
    fclose(stream);
    ck_assert_uint_gt(n, 64);
    for (size_t cut = 0; cut < n; cut++)
        refuse(scratch_put("cut", all, cut), "");
    all[n] = 0;
    refuse(scratch_put("cut", all, n + 1), _i == 0 ? "needs 24 bytes" : "belong to no tensor");
}
END_TEST

START_TEST(not_a_file)
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
END_TEST

/* Shortened between the check and the reading: an error, not SIGBUS, and no made-up numbers. */
START_TEST(shrinking_file)
{
    const char *path = scratch_safetensors(
        "s", "{\"q\":{\"dtype\":\"U8\",\"shape\":[9000],\"data_offsets\":[0,9000]}}", 9000);
    ck_assert_int_eq(attn_file_open(path, &file, &err), ATTN_OK);
    ck_assert_int_eq(truncate(path, 5000), 0);
    ck_assert_int_eq(attn_file_load(&file, &file.tensor[0], &err), ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, "became shorter") != NULL, "%s", err.text);
    ck_assert_ptr_null(file.tensor[0].data);
    attn_file_close(&file);
}
END_TEST

Suite *suite_hostile(void)
{
    Suite *suite = suite_create("hostile");
    TCase *tests = tcase_create("files");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_loop_test(tests, hostile_safetensors, 0, sizeof hostile / sizeof *hostile);
    tcase_add_loop_test(tests, hostile_npy, 0, sizeof dictionary / sizeof *dictionary);
    tcase_add_test(tests, hostile_lengths);
    tcase_add_loop_test(tests, hostile_prefixes, 0, 2);
    tcase_add_test(tests, not_a_file);
    tcase_add_test(tests, shrinking_file);
    suite_add_tcase(suite, tests);
    return suite;
}
