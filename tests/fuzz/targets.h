/* The targets that are fuzzed: every parser of texts and files that others wrote.
 *
 * Each target reads an input as the program would, and holds the parser to more than not crashing:
 * an error has a text of one printable line, and what was understood prints to something that is
 * understood as the same.  tests/fuzz/fuzzer.c feeds them what libFuzzer invents (`make fuzz`),
 * tests/program/test_fuzz.c what tests/fuzz/corpus holds (`make test`).
 */
#ifndef TESTS_FUZZ_TARGETS_H
#define TESTS_FUZZ_TARGETS_H

#include <stddef.h>

struct fuzz_target {
    const char *name;  /* its seeds are the files in tests/fuzz/corpus/NAME           */
    const char *words; /* tests/fuzz/WORDS.dict: words that libFuzzer may put in      */
    int most;          /* bytes of an input                                           */
    const char *(*run)(const unsigned char *data, size_t size); /* NULL, or what is wrong */
};

/* In the order of the table; NULL beyond. */
const struct fuzz_target *fuzz_target_at(int index);

/* Targets that read files write their input into this folder, which must exist. */
void fuzz_use_folder(const char *folder);

#endif
