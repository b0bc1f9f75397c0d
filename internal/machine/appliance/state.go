package appliance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// state is the record of a started machine for later processes.
type state struct {
	PID int `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat. Together with BootID it makes the PID unique.
	StartTime uint64    `json:"start_time"`
	BootID    string    `json:"boot_id"`
	StartedAt time.Time `json:"started_at"`
	Spec      Spec      `json:"spec"`
	Network   Network   `json:"network"`
	Jail      string    `json:"jail,omitempty"`  // the daemon's flag; empty for its default
	Serve     []string  `json:"serve,omitempty"` // additional flags of the daemon
	Accel     string    `json:"accel"`
	QEMU      string    `json:"qemu"`
	Kernel    string    `json:"kernel"`
	APIPort   int       `json:"api_port"`
	AgentPort int       `json:"agent_port"`
	// Digest is the digest of the programs and settings in the initramfs.
	Digest string `json:"digest"`
}

func (a *Appliance) readState() (state, error) {
	b, err := os.ReadFile(a.path(stateFile))
	if err != nil {
		return state{}, err
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return state{}, fmt.Errorf("decode %s: %w", a.path(stateFile), err)
	}
	return s, nil
}

func (a *Appliance) writeState(s state) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(a.path(stateFile), append(b, '\n'))
}

// running returns the state of the running machine, or ErrNotRunning. A state left by a killed QEMU or an earlier
// boot of the host does not count.
func (a *Appliance) running() (state, error) {
	s, err := a.readState()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return state{}, ErrNotRunning
	case err != nil:
		return state{}, err
	case !s.alive():
		return s, ErrNotRunning
	}
	return s, nil
}

func (s state) alive() bool {
	return s.PID > 0 && s.BootID == hostproc.BootID() && hostproc.Runs(s.PID, s.StartTime)
}
