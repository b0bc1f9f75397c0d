package fakeengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// Fork makes children until Limit sandboxes run. It waits for a branch being written.
func (e *Engine) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	leave, err := e.Drain.Enter()
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	defer leave()
	if err := e.written(ctx, req.Tag); err != nil {
		return sandbox.ForkResult{}, err
	}
	if req.N < 1 || req.N > sandbox.MaxFork {
		return sandbox.ForkResult{}, fmt.Errorf("n is %d, want 1 to %d: %w", req.N, sandbox.MaxFork, sandbox.ErrInvalid)
	}
	if err := errors.Join(sandbox.CheckEnv(req.Env), sandbox.CheckLabels(req.Labels)); err != nil {
		return sandbox.ForkResult{}, err
	}
	if err := sandbox.CheckVolumes(req.Volumes, req.N); err != nil {
		return sandbox.ForkResult{}, err
	}
	given, values, err := sandbox.GiveSecrets(e.Secrets, req.Owner, req.Secrets, req.Env)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	snap, err := e.snapshotLocked(req.Tag)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return sandbox.ForkResult{}, fmt.Errorf("fork: %w", err)
	}
	if snap.Status != sandbox.SnapshotReady {
		return sandbox.ForkResult{}, fmt.Errorf("fork %s: memory: file is missing: %w", req.Tag, storeerr.ErrNotRestorable)
	}
	if req.Life, err = req.Life.Set(clock(e)); err != nil {
		return sandbox.ForkResult{}, err
	}
	network, err := forkNetwork(e, req, snap)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	e.forks++
	took, err := takeVolumes(e, req, newID(e.NodeKey, e.forks, 1))
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	members, err := joinNetwork(e, req)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	res := sandbox.ForkResult{
		PoolReady: min(e.pools[req.Tag], req.N),
		ArmedWall: time.Duration(req.N) * time.Millisecond, ReadyWall: time.Duration(2*req.N) * time.Millisecond,
	}
	for i := 1; i <= req.N; i++ {
		child := e.forkOneLocked(req, snap, network, i, given)
		childSteps(ctx, child.Index)
		if b := e.entries[child.Info.ID]; child.Err == nil {
			b.secrets, b.info.Volumes = values, append(clonesOf(snap.Volumes), took...)
			b.info.Network.Member = memberOf(members, b.info.ID)
			child.Info = b.info
		}
		if res.Children = append(res.Children, child); req.Each != nil {
			req.Each(child)
		}
	}
	return res, nil
}

func (e *Engine) forkOneLocked(req sandbox.ForkRequest, snap sandbox.SnapshotInfo, network sandbox.Network,
	i int, given []sandbox.HeldSecret) sandbox.Child {
	if len(e.entries) >= e.Limit {
		return sandbox.Child{Index: i, Err: fmt.Errorf("child %d: %w: 8 MiB asked, 0 MiB available", i, sandbox.ErrNoMemory)}
	}
	id := newID(e.NodeKey, e.forks, i)
	token := trafficToken(req, snap, e.forks, i)
	b := &entry{env: req.Env, guest: newGuest(req.Env, e.disks[req.Tag]), info: sandbox.Info{
		ID: id, SnapshotTag: req.Tag, SnapshotHash: snap.ContentHash, Index: i, Status: sandbox.StatusRunning,
		Fork: newID(e.NodeKey, e.forks, 1),
		PID:  1000 + i, CreatedAt: e.Now, Owner: req.Owner,
		Agent: agentOf(snap),
		Shape: snap.Shape, Hostname: id, Kin: sandbox.Kin{MayFork: req.GuestFork, Identity: req.Identity, Key: req.Kin.Key},
		Limits: req.Limits, Life: req.Life, Network: network, Secrets: sandbox.InheritSecrets(secretsOf(snap), given),
		PublicPorts: token == "", TrafficToken: token, Labels: req.Labels,
		Armed: time.Duration(i) * time.Millisecond / 2, Resumed: time.Duration(i) * time.Millisecond,
		Ready: time.Duration(2*i) * time.Millisecond,
	}}
	for _, spec := range req.Services {
		if err := b.guest.services.Declare(context.Background(), spec); err != nil {
			return sandbox.Child{Index: i, Err: err}
		}
	}
	e.entries[id] = b
	e.recordLocked(forkReceipt(b.info, snap), e.Now)
	return sandbox.Child{Index: i, Info: b.info}
}

// agentOf returns the agent of a snapshot's children: the one of now, unless a test has set another.
func agentOf(snap sandbox.SnapshotInfo) *sandbox.Agent {
	if snap.Agent != nil {
		return snap.Agent
	}
	return &sandbox.Agent{Version: "0.1.0", Capabilities: agentproto.Capabilities(), Replaceable: true}
}

// SkipIDs leaves out the ids of n forks, before the first fork: those of a daemon of the same node that has ended.
func SkipIDs(e *Engine, n int) { e.forks += n }

// newID returns the same ids in each run of a test.
func newID(key sandbox.NodeKey, fork, child int) string {
	if key == "" {
		return fmt.Sprintf("sb-%08x-%04d", fork, child)
	}
	return key.NewID(fmt.Appendf(nil, "%05x%05x", fork, child))
}

// trafficToken returns the same token in each run of a test.
func trafficToken(req sandbox.ForkRequest, snap sandbox.SnapshotInfo, fork, index int) string {
	if private := req.PrivatePorts; private != nil && !*private || private == nil && !snap.PrivatePorts {
		return ""
	}
	return fmt.Sprintf("%060x%04x", fork, index)
}

// Guard implements ingress.Guard.
type Guard struct {
	// Of is the engine that has the sandboxes.
	Of *Engine
}

// PortAccess implements ingress.Guard.
func (g Guard) PortAccess(id string, _ uint16) (sandbox.PortAccess, error) {
	info, err := g.Of.Get(sandbox.CanonicalID(id))
	return info.PortAccess(), err
}

func (e *Engine) List() []sandbox.Info {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []sandbox.Info
	for _, b := range e.entries {
		info := b.info
		if info.Status == sandbox.StatusRunning {
			info.OwnMemory = 5 << 20
			info.Services = sandbox.ServicesOf(b.guest.services.List().Services)
			info.Use = &sandbox.Use{Memory: 40 << 20, Peak: 50 << 20, CPU: e.used(), Threads: 9,
				Net: sandbox.NetUse{In: 7, Out: 5, Limit: int64(cmp.Or(info.Limits.NetMiB, info.Limits.Tree.NetMiB)) << 20}}
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b sandbox.Info) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// used returns the CPU time of each sandbox. It grows with each call.
func (e *Engine) used() time.Duration {
	e.looks++
	return time.Duration(e.looks) * 100 * time.Millisecond
}

func (e *Engine) Get(id string) (sandbox.Info, error) {
	b, err := e.entry(id)
	if err != nil {
		return sandbox.Info{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return b.info, nil
}

func (e *Engine) entry(id string) (*entry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b, ok := e.entries[id]; ok {
		return b, nil
	}
	if m, ok := e.away[id]; ok {
		return nil, sandbox.MovedAway(id, m.owner, m.to)
	}
	return nil, fmt.Errorf("sandbox %s %w", id, sandbox.ErrNotFound)
}

// live is entry for operations that need a running guest.
func (e *Engine) live(id string) (*entry, error) {
	b, err := e.entry(id)
	if err != nil {
		return nil, err
	}
	if info, _ := e.Get(id); e.Wakes && info.Status == sandbox.StatusPaused && info.Life.AutoResume {
		if _, err := e.Resume(context.Background(), id); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.info.Status == sandbox.StatusPaused {
		return nil, sandbox.Paused(b.info)
	}
	if b.info.Status != sandbox.StatusRunning {
		return nil, fmt.Errorf("sandbox %s: %s: %w", id, b.info.Reason, sandbox.ErrGuestGone)
	}
	return b, nil
}

// Fail makes a sandbox's VM fail.
func (e *Engine) Fail(id, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.entries[id]
	b.info.Status, b.info.Reason, b.info.PID = sandbox.StatusFailed, reason, 0
	b.guest.close()
}

func (e *Engine) Kill(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.entries[id]
	if !ok {
		return fmt.Errorf("sandbox %s %w", id, sandbox.ErrNotFound)
	}
	releaseVolumes(e, b.info)
	leaveNetwork(e, b.info)
	delete(e.entries, id)
	b.guest.close()
	return nil
}

func (e *Engine) KillTree(_ context.Context, id string) (ended []string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.entries[id]
	if !ok {
		return nil, fmt.Errorf("sandbox %s %w", id, sandbox.ErrNotFound)
	}
	root := b.info.Kin.RootOf(id)
	for id, b := range e.entries {
		if b.info.Kin.RootOf(id) == root {
			releaseVolumes(e, b.info)
			leaveNetwork(e, b.info)
			delete(e.entries, id)
			b.guest.close()
			ended = append(ended, id)
		}
	}
	slices.Sort(ended)
	return ended, nil
}

func (e *Engine) Console(id string) (io.ReadCloser, error) {
	if _, err := e.entry(id); err != nil {
		return nil, err
	}
	text := cmp.Or(e.ConsoleText, "[    0.000000] Linux version 6.12\n[    1.000000] forkd-agent: ready\n")
	return io.NopCloser(strings.NewReader(text)), nil
}

func lastLines(text io.Reader, n int) (io.ReadCloser, error) {
	b, err := io.ReadAll(text)
	all := strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
	last := strings.Join(all[max(0, len(all)-n):], "") + "\n"
	return io.NopCloser(strings.NewReader(last)), err
}

// FollowConsole writes Console's text, then the console output of the guest's end.
func (e *Engine) FollowConsole(ctx context.Context, id string, lines int, write func([]byte) error) error {
	text, err := e.Console(id)
	if err != nil {
		return err
	}
	defer text.Close()
	entry, gone := e.live(id) // look it up before a reader of the text kills it
	if lines >= 0 {
		text, err = lastLines(text, lines)
	}
	for buf := make([]byte, 32<<10); err == nil; {
		var n int
		if n, err = text.Read(buf); n > 0 {
			err = errors.Join(err, write(buf[:n]))
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if gone != nil {
		return nil
	}
	select {
	case <-entry.guest.ended:
		return write([]byte("reboot: Power down\n"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *Engine) Memory(id string) (sandbox.MemoryUse, error) {
	if _, err := e.live(id); err != nil {
		return sandbox.MemoryUse{}, err
	}
	return sandbox.MemoryUse{VMMAnonKiB: 1800, GuestDirtyKiB: 900, PSSKiB: 4000, GuestSharedKiB: 21000}, nil
}
