package appliance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Status is a machine's status, determined from outside. Its JSON form is part of the CLI's contract.
type Status struct {
	Name    string `json:"name"`
	State   string `json:"state"` // absent, stopped, running or unreachable
	Dir     string `json:"dir"`
	PID     int    `json:"pid,omitempty"`
	Accel   string `json:"accel,omitempty"` // tcg or kvm
	QEMU    string `json:"qemu,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	CPUs    int    `json:"cpus,omitempty"`
	Memory  int    `json:"memory_mib,omitempty"`
	Disk    int    `json:"disk_gib,omitempty"`
	DiskUse int64  `json:"disk_used_mib"`
	// API and Agent are the loopback addresses of the services.
	API       string     `json:"api,omitempty"`
	Agent     string     `json:"agent,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	// Outdated means that the host's programs differ from the ones the machine started with.
	Outdated bool `json:"outdated"`
}

// Values of Status.State.
const (
	StateAbsent      = "absent"
	StateStopped     = "stopped"
	StateRunning     = "running"
	StateUnreachable = "unreachable" // QEMU is running, but the appliance does not answer
)

// Status returns the machine's status. It changes nothing.
func (a *Appliance) Status(ctx context.Context) (Status, error) {
	st := Status{Name: a.Name, Dir: a.Dir, State: StateAbsent}
	if !a.Exists() {
		return st, nil
	}
	st.State = StateStopped
	st.DiskUse = diskUsedMiB(a.path(diskFile))
	s, err := a.running()
	if err != nil && !errors.Is(err, ErrNotRunning) {
		return st, err
	}
	st.CPUs, st.Memory, st.Disk = s.Spec.CPUs, s.Spec.MemoryMiB, s.Spec.DiskGiB
	if err != nil {
		return st, nil
	}
	st.State = StateRunning
	st.PID, st.Accel, st.QEMU, st.Kernel, st.StartedAt = s.PID, s.Accel, s.QEMU, s.Kernel, &s.StartedAt
	st.API, st.Agent = loopback(s.APIPort), loopback(s.AgentPort)
	if err := a.waitReady(ctx, s, 3*time.Second, true); err != nil {
		st.State = StateUnreachable
	}
	st.Outdated = outdated(s)
	return st, nil
}

func outdated(s state) bool {
	programs, err := findPrograms()
	if err != nil {
		return false
	}
	digest, err := digestPrograms(programs)
	return err == nil && digest != s.Digest
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// diskUsedMiB returns the size of a sparse file on the host's disk.
func diskUsedMiB(path string) int64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512 >> 20
}

// Endpoint is the address and token of one of the machine's services.
type Endpoint struct {
	Addr  string // host:port on the loopback
	Token string
}

// API returns the endpoint of the running machine's daemon, or ErrNotRunning.
func (a *Appliance) API() (Endpoint, error) {
	return a.endpoint(func(s state) int { return s.APIPort })
}

func (a *Appliance) endpoint(port func(state) int) (Endpoint, error) {
	s, err := a.running()
	if err != nil {
		return Endpoint{}, fmt.Errorf("machine %s: %w", a.Name, err)
	}
	token, err := a.Token()
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{Addr: loopback(port(s)), Token: token}, nil
}

// Console opens the console log for reading.
func (a *Appliance) Console() (*os.File, error) {
	f, err := os.Open(a.path(consoleFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("machine %s has no console log: %w", a.Name, ErrNotRunning)
	}
	return f, err
}
