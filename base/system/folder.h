/*
 * folder.h - removes a folder with all that is in it.
 */
#ifndef DDPI_FOLDER_H
#define DDPI_FOLDER_H

/* Remove what can be removed of @path, a folder or a file: it follows no symbolic link and stays on
 * one file system. Blocks. */
void ddpi_folder_remove(const char *path);

#endif
