/* Archives for tests: good ones by libzip, then single fields of them changed. */
#ifndef TESTS_ZIP_LAB_H
#define TESTS_ZIP_LAB_H

#include <stddef.h>
#include <stdint.h>

enum { ZIP_LAB_MEMBERS = 16 };

/* An archive that is being made, whole in memory. */
struct zip_lab {
    struct {
        const char *name;
        void *data;
        size_t bytes;
        int deflated;
    } member[ZIP_LAB_MEMBERS];
    int n;
    unsigned char *all; /* after zip_lab_make */
    size_t bytes;
};

/* A member of these bytes, which are copied. */
void zip_lab_add(struct zip_lab *lab, const char *name, int deflated, const void *data,
                 size_t bytes);

/* A member that is a .npy: version 2.0, the dictionary as it is, then so many zero bytes. */
void zip_lab_add_npy(struct zip_lab *lab, const char *name, int deflated, const char *dictionary,
                     size_t zeros);

/* Let libzip write it. */
void zip_lab_make(struct zip_lab *lab);

/* A field of one member, in its local header, in the central directory, or both. */
enum zip_lab_field {
    ZIP_LAB_FLAGS,
    ZIP_LAB_METHOD,
    ZIP_LAB_CRC,
    ZIP_LAB_COMP_SIZE,
    ZIP_LAB_SIZE,
    ZIP_LAB_NAME /* its first byte */
};
enum { ZIP_LAB_LOCAL = 1, ZIP_LAB_CENTRAL = 2, ZIP_LAB_BOTH = 3 };
void zip_lab_set(struct zip_lab *lab, int member, enum zip_lab_field field, int where,
                 uint32_t value);

/* As a file of the scratch folder; frees everything. */
const char *zip_lab_put(struct zip_lab *lab, const char *name);

#endif
