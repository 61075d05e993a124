/* .npz: a zip archive that holds a .npy for each tensor, as numpy.savez (stored) and
 * numpy.savez_compressed (deflated) write it.  The archive is libzip's work; what it says is
 * believed only where it agrees with the header of the .npy inside.
 *
 * A member is inflated as far as its header when the file is opened, and whole when its tensor is
 * loaded: into the memory that the header asks for, and not a byte farther.  Sources: PKWARE's
 * APPNOTE.TXT; RFC 1951; numpy/lib/npyio.py.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/base/files.h"

enum {
    INFLATION = 1032
}; /* bytes that one byte of deflate can become: 258 by two codes of a bit */

/* A member while it is opened.  label: "PATH: 'NAME'", for messages. */
struct member {
    zip_uint64_t index;
    zip_stat_t stat;
    char *label;
    zip_file_t *stream;
};

/* Why libzip, called with errno 0, could not do it: it reports memory that it did not get as this
 * or that fault of the archive. */
static enum attn_status blame(void)
{
    return errno == ENOMEM ? ATTN_ENOMEM : ATTN_EINVAL;
}

/* ---- reading a member ----------------------------------------------------------------------- */

/* As struct attn_npy_source wants it; arg is a member. */
static enum attn_status read_exactly(void *arg, void *to, int64_t bytes, struct attn_error *err)
{
    const struct member *m = arg;
    for (int64_t done = 0; done < bytes;) {
        errno = 0;
        zip_int64_t n = zip_fread(m->stream, (char *)to + done, (zip_uint64_t)(bytes - done));
        if (n < 0)
            return attn_fault(err, blame(), m->label, "is damaged: %s",
                              zip_file_strerror(m->stream));
        if (n == 0)
            return attn_fault(err, ATTN_EINVAL, m->label, "ends before the %llu bytes it declares",
                              (unsigned long long)m->stat.size);
        done += n;
    }
    return ATTN_OK;
}

/* Behind the last byte there is nothing; libzip compares the checksum here. */
static enum attn_status read_end(const struct member *m, struct attn_error *err)
{
    char more;
    errno = 0;
    zip_int64_t n = zip_fread(m->stream, &more, 1);
    if (n > 0)
        return attn_fault(err, ATTN_EINVAL, m->label,
                          "inflates to more than the %llu bytes it "
                          "declares",
                          (unsigned long long)m->stat.size);
    if (n < 0)
        return attn_fault(err, blame(), m->label, "is damaged: %s", zip_file_strerror(m->stream));
    return ATTN_OK;
}

static void close_member(struct member *m)
{
    if (m->stream != NULL)
        zip_fclose(m->stream);
    free(m->label);
    memset(m, 0, sizeof *m);
}

/* After a failure too, close_member is due. */
static enum attn_status open_member(const struct attn_file *file, zip_uint64_t index,
                                    struct member *m, struct attn_error *err)
{
    *m = (struct member){.index = index};
    errno = 0;
    if (zip_stat_index(file->archive, index, 0, &m->stat) != 0 || m->stat.name == NULL)
        return attn_fault(err, blame(), file->path, "member %llu: %s",
                          (unsigned long long)index + 1, zip_strerror(file->archive));
    if (asprintf(&m->label, "%s: '%.60s'", file->path, m->stat.name) < 0) {
        m->label = NULL;
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for the name of a member");
    }
    return ATTN_OK;
}

/* ---- what a member says of itself ----------------------------------------------------------- */

/* "q.npy" names the tensor "q".  Nothing is unpacked here, but a path that leads elsewhere was
 * meant to do harm. */
static enum attn_status check_name(const struct member *m, struct attn_error *err)
{
    const char *name = m->stat.name;
    size_t n = strlen(name);
    for (const char *at = name; at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        if (strcmp(at, "..") == 0 || strncmp(at, "../", 3) == 0)
            return attn_fault(err, ATTN_EINVAL, m->label, "a name that climbs by '..' is not read");
    }
    if (name[0] == '/')
        return attn_fault(err, ATTN_EINVAL, m->label, "a name that begins with '/' is not read");
    if (n < 4 || strcmp(name + n - 4, ".npy") != 0)
        return attn_fault(err, ATTN_EINVAL, m->label, "is not a .npy: a .npz holds nothing else");
    return ATTN_OK;
}

static enum attn_status check_storage(const struct attn_file *file, const struct member *m,
                                      struct attn_error *err)
{
    const zip_stat_t *s = &m->stat;
    const zip_uint64_t all =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if ((s->valid & all) != all)
        return attn_fault(err, ATTN_EINVAL, m->label, "its size or compression is not said");
    if (s->encryption_method != ZIP_EM_NONE)
        return attn_fault(err, ATTN_EINVAL, m->label, "is encrypted: plain members are read");
    if (s->comp_method != ZIP_CM_STORE && s->comp_method != ZIP_CM_DEFLATE)
        return attn_fault(err, ATTN_EINVAL, m->label,
                          "compression method %d: stored (0) and deflated (8) members are read",
                          s->comp_method);
    if (s->comp_size > (zip_uint64_t)file->size)
        return attn_fault(err, ATTN_EINVAL, m->label,
                          "has %llu bytes in a file of %lld: cut off, or a lie",
                          (unsigned long long)s->comp_size, (long long)file->size);
    zip_uint64_t most = s->comp_method == ZIP_CM_STORE ? s->comp_size : s->comp_size * INFLATION;
    if (s->size > most || (s->comp_method == ZIP_CM_STORE && s->size != s->comp_size))
        return attn_fault(err, ATTN_EINVAL, m->label,
                          "declares %llu bytes, which its %llu %s bytes cannot be",
                          (unsigned long long)s->size, (unsigned long long)s->comp_size,
                          s->comp_method == ZIP_CM_STORE ? "stored" : "deflated");
    return ATTN_OK;
}

static enum attn_status open_stream(const struct attn_file *file, struct member *m,
                                    struct attn_error *err)
{
    errno = 0;
    m->stream = zip_fopen_index(file->archive, m->index, 0);
    if (m->stream != NULL)
        return ATTN_OK;
    return attn_fault(err, blame(), m->label, "cannot be read: %s", zip_strerror(file->archive));
}

/* Type and shape, and where the numbers begin.  header_left: what the headers may still take. */
static enum attn_status read_member(const struct attn_file *file, zip_uint64_t index,
                                    int64_t *header_left, struct attn_file_tensor *t,
                                    struct attn_error *err)
{
    struct member m;
    enum attn_status status = open_member(file, index, &m, err);
    if (status == ATTN_OK)
        status = check_name(&m, err);
    if (status == ATTN_OK)
        status = check_storage(file, &m, err);
    if (status == ATTN_OK)
        status = open_stream(file, &m, err);
    if (status == ATTN_OK &&
        (t->name = strndup(m.stat.name, strlen(m.stat.name) - strlen(".npy"))) == NULL)
        status = attn_fault(err, ATTN_ENOMEM, m.label, "no memory for its name");
    const struct attn_npy_source from = {m.label, (int64_t)m.stat.size, header_left, read_exactly,
                                         &m};
    if (status == ATTN_OK)
        status = attn_npy_read(&from, t, err);
    t->member = (int64_t)index;
    close_member(&m);
    return status;
}

/* ---- the archive ---------------------------------------------------------------------------- */

/* A descriptor of its own: libzip closes what it is given. */
static enum attn_status open_archive(struct attn_file *file, struct attn_error *err)
{
    int code = ZIP_ER_OPEN, fd = dup(file->fd);
    errno = 0;
    file->archive = fd >= 0 ? zip_fdopen(fd, ZIP_CHECKCONS, &code) : NULL;
    if (file->archive != NULL)
        return ATTN_OK;
    enum attn_status status = fd >= 0 ? blame() : ATTN_ENOMEM;
    if (fd >= 0)
        close(fd);
    if (status == ATTN_ENOMEM)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for its list of members");
    if (code == ZIP_ER_EXISTS)
        return attn_fault(err, ATTN_EINVAL, file->path, "two members have one name");
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    attn_fault(err, status, file->path, "begins as a .npz, but: %s (cut off?)",
               zip_error_strerror(&error));
    zip_error_fini(&error);
    return status;
}

static enum attn_status header(struct attn_file *file, struct attn_error *err)
{
    int64_t header_left = ATTN_FILE_HEADER;
    enum attn_status status = open_archive(file, err);
    if (status != ATTN_OK)
        return status;
    zip_int64_t n = zip_get_num_entries(file->archive, 0);
    if (n <= 0)
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "is an archive without members: no tensors");
    if (n > ATTN_FILE_HEADER) /* each has a header */
        return attn_fault(err, ATTN_EINVAL, file->path, "has %lld members: too many", (long long)n);
    file->tensor = calloc((size_t)n, sizeof *file->tensor);
    if (file->tensor == NULL)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for %lld tensors", (long long)n);
    for (zip_int64_t i = 0; i < n && status == ATTN_OK; i++) {
        status = read_member(file, (zip_uint64_t)i, &header_left, &file->tensor[i], err);
        file->n_tensors++;
    }
    return status;
}

static enum attn_status read_numbers(const struct attn_file *file, const struct attn_file_tensor *t,
                                     void *to, struct attn_error *err)
{
    struct member m;
    char skipped[4096];
    enum attn_status status = open_member(file, (zip_uint64_t)t->member, &m, err);
    if (status == ATTN_OK)
        status = open_stream(file, &m, err);
    for (int64_t left = t->offset; left > 0 && status == ATTN_OK; left -= sizeof skipped)
        status = read_exactly(&m, skipped,
                              left < (int64_t)sizeof skipped ? left : (int64_t)sizeof skipped, err);
    if (status == ATTN_OK)
        status = read_exactly(&m, to, t->bytes, err);
    if (status == ATTN_OK)
        status = read_end(&m, err);
    close_member(&m);
    return status;
}

static void close_archive(struct attn_file *file)
{
    if (file->archive != NULL)
        zip_discard(file->archive);
    file->archive = NULL;
}

const struct attn_file_format attn_format_npz = {
    .suffix = ".npz",
    .marks = {"PK\3\4", "PK\5\6"}, /* a member, or the end of an archive that has none */
    .header = header,
    .read = read_numbers,
    .close = close_archive};
