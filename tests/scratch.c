/* See scratch.h. */
#include "tests/scratch.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/suites.h"

static char folder[512];

/* Remove what is in a folder, one level of folders included; -1 counts only. */
static int sweep(const char *path, int remove_all)
{
    DIR *dir = opendir(path);
    int n = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char one[1024];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        n++;
        if (!remove_all)
            continue;
        snprintf(one, sizeof one, "%s/%s", path, entry->d_name);
        if (unlink(one) != 0) {
            sweep(one, 1);
            rmdir(one);
        }
    }
    if (dir != NULL)
        closedir(dir);
    return n;
}

void scratch_open(void)
{
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/attn-test-XXXXXX", root != NULL ? root : "/tmp");
    ck_assert_msg(mkdtemp(folder) != NULL, "no temporary folder: %s", folder);
}

void scratch_close(void)
{
    sweep(folder, 1);
    ck_assert_msg(rmdir(folder) == 0, "%s could not be emptied", folder);
}

int scratch_count(void)
{
    return sweep(folder, 0);
}

const char *scratch_path(const char *name)
{
    static char path[8][1024];
    static int next;
    char *to = path[next++ % 8];
    snprintf(to, sizeof path[0], "%s%s%s", folder, name[0] != '\0' ? "/" : "", name);
    return to;
}

const char *scratch_put(const char *name, const void *data, size_t bytes)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "%s cannot be made", path);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

const char *scratch_safetensors(const char *name, const char *header, size_t data_bytes)
{
    size_t length = strlen(header), total = 8 + length + data_bytes;
    unsigned char *all = malloc(total);
    ck_assert_ptr_nonnull(all);
    for (int byte = 0; byte < 8; byte++)
        all[byte] = (unsigned char)((uint64_t)length >> (8 * byte));
    memcpy(all + 8, header, length);
    for (size_t d = 0; d < data_bytes; d++)
        all[8 + length + d] = (unsigned char)d;
    const char *path = scratch_put(name, all, total);
    free(all);
    return path;
}

const char *scratch_npy(const char *name, const char *header, const void *data, size_t bytes)
{
    size_t length = strlen(header), total = 10 + length + bytes;
    unsigned char *all = malloc(total);
    ck_assert_ptr_nonnull(all);
    memcpy(all, "\x93NUMPY\x01\x00", 8);
    all[8] = (unsigned char)(length & 0xff);
    all[9] = (unsigned char)(length >> 8);
    memcpy(all + 10, header, length);
    if (bytes > 0)
        memcpy(all + 10 + length, data, bytes);
    const char *path = scratch_put(name, all, total);
    free(all);
    return path;
}

int scratch_attnlab(char *output, size_t size, const char *format, ...)
{
    char arguments[4096], command[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(command, sizeof command, "'%s/attnlab' %s 2>&1", test_build(), arguments);
    FILE *pipe = popen(command, "r");
    ck_assert_msg(pipe != NULL, "cannot run: %s", command);
    size_t n = fread(output, 1, size - 1, pipe);
    output[n] = '\0';
    for (char more[4096]; fread(more, 1, sizeof more, pipe) > 0;)
        ; /* a pipe that nobody empties would stop the program */
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
