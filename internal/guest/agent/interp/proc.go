package interp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/command"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/reap"
)

// Language describes how to start an interpreter's driver.
type Language struct {
	Name     string   // by which requests select the language; unique in a Set
	Programs []string // the first installed one is used
	Args     []string // arguments after the program
	Env      []string // NAME=value; appended to the guest's defaults
}

// request is one message to a driver. Unused fields are empty.
type request struct {
	Op        string     `json:"op"`
	Code      string     `json:"code"`
	MaxResult int        `json:"max_result"`
	Seed      *seedWords `json:"seed"` // to be taken first; the only field of "reseed"
	// Env is set during "eval" only. A driver of an older agent ignores it.
	Env map[string]string `json:"env,omitempty"`
}

// seedWords is a Seed in the form for drivers.
type seedWords struct {
	Entropy string            `json:"entropy"` // hexadecimal
	Env     map[string]string `json:"env"`
	Info    map[string]any    `json:"info"`
}

// answer is one message from a driver. Each operation sets its own fields.
type answer struct {
	Version   string            `json:"version"`
	Modules   map[string]string `json:"modules"`
	Result    string            `json:"result"`
	Error     string            `json:"error"`
	Traceback string            `json:"traceback"`
	ExitCode  int64             `json:"exit_code"`
	Reseeded  []string          `json:"reseeded"`
	SeedError string            `json:"seed_error"` // of an evaluation's seed; then no code has run
	ActsAlone *bool             `json:"acts_alone"` // may be nil: then unknown
}

// proc is one interpreter process. One request is in flight at a time.
type proc struct {
	lang    Language
	child   *reap.Child
	group   *procgroup.Group
	in      *os.File // requests
	out     *os.File // answers
	stdout  *capture
	stderr  *capture
	answers chan received
	quit    chan struct{}
	readEnd chan struct{}

	// actsAlone is from the last answer: code may run in the process without a request.
	actsAlone bool

	aboutMu sync.Mutex // guards the fields below: About does not wait for a running evaluation
	version string
	modules map[string]string
}

type received struct {
	body []byte
	err  error
}

// errTimeout is the error of a call that timed out.
var errTimeout = errors.New("timed out")

// pipes connects a driver. The first file of each pair is the reading end.
type pipes struct{ in, out, stdout, stderr [2]*os.File }

func (p *pipes) close() {
	for _, pair := range [][2]*os.File{p.in, p.out, p.stdout, p.stderr} {
		for _, f := range pair {
			if f != nil {
				_ = f.Close()
			}
		}
	}
}

func openPipes() (p pipes, err error) {
	for _, pair := range []*[2]*os.File{&p.in, &p.out, &p.stdout, &p.stderr} {
		if pair[0], pair[1], err = os.Pipe(); err != nil {
			p.close()
			return pipes{}, fmt.Errorf("make pipe: %w", err)
		}
	}
	return p, nil
}

// startProc starts a driver and waits for its greeting.
func (s *Set) startProc(ctx context.Context, lang Language, limit time.Duration) (*proc, error) {
	fds, err := openPipes()
	if err != nil {
		return nil, err
	}
	child, group, err := s.spawn(lang, fds)
	for _, theirs := range []*os.File{fds.in[0], fds.out[1], fds.stdout[1], fds.stderr[1]} {
		_ = theirs.Close()
	}
	if err != nil {
		fds.close()
		return nil, err
	}
	p := &proc{
		lang: lang, child: child, group: group, in: fds.in[1], out: fds.out[0],
		stdout: newCapture(fds.stdout[0], s.gate), stderr: newCapture(fds.stderr[0], s.gate),
	}
	p.listen()
	if _, err := p.wait(ctx, limit); err != nil {
		_, _ = p.stdout.take()
		said, _ := p.stderr.take()
		p.close()
		return nil, fmt.Errorf("start %s: %w%s", lang.Name, err, lastWords(said))
	}
	return p, nil
}

// listen receives answers and output until close.
func (p *proc) listen() {
	p.answers, p.quit, p.readEnd = make(chan received), make(chan struct{}), make(chan struct{})
	go p.stdout.run()
	go p.stderr.run()
	go p.read()
}

func lastWords(said string) string {
	const most = 2000
	if said == "" {
		return ""
	}
	if len(said) > most {
		said = said[len(said)-most:]
	}
	return "\n" + said
}

func (s *Set) spawn(lang Language, fds pipes) (*reap.Child, *procgroup.Group, error) {
	u, err := account.Lookup(s.rec.User())
	if err != nil {
		return nil, nil, err
	}
	cmd, err := command.New(command.Spec{Program: lang.Programs[0], Args: lang.Args}, u, s.rec)
	for _, other := range lang.Programs[1:] {
		if err != nil {
			cmd, err = command.New(command.Spec{Program: other, Args: lang.Args}, u, s.rec)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", lang.Name, err)
	}
	cmd.Env = append(cmd.Env, lang.Env...)
	cmd.Stdout, cmd.Stderr = fds.stdout[1], fds.stderr[1]
	cmd.ExtraFiles = []*os.File{fds.in[0], fds.out[1]} // fds 3 and 4
	group, err := s.groups.New()
	if err != nil {
		return nil, nil, err
	}
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, group.FD()
	}
	child, err := s.reaper.Start(cmd)
	if err != nil {
		group.Release()
		return nil, nil, fmt.Errorf("start %s: %w", lang.Name, err)
	}
	return child, group, nil
}

// read passes on answers until the driver is gone.
func (p *proc) read() {
	defer close(p.readEnd)
	for {
		body, err := readFrame(p.out)
		select {
		case p.answers <- received{body, err}:
		case <-p.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// call sends a request and waits for its answer.
func (p *proc) call(ctx context.Context, req request, limit time.Duration) (answer, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return answer{}, fmt.Errorf("encode request: %w", err)
	}
	_ = p.in.SetWriteDeadline(time.Now().Add(limit))
	if err := writeFrame(p.in, body); err != nil {
		return answer{}, p.gone(err)
	}
	return p.wait(ctx, limit)
}

// wait waits for the next answer. After errTimeout or the context's error, the request is still in
// flight. After any other error, the process is unusable.
func (p *proc) wait(ctx context.Context, limit time.Duration) (answer, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-timer.C:
		return answer{}, errTimeout
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case r := <-p.answers:
		if r.err != nil {
			return answer{}, p.gone(r.err)
		}
		var a answer
		if err := json.Unmarshal(r.body, &a); err != nil {
			return answer{}, p.gone(fmt.Errorf("decode answer: %w", err))
		}
		p.learn(a)
		return a, nil
	}
}

func (p *proc) learn(a answer) {
	if a.ActsAlone != nil {
		p.actsAlone = *a.ActsAlone
	}
	p.aboutMu.Lock()
	defer p.aboutMu.Unlock()
	if a.Version != "" {
		p.version = a.Version
	}
	if a.Modules != nil {
		p.modules = a.Modules
	}
}

func (p *proc) about() Info {
	p.aboutMu.Lock()
	defer p.aboutMu.Unlock()
	return Info{p.lang.Name, p.child.Pid, p.version, p.modules}
}

// goneError reports that the interpreter process is unusable.
type goneError struct {
	lang string
	code int // for the exit code of the result
	why  string
}

func (e *goneError) Error() string {
	return fmt.Sprintf("the %s interpreter %s; its state is lost", e.lang, e.why)
}

// gone waits a moment for the exit status, which is more useful than a broken pipe.
func (p *proc) gone(cause error) error {
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case <-p.child.Done():
	case <-limit.C:
		return &goneError{p.lang.Name, 1, fmt.Sprintf("broke its connection (%v)", cause)}
	}
	ws := p.child.Status()
	if ws.Signaled() {
		return &goneError{p.lang.Name, 128 + int(ws.Signal()), fmt.Sprintf("was ended by a signal (%s)", ws.Signal())}
	}
	return &goneError{p.lang.Name, ws.ExitStatus(), fmt.Sprintf("exited with status %d", ws.ExitStatus())}
}

func (p *proc) alive() bool {
	select {
	case <-p.child.Done():
		return false
	default:
		return true
	}
}

// isIdle reports whether no code runs in the process before the next request: its only thread waits
// for that.
func (p *proc) isIdle() bool {
	if p.actsAlone {
		return false
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.child.Pid))
	return err == nil && len(threads) == 1
}

func (p *proc) interrupt() { _ = p.child.Signal(unix.SIGINT) }

// close kills the process and all its descendants, and frees its resources.
func (p *proc) close() {
	if p.group == nil || p.group.Kill() != nil {
		if p.alive() {
			procgroup.KillTree(p.child.Pid)
		} else {
			procgroup.KillSession(p.child.Pid)
		}
	}
	<-p.child.Done()
	close(p.quit)
	_ = p.in.Close()
	_ = p.out.Close()
	<-p.readEnd
	p.stdout.close()
	p.stderr.close()
	p.group.Release()
}
