/*
 * keeper_folder.h - the folder of a keeper: the data of its etcd, its certificate, its log.
 *
 * A lock on the folder says that the keeper lives. The kernel gives it back when the process dies,
 * however it does, so folders of dead keepers can be told, and are removed when another keeper
 * starts. Nobody uses their data again: what a dead keeper has promised to others is not known.
 */
#ifndef CMD_KEEPER_FOLDER_H
#define CMD_KEEPER_FOLDER_H

#include <ddprun/status.h>

enum { KEEPER_PATH = 88 }; /* of the folder: the path of the socket in it must fit, too */

struct keeper_folder {
    char path[KEEPER_PATH];
    int lock;
};

/* Remove those of dead keepers of this user in @above (NULL: TMPDIR, or /var/tmp), and make one
 * there. DDP_E_INVALID: the path is relative or too long, or has ":/". */
DDP_MUST_CHECK ddp_status keeper_folder_make(const char *above, struct keeper_folder *ret,
                                             struct ddp_error *err);

/* Write the file @name, which only this user can read. */
DDP_MUST_CHECK ddp_status keeper_folder_write(const struct keeper_folder *folder, const char *name,
                                              const char *text, struct ddp_error *err);

/* Remove @name in it, a file or a folder with all that is in it. Blocks. */
void keeper_folder_clear(const struct keeper_folder *folder, const char *name);

/* Remove it, and give the lock back. */
void keeper_folder_remove(struct keeper_folder *folder);

#endif
