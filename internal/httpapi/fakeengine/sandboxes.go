package fakeengine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/sandbox"
)

// Fork makes children until Limit sandboxes run. It waits for a branch that is
// being written.
func (e *Engine) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	if err := e.written(ctx, req.Tag); err != nil {
		return sandbox.ForkResult{}, err
	}
	if req.N < 1 || req.N > sandbox.MaxFork {
		return sandbox.ForkResult{}, fmt.Errorf("n is %d, want 1 to %d: %w", req.N, sandbox.MaxFork, sandbox.ErrInvalid)
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
		return sandbox.ForkResult{}, fmt.Errorf("fork %s: memory: file is missing: %w", req.Tag, sandbox.ErrNotRestorable)
	}
	network, err := forkNetwork(e, req, snap)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	e.forks++
	res := sandbox.ForkResult{
		PoolReady: min(e.pools[req.Tag], req.N),
		ArmedWall: time.Duration(req.N) * time.Millisecond, ReadyWall: time.Duration(2*req.N) * time.Millisecond,
	}
	for i := 1; i <= req.N; i++ {
		child := e.forkOneLocked(req, snap, network, i)
		if res.Children = append(res.Children, child); req.Each != nil {
			req.Each(child)
		}
	}
	return res, nil
}

func (e *Engine) forkOneLocked(req sandbox.ForkRequest, snap sandbox.SnapshotInfo, network sandbox.Network,
	i int) sandbox.Child {
	if len(e.entries) >= e.Limit {
		return sandbox.Child{Index: i, Err: fmt.Errorf("child %d: %w: 8 MiB asked, 0 MiB available", i, sandbox.ErrNoMemory)}
	}
	id := fmt.Sprintf("sb-%08x-%04d", e.forks, i)
	b := &entry{env: req.Env, guest: newGuest(req.Env), info: sandbox.Info{
		ID: id, SnapshotTag: req.Tag, SnapshotHash: snap.ContentHash, Index: i, Status: sandbox.StatusRunning,
		PID: 1000 + i, CreatedAt: e.Now,
		Shape: snap.Shape, Hostname: id, Kin: sandbox.Kin{MayFork: req.GuestFork},
		Network: network,
		Armed:   time.Duration(i) * time.Millisecond / 2, Resumed: time.Duration(i) * time.Millisecond,
		Ready: time.Duration(2*i) * time.Millisecond,
	}}
	e.entries[id] = b
	e.recordLocked(forkReceipt(b.info, snap), e.Now)
	return sandbox.Child{Index: i, Info: b.info}
}

func (e *Engine) List() []sandbox.Info {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []sandbox.Info
	for _, b := range e.entries {
		info := b.info
		if info.Status == sandbox.StatusRunning {
			info.OwnMemory = 5 << 20
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b sandbox.Info) int { return strings.Compare(a.ID, b.ID) })
	return out
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
	return nil, fmt.Errorf("sandbox %s: %w", id, sandbox.ErrNotFound)
}

// live is entry for operations that need the guest.
func (e *Engine) live(id string) (*entry, error) {
	b, err := e.entry(id)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.info.Status != sandbox.StatusRunning {
		return nil, fmt.Errorf("sandbox %s: %s: %w", id, b.info.Reason, sandbox.ErrGuestGone)
	}
	return b, nil
}

// Fail makes a sandbox's VM end by itself.
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
		return fmt.Errorf("sandbox %s: %w", id, sandbox.ErrNotFound)
	}
	delete(e.entries, id)
	b.guest.close()
	return nil
}

func (e *Engine) Console(id string) (io.ReadCloser, error) {
	if _, err := e.entry(id); err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader("[    0.000000] Linux version 6.12\n[    1.000000] forkd-agent: ready\n")), nil
}

// FollowConsole is Console, and then what the guest's end has it say.
func (e *Engine) FollowConsole(ctx context.Context, id string, lines int, write func([]byte) error) error {
	text, err := e.Console(id)
	if err != nil {
		return err
	}
	defer text.Close()
	b, err := io.ReadAll(text)
	if err != nil {
		return err
	}
	all := strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
	if lines >= 0 {
		all = all[max(0, len(all)-lines):]
	}
	entry, gone := e.live(id) // before anybody has read something and kills it
	if err := write([]byte(strings.Join(all, "") + "\n")); err != nil {
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

func (e *Engine) Ping(_ context.Context, id string) (sandbox.Pong, error) {
	if _, err := e.live(id); err != nil {
		return sandbox.Pong{}, err
	}
	return sandbox.Pong{PID: 1, NumpyVersion: "1.24.2", Uptime: 3 * time.Second}, nil
}

// Exec knows the programs of the fake guest.
func (e *Engine) Exec(ctx context.Context, id string, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	b, err := e.live(id)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	if len(req.Args) == 0 {
		return sandbox.ExecResult{}, fmt.Errorf("no program to run: %w", sandbox.ErrInvalid)
	}
	run, ok := programs()[req.Args[0]]
	if !ok {
		return sandbox.ExecResult{}, fmt.Errorf("exec in %s: %s: no such program: %w", id, req.Args[0], sandbox.ErrInvalid)
	}
	if req.Args[0] == "sleep" { // nobody waits for the fake's limit
		return sandbox.ExecResult{TimedOut: true, ExitCode: 124}, nil
	}
	var out, errOut bytes.Buffer
	code := run(&proc{
		ctx: ctx, args: req.Args[1:], env: merged(b.env, req.Env), user: req.User, cwd: req.Cwd,
		stdin: bytes.NewReader(req.Stdin), stdout: &out, stderr: &errOut,
	})
	return sandbox.ExecResult{Stdout: out.Bytes(), Stderr: errOut.Bytes(), ExitCode: code}, nil
}

// Eval knows a few expressions, and raises for "raise".
func (e *Engine) Eval(_ context.Context, id string, req sandbox.EvalRequest) (sandbox.EvalResult, error) {
	b, err := e.live(id)
	if err != nil {
		return sandbox.EvalResult{}, err
	}
	switch req.Code {
	case "raise":
		return sandbox.EvalResult{Error: "Traceback (most recent call last):\nRuntimeError: raised"}, nil
	case "exit(3)":
		return sandbox.EvalResult{Stderr: "leaving\n", ExitCode: 3}, nil
	case "bytes":
		return sandbox.EvalResult{Stdout: "\x00\xff\n", Stderr: "\xfe"}, nil
	case "print('hi')":
		return sandbox.EvalResult{Stdout: "hi\n"}, nil
	case "index":
		return sandbox.EvalResult{Result: fmt.Sprint(b.info.Index)}, nil
	}
	return sandbox.EvalResult{Result: "42", Took: 3 * time.Millisecond, Guest: 2 * time.Millisecond}, nil
}

// DialAgent connects to the fake agent's HTTP server.
func (e *Engine) DialAgent(_ context.Context, id string) (net.Conn, error) {
	b, err := e.live(id)
	if err != nil {
		return nil, err
	}
	return b.guest.dial()
}

func merged(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}
