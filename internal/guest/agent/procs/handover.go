package procs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// ErrUnsettled means that a command is just starting or ending.
var ErrUnsettled = errors.New("a command is just starting or ending")

// maxSaved limits the commands of one state.
const maxSaved = 4096

// Saved is the state of a Table for a later program of this agent. It lacks commands that have
// ended, so their end can no longer be queried.
type Saved struct {
	Processes []savedProcess `json:"processes"`
	// Drains are outputs of ended commands which background processes hold open.
	Drains []handover.FD `json:"drains"`
}

type savedProcess struct {
	PID      int             `json:"pid"`
	Group    string          `json:"group"`
	Info     json.RawMessage `json:"info"` // process.ProcessInfo
	Terminal bool            `json:"terminal"`
	Stdin    handover.FD     `json:"stdin"`
	Outputs  []savedOutput   `json:"outputs"`
	Limit    time.Time       `json:"limit"`
	Keeps    bool            `json:"keeps"` // output is kept for the next caller
	Kept     []savedPiece    `json:"kept"`
	Dropped  int64           `json:"dropped"`
}

type savedOutput struct {
	FD   handover.FD `json:"fd"`
	Size int         `json:"size"`
	From stream      `json:"from"`
}

type savedPiece struct {
	From  stream `json:"from"`
	Bytes []byte `json:"bytes"`
}

// Suspend keeps the table as it is until release is called. The caller has locked the gate, and holds
// back requests.
func (t *Table) Suspend() (release func()) {
	t.mu.Lock()
	return t.mu.Unlock
}

// Save returns the state. The caller holds the table and the reaper. pids are the children in the
// state, and groups their control groups.
func (t *Table) Save(b *handover.Bundle) (s Saved, pids []int, groups []string, err error) {
	for p, outs := range t.all {
		switch {
		case p.hasEnded():
			for _, o := range outs {
				if fd := b.Add(o.f); fd != 0 {
					s.Drains = append(s.Drains, fd)
				}
			}
			continue
		case p.child.HasEnded():
			return Saved{}, nil, nil, ErrUnsettled
		}
		one, err := p.save(b, outs)
		if err != nil {
			return Saved{}, nil, nil, err
		}
		s.Processes = append(s.Processes, one)
		pids, groups = append(pids, one.PID), append(groups, one.Group)
	}
	return s, pids, groups, nil
}

func (p *Process) save(b *handover.Bundle, outs []output) (savedProcess, error) {
	info, err := protojson.Marshal(p.info)
	if err != nil {
		return savedProcess{}, fmt.Errorf("encode command %d: %w", p.child.Pid, err)
	}
	s := savedProcess{PID: p.child.Pid, Group: p.group.Name(), Info: info, Terminal: p.pty != nil,
		Stdin: b.Add(p.stdin), Limit: p.limit}
	for _, o := range outs {
		if fd := b.Add(o.f); fd != 0 {
			s.Outputs = append(s.Outputs, savedOutput{fd, o.size, o.from})
		}
	}
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	if len(p.hub.subs) > 0 {
		return savedProcess{}, fmt.Errorf("command %d has a caller", p.child.Pid)
	}
	if k := p.hub.kept; k != nil {
		s.Keeps, s.Dropped = true, k.dropped
		for _, piece := range k.pieces {
			s.Kept = append(s.Kept, savedPiece{piece.from, piece.b})
		}
	}
	return s, nil
}

// Restore takes over the commands of an earlier program, before the reaper runs.
func (t *Table) Restore(from *handover.State, s Saved) error {
	if len(s.Processes) > maxSaved || len(s.Drains) > 2*maxSaved {
		return fmt.Errorf("%d commands and %d outputs, want at most %d", len(s.Processes), len(s.Drains), maxSaved)
	}
	for _, saved := range s.Processes {
		if err := t.restore(from, saved); err != nil {
			return fmt.Errorf("command %d: %w", saved.PID, err)
		}
	}
	for _, fd := range s.Drains {
		f, err := from.File(fd, "output")
		if err != nil {
			return err
		}
		t.drain(f)
	}
	return nil
}

// drain discards output of background processes until they close it, or the table closes.
func (t *Table) drain(f *os.File) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drains = append(t.drains, f)
	t.running.Go(func() {
		_, _ = io.Copy(io.Discard, f)
		_ = f.Close()
	})
}

func (t *Table) restore(from *handover.State, s savedProcess) (err error) {
	info := &process.ProcessInfo{}
	if err := protojson.Unmarshal(s.Info, info); err != nil {
		return err
	}
	p := t.newProcess(info)
	var outs []output
	defer func() {
		if err != nil {
			p.closeFiles(outs)
		}
	}()
	if p.stdin, err = from.File(s.Stdin, "stdin"); err != nil {
		return err
	}
	for _, o := range s.Outputs {
		f, err := from.File(o.FD, "output")
		if err != nil {
			return err
		}
		if o.Size <= 0 || o.Size > chunkSize || o.From > fromPTY {
			return fmt.Errorf("output %d has pieces of %d bytes", o.From, o.Size)
		}
		outs = append(outs, output{f, o.Size, o.From})
		if s.Terminal {
			p.pty = f
		}
	}
	if p.group, err = t.groups.Adopt(s.Group); err != nil {
		return err
	}
	p.limit = s.Limit
	p.hub.kept = s.backlog()
	before := t.oom.Mark()
	p.killed = func() string { return killedBy(t.oom.Since(before), p.child.Pid, t.others(p)) }
	p.child = t.reaper.Adopt(s.PID)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.carryLocked(p, outs)
	return nil
}

func (s savedProcess) backlog() *backlog {
	if !s.Keeps {
		return nil
	}
	l := &backlog{dropped: max(s.Dropped, 0)}
	for _, p := range s.Kept {
		if len(p.Bytes) > 0 {
			l.add(p.From, p.Bytes)
		}
	}
	return l
}
