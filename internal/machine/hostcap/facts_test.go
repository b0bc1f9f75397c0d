package hostcap

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/sys/fsverity"
)

func TestDecision(t *testing.T) {
	tests := []struct {
		name   string
		facts  KVMFacts
		where  Where
		reason string
		do     string // in one of the checks
	}{
		{"hardware", KVMFacts{Speed: 3e9}, Host, "3000 million", ""},
		{"a machine's own KVM under emulation", KVMFacts{Speed: 2e8}, Host, "200 million", ""},
		{"an emulating KVM is not used although it opens", KVMFacts{Speed: 1.4e6}, Machine, "1.4 million", "uses the machine"},
		{"no device", KVMFacts{OpenErr: errNoDevice}, Machine, "no /dev/kvm", "nested virtualisation"},
		{"no right to open it", KVMFacts{OpenErr: errDenied}, Machine, "may not be opened", "usermod"},
		{"another version", KVMFacts{OpenErr: errors.New("API version 11")}, Machine, "version 11", "uses the machine"},
		{"a capability is missing", KVMFacts{Missing: []string{"KVM_CAP_IOEVENTFD"}, Speed: 3e9}, Machine, "KVM_CAP_IOEVENTFD", "newer kernel"},
		{"the loop hangs", KVMFacts{SpeedErr: errors.New("no answer within 3s")}, Machine, "no answer", "uses the machine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.facts.Decide()
			if got.Where != tt.where || !strings.Contains(got.Reason, tt.reason) || strings.Contains(got.Reason, "\n") {
				t.Errorf("decision is %+v", got)
			}
			var advice string
			bad := false
			for _, c := range tt.facts.Checks() {
				advice += c.Do
				bad = bad || c.Level != OK
			}
			if bad != (tt.where == Machine) || !strings.Contains(advice, tt.do) {
				t.Errorf("checks are %+v", tt.facts.Checks())
			}
		})
	}
}

func TestOpenErrorsAreTold(t *testing.T) {
	wrap := func(err error) error { return &fs.PathError{Op: "open", Path: device, Err: err} }
	if err := openError(wrap(fs.ErrNotExist)); !errors.Is(err, errNoDevice) {
		t.Errorf("missing: %v", err)
	}
	if err := openError(wrap(fs.ErrPermission)); !errors.Is(err, errDenied) {
		t.Errorf("denied: %v", err)
	}
}

func TestCacheIsOfOneBootAndOneDay(t *testing.T) {
	now := time.Now()
	c := cached{BootID: "a", Speed: 2e8, MeasuredAt: now.Add(-time.Hour)}
	old, future, empty := c, c, c
	old.MeasuredAt, future.MeasuredAt, empty.Speed = now.Add(-cacheAge), now.Add(time.Hour), 0
	for name, ok := range map[string]bool{
		"same boot": c.usable("a", now), "another boot": !c.usable("b", now), "unknown boot": !c.usable("", now),
		"too old": !old.usable("a", now), "clock set back": !future.usable("a", now), "no value": !empty.usable("a", now),
	} {
		if !ok {
			t.Errorf("wrong for: %s", name)
		}
	}
	path := filepath.Join(t.TempDir(), "sub", "speed.json")
	writeCache(path, c)
	if got, ok := readCache(path); !ok || got.Speed != c.Speed || got.BootID != "a" {
		t.Errorf("read %+v, %v", got, ok)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := readCache(path); ok {
		t.Error("a damaged cache is believed")
	}
}

func TestHostChecksSayWhatToDo(t *testing.T) {
	poor := HostFacts{Kernel: "6.1.0", AvailableMiB: 100, FreeMiB: 100, DataDir: "/x", KSM: true, Verity: fsverity.ErrUnsupported, Limits: cgroup.Facts{Err: cgroup.ErrUnsupported}, Missing: []Tool{{"mmdebstrap", "mmdebstrap"}}}
	for _, c := range poor.Checks() {
		if c.Level == OK || c.Do == "" {
			t.Errorf("%+v", c)
		}
	}
	rich := HostFacts{Kernel: "6.12", PagemapScan: true, Userfaultfd: true, AvailableMiB: 1 << 20, FreeMiB: 1 << 20}
	for _, c := range rich.Checks() {
		if c.Level != OK || c.Do != "" {
			t.Errorf("%+v", c)
		}
	}
	inMemory := HostFacts{AvailableMiB: 1 << 20, FreeMiB: 1 << 20, InMemory: true}
	if c := inMemory.diskCheck(); c.Level == OK || !strings.Contains(c.Do, InMemoryWarning) {
		t.Errorf("%+v", c)
	}
	if got := freeMiB("/no/such/dir/at/all"); got <= 0 {
		t.Errorf("free space of a directory to come is %d", got)
	}
	if !InMemory("/dev/shm/no/such/dir") || InMemory("/proc") {
		t.Error("a tmpfs is not told from others")
	}
}
