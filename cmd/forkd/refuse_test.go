package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/sys/platform"
)

// Each command that runs VMs on this host refuses in one sentence, with any arguments.
func TestCommandsThatRunVMsRefuseElsewhere(t *testing.T) {
	for _, line := range []string{
		"serve", "serve --listen tcp://127.0.0.1:0", "doctor --json", "machine", "machine start --cpus 2", "demo -n 3",
		"image build recipes/base",
	} {
		a := &app{Printer: ui.Printer{Out: io.Discard, Err: io.Discard}}
		root := newRoot(a)
		refuse(root, platform.Check("linux", "arm64"))
		root.SetArgs(strings.Fields(line))
		_, err := root.ExecuteC()
		if !errors.Is(err, platform.ErrUnsupported) || kindOf(err) != api.CodeUnsupported {
			t.Errorf("forkd %s: %v, want a refusal", line, err)
		}
	}
}

// A wrong name in the list would leave its command unprotected.
func TestCommandsThatNeedVMsExist(t *testing.T) {
	root := newRoot(&app{})
	for _, name := range needVMs() {
		if cmd, _, err := root.Find(strings.Fields(name)); err != nil || cmd.CommandPath() != "forkd "+name {
			t.Errorf("forkd %s: found %v, %v", name, cmd.CommandPath(), err)
		}
	}
}
