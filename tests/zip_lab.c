/* See zip_lab.h. */
#include "tests/zip_lab.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "tests/scratch.h"

void zip_lab_add(struct zip_lab *lab, const char *name, int deflated, const void *data,
                 size_t bytes)
{
    int m = lab->n++;
    ck_assert_int_lt(m, ZIP_LAB_MEMBERS);
    lab->member[m].name = name;
    lab->member[m].deflated = deflated;
    lab->member[m].bytes = bytes;
    lab->member[m].data = malloc(bytes + 1);
    ck_assert_ptr_nonnull(lab->member[m].data);
    if (bytes > 0)
        memcpy(lab->member[m].data, data, bytes);
}

void zip_lab_add_npy(struct zip_lab *lab, const char *name, int deflated, const char *dictionary,
                     size_t zeros)
{
    size_t length = strlen(dictionary), bytes = 12 + length + zeros;
    unsigned char *all = calloc(1, bytes);
    ck_assert_ptr_nonnull(all);
    memcpy(all, "\x93NUMPY\x02\x00", 8);
    for (int byte = 0; byte < 4; byte++)
        all[8 + byte] = (unsigned char)(length >> (8 * byte));
    memcpy(all + 12, dictionary, length);
    zip_lab_add(lab, name, deflated, all, bytes);
    free(all);
}

void zip_lab_make(struct zip_lab *lab)
{
    const char *path = scratch_path("made.zip");
    zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    ck_assert_ptr_nonnull(archive);
    for (int m = 0; m < lab->n; m++) {
        zip_source_t *source =
            zip_source_buffer(archive, lab->member[m].data, lab->member[m].bytes, 0);
        zip_int64_t at = zip_file_add(archive, lab->member[m].name, source, 0);
        ck_assert_int_eq(at, m);
        ck_assert_int_eq(
            zip_set_file_compression(archive, (zip_uint64_t)m,
                                     lab->member[m].deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0),
            0);
    }
    ck_assert_int_eq(zip_close(archive), 0);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    lab->bytes = (size_t)ftell(file);
    rewind(file);
    lab->all = malloc(lab->bytes + 1);
    ck_assert_ptr_nonnull(lab->all);
    ck_assert_uint_eq(fread(lab->all, 1, lab->bytes, file), lab->bytes);
    fclose(file);
    unlink(path);
}

/* Where the record of a member begins: the n-th that has this signature. */
static unsigned char *record(const struct zip_lab *lab, const char *signature, int member)
{
    for (size_t at = 0; at + 46 < lab->bytes; at++)
        if (memcmp(lab->all + at, signature, 4) == 0 && member-- == 0)
            return lab->all + at;
    ck_abort_msg("no such record");
    return NULL;
}

void zip_lab_set(struct zip_lab *lab, int member, enum zip_lab_field field, int where,
                 uint32_t value)
{
    static const struct {
        int local, central, bytes;
    } place[] = {{6, 8, 2}, {8, 10, 2}, {14, 16, 4}, {18, 20, 4}, {22, 24, 4}, {30, 46, 1}};
    unsigned char *local = record(lab, "PK\3\4", member);
    unsigned char *central = record(lab, "PK\1\2", member);
    for (int byte = 0; byte < place[field].bytes; byte++, value >>= 8) {
        if (where & ZIP_LAB_LOCAL)
            local[place[field].local + byte] = (unsigned char)value;
        if (where & ZIP_LAB_CENTRAL)
            central[place[field].central + byte] = (unsigned char)value;
    }
}

const char *zip_lab_put(struct zip_lab *lab, const char *name)
{
    const char *path = scratch_put(name, lab->all, lab->bytes);
    for (int m = 0; m < lab->n; m++)
        free(lab->member[m].data);
    free(lab->all);
    memset(lab, 0, sizeof *lab);
    return path;
}
