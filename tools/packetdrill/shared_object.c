/* packetdrill's interface to a TCP under test, passed on to a Python process (server.py).
 *
 * Built against packetdrill.h where packetdrill is found; nothing of packetdrill is kept here.
 *
 * --so_flags=MAIN,OTHER names two inherited SOCK_SEQPACKET sockets. All requests go over MAIN, so
 * that they arrive in their order: "THREAD NAME A B C D\n" and octets. The reply, "RESULT ERRNO
 * EXTRA\n" and octets, comes over MAIN to packetdrill's main thread and over OTHER to the thread
 * in which it makes calls that block.
 *
 * It is preloaded, too: commands of scripts are answered by the server and never run, and
 * packetdrill neither waits for clock ticks nor asks for real-time priority or locked memory.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/times.h>

#include "packetdrill.h"

enum { MESSAGE_OCTETS = 160 << 10 };
/* packetdrill sleeps until so many microseconds before an event, then asks for the time. */
enum { SPIN_US = 20 };

static int sockets[2] = { -1, -1 };
static pthread_t main_thread;
static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;

struct reply {
	long long result, extra;
	size_t count;
	char *octets;
};

/* What each thread receives into. */
static char received[2][MESSAGE_OCTETS];
static char sent[MESSAGE_OCTETS];

static void give_up(const char *what)
{
	fprintf(stderr, "shared_object: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

/* Send a request and wait for its reply; sets errno as the reply says. */
static struct reply ask(const char *name, long long a, long long b, long long c, long long d,
			const void *octets, size_t count)
{
	int thread = !pthread_equal(pthread_self(), main_thread);
	struct reply reply = { 0 };
	int number, header;
	ssize_t length;
	char *end;

	pthread_mutex_lock(&sending);
	header = snprintf(sent, 256, "%d %s %lld %lld %lld %lld\n", thread, name, a, b, c, d);
	if (header + count > MESSAGE_OCTETS) {
		errno = EMSGSIZE;
		give_up(name);
	}
	if (count)
		memcpy(sent + header, octets, count);
	if (send(sockets[0], sent, header + count, 0) < 0)
		give_up(name);
	pthread_mutex_unlock(&sending);

	length = recv(sockets[thread], received[thread], MESSAGE_OCTETS - 1, 0);
	if (length <= 0)
		give_up(name);
	received[thread][length] = 0;
	end = strchr(received[thread], '\n');
	if (!end || sscanf(received[thread], "%lld %d %lld", &reply.result, &number, &reply.extra) != 3)
		give_up(name);
	reply.octets = end + 1;
	reply.count = received[thread] + length - reply.octets;
	errno = number;
	return reply;
}

static long long call(const char *name, long long a, long long b, long long c)
{
	return ask(name, a, b, c, 0, NULL, 0).result;
}

/* A number that packetdrill can close at its end. */
static int new_descriptor(void)
{
	int fd = open("/dev/null", O_RDONLY);

	if (fd < 0)
		give_up("/dev/null");
	return fd;
}

static int keep_if(long long result, int fd)
{
	int number = errno;

	if (result >= 0)
		return fd;
	close(fd);
	errno = number;
	return -1;
}

static void so_free(void *userdata)
{
	close(sockets[0]);
	close(sockets[1]);
}

static int so_socket(void *userdata, int domain, int type, int protocol)
{
	int fd = new_descriptor();

	return keep_if(ask("socket", fd, domain, type, protocol, NULL, 0).result, fd);
}

static int so_bind(void *userdata, int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	const struct sockaddr_in *in = (const void *)addr;

	return call("bind", fd, ntohl(in->sin_addr.s_addr), ntohs(in->sin_port));
}

static int so_listen(void *userdata, int fd, int backlog)
{
	return call("listen", fd, backlog, 0);
}

static int so_accept(void *userdata, int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	int new_fd = new_descriptor();
	struct reply reply = ask("accept", fd, new_fd, 0, 0, NULL, 0);

	if (reply.result >= 0 && addr && addrlen && *addrlen >= sizeof(in)) {
		in.sin_addr.s_addr = htonl(reply.extra >> 16);
		in.sin_port = htons(reply.extra & 0xffff);
		memcpy(addr, &in, sizeof(in));
		*addrlen = sizeof(in);
	}
	return keep_if(reply.result, new_fd);
}

static int so_connect(void *userdata, int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	const struct sockaddr_in *in = (const void *)addr;

	return call("connect", fd, ntohl(in->sin_addr.s_addr), ntohs(in->sin_port));
}

static ssize_t so_recv(void *userdata, int fd, void *buf, size_t len, int flags)
{
	struct reply reply;

	if (!buf) {
		errno = EFAULT;
		return -1;
	}
	reply = ask("read", fd, len, flags, 0, NULL, 0);
	if (reply.result > 0)
		memcpy(buf, reply.octets, reply.result);
	return reply.result;
}

static ssize_t so_read(void *userdata, int fd, void *buf, size_t count)
{
	return so_recv(userdata, fd, buf, count, 0);
}

static ssize_t so_recvfrom(void *userdata, int fd, void *buf, size_t len, int flags,
			   struct sockaddr *src_addr, socklen_t *addrlen)
{
	return so_recv(userdata, fd, buf, len, flags);
}

static ssize_t so_send(void *userdata, int fd, const void *buf, size_t len, int flags)
{
	if (!buf) {
		errno = EFAULT;
		return -1;
	}
	return ask("write", fd, len, flags, 0, buf, len).result;
}

static ssize_t so_write(void *userdata, int fd, const void *buf, size_t count)
{
	return so_send(userdata, fd, buf, count, 0);
}

static ssize_t so_sendto(void *userdata, int fd, const void *buf, size_t len, int flags,
			 const struct sockaddr *dest_addr, socklen_t addrlen)
{
	return so_send(userdata, fd, buf, len, flags);
}

static int so_fcntl(void *userdata, int fd, int command, ...)
{
	va_list arguments;
	long argument;

	va_start(arguments, command);
	argument = va_arg(arguments, long);
	va_end(arguments);
	return call("fcntl", fd, command, argument);
}

static int so_close(void *userdata, int fd)
{
	long long result = call("close", fd, 0, 0);

	if (result >= 0)
		close(fd);
	return result;
}

static int so_shutdown(void *userdata, int fd, int how)
{
	return call("shutdown", fd, how, 0);
}

static int so_getsockopt(void *userdata, int fd, int level, int optname, void *optval,
			 socklen_t *optlen)
{
	struct reply reply = ask("getsockopt", fd, level, optname, 0, NULL, 0);
	int value = reply.extra;

	if (reply.result >= 0 && *optlen >= sizeof(value)) {
		memcpy(optval, &value, sizeof(value));
		*optlen = sizeof(value);
	}
	return reply.result;
}

static int so_setsockopt(void *userdata, int fd, int level, int optname, const void *optval,
			 socklen_t optlen)
{
	int value = 0;

	memcpy(&value, optval, optlen < sizeof(value) ? optlen : sizeof(value));
	return ask("setsockopt", fd, level, optname, value, NULL, 0).result;
}

static int so_poll(void *userdata, struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct reply reply = ask("poll", nfds, timeout, 0, 0, fds, nfds * sizeof(*fds));

	if (reply.result >= 0)
		memcpy(fds, reply.octets, reply.count);
	return reply.result;
}

static int so_netdev_send(void *userdata, const void *buf, size_t count)
{
	return ask("packet", 0, 0, 0, 0, buf, count).result;
}

static int so_netdev_receive(void *userdata, void *buf, size_t *count, long long *time_usecs)
{
	struct reply reply = ask("sniff", 0, 0, 0, 0, NULL, 0);

	if (reply.result < 0) {
		fprintf(stderr, "shared_object: nothing more is sent\n");
		exit(EXIT_FAILURE);
	}
	if (reply.count > *count) {
		errno = EMSGSIZE;
		give_up("packet");
	}
	memcpy(buf, reply.octets, reply.count);
	*count = reply.count;
	*time_usecs = reply.extra;
	return 0;
}

static int so_usleep(void *userdata, useconds_t microseconds)
{
	return call("sleep", microseconds + SPIN_US, 0, 0);
}

static int so_gettimeofday(void *userdata, struct timeval *tv, struct timezone *tz)
{
	long long now = ask("time", 0, 0, 0, 0, NULL, 0).extra;

	tv->tv_sec = now / 1000000;
	tv->tv_usec = now % 1000000;
	return 0;
}

/* Calls that no script so far makes: packetdrill would jump to a null pointer. */
static void *refused(void)
{
	fprintf(stderr, "shared_object: a call that it does not have\n");
	exit(EXIT_FAILURE);
}

#define REFUSED ((void *)refused)

void packetdrill_interface_init(const char *flags, struct packetdrill_interface *interface)
{
	if (!flags || sscanf(flags, "%d,%d", &sockets[0], &sockets[1]) != 2) {
		errno = EINVAL;
		give_up("--so_flags");
	}
	main_thread = pthread_self();
	*interface = (struct packetdrill_interface){
		.free = so_free,
		.socket = so_socket,
		.bind = so_bind,
		.listen = so_listen,
		.accept = so_accept,
		.connect = so_connect,
		.read = so_read,
		.readv = REFUSED,
		.recv = so_recv,
		.recvfrom = so_recvfrom,
		.recvmsg = REFUSED,
		.write = so_write,
		.writev = REFUSED,
		.send = so_send,
		.sendto = so_sendto,
		.sendmsg = REFUSED,
		.fcntl = so_fcntl,
		.ioctl = REFUSED,
		.close = so_close,
		.shutdown = so_shutdown,
		.getsockopt = so_getsockopt,
		.setsockopt = so_setsockopt,
		.poll = so_poll,
		.netdev_send = so_netdev_send,
		.netdev_receive = so_netdev_receive,
		.usleep = so_usleep,
		.gettimeofday = so_gettimeofday,
		.epoll_create = REFUSED,
		.epoll_ctl = REFUSED,
		.epoll_wait = REFUSED,
		.pipe = REFUSED,
		.splice = REFUSED,
	};
}

/* In place of those of the C library, in packetdrill's process alone. */

int system(const char *command)
{
	/* The exit status stands where wait() has it. */
	return command ? ask("command", 0, 0, 0, 0, command, strlen(command)).result << 8 : 1;
}

int mlockall(int flags)
{
	return 0;
}

int sched_setscheduler(pid_t pid, int policy, const struct sched_param *param)
{
	return 0;
}

clock_t times(struct tms *buffer)
{
	static clock_t ticks;

	return ++ticks;
}
