/* The ledger: every buffer of the library is taken here, by name.
 *
 * It answers three questions to the byte: how much is live now, how much was live at the peak,
 * and what was it made of.  An implementation's cost() must give the same answers without
 * running.  Bytes are the bytes asked for; blocks of 256 KiB and more (4 MiB, where they are
 * poisoned) come from mmap, so that a block's pages leave the process when the block does and
 * resident memory can follow the ledger.
 *
 * One ledger belongs to one thread.  A ledger may have a parent (a rank's ledger reports to the
 * process's); only the parent's totals are touched by several threads, atomically.
 */
#ifndef REF_LEDGER_H
#define REF_LEDGER_H

#include "ref/attn.h"

#ifdef __cplusplus
extern "C" {
typedef int64_t attn_atomic_int64; /* of the same size; to be read when nothing runs */
#else
#include <stdatomic.h>
typedef _Atomic int64_t attn_atomic_int64;
#endif

/* One named buffer (or several of one name) and its bytes.  In a price: they are parts, for
 * threads, panels or heads, of equally many numbers of `size` bytes each; parts 0: of several
 * shapes. */
struct attn_account {
    const char *name; /* static storage */
    int64_t bytes;
    int64_t parts, size;
};

enum { ATTN_MAX_ACCOUNTS = 64 };

struct attn_ledger_block {
    void *data;
    size_t bytes;
    int account, is_map; /* of mmap, else of the heap */
};

/* On the heap while there are any. */
struct attn_ledger_blocks {
    struct attn_ledger_block *at;
    int n, capacity;
};

struct attn_ledger;

/* Called after a buffer was taken or counted, bytes > 0, or given back, bytes < 0; ledger->now is
 * what is live then.  Several ledgers may call it at once, each in its own thread. */
struct attn_ledger_tracer {
    void (*on_block)(void *arg, const struct attn_ledger *ledger, const char *name, int64_t bytes);
    void *arg;
};

struct attn_ledger {
    struct attn_ledger *parent;
    const struct attn_ledger_tracer *tracer; /* NULL: none; children have their parent's */
    int owner; /* for the tracer: 0 a process; 1 + r rank r; -1 what is in no price */
    attn_atomic_int64 now, peak; /* bytes, including those of children */
    int n_accounts, n_at_peak;
    struct attn_account account[ATTN_MAX_ACCOUNTS]; /* live bytes by name             */
    struct attn_account at_peak[ATTN_MAX_ACCOUNTS]; /* the live set when peak was set */
    struct attn_ledger_blocks live, kept;
    int64_t takes;   /* calls of attn_ledger_take so far                                       */
    int64_t fail_at; /* testing: the take with this number fails; -1 never                     */
    int64_t limit;   /* refuse a take that would make more bytes than this live; -1 none       */
    int damaged;     /* blocks whose end was overwritten: found when the block is given back   */
    int poison;      /* fill fresh blocks with a NaN pattern: buffers are not born zero        */
    int keeps;       /* blocks given back wait for the next take of their size, as those of a
                        framework do between calls: where time is measured; resident memory is
                        then above the ledger, until attn_ledger_clear                         */
};

/* parent may be NULL.  Owns nothing until something is taken. */
void attn_ledger_init(struct attn_ledger *ledger, struct attn_ledger *parent);

/* count * size bytes, aligned to 64, contents unspecified.  name must outlive the ledger.
 * A product of 0 gives a valid pointer that must not be read through.  NULL on failure, with err
 * filled: ENOMEM (what was asked, what is live), EINVAL where live bytes exceed 64 bits. */
void *attn_ledger_take(struct attn_ledger *ledger, const char *name, int64_t count, int64_t size,
                       struct attn_error *err);

/* Give a block back.  NULL is legal.  Returns NULL, so that `p = attn_ledger_give(l, p)`. */
void *attn_ledger_give(struct attn_ledger *ledger, void *data);

/* Count count * size bytes without a block, in this ledger and not in its parents: what another
 * ledger's block has while it is used here, or a live set on paper, which is how stacks and studies
 * are priced.  EINVAL as above, EINTERNAL when there is no room for the name. */
enum attn_status attn_ledger_count(struct attn_ledger *ledger, const char *name, int64_t count,
                                   int64_t size, struct attn_error *err);

/* Stop counting bytes of this name that attn_ledger_count counted. */
void attn_ledger_uncount(struct attn_ledger *ledger, const char *name, int64_t bytes);

/* Bytes of a name in a live set: ledger->account, or at_peak. */
int64_t attn_account_bytes(const struct attn_account *account, int n, const char *name);

/* The peak begins again at what is live now.  To be called before the second of two calls on one
 * ledger. */
void attn_ledger_restart(struct attn_ledger *ledger);

/* Give back all blocks that are still live or kept, and return how many bytes were live: 0 unless a
 * caller leaked, or left in the middle because of a failure. */
int64_t attn_ledger_clear(struct attn_ledger *ledger);

#ifdef __cplusplus
}
#endif
#endif
