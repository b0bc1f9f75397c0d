package enginefake

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/forkd/forkd/internal/guest/agent/dialport"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/guest/agentproto/msgwire"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/updatewire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// serveAgent acts as the guest: it answers CONNECT and then speaks HTTP.
func (f *fake) serveAgent(l *net.UnixListener) {
	conns := &handover{c: make(chan net.Conn)}
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewAgentHandler(&fakeAgent{f: f}))
	mux.Handle(processconnect.NewProcessHandler(&fakeProcess{f: f}))
	mux.HandleFunc("/files", f.serveFile)
	if !f.faulty("inventory-none") {
		mux.Handle(agentv1connect.NewInventoryHandler(&fakeInventory{f: f}))
	}
	go http.Serve(conns, mux)
	ports := &handover{c: make(chan net.Conn)}
	go dialport.New(dialport.Config{}).Serve(context.Background(), ports)
	older := f.faulty("older")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			if f.faulty("reset") { // by closing with unread data (unix(7))
				_, _ = c.Read(make([]byte, 1))
				c.Close()
				return
			}
			r := bufio.NewReader(c)
			line, _ := r.ReadString('\n')
			if f.mute() {
				return // and leaves the connection open
			}
			to := map[string]func(net.Conn){
				connectLine(agentproto.AgentPort):    func(c net.Conn) { conns.c <- c },
				connectLine(agentproto.DialPort):     func(c net.Conn) { ports.c <- c },
				connectLine(agentproto.IdentityPort): f.takeIdentity,
				connectLine(agentproto.UpdatePort):   f.takeUpdate,
			}[line]
			gone := line == connectLine(agentproto.IdentityPort) && f.portless() ||
				line == connectLine(agentproto.DialPort) && older
			if to == nil || gone || f.faulty("refuse") {
				c.Close()
				return
			}
			io.WriteString(c, "OK 1\n")
			to(c)
		}()
	}
}

func connectLine(port int) string { return fmt.Sprintf("CONNECT %d\n", port) }

// portless uses a token to remove the guest's identity port permanently.
func (f *fake) portless() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noPort = f.noPort || f.faulty("identity-port-gone")
	return f.noPort
}

// takeIdentity serves the identity port, with the same answers as over HTTP.
func (f *fake) takeIdentity(c net.Conn) {
	defer c.Close()
	var req agentv1.IdentityRequest
	if err := msgwire.Read(c, &req, msgwire.MaxIdentityBytes); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // the caller sends no more data: a read ends when it disconnects
		_, _ = c.Read(make([]byte, 1))
		cancel()
	}()
	var out agentv1.IdentityAnswer
	r, err := f.identity(ctx, &req)
	if err != nil {
		out.Refused = err.Error()
	} else {
		out.Response = r
	}
	_ = msgwire.Write(c, &out, msgwire.MaxIdentityBytes)
}

// takeUpdate serves the port for updates like an agent of a guest.
func (f *fake) takeUpdate(c net.Conn) {
	defer c.Close()
	h, err := updatewire.ReadHeader(c)
	if err != nil {
		return
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, c, h.Size); err != nil {
		return
	}
	switch {
	case f.faulty("update-refused"):
		_ = updatewire.WriteAnswer(c, updatewire.Answer{Code: updatewire.Refused, Reason: "code runs" + shout(5000)})
		return
	case f.faulty("update-dropped"): // as a guest that still resets its transport
		return
	case [sha256.Size]byte(sum.Sum(nil)) != h.Digest:
		_ = updatewire.WriteAnswer(c, updatewire.Answer{Code: updatewire.Refused, Reason: "its digest is another"})
		return
	}
	_ = updatewire.WriteAnswer(c, updatewire.Answer{Code: updatewire.Going})
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.faulty("update-fails"):
		_ = updatewire.WriteAnswer(c, updatewire.Answer{Code: updatewire.Refused, Reason: "exec format error"})
	case f.faulty("update-dies"):
		f.ended <- vmm.Exit{Kind: vmm.ExitReset, Reason: "reset"}
	case f.faulty("update-lies"): // the new agent can no more than the old one
	default:
		f.updated = true
	}
}

// mute uses a token to silence the guest permanently: it accepts connections and never answers.
func (f *fake) mute() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = f.silent || f.faulty("mute")
	return f.silent
}

type handover struct{ c chan net.Conn }

func (h *handover) Accept() (net.Conn, error) { return <-h.c, nil }
func (h *handover) Close() error              { return nil }
func (h *handover) Addr() net.Addr            { return &net.UnixAddr{} }
