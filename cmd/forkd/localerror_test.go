package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
)

// Errors of this host's files and addresses have the exit codes of the table. A flag with a wrong
// value is a mistake on the command line. An error of the daemon keeps its code.
func TestLocalErrorsHaveCodesOfTheTable(t *testing.T) {
	dir := t.TempDir()
	_, missing := os.ReadFile(filepath.Join(dir, "nope"))
	exists := os.Mkdir(dir, 0o700)
	_, directory := os.ReadFile(dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken := new(net.ListenConfig).Listen(t.Context(), "tcp", l.Addr().String())
	_, foreign := net.Listen("tcp", "192.0.2.1:0")
	_, malformed := net.Listen("tcp", "1.2.3")
	_, url := client.New(client.Options{URL: "tcp://127.0.0.1:99999"})
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"missing file":           {missing, 3},
		"existing file":          {exists, 4},
		"directory":              {directory, 2},
		"permission":             {&os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, 10},
		"full disk":              {&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, 9},
		"port in use":            {taken, 4},
		"address of others":      {foreign, 2},
		"malformed address":      {malformed, 2},
		"port of no address":     {exit.UsageError{Err: url}, 2},
		"missing file of a flag": {exit.UsageError{Err: fmt.Errorf("--x: %w", missing)}, 2},
		"flag":                   {exit.UsageError{Err: errors.New("x")}, 2},
		"the daemon's error":     {fmt.Errorf("%w: %w", &client.Error{Code: api.CodeTimeout}, missing), 8},
		"interruption":           {context.Canceled, 130},
		"other":                  {errors.New("x"), 1},
	} {
		if c.err == nil || codeOf(nil, c.err) != c.want {
			t.Errorf("%s: %v has exit code %d, want %d", name, c.err, codeOf(nil, c.err), c.want)
		}
	}
}
