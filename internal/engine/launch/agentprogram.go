package launch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/updatewire"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// AgentProgram is the daemon's own program of the guest's agent. It is safe for concurrent use.
type AgentProgram struct {
	file   *os.File
	header updatewire.Header
}

// AgentFile opens the program at a path. It computes the digest again only if the file has changed.
// The zero value has no program.
type AgentFile struct {
	// Path is the program of the agent; empty if agents are not replaced.
	Path string

	mu     sync.Mutex
	known  unix.Stat_t // of the file with the header
	header updatewire.Header
}

// AgentAt returns the program at a path.
func AgentAt(path string) *AgentFile { return &AgentFile{Path: path} }

// Open opens the program. The caller closes it.
func (a *AgentFile) Open() (_ *AgentProgram, err error) {
	f, err := os.Open(a.Path)
	if err != nil {
		return nil, fmt.Errorf("open the agent's program: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("open the agent's program: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.known; a.header.Size == 0 || k.Dev != st.Dev || k.Ino != st.Ino || k.Size != st.Size || k.Mtim != st.Mtim ||
		k.Ctim != st.Ctim {
		if st.Size == 0 || st.Size > updatewire.MaxProgram {
			return nil, fmt.Errorf("the agent's program %s has %d bytes, want 1 to %d", a.Path, st.Size, updatewire.MaxProgram)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, io.NewSectionReader(f, 0, st.Size)); err != nil {
			return nil, fmt.Errorf("read the agent's program: %w", err)
		}
		a.known, a.header = st, updatewire.Header{Size: st.Size, Digest: [sha256.Size]byte(sum.Sum(nil))}
	}
	return &AgentProgram{f, a.header}, nil
}

// Describe describes the agent of a snapshot beside this program. It returns nil if the snapshot has no record of
// its agent.
func (a *AgentFile) Describe(old snapshot.Agent) *sandbox.Agent {
	if old.Version == "" && len(old.Capabilities) == 0 {
		return nil
	}
	return a.Judge(&sandbox.Agent{Version: old.Version, Capabilities: old.Capabilities})
}

// Judge returns the description of an agent as seen from this program. old may be nil, and is not changed.
func (a *AgentFile) Judge(old *sandbox.Agent) *sandbox.Agent {
	if old == nil {
		return nil
	}
	now := *old
	now.Outdated = agentproto.Outdated(old.Capabilities)
	now.Replaceable = slices.Contains(old.Capabilities, agentproto.CanUpdate) && a.Path != ""
	return &now
}

// Close closes the program. p may be nil.
func (p *AgentProgram) Close() {
	if p != nil {
		p.file.Close()
	}
}

// RefusedError is the error of an agent that goes on with its old program.
type RefusedError struct{ Reason guesttext.Text }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("its agent is older than this daemon and refused its replacement: %s", e.Reason)
}

// RenewAgent replaces the agent's program in a restored guest, before its identity. It returns the
// new agent's information about itself, which has the capabilities of demand. After a RefusedError the
// old agent goes on. After any other error the guest is unusable.
func (l *Launcher) RenewAgent(ctx context.Context, src *Source, m *VM, p *AgentProgram,
	demand []string) (snapshot.Agent, error) {
	limit := src.extend(l.cfg.IdentityTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "the guest did not replace its agent within %s", limit))
	defer cancel()
	began := time.Now()
	if err := l.sendAgent(ctx, m, p); err != nil {
		return snapshot.Agent{}, err
	}
	sent := time.Since(began)
	said, err := l.awaitAgent(ctx, m)
	if err != nil {
		return snapshot.Agent{}, fmt.Errorf("the new agent does not answer: %w", err)
	}
	for _, c := range demand {
		if !said.Can(c) {
			return said, fmt.Errorf("the new agent lacks %s", c)
		}
	}
	l.cfg.Log.Debug("agent replaced", "from", src.Agent.Version, "to", said.Version,
		"sent", sent, "took", time.Since(began))
	return said, nil
}

// sendAgent sends the program until the guest runs it. A guest that was just restored may still
// drop connections.
func (l *Launcher) sendAgent(ctx context.Context, m *VM, p *AgentProgram) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		asked, err := sendOnce(ctx, m.Proc.VsockPath(), p)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case asked || !m.Alive():
			return err
		}
		ctxsleep.For(ctx, wait)
	}
}

// sendOnce sends the program on one connection. asked reports whether the guest has answered.
func sendOnce(ctx context.Context, vsock string, p *AgentProgram) (asked bool, err error) {
	c, err := client.DialVsock(ctx, vsock, agentproto.UpdatePort)
	if err != nil {
		return false, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := updatewire.WriteHeader(c, p.header); err != nil {
		return false, err
	}
	// A guest may refuse before it has taken all of it, so the answer counts.
	_, sent := io.Copy(c, io.NewSectionReader(p.file, 0, p.header.Size))
	a, err := updatewire.ReadAnswer(c)
	if err != nil {
		return false, errors.Join(sent, err)
	}
	if a.Code == updatewire.Going {
		if a, err = updatewire.ReadAnswer(c); err != nil { // the connection ended with the old program
			return true, nil
		}
	}
	if a.Code == updatewire.Refused {
		return true, &RefusedError{guesttext.Of(a.Reason)}
	}
	return true, agentproto.Violationf("it began an update twice")
}

// awaitAgent waits for the answer of a new agent.
func (l *Launcher) awaitAgent(ctx context.Context, m *VM) (snapshot.Agent, error) {
	if m.Agent != nil {
		m.Agent.Close()
	}
	m.Agent = m.NewAgent()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		pong, err := m.Agent.Ping(ctx)
		switch {
		case err == nil:
			return snapshot.Agent{Version: pong.GetVersion(), Capabilities: pong.GetCapabilities()}.Bounded(), nil
		case ctx.Err() != nil:
			return snapshot.Agent{}, context.Cause(ctx)
		case !m.Alive() || m.WaitEnd(time.Millisecond):
			return snapshot.Agent{}, m.EndError()
		}
		ctxsleep.For(ctx, wait)
	}
}
