/* The switches of a plug-in of the tests: words in the last line of its own file, behind all
 * that the loader reads.  One build serves every test, and each copy has a digest of its own.
 *
 *      printf '\nCRASH FROM=64' >> copy.so
 */
#ifndef TESTS_EXTERNAL_SWITCHES_H
#define TESTS_EXTERNAL_SWITCHES_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Begins and ends with a blank. */
static const char *switch_line(void)
{
    static char line[512];
    Dl_info info;
    if (line[0] != '\0')
        return line;
    FILE *file = dladdr(line, &info) != 0 ? fopen(info.dli_fname, "rb") : NULL;
    char tail[sizeof line - 2] = "";
    size_t n = 0;
    if (file != NULL && fseek(file, -(long)sizeof tail, SEEK_END) == 0)
        n = fread(tail, 1, sizeof tail, file);
    const char *newline = memrchr(tail, '\n', n);
    const char *words = newline != NULL ? newline + 1 : tail + n;
    snprintf(line, sizeof line, " %.*s ", (int)(tail + n - words), words);
    if (file != NULL)
        fclose(file);
    return line;
}

/* 1: this word is there; 0: it is not. */
static int is_on(const char *word)
{
    char part[64];
    snprintf(part, sizeof part, " %s ", word);
    return strstr(switch_line(), part) != NULL;
}

/* The number of NAME=NUMBER. */
static int switch_number(const char *name, int otherwise)
{
    char part[64];
    snprintf(part, sizeof part, " %s=", name);
    const char *at = strstr(switch_line(), part);
    return at != NULL ? atoi(at + strlen(part)) : otherwise;
}

/* The text of NAME=TEXT, or that of the environment; NULL. */
static inline const char *switch_text(const char *name)
{
    static char text[300];
    char part[64];
    snprintf(part, sizeof part, " %s=", name);
    const char *at = strstr(switch_line(), part);
    if (at == NULL)
        return getenv(name);
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at + strlen(part), " "), at + strlen(part));
    return text;
}

#endif
