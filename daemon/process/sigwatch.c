/*
 * sigwatch.c - one handle of the loop per signal. Owns the handles.
 */
#include "sigwatch.h"

#include "error.h"

/* SIGCHLD is the exception: while it is ignored there are no wait statuses. */
bool sigwatch_stays_ignored(int sig)
{
    struct sigaction action;
    return sig != SIGCHLD && sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

ddp_status sigwatch_add(struct sigwatch *watch, uv_loop_t *loop, int sig, uv_signal_cb callback,
                        void *data, struct ddp_error *err)
{
    if (sigwatch_stays_ignored(sig))
        return DDP_OK;
    int uv_status = uv_signal_init(loop, &watch->handles[sig]);
    if (uv_status == 0) {
        watch->open[sig] = true;
        watch->handles[sig].data = data;
        uv_status = uv_signal_start(&watch->handles[sig], callback, sig);
    }
    return uv_status == 0 ? DDP_OK
                          : ddpi_error_sys(err, -uv_status, "cannot handle signal %d", sig);
}

ddp_status sigwatch_add_sets(struct sigwatch *watch, uv_loop_t *loop, const sigset_t *ending,
                             uv_signal_cb on_ending, const sigset_t *forwarded,
                             uv_signal_cb on_forwarded, void *data, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (int sig = 1; sig < NSIG && status == DDP_OK; sig++)
        if (sigismember(ending, sig) == 1)
            status = sigwatch_add(watch, loop, sig, on_ending, data, err);
        else if (sigismember(forwarded, sig) == 1)
            status = sigwatch_add(watch, loop, sig, on_forwarded, data, err);
    return status;
}

void sigwatch_close(struct sigwatch *watch)
{
    for (int sig = 0; sig < NSIG; sig++)
        if (watch->open[sig] && !uv_is_closing((uv_handle_t *)&watch->handles[sig]))
            uv_close((uv_handle_t *)&watch->handles[sig], NULL);
}
