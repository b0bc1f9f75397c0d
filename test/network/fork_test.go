package network

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
)

// openHere opens in the source what a fork meets: a download that goes on, a datagram socket with a
// far end, servers that listen on eth0 alone, and a program that connects again and again.
const openHere = `
import subprocess
download = Download("example.com", ` + handPort + `, "/tmp/download")
sock = datagrams("` + web + `", ` + echoPort + `)
server = Server("192.0.0.2", 8001)
caller = Caller("` + web + `", ` + echoPort + `)
os.makedirs("/tmp/www", exist_ok=True)
open("/tmp/www/hello", "w").write("hello from eth0")
subprocess.Popen(["python3", "-m", "http.server", "8000", "--bind", "192.0.0.2", "-d", "/tmp/www"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
`

// children is how many a live branch forks here.
const children = 3

// A live branch leaves the source all that it has open. Its children begin with a network that
// works, and with none of the source's connections.
func TestABranchKeepsTheSourcesNetworkAndGivesTheChildrenANewOne(t *testing.T) {
	w := shared(t, "example.com", web)
	w.run(t, w.guest, openHere)
	stream := send(w.far.conn(t))
	w.wantText(t, w.guest, `chat(sock, "before")`, "before")
	w.wantText(t, w.guest, `fetch("http://example.com/")`, "the web")
	client := w.dialed(t, w.guest, 8001)
	wantEcho(t, client, "before")
	eventually(t, "file server", func() bool { return w.serves(t, w.guest) })
	eventually(t, "beginning of the download", func() bool { return value[int](t, w, w.guest, "download.got") > 0 })
	before := value[netState](t, w, w.guest, "state()")

	all := w.branch(t, w.guest, api.BranchRequest{Tag: "network", Mode: api.BranchLive, N: children})
	clone := all[0].ID
	t.Run("the source's download goes on", func(t *testing.T) {
		size, sum := stream.end(t)
		end := w.downloaded(t, w.guest)
		if want := fmt.Sprintf("%q", sum); string(end.Value) != want || end.Got != size {
			t.Errorf("%d bytes, %s, want %d with the sum %s", end.Got, end, size, want)
		}
	})
	t.Run("the clone's network works at once", func(t *testing.T) {
		w.wantText(t, clone, `fetch("http://example.com/")`, "the web")
	})
	t.Run("the MAC is the clone's own and nothing else differs", func(t *testing.T) { w.sameButMAC(t, before, all) })
	t.Run("the clone's download is reset", func(t *testing.T) {
		if end := w.downloaded(t, clone); end.Error != "ECONNRESET" {
			t.Errorf("the inherited download: %s", end)
		}
	})
	t.Run("datagrams of the source go on and the clone's socket gets an error", func(t *testing.T) {
		w.wantText(t, w.guest, `chat(sock, "after")`, "after")
		w.wantRefused(t, clone, `chat(sock, "from the clone")`, "ECONNREFUSED")
		w.wantText(t, clone, `udp("`+web+`", `+echoPort+`, "a new socket")`, "a new socket")
	})
	t.Run("servers keep their clients in the source and accept new ones in the clones", func(t *testing.T) {
		wantEcho(t, client, "after")
		for _, sb := range all[:2] {
			wantEcho(t, w.dialed(t, sb.ID, 8001), "in a clone")
			if !w.serves(t, sb.ID) {
				t.Errorf("%s does not serve files on eth0", sb.ID)
			}
		}
	})
	t.Run("no clone sends before its identity is confirmed", func(t *testing.T) { w.silentBefore(t, all) })
	w.run(t, w.guest, "caller.on = False")
	t.Run("a child's policy may be narrower", func(t *testing.T) { w.narrower(t, "network") })
	t.Run("a child's policy is cut by the ceiling", func(t *testing.T) { w.cutByCeiling(t, "network") })
}

// netState is what guest.py's state tells.
type netState map[string]any

func (w *world) sameButMAC(t *testing.T, before netState, all []api.SandboxInfo) {
	macs := map[any]string{before["mac"]: "the source"}
	for _, sb := range all[:2] {
		now := value[netState](t, w, sb.ID, "state()")
		if who, known := macs[now["mac"]]; known {
			t.Errorf("%s has the MAC of %s: %s", sb.ID, who, now["mac"])
		}
		macs[now["mac"]] = sb.ID
		wantState(t, sb.ID, before, now)
	}
	source := value[netState](t, w, w.guest, "state()")
	if source["mac"] != before["mac"] {
		t.Errorf("the source's MAC was %s and is %s", before["mac"], source["mac"])
	}
	wantState(t, "the source", before, source)
}

func wantState(t *testing.T, who string, before, now netState) {
	t.Helper()
	for what := range maps.Keys(before) {
		if was, is := fmt.Sprint(before[what]), fmt.Sprint(now[what]); was != is && what != "mac" {
			t.Errorf("%s: %s was %q and is %q", who, what, was, is)
		}
	}
}

// download is how one ended in a guest.
type download struct {
	outcome
	Got int64
}

func (w *world) downloaded(t *testing.T, id string) (end download) {
	t.Helper()
	eventually(t, "end of the download in "+id, func() bool {
		got := value[*download](t, w, id, `ended("/tmp/download")`)
		if got != nil {
			end = *got
		}
		return got != nil
	})
	return end
}

// stream sends noise until its end.
type stream struct {
	stop chan struct{}
	done chan error
	size int64
	sum  []byte
}

func send(c net.Conn) *stream {
	s := &stream{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		defer c.Close()
		sum, tick := sha256.New(), time.NewTicker(5*time.Millisecond)
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

// end ends it, and returns what was sent.
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
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		t.Errorf("send %q: %v", text, err)
		return
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Errorf("the echo of %q: %q, %v", text, b, err)
	}
}

// serves asks a sandbox's http.server, which listens on eth0 only.
func (w *world) serves(t *testing.T, id string) bool {
	t.Helper()
	c, err := w.Client.DialPort(t.Context(), id, 8000)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "GET /hello HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || string(b) != "hello from eth0" {
		t.Errorf("%s serves %d, %q, %v", id, r.StatusCode, b, err)
	}
	return true
}

// auditLine is what of forkd-net's audit tells when a flow began.
type auditLine struct {
	Time              time.Time
	Sandbox, Protocol string
	Verdict           string
	Seconds           float64
}

// silentBefore waits until each clone's program has connected, and looks when it first did.
func (w *world) silentBefore(t *testing.T, all []api.SandboxInfo) {
	var first map[string]time.Time
	eventually(t, "connection of each clone", func() bool {
		first = w.firstFlows(t)
		for _, sb := range all {
			if first[sb.ID].IsZero() {
				return false
			}
		}
		return true
	})
	confirmed := w.confirmed(t)
	for _, sb := range all {
		switch at, known := confirmed[sb.ID]; {
		case !known:
			t.Errorf("the daemon's log does not say when the identity of %s was confirmed", sb.ID)
		case first[sb.ID].Before(at):
			t.Errorf("%s sent %s before its identity was confirmed", sb.ID, at.Sub(first[sb.ID]))
		}
	}
}

// firstFlows is when each sandbox's first flow began that has ended, whatever became of it.
func (w *world) firstFlows(t *testing.T) map[string]time.Time {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.Run, "net", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]time.Time{}
	for text := range strings.Lines(string(b)) {
		var l auditLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			continue // the last, which is being written
		}
		began := l.Time.Add(-time.Duration(l.Seconds * float64(time.Second)))
		if was := first[l.Sandbox]; was.IsZero() || began.Before(was) {
			first[l.Sandbox] = began
		}
	}
	return first
}

var confirmedLine = regexp.MustCompile(`(?m)^time=(\S+) .*msg="identity confirmed" sandbox=(\S+)`)

// confirmed is when each sandbox's identity was, by the daemon's log; in whole milliseconds, not later
// than it was.
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
		out[m[2]] = at
	}
	return out
}
