/* VmHWM is a high-water mark of the whole life of a process.  Writing 5 to clear_refs takes it down
 * to what is resident now; that needs a kernel with CONFIG_PROC_PAGE_MONITOR and a writable
 * /proc, which containers do not always have.  Without it the mark still tells the truth when it
 * moves during the work; when it does not, all that is known is that the peak was lower than an
 * earlier one, and the answer is "unknown". */
#include "experiments/measure/resident.h"

#include <fcntl.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"

static int reset_mark(void)
{
    int fd = attn_cli_kernel_open("/proc/self/clear_refs", O_WRONLY);
    if (fd < 0)
        return 0;
    int ok = write(fd, "5", 1) == 1;
    close(fd);
    return ok;
}

void attn_resident_begin(struct attn_resident *resident)
{
    static const char status[] = "/proc/self/status";
    resident->hwm = resident->bytes = -1;
    resident->reset = reset_mark();
    resident->mark = attn_machine_kib(status, "VmHWM:");
    resident->baseline = resident->reset ? resident->mark : attn_machine_kib(status, "VmRSS:");
}

void attn_resident_end(struct attn_resident *resident)
{
    resident->hwm = attn_machine_kib("/proc/self/status", "VmHWM:");
    int known = resident->baseline >= 0 && (resident->reset || resident->hwm > resident->mark);
    resident->bytes = known ? resident->hwm - resident->baseline : -1;
}
