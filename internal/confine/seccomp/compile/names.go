//go:build linux

package compile

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
)

// syscalls are the calls that lists may name.
var syscalls = map[string]uint32{
	"accept4":           unix.SYS_ACCEPT4,
	"acct":              unix.SYS_ACCT,
	"add_key":           unix.SYS_ADD_KEY,
	"bind":              unix.SYS_BIND,
	"bpf":               unix.SYS_BPF,
	"chroot":            unix.SYS_CHROOT,
	"clock_gettime":     unix.SYS_CLOCK_GETTIME,
	"clone":             unix.SYS_CLONE,
	"clone3":            unix.SYS_CLONE3,
	"close":             unix.SYS_CLOSE,
	"connect":           unix.SYS_CONNECT,
	"delete_module":     unix.SYS_DELETE_MODULE,
	"epoll_ctl":         unix.SYS_EPOLL_CTL,
	"epoll_pwait":       unix.SYS_EPOLL_PWAIT,
	"epoll_create1":     unix.SYS_EPOLL_CREATE1,
	"eventfd2":          unix.SYS_EVENTFD2,
	"exit":              unix.SYS_EXIT,
	"exit_group":        unix.SYS_EXIT_GROUP,
	"fallocate":         unix.SYS_FALLOCATE,
	"fcntl":             unix.SYS_FCNTL,
	"fdatasync":         unix.SYS_FDATASYNC,
	"finit_module":      unix.SYS_FINIT_MODULE,
	"fsconfig":          unix.SYS_FSCONFIG,
	"fsmount":           unix.SYS_FSMOUNT,
	"fsopen":            unix.SYS_FSOPEN,
	"fspick":            unix.SYS_FSPICK,
	"fstat":             unix.SYS_FSTAT,
	"fstatfs":           unix.SYS_FSTATFS,
	"ftruncate":         unix.SYS_FTRUNCATE,
	"futex":             unix.SYS_FUTEX,
	"getdents64":        unix.SYS_GETDENTS64,
	"geteuid":           unix.SYS_GETEUID,
	"getpeername":       unix.SYS_GETPEERNAME,
	"getpid":            unix.SYS_GETPID,
	"getrandom":         unix.SYS_GETRANDOM,
	"getsockname":       unix.SYS_GETSOCKNAME,
	"getsockopt":        unix.SYS_GETSOCKOPT,
	"gettid":            unix.SYS_GETTID,
	"getuid":            unix.SYS_GETUID,
	"init_module":       unix.SYS_INIT_MODULE,
	"io_uring_enter":    unix.SYS_IO_URING_ENTER,
	"io_uring_register": unix.SYS_IO_URING_REGISTER,
	"io_uring_setup":    unix.SYS_IO_URING_SETUP,
	"ioctl":             unix.SYS_IOCTL,
	"kcmp":              unix.SYS_KCMP,
	"kexec_file_load":   unix.SYS_KEXEC_FILE_LOAD,
	"kexec_load":        unix.SYS_KEXEC_LOAD,
	"keyctl":            unix.SYS_KEYCTL,
	"listen":            unix.SYS_LISTEN,
	"lseek":             unix.SYS_LSEEK,
	"madvise":           unix.SYS_MADVISE,
	"memfd_create":      unix.SYS_MEMFD_CREATE,
	"mmap":              unix.SYS_MMAP,
	"mount":             unix.SYS_MOUNT,
	"mount_setattr":     unix.SYS_MOUNT_SETATTR,
	"move_mount":        unix.SYS_MOVE_MOUNT,
	"mprotect":          unix.SYS_MPROTECT,
	"munmap":            unix.SYS_MUNMAP,
	"name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT,
	"nanosleep":         unix.SYS_NANOSLEEP,
	"newfstatat":        unix.SYS_NEWFSTATAT,
	"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
	"open_tree":         unix.SYS_OPEN_TREE,
	"openat":            unix.SYS_OPENAT,
	"perf_event_open":   unix.SYS_PERF_EVENT_OPEN,
	"pidfd_getfd":       unix.SYS_PIDFD_GETFD,
	"pidfd_open":        unix.SYS_PIDFD_OPEN,
	"pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL,
	"pipe2":             unix.SYS_PIPE2,
	"pivot_root":        unix.SYS_PIVOT_ROOT,
	"ppoll":             unix.SYS_PPOLL,
	"prctl":             unix.SYS_PRCTL,
	"pread64":           unix.SYS_PREAD64,
	"preadv":            unix.SYS_PREADV,
	"process_vm_readv":  unix.SYS_PROCESS_VM_READV,
	"process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
	"ptrace":            unix.SYS_PTRACE,
	"pwrite64":          unix.SYS_PWRITE64,
	"pwritev":           unix.SYS_PWRITEV,
	"quotactl":          unix.SYS_QUOTACTL,
	"read":              unix.SYS_READ,
	"readlinkat":        unix.SYS_READLINKAT,
	"readv":             unix.SYS_READV,
	"reboot":            unix.SYS_REBOOT,
	"recvfrom":          unix.SYS_RECVFROM,
	"recvmsg":           unix.SYS_RECVMSG,
	"renameat":          unix.SYS_RENAMEAT,
	"request_key":       unix.SYS_REQUEST_KEY,
	"restart_syscall":   unix.SYS_RESTART_SYSCALL,
	"rt_sigaction":      unix.SYS_RT_SIGACTION,
	"rt_sigprocmask":    unix.SYS_RT_SIGPROCMASK,
	"rt_sigreturn":      unix.SYS_RT_SIGRETURN,
	"sched_getaffinity": unix.SYS_SCHED_GETAFFINITY,
	"sched_yield":       unix.SYS_SCHED_YIELD,
	"seccomp":           unix.SYS_SECCOMP,
	"sendmsg":           unix.SYS_SENDMSG,
	"sendto":            unix.SYS_SENDTO,
	"setns":             unix.SYS_SETNS,
	"setpriority":       unix.SYS_SETPRIORITY,
	"setsockopt":        unix.SYS_SETSOCKOPT,
	"shutdown":          unix.SYS_SHUTDOWN,
	"sigaltstack":       unix.SYS_SIGALTSTACK,
	"socket":            unix.SYS_SOCKET,
	"socketpair":        unix.SYS_SOCKETPAIR,
	"splice":            unix.SYS_SPLICE,
	"swapoff":           unix.SYS_SWAPOFF,
	"swapon":            unix.SYS_SWAPON,
	"syslog":            unix.SYS_SYSLOG,
	"tgkill":            unix.SYS_TGKILL,
	"umount2":           unix.SYS_UMOUNT2,
	"uname":             unix.SYS_UNAME,
	"unlinkat":          unix.SYS_UNLINKAT,
	"unshare":           unix.SYS_UNSHARE,
	"wait4":             unix.SYS_WAIT4,
	"waitid":            unix.SYS_WAITID,
	"write":             unix.SYS_WRITE,
	"writev":            unix.SYS_WRITEV,
}

// constants are the names of values that lists may compare with.
var constants = map[string]uint32{
	"PID": seccomp.PIDHere, // the process's own id

	"ENOSYS":                  uint32(unix.ENOSYS),
	"PROT_EXEC":               unix.PROT_EXEC,
	"PR_SET_NO_NEW_PRIVS":     unix.PR_SET_NO_NEW_PRIVS,
	"PR_SET_TIMERSLACK":       unix.PR_SET_TIMERSLACK,
	"PR_SET_VMA":              unix.PR_SET_VMA,
	"PR_SET_VMA_ANON_NAME":    unix.PR_SET_VMA_ANON_NAME,
	"PRIO_PROCESS":            unix.PRIO_PROCESS,
	"PRIO_PGRP":               unix.PRIO_PGRP,
	"SECCOMP_SET_MODE_FILTER": unix.SECCOMP_SET_MODE_FILTER,

	"CLONE_NEWUSER": unix.CLONE_NEWUSER,
	"CLONE_VM":      unix.CLONE_VM,
	"CLONE_FS":      unix.CLONE_FS,
	"CLONE_FILES":   unix.CLONE_FILES,
	"CLONE_SIGHAND": unix.CLONE_SIGHAND,
	"CLONE_SETTLS":  unix.CLONE_SETTLS,
	"CLONE_SYSVSEM": unix.CLONE_SYSVSEM,
	"CLONE_THREAD":  unix.CLONE_THREAD,

	// linux/futex.h
	"FUTEX_WAIT": 0, "FUTEX_WAKE": 1, "FUTEX_WAIT_PRIVATE": 128, "FUTEX_WAKE_PRIVATE": 129,

	"F_GETFD":         unix.F_GETFD,
	"F_SETFD":         unix.F_SETFD,
	"F_GETFL":         unix.F_GETFL,
	"F_SETFL":         unix.F_SETFL,
	"F_DUPFD_CLOEXEC": unix.F_DUPFD_CLOEXEC,
	"F_GET_SEALS":     unix.F_GET_SEALS,

	"F_ADD_SEALS":  unix.F_ADD_SEALS,
	"F_SETPIPE_SZ": unix.F_SETPIPE_SZ,

	"AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6, "AF_NETLINK": unix.AF_NETLINK, "AF_UNIX": unix.AF_UNIX,
	// Socket types and flags.
	"STREAM": unix.SOCK_STREAM, "DGRAM": unix.SOCK_DGRAM, "SEQPACKET": unix.SOCK_SEQPACKET, "RAW": unix.SOCK_RAW,
	"CLOEXEC": unix.SOCK_CLOEXEC, "NONBLOCK": unix.SOCK_NONBLOCK,
	"IPPROTO_ICMP": unix.IPPROTO_ICMP, "IPPROTO_ICMPV6": unix.IPPROTO_ICMPV6, "IPPROTO_IPV6": unix.IPPROTO_IPV6,
	"IPPROTO_MPTCP": unix.IPPROTO_MPTCP,
	"IPV6_V6ONLY":   unix.IPV6_V6ONLY, "TCP_INFO": unix.TCP_INFO,
	"SO_PEERCRED": unix.SO_PEERCRED, "SO_BROADCAST": unix.SO_BROADCAST, "SO_REUSEADDR": unix.SO_REUSEADDR,

	"EACCES": uint32(unix.EACCES), "EPROTONOSUPPORT": uint32(unix.EPROTONOSUPPORT),

	"MSG_FASTOPEN":  unix.MSG_FASTOPEN,
	"SOL_SOCKET":    unix.SOL_SOCKET,
	"SO_TYPE":       unix.SO_TYPE,
	"SO_DOMAIN":     unix.SO_DOMAIN,
	"SO_ERROR":      unix.SO_ERROR,
	"SO_LINGER":     unix.SO_LINGER,
	"SO_KEEPALIVE":  unix.SO_KEEPALIVE,
	"IPPROTO_TCP":   unix.IPPROTO_TCP,
	"TCP_NODELAY":   unix.TCP_NODELAY,
	"TCP_KEEPIDLE":  unix.TCP_KEEPIDLE,
	"TCP_KEEPINTVL": unix.TCP_KEEPINTVL,
	"TCP_KEEPCNT":   unix.TCP_KEEPCNT,

	"TUNGETIFF":     unix.TUNGETIFF,
	"TUNSETOFFLOAD": unix.TUNSETOFFLOAD,

	"PAGEMAP_SCAN":        0xc0606610, // linux/fs.h
	"UFFDIO_REGISTER":     0xc020aa00, // linux/userfaultfd.h
	"UFFDIO_WRITEPROTECT": 0xc018aa06,

	// linux/kvm.h, for x86
	"KVM_RUN":              0xae80,
	"KVM_GET_REGS":         0x8090ae81,
	"KVM_SET_REGS":         0x4090ae82,
	"KVM_GET_SREGS":        0x8138ae83,
	"KVM_SET_SREGS":        0x4138ae84,
	"KVM_GET_MSRS":         0xc008ae88,
	"KVM_SET_MSRS":         0x4008ae89,
	"KVM_GET_LAPIC":        0x8400ae8e,
	"KVM_SET_LAPIC":        0x4400ae8f,
	"KVM_SET_CPUID2":       0x4008ae90,
	"KVM_GET_MP_STATE":     0x8004ae98,
	"KVM_SET_MP_STATE":     0x4004ae99,
	"KVM_GET_VCPU_EVENTS":  0x8040ae9f,
	"KVM_SET_VCPU_EVENTS":  0x4040aea0,
	"KVM_GET_DEBUGREGS":    0x8080aea1,
	"KVM_SET_DEBUGREGS":    0x4080aea2,
	"KVM_GET_XSAVE":        0x9000aea4,
	"KVM_SET_XSAVE":        0x5000aea5,
	"KVM_GET_XCRS":         0x8188aea6,
	"KVM_SET_XCRS":         0x4188aea7,
	"KVM_SET_TSC_KHZ":      0xaea2,
	"KVM_GET_TSC_KHZ":      0xaea3,
	"KVM_KVMCLOCK_CTRL":    0xaead,
	"KVM_PRE_FAULT_MEMORY": 0xc040aed5,
	"KVM_SET_DEVICE_ATTR":  0x4018aee1,
	"KVM_GET_DEVICE_ATTR":  0x4018aee2,
	"KVM_GET_IRQCHIP":      0xc208ae62,
	"KVM_SET_IRQCHIP":      0x8208ae63,
	"KVM_GET_CLOCK":        0x8030ae7c,
	"KVM_SET_CLOCK":        0x4030ae7b,
	"KVM_IRQ_LINE":         0x4008ae61,
}

// CallName returns a system call's name in lists, or an empty string.
func CallName(number uint32) string {
	return nameOf(syscalls, number, func(string) bool { return true })
}

// RequestName returns an ioctl's name in lists, or an empty string.
func RequestName(number uint32) string {
	return nameOf(constants, number, func(name string) bool {
		for _, prefix := range []string{"KVM_", "PAGEMAP_", "TUN", "UFFDIO_"} {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	})
}

func nameOf(names map[string]uint32, number uint32, is func(string) bool) string {
	for name, n := range names {
		if n == number && is(name) {
			return name
		}
	}
	return ""
}
