/* What the tests of strangers' implementations share. */
#ifndef TESTS_STRANGER_LAB_H
#define TESTS_STRANGER_LAB_H

/* Run a shell command; its exit status, -1 when it did not exit. */
int lab_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The number before the last " WORD," of a summary: "173 pass, 0 fail, ..."; -1: none. */
int lab_count(const char *output, const char *word);

/* Compile a plug-in into the scratch folder with these flags; returns its path. */
const char *lab_build(const char *source, const char *flags);

#endif
