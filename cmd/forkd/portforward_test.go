//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// guestPorts returns the servers in the fake's sandboxes. Port 80 answers when all input has
// arrived.
func guestPorts() map[uint16]func(net.Conn) {
	return map[uint16]func(net.Conn){80: func(c net.Conn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "answer to %s", b)
	}}
}

// forwardCommand runs forkd port-forward ARG..., waits for N addresses, connects to each, sends a
// line to each, and ends the command by Ctrl-C: forward N forkd ARG... The output is in the files
// out and err, the answers are in answers.
func forwardCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "forkd" {
		ts.Fatalf("usage: forward N forkd ARG...")
	}
	ts.Check(ts.Exec("sh", "-c", "command -v forkd"))
	cmd := exec.Command(strings.TrimSpace(ts.ReadFile("stdout")), args[2:]...)
	for _, name := range []string{"HOME", "FORKD_URL", "FORKD_TOKEN", "XDG_RUNTIME_DIR", "PATH"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	errs, err := os.Create(ts.MkAbs("err"))
	ts.Check(err)
	defer errs.Close()
	cmd.Stderr = errs
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	var printed, answers strings.Builder
	lines := bufio.NewScanner(out)
	for range int(args[0][0] - '0') {
		if !lines.Scan() {
			break
		}
		fmt.Fprintln(&printed, lines.Text())
		local, _, _ := strings.Cut(lines.Text(), " -> ")
		answers.WriteString(askLocal(local) + "\n")
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		ts.Fatalf("port-forward ended with %v: %s", err, ts.ReadFile("err"))
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(printed.String()), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("answers"), []byte(answers.String()), 0o600))
}

// askLocal sends a line and closes the sending direction. It returns the answer.
func askLocal(address string) string {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, "a question")
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestTroublesAreCounted(t *testing.T) {
	now := time.Unix(1000, 0)
	var said []string
	var ended error
	_, end := context.WithCancelCause(t.Context())
	tr := &troubles{say: func(s string) { said = append(said, s) }, now: func() time.Time { return now },
		end: func(err error) { ended = err; end(err) }}
	for range 5 {
		tr.note(errors.New("refused"))
	}
	tr.note(errors.New("another"))
	now = now.Add(2 * time.Second)
	tr.note(errors.New("refused"))
	if got := strings.Join(said, "|"); got != "refused|another|refused (6 times)" {
		t.Errorf("said %q", got)
	}
	if ended != nil {
		t.Errorf("ended with %v", ended)
	}
	if tr.note(&client.Error{Code: api.CodeNotFound, Message: "not found"}); ended == nil {
		t.Error("a sandbox that is gone did not end it")
	}
}
