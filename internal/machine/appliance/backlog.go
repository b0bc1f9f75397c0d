package appliance

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// queue is the number of connections that may wait to be accepted at a forwarded port. The kernel limits it to
// net.core.somaxconn.
const queue = 4096

// lengthenQueues enlarges the listen queues of QEMU's forwarded ports. QEMU's user network (libslirp 4.8,
// tcpx_listen) listens with a backlog of 1, so if ten clients connect concurrently, the kernel resets some. A
// second listen(2) on a listening socket only changes its backlog, and any process with the socket may call it.
func lengthenQueues(pid int, ports ...int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(process)
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	done := 0
	for _, e := range open {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(target, "socket:") {
			continue // closed meanwhile, or not a socket
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		ok, err := lengthenQueue(process, fd, ports)
		if err != nil {
			return err
		}
		if ok {
			done++
		}
	}
	if done < len(ports) {
		return fmt.Errorf("process %d listens on %d of %d ports", pid, done, len(ports))
	}
	return nil
}

// lengthenQueue enlarges the queue if a descriptor of the process is a socket listening on one of the ports.
func lengthenQueue(process, fd int, ports []int) (bool, error) {
	s, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return false, fmt.Errorf("borrow a socket: %w", err)
	}
	defer unix.Close(s)
	if listens, err := unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 {
		return false, nil // a family without listening sockets, or a connection
	}
	at, err := unix.Getsockname(s)
	if err != nil {
		return false, err
	}
	tcp, ok := at.(*unix.SockaddrInet4)
	if !ok {
		return false, nil
	}
	for _, p := range ports {
		if tcp.Port == p {
			return true, unix.Listen(s, queue)
		}
	}
	return false, nil
}
