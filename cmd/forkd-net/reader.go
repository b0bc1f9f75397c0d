package main

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/confine/landlock"
	"github.com/forkd/forkd/internal/confine/selfbox"
	"github.com/forkd/forkd/internal/net/netdns"
)

// readerArg, a mode of the sandbox, and a path are the arguments of the process that reads
// resolv.conf. Programs replace that file with a new one, but Landlock rules apply to files and not
// to names. forkd-net would need access to all of /etc, and as root it owns the host's secrets
// there.
const readerArg = "resolv-conf"

// reader is forkd-net's side of that process. It receives a line of servers for each byte it sends.
type reader struct {
	path string
	cmd  *exec.Cmd
	in   *os.File
	out  *os.File
	warn func(error)

	mu      sync.Mutex // guards the fields below
	lines   *bufio.Reader
	asked   time.Time
	servers []netip.AddrPort
	broken  bool
}

const (
	readerFresh = time.Second     // validity of an answer
	readerLimit = 2 * time.Second // per answer: the file is local
)

// startReader starts the reader process. The process ends when its input is closed, and so with
// forkd-net.
func startReader(path, mode string, warn func(error)) (*reader, error) {
	theirs, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	out, answers, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer answers.Close()
	cmd := exec.Command("/proc/self/exe", readerArg, mode, path)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, answers, os.Stderr
	if err := cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("start the reader of %s: %w", path, err)
	}
	return &reader{path: path, cmd: cmd, in: in, out: out, warn: warn, lines: bufio.NewReader(out)}, nil
}

// close ends the reader process.
func (r *reader) close() {
	r.in.Close()
	r.out.Close()
	_ = r.cmd.Wait() // its input is closed, so it ends
}

// Servers returns the servers in the file. It reads at most once a second. If the reader has
// failed, it returns the last servers.
func (r *reader) Servers() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken || r.servers != nil && time.Since(r.asked) < readerFresh {
		return r.servers
	}
	servers, err := r.read()
	if err != nil {
		r.broken = true
		r.warn(fmt.Errorf("the reader of %s does not answer, its servers stay %v: %w", r.path, r.servers, err))
		return r.servers
	}
	r.asked, r.servers = time.Now(), servers
	return servers
}

func (r *reader) read() (servers []netip.AddrPort, err error) {
	if err := r.out.SetReadDeadline(time.Now().Add(readerLimit)); err != nil {
		return nil, err
	}
	if _, err := r.in.Write([]byte{'?'}); err != nil {
		return nil, err
	}
	line, err := r.lines.ReadString('\n')
	if err != nil {
		return nil, err
	}
	for _, word := range strings.Fields(line) {
		server, err := netip.ParseAddrPort(word)
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// read is the main function of the reader process. Its sandbox allows only reading files.
func read(mode, path string, in io.Reader, out io.Writer) error {
	if err := dropPrivileges(); err != nil {
		return err
	}
	o := options{sandbox: mode}
	if _, err := o.confine([]selfbox.Path{{Name: "/", Rights: landlock.Read}}); err != nil {
		return err
	}
	file := netdns.OpenResolvConf(path)
	for asked := make([]byte, 1); ; {
		if _, err := in.Read(asked); err != nil {
			return nil // forkd-net has ended
		}
		var words []string
		for _, s := range file.Servers() {
			words = append(words, s.String())
		}
		if _, err := fmt.Fprintln(out, strings.Join(words, " ")); err != nil {
			return nil
		}
	}
}
