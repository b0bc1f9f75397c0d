//go:build linux

package unixfd

import (
	"encoding/binary"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func ends(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	x, y, err := Pair(unix.SOCK_SEQPACKET, "test")
	if err != nil {
		t.Fatal(err)
	}
	return conn(t, x), conn(t, y)
}

func conn(t *testing.T, f *os.File) *net.UnixConn {
	t.Helper()
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn)
}

func TestFilesArriveAndStayPolled(t *testing.T) {
	a, b := ends(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	oob, err := Rights(r, w)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.WriteMsgUnix([]byte{1}, oob, nil); err != nil {
		t.Fatal(err)
	}
	if flags, err := number(r); err != nil {
		t.Fatal(err)
	} else if mode, err := unix.FcntlInt(uintptr(flags), unix.F_GETFL, 0); err != nil || mode&unix.O_NONBLOCK == 0 {
		t.Errorf("the file that was sent blocks now: %#x, %v", mode, err)
	}
	w.Close()
	got := make([]byte, unix.CmsgSpace(4*4))
	_, n, _, _, err := b.ReadMsgUnix(make([]byte, 1), got)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := Taken(got[:n])
	if err != nil || len(fds) != 2 {
		t.Fatalf("taken: %v, %v", fds, err)
	}
	files := Files(fds, "taken")
	if _, err := files[1].WriteString("through"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	if k, err := files[0].Read(buf); err != nil || string(buf[:k]) != "through" {
		t.Errorf("read %q, %v", buf[:k], err)
	}
	CloseAll(files)
}

func TestNothingIsTakenOfNothing(t *testing.T) {
	if oob, err := Rights(); oob != nil || err != nil {
		t.Errorf("rights of no files: %v, %v", oob, err)
	}
	if fds, err := Taken(nil); fds != nil || err != nil {
		t.Errorf("taken of nothing: %v, %v", fds, err)
	}
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if _, err := Rights(closed); err == nil {
		t.Error("rights of a closed file")
	}
}

// Descriptors in control data with other content are closed.
func TestWhatComesWithBadControlDataIsClosed(t *testing.T) {
	fd, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	oob := append(unix.UnixRights(fd), unix.UnixCredentials(&unix.Ucred{Pid: 1})...)
	if fds, err := Taken(oob); err == nil {
		t.Fatalf("taken: %v", fds)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor is open: %v", err)
	}
}

// Descriptors before a truncated number are closed, and the data is not read past its end.
func TestACutDescriptorIsRefused(t *testing.T) {
	fd, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, oob := range [][]byte{cut(unix.UnixRights(1<<20), 3), cut(unix.UnixRights(fd, 1<<20), 1)} {
		if fds, err := Taken(oob); err == nil {
			t.Fatalf("taken: %v", fds)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor is open: %v", err)
	}
}

// cut removes n bytes of the message's data but keeps its space.
func cut(oob []byte, n int) []byte {
	binary.NativeEndian.PutUint64(oob, binary.NativeEndian.Uint64(oob)-uint64(n))
	return oob
}

// The kernel writes control data, but its length varies: truncated anywhere, it is either rejected or whole.
func FuzzTaken(f *testing.F) {
	f.Add([]byte{})
	f.Add(unix.UnixCredentials(&unix.Ucred{}))
	f.Add(cut(unix.UnixRights(1<<20), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		msgs, err := unix.ParseSocketControlMessage(b)
		if err == nil {
			for i := range msgs {
				if fds, _ := rights(msgs[i]); len(fds) > 0 {
					t.Skip("it names descriptors of this process")
				}
			}
		}
		if fds, err := Taken(b); len(fds) > 0 {
			t.Errorf("taken: %v, %v", fds, err)
		}
	})
}
