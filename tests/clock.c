/* A wall clock that is off, for the processes that are started with this library (LD_PRELOAD).

   The file that CLOCK_OFFSET names holds the seconds, an int64: a change of it is a step of the
   clock.  Clocks that count seconds since boot stay right, as they do on a host.  */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLOCK_OFFSET");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return; /* a process in another root directory, or of another user */
    void *map = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED)
        offset = map;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && offset != NULL
        && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec here;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &here);
    now->tv_sec = here.tv_sec;
    now->tv_usec = here.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec here;
    clock_gettime(CLOCK_REALTIME, &here);
    if (now != NULL)
        *now = here.tv_sec;
    return here.tv_sec;
}
