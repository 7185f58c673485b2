/*
 * tree.h - temporary trees of files that a test makes and leaves nothing of.
 */
#ifndef TESTS_TREE_H
#define TESTS_TREE_H

/* Remove @path and all that is below it, symbolic links as such. 0, or -1 with errno. */
int tree_remove(const char *path);

#endif
