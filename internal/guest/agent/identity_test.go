package agent_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

type identityReq = agentv1.IdentityRequest

func newIdentity() *identityReq {
	entropy := make([]byte, 64)
	_, _ = rand.Read(entropy)
	return &identityReq{
		SandboxId: "sb-1-0007", Index: 7, Parent: "pyagent", Hostname: "sb-1-0007",
		MachineId: "0123456789abcdef0123456789abcdef", Entropy: entropy,
		WallUnixNs: time.Now().Add(time.Hour).UnixNano(), Env: map[string]string{"EXTRA": "e"},
	}
}

func (b *bench) become(t *testing.T, change func(*identityReq)) *agentv1.IdentityResponse {
	t.Helper()
	req := newIdentity()
	if change != nil {
		change(req)
	}
	r, err := b.IdentityByPort(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func step(t *testing.T, r *agentv1.IdentityResponse, name string) *agentv1.IdentityStep {
	t.Helper()
	for _, s := range r.GetSteps() {
		if s.GetName() == name {
			return s
		}
	}
	t.Fatalf("no step %q in %v", name, r.GetSteps())
	return nil
}

func TestIdentity(t *testing.T) {
	b := startAgent(t)
	write(t, b.root+"/etc/hosts", "127.0.0.1 localhost\n127.0.1.1\told\n::1 localhost\n", 0o644)
	r := b.become(t, nil)
	for _, name := range []string{"entropy", "wipe-on-fork", "clock", "hostname", "machine-id", "boot-id", "record"} {
		if s := step(t, r, name); !s.GetDone() || s.GetError() != "" || s.GetTookNs() <= 0 {
			t.Errorf("got %v", s)
		}
	}
	for _, name := range []string{"network", "hooks", "interpreters"} {
		if s := step(t, r, name); s.GetDone() || s.GetError() != "" {
			t.Errorf("nothing was to do, got %v", s)
		}
	}
	if !r.GetKernelReseeded() || len(r.GetRandomDigest()) != 32 || r.GetClockStepNs() < int64(50*time.Minute) {
		t.Errorf("got %v", r)
	}
	if b.sys.hostname != "sb-1-0007" || b.sys.wall.IsZero() || len(b.sys.seeds) != 1 || b.sys.bootFile == "" {
		t.Errorf("got %+v", b.sys)
	}
	for file, want := range map[string]string{
		"/etc/hostname":      "sb-1-0007\n",
		"/etc/machine-id":    "0123456789abcdef0123456789abcdef\n",
		"/etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n127.0.1.1\tsb-1-0007\n",
		"/run/forkd/boot_id": r.GetBootId() + "\n",
	} {
		if got, _ := os.ReadFile(b.root + file); string(got) != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	res, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"sh", "-c", "echo $FORKD_INDEX $FORKD_PARENT $FORKD_SANDBOX_ID $EXTRA"}})
	if err != nil || string(res.Stdout) != "7 pyagent sb-1-0007 e\n" {
		t.Errorf("got %q, %v", res.Stdout, err)
	}
	if p, err := b.Ping(t.Context()); err != nil || p.GetSandboxId() != "sb-1-0007" || p.GetIndex() != 7 || p.GetParent() != "pyagent" {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestIdentityOfTheNetworkDevice(t *testing.T) {
	link := &fakeLink{}
	b := startAgent(t, func(c *agent.Config) { c.Link = link })
	give := func(mac ...byte) func(*identityReq) {
		return func(r *identityReq) { r.Network = &agentv1.NetworkIdentity{HardwareAddress: mac} }
	}
	r := b.become(t, give(6, 1, 2, 3, 4, 5))
	if s := step(t, r, "network"); !s.GetDone() || s.GetError() != "" || !slices.Equal(link.macs, []string{"06:01:02:03:04:05"}) {
		t.Errorf("got %v, %q", s, link.macs)
	}
	if _, err := os.Stat(b.root + "/etc/resolv.conf"); err == nil {
		t.Error("it touched more than it was told to")
	}
	link.err = errors.New("no such device")
	r = b.become(t, give(6, 1, 2, 3, 4, 6))
	if s := step(t, r, "network"); s.GetDone() || !strings.Contains(s.GetError(), "set hardware address: no such device") {
		t.Errorf("got %v", s)
	}
	for _, bad := range [][]byte{{6, 1, 2}, {7, 1, 2, 3, 4, 5}} {
		req := newIdentity()
		give(bad...)(req)
		_, err := b.Identity(t.Context(), req)
		wantCode(t, err, connect.CodeInvalidArgument)
	}
}

// The snapshot was made before guests had a network.
func TestIdentityWithoutANetworkDevice(t *testing.T) {
	b := startAgent(t)
	r := b.become(t, func(r *identityReq) {
		r.Network = &agentv1.NetworkIdentity{HardwareAddress: []byte{6, 1, 2, 3, 4, 5}}
	})
	if s := step(t, r, "network"); s.GetDone() || s.GetError() != "" {
		t.Errorf("got %v", s)
	}
}

// A second identity replaces the first, as in a fork of a fork.
func TestIdentityAgain(t *testing.T) {
	b := startAgent(t)
	first := b.become(t, nil)
	second := b.become(t, func(r *identityReq) { r.Env, r.Index, r.Hostname = nil, 8, "other" })
	if bytes.Equal(first.GetRandomDigest(), second.GetRandomDigest()) || first.GetBootId() == second.GetBootId() {
		t.Error("two identities share a random state")
	}
	if bytes.Equal(b.sys.seeds[0], b.sys.seeds[1]) {
		t.Error("two identities fed the kernel the same")
	}
	res, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"sh", "-c", "echo $FORKD_INDEX$EXTRA"}})
	if err != nil || string(res.Stdout) != "8\n" {
		t.Errorf("got %q, %v", res.Stdout, err)
	}
	if got, _ := os.ReadFile(b.root + "/etc/hostname"); string(got) != "other\n" {
		t.Errorf("a shorter name leaves %q", got)
	}
	if got, _ := os.ReadFile(b.root + "/etc/hosts"); strings.Count(string(got), "127.0.1.1") != 1 {
		t.Errorf("got %q", got)
	}
}

func TestIdentityGoesOnAfterAFailure(t *testing.T) {
	b := startAgent(t)
	b.sys.err = errors.New("not allowed here")
	r := b.become(t, nil)
	if r.GetKernelReseeded() || step(t, r, "entropy").GetDone() || !strings.Contains(step(t, r, "clock").GetError(), "not allowed here") {
		t.Errorf("got %v", r)
	}
	if !step(t, r, "machine-id").GetDone() || !step(t, r, "record").GetDone() {
		t.Errorf("later steps were left out: %v", r.GetSteps())
	}
}

func TestIdentityRefuses(t *testing.T) {
	b := startAgent(t)
	for name, change := range map[string]func(*identityReq){
		"too little entropy":         func(r *identityReq) { r.Entropy = r.Entropy[:31] },
		"too much entropy":           func(r *identityReq) { r.Entropy = make([]byte, 5000) },
		"a hostname with a new line": func(r *identityReq) { r.Hostname = "a\nb" },
		"a hostname of 65":           func(r *identityReq) { r.Hostname = strings.Repeat("a", 65) },
		"a short machine id":         func(r *identityReq) { r.MachineId = "12" },
		"a machine id in capitals":   func(r *identityReq) { r.MachineId = strings.ToUpper(r.MachineId) },
		"an environment name with =": func(r *identityReq) { r.Env = map[string]string{"A=B": ""} },
	} {
		t.Run(name, func(t *testing.T) {
			req := newIdentity()
			change(req)
			_, err := b.IdentityByPort(t.Context(), req)
			wantCode(t, err, connect.CodeInvalidArgument)
		})
	}
	if len(b.sys.seeds) != 0 {
		t.Error("a refused identity was begun")
	}
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestHooks(t *testing.T) {
	b := startAgent(t)
	log := b.root + "/log"
	write(t, b.root+"/hooks/20-second", "#!/bin/sh\necho second >> "+log+"; echo said $FORKD_INDEX; exit 3\n", 0o755)
	write(t, b.root+"/hooks/10-first", "#!/bin/sh\necho first >> "+log+"\n", 0o755)
	write(t, b.root+"/hooks/30-endless", "#!/bin/sh\nsleep 100\n", 0o755)
	write(t, b.root+"/hooks/40-last", "#!/bin/sh\necho last >> "+log+"\n", 0o755)
	write(t, b.root+"/hooks/15-no-program", "text", 0o644)
	r := b.become(t, func(r *identityReq) { r.HookTimeoutNs = int64(500 * time.Millisecond) })
	if got, _ := os.ReadFile(log); string(got) != "first\nsecond\nlast\n" {
		t.Errorf("got %q", got)
	}
	h := r.GetHooks()
	if len(h) != 4 || h[0].GetExitCode() != 0 || h[1].GetExitCode() != 3 || h[1].GetOutput() != "said 7\n" || !strings.Contains(h[2].GetError(), "ran longer") || h[3].GetExitCode() != 0 {
		t.Errorf("got %v", h)
	}
	if s := step(t, r, "hooks"); !s.GetDone() || !strings.Contains(s.GetError(), "20-second") || !strings.Contains(s.GetError(), "30-endless") {
		t.Errorf("got %v", s)
	}
}

func TestARunningInitTakesTheIdentity(t *testing.T) {
	program := filepath.Join(t.TempDir(), "renew")
	log := program + ".log"
	running := ""
	b := startAgent(t, func(c *agent.Config) { c.Renews = func() string { return running } })
	if s := step(t, b.become(t, nil), "init"); s.GetDone() || s.GetError() != "" {
		t.Errorf("without an init: %v", s)
	}
	running = program
	write(t, program, "#!/bin/sh\necho $FORKD_INDEX >> "+log+"\n", 0o755)
	if s := step(t, b.become(t, nil), "init"); !s.GetDone() || s.GetError() != "" {
		t.Errorf("with an init: %v", s)
	}
	if s := step(t, b.become(t, func(r *identityReq) { r.SameMachine = true }), "init"); s.GetDone() {
		t.Errorf("the same machine: %v", s)
	}
	if got, _ := os.ReadFile(log); string(got) != "7\n" {
		t.Errorf("the program wrote %q, want one line", got)
	}
	write(t, program, "#!/bin/sh\necho no bus\nexit 3\n", 0o755)
	if s := step(t, b.become(t, nil), "init"); s.GetDone() || s.GetError() != "exit status 3: no bus" {
		t.Errorf("a failure: %v", s)
	}
}

func TestInterpretersReseed(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	b.eval(t, "import random, ssl, forkd_guest, os\nseen = []\nforkd_guest.on_fork(lambda info: seen.append(info['index']))\nrandom.seed(1)", 0)
	b.eval(t, "state = random.getstate()", 0)
	r := b.become(t, nil)
	if in := r.GetInterpreters(); len(in) != 1 || in[0].GetError() != "" || strings.Join(in[0].GetReseeded(), ",") != "random,openssl,hook 0" {
		t.Errorf("got %v", in)
	}
	first := b.eval(t, "random.random()", 0).GetResult()
	b.eval(t, "random.setstate(state)", 0)
	b.become(t, nil)
	if second := b.eval(t, "random.random()", 0).GetResult(); first == second {
		t.Error("two clones drew the same number")
	}
	if got := b.eval(t, "seen, os.environ['FORKD_INDEX'], os.environ['EXTRA']", 0).GetResult(); got != "([7, 7], '7', 'e')" {
		t.Errorf("got %s", got)
	}
}

// An idle interpreter is woken by the next request, and takes the clone's seed before it runs code.
// An interpreter that may run code without a request takes it immediately.
func TestInterpretersThatHoldStillReseedLater(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	b.eval(t, "import random, os, signal, threading, time\nstate = random.getstate()", 0)
	was := b.eval(t, "random.setstate(state); random.random()", 0).GetResult()
	for _, c := range []struct {
		what, code, undo string
		later            bool
	}{
		{"it waits", "pass", "pass", true},
		{"a thread", "end = threading.Event(); th = threading.Thread(target=end.wait); th.start()", "end.set(); th.join()", false},
		{"a timer", "signal.setitimer(signal.ITIMER_VIRTUAL, 1000)", "signal.setitimer(signal.ITIMER_VIRTUAL, 0)", false},
		{"a signal's handler", "signal.signal(signal.SIGUSR1, lambda *a: None)", "signal.signal(signal.SIGUSR1, signal.SIG_DFL)", false},
		{"it waits again", "pass", "pass", true},
	} {
		b.eval(t, c.code+"\nrandom.setstate(state)", 0)
		r := b.become(t, nil).GetInterpreters()
		if len(r) != 1 || r[0].GetError() != "" || r[0].GetLater() != c.later || (len(r[0].GetReseeded()) == 0) != c.later {
			t.Errorf("%s: got %v", c.what, r)
		}
		// An evaluation with a short limit gets the seed in a separate message.
		for _, limit := range []time.Duration{0, time.Second} {
			if got := b.eval(t, "random.random()", limit).GetResult(); got == was {
				t.Errorf("%s: not reseeded", c.what)
			}
			b.eval(t, "random.setstate(state)", 0)
			b.become(t, nil)
		}
		if got := b.eval(t, "os.environ['FORKD_INDEX']", 0).GetResult(); got != "'7'" {
			t.Errorf("%s: its index is %s", c.what, got)
		}
		b.eval(t, c.undo, 0)
	}
}

// An interpreter that cannot be reseeded at its next use does not continue with its siblings'
// state.
func TestAnInterpreterThatCannotBeReseededLaterEnds(t *testing.T) {
	needPython(t)
	for name, limit := range map[string]time.Duration{"with the evaluation": 0, "before a short one": time.Second} {
		t.Run(name, func(t *testing.T) {
			b := startAgent(t)
			b.eval(t, "import random\ndef broken(*a): raise ValueError('no')\nrandom.seed = broken; x = 1", 0)
			if r := b.become(t, nil).GetInterpreters(); len(r) != 1 || !r[0].GetLater() {
				t.Fatalf("got %v", r)
			}
			_, err := b.Eval(t.Context(), &agentv1.EvalRequest{Language: "python", Code: "x", TimeoutNs: int64(limit)})
			if err == nil || !strings.Contains(err.Error(), "ValueError: no") ||
				!strings.Contains(err.Error(), "its state is lost") {
				t.Errorf("got %v", err)
			}
			if got := b.eval(t, "'x' in globals()", 0).GetResult(); got != "False" {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestReseedHookThatFailsIsTold(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	b.eval(t, "import forkd_guest\n@forkd_guest.on_fork\ndef f(info): raise ValueError('no')", 0)
	if r := b.become(t, nil); !strings.Contains(step(t, r, "interpreters").GetError(), "ValueError: no") {
		t.Errorf("got %v", r)
	}
}

func TestQuiesce(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	write(t, b.root+"/etc/hosts", "127.0.0.1 localhost\n", 0o644)
	b.eval(t, "x = 5", 0)
	r, err := b.Quiesce(t.Context(), &agentv1.QuiesceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.GetSteps() {
		if !s.GetDone() || s.GetError() != "" {
			t.Errorf("got %v", s)
		}
	}
	if b.sys.prepared != 1 {
		t.Errorf("marked memory was looked for %d times", b.sys.prepared)
	}
	if got := b.eval(t, "x, __import__('gc').get_freeze_count() > 0", 0).GetResult(); got != "(5, True)" {
		t.Errorf("got %s", got)
	}
	r, err = b.Quiesce(t.Context(), &agentv1.QuiesceRequest{SyncOnly: true, StopInterpreters: true})
	if err != nil || len(r.GetSteps()) != 1 || r.GetSteps()[0].GetName() != "sync" || !r.GetSteps()[0].GetDone() {
		t.Errorf("only a sync: %v, %v", r, err)
	}
	if p, err := b.Ping(t.Context()); err != nil || len(p.GetInterpreters()) != 1 {
		t.Errorf("then got %v, %v", p, err)
	}
	if _, err = b.Quiesce(t.Context(), &agentv1.QuiesceRequest{StopInterpreters: true}); err != nil {
		t.Fatal(err)
	}
	if p, err := b.Ping(t.Context()); err != nil || len(p.GetInterpreters()) != 0 {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestBenchToken(t *testing.T) {
	b := startAgent(t, func(c *agent.Config) { c.Token = "bench-token" })
	if err := b.Health(t.Context()); err != nil {
		t.Errorf("health needs no token: %v", err)
	}
	_, err := b.Ping(t.Context())
	wantCode(t, err, connect.CodeUnauthenticated)
	for token, ok := range map[string]bool{"bench-token": true, "bench-toke": false, "other": false} {
		c := agentclient.New(b.dial, agentclient.WithToken(token))
		if _, err := c.Ping(t.Context()); (err == nil) != ok {
			t.Errorf("%q: got %v", token, err)
		}
		c.Close()
	}
}

func TestImageDefaults(t *testing.T) {
	b := startAgent(t, func(c *agent.Config) {
		write(t, c.ImageFile, `{"env":{"A":"image","B":"image"},"workdir":"/usr","more":1}`, 0o644)
	})
	b.become(t, func(r *identityReq) { r.Env = map[string]string{"B": "clone"} })
	res, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"sh", "-c", "pwd; echo $A $B"}})
	if err != nil || string(res.Stdout) != "/usr\nimage clone\n" {
		t.Errorf("got %q, %v", res.Stdout, err)
	}
}

func TestBadImageFileIsAnError(t *testing.T) {
	file := t.TempDir() + "/image.json"
	write(t, file, "{", 0o644)
	if _, err := agent.New(agent.Config{ImageFile: file}); err == nil || !strings.Contains(err.Error(), "parse image metadata") {
		t.Errorf("got %v", err)
	}
}

// TestGlobalsAreReseededIfAsked checks generators made by code: they are the same in all clones,
// unless reseeding them is requested.
func TestGlobalsAreReseededIfAsked(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	b.eval(t, `
import forkd_guest, random, sys, types
class Box:
    pass
class Slots:
    __slots__ = ("g",)
class Loop(random.Random):
    pass
def make():
    global a, box, table, loop, slots
    a, loop, box, slots = random.Random(1), Loop(1), Box(), Slots()
    box.list = [random.Random(1)]
    box.self = box
    table = {"k": (random.Random(1), {"deep": random.Random(1)})}
    table["table"] = table
    sys.modules["lib"] = types.ModuleType("lib")
    sys.modules["lib"].hidden = random.Random(1)
def draw():
    return [g.random() for g in (a, loop, box.list[0], table["k"][0], table["k"][1]["deep"], sys.modules["lib"].hidden)]
make()
first = draw()
make()
`, 0)
	becomes := func() {
		r := b.become(t, nil).GetInterpreters()
		if len(r) != 1 || r[0].GetError() != "" {
			t.Fatalf("got %v", r)
		}
	}
	becomes()
	if b.eval(t, "draw() == first", 0).GetResult() != "True" {
		t.Error("generators were reseeded that nobody asked to reseed")
	}
	b.eval(t, "make(); forkd_guest.reseed_globals()", 0)
	for _, when := range []string{"after an evaluation", "after a quiesce", "after one of those made later"} {
		if when != "after an evaluation" {
			if _, err := b.Quiesce(t.Context(), &agentv1.QuiesceRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		if when == "after one of those made later" {
			b.eval(t, "make()", 0)
		}
		becomes()
		r := b.eval(t, "len(set(draw() + first[:1]))", 0)
		if r.GetResult() != "7" { // six own ones, and the shared initial one
			t.Errorf("%s: %s different draws: %v", when, r.GetResult(), r)
		}
		b.eval(t, "make()", 0)
	}
	b.eval(t, "forkd_guest.reseed_globals(False)", 0)
	becomes()
	if b.eval(t, "draw() == first", 0).GetResult() != "True" {
		t.Error("it cannot be switched off")
	}
}
