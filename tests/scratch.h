/* A folder of its own for each test that works on files. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

/* Fixtures, for tcase_add_checked_fixture: an empty folder before, no trace of it after; a test
 * that fails leaves it to be looked at. */
void scratch_open(void);
void scratch_close(void);

/* The path of a name in it ("" is the folder itself); valid for the next seven calls. */
const char *scratch_path(const char *name);

/* A file of these bytes; returns its path. */
const char *scratch_put(const char *name, const void *data, size_t bytes);

/* The length of its header as eight bytes, the header, then so many bytes of data: 0, 1, 2, ... */
const char *scratch_safetensors(const char *name, const char *header, size_t data_bytes);

/* Magic, version 1.0, the header as it is, then the data. */
const char *scratch_npy(const char *name, const char *header, const void *data, size_t bytes);

/* How many files are in the folder. */
int scratch_count(void);

/* Run `attnlab ARGUMENTS` of the build under test by a shell; stdout and stderr go to output.
 * Returns the exit status, or -1 when it did not exit by itself. */
int scratch_attnlab(char *output, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
