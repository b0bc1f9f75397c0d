package client

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func TestTheNetworkIsOpenedAndReplaced(t *testing.T) {
	s, p := serveProcess(t, nil)
	ctx := t.Context()
	var got []*os.File
	s.vm.Look(func(what string, f *os.File) {
		if what == "restore net" || what == "net file" || what == "open net" && f != nil {
			got = append(got, f)
		}
	})
	if err := mustSpawn(t, behaveWell, nil).OpenNet(ctx, nil); !errors.Is(err, vmm.ErrState) {
		t.Errorf("a shell's network is opened: %v", err)
	}
	first, far := pair(t)
	if _, err := p.Restore(ctx, vmm.RestoreConfig{State: vmctltest.File(t, "state"), CID: 3, Net: first}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.OpenNet(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	second, _ := pair(t)
	if err := p.SetNet(ctx, second); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("%d files arrived", len(got))
	}
	if _, err := got[0].WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	first.Close()
	b := make([]byte, 9)
	if n, err := far.Read(b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("through the first came %q, %v", b[:n], err)
	}
	if calls := s.vm.Calls(); calls[len(calls)-1] != "net" {
		t.Errorf("the VM was asked for %q", calls)
	}
	got[0].Close()
	if _, err := far.Read(b); err != io.EOF {
		t.Errorf("an end stays open: %v", err)
	}
	third, far := pair(t)
	if err := p.OpenNet(ctx, third); err != nil || len(got) != 3 {
		t.Fatalf("opened with a file: %v, %d files arrived", err, len(got))
	}
	third.Close()
	got[2].Close()
	if _, err := far.Read(b); err != io.EOF {
		t.Errorf("an end stays open: %v", err)
	}
}

// wireEnd is a VM's end of its wire.
func wireEnd(t *testing.T) *os.File {
	t.Helper()
	f, _ := pair(t)
	return f
}

// pair returns both ends of a packet socket.
func pair(t *testing.T) (f *os.File, far net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f = os.NewFile(uintptr(fds[0]), "near")
	other := os.NewFile(uintptr(fds[1]), "far")
	defer other.Close()
	if far, err = net.FileConn(other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); far.Close() })
	return f, far
}
