package engine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/forkd/forkd/internal/agent/dialport"
	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/agentproto/process/processconnect"
)

// serveAgent is the guest: it answers CONNECT and then speaks HTTP.
func (f *fake) serveAgent(l *net.UnixListener) {
	conns := &handover{c: make(chan net.Conn)}
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewAgentHandler(&fakeAgent{f: f}))
	mux.Handle(processconnect.NewProcessHandler(&fakeProcess{f: f}))
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
			if f.faulty("reset") { // by a close with something unread (unix(7))
				_, _ = c.Read(make([]byte, 1))
				c.Close()
				return
			}
			r := bufio.NewReader(c)
			line, _ := r.ReadString('\n')
			if f.mute() {
				return // and leaves the connection open
			}
			to := map[string]*handover{
				fmt.Sprintf("CONNECT %d\n", agentproto.AgentPort): conns,
				fmt.Sprintf("CONNECT %d\n", agentproto.DialPort):  ports,
			}[line]
			if to == nil || to == ports && older || f.faulty("refuse") {
				c.Close()
				return
			}
			io.WriteString(c, "OK 1\n")
			to.c <- c
		}()
	}
}

// mute makes a guest of one that has a token, for good: it is there and never answers.
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
