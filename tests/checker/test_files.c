/* Files of tensors: what is written is read back, whole or not at all, and other writers' variants
 * are understood.  Files that lie: test_hostile_files.c. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixtures/refused.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/files.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/base/folder.h"
#include "tests/suites.h"

SUITE(files, .open = scratch_open, .close = scratch_close);

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

/* ---- round trips -------------------------------------------------------------------------- */

static const struct {
    int n_axes;
    int64_t extent[3], n;
} shape[] = {{3, {2, 3, 4}, 24}, {1, {7}, 7}, {0, {0}, 1}, {2, {0, 5}, 0}, {3, {1, 1, 1}, 1}};
enum { SHAPES = sizeof shape / sizeof *shape };

static void fill(unsigned char *data, size_t bytes)
{
    for (size_t d = 0; d < bytes; d++)
        data[d] = (unsigned char)attn_hash(7, 1, d);
}

static struct attn_file_tensor make(const char *name, int dtype, int s, void *data)
{
    struct attn_file_tensor t = {.name = name, .dtype = (enum attn_file_dtype)dtype, .data = data};
    t.n_axes = shape[s].n_axes;
    memcpy(t.extent, shape[s].extent, sizeof shape[s].extent);
    return t;
}

static void check_same(const struct attn_file_tensor *t, int dtype, int s, const void *data)
{
    ck_assert_int_eq((int)t->dtype, dtype);
    ck_assert_int_eq(t->n_axes, shape[s].n_axes);
    for (int a = 0; a < t->n_axes; a++)
        ck_assert_int_eq(t->extent[a], shape[s].extent[a]);
    ck_assert_int_eq(t->bytes, shape[s].n * attn_file_dtype_size(t->dtype));
    ck_assert_uint_eq((uintptr_t)t->data % 64, 0);
    ck_assert_int_eq(memcmp(t->data, data, (size_t)t->bytes), 0);
}

/* As .npy, which has all types but BF16. */
TEST_EACH(every_type_returns, ATTN_FILE_DTYPES)
{
    unsigned char data[24 * 8];
    fill(data, sizeof data);
    for (int s = 0; s < SHAPES; s++) {
        const struct attn_file_tensor t = make("", _i, s, data);
        const char *path = scratch_path("t.npy");
        enum attn_status status = attn_npy_write(path, &t, &err);
        if (_i == ATTN_FILE_BF16) {
            ck_refusal(status, ATTN_EINVAL, &err, "BF16");
            ck_assert_int_eq(scratch_count(), 0);
            continue;
        }
        ck_assert_msg(status == ATTN_OK, "%s", err.text);
        accept(path);
        check_same(load(""), _i, s, data);
        attn_file_close(&file);
    }
}

/* All types and shapes in one file, so that tensors start at odd bytes; text beyond ASCII. */
TEST(many_tensors_return)
{
    static char name[ATTN_FILE_DTYPES * SHAPES][32];
    struct attn_file_tensor t[ATTN_FILE_DTYPES * SHAPES];
    const struct attn_file_pair pair[] = {
        {"mask", "causal(br)&keys(key_mask)"}, {"note", "\"\\\n\t\xc3\xa9\xe2\x82\xac"}, {"", ""}};
    unsigned char data[24 * 8];
    int n = 0;
    fill(data, sizeof data);
    for (int s = SHAPES - 1; s >= 0; s--)
        for (int dtype = ATTN_FILE_DTYPES - 1; dtype >= 0; dtype--, n++) {
            snprintf(name[n], sizeof name[n], "%s.%d\xc3\xa9", attn_file_dtype_name(dtype), s);
            t[n] = make(name[n], dtype, s, data);
        }
    const char *path = scratch_path("many.safetensors");
    ck_assert_int_eq(attn_safetensors_write(path, t, n, pair, 3, &err), ATTN_OK);
    accept(path);
    ck_assert_int_eq(file.n_tensors, n);
    for (n = 0; n < file.n_tensors; n++)
        check_same(load(name[n]), (int)t[n].dtype, SHAPES - 1 - n / ATTN_FILE_DTYPES, data);
    for (int m = 0; m < 3; m++)
        ck_assert_str_eq(attn_file_metadata(&file, pair[m].key), pair[m].value);
    ck_assert_ptr_null(attn_file_metadata(&file, "scale"));
    ck_assert_ptr_null(attn_file_find(&file, "q"));
    attn_file_close(&file);
}

/* ---- what other writers write ------------------------------------------------------------- */

/* 2 x 3 numbers 1..6 in each type, either byte order, either memory order. */
static const struct {
    const char *descr;
    const unsigned char one[8], two[8]; /* big-endian */
    int bytes;
} number[] = {
    {"f8", {0x3f, 0xf0}, {0x40, 0x00}, 8},
    {"f4", {0x3f, 0x80}, {0x40, 0x00}, 4},
    {"f2", {0x3c, 0x00}, {0x40, 0x00}, 2},
    {"i8", {0, 0, 0, 0, 0, 0, 0, 1}, {[7] = 2}, 8},
    {"i4", {0, 0, 0, 1}, {0, 0, 0, 2}, 4},
    {"i2", {0, 1}, {0, 2}, 2},
    {"i1", {1}, {2}, 1},
    {"u1", {1}, {2}, 1},
    {"b1", {1}, {0}, 1},
};

TEST_EACH(npy_orders, COUNT(number))
{
    const unsigned char *value[2] = {number[_i].one, number[_i].two};
    int size = number[_i].bytes;
    for (int variant = 0; variant < 4; variant++) {
        int big = variant & 1, fortran = variant >> 1;
        unsigned char data[6 * 8];
        char header[128];
        /* element (r,c) of [2,3] is one where r + c is even, else two */
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 3; c++)
                for (int byte = 0; byte < size; byte++)
                    data[(fortran ? c * 2 + r : r * 3 + c) * size + byte] =
                        value[(r + c) % 2][big ? byte : size - 1 - byte];
        snprintf(header, sizeof header,
                 "{\"shape\": ( 2L,3 ,), 'fortran_order':%s,'descr': '%c%s'}\n",
                 fortran ? "True" : "False", big ? '>' : '<', number[_i].descr);
        accept(scratch_npy("o.npy", header, data, (size_t)(6 * size)));
        const unsigned char *got = load("")->data;
        for (int e = 0; e < 6; e++)
            for (int byte = 0; byte < size; byte++)
                ck_assert_int_eq(got[e * size + byte], value[(e / 3 + e % 3) % 2][size - 1 - byte]);
        attn_file_close(&file);
    }
}

/* Versions 2.0 and 3.0 have a length of four bytes. */
TEST(npy_versions)
{
    static const char dictionary[] =
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }   \n";
    for (int major = 1; major <= 3; major++) {
        unsigned char all[128] = "\x93NUMPY";
        size_t n = major == 1 ? 10 : 12;
        all[6] = (unsigned char)major;
        all[8] = sizeof dictionary - 1;
        memcpy(all + n, dictionary, sizeof dictionary - 1);
        memcpy(all + n + sizeof dictionary - 1, "abc", 3);
        accept(scratch_put("v.npy", all, n + sizeof dictionary - 1 + 3));
        ck_assert_int_eq(memcmp(load("")->data, "abc", 3), 0);
        attn_file_close(&file);
    }
}

/* safetensors need not list tensors in the order of their data, may end the header with blanks
 * and may hold tensors without elements anywhere. */
TEST(safetensors_any_order)
{
    accept(
        scratch_safetensors("a.safetensors",
                            "{\"b\":{\"shape\":[2],\"data_offsets\":[3,7],\"dtype\":\"I16\"},"
                            "\"empty\":{\"dtype\":\"F64\",\"shape\":[0,9],\"data_offsets\":[3,3]},"
                            "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}    ",
                            7));
    const int16_t *b = load("b")->data;
    ck_assert_int_eq(b[0], 0x0403);
    ck_assert_int_eq(b[1], 0x0605);
    ck_assert_int_eq(memcmp(load("a")->data, "\0\1\2", 3), 0);
    ck_assert_int_eq(load("empty")->bytes, 0);
    attn_file_close(&file);
}

/* Archives that numpy wrote (tests/data/numpy_archives.py): stored, deflated, and to a pipe. */
TEST_EACH(numpy_archives, 3)
{
    static const char *const path[] = {"tests/data/numpy-savez.npz",
                                       "tests/data/numpy-compressed.npz",
                                       "tests/data/numpy-piped.npz"};
    char text[160];
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
    ck_assert_str_eq(attn_file_shape(load("\xc3\xa9"), text), "[0,3]");
    attn_file_close(&file);
}

/* ---- writing ------------------------------------------------------------------------------ */

static enum attn_status write_one(int npy, const char *path, const struct attn_file_tensor *t)
{
    return npy ? attn_npy_write(path, t, &err) : attn_safetensors_write(path, t, 1, NULL, 0, &err);
}

/* A disk that fills up in the middle: the old file stays, no piece of the new one does. */
TEST_EACH(full_disk, 2)
{
    static unsigned char data[100000];
    struct attn_file_tensor t = {
        .name = "q", .dtype = ATTN_FILE_U8, .n_axes = 1, .extent = {10}, .data = data};
    const char *path = scratch_path("r");
    ck_assert_int_eq(write_one(_i, path, &t), ATTN_OK);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit, before;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 8192;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    t.extent[0] = sizeof data;
    enum attn_status status = write_one(_i, path, &t);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_refusal(status, ATTN_ENOMEM, &err, "cannot be written");
    ck_assert_int_eq(scratch_count(), 1);
    accept(path);
    ck_assert_int_eq(file.tensor[0].bytes, 10);
    attn_file_close(&file);
    ck_assert_int_eq(write_one(_i, path, &t), ATTN_OK); /* and with room it is replaced */
    accept(path);
    ck_assert_int_eq(file.tensor[0].bytes, sizeof data);
    attn_file_close(&file);
}

/* A file that a dead process was writing goes with the next write there.  A file of another name
 * stays, and so does one that is still written: by a living process, or by one whose number says
 * nothing here. */
TEST(abandoned_files)
{
    unsigned char data[24] = {0};
    struct attn_file_tensor t = make("q", ATTN_FILE_U8, 0, data);
    char name[64];
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    ck_assert_int_eq(waitpid(dead, NULL, 0), dead);
    const struct {
        const char *format;
        pid_t pid;
        int is_locked, stays;
    } left[] = {{".attnlab-%d-0.tmp", dead, 0, 0},      {".attnlab-%d-1.tmp", dead, 1, 1},
                {".attnlab-%d-01.tmp", dead, 0, 1},     {".attnlab-%d-2.tmp~", dead, 0, 1},
                {".attnlab-%d-3.tmp", getppid(), 0, 1}, {".attnlab--%d-4.tmp", dead, 0, 1}};
    for (int n = 0; n < COUNT(left); n++) {
        snprintf(name, sizeof name, left[n].format, left[n].pid);
        int fd = open(scratch_put(name, "", 0), O_RDONLY);
        ck_assert_int_eq(left[n].is_locked ? flock(fd, LOCK_EX) : close(fd), 0);
    }
    ck_assert_int_eq(write_one(0, scratch_path("r"), &t), ATTN_OK);
    for (int n = 0; n < COUNT(left); n++) {
        snprintf(name, sizeof name, left[n].format, left[n].pid);
        ck_assert_msg((access(scratch_path(name), F_OK) == 0) == left[n].stays, "%s", name);
    }
}

TEST_EACH(unwritable, 2)
{
    unsigned char data[24] = {0};
    struct attn_file_tensor t[2] = {make("q", ATTN_FILE_U8, 0, data),
                                    make("q", ATTN_FILE_U8, 0, data)};
    const struct attn_file_pair pair = {"k", "\xff"};
    ck_refusal(write_one(_i, scratch_path("no/such/folder"), t), ATTN_ENOMEM, &err, "No such file");
    ck_assert_int_eq(mkdir(scratch_path("d"), 0700), 0);
    ck_assert_int_eq(write_one(_i, scratch_path("d"), t), ATTN_ENOMEM);
    ck_assert_int_eq(rmdir(scratch_path("d")), 0);
    const char *path = scratch_path("r");
    ck_refusal(attn_safetensors_write(path, t, 2, NULL, 0, &err), ATTN_EINVAL, &err, "two tensors");
    ck_refusal(attn_safetensors_write(path, t, 1, &pair, 1, &err), ATTN_EINVAL, &err, "UTF-8");
    t[0].name = "\xff";
    ck_assert_int_eq(attn_safetensors_write(path, t, 1, NULL, 0, &err), ATTN_EINVAL);
    t[0].extent[0] = -2;
    ck_assert_int_eq(write_one(_i, path, t), ATTN_EINVAL);
    ck_assert_int_eq(scratch_count(), 0);
}

/* Folders in folders, deeper than any path is long, with files, links and folders without
 * permissions among them. */
TEST(deep_folder)
{
    enum { DEPTH = 3000 };
    struct stat about;
    const char *top = scratch_path("deep");
    ck_assert_int_eq(mkdir(top, 0700), 0);
    int at = open(top, O_RDONLY | O_DIRECTORY);
    for (int n = 0; n < DEPTH; n++) {
        ck_assert_int_eq(mkdirat(at, "twenty-letters-------", 0700), 0);
        ck_assert_int_eq(symlinkat("/", at, "link"), 0);
        int below = openat(at, "twenty-letters-------", O_RDONLY | O_DIRECTORY);
        ck_assert_int_ge(below, 0);
        if (n % 100 == 0)
            ck_assert_int_eq(fchmod(at, 0), 0);
        close(at);
        at = below;
    }
    close(at);
    attn_folder_remove(top);
    ck_assert_int_ne(lstat(top, &about), 0);
    ck_assert_int_eq(scratch_count(), 0);
}
