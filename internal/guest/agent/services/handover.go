package services

import (
	"errors"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// ErrUnsettled means that a service is just starting or ending.
var ErrUnsettled = errors.New("a service is just starting or ending")

// Saved is the state of a Supervisor for a later program of this agent.
type Saved struct {
	Services []savedService `json:"services"`
}

// Restored is a Saved of an earlier program, with its files.
type Restored struct {
	Saved Saved           // the state
	Files *handover.State // has the files of it
}

type savedService struct {
	Status servicespec.Status `json:"status"`
	Held   bool               `json:"held"`
	Log    []byte             `json:"log"`
	Total  int64              `json:"total"` // bytes written to the log
	Loop   bool               `json:"loop"`  // it is supervised
	Wait   time.Duration      `json:"wait"`
	InRow  int                `json:"in_row"`
	Run    *savedRun          `json:"run"` // nil in a pause before a restart
}

type savedRun struct {
	PID   int           `json:"pid"`
	Group string        `json:"group"`
	Out   handover.FD   `json:"out"`
	Ran   time.Duration `json:"ran"` // the clock of another start would not fit
	Ready bool          `json:"ready"`
}

// Suspend keeps all services as they are until release is called. The caller has locked the gate.
func (s *Supervisor) Suspend() (release func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Save returns the state. The caller holds the services and the reaper. pids are the programs in
// the state, and groups their control groups.
func (s *Supervisor) Save(b *handover.Bundle) (out Saved, pids []int, groups []string, err error) {
	for _, v := range s.all {
		one := savedService{Status: v.st, Held: v.held, Loop: v.stop != nil, Wait: v.turn.wait, InRow: v.turn.inRow}
		one.Log, one.Total = v.log.all()
		r := v.turn.run
		switch {
		case !one.Loop || v.turn.pause && v.turn.ctx.Err() == nil:
		case r == nil || r.p.PID() == 0 || v.turn.ctx.Err() != nil || hasEnded(r.p) ||
			v.st.State == servicespec.BackingOff: // it is being ended
			return Saved{}, nil, nil, ErrUnsettled
		default:
			one.Run = &savedRun{PID: r.p.PID(), Group: r.p.Group(), Out: b.Add(r.out), Ran: time.Since(r.began),
				Ready: r.ready}
			pids, groups = append(pids, one.Run.PID), append(groups, one.Run.Group)
		}
		out.Services = append(out.Services, one)
	}
	return out, pids, groups, nil
}

func hasEnded(p Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// restore takes over the services of an earlier program. A service that cannot be taken over starts
// anew: the group of its old process ends with its program.
func (s *Supervisor) restore(r Restored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, saved := range r.Saved.Services {
		if err := saved.Status.Spec.Check(); err != nil || i >= servicespec.MaxServices {
			s.cfg.Log("services: one of the old agent is dropped: %v", err)
			continue
		}
		v := newService(saved.Status.Spec)
		v.st, v.held = saved.Status, saved.Held
		v.log.fill(saved.Log, saved.Total)
		s.all[v.st.Spec.Name] = v
		if !saved.Loop {
			continue
		}
		if err := s.resume(v, saved, r.Files); err != nil {
			s.cfg.Log("service %s starts anew: %v", v.st.Spec.Name, err)
			s.startLocked(v)
			continue
		}
		s.loopLocked(v)
	}
}

// resume sets the place of a service's loop.
func (s *Supervisor) resume(v *service, saved savedService, files *handover.State) error {
	v.turn = turn{wait: max(saved.Wait, 0), inRow: max(saved.InRow, 0), pause: saved.Run == nil}
	if saved.Run == nil {
		return nil
	}
	if s.cfg.Adopt == nil {
		return errors.New("its process cannot be taken over")
	}
	out, err := files.File(saved.Run.Out, "output of a service")
	if err != nil {
		return err
	}
	if out == nil {
		return errors.New("its output was not handed over")
	}
	p, err := s.cfg.Adopt(saved.Run.PID, saved.Run.Group)
	if err != nil {
		_ = out.Close()
		return err
	}
	v.turn.run = &run{p: p, out: out, began: time.Now().Add(-max(saved.Run.Ran, 0)), ready: saved.Run.Ready}
	return nil
}
