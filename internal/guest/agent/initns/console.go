package initns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// console is the terminal that an init has as /dev/console.
type console struct {
	master *os.File
	peer   *os.File // the init's end. It stays open here, so that the init can close and hang it up
	name   string   // of the init's end
}

// openConsole opens a new terminal.
func openConsole() (*console, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal for the console: %w", err)
	}
	c := &console{master: os.NewFile(uintptr(fd), "/dev/ptmx")}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		c.name = "/dev/pts/" + strconv.Itoa(number)
		c.peer, err = os.OpenFile(c.name, os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = c.master.Close()
		return nil, fmt.Errorf("open a terminal for the console: %w", err)
	}
	return c, nil
}

func (c *console) close() {
	_ = c.master.Close()
	_ = c.peer.Close()
}

// draining limits the time for the last output of an init that has ended.
const draining = time.Second

// relay copies the console to standard output, and our terminal to the console if there is one. The returned function
// waits for the last output.
func (c *console) relay(terminal bool) (stop func(), err error) {
	restore := func() {}
	if terminal {
		c.resize()
		old, err := term.MakeRaw(0)
		if err != nil {
			return nil, fmt.Errorf("set up the terminal: %w", err)
		}
		restore = func() { _ = term.Restore(0, old) }
		go func() { _, _ = io.Copy(c.master, os.Stdin) }() // ends with this process
	}
	var out io.Writer = os.Stdout
	if !terminal {
		out = &lines{to: os.Stdout}
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		c.copyTo(out)
	}()
	return func() {
		_ = c.peer.Close() // the last one: reads of the other end then fail after the rest
		_ = c.master.SetReadDeadline(time.Now().Add(draining))
		<-copied
		restore()
	}, nil
}

// copyTo copies output until the end of the init. A console that hung up is opened again.
func (c *console) copyTo(out io.Writer) {
	buf := make([]byte, 16<<10)
	for {
		n, err := c.master.Read(buf)
		if n > 0 {
			_, _ = out.Write(buf[:n]) // without a reader the output is lost, and the init goes on
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, unix.EIO) || c.reopen() != nil {
			return
		}
	}
}

// reopen opens the init's end again after it has hung up. It fails after stop.
func (c *console) reopen() error {
	again, err := os.OpenFile(c.name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer again.Close()
	to, err := c.peer.SyscallConn()
	if err != nil {
		return err
	}
	var dup error
	if err := to.Control(func(fd uintptr) { dup = unix.Dup3(int(again.Fd()), int(fd), unix.O_CLOEXEC) }); err != nil {
		return err
	}
	return dup
}

// resize gives the console the size of our terminal.
func (c *console) resize() {
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err != nil {
		return
	}
	if raw, err := c.master.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
	}
}

// lines writes the text of a terminal with the line ends of a file. systemd ends its lines with a carriage return
// itself, and the terminal adds another one.
type lines struct {
	to   io.Writer
	held bool // carriage returns came last
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p)+1)
	for _, c := range p {
		if c == '\r' {
			l.held = true
			continue
		}
		if l.held && c != '\n' {
			out = append(out, '\r')
		}
		l.held = false
		out = append(out, c)
	}
	_, err := l.to.Write(out)
	return len(p), err
}
