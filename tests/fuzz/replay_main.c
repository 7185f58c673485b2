/*
 * replay_main.c - runs a fuzz target once on every file of its corpus, as an ordinary test:
 * "fuzz_native DIRECTORY|FILE...". What breaks ends the process; the last file named is the one.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 1024 * 1024, PATH_SIZE = 4096 };

static bool run_file(const char *path)
{
    static uint8_t bytes[INPUT_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    size_t len = fread(bytes, 1, sizeof bytes, file);
    bool whole = !ferror(file) && fgetc(file) == EOF;
    fclose(file);
    printf("%s\n", path);
    fflush(stdout);
    uint8_t *exact = fuzz_copy(bytes, len);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return whole;
}

/* How many of its files have run; 0 where something is wrong. */
static size_t run_directory(DIR *directory, const char *path)
{
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char name[PATH_SIZE];
        if (entry->d_name[0] == '.')
            continue;
        int len = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (len < 0 || (size_t)len >= sizeof name || !run_file(name))
            return 0;
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        DIR *directory = opendir(argv[i]);
        size_t more =
            directory != NULL ? run_directory(directory, argv[i]) : (size_t)run_file(argv[i]);
        if (directory != NULL)
            closedir(directory);
        if (more == 0) {
            fprintf(stderr, "%s: not everything there could be run, or there is nothing\n",
                    argv[i]);
            return 1;
        }
        count += more;
    }
    printf("%zu inputs\n", count);
    return count > 0 ? 0 : 1;
}
