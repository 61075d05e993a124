/* attnlab guest: the process in which a plug-in runs (tests/harness/guest.h). */
#include "experiments/cli.h"
#include "tests/harness/guest.h"

#include <fcntl.h>

int attn_cmd_guest(int argc, char **argv)
{
    if (argc != 2 || fcntl(ATTN_GUEST_REQUESTS, F_GETFD) < 0 || fcntl(ATTN_GUEST_FD, F_GETFD) < 0)
        return attn_cli_fail("guest", ATTN_EXIT_USAGE,
                             "is started by attnlab check --plugin, not by hand");
    return attn_guest_serve(argv[1]);
}
