package appliance

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestQueuesAreLengthened borrows sockets of this process: a socket that listens with a backlog of 1 accepts more
// connections afterwards.
func TestQueuesAreLengthened(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := at.(*unix.SockaddrInet4).Port
	if err := lengthenQueues(os.Getpid(), port); err != nil {
		t.Fatal(err)
	}
	// For a listening socket, the kernel reports the backlog in the field that otherwise counts sent data.
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	if info.Sacked < 100 {
		t.Errorf("the backlog is %d", info.Sacked)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := other.Addr().(*net.TCPAddr).Port
	other.Close()
	if err := lengthenQueues(os.Getpid(), gone); err == nil || !strings.Contains(err.Error(), "0 of 1 ports") {
		t.Errorf("a port that nobody listens on: %v", err)
	}
}
