package appliance

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
)

// fakeQEMU answers each line with the next of its answers.
func fakeQEMU(t *testing.T, greeting string, answers ...string) (net.Conn, <-chan []string) {
	t.Helper()
	ours, theirs := net.Pipe()
	got := make(chan []string, 1)
	go func() {
		defer theirs.Close()
		var lines []string
		defer func() { got <- lines }()
		if _, err := fmt.Fprintln(theirs, greeting); err != nil {
			return
		}
		s := bufio.NewScanner(theirs)
		for _, a := range answers {
			if !s.Scan() {
				return
			}
			lines = append(lines, s.Text())
			if _, err := fmt.Fprintln(theirs, a); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { ours.Close() })
	return ours, got
}

const qmpHello = `{"QMP": {"version": {}, "capabilities": []}}`

func TestQMPQuit(t *testing.T) {
	c, got := fakeQEMU(t, qmpHello, `{"return": {}}`, `{"event": "SHUTDOWN"}`+"\n"+`{"return": {}}`)
	if _, err := qmpRun(c, qmpCommand{Execute: "quit"}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if lines := <-got; len(lines) != 2 || !strings.Contains(lines[1], `"quit"`) {
		t.Errorf("QEMU got %q", lines)
	}
}

func TestAPortIsForwarded(t *testing.T) {
	c, got := fakeQEMU(t, qmpHello, `{"return": {}}`, `{"return": ""}`)
	reply, err := qmpRun(c, forwarding(40001, 9000))
	if err != nil {
		t.Fatal(err)
	}
	if err := forwarded(reply); err != nil {
		t.Errorf("an empty answer: %v", err)
	}
	c.Close()
	const want = `"command-line":"hostfwd_add net0 tcp:127.0.0.1:40001-:9000"`
	if lines := <-got; len(lines) != 2 || !strings.Contains(lines[1], want) {
		t.Errorf("QEMU got %q, want %s", lines, want)
	}
	if err := forwarded([]byte(`"could not set up host forwarding rule"`)); err == nil {
		t.Error("an answer with text is no error")
	}
}

func TestQMPErrors(t *testing.T) {
	tests := []struct{ name, greeting, answer string }{
		{"not QMP", `{"hello": 1}`, ""},
		{"not JSON", `SSH-2.0`, ""},
		{"a refused command", qmpHello, `{"error": {"class": "GenericError", "desc": "no"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := fakeQEMU(t, tt.greeting, tt.answer)
			if _, err := qmpRun(c, qmpCommand{Execute: "quit"}); err == nil {
				t.Error("no error")
			}
		})
	}
}
