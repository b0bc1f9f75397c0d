package sshbridge

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/forkd/forkd/client"
)

// DefaultUser is the name with which an SSH client asks for the default user of the sandbox's
// image. An SSH client always sends a name.
const DefaultUser = "forkd-default"

// Sandbox runs programs in a sandbox and connects to its servers. Its methods are called by many
// goroutines.
type Sandbox interface {
	Exec(context.Context, client.ExecOptions) (client.ExecStatus, error)
	Dial(ctx context.Context, port uint16) (net.Conn, error)
}

// Limits of one connection. The user's own client is on the other end, so they only bound mistakes.
const (
	maxChannels  = 128
	maxVariables = 128
	maxText      = 64 << 10 // one variable or a terminal's name, in bytes
	handshake    = 30 * time.Second
)

// ServerVersion is the server's identification (RFC 4253, section 4.2).
const ServerVersion = "SSH-2.0-forkd"

// Serve serves one SSH connection until it or ctx ends. It closes stream. When it returns, no
// request to the daemon is in flight. Programs that the client left behind may go on in the
// sandbox, as after any SSH connection.
func Serve(ctx context.Context, stream io.ReadWriteCloser, host ssh.Signer, to Sandbox) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	cfg := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: ServerVersion}
	cfg.AddHostKey(host)
	late := time.AfterFunc(handshake, func() { stream.Close() })
	conn, channels, requests, err := ssh.NewServerConn(pipe{ReadWriteCloser: stream}, cfg)
	if !late.Stop() && err != nil {
		return fmt.Errorf("SSH handshake: no answer within %s", handshake)
	}
	if err != nil {
		return fmt.Errorf("SSH handshake: %w", err)
	}
	defer conn.Close()
	user := conn.User()
	if user == DefaultUser {
		user = ""
	}
	s := &server{to: to, user: user, slots: make(chan struct{}, maxChannels)}
	var all sync.WaitGroup
	all.Go(func() { ssh.DiscardRequests(requests) }) // keepalives and remote forwarding: refused
	for c := range channels {
		select {
		case s.slots <- struct{}{}:
			all.Go(func() {
				defer func() { <-s.slots }()
				s.channel(ctx, c)
			})
		default:
			_ = c.Reject(ssh.ResourceShortage, fmt.Sprintf("more than %d channels", maxChannels))
		}
	}
	all.Wait()
	return nil
}

// server serves the channels of one connection.
type server struct {
	to    Sandbox
	user  string // empty for the image's default
	slots chan struct{}
}

func (s *server) channel(ctx context.Context, c ssh.NewChannel) {
	switch c.ChannelType() {
	case "session":
		ch, requests, err := c.Accept()
		if err != nil {
			return
		}
		newSession(s, ch).serve(ctx, requests)
	case "direct-tcpip":
		s.forward(ctx, c)
	default:
		_ = c.Reject(ssh.UnknownChannelType, "forkd forwards only TCP connections to the sandbox's localhost")
	}
}

// pipe is a stream as a connection.
type pipe struct {
	io.ReadWriteCloser
	nowhere
}

// nowhere completes a net.Conn with addresses and deadlines, which SSH does not use.
type nowhere struct{}

func (nowhere) LocalAddr() net.Addr              { return address{} }
func (nowhere) RemoteAddr() net.Addr             { return address{} }
func (nowhere) SetDeadline(time.Time) error      { return nil }
func (nowhere) SetReadDeadline(time.Time) error  { return nil }
func (nowhere) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "ssh" }
