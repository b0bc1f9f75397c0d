package agent_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agent/forkcall"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// forker is an agent in a guest that a program can fork. The host only reads requests.
func forker(t *testing.T) (b *bench, at *address, asked <-chan forkwire.Request, call func() <-chan forkwire.Answer) {
	t.Helper()
	at = &address{}
	requests := make(chan forkwire.Request, 8)
	b = startAgent(t, func(c *agent.Config) {
		c.Address = at
		c.DialHost = func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				r := forkwire.NewReader(theirs)
				if req, _, err := forkwire.ReadRequest(r); err == nil {
					requests <- req
				}
				_, _ = r.ReadByte() // until the guest hangs up
			}()
			return ours, nil
		}
	})
	socket := filepath.Join(t.TempDir(), "forks")
	l, err := forkcall.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.agent.ServeForks(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return b, at, requests, func() <-chan forkwire.Answer {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan forkwire.Answer, 1)
		go func() {
			defer c.Close()
			if err := forkwire.WriteRequest(c, forkwire.Request{Op: forkwire.OpFork, N: 2}, nil); err == nil {
				a, _, _ := forkwire.ReadAnswer(forkwire.NewReader(c))
				answers <- a
			}
		}()
		return answers
	}
}

// In a clone, the program that forked gets its index only when the clone has its full identity.
func TestAForkReturnsInTheChild(t *testing.T) {
	b, at, asked, call := forker(t)
	answer := call()
	req := <-asked
	at.cid.Add(1)
	b.sys.err = errors.New("no entropy today")
	b.become(t, func(r *identityReq) { r.ForkToken = req.Token })
	select {
	case a := <-answer:
		t.Fatalf("told in half a clone: %+v", a)
	default:
	}
	b.sys.err = nil
	b.become(t, func(r *identityReq) { r.ForkToken = req.Token })
	if a := <-answer; a.Error != nil || a.Index != 7 || a.ID == "" || a.Parent == "" {
		t.Errorf("got %+v, %v", a, a.Error)
	}
}

func TestAForkIsInterruptedByAnother(t *testing.T) {
	b, at, asked, call := forker(t)
	answer := call()
	<-asked
	at.cid.Add(1)
	b.become(t, nil)
	if a := <-answer; a.Error == nil || a.Error.Code != forkwire.Interrupted {
		t.Errorf("got %+v", a)
	}
}
