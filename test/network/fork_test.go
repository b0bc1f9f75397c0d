package network

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// openHere opens connections in the source before a fork: an endless download, a datagram socket
// with a remote peer, and servers that listen on eth0 only.
const openHere = `
import subprocess
download = Download("example.com", ` + handPort + `)
sock = datagrams("` + web + `", ` + echoPort + `)
server = Server("192.0.0.2", 8001)
os.makedirs("/tmp/www", exist_ok=True)
open("/tmp/www/hello", "w").write("hello from eth0")
subprocess.Popen(["python3", "-m", "http.server", "8000", "--bind", "192.0.0.2", "-d", "/tmp/www"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
`

// download is the end of a download in a guest.
type download struct {
	outcome
	Got int64
}

func (w *world) downloaded(t *testing.T, id string) (end download) {
	t.Helper()
	eventually(t, "end of the download in "+id, func() bool {
		got := value[*download](t, w, id, `download.out`)
		if got != nil {
			end = *got
		}
		return got != nil
	})
	return end
}

// stream sends noise until it is ended.
type stream struct {
	stop chan struct{}
	done chan error
	size int64
	sum  []byte
}

func send(c net.Conn) *stream {
	s := &stream{stop: make(chan struct{}), done: make(chan error, 1)}
	_ = c.SetDeadline(time.Time{}) // it lasts as long as the test
	go func() {
		defer c.Close()
		sum, tick := sha256.New(), time.NewTicker(20*time.Millisecond)
		defer tick.Stop()
		block := make([]byte, 8<<10)
		for {
			_, _ = rand.Read(block)
			sum.Write(block)
			if _, err := c.Write(block); err != nil {
				s.done <- err
				return
			}
			s.size += int64(len(block))
			select {
			case <-s.stop:
				s.sum = sum.Sum(nil)
				s.done <- nil
				return
			case <-tick.C:
			}
		}
	}()
	return s
}

// end ends the stream, and returns the size and checksum of the sent data.
func (s *stream) end(t *testing.T) (size int64, sum string) {
	t.Helper()
	close(s.stop)
	if err := <-s.done; err != nil {
		t.Fatalf("the far end of the download: %v", err)
	}
	return s.size, hex.EncodeToString(s.sum)
}

func (w *world) dialed(t *testing.T, id string, port uint16) net.Conn {
	t.Helper()
	c, err := w.Client.DialPort(t.Context(), id, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func wantEcho(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if err := echo(c, text); err != nil {
		t.Error(err)
	}
}

// echo sends a text and expects it back.
func echo(c net.Conn, text string) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		return fmt.Errorf("send %q: %w", text, err)
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		return fmt.Errorf("the echo of %q: %q, %v", text, b, err)
	}
	return nil
}

// files sends a request to a sandbox's http.server, which listens on eth0 only.
func (w *world) files(t *testing.T, id string) error {
	t.Helper()
	c, err := w.Client.DialPort(t.Context(), id, 8000)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "GET /hello HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || string(b) != "hello from eth0" {
		return fmt.Errorf("%s serves %d, %q, %v", id, r.StatusCode, b, err)
	}
	return nil
}

// auditLine holds fields of a line in forkd-net's audit log, for the start of a flow.
type auditLine struct {
	Time              time.Time
	Sandbox, Protocol string
	Verdict, Far      string
	Seconds           float64
	Count             int
}

// early waits until each clone's program has connected. It returns an error for each clone with a
// connection before its identity was confirmed.
func (w *world) early(t *testing.T, ids []string) (which map[string]error) {
	var first map[string]time.Time
	for _, id := range ids {
		eventually(t, "connection of "+id, func() bool {
			first = w.firstFlows(t)
			return !first[id].IsZero()
		})
	}
	confirmed, which := w.confirmed(t), map[string]error{}
	for _, id := range ids {
		switch at, known := confirmed[id]; {
		case !known:
			which[id] = fmt.Errorf("the daemon's log does not say when the identity of %s was confirmed", id)
		case first[id].Before(at):
			which[id] = fmt.Errorf("%s sent %s before its identity was confirmed", id, at.Sub(first[id]))
		}
	}
	return which
}

// firstFlows returns the start of each sandbox's first ended flow, with any result.
func (w *world) firstFlows(t *testing.T) map[string]time.Time {
	t.Helper()
	first := map[string]time.Time{}
	for l := range w.netAudit(t) {
		began := l.Time.Add(-time.Duration(l.Seconds * float64(time.Second)))
		if was := first[l.Sandbox]; was.IsZero() || began.Before(was) {
			first[l.Sandbox] = began
		}
	}
	return first
}

// netAudit returns the lines of forkd-net's audit log.
func (w *world) netAudit(t *testing.T) iter.Seq[auditLine] {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.Run, "net", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(auditLine) bool) {
		for text := range strings.Lines(string(b)) {
			var l auditLine
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				continue // the last line, which is incomplete
			}
			if !yield(l) {
				return
			}
		}
	}
}

// deniedTo returns the number of refused flows from the guest to an address since a time, from
// forkd-net's audit log.
func (w *world) deniedTo(t *testing.T, addr string, since time.Time) (n int) {
	t.Helper()
	for l := range w.netAudit(t) {
		if l.Sandbox == w.guest && l.Verdict == "denied" && strings.HasPrefix(l.Far, addr+":") && l.Time.After(since) {
			n += l.Count
		}
	}
	return n
}

var confirmedLine = regexp.MustCompile(`(?m)^time=(\S+) .*msg="identity confirmed" sandbox=(\S+)`)

// confirmed returns the time when each sandbox's identity was first confirmed, from the daemon's
// log. The time is rounded down to milliseconds.
func (w *world) confirmed(t *testing.T) map[string]time.Time {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(w.Dir, "daemon.log"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]time.Time{}
	for _, m := range confirmedLine.FindAllStringSubmatch(string(log), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, known := out[m[2]]; !known { // a rollback confirms it again
			out[m[2]] = at
		}
	}
	return out
}
