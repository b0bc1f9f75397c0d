//go:build linux

package main

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/machine/hostcap"
	"github.com/forkd/forkd/internal/sys/linux"
	spawner "github.com/forkd/forkd/internal/vm/spawner/client"
)

// Each missing part has a line with its remedy and the behaviour without it.
func TestDoctorSaysWhatToDoAboutAMissingPart(t *testing.T) {
	var r spawner.Report
	for _, c := range jailReport(r) {
		if c.Level != hostcap.OK || c.Do != "" {
			t.Errorf("nothing is missing: %+v", c)
		}
	}
	r.Userfaultfd = errors.New("permission denied")
	for p := range r.Failed {
		r.Failed[p] = unix.EPERM
	}
	checks := jailReport(r)
	if len(checks) != int(jail.Parts)+1 {
		t.Errorf("%d lines", len(checks))
	}
	for i, c := range checks {
		refused := strings.Contains(c.Do, "--jail strict does not serve")
		if c.Level != hostcap.Note || c.Do == "" || strings.HasPrefix(c.Do, ";") ||
			i < int(jail.Parts) && refused == jail.Part(i).Optional() {
			t.Errorf("%+v", c)
		}
	}
	r.Userfaultfd = &linux.Unsupported{Feature: "it", Since: "6.7", Err: unix.EINVAL}
	if c := jailReport(r)[jail.Parts]; !strings.Contains(c.Do, "Linux 6.7") || strings.Contains(c.Do, "let the daemon's user") {
		t.Errorf("of a kernel that is too old: %+v", c)
	}
	if got := remedy(jail.User, unix.ENOSPC); !strings.Contains(got, "user.max_user_namespaces") {
		t.Errorf("user namespaces are used up: %s", got)
	}
}

func TestDoctorSaysWhatTheDaemonKeeps(t *testing.T) {
	for _, c := range []hostcap.Check{selfCheck(), usersCheck(nil), usersCheck(errors.New("no")), netSandboxCheck()} {
		if c.Name == "" || c.Detail == "" || c.Level == hostcap.Note && c.Do == "" && c.Name != "jail: user per VM" {
			t.Errorf("%+v", c)
		}
	}
}
