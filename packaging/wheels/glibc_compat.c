/* What hvdtune calls of glibc that is newer than the oldest release its wheels run with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* 0: a std::shared_ptr then counts with atomic instructions at all times. */
char __libc_single_threaded = 0;

/* Since glibc 2.33. Before, they were macros for these functions, which every glibc still has. */
#if defined(__x86_64__)
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif
extern int __xstat(int version, const char* path, struct stat* status);
extern int __fxstat(int version, int fd, struct stat* status);

int stat(const char* path, struct stat* status) { return __xstat(kStatVersion, path, status); }

int fstat(int fd, struct stat* status) { return __fxstat(kStatVersion, fd, status); }

/* Since glibc 2.30 */
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

typedef int (*clockwait_function)(pthread_cond_t*, pthread_mutex_t*, clockid_t,
                                  const struct timespec*);

static const long kNsPerSecond = 1000000000;

static long long ns_of(struct timespec time) {
  return time.tv_sec * (long long)kNsPerSecond + time.tv_nsec;
}

/* Since glibc 2.30, which std::condition_variable::wait_for uses: the machine's own where it has
 * one. Else the wait is by the clock that can be set, for a second at most: a caller that is woken
 * early looks at its own clock and waits again. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  static clockwait_function own = NULL;
  static int is_known = 0;
  if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&own, (clockwait_function)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
  }
  const clockwait_function known = __atomic_load_n(&own, __ATOMIC_RELAXED);
  if (known != NULL) return known(condition, mutex, clock, until);

  struct timespec now, settable;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &settable);
  long long left_ns = ns_of(*until) - ns_of(now);
  if (left_ns > kNsPerSecond) left_ns = kNsPerSecond;
  if (left_ns < 0) left_ns = 0;
  const long long end_ns = ns_of(settable) + left_ns;
  const struct timespec end = {end_ns / kNsPerSecond, end_ns % kNsPerSecond};
  const int error = pthread_cond_timedwait(condition, mutex, &end);
  if (error != ETIMEDOUT) return error;
  clock_gettime(clock, &now);
  return ns_of(now) >= ns_of(*until) ? ETIMEDOUT : 0;
}

/* Since glibc 2.36, for std::random_device, which is compiled in with other pieces of libstdc++. */
unsigned int arc4random(void) {
  unsigned int number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}
