package interp

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/guest/agent/handover"
)

// Saved is the state of a Set for a later program of this agent, by language.
type Saved map[string]savedSlot

type savedSlot struct {
	Proc *savedProc `json:"proc"` // nil if the interpreter does not run
	Owed *Seed      `json:"owed"`
	Lost string     `json:"lost"`
}

type savedProc struct {
	PID       int               `json:"pid"`
	Group     string            `json:"group"`
	In        handover.FD       `json:"in"`
	Out       handover.FD       `json:"out"`
	Stdout    savedCapture      `json:"stdout"`
	Stderr    savedCapture      `json:"stderr"`
	ActsAlone bool              `json:"acts_alone"`
	Version   string            `json:"version"`
	Modules   map[string]string `json:"modules"`
}

type savedCapture struct {
	FD      handover.FD `json:"fd"`
	Kept    []byte      `json:"kept"`
	Dropped int64       `json:"dropped"`
}

// TrySuspend holds back evaluations until release is called. It returns false if one is under way.
func (s *Set) TrySuspend() (release func(), ok bool) {
	var held []*slot
	release = func() {
		for _, sl := range held {
			s.release(sl)
		}
	}
	for _, name := range s.names {
		sl := s.slots[name]
		if !sl.tryAcquire() {
			release()
			return nil, false
		}
		held = append(held, sl)
	}
	return release, true
}

// Save returns the state. The caller holds the set, the gate and the reaper. pids are the processes
// in the state, and groups their control groups.
func (s *Set) Save(b *handover.Bundle) (out Saved, pids []int, groups []string) {
	out = Saved{}
	for name, sl := range s.slots {
		sl.mu.Lock()
		one := savedSlot{Owed: sl.owed}
		sl.mu.Unlock()
		if sl.lost != nil {
			one.Lost = sl.lost.Error()
		}
		if p := sl.proc; p != nil && p.alive() {
			one.Proc = p.save(b)
			pids, groups = append(pids, one.Proc.PID), append(groups, one.Proc.Group)
		}
		out[name] = one
	}
	return out, pids, groups
}

func (p *proc) save(b *handover.Bundle) *savedProc {
	p.aboutMu.Lock()
	defer p.aboutMu.Unlock()
	return &savedProc{PID: p.child.Pid, Group: p.group.Name(), In: b.Add(p.in), Out: b.Add(p.out),
		Stdout: p.stdout.save(b), Stderr: p.stderr.save(b), ActsAlone: p.actsAlone, Version: p.version, Modules: p.modules}
}

func (c *capture) save(b *handover.Bundle) savedCapture {
	c.mu.Lock()
	defer c.mu.Unlock()
	return savedCapture{b.Add(c.f), c.buf, c.dropped}
}

// Restore takes over the interpreters of an earlier program, before the reaper runs.
func (s *Set) Restore(from *handover.State, saved Saved) error {
	for name, one := range saved {
		sl := s.slots[name]
		if sl == nil {
			return fmt.Errorf("interpreter %.40q: this agent has no such language", name)
		}
		if sl.owed = one.Owed; one.Lost != "" {
			sl.lost = errors.New(one.Lost)
		}
		if one.Proc == nil {
			continue
		}
		p, err := s.adopt(from, sl.lang, one.Proc)
		if err != nil {
			return fmt.Errorf("interpreter %s: %w", name, err)
		}
		sl.set(p)
	}
	return nil
}

func (s *Set) adopt(from *handover.State, lang Language, saved *savedProc) (_ *proc, err error) {
	var files [4]*os.File
	for i, fd := range []handover.FD{saved.In, saved.Out, saved.Stdout.FD, saved.Stderr.FD} {
		if files[i], err = from.File(fd, "pipe"); err == nil && files[i] == nil {
			err = errors.New("a pipe was not handed over")
		}
		if err != nil {
			return nil, err // the caller closes the rest with the state
		}
	}
	group, err := s.groups.Adopt(saved.Group)
	if err != nil {
		return nil, err
	}
	p := &proc{lang: lang, group: group, in: files[0], out: files[1], actsAlone: saved.ActsAlone,
		version: saved.Version, modules: saved.Modules,
		stdout: newCapture(files[2], s.gate), stderr: newCapture(files[3], s.gate)}
	p.stdout.fill(saved.Stdout)
	p.stderr.fill(saved.Stderr)
	p.child = s.reaper.Adopt(saved.PID)
	p.listen()
	return p, nil
}

func (c *capture) fill(s savedCapture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepLocked(s.Kept)
	c.dropped += max(s.Dropped, 0)
}
