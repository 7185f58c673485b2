/*
 * auth_option.c - the values of --auth. Owns nothing.
 */
#include "auth_option.h"

#include "error.h"
#include "server.h"

#include <string.h>

ddp_status auth_option(const struct option *option, const char *text, void *field,
                       struct ddp_error *err)
{
    static const char *const names[] = {[DDPI_SERVER_AUTH_DEFAULT] = "default",
                                        [DDPI_SERVER_AUTH_ALWAYS] = "always",
                                        [DDPI_SERVER_AUTH_NEVER] = "never"};
    (void)option;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *(enum ddpi_server_auth *)field = (enum ddpi_server_auth)i;
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not default, always or never", text);
}

ddp_status auth_option_off(const struct option *option, const char *text, void *field,
                           struct ddp_error *err)
{
    bool off;
    ddp_status status = option_switch(option, text, &off, err);
    if (status == DDP_OK && off)
        *(enum ddpi_server_auth *)field = DDPI_SERVER_AUTH_NEVER;
    return status;
}
