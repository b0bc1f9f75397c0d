package tokencall

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forkd/forkd/internal/guest/agent/generation"
	"github.com/forkd/forkd/internal/guest/agentproto/tokenwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// address is the guest's own address. It changes in a clone.
type address struct{ cid atomic.Uint32 }

func (a *address) ContextID() (uint32, error) { return a.cid.Load(), nil }

// bench is a server whose host is the function host.
type bench struct {
	t    *testing.T
	at   *address
	http *http.Client
}

// newBench starts a server. host gets the number of the call, from 1. If it returns an error, the dial fails.
func newBench(t *testing.T, host func(at *address, n int, req tokenwire.Request) (tokenwire.Answer, error)) *bench {
	t.Helper()
	b := &bench{t: t, at: &address{}}
	var n atomic.Int32
	s := New(Config{Guest: generation.New(b.at), Patience: 500 * time.Millisecond,
		Dial: func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				req, err := tokenwire.ReadRequest(theirs)
				if err != nil {
					return
				}
				if a, err := host(b.at, int(n.Add(1)), req); err == nil {
					_ = tokenwire.WriteAnswer(theirs, a)
				}
			}()
			return ours, nil
		}})
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	b.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) get(audience string) (status int, a tokenwire.Answer) {
	b.t.Helper()
	res, err := b.http.Get("http://forkd" + Path + "?" + url.Values{"audience": {audience}}.Encode())
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil || res.Header.Get("Cache-Control") != "no-store" {
		b.t.Fatalf("%q: %v, %v", text, err, res.Header)
	}
	return res.StatusCode, a
}

func TestAProgramGetsAToken(t *testing.T) {
	b := newBench(t, func(_ *address, _ int, req tokenwire.Request) (tokenwire.Answer, error) {
		return tokenwire.Answer{Token: "for " + req.Audience, Expires: 7}, nil
	})
	if status, a := b.get("a&b=c"); status != 200 || a.Token != "for a&b=c" || a.Expires != 7 {
		t.Errorf("%d, %+v", status, a)
	}
}

// The answer was about the source: the guest was cloned while it was on its way.
func TestACloneDropsTheAnswerAboutItsSource(t *testing.T) {
	b := newBench(t, func(at *address, n int, _ tokenwire.Request) (tokenwire.Answer, error) {
		if n == 1 {
			at.cid.Add(1)
			return tokenwire.Answer{Token: "of the source"}, nil
		}
		return tokenwire.Answer{Token: "of the clone"}, nil
	})
	if status, a := b.get("a"); status != 200 || a.Token != "of the clone" {
		t.Errorf("%d, %+v", status, a)
	}
}

func TestABrokenConnectionIsTriedAgain(t *testing.T) {
	b := newBench(t, func(_ *address, n int, _ tokenwire.Request) (tokenwire.Answer, error) {
		if n < 3 {
			return tokenwire.Answer{}, errors.New("hang up")
		}
		return tokenwire.Answer{Token: "at last"}, nil
	})
	if status, a := b.get("a"); status != 200 || a.Token != "at last" {
		t.Errorf("%d, %+v", status, a)
	}
}

func TestErrorsHaveAStatus(t *testing.T) {
	for code, want := range map[tokenwire.Code]int{tokenwire.Invalid: 400, tokenwire.Denied: 403, tokenwire.Limit: 429,
		tokenwire.Unavailable: 503, "of a later host": 503} {
		b := newBench(t, func(*address, int, tokenwire.Request) (tokenwire.Answer, error) {
			return tokenwire.Answer{Error: tokenwire.Errorf(code, "no")}, nil
		})
		if status, a := b.get("a"); status != want || a.Error == nil || a.Error.Code != code {
			t.Errorf("%s: %d, %+v", code, status, a)
		}
	}
	b := newBench(t, func(*address, int, tokenwire.Request) (tokenwire.Answer, error) {
		return tokenwire.Answer{}, errors.New("hang up")
	})
	if status, a := b.get("a"); status != 503 || !strings.Contains(a.Error.Message, "does not answer") {
		t.Errorf("without a host: %d, %+v", status, a)
	}
}

func TestManyProgramsAtOnce(t *testing.T) {
	release := make(chan struct{})
	b := newBench(t, func(*address, int, tokenwire.Request) (tokenwire.Answer, error) {
		<-release
		return tokenwire.Answer{Token: "t"}, nil
	})
	var all sync.WaitGroup
	var got, limited atomic.Int32
	for range 3 * maxCalls {
		all.Go(func() {
			switch status, _ := b.get("a"); status {
			case 200:
				got.Add(1)
			case 429:
				if limited.Add(1) == 2*maxCalls {
					close(release)
				}
			}
		})
	}
	all.Wait()
	if got.Load() != maxCalls || limited.Load() != 2*maxCalls {
		t.Errorf("%d tokens and %d refusals, want %d and %d", got.Load(), limited.Load(), maxCalls, 2*maxCalls)
	}
}
