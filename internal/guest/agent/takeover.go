package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/freepages"
	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/guest/agent/interp"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/procs"
	"github.com/forkd/forkd/internal/guest/agent/services"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// state is the state of an agent, for the next program of it.
type state struct {
	Record   defaults.Saved  `json:"record"`
	Groups   procgroup.Saved `json:"groups"`
	Commands procs.Saved     `json:"commands"`
	Services services.Saved  `json:"services"`
	Interp   interp.Saved    `json:"interpreters"`
	Free     freepages.Saved `json:"free_pages"`
	Had      int64           `json:"had"` // peak memory of an interpreter when reports were switched off
	Own      json.RawMessage `json:"own"` // of the agent's caller
}

// Own returns the state of New's caller in a state.
func Own(s *handover.State, v any) error {
	var all struct {
		Own json.RawMessage `json:"own"`
	}
	if err := s.Decode(&all); err != nil {
		return err
	}
	if err := json.Unmarshal(all.Own, v); err != nil {
		return fmt.Errorf("read the old agent's state: %w", err)
	}
	return nil
}

func (s state) services(files *handover.State) *services.Restored {
	if files == nil {
		return nil
	}
	return &services.Restored{Saved: s.Services, Files: files}
}

// takeOver restores the state of an earlier program, except for services.
func (a *Agent) takeOver(s state) error {
	a.rec.Restore(s.Record)
	a.free.Restore(s.Free)
	a.had.Store(s.Had)
	if err := a.procs.Restore(a.cfg.From, s.Commands); err != nil {
		return fmt.Errorf("take over commands: %w", err)
	}
	if err := a.interp.Restore(a.cfg.From, s.Interp); err != nil {
		return fmt.Errorf("take over interpreters: %w", err)
	}
	return nil
}

// errBusy means that an update may be possible a moment later.
var errBusy = errors.New("the agent is busy")

func busy(why string) error { return fmt.Errorf("%w: %s", errBusy, why) }

// exec runs a program in place of this process, if there is no work that it could not take over. going is
// called just before. It returns only if this program goes on, and as before.
func (a *Agent) exec(program *os.File, going func() error) error {
	var held undo.Stack
	defer held.Run()
	children, err := a.suspend(&held)
	if err != nil {
		return err
	}
	var b handover.Bundle
	s, err := a.save(&b, children)
	if err != nil {
		return err
	}
	return a.cfg.Update.Exec(&b, program, s, going)
}

// suspend holds back all work of the agent. It returns the children of this process.
func (a *Agent) suspend(held *undo.Stack) (children map[int]bool, err error) {
	if !a.serving.TryLock() {
		return nil, busy("requests or connections are under way, such as a command with a caller")
	}
	held.Push(a.serving.Unlock)
	if !a.identMu.TryLock() {
		return nil, busy("it takes an identity or prepares for a snapshot")
	}
	held.Push(a.identMu.Unlock)
	release, ok := a.interp.TrySuspend()
	if !ok {
		return nil, busy("code is being evaluated")
	}
	held.Push(release)
	if !a.gate.TryLock() {
		return nil, busy("output is being read")
	}
	held.Push(a.gate.Unlock)
	switch {
	case a.forks.Busy():
		return nil, busy("a program in the guest is forking it")
	case a.freezer.Frozen():
		return nil, busy("its disk is frozen")
	}
	held.Push(a.services.Suspend())
	held.Push(a.procs.Suspend())
	children, release = a.reaper.Suspend()
	held.Push(release)
	return children, nil
}

// save returns the state of a held agent.
func (a *Agent) save(b *handover.Bundle, children map[int]bool) (s state, err error) {
	s = state{Record: a.rec.Save(), Free: a.free.Save(), Had: a.had.Load()}
	var live []string
	keep := func(ids []int, groups []string) {
		for _, pid := range ids {
			delete(children, pid)
		}
		live = append(live, groups...)
	}
	var ids []int
	var groups []string
	if s.Commands, ids, groups, err = a.procs.Save(b); err != nil {
		return s, fmt.Errorf("%w: %w", errBusy, err)
	}
	keep(ids, groups)
	if s.Services, ids, groups, err = a.services.Save(b); err != nil {
		return s, fmt.Errorf("%w: %w", errBusy, err)
	}
	keep(ids, groups)
	s.Interp, ids, groups = a.interp.Save(b)
	keep(ids, groups)
	if len(children) > 0 {
		return s, busy("a check of a service runs, or a program that has just started")
	}
	s.Groups = a.groups.Save(live)
	s.Own, err = json.Marshal(a.cfg.Update.Own(b))
	return s, err
}
