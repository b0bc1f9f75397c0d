package e2e

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is a program on a pseudo-terminal of the test.
type terminal struct {
	t    *testing.T
	pty  *os.File
	cmd  *exec.Cmd
	seen strings.Builder
	came chan string
}

func openTerminal(t *testing.T, cmd *exec.Cmd, rows, cols uint16) *terminal {
	t.Helper()
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, pty: f, cmd: cmd, came: make(chan string)}
	go func() {
		defer close(term.came)
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			if n > 0 {
				term.came <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		f.Close()
		for range term.came { // until the reader ends
		}
	})
	return term
}

func (m *terminal) write(text string) {
	m.t.Helper()
	if _, err := m.pty.WriteString(text); err != nil {
		m.t.Fatal(err)
	}
}

// expect reads until the pattern has arrived, and discards the text before it.
func (m *terminal) expect(pattern string) string {
	m.t.Helper()
	re := regexp.MustCompile(pattern)
	for late := time.After(patience); ; {
		if at := re.FindStringIndex(m.seen.String()); at != nil {
			all := m.seen.String()
			m.seen.Reset()
			m.seen.WriteString(all[at[1]:])
			return all[at[0]:at[1]]
		}
		select {
		case text, ok := <-m.came:
			if !ok {
				m.t.Fatalf("the terminal closed; no %q in %q", pattern, m.seen.String())
			}
			m.seen.WriteString(text)
		case <-late:
			m.t.Fatalf("no %q within %s in %q", pattern, patience, m.seen.String())
		}
	}
}

// wait drains the terminal and returns the exit code.
func (m *terminal) wait() int {
	m.t.Helper()
	for text := range m.came {
		m.seen.WriteString(text)
	}
	var exit *exec.ExitError
	if err := m.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return m.cmd.ProcessState.ExitCode()
}

func TestExecOnATerminal(t *testing.T) {
	d := shared(t)
	id := d.oneSandbox()
	d.unchanged()
	cmd := exec.Command(d.forkd(), "exec", "-it", "-u", "root", "-e", "PS1=ready# ", id, "--", "sh")
	cmd.Env = d.env()
	m := openTerminal(t, cmd, 24, 80)
	m.expect(`ready# `)
	m.write("tty; stty size\n")
	m.expect(`/dev/pts/\d+\r\n24 80\r\n`)
	m.expect(`ready# `)
	if err := pty.Setsize(m.pty, &pty.Winsize{Rows: 40, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	// The new size is sent separately from the keys.
	m.write("until [ \"$(stty size)\" = '40 132' ]; do sleep 0.1; done; echo re''sized\n")
	m.expect(`resized\r\n`)
	m.write("sleep 7705\n")
	m.expect(`sleep 7705\r\n`)
	// The terminal echoes the line before the shell has started the program in the foreground.
	eventually(t, "program on the terminal", func() bool { return d.sleepers(id, "05") == "1" })
	m.write("\x03") // Ctrl-C goes to the program in the guest, not to forkd
	m.expect(`ready# `)
	if n := d.sleepers(id, "05"); n != "0" {
		t.Errorf("Ctrl-C did not end the program")
	}
	m.write("exit 7\n")
	if code := m.wait(); code != 7 {
		t.Errorf("exit code %d, want 7: %q", code, m.seen.String())
	}
}
