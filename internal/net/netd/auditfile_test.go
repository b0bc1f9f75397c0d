package netd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
)

func auditLine(vm, owner, verdict string, i int) control.Line {
	return control.Line{Time: time.Now(), VM: vm, Sandbox: "s-" + vm, Owner: owner, Verdict: verdict, Protocol: "tcp",
		Name: fmt.Sprint(i, ".", strings.Repeat("x", 200)), Far: netip.MustParseAddrPort("192.0.2.1:443")}
}

// readLines reads lines from files. It skips missing files.
func readLines(t *testing.T, paths ...string) (all []control.Line) {
	t.Helper()
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for dec := json.NewDecoder(bytes.NewReader(b)); dec.More(); {
			var l control.Line
			if err := dec.Decode(&l); err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
	}
	return all
}

func linesOf(all []control.Line, vm string) (lines, flows int) {
	for _, l := range all {
		if l.VM == vm {
			lines, flows = lines+1, flows+max(l.Count, 1)
		}
	}
	return lines, flows
}

// If a guest opens or is refused flows without end, its lines are only counted, and other guests'
// lines stay.
func TestAGuestFloodsTheNetworkLog(t *testing.T) {
	const floods = 150_000
	for _, verdict := range []string{control.Allowed, control.Denied} {
		path := filepath.Join(t.TempDir(), "audit.log")
		a, err := newAudit(path, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		a.add(auditLine("quiet", "", control.Denied, 0))
		for i := range floods {
			a.add(auditLine("flood", "", verdict, i))
		}
		a.close()
		all := readLines(t, path+".1", path)
		if n, _ := linesOf(all, "quiet"); n != 1 {
			t.Errorf("%s: the other sandbox has %d lines left, want 1", verdict, n)
		}
		if n, flows := linesOf(all, "flood"); n > 5000 || flows+int(a.lost.Load()) != floods {
			t.Errorf("%s: %d lines count %d flows, %d lost, want %d", verdict, n, flows, a.lost.Load(), floods)
		}
	}
}

// Above its rate a VM can still write for days. It fills only its share of a file, and only its
// tenant's.
func TestASandboxFillsItsShareOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	fs, err := openLogFiles(path, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.close()
	write := func(l control.Line) {
		t.Helper()
		if err := fs.write(l); err != nil {
			t.Fatal(err)
		}
	}
	write(auditLine("operator", "", control.Allowed, 0))
	write(auditLine("quiet", "acme", control.Allowed, 0))
	const floods = 2000
	for i := range floods {
		write(auditLine("flood", "acme", control.Allowed, i))
	}
	acme := readLines(t, path+".tenant-acme.1", path+".tenant-acme")
	if n, _ := linesOf(acme, "quiet"); n != 1 {
		t.Errorf("the tenant's other sandbox has %d lines, want 1", n)
	}
	if n, _ := linesOf(acme, "flood"); n == 0 || n > 30 {
		t.Errorf("the sandbox has %d lines", n)
	}
	if n := len(readLines(t, path+".1", path)); n != 1 {
		t.Errorf("the operator's file has %d lines, want 1", n)
	}
	fs.owners["acme"].began = time.Now().Add(-2 * fileAge)
	write(auditLine("flood", "acme", control.Allowed, 0))
	n, flows := linesOf(readLines(t, path+".tenant-acme.1", path+".tenant-acme"), "flood")
	if flows != floods+1 {
		t.Errorf("%d lines count %d flows, want %d", n, flows, floods+1)
	}
}

// Names that tenants cannot have, and too many tenants, share one file.
func TestFilesOfManyTenants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	fs, err := openLogFiles(path, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.close()
	for i := range maxOwners + 10 {
		if err := fs.write(auditLine("v", fmt.Sprint("t", i), control.Allowed, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.write(auditLine("v", "../x", control.Allowed, 0)); err != nil {
		t.Fatal(err)
	}
	if n := len(readLines(t, path+".tenant-OTHERS")); n != 11 || len(fs.owners) != maxOwners+2 {
		t.Errorf("%d lines in the shared file, %d files", n, len(fs.owners))
	}
}
