//go:build linux

package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxReport is the longest report that is read, in bytes. systemd reads as much.
const maxReport = 4096

// report is a message of sd_notify(3).
type report struct {
	pid   int // of the sender, as the kernel knows it
	ready bool
}

// reports receives the daemon's reports. Any process of the container that reaches the socket can send some, so each
// report has its sender.
type reports struct {
	path string
	conn *net.UnixConn
	c    chan report
	done chan struct{} // closed by close
}

func listen() (*reports, error) {
	dir, err := os.MkdirTemp("", "forkd-init-") // 0700
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := passCredentials(conn); err != nil {
		return nil, errors.Join(err, conn.Close(), os.RemoveAll(dir))
	}
	r := &reports{path: path, conn: conn, c: make(chan report), done: make(chan struct{})}
	go r.loop()
	return r, nil
}

func passCredentials(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err := errors.Join(err, set); err != nil {
		return fmt.Errorf("ask for the senders of reports: %w", err)
	}
	return nil
}

func (r *reports) close() error {
	close(r.done)
	return errors.Join(r.conn.Close(), os.RemoveAll(filepath.Dir(r.path)))
}

func (r *reports) loop() {
	b, oob := make([]byte, maxReport), make([]byte, 1024)
	for {
		n, m, flags, _, err := r.conn.ReadMsgUnix(b, oob)
		if err != nil { // the socket is closed
			return
		}
		got, ok := parse(b[:n], oob[:m], flags)
		if !ok {
			continue
		}
		select {
		case r.c <- got:
		case <-r.done:
			return
		}
	}
}

// parse reads a report that says something about readiness or life. Descriptors that came with it are closed.
func parse(b, oob []byte, flags int) (report, bool) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return report{}, false
	}
	var got report
	for _, m := range messages {
		if fds, err := syscall.ParseUnixRights(&m); err == nil {
			for _, fd := range fds {
				_ = syscall.Close(fd)
			}
		}
		if cred, err := syscall.ParseUnixCredentials(&m); err == nil {
			got.pid = int(cred.Pid)
		}
	}
	alive := false
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		switch string(line) {
		case "READY=1":
			got.ready = true
		case "WATCHDOG=1":
			alive = true
		}
	}
	return got, got.pid != 0 && flags&unix.MSG_TRUNC == 0 && (got.ready || alive)
}
