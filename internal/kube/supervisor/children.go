//go:build linux

package supervisor

import (
	"errors"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// children starts processes, and waits for them and for orphans.
type children struct {
	signals chan os.Signal // SIGCHLD
	done    chan struct{}

	// mu is held while a process is started, so that its end is not taken for that of an orphan.
	mu    sync.Mutex
	known map[int]chan<- unix.WaitStatus // by PID
}

func newChildren() *children {
	c := &children{signals: make(chan os.Signal, 1), done: make(chan struct{}), known: map[int]chan<- unix.WaitStatus{}}
	signal.Notify(c.signals, unix.SIGCHLD)
	go c.loop()
	return c
}

func (c *children) close() {
	signal.Stop(c.signals)
	close(c.signals)
	<-c.done
}

func (c *children) loop() {
	defer close(c.done)
	for range c.signals {
		c.reap()
	}
}

// start starts a process with this one's standard streams. ended gets its status once.
func (c *children) start(path string, argv, env []string) (pid int, ended <-chan unix.WaitStatus, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := os.StartProcess(path, argv, &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, nil, err
	}
	pid = p.Pid // Release changes the field to -1, which kill(2) takes for all processes
	status := make(chan unix.WaitStatus, 1)
	c.known[pid] = status
	return pid, status, p.Release()
}

// reap waits for all processes that have ended.
func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid <= 0: // no children, or all run
			return
		}
		if ended, ok := c.known[pid]; ok {
			delete(c.known, pid)
			ended <- status
		}
	}
}
