/*
 * library.c - loads shared libraries by their sonames. Owns nothing.
 */
#include "library.h"

#include "error.h"

#include <dlfcn.h>
#include <string.h>

void *ddpi_library_open(const char *soname)
{
    return dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

const char *ddpi_library_find(void *library, const struct ddpi_symbol *symbols, size_t count,
                              void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL && !symbols[i].optional)
            return symbols[i].name;
        memcpy((char *)table + symbols[i].offset, &address, sizeof address);
    }
    return NULL;
}

ddp_status ddpi_library_load(const struct ddpi_library *library, const struct ddpi_symbol *symbols,
                             size_t count, void *table, struct ddp_error *err)
{
    void *loaded = ddpi_library_open(library->soname);
    if (loaded == NULL)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                              "%s needs %s%s, which cannot be loaded (%s); install it (Debian: %s)",
                              library->user, library->soname, library->product, dlerror(),
                              library->package);
    const char *missing = ddpi_library_find(loaded, symbols, count, table);
    if (missing != NULL)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "%s needs %s the installed %s has no %s",
                              library->user, library->newer, library->soname, missing);
    return DDP_OK;
}
