/*
 * etcd_library.h - the functions of libcurl that the project calls, as pointers that are filled in
 * when the library is loaded. Their types come from its own header, so the compiler checks each
 * call; nothing is linked, since loading it costs a program several milliseconds.
 */
#ifndef DDPI_ETCD_LIBRARY_H
#define DDPI_ETCD_LIBRARY_H

#define CURL_DISABLE_TYPECHECK /* its macros need the functions' own names */

#include <curl/curl.h>
#include <ddprun/status.h>

#define DDPI_ETCD_LIBRARY_MAP(X) \
    X(curl_global_init)          \
    X(curl_version_info)         \
    X(curl_easy_init)            \
    X(curl_easy_reset)           \
    X(curl_easy_setopt)          \
    X(curl_easy_getinfo)         \
    X(curl_easy_strerror)        \
    X(curl_easy_cleanup)         \
    X(curl_slist_append)         \
    X(curl_slist_free_all)       \
    X(curl_multi_init)           \
    X(curl_multi_setopt)         \
    X(curl_multi_add_handle)     \
    X(curl_multi_remove_handle)  \
    X(curl_multi_assign)         \
    X(curl_multi_socket_action)  \
    X(curl_multi_info_read)      \
    X(curl_multi_cleanup)

/* The members are in parentheses where they are called: some names are macros, too. */
struct ddpi_etcd_library {
#define DDPI_ETCD_LIBRARY_MEMBER(name) __typeof__(&(name)) name;
    DDPI_ETCD_LIBRARY_MAP(DDPI_ETCD_LIBRARY_MEMBER)
#undef DDPI_ETCD_LIBRARY_MEMBER
};

/* Load the library, which takes some ms and is never undone. DDP_E_UNSUPPORTED: it is missing, or
 * too old. */
ddp_status ddpi_etcd_library_load(struct ddpi_etcd_library *ret, struct ddp_error *err);

#endif
