/* How this program ends: its children and its temporary folders go with it, whether it exits or is
 * ended by INT, TERM or HUP.
 *
 * A child's child becomes ours when its parent ends (PR_SET_CHILD_SUBREAPER), also from a session
 * of its own: nothing that is started hides.  Children that were there before the first one of
 * ours, as after `sleep 9 & exec attnlab`, are not ours and stay.  Where there are such children,
 * orphans do not become ours, and a process that left its group outlives us. */
#ifndef TESTS_HARNESS_BASE_ENDING_H
#define TESTS_HARNESS_BASE_ENDING_H

#include <sys/types.h>

#include "tests/harness/base/folder.h"

/* From now on the program ends so.  A signal that is ignored, as HUP under nohup, stays ignored.
 * Code that starts a process calls it before. */
void attn_ending_prepare(void);

/* From now on these signals do not end this process but make attn_process_interrupted() true, and
 * end the program that is running. */
void attn_process_catch_interrupts(void);
int attn_process_interrupted(void);

/* There is no child. */
int attn_process_is_alone(void);

/* Wait for all children of this process, grandchildren that become its own included, for at most
 * grace_s seconds, and end those that are left.  Returns how many were left. */
int attn_process_end_children(double grace_s);

/* A new folder below $TMPDIR or /tmp; remove it, with all that is in it. */
enum attn_status attn_temporary_open(char folder[ATTN_FOLDER_PATH], struct attn_error *err);

/* The same in memory, /dev/shm, where that many bytes have room (Docker gives 64 MiB). */
enum attn_status attn_temporary_open_for(double bytes, char folder[ATTN_FOLDER_PATH],
                                         struct attn_error *err);
void attn_temporary_close(const char *folder);

#endif
