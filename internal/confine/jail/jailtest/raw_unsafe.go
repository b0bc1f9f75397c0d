package jailtest

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raw makes a system call whose arguments are numbers.
func raw(number uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	// SAFETY: callers only pass pointers to memory that they keep alive, as noted at each call.
	r, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// fork creates a process that exits immediately.
func fork() error { return cloneInto(0) }

// cloneInto creates a process in new namespaces.
func cloneInto(flags uintptr) error {
	pid, err := child(flags, false)
	if err != nil {
		return err
	}
	_, err = unix.Wait4(pid, nil, 0, nil)
	return err
}

// child creates a process that exits immediately, or waits to be killed.
//
//go:noinline
func child(flags uintptr, waits bool) (int, error) {
	// SAFETY: no memory is shared: the child has a copy of this stack and makes only raw calls, on its only
	// thread, so Go's runtime never runs in it.
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|flags, 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		for waits {
			unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // forever
		}
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return int(pid), nil
}

// allProcesses creates processes up to the control group's limit, and ends them. Go's runtime exits if it cannot
// create a thread, so it must not need one meanwhile. Therefore only raw calls are used.
func allProcesses() (err error) {
	const most = 400
	pids := make([]int, 0, most)
	for len(pids) < most {
		var pid int
		if pid, err = child(0, true); err != nil {
			break
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		_, _ = raw(unix.SYS_KILL, uintptr(pid), uintptr(unix.SIGKILL))
		_, _ = raw(unix.SYS_WAIT4, uintptr(pid), 0, 0, 0)
	}
	return err
}

// executeDescriptor executes the program at fd.
func executeDescriptor(fd int) error {
	empty, none := [1]byte{}, [1]*byte{}
	// SAFETY: the kernel reads the name and both empty lists during the call.
	_, err := raw(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(&empty)), uintptr(unsafe.Pointer(&none)),
		uintptr(unsafe.Pointer(&none)), unix.AT_EMPTY_PATH)
	runtime.KeepAlive(&empty)
	runtime.KeepAlive(&none)
	return err
}

// setUser changes only the thread's user, unlike package syscall's function.
func setUser(uid uintptr) error {
	_, err := raw(unix.SYS_SETRESUID, uid, uid, uid)
	return err
}

func setGroups() error {
	group := [1]uint32{0}
	// SAFETY: the kernel reads the list during the call.
	_, err := raw(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)))
	runtime.KeepAlive(&group)
	return err
}

func allCapabilities() error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := [2]unix.CapUserData{{Effective: ^uint32(0), Permitted: ^uint32(0)}}
	return unix.Capset(&h, &all[0])
}

// kcmp compares descriptor 0 with another process's.
func kcmp(pid int) error {
	_, err := raw(unix.SYS_KCMP, 1, uintptr(pid), 0, 0, 0)
	return err
}

// filterListener installs a filter that allows every call, with a listener descriptor.
func filterListener() error {
	const newListener = 1 << 3 // SECCOMP_FILTER_FLAG_NEW_LISTENER
	code := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}}
	prog := unix.SockFprog{Len: 1, Filter: &code[0]}
	// SAFETY: the kernel copies the program during the call.
	fd, err := raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, newListener, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(&prog)
	return closed(int(fd), err)
}

// setTimes sets a file's times by its descriptor; the function of package unix goes through /proc.
func setTimes(fd int, times [2]unix.Timespec) error {
	// SAFETY: the kernel reads both times during the call; without a name it uses the descriptor.
	_, err := raw(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)))
	runtime.KeepAlive(&times)
	return err
}

func realTime() error {
	priority := int32(1)
	// SAFETY: the kernel reads the structure, which is one number, during the call.
	_, err := raw(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&priority))) // SCHED_FIFO
	runtime.KeepAlive(&priority)
	return err
}

// realTimeDisk requests the real-time I/O priority class.
func realTimeDisk() error {
	const process, realTime = 1, 1 << 13 // IOPRIO_WHO_PROCESS, IOPRIO_CLASS_RT
	_, err := raw(unix.SYS_IOPRIO_SET, process, 0, realTime)
	return err
}

// readImpliesExec makes all later readable mappings executable, and reverts that.
func readImpliesExec() error {
	const asItIs, bit = 0xffffffff, 0x0400000 // READ_IMPLIES_EXEC
	old, err := raw(unix.SYS_PERSONALITY, asItIs)
	if err == nil {
		_, err = raw(unix.SYS_PERSONALITY, old|bit)
	}
	if err == nil {
		_, err = raw(unix.SYS_PERSONALITY, old)
	}
	return err
}

// descriptorOf requests descriptor 0 of another process through a pidfd.
func descriptorOf(pidfd uintptr) error {
	fd, err := raw(unix.SYS_PIDFD_GETFD, pidfd, 0, 0)
	return closed(int(fd), err)
}

// movePages calls move_pages for another process with an empty list.
func movePages(pid int) error {
	_, err := raw(unix.SYS_MOVE_PAGES, uintptr(pid), 0, 0, 0, 0, 0)
	return err
}

// queueSignal sends signal 0 as sigqueue does.
func queueSignal(pid int) error {
	info := [32]int32{2: -1} // siginfo_t; si_code is SI_QUEUE
	// SAFETY: the kernel reads 128 bytes during the call.
	_, err := raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), 0, uintptr(unsafe.Pointer(&info)))
	runtime.KeepAlive(&info)
	return err
}

// messageQueue creates and removes a POSIX message queue.
func messageQueue() error {
	name := [...]byte{'t', 'a', 'k', 'e', 'n', 0}
	// SAFETY: the kernel reads the name during each call.
	fd, err := raw(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name)), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600, 0)
	if err == nil {
		// SAFETY: as above.
		_, err = raw(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name)))
	}
	runtime.KeepAlive(&name)
	return closed(int(fd), err)
}

// unpeer removes a socket's peer, so that it could get another one.
func unpeer(fd int) error {
	var none [16]byte // of family AF_UNSPEC
	// SAFETY: the kernel reads 16 bytes during the call.
	_, err := raw(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), uintptr(len(none)))
	runtime.KeepAlive(&none)
	return err
}

func bpfMap() error {
	attr := [16]uint32{2, 4, 8, 1} // an array with one element
	// SAFETY: the kernel reads 64 bytes during the call.
	fd, err := raw(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), 64)
	runtime.KeepAlive(&attr)
	return closed(int(fd), err)
}

// perf requests the cycles of all of CPU 0.
func perf() error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	return closed(unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC))
}

func key() error {
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
	return err
}

func ioUring() error {
	var params [120]byte // struct io_uring_params
	// SAFETY: the kernel reads and writes the structure during the call.
	fd, err := raw(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)))
	runtime.KeepAlive(&params)
	return closed(int(fd), err)
}

func userfaultfd() error {
	fd, err := raw(unix.SYS_USERFAULTFD, unix.O_CLOEXEC)
	return closed(int(fd), err)
}

// userfaultfdOfDevice asks every open device for a userfaultfd that also sees kernel faults.
func userfaultfdOfDevice() error {
	failed := errNothing
	for fd := range lastDescriptor {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
			continue
		}
		const newUserfaultfd = 0xaa00
		made, err := raw(unix.SYS_IOCTL, uintptr(fd), newUserfaultfd, unix.O_CLOEXEC)
		if failed = closed(int(made), err); failed == nil {
			return nil
		}
	}
	return failed
}

func module() error {
	_, err := raw(unix.SYS_DELETE_MODULE, 0, 0)
	return err
}

// typeInto simulates a typed character on every descriptor.
func typeInto() error {
	failed := errNothing
	for fd := range uintptr(lastDescriptor) {
		var c [1]byte
		// SAFETY: the kernel reads one byte during the call.
		_, err := raw(unix.SYS_IOCTL, fd, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
		runtime.KeepAlive(&c)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBADF) {
			failed = err
		}
	}
	return failed
}

// setMemory uses an invalid descriptor: a VMM's real VMs would answer only between two runs of a vCPU.
func setMemory() error {
	region := [4]uint64{31} // struct kvm_userspace_memory_region, of no bytes
	// SAFETY: the kernel would read 32 bytes during the call.
	_, err := raw(unix.SYS_IOCTL, ^uintptr(0), 0x4020ae46, uintptr(unsafe.Pointer(&region)))
	runtime.KeepAlive(&region)
	return err
}

// anotherVM asks every open device to create a VM. (On a vCPU's descriptor, the request would wait.)
func anotherVM() error {
	failed := errNothing
	for fd := range lastDescriptor {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
			continue
		}
		const createVM = 0xae01
		if _, failed = raw(unix.SYS_IOCTL, uintptr(fd), createVM, 0); failed == nil {
			return nil
		}
	}
	return failed
}
