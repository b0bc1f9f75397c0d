package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// possessions are what a sandbox has of the things in givenColumns. The words are those of the table.
type possessions struct {
	volume, content string // the content is a file's
	// secret is for new programs; memory is the value in a program that was started before the first instant.
	secret, memory string
	// identity is the right to tokens. They name the snapshot, and the parent if there is one.
	identity, snapshot, parent string
	network                    string
	connection                 string // state of the inherited connection to the peer
	service                    string
}

// wants compares a sandbox with what it should have.
func (g *given) wants(cells *cells, id string, want possessions) {
	g.t.Helper()
	info, err := g.c.Sandbox(g.t.Context(), id)
	if err != nil {
		g.t.Fatal(err)
	}
	told := g.told(id)
	g.wantsVolume(cells, info, told["file"], want)
	g.wantsSecret(cells, info, told, want)
	g.wantsIdentity(cells, id, want)
	g.wantsNetwork(cells, info, want)
	g.wantsService(cells, id, want.service)
	for column, word := range map[string]string{"volume": want.volume, "secret": want.secret, "identity": want.identity,
		"network": want.network, "service": want.service} {
		if id != g.source || cells.notes[column] == "" { // of a branch the table shows the child
			cells.note(column, word)
		}
	}
}

// shell runs a script in a sandbox and returns its output.
func (g *given) shell(id, script string) string {
	g.t.Helper()
	r, err := g.c.Exec(g.t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", script}, TimeoutSecs: 300})
	if err != nil || r.ExitCode != 0 {
		g.t.Fatalf("%s: %q: exit code %d: %s%s, %v", id, script, r.ExitCode, r.Stdout, r.Stderr, err)
	}
	return r.Stdout
}

// told returns values in a guest by their names.
func (g *given) told(id string) map[string]string {
	g.t.Helper()
	text := g.shell(id, `echo "file=$(cat /data/file 2>/dev/null)"; echo "new=${GIVEN-}"
		test ! -e /tmp/old || echo "old=$(tr '\0' '\n' < /proc/$(cat /tmp/old)/environ | sed -n 's/^GIVEN=//p')"`)
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		out[name] = value
	}
	return out
}

func (g *given) wantsVolume(cells *cells, info api.SandboxInfo, content string, want possessions) {
	words := map[api.VolumeMode]string{api.VolumePrivate: "its own", api.VolumeClone: "a clone"}
	word := "absent"
	if len(info.Volumes) == 1 {
		word = words[info.Volumes[0].Mode]
	}
	if word != want.volume || content != want.content {
		cells.wrong("volume", "%s has %s with %q, want %s with %q", info.ID, word, content, want.volume, want.content)
	}
}

func (g *given) wantsSecret(cells *cells, info api.SandboxInfo, told map[string]string, want possessions) {
	value := ""
	if want.secret == "current value" {
		value = g.value
	}
	if told["new"] != value || told["old"] != want.memory {
		cells.wrong("secret", "%s: a new program has %q and an old one %q, want %q and %q", info.ID, told["new"],
			told["old"], value, want.memory)
	}
	tainted := slices.ContainsFunc(info.Secrets, func(s api.HeldSecret) bool { return s.Name == g.secret })
	if tainted != (want.secret != "absent") {
		cells.wrong("secret", "%s: its list of secrets is %+v", info.ID, info.Secrets)
	}
}

// claims is what an identity token says. It is empty if there is none.
type claims struct {
	Sandbox  string `json:"sandbox"`
	Snapshot string `json:"snapshot"`
	Parent   string `json:"parent"`
}

// denied is the exit code of forkd-token without the right to tokens.
const denied = "3"

func (g *given) claims(id string) (c claims) {
	g.t.Helper()
	text := strings.TrimSpace(g.shell(id, `forkd-token --audience conformance 2>/tmp/token.err || echo $?`))
	if text == denied {
		return claims{}
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		g.t.Fatalf("%s: forkd-token prints %q: %s", id, text, g.shell(id, "cat /tmp/token.err"))
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		g.t.Fatalf("%s: the token says %q: %v", id, b, err)
	}
	return c
}

func (g *given) wantsIdentity(cells *cells, id string, want possessions) {
	c := g.claims(id)
	switch {
	case want.identity == "denied":
		if c != (claims{}) {
			cells.wrong("identity", "%s has a token with %+v", id, c)
		}
	case c.Sandbox != id || c.Parent != want.parent || want.snapshot != "" && c.Snapshot != want.snapshot:
		cells.wrong("identity", "%s has a token with %+v, want its id, the parent %q and the snapshot %q", id, c,
			want.parent, want.snapshot)
	}
}

func (g *given) wantsNetwork(cells *cells, info api.SandboxInfo, want possessions) {
	net, err := g.c.PrivateNetworks().Get(g.t.Context(), g.net)
	if err != nil {
		g.t.Fatal(err)
	}
	listed := slices.ContainsFunc(net.Members, func(m api.PrivateNetworkMember) bool { return m.Sandbox == info.ID })
	finds, member := g.resolves(info.ID, "peer"), want.network == "member"
	if listed != member || finds != member || (info.NetJoin != nil) != member {
		cells.wrong("network", "%s is a member: %v, by its own record: %+v, finds the peer: %v; want %v", info.ID, listed,
			info.NetJoin, finds, member)
	}
	if got := strings.TrimSpace(g.eval(info.ID, "print(exchanged())")); got != want.connection {
		cells.wrong("network", "%s: the connection is %s, want %s", info.ID, got, want.connection)
	}
}

// service returns the service of a sandbox once it has written to its log.
func (g *given) service(id string) api.Service {
	g.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		list, err := client.ServicesOf(g.c, id).List(g.t.Context(), 0)
		switch {
		case err != nil:
			g.t.Fatal(err)
		case len(list) == 0 || list[0].State == "ready" && list[0].LogBytes > 0:
			return append(list, api.Service{})[0]
		case time.Now().After(end):
			g.t.Fatalf("%s: the service is %+v", id, list[0])
		}
	}
}

// wantsService checks that the service is the source's process, and has written each number once.
func (g *given) wantsService(cells *cells, id, want string) {
	g.t.Helper()
	s := g.service(id)
	if want == "absent" {
		if s.Name != "" {
			cells.wrong("service", "%s has the service %+v", id, s)
		}
		return
	}
	if s.PID != g.pid || s.Restarts != 0 {
		cells.wrong("service", "%s: the service is %+v, want process %d", id, s, g.pid)
	}
	before := g.numbers(cells, id)
	for end := time.Now().Add(2 * time.Minute); g.numbers(cells, id) <= before; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			cells.wrong("service", "%s: the service writes no more after %d", id, before)
			return
		}
	}
}

// numbers returns the number of lines in the service's log, which must be consecutive.
func (g *given) numbers(cells *cells, id string) int {
	g.t.Helper()
	var log bytes.Buffer
	if err := client.ServicesOf(g.c, id).Log(g.t.Context(), "counter", -1, false, &log); err != nil {
		g.t.Fatal(err)
	}
	lines := strings.SplitAfter(log.String(), "\n")
	for n, line := range lines[:len(lines)-1] {
		if want := fmt.Sprintf("%d %d\n", g.pid, n); line != want {
			cells.wrong("service", "%s: line %d of the log is %q, want %q", id, n, line, want)
			break
		}
	}
	return len(lines) - 1
}
