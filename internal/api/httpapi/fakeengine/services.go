package fakeengine

import (
	"os"
	"strings"
	"sync"

	"github.com/forkd/forkd/internal/guest/agent/services"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// newServices returns the agent's supervisor over programs in memory.
func newServices() *services.Supervisor {
	return services.New(services.Config{Start: startService, Log: func(string, ...any) {}})
}

// startService starts a fake program. It prints its arguments and runs until it is stopped; "crash" ends
// with exit code 3 at once.
func startService(spec servicespec.Spec, out *os.File) (services.Process, error) {
	p := &serviceProgram{done: make(chan struct{})}
	if out != nil {
		if _, err := out.WriteString(strings.Join(spec.Command, " ") + "\n"); err != nil {
			return nil, err
		}
	}
	switch {
	case spec.Command[0] == "crash":
		p.end(3)
	case out == nil: // a check
		p.end(0)
	}
	return p, nil
}

type serviceProgram struct {
	once sync.Once
	done chan struct{}
	code int
}

func (p *serviceProgram) end(code int) {
	p.once.Do(func() {
		p.code = code
		close(p.done)
	})
}

func (p *serviceProgram) PID() int              { return 42 }
func (p *serviceProgram) Group() string         { return "" }
func (p *serviceProgram) Done() <-chan struct{} { return p.done }
func (p *serviceProgram) ExitCode() int         { return p.code }
func (p *serviceProgram) Signal(n int)          { p.end(128 + n) }
func (p *serviceProgram) Kill()                 { p.end(137) }
