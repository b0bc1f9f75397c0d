package appliance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/execclient"
)

// Shell runs an interactive shell in the appliance on the caller's terminal and returns its exit code. It always
// restores the terminal.
func Shell(ctx context.Context, c *agentclient.Client, in, out *os.File) (int, error) {
	if !term.IsTerminal(int(in.Fd())) {
		return 0, reasonedError{errors.New("a shell needs a terminal"), "machine_no_terminal", nil}
	}
	saved, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return 0, fmt.Errorf("set the terminal raw: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), saved) }()
	return runShell(ctx, c, in, out)
}

func runShell(ctx context.Context, c *agentclient.Client, in, out *os.File) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	sizes := make(chan execclient.Size)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { watchSize(ctx, out, sizes) })
	size := sizeOf(out)
	s := &execclient.Session{
		Process: c.Process(), Header: http.Header{}, Args: []string{"/bin/sh", "-l"}, Cwd: "/root",
		Env:   map[string]string{"TERM": termName(), "PS1": `\h:\w\$ `},
		Stdin: in, Terminal: &size, Resize: sizes,
		Stdout: func(b []byte) error {
			if _, err := out.Write(b); err != nil {
				return fmt.Errorf("write to the terminal: %w", err)
			}
			return nil
		},
	}
	agentclient.SetUser(s.Header, "root")
	end, err := s.Run(ctx)
	if err != nil {
		return 0, fmt.Errorf("run shell: %w", err)
	}
	return end.ShellCode(), nil
}

func termName() string {
	if t := os.Getenv("TERM"); t != "" && !strings.ContainsAny(t, "\x00\n") {
		return t
	}
	return "linux"
}

func sizeOf(out *os.File) execclient.Size {
	cols, rows, err := term.GetSize(int(out.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		cols, rows = 80, 24
	}
	return execclient.Size{Cols: uint16(cols), Rows: uint16(rows)}
}

// watchSize sends the size of the caller's window on changes, until ctx ends.
func watchSize(ctx context.Context, out *os.File, to chan<- execclient.Size) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	defer signal.Stop(changed)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return
		case to <- sizeOf(out):
		}
	}
}
