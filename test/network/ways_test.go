package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// children is the number of children of a live branch here.
const children = 3

const (
	branchTag = "network"
	// canary is a value sent by the source itself. Memory and disk are searched for it, as for the
	// secret.
	canary = "Bearer ca7a12y-of-the-source"
	// secretOfChild is the secret of a clone.
	secretOfChild = "Bearer c0ffee-of-the-child"
)

// source is the origin of all other sandboxes, with all its open connections.
type source struct {
	*world
	id     string
	began  time.Time
	stream *stream  // the data of its download
	client net.Conn // a client of its server
	before netState
	macs   map[string]string // the owner, by MAC
}

// Whichever way makes another VM from a sandbox, the source keeps its open connections. The other
// VM begins with a working network, a policy, and none of the source's connections and secrets.
func TestEveryWayToAnotherVM(t *testing.T) {
	kvmtest.Drawn(t)
	kvmtest.Soak(t) // short form: the network in test/conformance
	s := newSource(t)
	var rows []*row
	way := func(name string, look func(t *testing.T, r *row)) {
		r := newRow(name)
		rows = append(rows, r)
		began := time.Now()
		look(t, r)
		t.Logf("%s took %s", name, time.Since(began).Round(10*time.Millisecond))
	}
	s.run(t, s.id, `caller = Caller("`+web+`", `+echoPort+`)`)
	var all []api.SandboxInfo
	way("branch live", func(t *testing.T, r *row) {
		all = s.branch(t, s.id, api.BranchRequest{Tag: branchTag, Mode: api.BranchLive, N: children})
		for _, sb := range all {
			s.clone(t, r, sb.ID)
		}
		r.want("listen", s.files(t, all[0].ID))
		s.goesOn(t, r)
	})
	var child api.SandboxInfo
	way("fork of the branch", func(t *testing.T, r *row) {
		child = s.fork(t, branchTag, api.NetworkPolicy{Allow: []string{"example.com", web, forbidden}})
		s.clone(t, r, child.ID)
		s.goesOn(t, r)
	})
	var guests string
	way("guest's fork", func(t *testing.T, r *row) {
		guests = s.guestFork(t)
		s.clone(t, r, guests)
		s.goesOn(t, r)
	})
	s.run(t, s.id, "caller.on = False")
	way("rollback", func(t *testing.T, r *row) { s.rollback(t, r, all[1].ID) })
	way("new daemon", func(t *testing.T, r *row) { s.newDaemon(t, r) })
	s.silent(t, map[*row][]string{rows[0]: ids(all), rows[1]: {child.ID}, rows[2]: {guests}})
	for _, r := range rows[3:] {
		r.notes["silent"] = "-"
	}
	rows[4].notes["recv"], rows[4].notes["datagram"] = "-", "-" // this row checks the source itself
	s.whole(t, rows)
	settle(t, columns, rows)
	t.Run("the secret is in no snapshot, log or receipt", func(t *testing.T) { s.nowhere(t) })
	t.Run("a child's policy may be narrower", func(t *testing.T) { s.narrower(t, branchTag) })
	t.Run("a child's policy is cut by the ceiling", func(t *testing.T) { s.cutByCeiling(t, child) })
}

func ids(all []api.SandboxInfo) (list []string) {
	for _, sb := range all {
		list = append(list, sb.ID)
	}
	return list
}

func newSource(t *testing.T) *source {
	w := shared(t)
	s := &source{world: w, id: w.guest, began: time.Now(), macs: map[string]string{}}
	p := injecting(secret, "example.com")
	w.set(t, s.id, api.SetNetworkRequest{Network: &p})
	w.trusts(t, s.id)
	w.wantText(t, s.id, `fetch("https://example.com/?by=source", trusted, Authorization="`+canary+`")`, "the web")
	w.far.wantRequest(t, "source", "the web", secret)
	w.run(t, s.id, openHere)
	s.stream = send(w.far.conn(t))
	w.wantText(t, s.id, `chat(sock, "before")`, "before")
	s.client = w.dialed(t, s.id, 8001)
	wantEcho(t, s.client, "before")
	eventually(t, "file server", func() bool { return s.files(t, s.id) == nil })
	eventually(t, "beginning of the download", func() bool { return value[int](t, w, s.id, "download.got") > 0 })
	s.before = value[netState](t, w, s.id, "state()")
	s.macs[s.before["mac"].(string)] = s.id
	return s
}

// netState is the output of state in guest.py.
type netState map[string]any

// met is the output of met in guest.py.
type met struct {
	Recv                           *outcome
	Datagram, Page, Secure, Denied outcome
	State                          netState
	Later                          bool
}

// clone checks another VM of the source, beginning with its inherited state.
func (s *source) clone(t *testing.T, r *row, id string) {
	t.Helper()
	m := s.another(t, r, id, "met('"+id+"')")
	if owner := s.macs[m.State["mac"].(string)]; owner != "" {
		r.wrong("mac", "%s has the MAC of %s: %s", id, owner, m.State["mac"])
	}
	s.macs[m.State["mac"].(string)] = id
	r.want("secret", s.far.request(id, "the web", "mine"))
}

// another makes the checks for every new VM.
func (s *source) another(t *testing.T, r *row, id, expr string) met {
	t.Helper()
	m := value[met](t, s.world, id, expr)
	if m.Recv == nil || m.Recv.Error != "ECONNRESET" {
		r.wrong("recv", "%s: the inherited recv: %v, want ECONNRESET at the first look", id, m.Recv)
	}
	if m.Datagram.Error != "ECONNREFUSED" {
		r.wrong("datagram", "%s: over the inherited socket: %s", id, m.Datagram)
	}
	if got := value[string](t, s.world, id, `udp("`+web+`", `+echoPort+`, "a new socket")`); got != "a new socket" {
		r.wrong("datagram", "%s: over a new socket: %q", id, got)
	}
	for _, page := range []outcome{m.Page, m.Secure} {
		if string(page.Value) != `"the web"` {
			r.wrong("page", "%s: %s", id, page)
		}
	}
	if m.Denied.Error != "EAI_NONAME" || m.Denied.Seconds > fast {
		r.wrong("policy", "%s: a name that is not allowed: %s", id, m.Denied)
	}
	s.same(r, id, m.State)
	r.want("listen", s.echoes(t, id))
	return m
}

// same compares a guest's view of its network with the source's, except for the MAC.
func (s *source) same(r *row, id string, now netState) {
	for what := range s.before {
		if was, is := fmt.Sprint(s.before[what]), fmt.Sprint(now[what]); was != is && what != "mac" {
			r.wrong("state", "%s: %s was %q and is %q", id, what, was, is)
		}
	}
}

// echoes connects to a sandbox's server, which listens on eth0 only, as a new client.
func (s *source) echoes(t *testing.T, id string) error {
	c, err := s.Client.DialPort(t.Context(), id, 8001)
	if err != nil {
		return err
	}
	defer c.Close()
	return echo(c, "to "+id)
}

// goesOn checks the source again: its connections are open, and its state is the same.
func (s *source) goesOn(t *testing.T, r *row) {
	t.Helper()
	r.want("source", echo(s.client, "after "+r.name))
	if got := value[string](t, s.world, s.id, `chat(sock, "after")`); got != "after" {
		r.wrong("source", "datagrams: %q", got)
	}
	now := value[struct {
		Out   *download
		State netState
	}](t, s.world, s.id, `{"out": download.out, "state": state()}`)
	if now.Out != nil {
		r.wrong("source", "its download has ended: %s", now.Out)
	}
	if now.State["mac"] != s.before["mac"] {
		r.wrong("mac", "the source's was %s and is %s", s.before["mac"], now.State["mac"])
	}
	s.same(r, s.id, now.State)
}

// guestFork makes the source's guest fork it.
func (s *source) guestFork(t *testing.T) (child string) {
	r, err := s.Client.Exec(t.Context(), s.id, api.ExecRequest{Args: []string{"forkd-fork", "1"}, TimeoutSecs: patience.Seconds()})
	out := strings.Fields(r.Stdout)
	if err != nil || r.ExitCode != 0 || len(out) != 2 {
		t.Fatalf("forkd-fork: %+v, %v", r, err)
	}
	t.Cleanup(func() {
		if err := s.Kill(out[1]); err != nil {
			t.Error(err)
		}
	})
	return out[1]
}

// rollback rolls back a clone with a secret and its own connections.
func (s *source) rollback(t *testing.T, r *row, id string) {
	p := injecting(secretOfChild, "example.com")
	s.set(t, id, api.SetNetworkRequest{Network: &p})
	s.run(t, id, `later = Answerer("example.com", `+handPort+`)`)
	later := s.far.conn(t)
	r.want("recv", echo(later, "before the rollback"))
	s.trusts(t, id)
	s.wantText(t, id, `fetch("https://example.com/?by=child", trusted)`, "the web")
	r.want("secret", s.far.request("child", "the web", secretOfChild))
	mac := value[string](t, s.world, id, `state()["mac"]`)
	if _, err := s.Client.Rollback(t.Context(), id, branchTag); err != nil {
		t.Fatal(err)
	}
	m := s.another(t, r, id, "met('back', system())")
	if m.State["mac"] != mac {
		r.wrong("mac", "%s had %s and has %s", id, mac, m.State["mac"])
	}
	if m.Later {
		r.wrong("recv", "%s knows a connection of after the snapshot", id)
	}
	if n, err := later.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		r.wrong("recv", "the far end of a later connection: %d bytes, %v", n, err)
	}
	r.want("secret", s.far.request("back", "the web", secretOfChild)) // it is the same sandbox
	s.goesOn(t, r)
}

// newDaemon kills the daemon. The next daemon adopts the source unchanged.
func (s *source) newDaemon(t *testing.T, r *row) {
	s.End(syscall.SIGKILL)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	s.client = s.dialed(t, s.id, 8001) // the old connection ended with the daemon
	s.goesOn(t, r)
	r.want("listen", s.echoes(t, s.id))
	s.wantText(t, s.id, `fetch("https://example.com/?by=adopted", trusted)`, "the web")
	r.want("secret", s.far.request("adopted", "the web", secret))
	if out := s.try(t, s.id, `addresses("secret.example.org")`); out.Error != "EAI_NONAME" {
		r.wrong("policy", "a name that is not allowed: %s", out)
	}
}

// silent checks the time of the clones' first packets.
func (s *source) silent(t *testing.T, which map[*row][]string) {
	var all []string
	for _, list := range which {
		all = append(all, list...)
	}
	early := s.early(t, all)
	for r, list := range which {
		for _, id := range list {
			r.want("silent", early[id])
		}
	}
}

// whole ends the source's download, which must have survived every way, and compares its bytes.
func (s *source) whole(t *testing.T, rows []*row) {
	size, sum := s.stream.end(t)
	end := s.downloaded(t, s.id)
	if want := fmt.Sprintf("%q", sum); string(end.Value) != want || end.Got != size {
		for _, r := range rows {
			r.wrong("source", "its download: %d bytes, %s, want %d with the sum %s", end.Got, end.outcome, size, want)
		}
	}
}
