package hostnet

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace runs a test's body in its own network namespace.
func inNamespace(t *testing.T, body func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		body()
	}()
	if err := <-done; err != nil {
		t.Skipf("no network namespace of its own: %v", err)
	}
}

// addTap creates a persistent tap, or returns the reason why it cannot.
func addTap(t *testing.T, name string, mode netlink.TuntapMode, flags netlink.TuntapFlag) bool {
	err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: mode, Flags: flags})
	if err != nil {
		t.Logf("no tap can be made: %v", err)
	}
	return err == nil
}

func TestATapThatIsThereIsOpenedOnceAndStays(t *testing.T) {
	made := false
	inNamespace(t, func() {
		if made = addTap(t, "tap0", netlink.TUNTAP_MODE_TAP, netlink.TUNTAP_NO_PI); !made {
			return
		}
		taps := Taps{"tap*"}
		f, err := taps.Open("tap0")
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		if _, err := taps.Open("tap0"); !errors.Is(err, ErrBusy) || !errors.Is(err, syscall.EBUSY) {
			t.Errorf("a second time: %v", err)
		}
		f.Close()
		if f, err = taps.Open("tap0"); err != nil {
			t.Errorf("after it was closed: %v", err)
			return
		}
		f.Close()
	})
	if !made {
		t.Skip("no tap can be made here")
	}
}

func TestNoTapIsMade(t *testing.T) {
	made := false
	inNamespace(t, func() {
		if made = addTap(t, "tun0", netlink.TUNTAP_MODE_TUN, netlink.TUNTAP_NO_PI) &&
			addTap(t, "wide", netlink.TUNTAP_MODE_TAP, netlink.TUNTAP_NO_PI|netlink.TUNTAP_MULTI_QUEUE); !made {
			return
		}
		taps := Taps{"tap0", "tun0", "wide", "lo"}
		for name, want := range map[string]string{
			"tap0": "no such device", "tun0": "not a tap with one queue", "wide": "not a tap with one queue", "lo": "not a tap",
		} {
			if f, err := taps.Open(name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, %v, want %q", name, f, err, want)
			}
		}
		if _, err := netlink.LinkByName("tap0"); err == nil {
			t.Error("tap0 was made")
		}
	})
	if !made {
		t.Skip("no tap can be made here")
	}
}
