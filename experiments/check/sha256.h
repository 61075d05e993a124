/* SHA-256 (FIPS 180-4) of files, so that a page can say which file it speaks of: what sha256sum
 * prints. */
#ifndef EXPERIMENTS_CHECK_SHA256_H
#define EXPERIMENTS_CHECK_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct attn_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};
void attn_sha256_begin(struct attn_sha256 *s);
void attn_sha256_add(struct attn_sha256 *s, const void *data, size_t n);
void attn_sha256_end(struct attn_sha256 *s, char hex[65]);

/* Of a regular file: 1; 0 when it is none or cannot be read, hex is then "". */
int attn_sha256_file(const char *path, char hex[65]);

/* Of a folder: of the lines that sha256sum prints for its regular files, in the order of their
 * paths as bytes: find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum.  As above. */
int attn_sha256_folder(const char *path, char hex[65]);

#endif
