// Package e2btest is an engine for tests of E2B's API. Its guests are real agents on this host: no
// VM, but the complete protocol of a guest. Sandboxes share the host's files and users, so a test
// must use its own folders. The engine can pause sandboxes. A paused guest does not answer.
package e2btest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// Engine is the fake engine with real agents as guests.
type Engine struct {
	*fakeengine.Engine
	t   testing.TB
	dir string

	mu     sync.Mutex
	guests map[string]*guest
	// images holds the images' metadata in branched guests, by the snapshots' tags.
	images map[string][]byte
	// Lives holds the last life set for each sandbox.
	Lives map[string]e2bapi.Life
	// Moving, if not nil, is called while a sandbox is pausing or resuming. The transition lasts
	// until Moving returns.
	Moving func(id string, to sandbox.Status)
	// Resumed counts the resumes.
	Resumed int

	// Block, if not nil, is called by long operations. Its error ends them. Set it while no request
	// is in progress.
	Block func(context.Context) error
}

func (e *Engine) held(ctx context.Context) error {
	if e.Block == nil {
		return nil
	}
	return e.Block(ctx)
}

// CreateSnapshot makes a snapshot of an image.
func (e *Engine) CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if err := e.held(ctx); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	return e.Engine.CreateSnapshot(ctx, req, progress)
}

type guest struct {
	agent  *agent.Agent
	dir    string
	socket string
	stop   context.CancelFunc
	served chan error
	paused bool
	cold   bool // its last pause did not keep the memory
	turn   chan struct{}
	moving sandbox.Status // if empty, it is not in transition
	ttl    time.Duration  // time left when its end was set

	conns map[net.Conn]bool
}

var _ e2bapi.Engine = (*Engine)(nil)

// New returns an engine that can make snapshots of images by these names.
func New(t testing.TB, images ...string) *Engine {
	e := &Engine{Engine: fakeengine.New(fakeengine.NewImages(images...)), t: t, dir: t.TempDir(),
		guests: map[string]*guest{}, images: map[string][]byte{}, Lives: map[string]e2bapi.Life{}}
	t.Cleanup(func() {
		e.Engine.Close()
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, g := range e.guests {
			g.end(t)
		}
	})
	return e
}

// system is a kernel that an identity does not change.
type system struct{}

func (system) AddEntropy([]byte) error                 { return nil }
func (system) SetClock(time.Time) error                { return nil }
func (system) SetHostname(string) error                { return nil }
func (system) WipeOnFork(context.Context) (int, error) { return 0, nil }
func (system) PrepareWipeOnFork(context.Context) error { return nil }
func (system) BindBootID(string) error                 { return nil }

// Fork starts an agent for each child.
func (e *Engine) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	if err := e.held(ctx); err != nil {
		return sandbox.ForkResult{}, err
	}
	res, err := e.Engine.Fork(ctx, req)
	if err != nil {
		return res, err
	}
	for _, c := range res.Children {
		if c.Err != nil {
			continue
		}
		if err := e.start(ctx, c.Info, req); err != nil {
			return res, errors.Join(err, e.Kill(context.WithoutCancel(ctx), c.Info.ID))
		}
	}
	return res, nil
}

func (e *Engine) start(ctx context.Context, info sandbox.Info, req sandbox.ForkRequest) error {
	dir, err := os.MkdirTemp(e.dir, "")
	if err != nil {
		return err
	}
	e.mu.Lock()
	image := e.images[req.Tag]
	e.mu.Unlock()
	if image != nil {
		if err := os.WriteFile(filepath.Join(dir, imageFile), image, 0o600); err != nil {
			return err
		}
	}
	a, err := agent.New(agent.Config{Version: "test", ImageFile: filepath.Join(dir, imageFile), Root: dir,
		System: system{}, HooksDir: "/hooks", CgroupMount: filepath.Join(dir, "none")})
	if err != nil {
		return err
	}
	g := &guest{agent: a, dir: dir, socket: filepath.Join(dir, "s"), served: make(chan error, 1),
		conns: map[net.Conn]bool{}, turn: make(chan struct{}, 1)}
	l, err := net.Listen("unix", g.socket)
	if err != nil {
		return err
	}
	serve, stop := context.WithCancel(context.Background())
	g.stop = stop
	go func() { g.served <- a.Serve(serve, l) }()
	// Login shells read the profile of a separate home, not of the user who runs the test.
	home := map[string]string{"HOME": dir}
	maps.Copy(home, req.Env)
	c := agentclient.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", g.socket)
	})
	defer c.Close()
	e.mu.Lock()
	e.guests[info.ID] = g
	e.mu.Unlock()
	_, err = c.Identity(ctx, &agentv1.IdentityRequest{SandboxId: info.ID, Index: uint32(info.Index), Env: home,
		Entropy: make([]byte, 32)})
	return err
}

// imageFile is the image's metadata, in a guest's folder.
const imageFile = "image.json"

// Branch keeps the image metadata of a guest's agent. Files are the host's, and programs are not in
// the clones.
func (e *Engine) Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	if err := e.held(ctx); err != nil {
		return sandbox.BranchResult{}, err
	}
	only := req
	only.N = 0
	res, err := e.Engine.Branch(ctx, only)
	if err != nil {
		return res, err
	}
	e.keepImage(req.SandboxID, res.Tag)
	if req.N == 0 {
		return res, nil
	}
	req.Tag, req.Owner = res.Tag, res.Snapshot.Owner
	forked, err := e.Fork(ctx, req.Children())
	res.Fork = &forked
	return res, err
}

// keepImage stores the image metadata of a sandbox's agent, for clones of its snapshot.
func (e *Engine) keepImage(id, tag string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.guests[id]
	if g == nil {
		return
	}
	if b, err := os.ReadFile(filepath.Join(g.dir, imageFile)); err == nil {
		e.images[tag] = b
	}
}

func (g *guest) end(t testing.TB) {
	for c := range g.conns {
		c.Close()
	}
	g.stop()
	if err := <-g.served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if err := g.agent.Close(); err != nil {
		t.Errorf("close agent: %v", err)
	}
}

// Kill ends a sandbox's agent. Connections to it break.
func (e *Engine) Kill(ctx context.Context, id string) error {
	if err := e.Engine.Kill(ctx, id); err != nil {
		return err
	}
	e.mu.Lock()
	g := e.guests[id]
	delete(e.guests, id)
	e.mu.Unlock()
	if g != nil {
		g.end(e.t)
	}
	return nil
}

// Get describes paused sandboxes like the real engine.
func (e *Engine) Get(id string) (sandbox.Info, error) {
	info, err := e.Engine.Get(id)
	return e.seen(info), err
}

// List returns all sandboxes in the form of Get.
func (e *Engine) List() []sandbox.Info {
	all := e.Engine.List()
	for i := range all {
		all[i] = e.seen(all[i])
	}
	return all
}

func (e *Engine) seen(info sandbox.Info) sandbox.Info {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.guests[info.ID]; g != nil && g.paused {
		info.Status, info.PID, info.Cold = sandbox.StatusPaused, 0, g.cold
	}
	if g := e.guests[info.ID]; g != nil && g.moving != "" {
		info.Status = g.moving
	}
	if l := e.Lives[info.ID]; !l.End.IsZero() {
		info.Life.Deadline = l.End
	}
	info.Volumes = slices.Clone(info.Volumes)
	for i := range info.Volumes {
		info.Volumes[i].Path = mountOf(e, info.Volumes[i].ID)
	}
	return info
}

// mountOf returns the directory that stands for a volume in all sandboxes. It is made at its first use.
func mountOf(e *Engine, volume string) string {
	path := filepath.Join(e.dir, volume)
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		e.t.Error(err)
	}
	return path
}

// take waits for the turn of a sandbox.
func (e *Engine) take(ctx context.Context, id string) (_ *guest, leave func(), _ error) {
	if _, err := e.Engine.Get(id); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	g := e.guests[id]
	e.mu.Unlock()
	if g == nil {
		return nil, nil, sandbox.Errorf(sandbox.ErrGuestGone, "", "sandbox %s does not run", id)
	}
	select {
	case g.turn <- struct{}{}:
		return g, func() { <-g.turn }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// move keeps a sandbox in transition until Moving returns.
func (e *Engine) move(g *guest, id string, to sandbox.Status) (done func()) {
	set := func(to sandbox.Status) {
		e.mu.Lock()
		defer e.mu.Unlock()
		g.moving = to
	}
	set(to)
	if e.Moving != nil {
		e.Moving(id, to)
	}
	return func() { set("") }
}

func (e *Engine) running(id string) (*guest, error) {
	if _, err := e.Engine.Get(id); err != nil {
		return nil, err
	}
	g := e.guests[id]
	if g == nil || g.paused {
		return nil, sandbox.Errorf(sandbox.ErrGuestGone, "", "sandbox %s does not run", id)
	}
	return g, nil
}

// DialAgent connects to a sandbox's agent.
func (e *Engine) DialAgent(ctx context.Context, id string) (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g, err := e.running(id)
	if err != nil {
		return nil, err
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", g.socket)
	if err == nil {
		g.conns[c] = true
	}
	return c, err
}

// DialPort connects to a server on this host, which all sandboxes share.
func (e *Engine) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	e.mu.Lock()
	g, err := e.running(id)
	e.mu.Unlock()
	if errors.Is(err, sandbox.ErrGuestGone) {
		err = sandbox.Errorf(sandbox.ErrNotFound, "", "%w", err)
	}
	if err != nil {
		return nil, err
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.ErrPortClosed, sandbox.ReasonPortRefused, "%w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g.conns[c] = true
	return c, nil
}

// PortAccess returns the rule for requests to a port.
func (e *Engine) PortAccess(id string, _ uint16) (sandbox.PortAccess, error) {
	info, err := e.Engine.Get(id)
	return info.PortAccess(), err
}

// Pause makes a sandbox stop answering, and breaks its connections.
func (e *Engine) Pause(ctx context.Context, id string, filesystemOnly bool) error {
	g, leave, err := e.take(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	e.mu.Lock()
	_, err = e.running(id)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	defer e.move(g, id, sandbox.StatusPausing)()
	e.mu.Lock()
	defer e.mu.Unlock()
	g.paused, g.cold = true, filesystemOnly
	for c := range g.conns {
		c.Close()
	}
	return nil
}

// Resume ends a pause, and sets the end again.
func (e *Engine) Resume(ctx context.Context, id string) error {
	g, leave, err := e.take(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	e.mu.Lock()
	paused := g.paused
	e.mu.Unlock()
	if !paused {
		return nil
	}
	defer e.move(g, id, sandbox.StatusResuming)()
	e.mu.Lock()
	defer e.mu.Unlock()
	g.paused = false
	e.Resumed++
	if l := e.Lives[id]; !l.End.IsZero() {
		l.End = time.Now().Add(g.ttl)
		e.Lives[id] = l
	}
	return nil
}

// Settle waits for a sandbox's transition.
func (e *Engine) Settle(ctx context.Context, id string) error {
	_, leave, err := e.take(ctx, id)
	if err == nil {
		leave()
	}
	return err
}

// Wake waits for a transition, and resumes a sandbox that traffic resumes.
func (e *Engine) Wake(ctx context.Context, id string) error {
	if err := e.Settle(ctx, id); err != nil {
		return err
	}
	e.mu.Lock()
	g, auto := e.guests[id], e.Lives[id].AutoResume
	paused := g == nil || g.paused
	e.mu.Unlock()
	switch {
	case !paused:
		return nil
	case auto:
		return e.Resume(ctx, id)
	}
	return sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s is not running", id)
}

// SetLife records the life. It immediately ends a sandbox without time left.
func (e *Engine) SetLife(ctx context.Context, id string, l e2bapi.Life) error {
	e.mu.Lock()
	e.Lives[id] = l
	g := e.guests[id]
	if g != nil {
		g.ttl = time.Until(l.End)
	}
	over := g != nil && g.paused
	e.mu.Unlock()
	if over {
		return nil
	}
	if l.End.IsZero() || l.End.After(time.Now()) {
		return nil
	}
	if l.Pause {
		return e.Pause(ctx, id, l.FilesystemOnly)
	}
	return e.Kill(ctx, id)
}

// Touch does nothing.
func (e *Engine) Touch(string) {}

// Serve returns an HTTP handler that replaces the daemon's listener. Requests that do not match get
// status 418.
func Serve(h *e2bapi.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.Match(r) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		h.ServeHTTP(w, r)
	})
}
