package sshbridge

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/guest/agentproto"
)

// exitFailed is the exit code of a session whose program could not be started, as for ssh(1).
const exitFailed = 255

// session is one channel with one program (RFC 4254, section 6).
type session struct {
	s        *server
	ch       ssh.Channel
	env      map[string]string
	terminal *client.Size
	resize   chan client.Size
	pid      chan uint32 // the program's, once
	lost     chan struct{}
}

func newSession(s *server, ch ssh.Channel) *session {
	return &session{
		s: s, ch: ch, env: map[string]string{},
		resize: make(chan client.Size, 1), pid: make(chan uint32, 1), lost: make(chan struct{}),
	}
}

// Payloads of requests.
type (
	ptyRequest struct {
		Term          string
		Cols, Rows    uint32
		Width, Height uint32
		Modes         string
	}
	sizeRequest struct{ Cols, Rows, Width, Height uint32 }
	envRequest  struct{ Name, Value string }
	textRequest struct{ Text string } // of exec, subsystem and signal
	exitStatus  struct{ Status uint32 }
)

// serve answers the channel's requests until the client closes it. The program runs beside, because
// a terminal changes its size while it runs.
func (s *session) serve(ctx context.Context, requests <-chan *ssh.Request) {
	defer s.ch.Close()
	var program sync.WaitGroup
	defer program.Wait()
	defer close(s.lost)
	started := false
	for r := range requests {
		var argv []string
		ok := false
		if r.Type == "window-change" {
			ok = s.sized(r.Payload)
		} else if !started { // one program per channel, and no settings after its start
			argv, ok = s.request(r)
		}
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if argv != nil {
			started = true
			program.Go(func() { s.run(ctx, argv) })
		}
	}
}

// request handles one request. It returns a program if one has to start.
func (s *session) request(r *ssh.Request) (argv []string, ok bool) {
	switch r.Type {
	case "pty-req":
		return nil, s.pty(r.Payload)
	case "env":
		return nil, s.variable(r.Payload)
	case "shell":
		return shell(""), true
	case "exec":
		var p textRequest
		if ssh.Unmarshal(r.Payload, &p) != nil || p.Text == "" {
			return nil, false
		}
		return shell(p.Text), true
	case "subsystem":
		var p textRequest
		if ssh.Unmarshal(r.Payload, &p) != nil || p.Text != "sftp" {
			return nil, false
		}
		return []string{"/bin/sh", "-c", sftpScript, "sh"}, true
	}
	return nil, false // among others agent forwarding, X11, signals
}

// Scripts of sessions. A session starts in the user's home, like that of any SSH server. The shell
// is the user's, from /etc/passwd, otherwise sh.
const (
	shellScript = `cd 2>/dev/null
s=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f7)
[ -n "$s" ] || s=$(grep "^[^:]*:[^:]*:$(id -u):" /etc/passwd 2>/dev/null | head -n 1 | cut -d: -f7)
[ -x "$s" ] || s=/bin/sh
export SHELL="$s"
`
	loginScript   = shellScript + `exec "$s" -l`
	commandScript = shellScript + `exec "$s" -c "$1"`
	sftpScript    = `for p in ` + agentproto.SFTPProgram + ` /usr/lib/openssh/sftp-server /usr/lib/ssh/sftp-server ` +
		`/usr/libexec/openssh/sftp-server /usr/libexec/sftp-server; do
[ -x "$p" ] && exec "$p"
done
echo "forkd: this sandbox's agent is older than forkd 0.1.0 and has no SFTP server: make its snapshot again" >&2
exit 127`
)

// shell returns the program of a session: a login shell, or a command line in the user's shell.
func shell(command string) []string {
	if command == "" {
		return []string{"/bin/sh", "-c", loginScript, "sh"}
	}
	return []string{"/bin/sh", "-c", commandScript, "sh", command}
}

func (s *session) pty(payload []byte) bool {
	var p ptyRequest
	if ssh.Unmarshal(payload, &p) != nil || len(p.Term) > maxText {
		return false
	}
	s.terminal = new(size(p.Cols, p.Rows))
	if p.Term != "" {
		s.env["TERM"] = p.Term
	}
	return true
}

func (s *session) sized(payload []byte) bool {
	var p sizeRequest
	if ssh.Unmarshal(payload, &p) != nil {
		return false
	}
	select { // only the newest size matters
	case <-s.resize:
	default:
	}
	s.resize <- size(p.Cols, p.Rows) // the only sender
	return true
}

// size limits a terminal's size to values of a kernel. Zero means unknown.
func size(cols, rows uint32) client.Size {
	limited := func(n, otherwise uint32) uint16 {
		if n == 0 {
			return uint16(otherwise)
		}
		return uint16(min(n, 1<<15-1))
	}
	return client.Size{Cols: limited(cols, 80), Rows: limited(rows, 24)}
}

func (s *session) variable(payload []byte) bool {
	var p envRequest
	bad := ssh.Unmarshal(payload, &p) != nil || p.Name == "" || strings.ContainsAny(p.Name, "=\x00") ||
		strings.ContainsRune(p.Value, 0) || len(p.Name)+len(p.Value) > maxText || len(s.env) >= maxVariables
	if bad {
		return false
	}
	s.env[p.Name] = p.Value
	return true
}

// run runs the channel's program and sends its exit code.
func (s *session) run(ctx context.Context, argv []string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go s.hangUp(ctx, cancel, ended)
	st, err := s.s.to.Exec(ctx, client.ExecOptions{
		Args: argv, Env: s.env, User: s.s.user,
		Stdin: s.ch, Stdout: s.ch, Stderr: s.ch.Stderr(),
		Terminal: s.terminal, Resize: s.resize,
		Outlive: true, Started: func(pid uint32) { s.pid <- pid },
	})
	code := st.ExitCode
	if err != nil {
		code = exitFailed
		s.explain(err)
	} else if st.KilledBy != "" {
		s.say(st.KilledBy)
	}
	_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(exitStatus{uint32(code)}))
	s.ch.Close()
}

// Times of a lost session.
const (
	hangUpLimit = 5 * time.Second // of the signal
	lostGrace   = time.Second     // for the program's end after it
)

// hangUp sends SIGHUP to the program if the client goes before it ends, as an SSH server does with
// the shell of a terminal. Programs that ignore it, and those that left the session, go on.
func (s *session) hangUp(ctx context.Context, cancel func(), ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	case <-s.lost:
	}
	var pid uint32
	select {
	case pid = <-s.pid:
	case <-ended:
		return
	case <-time.After(hangUpLimit): // elapses: a program that does not start
		cancel()
		return
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), hangUpLimit)
	defer stop()
	kill := []string{"/bin/sh", "-c", `kill -HUP "$1"`, "sh", fmt.Sprint(pid)}
	_, _ = s.s.to.Exec(limited, client.ExecOptions{Args: kill, User: s.s.user, Stdout: io.Discard, Stderr: io.Discard})
	select {
	case <-ended:
	case <-time.After(lostGrace): // elapses: a program that goes on
		cancel()
	}
}

// explain writes an error to the client's terminal.
func (s *session) explain(err error) {
	s.say(err.Error())
	if hint := hints.Of(err); hint != "" {
		s.say("hint: " + hint)
	}
}

func (s *session) say(text string) {
	end := "\n"
	if s.terminal != nil {
		end = "\r\n"
	}
	_, _ = io.WriteString(s.ch.Stderr(), "forkd: "+text+end)
}
