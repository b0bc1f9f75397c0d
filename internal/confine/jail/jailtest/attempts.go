package jailtest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// attempts begin with files and end with the exhaustion of resources.
var attempts = []Attempt{
	{"a file of the host", func(w World) error { return open("/etc/passwd", unix.O_RDONLY) }},
	{"a file of the daemon", func(w World) error { return open(w.File, unix.O_RDONLY) }},
	{"the root", func(World) error { return open("/", unix.O_RDONLY|unix.O_DIRECTORY) }},
	{"above the root", func(World) error { return open("../../../../etc/passwd", unix.O_RDONLY) }},
	{"/proc of itself", func(World) error { return open("/proc/self/status", unix.O_RDONLY) }},
	{"/proc of another", func(w World) error { return open(fmt.Sprintf("/proc/%d/mem", w.PID), unix.O_RDWR) }},
	{"a descriptor by /proc", func(World) error { return open("/proc/self/fd/6", unix.O_RDWR) }},
	{"a device", func(World) error { return open("/dev/null", unix.O_RDWR) }},
	{"KVM by its name", func(World) error { return open("/dev/kvm", unix.O_RDWR) }},
	{"a new file", func(World) error { return open("/new", unix.O_RDWR|unix.O_CREAT) }},
	{"a file without a name", func(World) error { return open("/", unix.O_RDWR|unix.O_TMPFILE) }},
	{"a file by openat2", openat2},
	{"a file by its handle", handle},
	{"a device node", func(World) error { return unix.Mknod("/kvm", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 232))) }},
	{"a directory", func(World) error { return unix.Mkdir("/new", 0o700) }},
	{"a link to what it has", link},
	{"removing a file", func(w World) error { return unix.Unlink(w.File) }},
	{"cutting a file", func(w World) error { return unix.Truncate(w.File, 0) }},
	{"removing the root", func(World) error { return unix.Unmount("/", unix.MNT_DETACH) }},

	{"writing what it may read", eachReadOnly(func(fd int) error { _, err := unix.Pwrite(fd, []byte{1}, 0); return err })},
	{"cutting what it may read", eachReadOnly(func(fd int) error { return unix.Ftruncate(fd, 0) })},
	{"a hole in what it may read", eachReadOnly(func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
	})},
	{"mapping what it may read for writing", eachReadOnly(func(fd int) error {
		b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			_ = unix.Munmap(b)
		}
		return err
	})},
	{"rights of what it may read", eachReadOnly(chmod)},
	{"times of what it may read", eachReadOnly(touch)},
	{"making what it may read writable in memory", eachReadOnly(writableInMemory)},
	{"a lock on what it may read", eachReadOnly(func(fd int) error {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			err = unix.Flock(fd, unix.LOCK_UN)
		}
		return err
	})},
	{"a record lock on what it may read", eachReadOnly(recordLock)},
	{"a lease on what it may read", eachReadOnly(lease)}, // processes that open it for writing would wait
	{"watching files", func(World) error { return closed(unix.FanotifyInit(unix.FAN_REPORT_FID|unix.FAN_CLOEXEC, 0)) }},

	{"a program of the host", func(World) error { return unix.Exec("/bin/sh", []string{"sh", "-c", "true"}, nil) }},
	{"its own program", func(World) error { return unix.Exec("/proc/self/exe", []string{"forkd-vmm"}, nil) }},
	{"a program from memory", programFromMemory},
	{"a process", func(World) error { return fork() }},
	{"a process in a namespace", func(World) error { return cloneInto(unix.CLONE_NEWUSER) }},
	{"executable memory", executableMemory},
	{"memory made executable", madeExecutable},
	{"memory that is executable as it can be read", func(World) error { return readImpliesExec() }},
	{"a file in memory", func(World) error { return closed(unix.MemfdCreate("taken", unix.MFD_CLOEXEC)) }},

	{"tracing a process", func(w World) error { return unix.PtraceAttach(w.PID) }},
	{"a process's memory", func(w World) error { return readMemory(w.PID) }},
	{"writing a process's memory", func(w World) error { return writeMemory(w.PID) }},
	{"a handle of a process", func(w World) error { return closed(unix.PidfdOpen(w.PID, 0)) }},
	{"a descriptor of a process", func(World) error { return descriptorOf(^uintptr(0)) }},
	{"a process's pages", func(w World) error { return movePages(w.PID) }},
	{"a signal to a process", func(w World) error { return unix.Kill(w.PID, 0) }},
	{"signals to all", func(World) error { return unix.Kill(-1, 0) }},
	{"a signal to a thread", func(w World) error { return unix.Tgkill(w.PID, w.PID, 0) }},
	{"a queued signal", func(w World) error { return queueSignal(w.PID) }},
	{"signals of a file", func(w World) error {
		_, err := unix.FcntlInt(0, unix.F_SETOWN, w.PID)
		return err
	}},
	{"another's CPUs", func(w World) error {
		all := unix.CPUSet{}
		all.Fill()
		return unix.SchedSetaffinity(w.PID, &all)
	}},
	{"another's priority", func(w World) error { return unix.Setpriority(unix.PRIO_PROCESS, w.PID, 5) }},
	{"another's limits", func(w World) error { return unix.Prlimit(w.PID, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}) }},
	{"comparing with a process", func(w World) error { return kcmp(w.PID) }},
	{"memory that others can share", func(World) error { return sharedMemory() }},
	{"a message queue", func(World) error { return messageQueue() }},

	{"an abstract socket", func(w World) error {
		return connect(unix.AF_UNIX, &unix.SockaddrUnix{Name: "@" + w.Abstract})
	}},
	{"a socket by its path", func(w World) error { return connect(unix.AF_UNIX, &unix.SockaddrUnix{Name: w.Socket}) }},
	{"TCP to the host", func(w World) error {
		return connect(unix.AF_INET, &unix.SockaddrInet4{Port: w.TCP, Addr: [4]byte{127, 0, 0, 1}})
	}},
	{"a TCP listener", func(World) error { return bind(unix.AF_INET, &unix.SockaddrInet4{}) }},
	{"an abstract name", func(World) error { return bind(unix.AF_UNIX, &unix.SockaddrUnix{Name: "@taken"}) }},
	{"a raw socket", func(World) error { return closed(unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)) }},
	{"a packet socket", func(World) error { return closed(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)) }},
	{"a vsock of the host", func(World) error { return closed(unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)) }},
	{"another peer of its socket", func(World) error { return eachSocket(unpeer) }},
	{"a program on its socket", func(World) error { return eachSocket(attachProgram) }},

	{"a mount", func(World) error { return unix.Mount("none", "/", "tmpfs", 0, "") }},
	{"a file system", func(World) error { return closed(unix.Fsopen("tmpfs", 0)) }},
	{"chroot", func(World) error { return unix.Chroot("/") }},
	{"pivot_root", func(World) error { return unix.PivotRoot(".", ".") }},
	{"a network namespace", func(World) error { return unix.Unshare(unix.CLONE_NEWNET) }},
	{"a mount namespace", func(World) error { return unix.Unshare(unix.CLONE_NEWNS) }},
	{"a namespace by a descriptor", func(World) error { return unix.Setns(0, 0) }},
	{"another host name", func(World) error { return unix.Sethostname([]byte("taken")) }},

	{"another user", func(World) error { return setUser(0xfffe) }},
	{"root", func(World) error { return setUser(0) }},
	{"a group", func(World) error { return setGroups() }},
	{"a capability", func(World) error { return allCapabilities() }},
	{"a capability by an exec", func(World) error {
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
	}},
	{"new privileges again", func(World) error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) }},
	{"other securebits", func(World) error { return unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0) }},
	{"being dumped", func(World) error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }},
	{"a filter with a listener", func(World) error { return filterListener() }},
	{"no filter", func(World) error { return unix.Prctl(unix.PR_SET_SECCOMP, 0, 0, 0, 0) }},

	{"more descriptors", func(World) error { return limit(unix.RLIMIT_NOFILE, 1<<16) }},
	{"core dumps", func(World) error { return limit(unix.RLIMIT_CORE, 1<<20) }},
	{"larger files", func(World) error { return limit(unix.RLIMIT_FSIZE, unix.RLIM_INFINITY) }},
	{"locked memory", lock},
	{"a raised priority", func(World) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -20) }},
	{"real time", func(World) error { return realTime() }},
	{"a raised priority of its disk", func(World) error { return realTimeDisk() }},

	{"a BPF map", func(World) error { return bpfMap() }},
	{"performance counters", func(World) error { return perf() }},
	{"a key", func(World) error { return key() }},
	{"io_uring", func(World) error { return ioUring() }},
	{"userfaultfd", func(World) error { return userfaultfd() }},
	{"a userfaultfd of the device", func(World) error { return userfaultfdOfDevice() }},
	{"a kernel module", func(World) error { return module() }},
	{"the clock", setClock},
	{"a restart of the host", func(World) error { return unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) }},
	{"the kernel's log", func(World) error { _, err := unix.Klogctl(3, make([]byte, 64)); return err }},
	{"another VM", func(World) error { return anotherVM() }},
	{"typing into a terminal", func(World) error { return typeInto() }},
	{"a slot of memory", func(World) error { return setMemory() }},
	{"all processes that there can be", func(World) error { return allProcesses() }},     // limited by the control group
	{"all descriptors that there can be", func(World) error { return allDescriptors() }}, // limited by the resource limit
}

func open(name string, flags int) error {
	return closed(unix.Open(name, flags|unix.O_CLOEXEC, 0o600))
}

func openat2(World) error {
	return closed(unix.Openat2(unix.AT_FDCWD, "/etc/passwd", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC}))
}

// handle opens inode 2, which is the root of many file systems, through the current directory.
func handle(World) error {
	h := unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	return closed(unix.OpenByHandleAt(unix.AT_FDCWD, h, unix.O_RDONLY))
}

// link gives a name to an open file.
func link(World) error {
	return eachRegular(func(fd int) error { return unix.Linkat(fd, "", unix.AT_FDCWD, "/new", unix.AT_EMPTY_PATH) })
}

// chmod and touch set the current values again. Without the right to change them, that fails, too.
func chmod(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return unix.Fchmod(fd, st.Mode&0o7777)
}

func touch(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return setTimes(fd, [2]unix.Timespec{st.Atim, st.Mtim})
}

func setClock(World) error {
	var now unix.Timeval
	if err := unix.Gettimeofday(&now); err != nil {
		return err
	}
	return unix.Settimeofday(&now)
}

// lastDescriptor is higher than any descriptor of an idle process.
const lastDescriptor = 256

// eachRegular tries an action with all open regular files. It succeeds if the action succeeds with one of them.
func eachRegular(try func(fd int) error) error {
	failed := errNothing
	for fd := range lastDescriptor {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if failed = try(fd); failed == nil {
			return nil
		}
	}
	return failed
}

// eachReadOnly is eachRegular with the files open for reading only.
func eachReadOnly(try func(fd int) error) func(World) error {
	return func(World) error {
		failed := errNothing
		err := eachRegular(func(fd int) error {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err != nil || flags&(unix.O_ACCMODE|unix.O_PATH) != unix.O_RDONLY || isProc(fd) {
				return failed
			}
			failed = try(fd)
			return failed
		})
		return err
	}
}

// isProc reports whether fd is in /proc. A VMM has its own pagemap open, which is not a shared file.
func isProc(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}

// recordLock takes and releases a lock, as the layer store does on its own file.
func recordLock(fd int) error {
	l := unix.Flock_t{Type: unix.F_RDLCK, Len: 1}
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l)
	if err == nil {
		l.Type = unix.F_UNLCK
		err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l)
	}
	return err
}

func lease(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return err
}

// writableInMemory maps a file for reading, which is allowed, and then requests write access.
func writableInMemory(fd int) error {
	b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(b) }()
	return unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE)
}

// sharedMemory creates and removes a System V segment.
func sharedMemory() error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600)
	if err == nil {
		_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	return err
}

// eachSocket tries an action with all open sockets. It succeeds if the action succeeds with one of them.
func eachSocket(try func(fd int) error) error {
	failed := errNothing
	for fd := range lastDescriptor {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			continue
		}
		if failed = try(fd); failed == nil {
			return nil
		}
	}
	return failed
}

// attachProgram attaches a packet filter that accepts whole packets, and detaches it.
func attachProgram(fd int) error {
	code := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fffffff}}
	prog := unix.SockFprog{Len: 1, Filter: &code[0]}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	}
	return err
}

func connect(family int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, to)
}

func bind(family int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, to); err != nil {
		return err
	}
	return unix.Listen(fd, 1)
}

func readMemory(pid int) error {
	var b [1]byte
	ours, theirs := []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}
	_, err := unix.ProcessVMReadv(pid, ours, theirs, 0)
	return err
}

func writeMemory(pid int) error {
	var b [1]byte
	ours, theirs := []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}
	_, err := unix.ProcessVMWritev(pid, ours, theirs, 0)
	return err
}

func limit(resource int, most uint64) error {
	return unix.Prlimit(0, resource, &unix.Rlimit{Cur: most, Max: most}, nil)
}

func lock(World) error {
	b, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(b) }()
	return unix.Mlock(b)
}

func executableMemory(World) error {
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err == nil {
		err = unix.Munmap(b)
	}
	return err
}

func madeExecutable(World) error {
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(b) }()
	return unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC)
}

// programFromMemory executes an invalid program: if the error is ENOEXEC, only its content prevented it.
func programFromMemory(World) error {
	fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, make([]byte, 64)); err != nil {
		return err
	}
	return executeDescriptor(fd)
}

// allDescriptors opens descriptors up to the limit, which is far below most in a jail.
func allDescriptors() (err error) {
	const most = 1 << 16
	var got []int
	for len(got) < most {
		var fd int
		if fd, err = unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0); err != nil {
			break
		}
		got = append(got, fd)
	}
	for _, fd := range got {
		unix.Close(fd)
	}
	return err
}
