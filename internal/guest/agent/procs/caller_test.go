package procs

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/command"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/reap"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// A caller disconnects as soon as it has the end of a command. This must not kill background
// processes of the command.
func TestACallerThatHangsUpAfterTheEnd(t *testing.T) {
	reaper := reap.New(false)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = reaper.Run(ctx) }()
	fifo, out := filepath.Join(t.TempDir(), "fifo"), filepath.Join(t.TempDir(), "out")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd, err := command.New(command.Spec{
		Program: "sh", Args: []string{"-c", `(read x <"$0"; echo "$x" >"$1") >/dev/null 2>&1 &`, fifo, out},
	}, account.User{}, &defaults.Record{})
	if err != nil {
		t.Fatal(err)
	}
	table := &Table{reaper: reaper, groups: procgroup.Open(t.TempDir(), "none"), gate: new(sync.RWMutex)}
	p, outs, err := table.start(cmd, &process.ProcessInfo{}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	go p.run(outs)
	<-p.child.Done()
	p.killWithCaller(t.Context())
	<-p.ended
	if _, err := in.WriteString("lives\n"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if b, _ := os.ReadFile(out); string(b) == "lives\n" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the background program was killed with its caller")
		}
	}
}
