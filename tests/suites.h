/* Tests, and the suites that they form.
 *
 *      SUITE(files, .open = scratch_open, .close = scratch_close);
 *      TEST(real_files) { ... }
 *      TEST_EACH(hostile_npy, COUNT(dictionary)) { ... dictionary[_i] ... }
 *
 * A file says once of which suite its tests are; several files may form one.  Every test registers
 * itself when the program starts, and those of a file run in the order in which they stand. */
#ifndef TESTS_SUITES_H
#define TESTS_SUITES_H

#include <check.h>

struct test {
    TTest check;
    int (*count)(void); /* how often it runs: _i is 0, 1, ... */
    struct test *next;
};

struct test_group {
    const char *suite;
    void (*prepare)(void);              /* once, in the process from which tests fork; or NULL */
    void (*open)(void), (*close)(void); /* before and after each test, in its own; or NULL    */
    struct test *first, *last;
    struct test_group *next;
};

void test_add(struct test_group *group, struct test *test);

#define SUITE(...)          SUITE_OF(__VA_ARGS__, .next = NULL)
#define SUITE_OF(name, ...) static struct test_group test_group = {.suite = #name, __VA_ARGS__}

#define TEST(name) TEST_EACH(name, 1)
#define TEST_EACH(name, n)                                                                      \
    static void name##_fn(int _i);                                                              \
    static int name##_count(void)                                                               \
    {                                                                                           \
        return (int)(n);                                                                        \
    }                                                                                           \
    __attribute__((constructor)) static void name##_add(void)                                   \
    {                                                                                           \
        static struct test test = {{#name, name##_fn, __FILE__, __LINE__}, name##_count, NULL}; \
        test_add(&test_group, &test);                                                           \
    }                                                                                           \
    static void name##_fn(int _i __attribute__((unused)))

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

/* Memory of zeros that the processes of all tests share; NULL: there is none. */
void *test_shared(size_t bytes);

/* Folder of the build under test (ATTN_BUILD): holds attnlab and mutants/. */
const char *test_build(void);

#endif
