// Package handover carries an agent's state over an exec of its program: open files keep their
// descriptors, and the rest is JSON in a memfd. It knows nothing of the state's content. The old
// program makes a Bundle and calls Exec; the new one calls Take. All descriptors of the agent close
// at an exec, except for those of a Bundle.
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Version is the version of the state's form. A program takes over only the states of versions it
// knows.
const Version = 1

const (
	// Variable names the state's descriptor in the environment of the new program.
	Variable = "FORKD_AGENT_HANDOVER"
	// MaxState limits the encoded state: the logs of 16 services and the output of commands.
	MaxState = 64 << 20
	// maxFiles limits the descriptors of one state.
	maxFiles = 16 << 10
)

// FD is a descriptor in a state. The zero value is no file, so that a field may be absent.
type FD int

// Bundle collects the descriptors of a state.
type Bundle struct{ fds []int }

// Add notes a file which stays open. It returns 0 for nil and for a closed file.
func (b *Bundle) Add(f *os.File) FD {
	if f == nil {
		return 0
	}
	c, err := f.SyscallConn() // not Fd, which would make the file block
	if err != nil {
		return 0
	}
	out := FD(0)
	_ = c.Control(func(fd uintptr) { out = FD(fd) })
	if out > 0 {
		b.fds = append(b.fds, int(out))
	}
	return out
}

// envelope is the form of a state in the memfd.
type envelope struct {
	Version int             `json:"version"`
	Files   []int           `json:"files"`
	State   json.RawMessage `json:"state"`
}

// Exec runs a program in place of this one, with a state. It returns only if that failed; then the
// state of this process is as before. ready is called just before. The caller holds back all
// goroutines that would change the state, or start processes.
func (b *Bundle) Exec(program *os.File, args, env []string, state any, ready func() error) error {
	if len(b.fds) > maxFiles {
		return fmt.Errorf("%d open files, want at most %d", len(b.fds), maxFiles)
	}
	mem, err := b.write(state)
	if err != nil {
		return err
	}
	defer unix.Close(mem)
	if err := ready(); err != nil {
		return err
	}
	syscall.ForkLock.Lock() // another child must not inherit them
	defer syscall.ForkLock.Unlock()
	defer b.keep(true)
	b.keep(false)
	env = append(without(env), Variable+"="+strconv.Itoa(mem))
	err = syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), args, env)
	return fmt.Errorf("run the new program: %w", err)
}

// keep sets whether the files close at an exec.
func (b *Bundle) keep(closing bool) {
	flag := 0
	if closing {
		flag = unix.FD_CLOEXEC
	}
	for _, fd := range b.fds {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag)
	}
}

// write returns a memfd with the state, which stays open at an exec.
func (b *Bundle) write(state any) (int, error) {
	raw, err := json.Marshal(state)
	if err != nil {
		return -1, fmt.Errorf("encode the state: %w", err)
	}
	body, err := json.Marshal(envelope{Version, b.fds, raw})
	if err != nil {
		return -1, fmt.Errorf("encode the state: %w", err)
	}
	if len(body) > MaxState {
		return -1, fmt.Errorf("its state has %d bytes, want at most %d", len(body), MaxState)
	}
	fd, err := unix.MemfdCreate("forkd-agent-state", 0)
	if err != nil {
		return -1, fmt.Errorf("make a file for the state: %w", err)
	}
	for done := 0; done < len(body); {
		n, err := unix.Write(fd, body[done:])
		if err != nil && err != unix.EINTR {
			unix.Close(fd)
			return -1, fmt.Errorf("write the state: %w", err)
		}
		done += max(n, 0)
	}
	if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func without(env []string) []string {
	var out []string
	for _, v := range env {
		if !strings.HasPrefix(v, Variable+"=") {
			out = append(out, v)
		}
	}
	return out
}

// State is a state that this program has taken over. Its files are open until File takes them.
type State struct {
	raw   json.RawMessage
	files map[FD]bool // false once taken
}

// Take returns the state that was handed over to this program, or nil if it was started afresh. It
// clears the environment's variable.
func Take() (*State, error) {
	v, ok := os.LookupEnv(Variable)
	if !ok {
		return nil, nil
	}
	_ = os.Unsetenv(Variable)
	fd, err := strconv.Atoi(v)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s is %.40q, want a descriptor", Variable, v)
	}
	f := os.NewFile(uintptr(fd), "state")
	if f == nil {
		return nil, fmt.Errorf("%s is %d, want a descriptor", Variable, fd)
	}
	defer f.Close()
	s, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("read the old agent's state: %w", err)
	}
	for fd := range s.files {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return nil, fmt.Errorf("read the old agent's state: descriptor %d: %w", fd, err)
		}
	}
	return s, nil
}

func decode(r io.Reader) (*State, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxState+1))
	if err != nil {
		return nil, err
	}
	if len(b) > MaxState {
		return nil, fmt.Errorf("more than %d bytes", MaxState)
	}
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, err
	}
	if e.Version != Version {
		return nil, fmt.Errorf("version %d, want %d", e.Version, Version)
	}
	if len(e.Files) > maxFiles {
		return nil, fmt.Errorf("%d files, want at most %d", len(e.Files), maxFiles)
	}
	s := &State{raw: e.State, files: map[FD]bool{}}
	for _, fd := range e.Files {
		if fd < 3 || s.files[FD(fd)] {
			return nil, fmt.Errorf("descriptor %d is invalid, or there twice", fd)
		}
		s.files[FD(fd)] = true
	}
	return s, nil
}

// Decode writes the state's content to v.
func (s *State) Decode(v any) error {
	if err := json.Unmarshal(s.raw, v); err != nil {
		return fmt.Errorf("read the old agent's state: %w", err)
	}
	return nil
}

// errNoFile is the error for a descriptor that was not handed over.
var errNoFile = errors.New("the old agent did not hand it over")

// File returns a file of the state, once. The caller closes it. It returns nil for no file.
func (s *State) File(fd FD, name string) (*os.File, error) {
	if fd == 0 {
		return nil, nil
	}
	if !s.files[fd] {
		return nil, fmt.Errorf("descriptor %d of %s: %w", fd, name, errNoFile)
	}
	s.files[fd] = false
	return os.NewFile(uintptr(fd), name), nil
}

// Close closes the files that were not taken.
func (s *State) Close() {
	for fd, left := range s.files {
		if left {
			_ = unix.Close(int(fd))
		}
	}
	clear(s.files)
}
